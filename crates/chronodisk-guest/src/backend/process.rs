//! The process of the guest's devices: the vhost-user front ends, the engine on the guest's clock, and the models and
//! stores or the links to remote ones. Each guest has one, which ends with the guest.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use chronodisk_device::{BuildOptions, DeviceInfo, Profile, Speed, probed};
use chronodisk_engine::protocol::Reset;
use chronodisk_engine::remote::{self, Patience, Tell};
use chronodisk_engine::{
    DeviceIndex, Engine, FaultKind, GuestClock, ModelFault, ModelPort, MonotonicClock, RequestLog, state_file,
};
use chronodisk_front::BlkConfig;
use chronodisk_front::vhost_user::{Arrival, Flow, RequestHandler, VhostUserSession};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_squash::{ContentKind, GlobError, JointMemory, SquashMode, SquashOptions, SquashStore};
use chronodisk_store::{
    Durability, FileStore, OverlayStore, RamStore, RecordedDevice, Recorder, Recording, RecordingStore, Store,
    StoreError,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::holding::{self, Place};
use super::real_time::RealTime;
use super::sampler::{Sampler, ThreadCpuClock, resident_bytes};
use super::throttled::ThrottledStore;
use super::zones;
use crate::shared::control::{self, BackendReport, BackendSpec, LastWord, Readiness};
use crate::shared::descriptors;
use crate::shared::device_names::device_name;
use crate::shared::device_options::{DeviceOptions, ModelChoice, StoreChoice};
use crate::shared::filesystem::FileSystem;
use crate::shared::layout::{self, Ask, Clock};
use crate::shared::page::{self, ClockPage, QUESTION_BYTES, Question};
use crate::shared::records;
use crate::shared::samples::Sample;
use crate::shared::zones::ZonesBegan;

/// Runs as the backend of a guest, with the descriptors that the launcher bequeathed.
#[must_use]
pub fn guest_backend() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chronodisk backend: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut control = UnixStream::from(descriptors::inherited(descriptors::CONTROL)?);
    let mut exchange = UnixStream::from(descriptors::inherited(descriptors::EXCHANGE)?);
    let log = File::from(descriptors::inherited(descriptors::LOG)?);
    let page = ClockPage::open(descriptors::inherited(descriptors::PAGE)?)?;

    let spec: BackendSpec = control::receive(&control)?;
    let (mut backend, file_system) = match Backend::build(&spec, page) {
        Ok(built) => built,
        Err(error) => {
            let kind = error.downcast_ref::<ModelFault>().map(|fault| fault.kind);
            let refusal = match kind {
                None | Some(FaultKind::Refused) => Readiness::Refused(error.to_string()),
                Some(_) => Readiness::ModelLost(error.to_string()),
            };
            control::send(&mut control, &refusal)?;
            return Ok(());
        }
    };
    let rotational = backend.rotational();
    control::send(&mut control, &Readiness::Ready { file_system, rotational })?;
    let last_word = match backend.run(&mut exchange)? {
        RunEnd::GuestGone => backend.finish(&log)?,
        RunEnd::ModelLost(fault) => LastWord::ModelLost(fault.to_string()),
    };
    control::send(&mut control, &last_word)?;
    Ok(())
}

struct Backend {
    /// One session per device, in order.
    sessions: Vec<VhostUserSession>,
    time: Time,
    zones_began: Vec<ZonesBegan>,
}

/// The devices' time, apart from the sessions so that a session can hand it arrivals.
enum Time {
    Virtual(Box<VirtualTime>),
    Real(Box<RealTime>),
}

/// Time by the guest's own clock.
struct VirtualTime {
    clock: GuestClock,
    page: ClockPage<layout::Backend>,
    sampler: Sampler,
    /// Recording of each device, if it has one.
    recorders: Recorders,
}

/// Recording of each device, if it has one.
pub(crate) type Recorders = Vec<Option<Recorder>>;

/// A device's arrivals, passed to the guest's clock.
struct Arrivals<'a> {
    time: &'a mut VirtualTime,
    device: DeviceIndex,
}

/// Reason why the backend stops.
pub(crate) enum RunEnd {
    GuestGone,
    ModelLost(ModelFault),
}

