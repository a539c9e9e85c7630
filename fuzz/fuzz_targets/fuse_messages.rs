//! Any kernel: served, refused or not answered; and what the session says is what Linux takes.
//!
//! The input begins with a byte that chooses the file. Then come records: a kind, a length (16 bits, little-endian),
//! and as many bytes.
#![no_main]

use chronodisk_front::fuse::mock::{MockKernel, message};
use chronodisk_front::fuse::wire::opcode;
use chronodisk_front::fuse::{FuseCommand, FuseFile, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, REQUEST_BYTES_MAX};
use chronodisk_sim::{RequestId, Status};
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 1 << 20;

/// Kinds of records; others send their bytes as they are.
const OPERATION: u8 = 1;
const RANGE: u8 = 2;
const COMPLETE: u8 = 3;
const INIT: u8 = 4;

fuzz_target!(|input: &[u8]| {
    let Some((&[choice], mut rest)) = input.split_first_chunk() else { return };
    let mut machine = Machine::new(choice);
    for _ in 0..64 {
        let Some((&[kind, low, high], later)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_le_bytes([low, high])).min(later.len());
        let (bytes, later) = later.split_at(len);
        rest = later;
        machine.run(kind, bytes);
        machine.check();
    }
    machine.finish();
});

struct Machine {
    kernel: MockKernel,
    file: FuseFile,
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
        let budget_bytes = if has(3) { 40_000 } else { 4 * CAPACITY_BYTES };
        let store = Box::new(RamStore::new(CAPACITY_BYTES, budget_bytes));
        let kernel = if has(4) { MockKernel::new(file, store) } else { MockKernel::initialised(file, store) };
        Machine { kernel, file }
    }

    fn run(&mut self, kind: u8, bytes: &[u8]) {
        match kind {
            OPERATION => {
                let Some((&[operation, node], body)) = bytes.split_first_chunk() else { return };
                self.kernel.send(operation.into(), node.into(), body);
            }
            RANGE => self.range(bytes),
            COMPLETE => self.complete(bytes),
            INIT => {
                let Some((&[major, minor, flags], _)) = bytes.split_first_chunk() else { return };
                self.kernel.init(major.into(), minor.into(), u32::from(flags) << 15);
            }
            _ => {
                // Whatever number it has, it may be answered.
                let unique = bytes.get(8..16).map(|unique| u64::from_ne_bytes(unique.try_into().expect("eight bytes")));
                if unique.is_none_or(|unique| self.kernel.expect_any(unique)) {
                    self.kernel.send_bytes(bytes);
                }
            }
        }
    }

    /// Five bytes are the fields, small enough to be meaningful.
    fn range(&mut self, bytes: &[u8]) {
        let Some(&[operation, offset, offset_odd, len, len_odd]) = bytes.first_chunk() else { return };
        let offset_bytes = u64::from(offset) * 4096 + u64::from(offset_odd & 7) * 512 + u64::from(offset_odd >> 7);
        let len_bytes = u32::from(len) * 512 + u32::from(len_odd >> 7) + (u32::from(len_odd & 3) << 20);
        match operation & 3 {
            0 => self.kernel.read(offset_bytes, len_bytes),
            1 => self.kernel.write(offset_bytes, &vec![0xA5; len_bytes.min(REQUEST_BYTES_MAX) as usize]),
            2 => self.kernel.fallocate(u32::from(operation >> 2), offset_bytes, len_bytes.into()),
            _ => self.kernel.send(opcode::FSYNC, 1, &[0; 16]),
        };
    }

    fn complete(&mut self, choices: &[u8]) {
        for &choice in choices {
            if self.kernel.outstanding.is_empty() {
                break;
            }
            let index = usize::from(choice >> 1) % self.kernel.outstanding.len();
            let request = self.kernel.outstanding.swap_remove(index);
            let status = if choice & 1 == 1 { Status::MediaError } else { Status::Ok };
            assert!(self.kernel.session.complete(request.slot, status));
            assert!(!self.kernel.session.complete(request.slot, status));
        }
        self.kernel.receive();
    }

    /// What must hold at any moment.
    fn check(&mut self) {
        assert_eq!(self.kernel.session.outstanding(), self.kernel.outstanding.len());
        assert!(self.kernel.outstanding.len() <= IN_FLIGHT_COUNT_MAX);
        let block_bytes = u64::from(self.file.block_bytes_min);
        let mut read_bytes = 0;
        for request in &self.kernel.outstanding {
            assert!(request.offset_bytes + request.len_bytes <= CAPACITY_BYTES);
            assert!(request.offset_bytes % block_bytes == 0 && request.len_bytes % block_bytes == 0);
            assert_eq!(request.len_bytes == 0, request.command == FuseCommand::Flush);
            let changes = !matches!(request.command, FuseCommand::Read | FuseCommand::Flush);
            assert!(!(self.file.read_only && changes));
            let device = request.device_request(RequestId(request.slot.into()), 0, 0);
            assert_eq!(device.len_bytes(), request.len_bytes);
            assert_eq!(device.lba.offset_bytes(), request.offset_bytes);
            if request.command == FuseCommand::Read {
                read_bytes += request.len_bytes;
            }
        }
        assert!(read_bytes <= IN_FLIGHT_BYTES_MAX);
    }

    /// After the last completion nothing waits, and a session that serves still does.
    fn finish(&mut self) {
        self.kernel.complete_all();
        assert_eq!(self.kernel.session.outstanding(), 0);
        assert!(!self.kernel.session.has_output());
        assert_eq!(self.kernel.session.wants_input(), !self.kernel.session.has_ended());
        assert_eq!(self.kernel.session.has_ended(), self.kernel.destroyed);
        let unique = u64::MAX;
        if self.kernel.session.wants_input() {
            self.kernel.expect_any(unique);
            self.kernel.send_bytes(&message(opcode::GETATTR, unique, 1, &[0; 16]));
            self.kernel.reply(unique);
        }
    }
}
