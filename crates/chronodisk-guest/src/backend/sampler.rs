//! Takes samples of the backend's use of the host during the guest's life.

use std::fs;

use chronodisk_engine::Engine;
use chronodisk_front::vhost_user::VhostUserSession;
use chronodisk_sim::Nanos;
use chronodisk_store::{CpuClock, Footprint, StoreError};
use rustix::time::{ClockId, clock_gettime};

use crate::shared::device_names::device_name;
use crate::shared::samples::{ComponentSample, Sample};

/// More samples than that are thinned out.
const SAMPLES_MAX: usize = 1_000;

/// Takes samples at the first call after each interval of the guest's time.
///
/// At the limit of samples, every second one is dropped, and the interval doubles.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Interval; zero for no samples.
    every: Nanos,
    next: Nanos,
    model_bytes: u64,
    samples: Vec<Sample>,
}

impl Sampler {
    /// `model_bytes` is the host memory that the models took when they were built.
    pub fn new(every: Option<Nanos>, model_bytes: u64) -> Self {
        let every = every.unwrap_or(Nanos::ZERO);
        Sampler { every, next: every, model_bytes, samples: Vec::new() }
    }

    /// Takes a sample if one is due.
    pub fn look(&mut self, now: Nanos, engine: &Engine, sessions: &[VhostUserSession]) -> Result<(), StoreError> {
        if self.every == Nanos::ZERO || now < self.next {
            return Ok(());
        }
        self.take(now, engine, sessions)?;
        if self.samples.len() > SAMPLES_MAX {
            // Keep the last one, since the next interval begins there.
            let mut stays = false;
            self.samples.retain(|_| {
                stays = !stays;
                stays
            });
            self.every = self.every + self.every;
        }
        self.next = now + self.every;
        Ok(())
    }

    /// Takes a last sample, and returns all of them.
    pub fn finish(
        mut self,
        now: Nanos,
        engine: &Engine,
        sessions: &[VhostUserSession],
    ) -> Result<Vec<Sample>, StoreError> {
        if self.every > Nanos::ZERO {
            self.take(now, engine, sessions)?;
        }
        Ok(self.samples)
    }

    fn take(&mut self, now: Nanos, engine: &Engine, sessions: &[VhostUserSession]) -> Result<(), StoreError> {
        let process_cpu = cpu_time(ClockId::ProcessCPUTime);
        let model = ComponentSample {
            name: "model".to_owned(),
            memory_bytes: self.model_bytes,
            cpu: engine.statistics().model_time,
        };
        let mut sample = Sample {
            at: now,
            components: vec![model],
            undecided_bytes: 0,
            stored_bytes: 0,
            process_memory_bytes: resident_bytes(),
            process_cpu,
        };
        for (index, session) in sessions.iter().enumerate() {
            let Footprint { components, undecided_bytes, stored_bytes, .. } = session.store().footprint()?;
            sample.undecided_bytes += undecided_bytes;
            sample.stored_bytes += stored_bytes;
            sample.components.extend(components.into_iter().map(|component| ComponentSample {
                name: match sessions.len() {
                    1 => component.name.to_owned(),
                    _ => format!("{}.{}", device_name(index), component.name),
                },
                memory_bytes: component.memory_bytes,
                cpu: Nanos::from_nanos(component.cpu_ns),
            }));
        }
        self.samples.push(sample);
        Ok(())
    }
}

/// Processor time of the thread that asks.
#[derive(Debug)]
pub(crate) struct ThreadCpuClock;

impl CpuClock for ThreadCpuClock {
    fn cpu_ns(&self) -> u64 {
        cpu_time(ClockId::ThreadCPUTime).as_nanos()
    }
}

fn cpu_time(clock: ClockId) -> Nanos {
    let time = clock_gettime(clock);
    Nanos::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Resident memory of this process in bytes; zero where the host does not tell.
pub(crate) fn resident_bytes() -> u64 {
    // "VmRSS: 12345 kB", proc_pid_status(5).
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_at_their_instants_and_thinned_out() {
        let (engine, every) = (Engine::new(), Nanos::from_micros(10));
        let mut sampler = Sampler::new(Some(every), 7);
        for micros in 0..=25_000 {
            sampler.look(Nanos::from_micros(micros), &engine, &[]).unwrap();
        }
        let samples = sampler.finish(Nanos::from_micros(30_000), &engine, &[]).unwrap();
        assert!((SAMPLES_MAX / 2..=SAMPLES_MAX).contains(&samples.len()), "{}", samples.len());
        let apart = |pair: &[Sample]| pair[1].at - pair[0].at;
        let (last, rest) = samples.split_last().unwrap();
        assert_eq!(last.at, Nanos::from_micros(30_000));
        assert!(rest.windows(2).all(|pair| apart(pair) >= every && apart(pair) <= Nanos::from_micros(40)));
        assert!(rest[0].at <= Nanos::from_micros(40) && rest.last().unwrap().at > Nanos::from_micros(24_900));
        assert_eq!((last.components[0].name.as_str(), last.components[0].memory_bytes), ("model", 7));
        assert!(last.process_memory_bytes > 1 << 16 && last.process_cpu > Nanos::ZERO);
    }

    #[test]
    fn without_an_interval_there_are_no_samples() {
        let mut sampler = Sampler::new(None, 0);
        sampler.look(Nanos::from_micros(10), &Engine::new(), &[]).unwrap();
        assert_eq!(sampler.finish(Nanos::from_micros(20), &Engine::new(), &[]).unwrap(), []);
    }
}
