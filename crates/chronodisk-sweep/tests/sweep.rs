//! Sweeps whose cells run a small program instead of the command.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use chronodisk_sweep::{Command, Done, Plan, Provenance, Results, Runner, Sweep, SweepError, Task, Value};

fn options(_: Command) -> Vec<String> {
    ["device", "depth", "requests", "workload", "seed", "trace", "capacity", "json"].map(str::to_owned).to_vec()
}

/// A program whose latency is ten times the depth plus the seed; each call adds a line to `calls`.
fn program(folder: &Path, body: &str) -> PathBuf {
    let path = folder.join("program");
    let text = format!(
        "#!/bin/sh\necho \"$*\" >> {calls}\nfor word; do case $word in\n\
         --depth=*) depth=${{word#--depth=}};;\n--seed=*) seed=${{word#--seed=}};;\nesac; done\n{body}\n",
        calls = folder.join("calls").display()
    );
    let written = folder.join("program.text");
    fs::write(&written, text).unwrap();
    install(&written, &path);
    path
}

/// Installs a program by another process. A child that another test starts meanwhile may inherit a descriptor of this
/// process, and the kernel runs no program that is open for writing.
fn install(file: &Path, program: &Path) {
    assert!(std::process::Command::new("install").args([file, program]).status().unwrap().success());
}

const RESULT: &str = r#"echo "{\"simulated_s\": 2, \"summary\": {\"iops\": $((1000 / depth)), \
\"service_time_us\": {\"mean\": $((10 * depth + seed)), \"p99\": 5}, \"model_time_us\": {\"mean\": $$}}}""#;

fn runner(executable: PathBuf, directory: PathBuf) -> Runner {
    Runner { executable, version: "1".to_owned(), directory, jobs: 2, part: None }
}

fn calls(folder: &Path) -> Vec<String> {
    fs::read_to_string(folder.join("calls")).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn plan(sweep: &Sweep, runner: &Runner) -> Plan {
    Plan::new(sweep.clone(), runner.clone()).unwrap()
}

fn done(sweep: &Sweep, runner: &Runner) -> Results {
    let plan = plan(sweep, runner);
    let found = plan.run(&AtomicBool::new(false), &|_| {}).unwrap();
    let found: Vec<Done> = found.into_iter().map(Option::unwrap).collect();
    plan.write_results(&found).unwrap()
}

const FILE: &str = "command = 'simulate'\nseeds = 3\n[options]\nrequests = 10\n\
    [axes]\ndevice = ['constant-1ms', 'null']\ndepth = [1, 2, 4]\n";

#[test]
fn each_combination_is_done_with_each_seed_and_once() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep::parse(FILE, "x.toml", options).unwrap();
    let runner = runner(program(folder.path(), RESULT), folder.path().join("out"));
    let results = done(&sweep, &runner);
    let mut expected = Vec::new();
    for device in ["constant-1ms", "null"] {
        for depth in [1, 2, 4] {
            expected.extend(
                (1..=3).map(|seed| {
                    format!("simulate --depth={depth} --device={device} --requests=10 --seed={seed} --json")
                }),
            );
        }
    }
    let mut called = calls(folder.path());
    called.sort();
    expected.sort();
    assert_eq!(called, expected);
    let files = ["sweep.json", "sweep.parquet"].map(|name| fs::read(runner.directory.join(name)).unwrap());
    assert!(runner.directory.join("sweep.provenance.json").exists());

    let figure = |results: &Results, group: usize, name: &str| {
        results.groups[group].figures.iter().find(|figure| figure.name == name).unwrap().clone()
    };
    assert_eq!(results.groups.len(), 6);
    assert_eq!(results.groups[0].axes["depth"], Value::Integer(1));
    let mean = figure(&results, 4, "latency_us.mean");
    assert_eq!((results.groups[4].axes["depth"].clone(), mean.value), (Value::Integer(4), 42.0));
    let [low, high] = mean.percentile_95.unwrap();
    assert!((41.0..=42.0).contains(&low) && (42.0..=43.0).contains(&high), "{mean:?}");
    assert!(results.warnings[0].contains("fewer than 30"), "{:?}", results.warnings);
    assert!(!results.figures().iter().any(|name| name.contains("model_time")), "it is of the host");
    // The mean of 10, 20 and 40 is 23.33; the device has no effect.
    let effect = |axis: &str, value: &Value| {
        let effects = &results.effects;
        let found = effects.iter().find(|e| e.figure == "latency_us.mean" && e.axis == axis && e.value == *value);
        found.unwrap().clone()
    };
    let depth_4 = effect("depth", &Value::Integer(4));
    assert!((depth_4.effect.value - 50.0 / 3.0).abs() < 1e-9 && (depth_4.explained - 1.0).abs() < 1e-9, "{depth_4:?}");
    let null = effect("device", &Value::Text("null".to_owned()));
    assert!(null.effect.value.abs() < 1e-9 && null.explained.abs() < 1e-9, "{null:?}");
    let curves = results.curves("depth", "latency_us.mean").unwrap();
    assert_eq!(curves.len(), 2);
    assert_eq!(curves[0].1.iter().map(|point| point.1).collect::<Vec<_>>(), [12.0, 22.0, 42.0]);
    assert!(results.curves("device", "iops").unwrap_err().contains("'device' is no axis with numbers"));

    // A second run calls no program, and its files are equal.
    done(&sweep, &runner);
    assert_eq!(calls(folder.path()).len(), 18);
    let again = ["sweep.json", "sweep.parquet"].map(|name| fs::read(runner.directory.join(name)).unwrap());
    assert!(files == again);
    // Another version, or another program, runs all cells again.
    done(&sweep, &Runner { version: "2".to_owned(), ..runner.clone() });
    assert_eq!(calls(folder.path()).len(), 36);
    program(folder.path(), &format!("{RESULT} # other"));
    done(&sweep, &runner);
    assert_eq!(calls(folder.path()).len(), 54);
}

