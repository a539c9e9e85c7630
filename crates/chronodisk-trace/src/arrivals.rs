//! Arrival instants of an open loop, independent of the device.

use chronodisk_sim::{Nanos, RandomStream};

/// A process of arrivals.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArrivalProcess {
    /// Equal times between arrivals.
    Regular {
        /// Arrivals per second.
        rate_per_s: f64,
    },
    /// Exponential times between arrivals.
    Poisson {
        /// Mean arrivals per second.
        rate_per_s: f64,
    },
    /// Bursts: Poisson arrivals in on-phases, none in off-phases. The phases have exponential durations. The first is
    /// an on-phase.
    OnOff {
        /// Mean arrivals per second in an on-phase.
        rate_per_s: f64,
        /// Mean duration of an on-phase.
        on: Nanos,
        /// Mean duration of an off-phase.
        off: Nanos,
    },
}

/// The instants of arrivals, without end.
///
/// ```
/// use chronodisk_trace::{ArrivalProcess, ArrivalTimes};
///
/// let mut times = ArrivalTimes::new(ArrivalProcess::Regular { rate_per_s: 1_000.0 }, 1);
/// assert_eq!(times.nth(2).unwrap().as_nanos(), 3_000_000);
/// ```
#[derive(Clone, Debug)]
pub struct ArrivalTimes {
    process: ArrivalProcess,
    gaps: RandomStream,
    phases: RandomStream,
    at_ns: u64,
    /// Part of a nanosecond that instants so far are too early.
    rest_ns: f64,
    /// End of the present time of being on.
    on_until_ns: u64,
}

impl ArrivalTimes {
    /// Equal seeds give equal instants.
    #[must_use]
    pub fn new(process: ArrivalProcess, seed: u64) -> Self {
        let stream = |purpose| RandomStream::new(seed, "arrivals", purpose);
        let mut times = ArrivalTimes {
            process,
            gaps: stream("gap"),
            phases: stream("phase"),
            at_ns: 0,
            rest_ns: 0.0,
            on_until_ns: 0,
        };
        if let ArrivalProcess::OnOff { on, .. } = process {
            times.on_until_ns = exponential_ns(&mut times.phases, on.as_nanos() as f64) as u64;
        }
        times
    }

    fn later(&mut self, gap_ns: f64) {
        let gap_ns = gap_ns + self.rest_ns;
        self.rest_ns = gap_ns.fract();
        self.at_ns = self.at_ns.saturating_add(gap_ns as u64);
    }
}

/// Exponential with this mean.
fn exponential_ns(random: &mut RandomStream, mean_ns: f64) -> f64 {
    -(1.0 - random.unit()).ln() * mean_ns
}

impl Iterator for ArrivalTimes {
    type Item = Nanos;

    fn next(&mut self) -> Option<Nanos> {
        match self.process {
            ArrivalProcess::Regular { rate_per_s } => self.later(1e9 / rate_per_s),
            ArrivalProcess::Poisson { rate_per_s } => {
                let gap_ns = exponential_ns(&mut self.gaps, 1e9 / rate_per_s);
                self.later(gap_ns);
            }
            ArrivalProcess::OnOff { rate_per_s, on, off } => loop {
                let gap_ns = exponential_ns(&mut self.gaps, 1e9 / rate_per_s);
                if (self.on_until_ns - self.at_ns) as f64 >= gap_ns {
                    self.later(gap_ns);
                    // The part of a nanosecond that was carried over may lead beyond the end.
                    self.on_until_ns = self.on_until_ns.max(self.at_ns);
                    break;
                }
                // Exponential gaps have no memory, so a new one is drawn at the next on-phase.
                let off_ns = exponential_ns(&mut self.phases, off.as_nanos() as f64) as u64;
                let on_ns = exponential_ns(&mut self.phases, on.as_nanos() as f64) as u64;
                self.at_ns = self.on_until_ns.saturating_add(off_ns);
                self.on_until_ns = self.at_ns.saturating_add(on_ns);
                if self.at_ns == u64::MAX {
                    return None;
                }
            },
        }
        (self.at_ns < u64::MAX).then_some(Nanos::from_nanos(self.at_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instants(process: ArrivalProcess, count: usize) -> Vec<u64> {
        ArrivalTimes::new(process, 7).take(count).map(Nanos::as_nanos).collect()
    }

    /// Variance over mean of the number of arrivals in windows.
    fn dispersion(instants: &[u64], window_ns: u64) -> f64 {
        let mut counts = vec![0.0; (instants[instants.len() - 1] / window_ns) as usize + 1];
        instants.iter().for_each(|at| counts[(at / window_ns) as usize] += 1.0);
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>() / counts.len() as f64 / mean
    }

    #[test]
    fn processes_have_their_rate_and_their_burstiness() {
        let regular = instants(ArrivalProcess::Regular { rate_per_s: 3_000.0 }, 3_000);
        assert!(regular[2_999].abs_diff(1_000_000_000) <= 1, "thirds of nanoseconds are not lost: {}", regular[2_999]);

        let poisson = instants(ArrivalProcess::Poisson { rate_per_s: 5_000.0 }, 200_000);
        assert!((poisson[199_999] as f64 / 40e9 - 1.0).abs() < 0.01, "{}", poisson[199_999]);
        assert!((dispersion(&poisson, 10_000_000) - 1.0).abs() < 0.1, "{}", dispersion(&poisson, 10_000_000));

        let (on, off) = (Nanos::from_millis(10), Nanos::from_millis(40));
        let bursts = instants(ArrivalProcess::OnOff { rate_per_s: 5_000.0, on, off }, 200_000);
        // On-phases take a fifth of the time.
        assert!((bursts[199_999] as f64 / 200e9 - 1.0).abs() < 0.05, "{}", bursts[199_999]);
        assert!(dispersion(&bursts, 10_000_000) > 10.0, "{}", dispersion(&bursts, 10_000_000));
        assert!(bursts.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn equal_seeds_give_equal_instants_and_extremes_end() {
        let process = ArrivalProcess::Poisson { rate_per_s: 10.0 };
        assert_eq!(instants(process, 100), instants(process, 100));
        let seldom = ArrivalProcess::Regular { rate_per_s: 1e-9 };
        assert!(ArrivalTimes::new(seldom, 1).take(1_000).count() < 20, "64 bits of nanoseconds end after 584 years");
        let never =
            ArrivalProcess::OnOff { rate_per_s: 1e-6, on: Nanos::from_nanos(1), off: Nanos::from_secs(1 << 32) };
        assert_eq!(ArrivalTimes::new(never, 1).count(), 0);
    }
}
