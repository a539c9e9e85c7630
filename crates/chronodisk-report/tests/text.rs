//! Tables, comparisons and plots.

mod common;

use std::collections::BTreeMap;

use chronodisk_report::{
    Align, PlotRun, RunResult, Simulation, Surroundings, Table, compare, plot_comparison, render_run_summary,
    render_simulation, service_times,
};
use chronodisk_sim::{Nanos, Op, RandomStream};
use common::{record, run, us};

fn some_records() -> Vec<chronodisk_sim::RequestRecord> {
    let mut records: Vec<_> =
        (0..8).map(|order| record(order, order * 120, order * 120 + 100, order * 120 + 100)).collect();
    records[3].op = Op::Write;
    records[3].completed = records[3].due + us(7);
    records[7].op = Op::Flush;
    records[7].sectors = 0;
    records
}

#[test]
fn a_run_reads_like_this() {
    let mut run = run("20250102-030405", "constant-100us", &[1_234], &some_records());
    run.warnings.push("the host was busy".into());
    let expected = "\
run      20250102-030405
command  postmark
device   constant-100us, 8 GiB, seed 1
guest    Linux 6.1.176, one CPU, 512 MiB of memory, ext4, scheduler none
clock    guest, CPU measured, kernel time × 0.05

run time            1.234 s in the guest, 2.500 s on the host in all
exit status         0
before and after    boot 600.000 ms
requests            8: 6 reads of 24 KiB, 1 writes of 4 KiB, 1 flushes
rate                8000.0 requests/s, 28.67 MB/s
device busy         80.7 % of the time, 0.81 requests outstanding on average
untimed host files  3 MiB read, 100 B written
late                12.50 % of the requests by more than 1 % of their service time and 5 µs

microseconds  requests   mean    p50    p90    p99  p99.9  p99.99    max
------------  --------  -----  -----  -----  -----  -----  ------  -----
service time         8  100.0  100.0  100.0  100.0  100.0   100.0  100.0
  flush              1  100.0  100.0  100.0  100.0  100.0   100.0  100.0
  read               6  100.0  100.0  100.0  100.0  100.0   100.0  100.0
  write              1  100.0  100.0  100.0  100.0  100.0   100.0  100.0
lateness             8    0.9    0.0    7.0    7.0    7.0     7.0    7.0
warning: the host was busy
";
    assert_eq!(render_run_summary(&run), expected);
}

#[test]
fn calls_that_were_refused_to_the_guest_have_a_line_of_their_own() {
    let mut run = run("r", "null", &[1_000], &some_records());
    run.reps[0].refused_calls = Some(BTreeMap::new());
    assert!(!render_run_summary(&run).contains("refused"));
    run.reps[0].refused_calls = Some(BTreeMap::from([("prlimit64".into(), 2), ("x32 getpid".into(), 1)]));
    assert!(render_run_summary(&run).contains("\nrefused calls       prlimit64 2, x32 getpid 1\n"));
}

#[test]
fn repetitions_are_told_apart_and_end_with_their_mean() {
    let text = render_run_summary(&run("r", "null", &[1_000, 1_200], &some_records()));
    assert!(text.contains("repetition 1 of 2\n") && text.contains("repetition 2 of 2\n"));
    // Standard error 0.1 s, t for one degree of freedom 12.706.
    assert!(
        text.ends_with("run time over 2 repetitions: 1.100 s ± 1.271 s (95 % confidence, Student's t)\n"),
        "{text}"
    );
}

#[test]
fn a_squashed_device_says_what_was_written_and_what_is_stored() {
    let mut run = run("a", "null", &[1_000], &some_records());
    assert!(!render_run_summary(&run).contains("squashed"));
    let statistics = &mut run.reps[0].model_statistics;
    statistics.insert("squash-written [bytes]".to_owned(), (3_u64 << 30) as f64);
    statistics.insert("squash-stored [bytes]".to_owned(), f64::from(5 << 20));
    let text = render_run_summary(&run);
    assert!(text.contains("squashed            3 GiB written to the device, 5 MiB stored"), "{text}");
}

#[test]
fn a_simulation_reads_like_this() {
    let options = [("depth".to_owned(), 32.into()), ("block-size".to_owned(), "16KiB".into())].into();
    let records = &some_records()[..3];
    let expected = "\
device          first-disk
workload        random-read
block-size      16KiB
depth           32
simulated time  340.000 µs
requests        3: 3 reads of 12 KiB
rate            8823.5 requests/s, 36.14 MB/s
device busy     88.2 % of the time, 0.88 requests outstanding on average

microseconds  requests   mean    p50    p90    p99  p99.9  p99.99    max
------------  --------  -----  -----  -----  -----  -----  ------  -----
service time         3  100.0  100.0  100.0  100.0  100.0   100.0  100.0
";
    assert_eq!(render_simulation(&Simulation::new("first-disk", "random-read", options, records)), expected);
}

