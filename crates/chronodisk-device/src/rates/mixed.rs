//! Rules for loads that mix operations and for loads that never pause.
//!
//! - *Barriers*: a flush, and a write with FUA, beside an endless writer completes within its drain plus the device's
//!   age bound plus [`SLACK`]. The drain is the time that it takes if no request arrives after it.
//! - *Loops beside each other*: a stream beside random requests, two streams, random reads beside random writes. No
//!   request waits longer than in a single loop ([`Row::wait_bound`](super::Row::wait_bound)) whose depth is the sum of
//!   both depths. Of two equal streams, neither gets more than three times the rate of the other.
//! - *Zero latency*: a profile with zero-latency access has a mean response time no longer than the same profile
//!   without it. Longer means by more than [`NOISE_PERCENT`] and by more than three standard errors.

use chronodisk_sim::{Nanos, Op, RandomStream, Request, SECTOR_BYTES};

use super::endless::{Barrier, Pace, Writer, measure_barrier};
use super::{Effort, Load, Loop, Measured, Ops, Pattern, measure_requests, measure_together, step};
use crate::{BuildOptions, DeviceModel, Profile, ProfileError};

/// Accepted wait beyond the drain and the device's stated bound: the current access and its neighbours.
pub const SLACK: Nanos = Nanos::from_millis(100);

/// Differences of mean response times up to this, in per cent, are ignored.
pub const NOISE_PERCENT: u64 = 1;

/// The wait of a load beside another load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Name of the waiting load and of the other load.
    pub name: String,
    /// The longest wait.
    pub wait: Nanos,
    /// The longest accepted wait.
    pub bound: Nanos,
}

/// The findings about a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mixed {
    pub(super) waits: Vec<Wait>,
    /// A sentence for each broken rule.
    pub(super) failures: Vec<String>,
}

/// A profile under measurement.
pub(super) struct Mixing<'a> {
    pub(super) profile: &'a Profile,
    pub(super) effort: Effort,
    /// The part of a wait that the device's stated bounds explain.
    pub(super) stated: Nanos,
}

