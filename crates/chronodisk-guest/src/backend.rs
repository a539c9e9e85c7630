//! The process behind the guest's device: the vhost-user front end, the engine on the guest's
//! clock, the model and the store. One per guest; it ends when the guest does.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;

use chronodisk_device::{BuildOptions, Probe, Profile};
use chronodisk_engine::{Bytes, DeviceIndex, Engine, GuestClock, MonotonicClock};
use chronodisk_front::{Arrival, BlkConfig, Flow, RequestHandler, Session};
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_store::{FileStore, RamStore, Store};
use rustix::event::{PollFd, PollFlags, poll};

use crate::control::{self, BackendReport, BackendSpec, Readiness};
use crate::descriptors;
use crate::launch::StoreChoice;
use crate::page::{self, Ask, ClockPage, QUESTION_BYTES, Question};
use crate::records;

/// Most data segments of a request; a ring of 256 holds two such requests of direct descriptors.
const SEGMENTS_MAX: u32 = 126;

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
    let vhost = UnixStream::from(descriptors::inherited(descriptors::VHOST)?);
    let mut exchange = UnixStream::from(descriptors::inherited(descriptors::EXCHANGE)?);
    let log = File::from(descriptors::inherited(descriptors::LOG)?);
    let page = ClockPage::open(descriptors::inherited(descriptors::PAGE)?)?;

    let spec: BackendSpec = control::receive(&control)?;
    let mut backend = match Backend::build(&spec, vhost, page) {
        Ok(backend) => backend,
        Err(error) => {
            control::send(&mut control, &Readiness::Refused(error.to_string()))?;
            return Ok(());
        }
    };
    control::send(&mut control, &Readiness::Ready)?;
    backend.run(&mut exchange)?;
    let report = backend.finish(&log)?;
    control::send(&mut control, &report)?;
    Ok(())
}

struct Backend {
    session: Session,
    device: Device,
}

/// The device's time, apart from the session so that the session can hand it arrivals.
struct Device {
    clock: GuestClock,
    index: DeviceIndex,
    page: ClockPage,
}

impl Backend {
    fn build(spec: &BackendSpec, vhost: UnixStream, page: ClockPage) -> Result<Self, Box<dyn std::error::Error>> {
        let profile = Profile::parse(&spec.profile, &spec.profile_label)?;
        let model = profile.build(&BuildOptions { capacity_bytes: spec.capacity_bytes, seed: spec.seed })?;
        let info = model.info().clone();
        let store = open_store(&spec.store, info.capacity_sectors * SECTOR_BYTES)?;
        let config = BlkConfig {
            capacity_sectors: info.capacity_sectors,
            logical_block_bytes: info.logical_block_bytes,
            physical_block_bytes: info.physical_block_bytes,
            serial: info.name,
            discard_unit_sectors: info.discard_unit_sectors,
            write_zeroes: true,
            volatile_cache: info.volatile_cache,
            seg_max: SEGMENTS_MAX,
        };
        let mut engine = Engine::new();
        engine.set_host_clock(Box::new(MonotonicClock::new()));
        let (delay_min, delay_max) = spec.model_delay;
        engine.set_model_delay(delay_min..=delay_max, spec.seed);
        let index = engine.attach(model);
        let session = Session::new(vhost, config, store)?;
        Ok(Backend { session, device: Device { clock: GuestClock::new(engine), index, page } })
    }

    /// Serves until the guest is gone.
    fn run(&mut self, exchange: &mut UnixStream) -> io::Result<()> {
        loop {
            let mut waits = [
                PollFd::from_borrowed_fd(self.session.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(exchange.as_fd(), PollFlags::IN),
            ];
            match poll(&mut waits, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let [kicked, asked] = waits.map(|wait| !wait.revents().is_empty());
            if kicked {
                match self.session.readable(&mut self.device) {
                    Ok(Flow::Continue) => self.session.notify()?,
                    Ok(Flow::Ended) => return Ok(()),
                    // A guest that breaks the protocol loses its device, as one that hung up does.
                    Err(error) => {
                        eprintln!("chronodisk backend: the guest's driver broke the protocol: {error}");
                        return Ok(());
                    }
                }
            }
            if asked && !self.answer(exchange)? {
                return Ok(());
            }
        }
    }

    /// Answers one question of the guest's clock; false when the guest is gone.
    fn answer(&mut self, exchange: &mut UnixStream) -> io::Result<bool> {
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
        let (resume_at, due) = match question.ask {
            Ask::Idle => {
                let idle = self.device.clock.idle(question.virtual_now, question.guest_timer);
                (idle.resume_at.unwrap_or(question.virtual_now), idle.due)
            }
            Ask::Interrupt => {
                let due = self.device.clock.interrupted(question.virtual_now);
                (question.virtual_now, due)
            }
        };
        for due in &due {
            self.session.complete(due.id, due.status);
        }
        // The call is in the guest's pipe, and its signal pending, before the guest goes on.
        self.session.notify()?;
        self.device.publish();
        match exchange.write_all(&page::encode_answer(resume_at, due.len() as u64)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn finish(self, log: &File) -> io::Result<BackendReport> {
        let mut statistics = Collected::default();
        self.device.clock.engine().model(self.device.index).probe(&mut statistics);
        let engine = self.device.clock.engine().statistics();
        let session = self.session.stats();
        let mut report = BackendReport {
            store_bytes: self.session.store().allocated_bytes().unwrap_or(0),
            store_errors: session.store_errors,
            first_store_error: session.first_store_error.clone(),
            malformed_requests: session.bad_requests.values().sum(),
            clamped_arrivals: engine.clamped_arrivals,
            backward_steps: self.device.clock.backward_steps(),
            end: Nanos::ZERO,
            statistics: statistics.0,
        };
        let virtual_now = self.device.page.virtual_now();
        let (requests, end) = self.device.clock.finish(virtual_now);
        report.end = end;
        records::write(log, requests.records())?;
        Ok(report)
    }
}

impl Device {
    fn publish(&self) {
        self.page.publish(self.clock.completion_bound(), self.clock.engine().outstanding() as u64);
    }
}

impl RequestHandler for Device {
    fn arrived(&mut self, arrival: Arrival) {
        let took = arrival.store_time;
        let bytes = if arrival.failed { Bytes::Failed { took } } else { Bytes::Moved { took } };
        self.clock.kick(self.page.virtual_now());
        self.clock.arrive(self.index, arrival.request, bytes);
    }

    fn before_acknowledge(&mut self) {
        self.publish();
    }
}

fn open_store(choice: &StoreChoice, capacity_bytes: u64) -> Result<Box<dyn Store>, Box<dyn std::error::Error>> {
    Ok(match choice {
        StoreChoice::Ram { budget_bytes } => Box::new(RamStore::new(capacity_bytes, *budget_bytes)),
        StoreChoice::File { path } if Path::new(path).exists() => {
            Box::new(FileStore::open(path, capacity_bytes, false)?)
        }
        StoreChoice::File { path } => Box::new(FileStore::create(path, capacity_bytes, false)?),
    })
}

#[derive(Default)]
struct Collected(Vec<(String, f64)>);

impl Probe for Collected {
    fn counter(&mut self, name: &str, value: u64) {
        self.0.push((name.to_owned(), value as f64));
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64) {
        self.0.push((format!("{name} [{unit}]"), value));
    }
}
