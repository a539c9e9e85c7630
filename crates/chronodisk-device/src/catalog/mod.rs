//! Profiles: TOML files with a kind of model and its parameters, with units and sources.
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
//! Any profile may have a table `[limits]` and tables `[[faults]]` (the modules `limits` and `faults` of the models).
//!
//! A number with a dimension is a text with its unit; a bare number is refused, and so is an unknown key. A value may
//! carry its source: `time = { value = "3 ms", source = "data sheet, page 7" }`. Every error gives file, line and
//! column.
//!
//! Text from outside is hostile: its length, the number of rows and every value are bounded, and no input causes a
//! panic.

mod aged;
mod builtin;
mod kinds;
mod members;
mod published;

use std::cell::Cell;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES, TextFile};
use toml::de::DeTable;

pub use builtin::BuiltinProfile;
pub use published::{HeldOut, Published, PublishedRate};

use crate::fields::{Document, Fields, KeyLog, ProfileError, ProfileKey, toml_string};
use crate::models::blueprint::{Blueprint, BuildOptions, Design};
use crate::models::disk::Drive;
use crate::models::{array, faults, host_queue, limits};
use crate::quantity::Bytes;
use crate::{DeviceModel, footprint};
use kinds::Reader;
use members::{MAX_DEPTH, MAX_PROFILES, MemberProfiles, Nesting, Origin};

/// Longest text of a profile, in bytes.
const MAX_TEXT_BYTES: usize = TextFile::Profile.limit_bytes() as usize;

/// Validation of a profile's timing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validation {
    /// The profile defines the device, so there is nothing to compare it with.
    ByDefinition,
    /// Built from figures without a comparison to a device's behaviour.
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

/// Most devices that [`Profile::reaching`] puts in a row: 100 TiB of devices of 2 GB.
pub const MOST_IN_A_ROW: u64 = 65_536;

/// A profile that has been read and checked.
#[derive(Clone)]
pub struct Profile(Arc<Parsed>);

struct Parsed {
    text: String,
    description: String,
    source: String,
    validation: Validation,
    design: Arc<Design>,
    nesting: Nesting,
    published: Option<Published>,
    held_out: Vec<HeldOut>,
    longest_stall: Option<Nanos>,
    has_limits: bool,
    has_faults: bool,
}

impl Profile {
    /// Finds the built-in profile of that name, or reads the profile at that path. A name with a `/`, or one that ends
    /// in `.toml`, is a path.
    ///
    /// # Errors
    /// If there is no such profile (the help suggests similar names), a file can't be read, or a profile is wrong.
    pub fn find(name_or_path: &str) -> Result<Profile, ProfileError> {
        if Profile::is_path(name_or_path) {
            let budget = Cell::new(MAX_PROFILES);
            let origin = |directory| Origin::outermost(directory, &budget);
            return Profile::read(Path::new(name_or_path), name_or_path, origin);
        }
        builtin::find(name_or_path).ok_or_else(|| builtin::no_such(name_or_path))
    }

