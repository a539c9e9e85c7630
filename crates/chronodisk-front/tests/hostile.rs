//! A malicious guest gets an I/O error or a stopped ring, and has no other effect.

mod common;

use chronodisk_front::BlkConfig;
use chronodisk_front::mock::{
    DESCRIPTORS, Descriptor, HIGH_MEMORY_BASE, HIGH_MEMORY_BYTES, INDIRECT, Layout, MEMORY_BASE, MEMORY_BYTES, NEXT,
    RING_SIZE, TestBench, WRITE, blk_header, blk_range,
};
use chronodisk_front::vhost_user::IN_FLIGHT_COUNT_MAX;
use chronodisk_front::vhost_user::RingError;
use chronodisk_front::vhost_user::message::{code, vring_state};
use chronodisk_front::virtio_blk::{BadRequestKind, REQUEST_BYTES_MAX};
use chronodisk_sim::{RequestId, Status};
use common::{CAPACITY_SECTORS, IO_ERROR, OK, UNSUPPORTED, bench, config, pattern, store};
use proptest::prelude::*;
use std::os::fd::AsFd;
use virtio_bindings::bindings::virtio_blk::{
    VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_GET_ID, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};

/// The device still does its work.
fn assert_alive(bench: &mut TestBench) {
    bench.complete_all(Status::Ok);
    bench.driver.take_used();
    let data = pattern(5, 512);
    let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 77, &[512], Some(&data), Layout::Direct);
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 77, &[512], None, Layout::Indirect);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    assert_eq!((bench.driver.status(&write), bench.driver.status(&read)), (OK, OK));
    assert!(bench.driver.data(&read) == data);
    assert_eq!(bench.session.outstanding(), 0);
}

/// Offers one chain; it must be answered inside the kick, with `used_bytes` in the used ring.
fn offer(bench: &mut TestBench, chain: &[Descriptor], kind: BadRequestKind, used_bytes: u32) {
    let head = bench.driver.add_chain(chain);
    bench.driver.make_available(head);
    expect_bad(bench, head, kind, used_bytes);
}

fn expect_bad(bench: &mut TestBench, head: u16, kind: BadRequestKind, used_bytes: u32) {
    let before = bench.session.stats().bad_requests.get(&kind).copied().unwrap_or_default();
    assert!(bench.kick(), "{kind:?}");
    let stats = bench.session.stats();
    assert_eq!(stats.bad_requests.get(&kind), Some(&(before + 1)), "{:?}", stats.bad_requests);
    assert!(bench.recorder.arrivals.is_empty(), "{kind:?}");
    let used = bench.driver.take_used();
    assert_eq!(used.len(), 1, "{kind:?}");
    assert_eq!((used[0].head, used[0].len_bytes), (head.into(), used_bytes), "{kind:?}");
}

/// A header in memory, with its descriptor and the descriptor of a status byte.
fn header_and_status(bench: &mut TestBench, kind: u32, sector: u64) -> (Descriptor, Descriptor) {
    let header = bench.driver.allocate(16);
    bench.driver.write(header, &blk_header(kind, 0, sector));
    let status = bench.driver.allocate(1);
    bench.driver.write(status, &[0xff]);
    (
        Descriptor { address: header, len_bytes: 16, flags: 0, next: 0 },
        Descriptor { address: status, len_bytes: 1, flags: WRITE, next: 0 },
    )
}

fn buffer(bench: &mut TestBench, len_bytes: u32, flags: u16) -> Descriptor {
    Descriptor { address: bench.driver.allocate(len_bytes.into()), len_bytes, flags, next: 0 }
}

