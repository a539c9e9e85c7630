//! Construction of devices: the result of reading a kind's parameters, and the interface to members.
//!
//! A [`Blueprint`] holds the properties of one kind. A [`Design`] is a blueprint with the properties common to all
//! profiles. The catalog makes designs of profiles, and hands them to kinds with members through [`FindMembers`].

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::disk::Drive;
use super::ssd::{FlashDrive, Ftl, FtlParameters};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::quantity::Bytes;
use crate::queued::{QueuedDevice, Service};
use crate::{DeviceInfo, DeviceModel, ZoneLayout};

/// Changes of a run to a profile's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Capacity in bytes instead of the profile's; a disk can be made smaller (it then uses its outermost sectors and
    /// keeps its mechanics: a short-stroked disk), not larger than its geometry (but see
    /// [`Profile::reaching`](crate::Profile::reaching)). A smaller flash drive has fewer blocks in each plane, and the
    /// same share of spare.
    pub capacity_bytes: Option<u64>,
    /// Seed of the model's random streams.
    pub seed: u64,
    /// Whether the bus of the computer with which the drive was traced (`[host-bus]`) limits its interface. Without
    /// effect on a device that is none such drive, and on members of others.
    pub host_bus: bool,
}

/// Finds the members that a profile names.
pub(crate) trait FindMembers {
    /// The member named by the text under `key`.
    fn one(&mut self, fields: &mut Fields<'_>, key: &'static str) -> Result<Arc<Design>, ProfileError>;

    /// The members named by `members = ["A", "B"]`, or by `member = "A"` and `count = 3`: from one to `most`.
    fn several(&mut self, fields: &mut Fields<'_>, most: usize) -> Result<Vec<Arc<Design>>, ProfileError>;

    /// The devices named by an array of texts under `key`: at most `most`, none if the key is missing.
    fn listed(
        &mut self,
        fields: &mut Fields<'_>,
        key: &'static str,
        most: usize,
    ) -> Result<Vec<Arc<Design>>, ProfileError>;
}

/// A device as its profile describes it, checked: any number can be built.
pub(crate) struct Design {
    /// The profile as errors mention it.
    file: String,
    kind: &'static str,
    info: DeviceInfo,
    blueprint: Blueprint,
    memory_bytes_max: u64,
}

impl Design {
    /// The device with these properties. Its capacity is not checked yet.
    pub(crate) fn new(file: &str, kind: &'static str, info: DeviceInfo, blueprint: Blueprint) -> Self {
        // Once for all: a design may be a member many times over, and its members have members.
        let memory_bytes_max = (blueprint.memory)(&info);
        Design { file: file.to_owned(), kind, info, blueprint, memory_bytes_max }
    }

    /// The device with the smallest blocks and the capacity of its blueprint, which must have one.
    pub(crate) fn with_defaults(file: &str, kind: &'static str, name: &str, blueprint: Blueprint) -> Self {
        let Bytes(capacity_bytes) = blueprint.capacity_default.expect("a device made of others has a capacity");
        let (logical, physical) = (blueprint.logical_block_bytes, blueprint.physical_block_bytes);
        let info = blueprint.info(name.to_owned(), capacity_bytes, logical, physical.max(logical));
        Design::new(file, kind, info, blueprint)
    }

    /// The kind of its model.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Its properties with the profile's capacity.
    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The capacity in bytes, unless a run asks for another one.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.info.capacity_sectors * SECTOR_BYTES
    }

    /// Largest capacity in bytes, if there is a limit.
    pub(crate) fn capacity_limit_bytes(&self) -> Option<u64> {
        self.blueprint.capacity_limit_bytes
    }

    /// Its smallest addressable unit in bytes.
    pub(crate) fn logical_block_bytes(&self) -> u64 {
        u64::from(self.info.logical_block_bytes)
    }

    /// The age at which a request goes before all younger ones, if there is such a bound.
    pub(crate) fn age_bound(&self) -> Option<Nanos> {
        self.blueprint.age_bound
    }

    /// Whether the queue of a host's kernel is part of the device.
    pub(crate) fn has_host_queue(&self) -> bool {
        self.blueprint.host_queue
    }

    /// The drive, if the device is of kind `disk`.
    pub(crate) fn drive(&self) -> Option<Arc<Drive>> {
        self.blueprint.drive.clone()
    }

    /// The flash drive, if the device is one.
    pub(crate) fn flash_drive(&self) -> Result<&dyn FlashDrive, ProfileError> {
        let problem = || format!("a device of kind \"{}\" has no state of flash; expected kind \"ssd\"", self.kind);
        self.blueprint.flash.as_deref().ok_or_else(|| self.refusal(problem()))
    }

