//! DiskSim 4.0 parameter files (Bucy, Schindler, Schlosser, Ganger: "The DiskSim Simulation Environment Version 4.0
//! Reference Manual", CMU-PDL-08-101).
//!
//! A `.parv` file describes an experiment: components, their connections, a workload. [`import`] takes the one device
//! at the end of its topology, with the times that its bus and controller add:
//!
//! - [`syntax`] parses the file and the files that it sources into a tree with the place of every node;
//! - `reader` takes typed parameters out of it by name, and refuses unrequested ones;
//! - `disk` makes [`DiskParameters`] of a drive, `mems` [`MemsParameters`] of a MEMS device;
//! - `unused` lists known parameters without an effect on the device, with reasons.
//!
//! Properties in a file that the device will not have (a host's scheduler, an array, a controller's cache) are
//! [`Warning`]s. A file without a topology, such as a `.diskspecs`, is imported if it defines a single device.

mod common;
mod controller;
mod disk;
mod layout_g4;
pub mod lexer;
mod mems;
mod reader;
mod seek;
pub mod syntax;
mod unused;

use std::fmt::Write as _;
use std::path::Path;

use chronodisk_device::disk::{DiskParameters, Drive, Picos, ProfileHeading, limits, write_profile};
use chronodisk_device::{Profile, ProfileError, Validation};
use chronodisk_sim::{SECTOR_BYTES, TextFile};
use common::{BusTimes, Surroundings};
use lexer::{Resolver, SourceFile};
pub use mems::MemsParameters;
pub use reader::Warning;
use reader::{Definitions, Reader, Shape};
pub use seek::{SeekFile, parse_seek_curve};
use syntax::{Block, Component, Name, ParameterFile};

/// An imported device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The name of the block that describes the device.
    pub name: String,
    /// The device.
    pub device: Imported,
    /// The files that were read, the top one first.
    pub files: Vec<String>,
    /// Properties in the files that the device lacks.
    pub warnings: Vec<Warning>,
}

/// The kinds of devices that are imported.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Imported {
    /// `disksim_disk`.
    Disk(Box<DiskParameters>),
    /// `memsmodel_mems`.
    Mems(Box<MemsParameters>),
}

/// Modules of devices.
const DEVICES: [&str; 2] = ["disksim_disk", "memsmodel_mems"];
/// Modules of components between a device and the host, and of parts of a device.
const COMPONENTS: [&str; 11] = [
    "disksim_iodriver",
    "disksim_bus",
    "disksim_ctlr",
    "disksim_logorg",
    "disksim_ioqueue",
    "disksim_cachemem",
    "disksim_cachedev",
    "dm_disk",
    "dm_layout_g1",
    "dm_layout_g1_zone",
    "dm_mech_g1",
];
/// Devices that the syntax can describe and that are not imported.
const OTHER_DEVICES: [&str; 2] = ["disksim_simpledisk", "ssdmodel_ssd"];

/// Imports the device described by `top`; `resolve` provides the files that it names.
///
/// # Errors
/// The first error, with file, line and the value expected: syntax, an unknown parameter (with the nearest known name),
/// an impossible value, an unsupported device, no device or several different ones.
pub fn import(top: SourceFile, resolve: &mut Resolver<'_>) -> Result<Import, ProfileError> {
    let mut files = vec![top.label.clone()];
    let resolve: &mut Resolver<'_> = &mut |name: &str, from: &str| {
        let file = resolve(name, from)?;
        if !files.contains(&file.label) {
            files.push(file.label.clone());
        }
        Ok(file)
    };
    let file = syntax::parse(top, resolve)?;
    let definitions = Definitions::new(&file)?;
    for block in definitions.blocks() {
        check_module(&definitions, block)?;
    }
    let (block, around) = match definitions.topology() {
        Some(topology) => attached(&definitions, topology)?,
        None => (only_device(&file, &definitions)?, Surroundings::default()),
    };
    let reader = definitions.reader(block)?;
    let device = match definitions.module_of(block)?.text.as_str() {
        "disksim_disk" => Imported::Disk(Box::new(disk::disk(reader, around, resolve)?)),
        "memsmodel_mems" => Imported::Mems(Box::new(mems::mems(reader, around)?)),
        other => {
            let message =
                format!("devices of the module `{other}` are not imported; expected {}", DEVICES.join(" or "));
            return Err(file.error(block.kind.place, message));
        }
    };
    let name = block.name.as_ref().unwrap_or(&block.kind).text.clone();
    let warnings = definitions.into_warnings();
    Ok(Import { name, device, files, warnings })
}

