//! Stores whose host fails: no acknowledged byte is lost, and no read returns wrong bytes. [`harness`] has the
//! histories and their options.

mod harness;
mod rows;
mod stores;

use chronodisk_store::Durability;
use harness::check;
use harness::history::{self, Cell};
use stores::Store;

#[test]
fn a_file_keeps_its_promise_whatever_the_host_does() {
    check(&Store::File);
}

#[test]
fn an_overflow_store_keeps_its_promise_whatever_the_host_does() {
    check(&Store::Overflow);
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
        let cell = Cell { kind: &store, durability: Durability { write_through: false, power_cut: true } };
        for rule in rules {
            let mut broken = (0..500).filter_map(|seed| history::run(&cell, seed).err());
            assert!(broken.any(|violation| violation.rule == *rule), "{store:?} was not caught: {rule}");
        }
    }
}
