//! Requests of a well-behaved guest.

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use chronodisk_front::BlkConfig;
use chronodisk_front::mock::{
    Descriptor, HIGH_MEMORY_BASE, Layout, MEMORY_BASE, MockDriver, RING_SIZE, TestBench, UsedEntry, WRITE, blk_header,
    blk_range,
};
use chronodisk_front::vhost_user::message::{acknowledgement, code, encode, flag, vring_state};
use chronodisk_front::vhost_user::{Arrival, Flow, RequestHandler};
use chronodisk_front::virtio_blk::BadRequestKind;
use chronodisk_sim::{Op, Priority, RequestId, Status};
use chronodisk_store::RamStore;
use common::{CAPACITY_SECTORS, IO_ERROR, OK, UNSUPPORTED, bench, config, pattern, store};
use proptest::prelude::*;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};
use vm_memory::Bytes;

#[test]
fn what_is_written_is_read_back() {
    for layout in [Layout::Direct, Layout::Indirect] {
        let mut bench = bench();
        let written = pattern(7, 4096 + 512 + 1024);
        let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 100, &[4096, 512, 1024], Some(&written), layout);
        assert!(bench.kick());
        let request = bench.recorder.arrivals[0].request;
        assert_eq!((request.id, request.op, request.lba.0, request.sectors), (RequestId(0), Op::Write, 100, 11));
        assert!(bench.driver.take_used().is_empty(), "completed before it is due");
        // Later changes of the buffer by the guest have no effect.
        bench.driver.write(write.segments[0].0, &[0xEE; 4096]);
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.status(&write), OK);
        assert_eq!(bench.driver.take_used(), [UsedEntry { head: write.head.into(), len_bytes: 1 }]);

        let read = bench.driver.submit(VIRTIO_BLK_T_IN, 99, &[512, 4096, 1536 + 512], None, layout);
        assert!(bench.kick());
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.status(&read), OK);
        assert_eq!(bench.driver.take_used(), [UsedEntry { head: read.head.into(), len_bytes: 13 * 512 + 1 }]);
        let data = bench.driver.data(&read);
        assert!(data[..512].iter().all(|&byte| byte == 0));
        assert!(data[512..512 + written.len()] == written);
        assert!(data[512 + written.len()..].iter().all(|&byte| byte == 0));
        assert_eq!(bench.driver.take_calls(), 2);
        let stats = bench.session.stats();
        assert_eq!((stats.read_bytes, stats.written_bytes, stats.kicks), (13 * 512, 11 * 512, 2));
        assert_eq!(stats.requests[..5], [1, 1, 0, 0, 0]);
        assert_eq!(bench.session.outstanding(), 0);
    }
}

#[test]
fn flush_discard_and_write_zeroes() {
    let mut bench = bench();
    bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[65536], Some(&pattern(1, 65536)), Layout::Direct);
    let flush = bench.driver.submit(VIRTIO_BLK_T_FLUSH, 0, &[], None, Layout::Direct);
    let full_bytes = {
        assert!(bench.kick());
        bench.session.store().allocated_bytes().unwrap()
    };
    let discard = bench.driver.submit(VIRTIO_BLK_T_DISCARD, 0, &[16], Some(&blk_range(8, 64, 0)), Layout::Indirect);
    let zeroes = bench.driver.submit(VIRTIO_BLK_T_WRITE_ZEROES, 0, &[16], Some(&blk_range(72, 8, 1)), Layout::Direct);
    assert!(bench.kick());
    assert_eq!(full_bytes - bench.session.store().allocated_bytes().unwrap(), 9 * 4096);
    let ops: Vec<_> = bench.recorder.arrivals.iter().map(|arrival| arrival.request).collect();
    assert_eq!(
        ops.iter().map(|request| request.op).collect::<Vec<_>>(),
        [Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes]
    );
    assert_eq!((ops[1].lba.0, ops[1].sectors), (0, 0));
    assert_eq!((ops[2].lba.0, ops[2].sectors), (8, 64));
    assert_eq!((ops[3].lba.0, ops[3].sectors), (72, 8));
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 7, &[75 * 512], None, Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    for request in [&flush, &discard, &zeroes, &read] {
        assert_eq!(bench.driver.status(request), OK);
    }
    let data = bench.driver.data(&read);
    let written = pattern(1, 65536);
    assert!(data[..512] == written[7 * 512..8 * 512]);
    assert!(data[512..73 * 512].iter().all(|&byte| byte == 0));
    assert!(data[73 * 512..] == written[80 * 512..82 * 512]);
}