    /// The present name of the built-in profile that was called `name` in version 0.1, for a warning.
    #[must_use]
    pub fn renamed(name: &str) -> Option<&'static str> {
        builtin::renamed(name)
    }

    /// Parses a profile; errors mention it as `file_label`. Its members are in the text too, or built in.
    ///
    /// # Errors
    /// The first fault, with its place.
    pub fn parse(text: &str, file_label: &str) -> Result<Profile, ProfileError> {
        Profile::parse_from(text, file_label, Origin::outermost(None, &Cell::new(MAX_PROFILES)), None)
    }

    /// The keys that the readers of this profile request, in order: all keys of its kind, present or not. Keys that
    /// depend on others are included if those others are present.
    #[must_use]
    pub fn keys(&self) -> Vec<ProfileKey> {
        let keys = KeyLog::default();
        let budget = Cell::new(MAX_PROFILES);
        let origin = Origin::outermost(None, &budget);
        Profile::parse_from(self.text(), self.name(), origin, Some(&keys)).expect("this text has been read before");
        keys.into_keys()
    }

    fn parse_from(
        text: &str,
        file_label: &str,
        origin: Origin<'_>,
        keys: Option<&KeyLog>,
    ) -> Result<Profile, ProfileError> {
        if text.len() > MAX_TEXT_BYTES {
            let limit = Bytes(MAX_TEXT_BYTES as u64);
            return Err(ProfileError::whole(
                file_label,
                format!("longer than {limit}, the most that a profile may have"),
            ));
        }
        let document = Document { file: file_label, text, keys };
        let table = DeTable::parse(text).map_err(|error| {
            let place = error.span().unwrap_or(0..0);
            document.error(&place, error.message().replace('\n', "; "))
        })?;
        let mut fields = Fields::new(&document, table.get_ref(), 0..0);
        let parsed = read_profile(&document, &mut fields, origin)?;
        fields.finish()?;
        let profile = Profile(Arc::new(parsed));
        let design = &profile.0.design;
        design
            .check_capacity(design.capacity_bytes())
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
        &self.0.design.info().name
    }

    /// The kind of its model.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.0.design.kind()
    }

    /// Description, one sentence.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// Source of its figures.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Validation of its timing.
    #[must_use]
    pub fn validation(&self) -> Validation {
        self.0.validation
    }

    /// Published figures of the device, from a data sheet or a paper.
    #[must_use]
    pub fn published(&self) -> Option<&Published> {
        self.0.published.as_ref()
    }

    /// Errors of its fit on rows that were left out; empty if it was not fitted.
    #[must_use]
    pub fn held_out(&self) -> &[HeldOut] {
        &self.0.held_out
    }

    /// The mean seek time between two random blocks, without head switches and rotation; `None` without an arm.
    #[must_use]
    pub fn average_seek(&self) -> Option<Nanos> {
        self.drive().map(|drive| drive.average_seek(self.capacity_bytes() / SECTOR_BYTES))
    }

    /// The age at which a request goes before all younger ones; `None` without such a bound.
    #[must_use]
    pub fn age_bound(&self) -> Option<Nanos> {
        self.0.design.age_bound()
    }

    /// The longest time for which a device without an age bound works on other things than its oldest request, if the
    /// profile states it.
    #[must_use]
    pub fn longest_stall(&self) -> Option<Nanos> {
        self.0.longest_stall
    }

    /// The TOML text, byte for byte, followed by the profiles of named members. Parsed again, it gives the same device
    /// without any file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The drive, if the device is of kind `disk`.
    fn drive(&self) -> Option<Arc<Drive>> {
        self.0.design.drive()
    }

    /// Whether the queue of a host's kernel is part of the device: it serves traces, generated workloads and
    /// imitations of another kernel; a real kernel's own queue would count a second time.
    #[must_use]
    pub fn has_host_queue(&self) -> bool {
        self.0.design.has_host_queue()
    }

    /// This device behind the queue of a host's kernel with the elevator `noop`, `deadline`, `cfq` or `c-look` and all
    /// else as in David (the module `host_queue` of the models).
    ///
    /// # Errors
    /// Another elevator, or a profile that is too long to be a member.
    pub fn behind_host_queue(&self, elevator: &str) -> Result<Profile, ProfileError> {
        let blueprint = host_queue::in_front_of(&self.0.design, elevator).map_err(|problem| self.refusal(problem))?;
        let (source, keys) =
            ("Agrawal et al., ACM TOS 7(4), 2012, table I and section 6.2", format!("elevator = \"{elevator}\"\n"));
        self.wrapped(blueprint, "host-queue", &format!("{} behind a host's queue", self.name()), source, &keys)
    }

    /// Whether the profile puts limits or delays around the device.
    #[must_use]
    pub fn has_limits(&self) -> bool {
        self.0.has_limits
    }

    /// This device within limits, given as in `iops=3000,bandwidth=125MiB/s,read-delay=normal:5ms:1ms` (the module
    /// `limits` of the models): its text with a table `[limits]`.
    ///
    /// # Errors
    /// Limits that are wrong, or a profile that has some already.
    pub fn within_limits(&self, limits: &str) -> Result<Profile, ProfileError> {
        let table = limits::option::to_toml(limits).map_err(|problem| ProfileError::whole(limits, problem))?;
        if self.has_limits() {
            return Err(self.refusal("the profile has a table [limits] already".to_owned()));
        }
        self.with_table(&table, limits)
    }

    /// Whether the profile gives the device faults.
    #[must_use]
    pub fn has_faults(&self) -> bool {
        self.0.has_faults
    }

    /// The part of a failed write that is on the medium, in sectors; `None` if no request fails. See
    /// [`DeviceInfo::torn_write_sectors`](crate::DeviceInfo::torn_write_sectors).
    #[must_use]
    pub fn torn_write_sectors(&self) -> Option<u32> {
        self.0.design.info().torn_write_sectors
    }

    /// This device with a further fault, given as in `kind=recovered,every=9,retry-time=1s` (the module `faults` of the
    /// models): its text with a further table `[[faults]]`.
    ///
    /// # Errors
    /// A fault that is wrong, or one too many.
    pub fn with_fault(&self, fault: &str) -> Result<Profile, ProfileError> {
        let table = faults::option::to_toml(fault).map_err(|problem| ProfileError::whole(fault, problem))?;
        self.with_table(&table, fault)
    }

    /// This profile with a further table, which an option gave.
    fn with_table(&self, table: &str, option: &str) -> Result<Profile, ProfileError> {
        let text = self.text();
        let separator = if text.ends_with('\n') { "" } else { "\n" };
        // The user does not know the lines of the joined text.
        Profile::parse(&format!("{text}{separator}{table}"), option).map_err(|error| ProfileError {
            line: None,
            column: None,
            ..error
        })
    }

    /// A device of this capacity: this one, or, if the capacity exceeds its geometry, several of it concatenated (an
    /// array of level `linear`, as in LVM and md). More than 64 become a row of equal rows.
    ///
    /// # Errors
    /// If the capacity needs more than [`MOST_IN_A_ROW`] devices, or the profile is too long to be a member.
    pub fn reaching(&self, capacity_bytes: u64) -> Result<Profile, ProfileError> {
        if self.0.design.capacity_limit_bytes().is_none_or(|limit| capacity_bytes <= limit) {
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

    /// This number of devices, concatenated.
    fn in_a_row(&self, count: u64) -> Result<Profile, ProfileError> {
        let blueprint = array::in_a_row(&self.0.design, count as usize);
        let keys = format!("level = \"linear\"\ncount = {count}\n");
        self.wrapped(blueprint, "array", &format!("{count} of {} in a row", self.name()), self.source(), &keys)
    }

    /// A device of this blueprint with this device as its only member. Its text, which a run records, consists of the
    /// common keys and `keys`; parsed, it gives the same device.
    fn wrapped(
        &self,
        blueprint: Blueprint,
        kind: &'static str,
        description: &str,
        source: &str,
        keys: &str,
    ) -> Result<Profile, ProfileError> {
        let name = self.name();
        members::check(name, &self.0.design).map_err(|problem| self.refusal(problem))?;
        let nesting = self.0.nesting.around();
        let text = format!(
            "name = {}\nkind = \"{kind}\"\ndescription = {}\nsource = {}\nvalidation = \"{}\"\n\
             member = \"{name}\"\n{keys}{}",
            toml_string(name),
            toml_string(description),
            toml_string(source),
            self.validation(),
            members::carry(name, self.text()),
        );
        if text.len() > MAX_TEXT_BYTES || nesting.levels > MAX_DEPTH || nesting.profiles > MAX_PROFILES {
            let limit = Bytes(MAX_TEXT_BYTES as u64);
            return Err(self.refusal(format!(
                "as a member it makes a profile longer than {limit}, of more than {MAX_DEPTH} levels, or of more than \
                 {MAX_PROFILES} profiles"
            )));
        }
        Ok(Profile(Arc::new(Parsed {
            text,
            description: description.to_owned(),
            source: source.to_owned(),
            validation: self.validation(),
            design: Arc::new(Design::with_defaults(description, kind, name, blueprint)),
            nesting,
            published: None,
            held_out: Vec::new(),
            longest_stall: None,
            has_limits: false,
            has_faults: false,
        })))
    }

    /// The capacity in bytes, unless a run asks for another one.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.0.design.capacity_bytes()
    }

    /// Whether it has the bus of the computer with which the drive was traced: see [`BuildOptions::host_bus`].
    #[must_use]
    pub fn has_host_bus(&self) -> bool {
        self.0.design.has_host_bus()
    }

    /// A new device at instant zero.
    ///
    /// # Errors
    /// A capacity that is zero, no multiple of the logical block, or beyond a disk's geometry.
    pub fn build(&self, options: &BuildOptions) -> Result<Box<dyn DeviceModel>, ProfileError> {
        self.0.design.build(options)
    }

    /// Upper bound of the memory of a device made by [`build`](Self::build), in bytes: its full tables, and its
    /// members. It is cheap to compute, so that a server of strangers can refuse a device before building it.
    ///
    /// Requests in progress come on top (some hundred bytes for each, and for each unit where the model knows units),
    /// and for a fork the changed parts of the tables. The profile's text and its parsed form are counted once.
    ///
    /// # Errors
    /// Those of [`build`](Self::build).
    pub fn memory_bytes_max(&self, options: &BuildOptions) -> Result<u64, ProfileError> {
        let device_bytes = self.0.design.memory_bytes_max_with(options)?;
        let text_bytes = footprint::TEXT_FACTOR * self.0.text.len() as u64;
        Ok(device_bytes.saturating_add(text_bytes))
    }

    /// An error about the profile as a whole.
    fn refusal(&self, problem: String) -> ProfileError {
        self.0.design.refusal(problem)
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
        let failed = |error: &dyn fmt::Display| ProfileError::whole(label, format!("can't read the profile: {error}"));
        let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
        let text = TextFile::Profile.read(file).map_err(|error| failed(&error))?;
        Profile::parse_from(&text, label, origin(path.parent()), None)
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("kind", &self.kind())
            .field("info", self.0.design.info())
            .finish_non_exhaustive()
    }
}

