//! A fit to a simulated sweep recovers the known constants of the drive.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use chronodisk_device::{AgeingOptions, BuildOptions, Profile};
use chronodisk_fit::{
    Conditions, FitError, Fitted, Free, InUse, Method, Problem, Search, Task, Template, read_sweep, uses,
};
use chronodisk_report::{PointUse, SweepFigures};
use proptest::prelude::*;

const CONDITIONS: Conditions = Conditions { requests: 1_500, seed: 3, region_bytes: None, zone_bytes: None };

/// A drive of four units.
fn profile(overhead: &str, latency: &str, variation: &str) -> String {
    format!(
        "name = \"synthetic\"\nkind = \"memory\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         capacity = \"1 GiB\"\nunits = 4\ninterleave = \"4 KiB\"\n\
         read-overhead = \"{overhead}\" # fit: 1 us..9 us\nread-latency = \"{latency}\" # fit: 2 us..30 us\n\
         read-variation = \"{variation}\"  # fit: 0 us..2 us\nunit-read-bandwidth = \"1 GB/s\"\n\
         link-read-bandwidth = \"2 GB/s\"\nwrite-overhead = \"1 us\"\nwrite-latency = \"1 us\"\n\
         unit-write-bandwidth = \"1 GB/s\"\nlink-write-bandwidth = \"2 GB/s\"\n"
    )
}

fn run(tasks: &[Task]) -> Vec<Result<Vec<SweepFigures>, FitError>> {
    tasks.iter().map(|task| task.run(&|| false)).collect()
}

/// The simulated sweep of a drive, in the form of a measured one.
fn sweep(text: &str, rows: &[(&str, u64, u32)]) -> String {
    let mut blank = "workload,bs,qd,mean_us\n".to_owned();
    for (workload, bytes, depth) in rows {
        let _ = writeln!(blank, "{workload},{bytes},{depth},1");
    }
    let measured = problem(text, &blank, &[], CONDITIONS).compare(&run).unwrap().fit;
    let mut csv = "workload,bs,qd,mean_us,p99_us\n".to_owned();
    for ((workload, bytes, depth), point) in rows.iter().zip(&measured.points) {
        let (mean, p99) = (point.before.mean_us.unwrap(), point.before.p99_us.unwrap());
        let _ = writeln!(csv, "{workload},{bytes},{depth},{mean},{p99}");
    }
    csv
}

fn problem(text: &str, csv: &str, hold_out: &[&str], conditions: Conditions) -> Problem {
    let hold_out: Vec<_> = hold_out.iter().map(|text| text.parse().unwrap()).collect();
    Problem {
        template: Template::new(text, "p.toml", &[], false).unwrap(),
        profile_file: "p.toml".to_owned(),
        points: uses(read_sweep(csv, "sweep.csv", &[]).unwrap(), &hold_out),
        conditions,
        capacity_bytes: None,
        in_use: None,
    }
}

fn fit(problem: &Problem, cross_validate: bool) -> Fitted {
    let search = Search { evaluations: 90, restarts: 0, seed: 1 };
    problem.fit(&Method { search, cross_validate, run: &run, stop: &|| false, progress: &|_| {} }).unwrap()
}

#[test]
fn known_constants_are_recovered() {
    let truth = profile("3 us", "12 us", "0.5 us");
    let rows = [("randread", 4_096, 1), ("randread", 4_096, 4), ("read", 16_384, 1), ("randread", 4_096, 16)];
    let csv = sweep(&truth, &rows);
    // Another seed: the fit must not depend on equal random numbers.
    let conditions = Conditions { seed: 4, ..CONDITIONS };
    let fitted = fit(&problem(&profile("7 us", "5 us", "1.5 us"), &csv, &["depth>=16"], conditions), false);
    let [overhead, latency, variation] = fitted.values[..] else { panic!("three constants") };
    assert!((overhead / 3.0 - 1.0).abs() < 0.15, "{fitted:?}");
    assert!((latency / 12.0 - 1.0).abs() < 0.04, "{fitted:?}");
    assert!((variation - 0.5).abs() < 0.25, "{fitted:?}");
    let [before, after] = fitted.fit.errors(PointUse::Fitted).unwrap();
    assert!(before.mean_percent > Some(10.0) && after.mean_percent < Some(1.0), "{before:?} {after:?}");
    let [_, held_out] = fitted.fit.errors(PointUse::HeldOut).unwrap();
    assert!(held_out.points == 1 && held_out.mean_percent < Some(4.0), "{held_out:?}");
    let documented = problem(&truth, &csv, &[], conditions).template.documented(&fitted.values, "sweep.csv", &[], &[]);
    assert!(Profile::parse(&documented, "p.toml").is_ok(), "{documented}");
}

