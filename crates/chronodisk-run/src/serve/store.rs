//! Stores of served devices.

use std::path::{Path, PathBuf};

use chronodisk_front::server::{OverflowView, Preloaded};
use chronodisk_sim::{ContentsBudget, SECTOR_BYTES};
use chronodisk_squash::{SquashOptions, SquashStore};
use chronodisk_store::{AccessList, Durability, FileStore, OverflowStore, RamStore, Store};

use super::arguments::ServeArguments;
use crate::failure::Failure;
use crate::folder::RunFolder;
use crate::memory::{self, host_memory_bytes};

/// A store, and a view of it if it is an overflow store.
pub type Opened = (Box<dyn Store>, Option<OverflowView>);

/// A store with consistent options, before it is opened.
#[derive(Debug)]
pub struct StorePlan {
    place: StorePlace,
    squash: Option<SquashOptions>,
    durability: Durability,
}

#[derive(Debug)]
enum StorePlace {
    Memory {
        budget_bytes: u64,
    },
    File(PathBuf),
    Overflow {
        path: PathBuf,
        budget_bytes: u64,
        /// Name of the run whose accesses are preloaded.
        preload: Option<String>,
    },
}

impl StorePlan {
    /// Checks the options of a store for a device with or without a volatile cache.
    pub fn resolve(arguments: &ServeArguments, volatile_cache: bool) -> Result<Self, Failure> {
        let durability = Durability { write_through: !volatile_cache, power_cut: arguments.durable };
        let squash = arguments.squash.options(arguments.on.seed, durability);
        let name = arguments.store.to_string_lossy();
        let (overflow, in_memory) = (name.strip_prefix("overflow:"), name == "ram");
        if arguments.preload.is_some() && overflow.is_none() {
            return Err(Failure::usage("--preload needs --store overflow:FILE"));
        }
        if squash.is_some() && overflow.is_some() {
            return Err(Failure::usage(
                "--squash needs --store ram or --store FILE; it does not support overflow:FILE",
            ));
        }
        if in_memory && arguments.durable {
            return Err(
                Failure::usage("--durable needs a file, but --store is ram").help("name a file with --store FILE")
            );
        }
        if !in_memory && overflow.is_none() && arguments.ram_budget.is_some() {
            return Err(Failure::usage(
                "--ram-budget needs --store ram or --store overflow:FILE; other files have no memory limit",
            ));
        }
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        let place = match overflow {
            Some(path) => StorePlace::Overflow { path: path.into(), budget_bytes, preload: arguments.preload.clone() },
            None if in_memory => StorePlace::Memory { budget_bytes },
            None => StorePlace::File(PathBuf::from(&arguments.store)),
        };
        Ok(StorePlan { place, squash, durability })
    }

    /// Path of the store's file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match &self.place {
            StorePlace::Memory { .. } => None,
            StorePlace::File(path) | StorePlace::Overflow { path, .. } => Some(path),
        }
    }

    /// Opens the store.
    pub fn open(self, capacity_bytes: u64) -> Result<Opened, Failure> {
        let store: Box<dyn Store> = match (self.place, self.squash) {
            (StorePlace::Memory { budget_bytes }, Some(options)) => {
                Box::new(SquashStore::in_memory(capacity_bytes, budget_bytes, &options))
            }
            (StorePlace::Memory { budget_bytes }, None) => Box::new(RamStore::new(capacity_bytes, budget_bytes)),
            (StorePlace::File(path), Some(options)) => {
                Box::new(SquashStore::open_or_create(&path, capacity_bytes, &options)?)
            }
            (StorePlace::File(path), None) => {
                Box::new(FileStore::open_or_create(path, capacity_bytes, self.durability)?)
            }
            (StorePlace::Overflow { path, budget_bytes, preload }, _) => {
                let file = FileStore::open_or_create(path, capacity_bytes, self.durability)?;
                let mut store = OverflowStore::new(file, budget_bytes);
                if let Some(run) = &preload {
                    store.set_preload(access_list(run)?);
                }
                let store = Preloaded::start(store).map_err(Failure::host)?;
                let view = store.view();
                return Ok((Box::new(store), Some(view)));
            }
        };
        Ok((store, None))
    }
}

/// Memory of a range in the list of accesses, and in the vector from which it is made.
const RANGE_BYTES: u64 = 64;

/// Accesses of an earlier run's requests, in order.
fn access_list(run: &str) -> Result<AccessList, Failure> {
    let directory = RunFolder::find(run)?;
    let mut ranges = Vec::new();
    let mut budget = ContentsBudget::new(memory::default_limit());
    for repetition in directory.read_replayable()?.repetitions {
        directory.each_request(&repetition.log_file, |record| {
            if record.op.moves_data() {
                budget
                    .take(RANGE_BYTES)
                    .map_err(|over| Failure::usage(format!("{}: {over}", directory.path().display())))?;
                ranges.push((record.lba.offset_bytes(), u64::from(record.sectors) * SECTOR_BYTES));
            }
            Ok(())
        })?;
    }
    Ok(AccessList::new(ranges))
}

/// The store's figures, beside the model's.
pub fn overflow_statistics(overflow: &OverflowView) -> Vec<(String, f64)> {
    let statistics = overflow.statistics();
    let named = [
        ("store-hits", statistics.hits),
        ("store-misses", statistics.misses),
        ("store-evictions", statistics.evictions),
        ("store-written-back", statistics.written_back),
        ("store-write-back-failures", statistics.write_back_failures),
        ("store-preloaded", statistics.preloaded),
        ("store-memory-bytes", overflow.memory_bytes()),
    ];
    named.map(|(name, value)| (name.to_owned(), value as f64)).into()
}
