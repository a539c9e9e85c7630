//! Running medians of the host's delays, tracked online because they drift.

use chronodisk_sim::Nanos;

/// A quantile of the last [`WINDOW`] samples.
///
/// Samples go into a ring. The quantile is computed after every [`REFRESH`] samples, so that a sample costs a few
/// nanoseconds. Robust against the outliers of a busy host.
#[derive(Clone, Debug)]
pub(crate) struct RunningQuantile {
    ring: [u32; WINDOW],
    count: u64,
    per_mille: usize,
    value_ns: u32,
}

/// Samples that are remembered: seconds of a slow device, milliseconds of a fast one.
const WINDOW: usize = 128;
/// Samples between two computations of the quantile.
const REFRESH: u64 = 8;

impl RunningQuantile {
    /// The quantile at this many thousandths; `initial` until there are samples.
    pub fn new(per_mille: usize, initial: Nanos) -> Self {
        RunningQuantile { ring: [0; WINDOW], count: 0, per_mille, value_ns: saturate(initial) }
    }

    /// Tracks the value with half of the samples below it.
    pub fn median(initial: Nanos) -> Self {
        RunningQuantile::new(500, initial)
    }

    /// Takes a sample; beyond 4 s it counts as that.
    pub fn add(&mut self, sample: Nanos) {
        self.ring[(self.count % WINDOW as u64) as usize] = saturate(sample);
        self.count += 1;
        // The first samples count at once: a start value is only a guess.
        if self.count.is_multiple_of(REFRESH) || self.count < REFRESH {
            self.refresh();
        }
    }

    /// The quantile, or the initial value without samples.
    pub fn value(&self) -> Nanos {
        Nanos::from_nanos(self.value_ns.into())
    }

    /// Number of samples so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    fn refresh(&mut self) {
        let mut samples = self.ring;
        let samples = &mut samples[..self.count.min(WINDOW as u64) as usize];
        let rank = (samples.len() * self.per_mille).div_ceil(1000).max(1) - 1;
        self.value_ns = *samples.select_nth_unstable(rank).1;
    }
}

fn saturate(duration: Nanos) -> u32 {
    u32::try_from(duration.as_nanos()).unwrap_or(u32::MAX)
}

/// Duration of sending a reply, by its size: a median for each power of two.
#[derive(Clone, Debug)]
pub(super) struct LeadTable {
    classes: Vec<RunningQuantile>,
}

/// Classes of sizes: empty, up to 512 bytes, and so on to 32 MiB and more.
pub(super) const SIZE_CLASSES: usize = 18;

/// The class of a reply with that much data.
pub(super) fn size_class(bytes: u64) -> usize {
    match bytes.div_ceil(512) {
        0 => 0,
        sectors => (1 + sectors.next_power_of_two().trailing_zeros() as usize).min(SIZE_CLASSES - 1),
    }
}

impl LeadTable {
    /// Without measurements, assumes a system call and a copy at 4 GB/s.
    pub fn new() -> Self {
        let guess = |class: usize| Nanos::from_nanos(2_000 + if class == 0 { 0 } else { 128 << (class - 1) });
        LeadTable { classes: (0..SIZE_CLASSES).map(|class| RunningQuantile::median(guess(class))).collect() }
    }

    pub fn add(&mut self, bytes: u64, took: Nanos) {
        self.classes[size_class(bytes)].add(took);
    }

    pub fn of_class(&self, class: usize) -> Nanos {
        self.classes[class].value()
    }

    /// The value of the class with most samples, thus of the transport's usual requests.
    pub fn usual(&self) -> Nanos {
        let usual = self.classes.iter().filter(|class| class.count() > 0).max_by_key(|class| class.count());
        usual.unwrap_or(&self.classes[0]).value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_follows_a_drift_and_ignores_outliers() {
        let mut median = RunningQuantile::median(Nanos::from_micros(7));
        assert_eq!(median.value(), Nanos::from_micros(7));
        for index in 0..1_000 {
            median.add(if index % 10 == 0 { Nanos::from_secs(10) } else { Nanos::from_micros(2) });
        }
        assert_eq!(median.value(), Nanos::from_micros(2));
        for _ in 0..WINDOW {
            median.add(Nanos::from_micros(30));
        }
        assert_eq!(median.value(), Nanos::from_micros(30));
    }

    #[test]
    fn a_quantile_is_by_nearest_rank() {
        let mut quantile = RunningQuantile::new(900, Nanos::ZERO);
        (1..=80).for_each(|nanos| quantile.add(Nanos::from_nanos(nanos)));
        assert_eq!(quantile.value(), Nanos::from_nanos(72));
    }

    #[test]
    fn sizes_fall_into_powers_of_two() {
        let classes = [0, 1, 512, 513, 4096, 4097, 1 << 20, u64::MAX].map(size_class);
        assert_eq!(classes, [0, 1, 1, 2, 4, 5, 12, SIZE_CLASSES - 1]);
        let mut leads = LeadTable::new();
        leads.add(4096, Nanos::from_micros(9));
        assert_eq!(leads.of_class(4), Nanos::from_micros(9));
        assert_eq!(leads.usual(), Nanos::from_micros(9));
        assert!(leads.of_class(12) > leads.of_class(0));
    }
}
