//! Profiles: TOML files that name a kind of model and give its parameters, with units and sources.
//!
//! Every profile has these keys, and those of its kind (described with each model):
//!
//! ```toml
//! name = "my-device"             # letters, digits and dashes
//! kind = "constant"              # null, constant, table, nvram, simple-disk, disk
//! description = "A device that takes 3 ms for everything"
//! source = "made up for this page"
//! validation = "by-definition"   # by-definition, unvalidated, published or measured
//! capacity = "8 GiB"             # a multiple of the logical block
//! logical-block = "512 B"        # optional; a power of two from 512 B to 64 KiB
//! physical-block = "4 KiB"       # optional; a power of two from the logical block on
//! longest-stall = "500 ms"       # optional: the device may be busy with itself for so long
//! time = "3 ms"                  # the kind's own
//! ```
//!
//! A number with a dimension is a text with its unit; a bare number is refused, and so is a key that nobody knows. A
//! value may carry its source: `time = { value = "3 ms", source = "data sheet, page 7" }`. Every error says file, line
//! and column.
//!
//! Text from outside is hostile: its length, the number of rows and every value are bounded, and nothing panics.

mod builtin;
mod error;
mod fields;
mod kinds;
mod members;
mod published;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};
use toml::de::DeTable;

pub use builtin::BuiltinProfile;
pub use error::ProfileError;
pub(crate) use fields::Fields;
pub(crate) use members::MemberProfiles;
pub use published::{HeldOut, Published, PublishedRate};

use crate::footprint;
use crate::models::array;
use crate::models::disk::Drive;
use crate::models::ssd::{FlashDrive, Ftl};
use crate::quantity::Bytes;
use crate::queued::{QueuedDevice, Service};
use crate::{DeviceInfo, DeviceModel, ZoneLayout};
pub(crate) use error::nearest;
use fields::Document;
use members::{MAX_PROFILES, Origin};

/// Most channels that a profile may ask for.
pub(crate) const MAX_CHANNELS: u32 = 65_536;

/// Longest text of a profile, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;

/// How far a profile's timing can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// The profile is its own reference: there is no device that it imitates.
    ByDefinition,
    /// Built from figures that nobody has compared with a device's behaviour.
    Unvalidated,
    /// Compared with published measurements.
    Published,
    /// Compared with measurements of the device itself.
    Measured,
}

impl Validation {
    /// All states, in order of growing trust in an imitation.
    pub const ALL: [Validation; 4] =
        [Validation::ByDefinition, Validation::Unvalidated, Validation::Published, Validation::Measured];

    /// The name used in profiles and listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Validation::ByDefinition => "by-definition",
            Validation::Unvalidated => "unvalidated",
            Validation::Published => "published",
            Validation::Measured => "measured",
        }
    }
}

impl fmt::Display for Validation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a run may change about a profile's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuildOptions {
    /// Capacity in bytes instead of the profile's; a disk can be made smaller (it then uses its outermost sectors and
    /// keeps its mechanics: a short-stroked disk), not larger than its geometry (but see [`Profile::reaching`]).
    pub capacity_bytes: Option<u64>,
    /// Seed of the model's random streams.
    pub seed: u64,
}

/// Most devices that [`Profile::reaching`] puts in a row: 100 TiB of devices of 2 GB.
pub const MOST_IN_A_ROW: u64 = 65_536;

/// A profile that has been read and checked.
#[derive(Clone)]
pub struct Profile(Arc<Parsed>);

struct Parsed {
    file: String,
    text: String,
    kind: &'static str,
    description: String,
    source: String,
    validation: Validation,
    info: DeviceInfo,
    blueprint: Blueprint,
    published: Option<Published>,
    held_out: Vec<HeldOut>,
    longest_stall: Option<Nanos>,
    /// Most memory that the device takes, at the profile's capacity, in bytes.
    memory_bytes_max: u64,
}

