//! Interface extensions: a background scan beside the load, and writes to any of several places.

use std::hash::{DefaultHasher, Hash, Hasher};

use chronodisk_device::{BackgroundDone, BackgroundRead, BackgroundTime, PlacingOptions};
use chronodisk_engine::ModelPort;
use chronodisk_engine::protocol::BackgroundReads;
use chronodisk_report::{BackgroundScan, Summary};
use chronodisk_run::model_lost;
use chronodisk_sim::{RequestRecord, SECTOR_BYTES};
use clap::{Args, ValueEnum};

use crate::failure::Failure;

/// Requests that no drive's interface has today.
#[derive(Clone, Copy, Debug, Args)]
pub struct ExtensionArguments {
    /// Scans the whole device beside the load, without a delay of its requests: in the rotational latency of these
    /// (gaps), or also on the track where the arm rests (gaps-and-rest). Needs a profile of kind disk, or an exec:
    /// model with background requests
    #[arg(long, value_name = "WHEN", conflicts_with = "write_anywhere")]
    pub background_scan: Option<When>,

    /// Keeps this share of the device in use at random places, and writes each block to any of PLACES free ones near
    /// the last (default: 256). A block has --block-size
    #[arg(long, value_name = "USED[:PLACES]", value_parser = write_anywhere)]
    pub write_anywhere: Option<WriteAnywhere>,
}

/// When a background scan reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    Gaps,
    GapsAndRest,
}

impl When {
    pub fn name(self) -> &'static str {
        match self {
            When::Gaps => "gaps",
            When::GapsAndRest => "gaps-and-rest",
        }
    }

    fn time(self) -> BackgroundTime {
        match self {
            When::Gaps => BackgroundTime::Gaps,
            When::GapsAndRest => BackgroundTime::GapsAndRest,
        }
    }
}

/// A share of the device in use, and the places of a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WriteAnywhere {
    pub used: f64,
    pub places: usize,
}

const PLACES: usize = 256;

fn write_anywhere(text: &str) -> Result<WriteAnywhere, String> {
    let (used, places) = match text.split_once(':') {
        Some((used, places)) => (used, places.parse::<usize>().ok()),
        None => (text, Some(PLACES)),
    };
    let used = used.parse::<f64>().ok().filter(|used| *used > 0.0 && *used <= 0.99);
    let places = places.filter(|places| (1..=chronodisk_device::PLACES_MAX).contains(places));
    match (used, places) {
        (Some(used), Some(places)) => Ok(WriteAnywhere { used, places }),
        _ => Err("expected a share above 0 and at most 0.99, and 1 to 4096 places, such as 0.8 or 0.8:64".to_owned()),
    }
}

impl WriteAnywhere {
    /// The host that chooses places, on a device.
    pub fn surround(self, port: ModelPort, block_bytes: u64, seed: u64) -> Result<ModelPort, Failure> {
        let options = PlacingOptions { block_bytes, used: self.used, places: self.places, seed };
        port.with_placing(options).map_err(|problem| Failure::usage(format!("--write-anywhere: {problem}")))
    }
}

/// Asks the device for a scan.
pub fn begin_scan(port: &mut ModelPort, when: When) -> Result<(), Failure> {
    let (name, capacity_sectors) = (port.info().name.clone(), port.info().capacity_sectors);
    if port.want(&BackgroundRead::whole(capacity_sectors, when.time())).map_err(model_lost)? {
        return Ok(());
    }
    Err(Failure::usage(format!("--background-scan: {name} can't read in the gaps of other requests"))
        .help("a profile of kind disk can: `chronodisk devices` lists them"))
}

/// The figures of a scan after the load, and of the load without it.
pub fn end_scan(
    port: &mut ModelPort,
    when: When,
    beside: &Foreground,
    alone: (&Foreground, &Summary),
) -> Result<BackgroundScan, Failure> {
    let (now, capacity_sectors) = (port.now(), port.info().capacity_sectors);
    let BackgroundReads { wanted_sectors, media_bytes_per_s: media, done } =
        port.take_background().map_err(model_lost)?;
    let sectors: u64 = done.iter().map(|done: &BackgroundDone| u64::from(done.sectors)).sum();
    let ended = if wanted_sectors == 0 { done.last().map_or(now, |last| last.at) } else { now };
    let (bytes, seconds) = (sectors * SECTOR_BYTES, ended.as_secs_f64());
    let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
    Ok(BackgroundScan {
        when: when.name().to_owned(),
        bytes,
        share_of_device: sectors as f64 / capacity_sectors as f64,
        seconds,
        mb_per_s: rate / 1e6,
        media_mb_per_s: media / 1e6,
        share_of_media: rate / media,
        latency_alone_us: alone.1.service_time_us,
        foreground_is_equal: *beside == *alone.0,
    })
}

/// Arrivals and completions of a load, condensed for a comparison.
#[derive(Clone, Debug, Default)]
pub struct Foreground {
    hash: DefaultHasher,
    count: u64,
}

impl Foreground {
    pub fn add(&mut self, record: &RequestRecord) {
        self.count += 1;
        (record.arrival, record.completed, record.lba, record.status).hash(&mut self.hash);
    }
}

impl PartialEq for Foreground {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.hash.finish()) == (other.count, other.hash.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_and_places_are_read() {
        assert_eq!(write_anywhere("0.8"), Ok(WriteAnywhere { used: 0.8, places: 256 }));
        assert_eq!(write_anywhere("0.5:4"), Ok(WriteAnywhere { used: 0.5, places: 4 }));
        for wrong in ["", "0", "1", "-0.5", "nan", "0.5:", "0.5:0", "0.5:5000", "0.5:4:4"] {
            assert!(write_anywhere(wrong).is_err(), "{wrong}");
        }
    }
}
