//! Sweeps as a user has them: killed, resumed, with the command's own cells.

#[path = "common/command.rs"]
mod command;
#[path = "common/default_signals.rs"]
mod default_signals;
#[path = "common/helpers.rs"]
#[allow(dead_code)]
mod helpers;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use pretty_assertions::assert_eq;

use self::default_signals::with_default_signals;
use self::helpers::descendants;

fn chronodisk(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = command::chronodisk(arguments);
    command.env("NO_COLOR", "1").env("XDG_STATE_HOME", folder).current_dir(folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const SWEEP: &str = "command = 'simulate'\nseeds = 2\n[options]\nrequests = 400\nworkload = 'random-mixed'\n[axes]\n\
    device = ['cheetah-9lp', 'constant-1ms']\ndepth = [1, 3, 9]\nread_share = [0.2, 0.8]\n";

fn cells(folder: &Path, sweep: &str) -> usize {
    let entries = fs::read_dir(folder.join(sweep).join("cells")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json")).count()
}

/// Killed at two places, it goes on, and its results are those of one that nothing disturbed.
#[test]
fn a_sweep_that_was_killed_twice_gives_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    assert!(chronodisk(folder, &["sweep", "s.toml", "-o", "whole"]).output().unwrap().status.success());
    assert_eq!(cells(folder, "whole"), 24);
    for least in [3, 9] {
        let mut child = chronodisk(folder, &["sweep", "s.toml", "-o", "parts", "--jobs", "1"]).spawn().unwrap();
        while cells(folder, "parts") < least {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
            std::thread::sleep(Duration::from_millis(2));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!folder.join("parts/sweep.json").exists());
    }
    let before = cells(folder, "parts");
    assert!((9..24).contains(&before), "{before}");
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "parts"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains(&format!("24 cells, {before} of them from earlier")), "{told}");
    for file in ["sweep.json", "sweep.parquet"] {
        let read = |sweep: &str| fs::read(folder.join(sweep).join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
}

#[test]
fn a_killed_sweep_leaves_no_cell() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.toml"), SWEEP.replace("requests = 400", "requests = 100000000")).unwrap();
    let mut child = chronodisk(folder, &["sweep", "s.toml", "-o", "o", "--jobs", "2"]).spawn().unwrap();
    while descendants(child.id()).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    let running = descendants(child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    let lives = |number: u32| Path::new(&format!("/proc/{number}/exe")).read_link().is_ok();
    for _ in 0..1_000 {
        if !running.iter().any(|cell| lives(cell.number)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{running:?}");
}

/// Parts that run at the same time do all cells, and the bytes are those of one sweep.
#[test]
fn parts_at_the_same_time_give_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    assert!(chronodisk(folder, &["sweep", "s.toml", "-o", "whole"]).output().unwrap().status.success());
    let part = |which: &str| chronodisk(folder, &["sweep", "s.toml", "-o", "parts", "--jobs", "1", "--part", which]);
    let children: Vec<_> = ["1/3", "2/3", "3/3"].iter().map(|which| part(which).spawn().unwrap()).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.contains("8 cells, 0 of them from earlier"), "{told}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(cells(folder, "parts"), 24);
    assert!(!folder.join("parts/sweep.json").exists());
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "parts"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("24 cells, 24 of them from earlier"), "{told}");
    for file in ["sweep.json", "sweep.parquet"] {
        let read = |sweep: &str| fs::read(folder.join(sweep).join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
    let nameless = SWEEP.replace("constant-1ms", "nosuch");
    fs::write(folder.join("n.toml"), nameless).unwrap();
    let output = chronodisk(folder, &["sweep", "n.toml", "-o", "wrong", "--slurm"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("nosuch"), "{told}");
    for wrong in ["0/3", "4/3", "1/0", "1", "a/b", "-1/3"] {
        let output =
            chronodisk(folder, &["sweep", "s.toml", "-o", "wrong", &format!("--part={wrong}")]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && told.contains("expected two numbers"), "{wrong}: {told}");
    }
    assert!(!folder.join("wrong").exists());
}

/// The script of an array job does the sweep when a shell runs its tasks as Slurm does, also with strange names.
#[test]
fn an_array_job_does_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("a user's folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("it's.toml"), SWEEP).unwrap();
    let arguments = ["sweep", "it's.toml", "-o", "my results", "--slurm", "--jobs", "4"];
    let output = chronodisk(&folder, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "sbatch --wait 'my results/slurm.sh'\nchronodisk sweep 'it'\\''s.toml' -o 'my results'\n");
    assert_eq!(cells(&folder, "my results"), 0);
    let script = folder.join("my results/slurm.sh");
    assert!(fs::read_to_string(&script).unwrap().contains("\n#SBATCH --array=1-24%4\n"));
    for task in 1..=24 {
        let mut shell = Command::new("sh");
        shell.arg(&script).env("SLURM_ARRAY_TASK_ID", task.to_string()).current_dir(&folder);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let output = chronodisk(&folder, &["sweep", "it's.toml", "-o", "my results"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("24 cells, 24 of them from earlier"), "{told}");
}

/// A cell has the figures that the command alone prints; plots and the table are there.
#[test]
fn a_cell_is_what_the_command_alone_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    let arguments =
        ["sweep", "s.toml", "-o", "out", "--json", "--plot", "depth,latency_us.p99", "--plot", "iops,time_s"];
    let output = chronodisk(folder, &arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sweep: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(fs::read(folder.join("out/sweep.json")).unwrap(), output.stdout);
    let alone = |seed: &str| -> serde_json::Value {
        let load =
            ["--requests=400", "--workload=random-mixed", "--depth=3", "--read-share=0.8", "--json", "--seed", seed];
        let simulate = [&["simulate", "--device=cheetah-9lp"][..], &load].concat();
        serde_json::from_slice(&chronodisk(folder, &simulate).output().unwrap().stdout).unwrap()
    };
    let (first, second) = (alone("1"), alone("2"));
    let group = sweep["groups"].as_array().unwrap().iter().find(|group| {
        group["axes"]["device"] == "cheetah-9lp" && group["axes"]["depth"] == 3 && group["axes"]["read_share"] == 0.8
    });
    let figures = group.unwrap()["figures"].as_array().unwrap();
    for (name, at) in [("iops", "/iops"), ("latency_us.p99", "/latency_us/p99"), ("time_s", "/simulated_s")] {
        let figure = figures.iter().find(|figure| figure["name"] == name).unwrap();
        let [one, other] = [&first, &second].map(|result| result.pointer(at).unwrap().as_f64().unwrap());
        assert!((figure["value"].as_f64().unwrap() - (one + other) / 2.0).abs() < 1e-9, "{name}: {figure}");
    }
    for file in ["depth-latency_us.p99.svg", "iops-time_s.svg", "sweep.provenance.json"] {
        assert!(folder.join("out").join(file).exists(), "{file}");
    }
}

#[test]
fn wrong_sweeps_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("bad.spc"), "0,20941264,8192,W,0.551706\n0,20939840,x,W,0.554041\n").unwrap();
    for (text, expected) in [
        (
            "command = 'simulate'\n[axes]\ndpeth = [1]\n",
            "unknown axis dpeth; expected an option of `chronodisk simulate`",
        ),
        (
            "command = 'simulate'\n[options]\nworkload = 'seq-read'\n[axes]\ndevice = ['no-such']\n",
            "wrong.toml:5: axes.device: there is no profile named \"no-such\"",
        ),
        (
            "command = 'simulate'\n[options]\nworkload = 'seq-read'\ndevice = 'null'\n[axes]\ndepth = [1, 0]\n",
            "wrong.toml:6: axes.depth: invalid value '0' for '--depth <N>': 0 is not in 1..=1000000",
        ),
        (
            "command = 'simulate'\n[options]\nworkload = 'seq-raed'\ndevice = 'null'\n",
            "wrong.toml:3: options.workload: invalid value 'seq-raed' for '--workload <NAME>'",
        ),
        (
            "command = 'run'\n[options]\ncmd = 'true'\ndevice = 'null'\nno_settle = 3\n",
            "wrong.toml:5: options.no_settle: unexpected value '3' for '--no-settle'",
        ),
        (
            "command = 'simulate'\n[options]\ndevice = 'cheetah-9lp'\n[axes]\n'profile.x' = [1]\n",
            "wrong.toml:5: axes.profile.x: profile of cheetah-9lp, changed",
        ),
        ("command = 'simulate'\n[options]\ndevice = 'null'\n[axes]\ndepth = [1]\n", "ended with status 2"),
        ("command = 'simulate'\n[options]\ndevice = 'null'\n[axes]\ndepth = 1\n", "axes.depth: 1; expected a list"),
        // The trace is read by the cells, and its line is named.
        (
            "command = 'simulate'\n[options]\narrivals = 'open'\ntrace = 'bad.spc'\ndevice = 'null'\n",
            "bad.spc:2: field 3, size: \"x\"; expected a whole number",
        ),
        (
            "command = 'simulate'\nseeds = 10000\n[options]\ndevice = 'null'\n[axes]\ndepth = [1, 2]\n\
                requests = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]\nread_share = [0, 0.2, 0.4, 0.6, 0.8, 1]\n",
            "wrong.toml:5: axes: 1200000 cells; expected at most 1000000",
        ),
    ] {
        fs::write(folder.join("wrong.toml"), text).unwrap();
        let output = chronodisk(folder, &["sweep", "wrong.toml", "-o", "out"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}: {told}");
        assert!(told.contains(expected), "{text}: {told}");
        assert!(!folder.join("out").exists(), "{text}");
    }
    fs::write(folder.join("file"), "x").unwrap();
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "file"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && told.contains("file is a file; expected a directory"), "{told}");
    let output = chronodisk(folder, &["sweep", "absent.toml", "-o", "out"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    // Before any cell has run.
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "plotted", "--plot", "device,iops"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("--plot device: the axis has the value ") && told.contains("expected numbers"), "{told}");
    assert_eq!(cells(folder, "plotted"), 0);
}

/// Programs in guests are cells, too; on the exact clock with no CPU time they would repeat to the nanosecond.
#[test]
fn guests_are_cells() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "command = 'run'\n[options]\ncmd = 'dd if=/dev/zero of=/mnt/file bs=4k count=64 conv=fsync'\n\
        [axes]\ndevice = ['constant-100us', 'constant-10ms']\n";
    fs::write(folder.join("s.toml"), text).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "out", "--json", "--jobs", "1"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let cell = fs::read_dir(folder.join("out/cells")).into_iter().flatten().flatten().next();
    let cell = cell.map(|cell| fs::read_to_string(cell.path()).unwrap()).unwrap_or_default();
    if cell.contains("\"status\": 3") {
        println!("SKIPPED: no guest here: {cell}");
        return;
    }
    assert!(output.status.success(), "{told} {cell}");
    let sweep: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let time = |group: usize| {
        let figures = sweep["groups"][group]["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == "time_s").unwrap()["value"].as_f64().unwrap()
    };
    assert!(time(0) < time(1), "{} {}", time(0), time(1));
    let runs: Vec<_> = fs::read_dir(folder.join("out/runs")).unwrap().flatten().collect();
    assert_eq!(runs.len(), 2);
    assert!(runs.iter().all(|run| run.path().join("result.json").exists()));

    // Results that can't be written: a program has run, or all cells are from earlier.
    let in_the_way = |folder: &Path| fs::create_dir_all(folder.join("sweep.json/in the way")).unwrap();
    let ends = |sweep: &str, expected: i32| {
        let output = chronodisk(folder, &["sweep", "s.toml", "-o", sweep, "--jobs", "1"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(expected) && told.contains("sweep.json"), "{:?} {told}", output.status);
    };
    fs::remove_file(folder.join("out/sweep.json")).unwrap();
    in_the_way(&folder.join("out"));
    ends("out", 3);
    in_the_way(&folder.join("another"));
    ends("another", 125);
}

/// No program of the user's runs in a simulation, so that a failure to write its results is the host's.
#[test]
fn a_sweep_of_simulations_that_can_t_be_kept_ends_with_3() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::write(folder.join("s.toml"), SWEEP).unwrap();
    fs::create_dir_all(folder.join("out/sweep.json/in the way")).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "out"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(3) && told.contains("out/sweep.json"), "{told}");
    assert!(told.contains("the cells that are done are kept; the same command goes on"), "{told}");
    fs::remove_dir_all(folder.join("out/sweep.json")).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "out"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("24 cells, 24 of them from earlier"), "{told}");
}

/// Guests on the exact clock, some of them failing: killed and resumed, the sweep has the bytes of an undisturbed one,
/// and its report names the failed cells.
#[test]
fn a_sweep_of_guests_that_was_killed_gives_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "command = 'run'\n[options]\nclock = 'exact'\ncpu = 'zero'\n[axes]\n\
        device = ['constant-100us', 'first-disk']\n\
        cmd = ['dd if=/dev/zero of=/mnt/file bs=4k count=64 conv=fsync', 'echo no such thing >&2; exit 7']\n";
    fs::write(folder.join("s.toml"), text).unwrap();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "whole", "--jobs", "1"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let statuses = |sweep: &str| -> Vec<i64> {
        let read = |path: &Path| fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let entries = fs::read_dir(folder.join(sweep).join("cells")).into_iter().flatten().flatten();
        let cells = entries.filter_map(|entry| read(&entry.path()));
        let mut found: Vec<i64> = cells.filter_map(|cell: serde_json::Value| cell["status"].as_i64()).collect();
        found.sort_unstable();
        found
    };
    if statuses("whole").contains(&3) {
        println!("SKIPPED: no guest here: {told}");
        return;
    }
    assert_eq!((output.status.code(), statuses("whole").as_slice()), (Some(1), &[0, 0, 7, 7][..]), "{told}");
    assert!(told.contains("2 of 4 cells failed; the same command runs them again"), "{told}");
    let page = fs::read_to_string(folder.join("whole/sweep.html")).unwrap();
    assert!(page.contains("2 of 4 cells failed.") && page.contains("no such thing"));

    let mut child = chronodisk(folder, &["sweep", "s.toml", "-o", "parts", "--jobs", "1"]).spawn().unwrap();
    while cells(folder, "parts") < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let there = statuses("parts").iter().filter(|status| **status == 0).count();
    let output = chronodisk(folder, &["sweep", "s.toml", "-o", "parts"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    // Failed cells run again.
    assert!(told.contains(&format!("4 cells, {there} of them from earlier")), "{told}");
    for file in ["sweep.json", "sweep.parquet"] {
        let read = |sweep: &str| fs::read(folder.join(sweep).join(file)).unwrap();
        assert!(read("whole") == read("parts"), "{file}");
    }
    let leftovers = fs::read_dir(folder.join("parts/runs")).unwrap().flatten();
    let leftovers: Vec<_> = leftovers.filter(|run| run.path().extension().is_some()).collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

/// A signal to the sweep alone ends its cells and shells, too.
#[test]
fn a_signal_to_the_sweep_ends_its_cells_and_is_its_status() {
    let endless = "command = 'simulate'\nseeds = 2\n[options]\nrequests = 400000000\nworkload = 'random-mixed'\n\
        device = 'null'\n[axes]\ndepth = [1, 3]\n";
    let deaf = format!("setup = \"trap '' TERM HUP; : > begun; sleep 1000; sleep 1000\"\n{endless}");
    let stopped = format!("teardown = 'kill -STOP $$'\n{}", endless.replace("400000000", "10"));
    for (name, sweep, signal) in
        [("cells", endless, libc::SIGTERM), ("deaf", deaf.as_str(), libc::SIGHUP), ("stopped", &stopped, libc::SIGINT)]
    {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        fs::write(folder.join("s.toml"), sweep).unwrap();
        let mut command = chronodisk(folder, &["sweep", "s.toml", "-o", "out", "--jobs", "2"]);
        with_default_signals(&mut command);
        let mut child = command.spawn().unwrap();
        while descendants(child.id()).len() < 2 {
            assert!(child.try_wait().unwrap().is_none(), "{name}: it ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_secs(1));
        // SAFETY: a number and a signal, to a child that was not waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, signal) };
        let begun = std::time::Instant::now();
        while child.try_wait().unwrap().is_none() {
            if begun.elapsed() > Duration::from_secs(60) {
                let _ = child.kill();
                panic!("{name}: the sweep goes on");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let number = child.id();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(128 + signal), "{name}: {told}");
        assert!(told.contains("ended the sweep after 0 of 4 cells; the same command goes on"), "{name}: {told}");
        let left = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
            let folder_of = fs::read_link(process.path().join("cwd"));
            folder_of.is_ok_and(|other| other == folder) && process.file_name().to_str() != Some(&number.to_string())
        });
        assert_eq!(left.count(), 0, "{name}: processes are left");
    }
}
