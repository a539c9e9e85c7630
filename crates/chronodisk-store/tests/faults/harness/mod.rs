//! Histories of a store on a host that fails, and the client that judges them. Tests of other crates include this
//! folder.
//!
//! Each history is drawn from a seed. A client with a shape of load works on a store of a simulated host, while calls
//! fail, the disk is full, or the process or the power ends. Then the store is reopened, and its contents are compared
//! with the acknowledgements ([`client`] has the rules). An ordinary run covers a few seeds of each cell. More, other
//! or single ones:
//!
//! ```text
//! CHRONODISK_FAULT_SEEDS=10000  so many seeds of each cell
//! CHRONODISK_FAULT_FIRST=77     from this one on
//! CHRONODISK_FAULT_TRACE=1      print each request of the histories
//! ```

pub mod client;
pub mod history;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::{Durability, Store, StoreError};
use history::{Cell, Violation};

/// Deliberately not a whole number of pages.
pub const CAPACITY_BYTES: u64 = (1 << 20) + 3 * 512;

/// Name of the device's file on the simulated host.
pub const PATH: &str = "/folder/device";

pub type Opened = Box<dyn Store>;

/// A kind of store; [`Debug`] is its name.
pub trait Kind: Debug {
    /// Makes a new device.
    fn create(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError>;

    /// Opens an existing device.
    fn open(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError>;

    /// Whether writes report a full disk at once, so that acknowledged writes can always be flushed.
    fn reserves_space(&self) -> bool;
}

/// Histories of each cell in an ordinary run.
const SEEDS_DEFAULT: u64 = 25;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// Runs the histories of a store under each contract.
pub fn check(kind: &dyn Kind) {
    let first = number("CHRONODISK_FAULT_FIRST", 0);
    let count = number("CHRONODISK_FAULT_SEEDS", SEEDS_DEFAULT);
    let mut found: BTreeMap<(String, &'static str), (u64, String)> = BTreeMap::new();
    let mut histories = 0;
    let mut effects: BTreeMap<&'static str, u64> = BTreeMap::new();
    for durability in [(false, false), (true, false), (false, true), (true, true)] {
        let durability = Durability { write_through: durability.0, power_cut: durability.1 };
        let cell = Cell { kind, durability };
        for seed in first..first + count {
            histories += 1;
            match history::run(&cell, seed) {
                Ok(seen) => seen.into_iter().for_each(|(kind, count)| *effects.entry(kind).or_default() += count),
                Err(Violation { rule, text }) => {
                    let (broken, _) = found.entry((cell.to_string(), rule)).or_insert((0, text));
                    *broken += 1;
                }
            }
        }
    }
    let faults: u64 = effects.values().sum();
    println!("{kind:?}: {histories} histories from seed {first} on, {faults} faults took effect: {effects:?}");
    for ((cell, rule), (broken, example)) in &found {
        println!("  {cell}: {rule}: {broken} of {count}; {example}");
    }
    assert!(count < 50 || faults > histories / 4, "hardly any fault took effect");
    assert!(found.is_empty(), "{kind:?}: {} rules were broken, see above", found.len());
}