impl Backend {
    /// Builds the devices. Also returns the file system to be mounted on the first one.
    fn build(
        spec: &BackendSpec,
        page: ClockPage<layout::Backend>,
    ) -> Result<(Self, FileSystem), Box<dyn std::error::Error>> {
        let mut engine = Engine::new();
        engine.set_host_clock(Box::new(MonotonicClock::new()));
        let (delay_min, delay_max) = spec.model_delay;
        engine.set_model_delay(delay_min..=delay_max, spec.seed);
        let mut sessions = Vec::new();
        let mut model_bytes = 0;
        let ports = spec.devices.iter().map(|device| open_model(device, spec, &mut model_bytes));
        let ports: Vec<ModelPort> = ports.collect::<Result<_, _>>()?;
        let mut joint = Joint::of(&spec.devices, &ports, spec.seed)?;
        let recorders = spec.devices.iter().zip(&ports).map(|(device, port)| recorder(device, port));
        let recorders: Recorders = recorders.collect::<Result<_, _>>()?;
        let mut stores = Vec::new();
        for ((device, port), recorder) in spec.devices.iter().zip(&ports).zip(&recorders) {
            let (is_there, zone_bytes) = (holding::is_there(device), zones::zone_bytes(port));
            let zones = zones::expect_beside(device, port)?;
            let mut store = open_store(device, port, recorder.as_ref(), spec, &mut joint)?;
            let zones = zones.map(|zones| zones.open(&mut *store)).transpose()?;
            stores.push((store, zones, is_there, zone_bytes));
        }
        let mut places: Vec<Place<'_>> = (spec.devices.iter().zip(&mut stores))
            .map(|(device, (store, _, is_there, zone_bytes))| Place {
                device,
                store: &mut **store,
                is_there: *is_there,
                zone_bytes: *zone_bytes,
            })
            .collect();
        let file_system = holding::file_system(&mut places, spec)?;
        let block_bytes = zones::common_block_bytes(file_system, &ports);
        let mut zones_began = Vec::new();
        for (index, ((store, zones, ..), mut port)) in stores.into_iter().zip(ports).enumerate() {
            let vhost = UnixStream::from(descriptors::inherited(descriptors::vhost(index))?);
            let clock = Box::new(MonotonicClock::new());
            let mut session = VhostUserSession::new(vhost, shown(port.info(), block_bytes), store, clock)?;
            if let Some(kept) = zones {
                zones_began.extend(kept.began(index));
                zones::begin(&mut session, &mut port, kept)?;
            }
            sessions.push(session);
            engine.attach_port(port);
        }
        let time = match page.clock()? {
            Clock::Real => Time::Real(Box::new(RealTime::new(engine, page, recorders))),
            Clock::Stopping | Clock::Exact | Clock::Several => {
                let sampler = Sampler::new(spec.sample_every, model_bytes);
                Time::Virtual(Box::new(VirtualTime { clock: GuestClock::new(engine), page, sampler, recorders }))
            }
        };
        Ok((Backend { sessions, time, zones_began }, file_system))
    }

    /// Whether each device turns.
    fn rotational(&self) -> Vec<bool> {
        let info = |index| self.time.engine().port(DeviceIndex(index as u16)).info();
        (0..self.sessions.len()).map(|index| info(index).rotational).collect()
    }

    /// Serves until the guest is gone.
    fn run(&mut self, exchange: &mut UnixStream) -> io::Result<RunEnd> {
        match &mut self.time {
            Time::Virtual(time) => time.run(&mut self.sessions, exchange),
            Time::Real(time) => time.run(&mut self.sessions, exchange),
        }
    }

    fn finish(mut self, log: &File) -> io::Result<LastWord> {
        self.time.fetch_statistics();
        if let Some(fault) = self.time.engine().fault() {
            return Ok(LastWord::ModelLost(fault.to_string()));
        }
        let mut statistics = self.statistics();
        let engine = self.time.engine().statistics();
        let mut report = BackendReport {
            clamped_arrivals: engine.clamped_arrivals,
            backward_steps: self.time.backward_steps(),
            zones_began: self.zones_began,
            ..BackendReport::default()
        };
        report.samples = self.time.finish_samples(&self.sessions).map_err(io::Error::other)?;
        let count = self.sessions.len();
        for (index, session) in self.sessions.into_iter().enumerate() {
            let stats = session.stats().clone();
            let mut store = session.into_store();
            report.close_errors.extend(store.close().err().map(|error| error.to_string()));
            report.store_bytes += store.allocated_bytes().unwrap_or(0);
            report.store_errors += stats.store_errors;
            report.first_store_error = report.first_store_error.or(stats.first_store_error);
            report.malformed_requests += stats.bad_requests.values().sum::<u64>();
            report.store_notices.extend(store.notices());
            let named = |(name, value)| match count {
                1 => (name, value),
                _ => (format!("{}.{name}", device_name(index)), value),
            };
            statistics.extend(store.statistics().into_iter().map(named));
        }
        report.statistics = statistics;
        let (requests, end) = self.time.finish();
        report.end = end;
        records::write(log, requests.records())?;
        Ok(LastWord::Report(report))
    }

