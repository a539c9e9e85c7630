//! The guest's time: it jumps, it stands still, it never steps back.

use std::fs;

use chronodisk_engine::real_host;
use chronodisk_guest::calibration::{self, Calibration, Machine};
use chronodisk_guest::{KernelCosts, RequestCosts};

use super::endings::{children_of, repeats};
use super::support::{Chronodisk, example, long, text};

#[test]
fn sleeping_takes_the_guests_time_not_ours() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let result = chronodisk.run_json("null", &["--fs", "none"], &["sleep", "1000"]);
    let run_time_ns = result["reps"][0]["run_time_ns"].as_u64().unwrap();
    assert!((1_000_000_000_000..1_002_000_000_000).contains(&run_time_ns), "{run_time_ns}");
    // A clock that did not jump would take a thousand seconds; this bound only tells the two apart.
    let host_time_ns = result["reps"][0]["host_time_ns"].as_u64().unwrap();
    assert!(host_time_ns < 500_000_000_000, "{host_time_ns}");
}

#[test]
fn clocks_agree_and_never_step_back() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // A clock that is wrong is wrong in most of the hundred thousand readings of a tenth of a second.
    let seconds = if long() { "2" } else { "0.1" };
    for cpu in ["measured", "wall"] {
        let output = chronodisk.run(
            "constant-1ms",
            &["--cpu", cpu, "--debug", "model-delay=0us..2ms"],
            &[&example("clock_hammer"), seconds, "/mnt/busy"],
        );
        assert!(output.status.success(), "--cpu {cpu}: {}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(text(&output.stdout).lines().filter(|line| line.starts_with("rounds")).count(), 4);
    }
}

#[test]
fn a_reader_waits_ten_seconds_with_no_timer_armed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let profile = chronodisk.path("ten-seconds.toml");
    let text = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/table/constant-10ms.toml"))
        .unwrap()
        .replace("\"10 ms\"", "\"10 s\"");
    assert!(text.contains("\"10 s\""));
    fs::write(&profile, text).unwrap();
    let result = chronodisk.run_json(
        profile.to_str().unwrap(),
        &["--fs", "none"],
        &["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=1", "iflag=direct"],
    );
    let run_time_ns = result["reps"][0]["run_time_ns"].as_u64().unwrap();
    assert!((10_000_000_000..10_500_000_000).contains(&run_time_ns), "{run_time_ns}");
}

/// Its kernel uses the memory above its program break, which the host places randomly unless prevented.
#[test]
fn a_guest_has_the_same_memory_in_each_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let [one, another] = [(); 2].map(|()| {
        let output = chronodisk.run("null", &["--fs", "none"], &["grep", "MemTotal", "/proc/meminfo"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).lines().find(|line| line.starts_with("MemTotal")).unwrap().to_owned()
    });
    assert_eq!(one, another);
}

#[test]
fn real_time_is_the_hosts() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // Beside the requests a program that computes, and must be interrupted for them.
    let script = "head -c 100M /dev/zero | cksum & dd if=/dev/vda of=/dev/null bs=4k count=40 iflag=direct 2>&1; \
                  sleep 1; wait; dd if=/dev/zero of=/dev/vda bs=64k count=8 oflag=direct conv=fsync 2>&1";
    let result = chronodisk.run_json("constant-10ms", &["--clock", "real", "--fs", "none"], &["sh", "-c", script]);
    assert_eq!((&result["clock"]["driver"], &result["clock"]["cpu"]), (&"real".into(), &"wall".into()));
    let rep = &result["reps"][0];
    let run_time_ns = rep["run_time_ns"].as_u64().unwrap();
    assert!(run_time_ns >= 1_480_000_000, "48 times 10 ms and a second: {run_time_ns}");
    let phases = rep["phases"].as_array().unwrap();
    let command = phases.iter().find(|phase| phase["name"] == "command").unwrap();
    let host_time_ns = command["host_time_ns"].as_u64().unwrap();
    // The launcher looks at its clock when the guest's word reaches it; nothing was jumped over or left out.
    let difference_ns = host_time_ns.abs_diff(run_time_ns);
    assert!(difference_ns < run_time_ns / 4, "{host_time_ns} on the host, {run_time_ns} in the guest");
    assert_eq!(rep["clock_counters"]["jumps"], 0);
    let summary = &rep["summary"];
    assert!(summary["requests"].as_u64().unwrap() >= 48, "{summary}");
    assert_eq!(summary["unfinished"], 0);
    assert_eq!(summary["service_time_us"]["p50"], 10_000.0);
    assert!(summary["lateness_us"]["max"].as_f64().unwrap() > 0.0, "no host is ever exactly on time");
    let verified = chronodisk.command(&["verify", "last"]).output().unwrap();
    assert!(verified.status.success(), "{}{}", text(&verified.stdout), text(&verified.stderr));
}

