//! Remote models and bytes, from a run's side.
//!
//! [`RemoteModel`] is the counterpart of a local model: the engine asks both the same questions, but this one can fail.
//! It asks for the next completions only, so that the server can answer for any instant. A host that chooses places of
//! writes can be [above it](RemoteModel::with_placing). [`RemoteStore`] keeps a device's bytes at an emulator server,
//! over the same link.

mod client;
mod link;
mod program;
mod server;
mod store;

use std::collections::HashSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use chronodisk_device::{BackgroundRead, DeviceInfo, PLACES_MAX, Placing, PlacingOptions, Probe, Profile};
use chronodisk_sim::{Completion, Lba, Nanos, Request, RequestId};
use rustls::ClientConfig;

pub use client::{Client, Heard};
pub use link::{Connector, Link, LinkStatistics, Patience, SharedLink, Tell, Wire};
pub use program::ProgramConnector;
pub use server::{ClientTlsError, ServerConnector, client_tls};
pub use store::RemoteStore;

use crate::fault::{FaultKind, ModelFault};
use crate::protocol::{
    Answer, BACKGROUND_DONE_MAX, BACKGROUND_RANGES_MAX, BackgroundChange, BackgroundReads, Command, ErrorCode, Info,
    ModelStatistics, NextAnswer, OUTSTANDING_MAX, RANGE_BYTES_MAX, REQUEST_BYTES_MAX, Reset, Token, TokenError,
};
use link::lock;

/// A client's credentials, and those expected from the server.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// The token that the server has as well.
    pub token: Option<Token>,
    /// Certificates for TLS.
    pub tls: Option<Arc<ClientConfig>>,
}

/// A file that can't serve as a credential.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The token's.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The certificates.
    #[error(transparent)]
    Tls(#[from] ClientTlsError),
}

impl Credentials {
    /// Reads the token from a file, and the certificates from a directory.
    ///
    /// # Errors
    /// The file and its problem.
    pub fn from_files(token: Option<&Path>, tls: Option<&Path>) -> Result<Credentials, CredentialsError> {
        Ok(Credentials { token: token.map(Token::from_file).transpose()?, tls: tls.map(client_tls).transpose()? })
    }
}

/// Makes a device at the emulator server at `address`, `HOST:PORT` or `unix:PATH`.
///
/// # Errors
/// If the server can't be reached or refuses.
pub fn open_server(
    address: &str,
    credentials: Credentials,
    reset: Reset,
    patience: Patience,
    tell: Tell,
) -> Result<RemoteModel, ModelFault> {
    let connector = ServerConnector::new(address, patience.answer).with_tls(credentials.tls);
    RemoteModel::reset(Link::open_with_token(Box::new(connector), credentials.token, patience, tell)?, reset)
}

/// Starts the model that the shell command `command` is.
///
/// # Errors
/// If it does not start, or is no model.
pub fn open_program(command: &str, reset: Reset, patience: Patience, tell: Tell) -> Result<RemoteModel, ModelFault> {
    RemoteModel::reset(Link::open(Box::new(ProgramConnector::new(command)), patience, tell)?, reset)
}

/// A device model at the other end of a link.
pub struct RemoteModel {
    link: SharedLink,
    info: DeviceInfo,
    speculates: bool,
    keeps_bytes: bool,
    profile: String,
    /// All completions up to this instant were returned.
    now: Nanos,
    outstanding: HashSet<RequestId>,
    next: Next,
    /// The last fetched statistics.
    statistics: ModelStatistics,
    /// The host above the device, if it has one that chooses places.
    placing: Option<Box<Placing>>,
}

/// Known part of the future.
enum Next {
    /// Unknown: a request arrived, or the last answer was used up.
    Unknown,
    /// No completions, because no request is outstanding.
    Nothing,
    /// These completions at one instant, if no request arrives.
    At(Nanos, Vec<Completion>),
    /// No completions before this instant, if no request arrives.
    NotBefore(Nanos),
}

/// Most reads of background requests at once; they take 384 MiB.
const BACKGROUND_READS_MAX: usize = 1 << 24;

/// Text of each profile with faults, its members' included.
const FAULTS_TABLE: &str = "[[faults]]";

