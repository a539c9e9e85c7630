//! Do the workloads have the distributions that their definitions say?
//!
//! Tolerances are six standard deviations, so that no seed fails by chance.

use std::collections::BTreeSet;

use chronodisk_sim::{Nanos, Op};
use chronodisk_trace::{GeneratedRequest, Generator, GeneratorOptions, Workload};
use proptest::prelude::*;

/// 10 GB: local and sequential accesses are then never random ones by accident.
const CAPACITY_SECTORS: u64 = 20_000_000;
const REQUESTS: u64 = 100_000;

fn generate(workload: Workload) -> Vec<GeneratedRequest> {
    Generator::new(GeneratorOptions::new(workload, CAPACITY_SECTORS, 1, REQUESTS)).unwrap().collect()
}

/// Whether a count agrees with a probability, within six standard deviations.
fn agrees(count: usize, of: usize, probability: f64) -> bool {
    let deviation = (of as f64 * probability * (1.0 - probability)).sqrt();
    (count as f64 - of as f64 * probability).abs() <= 6.0 * deviation
}

#[test]
fn two_thirds_of_the_six_are_reads() {
    for workload in &Workload::ALL[..6] {
        let requests = generate(*workload);
        let reads = requests.iter().filter(|request| request.op == Op::Read).count();
        assert!(agrees(reads, requests.len(), 0.67), "{workload}: {reads} reads");
        assert!(requests.iter().all(|request| matches!(request.op, Op::Read | Op::Write)));
    }
}

#[test]
fn sizes_are_as_defined() {
    for (workload, sectors) in [
        (Workload::RandomSmall, 8),
        (Workload::MixedSmall, 8),
        (Workload::RandomLarge, 256),
        (Workload::MixedLarge, 256),
    ] {
        assert!(generate(workload).iter().all(|request| request.sectors == sectors), "{workload}");
    }
    for workload in [Workload::RandomUniform, Workload::MixedUniform] {
        let requests = generate(workload);
        for step in 1..=65 {
            let of_this_size = requests.iter().filter(|request| request.sectors == 4 * step).count();
            assert!(agrees(of_this_size, requests.len(), 1.0 / 65.0), "{workload}: {of_this_size} of {} KiB", 2 * step);
        }
    }
}

#[test]
fn random_starts_are_uniform_over_the_device() {
    for workload in [Workload::RandomSmall, Workload::RandomUniform, Workload::RandomLarge, Workload::RandomRead] {
        let requests = generate(workload);
        assert!(requests.iter().all(|request| request.lba.0 % 8 == 0));
        for tenth in 0..10 {
            let range = CAPACITY_SECTORS / 10 * tenth..CAPACITY_SECTORS / 10 * (tenth + 1);
            let inside = requests.iter().filter(|request| range.contains(&request.lba.0)).count();
            assert!(agrees(inside, requests.len(), 0.1), "{workload}: {inside} in tenth {tenth}");
        }
        let near = requests.windows(2).filter(|pair| pair[1].lba.0.abs_diff(pair[0].lba.0) <= 500).count();
        assert!(near < 60, "{workload}: {near} near their predecessor, expected about 5");
    }
}

#[test]
fn every_block_of_a_small_device_is_reached() {
    let mut options = GeneratorOptions::new(Workload::RandomSmall, 80, 3, 2_000);
    let blocks: BTreeSet<u64> = Generator::new(options.clone()).unwrap().map(|request| request.lba.0).collect();
    assert_eq!(blocks, (0..10).map(|block| 8 * block).collect());
    options.workload = Workload::RandomWrite;
    let blocks: BTreeSet<u64> = Generator::new(options).unwrap().map(|request| request.lba.0).collect();
    assert_eq!(blocks.len(), 10);
}

#[test]
fn mixed_is_a_fifth_sequential_and_three_tenths_local() {
    for workload in [Workload::MixedSmall, Workload::MixedUniform, Workload::MixedLarge] {
        let requests = generate(workload);
        let pairs = requests.windows(2);
        let of = pairs.len();
        let end = |request: &GeneratedRequest| request.lba.0 + u64::from(request.sectors);
        let follows = |pair: &[GeneratedRequest]| pair[1].lba.0 == end(&pair[0]);
        let near = |pair: &[GeneratedRequest]| pair[1].lba.0.abs_diff(pair[0].lba.0) <= 500;
        // A local start is one of 1,001, the sequential one among them if it is that near.
        let far = pairs.clone().filter(|pair| !near(pair) && !follows(pair)).count();
        assert!(agrees(far, of, 0.5), "{workload}: {far} random of {of}");
        let sequential = pairs.clone().filter(|pair| follows(pair)).count();
        assert!(agrees(sequential, of, 0.2 + 0.3 / 1_001.0), "{workload}: {sequential} sequential of {of}");

        let local = pairs.filter(|pair| near(pair) && !follows(pair));
        let distances: Vec<i64> = local.map(|pair| pair[1].lba.0 as i64 - pair[0].lba.0 as i64).collect();
        assert_eq!((distances.iter().min(), distances.iter().max()), (Some(&-500), Some(&500)), "{workload}");
        let before = distances.iter().filter(|distance| **distance < 0).count();
        assert!(agrees(before, distances.len(), 500.0 / 1_000.0), "{workload}: {before} of {} before", distances.len());
    }
}

#[test]
fn sequential_workloads_go_through_the_device_and_begin_again() {
    for (workload, op) in [(Workload::SequentialRead, Op::Read), (Workload::SequentialWrite, Op::Write)] {
        let mut options = GeneratorOptions::new(workload, 100, 1, 7);
        options.block_bytes = 16 << 10;
        let requests: Vec<_> = Generator::new(options).unwrap().collect();
        // A remainder of 4 sectors holds no block.
        assert_eq!(requests.iter().map(|request| request.lba.0).collect::<Vec<_>>(), [0, 32, 64, 0, 32, 64, 0]);
        assert!(requests.iter().all(|request| request.op == op && request.sectors == 32));
    }
}