#[test]
fn the_serial_is_answered_and_announced_inside_the_kick() {
    let mut bench = bench();
    let first = bench.driver.submit(VIRTIO_BLK_T_GET_ID, 0, &[20], None, Layout::Direct);
    let short = bench.driver.submit(VIRTIO_BLK_T_GET_ID, 0, &[4], None, Layout::Direct);
    assert!(bench.kick());
    assert!(bench.recorder.arrivals.is_empty());
    assert_eq!(bench.driver.take_calls(), 1);
    assert_eq!(bench.driver.data(&first), b"chronodisk constant-");
    assert_eq!(bench.driver.data(&short), b"chro");
    assert_eq!((bench.driver.status(&first), bench.driver.status(&short)), (OK, OK));
    let lens: Vec<_> = bench.driver.take_used().iter().map(|entry| entry.len_bytes).collect();
    assert_eq!(lens, [21, 5]);
    bench.session.notify().unwrap();
    assert_eq!(bench.driver.take_calls(), 0, "announced twice");
}

/// Reads the guest's socket at each call of the handler.
struct OrderChecker {
    guest_socket: UnixStream,
    log: String,
}

impl OrderChecker {
    fn acknowledged(&self) -> bool {
        let flags = rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT;
        rustix::net::recv(&self.guest_socket, &mut [0u8; 1][..], flags).is_ok()
    }
}

impl RequestHandler for OrderChecker {
    fn arrived(&mut self, arrival: Arrival) {
        assert!(!self.acknowledged());
        self.log += &format!("{} ", arrival.request.lba);
    }
    fn before_acknowledge(&mut self) {
        assert!(!self.acknowledged());
        self.log += "ack ";
    }
}

#[test]
fn all_requests_arrive_in_order_before_the_kick_is_acknowledged() {
    let mut bench = bench();
    let guest_socket = bench.driver.socket().try_clone().unwrap();
    let mut checker = OrderChecker { guest_socket, log: String::new() };
    for sector in [40, 10, 30] {
        bench.driver.submit(VIRTIO_BLK_T_IN, sector, &[512], None, Layout::Indirect);
    }
    let kick = encode(code::VRING_KICK, flag::NEED_REPLY, &vring_state(0, 0));
    bench.driver.send_bytes(&kick, &[]).unwrap();
    assert_eq!(bench.session.readable(&mut checker).unwrap(), Flow::Continue);
    assert_eq!(checker.log, "40 10 30 ack ");
    assert!(checker.acknowledged());
    let (header, payload) = bench.driver.receive().unwrap();
    assert_eq!(encode(header.request, header.flags, &payload), acknowledgement(code::VRING_KICK, true));
    assert_eq!(bench.driver.take_calls(), 0, "a call without an entry");
    // Completions may leave in any order, with one call for all of them.
    for id in [2, 0, 1] {
        bench.session.complete(RequestId(id), Status::Ok);
    }
    bench.session.notify().unwrap();
    assert_eq!(bench.driver.take_calls(), 1);
    let heads: Vec<_> = bench.driver.take_used().iter().map(|entry| entry.head).collect();
    assert_eq!(heads, [2, 0, 1]);
}

