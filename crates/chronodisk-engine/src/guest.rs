//! The guest's own time as a clock for the engine.

use chronodisk_device::BackgroundRead;
use chronodisk_sim::{Lba, Nanos, Request, RequestId};

use crate::engine::{DeviceIndex, Due, Engine, Transfer};
use crate::log::RequestLog;
use crate::protocol::BackgroundReads;
use crate::step::LATEST_ARRIVAL;

/// Drives an [`Engine`] by virtual time. The guest's side computes it and sends it with every message.
///
/// Virtual time stands still while the guest waits for an answer, however long the host takes. So nothing is
/// speculated:
///
/// - The guest *kicks*: [`kick`](Self::kick), then [`arrive`](Self::arrive) for every request found, after its bytes
///   have moved. The guest waits for the acknowledgement.
/// - The guest *runs*: its clock shim has the host interrupt it when virtual time reaches
///   [`completion_bound`](Self::completion_bound); [`interrupted`](Self::interrupted) then returns the due completions.
/// - The guest *idles*: it is blocked in [`idle`](Self::idle), and its time jumps to the earlier of its own timer and
///   the first completion.
///
/// An instant before the latest one counts as the latest: a guest's processors may race, but its time never runs
/// backwards. Instants are capped at 18 years, so that no message of a guest can overflow a model's time.
pub struct GuestClock {
    engine: Engine,
    now: Nanos,
    backward_steps: u64,
}

/// Rule by which an idle guest continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    /// The instant to which virtual time jumps; `None` if there is neither a timer nor an outstanding request, so that
    /// only external input can wake the guest.
    pub resume_at: Option<Nanos>,
    /// The completions at that instant, in order.
    pub due: Vec<Due>,
}

impl GuestClock {
    /// A clock for a guest whose time begins at zero.
    #[must_use]
    pub fn new(engine: Engine) -> Self {
        GuestClock { engine, now: Nanos::ZERO, backward_steps: 0 }
    }

    /// The guest notifies a device at `v` and waits. Returns the instant at which its requests
    /// arrive.
    pub fn kick(&mut self, v: Nanos) -> Nanos {
        self.observe(v)
    }

    /// A request found after a [`kick`](Self::kick) arrives at the kick's instant, or at the
    /// model's if that is later; returns the effective one.
    ///
    /// # Panics
    /// Like [`Engine::arrive`] does, and with [`Transfer::Moving`]: under this clock all bytes move
    /// before the kick is acknowledged.
    pub fn arrive(&mut self, device: DeviceIndex, request: Request, bytes: Transfer) -> Nanos {
        assert!(bytes != Transfer::Moving, "under the guest's clock bytes move at arrival");
        self.engine.arrive(self.now, device, request, bytes)
    }

    /// As [`arrive`](Self::arrive), for a write to any of these places ([`Engine::arrive_anywhere`]). Also returns the
    /// chosen place.
    ///
    /// # Panics
    /// As `arrive` does, and without a place.
    pub fn arrive_anywhere(
        &mut self,
        device: DeviceIndex,
        request: Request,
        places: &[Lba],
        bytes: Transfer,
    ) -> (Nanos, Lba) {
        assert!(bytes != Transfer::Moving, "under the guest's clock bytes move at arrival");
        self.engine.arrive_anywhere(self.now, device, request, places, bytes)
    }

    /// A background request arrives with the last request ([`Engine::want`]).
    pub fn want(&mut self, device: DeviceIndex, request: &BackgroundRead) -> bool {
        self.engine.want(device, request)
    }

    /// The reads of background requests up to the last arrival ([`Engine::take_background`]).
    pub fn take_background(&mut self, device: DeviceIndex) -> BackgroundReads {
        self.engine.take_background(device)
    }

    /// The guest is idle from `v` until `guest_timer` (if set) or the next completion. A completion that is already due
    /// resumes it at once.
    pub fn idle(&mut self, v: Nanos, guest_timer: Option<Nanos>) -> Idle {
        let v = self.observe(v);
        let timer = guest_timer.map(|timer| timer.min(LATEST_ARRIVAL).max(v));
        let first_due = self.engine.run_to_first_due(timer.unwrap_or(Nanos::MAX));
        // A completion that was due before the guest idled resumes it at once.
        let Some(wake) = first_due.or(timer) else { return Idle::default() };
        let resume_at = wake.max(v);
        self.now = resume_at;
        let mut due = Vec::new();
        self.engine.take_due(resume_at, &mut due);
        Idle { resume_at: Some(resume_at), due }
    }

    /// The running guest stopped at `v`, at the completion bound or for another reason. Returns the completions due by
    /// then.
    pub fn interrupted(&mut self, v: Nanos) -> Vec<Due> {
        let v = self.observe(v);
        self.engine.time(v);
        let mut due = Vec::new();
        self.engine.take_due(v, &mut due);
        due
    }

    /// The instant at which a running guest must be interrupted: no request completes before it if none arrives. `None`
    /// if no request is outstanding. It may be in the past after a kick.
    pub fn completion_bound(&mut self) -> Option<Nanos> {
        self.engine.settle();
        self.engine.completion_bound()
    }

    /// The latest instant seen.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Number of instants that were earlier than a previous one.
    #[must_use]
    pub fn backward_steps(&self) -> u64 {
        self.backward_steps
    }

    /// The engine: devices, log, counters.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Asks the models that are elsewhere for their statistics.
    pub fn fetch_statistics(&mut self) {
        self.engine.fetch_statistics();
    }

    /// Ends the run at `v`: advances the models to this instant and logs the due completions, which the guest no longer
    /// sees. Returns the log and the instant of the end.
    #[must_use]
    pub fn finish(mut self, v: Nanos) -> (RequestLog, Nanos) {
        let end = self.observe(v);
        self.engine.time(end);
        (self.engine.into_log(), end)
    }

    /// The ids of a front end that just counts; see [`Engine::arrive`] on why not the guest's.
    #[must_use]
    pub fn next_request_id(&self) -> RequestId {
        RequestId(self.engine.statistics().arrivals)
    }

    fn observe(&mut self, v: Nanos) -> Nanos {
        if v < self.now {
            self.backward_steps += 1;
        }
        self.now = self.now.max(v.min(LATEST_ARRIVAL));
        self.now
    }
}
