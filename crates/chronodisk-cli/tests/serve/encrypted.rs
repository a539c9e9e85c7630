//! TLS from the command line, under real clients.

use std::process::{Command, Output};

use super::certificates::certify;
use super::{TestFolder, text};

/// Whether the host has the program; says visibly when it has not.
fn has(program: &str, package: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        println!("SKIPPED: no {program} that runs (Debian: apt-get install {package})");
    }
    found
}

fn certified() -> TestFolder {
    let place = TestFolder::new();
    std::fs::create_dir(place.path("tls")).unwrap();
    certify(&place.path("tls"));
    place
}

/// Serves for a shell command.
fn captive(place: &TestFolder, tls: &[&str], command: &str) -> Output {
    let base = ["serve", "--device", "null", "--capacity", "4MiB", "--nbd", "unix:socket", "--no-realtime"];
    place.run(&[&base[..], tls, &["--run", command]].concat())
}

#[test]
fn clients_encrypt_where_they_may_and_must() {
    if !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let place = certified();
    let require = ["--tls-certificates", "tls"];
    let output = captive(&place, &require, "echo $uri; nbdinfo \"$uri&tls-certificates=tls\"");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    assert!(said.starts_with("nbds+unix:///?socket=") && said.contains("newstyle-fixed with TLS"), "{said}");

    let plain = "! nbdinfo \"nbd+unix:///?socket=$unixsocket\"";
    assert!(captive(&place, &require, plain).status.success(), "nothing is told without encryption");
    let allow = ["--tls-certificates", "tls", "--tls", "allow"];
    let output = captive(&place, &allow, "nbdinfo \"nbd+unix:///?socket=$unixsocket\"");
    assert!(text(&output.stdout).contains("newstyle-fixed without TLS"), "{}", text(&output.stderr));
}

#[test]
fn only_clients_with_a_certificate_are_served_where_that_is_asked_for() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let place = certified();
    let tls = ["--tls-certificates", "tls", "--tls-verify-peer"];
    let convert = |directory: &str| {
        format!(
            "head -c 4M /dev/urandom > image && qemu-img convert -n -f raw image \
             --object tls-creds-x509,id=t,dir={directory},endpoint=client --target-image-opts \
             driver=nbd,server.type=unix,server.path=$unixsocket,tls-creds=t,tls-hostname=localhost"
        )
    };
    let output = captive(&place, &tls, &convert("tls"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("writes of 4"), "{}", text(&output.stderr));

    std::fs::create_dir(place.path("stranger")).unwrap();
    std::fs::copy(place.path("tls/ca-cert.pem"), place.path("stranger/ca-cert.pem")).unwrap();
    assert!(!captive(&place, &tls, &convert("stranger")).status.success(), "a client without a certificate");
}