#[test]
fn real_time_says_where_it_is_not_credible() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=20", "iflag=direct"];
    let output = chronodisk.run("null", &["--clock", "real", "--fs", "none"], &read);
    let said = text(&output.stderr);
    assert!(output.status.success() && said.contains("too fast for a guest in this host's time"), "{said}");

    for (flags, word) in [
        (["--cpu", "measured"], "--clock real works with --cpu wall only"),
        (["--idle", "jump"], "--idle can't be used with --clock real"),
        (["--device", "exec:true"], "--clock real can't be used with --server or exec: models"),
        (["--kernel-scale", "2"], "--kernel-scale needs --cpu measured"),
    ] {
        let output = chronodisk.run("null", &[["--clock", "real"], flags].concat(), &["true"]);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(text(&output.stderr).contains(word), "{flags:?}: {}", text(&output.stderr));
    }
}

#[test]
fn two_guests_live_side_by_side() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let program = ["--", "sh", "-c", "dd if=/dev/zero of=/mnt/f bs=64k count=64 conv=fsync 2>&1; sleep 20"];
    let arguments = [["run", "--device", "constant-1ms", "--json"].as_slice(), &program].concat();
    let children = [(); 2].map(|()| {
        chronodisk.command(&arguments).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn()
    });
    for child in children {
        let output = child.unwrap().wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(result["reps"][0]["run_time_ns"].as_u64().unwrap() > 20_000_000_000);
    }
}

#[test]
fn the_guest_does_not_notice_a_slow_store() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let write = ["dd", "if=/dev/zero", "of=/dev/vda", "bs=64k", "count=10", "oflag=direct"];
    let result = chronodisk.run_json("constant-1ms", &["--fs", "none", "--debug", "store-rate=1MB"], &write);
    let rep = &result["reps"][0];
    assert_eq!(rep["summary"]["service_time_us"]["max"], 1000.0, "{rep}");
    // Ten requests of 1 ms each, whose bytes took 655 ms of the host's time.
    let ms = |name: &str| rep[name].as_f64().unwrap() / 1e6;
    assert!(ms("run_time_ns") < 300.0 && ms("host_time_ns") > 655.0, "{rep}");
}

/// On the clock that traps where behaviour is undefined in C; the guest's kernel dies of that.
#[test]
fn the_clock_does_nothing_that_is_undefined() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // Programs begin, read, write, wait, sleep, read the time stamp counter, and are interrupted.
    let script = format!(
        "dd if=/dev/zero of=/mnt/f bs=64k count=16 conv=fsync 2>&1; cp -r /etc/init.d /mnt/; sleep 1; \
         head -c 10M /dev/zero | cksum & dd if=/mnt/f of=/dev/null bs=4k count=64 iflag=direct 2>&1; wait; \
         {} guest-probe time-stamp",
        env!("CARGO_BIN_EXE_chronodisk")
    );
    let exact = chronodisk.command(&["kernel", "path"]).output().unwrap().status.success();
    let clocks: [&[&str]; 5] = [
        &["--cpu", "measured", "--debug", "clock-disturbance=100us"],
        &["--cpu", "wall"],
        &["--clock", "real"],
        &["--clock", "exact"],
        &["--clock", "exact", "--cpu", "measured"],
    ];
    for clock in clocks.into_iter().filter(|clock| exact || !clock.contains(&"exact")) {
        let arguments = [&["run", "--device", "constant-1ms"], clock, &["--", "sh", "-c", &script]].concat();
        let output = chronodisk.command(&arguments).env("CHRONODISK_TRAPPING_CLOCK", "1").output().unwrap();
        let said = text(&output.stderr);
        if said.contains("carries no clock that traps") {
            println!("SKIPPED: {}", said.lines().next().unwrap_or_default());
            return;
        }
        assert!(output.status.success(), "{clock:?}: {said}");
    }
    if !exact {
        println!("SKIPPED: the exact clock that traps: its kernel is not built");
    }
}