/// Reads the keys common to all profiles, and those of its kind.
fn read_profile(document: &Document<'_>, fields: &mut Fields<'_>, origin: Origin<'_>) -> Result<Parsed, ProfileError> {
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
    let (blueprint, nesting) = match kind.reader {
        Reader::Alone(parse) => (parse(fields)?, Nesting::default()),
        Reader::OverMembers(parse) => {
            let mut members = MemberProfiles::new(fields, origin)?;
            let blueprint = parse(fields, &mut members)?;
            (blueprint, members.finish(fields)?)
        }
    };
    let has_faults = fields.has(faults::TABLE);
    let blueprint = faults::within(fields, blueprint)?;
    let has_limits = fields.has(limits::TABLE);
    let blueprint = limits::within(fields, blueprint)?;
    let Bytes(capacity_bytes) = match given.or(blueprint.capacity_default()) {
        Some(capacity) => capacity,
        None => fields.positive("capacity")?,
    };
    let (smallest, physical) = blueprint.block_bytes();
    let logical = block_size(fields, "logical-block", smallest, smallest)?;
    let physical = block_size(fields, "physical-block", logical.max(physical), logical)?;
    let info = blueprint.info(name, capacity_bytes, logical, physical);
    if !capacity_bytes.is_multiple_of(logical) {
        return Err(
            fields.error_at("capacity", format!("expected a multiple of the logical block, {}", Bytes(logical)))
        );
    }
    let published = Published::read(fields)?;
    let held_out = HeldOut::read(fields)?;
    let longest_stall = if fields.has("longest-stall") { Some(fields.positive("longest-stall")?) } else { None };
    let design = Arc::new(Design::new(document.file, kind.name, info, blueprint));
    let text = fields.complete_text();
    Ok(Parsed {
        text,
        description,
        source,
        validation,
        design,
        nesting,
        published,
        held_out,
        longest_stall,
        has_limits,
        has_faults,
    })
}

/// A profile's text without its limits and faults, which have no part in the state of a device.
fn without_surroundings(text: &str) -> String {
    let (mut kept, mut is_outside) = (String::with_capacity(text.len()), false);
    for line in text.split_inclusive('\n') {
        if line.starts_with('[') {
            is_outside = ["[limits]", "[limits.", "[[faults]]"].iter().any(|table| line.starts_with(table));
        }
        if !is_outside {
            kept.push_str(line);
        }
    }
    kept
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

#[cfg(test)]
mod tests;