impl Mixing<'_> {
    /// Measures all mixed loads.
    pub(super) fn measure(&self) -> Result<Mixed, ProfileError> {
        let mut mixed = Mixed::default();
        self.barriers(&mut mixed)?;
        self.loops(&mut mixed)?;
        zero_latency(self.profile, self.effort, &mut mixed)?;
        let late = mixed.waits.iter().filter(|wait| wait.wait > wait.bound);
        let late: Vec<String> =
            late.map(|it| format!("{}: it waits {}, longer than {}", it.name, it.wait, it.bound)).collect();
        mixed.failures.extend(late);
        Ok(mixed)
    }

    fn build(&self) -> Result<Box<dyn DeviceModel>, ProfileError> {
        build(self.profile)
    }

    fn barriers(&self, mixed: &mut Mixed) -> Result<(), ProfileError> {
        let paces = [Pace::Closed(1), Pace::Closed(4), Pace::Closed(32), Pace::Open];
        let short = self.effort == Effort::Short;
        let allowed = self.stated.saturating_add(SLACK);
        for writer in Writer::ALL {
            for pace in paces.into_iter().filter(|&pace| !short || pace != Pace::Closed(4)) {
                for barrier in Barrier::ALL {
                    let mut device = self.build()?;
                    let Some(waited) = measure_barrier(device.as_mut(), writer, pace, barrier, allowed) else {
                        continue;
                    };
                    mixed.waits.push(Wait {
                        name: format!("{} beside {}, {}", barrier.name(), writer.name(), pace.name()),
                        wait: waited.wait,
                        bound: waited.drain.saturating_add(allowed),
                    });
                }
            }
        }
        Ok(())
    }

    fn loops(&self, mixed: &mut Mixed) -> Result<(), ProfileError> {
        let device = self.build()?;
        // A device with zones refuses most of these writes.
        if device.info().zones.is_some() {
            return Ok(());
        }
        let time = self.time(device);
        for [one, two] in self.pairs() {
            let mut device = self.build()?;
            let loops = [one.of(device.as_ref(), false), two.of(device.as_ref(), true)];
            let measured = measure_together(device.as_mut(), &loops, time, 1);
            self.judge([one, two], &measured, time, mixed);
        }
        Ok(())
    }

    /// Pairs of loops that run beside each other.
    fn pairs(&self) -> Vec<[Part; 2]> {
        let stream = |ops, depth| Part { pattern: Pattern::Sequential, ops, depth };
        let random = |ops, depth| Part { pattern: Pattern::Random, ops, depth };
        let both = [Ops::Read, Ops::Write];
        let mut pairs = Vec::new();
        for ops in both {
            for other in both {
                pairs.push([stream(ops, 1), random(other, 8)]);
                pairs.push([stream(ops, 32), random(other, 1)]);
                pairs.push([stream(ops, 1), stream(other, 1)]);
                pairs.push([stream(ops, 4), stream(other, 4)]);
            }
        }
        // Reads beside a write-back, and beside another reader.
        pairs.push([random(Ops::Write, 32), random(Ops::Read, 1)]);
        pairs.push([random(Ops::Write, 32), stream(Ops::Read, 1)]);
        pairs.push([random(Ops::Mixed, 32), random(Ops::Mixed, 1)]);
        if self.effort == Effort::Short {
            pairs.retain(|[one, _]| one.depth != 4);
        }
        pairs
    }

    /// A duration in which both loops of a pair complete many requests.
    fn time(&self, mut device: Box<dyn DeviceModel>) -> Nanos {
        let most = if self.effort == Effort::Short { Nanos::from_secs(3) } else { Nanos::from_secs(6) };
        if device.info().rotational {
            return most;
        }
        let load = Load { sequential: false, write: true, bytes: 4 << 10, depth: 8 };
        let measured = measure_requests(device.as_mut(), load, 256, 0, 1);
        let each = 1_000_000_000_000 / measured.requests_per_kilosecond.max(1);
        Nanos::from_nanos(each * 4_000).min(most)
    }

    fn judge(&self, parts: [Part; 2], measured: &[Measured], time: Nanos, mixed: &mut Mixed) {
        let done =
            |it: &Measured| u128::from(it.requests_per_kilosecond) * u128::from(time.as_nanos()) / 1_000_000_000_000;
        let each = u128::from(time.as_nanos()) / measured.iter().map(done).sum::<u128>().max(1);
        let depth: u32 = parts.iter().map(|part| part.depth).sum();
        let queue = Nanos::from_nanos((4 * u128::from(depth) * each) as u64);
        let bound = self.stated.saturating_add(SLACK).saturating_add(queue);
        for (index, it) in measured.iter().enumerate() {
            let name = format!("{} beside {}", parts[index].name(), parts[1 - index].name());
            mixed.waits.push(Wait { name, wait: it.longest_wait, bound });
        }
        let [one, two] = [measured[0].bytes_per_second, measured[1].bytes_per_second];
        if parts[0] == parts[1] && (one > 3 * two || two > 3 * one) {
            let [one, two] = [one, two].map(|rate| rate as f64 / 1e6);
            mixed.failures.push(format!("two {}: {one:.1} MB/s and {two:.1} MB/s", parts[0].name()));
        }
    }
}

/// One of two loops beside each other: 128 KiB in sequence, or 4 KiB at random, in its half of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Part {
    pattern: Pattern,
    ops: Ops,
    depth: u32,
}

impl Part {
    fn of(self, device: &dyn DeviceModel, second: bool) -> Loop {
        let sectors = device.info().capacity_sectors / 2 / 4_096 * 4_096;
        let bytes = if self.pattern == Pattern::Random { 4 << 10 } else { 128 << 10 };
        let Part { pattern, ops, depth } = self;
        Loop { pattern, ops, bytes, depth, first_sector: if second { sectors } else { 0 }, sectors }
    }

    fn name(self) -> String {
        let ops = match self.ops {
            Ops::Read => "reads",
            Ops::Write => "writes",
            Ops::Mixed => "reads and writes",
        };
        let pattern = if self.pattern == Pattern::Random { "random" } else { "sequential" };
        format!("{pattern} {ops} at depth {}", self.depth)
    }
}

fn build(profile: &Profile) -> Result<Box<dyn DeviceModel>, ProfileError> {
    profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() })
}