    /// Whether the profile has the bus of the computer with which the drive was traced.
    pub(crate) fn has_host_bus(&self) -> bool {
        self.blueprint.on_host_bus.is_some()
    }

    /// A new device at instant zero.
    pub(crate) fn build(&self, options: &BuildOptions) -> Result<Box<dyn DeviceModel>, ProfileError> {
        let on_host_bus = self.blueprint.on_host_bus.as_ref().filter(|_| options.host_bus);
        let make = on_host_bus.unwrap_or(&self.blueprint.make);
        Ok(make(self.info_with(options)?, options.seed))
    }

    /// Most memory that the device of [`build`](Self::build) takes, in bytes, without its profile's text.
    pub(crate) fn memory_bytes_max_with(&self, options: &BuildOptions) -> Result<u64, ProfileError> {
        match options.capacity_bytes {
            None => Ok(self.memory_bytes_max),
            Some(_) => Ok((self.blueprint.memory)(&self.info_with(options)?)),
        }
    }

    /// Like [`memory_bytes_max_with`](Self::memory_bytes_max_with), for the capacity of the profile.
    pub(crate) fn memory_bytes_max(&self) -> u64 {
        self.memory_bytes_max
    }

    /// The properties of the device with these options.
    pub(crate) fn info_with(&self, options: &BuildOptions) -> Result<DeviceInfo, ProfileError> {
        let capacity_bytes = options.capacity_bytes.unwrap_or(self.capacity_bytes());
        self.check_capacity(capacity_bytes)
            .map_err(|problem| self.refusal(format!("capacity {}: {problem}", Bytes(capacity_bytes))))?;
        Ok(DeviceInfo { capacity_sectors: capacity_bytes / SECTOR_BYTES, ..self.info.clone() })
    }

    /// An error about the profile as a whole.
    pub(crate) fn refusal(&self, problem: String) -> ProfileError {
        ProfileError::whole(&self.file, problem)
    }

    /// Checks whether the device can have this capacity.
    pub(crate) fn check_capacity(&self, capacity_bytes: u64) -> Result<(), String> {
        let block = u64::from(self.info.logical_block_bytes);
        if capacity_bytes == 0 {
            return Err(format!("a device has at least one block of {}", Bytes(block)));
        }
        if !capacity_bytes.is_multiple_of(block) {
            return Err(format!("expected a multiple of the logical block, {}", Bytes(block)));
        }
        if let Some(zones) =
            self.info.zones.filter(|zones| !(capacity_bytes / SECTOR_BYTES).is_multiple_of(zones.size_sectors))
        {
            return Err(format!(
                "expected a multiple of the size of a zone, {}",
                Bytes(zones.size_sectors * SECTOR_BYTES)
            ));
        }
        let conventional_bytes = self.info.zones.map_or(0, |zones| zones.conventional_sectors() * SECTOR_BYTES);
        if conventional_bytes >= capacity_bytes {
            return Err(format!("expected more than its conventional zones, {}", Bytes(conventional_bytes)));
        }
        if let Some(limit) = self.blueprint.capacity_limit_bytes.filter(|&limit| capacity_bytes > limit) {
            return Err(format!("the device's geometry ends at {}", Bytes(limit)));
        }
        Ok(())
    }
}

/// Result of reading a kind's parameters.
pub(crate) struct Blueprint {
    make: Box<Make>,
    on_host_bus: Option<Box<Make>>,
    memory: Box<Memory>,
    rotational: bool,
    discard: bool,
    volatile_cache: bool,
    capacity_limit_bytes: Option<u64>,
    capacity_default: Option<Bytes>,
    logical_block_bytes: u64,
    physical_block_bytes: u64,
    host_queue: bool,
    zones: Option<ZoneLayout>,
    torn_write_sectors: Option<u32>,
    drive: Option<Arc<Drive>>,
    age_bound: Option<Nanos>,
    flash: Option<Arc<dyn FlashDrive>>,
}

/// Makes a device with these properties and this seed.
type Make = dyn Fn(DeviceInfo, u64) -> Box<dyn DeviceModel> + Send + Sync;

/// Most memory that a device with these properties takes, in bytes (the module `footprint`).
type Memory = dyn Fn(&DeviceInfo) -> u64 + Send + Sync;