    /// The models' statistics. With several devices, each name has its device as a prefix.
    fn statistics(&self) -> Vec<(String, f64)> {
        let mut all = Vec::new();
        for index in 0..self.sessions.len() {
            let port = self.time.engine().port(DeviceIndex(index as u16));
            let named = |(name, value)| match self.sessions.len() {
                1 => (name, value),
                _ => (format!("{}.{name}", device_name(index)), value),
            };
            all.extend(probed(|sink| port.probe(sink)).into_iter().map(named));
        }
        all
    }
}

impl VirtualTime {
    /// Serves until the guest is gone.
    fn run(&mut self, sessions: &mut [VhostUserSession], exchange: &mut UnixStream) -> io::Result<RunEnd> {
        loop {
            let mut waits: Vec<PollFd<'_>> =
                sessions.iter().map(|session| PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)).collect();
            waits.push(PollFd::from_borrowed_fd(exchange.as_fd(), PollFlags::IN));
            match poll(&mut waits, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            let (asked, kicked) = ready.split_last().expect("the exchange is the last");
            for (index, _) in kicked.iter().enumerate().filter(|(_, kicked)| **kicked) {
                let mut arrivals = Arrivals { time: self, device: DeviceIndex(index as u16) };
                if !obey(&mut sessions[index], &mut arrivals)? {
                    return Ok(RunEnd::GuestGone);
                }
            }
            if *asked && !self.answer(sessions, exchange)? {
                return Ok(RunEnd::GuestGone);
            }
            let now = self.page.virtual_now();
            self.sampler.look(now, self.clock.engine(), sessions).map_err(io::Error::other)?;
            if let Some(fault) = self.clock.engine().fault() {
                return Ok(RunEnd::ModelLost(fault.clone()));
            }
        }
    }

    /// Answers one question of the guest's clock; false when the guest is gone.
    fn answer(&mut self, sessions: &mut [VhostUserSession], exchange: &mut UnixStream) -> io::Result<bool> {
        let mut bytes = [0; QUESTION_BYTES];
        match exchange.read_exact(&mut bytes) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
        let question = Question::decode(&bytes)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the guest's clock asked something unknown"))?;
        let clock = &mut self.clock;
        let (resume_at, due) = match question.ask {
            Ask::Idle => {
                let idle = clock.idle(question.virtual_now, question.guest_timer);
                (idle.resume_at.unwrap_or(question.virtual_now), idle.due)
            }
            Ask::Interrupt => (question.virtual_now, clock.interrupted(question.virtual_now)),
        };
        for due in &due {
            if let Some(recorder) = &self.recorders[usize::from(due.device.0)] {
                recorder.completed(due.id, due.due, due.status);
            }
            sessions[usize::from(due.device.0)].complete(due.id, due.status);
        }
        // The calls must be in the guest's pipes, with their signal pending, before the guest continues.
        for session in sessions {
            session.notify()?;
        }
        self.publish();
        if self.clock.engine().fault().is_some() {
            // The guest must not continue without its device: it waits for the answer until it is ended.
            return Ok(true);
        }
        match exchange.write_all(&page::encode_answer(resume_at, due.len() as u64)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn publish(&mut self) {
        self.page.publish(self.clock.completion_bound(), self.clock.engine().outstanding() as u64);
    }
}

impl RequestHandler for Arrivals<'_> {
    fn arrived(&mut self, mut arrival: Arrival) {
        arrival.request.issuer = self.time.page.issuer();
        self.time.page.count_request(arrival.request.len_bytes());
        self.time.clock.kick(self.time.page.virtual_now());
        let at = self.time.clock.arrive(self.device, arrival.request, arrival.bytes());
        if let Some(recorder) = &self.time.recorders[usize::from(self.device.0)] {
            recorder.arrived(&arrival.request, at, arrival.failed);
        }
    }

    fn before_acknowledge(&mut self) {
        self.time.publish();
    }
}

impl Time {
    fn engine(&self) -> &Engine {
        match self {
            Time::Virtual(time) => time.clock.engine(),
            Time::Real(time) => time.engine(),
        }
    }

