//! The process of the guest's devices: the vhost-user front ends, the engine on the guest's clock, and the models and
//! stores or the links to remote ones. Each guest has one, which ends with the guest.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use chronodisk_device::probed;
use chronodisk_engine::{DeviceIndex, Engine, FaultKind, ModelFault, ModelPort, MonotonicClock, RequestLog};
use chronodisk_front::BlkConfig;
use chronodisk_front::vhost_user::VhostUserSession;
use chronodisk_sim::Nanos;
use chronodisk_store::{Store, StoreError};

use super::holding::{self, Place};
use super::models::{open_model, shown};
use super::real_time::RealTime;
use super::request_pages::RequestPageStore;
use super::sampler::Sampler;
use super::sessions::{Recorders, RunEnd};
use super::stores::{Joint, open_store, recorder};
use super::virtual_time::VirtualTime;
use super::zones;
use crate::shared::control::{self, BackendReport, BackendSpec, LastWord, Readiness};
use crate::shared::descriptors;
use crate::shared::device_names::device_name;
use crate::shared::filesystem::FileSystem;
use crate::shared::layout::{self, Clock};
use crate::shared::page::ClockPage;
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
        let mut request_pages = Vec::new();
        for (index, ((store, zones, ..), mut port)) in stores.into_iter().zip(ports).enumerate() {
            let vhost = UnixStream::from(descriptors::inherited(descriptors::vhost(index))?);
            let clock = Box::new(MonotonicClock::new());
            let (store, pages): (Box<dyn Store>, _) = if spec.devices[index].interface_extensions {
                let (store, pages) = RequestPageStore::watch(store);
                (Box::new(store), Some(pages))
            } else {
                (store, None)
            };
            request_pages.push(pages);
            let config =
                BlkConfig { file_data: spec.devices[index].notifies_file_data(), ..shown(port.info(), block_bytes) };
            let mut session = VhostUserSession::new(vhost, config, store, clock)?;
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
                Time::Virtual(Box::new(VirtualTime::new(engine, page, sampler, recorders, request_pages)))
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

impl Time {
    fn engine(&self) -> &Engine {
        match self {
            Time::Virtual(time) => time.engine(),
            Time::Real(time) => time.engine(),
        }
    }

    /// Fetches the statistics of remote models. Runs in the host's time have none.
    fn fetch_statistics(&mut self) {
        if let Time::Virtual(time) = self {
            time.fetch_statistics();
        }
    }

    fn backward_steps(&self) -> u64 {
        match self {
            Time::Virtual(time) => time.backward_steps(),
            Time::Real(_) => 0,
        }
    }

    /// The collected samples; none in the host's time.
    fn finish_samples(&mut self, sessions: &[VhostUserSession]) -> Result<Vec<Sample>, StoreError> {
        match self {
            Time::Virtual(time) => time.finish_samples(sessions),
            Time::Real(_) => Ok(Vec::new()),
        }
    }

    fn finish(self) -> (RequestLog, Nanos) {
        match self {
            Time::Virtual(time) => time.finish(),
            Time::Real(time) => time.finish(),
        }
    }
}
