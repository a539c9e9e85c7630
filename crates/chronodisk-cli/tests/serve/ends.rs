//! Failures of a server at its beginning, and its messages at a bad end.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::{Client, Serving, TestFolder, text};

#[test]
fn whoever_can_reach_the_device_from_elsewhere_must_show_a_certificate() {
    let place = TestFolder::new();
    fs::create_dir(place.path("tls")).unwrap();
    super::certificates::certify(&place.path("tls"));
    let base = ["serve", "--device", "null", "--capacity", "1MiB", "--run", "true"];
    let run = |arguments: &[&str]| place.run(&[&base[..], arguments].concat());
    let tls = ["--tls-certificates", "tls"];
    for arguments in [
        &["--nbd", "0.0.0.0:0"][..],
        &["--nbd", "unix:s", "--nbd", "[::]:0"],
        &["--nbd", "0.0.0.0:0", "--tls-certificates", "tls"],
        &["--nbd", "0.0.0.0:0", "--tls-certificates", "tls", "--tls", "allow"],
    ] {
        let output = run(arguments);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("clients on other machines could read and write the device"), "{errors}");
        assert!(errors.contains("--insecure") && errors.contains("--tls-verify-peer"), "{errors}");
        let accepted = run(&[arguments, &["--insecure"]].concat());
        // This host may have no IPv6.
        assert!(matches!(accepted.status.code(), Some(0 | 3)), "{arguments:?}: {}", text(&accepted.stderr));
    }
    let verified = run(&[&["--nbd", "0.0.0.0:0", "--tls-verify-peer"], &tls[..]].concat());
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    let metrics = run(&["--nbd", "0", "--metrics", "0.0.0.0:0"]);
    assert_eq!(metrics.status.code(), Some(2), "{}", text(&metrics.stderr));
    assert!(text(&metrics.stderr).contains("anybody on other machines could read the figures"));
    // Verified peers need TLS, which must not be a matter of choice then.
    let allow = run(&[&["--nbd", "0", "--tls", "allow", "--tls-verify-peer"], &tls[..]].concat());
    assert_eq!(allow.status.code(), Some(2), "{}", text(&allow.stderr));
    assert!(text(&allow.stderr).contains("--tls allow serves clients without TLS"), "{}", text(&allow.stderr));
}

#[test]
fn the_result_says_what_ended_the_server() {
    let place = TestFolder::new();
    let ended_by = |output: &[u8]| -> (serde_json::Value, serde_json::Value) {
        let json: serde_json::Value = serde_json::from_slice(output).unwrap();
        (json["ended_by"].clone(), json["failure"].clone())
    };
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        let serving = place.serve(&["--device", "null", "--json"]);
        serving.signal(signal);
        let output = serving.end();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(ended_by(&output.stdout), ("signal".into(), serde_json::Value::Null));
    }
    let run = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:s", "--json", "--run", "exit 4"];
    let output = place.run(&run);
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(ended_by(&output.stdout), ("command".into(), serde_json::Value::Null));
}

