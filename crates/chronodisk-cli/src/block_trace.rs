//! A block trace as users name one: the folder or id of a run, a log in Parquet, or a file of another tool.

use std::collections::BTreeMap;
use std::path::PathBuf;

use chronodisk_run::{RunFolder, quantity};
use chronodisk_sweep::{BlockTrace, Placement};
use chronodisk_trace::block::Format;
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// How a trace is read.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceOptions {
    /// Reads the trace in this format (default: found from its first bytes)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub from: Option<Format>,

    /// Reads only the requests of this volume; needed for a command that takes one volume if the trace has several
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,

    /// Puts all volumes of the trace on one device: overlay (all at its beginning), concatenate (one after the other),
    /// or NAME=OFFSET,... with the place of each
    #[arg(long, value_name = "PLACES", value_parser = placement, conflicts_with = "volume")]
    pub volumes: Option<Placement>,

    /// Passes over this number of wrong lines
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub accept_bad: u64,

    /// Begins a request of blktrace or blkparse with this event: D, issue to the driver, or Q, queueing
    #[arg(long, value_name = "EVENT", default_value = "D", ignore_case = true)]
    pub event: Event,

    /// Spreads requests with equal time stamps over the resolution of the trace's clock, at random from this seed
    #[arg(long, value_name = "SEED")]
    pub spread: Option<u64>,
}

impl TraceOptions {
    /// The name of an option that was given, for commands that may have no trace.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.from.is_some(), "--from"),
            (self.volume.is_some(), "--volume"),
            (self.volumes.is_some(), "--volumes"),
            (self.accept_bad > 0, "--accept-bad"),
            (self.event != Event::Issue, "--event"),
            (self.spread.is_some(), "--spread"),
        ];
        given.into_iter().find_map(|(given, name)| given.then_some(name))
    }
}

/// The event with which a request begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Event {
    /// Issue to the driver.
    #[default]
    #[value(name = "D")]
    Issue,
    /// Queueing.
    #[value(name = "Q")]
    Queue,
}

/// The value of an option that names a format.
pub fn format(name: &str) -> Result<Format, String> {
    name.parse()
}

/// Reads the places of a trace's volumes on one device.
fn placement(text: &str) -> Result<Placement, String> {
    match text {
        "overlay" => return Ok(Placement::Overlay),
        "concatenate" => return Ok(Placement::Concatenate),
        _ => {}
    }
    let mut places = BTreeMap::new();
    for place in text.split(',') {
        // Names of volumes may contain an equals sign, offsets can't.
        let (name, offset) = place
            .rsplit_once('=')
            .ok_or_else(|| format!("'{place}'; expected overlay, concatenate, or NAME=OFFSET,..."))?;
        let offset = if offset == "0" { 0 } else { quantity::sector_bytes(offset)? };
        if places.insert(name.to_owned(), offset).is_some() {
            return Err(format!("the volume '{name}' has two places"));
        }
    }
    Ok(Placement::At(places))
}

/// Opens a trace.
pub fn open(name: &str, options: &TraceOptions) -> Result<BlockTrace, Failure> {
    let options = chronodisk_sweep::TraceOptions {
        format: options.from,
        volume: options.volume.clone(),
        placement: options.volumes.clone(),
        accept_bad: options.accept_bad,
        from_queueing: options.event == Event::Queue,
        spread_seed: options.spread,
    };
    Ok(BlockTrace::open(&path_of(name)?, &options)?)
}

/// The file of a trace: of a run, its first repetition's log.
fn path_of(name: &str) -> Result<PathBuf, Failure> {
    let direct = PathBuf::from(name);
    if direct.exists() && !direct.is_dir() {
        return Ok(direct);
    }
    RunFolder::find(name)?.only_log()
}
