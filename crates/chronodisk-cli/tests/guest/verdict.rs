//! A summary's own verdict: the run's bottleneck, the origin of requests, dropped files, each device's share.

use serde_json::{Value, json};

use super::support::{Chronodisk, text};

fn verdict(result: &Value) -> &Value {
    &result["reps"][0]["verdict"]
}

fn phase<'a>(result: &'a Value, name: &str) -> Option<&'a Value> {
    result["reps"][0]["phases"].as_array().unwrap().iter().find(|phase| phase["name"] == name)
}

#[test]
fn a_command_begins_when_its_file_system_has_settled() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // ext4 reads the block bitmaps of 1,600 groups ahead, and mkfs writes no inode tables of so large a device.
    let run = |flags: &[&str]| {
        chronodisk.run_json("constant-100us", &[&["--capacity", "5TiB"], flags].concat(), &["sleep", "20"])
    };
    let settled = run(&[]);
    assert_eq!(settled["reps"][0]["summary"]["requests"], 0, "{}", settled["reps"][0]["summary"]["by_op"]);
    let waited = phase(&settled, "settle").unwrap();
    assert!(waited["end_ns"].as_u64().unwrap() - waited["start_ns"].as_u64().unwrap() >= 1_000_000_000, "{waited}");
    assert_eq!(verdict(&settled)["limit"], "neither");
    assert_eq!(verdict(&settled)["doubts"], Value::Array(Vec::new()));

    let at_once = run(&["--no-settle"]);
    let issuers = &verdict(&at_once)["issuers"];
    assert!(issuers["kernel_reads"].as_u64().unwrap() > 100 && issuers["programs"] == 0, "{issuers}");
    let doubts = verdict(&at_once)["doubts"].to_string();
    assert!(doubts.contains("reads that the file system made for itself"), "{doubts}");
}

#[test]
fn what_limits_a_run_is_said() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "dd if=/dev/urandom of=/mnt/f bs=64k count=64 oflag=direct";
    let run = |device: &str, script: &str| chronodisk.run_json(device, &["--capacity", "1GiB"], &["sh", "-c", script]);
    let slow = run("first-disk", script);
    assert_eq!(verdict(&slow)["limit"], "device", "{}", verdict(&slow));
    let issuers = &verdict(&slow)["issuers"];
    assert!(issuers["programs"].as_u64().unwrap() >= 64, "{issuers}");
    let fast = run("null", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done; sync");
    assert_eq!(verdict(&fast)["limit"], "processor", "{}", verdict(&fast));
}

#[test]
fn work_inside_the_kernel_counts_in_full() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let result =
        chronodisk.run_json("null", &["--fs", "none"], &["dd", "if=/dev/urandom", "of=/dev/null", "bs=1M", "count=64"]);
    let kernel = &verdict(&result)["kernel_cpu"];
    let nanos = |name: &str| kernel[name].as_u64().unwrap() as f64;
    // No processor draws 64 MiB in less than 10 ms, and most of it is beyond what calls take.
    assert!(nanos("in_full_ns") > 1e7 && nanos("in_full_ns") > 0.5 * nanos("measured_ns"), "{kernel}");
    // By the constants of another machine that is an estimate, too.
    let doubts = verdict(&result)["doubts"].to_string();
    assert!(result["clock"]["calibrated"] == true || doubts.contains("constants of another machine"), "{doubts}");
    let one_factor = ["--fs", "none", "--kernel-scale", "0.1"];
    let result = chronodisk.run_json("null", &one_factor, &["head", "-c", "1000000", "/dev/urandom"]);
    assert_eq!(verdict(&result)["kernel_cpu"]["in_full_ns"], 0);
}

#[test]
fn generic_code_of_the_kernel_is_named() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let held = |flags: &[&str], script: &str| {
        let flags = [&["--capacity", "400MiB"], flags].concat();
        let result = chronodisk.run_json("null", &flags, &["sh", "-c", script]);
        verdict(&result)["generic_code"].clone()
    };
    let code = |algorithm: &str, holder: &str| json!([{ "algorithm": algorithm, "holders": [holder] }]);
    let sha256 = ["--fs", "btrfs", "--mkfs-options=--csum sha256"];
    let write = "head -c 32M /dev/zero > /mnt/f; sync";
    assert_eq!(held(&sha256, write), code("SHA-256", "btrfs"));
    assert_eq!(held(&["--fs", "xfs"], "true"), code("CRC32C", "xfs"));
    assert_eq!(held(&["--fs", "ext4"], "true"), code("CRC32C", "ext4"));
    assert_eq!(held(&["--fs", "none"], "true"), Value::Null);
    let flags = [&["--capacity", "400MiB"], &sha256[..]].concat();
    let stderr = text(&chronodisk.run("null", &flags, &["sh", "-c", write]).stderr);
    assert!(stderr.lines().any(|line| line.starts_with("generic code        SHA-256 (btrfs): part of")), "{stderr}");
}

#[test]
fn files_that_are_dropped_are_counted_and_named() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let folder = chronodisk.path("written");
    std::fs::create_dir(&folder).unwrap();
    let script = format!("cd {} && touch b a c /mnt/kept", folder.display());
    let output = chronodisk.run("null", &["--capacity", "64MiB"], &["sh", "-c", &script]);
    let stderr = text(&output.stderr);
    let line = format!("dropped files       3, {}/a first: --host-writes keeps them", folder.display());
    assert!(stderr.contains(&line), "{stderr}");
    let none = chronodisk.run_json("null", &["--capacity", "64MiB"], &["touch", "/mnt/kept"]);
    assert_eq!(none["reps"][0]["dropped_files"]["count"], 0);
}

#[test]
fn each_device_has_figures_of_its_own() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let flags = ["--device", "first-disk", "--fs", "none", "--json"];
    let script = "dd if=/dev/vda of=/dev/null bs=4k count=8 iflag=direct
                  dd if=/dev/vdb of=/dev/null bs=4k count=3 iflag=direct";
    let output = chronodisk.run("constant-100us", &flags, &["sh", "-c", script]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let summaries = &result["reps"][0]["summaries_by_device"];
    assert_eq!((&summaries[0]["requests"], &summaries[1]["requests"]), (&8.into(), &3.into()), "{summaries}");
    assert_eq!(summaries[0]["service_time_us"]["p50"], 100.0);
    let stderr = text(&output.stderr);
    assert!(stderr.lines().any(|line| line.starts_with("vdb first-disk")), "{stderr}");
}
