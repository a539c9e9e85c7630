//! The store's processor time by component.

use chronodisk_store::CpuClock;

/// A component that works for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    /// Classifies blocks, and does all other work that belongs to no component.
    Classifier,
    /// Holds unclassified blocks.
    Unclassified,
    /// Reads the journal's blocks until a transaction is whole.
    Journal,
    /// Allocates the places of kept blocks, and moves their bytes.
    Remap,
    /// Makes up contents.
    Generator,
}

const WORKERS: usize = 5;

/// Counts the processor time of each component, if there is a clock.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    clock: Option<Box<dyn CpuClock>>,
    spent_ns: [u64; WORKERS],
    /// The present component, and its start.
    at_work: Option<Worker>,
    since_ns: u64,
}

impl Meter {
    pub(crate) fn start(&mut self, clock: Box<dyn CpuClock>) {
        self.since_ns = clock.cpu_ns();
        self.clock = Some(clock);
    }

    /// Switches to `worker`. Returns the previous one, so that the caller can switch back.
    pub(crate) fn switch(&mut self, worker: Option<Worker>) -> Option<Worker> {
        let before = std::mem::replace(&mut self.at_work, worker);
        if before != worker
            && let Some(clock) = &self.clock
        {
            let now_ns = clock.cpu_ns();
            if let Some(before) = before {
                self.spent_ns[before as usize] += now_ns - self.since_ns;
            }
            self.since_ns = now_ns;
        }
        before
    }

    /// Time of a component in completed stretches.
    pub(crate) fn spent_ns(&self, worker: Worker) -> u64 {
        self.spent_ns[worker as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Ten nanoseconds pass between any two readings.
    #[derive(Debug, Default)]
    struct Ticks(Arc<AtomicU64>);

    impl CpuClock for Ticks {
        fn cpu_ns(&self) -> u64 {
            self.0.fetch_add(10, Ordering::Relaxed)
        }
    }

    #[test]
    fn time_goes_to_who_works_and_back_to_who_did_before() {
        let (ticks, mut meter) = (Ticks::default(), Meter::default());
        let read = Arc::clone(&ticks.0);
        meter.switch(Some(Worker::Remap));
        assert_eq!(read.load(Ordering::Relaxed), 0);
        meter.switch(None);
        meter.start(Box::new(ticks));
        let outside = meter.switch(Some(Worker::Classifier));
        let outer = meter.switch(Some(Worker::Remap));
        // A nested call of the same component reads no clock.
        let inner = meter.switch(Some(Worker::Remap));
        meter.switch(inner);
        read.fetch_add(1_000, Ordering::Relaxed);
        meter.switch(outer);
        meter.switch(outside);
        assert_eq!(outside, None);
        assert_eq!([Worker::Classifier, Worker::Remap].map(|worker| meter.spent_ns(worker)), [20, 1_010]);
        assert_eq!(meter.spent_ns(Worker::Generator), 0);
        // Time outside is not charged.
        read.fetch_add(5_000, Ordering::Relaxed);
        meter.switch(Some(Worker::Generator));
        meter.switch(None);
        assert_eq!(meter.spent_ns(Worker::Generator), 10);
    }
}