    /// Fetches the statistics of remote models. Runs in the host's time have none.
    fn fetch_statistics(&mut self) {
        if let Time::Virtual(time) = self {
            time.clock.fetch_statistics();
        }
    }

    fn backward_steps(&self) -> u64 {
        match self {
            Time::Virtual(time) => time.clock.backward_steps(),
            Time::Real(_) => 0,
        }
    }

    /// The collected samples; none in the host's time.
    fn finish_samples(&mut self, sessions: &[VhostUserSession]) -> Result<Vec<Sample>, StoreError> {
        match self {
            Time::Virtual(time) => {
                let sampler = std::mem::replace(&mut time.sampler, Sampler::new(None, 0));
                sampler.finish(time.page.virtual_now(), time.clock.engine(), sessions)
            }
            Time::Real(_) => Ok(Vec::new()),
        }
    }

    fn finish(self) -> (RequestLog, Nanos) {
        match self {
            Time::Virtual(time) => {
                let virtual_now = time.page.virtual_now();
                time.clock.finish(virtual_now)
            }
            Time::Real(time) => time.finish(),
        }
    }
}

/// Obeys a device's driver; false when the guest is gone.
pub(crate) fn obey(session: &mut VhostUserSession, arrivals: &mut dyn RequestHandler) -> io::Result<bool> {
    match session.readable(arrivals) {
        Ok(Flow::Continue) => session.notify().map(|()| true),
        Ok(Flow::Ended) => Ok(false),
        // A guest that breaks the protocol loses its device, as one that hung up does.
        Err(error) => {
            eprintln!("chronodisk backend: the guest's driver broke the protocol: {error}");
            Ok(false)
        }
    }
}

/// A device's model, local or remote. Its memory on this host is added to `model_bytes`.
fn open_model(
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
fn shown(info: &DeviceInfo, block_bytes: u32) -> BlkConfig {
    let mut config = BlkConfig::of(info);
    config.logical_block_bytes = config.logical_block_bytes.max(block_bytes);
    config.physical_block_bytes = config.physical_block_bytes.max(block_bytes);
    let block_sectors = config.logical_block_bytes / SECTOR_BYTES as u32;
    config.discard_unit_sectors = config.discard_unit_sectors.map(|unit| unit.next_multiple_of(block_sectors));
    config
}

fn capacity_bytes(port: &ModelPort) -> u64 {
    port.info().capacity_sectors * SECTOR_BYTES
}

/// The store keeps the device's promises.
pub(crate) fn durability(device: &DeviceOptions, port: &ModelPort) -> Durability {
    Durability { write_through: !port.info().volatile_cache, power_cut: device.durable }
}

/// Begins the recording of a device, if it has one.
fn recorder(device: &DeviceOptions, port: &ModelPort) -> Result<Option<Recorder>, StoreError> {
    let recorded =
        RecordedDevice { capacity_bytes: capacity_bytes(port), logical_block_bytes: port.info().logical_block_bytes };
    device.store_recording.as_ref().map(|path| Recorder::create(path, &recorded)).transpose()
}

/// A device's bytes, wherever they are.
fn open_store(
    device: &DeviceOptions,
    port: &ModelPort,
    recorder: Option<&Recorder>,
    spec: &BackendSpec,
    joint: &mut Joint,
) -> Result<Box<dyn Store>, Box<dyn std::error::Error>> {
    let elsewhere = match port {
        ModelPort::Remote(model) => model.store(),
        ModelPort::Local(_) => None,
    };
    let store = match elsewhere {
        Some(store) => Box::new(store),
        None => open_here(&device.store, capacity_bytes(port), durability(device, port), spec.seed, joint)?,
    };
    let store = match recorder {
        Some(recorder) => Box::new(RecordingStore::new(store, recorder.clone())),
        None => store,
    };
    let mut store = match device.store_rate {
        Some(bytes_per_second) => Box::new(ThrottledStore::new(store, bytes_per_second)),
        None => store,
    };
    if spec.sample_every.is_some() {
        store.measure_cpu(Box::new(ThreadCpuClock));
    }
    Ok(store)
}

/// Shared backing of several squashed devices, so that equal blocks of mirrors are stored once.
enum Joint {
    Nothing,
    Memory(JointMemory),
    /// A store for each device that is not opened yet, in order.
    Image(VecDeque<SquashStore>),
}

impl Joint {
    /// An image belongs to all devices together if it is given for each.
    fn of(devices: &[DeviceOptions], ports: &[ModelPort], seed: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let choices = devices.iter().filter_map(|device| match &device.store {
            StoreChoice::Squashed { image, budget_bytes, .. } => Some((image.as_deref(), *budget_bytes)),
            StoreChoice::Ram { .. } | StoreChoice::File { .. } | StoreChoice::Overlay { .. } => None,
        });
        let choices: Vec<_> = choices.collect();
        if choices.len() < 2 || choices.len() < devices.len() {
            return Ok(Joint::Nothing);
        }
        let image = choices[0].0;
        if choices.iter().any(|choice| choice.0 != image) {
            return Ok(Joint::Nothing);
        }
        let Some(path) = image else {
            let budget_bytes = choices.iter().fold(0_u64, |sum, choice| sum.saturating_add(choice.1));
            return Ok(Joint::Memory(JointMemory::new(budget_bytes)));
        };
        // All devices get the strongest promise of any.
        let each = devices.iter().zip(ports).map(|(device, port)| durability(device, port));
        let together = each.fold(Durability::default(), |all, one| Durability {
            write_through: all.write_through || one.write_through,
            power_cut: all.power_cut || one.power_cut,
        });
        let options = squash_options(&devices[0].store, together, seed)?;
        let capacities_bytes: Vec<u64> = ports.iter().map(capacity_bytes).collect();
        let stores = SquashStore::open_or_create_joint(path, &capacities_bytes, &options)?;
        Ok(Joint::Image(stores.into()))
    }
}

/// Options of the squashing store, if one is chosen.
fn squash_options(
    choice: &StoreChoice,
    durability: Durability,
    seed: u64,
) -> Result<SquashOptions, Box<dyn std::error::Error>> {
    let StoreChoice::Squashed { exact, content, unclassified_bytes, ignore_journal, names, notices, .. } = choice
    else {
        return Err("the store is none that squashes".into());
    };
    let content = ContentKind::ALL.into_iter().find(|kind| kind.name() == content);
    Ok(SquashOptions {
        mode: if *exact { SquashMode::Exact } else { SquashMode::Classified },
        content: content.ok_or("a kind of content that is not known")?,
        seed,
        unclassified_bytes: *unclassified_bytes,
        durability,
        ignore_journal: *ignore_journal,
        names: names.iter().map(|rule| rule.parse()).collect::<Result<_, GlobError>>()?,
        notices: *notices,
        ..SquashOptions::default()
    })
}

fn open_here(
    choice: &StoreChoice,
    capacity_bytes: u64,
    durability: Durability,
    seed: u64,
    joint: &mut Joint,
) -> Result<Box<dyn Store>, Box<dyn std::error::Error>> {
    Ok(match choice {
        StoreChoice::Ram { budget_bytes } => Box::new(RamStore::new(capacity_bytes, *budget_bytes)),
        StoreChoice::File { path } => Box::new(FileStore::open_or_create(path, capacity_bytes, durability)?),
        StoreChoice::Overlay { base, difference, budget_bytes } => {
            let mut store = OverlayStore::open(base, capacity_bytes, *budget_bytes)?;
            for change in Recording::open(difference)?.changes() {
                change?.apply(&mut store)?;
            }
            Box::new(store)
        }
        StoreChoice::Squashed { image, budget_bytes, .. } => {
            let options = squash_options(choice, durability, seed)?;
            Box::new(match (image, joint) {
                (_, Joint::Image(stores)) => stores.pop_front().ok_or("more devices than the image has")?,
                (None, Joint::Memory(memory)) => SquashStore::in_joint_memory(capacity_bytes, memory, &options),
                (None, Joint::Nothing) => SquashStore::in_memory(capacity_bytes, *budget_bytes, &options),
                (Some(path), _) => SquashStore::open_or_create(path, capacity_bytes, &options)?,
            })
        }
    })
}