/// The distribution's kernel would begin `/sbin/hotplug` more than a hundred times while it boots.
#[test]
fn the_kernel_begins_no_program_for_its_devices() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let output = chronodisk.run("null", &["--fs", "none"], &["cat", "/proc/sys/kernel/hotplug"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "\n");
}

/// Counters of the guest's clock while a command ran on a device without a file system.
fn counters_of(chronodisk: &Chronodisk, device: &str, command: &[&str]) -> serde_json::Value {
    chronodisk.run_json(device, &["--fs", "none"], command)["reps"][0]["clock_counters"].clone()
}

#[test]
fn each_request_counts_its_prices() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=400", "iflag=direct"];
    let counters = counters_of(&chronodisk, "constant-100us", &read);
    // A submission and a completion each, and a wake-up but for completions that interrupt a working processor. A
    // request that follows such a completion may share its submission. dd's other reads, if any, are few.
    let [prices, interrupts] = ["kernel_requests_nanos", "interrupts"].map(|key| counters[key].as_u64().unwrap());
    assert!(interrupts < 40, "{counters}");
    assert!((400 * 7_500 - interrupts * 6_100..410 * 7_500).contains(&prices), "{counters}");
    assert!(counters["kernel_counted_nanos"].as_u64().unwrap() >= prices, "{counters}");
}

/// Costs of a machine whose requests cost ten times the built-in prices.
fn another_machine() -> Calibration {
    let costs = KernelCosts::default();
    let requests = costs.requests.unwrap();
    let [submission_nanos, completion_nanos, wake_up_nanos] =
        [requests.submission_nanos, requests.completion_nanos, requests.wake_up_nanos].map(|nanos| 10 * nanos);
    let requests = Some(RequestCosts { submission_nanos, completion_nanos, wake_up_nanos, ..requests });
    Calibration {
        schema: calibration::SCHEMA.to_owned(),
        machine: Machine {
            processor: "another".into(),
            host_kernel: "7.0".into(),
            version: "0.0.1".into(),
            programs_have_own_cpu: false,
        },
        costs: KernelCosts { requests, ..costs },
        probes: Vec::new(),
        halves_differ: None,
    }
}

#[test]
fn a_guest_has_the_costs_of_the_machine_that_was_named() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let file = chronodisk.path("machine.json");
    fs::write(&file, serde_json::to_string(&another_machine()).unwrap()).unwrap();
    let read = ["dd", "if=/dev/vda", "of=/dev/null", "bs=4k", "count=100", "iflag=direct"];
    let flags = ["--fs", "none", "--machine", file.to_str().unwrap()];
    let result = chronodisk.run_json("constant-100us", &flags, &read);
    let prices = result["reps"][0]["clock_counters"]["kernel_requests_nanos"].as_u64().unwrap();
    assert!((100 * 65_000..130 * 75_000).contains(&prices), "{result}");
    assert_eq!(result["clock"]["calibrated"], false, "{result}");
}