/// Descriptive fields of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The profile's name.
    pub name: String,
    /// The device, in one sentence.
    pub description: String,
    /// Source of the device's figures.
    pub source: String,
    /// Validation of the device.
    pub validation: Validation,
}

impl Import {
    /// Default description of the device's profile: the name of the first file, and the note that it was not compared
    /// with a device.
    #[must_use]
    pub fn describe(&self) -> Description {
        let first = self.file_names().next().unwrap_or("device").to_ascii_lowercase();
        let stem = first.rsplit_once('.').map_or(first.as_str(), |(stem, _)| stem);
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let name: String = stem.chars().map(plain).take(64).collect();
        let name = name.trim_matches('-');
        let files: Vec<&str> = self.file_names().collect();
        Description {
            name: if name.is_empty() { "imported".to_owned() } else { name.to_owned() },
            description: format!("{}, imported from DiskSim's parameters", self.name),
            source: format!("DiskSim 4.0 parameter files {}", files.join(", ")),
            validation: Validation::Unvalidated,
        }
    }

    /// The device as a profile: TOML in which every key is explained.
    ///
    /// # Errors
    /// A device without capacity, or a description that a profile can't have (its name, say).
    pub fn to_profile(&self, description: &Description) -> Result<String, ProfileError> {
        let files: Vec<&str> = self.file_names().collect();
        let mut comment =
            format!("Imported by `chronodisk devices import` from the block {} of {}.", self.name, files.join(", "));
        for warning in &self.warnings {
            let at = warning.at.rsplit(['/', '\\']).next().unwrap_or_default();
            let _ = write!(comment, "\n{at}: {}", warning.message);
        }
        let text = match &self.device {
            Imported::Disk(parameters) => {
                let drive =
                    Drive::new(parameters).map_err(|wrong| ProfileError::whole(&self.files[0], wrong.to_string()))?;
                let heading = ProfileHeading {
                    comment,
                    name: description.name.clone(),
                    description: description.description.clone(),
                    source: description.source.clone(),
                    validation: description.validation,
                    capacity_bytes: drive.capacity_blocks() * SECTOR_BYTES,
                };
                write_profile(&heading, parameters)
            }
            Imported::Mems(parameters) => mems::profile(&comment, description, parameters),
        };
        Profile::parse(&text, "the imported profile")?;
        Ok(text)
    }

    /// The files' names without their folders.
    fn file_names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|label| label.rsplit(['/', '\\']).next().unwrap_or_default())
    }
}

/// Imports the device described by the file at `path`. Files named in it are searched beside the file that names them,
/// then beside the first one, and at last there by name without folders, because files are often moved together without
/// their folders.
/// # Errors
/// Like [`import`], and a file that can't be read.
pub fn import_file(path: &Path) -> Result<Import, ProfileError> {
    let label = path.display().to_string();
    let text = read(path).map_err(|problem| ProfileError::whole(&label, format!("can't read the file: {problem}")))?;
    let beside = |file: &Path| file.parent().unwrap_or(Path::new("")).to_owned();
    let mut resolve = |name: &str, from: &str| {
        let folders = [beside(Path::new(from)), beside(path)];
        let base = name.rsplit(['/', '\\']).next().unwrap_or(name);
        let candidates = [folders[0].join(name), folders[1].join(name), folders[0].join(base), folders[1].join(base)];
        let found = candidates.iter().find(|candidate| candidate.exists()).unwrap_or(&candidates[0]);
        Ok(SourceFile { label: found.display().to_string(), text: read(found)? })
    };
    import(SourceFile { label: label.clone(), text }, &mut resolve)
}

/// The text of a regular file of acceptable length.
fn read(path: &Path) -> Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let bytes = TextFile::DeviceDescription.read_bytes(file).map_err(|error| error.to_string())?;
    text_of(bytes).ok_or_else(|| "it is no text".to_owned())
}

/// Decodes UTF-8, or the Latin-1 of older files' comments; `None` if it is neither.
fn text_of(bytes: Vec<u8>) -> Option<String> {
    let text =
        String::from_utf8(bytes).unwrap_or_else(|error| error.as_bytes().iter().map(|&b| char::from(b)).collect());
    (!text.contains('\0')).then_some(text)
}