#[test]
fn loops_end() {
    let mut bench = bench();
    let (header, _) = header_and_status(&mut bench, VIRTIO_BLK_T_IN, 0);
    let data = buffer(&mut bench, 512, WRITE);
    // A descriptor that names itself, two that name each other, and a loop in an indirect table.
    let own = Descriptor { flags: NEXT, next: 0, ..header };
    offer(&mut bench, &[own], BadRequestKind::BrokenChain, 0);
    let back = Descriptor { flags: NEXT | WRITE, next: 1, ..data };
    offer(&mut bench, &[header, back], BadRequestKind::BrokenChain, 0);
    let table = bench.driver.allocate(32);
    bench.driver.write_descriptor(table, 0, Descriptor { flags: NEXT, next: 1, ..header });
    bench.driver.write_descriptor(table, 1, Descriptor { flags: NEXT | WRITE, next: 0, ..data });
    let indirect = Descriptor { address: table, len_bytes: 32, flags: INDIRECT, next: 0 };
    offer(&mut bench, &[indirect], BadRequestKind::BrokenChain, 0);
    assert_alive(&mut bench);
}

#[test]
fn indirect_tables_that_can_not_be() {
    let mut bench = bench();
    let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_FLUSH, 0);
    let table = bench.driver.allocate(64);
    bench.driver.write_descriptor(table, 0, Descriptor { flags: NEXT, next: 1, ..header });
    bench.driver.write_descriptor(table, 1, Descriptor { flags: INDIRECT, address: table, len_bytes: 64, next: 0 });
    let indirect = |address, len_bytes| Descriptor { address, len_bytes, flags: INDIRECT, next: 0 };
    let tables = [
        indirect(table, 64),
        indirect(table, 0),
        indirect(table, 17),
        indirect(table, u32::MAX - 15),
        indirect(0, 32),
        indirect(MEMORY_BASE + MEMORY_BYTES - 8, 16),
        indirect(u64::MAX - 7, 16),
    ];
    for table in tables {
        offer(&mut bench, &[table], BadRequestKind::BrokenChain, 0);
    }
    // The header in the ring, a nested table after it.
    offer(&mut bench, &[header, indirect(table, 64)], BadRequestKind::BrokenChain, 0);
    // A link out of the table.
    bench.driver.write_descriptor(table, 1, Descriptor { flags: NEXT | WRITE, next: 4, ..status });
    offer(&mut bench, &[indirect(table, 64)], BadRequestKind::BrokenChain, 0);
    assert_alive(&mut bench);
}

#[test]
fn a_chain_longer_than_the_ring_is_refused() {
    let mut bench = bench();
    let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_IN, 0);
    let data = buffer(&mut bench, 512, WRITE);
    let count = 300;
    let table = bench.driver.allocate(count * 16);
    for index in 0..count as u16 {
        let descriptor = match index {
            0 => header,
            299 => status,
            _ => data,
        };
        let flags = if index == 299 { descriptor.flags } else { descriptor.flags | NEXT };
        bench.driver.write_descriptor(table, index, Descriptor { flags, next: index + 1, ..descriptor });
    }
    let indirect = Descriptor { address: table, len_bytes: count as u32 * 16, flags: INDIRECT, next: 0 };
    offer(&mut bench, &[indirect], BadRequestKind::BrokenChain, 0);
    assert_alive(&mut bench);
}

#[test]
fn memory_that_is_not_there() {
    let mut bench = bench();
    let end = MEMORY_BASE + MEMORY_BYTES;
    let places = [
        (0, 512),
        (end - 256, 512),
        (end, 512),
        (HIGH_MEMORY_BASE - 512, 1024),
        (HIGH_MEMORY_BASE + HIGH_MEMORY_BYTES - 511, 512),
        (u64::MAX - 511, 512),
        (u64::MAX - 100, 512),
        (MEMORY_BASE, u32::MAX - 511),
    ];
    for (kind, flags) in [(VIRTIO_BLK_T_IN, WRITE), (VIRTIO_BLK_T_OUT, 0), (VIRTIO_BLK_T_GET_ID, WRITE)] {
        for (address, len_bytes) in places {
            let (header, status) = header_and_status(&mut bench, kind, 0);
            let data = Descriptor { address, len_bytes, flags, next: 0 };
            offer(&mut bench, &[header, data, status], BadRequestKind::OutsideMemory, 1);
            assert_eq!(bench.driver.read(status.address, 1), [IO_ERROR], "{address:#x} {len_bytes}");
        }
    }
    let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_IN, 0);
    let data = buffer(&mut bench, 512, WRITE);
    for address in [0, end, u64::MAX] {
        offer(&mut bench, &[header, data, Descriptor { address, ..status }], BadRequestKind::NoStatus, 0);
        offer(&mut bench, &[Descriptor { address, ..header }, data, status], BadRequestKind::NoHeader, 1);
    }
    let wrapping = Descriptor { address: u64::MAX - 3, len_bytes: 16, ..status };
    offer(&mut bench, &[header, data, wrapping], BadRequestKind::NoStatus, 0);
    assert_alive(&mut bench);
}