impl Blueprint {
    /// A device made by `make` from its properties and a seed, with `memory` as an upper bound of its memory.
    pub(crate) fn new(
        memory: impl Fn(&DeviceInfo) -> u64 + Send + Sync + 'static,
        make: impl Fn(DeviceInfo, u64) -> Box<dyn DeviceModel> + Send + Sync + 'static,
    ) -> Self {
        Blueprint {
            make: Box::new(make),
            on_host_bus: None,
            memory: Box::new(memory),
            rotational: false,
            discard: false,
            volatile_cache: false,
            capacity_limit_bytes: None,
            capacity_default: None,
            logical_block_bytes: SECTOR_BYTES,
            physical_block_bytes: SECTOR_BYTES,
            host_queue: false,
            zones: None,
            torn_write_sectors: None,
            drive: None,
            age_bound: None,
            flash: None,
        }
    }

    /// A queued device that draws no random numbers.
    pub(crate) fn queued(channels: Option<u32>, service: impl Service + Sync) -> Self {
        let memory_bytes = footprint::DEVICE_BYTES
            .saturating_add(footprint::array_bytes::<Nanos>(channels.unwrap_or(0).into()))
            .saturating_add(size_of_val(&service) as u64);
        let make =
            move |info, _seed| -> Box<dyn DeviceModel> { Box::new(QueuedDevice::new(info, channels, service.clone())) };
        Blueprint::new(move |_info| memory_bytes, make)
    }

    /// The properties of a device with these blocks, in bytes.
    pub(crate) fn info(&self, name: String, capacity_bytes: u64, logical: u64, physical: u64) -> DeviceInfo {
        DeviceInfo {
            name,
            capacity_sectors: capacity_bytes / SECTOR_BYTES,
            logical_block_bytes: logical as u32,
            physical_block_bytes: physical as u32,
            volatile_cache: self.volatile_cache,
            discard_unit_sectors: self.discard.then_some((logical / SECTOR_BYTES) as u32),
            rotational: self.rotational,
            zones: self.zones,
            torn_write_sectors: self.torn_write_sectors,
        }
    }

    /// Whether the device is written in zones.
    pub(crate) fn is_zoned(&self) -> bool {
        self.zones.is_some()
    }

    /// Sets whether requests can fail, and the part of a failed write that is on the medium, in sectors.
    pub(crate) fn failing(self, torn_write_sectors: Option<u32>) -> Self {
        Blueprint { torn_write_sectors, ..self }
    }

    /// The capacity if the profile states none.
    pub(crate) fn capacity_default(&self) -> Option<Bytes> {
        self.capacity_default
    }

    /// The smallest logical block that the profile may state, and the default physical block.
    pub(crate) fn block_bytes(&self) -> (u64, u64) {
        (self.logical_block_bytes, self.physical_block_bytes)
    }

    /// The device takes discards.
    pub(crate) fn with_discard(self) -> Self {
        Blueprint { discard: true, ..self }
    }

    /// Sets how the device is made on the bus of the computer with which it was traced.
    pub(crate) fn with_host_bus(
        self,
        make: impl Fn(DeviceInfo, u64) -> Box<dyn DeviceModel> + Send + Sync + 'static,
    ) -> Self {
        Blueprint { on_host_bus: Some(Box::new(make)), ..self }
    }

    /// The medium turns.
    pub(crate) fn turning(self) -> Self {
        Blueprint { rotational: true, ..self }
    }

    /// Sets whether a completed write may be lost until a flush.
    pub(crate) fn with_volatile_cache(self, volatile_cache: bool) -> Self {
        Blueprint { volatile_cache, ..self }
    }

    /// Sets the medium's smallest write without a read before it, if larger than the logical block.
    pub(crate) fn with_physical_block(self, physical_block_bytes: u64) -> Self {
        Blueprint { physical_block_bytes, ..self }
    }

    /// Makes the device one that is written in zones, in blocks of this size.
    pub(crate) fn with_zones(self, zones: ZoneLayout, logical_block_bytes: u64) -> Self {
        Blueprint { zones: Some(zones), logical_block_bytes, ..self }
    }

    /// No capacity beyond this.
    pub(crate) fn at_most(self, capacity_bytes: u64) -> Self {
        Blueprint { capacity_limit_bytes: Some(capacity_bytes), ..self }
    }
}

/// Properties that a composite takes from its members.
impl Blueprint {
    /// Sets the default capacity, which is also the largest that the profile may state.
    pub(crate) fn sized(self, capacity_bytes: u64) -> Self {
        let capacity_default = Some(Bytes(capacity_bytes));
        Blueprint { capacity_limit_bytes: Some(capacity_bytes), capacity_default, ..self }
    }