/// Checks the parameters of the experiment's modules, and that every other module is known.
fn check_module<'a>(definitions: &'a Definitions<'a>, block: &'a Block) -> Result<(), ProfileError> {
    if let Some(checked) = unused::check(definitions, block) {
        return checked;
    }
    let module = definitions.module_of(block)?;
    if module.text == "disksim_logorg" {
        return organisation(definitions.reader(block)?);
    }
    let known = || DEVICES.iter().chain(&COMPONENTS).chain(&OTHER_DEVICES).copied();
    if known().any(|known| known == module.text) {
        return Ok(());
    }
    let names = known().chain(unused::MODULES.iter().map(|unused| unused.module));
    let message = format!("unknown type of block `{}`", lexer::shown(&module.text));
    let error = definitions.file.error(module.place, message);
    Err(reader::suggesting(error, &module.text, names))
}

/// The one device of a file without a topology.
fn only_device<'a>(file: &'a ParameterFile, definitions: &Definitions<'a>) -> Result<&'a Block, ProfileError> {
    let mut devices = Vec::new();
    for block in definitions.blocks() {
        let module = &definitions.module_of(block)?.text;
        if DEVICES.iter().chain(&OTHER_DEVICES).any(|device| device == module) {
            devices.push(block);
        }
    }
    match devices.as_slice() {
        [device] => {
            definitions.warn(device.kind.place, "no topology: the bus to the host adds nothing to the device's times");
            Ok(device)
        }
        [] => Err(ProfileError::whole(&file.labels[0], "no topology and no device; expected one of them")),
        _ => {
            let names: Vec<&str> =
                devices.iter().map(|device| device.name.as_ref().unwrap_or(&device.kind).text.as_str()).collect();
            let message = format!("no topology says which of the devices {} is meant", names.join(", "));
            Err(ProfileError::whole(&file.labels[0], message))
        }
    }
}

/// The device at the end of the topology, with the components between it and the host.
fn attached<'a>(
    definitions: &'a Definitions<'a>,
    topology: &'a Component,
) -> Result<(&'a Block, Surroundings), ProfileError> {
    let mut ends: Vec<(&'a Name, &'a Block, Surroundings)> = Vec::new();
    descend(definitions, topology, Surroundings::default(), &mut ends)?;
    let Some((first_name, first, around)) = ends.first().copied() else {
        let message = format!("no device in the topology; expected {}", DEVICES.join(" or "));
        return Err(definitions.file.error(topology.kind.place, message));
    };
    if let Some((name, ..)) = ends.iter().find(|end| !std::ptr::eq(end.1, first)) {
        let message = format!("`{}` and `{}` are different devices; expected one kind", first_name.text, name.text);
        return Err(definitions.file.error(name.place, message));
    }
    if ends.len() > 1 {
        let message = format!("{} devices of this kind are in the topology; one is imported", ends.len());
        definitions.warn(first_name.place, message);
    }
    Ok((first, around))
}

fn descend<'a>(
    definitions: &'a Definitions<'a>,
    component: &'a Component,
    mut around: Surroundings,
    ends: &mut Vec<(&'a Name, &'a Block, Surroundings)>,
) -> Result<(), ProfileError> {
    let block = definitions.block_of(&component.name)?;
    let module = definitions.module_of(block)?;
    if module.text != component.kind.text {
        let message = format!("`{}` is a {}, not a {}", component.name.text, module.text, component.kind.text);
        return Err(definitions.file.error(component.kind.place, message));
    }
    match module.text.as_str() {
        "disksim_iodriver" => around.single_request = driver(definitions.reader(block)?)?,
        "disksim_bus" => {
            // Blocks cross the buses above at the same time as the one next to the device.
            let (above, place) = (around.bus, block.kind.place);
            around.bus = bus(definitions.reader(block)?)?;
            if above != BusTimes::default() {
                definitions.warn(place, "block times of buses between host and controller are not modelled");
            }
        }
        "disksim_ctlr" => {
            let block_time = controller(definitions.reader(block)?)?;
            if around.bus != BusTimes::default() {
                definitions.warn(block.kind.place, "block times of buses above a controller are not modelled");
            }
            // The bus below is the maximum of its own time and the controller's, so it starts with the latter.
            around = Surroundings { bus: BusTimes::default(), controller_block: block_time, ..around };
        }
        _ => {
            let slower = |time: Picos| time.max(around.controller_block);
            around.bus =
                BusTimes { read_block: slower(around.bus.read_block), write_block: slower(around.bus.write_block) };
            ends.push((&component.name, block, around));
            return Ok(());
        }
    }
    component.below.iter().try_for_each(|below| descend(definitions, below, around, ends))
}