#[test]
fn nothing_is_taken_without_a_kick() {
    let mut bench = bench();
    bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.acknowledged(code::SET_OWNER, &[], &[]));
    bench.config(0, 60);
    assert!(bench.recorder.arrivals.is_empty());
    assert!(bench.kick());
    assert_eq!(bench.recorder.arrivals.len(), 1);
}

#[test]
fn a_full_store_is_an_io_error_at_the_due_time() {
    let mut bench = TestBench::new(config(), Box::new(RamStore::new(CAPACITY_SECTORS * 512, 16384)));
    bench.set_up();
    bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[4096], Some(&pattern(3, 4096)), Layout::Direct);
    let second = bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[4096; 5], Some(&pattern(9, 20480)), Layout::Direct);
    assert!(bench.kick());
    let failed: Vec<_> = bench.recorder.arrivals.iter().map(|arrival| arrival.failed).collect();
    assert_eq!(failed, [false, true]);
    assert!(bench.driver.take_used().is_empty());
    bench.complete_all(Status::Ok);
    assert_eq!(bench.driver.status(&second), IO_ERROR);
    assert_eq!(bench.session.stats().store_errors, 1);
    assert!(bench.session.stats().first_store_error.as_ref().unwrap().contains("budget"));
    let mut bytes = vec![0; 4096];
    bench.session.into_store().read(0, &mut bytes).unwrap();
    assert!(bytes == pattern(3, 4096));
}

#[test]
fn the_framing_of_descriptors_does_not_matter() {
    let mut bench = bench();
    bench.driver.submit(VIRTIO_BLK_T_OUT, 5, &[1024], Some(&pattern(4, 1024)), Layout::Direct);
    // A header in three pieces; data and status in one buffer, in the other region of memory.
    let header = bench.driver.allocate(16);
    bench.driver.write(header, &blk_header(VIRTIO_BLK_T_IN, 1 << 13, 5));
    let piece = |offset: u64, len_bytes| Descriptor { address: header + offset, len_bytes, flags: 0, next: 0 };
    let answer = Descriptor { address: HIGH_MEMORY_BASE + 8, len_bytes: 1025, flags: WRITE, next: 0 };
    let nothing = Descriptor { address: 0, len_bytes: 0, flags: 0, next: 0 };
    let head = bench.driver.add_chain(&[piece(0, 3), nothing, piece(3, 12), piece(15, 1), answer]);
    bench.driver.make_available(head);
    assert!(bench.kick());
    assert_eq!(bench.recorder.arrivals[1].request.priority, Priority::High);
    bench.complete_all(Status::Ok);
    let mut expected = pattern(4, 1024);
    expected.push(OK);
    assert!(bench.driver.read(HIGH_MEMORY_BASE + 8, 1025) == expected);
    assert_eq!(bench.driver.take_used()[1].len_bytes, 1025);
}

#[test]
fn a_device_status_reaches_the_guest() {
    for (status, byte) in [
        (Status::Ok, OK),
        (Status::MediaError, IO_ERROR),
        (Status::Aborted, IO_ERROR),
        (Status::Unsupported, UNSUPPORTED),
    ] {
        let mut bench = bench();
        let read = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
        assert!(bench.kick());
        bench.complete_all(status);
        assert_eq!(bench.driver.status(&read), byte);
    }
}

#[test]
fn the_configuration_space_can_be_read_in_pieces_and_not_written() {
    let mut bench = bench();
    assert_eq!(bench.config(0, 8), CAPACITY_SECTORS.to_le_bytes());
    assert_eq!(bench.config(20, 4), 512u32.to_le_bytes());
    assert_eq!(bench.config(24, 1), [3]);
    assert_eq!(bench.config(0, 256).len(), 256);
    // A reply without a payload reports that the field can't be read.
    assert!(bench.config(250, 7).is_empty());
    assert!(!bench.acknowledged(code::SET_CONFIG, &[0; 16], &[]));
}