#[test]
fn a_second_server_leaves_the_pidfile_of_the_first() {
    let place = TestFolder::new();
    let first = place.serve(&["--device", "null"]);
    let number = fs::read_to_string(place.path("pid")).unwrap();
    assert_eq!(number.trim(), first.0.id().to_string());
    let second = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:other", "--pidfile", "pid"];
    let output = place.run(&second);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(&format!("--pidfile pid: process {} has it", number.trim())));
    assert_eq!(fs::read_to_string(place.path("pid")).unwrap(), number);
    assert!(!place.path("other").exists());
    first.signal(libc::SIGKILL);
    first.end();
    // Its leftovers have no owner.
    let output = place.run(&[&second[..], &["--run", "cat pid; echo by $PPID"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let (own, by) = said.trim().split_once("\nby ").unwrap();
    assert_eq!(own, by);
    assert!(!place.path("pid").exists());
}

#[test]
fn a_start_that_fails_leaves_no_store_behind() {
    let place = TestFolder::new();
    let base = ["serve", "--device", "null", "--capacity", "1MiB", "--run", "true"];
    for store in ["disk", "overflow:disk"] {
        for (wrong, status) in [("unix:no/such/folder", 3), ("198.51.100.1:1", 3)] {
            let output = place.run(&[&base[..], &["--store", store, "--nbd", wrong, "--insecure"]].concat());
            assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
            assert!(!place.path("disk").exists(), "{store} {wrong}");
        }
        let output = place.run(&[&base[..], &["--store", store, "--nbd", "unix:s"]].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        // One that was there before stays.
        let output = place.run(&[&base[..], &["--store", store, "--nbd", "unix:no/such/folder"]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
        assert_eq!(fs::metadata(place.path("disk")).unwrap().len(), 1 << 20);
        fs::remove_file(place.path("disk")).unwrap();
    }
    // More than any file of this host can have.
    let huge = ["serve", "--device", "null", "--capacity", "4EiB", "--nbd", "unix:s", "--run", "true"];
    let output = place.run(&[&huge[..], &["--store", "disk"]].concat());
    if !output.status.success() {
        assert!(!place.path("disk").exists(), "{}", text(&output.stderr));
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_refused_before_the_run() {
    let place = TestFolder::new();
    fs::write(place.path("disk"), [0; 1 << 16]).unwrap();
    let shadow = ["serve", "--device", "null", "--nbd", "unix:s", "--shadow", "disk", "--run", "touch begun"];
    let output = place.run(&[&shadow[..], &["--plot", "no/folder/p.svg"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no/folder/p.svg can't be written"), "{}", text(&output.stderr));
    assert!(!place.path("begun").exists());
}

/// Starts a server in a mount namespace of its own, with a full file system of 1 MiB in the folder `small`; `None`,
/// and a word about it, if this host does not permit that.
fn serve_on_a_small_disk(place: &TestFolder, arguments: &str) -> Option<Child> {
    fs::create_dir(place.path("small")).unwrap();
    let mut permitted = Command::new("unshare");
    permitted.args(["-Urm", "mount", "-t", "tmpfs", "none"]).arg(place.path("small"));
    if !permitted.output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: this host permits no mount in a user namespace (unshare -Urm)");
        return None;
    }
    let script = format!(
        "mount -t tmpfs -o size=1m none small && exec {} serve --capacity 16MiB --no-realtime {arguments}",
        env!("CARGO_BIN_EXE_chronodisk")
    );
    let mut command = Command::new("unshare");
    command.args(["-Urm", "sh", "-c", &script]).env("XDG_STATE_HOME", place.0.path()).current_dir(place.0.path());
    Some(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

#[test]
fn a_full_disk_at_the_end_loses_no_figures() {
    let place = TestFolder::new();
    let fill = "nbdkit --version >/dev/null 2>&1; head -c 2M /dev/zero > small/fill; true";
    let arguments = format!("--device null --nbd unix:s --output small/run --json --run '{fill}'");
    let Some(server) = serve_on_a_small_disk(&place, &arguments) else { return };
    let output = server.wait_with_output().unwrap();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("small/run/result.json") || errors.contains("small/run/requests-0.parquet"), "{errors}");
    assert!(errors.contains("No space left"), "{errors}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("the result is shown all the same");
    assert_eq!(result["reps"][0]["server"]["connections"], 0);
    assert!(errors.contains("requests"), "so is the summary: {errors}");
}

#[test]
fn a_store_that_cannot_be_closed_is_a_failure_that_is_told() {
    let place = TestFolder::new();
    // A device with a volatile cache, so that nothing need be in the file before a flush.
    let arguments = ["--device", "nearline-20tb", "--nbd", "unix:s", "--pidfile", "pid", "--store", "overflow:disk"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    command.args(["serve", "--capacity", "16MiB", "--no-realtime", "--json", "--output", "run"]).args(arguments);
    command.env("XDG_STATE_HOME", place.0.path()).current_dir(place.0.path());
    let server = Serving(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    for _ in 0..2_000 {
        if place.path("pid").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = Client::connect(&place.path("s"));
    for index in 0..32 {
        assert_eq!(client.write(index << 16, &[index as u8; 64 << 10]), 0, "memory has room for it");
    }
    // The space is set aside, so that a full disk is no reason; a limit of files' sizes that comes later is one.
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: the limit is read, nothing is written; the process is our own child, which was not waited for.
    let set =
        unsafe { libc::prlimit(server.0.id() as i32, libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    drop(client);
    server.signal(libc::SIGTERM);
    let output = server.end();
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("the store could not be closed") && errors.contains("disk"), "{errors}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let reason = result["reps"][0]["server"]["close_error"].as_str().unwrap();
    assert!(reason.contains("File too large"), "{reason}");
}

/// The program of --run ends with its server despite its signal handlers, and so do all of its descendants.
#[test]
fn one_signal_ends_a_server_whose_program_ignores_it() {
    let (term, int) = (libc::SIGTERM, libc::SIGINT);
    let ignores = "trap '' TERM INT; : > begun";
    let cases = [
        ("stopped", term, ": > begun; kill -STOP $$; sleep 1000".to_owned()),
        ("deaf", int, format!("{ignores}; sleep 1000; sleep 1000")),
        ("daemon", term, format!("{ignores}; (setsid sh -c 'sleep 1000; sleep 1000' &) & sleep 1000; sleep 1000")),
        ("forks", term, format!("f() {{ (f) & }}; {ignores}; f; sleep 1000; sleep 1000")),
        ("ends", int, "trap 'exit 6' INT; : > begun; while :; do sleep 1; done".to_owned()),
    ];
    for (name, signal, script) in cases {
        let place = TestFolder::new();
        let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
        command.args([
            "serve",
            "--device",
            "null",
            "--capacity",
            "1MiB",
            "--nbd",
            "unix:s",
            "--json",
            "--run",
            &script,
        ]);
        command.env("XDG_STATE_HOME", place.0.path()).current_dir(place.0.path());
        let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        for _ in 0..3_000 {
            if place.path("begun").exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_millis(300));
        // SAFETY: a number and a signal, to a child that was not waited for.
        unsafe { libc::kill(server.id() as libc::pid_t, signal) };
        for _ in 0..3_000 {
            if server.try_wait().unwrap().is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(server.try_wait().unwrap().is_some() || server.kill().is_err(), "{name}: the server goes on");
        let in_folder = |process: fs::DirEntry| {
            let folder = fs::read_link(process.path().join("cwd"));
            folder.is_ok_and(|folder| folder == place.0.path())
        };
        let left = fs::read_dir("/proc").unwrap().flatten().map(in_folder).filter(|is| *is).count();
        assert_eq!(left, 0, "{name}: processes are left");
        let output = server.wait_with_output().unwrap();
        let status = if name == "ends" { 6 } else { 128 + signal };
        assert_eq!(output.status.code(), Some(status), "{name}: {}", text(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["ended_by"], "signal", "{name}: {result}");
    }
}

/// Processes with this word in their command line.
fn with_word(word: &str) -> Vec<i32> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has = |number: &i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
    };
    numbers.filter(has).collect()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}");
}

/// Shells wait for their children, and those have left the shell's session or not.
#[test]
fn a_killed_server_leaves_nothing_of_its_program() {
    let place = TestFolder::new();
    let word = format!("0.{}1000", std::process::id());
    for (program, sleepers) in [
        (format!("sleep 1{word}"), 1),
        (format!("sleep 1{word} & sleep 1{word} & wait"), 2),
        (format!("(setsid sleep 1{word}; true) & (sleep 1{word}; true)"), 2),
    ] {
        let word = format!("1{word}");
        let run = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:s", "--run", &program];
        let mut child = place.chronodisk(&run).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // The process of setsid executes sleep.
        wait_until("the program begins", || with_word(&word).len() >= sleepers);
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until(&format!("something of {program} is left"), || with_word(&word).is_empty());
        fs::remove_file(place.path("s")).unwrap();
    }
}

#[test]
fn a_server_whose_guard_dies_says_so_and_ends() {
    let place = TestFolder::new();
    let run = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:s", "--run", "touch on; sleep 1000"];
    let child = place.chronodisk(&run).spawn().unwrap();
    wait_until("the program begins", || place.path("on").exists());
    let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let all: Vec<i32> = list.split_whitespace().map(|number| number.parse().unwrap()).collect();
    let guards = with_word("serve-guard");
    let guard = all.iter().find(|number| guards.contains(number)).unwrap();
    // SAFETY: a number and a signal.
    unsafe { libc::kill(*guard, libc::SIGKILL) };
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("(serve-guard) died"), "{}", text(&output.stderr));
    assert!(all.iter().all(|number| !std::path::Path::new(&format!("/proc/{number}/exe")).exists()));
}