    /// Blocks no smaller than any member's, and turning if one of them does.
    pub(crate) fn over(self, members: &[Arc<Design>]) -> Self {
        let largest = |of: fn(&DeviceInfo) -> u32| {
            members.iter().map(|member| u64::from(of(&member.info))).max().unwrap_or(SECTOR_BYTES)
        };
        Blueprint {
            logical_block_bytes: largest(|info| info.logical_block_bytes),
            physical_block_bytes: largest(|info| info.physical_block_bytes),
            rotational: members.iter().any(|member| member.info.rotational),
            // A failed member may fail the whole.
            torn_write_sectors: members.iter().filter_map(|member| member.info.torn_write_sectors).max(),
            host_queue: self.host_queue || members.iter().any(|member| member.blueprint.host_queue),
            age_bound: self.age_bound.max(members.iter().filter_map(|member| member.blueprint.age_bound).max()),
            ..self
        }
    }

    /// Sets the default capacity, and the largest that the profile may state.
    pub(crate) fn sized_within(self, default_bytes: u64, most_bytes: u64) -> Self {
        Blueprint { capacity_limit_bytes: Some(most_bytes), ..self.sized(default_bytes) }
    }

    /// Marks the device as this drive alone.
    pub(crate) fn with_drive(self, drive: Arc<Drive>) -> Self {
        Blueprint { drive: Some(drive), ..self }
    }

    /// No request waits longer than this for younger ones.
    pub(crate) fn with_age_bound(self, age_bound: Nanos) -> Self {
        Blueprint { age_bound: Some(age_bound), ..self }
    }

    /// Sets the number of consecutive accesses to members that a request needs.
    pub(crate) fn in_phases(self, phases: u64) -> Self {
        let age_bound = self.age_bound.map(|bound| Nanos::from_nanos(bound.as_nanos().saturating_mul(phases)));
        Blueprint { age_bound, ..self }
    }

    /// Makes the blueprint of a flash drive: new ones are erased, and others go on from a state.
    pub(crate) fn flash(drive: impl FlashDrive + 'static) -> Self {
        let drive: Arc<dyn FlashDrive> = Arc::new(drive);
        let (erased, measured) = (Arc::clone(&drive), Arc::clone(&drive));
        let make = move |info: DeviceInfo, seed| {
            let ftl = Ftl::new(erased.translation(&info), seed);
            erased.drive(info, seed, ftl)
        };
        let memory = move |info: &DeviceInfo| measured.memory_bytes_max(info);
        Blueprint { flash: Some(drive), ..Blueprint::new(memory, make) }
    }

    /// The device inside a wrapper of `own_bytes`, which `wrap` makes from the device and a seed. The number of
    /// requests that wait in the wrapper is not bounded.
    pub(crate) fn within(
        self,
        own_bytes: u64,
        wrap: impl Fn(Box<dyn DeviceModel>, u64) -> Box<dyn DeviceModel> + Send + Sync + 'static,
    ) -> Self {
        let (make, memory, wrap): (_, _, Arc<Wrap>) = (self.make, self.memory, Arc::new(wrap));
        let flash = self.flash.map(|drive| -> Arc<dyn FlashDrive> {
            Arc::new(WithinFlash { drive, own_bytes, wrap: Arc::clone(&wrap) })
        });
        let on_host_bus = self.on_host_bus.map(|make| -> Box<Make> {
            let wrap = Arc::clone(&wrap);
            Box::new(move |info, seed| wrap(make(info, seed), seed))
        });
        Blueprint {
            make: Box::new(move |info, seed| wrap(make(info, seed), seed)),
            on_host_bus,
            memory: Box::new(move |info| memory(info).saturating_add(own_bytes)),
            drive: None,
            age_bound: None,
            flash,
            ..self
        }
    }

    /// Marks the device as one that contains the queue of a host's kernel.
    pub(crate) fn with_host_queue(self) -> Self {
        Blueprint { host_queue: true, ..self }
    }
}

/// Makes a device from the one in it and a seed.
type Wrap = dyn Fn(Box<dyn DeviceModel>, u64) -> Box<dyn DeviceModel> + Send + Sync;

/// A flash drive within something that passes its requests on.
struct WithinFlash {
    drive: Arc<dyn FlashDrive>,
    own_bytes: u64,
    wrap: Arc<Wrap>,
}

impl FlashDrive for WithinFlash {
    fn translation(&self, info: &DeviceInfo) -> Arc<FtlParameters> {
        self.drive.translation(info)
    }

    fn memory_bytes_max(&self, info: &DeviceInfo) -> u64 {
        self.drive.memory_bytes_max(info).saturating_add(self.own_bytes)
    }

    fn drive(&self, info: DeviceInfo, seed: u64, ftl: Ftl) -> Box<dyn DeviceModel> {
        (self.wrap)(self.drive.drive(info, seed, ftl), seed)
    }
}
