//! A long-running server: its memory does not grow with its work.

use std::fs;

use super::{Client, READ, Serving, TestFolder, text};

impl Serving {
    /// A line of proc(5)'s `status`, in bytes.
    fn memory_bytes(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line is there");
        line.trim_start_matches(':').trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }
}

/// Reads of one page each, many at a time.
fn read_pages(client: &mut Client, pages: impl Iterator<Item = u64>) {
    let pages: Vec<u64> = pages.collect();
    for batch in pages.chunks(64) {
        for page in batch {
            client.send(READ, page * 4096, 4096, &[]);
        }
        for _ in batch {
            assert_eq!(client.receive(4096).0, 0);
        }
    }
}

/// A server's memory besides the budget, as in docs/serving-clients.md.
const BESIDE_THE_BUDGET_BYTES: u64 = 64 << 20;

#[test]
fn memory_stays_within_the_budget_and_a_constant_whatever_the_number_of_requests() {
    let place = TestFolder::new();
    let budget_bytes = 8 << 20;
    let pages = 4 * budget_bytes / 4096;
    let store = ["--store", "overflow:disk", "--ram-budget", "8MiB", "--capacity", "64MiB"];
    let server = place.serve_exactly(&[&["--device", "null"], &store[..]].concat());
    let mut client = place.connect();
    for index in 0..pages {
        assert_eq!(client.write(index * 4096, &[index as u8; 4096]), 0);
    }
    // In an order without locality.
    let scattered = |index: u64| index * 7_919 % pages;
    read_pages(&mut client, (0..20_000).map(scattered));
    let early_bytes = server.memory_bytes("VmRSS");
    read_pages(&mut client, (20_000..80_000).map(scattered));
    let (late_bytes, peak_bytes) = (server.memory_bytes("VmRSS"), server.memory_bytes("VmHWM"));
    // A record of each further request would be 7 MB.
    assert!(late_bytes < early_bytes + (5 << 20), "{early_bytes} bytes became {late_bytes}");
    assert!(peak_bytes < budget_bytes + BESIDE_THE_BUDGET_BYTES, "{peak_bytes} bytes at most");
    server.signal(libc::SIGTERM);
    let output = server.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let verified = place.run(&["verify", "last"]);
    let said = text(&verified.stdout);
    assert!(said.contains("88192 requests replayed, identical"), "{said}{}", text(&verified.stderr));
}