impl RemoteModel {
    /// Makes a device at the other end of a link that has none yet.
    ///
    /// # Errors
    /// If the other side refuses, or the link fails.
    pub fn reset(mut link: Link, reset: Reset) -> Result<Self, ModelFault> {
        let answer = link.call(Command::Reset(reset))?;
        let Answer::Info(Info { mut device, speculates, keeps_bytes, profile }) = answer else {
            return Err(link.refused(&answer));
        };
        // The protocol has no field for it.
        if profile.contains(FAULTS_TABLE) {
            let parsed = Profile::parse(&profile, &device.name).ok();
            device.torn_write_sectors = parsed.and_then(|profile| profile.torn_write_sectors());
        }
        Ok(RemoteModel {
            link: Arc::new(Mutex::new(link)),
            info: device,
            speculates,
            keeps_bytes,
            profile,
            now: Nanos::ZERO,
            outstanding: HashSet::new(),
            next: Next::Nothing,
            statistics: ModelStatistics::default(),
            placing: None,
        })
    }

    /// Puts a host above the new device that directs eager writing.
    ///
    /// # Errors
    /// If an option is out of its range, or the device has no room.
    pub fn with_placing(mut self, options: PlacingOptions) -> Result<Self, String> {
        self.placing = Some(Box::new(Placing::new(&self.info, options)?));
        Ok(self)
    }

