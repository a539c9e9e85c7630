//! The devices of a guest in the guest's own time: its clock asks how far time may jump, and completions leave when due
//! there.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use chronodisk_engine::{DeviceIndex, Engine, GuestClock, RequestLog};
use chronodisk_front::vhost_user::{Arrival, RequestHandler, VhostUserSession};
use chronodisk_sim::{Nanos, Status};
use chronodisk_store::StoreError;
use rustix::event::{PollFd, PollFlags, poll};

use super::request_pages::RequestPages;
use super::sampler::Sampler;
use super::sessions::{Recorders, RunEnd, obey};
use crate::shared::layout::{Ask, Backend};
use crate::shared::page::{self, ClockPage, QUESTION_BYTES, Question};
use crate::shared::samples::Sample;

/// Time by the guest's own clock.
pub(crate) struct VirtualTime {
    clock: GuestClock,
    page: ClockPage<Backend>,
    sampler: Sampler,
    /// Recording of each device, if it has one.
    recorders: Recorders,
    /// Request pages of each device, if its programs may use them.
    request_pages: Vec<Option<RequestPages>>,
}

/// A device's arrivals, passed to the guest's clock.
struct Arrivals<'a> {
    time: &'a mut VirtualTime,
    device: DeviceIndex,
}

impl VirtualTime {
    /// For devices whose models are at the beginning of the guest's time.
    pub fn new(
        engine: Engine,
        page: ClockPage<Backend>,
        sampler: Sampler,
        recorders: Recorders,
        request_pages: Vec<Option<RequestPages>>,
    ) -> Self {
        VirtualTime { clock: GuestClock::new(engine), page, sampler, recorders, request_pages }
    }

    /// Serves until the guest is gone.
    pub fn run(&mut self, sessions: &mut [VhostUserSession], exchange: &mut UnixStream) -> io::Result<RunEnd> {
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

    /// The engine: devices, log, counters.
    pub fn engine(&self) -> &Engine {
        self.clock.engine()
    }

    /// Fetches the statistics of remote models.
    pub fn fetch_statistics(&mut self) {
        self.clock.fetch_statistics();
    }

    /// Times that the guest's clock stepped back.
    pub fn backward_steps(&self) -> u64 {
        self.clock.backward_steps()
    }

    /// Takes a last sample, and returns all of them.
    pub fn finish_samples(&mut self, sessions: &[VhostUserSession]) -> Result<Vec<Sample>, StoreError> {
        let sampler = std::mem::replace(&mut self.sampler, Sampler::new(None, 0));
        sampler.finish(self.page.virtual_now(), self.clock.engine(), sessions)
    }

    /// Ends the run now; returns the log and the instant of the end.
    pub fn finish(self) -> (RequestLog, Nanos) {
        let virtual_now = self.page.virtual_now();
        self.clock.finish(virtual_now)
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
            let device = usize::from(due.device.0);
            if let Some(recorder) = &self.recorders[device] {
                recorder.completed(due.id, due.due, due.status);
            }
            let has_failed = self.request_pages[device].as_mut().is_some_and(|pages| pages.has_failed(due.id));
            sessions[device].complete(due.id, if has_failed { Status::MediaError } else { due.status });
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
        let (device, index) = (self.device, usize::from(self.device.0));
        let at = match &mut self.time.request_pages[index] {
            Some(pages) => pages.arrive(&mut self.time.clock, device, arrival.request, arrival.bytes()),
            None => self.time.clock.arrive(device, arrival.request, arrival.bytes()),
        };
        if let Some(recorder) = &self.time.recorders[index] {
            recorder.arrived(&arrival.request, at, arrival.failed);
        }
    }

    fn before_acknowledge(&mut self) {
        self.time.publish();
    }
}