impl Profile {
    /// The built-in profile of that name, or the profile in the file of that path; what contains a `/` or ends in
    /// `.toml` is a path.
    ///
    /// # Errors
    /// No such profile (the help names those most alike), a file that can't be read, or a profile that is wrong.
    pub fn find(name_or_path: &str) -> Result<Profile, ProfileError> {
        if Profile::is_path(name_or_path) {
            let budget = Cell::new(MAX_PROFILES);
            let origin = |directory| Origin::outermost(directory, &budget);
            return Profile::read(Path::new(name_or_path), name_or_path, origin);
        }
        builtin::find(name_or_path).ok_or_else(|| builtin::no_such(name_or_path))
    }

    /// The profile written in `text`; errors mention it as `file_label`. Its members are in the text too or built in.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place.
    pub fn parse(text: &str, file_label: &str) -> Result<Profile, ProfileError> {
        Profile::parse_from(text, file_label, Origin::outermost(None, &Cell::new(MAX_PROFILES)))
    }

    fn parse_from(text: &str, file_label: &str, origin: Origin<'_>) -> Result<Profile, ProfileError> {
        if text.len() > MAX_TEXT_BYTES {
            let limit = Bytes(MAX_TEXT_BYTES as u64);
            return Err(ProfileError::whole(
                file_label,
                format!("longer than {limit}, the most that a profile may have"),
            ));
        }
        let document = Document { file: file_label, text, origin };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().unwrap_or(0..0);
            document.error(&place, error.message().replace('\n', "; "))
        })?;
        let mut fields = Fields::new(&document, table.get_ref(), 0..0);
        let parsed = read_profile(&document, &mut fields)?;
        fields.finish()?;
        let profile = Profile(Arc::new(parsed));
        check_capacity(&profile.0, profile.capacity_bytes())
            .map_err(|problem| Fields::new(&document, table.get_ref(), 0..0).error_at("capacity", problem))?;
        Ok(profile)
    }

    /// The profiles that come with the program. The sixteen devices `wu-tsai-chN-xS` are found by name and not listed.
    #[must_use]
    pub fn builtin() -> &'static [BuiltinProfile] {
        builtin::listing()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.info.name
    }

    /// The kind of its model.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.kind
    }

    /// What it is, in a sentence.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Where its figures come from.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// How far it can be trusted.
    #[must_use]
    pub fn validation(&self) -> Validation {
        self.0.validation
    }

    /// What a data sheet or a paper says of the device.
    #[must_use]
    pub fn published(&self) -> Option<&Published> {
        self.0.published.as_ref()
    }

    /// Errors of its fit on rows that were left out; empty if it was not fitted.
    #[must_use]
    pub fn held_out(&self) -> &[HeldOut] {
        &self.0.held_out
    }

    /// The mean time to move the arm between two blocks anywhere, if the device is a drive with an arm; without head
    /// switches and rotation.
    #[must_use]
    pub fn average_seek(&self) -> Option<Nanos> {
        self.drive().map(|drive| drive.average_seek(self.capacity_bytes() / SECTOR_BYTES))
    }

    /// The age from which on a request goes before all younger ones, if the device has such a bound.
    #[must_use]
    pub fn age_bound(&self) -> Option<Nanos> {
        self.0.blueprint.age_bound
    }

    /// The longest that a device without an age bound is busy with something else than its oldest request, if the
    /// profile states it.
    #[must_use]
    pub fn longest_stall(&self) -> Option<Nanos> {
        self.0.longest_stall
    }

    /// The TOML as it was read, byte for byte, and after it the profiles of the members that it names; parsed again,
    /// it gives the same device, whatever has become of any file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Its smallest addressable unit in bytes.
    pub(crate) fn logical_block_bytes(&self) -> u64 {
        u64::from(self.0.info.logical_block_bytes)
    }

    /// The drive, if the device is of kind `disk`.
    pub(crate) fn drive(&self) -> Option<Arc<Drive>> {
        self.0.blueprint.drive.clone()
    }

    /// Whether the queue of a host's kernel is part of the device: it serves traces, generated workloads and
    /// imitations of another kernel; a real kernel's own queue would count a second time.
    #[must_use]
    pub fn has_host_queue(&self) -> bool {
        self.0.blueprint.host_queue
    }

    /// This device behind the queue of a host's kernel with the elevator `noop`, `deadline`, `cfq` or `c-look` and all
    /// else as in David (the module `host_queue` of the models).
    ///
    /// # Errors
    /// Another elevator, or a profile that is too long to be a member.
    pub fn behind_host_queue(&self, elevator: &str) -> Result<Profile, ProfileError> {
        let name = self.name();
        let text = format!(
            "name = {}\nkind = \"host-queue\"\ndescription = {}\n\
             source = \"Agrawal et al., ACM TOS 7(4), 2012, table I and section 6.2\"\nvalidation = \"{}\"\n\
             member = \"{name}\"\nelevator = {}\n{}",
            members::quoted(name),
            members::quoted(&format!("{name} behind a host's queue")),
            self.validation(),
            members::quoted(elevator),
            members::carry(name, self.text()),
        );
        Profile::parse(&text, &format!("{name} behind a host's queue"))
    }

    /// The device that has this capacity: this one, or, where the capacity is beyond its geometry, as many of it one
    /// after the other (an array of level `linear`, as LVM and md make them) as that takes. More than 64 become a row
    /// of equal rows.
    ///
    /// # Errors
    /// A capacity that takes more than [`MOST_IN_A_ROW`] devices, or a profile that is too long to be a member.
    pub fn reaching(&self, capacity_bytes: u64) -> Result<Profile, ProfileError> {
        if self.0.blueprint.capacity_limit_bytes.is_none_or(|limit| capacity_bytes <= limit) {
            return Ok(self.clone());
        }
        let count = capacity_bytes.div_ceil(self.capacity_bytes());
        if count > MOST_IN_A_ROW {
            return Err(self.refusal(format!(
                "capacity {} takes {count} of this device, which ends at {}; expected at most {MOST_IN_A_ROW}",
                Bytes(capacity_bytes),
                Bytes(self.capacity_bytes()),
            )));
        }
        let (mut row, mut left) = (self.clone(), count);
        while left > 1 {
            let rows = left.div_ceil(array::MAX_MEMBERS as u64);
            row = row.in_a_row(left.div_ceil(rows))?;
            left = rows;
        }
        Ok(row)
    }

    /// So many of this device one after the other.
    fn in_a_row(&self, count: u64) -> Result<Profile, ProfileError> {
        let name = self.name();
        let text = format!(
            "name = {}\nkind = \"array\"\ndescription = {}\nsource = {}\nvalidation = \"{}\"\n\
             level = \"linear\"\nmember = \"{name}\"\ncount = {count}\n{}",
            members::quoted(name),
            members::quoted(&format!("{count} of {name} in a row")),
            members::quoted(self.source()),
            self.validation(),
            members::carry(name, self.text()),
        );
        Profile::parse(&text, &format!("{count} of {name}"))
    }

    /// The capacity in bytes, unless a run asks for another one.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.0.info.capacity_sectors * SECTOR_BYTES
    }

    /// A new device at instant zero.
    ///
    /// # Errors
    /// A capacity that is zero, no multiple of the logical block, or beyond a disk's geometry.
    pub fn build(&self, options: &BuildOptions) -> Result<Box<dyn DeviceModel>, ProfileError> {
        Ok((self.0.blueprint.make)(self.info_with(options)?, options.seed))
    }

    /// Most memory that the device of [`build`](Self::build) takes, in bytes: its tables when they are full, and its
    /// members. It is an upper bound and costs next to nothing to ask for, so that who serves strangers can refuse a
    /// device before it is built.
    ///
    /// What is under way comes on top (some hundred bytes for each request, and for each unit of a request where the
    /// model knows units), and for a fork the parts of the tables that it changes. The text of the profile and what was
    /// read from it are counted once.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn memory_bytes_max(&self, options: &BuildOptions) -> Result<u64, ProfileError> {
        let device_bytes = match options.capacity_bytes {
            None => self.0.memory_bytes_max,
            Some(_) => (self.0.blueprint.memory)(&self.info_with(options)?),
        };
        let text_bytes = footprint::TEXT_FACTOR * self.0.text.len() as u64;
        Ok(device_bytes.saturating_add(text_bytes))
    }

    /// What a member takes of the memory of the device that it is part of; its text is the outer profile's.
    pub(crate) fn member_memory_bytes_max(&self) -> u64 {
        self.0.memory_bytes_max
    }

    /// The properties of the device with these options.
    pub(crate) fn info_with(&self, options: &BuildOptions) -> Result<DeviceInfo, ProfileError> {
        let parsed = &self.0;
        let capacity_bytes = options.capacity_bytes.unwrap_or(self.capacity_bytes());
        check_capacity(parsed, capacity_bytes)
            .map_err(|problem| self.refusal(format!("capacity {}: {problem}", Bytes(capacity_bytes))))?;
        Ok(DeviceInfo { capacity_sectors: capacity_bytes / SECTOR_BYTES, ..parsed.info.clone() })
    }

    /// The device as a flash drive, if it is one.
    pub(crate) fn flash_drive(&self) -> Result<&dyn FlashDrive, ProfileError> {
        let problem = || format!("a device of kind \"{}\" has no state of flash; expected kind \"ssd\"", self.kind());
        self.0.blueprint.flash.as_deref().ok_or_else(|| self.refusal(problem()))
    }

    /// An error about the profile as a whole.
    pub(crate) fn refusal(&self, problem: String) -> ProfileError {
        ProfileError::whole(&self.0.file, problem)
    }

    /// Whether a profile's name is a path.
    fn is_path(name: &str) -> bool {
        name.contains('/') || name.ends_with(".toml")
    }

    /// The profile in a file; `origin` gets the file's directory.
    fn read<'a>(
        path: &'a Path,
        label: &str,
        origin: impl FnOnce(Option<&'a Path>) -> Origin<'a>,
    ) -> Result<Profile, ProfileError> {
        use std::io::Read;
        let failed = |error: std::io::Error| ProfileError::whole(label, format!("can't read the profile: {error}"));
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(MAX_TEXT_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
        let text = String::from_utf8(bytes).map_err(|_| ProfileError::whole(label, "not a text in UTF-8"))?;
        Profile::parse_from(&text, label, origin(path.parent()))
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("kind", &self.kind()).field("info", &self.0.info).finish_non_exhaustive()
    }
}

