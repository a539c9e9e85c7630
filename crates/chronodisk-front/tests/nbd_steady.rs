//! With a constant number and length of outstanding requests, no memory is allocated.
//!
//! The test counts the allocations of its own thread only, because the test harness has others.

#[path = "common/allocations.rs"]
mod allocations;

use std::io::IoSlice;
use std::sync::Arc;

use allocations::ALLOCATIONS;
use chronodisk_front::nbd::mock::{MockClient, RequestBytes};
use chronodisk_front::nbd::wire::command;
use chronodisk_front::nbd::{Event, Export, NbdSession, RequestKey, ServerOffer, Tls};
use chronodisk_sim::Status;
use chronodisk_store::{RamStore, Store};

const DEPTH: usize = 32;
const CAPACITY_BYTES: u64 = 64 << 20;

/// Receives, executes, completes in another order, and sends in odd pieces.
fn round(session: &mut NbdSession, store: &mut dyn Store, requests: &[u8]) {
    let mut outstanding: [Option<RequestKey>; DEPTH] = [None; DEPTH];
    let mut count = 0;
    let mut rest = requests;
    while count < DEPTH {
        let room = session.receive_room();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        session.received(len);
        rest = &rest[len..];
        while let Some(event) = session.next_event() {
            let Event::Request(request) = event else { panic!("{event:?}") };
            session.execute(request.key, store).unwrap();
            outstanding[count] = Some(request.key);
            count += 1;
        }
    }
    for index in 0..DEPTH {
        assert!(session.complete(outstanding[(index * 7) % DEPTH].unwrap(), Status::Ok));
    }
    while session.has_output() {
        let mut slices = [IoSlice::new(&[]); 16];
        let used = session.gather(&mut slices);
        let len: usize = slices[..used].iter().map(|slice| slice.len()).sum();
        session.sent(len.min(100_000));
    }
}

#[test]
fn depth_32_allocates_nothing() {
    let offer = Arc::new(ServerOffer::new(vec![Export::new("disk", CAPACITY_BYTES)], Tls::Off).unwrap());
    let store = Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES));
    let mut client = MockClient::negotiated(offer, store);
    for len_bytes in [4096u32, 256 << 10] {
        let data = vec![7; len_bytes as usize];
        for command in [command::WRITE, command::READ, command::BLOCK_STATUS, command::FLUSH] {
            let mut requests = Vec::new();
            for index in 0..DEPTH as u64 {
                let flush = command == command::FLUSH;
                requests.extend(
                    RequestBytes {
                        command,
                        cookie: index,
                        offset_bytes: if flush { 0 } else { index * u64::from(len_bytes) },
                        len_bytes: if flush { 0 } else { len_bytes },
                        data: if command == command::WRITE { &data } else { &[] },
                        ..RequestBytes::default()
                    }
                    .encode(),
                );
            }
            for _ in 0..3 {
                round(&mut client.session, &mut *client.store, &requests);
            }
            let before = ALLOCATIONS.get();
            for _ in 0..20 {
                round(&mut client.session, &mut *client.store, &requests);
            }
            let allocations = ALLOCATIONS.get() - before;
            assert_eq!(allocations, 0, "command {command} of {len_bytes} bytes");
        }
    }
}
