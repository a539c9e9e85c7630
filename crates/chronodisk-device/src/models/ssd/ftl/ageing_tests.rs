//! Ageing against real writes, and write amplification against its analytic curve.

use std::ops::ControlFlow;
use std::sync::Arc;

use chronodisk_sim::RandomStream;

use super::super::geometry::{CellKind, Geometry};
use super::ageing::{AgeingMethod, AgeingOptions, AgeingReport, AgeingWorkload, age};
use super::fixed_point::FixedPoint;
use super::*;

/// `dies` dies of `blocks` superblocks of `pages` units, with the share `spare` hidden from the host.
fn drive(policy: VictimPolicy, dies: u32, blocks: u32, pages: u32, spare: f64) -> Arc<FtlParameters> {
    let geometry = Geometry {
        channels: dies,
        chips_per_channel: 1,
        dies_per_chip: 1,
        planes_per_die: 1,
        blocks_per_plane: blocks,
        pages_per_block: pages,
        page_bytes: 4_096,
        unit_bytes: 4_096,
        cells: CellKind::Mlc,
        one_shot_pages: 2,
    };
    let logical_units = (f64::from(geometry.slots()) * (1.0 - spare)) as u32;
    Arc::new(FtlParameters {
        geometry,
        logical_units,
        allocation: Allocation::Dynamic,
        collector: CollectorParameters { policy, start_below: 3, urgent_below: 2, preemptible: true },
        wear: WearLevelling { dynamic: true, move_at_difference: None },
        mapping: Mapping::Ideal,
        slc_cache: None,
    })
}

fn aged(parameters: &Arc<FtlParameters>, options: AgeingOptions) -> (Ftl, AgeingReport) {
    let (ftl, report) = age(parameters, &options, &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(report.steady, "{report:?}");
    (ftl, report)
}

impl AgeingReport {
    /// Standard error of the write amplification, from how the last five rounds differ.
    fn standard_error(&self) -> f64 {
        let last = &self.rounds[self.rounds.len() - 5..];
        let squares: f64 = last.iter().map(|round| (round - self.write_amplification).powi(2)).sum();
        (squares / 4.0 / 5.0).sqrt()
    }
}

/// For each number of valid units, the share of superblocks with data that have at least as many.
fn at_least(ftl: &Ftl) -> Vec<f64> {
    let full = ftl.sizes.units_per_superblock;
    let superblocks = (0..ftl.dies()).flat_map(|die| ftl.blocks.of_die(die));
    let valid: Vec<u32> = superblocks
        .filter(|&superblock| ftl.blocks.use_of(superblock) == BlockUse::Closed)
        .map(|superblock| ftl.valid_in(superblock))
        .collect();
    let share = |least| valid.iter().filter(|&&valid| valid >= least).count() as f64 / valid.len() as f64;
    (0..=full).map(share).collect()
}

#[test]
fn a_drawn_drive_is_as_one_that_was_written() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::Choices(4), VictimPolicy::Fifo] {
        let parameters = drive(policy, 2, 400, 64, 0.12);
        let by = |method| aged(&parameters, AgeingOptions { method, ..AgeingOptions::default() });
        let ((drawn, drawn_report), (written, written_report)) = (by(AgeingMethod::Drawn), by(AgeingMethod::Written));
        let ratio = drawn_report.write_amplification / written_report.write_amplification;
        assert!((ratio - 1.0).abs() < 0.03, "{policy:?}: {drawn_report:?} {written_report:?}");
        // The Kolmogorov-Smirnov distance of the two distributions: 1.95 √(2/n) is exceeded in one case of a thousand.
        let apart = at_least(&drawn).iter().zip(at_least(&written)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1.95 * (2.0f64 / 790.0).sqrt(), "{policy:?}: {apart}");
    }
}

#[test]
fn write_amplification_follows_the_analytic_curve_for_greedy() {
    for spare in [0.07, 0.12, 0.20, 0.28] {
        let parameters = drive(VictimPolicy::Greedy, 1, 1_000, 64, spare);
        let (_, report) = aged(&parameters, AgeingOptions::default());
        // The collector's reserve and the halves of the two open superblocks are no spare.
        let written = f64::from(1_000 - parameters.collector.start_below - 1) * 64.0;
        let point = FixedPoint::new(VictimPolicy::Greedy, 64, f64::from(parameters.logical_units) / written);
        let ratio = report.write_amplification / point.write_amplification();
        assert!((ratio - 1.0).abs() < 0.03, "{spare}: {report:?} {}", point.write_amplification());
    }
}

#[test]
fn hot_and_cold_data_and_a_part_of_the_drive() {
    let parameters = drive(VictimPolicy::Greedy, 2, 200, 64, 0.12);
    let uniform = aged(&parameters, AgeingOptions::default()).1.write_amplification;
    let half = AgeingOptions { occupied: 0.5, ..AgeingOptions::default() };
    let (ftl, report) = aged(&parameters, half);
    assert!(report.write_amplification < 1.2, "{report:?}");
    let mapped = (0..parameters.logical_units).filter(|&unit| ftl.lookup(unit).is_some()).count() as u32;
    assert_eq!(mapped, parameters.logical_units / 2);
    let workload = AgeingWorkload::HotCold { hot_units: 0.2, hot_writes: 0.9 };
    let written = aged(&parameters, AgeingOptions { workload, method: AgeingMethod::Written, ..half });
    assert!(written.1.write_amplification < uniform);
    let sequential = AgeingOptions { workload: AgeingWorkload::Sequential, ..AgeingOptions::default() };
    assert_eq!(aged(&parameters, sequential).1.write_amplification, 1.0);
}