/// The same profile without zero-latency access; `None` if the profile has none.
fn in_order(profile: &Profile) -> Result<Option<Profile>, ProfileError> {
    let mut text = profile.text().to_owned();
    for key in ["immediate-read", "immediate-write"] {
        text = text.replace(&format!("{key} = true"), &format!("{key} = false"));
    }
    if text == profile.text() { Ok(None) } else { Profile::parse(&text, profile.name()).map(Some) }
}

/// Compares a profile with zero-latency access to the same profile without it.
fn zero_latency(profile: &Profile, effort: Effort, mixed: &mut Mixed) -> Result<(), ProfileError> {
    let Some(plain) = in_order(profile)? else { return Ok(()) };
    mixed.failures.extend(slower_without_order(profile, &plain, effort)?);
    Ok(())
}

/// The loads whose mean response time is longer `with` zero-latency access than `without` it.
///
/// # Errors
/// If a device can't be built.
pub fn slower_without_order(with: &Profile, without: &Profile, effort: Effort) -> Result<Vec<String>, ProfileError> {
    const THINK_MICROS: [u64; 4] = [0, 1_000, 5_000, 20_000];
    let short = effort == Effort::Short;
    let requests = if short { 300 } else { 1_500 };
    let mut slower = Vec::new();
    for shift in (0..=10).filter(|shift| !short || shift % 5 == 2) {
        for micros in THINK_MICROS {
            for (sequential, write) in [(false, false), (false, true), (true, false), (true, true)] {
                let load = Load { sequential, write, bytes: 1_024 << shift, depth: 1 };
                let think = Nanos::from_micros(micros);
                let mean = |profile: &Profile| -> Result<Mean, ProfileError> {
                    Ok(mean_response(build(profile)?.as_mut(), load, think, requests))
                };
                let (fast, plain) = (mean(with)?, mean(without)?);
                if fast.exceeds(&plain) {
                    let [fast, plain] = [fast, plain].map(|mean| mean.nanos as f64 / 1e6);
                    let size = crate::Bytes(u64::from(load.bytes));
                    slower.push(format!(
                        "{} {size}, think time {think}: zero latency {fast:.3} ms, in order {plain:.3} ms",
                        load.name()
                    ));
                }
            }
        }
    }
    Ok(slower)
}

/// A mean, with its uncertainty.
#[derive(Clone, Copy)]
struct Mean {
    nanos: u64,
    /// The variance of the mean, in square nanoseconds, from the means of batches.
    variance: u128,
}

/// Number of batches in a mean.
const BATCHES: u64 = 10;

impl Mean {
    fn of(nanos: &[u64]) -> Mean {
        let mean = |part: &[u64]| part.iter().sum::<u64>() / part.len().max(1) as u64;
        let all = mean(nanos);
        let batches = nanos.chunks(nanos.len().div_ceil(BATCHES as usize));
        let squares: u128 = batches.map(|batch| u128::from(mean(batch).abs_diff(all)).pow(2)).sum();
        Mean { nanos: all, variance: squares / u128::from(BATCHES * (BATCHES - 1)) }
    }

    /// Whether this mean is longer, by more than [`NOISE_PERCENT`] and by more than three standard errors.
    fn exceeds(&self, other: &Mean) -> bool {
        let more = self.nanos.saturating_sub(other.nanos);
        more * 100 > other.nanos * NOISE_PERCENT && u128::from(more).pow(2) > 9 * (self.variance + other.variance)
    }
}

/// The mean response time of a loop of depth 1 that pauses after each completion.
fn mean_response(device: &mut dyn DeviceModel, load: Load, think: Nanos, requests: u64) -> Mean {
    let sectors = u64::from(load.bytes) / SECTOR_BYTES;
    let room = device.info().capacity_sectors / sectors;
    let mut stream = RandomStream::new(1, "rates", "think");
    let op = if load.write { Op::Write } else { Op::Read };
    let (mut completed, mut responses) = (Vec::new(), Vec::with_capacity(requests as usize));
    for id in 0..requests {
        let index = if load.sequential { id % room } else { stream.below(room) };
        let arrived = device.now();
        device.submit(Request::new(id, op, index * sectors, sectors as u32));
        while completed.is_empty() {
            step(device, &mut completed);
        }
        responses.push((completed[0].at - arrived).as_nanos());
        completed.clear();
        let until = device.now().saturating_add(think);
        crate::advance(device, until, &mut completed);
    }
    Mean::of(&responses)
}
