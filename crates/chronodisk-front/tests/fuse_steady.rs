//! With a constant number and length of outstanding requests, no memory is allocated.
//!
//! The test counts the allocations of its own thread only, because the test harness has others.

#[path = "common/allocations.rs"]
mod allocations;

use std::io::IoSlice;

use allocations::ALLOCATIONS;
use chronodisk_front::fuse::mock::{MockKernel, message, range};
use chronodisk_front::fuse::wire::opcode;
use chronodisk_front::fuse::{FuseEvent, FuseFile, FuseSession};
use chronodisk_sim::Status;
use chronodisk_store::{RamStore, Store};

const DEPTH: usize = 32;
const CAPACITY_BYTES: u64 = 64 << 20;

/// Receives and executes all messages, completes them in another order, and takes the replies.
fn round(session: &mut FuseSession, store: &mut dyn Store, messages: &[Vec<u8>]) {
    let mut slots = [0; DEPTH];
    for (message, slot) in messages.iter().zip(&mut slots) {
        session.receive_room()[..message.len()].copy_from_slice(message);
        session.received(message.len());
        let Some(FuseEvent::Request(request)) = session.next_event() else { panic!("a request") };
        session.execute(request.slot, store).unwrap();
        *slot = request.slot;
    }
    for index in 0..DEPTH {
        assert!(session.complete(slots[(index * 7) % DEPTH], Status::Ok));
    }
    while session.has_output() {
        let mut slices = [IoSlice::new(&[]); 3];
        assert!(session.gather(&mut slices) >= 2);
        session.sent();
    }
}

#[test]
fn depth_32_allocates_nothing() {
    let file = FuseFile {
        size_bytes: CAPACITY_BYTES,
        block_bytes_min: 512,
        block_bytes_preferred: 4096,
        read_only: false,
        discard: true,
    };
    let mut kernel = MockKernel::initialised(file, Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES)));
    for len_bytes in [4096u32, 1 << 20] {
        for operation in [opcode::WRITE, opcode::READ, opcode::FSYNC] {
            let messages: Vec<Vec<u8>> = (0..DEPTH as u64)
                .map(|index| {
                    let mut body = range(index * u64::from(len_bytes), len_bytes);
                    if operation == opcode::WRITE {
                        body.resize(body.len() + len_bytes as usize, 7);
                    }
                    message(operation, 2 * index + 2, 1, &body)
                })
                .collect();
            for _ in 0..3 {
                round(&mut kernel.session, &mut *kernel.store, &messages);
            }
            let before = ALLOCATIONS.get();
            for _ in 0..20 {
                round(&mut kernel.session, &mut *kernel.store, &messages);
            }
            assert_eq!(ALLOCATIONS.get() - before, 0, "operation {operation} of {len_bytes} bytes");
        }
    }
}