/// What a kind's reader makes of its parameters.
pub(crate) struct Blueprint {
    make: Box<Make>,
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
    drive: Option<Arc<Drive>>,
    age_bound: Option<Nanos>,
    flash: Option<Arc<dyn FlashDrive>>,
}

/// Makes a device with these properties and this seed.
type Make = dyn Fn(DeviceInfo, u64) -> Box<dyn DeviceModel> + Send + Sync;

/// Most memory that a device with these properties takes, in bytes (the module `footprint`).
type Memory = dyn Fn(&DeviceInfo) -> u64 + Send + Sync;

impl Blueprint {
    /// A device that `make` makes from its properties and a seed, and that takes at most as many bytes of memory as
    /// `memory` says.
    pub(crate) fn new(
        memory: impl Fn(&DeviceInfo) -> u64 + Send + Sync + 'static,
        make: impl Fn(DeviceInfo, u64) -> Box<dyn DeviceModel> + Send + Sync + 'static,
    ) -> Self {
        Blueprint {
            make: Box::new(make),
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

    /// The device takes discards.
    pub(crate) fn with_discard(self) -> Self {
        Blueprint { discard: true, ..self }
    }

    /// The medium turns.
    pub(crate) fn turning(self) -> Self {
        Blueprint { rotational: true, ..self }
    }

    /// Whether a completed write may be lost until a flush.
    pub(crate) fn with_volatile_cache(self, volatile_cache: bool) -> Self {
        Blueprint { volatile_cache, ..self }
    }

    /// What the medium writes without reading before, if that is more than the logical block.
    pub(crate) fn with_physical_block(self, physical_block_bytes: u64) -> Self {
        Blueprint { physical_block_bytes, ..self }
    }

    /// The device is written in zones, in blocks of this size.
    pub(crate) fn with_zones(self, zones: ZoneLayout, logical_block_bytes: u64) -> Self {
        Blueprint { zones: Some(zones), logical_block_bytes, ..self }
    }

    /// No capacity beyond this.
    pub(crate) fn at_most(self, capacity_bytes: u64) -> Self {
        Blueprint { capacity_limit_bytes: Some(capacity_bytes), ..self }
    }
}

/// What a device made of others takes from them.
impl Blueprint {
    /// The capacity where the profile names none, and the most that it may name.
    pub(crate) fn sized(self, capacity_bytes: u64) -> Self {
        let capacity_default = Some(Bytes(capacity_bytes));
        Blueprint { capacity_limit_bytes: Some(capacity_bytes), capacity_default, ..self }
    }

    /// Blocks no smaller than any member's, and turning if one of them does.
    pub(crate) fn over<'a>(self, members: impl Iterator<Item = &'a Profile> + Clone) -> Self {
        let largest = |of: fn(&DeviceInfo) -> u32| {
            members.clone().map(|member| u64::from(of(&member.0.info))).max().unwrap_or(SECTOR_BYTES)
        };
        Blueprint {
            logical_block_bytes: largest(|info| info.logical_block_bytes),
            physical_block_bytes: largest(|info| info.physical_block_bytes),
            rotational: members.clone().any(|member| member.0.info.rotational),
            host_queue: self.host_queue || members.clone().any(Profile::has_host_queue),
            age_bound: self.age_bound.max(members.clone().filter_map(Profile::age_bound).max()),
            ..self
        }
    }

    /// A capacity where the profile names none, and another as the most that it may name.
    pub(crate) fn sized_within(self, default_bytes: u64, most_bytes: u64) -> Self {
        Blueprint { capacity_limit_bytes: Some(most_bytes), ..self.sized(default_bytes) }
    }

    /// The device is this drive and nothing else.
    pub(crate) fn with_drive(self, drive: Arc<Drive>) -> Self {
        Blueprint { drive: Some(drive), ..self }
    }

    /// No request waits longer than this for younger ones.
    pub(crate) fn with_age_bound(self, age_bound: Nanos) -> Self {
        Blueprint { age_bound: Some(age_bound), ..self }
    }

    /// The device is a flash drive: new ones are erased, and others go on from a state.
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

    /// The device has the queue of a host's kernel in it.
    pub(crate) fn with_host_queue(self) -> Self {
        Blueprint { host_queue: true, ..self }
    }
}

/// Reads the keys that every profile has, and those of its kind.
fn read_profile(document: &Document<'_>, fields: &mut Fields<'_>) -> Result<Parsed, ProfileError> {
    let name = fields.text("name")?;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return Err(
            fields.error_at("name", "expected 1 to 64 lower-case letters, digits, dashes, dots and underscores")
        );
    }
    let kind = fields.text("kind")?;
    let Some(kind) = kinds::KINDS.iter().find(|known| known.name == kind) else {
        let names: Vec<&str> = kinds::KINDS.iter().map(|kind| kind.name).collect();
        return Err(fields.error_at("kind", format!("no such kind of model; expected {}", names.join(", "))));
    };
    let description = fields.text("description")?;
    let source = fields.text("source")?;
    let validation = fields.text("validation")?;
    let Some(validation) = Validation::ALL.into_iter().find(|state| state.name() == validation) else {
        let names = Validation::ALL.map(Validation::name).join(", ");
        return Err(fields.error_at("validation", format!("no such state; expected {names}")));
    };
    let given = if fields.has("capacity") { Some(fields.positive("capacity")?) } else { None };
    let blueprint = (kind.parse)(fields)?;
    let Bytes(capacity_bytes) = match given.or(blueprint.capacity_default) {
        Some(capacity) => capacity,
        None => fields.positive("capacity")?,
    };
    let smallest = blueprint.logical_block_bytes;
    let logical = block_size(fields, "logical-block", smallest, smallest)?;
    let physical = block_size(fields, "physical-block", logical.max(blueprint.physical_block_bytes), logical)?;
    let info = DeviceInfo {
        name,
        capacity_sectors: capacity_bytes / SECTOR_BYTES,
        logical_block_bytes: logical as u32,
        physical_block_bytes: physical as u32,
        volatile_cache: blueprint.volatile_cache,
        discard_unit_sectors: blueprint.discard.then_some((logical / SECTOR_BYTES) as u32),
        rotational: blueprint.rotational,
        zones: blueprint.zones,
    };
    if !capacity_bytes.is_multiple_of(logical) {
        return Err(
            fields.error_at("capacity", format!("expected a multiple of the logical block, {}", Bytes(logical)))
        );
    }
    let published = Published::read(fields)?;
    let held_out = HeldOut::read(fields)?;
    let longest_stall = if fields.has("longest-stall") { Some(fields.positive("longest-stall")?) } else { None };
    let (file, text) = (document.file.to_owned(), fields.complete_text());
    // Once for all: a profile may be a member many times over, and its members have members.
    let memory_bytes_max = (blueprint.memory)(&info);
    Ok(Parsed {
        file,
        text,
        kind: kind.name,
        description,
        source,
        validation,
        info,
        blueprint,
        published,
        held_out,
        longest_stall,
        memory_bytes_max,
    })
}