    /// Properties of the device that the load sees.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        self.placing.as_ref().map_or(&self.info, |placing| placing.info())
    }

    /// Text of its profile on the other side; empty if it has none.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// The link, to share it with the device's bytes.
    #[must_use]
    pub fn link(&self) -> SharedLink {
        self.link.clone()
    }

    /// The device's store at the other end; `None` if that stores no bytes.
    #[must_use]
    pub fn store(&self) -> Option<RemoteStore> {
        let capacity_bytes = self.info.capacity_sectors * chronodisk_sim::SECTOR_BYTES;
        self.keeps_bytes.then(|| RemoteStore::new(self.link.clone(), capacity_bytes))
    }

    /// The instant up to which all completions are known.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Requests submitted and not completed yet.
    #[must_use]
    pub fn outstanding(&self) -> u32 {
        self.placing.as_ref().map_or(self.outstanding.len() as u32, |placing| placing.outstanding())
    }

    /// The earliest instant at which a request can complete if none arrives; may be early, never late.
    #[must_use]
    pub fn first_possible_completion(&self) -> Option<Nanos> {
        match &self.next {
            Next::Unknown => Some(self.now.saturating_add(Nanos::from_nanos(1))),
            Next::Nothing => None,
            Next::At(at, _) | Next::NotBefore(at) => Some(*at),
        }
    }

    /// Asks for the next completions, so that [`first_possible_completion`](Self::first_possible_completion) is as
    /// late as the model knows.
    ///
    /// # Errors
    /// If the model fails.
    pub fn settle(&mut self) -> Result<(), ModelFault> {
        if matches!(self.next, Next::Unknown) { self.ask(self.now) } else { Ok(()) }
    }

    /// A request arrives at the present instant.
    ///
    /// # Errors
    /// If the model fails, or has too much outstanding.
    ///
    /// # Panics
    /// If the id is that of an outstanding request.
    pub fn submit(&mut self, request: Request) -> Result<(), ModelFault> {
        let Some(mut placing) = self.placing.take() else { return self.submit_to(request, &[]).map(drop) };
        let submitted = placing.submit(&request, |request, places| self.submit_to(request, places));
        self.placing = Some(placing);
        submitted
    }

    /// A write arrives at the present instant, for one of 1 to [`PLACES_MAX`] places. Returns the place that the model
    /// chose.
    ///
    /// # Errors
    /// If the model fails, has too much outstanding, or chooses another place.
    ///
    /// # Panics
    /// As [`submit`](Self::submit) does, and if a host above the device directs its writes.
    pub fn submit_anywhere(&mut self, request: Request, places: &[Lba]) -> Result<Lba, ModelFault> {
        assert!(self.placing.is_none() && !places.is_empty(), "a host above the device directs its writes");
        self.submit_to(request, places)
    }

    /// A request arrives at the device, for one of the places if there are some. Returns the place.
    fn submit_to(&mut self, request: Request, places: &[Lba]) -> Result<Lba, ModelFault> {
        if self.outstanding.len() >= OUTSTANDING_MAX {
            let what = format!("more than {OUTSTANDING_MAX} requests would be outstanding");
            return Err(ModelFault::new(FaultKind::Refused, lock(&self.link).who(), what));
        }
        let bytes_max = if request.op.moves_data() { REQUEST_BYTES_MAX } else { RANGE_BYTES_MAX };
        if request.len_bytes() > bytes_max {
            let (bytes, mib) = (request.len_bytes(), bytes_max >> 20);
            let what = format!("a {} of {bytes} bytes; models that are elsewhere take at most {mib} MiB", request.op);
            return Err(ModelFault::new(FaultKind::Refused, lock(&self.link).who(), what));
        }
        assert!(self.outstanding.insert(request.id), "request {} arrived while outstanding", request.id.0);
        self.next = Next::Unknown;
        let (at, mut link) = (self.now, lock(&self.link));
        if places.is_empty() {
            link.post(Command::Submit { at, request })?;
            return Ok(request.lba);
        }
        debug_assert!(places.len() <= PLACES_MAX);
        let answer = link.call(Command::SubmitAnywhere { at, request, places: places.to_vec() })?;
        let Answer::Place(place) = answer else { return Err(link.refused(&answer)) };
        if !places.contains(&place) {
            let id = request.id.0;
            return Err(link.nonsense(format_args!(
                "it writes request {id} to sector {place}, which is none of the places that it was given"
            )));
        }
        Ok(place)
    }

    /// A background request arrives at the present instant. Returns whether the model serves such requests.
    ///
    /// # Errors
    /// If the model fails.
    pub fn want(&mut self, request: &BackgroundRead) -> Result<bool, ModelFault> {
        let mut link = lock(&self.link);
        for ranges in request.ranges.chunks(BACKGROUND_RANGES_MAX) {
            let change = BackgroundChange::Want(request.when);
            match link.call(Command::Background { at: self.now, change, ranges: ranges.to_vec() })? {
                Answer::Done => {}
                Answer::Error { code: ErrorCode::Unsupported, .. } => return Ok(false),
                other => return Err(link.refused(&other)),
            }
        }
        Ok(true)
    }

    /// Reads of background requests up to the present instant that were not taken before.
    ///
    /// # Errors
    /// If the model fails, or serves no background requests.
    pub fn take_background(&mut self) -> Result<BackgroundReads, ModelFault> {
        let mut link = lock(&self.link);
        let (capacity_sectors, until) = (self.info.capacity_sectors, self.now);
        let (mut reads, mut last) = (BackgroundReads::default(), Nanos::ZERO);
        loop {
            let answer = link.call(Command::TakeBackground { until })?;
            let Answer::Background(mut next) = answer else { return Err(link.refused(&answer)) };
            for read in &next.done {
                let end = read.lba.0.saturating_add(read.sectors.into());
                if !(last..=until).contains(&read.at) || end > capacity_sectors {
                    return Err(link.nonsense(format_args!(
                        "its background read of sectors {} to {end} at {} is out of order, in the future, or beyond \
                         the device",
                        read.lba, read.at
                    )));
                }
                last = read.at;
            }
            let is_last = next.done.len() < BACKGROUND_DONE_MAX;
            reads.done.append(&mut next.done);
            if is_last {
                return Ok(BackgroundReads { done: reads.done, ..next });
            }
            if reads.done.len() > BACKGROUND_READS_MAX {
                return Err(link.nonsense(format_args!("it has more than {BACKGROUND_READS_MAX} background reads")));
            }
        }
    }

    /// Goes to the first instant with a completion, or to `limit`, and appends all completions there. No request may
    /// arrive before the reached instant.
    ///
    /// # Errors
    /// If the model fails.
    pub fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        let limit = limit.max(self.now);
        let Some(mut placing) = self.placing.take() else { return self.step_device(limit, completed) };
        let (already, mut answers) = (completed.len(), Vec::new());
        let mut stepped = Ok(());
        // Not all parts of a request may have completed.
        while completed.len() == already && stepped.is_ok() {
            stepped = self.step_device(limit, &mut answers);
            let some = !answers.is_empty();
            placing.complete(&answers, completed);
            answers.clear();
            if !some {
                break;
            }
        }
        self.placing = Some(placing);
        stepped
    }

    /// [`step`](Self::step) of the device.
    fn step_device(&mut self, limit: Nanos, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        loop {
            match &mut self.next {
                Next::At(at, completions) if *at <= limit => {
                    self.now = *at;
                    for completion in completions.iter() {
                        self.outstanding.remove(&completion.id);
                    }
                    completed.append(completions);
                    self.next = if self.outstanding.is_empty() { Next::Nothing } else { Next::Unknown };
                    return Ok(());
                }
                Next::Unknown => self.ask(limit)?,
                // The answer gives a completion by `limit`, or none before it.
                Next::NotBefore(at) if *at <= limit => self.ask(limit)?,
                Next::Nothing | Next::At(..) | Next::NotBefore(_) => {
                    self.now = limit;
                    return Ok(());
                }
            }
        }
    }

    /// Asks for the model's counters, for [`probe`](Self::probe).
    ///
    /// # Errors
    /// If the model fails.
    pub fn fetch_statistics(&mut self) -> Result<(), ModelFault> {
        let mut link = lock(&self.link);
        match link.call(Command::Statistics)? {
            Answer::Statistics(statistics) => {
                self.statistics = statistics;
                Ok(())
            }
            other => Err(link.refused(&other)),
        }
    }

    /// The model's counters as last fetched, and the link's.
    #[must_use]
    pub fn statistics(&self) -> (&ModelStatistics, LinkStatistics) {
        (&self.statistics, lock(&self.link).statistics())
    }

    /// Reports the model's counters as last fetched, and the link's.
    pub fn probe(&self, sink: &mut dyn Probe) {
        if let Some(placing) = &self.placing {
            placing.probe(sink);
        }
        for (name, value) in &self.statistics.model {
            // The name may end in a unit in brackets.
            match name.strip_suffix(']').and_then(|name| name.rsplit_once(" [")) {
                Some((name, unit)) => sink.gauge(name, unit, *value),
                None => sink.gauge(name, "1", *value),
            }
        }
        let link = lock(&self.link).statistics();
        for (name, value) in [
            ("remote-requests", self.statistics.submitted),
            ("remote-predictions", self.statistics.predictions),
            ("remote-rollbacks", self.statistics.rollbacks),
            ("remote-repeated-commands", self.statistics.repeated_commands),
            ("remote-round-trips", link.round_trips),
            ("remote-reconnections", link.reconnections),
            ("remote-sent-bytes", link.sent_bytes),
            ("remote-received-bytes", link.received_bytes),
        ] {
            sink.counter(name, value);
        }
    }

    fn ask(&mut self, safe_until: Nanos) -> Result<(), ModelFault> {
        let mut link = lock(&self.link);
        let answer = link.call(Command::Next { taken: self.now, safe_until })?;
        let Answer::Next(next) = answer else { return Err(link.refused(&answer)) };
        match next {
            NextAnswer::Nothing if self.outstanding.is_empty() => self.next = Next::Nothing,
            NextAnswer::Nothing => {
                let outstanding = self.outstanding.len();
                return Err(
                    link.nonsense(format_args!("it says that nothing is outstanding, but {outstanding} requests are"))
                );
            }
            NextAnswer::NotBefore(at) => {
                if self.outstanding.is_empty() {
                    return Err(link.nonsense("it says when something can complete, but nothing is outstanding"));
                }
                if at <= safe_until {
                    return Err(link.nonsense(format_args!(
                        "asked what completes by {safe_until}, it says 'nothing before {at}', which is no later"
                    )));
                }
                self.next = Next::NotBefore(at);
            }
            NextAnswer::Completions(completions) => {
                let at = completions[0].at;
                // The last instant of all stands for "never" in a log.
                if at == Nanos::MAX {
                    return Err(link.nonsense("it completes a request at the end of time"));
                }
                if at <= self.now {
                    let now = self.now;
                    return Err(link.nonsense(format_args!(
                        "it completes request {} at {at}, in the past: the guest is at {now} already",
                        completions[0].id.0
                    )));
                }
                if at > safe_until && !self.speculates {
                    return Err(link.nonsense(format_args!(
                        "it completes request {} at {at}, but requests may arrive from {safe_until} on and it can't \
                         take a completion back",
                        completions[0].id.0
                    )));
                }
                for completion in &completions {
                    if !self.outstanding.contains(&completion.id) {
                        let id = completion.id.0;
                        return Err(link.nonsense(format_args!("it completes request {id}, which it does not have")));
                    }
                }
                let mut ids: Vec<RequestId> = completions.iter().map(|completion| completion.id).collect();
                ids.sort_unstable();
                if let Some(pair) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(link.nonsense(format_args!("it completes request {} twice", pair[0].0)));
                }
                self.next = Next::At(at, completions);
            }
        }
        Ok(())
    }
}
