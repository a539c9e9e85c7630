//! Reads a block trace from any source: a log in Parquet, another tool's file (optionally compressed with gzip or
//! zstd), or records in memory.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use chronodisk_report::{LogInfo, LogReader, ReportError};
use chronodisk_sim::{Lba, Op, RequestRecord, SECTOR_BYTES};
use chronodisk_trace::block::{Format, ReadCounts, Spread, TraceReader};

use crate::SweepError;

/// Options for reading a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// The format; `None` to detect it from the first bytes.
    pub format: Option<Format>,
    /// Only the requests of this volume.
    pub volume: Option<String>,
    /// The places of the volumes on one device; `None`: each volume is a device of its own.
    pub placement: Option<Placement>,
    /// Number of malformed lines that are skipped.
    pub accept_bad: u64,
    /// Requests of blktrace and blkparse begin when they are queued, not when they are issued.
    pub from_queueing: bool,
    /// Spreads requests with equal time stamps over the resolution of the trace's clock, at random from this seed.
    pub spread_seed: Option<u64>,
}

/// The places of a trace's volumes on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// All at the device's beginning.
    Overlay,
    /// One after the other in the order of their first requests. The length of each is the end of its last request,
    /// rounded up to whole MiB.
    Concatenate,
    /// Each at an offset in bytes, a multiple of 512.
    At(BTreeMap<String, u64>),
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Overlay => f.write_str("overlay"),
            Placement::Concatenate => f.write_str("concatenate"),
            Placement::At(places) => {
                let places: Vec<String> = places.iter().map(|(name, bytes)| format!("{name}={bytes}B")).collect();
                f.write_str(&places.join(","))
            }
        }
    }
}

/// Unit of the concatenated volumes' lengths, in sectors.
const CONCATENATED_SECTORS: u64 = 2_048;
/// The last sector at which a volume may begin.
const PLACE_MAX: u64 = 1 << 54;

/// A log, piece by piece.
pub type Pieces = Box<dyn Iterator<Item = Result<Vec<RequestRecord>, ReportError>> + Send>;

/// The requests of a trace, each read on demand.
pub struct BlockTrace {
    path: PathBuf,
    source: Source,
    ready: VecDeque<RequestRecord>,
    volume: Option<String>,
    /// The device of the requested volume, once a request of it was read.
    wanted: Option<u16>,
    placement: Option<Placement>,
    /// First sectors of the volumes, if all are on one device.
    places: Vec<Option<u64>>,
    ended: bool,
}

enum Source {
    Log { info: LogInfo, pieces: Pieces, claimed: Option<u64> },
    Foreign { bytes: Box<dyn Read + Send>, format: Format, reader: Box<TraceReader>, spread: Option<Spread> },
}

/// Bytes read at once.
const PIECE_BYTES: usize = 1 << 16;

impl BlockTrace {
    /// Opens a file.
    ///
    /// # Errors
    /// If it can't be read, or its format can't be detected.
    pub fn open(path: &Path, options: &TraceOptions) -> Result<Self, SweepError> {
        let path = path.to_owned();
        let shown = path.display();
        let failed = |error| SweepError::Usage(format!("{shown}: can't read the trace: {error}"));
        let mut bytes = decompressed(Box::new(BufReader::new(File::open(&path).map_err(failed)?))).map_err(failed)?;
        let head = head_of(&mut bytes).map_err(failed)?;
        let source = if head.starts_with(b"PAR1") {
            if options.format.is_some() {
                return Err(SweepError::Usage(format!("{shown} is a log in Parquet; --from can't be used")));
            }
            let log = LogReader::open(&path).map_err(|error| SweepError::Usage(error.to_string()))?;
            Source::Log { info: log.info().clone(), claimed: Some(log.claimed_rows()), pieces: Box::new(log) }
        } else {
            if head.is_empty() {
                return Err(SweepError::Usage(format!("{shown}: the file is empty; expected a trace")));
            }
            if let Some((kind, command)) = archive(&head) {
                return Err(SweepError::Usage(format!("{shown}: the file is {kind}; expected a trace"))
                    .help(format!("unpack it first: {command} {shown}")));
            }
            let Some(format) = options.format.or_else(|| Format::detect(&head)) else {
                let names: Vec<&str> = Format::ALL.iter().map(|format| format.name()).collect();
                return Err(SweepError::Usage(format!("{shown}: the format of the trace can't be told"))
                    .help(format!("name it with --from: {}", names.join(", "))));
            };
            let reader = TraceReader::new(format).accepting_bad(options.accept_bad);
            let reader = if options.from_queueing { reader.from_queueing() } else { reader };
            let spread = options.spread_seed.map(|seed| Spread::new(format.resolution_ns(), seed));
            let bytes: Box<dyn Read + Send> = Box::new(std::io::Cursor::new(head).chain(bytes));
            Source::Foreign { bytes, format, reader: Box::new(reader), spread }
        };
        let (volume, placement) = (options.volume.clone(), options.placement.clone());
        let places = match &placement {
            Some(Placement::Concatenate) => concatenated(&path, options)?,
            _ => Vec::new(),
        };
        Ok(BlockTrace { path, source, ready: VecDeque::new(), volume, wanted: None, placement, places, ended: false })
    }