/// No guest starts.
#[test]
fn costs_that_no_machine_has_are_refused_by_name() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let file = chronodisk.path("machine.json");
    let refuses = |content: &str, flags: &[&str], reason: &str| {
        fs::write(&file, content).unwrap();
        let output = chronodisk.run("null", &[&["--machine", file.to_str().unwrap()], flags].concat(), &["true"]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(reason), "{error}");
    };
    let good = serde_json::to_value(another_machine()).unwrap();
    let with = |path: &str, value: serde_json::Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(path).unwrap() = value;
        changed.to_string()
    };
    refuses("words", &[], "machine.json: not JSON");
    refuses("{}", &[], "not a file of `chronodisk calibrate`");
    refuses(&with("/schema", "chronodisk.calibration/5".into()), &[], "its schema is chronodisk.calibration/5");
    refuses(&with("/costs/works/0/scale", (-1.0).into()), &[], "costs.works[0].scale is -1, expected 0 to 10");
    refuses(&with("/costs/other_scale", 1e9.into()), &[], "costs.other_scale is 1000000000, expected 0 to 10");
    refuses(&with("/costs/works", serde_json::json!([])), &[], "invalid length 0");
    refuses(&with("/costs/requests/wake_up_nanos", u64::MAX.into()), &[], "costs.requests.wake_up_nanos is");
    refuses(&" ".repeat(2 << 20), &[], "longer than 1 MiB");
    refuses(&good.to_string(), &["--clock", "real"], "--machine needs --cpu measured");
    refuses(&good.to_string(), &["--kernel-scale", "0.1"], "cannot be used with");
}

/// The number of alarms is not bounded here: alarms follow the host's time, also while the program waits for a CPU.
#[test]
fn a_computing_program_is_interrupted_once_per_event_of_the_device() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    const REQUESTS: u64 = 2_000;
    let fio = format!(
        "fio --name=r --filename=/dev/vda --direct=1 --rw=randread --bs=4k --ioengine=libaio --iodepth=32 \
         --number_ios={REQUESTS} --output=/dev/null"
    );
    // A constant delay has one event per request. A memory device has two: a unit ends, then the link. A program that
    // works for longer than the device finds several events at once.
    for (device, events) in [("constant-100us", 1), ("intel-p4800x", 2)] {
        let counters = counters_of(&chronodisk, device, &["sh", "-c", &fio]);
        let [kicks, interrupts] = ["kicks", "interrupts"].map(|name| counters[name].as_u64().unwrap());
        assert!(kicks >= REQUESTS, "{device}: {counters}");
        // The guest's start reads the device, too.
        assert!(interrupts < REQUESTS * events + REQUESTS / 10, "{device}: {counters}");
        assert!(interrupts > REQUESTS / 10, "{device}: {counters}");
    }
}

/// A line of a process's status; `None` if the process is gone.
fn status_of(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
}

/// CPUs of the host on which a process may run; `None` if the process is gone.
fn cpus_of(pid: u32) -> Option<Vec<usize>> {
    real_host::listed_cpus(&status_of(pid, "Cpus_allowed_list:")?)
}

/// Without process-context identifiers, kernel and program on one CPU would empty its translation buffers at each
/// system call. With them, waking another CPU takes longer than the switch.
#[test]
fn programs_run_on_their_kernels_cpu_if_its_translation_buffers_stay() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let mut run = repeats(&chronodisk, "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done");
    let is_kernel =
        |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| text(&line).contains("linux"));
    let kernel = children_of(run.id()).into_iter().find(is_kernel).unwrap();
    let kernels = cpus_of(kernel).unwrap();
    let is_program = |pid: &u32| status_of(*pid, "TracerPid:") == Some(kernel.to_string());
    let programs: Vec<Vec<usize>> = children_of(kernel).into_iter().filter(is_program).filter_map(cpus_of).collect();
    run.kill().unwrap();
    run.wait().unwrap();
    assert_eq!(kernels.len(), 1);
    assert!(!programs.is_empty());
    let have_own = Machine::this().programs_have_own_cpu;
    for cpus in programs {
        assert_eq!(!cpus.contains(&kernels[0]), have_own, "kernel on {kernels:?}, program on {cpus:?}");
    }
}
