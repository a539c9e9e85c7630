//! Figures against figures worked out by hand, and against slow definitions.

mod common;

use chronodisk_report::{Distribution, Estimate, Summary, service_times, student_t_975};
use chronodisk_sim::{Nanos, Op, Status};
use common::{record, us};
use proptest::prelude::*;

#[test]
fn a_window_counts_what_arrived_in_it() {
    let mut records = vec![
        record(0, 0, 90, 90),        // before the window, but outstanding for its first 10 µs or less
        record(1, 100, 200, 200),    // 100 µs, punctual
        record(2, 150, 350, 351),    // 200 µs, 0.5 % late: not counted as late
        record(3, 600, 700, 710),    // 100 µs, 10 % late
        record(4, 1080, 1200, 1200), // completes after the window
        record(5, 1100, 1101, 1101), // after the window
    ];
    records[2].op = Op::Write;
    records[3].status = Status::MediaError;
    let summary = Summary::of(&records, us(80)..us(1080));
    assert_eq!(summary.window_ns, us(1000));
    assert_eq!((summary.requests, summary.unfinished, summary.failed), (3, 0, 1));
    assert_eq!((summary.op(Op::Read).requests, summary.op(Op::Read).bytes), (2, 8192));
    assert_eq!((summary.op(Op::Write).requests, summary.op(Op::Flush).requests), (1, 0));
    assert_eq!(summary.op(Op::Write).service_time_us.max, 200.0);
    let service = summary.service_time_us;
    assert!((service.mean - 400.0 / 3.0).abs() < 1e-9);
    assert_eq!((service.p50, service.p90, service.max), (100.0, 200.0, 200.0));
    assert_eq!(summary.lateness_us.max, 10.0);
    assert!((summary.late_share - 1.0 / 3.0).abs() < 1e-12);
    // Busy: 80 to 90, 100 to 351, 600 to 710.
    assert!((summary.utilisation - 0.371).abs() < 1e-12);
    assert!((summary.mean_queue_depth - (10.0 + 100.0 + 201.0 + 110.0) / 1000.0).abs() < 1e-12);
    // The one that failed moved nothing.
    assert!((summary.iops - 2_000.0).abs() < 1e-9);
    assert!((summary.mb_per_s - 2.0 * 4096.0 / 1e6 / 1e-3).abs() < 1e-9);
    assert_eq!((summary.model_time_us.p50, summary.store_time_us.p50), (0.5, 0.9));
}

#[test]
fn lateness_counts_beyond_both_thresholds() {
    let late_share = |record| Summary::of(&[record], Nanos::ZERO..us(100_000)).late_share;
    let nanos = Nanos::from_nanos;
    let mut of_a_nanosecond = record(0, 10, 0, 15);
    of_a_nanosecond.due = us(10) + nanos(1);
    assert_eq!(late_share(of_a_nanosecond), 0.0);
    of_a_nanosecond.completed = of_a_nanosecond.due + us(5) + nanos(1);
    assert_eq!(late_share(of_a_nanosecond), 1.0);
    assert_eq!(late_share(record(0, 0, 10_000, 10_100)), 0.0);
    assert_eq!(late_share(record(0, 0, 10_000, 10_101)), 1.0);
}

#[test]
fn what_never_completed_keeps_the_device_busy_but_has_no_service_time() {
    let mut cut_off = record(1, 500, 0, 0);
    (cut_off.due, cut_off.completed) = (Nanos::MAX, Nanos::MAX);
    let records = [record(0, 0, 100, 100), cut_off];
    let summary = Summary::of(&records, Nanos::ZERO..us(1000));
    assert_eq!((summary.requests, summary.unfinished), (2, 1));
    assert_eq!(summary.service_time_us.max, 100.0);
    assert!((summary.utilisation - 0.6).abs() < 1e-12);
    assert_eq!(service_times(&records, Nanos::ZERO..us(1000)), [us(100)]);
}