#[test]
fn read_share_and_think_time_are_as_asked() {
    let mut options = GeneratorOptions::new(Workload::RandomMixed, CAPACITY_SECTORS, 1, REQUESTS);
    assert_eq!(options.read_share, 0.7);
    options.read_share = 0.25;
    options.think_max = Nanos::from_micros(20);
    let requests: Vec<_> = Generator::new(options).unwrap().collect();
    let reads = requests.iter().filter(|request| request.op == Op::Read).count();
    assert!(agrees(reads, requests.len(), 0.25));
    let mean_ns = requests.iter().map(|request| request.think.as_nanos()).sum::<u64>() as f64 / requests.len() as f64;
    // The deviation of a uniform variable is its range over √12.
    assert!((mean_ns - 10_000.0).abs() < 6.0 * 20_000.0 / 12f64.sqrt() / (requests.len() as f64).sqrt());
    assert!(requests.iter().all(|request| request.think <= Nanos::from_micros(20)));
}

#[test]
fn one_kind_workloads_have_one_kind() {
    for (workload, op) in [(Workload::RandomRead, Op::Read), (Workload::RandomWrite, Op::Write)] {
        assert!(generate(workload).iter().all(|request| request.op == op));
    }
}

#[test]
fn a_seed_stands_for_the_same_requests_for_ever() {
    let first: Vec<(Op, u64, u32)> = Generator::new(GeneratorOptions::new(Workload::MixedUniform, 1 << 20, 42, 6))
        .unwrap()
        .map(|request| (request.op, request.lba.0, request.sectors))
        .collect();
    assert_eq!(first, GOLDEN);
    assert_ne!(generate(Workload::RandomSmall), {
        let options = GeneratorOptions::new(Workload::RandomSmall, CAPACITY_SECTORS, 2, REQUESTS);
        Generator::new(options).unwrap().collect::<Vec<_>>()
    });
}

const GOLDEN: [(Op, u64, u32); 6] = [
    (Op::Write, 864_592, 164),
    (Op::Read, 794_512, 232),
    (Op::Read, 794_953, 160),
    (Op::Read, 474_296, 124),
    (Op::Write, 467_208, 20),
    (Op::Read, 386_568, 176),
];

#[test]
fn options_that_cannot_be_are_refused_with_a_sentence() {
    let refused = |change: fn(&mut GeneratorOptions)| {
        let mut options = GeneratorOptions::new(Workload::RandomRead, 1 << 20, 1, 1);
        change(&mut options);
        Generator::new(options).unwrap_err()
    };
    assert_eq!(refused(|o| o.block_bytes = 1000), "the block size is 1000 bytes; expected a multiple of 512 bytes");
    assert_eq!(refused(|o| o.block_bytes = 0), "the block size is 0 bytes; expected a multiple of 512 bytes");
    assert_eq!(
        refused(|o| (o.block_bytes, o.align_sectors) = (2048, 8)),
        "the block size is 2048 bytes; expected a multiple of 4096 bytes"
    );
    assert_eq!(refused(|o| o.read_share = 1.5), "the read share is 1.5; expected 0 to 1");
    assert!(refused(|o| o.read_share = f64::NAN).contains("expected 0 to 1"));
    assert!(refused(|o| o.align_sectors = 0).contains("expected at least 1"));
    assert_eq!(
        refused(|o| o.capacity_sectors = 7),
        "the device has 7 sectors, but workload random-read needs requests of 8 sectors"
    );
    assert!(refused(|o| (o.workload, o.align_sectors) = (Workload::MixedUniform, 8)).contains("steps of 4 sectors"));
    assert!(refused(|o| (o.workload, o.capacity_sectors) = (Workload::MixedUniform, 259)).contains("260 sectors"));
    assert!(refused(|o| o.block_bytes = 1 << 41).contains("less than 2 TiB"));
}

#[test]
fn names_are_their_own_inverse() {
    for workload in Workload::ALL {
        assert_eq!(workload.to_string().parse(), Ok(workload));
        assert!(!workload.description().is_empty());
    }
    let error = "random".parse::<Workload>().unwrap_err();
    assert!(
        error.starts_with("unknown workload 'random'; expected one of random-small, ") && error.contains("seq-write")
    );
}

proptest! {
    #[test]
    fn every_request_lies_aligned_inside_the_device(
        workload in prop::sample::select(Workload::ALL.to_vec()),
        capacity_sectors in 1u64..5_000,
        seed: u64,
        align in prop::sample::select(vec![1u32, 2, 4, 8]),
        blocks in 1u64..20,
        read_share in 0.0f64..=1.0,
    ) {
        let mut options = GeneratorOptions::new(workload, capacity_sectors, seed, 200);
        options.align_sectors = align;
        options.block_bytes = blocks * 512 * u64::from(align);
        options.read_share = read_share;
        let Ok(generator) = Generator::new(options) else { return Ok(()) };
        prop_assert_eq!(generator.size_hint(), (200, Some(200)));
        let again: Vec<_> = generator.clone().collect();
        let requests: Vec<_> = generator.collect();
        prop_assert_eq!(requests.len(), 200);
        for request in &requests {
            prop_assert!(request.sectors > 0 && request.lba.0 + u64::from(request.sectors) <= capacity_sectors);
            prop_assert!(request.lba.0 % u64::from(align) == 0 && request.sectors % align == 0);
        }
        prop_assert_eq!(requests, again);
    }
}
