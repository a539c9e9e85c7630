//! Any descriptors in any ring: every chain is given back, nothing is touched outside, nothing panics.
//!
//! The input is a number of heads, the heads, a number of descriptors, the descriptors in a short
//! form that finds guest memory more often than 64 random bits do, and the bytes at which they point.
#![no_main]

use chronodisk_device::ZoneLayout;
use chronodisk_front::mock::{
    AVAILABLE, BUFFERS, DESCRIPTORS, Descriptor, HIGH_MEMORY_BASE, MEMORY_BASE, MEMORY_BYTES, RING_SIZE, TestBench,
    USED,
};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_sim::{Op, Status};
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_SECTORS: u64 = 64;
const ZONES: ZoneLayout =
    ZoneLayout { size_sectors: 16, capacity_sectors: 12, most_open: 1, most_active: 2, conventional: 1 };
/// Descriptors beyond this number go into a table that indirect descriptors can name.
const IN_RING: usize = 32;
const INDIRECT_TABLE: u64 = BUFFERS + 0x8000;

fuzz_target!(|input: &[u8]| {
    walk(input, None);
    walk(input, Some(ZONES));
});

fn walk(input: &[u8], zones: Option<ZoneLayout>) {
    let Some((heads, rest)) = counted(input, 1) else { return };
    let Some((descriptors, bytes)) = counted(rest, SHORT_BYTES) else { return };
    let config = BlkConfig {
        capacity_sectors: CAPACITY_SECTORS,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        serial: "fuzz".into(),
        discard_unit_sectors: zones.is_none().then_some(1),
        write_zeroes: zones.is_none(),
        volatile_cache: true,
        seg_max: SEG_MAX_DEFAULT,
        zones,
        // Half of the inputs are for a device whose requests can fail.
        torn_write_sectors: bytes.first().filter(|&first| zones.is_none() && first % 2 == 1).map(|_| 1),
        // Independently, half of them have file lists.
        file_data: bytes.first().is_some_and(|first| first & 2 != 0),
    };
    let mut bench = TestBench::new(config, Box::new(RamStore::new(CAPACITY_SECTORS * 512, 20_000)));
    bench.set_up();
    bench.driver.write(BUFFERS, &bytes[..bytes.len().min(0x4000)]);
    let mut touches_ring = false;
    for (index, short) in descriptors.chunks_exact(SHORT_BYTES).enumerate() {
        let descriptor = expand(short.try_into().expect("a whole chunk"));
        touches_ring |= (DESCRIPTORS..BUFFERS).contains(&descriptor.address) || descriptor.len_bytes > 0x8000;
        if index < IN_RING {
            bench.driver.write_descriptor(DESCRIPTORS, index as u16, descriptor);
        } else {
            bench.driver.write_descriptor(INDIRECT_TABLE, (index - IN_RING) as u16, descriptor);
        }
    }
    for round in 0..2 {
        run(&mut bench, heads, touches_ring, round);
    }
}

fn run(bench: &mut TestBench, heads: &[u8], touches_ring: bool, round: usize) {
    for &head in heads {
        bench.driver.make_available(head.into());
    }
    let served = bench.kick();
    for arrival in &bench.recorder.arrivals {
        let request = &arrival.request;
        assert!(request.end().0 <= CAPACITY_SECTORS);
        assert_eq!(request.sectors == 0, request.op == Op::Flush);
    }
    if round == 1 {
        bench.recorder.arrivals.reverse();
    }
    bench.complete_all(Status::Ok);
    assert_eq!(bench.session.outstanding(), 0);
    bench.driver.take_calls();
    let mut used: Vec<_> = bench.driver.take_used().iter().map(|entry| entry.head).collect();
    // A chain whose data lie on the ring itself may write anything there, a raw table may hide one.
    if served && !touches_ring && bench.session.stats().kicks == 1 && !hides_addresses(bench) {
        let mut heads: Vec<_> = heads.iter().map(|&head| u32::from(head)).collect();
        heads.sort_unstable();
        used.sort_unstable();
        assert_eq!(used, heads);
    }
}

/// Whether a chain went through a table that the input wrote byte by byte.
fn hides_addresses(bench: &TestBench) -> bool {
    (0..IN_RING as u64).any(|index| {
        let flags = bench.driver.read(DESCRIPTORS + index * 16 + 12, 1)[0];
        let address = bench.driver.read(DESCRIPTORS + index * 16, 8);
        flags & 4 != 0 && address != INDIRECT_TABLE.to_le_bytes()
    })
}

/// A count in one byte, and as many items.
fn counted(input: &[u8], item_bytes: usize) -> Option<(&[u8], &[u8])> {
    let (&count, rest) = input.split_first()?;
    Some(rest.split_at((usize::from(count) * item_bytes).min(rest.len() / item_bytes * item_bytes)))
}

const SHORT_BYTES: usize = 8;

fn expand(short: [u8; SHORT_BYTES]) -> Descriptor {
    let [place, low, high, len_low, len_high, shift, flags, next] = short;
    let offset = u64::from(u16::from_le_bytes([low, high]));
    let address = match place % 8 {
        0..=2 => BUFFERS + offset,
        3 => INDIRECT_TABLE,
        4 => DESCRIPTORS + offset,
        5 => (MEMORY_BASE + MEMORY_BYTES).wrapping_sub(offset),
        6 => HIGH_MEMORY_BASE + offset,
        _ => u64::MAX - offset,
    };
    let len_bytes = u32::from(u16::from_le_bytes([len_low, len_high])) << (shift % 17);
    Descriptor { address, len_bytes, flags: (flags & 7).into(), next: next.into() }
}

// The mock keeps its rings where this target thinks they are.
const _: () = assert!(AVAILABLE < BUFFERS && USED < BUFFERS && RING_SIZE == 256);
