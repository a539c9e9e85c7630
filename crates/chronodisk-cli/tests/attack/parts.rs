//! Files of an image are moved away between openings: without them nothing is created or changed, and once they are
//! back, all data are readable.

use std::collections::BTreeMap;
use std::fs;
use std::process::Output;

use crate::campaign::Verdict;
use crate::clients::Client;
use crate::folder::TestFolder;
use crate::ledger::{Ledger, Random};
use crate::load::compare;

const FILES: [&str; 3] = ["disk", "disk.sums", "disk.map"];

const SERVE: [&str; 9] =
    ["serve", "--device", "null", "--capacity", "16MiB", "--no-realtime", "--nbd", "unix:nbd.sock", "--quiet"];
const STORES: [&[&str]; 6] = [
    &["--store", "disk", "--squash=exact"],
    &["--store", "disk", "--squash"],
    &["--store", "disk", "--squash=exact", "--durable"],
    &["--store", "disk"],
    &["--store", "disk", "--durable"],
    &["--store", "overflow:disk"],
];
const TOOLS: [&str; 4] = ["info", "check", "repair", "upgrade"];

/// The image's files that are there, and any other of its names.
fn contents(place: &TestFolder) -> BTreeMap<String, Vec<u8>> {
    let names = fs::read_dir(place.path(".")).expect("the test's folder").flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| name.starts_with("disk"));
    names.map(|name| (name.clone(), fs::read(place.path(&name)).expect("a file of the image"))).collect()
}

fn open(place: &TestFolder, call: &[&str]) -> Output {
    place.chronodisk(call).output().expect("the command starts")
}

pub fn attack(random: &mut Random, described: &mut String) -> Verdict {
    let place = TestFolder::new();
    let made_with = &STORES[..3][random.below(3) as usize];
    *described = format!("made with {}", made_with.join(" "));
    let mut ledger = Ledger::new(false);
    write_some(&place, made_with, &mut ledger, random);
    for _ in 0..1 + random.below(4) {
        let whole = contents(&place);
        // At least one file is moved, and at least one stays.
        let subset = 1 + random.below((1 << FILES.len()) - 2);
        let away: Vec<&str> =
            FILES.iter().enumerate().filter(|(index, _)| subset >> index & 1 == 0).map(|(_, name)| *name).collect();
        let call: Vec<&str> = match random.below(4) {
            0 => vec!["image", TOOLS[random.below(4) as usize], "disk"],
            _ => [&SERVE[..], &["--run", "true"], STORES[random.below(6) as usize]].concat(),
        };
        let tolerates = call[0] == "image" && away == ["disk.sums"];
        if tolerates {
            continue;
        }
        described.push_str(&format!("; {} away, {}", away.join(" and "), call.join(" ")));
        away.iter().for_each(|name| fs::rename(place.path(name), place.path(&format!("away-{name}"))).expect("a name"));
        let there = contents(&place);
        let output = open(&place, &call);
        if contents(&place) != there {
            return Verdict::Found(format!("files changed: {:?}", contents(&place).keys()));
        }
        if output.status.success() {
            return Verdict::Found("it was not refused".to_owned());
        }
        away.iter().for_each(|name| fs::rename(place.path(&format!("away-{name}")), place.path(name)).expect("a name"));
        if contents(&place) != whole {
            return Verdict::Found("files that were moved back are others".to_owned());
        }
        if let Err(lost) = compare(&place, "null", made_with, &mut ledger) {
            return Verdict::Found(lost);
        }
    }
    Verdict::Held
}

fn write_some(place: &TestFolder, store: &[&str], ledger: &mut Ledger, random: &mut Random) {
    let server = place.serve("null", store);
    let mut client = Client::nbd(&place.path("nbd.sock"));
    for _ in 0..1 + random.below(40) {
        let Some((id, first, bytes)) = ledger.compose(random, 16, false) else { continue };
        client.write(id, first, &bytes, false).expect("the server is there");
        ledger.completed(client.completed().expect("the server is there"));
    }
    drop(client);
    server.end();
}
