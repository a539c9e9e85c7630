//! A block trace as users name one: the folder or id of a run, a log in Parquet, or a file of another tool, compressed
//! with gzip or zstd or not.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use chronodisk_report::{LogInfo, LogReader};
use chronodisk_sim::RequestRecord;
use chronodisk_trace::block::{Format, ReadCounts, Spread, TraceReader};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::{runs, stored};

/// How a trace is read.
#[derive(Clone, Debug, Default, Args)]
pub struct TraceOptions {
    /// Reads the trace in this format (default: found from its first bytes)
    #[arg(long, value_name = "FORMAT", value_parser = format)]
    pub from: Option<Format>,

    /// Reads only the requests of this volume; needed for a command that takes one volume if the trace has several
    #[arg(long, value_name = "VOLUME")]
    pub volume: Option<String>,

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

/// The requests of a trace, one after the other, each read when it is asked for.
pub struct BlockTrace {
    path: PathBuf,
    source: Source,
    ready: VecDeque<RequestRecord>,
    volume: Option<String>,
    /// The device of the volume that is asked for, once a request of it came.
    wanted: Option<u16>,
    ended: bool,
}

enum Source {
    Log(Box<LogReader>),
    Foreign { bytes: Box<dyn Read>, format: Format, reader: Box<TraceReader>, spread: Option<Spread> },
}

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 16;

impl BlockTrace {
    /// Opens a trace.
    pub fn open(name: &str, options: &TraceOptions) -> Result<Self, Failure> {
        let path = path_of(name)?;
        let shown = path.display();
        let failed = |error| Failure::usage(format!("{shown}: can't read the trace: {error}"));
        let mut bytes = decompressed(Box::new(BufReader::new(File::open(&path).map_err(failed)?))).map_err(failed)?;
        let head = head_of(&mut bytes).map_err(failed)?;
        let source = if head.starts_with(b"PAR1") {
            if options.from.is_some() {
                return Err(Failure::usage(format!("{shown} is a log in Parquet; --from can't be used")));
            }
            Source::Log(Box::new(LogReader::open(&path).map_err(Failure::usage)?))
        } else {
            let Some(format) = options.from.or_else(|| Format::detect(&head)) else {
                let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
                return Err(Failure::usage(format!("{shown}: the format of the trace can't be told"))
                    .help(format!("name it with --from: {}", names.join(", "))));
            };
            let reader = TraceReader::new(format).accepting_bad(options.accept_bad);
            let reader = if options.event == Event::Queue { reader.from_queueing() } else { reader };
            let spread = options.spread.map(|seed| Spread::new(format.resolution_ns(), seed));
            let bytes: Box<dyn Read> = Box::new(std::io::Cursor::new(head).chain(bytes));
            Source::Foreign { bytes, format, reader: Box::new(reader), spread }
        };
        let volume = options.volume.clone();
        Ok(BlockTrace { path, source, ready: VecDeque::new(), volume, wanted: None, ended: false })
    }

    /// The file that is read.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the trace says besides its requests, as far as it was read.
    pub fn info(&self) -> LogInfo {
        match &self.source {
            Source::Log(log) => log.info().clone(),
            Source::Foreign { format, reader, .. } => LogInfo {
                format: Some(format.name().to_owned()),
                origin_unix_ns: reader.info().origin_unix_ns,
                resolution_ns: Some(format.resolution_ns()),
                volumes: reader.info().volumes.clone(),
            },
        }
    }

    /// What was counted on the way; nothing for a log.
    pub fn counts(&self) -> ReadCounts {
        match &self.source {
            Source::Log(_) => ReadCounts::default(),
            Source::Foreign { reader, .. } => reader.counts(),
        }
    }

    /// The next request of the volume that is asked for, or of all.
    pub fn next(&mut self) -> Result<Option<RequestRecord>, Failure> {
        loop {
            while let Some(record) = self.ready.pop_front() {
                if self.is_wanted(&record) {
                    return Ok(Some(record));
                }
            }
            if self.ended {
                return match (&self.volume, self.wanted) {
                    (Some(volume), None) => Err(self.no_volume(volume)),
                    _ => Ok(None),
                };
            }
            let mut records = Vec::new();
            self.ended = !self.read(&mut records)?;
            self.ready.extend(records);
        }
    }

    /// An error that names the volumes, if a command that takes one is given several.
    pub fn expect_one_volume(&self, first: u16, other: u16) -> Result<(), Failure> {
        if first == other {
            return Ok(());
        }
        let volumes = self.info().volumes;
        let name = |device: u16| volumes.get(usize::from(device)).cloned().unwrap_or_else(|| device.to_string());
        Err(Failure::usage(format!(
            "{}: the trace has several volumes, {} and {} among them",
            self.path.display(),
            name(first),
            name(other)
        ))
        .help(format!("choose one, such as --volume {}", name(first))))
    }

    fn is_wanted(&mut self, record: &RequestRecord) -> bool {
        let Some(volume) = &self.volume else { return true };
        if self.wanted.is_none() {
            let name = match &self.source {
                Source::Log(log) => log.info().volumes.get(usize::from(record.device)),
                Source::Foreign { reader, .. } => reader.info().volumes.get(usize::from(record.device)),
            };
            let is_it = name.map_or_else(|| record.device.to_string() == *volume, |name| name == volume);
            self.wanted = is_it.then_some(record.device);
        }
        self.wanted == Some(record.device)
    }

    fn no_volume(&self, volume: &str) -> Failure {
        let known = self.info().volumes;
        let failure = Failure::usage(format!("{}: no request of volume {volume}", self.path.display()));
        if known.is_empty() { failure } else { failure.help(format!("its volumes are {}", known.join(", "))) }
    }

    /// Reads some more; false at the end.
    fn read(&mut self, records: &mut Vec<RequestRecord>) -> Result<bool, Failure> {
        let path = self.path.display();
        match &mut self.source {
            Source::Log(log) => match log.next() {
                Some(batch) => {
                    *records = batch.map_err(Failure::usage)?;
                    Ok(true)
                }
                None => Ok(false),
            },
            Source::Foreign { bytes, reader, spread, .. } => {
                let mut piece = vec![0; PIECE_BYTES];
                let read = bytes.read(&mut piece);
                let len = read.map_err(|error| Failure::usage(format!("{path}: can't read the trace: {error}")))?;
                let done = match len {
                    0 => reader.finish(records),
                    len => reader.read(&piece[..len], records),
                };
                done.map_err(|error| Failure::usage(format!("{path}: {error}")))?;
                if let Some(spread) = spread {
                    spread.spread(records);
                    if len == 0 {
                        spread.finish(records);
                    }
                }
                Ok(len > 0)
            }
        }
    }
}

/// The file of a trace: of a run, its first repetition's log.
fn path_of(name: &str) -> Result<PathBuf, Failure> {
    let direct = PathBuf::from(name);
    if direct.exists() && !direct.is_dir() {
        return Ok(direct);
    }
    stored::log_of(&runs::find(name)?)
}

/// The first bytes, as far as a format shows in them.
fn head_of(bytes: &mut Box<dyn Read>) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    bytes.by_ref().take(4096).read_to_end(&mut head)?;
    Ok(head)
}

/// The bytes of a file that may be compressed.
fn decompressed(mut bytes: Box<dyn Read>) -> std::io::Result<Box<dyn Read>> {
    let mut magic = [0; 4];
    let mut len = 0;
    while len < magic.len() {
        match bytes.read(&mut magic[len..])? {
            0 => break,
            read => len += read,
        }
    }
    let whole = std::io::Cursor::new(magic[..len].to_vec()).chain(bytes);
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::stream::read::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}