#[test]
fn nothing_gives_zeros_and_no_division_by_zero() {
    for window in [Nanos::ZERO..Nanos::ZERO, us(5)..us(3), us(1)..us(2)] {
        let summary = Summary::of(&[], window.clone());
        assert_eq!(summary, Summary { window_ns: window.end.saturating_sub(window.start), ..Summary::default() });
    }
    let at_once = Summary::of(&[record(0, 1, 2, 2)], us(1)..us(1));
    assert_eq!((at_once.requests, at_once.iops, at_once.utilisation), (0, 0.0, 0.0));
}

#[test]
fn critical_values_of_students_t_are_the_published_ones() {
    // NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2.
    for (degrees, published) in [
        (1, 12.706),
        (2, 4.303),
        (5, 2.571),
        (10, 2.228),
        (30, 2.042),
        (31, 2.040),
        (40, 2.021),
        (60, 2.000),
        (100, 1.984),
    ] {
        assert!((student_t_975(degrees) - published).abs() < 5.1e-4, "{degrees} degrees of freedom");
    }
    assert!((student_t_975(1_000_000) - 1.959_966).abs() < 1e-5);
    assert!((1..200).all(|degrees| student_t_975(degrees) > student_t_975(degrees + 1)));
}

#[test]
fn a_confidence_interval_worked_out_by_hand() {
    // Mean 5, deviations -3, -1, 1, 3: variance 20/3, standard error √(20/12).
    let estimate = Estimate::of(&[2.0, 4.0, 6.0, 8.0]).unwrap();
    assert_eq!((estimate.mean, estimate.count), (5.0, 4));
    assert!((estimate.half_width_95.unwrap() - 3.182 * (20.0f64 / 12.0).sqrt()).abs() < 1e-9);
    assert_eq!(Estimate::of(&[7.0]).unwrap().half_width_95, None);
    assert_eq!(Estimate::of(&[]), None);
}

proptest! {
    #[test]
    fn percentiles_are_by_nearest_rank(values in prop::collection::vec(0u64..1_000_000, 1..3_000)) {
        let distribution = Distribution::of(values.iter().copied().map(Nanos::from_nanos));
        let not_above = |micros: f64| values.iter().filter(|value| **value as f64 / 1e3 <= micros).count() as f64;
        let below = |micros: f64| values.iter().filter(|value| (**value as f64 / 1e3) < micros).count() as f64;
        let count = values.len() as f64;
        for (share, micros) in [
            (0.5, distribution.p50),
            (0.9, distribution.p90),
            (0.99, distribution.p99),
            (0.999, distribution.p999),
            (0.9999, distribution.p9999),
        ] {
            prop_assert!(not_above(micros) >= share * count - 1e-6);
            prop_assert!(below(micros) < share * count);
        }
        let mean = values.iter().sum::<u64>() as f64 / count / 1e3;
        prop_assert!((distribution.mean - mean).abs() <= 1e-9 * mean.max(1.0));
    }

    #[test]
    fn utilisation_and_queue_depth_are_what_counting_instants_says(
        spans in prop::collection::vec((0u64..100, 1u64..40, 0u64..5), 0..20),
        window_start in 0u64..60,
        window_length in 1u64..80,
    ) {
        let records: Vec<_> = spans
            .iter()
            .enumerate()
            .map(|(order, (arrival, service, late))| {
                let due = arrival + service;
                record(order as u64, *arrival, due, due + late)
            })
            .collect();
        let window = window_start..window_start + window_length;
        let outstanding =
            |at: u64| records.iter().filter(|record| record.arrival <= us(at) && us(at) < record.completed).count();
        let busy = window.clone().filter(|at| outstanding(*at) > 0).count();
        let sum: usize = window.clone().map(outstanding).sum();
        let summary = Summary::of(&records, us(window.start)..us(window.end));
        prop_assert!((summary.utilisation - busy as f64 / window_length as f64).abs() < 1e-9);
        prop_assert!((summary.mean_queue_depth - sum as f64 / window_length as f64).abs() < 1e-9);
    }
}
