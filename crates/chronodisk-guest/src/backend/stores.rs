//! The devices' stores, and the recordings of their changes.

use std::collections::VecDeque;

use chronodisk_engine::ModelPort;
use chronodisk_sim::SECTOR_BYTES;
use chronodisk_squash::{ContentKind, GlobError, JointMemory, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{
    Durability, FileStore, OverlayStore, RamStore, RecordedDevice, Recorder, Recording, RecordingStore, Store,
    StoreError,
};

use super::sampler::ThreadCpuClock;
use super::throttled::ThrottledStore;
use crate::shared::control::BackendSpec;
use crate::shared::device_options::{DeviceOptions, StoreChoice};

fn capacity_bytes(port: &ModelPort) -> u64 {
    port.info().capacity_sectors * SECTOR_BYTES
}

/// The store keeps the device's promises.
pub(crate) fn durability(device: &DeviceOptions, port: &ModelPort) -> Durability {
    Durability { write_through: !port.info().volatile_cache, power_cut: device.durable }
}

/// Begins the recording of a device, if it has one.
pub(crate) fn recorder(device: &DeviceOptions, port: &ModelPort) -> Result<Option<Recorder>, StoreError> {
    let recorded =
        RecordedDevice { capacity_bytes: capacity_bytes(port), logical_block_bytes: port.info().logical_block_bytes };
    device.store_recording.as_ref().map(|path| Recorder::create(path, &recorded)).transpose()
}

/// A device's bytes, wherever they are.
pub(crate) fn open_store(
    device: &DeviceOptions,
    port: &ModelPort,
    recorder: Option<&Recorder>,
    spec: &BackendSpec,
    joint: &mut Joint,
) -> Result<Box<dyn Store>, Box<dyn std::error::Error>> {
    let elsewhere = match port {
        ModelPort::Remote(model) => model.store(),
        ModelPort::Local(_) => None,
    };
    let store = match elsewhere {
        Some(store) => Box::new(store),
        None => open_here(&device.store, capacity_bytes(port), durability(device, port), spec.seed, joint)?,
    };
    let store = match recorder {
        Some(recorder) => Box::new(RecordingStore::new(store, recorder.clone())),
        None => store,
    };
    let mut store = match device.store_rate {
        Some(bytes_per_second) => Box::new(ThrottledStore::new(store, bytes_per_second)),
        None => store,
    };
    if spec.sample_every.is_some() {
        store.measure_cpu(Box::new(ThreadCpuClock));
    }
    Ok(store)
}

/// Shared backing of several squashed devices, so that equal blocks of mirrors are stored once.
pub(crate) enum Joint {
    Nothing,
    Memory(JointMemory),
    /// A store for each device that is not opened yet, in order.
    Image(VecDeque<SquashStore>),
}

impl Joint {
    /// An image belongs to all devices together if it is given for each.
    pub fn of(devices: &[DeviceOptions], ports: &[ModelPort], seed: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let choices = devices.iter().filter_map(|device| match &device.store {
            StoreChoice::Squashed { image, budget_bytes, .. } => Some((image.as_deref(), *budget_bytes)),
            StoreChoice::Ram { .. } | StoreChoice::File { .. } | StoreChoice::Overlay { .. } => None,
        });
        let choices: Vec<_> = choices.collect();
        if choices.len() < 2 || choices.len() < devices.len() {
            return Ok(Joint::Nothing);
        }
        let image = choices[0].0;
        if choices.iter().any(|choice| choice.0 != image) {
            return Ok(Joint::Nothing);
        }
        let Some(path) = image else {
            let budget_bytes = choices.iter().fold(0_u64, |sum, choice| sum.saturating_add(choice.1));
            return Ok(Joint::Memory(JointMemory::new(budget_bytes)));
        };
        // All devices get the strongest promise of any.
        let each = devices.iter().zip(ports).map(|(device, port)| durability(device, port));
        let together = each.fold(Durability::default(), |all, one| Durability {
            write_through: all.write_through || one.write_through,
            power_cut: all.power_cut || one.power_cut,
        });
        let options = squash_options(&devices[0].store, together, seed)?;
        let capacities_bytes: Vec<u64> = ports.iter().map(capacity_bytes).collect();
        let stores = SquashStore::open_or_create_joint(path, &capacities_bytes, &options)?;
        Ok(Joint::Image(stores.into()))
    }
}

/// Options of the squashing store, if one is chosen.
fn squash_options(
    choice: &StoreChoice,
    durability: Durability,
    seed: u64,
) -> Result<SquashOptions, Box<dyn std::error::Error>> {
    let StoreChoice::Squashed { exact, content, unclassified_bytes, ignore_journal, names, notices, notified, .. } =
        choice
    else {
        return Err("the store is none that squashes".into());
    };
    let content = ContentKind::ALL.into_iter().find(|kind| kind.name() == content);
    Ok(SquashOptions {
        mode: if *exact { SquashMode::Exact } else { SquashMode::Classified },
        content: content.ok_or("a kind of content that is not known")?,
        seed,
        unclassified_bytes: *unclassified_bytes,
        durability,
        ignore_journal: *ignore_journal,
        names: names.iter().map(|rule| rule.parse()).collect::<Result<_, GlobError>>()?,
        notices: *notices,
        notified: *notified,
        ..SquashOptions::default()
    })
}

fn open_here(
    choice: &StoreChoice,
    capacity_bytes: u64,
    durability: Durability,
    seed: u64,
    joint: &mut Joint,
) -> Result<Box<dyn Store>, Box<dyn std::error::Error>> {
    Ok(match choice {
        StoreChoice::Ram { budget_bytes } => Box::new(RamStore::new(capacity_bytes, *budget_bytes)),
        StoreChoice::File { path } => Box::new(FileStore::open_or_create(path, capacity_bytes, durability)?),
        StoreChoice::Overlay { base, difference, budget_bytes } => {
            let mut store = OverlayStore::open(base, capacity_bytes, *budget_bytes)?;
            for change in Recording::open(difference)?.changes() {
                change?.apply(&mut store)?;
            }
            Box::new(store)
        }
        StoreChoice::Squashed { image, budget_bytes, .. } => {
            let options = squash_options(choice, durability, seed)?;
            Box::new(match (image, joint) {
                (_, Joint::Image(stores)) => stores.pop_front().ok_or("more devices than the image has")?,
                (None, Joint::Memory(memory)) => SquashStore::in_joint_memory(capacity_bytes, memory, &options),
                (None, Joint::Nothing) => SquashStore::in_memory(capacity_bytes, *budget_bytes, &options),
                (Some(path), _) => SquashStore::open_or_create(path, capacity_bytes, &options)?,
            })
        }
    })
}