#[test]
fn what_was_not_negotiated_is_unsupported() {
    let plain = BlkConfig { discard_unit_sectors: None, write_zeroes: false, volatile_cache: false, ..config() };
    let mut bench = TestBench::new(plain, store());
    bench.set_up();
    let requests = [
        bench.driver.submit(VIRTIO_BLK_T_FLUSH, 0, &[], None, Layout::Direct),
        bench.driver.submit(VIRTIO_BLK_T_DISCARD, 0, &[16], Some(&blk_range(0, 8, 0)), Layout::Direct),
        bench.driver.submit(VIRTIO_BLK_T_WRITE_ZEROES, 0, &[16], Some(&blk_range(0, 8, 0)), Layout::Direct),
        bench.driver.submit(99, 0, &[], None, Layout::Direct),
    ];
    assert!(bench.kick());
    for request in &requests {
        assert_eq!(bench.driver.status(request), UNSUPPORTED);
    }
    assert_eq!(bench.session.stats().bad_requests[&BadRequestKind::NotNegotiated], 3);
    assert_eq!(bench.driver.take_used().len(), 4);
    assert_eq!(bench.driver.take_calls(), 1);
}

#[test]
fn kicks_and_calls_may_come_over_event_descriptors() {
    let mut bench = TestBench::new(config(), store());
    let features = bench.number(code::GET_FEATURES);
    // Without protocol features, as in the first version of the protocol.
    let features = features & !(1 << 30);
    assert!(bench.exchange(code::SET_FEATURES, 0, &features.to_ne_bytes(), &[]).unwrap().is_none());
    let (table, _) = bench.driver.memory_table();
    let file = bench.driver.memory_file().try_clone().unwrap();
    bench.exchange(code::SET_MEM_TABLE, 0, &table, &[file.as_fd(), file.as_fd()]).unwrap();
    bench.exchange(code::SET_VRING_NUM, 0, &vring_state(0, RING_SIZE.into()), &[]).unwrap();
    bench.exchange(code::SET_VRING_BASE, 0, &vring_state(0, 0), &[]).unwrap();
    bench.exchange(code::SET_VRING_ADDR, 0, &MockDriver::ring_addresses(), &[]).unwrap();
    let event = || File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
    let (mut kick, mut call) = (event(), event());
    assert!(bench.session.kick_fd().is_none());
    bench.exchange(code::SET_VRING_CALL, 0, &0u64.to_ne_bytes(), &[call.as_fd()]).unwrap();
    bench.exchange(code::SET_VRING_KICK, 0, &0u64.to_ne_bytes(), &[kick.as_fd()]).unwrap();
    assert!(bench.session.kick_fd().is_some());

    let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 1, &[512], Some(&pattern(2, 512)), Layout::Direct);
    bench.session.kicked(&mut bench.recorder).unwrap();
    assert!(bench.recorder.arrivals.is_empty(), "taken without a kick");
    kick.write_all(&1u64.to_ne_bytes()).unwrap();
    bench.session.kicked(&mut bench.recorder).unwrap();
    assert_eq!(bench.recorder.arrivals.len(), 1);
    bench.complete_all(Status::Ok);
    assert_eq!(bench.driver.status(&write), OK);
    let mut count = [0; 8];
    call.read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 1);

    let (header, payload) = bench.exchange(code::GET_VRING_BASE, 0, &vring_state(0, 0), &[]).unwrap().unwrap();
    assert_eq!((header.size, payload), (8, vring_state(0, 1).to_vec()));
    assert!(bench.session.kick_fd().is_none());
}

