//! Verdicts of runs.

mod common;

use chronodisk_report::{
    Figure, GenericCode, Limit, RepResult, RequestIssuers, RunResult, Seen, Verdict, render_run_summary,
};
use chronodisk_sim::{Nanos, Op, RequestRecord};
use common::{record, run};

/// A run of a second in which the device was busy for a share of it, and the guest idle for another.
fn a_second(device_busy: f64, idle: f64) -> RunResult {
    let mut run = run("r", "constant-100us", &[1_000], &[record(0, 0, 100, 100)]);
    let rep = &mut run.reps[0];
    rep.summary.utilisation = device_busy;
    let seconds = |share: f64| (share * 1e9) as u64;
    rep.clock_counters = [
        ("jumped_nanos".to_owned(), seconds(idle)),
        ("user_cpu_nanos".to_owned(), seconds(0.05)),
        ("kernel_cpu_nanos".to_owned(), seconds(0.9)),
        ("kernel_work_nanos".to_owned(), seconds(0.8)),
        ("kernel_counted_nanos".to_owned(), seconds(0.10)),
        ("kernel_in_full_nanos".to_owned(), seconds(0.02)),
    ]
    .into();
    run
}

fn verdict(run: &RunResult) -> Verdict {
    seeing(run, &[])
}

fn seeing(run: &RunResult, generic_code: &[GenericCode]) -> Verdict {
    let seen = Seen { issuers: None, settled: true, generic_code: generic_code.to_vec() };
    Verdict::of_guest(&run.reps[0], &run.clock, seen)
}

fn doubt(verdict: &Verdict, figure: Figure) -> Option<&str> {
    verdict.doubts.iter().find(|doubt| doubt.figure == figure).map(|doubt| doubt.reason.as_str())
}

#[test]
fn what_is_busier_limits_the_run() {
    let of = |device_busy, idle| {
        let verdict = verdict(&a_second(device_busy, idle));
        (verdict.limit, verdict.sentence())
    };
    let text = "CPU-bound: the guest's processor was busy 96 % of the time, the device 20 %; this device could do 5.0 \
                times as much";
    assert_eq!(of(0.2, 0.04), (Limit::Processor, text.to_owned()));
    let text = "device-bound: the device was busy 97 % of the time, the guest's processor 12 %";
    assert_eq!(of(0.97, 0.88), (Limit::Device, text.to_owned()));
    let text = "bound by neither: the guest's processor was busy 0.1 % of the time, the device 0 %";
    assert_eq!(of(0.0, 0.999), (Limit::Neither, text.to_owned()));
    let text = "CPU-bound: the guest's processor was busy 100 % of the time, the device 0 %";
    assert_eq!(of(0.0, 0.0), (Limit::Processor, text.to_owned()));
    assert_eq!(of(0.95, 0.0).0, Limit::Processor, "the processor never waited");
    assert_eq!(of(0.6, 0.45).0, Limit::Device);
}

#[test]
fn a_rate_that_the_processor_sets_is_not_the_devices() {
    assert!(doubt(&verdict(&a_second(0.2, 0.04)), Figure::Rate).unwrap().contains("processor"));
    assert_eq!(verdict(&a_second(0.97, 0.88)).doubts, []);
}

#[test]
fn a_run_time_that_is_mostly_estimated_is_doubtful() {
    let mut run = a_second(0.97, 0.5);
    assert_eq!(doubt(&verdict(&run), Figure::RunTime), None);
    run.reps[0].clock_counters.insert("kernel_counted_nanos".into(), 420_000_000);
    let verdict_of_defaults = verdict(&run);
    let reason = doubt(&verdict_of_defaults, Figure::RunTime).unwrap();
    assert!(reason.starts_with("42 % of it") && reason.contains("chronodisk calibrate"), "{reason}");
    // On a calibrated host, what counts in full is no estimate.
    (run.clock.kernel_costs, run.clock.calibrated) = (Some([].into()), Some(true));
    let calibrated = verdict(&run);
    let reason = doubt(&calibrated, Figure::RunTime).unwrap();
    assert!(reason.starts_with("40 % of it") && reason.ends_with("as calibrated"), "{reason}");
    run.reps[0].clock_counters.insert("kernel_in_full_nanos".into(), 400_000_000);
    assert_eq!(doubt(&verdict(&run), Figure::RunTime), None);
    run.clock.calibrated = Some(false);
    assert!(doubt(&verdict(&run), Figure::RunTime).is_some());
}

