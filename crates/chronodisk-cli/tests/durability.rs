//! Acknowledged data survive a kill: each device, store and front end (docs/durability.md).
//!
//! A client writes numbered blocks and remembers completed writes and flushes. At a random moment every process of the
//! device is killed (SIGKILL), the same store is served again, and every block is compared. Without a volatile cache, a
//! block must hold its last completed write or a later one; with a volatile cache, its last flushed write or a later
//! one. An ordinary run has a few kills in each cell; `CHRONODISK_KILLS=100` asks for more of them.

#[path = "durability/clients.rs"]
mod clients;
#[path = "common/command.rs"]
mod command;
#[path = "durability/deaths.rs"]
mod deaths;
#[path = "durability/folder.rs"]
mod folder;
#[path = "durability/guest.rs"]
mod guest;
#[path = "durability/ledger.rs"]
mod ledger;
#[path = "durability/load.rs"]
mod load;
#[path = "../../chronodisk-front/tests/common/vhost_guest.rs"]
mod vhost_guest;

use std::time::Duration;

use clients::Client;
use folder::TestFolder;
use ledger::{BLOCKS, Ledger, Random};
use load::{compare, write_until_gone};

/// Devices and whether they have a volatile cache.
const DEVICES: [(&str, bool); 2] = [("null", false), ("samsung-970-pro", true)];

/// Flags of each store.
const STORES: [(&str, &[&str]); 3] = [
    ("file", &["--store", "disk"]),
    ("overflow", &["--store", "overflow:disk", "--ram-budget", "1MiB"]),
    ("image", &["--store", "disk", "--squash=exact"]),
];

