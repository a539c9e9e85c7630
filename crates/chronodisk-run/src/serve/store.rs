//! Where a served device's bytes are.

use std::path::Path;

use chronodisk_front::server::{OverflowView, Preloaded};
use chronodisk_sim::{ContentsBudget, SECTOR_BYTES};
use chronodisk_squash::{SquashOptions, SquashStore};
use chronodisk_store::{AccessList, Durability, FileStore, OverflowStore, RamStore, Store};

use super::arguments::ServeArguments;
use crate::failure::Failure;
use crate::folder::RunFolder;
use crate::memory::{self, host_memory_bytes};

/// A store, and a view of it if it overflows.
pub type Opened = (Box<dyn Store>, Option<OverflowView>);

/// Opens the store that was asked for, of a device with or without a volatile cache.
pub fn open(arguments: &ServeArguments, capacity_bytes: u64, volatile_cache: bool) -> Result<Opened, Failure> {
    let durability = Durability { write_through: !volatile_cache, power_cut: arguments.durable };
    let name = arguments.store.to_string_lossy();
    let overflow = name.strip_prefix("overflow:");
    if arguments.preload.is_some() && overflow.is_none() {
        return Err(Failure::usage("--preload needs --store overflow:FILE"));
    }
    if let Some(options) = arguments.squash.options(arguments.seed, durability) {
        return open_squashed(arguments, capacity_bytes, &options).map(|store| (store, None));
    }
    if let Some(path) = overflow {
        let file = FileStore::open_or_create(path, capacity_bytes, durability)?;
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        let mut store = OverflowStore::new(file, budget_bytes);
        if let Some(run) = &arguments.preload {
            store.set_preload(access_list(run)?);
        }
        let store = Preloaded::start(store).map_err(Failure::host)?;
        let view = store.view();
        return Ok((Box::new(store), Some(view)));
    }
    if name == "ram" {
        if arguments.durable {
            return Err(
                Failure::usage("--durable needs a file, but --store is ram").help("name a file with --store FILE")
            );
        }
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        return Ok((Box::new(RamStore::new(capacity_bytes, budget_bytes)), None));
    }
    if arguments.ram_budget.is_some() {
        return Err(Failure::usage(
            "--ram-budget needs --store ram or --store overflow:FILE; other files have no memory limit",
        ));
    }
    let file = FileStore::open_or_create(&arguments.store, capacity_bytes, durability)?;
    Ok((Box::new(file), None))
}

fn open_squashed(
    arguments: &ServeArguments,
    capacity_bytes: u64,
    options: &SquashOptions,
) -> Result<Box<dyn Store>, Failure> {
    let name = arguments.store.to_string_lossy();
    if name.starts_with("overflow:") {
        return Err(Failure::usage("--squash needs --store ram or --store FILE; it does not support overflow:FILE"));
    }
    if name == "ram" {
        if arguments.durable {
            return Err(
                Failure::usage("--durable needs a file, but --store is ram").help("name a file with --store FILE")
            );
        }
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        return Ok(Box::new(SquashStore::in_memory(capacity_bytes, budget_bytes, options)));
    }
    if arguments.ram_budget.is_some() {
        return Err(Failure::usage(
            "--ram-budget needs --store ram or --store overflow:FILE; other files have no memory limit",
        ));
    }
    let path = Path::new(&arguments.store);
    Ok(Box::new(SquashStore::open_or_create(path, capacity_bytes, options)?))
}

/// A range in the list of accesses, and in the vector that it is made of.
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
