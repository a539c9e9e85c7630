//! The devices' models, built in this process or connected to, and the devices as the guest sees them.

use chronodisk_device::{BuildOptions, DeviceInfo, Profile, Speed};
use chronodisk_engine::protocol::Reset;
use chronodisk_engine::remote::{self, Patience, Tell};
use chronodisk_engine::{ModelPort, state_file};
use chronodisk_front::BlkConfig;
use chronodisk_sim::SECTOR_BYTES;

use super::sampler::resident_bytes;
use crate::shared::control::BackendSpec;
use crate::shared::device_options::{DeviceOptions, ModelChoice, StoreChoice};

/// A device's model, local or remote. Its memory on this host is added to `model_bytes`.
pub(crate) fn open_model(
    device: &DeviceOptions,
    spec: &BackendSpec,
    model_bytes: &mut u64,
) -> Result<ModelPort, Box<dyn std::error::Error>> {
    let patience = Patience { answer: spec.patience.0, reconnect: spec.patience.1 };
    let tell: Tell = Box::new(|text| eprintln!("chronodisk: {text}"));
    let reset = Reset {
        seed: spec.seed,
        capacity_bytes: device.capacity_bytes.unwrap_or(0),
        speculate: true,
        ..Reset::default()
    };
    Ok(match &device.model {
        ModelChoice::Profile { text, label } => {
            let profile = Profile::parse(text, label)?;
            let options =
                BuildOptions { capacity_bytes: device.capacity_bytes, seed: spec.seed, ..BuildOptions::default() };
            let before_bytes = resident_bytes();
            let model = state_file::build(&profile, &options, device.state_file.as_deref())?.0;
            *model_bytes += resident_bytes().saturating_sub(before_bytes);
            let speed = Speed::from_factor(device.speed).ok_or("a device's speed is out of range")?;
            ModelPort::Local(speed.apply(model))
        }
        ModelChoice::Server { address, token, tls_certificates, text, label, speculate } => {
            let credentials = remote::Credentials::from_files(token.as_deref(), tls_certificates.as_deref())?;
            let store_budget_bytes = match &device.store {
                StoreChoice::Ram { budget_bytes } => *budget_bytes,
                StoreChoice::File { .. } | StoreChoice::Squashed { .. } | StoreChoice::Overlay { .. } => 0,
            };
            let (label, profile) = (label.clone(), text.clone());
            let reset = Reset { store_budget_bytes, label, profile, speculate: *speculate, ..reset };
            remote::open_server(address, credentials, reset, patience, tell)?.into()
        }
        ModelChoice::Program { command } => remote::open_program(command, reset, patience, tell)?.into(),
    })
}

/// A device as the guest sees it, in blocks of at least this size.
pub(crate) fn shown(info: &DeviceInfo, block_bytes: u32) -> BlkConfig {
    let mut config = BlkConfig::of(info);
    config.logical_block_bytes = config.logical_block_bytes.max(block_bytes);
    config.physical_block_bytes = config.physical_block_bytes.max(block_bytes);
    let block_sectors = config.logical_block_bytes / SECTOR_BYTES as u32;
    config.discard_unit_sectors = config.discard_unit_sectors.map(|unit| unit.next_multiple_of(block_sectors));
    config
}