/// Number of kills in each cell.
fn kills(default: u64) -> u64 {
    std::env::var("CHRONODISK_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Reports the losses of a cell, and fails if there are any.
fn judge(cell: &str, lost: &[String], kills: u64) {
    println!("{cell}: {} of {kills} kills lost something", lost.len());
    assert!(lost.is_empty(), "{cell}: {}", lost.join("\n"));
}

fn matrix(front: &str) {
    for (device, has_cache) in DEVICES {
        for (name, store) in STORES {
            let (mut lost, mut promised) = (Vec::new(), 0);
            let kills = kills(1);
            for kill in 0..kills {
                let place = TestFolder::new();
                let mut random = Random::new(kill);
                let mut ledger = Ledger::new(has_cache);
                // The second server starts with the contents of the first one.
                for life in 0..2 {
                    let server = place.serve(device, store);
                    let mut client = match front {
                        "nbd" => Client::nbd(&place.path("nbd.sock")),
                        _ => Client::vhost(&place.path("vhost.sock"), server.gone()),
                    };
                    let killer = server.kill_after(Duration::from_millis(20 + random.below(400)));
                    write_until_gone(&mut client, &mut ledger, &mut random);
                    killer.join().unwrap();
                    ledger.killed();
                    promised += ledger.promised();
                    if let Err(text) = compare(&place, device, store, &mut ledger) {
                        lost.push(format!("kill {kill}, life {life}: {text}"));
                        break;
                    }
                }
            }
            assert!(promised > 0, "{front}, {device}, {name}: nothing was promised before any kill");
            judge(&format!("{front}, {device}, {name}"), &lost, kills);
        }
    }
}

#[test]
fn nbd_clients_lose_nothing_that_was_promised() {
    matrix("nbd");
}

#[test]
fn virtual_machines_lose_nothing_that_was_promised() {
    matrix("vhost-user");
}

#[test]
fn guests_lose_nothing_that_was_promised() {
    if !guest::can_run() {
        return;
    }
    for (device, has_cache) in [("constant-100us", false), ("samsung-970-pro", true)] {
        for (name, store) in STORES.iter().filter(|(name, _)| *name != "overflow") {
            let mut lost = Vec::new();
            let kills = kills(1);
            for kill in 0..kills {
                let place = TestFolder::new();
                let mut ledger = guest::write_until_killed(&place, device, store, has_cache, &mut Random::new(kill));
                if let Err(text) = compare(&place, device, store, &mut ledger) {
                    lost.push(format!("kill {kill}: {text}"));
                }
            }
            judge(&format!("guest, {device}, {name}"), &lost, kills);
        }
    }
}

#[test]
fn a_server_on_a_full_disk_keeps_what_it_acknowledged_and_fails_no_read() {
    let place = TestFolder::new();
    let store = ["--store", "overflow:small/disk", "--ram-budget", "256KiB"];
    // The server sees a file system of 1 MiB there.
    let Some(server) = place.serve_on_small_disk("samsung-970-pro", &store) else { return };
    let mut client = Client::nbd(&place.path("nbd.sock"));
    let block = |block: u64| vec![(block % 250) as u8 + 1; ledger::BLOCK_BYTES];
    let acknowledged: Vec<bool> = (0..512).map(|index| client.write_alone(index, &block(index)) == 0).collect();
    let count = acknowledged.iter().filter(|done| **done).count();
    assert!((200..=256).contains(&count), "{count} blocks were acknowledged");
    for (index, acknowledged) in (0..).zip(&acknowledged) {
        assert_eq!(client.read(index, 1) == block(index), *acknowledged, "block {index}");
    }
    server.end();
    let disk = std::fs::read(place.path("copy")).unwrap();
    for (index, _) in (0..).zip(&acknowledged).filter(|(_, acknowledged)| **acknowledged) {
        assert!(disk[index as usize * 4096..][..4096] == block(index), "block {index}");
    }
}

#[test]
fn a_server_that_can_not_write_at_its_end_says_so_and_ends_with_status_3() {
    let place = TestFolder::new();
    let server = place.serve("samsung-970-pro", &["--store", "overflow:disk"]);
    let mut client = Client::nbd(&place.path("nbd.sock"));
    assert_eq!(client.write_alone(BLOCKS, &[1; ledger::BLOCK_BYTES]), 0);
    server.limit_files(1 << 20);
    let (status, errors) = server.end_somehow();
    assert_eq!(status, Some(3), "{errors}");
    assert!(errors.contains("bytes that clients wrote may be lost"), "{errors}");
}

/// A short form of `make -C experiments store-faults`: the system calls of the real command fail.
#[test]
fn a_synchronisation_that_fails_in_the_kernel_stays_failed_for_clients() {
    for (name, store) in STORES {
        let place = TestFolder::new();
        let store = [store, &["--durable"]].concat();
        place.serve("samsung-970-pro", &store).end();
        let fault = "fdatasync:error=EIO:when=8";
        let Some(server) = place.serve_with_fault("samsung-970-pro", &store, fault) else { return };
        let mut client = Client::nbd(&place.path("nbd.sock"));
        let mut write_and_flush = |block: u64| {
            assert_eq!(client.write_alone(block, &[1; ledger::BLOCK_BYTES]), 0, "{name}");
            client.flush_alone()
        };
        // strace counts the calls of each thread by itself, and several threads synchronise.
        let failed = (0..100).find(|block| write_and_flush(*block) != 0);
        let failed = failed.unwrap_or_else(|| panic!("{name}: no flush failed"));
        for block in failed..failed + 3 {
            assert_ne!(write_and_flush(block), 0, "{name}: a flush succeeded after a failed one");
        }
        let (status, errors) = server.end_somehow();
        assert_eq!(status, Some(3), "{name}: {errors}");
        assert!(errors.contains("may be lost"), "{name}: {errors}");
    }
}

/// A name that the host's file system refuses is a fault of the host; a directory in place of a file is wrong usage.
#[test]
fn a_server_whose_store_the_host_refuses_ends_with_status_3() {
    let long = "x".repeat(300);
    for (name, store) in STORES {
        for (path, status, expected) in
            [(&*long, 3, "File name too long (os error 36)"), ("folder", 2, "a directory; expected a regular file")]
        {
            let place = TestFolder::new();
            std::fs::create_dir(place.path("folder")).unwrap();
            let store: Vec<String> = store.iter().map(|word| word.replace("disk", path)).collect();
            let mut arguments = vec!["serve", "--device", "null", "--nbd", "unix:s"];
            arguments.extend(store.iter().map(String::as_str));
            let output = place.chronodisk(&arguments).output().unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{name}: {errors}");
            assert!(errors.contains(expected), "{name}: {errors}");
        }
    }
}

#[test]
fn a_server_that_is_killed_in_the_middle_of_a_write_keeps_what_was_promised() {
    for (device, has_cache) in DEVICES {
        for (name, store) in STORES {
            let place = TestFolder::new();
            let fault = "pwrite64:signal=SIGKILL:when=60";
            let Some(server) = place.serve_with_fault(device, store, fault) else { return };
            let mut ledger = Ledger::new(has_cache);
            let mut client = Client::nbd(&place.path("nbd.sock"));
            write_until_gone(&mut client, &mut ledger, &mut Random::new(1));
            drop(server);
            ledger.killed();
            assert!(ledger.promised() > 0, "{device}, {name}: nothing was promised before the kill");
            compare(&place, device, store, &mut ledger).unwrap_or_else(|lost| panic!("{device}, {name}: {lost}"));
        }
    }
}
