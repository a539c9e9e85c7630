//! A device as seen by a program in the guest, in the guest's own time.

use serde_json::Value;

use super::support::{Chronodisk, text};

/// Median completion latencies that fio sees, in nanoseconds: of one device after the other, in one guest.
fn fio_medians(chronodisk: &Chronodisk, devices: &[&str], flags: &[&str]) -> Vec<f64> {
    let jobs: String = (b'a'..)
        .zip(devices)
        .map(|(letter, _)| format!(" --name={0} --stonewall --filename=/dev/vd{0}", letter as char))
        .collect();
    let script =
        format!("fio --direct=1 --rw=randread --ioengine=psync --bs=4k --number_ios=400 --output-format=json{jobs}");
    let others = devices[1..].iter().flat_map(|device| ["--device", device]);
    let flags: Vec<&str> = ["--fs", "none"].into_iter().chain(others).chain(flags.iter().copied()).collect();
    let output = chronodisk.run(devices[0], &flags, &["sh", "-c", &script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let fio: Value = serde_json::from_slice(&output.stdout).unwrap();
    let jobs = fio["jobs"].as_array().unwrap();
    assert_eq!(jobs.len(), devices.len());
    jobs.iter().map(|job| job["read"]["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap()).collect()
}

#[test]
fn programs_see_the_device_and_not_the_emulator() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let devices = ["null", "constant-100us", "constant-1ms", "constant-10ms"];
    let seen = fio_medians(&chronodisk, &devices, &[]);
    let floor = seen[0];
    for ((device, seen), latency_ns) in devices.into_iter().zip(seen).skip(1).zip([1e5, 1e6, 1e7]) {
        let seen = seen - floor;
        // fio's own histogram is up to 1 % coarse, and a test machine may be busy.
        assert!((seen - latency_ns).abs() < latency_ns * 0.05 + 20e3, "{device}: {seen} ns, null device {floor} ns");
    }
    let seen = fio_medians(&chronodisk, &["constant-1ms"], &["--debug", "model-delay=5ms"])[0] - floor;
    assert!((seen - 1e6).abs() < 7e4, "a slow model shows: {seen} ns");
}

#[test]
fn a_run_verifies_and_compares() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for device in ["null", "first-disk"] {
        let folder = chronodisk.path(device);
        let output = chronodisk.run(
            device,
            &["--reps", "2", "--capacity", "1GiB", "--output", folder.to_str().unwrap()],
            &["sh", "-c", "cp -r /usr/include/linux /mnt && sync"],
        );
        assert!(output.status.success(), "{}", text(&output.stderr));
        let output = chronodisk.command(&["verify", folder.to_str().unwrap(), "--json"]).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }
    // The disk's phase follows the seed: with another, the log is not that of this device.
    let result = chronodisk.path("first-disk").join("result.json");
    let other = std::fs::read_to_string(&result).unwrap().replace("\"seed\": 1", "\"seed\": 2");
    let changed = chronodisk.path("changed");
    std::fs::rename(chronodisk.path("first-disk"), &changed).unwrap();
    std::fs::write(changed.join("result.json"), other).unwrap();
    let output = chronodisk.command(&["verify", changed.to_str().unwrap()]).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output.stdout));
    let [null, disk] = ["null", "changed"].map(|device| chronodisk.path(device).to_str().unwrap().to_owned());
    let output = chronodisk.command(&["compare", &null, &disk]).output().unwrap();
    let table = text(&output.stdout);
    assert!(output.status.success() && table.contains("first-disk"), "{table}{}", text(&output.stderr));
}