#[test]
fn a_sweep_that_was_stopped_does_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep::parse(FILE, "x.toml", options).unwrap();
    let executable = program(folder.path(), RESULT);
    let whole = runner(executable.clone(), folder.path().join("whole"));
    done(&sweep, &whole);
    let parts = runner(executable, folder.path().join("parts"));
    let before = calls(folder.path()).len();
    for limit in [4, 9] {
        let (stop, count) = (AtomicBool::new(false), AtomicUsize::new(0));
        let seen = |_: &Done| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 >= limit {
                stop.store(true, Ordering::SeqCst);
            }
        };
        let found = plan(&sweep, &parts).run(&stop, &seen).unwrap();
        assert!(found.iter().any(Option::is_none));
    }
    done(&sweep, &parts);
    // A cell that was running when the sweep stopped runs again.
    let repeated = calls(folder.path()).len() - before - 18;
    assert!(repeated <= 2 * parts.jobs, "{repeated}");
    for name in ["sweep.json", "sweep.parquet"] {
        assert!(
            fs::read(whole.directory.join(name)).unwrap() == fs::read(parts.directory.join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn files_and_profiles_are_known_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.csv");
    fs::write(&trace, "one").unwrap();
    let text = format!(
        "command = 'simulate'\n[options]\ntrace = '{}'\ndevice = 'constant-1ms'\n[axes]\ndepth = [1]\n\
         'profile.time' = ['1 ms', '2 ms']\n",
        trace.display()
    );
    let sweep = Sweep::parse(&text, "x.toml", options).unwrap();
    let runner = runner(program(folder.path(), RESULT), folder.path().join("out"));
    let outcome = plan(&sweep, &runner).run(&AtomicBool::new(false), &|_| {});
    if let Err(error) = &outcome {
        // The profile's error names the missing key.
        panic!("{error}");
    }
    let first = calls(folder.path());
    assert_eq!(first.len(), 2);
    let profiles: Vec<_> = fs::read_dir(runner.directory.join("profiles")).unwrap().flatten().collect();
    assert_eq!(profiles.len(), 2);
    fs::write(&trace, "two").unwrap();
    plan(&sweep, &runner).run(&AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!(calls(folder.path()).len(), 4);
    fs::write(&trace, "one").unwrap();
    plan(&sweep, &runner).run(&AtomicBool::new(false), &|_| {}).unwrap();
    assert_eq!(calls(folder.path()).len(), 4, "both are there");
}

#[test]
fn what_fails_is_told_and_done_again() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep::parse(FILE, "x.toml", options).unwrap();
    let body = format!("if [ $depth = 2 ]; then echo broken >&2; exit 7; fi\n{RESULT}");
    let runner = runner(program(folder.path(), &body), folder.path().join("out"));
    let results = done(&sweep, &runner);
    assert_eq!(results.failed, 6);
    assert_eq!(results.groups[2].failures, ["broken"; 3]);
    assert!(results.groups[2].figures.is_empty() && results.effects.is_empty());
    assert!(results.render().contains("failed: depth=2 device=constant-1ms: broken"), "{}", results.render());
    done(&sweep, &runner);
    assert_eq!(calls(folder.path()).len(), 18 + 6);

    let silent = format!("case $seed in 1) exit 7;; 2) kill -9 $$;; esac\n{RESULT}");
    let silent = Runner { executable: program(folder.path(), &silent), ..runner.clone() };
    assert_eq!(done(&sweep, &silent).groups[0].failures, ["it ended with status 7", "signal 9 ended it"]);

    let usage = Runner { executable: program(folder.path(), "echo 'error: no' >&2; exit 2"), ..runner };
    let error = plan(&sweep, &usage).run(&AtomicBool::new(false), &|_| {}).unwrap_err();
    assert!(error.to_string().contains("status 2: error: no"), "{error}");
}

/// The report is written with the results, and again from their files. Without the chart library it is short.
#[test]
fn a_report_has_the_results_and_what_failed() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = Sweep::parse(FILE, "<x>.toml", options).unwrap();
    let body = format!("if [ $depth$seed = 23 ]; then echo 'broken <here>' >&2; exit 7; fi\n{RESULT}");
    let runner = runner(program(folder.path(), &body), folder.path().join("out"));
    let plan = plan(&sweep, &runner);
    let done: Vec<Done> = plan.run(&AtomicBool::new(false), &|_| {}).unwrap().into_iter().map(Option::unwrap).collect();
    let results = plan.write_results(&done).unwrap();
    let plots = [("depth", "iops"), ("iops", "time_s"), ("depth", "no-such-figure")];
    let plots = plots.map(|(x, y)| (x.to_owned(), y.to_owned()));
    let path = plan.write_report(&results, &done, &plots, "tests").unwrap();
    let page = fs::read_to_string(&path).unwrap();
    let markup = page.split("<script").next().unwrap();
    for text in [
        "<h1>Sweep &lt;x&gt;.toml</h1>",
        "18 cells: 6 combinations, 3 seeds each",
        "2 of 18 cells failed.",
        "<pre>broken &lt;here&gt;</pre>",
        "<tr><th>axis depth</th><td>1, 2, 4</td></tr>",
        "<td>1</td><td>constant-1ms</td>",
        "id=\"curves-4\"",
    ] {
        assert!(markup.contains(text), "{text} in {markup}");
    }
    // The latency is 10 x depth + seed. Two seeds of depth 2 are left.
    assert!(markup.contains("<td class=\"n\">21.50</td>"), "{markup}");
    assert!(!markup.contains("Main effects"), "combinations that lack cells can't be compared");
    assert_eq!(markup.matches("<td class=\"n\">7</td>").count(), 2, "exit statuses");
    let data = page.split("id=\"data\">").nth(1).unwrap().split("</script>").next().unwrap();
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let titles: Vec<_> = data["curves"].as_array().unwrap().iter().map(|chart| chart["title"].clone()).collect();
    let expected = ["iops against depth", "time_s against iops", "time_s against depth"];
    assert_eq!(titles[..3], expected);
    assert_eq!(data["curves"][0]["lines"][0]["name"], "constant-1ms");
    assert_eq!(data["curves"][0]["lines"][0]["points"][2], serde_json::json!([4.0, 250.0, 250.0, 250.0]));
    let read = (Results::read(&runner.directory).unwrap(), Provenance::read(&runner.directory).unwrap());
    assert_eq!(read.0, results);
    assert_eq!(read.1.cells.iter().filter(|cell| cell.status == 7).count(), 2);
    let again = read.0.report(&read.1, &plots[..2], "Sweep <x>.toml", "tests").unwrap();
    let without_load = |page: &str| page.lines().filter(|line| !line.contains("load averages")).count();
    assert_eq!(without_load(&again), without_load(&page));
    assert!(read.0.report(&read.1, &plots[2..], "x", "tests").unwrap_err().contains("'no-such-figure' is no figure"));
}

#[test]
fn wrong_files_are_refused_with_what_was_expected() {
    for (text, expected) in [
        ("command = ", "x.toml:1: "),
        ("", "command is missing; expected simulate, run, mount or replay"),
        ("command = 'fly'", "x.toml:1: command: \"fly\"; expected simulate, run"),
        ("command = 'simulate'\nseed = 3", "x.toml:2: unknown key seed; expected one of command, seeds"),
        ("command = 'simulate'\nseeds = 0", "x.toml:2: seeds: 0; expected 1 to 10000"),
        (
            "command = 'simulate'\n[axes]\ndpeth = [1]",
            "unknown axis dpeth; expected an option of `chronodisk simulate`",
        ),
        ("command = 'simulate'\n[axes]\ndepth = 1", "x.toml:3: axes.depth: 1; expected a list"),
        ("command = 'simulate'\n[axes]\ndepth = []", "x.toml:3: axes.depth has no values"),
        ("command = 'simulate'\n[axes]\ndepth = [1, 2, 1]", "x.toml:3: axes.depth has 1 twice"),
        ("command = 'simulate'\n[axes]\nseed = [1]", "x.toml:3: axes.seed can't be set: seeds = N"),
        (
            "command = 'simulate'\n[options]\ndepth = 1\n[axes]\ndepth = [1]",
            "x.toml:5: depth is in options and in axes",
        ),
        ("command = 'run'\n[axes]\ndepth = [1]", "x.toml:1: cmd is missing in options and axes; run needs it"),
        ("command = 'simulate'\n[options]\n'profile.x' = 1", "x.toml:3: profile.KEY needs device"),
        ("command = 'simulate'\n[options]\ndepth = 1979-05-27", "expected a text, a number"),
    ] {
        let error = Sweep::parse(text, "x.toml", options).unwrap_err();
        assert!(error.to_string().contains(expected) && matches!(error, SweepError::Usage(_)), "{text}: {error}");
    }
    let error = Sweep::parse_generated("command = 'fly'", "sweep", options).unwrap_err();
    assert_eq!(error.to_string(), "sweep: command: \"fly\"; expected simulate, run, mount or replay");
    let wide: String = (0..7).map(|axis| format!("'profile.{axis}' = {:?}\n", (0..20).collect::<Vec<_>>())).collect();
    let text = format!("command = 'simulate'\n[options]\ndevice = 'null'\n[axes]\n{wide}");
    assert!(
        Sweep::parse(&text, "x.toml", options).unwrap_err().to_string().contains("cells; expected at most 1000000")
    );
    let programs = "command = 'run'\n[axes]\ncmd = ['sync', ['ls', '-l']]\n";
    let sweep = Sweep::parse(programs, "x.toml", options).unwrap();
    let expected: BTreeMap<_, _> = [("cmd".to_owned(), Value::Text("sync".to_owned()))].into();
    assert_eq!(sweep.cells()[0].axes, expected);
}

/// Tasks pass through JSON to another worker, in any order, without the sweep's directory.
#[test]
fn tasks_that_are_done_elsewhere_give_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let text = FILE.replace("'null'", "'nvm'").replace("depth =", "'profile.name' = ['a', 'b']\ndepth =");
    let sweep = Sweep::parse(&text.replace(", 'nvm'", ""), "x.toml", options).unwrap();
    let executable = program(folder.path(), RESULT);
    let (whole, parts) =
        (runner(executable.clone(), folder.path().join("whole")), runner(executable, folder.path().join("parts")));
    done(&sweep, &whole);
    let plan = plan(&sweep, &parts);
    // The worker does not have the folder of profiles.
    fs::remove_dir_all(parts.directory.join("profiles")).unwrap();
    let worker = folder.path().join("worker");
    install(&parts.executable, &worker);
    let stop = AtomicBool::new(false);
    let mut found: Vec<Option<Done>> = vec![None; plan.cells()];
    for index in (0..plan.cells()).rev() {
        assert!(plan.found(index).is_none());
        let task: Task = serde_json::from_str(&serde_json::to_string(&plan.task(index)).unwrap()).unwrap();
        let answer = serde_json::to_string(&task.execute(&worker, &stop).unwrap().unwrap()).unwrap();
        let other = (index + 1) % plan.cells();
        let done: Done = serde_json::from_str(&answer).unwrap();
        assert!(plan.keep(other, done.clone()).is_err(), "it is another cell's");
        found[index] = Some(plan.keep(index, done).unwrap());
        assert!(plan.found(index).is_some_and(|done| done.was_there));
    }
    plan.write_results(&found.into_iter().map(Option::unwrap).collect::<Vec<_>>()).unwrap();
    for name in ["sweep.json", "sweep.parquet"] {
        let read = |runner: &Runner| fs::read(runner.directory.join(name)).unwrap();
        assert!(read(&whole) == read(&parts), "{name}");
    }
    fs::write(&worker, "another").unwrap();
    let error = plan.task(0).execute(&worker, &stop).unwrap_err();
    assert!(error.to_string().contains("is not the chronodisk that the sweep was begun with"), "{error}");
}

