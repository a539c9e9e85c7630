//! Clients that write blocks while the server is killed: each store, device and front end, for several lives.

use std::time::Duration;

use crate::campaign::Verdict;
use crate::clients::Client;
use crate::folder::TestFolder;
use crate::ledger::{Ledger, Random};
use crate::load::{compare, write_until_gone};

const DEVICES: [(&str, bool); 3] = [("null", false), ("constant-100us", false), ("samsung-970-pro", true)];

const STORES: [&[&str]; 6] = [
    &["--store", "disk"],
    &["--store", "overflow:disk", "--ram-budget", "1MiB"],
    &["--store", "overflow:disk", "--ram-budget", "8MiB"],
    &["--store", "disk", "--squash=exact"],
    &["--store", "disk", "--squash"],
    &["--store", "disk", "--squash", "--keep", "*"],
];

pub fn attack(random: &mut Random, described: &mut String) -> Verdict {
    let (device, has_cache) = DEVICES[random.below(3) as usize];
    let mut store = STORES[random.below(6) as usize].to_vec();
    if random.below(3) == 0 {
        store.push("--durable");
    }
    let over_nbd = random.below(2) == 0;
    let lives = 1 + random.below(3);
    let front = if over_nbd { "NBD" } else { "vhost-user" };
    *described = format!("{device}, {}, {front}, {lives} lives", store.join(" "));
    let place = TestFolder::new();
    let mut ledger = Ledger::new(has_cache);
    for life in 0..lives {
        let server = place.serve(device, &store);
        let mut client = match over_nbd {
            true => Client::nbd(&place.path("nbd.sock")),
            false => Client::vhost(&place.path("vhost.sock"), server.gone()),
        };
        let killer = server.kill_after(Duration::from_millis(20 + random.below(800)));
        write_until_gone(&mut client, &mut ledger, random);
        killer.join().expect("a thread that sends a signal");
        ledger.killed();
        if let Err(lost) = compare(&place, device, &store, &mut ledger) {
            return Verdict::Found(format!("life {life}: {lost}"));
        }
    }
    Verdict::Held
}
