//! Any kernel at the other end of FUSE over io_uring: requests are valid, each has one reply, and nothing panics.
//!
//! The input begins with a byte that chooses the file. Then come records of 64 bytes: a kind, an entry, a result, and
//! parts of the entry's header.
#![no_main]

use chronodisk_front::fuse::ring_wire::RING_HEADER_BYTES;
use chronodisk_front::fuse::{FuseCommand, FuseEvent, FuseFile, FuseRequest, FuseRingSession, REQUEST_BYTES_MAX};
use chronodisk_sim::{RequestId, Status};
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 1 << 20;
const ENTRIES: u32 = 16;
const RECORD_BYTES: usize = 64;

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
    session: FuseRingSession,
    file: FuseFile,
    store: RamStore,
    payload: Vec<u8>,
    outstanding: Vec<FuseRequest>,
    waiting: usize,
}

impl Machine {
    fn new(choice: u8) -> Self {
        let has = |bit: u8| choice & 1 << bit != 0;
        let file = FuseFile {
            size_bytes: CAPACITY_BYTES,
            block_bytes_min: if has(0) { 4096 } else { 512 },
            block_bytes_preferred: 4096,
            read_only: has(1),
            discard: has(2),
        };
        let store = RamStore::new(CAPACITY_BYTES, if has(3) { 40_000 } else { 4 * CAPACITY_BYTES });
        let payload = vec![0xA5; REQUEST_BYTES_MAX as usize];
        let session = FuseRingSession::new(file, ENTRIES);
        Machine { session, file, store, payload, outstanding: Vec::new(), waiting: 0 }
    }

    fn run(&mut self, record: &[u8; RECORD_BYTES]) {
        let [kind, entry, result, sectors, fields @ ..] = record;
        match kind & 3 {
            0 | 1 => {
                let mut header = [0; RING_HEADER_BYTES];
                // The start of `fuse_in_header`, and of the operation's structure.
                header[..20].copy_from_slice(&fields[..20]);
                header[128..168].copy_from_slice(&fields[20..60]);
                header[272..276].copy_from_slice(&(u32::from(*sectors) << 9).to_ne_bytes());
                if kind & 8 == 0 {
                    // The root, and lengths that agree.
                    header[16..24].copy_from_slice(&1_u64.to_ne_bytes());
                    header[..4].copy_from_slice(&(40 + 40 + (u32::from(*sectors) << 9)).to_ne_bytes());
                    header[144..148].copy_from_slice(&(u32::from(*sectors) << 9).to_ne_bytes());
                }
                let result = if kind & 4 == 0 { 0 } else { i32::from(*result as i8) };
                self.fetched(u32::from(entry % 20), result, &header);
            }
            2 => self.complete(*entry, result & 1 == 1),
            _ => self.send(),
        }
    }

    fn fetched(&mut self, entry: u32, result: i32, header: &[u8; RING_HEADER_BYTES]) {
        let had_output = self.session.next_reply().is_some();
        match self.session.fetched(entry, result, header) {
            Ok(Some(FuseEvent::Request(request))) => {
                assert_eq!(request.slot, entry);
                // A store without memory fails, which the kernel is told.
                let _ = self.session.execute(entry, &mut self.store, &mut self.payload);
                self.outstanding.push(request);
            }
            Ok(Some(FuseEvent::Destroyed)) => {
                assert!(self.session.has_ended());
                // Only a message of that meaning has a reply.
                self.waiting += usize::from(result == 0);
            }
            Ok(None) => self.waiting += 1,
            Err(_) => assert_eq!(self.session.has_output(), had_output),
        }
    }

    fn complete(&mut self, index: u8, fails: bool) {
        if self.outstanding.is_empty() {
            return;
        }
        let request = self.outstanding.swap_remove(usize::from(index) % self.outstanding.len());
        let status = if fails { Status::MediaError } else { Status::Ok };
        assert!(self.session.complete(request.slot, status));
        assert!(!self.session.complete(request.slot, status));
        self.waiting += 1;
    }

    fn send(&mut self) {
        while let Some(reply) = self.session.next_reply() {
            assert!(reply.entry < ENTRIES && reply.payload_bytes <= REQUEST_BYTES_MAX);
            assert!(reply.body.len() <= reply.payload_bytes as usize);
            self.session.sent();
            self.waiting -= 1;
        }
        assert_eq!(self.waiting, 0);
    }

    /// Invariants after each record.
    fn check(&self) {
        assert_eq!(self.session.outstanding(), self.outstanding.len());
        assert!(self.outstanding.len() <= ENTRIES as usize);
        let block_bytes = u64::from(self.file.block_bytes_min);
        for request in &self.outstanding {
            assert!(request.offset_bytes + request.len_bytes <= CAPACITY_BYTES);
            assert!(request.offset_bytes % block_bytes == 0 && request.len_bytes % block_bytes == 0);
            assert_eq!(request.len_bytes == 0, request.command == FuseCommand::Flush);
            let changes = !matches!(request.command, FuseCommand::Read | FuseCommand::Flush);
            assert!(!(self.file.read_only && changes));
            let device = request.device_request(RequestId(request.slot.into()), 0, 0);
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