#[test]
fn parts_that_are_missing_or_misplaced() {
    let mut bench = bench();
    let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_IN, 0);
    let (write_header, _) = header_and_status(&mut bench, VIRTIO_BLK_T_OUT, 0);
    let writable = buffer(&mut bench, 512, WRITE);
    let readable = buffer(&mut bench, 512, 0);
    let half = Descriptor { len_bytes: 8, ..header };
    let empty_status = Descriptor { len_bytes: 0, ..status };
    offer(&mut bench, &[header], BadRequestKind::NoStatus, 0);
    offer(&mut bench, &[header, empty_status], BadRequestKind::NoStatus, 0);
    offer(&mut bench, &[header, Descriptor { flags: 0, ..status }], BadRequestKind::NoStatus, 0);
    offer(&mut bench, &[status], BadRequestKind::NoHeader, 1);
    offer(&mut bench, &[half, status], BadRequestKind::NoHeader, 1);
    offer(&mut bench, &[status, header, status], BadRequestKind::Order, 1);
    offer(&mut bench, &[header, readable, status], BadRequestKind::Direction, 1);
    offer(&mut bench, &[header, readable, writable, status], BadRequestKind::Direction, 1);
    offer(&mut bench, &[write_header, writable, status], BadRequestKind::Direction, 1);
    assert_alive(&mut bench);
}

#[test]
fn ranges_that_are_not_on_the_device() {
    let mut bench = bench();
    let cases = [
        (CAPACITY_SECTORS, 512, BadRequestKind::OutOfRange),
        (CAPACITY_SECTORS - 1, 1024, BadRequestKind::OutOfRange),
        (u64::MAX, 512, BadRequestKind::OutOfRange),
        (u64::MAX / 512, 512, BadRequestKind::OutOfRange),
        (0, 511, BadRequestKind::NotWholeBlocks),
        (0, 513, BadRequestKind::NotWholeBlocks),
    ];
    for (sector, len_bytes, kind) in cases {
        let data = vec![1; len_bytes as usize];
        let write = bench.driver.submit(VIRTIO_BLK_T_OUT, sector, &[len_bytes], Some(&data), Layout::Direct);
        expect_bad(&mut bench, write.head, kind, 1);
        let read = bench.driver.submit(VIRTIO_BLK_T_IN, sector, &[len_bytes], None, Layout::Indirect);
        expect_bad(&mut bench, read.head, kind, 1);
        assert_eq!((bench.driver.status(&write), bench.driver.status(&read)), (IO_ERROR, IO_ERROR));
    }
    let nothing = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[], None, Layout::Direct);
    expect_bad(&mut bench, nothing.head, BadRequestKind::NotWholeBlocks, 1);
    assert_eq!(bench.session.store().allocated_bytes().unwrap(), 0);
    assert_alive(&mut bench);
}