/// Times of a block on a bus.
fn bus(mut reader: Reader<'_>) -> Result<BusTimes, ProfileError> {
    // Sharing and priority matter only between several devices.
    reader.whole("type", 1, 2)?;
    reader.whole("Arbitration type", 1, 5)?;
    if reader.number("Arbitration time", 9)? != 0 {
        reader.warn_at("Arbitration time", "the imported device has its bus for itself");
    }
    let parameters = BusTimes {
        read_block: milliseconds(&mut reader, "Read block transfer time")?,
        write_block: milliseconds(&mut reader, "Write block transfer time")?,
    };
    reader.without_effect("Print stats", Shape::Whole)?;
    reader.finish()?;
    Ok(parameters)
}

/// The controller's time for a block.
fn controller(mut reader: Reader<'_>) -> Result<Picos, ProfileError> {
    if reader.whole("type", 1, 3)? == 3 {
        reader.warn_at("type", "the controller's queue and cache are not part of the imported device");
    }
    if reader.number("Scale for delays", 9)? != 0 {
        reader.warn_at("Scale for delays", "the controller's delays are not part of the imported device");
    }
    let block = milliseconds(&mut reader, "Bulk sector transfer time")?;
    for name in ["Maximum queue length", "Print stats", "Max per-disk pending count"] {
        reader.without_effect(name, Shape::Whole)?;
    }
    // Both belong to controllers of type 3, which cause a warning.
    reader.without_effect("Scheduler", Shape::Block)?;
    reader.without_effect("Cache", Shape::Block)?;
    reader.finish()?;
    Ok(block)
}

/// Whether the driver sends one request at a time.
fn driver(mut reader: Reader<'_>) -> Result<bool, ProfileError> {
    // Reserved for extensions in the reference.
    reader.without_effect("type", Shape::Whole)?;
    if reader.number("Constant access time", 9)? != 0 {
        let message =
            "the reference replaces the device's time by a fixed or traced one; the device is imported as such";
        reader.warn_at("Constant access time", message);
    }
    let single = !reader.flag("Use queueing in subsystem")?;
    queue_in_order(&mut reader, "the host's queue is not part of the imported device")?;
    reader.finish()?;
    Ok(single)
}

/// A queue that the device has in order of arrival only, with a warning where the files ask for another order.
fn queue_in_order(reader: &mut Reader<'_>, warning: &str) -> Result<(), ProfileError> {
    let (_, mut scheduler) = reader.block("Scheduler", &["disksim_ioqueue"])?;
    if scheduler.whole("Scheduling policy", 1, 28)? != 1 {
        scheduler.warn_at("Scheduling policy", warning);
    }
    for name in [
        "Cylinder mapping strategy",
        "Sequential stream scheme",
        "Overlapping request scheme",
        "Scheduling timeout scheme",
        "Timeout time/weight",
    ] {
        scheduler.without_effect(name, Shape::Whole)?;
    }
    for name in ["Write initiation delay", "Read initiation delay"] {
        scheduler.without_effect(name, Shape::Number)?;
    }
    for &(name, shape, _) in unused::QUEUE {
        scheduler.without_effect(name, shape)?;
    }
    scheduler.finish()
}

/// Checks a logical organisation; anything but single devices is warned of.
fn organisation(mut reader: Reader<'_>) -> Result<(), ProfileError> {
    for (name, plain) in [("Distribution scheme", "Asis"), ("Redundancy scheme", "Noredun")] {
        let scheme = reader.word(name, "the name of a scheme")?;
        if scheme != plain {
            reader.warn_at(name, format!("`{}`: an array is not imported, its device alone is", lexer::shown(scheme)));
        }
    }
    for name in ["Addressing mode", "Components", "Time stamp file name"] {
        reader.without_effect(name, Shape::Word)?;
    }
    reader.without_effect("devices", Shape::List)?;
    for name in [
        "Stripe unit",
        "Synch writes for safety",
        "Number of copies",
        "Copy choice on read",
        "Parity stripe unit",
        "Parity rotation type",
    ] {
        reader.without_effect(name, Shape::Whole)?;
    }
    for name in ["RMW vs. reconstruct", "Time stamp interval", "Time stamp start time", "Time stamp stop time"] {
        reader.without_effect(name, Shape::Number)?;
    }
    reader.finish()
}

fn milliseconds(reader: &mut Reader<'_>, name: &'static str) -> Result<Picos, ProfileError> {
    let picos = reader.number(name, 9)?;
    if !(0..=limits::TIME_PICOS).contains(&picos) {
        return Err(reader.error_at(name, "expected 0 to 10000 milliseconds"));
    }
    Ok(Picos(picos))
}

#[cfg(test)]
mod tests;
