//! The exact clock: to the nanosecond, and repeatable. Its kernel takes minutes to build, so these tests print SKIPPED
//! without it (`chronodisk kernel build`).

use std::io::Write;
use std::process::Stdio;

use chronodisk_report::read_log;
use chronodisk_sim::Nanos;
use serde_json::Value;

use super::support::{Chronodisk, counter_reader, example, long, text};

pub fn exact() -> Option<Chronodisk> {
    Chronodisk::with_kernel("exact")
}

pub fn run_time_ns(result: &Value) -> u64 {
    result["reps"][0]["run_time_ns"].as_u64().unwrap()
}

#[test]
fn a_thousand_reads_take_a_thousand_service_times() {
    let Some(chronodisk) = exact() else { return };
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=1000", "iflag=direct", "status=none"];
    let [at_once, delayed] = ["model-delay=0us..0us", "model-delay=0us..3ms"].map(|delay| {
        let flags = ["--clock", "exact", "--fs", "none", "--debug", delay];
        run_time_ns(&chronodisk.run_json("constant-1ms", &flags, &read))
    });
    // The kernel reads its clock three times a request, at 256 ns each.
    assert!((1_000_768_000..1_001_500_000).contains(&at_once), "{at_once}");
    assert_eq!(at_once, delayed, "what the model takes of the host's time is not the guest's affair");
}

#[test]
fn runs_repeat_to_the_nanosecond() {
    let Some(chronodisk) = exact() else { return };
    let script =
        "for i in 1 2 3 4 5; do cp -r /etc /mnt/$i 2>/dev/null; sync; rm -r /mnt/$((i/2)) 2>/dev/null; done; true";
    let logs: Vec<_> = ["one", "another-folder"]
        .into_iter()
        .map(|name| {
            let output = chronodisk.path(name);
            let flags = ["--clock", "exact", "--check", "--output", output.to_str().unwrap()];
            chronodisk.run_json("first-disk", &flags, &["sh", "-c", script]);
            let mut records = read_log(&output.join("requests-0.parquet")).unwrap();
            for record in &mut records {
                // Host times are irrelevant for the guest.
                (record.model_time, record.store_time) = (Nanos::ZERO, Nanos::ZERO);
            }
            records
        })
        .collect();
    assert!(logs[0].len() > 500, "{} requests are too few to show much", logs[0].len());
    assert_eq!(logs[0], logs[1]);
}

#[test]
fn computing_is_free_or_charged() {
    let Some(chronodisk) = exact() else { return };
    let loop_of_a_shell = ["sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"];
    let free = chronodisk.run_json("null", &["--clock", "exact"], &loop_of_a_shell);
    let charged = chronodisk.run_json("null", &["--clock", "exact", "--cpu", "measured"], &loop_of_a_shell);
    assert!(run_time_ns(&free) < 5_000_000, "{free}");
    assert!(run_time_ns(&charged) > 30_000_000, "{charged}");
}

/// The prices of a native kernel for requests pass on this clock, too, where computing is charged.
#[test]
fn each_request_counts_its_prices() {
    let Some(chronodisk) = exact() else { return };
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=400", "iflag=direct"];
    let flags = ["--clock", "exact", "--cpu", "measured", "--fs", "none"];
    let result = chronodisk.run_json("constant-100us", &flags, &read);
    let prices = result["reps"][0]["clock_counters"]["kernel_requests_nanos"].as_u64().unwrap();
    // A submission, a completion and a wake-up each.
    assert!((400 * 7_500..410 * 7_500).contains(&prices), "{result}");
    // They count in addition to the device's time.
    assert!(run_time_ns(&result) > 400 * (100_000 + 7_500), "{result}");
}

/// Each reading takes 256 ns of the guest's time, so that two seconds of them are minutes of the host's.
#[test]
fn clocks_agree_and_never_step_back() {
    let Some(chronodisk) = exact() else { return };
    let (clocks, seconds) = if long() { (&["zero", "measured"][..], "2") } else { (&["measured"][..], "0.02") };
    for cpu in clocks {
        let output = chronodisk.run(
            "constant-1ms",
            &["--clock", "exact", "--cpu", cpu, "--debug", "model-delay=0us..2ms"],
            &[&example("clock_hammer"), seconds, "/mnt/busy"],
        );
        assert!(output.status.success(), "--cpu {cpu}: {}{}", text(&output.stdout), text(&output.stderr));
        assert!(!text(&output.stderr).contains("stepped back"), "--cpu {cpu}: {}", text(&output.stderr));
    }
}

#[test]
fn input_output_and_status_pass_through() {
    let Some(chronodisk) = exact() else { return };
    let arguments = ["run", "--device", "null", "--clock", "exact", "--fs", "none", "--", "sh", "-c", "wc -c; exit 7"];
    let mut child = chronodisk.command(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&vec![b'x'; 300_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((text(&output.stdout).trim(), output.status.code()), ("300000", Some(7)));
}

/// Waits for a child in a loop of calls that succeed at once.
const ASKER: &str = r"
import subprocess
child = subprocess.Popen(['sleep', '0.001'])
while child.poll() is None: pass
";

#[test]
fn time_passes_for_programs_that_wait_for_it_in_loops_where_computing_is_free() {
    let Some(chronodisk) = exact() else { return };
    for (program, nanos) in [(&*counter_reader(100_000), 20_000..10_000_000), (ASKER, 1_000_000..100_000_000)] {
        let flags = ["--clock", "exact", "--fs", "none"];
        let result = chronodisk.run_json("null", &flags, &["python3", "-c", program]);
        assert!(nanos.contains(&run_time_ns(&result)), "{program}{result}");
    }
}

#[test]
fn without_the_distributions_kernel_guests_run_on_this_one() {
    let Some(chronodisk) = exact() else { return };
    let options = ["run", "--device", "constant-1ms", "--capacity", "64MiB", "--json", "--", "/bin/sh", "-c"];
    let script = "/bin/dd if=/dev/zero of=/mnt/file bs=4k count=1 conv=fsync 2>/dev/null";
    let output = chronodisk.command(&[&options[..], &[script]].concat()).env("PATH", "/nowhere").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    // The default clock, which charges CPU time, and a file system that no module was loaded for.
    assert_eq!((&result["clock"]["driver"], &result["guest"]["file_system"]), (&"guest".into(), &"ext4".into()));
    assert!(run_time_ns(&result) >= 1_000_000, "{}", run_time_ns(&result));
    let doctor = chronodisk.command(&["doctor", "--no-guest", "--json"]).env("PATH", "/nowhere").output().unwrap();
    let report: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let kernel = report["checks"].as_array().unwrap().iter().find(|check| check["name"] == "guest kernel").unwrap();
    assert_eq!(kernel["state"], "ok", "{kernel}");
    assert!(kernel["found"].as_str().unwrap().ends_with("that of the exact clock"), "{kernel}");
}

#[test]
fn a_panic_is_reported_with_its_reason() {
    let Some(chronodisk) = exact() else { return };
    let flags = ["--clock", "exact", "--capacity", "1GiB", "--mount-options", "errors=panic"];
    let dies = ["--fault", "kind=death,after-requests=400"];
    let writes = "i=0; while [ $i -lt 500 ]; do echo a >/mnt/a$i; sync; i=$((i+1)); done";
    let output = chronodisk.run("null", &[&flags[..], &dies].concat(), &["sh", "-c", writes]);
    let said = text(&output.stderr);
    assert!(said.contains("the guest's kernel died (panic: EXT4-fs (device vda): panic forced after error)"), "{said}");
}