#[test]
fn discards_that_can_not_be() {
    let mut bench = bench();
    let mut two = blk_range(0, 8, 0).to_vec();
    two.extend(blk_range(8, 8, 0));
    let cases = [
        (blk_range(0, 0, 0).to_vec(), BadRequestKind::NotWholeBlocks, IO_ERROR),
        (blk_range(CAPACITY_SECTORS, 1, 0).to_vec(), BadRequestKind::OutOfRange, IO_ERROR),
        (blk_range(u64::MAX, 8, 0).to_vec(), BadRequestKind::OutOfRange, IO_ERROR),
        (blk_range(0, u32::MAX, 0).to_vec(), BadRequestKind::TooLong, IO_ERROR),
        (blk_range(0, 8, 2).to_vec(), BadRequestKind::Flags, UNSUPPORTED),
        (two, BadRequestKind::RangeCount, IO_ERROR),
        (vec![0; 15], BadRequestKind::RangeCount, IO_ERROR),
        (vec![], BadRequestKind::RangeCount, IO_ERROR),
    ];
    for (range, kind, status) in cases {
        for request in [VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES] {
            let request = bench.driver.submit(request, 0, &[range.len() as u32], Some(&range), Layout::Direct);
            expect_bad(&mut bench, request.head, kind, 1);
            assert_eq!(bench.driver.status(&request), status, "{kind:?}");
        }
    }
    // A discard unmaps anyway; the flag is only for write-zeroes.
    let unmap = bench.driver.submit(VIRTIO_BLK_T_DISCARD, 0, &[16], Some(&blk_range(0, 8, 1)), Layout::Direct);
    expect_bad(&mut bench, unmap.head, BadRequestKind::Flags, 1);
    assert_alive(&mut bench);
}

#[test]
fn requests_that_are_too_large() {
    let mut bench = bench();
    let many = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512; 127], None, Layout::Indirect);
    expect_bad(&mut bench, many.head, BadRequestKind::TooManySegments, 1);
    // Descriptors of the same memory add up beyond any limit.
    let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_OUT, 0);
    let megabyte = Descriptor { address: MEMORY_BASE, len_bytes: 1 << 20, flags: 0, next: 0 };
    let mut chain = vec![header];
    chain.extend(vec![megabyte; (REQUEST_BYTES_MAX >> 20) as usize + 1]);
    chain.push(status);
    offer(&mut bench, &chain, BadRequestKind::TooLong, 1);
    assert_alive(&mut bench);
}

#[test]
fn data_in_flight_is_bounded() {
    let sectors = REQUEST_BYTES_MAX / 512;
    let large = BlkConfig { capacity_sectors: sectors, ..config() };
    let store = chronodisk_store::RamStore::new(REQUEST_BYTES_MAX, 1 << 20);
    let mut bench = TestBench::new(large, Box::new(store));
    bench.set_up();
    let four_megabytes = Descriptor { address: MEMORY_BASE + 0x10_0000, len_bytes: 1 << 20, flags: WRITE, next: 0 };
    for _ in 0..40 {
        // One table for all requests: the same buffers are filled repeatedly.
        let (header, status) = header_and_status(&mut bench, VIRTIO_BLK_T_IN, 0);
        let table = bench.driver.allocate(34 * 16);
        for index in 0..34 {
            let descriptor = match index {
                0 => header,
                33 => status,
                _ => four_megabytes,
            };
            let flags = if index == 33 { descriptor.flags } else { descriptor.flags | NEXT };
            bench.driver.write_descriptor(table, index, Descriptor { flags, next: index + 1, ..descriptor });
        }
        let head =
            bench.driver.add_chain(&[Descriptor { address: table, len_bytes: 34 * 16, flags: INDIRECT, next: 0 }]);
        bench.driver.make_available(head);
    }
    assert!(bench.kick());
    assert_eq!(bench.recorder.arrivals.len(), 32);
    assert_eq!(bench.session.stats().bad_requests[&BadRequestKind::TooMuchInFlight], 8);
    bench.complete_all(Status::Ok);
    assert_eq!(bench.session.outstanding(), 0);
}

#[test]
fn requests_in_flight_are_bounded_across_resets() {
    let mut bench = bench();
    for _ in 0..6 {
        for _ in 0..RING_SIZE {
            bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Indirect);
        }
        assert!(bench.kick());
        assert!(bench.enable(false));
        bench.set_up_ring();
    }
    assert_eq!(bench.session.outstanding(), IN_FLIGHT_COUNT_MAX);
    bench.complete_all(Status::Ok);
    assert_eq!(bench.session.stats().dropped_completions, IN_FLIGHT_COUNT_MAX as u64);
    assert!(bench.driver.take_used().is_empty());
    assert_alive(&mut bench);
}