#[test]
fn a_drive_that_was_written_twice_erases_a_superblock_for_each_that_it_fills() {
    let parameters = drive(VictimPolicy::Greedy, 8, 200, 64, 0.12);
    let options = AgeingOptions { workload: AgeingWorkload::SequentialTwice, ..AgeingOptions::default() };
    let (ftl, report) = aged(&parameters, options);
    assert_eq!(report.write_amplification, 1.0, "what is collected holds nothing");
    let free = parameters.collector.start_below;
    assert!((0..8).all(|die| (free - 1..=free).contains(&ftl.free_superblocks(die))));
    let mut drive = Untimed::new(ftl);
    let before = *drive.ftl().counters();
    let mut random = RandomStream::new(1, "test", "units");
    let filled = 8 * 4;
    for _ in 0..filled * 64 {
        drive.write(random.below(u64::from(parameters.logical_units)) as u32);
    }
    let since = drive.ftl().counters().since(&before);
    assert!(since.erases.abs_diff(filled) <= 8 && since.moved_units == 0, "{since:?}");
}

#[test]
fn dies_of_an_aged_drive_are_out_of_step() {
    let parameters = drive(VictimPolicy::Greedy, 32, 100, 64, 0.12);
    for workload in [AgeingWorkload::Random, AgeingWorkload::SequentialTwice] {
        let (ftl, _) = aged(&parameters, AgeingOptions { workload, ..AgeingOptions::default() });
        let appended = |die: &Die| die.frontiers[Stream::Host as usize].map_or(0, |frontier| frontier.appended);
        let mut eighths = [0; 8];
        ftl.dies.iter().for_each(|die| eighths[appended(die) as usize * 8 / 64] += 1);
        // With 32 dies at random, fewer than five different eighths have a probability of one in millions.
        assert!(eighths.iter().filter(|&&dies| dies > 0).count() >= 5, "{workload:?}: {eighths:?}");
    }
}

#[test]
fn ageing_can_be_ended() {
    let parameters = drive(VictimPolicy::Greedy, 2, 100, 64, 0.12);
    let mut reports = 0;
    let ended = age(&parameters, &AgeingOptions::default(), &mut |_| {
        reports += 1;
        if reports == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(ended.is_none());
}

/// A drive as they are sold: two planes, pages of 16 KiB and 256 of them in a block, mapped by 4 KiB.
fn sold(policy: VictimPolicy, dies: u32, blocks: u32, spare: f64) -> Arc<FtlParameters> {
    let small = drive(policy, dies, blocks, 256, spare);
    let geometry = Geometry { planes_per_die: 2, page_bytes: 16_384, ..small.geometry };
    let logical_units = (f64::from(geometry.slots()) * (1.0 - spare)) as u32;
    Arc::new(FtlParameters { geometry, logical_units, ..FtlParameters::clone(&small) })
}

/// Prints a measurement for `--nocapture`.
fn tell(text: &str) {
    use std::io::Write;
    writeln!(std::io::stderr(), "{text}").unwrap();
}

#[test]
#[ignore = "minutes: `make ageing`"]
fn a_drawn_16_gb_drive_is_as_one_that_was_written() {
    for policy in [VictimPolicy::Greedy, VictimPolicy::Choices(10), VictimPolicy::RANDOM, VictimPolicy::Fifo] {
        // 8 dies of 260 superblocks of 8 MiB: 17.4 GB of flash, 7 % more than 16 GB.
        let parameters = sold(policy, 8, 260, 0.07 + 0.02);
        let by = |method| aged(&parameters, AgeingOptions { method, ..AgeingOptions::default() });
        let ((drawn, drawn_report), (written, written_report)) = (by(AgeingMethod::Drawn), by(AgeingMethod::Written));
        let apart = at_least(&drawn).iter().zip(at_least(&written)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        tell(&format!(
            "{policy:?}: write amplification {:.4} drawn, {:.4} written, {:.4} predicted; distributions {apart:.4} apart",
            drawn_report.write_amplification,
            written_report.write_amplification,
            drawn_report.predicted_write_amplification.unwrap()
        ));
        // 2 %, or the random deviation of the rounds: the victims of a random choice vary strongly.
        let chance = 3.0 * drawn_report.standard_error().hypot(written_report.standard_error());
        let difference = (drawn_report.write_amplification - written_report.write_amplification).abs();
        let allowed = chance.max(0.02 * written_report.write_amplification);
        assert!(difference < allowed, "{policy:?}: {drawn_report:?} {written_report:?}");
        // The Kolmogorov-Smirnov distance, exceeded in one case of a thousand.
        assert!(apart < 1.95 * (2.0f64 / 2_000.0).sqrt(), "{policy:?}: {apart}");
    }
}

/// Ages a drive of this number of dies with 7 % more flash than the host sees. Run this test alone to see its duration.
fn age_large(name: &str, dies: u32) {
    // 1,994 superblocks of 8 MiB in a die: 64 dies have 1.07 TB.
    let parameters = sold(VictimPolicy::Greedy, dies, 1_994, 1.0 - 1.0 / 1.07);
    let (_, report) = aged(&parameters, AgeingOptions::default());
    tell(&format!("{name}, {} units: {report:?}", parameters.logical_units));
    let predicted = report.predicted_write_amplification.unwrap();
    assert!((report.write_amplification / predicted - 1.0).abs() < 0.03, "{name}: {report:?}");
}

#[test]
#[ignore = "minutes and gigabytes: `make ageing`"]
fn a_drive_of_1_tb_is_aged() {
    age_large("1 TB", 64);
}

#[test]
#[ignore = "minutes and gigabytes: `make ageing`"]
fn a_drive_of_4_tb_is_aged() {
    age_large("4 TB", 256);
}