/// Frees a constant that affects only writes.
fn with_a_constant_of_writing(text: &str) -> String {
    text.replace("write-latency = \"1 us\"", "write-latency = \"1 us\" # fit: 0.2 us..9 us")
}

#[test]
fn a_constant_without_influence_stays() {
    let csv = sweep(&profile("3 us", "12 us", "0 us"), &[("randread", 4_096, 1), ("randread", 16_384, 4)]);
    let problem = problem(&with_a_constant_of_writing(&profile("3 us", "5 us", "0 us")), &csv, &[], CONDITIONS);
    let fitted = fit(&problem, false);
    // The published overhead was right, so the fit must keep it, although changing it could explain a part of the
    // difference.
    assert!(fitted.values[3] == 1.0 && (fitted.values[0] - 3.0).abs() < 0.2, "{fitted:?}");
    assert!((fitted.values[1] / 12.0 - 1.0).abs() < 0.02, "{fitted:?}");
}

#[test]
fn a_point_follows_the_constants_that_it_tells() {
    let text = with_a_constant_of_writing(&profile("3 us", "12 us", "0 us"));
    let problem = problem(&text, "workload,bs,qd,mean_us\nrandread,4096,1,1\nwrite,4096,1,1\n", &[], CONDITIONS);
    let means: Vec<f64> =
        problem.compare(&run).unwrap().fit.points.iter().map(|point| point.before.mean_us.unwrap()).collect();
    let followed = problem.sensitivities(&[3.0, 12.0, 0.0, 1.0], 1.2, &run).unwrap();
    // 12 us is nearer to its upper bound, so the change goes down to 10 us.
    assert!((followed[1][0] - ((means[0] - 2.0) / means[0]).ln()).abs() < 1e-3, "{followed:?} {means:?}");
    assert!((followed[3][1] - ((means[1] + 0.2) / means[1]).ln()).abs() < 1e-3, "{followed:?} {means:?}");
    assert_eq!((followed[3][0], followed[1][1]), (0.0, 0.0));
}

#[test]
fn a_constant_device_comes_to_its_measured_time() {
    let text = include_str!("../../chronodisk-cli/tests/cmd/fit.in/drive.toml");
    let csv = include_str!("../../chronodisk-cli/tests/cmd/fit.in/sweep.csv");
    let problem = problem(text, csv, &["depth>=4"], Conditions { requests: 100, seed: 1, ..CONDITIONS });
    let search = Search { evaluations: 400, restarts: 0, seed: 1 };
    let method = Method { search, cross_validate: false, run: &run, stop: &|| false, progress: &|_| {} };
    let fitted = problem.fit(&method).unwrap();
    assert_eq!(fitted.values, [80.0], "{fitted:?}");
}

#[test]
fn each_set_is_left_out_once() {
    let truth = profile("3 us", "12 us", "0 us");
    let csv = sweep(&truth, &[("randread", 4_096, 1), ("randread", 4_096, 2), ("read", 16_384, 1)]);
    let problem = problem(&profile("4 us", "9 us", "0 us"), &csv, &[], Conditions { requests: 400, ..CONDITIONS });
    let sets: Vec<String> = fit(&problem, true).fit.cross_validation.iter().map(|error| error.name.clone()).collect();
    assert_eq!(sets, ["randread", "read"]);
}

#[test]
fn a_fit_that_is_stopped_keeps_its_start() {
    let csv = "workload,bs,qd,mean_us\nrandread,4096,1,20\n";
    let problem = problem(&profile("3 us", "12 us", "0 us"), csv, &[], CONDITIONS);
    let search = Search { evaluations: 90, restarts: 2, seed: 1 };
    let method = Method { search, cross_validate: true, run: &run, stop: &|| true, progress: &|_| {} };
    let fitted = problem.fit(&method).unwrap();
    assert!(fitted.fit.interrupted);
    assert_eq!(fitted.values, [3.0, 12.0, 0.0]);
}