#[test]
fn repetitions_with_equal_seeds_are_paired() {
    let seeded = |id: &str, times: &[u64], seeds: &[u64]| {
        let mut run = run(id, "null", times, &[]);
        for (rep, seed) in run.reps.iter_mut().zip(seeds) {
            rep.seed = Some(*seed);
        }
        run
    };
    let baseline = seeded("base", &[1_000, 2_000, 4_000], &[1, 2, 3]);
    // Seeds 2 and 3 took 0.3 s longer, of 3 s on average; the order of the repetitions does not matter.
    let other = seeded("other", &[4_300, 2_300, 9_000], &[3, 2, 9]);
    let comparison = compare(&[baseline.clone(), other]);
    let percent = comparison.rows[1].difference_percent.unwrap();
    assert_eq!(percent.count, 2);
    assert!((percent.mean - 10.0).abs() < 1e-9 && percent.half_width_95.unwrap() < 1e-9, "{percent:?}");
    assert!(comparison.render().contains("other: +10.00 % ± 0.00 % over 2 pairs"), "{}", comparison.render());
    let stranger = compare(&[baseline, seeded("stranger", &[1_000], &[8])]);
    assert!(stranger.notes.iter().any(|note| note.contains("nothing to pair")), "{:?}", stranger.notes);
}

#[test]
fn a_comparison_is_paired_by_repetition() {
    let records = some_records();
    // The host's mood changes from repetition to repetition, the difference hardly does.
    let runs =
        [run("a", "null", &[1_000, 2_000, 3_000], &records), run("b", "first-disk", &[1_510, 2_500, 3_490], &records)];
    let comparison = compare(&runs);
    let row = &comparison.rows[1];
    let difference = row.difference_s.unwrap();
    assert!((difference.mean - 0.5).abs() < 1e-9);
    // Deviations 0.01, 0, -0.01: standard error 0.01/√3, t for two degrees of freedom 4.303.
    assert!((difference.half_width_95.unwrap() - 4.303 * 0.01 / 3f64.sqrt()).abs() < 1e-9);
    assert!((row.ratio.unwrap() - 1.25).abs() < 1e-9);
    assert_eq!(comparison.rows[0].difference_s.unwrap().mean, 0.0);
    assert_eq!(comparison.notes, [] as [&str; 0]);
    let expected = "\
run  device      reps  run time s  ± 95 %  difference s  ± 95 %  ratio  requests  mean service µs  p99 µs    busy
---  ----------  ----  ----------  ------  ------------  ------  -----  --------  ---------------  ------  ------
a    null           3       2.000   2.484             -       -  1.000         8            100.0   100.0  80.7 %
b    first-disk     3       2.500   2.459        +0.500   0.025  1.250         8            100.0   100.0  80.7 %
Differences and ratios are to the first run, repetition by repetition.
b: +25.00 % ± 1.24 % over 3 pairs
";
    assert_eq!(comparison.render(), expected);
    let json: serde_json::Value = serde_json::from_str(&comparison.to_json()).unwrap();
    assert_eq!(json["schema"], "chronodisk.compare/1");
    assert_eq!(json["rows"][1]["difference_s"]["count"], 3);
}

#[test]
fn a_comparison_says_what_makes_runs_less_comparable() {
    let records = some_records();
    let mut other = run("b", "first-disk", &[1_000], &records);
    other.reps[0].exit_status = 3;
    other.guest.file_system = "xfs".into();
    other.command.push("-x".into());
    let comparison = compare(&[run("a", "null", &[900, 950], &records), other]);
    assert_eq!(
        comparison.notes,
        [
            "b has 1 repetitions, the baseline 2; only pairs give differences",
            "b: repetition 0 ended with status 3",
            "b and the baseline differ in: command, fs (xfs, ext4)",
        ]
    );
    assert_eq!(comparison.rows[1].difference_s.unwrap().half_width_95, None);
    let text = comparison.render();
    assert!(
        text.contains("One repetition has no confidence interval.\n")
            && text.contains("note: b and the baseline differ in")
    );
    assert_eq!(compare(&[]).notes, ["no runs"]);
}

#[test]
fn a_comparison_names_another_environment_kernel_and_root_tree() {
    let note = |baseline: &RunResult, run: &RunResult| compare(&[baseline.clone(), run.clone()]).notes.join("; ");
    let mut base = run("base", "null", &[900], &[]);
    base.clock.driver = "exact".into();
    let mut now = RunResult { run_id: "now".into(), ..base.clone() };
    assert_eq!(note(&base, &now), "", "results of older versions don't say it, and nothing is missed");
    let variables = |names: &[&str]| names.iter().map(|&name| (name.to_owned(), "3 B, 1234".to_owned())).collect();
    let surroundings = Surroundings {
        kernel_hash: Some("xxh64:1".into()),
        distribution: Some("Debian 12".into()),
        packages_hash: Some("xxh64:2".into()),
        program_hash: Some("xxh64:3".into()),
        environment: variables(&["HOME", "PATH"]),
    };
    now.surroundings = Some(surroundings.clone());
    assert_eq!(note(&base, &now), "base does not say with which environment and packages it was run");
    base.surroundings = Some(surroundings.clone());
    assert_eq!(note(&base, &now), "");
    let changed = Surroundings {
        kernel_hash: Some("xxh64:4".into()),
        distribution: Some("Debian 13".into()),
        packages_hash: Some("xxh64:5".into()),
        program_hash: Some("xxh64:6".into()),
        environment: variables(&["A", "B", "C", "D", "E", "F", "HOME", "PATH"]),
    };
    now.surroundings = Some(changed);
    assert_eq!(
        note(&base, &now),
        "now and the baseline differ in: build of the guest's kernel, executable of the command, distribution (Debian \
         13, Debian 12), installed packages, environment (A, B, C, D, E and 1 more)"
    );
    now.surroundings = Some(surroundings);
    now.surroundings.as_mut().unwrap().environment.insert("HOME".into(), "4 B, 1234".into());
    assert_eq!(note(&base, &now), "now and the baseline differ in: environment (HOME)");
}