    /// A trace of records in memory, in pieces; `name` is for messages.
    #[must_use]
    pub fn of_records(name: &str, info: LogInfo, pieces: Pieces, volume: Option<String>) -> Self {
        let source = Source::Log { info, pieces, claimed: None };
        let (placement, places) = (None, Vec::new());
        BlockTrace {
            path: name.into(),
            source,
            ready: VecDeque::new(),
            volume,
            wanted: None,
            placement,
            places,
            ended: false,
        }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The trace's metadata, as far as it was read.
    #[must_use]
    pub fn info(&self) -> LogInfo {
        let info = self.info_of_source();
        if self.placement.is_some() { LogInfo { volumes: vec!["all".to_owned()], ..info } } else { info }
    }

    fn info_of_source(&self) -> LogInfo {
        match &self.source {
            Source::Log { info, .. } => info.clone(),
            Source::Foreign { format, reader, .. } => LogInfo {
                format: Some(format.name().to_owned()),
                origin_unix_ns: reader.info().origin_unix_ns,
                resolution_ns: Some(format.resolution_ns()),
                volumes: reader.info().volumes.clone(),
            },
        }
    }

    /// Number of requests that the file's header claims, if it has one.
    #[must_use]
    pub fn claimed_requests(&self) -> Option<u64> {
        match &self.source {
            Source::Log { claimed, .. } => *claimed,
            Source::Foreign { .. } => None,
        }
    }

    /// Counters of the reader; zeros for a log.
    #[must_use]
    pub fn counts(&self) -> ReadCounts {
        match &self.source {
            Source::Log { .. } => ReadCounts::default(),
            Source::Foreign { reader, .. } => reader.counts(),
        }
    }

    /// The next request of the requested volume, or of all volumes.
    ///
    /// # Errors
    /// If the trace can't be read, or is malformed.
    pub fn next_record(&mut self) -> Result<Option<RequestRecord>, SweepError> {
        loop {
            while let Some(record) = self.ready.pop_front() {
                if self.is_wanted(&record) {
                    return self.placed(record).map(Some);
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

    /// Fails with the volumes' names if a command that takes one volume reads several.
    ///
    /// # Errors
    /// If the two devices differ.
    pub fn expect_one_volume(&self, first: u16, other: u16) -> Result<(), SweepError> {
        if first == other {
            return Ok(());
        }
        let volumes = self.info().volumes;
        let name = |device: u16| volumes.get(usize::from(device)).cloned().unwrap_or_else(|| device.to_string());
        Err(SweepError::Usage(format!(
            "{}: the trace has several volumes, {} and {} among them",
            self.path.display(),
            name(first),
            name(other)
        ))
        .help(format!(
            "choose one, such as --volume {}, or put all volumes on one device with --volumes concatenate",
            name(first)
        )))
    }

    /// Moves a request to its volume's place on the one device.
    fn placed(&mut self, mut record: RequestRecord) -> Result<RequestRecord, SweepError> {
        let Some(placement) = &self.placement else { return Ok(record) };
        let index = usize::from(record.device);
        let first = match (placement, self.places.get(index).copied().flatten()) {
            (Placement::Overlay, _) => 0,
            (_, Some(first)) => first,
            (Placement::Concatenate, None) => {
                return Err(SweepError::Usage(format!(
                    "{}: the trace has changed while it was read",
                    self.path.display()
                )));
            }
            (Placement::At(places), None) => {
                let name = self.volume_name(record.device);
                let Some(bytes) = places.get(&name) else {
                    return Err(SweepError::Usage(format!(
                        "{}: --volumes has no offset for the volume {name}",
                        self.path.display()
                    ))
                    .help(format!("add one, such as {name}=100GiB")));
                };
                let first = bytes / SECTOR_BYTES;
                if self.places.len() <= index {
                    self.places.resize(index + 1, None);
                }
                self.places[index] = Some(first);
                first
            }
        };
        if first > PLACE_MAX {
            return Err(SweepError::Usage(format!("{}: a volume begins beyond any device", self.path.display())));
        }
        record.device = 0;
        if record.op != Op::Flush {
            record.lba = Lba(record.lba.0.saturating_add(first));
        }
        Ok(record)
    }

    fn volume_name(&self, device: u16) -> String {
        let name = match &self.source {
            Source::Log { info, .. } => info.volumes.get(usize::from(device)),
            Source::Foreign { reader, .. } => reader.info().volumes.get(usize::from(device)),
        };
        name.cloned().unwrap_or_else(|| device.to_string())
    }

    fn is_wanted(&mut self, record: &RequestRecord) -> bool {
        let Some(volume) = &self.volume else { return true };
        if self.wanted.is_none() {
            let name = match &self.source {
                Source::Log { info, .. } => info.volumes.get(usize::from(record.device)),
                Source::Foreign { reader, .. } => reader.info().volumes.get(usize::from(record.device)),
            };
            let is_it = name.map_or_else(|| record.device.to_string() == *volume, |name| name == volume);
            self.wanted = is_it.then_some(record.device);
        }
        self.wanted == Some(record.device)
    }

    fn no_volume(&self, volume: &str) -> SweepError {
        let known = self.info().volumes;
        let error = SweepError::Usage(format!("{}: no request of volume {volume}", self.path.display()));
        if known.is_empty() { error } else { error.help(format!("its volumes are {}", known.join(", "))) }
    }

    /// Reads more records; returns false at the end.
    fn read(&mut self, records: &mut Vec<RequestRecord>) -> Result<bool, SweepError> {
        let path = self.path.display();
        match &mut self.source {
            Source::Log { pieces, .. } => match pieces.next() {
                Some(piece) => {
                    *records = piece.map_err(|error| SweepError::Usage(error.to_string()))?;
                    Ok(true)
                }
                None => Ok(false),
            },
            Source::Foreign { bytes, reader, spread, .. } => {
                let mut piece = vec![0; PIECE_BYTES];
                let read = bytes.read(&mut piece);
                let len = read.map_err(|error| SweepError::Usage(format!("{path}: can't read the trace: {error}")))?;
                let done = match len {
                    0 => reader.finish(records),
                    len => reader.read(&piece[..len], records),
                };
                done.map_err(|error| SweepError::Usage(error.in_file(path)))?;
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

/// Beginnings of concatenated volumes. Their lengths are known only after reading the whole trace.
fn concatenated(path: &Path, options: &TraceOptions) -> Result<Vec<Option<u64>>, SweepError> {
    if !std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file()) {
        return Err(SweepError::Usage(format!("{}: not a regular file, and read twice", path.display()))
            .help("--volumes NAME=OFFSET,... or overlay reads it once"));
    }
    let mut trace = BlockTrace::open(path, &TraceOptions { placement: None, ..options.clone() })?;
    let mut ends: Vec<u64> = Vec::new();
    while let Some(record) = trace.next_record()? {
        let index = usize::from(record.device);
        if ends.len() <= index {
            ends.resize(index + 1, 0);
        }
        ends[index] = ends[index].max(record.lba.0.saturating_add(u64::from(record.sectors)));
    }
    let mut next = 0_u64;
    Ok(ends
        .into_iter()
        .map(|end| {
            let first = next;
            next = next.saturating_add(end.div_ceil(CONCATENATED_SECTORS).saturating_mul(CONCATENATED_SECTORS));
            Some(first)
        })
        .collect())
}

/// The kind of an archive, or of an unsupported compression, and the tool that unpacks it.
fn archive(head: &[u8]) -> Option<(&'static str, &'static str)> {
    const TAR_AT: usize = 257;
    if head.get(TAR_AT..).is_some_and(|rest| rest.starts_with(b"ustar")) {
        return Some(("a tar archive", "tar xf"));
    }
    let kinds: [(&[u8], &str, &str); 7] = [
        (b"PK\x03\x04", "a zip archive", "unzip"),
        (b"PK\x05\x06", "a zip archive", "unzip"),
        (b"\xfd7zXZ\0", "compressed with xz", "xz -dk"),
        (b"BZh", "compressed with bzip2", "bzip2 -dk"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z x"),
        (b"Rar!\x1a\x07", "a rar archive", "unrar x"),
        (b"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dk"),
    ];
    kinds.into_iter().find(|(magic, _, _)| head.starts_with(magic)).map(|(_, kind, command)| (kind, command))
}

/// The first bytes, enough for detecting the format.
fn head_of(bytes: &mut Box<dyn Read + Send>) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    bytes.by_ref().take(4096).read_to_end(&mut head)?;
    Ok(head)
}

/// The bytes of a file that may be compressed.
fn decompressed(mut bytes: Box<dyn Read + Send>) -> std::io::Result<Box<dyn Read + Send>> {
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