#[test]
fn a_table_can_be_fitted_too() {
    let text = "name = \"t\"\nkind = \"table\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
                capacity = \"1 GiB\"\nchannels = 1\n[[row]]\nsize = \"4 KiB\"\nrandom-read = \"0.1 ms\"\n\
                random-write = \"1 ms\"\nsequential-read = \"0.1 ms\"\nsequential-write = \"1 ms\"\n";
    let csv = "workload,bs,qd,mean_us\nrandread,4096,4,960\n";
    let free: Vec<Free> = vec!["row.0.random-read=0.05 ms..1 ms".parse().unwrap()];
    let template = Template::new(text, "t.toml", &free, false).unwrap();
    let conditions = Conditions { requests: 200, ..CONDITIONS };
    let points = uses(read_sweep(csv, "s.csv", &[]).unwrap(), &[]);
    let problem = Problem {
        template,
        profile_file: "t.toml".to_owned(),
        points,
        conditions,
        capacity_bytes: Some(1 << 20),
        in_use: None,
    };
    // With four outstanding requests on one channel, each takes four times the channel's time.
    let fitted = fit(&problem, false);
    assert!((fitted.values[0] - 0.24).abs() < 0.002, "{fitted:?}");
}

#[test]
fn points_of_a_drive_in_use_are_simulated_on_one() {
    let text = include_str!("../../chronodisk-cli/tests/cmd/age.in/small-ssd.toml");
    let csv = "set,bs,qd,mean_us\nrandread (preconditioned),4096,1,1\nrandread,4096,1,1\n";
    let conditions = Conditions { requests: 2_000, ..CONDITIONS };
    let means = |problem: &Problem| {
        let points = problem.compare(&run).unwrap().fit.points;
        [0, 1].map(|row: usize| points[row].before.mean_us.unwrap())
    };
    let mut problem = problem(text, csv, &[], conditions);
    let erased = means(&problem);
    assert_eq!(erased[0], erased[1]);
    let ageing = AgeingOptions::default();
    let aged = |text: &str| {
        let profile = Profile::parse(text, "p.toml").unwrap();
        profile.age(&BuildOptions::default(), &ageing, &mut |_| ControlFlow::Continue(())).unwrap().unwrap().0
    };
    let points = vec!["set=preconditioned".parse().unwrap()];
    problem.in_use = Some(InUse { state: aged(text), points: points.clone() });
    let in_use = means(&problem);
    assert_eq!(in_use[1], erased[1]);
    assert!(in_use[0] > in_use[1] + 45.0, "nothing is read from erased flash: {in_use:?}");
    // Changed times keep the flash's state valid, but a changed collection threshold does not.
    let line = text.lines().find(|line| line.starts_with("erase =")).unwrap();
    problem.in_use = Some(InUse { state: aged(&text.replace(line, "erase = \"1 ms\"")), points: points.clone() });
    assert_eq!(means(&problem), in_use);
    let line = text.lines().find(|line| line.starts_with("collect-below =")).unwrap();
    problem.in_use = Some(InUse { state: aged(&text.replace(line, "collect-below = 5")), points });
    let refused = problem.compare(&run).unwrap_err();
    assert!(refused.message.contains("other flash"), "{refused}");
}

#[test]
fn the_profile_of_the_p4800x_gives_its_published_points() {
    let csv = include_str!("../../../experiments/ssd_validation/intel-p4800x.csv");
    let profile = Profile::find("intel-p4800x").unwrap();
    // A seed that differs from the fit's.
    let conditions = Conditions { requests: 5_000, seed: 5, ..CONDITIONS };
    let compared = problem(profile.text(), csv, &[], conditions).compare(&run).unwrap();
    let [_, errors] = compared.fit.errors(PointUse::Fitted).unwrap();
    assert!(errors.points == 2 && errors.mean_worst_percent < Some(2.0), "{errors:?}");
    assert!(errors.p99_worst_percent < Some(5.0), "{errors:?}");
}

proptest! {
    /// Any file is read or refused.
    #[test]
    fn any_text_is_read_or_refused(text in ".{0,400}", rows in "[a-z0-9,.\"\n{}: _-]{0,400}") {
        let _ = read_sweep(&text, "a", &[]);
        let _ = read_sweep(&format!("set,bs,qd,iops,mean_us,zones\n{rows}"), "a", &[]);
        let _ = read_sweep(&format!("{{\"jobs\":[{{\"read\":{{{rows}}}}}]}}"), "a", &[]);
        let _ = Template::new(&rows, "a", &[], false);
        let _ = rows.parse::<Free>();
    }
}