/// Pieces of sweep files, valid and invalid ones.
const PIECES: [&str; 24] = [
    "command = 'simulate'\n",
    "command = 'run'\n",
    "command = 5\n",
    "seeds = 3\n",
    "seeds = 10000\n",
    "seeds = -1\n",
    "seeds = 9223372036854775807\n",
    "setup = 'true'\n",
    "drop_caches = true\n",
    "[options]\n",
    "[axes]\n",
    "[axes.profile]\n",
    "device = 'null'\n",
    "device = ['null', 'constant-1ms']\n",
    "depth = [1, 2.5, 'x', true]\n",
    "depth = []\n",
    "depth = [1, 1]\n",
    "requests = [[1, 2], [3]]\n",
    "cmd = ['a', ['b']]\n",
    "capacity = 1979-05-27\n",
    "'profile.time' = [inf]\n",
    "workload = \"\\u00e9\\ud800\"\n",
    "trace = ['\u{0}', '']\n",
    "= [ ' \" \u{1f980}",
];

proptest::proptest! {
    /// Any file is refused with a message, or gives distinct cells.
    #[test]
    fn any_file_is_refused_or_has_each_cell_once(
        pieces in proptest::collection::vec(0..PIECES.len(), 0..9),
        cut in 0_usize..400,
    ) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let end = (0..=cut.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        for text in [&text[..], &text[..end], &text[end..]] {
            match Sweep::parse(text, "x.toml", options) {
                Err(error) => assert!(error.to_string().starts_with("x.toml:"), "{error}"),
                Ok(sweep) => {
                    let cells = sweep.axes.values().fold(sweep.seeds, |cells, values| cells * values.len() as u64);
                    if cells <= 1_000 {
                        let found = sweep.cells();
                        assert_eq!(found.len() as u64, cells);
                        assert!(found.iter().enumerate().all(|(index, cell)| !found[..index].contains(cell)));
                    }
                }
            }
        }
    }
}
