//! Limits of the host's resources for clients: memory, descriptors.

use std::io::Write;
use std::time::Duration;

use super::{Client, Serving, TestFolder, text};

/// A line of `/proc/PID/status` in bytes.
fn memory_bytes(server: &Serving, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.0.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("proc(5)");
    line.trim().strip_suffix(" kB").unwrap().trim().parse::<u64>().unwrap() << 10
}

#[test]
fn idle_clients_take_little_memory_and_give_back_what_they_took() {
    let place = TestFolder::new();
    let server = place.serve(&["--device", "null", "--connections-per-address", "256"]);
    let begun = memory_bytes(&server, "VmRSS");
    let mut clients: Vec<Client> = (0..256).map(|_| place.connect()).collect();
    let idle = memory_bytes(&server, "VmRSS") - begun;
    assert!(idle < 256 * (48 << 10), "{} KiB a client", idle >> 18);
    let data = vec![7; 64 << 10];
    for client in &mut clients {
        for index in 0..8 {
            client.send(super::WRITE, index << 16, 64 << 10, &data);
        }
        (0..8).for_each(|_| assert_eq!(client.receive(0).0, 0));
    }
    // They keep it for a second, and look every tenth of one.
    let grown = |server: &Serving| memory_bytes(server, "VmRSS").saturating_sub(begun);
    for _ in 0..100 {
        if grown(&server) < 256 * (96 << 10) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let left = grown(&server);
    assert!(left < 256 * (96 << 10), "{} KiB a client", left >> 18);
    server.signal(libc::SIGTERM);
    assert!(server.end().status.success());
}

#[test]
fn large_writes_of_many_clients_wait_for_the_memory_that_they_may_fill() {
    let place = TestFolder::new();
    let arguments = ["--device", "null", "--capacity", "64MiB", "--client-memory", "128MiB"];
    let server = place.serve_exactly(&arguments);
    let begun = memory_bytes(&server, "VmRSS");
    let data = vec![7; 32 << 20];
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                let mut client = place.connect();
                client.0.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
                assert_eq!(client.write(32 << 20, &data), 0);
                assert_eq!(client.read(32 << 20, 32 << 20).len(), 32 << 20);
            });
        }
    });
    let most = memory_bytes(&server, "VmHWM") - begun;
    // The device's own bytes, the limit, and what 64 connections and the log take besides.
    let expected = (32 << 20) + (128 << 20) + (64 << 20);
    assert!(most < expected, "{} MiB", most >> 20);
    server.signal(libc::SIGTERM);
    assert!(server.end().status.success());
}

#[test]
fn a_client_that_holds_memory_for_which_others_wait_is_disconnected() {
    let place = TestFolder::new();
    let server = place.serve_exactly(&["--device", "null", "--capacity", "64MiB", "--client-memory", "64MiB"]);
    let data = vec![7; 32 << 20];
    // The beginnings of two requests have claimed all that there is.
    let mut holders: Vec<Client> = (0..2).map(|_| place.connect()).collect();
    for holder in &mut holders {
        holder.send(super::WRITE, 0, 31 << 20, &data[..1 << 20]);
    }
    std::thread::sleep(Duration::from_millis(300));
    let mut client = place.connect();
    client.0.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(client.write(0, &data), 0, "it is served when their time is over");
    // The memory is free before the connection has ended. One of them may have been enough; the other's rest is taken.
    std::thread::sleep(Duration::from_secs(1));
    let ended = holders.iter_mut().filter_map(|holder| holder.0.write_all(&data[..30 << 20]).err()).count();
    assert!(ended > 0, "its connection has ended");
    server.signal(libc::SIGTERM);
    let output = server.end();
    let told = format!("{ended} clients were disconnected: they held memory for which others waited");
    assert!(text(&output.stderr).contains(&told), "{}", text(&output.stderr));
}

#[test]
fn too_few_descriptors_are_named_with_the_limit_and_the_remedy() {
    let place = TestFolder::new();
    let limited = |limit: u32, connections: &str| {
        let serve = format!(
            "ulimit -n {limit}; exec {} serve --device null --capacity 1MiB --nbd unix:s --connections {connections} \
             --run true",
            env!("CARGO_BIN_EXE_chronodisk")
        );
        std::process::Command::new("sh")
            .args(["-c", &serve])
            .env("XDG_STATE_HOME", place.0.path())
            .current_dir(place.0.path())
            .output()
            .unwrap()
    };
    for limit in [12, 20, 40, 64] {
        let output = limited(limit, "256");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{limit}: {errors}");
        let named = format!("the limit of open files (RLIMIT_NOFILE) is {limit}; a server for 256 clients needs 832");
        assert!(errors.contains(&named) && errors.contains("ulimit -n 832"), "{limit}: {errors}");
    }
    let output = limited(100, "256");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("enough for 12 of --connections 256"), "{}", text(&output.stderr));
    assert!(!text(&limited(100, "12").stderr).contains("RLIMIT_NOFILE"));
}