#[test]
fn a_comparison_names_options_that_differ() {
    let mut base = run("base", "null", &[900], &[]);
    base.options = BTreeMap::from([
        ("root".into(), "host".into()),
        ("start_time_s".into(), serde_json::Value::Null),
        ("drop_caches".into(), false.into()),
        ("name".into(), "a".into()),
        ("older".into(), 1.into()),
    ]);
    let mut now = RunResult { run_id: "now".into(), ..base.clone() };
    now.options.insert("root".into(), "device".into());
    now.options.insert("start_time_s".into(), 7.into());
    now.options.insert("drop_caches".into(), true.into());
    now.options.insert("name".into(), "b".into());
    now.options.insert("newer".into(), 1.into());
    now.device.capacity_bytes *= 2;
    (now.clock.driver, now.clock.kernel_scale) = ("exact".into(), None);
    now.host.cpu_model = "An Unusually Long Name of a Processor Family".into();
    let notes = compare(&[base, now]).notes;
    assert_eq!(
        notes,
        ["now and the baseline differ in: clock (exact, guest), kernel scale (none, 0.05), capacity (17179869184, \
          8589934592), drop_caches (true, false), root (device, host), start_time_s (7, none), host's processor"]
    );
}

#[test]
fn columns_are_aligned_by_characters_not_by_bytes() {
    let mut table = Table::new([("µ", Align::Left), ("n", Align::Right)]);
    table.row(["ä", "1"]);
    table.row(["abc", "12"]);
    assert_eq!(table.render(), "µ     n\n---  --\nä     1\nabc  12\n");
}

#[test]
fn a_plot_shows_every_run_and_is_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.svg");
    let mut random = RandomStream::new(1, "test", "plot");
    let devices = [("null", 0u64, 1u64), ("first-disk", 2_000_000, 14_000_000), ("constant-100us", 100_000, 1)];
    let service: Vec<Vec<Nanos>> = devices
        .iter()
        .map(|(_, least, spread)| (0..5_000).map(|_| Nanos::from_nanos(1 + least + random.below(*spread))).collect())
        .collect();
    let runs = [
        run("a", "null", &[812, 790, 805], &[]),
        run("b", "first-disk", &[9_200, 9_800, 8_900], &[]),
        run("c", "constant-100us", &[2_010], &[]),
    ];
    let plots: Vec<PlotRun> =
        runs.iter().zip(&service).map(|(run, service_times)| PlotRun { run, service_times }).collect();
    plot_comparison(&path, &plots).unwrap();
    let svg = std::fs::read_to_string(&path).unwrap();
    for text in
        ["first-disk", "constant-100us", "run time (s)", "service time, logarithmic", "10 ms", "Run time in the guest"]
    {
        assert!(svg.contains(text), "no '{text}' in the plot");
    }
    assert!(svg.len() < 200_000, "{} bytes", svg.len());
    plot_comparison(&path, &plots).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), svg);
    // For a look at it.
    if let Ok(keep) = std::env::var("CHRONODISK_KEEP_PLOT") {
        std::fs::copy(&path, keep).unwrap();
    }
}

#[test]
fn a_plot_of_odd_runs_is_still_a_plot() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plot.svg");
    let at_once = run("a", "null", &[0], &[]);
    let records = some_records();
    let same = service_times(&records, Nanos::ZERO..us(5_000));
    for service_times in [&[][..], &[Nanos::ZERO], &same] {
        plot_comparison(&path, &[PlotRun { run: &at_once, service_times }; 2]).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().contains("null (a)"), "namesakes are told apart by run");
    }
    let many: Vec<_> = (0..12).map(|index| run(&format!("run-{index}"), "first-disk", &[900 + index], &[])).collect();
    let plots: Vec<PlotRun> = many.iter().map(|run| PlotRun { run, service_times: &same }).collect();
    plot_comparison(&path, &plots).unwrap();
    assert!(std::fs::read_to_string(&path).unwrap().contains("first-disk (run-11)"));
    let error = plot_comparison(&path, &[]).unwrap_err();
    assert!(error.to_string().contains("plot.svg: cannot draw: no repetition in any run"), "{error}");
}
