//! Which of the jobs that wait gets the arm next.

use super::controller::{Disk, JobId};
use super::geometry::{Spot, Track};
use super::mechanics::{Access, Ticks, duration};
use super::parameters::{GeometryKnowledge, Scheduler};

/// A job that has waited longer precedes all younger ones, under any scheduler: ordering by position alone makes some
/// wait for ever (Jacobson and Wilkes, "Disk scheduling algorithms based on rotational position", 1991).
pub(super) const AGE_BOUND: Ticks = 2_000_000_000 * 16;

impl Disk {
    /// The job that the arm serves next, if one can be served.
    pub(super) fn next_pending(&mut self) -> Option<JobId> {
        if self.pending.len() <= 1 || self.drive.queue.scheduler == Scheduler::Fcfs {
            for index in 0..self.pending.len() {
                let job = self.pending[index];
                if self.can_serve(job) {
                    return Some(job);
                }
            }
            return None;
        }
        let here = self.here();
        // In order of arrival: the first one is the oldest. It may be unable to go now; then others go.
        for index in 0..self.pending.len() {
            let job = self.pending[index];
            if self.clock.saturating_sub(self.jobs[job].accepted) <= AGE_BOUND {
                break;
            }
            if self.can_serve(job) {
                return Some(job);
            }
        }
        let mut best: Option<(i128, JobId)> = None;
        for index in 0..self.pending.len() {
            let job = self.pending[index];
            let cost = self.cost(job, here);
            // Equal jobs in order of arrival.
            if best.is_none_or(|(least, _)| cost < least) && self.can_serve(job) {
                best = Some((cost, job));
            }
        }
        best.map(|(_, job)| job)
    }

    fn can_serve(&mut self, job: JobId) -> bool {
        self.drive.mechanics.is_constant() || self.is_enabled(job)
    }

    /// Where the arm is in the scheduler's geometry.
    fn here(&self) -> i128 {
        match self.drive.queue.knowledge {
            GeometryKnowledge::BlockNumbers => i128::from(self.arm_block()),
            _ => i128::from(self.arm.track.cylinder),
        }
    }

    /// The lower the sooner.
    fn cost(&mut self, job: JobId, here: i128) -> i128 {
        let place = match self.drive.queue.knowledge {
            GeometryKnowledge::BlockNumbers => i128::from(self.jobs[job].first),
            GeometryKnowledge::Zones => i128::from(self.drive.geometry.rough_track(self.jobs[job].first).0.cylinder),
            GeometryKnowledge::Exact => i128::from(self.spot(job).track.cylinder),
        };
        const BEHIND: i128 = 1 << 80;
        match self.drive.queue.scheduler {
            Scheduler::Fcfs => 0,
            Scheduler::Sstf => (place - here).abs(),
            Scheduler::CLook => {
                if place >= here {
                    place - here
                } else {
                    BEHIND + place
                }
            }
            Scheduler::Look => match self.scan_upwards {
                true if place >= here => place - here,
                true => BEHIND + here - place,
                false if place <= here => here - place,
                false => BEHIND + place - here,
            },
            Scheduler::Sptf => i128::from(self.predicted(job)),
            Scheduler::AgedSptf { weight } => {
                let waited = i128::from(self.clock - self.jobs[job].accepted);
                i128::from(self.predicted(job)) - waited * i128::from(weight.0) / 1_000_000
            }
        }
    }

    /// Where a job's first block is. The answer is kept, because each choice asks for all jobs that wait.
    fn spot(&mut self, job: JobId) -> Spot {
        let current = &mut self.jobs[job];
        *current.spot.get_or_insert_with(|| self.drive.geometry.spot(current.first))
    }

    /// Positioning time of a job as far as the scheduler knows the geometry.
    fn predicted(&mut self, job: JobId) -> u64 {
        let current = self.jobs[job];
        let queue = &self.drive.queue;
        let delay = duration(if current.write { queue.write_initiation } else { queue.read_initiation });
        let leaves = self.clock + delay;
        match queue.knowledge {
            GeometryKnowledge::Exact => {
                let spot = self.spot(job);
                self.positioning(self.arm.track, leaves, spot, current.write)
            }
            GeometryKnowledge::Zones => {
                let (track, angle) = self.drive.geometry.rough_track(current.first);
                let moved = self.drive.mechanics.positioning(self.arm.track, track, current.write);
                match self.drive.mechanics.access {
                    Access::Full => moved + self.latency(leaves + moved, angle),
                    _ => moved,
                }
            }
            GeometryKnowledge::BlockNumbers => current.first.abs_diff(self.arm_block()),
        }
    }

    /// The block behind the last one accessed.
    fn arm_block(&self) -> u64 {
        self.arm.last_block()
    }

    /// An access begins: an elevator that had to turn has turned.
    pub(super) fn note_direction(&mut self, from: Track, to: Track) {
        if to.cylinder != from.cylinder {
            self.scan_upwards = to.cylinder > from.cylinder;
        }
    }
}