/// A power of two from `smallest` to 64 KiB.
fn block_size(fields: &mut Fields<'_>, key: &'static str, default: u64, smallest: u64) -> Result<u64, ProfileError> {
    let Bytes(bytes) = fields.quantity_or(key, Bytes(default))?;
    if !bytes.is_power_of_two() || bytes < smallest || bytes > LARGEST_BLOCK_BYTES {
        let (least, most) = (Bytes(smallest), Bytes(LARGEST_BLOCK_BYTES));
        return Err(fields.error_at(key, format!("expected a power of two from {least} to {most}")));
    }
    Ok(bytes)
}

const LARGEST_BLOCK_BYTES: u64 = 64 << 10;

/// Whether the device can have this capacity.
fn check_capacity(parsed: &Parsed, capacity_bytes: u64) -> Result<(), String> {
    let block = u64::from(parsed.info.logical_block_bytes);
    if capacity_bytes == 0 {
        return Err(format!("a device has at least one block of {}", Bytes(block)));
    }
    if !capacity_bytes.is_multiple_of(block) {
        return Err(format!("expected a multiple of the logical block, {}", Bytes(block)));
    }
    if let Some(zones) =
        parsed.info.zones.filter(|zones| !(capacity_bytes / SECTOR_BYTES).is_multiple_of(zones.size_sectors))
    {
        return Err(format!("expected a multiple of the size of a zone, {}", Bytes(zones.size_sectors * SECTOR_BYTES)));
    }
    if let Some(limit) = parsed.blueprint.capacity_limit_bytes.filter(|&limit| capacity_bytes > limit) {
        return Err(format!("the device's geometry ends at {}", Bytes(limit)));
    }
    Ok(())
}

/// Reads the fields of a text and refuses those that were not asked for: for the tests of a kind's reader.
#[cfg(test)]
pub(crate) fn with_fields<R>(
    text: &str,
    read: impl FnOnce(&mut Fields<'_>) -> Result<R, ProfileError>,
) -> Result<R, ProfileError> {
    let budget = Cell::new(0);
    let document = Document { file: "test.toml", text, origin: Origin::outermost(None, &budget) };
    let table = DeTable::parse(text).expect("it is TOML");
    let mut fields = Fields::new(&document, table.get_ref(), 0..0);
    let value = read(&mut fields)?;
    fields.finish()?;
    Ok(value)
}

#[cfg(test)]
mod tests;
