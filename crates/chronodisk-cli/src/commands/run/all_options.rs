//! All options of a run, as its result has them.

use std::collections::BTreeMap;

use chronodisk_guest::{RunOptions, StoreChoice};
use chronodisk_sim::Nanos;
use serde_json::{Value, json};

use super::{GuestArguments, value_name};
use crate::reps::Reps;

/// All options as they took effect, by the names of their flags.
pub(super) fn all_options(arguments: &GuestArguments, options: &RunOptions) -> BTreeMap<String, Value> {
    let idle = arguments.idle.map(value_name);
    let reps = match arguments.reps {
        Reps::Fixed(count) => json!(count),
        Reps::Auto => json!("auto"),
    };
    let device = match arguments.device.as_slice() {
        [one] => json!(one),
        several => json!(several),
    };
    let entries: [(&str, Value); 37] = [
        ("device", device),
        ("server", json!(arguments.elsewhere.server)),
        ("no-speculation", json!(arguments.elsewhere.no_speculation)),
        ("fs", json!(arguments.fs.name())),
        ("overwrite", json!(arguments.overwrite)),
        ("capacity", json!(arguments.capacity)),
        ("state", json!(arguments.state)),
        ("device-speed", json!(arguments.device_speed.unwrap_or_default().factor())),
        ("mount", json!(arguments.mount)),
        ("root", json!(value_name(arguments.root))),
        ("root-files", json!(arguments.root_files)),
        ("memory", json!(arguments.memory)),
        ("mkfs-options", json!(arguments.mkfs_options)),
        ("mount-options", json!(arguments.mount_options)),
        ("mount-type", json!(arguments.mount_type)),
        ("scheduler", json!(options.scheduler)),
        ("reps", reps),
        ("clock", json!(value_name(arguments.clock))),
        ("cpu", json!(options.time.cpu_name())),
        ("kernel", json!(arguments.kernel)),
        ("module", json!(arguments.modules)),
        ("kernel-scale", json!(options.time.measured_cpu().map(|cpu| cpu.costs.other_scale))),
        ("cpu-speed", json!(arguments.cpu_speed)),
        ("idle", json!(idle)),
        ("seed", json!(arguments.seed)),
        ("start-time", json!(arguments.start_time)),
        ("store", json!(arguments.store.to_string_lossy())),
        ("durable", json!(arguments.durable)),
        (
            "ram-budget",
            json!(match options.devices[0].store {
                StoreChoice::Ram { budget_bytes } => Some(budget_bytes * options.devices.len() as u64),
                StoreChoice::Squashed { image: None, budget_bytes, .. } => {
                    Some(budget_bytes * options.devices.len() as u64)
                }
                StoreChoice::File { .. } | StoreChoice::Squashed { .. } => None,
            }),
        ),
        ("sample-every", json!(arguments.sample_every.map(Nanos::as_nanos))),
        ("host-writes", json!(arguments.host_writes)),
        ("drop-caches", json!(arguments.drop_caches)),
        ("check", json!(arguments.check)),
        ("model-delay", json!([options.model_delay.start().as_nanos(), options.model_delay.end().as_nanos()])),
        ("store-rate", json!(arguments.store_rate)),
        ("clock-disturbance", json!(options.clock_disturbance.as_nanos())),
        ("json", json!(arguments.json)),
    ];
    let mut all = entries.map(|(name, value)| (name.to_owned(), value)).into();
    arguments.squash.all_options(&mut all);
    all
}