/// Breaks the ring; the kick must be refused and the ring stopped, and setting it up again helps.
fn break_ring(expected: RingError, break_it: impl FnOnce(&mut TestBench)) {
    let mut bench = bench();
    break_it(&mut bench);
    assert!(!bench.kick());
    assert_eq!(bench.session.stats().first_ring_failure, Some(expected));
    assert!(!bench.kick(), "the ring runs on");
    bench.complete_all(Status::Ok);
    assert_eq!(bench.session.outstanding(), 0);
    bench.set_up_ring();
    assert_alive(&mut bench);
}

#[test]
fn a_broken_ring_is_stopped() {
    break_ring(RingError::AvailableIndex { size: RING_SIZE }, |bench| {
        bench.driver.set_available_index(RING_SIZE + 1);
    });
    break_ring(RingError::Head { head: RING_SIZE, size: RING_SIZE }, |bench| {
        bench.driver.make_available(RING_SIZE);
    });
    break_ring(RingError::InFlight { head: 0 }, |bench| {
        let request = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Indirect);
        bench.driver.make_available(request.head);
    });
}

#[test]
fn a_ring_that_is_reset_in_flight_forgets_its_requests() {
    for stop in [code::SET_VRING_ENABLE, code::GET_VRING_BASE] {
        let mut bench = bench();
        let read = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
        assert!(bench.kick());
        if stop == code::SET_VRING_ENABLE {
            assert!(bench.enable(false));
        } else {
            let reply = bench.exchange(stop, 0, &vring_state(0, 0), &[]).unwrap();
            assert_eq!(reply.unwrap().1, vring_state(0, 1));
        }
        bench.set_up_ring();
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.status(&read), 0xff, "written after the reset");
        assert!(bench.driver.take_used().is_empty());
        assert_eq!(bench.driver.take_calls(), 0);
        assert_eq!(bench.session.stats().dropped_completions, 1);
        assert_alive(&mut bench);
    }
}

#[test]
fn a_disabled_ring_is_left_alone_and_completed_when_it_is_enabled_again() {
    let mut bench = bench();
    let read = bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.kick());
    assert!(bench.enable(false));
    let before = bench.driver.read(MEMORY_BASE, MEMORY_BYTES as usize);
    bench.complete_all(Status::Ok);
    assert!(!bench.kick());
    assert!(bench.driver.read(MEMORY_BASE, MEMORY_BYTES as usize) == before, "memory was touched");
    assert_eq!((bench.session.outstanding(), bench.driver.take_calls()), (1, 0));
    assert!(bench.enable(true));
    assert_eq!(bench.driver.status(&read), OK);
    assert_eq!((bench.driver.take_used().len(), bench.driver.take_calls()), (1, 1));
    assert_alive(&mut bench);
}

#[test]
fn memory_that_moves_in_flight() {
    let mut bench = bench();
    // The status byte lies in the region that is about to be removed.
    let (header, _) = header_and_status(&mut bench, VIRTIO_BLK_T_FLUSH, 0);
    let status = Descriptor { address: HIGH_MEMORY_BASE, len_bytes: 1, flags: WRITE, next: 0 };
    let head = bench.driver.add_chain(&[header, status]);
    bench.driver.make_available(head);
    assert!(bench.kick());
    let (mut table, _) = bench.driver.memory_table();
    table[..4].copy_from_slice(&1u32.to_ne_bytes());
    let file = bench.driver.memory_file().try_clone().unwrap();
    assert!(bench.acknowledged(code::SET_MEM_TABLE, &table, &[file.as_fd()]));
    bench.complete_all(Status::Ok);
    let used = bench.driver.take_used();
    assert_eq!((used[0].head, used[0].len_bytes), (head.into(), 0));
    assert_alive(&mut bench);

    // The ring itself vanishes: it stops.
    let region: Vec<u8> = table[8..40].to_vec();
    let (mut table, _) = bench.driver.memory_table();
    table[8..40].copy_from_slice(&region);
    table[..4].copy_from_slice(&1u32.to_ne_bytes());
    table[8..16].copy_from_slice(&HIGH_MEMORY_BASE.to_ne_bytes());
    table[24..32].copy_from_slice(&HIGH_MEMORY_BASE.to_ne_bytes());
    assert!(!bench.acknowledged(code::SET_MEM_TABLE, &table, &[file.as_fd()]));
    assert!(!bench.kick());
    bench.set_up_ring_after_memory_loss();
    assert_alive(&mut bench);
}

