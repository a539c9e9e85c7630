//! A real device, here a file, with a model beside it, under real clients.

use std::fs;
use std::process::Command;

use super::{TestFolder, text};

const LEN: usize = 8 << 20;

fn place() -> TestFolder {
    let place = TestFolder::new();
    fs::write(place.path("disk"), vec![0; LEN]).unwrap();
    place
}

#[test]
fn the_real_device_serves_and_the_model_is_compared() {
    let place = place();
    let base = ["serve", "--device", "constant-1ms", "--nbd", "unix:socket", "--shadow", "disk", "--json"];
    // Two clients at once; one leaves in the middle.
    let command = "head -c 8M /dev/urandom > image; \
        nbdcopy --requests=8 image \"$uri\" && nbdcopy \"$uri\" copy && cmp image copy";
    if Command::new("nbdcopy").arg("--version").output().is_err() {
        println!("SKIPPED: no nbdcopy (Debian: apt-get install libnbd-bin)");
        return;
    }
    let output = place.run(&[&base[..], &["--plot", "plot.svg", "--run", command]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(fs::read(place.path("disk")).unwrap() == fs::read(place.path("image")).unwrap());
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["clock"]["driver"], "shadow");
    let shadow = &result["reps"][0]["shadow"];
    assert_eq!((&shadow["target"], &shadow["queue_depth"]), (&"disk".into(), &32.into()));
    let fidelity = &shadow["fidelity"];
    let requests = fidelity["requests"].as_u64().unwrap();
    assert!(requests >= 64 && result["reps"][0]["summary"]["requests"] == requests, "{requests}");
    assert_eq!(fidelity["mean_simulated_ms"], 1.0);
    assert!(fidelity["mean_measured_ms"].as_f64().unwrap() > 0.0);
    assert!(fidelity["demerit_ms"].as_f64().unwrap() > 0.0);
    for total in ["measured_total_ns", "simulated_total_ns"] {
        assert!(shadow[total].as_u64().unwrap() > 0, "{total}");
    }
    let plot = fs::read_to_string(place.path("plot.svg")).unwrap();
    assert!(plot.contains("measured (disk)") && plot.contains("simulated (constant-1ms)"));
    let said = text(&output.stderr);
    assert!(said.contains("real device") && said.contains("total time"), "{said}");

    let verified = place.run(&["verify", "last"]);
    assert!(text(&verified.stdout).contains("requests replayed, identical"), "{}", text(&verified.stderr));
}

#[test]
fn a_device_for_reading_only_is_not_written() {
    let place = place();
    let server = place.serve_exactly(&["--device", "null", "--shadow", "disk", "--read-only"]);
    let mut client = place.connect();
    assert_eq!(client.write(0, &[1; 4096]), super::EPERM);
    assert_eq!(client.read(0, 4096), [0; 4096]);
    // Another server can't have it meanwhile.
    let other = place.run(&["serve", "--device", "null", "--nbd", "0", "--shadow", "disk"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("in use"), "{}", text(&other.stderr));
    server.signal(libc::SIGTERM);
    assert!(server.end().status.success());
}
