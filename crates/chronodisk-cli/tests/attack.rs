//! The standing attacker: random configurations with clients that remember acknowledged data, images with missing
//! parts, changed input files, and endings. `scripts/attack` runs it.
//! `experiments/store_faults/README.md` describes it.
//!
//! Each attack has a seed of its own, with which it can be repeated alone. `tests/durability` has the same harness.

#[path = "attack/blocks.rs"]
mod blocks;
#[path = "attack/campaign.rs"]
mod campaign;
#[allow(dead_code, reason = "tests/durability.rs uses the rest")]
#[path = "durability/clients.rs"]
mod clients;
#[path = "common/command.rs"]
mod command;
#[path = "common/default_signals.rs"]
mod default_signals;
#[path = "attack/endings.rs"]
mod endings;
#[path = "attack/files.rs"]
mod files;
#[allow(dead_code, reason = "tests/durability.rs uses the rest")]
#[path = "durability/folder.rs"]
mod folder;
#[allow(dead_code, reason = "tests/durability.rs uses the rest")]
#[path = "durability/guest.rs"]
mod guest;
#[path = "attack/inputs.rs"]
mod inputs;
#[allow(dead_code, reason = "tests/durability.rs uses the rest")]
#[path = "durability/ledger.rs"]
mod ledger;
#[path = "durability/load.rs"]
mod load;
#[path = "attack/parts.rs"]
mod parts;
#[path = "../../chronodisk-front/tests/common/vhost_guest.rs"]
mod vhost_guest;

use campaign::{Campaign, Kind};

/// The kinds of attacks, with their share of 100.
const KINDS: [Kind; 5] = [
    Kind { name: "blocks", percent: 25, attack: blocks::attack },
    Kind { name: "files", percent: 30, attack: files::attack },
    Kind { name: "parts", percent: 15, attack: parts::attack },
    Kind { name: "inputs", percent: 20, attack: inputs::attack },
    Kind { name: "endings", percent: 10, attack: endings::attack },
];

/// Attacks for `CHRONODISK_ATTACK_SECONDS`, or once with the seed `CHRONODISK_ATTACK_ONE`. Without either variable,
/// each kind of attack runs once as a smoke test.
#[test]
fn attacks_find_nothing() {
    let findings = match Campaign::from_environment() {
        Some(campaign) => campaign.run(&KINDS),
        None => campaign::one_of_each(&KINDS),
    };
    assert!(findings.is_empty(), "{} attacks found something:\n{}", findings.len(), findings.join("\n"));
}

#[test]
fn every_kind_of_attack_has_its_share() {
    assert_eq!(KINDS.iter().map(|kind| kind.percent).sum::<u64>(), 100);
}