trait SetUpAgain {
    fn set_up_ring_after_memory_loss(&mut self);
}

impl SetUpAgain for TestBench {
    fn set_up_ring_after_memory_loss(&mut self) {
        assert!(self.enable(false));
        self.set_up_ring();
    }
}

#[test]
fn completions_that_nobody_asked_for() {
    let mut bench = TestBench::new(config(), store());
    bench.session.complete(RequestId(0), Status::Ok);
    bench.set_up();
    bench.session.complete(RequestId(7), Status::Ok);
    bench.driver.submit(VIRTIO_BLK_T_IN, 0, &[512], None, Layout::Direct);
    assert!(bench.kick());
    for _ in 0..3 {
        bench.session.complete(RequestId(0), Status::Ok);
    }
    assert_eq!(bench.driver.take_used().len(), 1);
}

#[test]
fn a_guest_that_does_not_read_its_calls_can_not_stop_us() {
    let mut bench = bench();
    for _ in 0..2000 {
        bench.driver.submit(VIRTIO_BLK_T_GET_ID, 0, &[20], None, Layout::Direct);
        assert!(bench.kick());
        bench.driver.take_used();
    }
    assert!(bench.driver.take_calls() > 0);
    assert_alive(&mut bench);
}

/// Memory full of descriptors of every kind, most of them nonsense.
fn descriptor() -> impl Strategy<Value = Descriptor> {
    let address = prop_oneof![
        (0..64u64).prop_map(|slot| MEMORY_BASE + 0x4000 + slot * 16),
        (0..8u64).prop_map(|slot| MEMORY_BASE + slot * 16),
        Just(MEMORY_BASE + MEMORY_BYTES - 8),
        any::<u64>(),
    ];
    let len = prop_oneof![Just(16u32), Just(1), Just(512), 0..2000u32, any::<u32>()];
    let flags = prop_oneof![Just(NEXT), Just(NEXT | WRITE), Just(WRITE), 0..8u16];
    (address, len, flags, 0..34u16).prop_map(|(address, len_bytes, flags, next)| Descriptor {
        address,
        len_bytes,
        flags,
        next,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// For any ring content: every head is returned exactly once, or the ring stops.
    #[test]
    fn every_chain_is_given_back_once(
        descriptors in prop::collection::vec(descriptor(), 32),
        kinds in prop::collection::vec(0..16u32, 64),
        heads in prop::collection::hash_set(0..32u16, 1..32),
    ) {
        let mut bench = bench();
        for (slot, kind) in kinds.iter().enumerate() {
            bench.driver.write(MEMORY_BASE + 0x4000 + slot as u64 * 16, &blk_header(*kind, 0, slot as u64));
        }
        for (index, descriptor) in descriptors.iter().enumerate() {
            bench.driver.write_descriptor(DESCRIPTORS, index as u16, *descriptor);
        }
        for &head in &heads {
            bench.driver.make_available(head);
        }
        prop_assert!(bench.kick());
        bench.complete_all(Status::Ok);
        let mut given_back: Vec<_> = bench.driver.take_used().iter().map(|entry| entry.head as u16).collect();
        given_back.sort_unstable();
        let mut heads: Vec<_> = heads.into_iter().collect();
        heads.sort_unstable();
        prop_assert_eq!(given_back, heads);
        prop_assert_eq!(bench.session.outstanding(), 0);
    }
}
