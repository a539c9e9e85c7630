//! The devices of a guest in the host's time: completions leave when they are due there.
//!
//! The guest reports the instant of a kick, so arrivals are exact. It runs on meanwhile, and a completion wakes it like
//! any other interrupt; that wake-up is not the device's, and is visible.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use chronodisk_engine::{
    Departure, DeviceIndex, Engine, Found, Pace, RealClock, RealId, RealOptions, RequestLog, Tracked, TransportIndex,
    Wait, real_host,
};
use chronodisk_front::vhost_user::{Arrival, RequestHandler, VhostUserSession};
use chronodisk_sim::{Nanos, RequestId};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::sessions::{Recorders, RunEnd, obey};
use crate::shared::layout::Backend;
use crate::shared::page::ClockPage;

/// Drives the devices by the host's time.
pub(crate) struct RealTime {
    clock: RealClock,
    transport: TransportIndex,
    page: ClockPage<Backend>,
    pace: Pace,
    scheduling: real_host::Scheduling,
    /// Without it, wake-ups are slower, without any other effect.
    keep_awake: Option<real_host::KeepAwake>,
    names: Names,
    leaving: Vec<Departure>,
    recorders: Recorders,
}

/// Small numbers for the requests that are outstanding, as the clock wants them.
#[derive(Debug, Default)]
struct Names {
    ids: Vec<RequestId>,
    free: Vec<u32>,
}

/// A device's arrivals, passed to the clock.
struct Arrivals<'a> {
    time: &'a mut RealTime,
    device: DeviceIndex,
}

/// Closer to an instant than this, no system call is begun, because it could take longer.
const SPIN_ALONE: Nanos = Nanos::from_micros(2);

impl RealTime {
    /// For devices whose models are at the instant at which the page was made.
    pub fn new(engine: Engine, page: ClockPage<Backend>, recorders: Recorders) -> Self {
        real_host::precise_timers();
        let mut clock = RealClock::new(engine);
        let options = RealOptions { arrival_skew: Tracked::Fixed(Nanos::ZERO), completion_lead: Tracked::Auto };
        let transport = clock.add_transport("the guest's vhost-user", options);
        let pace = Pace::new(page.host_now());
        let scheduling = real_host::Scheduling::default();
        let keep_awake = real_host::KeepAwake::start(&real_host::usable_cpus()).ok();
        let (names, leaving) = (Names::default(), Vec::new());
        RealTime { clock, transport, page, pace, scheduling, keep_awake, names, leaving, recorders }
    }

