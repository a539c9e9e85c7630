//! The page for a scraper.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{ChildStderr, Stdio};

use super::{Serving, TestFolder};

/// Reads lines of standard error up to the one that says where the page is.
fn address(server: &mut Serving) -> (String, BufReader<ChildStderr>) {
    let mut lines = BufReader::new(server.0.stderr.take().unwrap());
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some(rest) = line.strip_prefix("metrics at http://") {
            return (rest.trim().strip_suffix("/metrics").unwrap().to_owned(), lines);
        }
        line.clear();
    }
    panic!("no metrics");
}

fn scrape(address: &str) -> (String, BTreeMap<String, f64>) {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").unwrap();
    let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    });
    (head.to_owned(), samples.collect())
}

#[test]
fn a_scraper_gets_what_the_clients_did() {
    let place = TestFolder::new();
    let store = ["--store", "overflow:disk", "--ram-budget", "1MiB"];
    let mut server = place.serve(&[&["--device", "constant-1ms", "--metrics", "0", "--stats"], &store[..]].concat());
    let (address, mut rest) = address(&mut server);
    assert!(address.starts_with("127.0.0.1:"), "nobody else reaches it unless asked for");
    let mut client = place.connect();
    for index in 0..10 {
        assert_eq!(client.write(index * 4096, &[1; 4096]), 0);
    }
    client.read(1 << 20, 8192);
    client.flush();
    // The log is brought up to date a few times a second.
    let samples = (0..500)
        .map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            scrape(&address)
        })
        .find(|(_, samples)| samples["chronodisk_service_time_seconds_count"] == 12.0);
    let (head, samples) = samples.expect("all requests are counted");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    for (name, value) in [
        ("chronodisk_device_info{profile=\"constant-1ms\"}", 1.0),
        ("chronodisk_requests_total{op=\"write\"}", 10.0),
        ("chronodisk_request_bytes_total{op=\"write\"}", 40_960.0),
        ("chronodisk_requests_total{op=\"read\"}", 1.0),
        ("chronodisk_requests_total{op=\"flush\"}", 1.0),
        ("chronodisk_service_time_seconds_bucket{le=\"0.0005\"}", 0.0),
        ("chronodisk_service_time_seconds_bucket{le=\"0.001\"}", 12.0),
        ("chronodisk_service_time_seconds_bucket{le=\"+Inf\"}", 12.0),
        ("chronodisk_lateness_seconds_count", 12.0),
        ("chronodisk_connections_total", 1.0),
        ("chronodisk_outstanding_requests", 0.0),
        ("chronodisk_store_misses_total", 2.0),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}");
    }
    assert!((samples["chronodisk_service_time_seconds_sum"] - 0.012).abs() < 1e-9);
    assert!(samples["process_resident_memory_bytes"] > 1e6);
    server.signal(libc::SIGTERM);
    let mut said = String::new();
    rest.read_to_string(&mut said).unwrap();
    assert!(server.0.wait().unwrap().success(), "{said}");
    assert!(TcpStream::connect(&address).is_err(), "the page ends with the server");
}

#[test]
fn a_line_of_figures_comes_every_second() {
    let place = TestFolder::new();
    let base = ["serve", "--device", "null", "--capacity", "1MiB", "--nbd", "unix:socket", "--stats"];
    let mut server = place.chronodisk(&base).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let line = lines.map(Result::unwrap).find(|line| line.contains(" requests/s, ")).unwrap();
    assert_eq!(line, "0 requests/s, 0.0 MB/s, 0 outstanding, lateness p50 -");
    Serving(server).signal(libc::SIGINT);
}
