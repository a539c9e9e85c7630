//! iSCSI from the command line, under real initiators: those of libiscsi and of QEMU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use super::{TestFolder, text};

const SECRET: &str = "sixteen-letters!";

/// Whether the host has the utilities of libiscsi; says visibly when it has not.
fn has_libiscsi() -> bool {
    let found = Command::new("iscsi-ls").arg("--help").output().is_ok();
    if !found {
        println!("SKIPPED: no iscsi-ls (Debian: apt-get install libiscsi-bin)");
    }
    found
}

/// Whether QEMU's tools have the driver; says visibly when they have not.
fn has_driver() -> bool {
    let formats = Command::new("qemu-img").arg("--help").output();
    let found = formats.is_ok_and(|output| text(&output.stdout).split_whitespace().any(|word| word == "iscsi"));
    if !found {
        println!("SKIPPED: no qemu-img with the driver iscsi (Debian: apt-get install qemu-utils qemu-block-extra)");
    }
    found
}

/// Serves a disk of 64 MiB with a volatile cache for a shell command.
fn captive(place: &TestFolder, options: &[&str], command: &str) -> Output {
    let base = ["serve", "--capacity", "64MiB", "--iscsi", "0", "--no-realtime", "--device"];
    place.run(&[&base[..], options, &["--run", command]].concat())
}

fn expect_success(output: &Output) -> String {
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    said
}

#[test]
fn libiscsi_finds_and_describes_the_device() {
    if !has_libiscsi() {
        return;
    }
    let place = TestFolder::new();
    let command = "iscsi-ls -s iscsi://127.0.0.1:$port && iscsi-inq $uri && iscsi-readcapacity16 $uri && iscsi-inq -e 1 -c 176 $uri";
    let said = expect_success(&captive(&place, &["cheetah-9lp"], command));
    for expected in [
        "Target:iqn.2026-11.org.chronodisk:cheetah-9lp",
        "Vendor:CHRONODK",
        "Product:cheetah-9lp",
        "Total size:67108864",
        "maximum transfer length:32768",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn qemu_reads_its_writes_and_the_log_repeats_them() {
    if !has_driver() {
        return;
    }
    let place = TestFolder::new();
    // Data of one block, of several bursts, with FUA, and zeros.
    let command = "qemu-io -f raw -c 'write -P 7 0 512' -c 'write -P 8 1M 5M' -c 'write -f -P 9 7M 100k' \
                   -c 'read -P 7 0 512' -c 'read -P 8 1M 5M' -c 'read -P 9 7M 100k' -c 'write -z 2M 1M' \
                   -c 'read -P 0 2M 1M' -c 'read -P 8 4M 1M' -c flush $uri && \
                   head -c 64M /dev/urandom > image && qemu-img convert -n -f raw -O raw image $uri && \
                   qemu-img compare -f raw -F raw image $uri";
    for device in ["constant-100us", "mems-g2"] {
        let said = expect_success(&captive(&place, &[device], command));
        assert!(said.contains("Images are identical") && !said.contains("verification failed"), "{said}");
        let verified = place.run(&["verify", "last"]);
        assert!(verified.status.success(), "{}", text(&verified.stderr));
    }
    // The disk takes seconds for 64 MiB.
    let few = "qemu-io -f raw -c 'write -P 7 0 1M' -c 'read -P 7 0 1M' -c flush $uri";
    expect_success(&captive(&place, &["cheetah-9lp"], few));
    assert!(place.run(&["verify", "last"]).status.success());
}

#[test]
fn only_initiators_with_the_secret_are_served() {
    if !has_driver() {
        return;
    }
    let place = TestFolder::new();
    fs::write(place.path("secret"), SECRET).unwrap();
    let permit = |mode| fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(mode)).unwrap();
    let options = ["null", "--iscsi-user", "me", "--iscsi-secret-file", "secret"];
    permit(0o600);
    let command = "qemu_io() { qemu-io -f raw -c 'read -P 0 0 4k' \"iscsi://$1${uri#iscsi://}\"; }; \
                   qemu_io 'me%sixteen-letters!@' && ! qemu_io '' && ! qemu_io 'me%another-secret!!@' && \
                   ! qemu_io 'you%sixteen-letters!@'";
    expect_success(&captive(&place, &options, command));

    permit(0o644);
    let output = captive(&place, &options, "true");
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("chmod 600"), "{}", text(&output.stderr));
    permit(0o600);
    fs::write(place.path("secret"), "short").unwrap();
    let errors = text(&captive(&place, &options, "true").stderr);
    assert!(errors.contains("the secret has 5 bytes; expected 12 to 255"), "{errors}");
}

#[test]
fn other_machines_need_the_secret() {
    let place = TestFolder::new();
    let base = ["serve", "--device", "null", "--capacity", "1MiB"];
    for (arguments, message) in [
        (&["--iscsi", "unix:socket"][..], "expected HOST:PORT or PORT"),
        (&["--iscsi", "0.0.0.0:0"], "initiators on other machines could read and write the device without a secret"),
        (&["--iscsi", "0", "--iscsi-user", "me"], "--iscsi-secret-file"),
        (&["--iscsi", "0", "--iscsi-secret-file", "secret"], "--iscsi-user"),
        (&["--nbd", "unix:s", "--iscsi-user", "me", "--iscsi-secret-file", "secret"], "--iscsi"),
    ] {
        let output = place.run(&[&base[..], arguments].concat());
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(message), "{arguments:?}: {errors}");
    }
    let open = ["--iscsi", "0.0.0.0:0", "--insecure", "--run", "echo $uri"];
    let output = place.run(&[&base[..], &open].concat());
    assert!(expect_success(&output).starts_with("iscsi://0.0.0.0:"));
}