#[test]
fn the_ring_wraps_around() {
    let mut bench = bench();
    for round in 0..40u64 {
        let requests: Vec<_> = (0..50)
            .map(|i| {
                let data = pattern((round * 50 + i) as u8, 512);
                bench.driver.submit(VIRTIO_BLK_T_OUT, i, &[512], Some(&data), Layout::Indirect)
            })
            .collect();
        assert!(bench.kick());
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.take_used().len(), 50);
        assert!(requests.iter().all(|request| bench.driver.status(request) == OK));
    }
    assert_eq!(bench.session.stats().requests[1], 2000);
    let last = bench.driver.submit(VIRTIO_BLK_T_IN, 49, &[512], None, Layout::Direct);
    assert!(bench.kick());
    assert!(bench.driver.data(&last) == pattern((39 * 50 + 49) as u8, 512));
}

#[test]
fn guest_memory_is_where_the_table_says() {
    // A guard for the mock itself: the two regions are distinct parts of one file.
    let bench = bench();
    bench.driver.write(MEMORY_BASE, &[1]);
    bench.driver.memory().write_obj(2u8, vm_memory::GuestAddress(HIGH_MEMORY_BASE)).unwrap();
    assert_eq!((bench.driver.read(MEMORY_BASE, 1), bench.driver.read(HIGH_MEMORY_BASE, 1)), (vec![1], vec![2]));
}

#[derive(Clone, Debug)]
struct Step {
    op: Op,
    sector: u64,
    blocks: Vec<u32>,
    seed: u8,
    indirect: bool,
    kick: bool,
}

fn step() -> impl Strategy<Value = Step> {
    let op = prop::sample::select(Op::COMMON.to_vec());
    (op, 0..200u64, prop::collection::vec(1..5u32, 1..4), any::<u8>(), any::<bool>(), any::<bool>())
        .prop_map(|(op, sector, blocks, seed, indirect, kick)| Step { op, sector, blocks, seed, indirect, kick })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Requests take effect in the order of the ring, whenever they are completed.
    #[test]
    fn the_device_is_a_vector_of_bytes(steps in prop::collection::vec(step(), 1..40)) {
        let mut bench = bench();
        let mut shadow = vec![0u8; 300 * 512];
        let mut reads = Vec::new();
        let count = steps.len();
        for Step { op, sector, blocks, seed, indirect, kick } in steps {
            let layout = if indirect { Layout::Indirect } else { Layout::Direct };
            let sectors: u32 = blocks.iter().sum();
            let range = sector as usize * 512..(sector + u64::from(sectors)) as usize * 512;
            let segments: Vec<u32> = blocks.iter().map(|count| count * 512).collect();
            match op {
                Op::Read => {
                    let request = bench.driver.submit(VIRTIO_BLK_T_IN, sector, &segments, None, layout);
                    reads.push((request, shadow[range].to_vec()));
                }
                Op::Write => {
                    let data = pattern(seed, range.len());
                    bench.driver.submit(VIRTIO_BLK_T_OUT, sector, &segments, Some(&data), layout);
                    shadow[range].copy_from_slice(&data);
                }
                Op::Flush => {
                    bench.driver.submit(VIRTIO_BLK_T_FLUSH, 0, &[], None, layout);
                }
                Op::Discard | Op::WriteZeroes => {
                    let kind = if op == Op::Discard { VIRTIO_BLK_T_DISCARD } else { VIRTIO_BLK_T_WRITE_ZEROES };
                    bench.driver.submit(kind, 0, &[16], Some(&blk_range(sector, sectors, 0)), layout);
                    shadow[range].fill(0);
                }
                _ => unreachable!("it was not chosen"),
            }
            if kick {
                prop_assert!(bench.kick());
            }
        }
        prop_assert!(bench.kick());
        prop_assert_eq!(bench.recorder.arrivals.len(), count);
        bench.recorder.arrivals.reverse();
        bench.complete_all(Status::Ok);
        prop_assert_eq!(bench.driver.take_used().len(), count);
        for (request, expected) in reads {
            prop_assert_eq!(bench.driver.status(&request), OK);
            prop_assert!(bench.driver.data(&request) == expected);
        }
    }
}