    /// Serves until the guest ends, as its clock's line shows if no device's connection does.
    pub fn run(&mut self, sessions: &mut [VhostUserSession], line: &UnixStream) -> io::Result<RunEnd> {
        loop {
            self.deliver(sessions)?;
            if let Some(fault) = self.clock.engine().fault() {
                return Ok(RunEnd::ModelLost(fault.clone()));
            }
            let mut waits: Vec<PollFd<'_>> =
                sessions.iter().map(|session| PollFd::from_borrowed_fd(session.as_fd(), PollFlags::IN)).collect();
            waits.push(PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN));
            if !self.wait(&mut waits)? {
                continue;
            }
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            for (index, session) in sessions.iter_mut().enumerate().filter(|(index, _)| ready[*index]) {
                let mut arrivals = Arrivals { time: self, device: DeviceIndex(index as u16) };
                if !obey(session, &mut arrivals)? {
                    return Ok(RunEnd::GuestGone);
                }
            }
            if ready[sessions.len()] {
                return Ok(RunEnd::GuestGone);
            }
        }
    }

    /// The engine: devices, log, counters.
    pub fn engine(&self) -> &Engine {
        self.clock.engine()
    }

    /// Ends the run now; returns the log and the instant of the end.
    pub fn finish(self) -> (RequestLog, Nanos) {
        self.clock.finish(self.page.host_now())
    }

    /// Delivers the completions that must leave now.
    fn deliver(&mut self, sessions: &mut [VhostUserSession]) -> io::Result<()> {
        let noticed = self.page.host_now();
        self.clock.take(noticed, Nanos::ZERO, &mut self.leaving);
        if self.leaving.is_empty() {
            return Ok(());
        }
        for departure in &self.leaving {
            let id = self.names.release(departure.id.slot);
            if let Some(recorder) = &self.recorders[departure.id.connection as usize] {
                recorder.completed(id, departure.due, departure.status);
            }
            sessions[departure.id.connection as usize].complete(id, departure.status);
        }
        for session in sessions {
            session.notify()?;
        }
        self.clock.sent(&self.leaving, noticed, self.page.host_now());
        self.leaving.clear();
        self.pace.worked();
        Ok(())
    }

    /// Waits for a descriptor, or until a completion must leave. Returns whether a descriptor is ready.
    fn wait(&mut self, waits: &mut [PollFd<'_>]) -> io::Result<bool> {
        let now = self.page.host_now();
        let wake_at = self.clock.wake_at();
        match self.pace.plan(now, wake_at) {
            Wait::Now => Ok(false),
            Wait::Forever => self.sleep(now, None, waits),
            Wait::Sleep { until } => {
                self.prepare_for_time(now);
                self.sleep(now, Some(until), waits)
            }
            Wait::Spin { until } => {
                self.prepare_for_time(now);
                self.spin(until, waits)
            }
        }
    }

    fn sleep(&mut self, now: Nanos, until: Option<Nanos>, waits: &mut [PollFd<'_>]) -> io::Result<bool> {
        let timeout = until.map(|until| {
            let length = until.saturating_sub(now).as_nanos();
            Timespec { tv_sec: (length / 1_000_000_000) as i64, tv_nsec: (length % 1_000_000_000) as i64 }
        });
        let ready = match poll(waits, timeout.as_ref()) {
            Ok(count) => count > 0,
            Err(Errno::INTR) => false,
            Err(error) => return Err(error.into()),
        };
        let woke = self.page.host_now();
        if let Some(keep_awake) = &self.keep_awake {
            keep_awake.leave_busy_cpu();
        }
        self.pace.slept(now, woke, until);
        let gap = self.pace.last_gap();
        if gap.to == woke {
            self.clock.note_gap(gap);
        }
        Ok(ready)
    }

    fn spin(&mut self, until: Nanos, waits: &mut [PollFd<'_>]) -> io::Result<bool> {
        loop {
            let now = self.page.host_now();
            if let Some(gap) = self.pace.spun(now) {
                self.clock.note_gap(gap);
            }
            if until <= now {
                return Ok(false);
            }
            if until - now < SPIN_ALONE {
                std::hint::spin_loop();
                continue;
            }
            match poll(waits, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Keeps CPUs awake, and takes real-time priority if that is permitted and the kernel would not throttle it.
    fn prepare_for_time(&mut self, now: Nanos) {
        if let Some(keep_awake) = &self.keep_awake {
            keep_awake.want();
        }
        if self.pace.owes_sleep(now) {
            self.scheduling.leave_fifo();
        } else {
            self.scheduling.enter_fifo();
        }
    }
}

impl RequestHandler for Arrivals<'_> {
    fn arrived(&mut self, arrival: Arrival) {
        let time = &mut *self.time;
        let mut request = arrival.request;
        let (transport, connection) = (time.transport, u32::from(self.device.0));
        request.issuer = time.page.issuer();
        time.page.count_request(request.len_bytes());
        request.id = RealId { transport, connection, slot: time.names.take(request.id) }.pack();
        let at = time.clock.arrive(time.page.virtual_now(), Found::Busy, self.device, request, arrival.bytes());
        if let Some(recorder) = &time.recorders[usize::from(self.device.0)] {
            recorder.arrived(&arrival.request, at, arrival.failed);
        }
    }

    fn before_acknowledge(&mut self) {
        // Only completions are reported to the guest.
        self.time.pace.worked();
    }
}

impl Names {
    fn take(&mut self, id: RequestId) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.ids[slot as usize] = id;
                slot
            }
            None => {
                self.ids.push(id);
                self.ids.len() as u32 - 1
            }
        }
    }

    fn release(&mut self, slot: u32) -> RequestId {
        self.free.push(slot);
        self.ids[slot as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_again() {
        let mut names = Names::default();
        let slots = [7, 8, 9].map(|id| names.take(RequestId(id)));
        assert_eq!(slots, [0, 1, 2]);
        assert_eq!(names.release(1), RequestId(8));
        assert_eq!(names.take(RequestId(10)), 1);
        assert_eq!((names.release(1), names.release(2)), (RequestId(10), RequestId(9)));
    }
}
