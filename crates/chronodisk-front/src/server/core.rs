//! The device's time, as the connections share it.

use chronodisk_engine::RealClock;
use chronodisk_sim::Nanos;

/// The clock, and the pacer.
pub(super) struct Core {
    pub clock: RealClock,
    /// The connection whose thread waits for the next completion.
    pacer: Option<u32>,
    /// Instant at which the pacer wakes at the latest; zero while it is awake.
    pacer_sleeps_until: Nanos,
}

impl Core {
    pub fn new(clock: RealClock) -> Self {
        Core { clock, pacer: None, pacer_sleeps_until: Nanos::ZERO }
    }

    /// Decides whether this connection's thread becomes the pacer for the next completion, which must leave at
    /// `wake_at`: if there is none, if it was the pacer before, or if the pacer sleeps for too long.
    pub fn settle(&mut self, connection: u32, wake_at: Option<Nanos>) -> bool {
        let Some(wake_at) = wake_at else {
            if self.pacer == Some(connection) {
                self.pacer = None;
            }
            return false;
        };
        let mine = match self.pacer {
            None => true,
            Some(pacer) => pacer == connection || wake_at < self.pacer_sleeps_until,
        };
        if mine {
            self.pacer = Some(connection);
            self.pacer_sleeps_until = Nanos::ZERO;
        }
        mine
    }

    /// Registers that the pacer sleeps until then. Returns false if it must not, because another thread became pacer or
    /// a nearer completion came.
    pub fn pacer_sleeps(&mut self, connection: u32, until: Nanos) -> bool {
        let overslept = self.clock.wake_at().is_some_and(|wake_at| wake_at < until);
        let mine = self.pacer == Some(connection) && !overslept;
        if mine {
            self.pacer_sleeps_until = until;
        }
        mine
    }

    /// Ends this connection's role as the pacer. Returns true if another thread must become the pacer.
    pub fn resign(&mut self, connection: u32) -> bool {
        if self.pacer == Some(connection) {
            self.pacer = None;
        }
        self.pacer.is_none() && self.clock.wake_at().is_some()
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_device::{BuildOptions, Profile};
    use chronodisk_engine::{Engine, Found, RealId, RealOptions, Transfer};
    use chronodisk_sim::{Op, Request};

    use super::*;

    #[test]
    fn one_connection_paces_until_a_nearer_completion_comes_from_another() {
        let micros = Nanos::from_micros;
        let mut core = Core::new(RealClock::new(Engine::new()));
        assert!(core.settle(1, Some(micros(1_000))));
        assert!(!core.settle(2, Some(micros(1_000))), "the pacer is awake and sees it");
        assert!(core.pacer_sleeps(1, micros(800)));
        assert!(!core.settle(2, Some(micros(900))), "the pacer wakes in time");
        assert!(core.settle(2, Some(micros(100))), "the pacer would sleep through it");
        assert!(!core.pacer_sleeps(1, micros(800)), "it is another's now");
        assert!(!core.settle(1, Some(micros(900))));
        assert!(!core.settle(2, None));
        assert!(core.settle(1, Some(micros(2_000))));
        assert!(!core.resign(2));
        assert!(!core.resign(1), "nothing is outstanding");
    }

    #[test]
    fn who_was_woken_to_take_over_and_ends_as_well_wakes_others() {
        let profile = Profile::find("constant-1ms").unwrap();
        let mut engine = Engine::new();
        let device = engine.attach(
            profile.build(&BuildOptions { capacity_bytes: Some(1 << 20), seed: 1, ..BuildOptions::default() }).unwrap(),
        );
        let mut clock = RealClock::new(engine);
        let transport = clock.add_transport("test", RealOptions::default());
        let mut request = Request::new(0, Op::Read, 0, 8);
        request.id = RealId { transport, connection: 3, slot: 0 }.pack();
        clock.arrive(Nanos::ZERO, Found::Busy, device, request, Transfer::MOVED);
        let mut core = Core::new(clock);
        let wake_at = core.clock.wake_at();
        assert!(core.settle(1, wake_at));
        assert!(!core.resign(2), "the first one waits");
        assert!(core.resign(1));
        assert!(core.resign(2), "nobody has taken over yet");
        assert!(core.settle(3, wake_at));
        assert!(!core.resign(4));
    }
}
