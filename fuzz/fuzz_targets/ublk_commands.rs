//! Any kernel at the other end of a ublk queue: requests are valid, each has one result, and nothing panics.
//!
//! The input begins with a byte that chooses the disk. Then come records of 16 bytes: a kind, a tag, a result and a
//! descriptor.
#![no_main]

use chronodisk_front::ublk::wire::Descriptor;
use chronodisk_front::ublk::{
    QUEUE_DEPTH, REQUEST_BYTES_MAX, UblkCommand, UblkDisk, UblkEvent, UblkRequest, UblkSession,
};
use chronodisk_sim::{RequestId, Status};
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 1 << 20;
const RECORD_BYTES: usize = 16;

fuzz_target!(|input: &[u8]| {
    let Some((&[choice], records)) = input.split_first_chunk() else { return };
    let mut machine = Machine::new(choice);
    for record in records.as_chunks::<RECORD_BYTES>().0.iter().take(64) {
        machine.run(record);
        machine.check();
    }
    machine.finish();
});

struct Machine {
    session: UblkSession,
    disk: UblkDisk,
    store: RamStore,
    outstanding: Vec<UblkRequest>,
    waiting: usize,
}

impl Machine {
    fn new(choice: u8) -> Self {
        let has = |bit: u8| choice & 1 << bit != 0;
        let disk = UblkDisk {
            size_bytes: CAPACITY_BYTES,
            block_bytes: if has(0) { 4096 } else { 512 },
            physical_block_bytes: 4096,
            read_only: has(1),
            discard_unit_bytes: has(2).then_some(4096),
            volatile_cache: has(3),
            rotational: has(4),
        };
        let store = RamStore::new(CAPACITY_BYTES, if has(5) { 40_000 } else { 4 * CAPACITY_BYTES });
        Machine { session: UblkSession::new(disk), disk, store, outstanding: Vec::new(), waiting: 0 }
    }

    fn run(&mut self, record: &[u8; RECORD_BYTES]) {
        let [kind, tag, wide, result, op, flags, sectors, many, start @ ..] = *record;
        match kind & 3 {
            0 | 1 => {
                let tag = u16::from(tag) | u16::from(wide & 1) << 8;
                let start = u64::from_le_bytes(start);
                let descriptor = Descriptor {
                    op_flags: u32::from(op) | u32::from(flags) << 8,
                    sectors: u32::from(sectors) | u32::from(many) << 6,
                    start_sector: if wide & 2 == 0 { start % 2100 } else { start },
                };
                let result = if kind & 4 == 0 { 0 } else { i32::from(result as i8) };
                self.fetched(tag, result, descriptor);
            }
            2 => self.complete(tag, result & 1 == 1),
            _ => self.send(),
        }
    }

    fn fetched(&mut self, tag: u16, result: i32, descriptor: Descriptor) {
        match self.session.fetched(tag, result, descriptor) {
            Ok(Some(UblkEvent::Request(request))) => {
                assert_eq!(request.tag, tag);
                let is_write = request.command == UblkCommand::Write;
                assert_eq!(self.session.room(tag).len() as u64, if is_write { request.len_bytes } else { 0 });
                self.session.room(tag).fill(0xA5);
                // A store without memory fails, which the kernel is told.
                let _ = self.session.execute(tag, &mut self.store);
                self.outstanding.push(request);
            }
            Ok(Some(UblkEvent::Ended)) => assert!(self.session.has_ended()),
            Ok(None) => self.waiting += 1,
            Err(_) => {}
        }
    }

    fn complete(&mut self, index: u8, fails: bool) {
        if self.outstanding.is_empty() {
            return;
        }
        let request = self.outstanding.swap_remove(usize::from(index) % self.outstanding.len());
        let status = if fails { Status::MediaError } else { Status::Ok };
        assert!(self.session.complete(request.tag, status));
        assert!(!self.session.complete(request.tag, status));
        self.waiting += 1;
    }

    fn send(&mut self) {
        while let Some(reply) = self.session.next_reply() {
            assert!(reply.tag < QUEUE_DEPTH && reply.result <= REQUEST_BYTES_MAX as i32);
            assert!(reply.data.is_empty() || reply.data.len() == reply.result as usize);
            self.session.sent();
            self.waiting -= 1;
        }
        assert_eq!(self.waiting, 0);
    }

    /// Invariants after each record.
    fn check(&self) {
        assert_eq!(self.session.outstanding(), self.outstanding.len());
        assert!(self.outstanding.len() <= QUEUE_DEPTH.into());
        let block_bytes = u64::from(self.disk.block_bytes);
        for request in &self.outstanding {
            assert!(request.offset_bytes + request.len_bytes <= CAPACITY_BYTES);
            assert!(request.offset_bytes % block_bytes == 0 && request.len_bytes % block_bytes == 0);
            assert_eq!(request.len_bytes == 0, request.command == UblkCommand::Flush);
            let changes = !matches!(request.command, UblkCommand::Read | UblkCommand::Flush);
            assert!(!(self.disk.read_only && changes));
            let device = request.device_request(RequestId(request.tag.into()), 0, 0);
            assert_eq!((device.len_bytes(), device.lba.offset_bytes()), (request.len_bytes, request.offset_bytes));
        }
    }

    /// After the last completion nothing waits.
    fn finish(&mut self) {
        while !self.outstanding.is_empty() {
            self.complete(0, false);
        }
        self.send();
        assert!(!self.session.has_output());
    }
}