#[test]
fn generic_code_is_named_and_doubted_where_it_is_costly() {
    let code = |algorithm: &str, holders: &[&str]| GenericCode {
        algorithm: algorithm.to_owned(),
        holders: holders.iter().map(|&holder| holder.to_owned()).collect(),
    };
    let held = [code("AES", &[]), code("CRC32C", &["btrfs", "ext4"])];
    let mut run = a_second(0.97, 0.5);
    (run.clock.kernel_costs, run.clock.calibrated) = (Some([].into()), Some(true));
    let mut text_of = |in_full_nanos: u64, held: &[GenericCode]| {
        let counters = &mut run.reps[0].clock_counters;
        counters.insert("kernel_in_full_nanos".into(), in_full_nanos);
        counters.insert("kernel_counted_nanos".into(), in_full_nanos);
        run.reps[0].verdict = Some(seeing(&run, held));
        let doubt = run.reps[0].verdict.as_ref().and_then(|verdict| doubt(verdict, Figure::RunTime)).map(str::to_owned);
        (render_run_summary(&run), doubt)
    };
    // It is beside the point where the kernel did nothing that counts in full.
    assert!(!text_of(5_000_000, &held).0.contains("generic code"));
    let (text, doubted) = text_of(150_000_000, &held);
    assert!(text.contains("generic code        AES, CRC32C (btrfs, ext4): part of the work"), "{text}");
    assert_eq!(doubted, None);
    let (_, doubted) = text_of(300_000_000, &held);
    assert_eq!(
        doubted.as_deref(),
        Some("up to 30 % of it is AES by generic code, which natively takes a fraction"),
        "checksums of a few bytes a cycle are not costly"
    );
    assert_eq!(text_of(300_000_000, &held[1..]).1, None);
    assert!(!text_of(300_000_000, &[]).0.contains("generic code"));
}

#[test]
fn computing_in_no_time_bounds_rates_from_above() {
    let mut run = a_second(0.97, 0.9);
    run.clock.cpu = "zero".into();
    let verdict = verdict(&run);
    assert_eq!((verdict.processor_busy, verdict.kernel_cpu), (Some(0.0), None));
    assert!(doubt(&verdict, Figure::Rate).unwrap().contains("upper bound"));
}

#[test]
fn late_completions_make_service_times_doubtful() {
    let mut run = a_second(0.97, 0.9);
    run.reps[0].summary.late_share = 0.125;
    let verdict = verdict(&run);
    assert!(doubt(&verdict, Figure::ServiceTime).unwrap().starts_with("12 %"), "{verdict:?}");
    run.reps[0].verdict = Some(verdict);
    assert!(render_run_summary(&run).contains("service time (doubtful)"));
}

#[test]
fn a_file_systems_own_reads_are_told_from_the_commands() {
    let issued =
        |order: u64, issuer: u32, op: Op| RequestRecord { issuer, op, ..record(order, order, order + 1, order + 1) };
    let records = [issued(0, 1, Op::Read), issued(1, 2, Op::Read), issued(2, 2, Op::Read), issued(3, 2, Op::Write)];
    let all = Nanos::ZERO..Nanos::from_millis(1);
    let issuers = RequestIssuers::of(&records, all.clone()).unwrap();
    assert_eq!(issuers, RequestIssuers { programs: 1, kernel: 3, kernel_reads: 2, unknown: 0 });
    assert_eq!(RequestIssuers::of(&[issued(0, 0, Op::Read)], all), None, "nothing is known of them");
    let mut run = run("r", "constant-100us", &[1_000], &records);
    let verdict = Verdict::of_guest(
        &run.reps[0],
        &run.clock,
        Seen { issuers: Some(issuers), settled: true, generic_code: Vec::new() },
    );
    assert!(doubt(&verdict, Figure::Rate).unwrap().contains("50 % of the requests are reads"), "{verdict:?}");
    run.reps[0].verdict = Some(verdict);
    let text = render_run_summary(&run);
    assert!(text.contains("not the command's   3 (75 %) by the guest's kernel"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("rate") && line.ends_with("(doubtful)")), "{text}");
}

#[test]
fn a_file_system_that_never_settled_is_said() {
    let run = a_second(0.97, 0.9);
    let verdict =
        Verdict::of_guest(&run.reps[0], &run.clock, Seen { issuers: None, settled: false, generic_code: Vec::new() });
    assert!(doubt(&verdict, Figure::Rate).unwrap().contains("its own work"));
}

#[test]
fn a_served_device_has_a_verdict_without_a_processor() {
    let run = a_second(0.3, 0.0);
    let verdict = Verdict::of_served(&run.reps[0]);
    assert_eq!(verdict.sentence(), "not device-bound: the device was busy 30 % of the time");
    assert_eq!(verdict.doubts, []);
}

#[test]
fn older_results_have_none_and_are_read() {
    let run = run("r", "null", &[1_000], &[]);
    let mut value: serde_json::Value = serde_json::from_str(&run.to_json()).unwrap();
    let rep = value["reps"][0].as_object_mut().unwrap();
    rep.remove("dropped_files");
    assert!(!rep.contains_key("verdict") && !rep.contains_key("summaries_by_device"));
    let rep: RepResult = serde_json::from_value(value["reps"][0].clone()).unwrap();
    assert_eq!((rep.verdict, rep.dropped_files.count), (None, 0));
}
