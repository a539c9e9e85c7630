//! Stores whose host fails: no acknowledged byte is lost, and no read returns wrong bytes.
//!
//! Each history is drawn from a seed: a client with a shape of load works on a store of a simulated host, while calls
//! fail, the disk is full, or the process or the power ends; then the store is opened again, and what it contains is
//! compared with what the client was told ([`client`] has the rules). An ordinary run goes through a few seeds of each
//! cell. More, other or single ones:
//!
//! ```text
//! CHRONODISK_FAULT_SEEDS=10000  so many seeds of each cell
//! CHRONODISK_FAULT_FIRST=77     from this one on
//! CHRONODISK_FAULT_TRACE=1      print each request of the histories
//! ```

mod client;
mod history;
mod rows;
mod stores;

use std::collections::BTreeMap;

use chronodisk_store::Durability;
use history::{Cell, Violation};
use stores::{Kind, Store};

/// Histories of each cell in an ordinary run.
const SEEDS_DEFAULT: u64 = 25;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Runs the histories of a store under each contract.
fn check(store: Store) {
    let first = number("CHRONODISK_FAULT_FIRST", 0);
    let count = number("CHRONODISK_FAULT_SEEDS", SEEDS_DEFAULT);
    let mut found: BTreeMap<(String, &'static str), (u64, String)> = BTreeMap::new();
    let (mut histories, mut faults) = (0, 0);
    for durability in [(false, false), (true, false), (false, true), (true, true)] {
        let durability = Durability { write_through: durability.0, power_cut: durability.1 };
        let cell = Cell { kind: Kind::new(store), durability };
        for seed in first..first + count {
            histories += 1;
            match history::run(&cell, seed) {
                Ok(seen) => faults += seen,
                Err(Violation { rule, text }) => {
                    let (broken, _) = found.entry((cell.to_string(), rule)).or_insert((0, text));
                    *broken += 1;
                }
            }
        }
    }
    println!("{store:?}: {histories} histories from seed {first} on, {faults} faults took effect");
    for ((cell, rule), (broken, example)) in &found {
        println!("  {cell}: {rule}: {broken} of {count}; {example}");
    }
    assert!(count < 50 || faults > histories / 4, "hardly any fault took effect");
    assert!(found.is_empty(), "{store:?}: {} rules were broken, see above", found.len());
}

#[test]
fn a_file_keeps_its_promise_whatever_the_host_does() {
    check(Store::File);
}

#[test]
fn an_overflow_store_keeps_its_promise_whatever_the_host_does() {
    check(Store::Overflow);
}

#[test]
fn an_exact_image_keeps_its_promise_whatever_the_host_does() {
    check(Store::Exact);
}

#[test]
fn a_classified_image_keeps_its_promise_whatever_the_host_does() {
    check(Store::Classified);
}

/// A store that breaks each promise is caught: the harness itself works.
#[test]
fn stores_that_lie_are_caught() {
    for (store, rules) in [
        (Store::Forgetful, &["lost"][..]),
        (Store::Corrupting, &["wrong bytes", "lost"]),
        (Store::Amnesiac, &["a failed synchronisation was forgotten"]),
        (Store::Panicking, &["panic"]),
    ] {
        let cell = Cell { kind: Kind::new(store), durability: Durability { write_through: false, power_cut: true } };
        for rule in rules {
            let mut broken = (0..500).filter_map(|seed| history::run(&cell, seed).err());
            assert!(broken.any(|violation| violation.rule == *rule), "{store:?} was not caught: {rule}");
        }
    }
}
