//! From the probes' native and guest times to the charge of each kind of work.
//!
//! All is linear: natively a probe took N; in the guest its own code took U, and the kernel did pieces of work of each
//! kind. The sum of the pieces' charges must be N - U. Each kind has probes with nearly all of their kernel time in it,
//! so the kinds are solved one after the other, with earlier kinds' charges subtracted. Two probes of a kind with
//! pieces of different size give a line, one gives a share.
//!
//! The kernel's code for a system call that copies is like the code of other calls: its share is theirs. The copied
//! bytes are known, and have a rate of their own.

use super::Measured;
use super::probes::LARGE_COPY_BYTES;
use crate::shared::costs::{KERNEL_SCALE_DEFAULT, KernelCosts, Work, WorkCost, Worked};
use crate::shared::layout::SMALL_COPY_BYTES;

/// Number of rounds in which kinds of work that occur together are solved with each other's result.
const ROUNDS: u32 = 20;

/// Costs with which each probe is charged its native time.
pub(super) fn fit(measured: &[Measured]) -> KernelCosts {
    let of = |name: &str| measured.iter().find(|probe| probe.name == name).expect("all probes were measured");
    let free = WorkCost::free();
    let mut costs = KernelCosts { works: [free; Work::COUNT], ..KernelCosts::uniform(KERNEL_SCALE_DEFAULT) };
    // The excess of a probe's own code for reading a counter and touching memory is the host's.
    let (read, fault) = (of("time-stamp"), of("fault"));
    costs.tsc_extra_nanos = (read.guest_user_nanos / read.guest_tsc_reads.max(1) as f64) as u64;
    costs.fault_extra_nanos = (fault.guest_user_nanos / faults(fault).max(1.0)) as u64;

    for (work, small, large) in [(Work::Call, "empty-call", "create-unlink"), (Work::LookUp, "look-up", "look-up-path")]
    {
        let points = [small, large].map(|name| point(of(name), work, &costs));
        costs.works[work as usize] = line(points);
    }
    set_copies(&mut costs, of("copy-4k"), of("copy-256k"));
    for _ in 0..ROUNDS {
        for (work, name) in [(Work::Fault, "fault"), (Work::Map, "map")] {
            costs.works[work as usize] = share(&[point(of(name), work, &costs)]);
        }
    }
    // One share for both: a guest's excess in executing a program is mostly in page faults.
    let points = ["fork", "exec"].map(|name| point(of(name), Work::Process, &costs));
    costs.works[Work::Process as usize] = share(&points);
    costs.works[Work::Switch as usize] = share(&[point(of("switch"), Work::Switch, &costs)]);
    set_bounds(&mut costs, &of);
    costs
}

/// Bound of a piece, as a multiple of its probe's mean piece, unless the kernel does additional work. All but one of a
/// hundred of the probes' pieces vary by less.
const BOUND_OF_CALL: f64 = 2.5;
const BOUND_OF_COPY: f64 = 6.0;
const BOUND_OF_SWITCH: f64 = 4.0;
/// The bound for work after an idle time, which no probe measures: an interrupt, and a way through the kernel as long
/// as creating a file.
const BOUND_OF_OTHER: f64 = 5.0;

/// Sets the cost of system calls that copy, from a small piece and a large one. The cost of other calls must be known.
fn set_copies(costs: &mut KernelCosts, small: &Measured, large: &Measured) {
    let [small, large] = [small, large].map(|probe| point(probe, Work::Copy, costs));
    let bytes = f64::from(LARGE_COPY_BYTES - SMALL_COPY_BYTES);
    let guest_nanos_per_byte = ((large.cpu_nanos - small.cpu_nanos) / bytes).max(0.0);
    let native_nanos_per_byte = ((large.target_nanos - small.target_nanos) / bytes).max(0.0);
    costs.copy_nanos_per_mib = (guest_nanos_per_byte * f64::from(1 << 20)) as u64;
    costs.copy_scale = if guest_nanos_per_byte > 0.0 { native_nanos_per_byte / guest_nanos_per_byte } else { 0.0 };
    let scale = costs.works[Work::Call as usize].scale;
    costs.works[Work::Copy as usize] = through(small.cpu_nanos, small.target_nanos, scale);
}

/// Sets the emulation's part from the probes' pieces: the rest is the kernel's own work.
fn set_bounds<'a>(costs: &mut KernelCosts, of: &impl Fn(&str) -> &'a Measured) {
    let mean = |name: &str, work: Work| {
        let Worked { count, cpu_nanos, .. } = of(name).guest_worked[work as usize];
        cpu_nanos as f64 / count.max(1) as f64
    };
    let (call, copy) = (mean("create-unlink-tmpfs", Work::Call), mean("copy-4k", Work::Copy));
    let switch = mean("switch", Work::Switch);
    costs.works[Work::Call as usize].bound_nanos = Some((BOUND_OF_CALL * call) as u64);
    costs.works[Work::Copy as usize].bound_nanos = Some((BOUND_OF_COPY * copy) as u64);
    costs.works[Work::Switch as usize].bound_nanos = Some((BOUND_OF_SWITCH * switch) as u64);
    costs.other_bound_nanos = Some((BOUND_OF_OTHER * call) as u64);
}

/// Distance of two sets of costs in the values that decide on long work of the kernel: its bounds, and the cost of
/// copying. The largest difference as a share of the smaller value.
pub(super) fn difference(one: &KernelCosts, other: &KernelCosts) -> f64 {
    let deciding = |costs: &KernelCosts| {
        let bound = |work: Work| costs.works[work as usize].bound_nanos.unwrap_or(0) as f64;
        [bound(Work::Call), bound(Work::Copy), costs.copy_nanos_per_mib as f64, costs.copy_scale]
    };
    let share = |(one, other): (f64, f64)| {
        let (less, more) = (one.min(other), one.max(other));
        if more == 0.0 { 0.0 } else { more / less.max(f64::MIN_POSITIVE) - 1.0 }
    };
    deciding(one).into_iter().zip(deciding(other)).map(share).fold(0.0, f64::max)
}

/// A mean piece of work in a probe: its CPU time, and its target charge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    cpu_nanos: f64,
    target_nanos: f64,
    count: f64,
}

fn point(probe: &Measured, work: Work, costs: &KernelCosts) -> Point {
    let others = Work::ALL.into_iter().filter(|&other| other != work);
    let counted: f64 = others.map(|other| counted(probe, other, costs)).sum();
    let Worked { count, cpu_nanos, .. } = probe.guest_worked[work as usize];
    let pieces = count.max(1) as f64;
    let target = probe.native_nanos - user_nanos(probe, costs) - counted;
    Point { cpu_nanos: cpu_nanos as f64 / pieces, target_nanos: (target / pieces).max(0.0), count: pieces }
}

/// CPU time of the probe's own code, without the cost of stops.
fn user_nanos(probe: &Measured, costs: &KernelCosts) -> f64 {
    let extra =
        faults(probe) * costs.fault_extra_nanos as f64 + probe.guest_tsc_reads as f64 * costs.tsc_extra_nanos as f64;
    (probe.guest_user_nanos - extra).max(0.0)
}

fn faults(probe: &Measured) -> f64 {
    let count = |work: Work| probe.guest_worked[work as usize].count;
    (count(Work::Fault) + count(Work::SpuriousFault)) as f64
}

/// Charge of a probe in a guest with these costs, in nanoseconds.
pub(super) fn charged(probe: &Measured, costs: &KernelCosts) -> f64 {
    user_nanos(probe, costs) + Work::ALL.into_iter().map(|work| counted(probe, work, costs)).sum::<f64>()
}

/// Charge of a kind's work in a probe. The kernel does no additional work in probes, so nothing exceeds the bounds.
fn counted(probe: &Measured, work: Work, costs: &KernelCosts) -> f64 {
    let mut costs = *costs;
    costs.works[work as usize].bound_nanos = None;
    costs.counts_nanos(work, probe.guest_worked[work as usize])
}

/// The line through a small piece and a large one.
fn line([small, large]: [Point; 2]) -> WorkCost {
    let grows = large.cpu_nanos - small.cpu_nanos;
    if grows <= 0.0 {
        return share(&[small, large]);
    }
    // The kernel's additional work for the large piece is its emulation's alone.
    if large.target_nanos <= small.target_nanos {
        let target_nanos = small.count * small.target_nanos + large.count * large.target_nanos;
        let added_nanos = (target_nanos / (small.count + large.count)) as u64;
        return WorkCost { added_nanos, ..WorkCost::free() };
    }
    let scale = (large.target_nanos - small.target_nanos) / grows;
    through(small.cpu_nanos, small.target_nanos, scale)
}

/// The cost with this share at which a piece of so much CPU time counts its target.
fn through(cpu_nanos: f64, target_nanos: f64, scale: f64) -> WorkCost {
    let at_zero = target_nanos - scale * cpu_nanos;
    if scale == 0.0 {
        return WorkCost { added_nanos: target_nanos as u64, ..WorkCost::free() };
    }
    WorkCost {
        taken_off_nanos: (-at_zero / scale).max(0.0) as u64,
        added_nanos: at_zero.max(0.0) as u64,
        scale,
        bound_nanos: None,
    }
}

/// A common share for all pieces.
fn share(points: &[Point]) -> WorkCost {
    let sum = |of: fn(&Point) -> f64| points.iter().map(|point| point.count * of(point)).sum::<f64>();
    let cpu_nanos = sum(|point| point.cpu_nanos);
    let scale = if cpu_nanos > 0.0 { sum(|point| point.target_nanos) / cpu_nanos } else { 0.0 };
    WorkCost { scale, ..WorkCost::free() }
}

#[cfg(test)]
mod tests {
    use super::super::probes::PROBES;
    use super::*;

    /// CPU time of copying in the guest of the tests.
    const COPY_NANOS_PER_MIB: u64 = 200 << 10;

    /// A guest with the costs of `truth`: the native times follow from the guest's.
    fn made_up(truth: &KernelCosts) -> Vec<Measured> {
        let mut measured = Vec::new();
        for (index, probe) in PROBES.iter().enumerate() {
            let mut worked = [Worked::default(); Work::COUNT];
            let pieces = 1_000 + 10 * index as u64;
            let bytes_each = match probe.name {
                "copy-256k" => (LARGE_COPY_BYTES - SMALL_COPY_BYTES).into(),
                _ => 0,
            };
            let nanos_each = match bytes_each {
                0 => 9_000 + 1_000 * index as u64,
                bytes => 15_000 + bytes * COPY_NANOS_PER_MIB / (1 << 20),
            };
            let copied_bytes = pieces * bytes_each;
            worked[probe.work as usize] = Worked { count: pieces, cpu_nanos: pieces * nanos_each, copied_bytes };
            let others = |count, cpu_nanos| Worked { count, cpu_nanos, copied_bytes: 0 };
            match probe.name {
                "fault" => worked[Work::Map as usize] = others(20, 900_000),
                "map" => worked[Work::Fault as usize] = others(500, 4_000_000),
                "exec" => {
                    worked[Work::Fault as usize] = others(300, 3_000_000);
                    worked[Work::SpuriousFault as usize] = others(600, 6_000_000);
                }
                "switch" => worked[Work::Copy as usize] = others(700, 9_000_000),
                _ => {}
            }
            let reads = if probe.name == "time-stamp" { 2_000 } else { 0 };
            let own = if ["time-stamp", "fault"].contains(&probe.name) { 0 } else { 400_000 };
            let faults = worked[Work::Fault as usize].count + worked[Work::SpuriousFault as usize].count;
            let user = (own + faults * truth.fault_extra_nanos + reads * truth.tsc_extra_nanos) as f64;
            let mut of_probe = Measured {
                name: probe.name.to_owned(),
                native_nanos: 0.0,
                guest_user_nanos: user,
                guest_tsc_reads: reads,
                guest_worked: worked,
            };
            of_probe.native_nanos = charged(&of_probe, truth);
            measured.push(of_probe);
        }
        measured
    }

    #[test]
    fn costs_are_found_again() {
        let cost =
            |taken_off_nanos, added_nanos, scale| WorkCost { taken_off_nanos, added_nanos, scale, bound_nanos: None };
        let mut works = [
            cost(7_000, 0, 0.25),
            cost(8_000, 0, 0.25),
            cost(0, 0, 0.3),
            cost(0, 0, 0.1),
            cost(0, 0, 0.05),
            cost(0, 0, 0.2),
            cost(0, 500, 0.02),
            WorkCost::free(), // without a probe
            WorkCost::free(),
        ];
        for look_up_scale in [0.02, 0.0] {
            works[Work::LookUp as usize].scale = look_up_scale;
            costs_are_those(&KernelCosts {
                fault_extra_nanos: 3_300,
                tsc_extra_nanos: 2_100,
                copy_nanos_per_mib: COPY_NANOS_PER_MIB,
                copy_scale: 0.6,
                works,
                ..KernelCosts::uniform(0.1)
            });
        }
    }

    fn costs_are_those(truth: &KernelCosts) {
        let measured = made_up(truth);
        let found = fit(&measured);
        let extra = |costs: &KernelCosts| [costs.fault_extra_nanos, costs.tsc_extra_nanos];
        assert_eq!(extra(&found), extra(truth));
        assert!(found.copy_nanos_per_mib.abs_diff(truth.copy_nanos_per_mib) <= 5, "{found:?}");
        assert!((found.copy_scale - truth.copy_scale).abs() < 1e-3, "{found:?}");
        for (work, (found, truth)) in Work::ALL.into_iter().zip(found.works.iter().zip(&truth.works)) {
            assert!((found.scale - truth.scale).abs() < 1e-3, "{work:?}: {found:?}");
            assert!(found.taken_off_nanos.abs_diff(truth.taken_off_nanos) <= 5, "{work:?}: {found:?}");
            assert!(found.added_nanos.abs_diff(truth.added_nanos) <= 5, "{work:?}: {found:?}");
        }
        for probe in &measured {
            let error = charged(probe, &found) / probe.native_nanos - 1.0;
            assert!(error.abs() < 0.01, "{}: {error}", probe.name);
        }
    }

    #[test]
    fn bounds_are_multiples_of_what_probes_took() {
        let found = fit(&made_up(&KernelCosts::uniform(0.1)));
        let bound = |work: Work| found.works[work as usize].bound_nanos;
        // The pieces of `made_up` take 9 us and one more for each probe before.
        assert_eq!([bound(Work::Call), bound(Work::Copy)], [Some(30_000), Some(90_000)]);
        assert_eq!([bound(Work::Fault), bound(Work::Map), bound(Work::Process), bound(Work::LookUp)], [None; 4]);
        assert_eq!(found.other_bound_nanos, Some(60_000));
    }

    #[test]
    fn what_takes_a_guest_longer_but_no_native_kernel_counts_the_same() {
        let point = |cpu_nanos, target_nanos, count| Point { cpu_nanos, target_nanos, count };
        let cost = line([point(10_000.0, 1_000.0, 1.0), point(30_000.0, 800.0, 3.0)]);
        assert_eq!(cost, WorkCost { added_nanos: 850, ..WorkCost::free() });
    }

    #[test]
    fn the_largest_difference_counts() {
        let one = KernelCosts { copy_nanos_per_mib: 1_000, copy_scale: 0.5, ..KernelCosts::default() };
        assert_eq!(difference(&one, &one), 0.0);
        let other = KernelCosts { copy_nanos_per_mib: 1_100, copy_scale: 0.25, ..one };
        assert_eq!(difference(&one, &other), 1.0);
        assert_eq!(difference(&other, &one), 1.0);
    }

    #[test]
    fn a_guest_that_is_faster_than_native_counts_nothing_rather_than_less() {
        let mut measured = made_up(&KernelCosts::uniform(0.1));
        for probe in &mut measured {
            probe.native_nanos = 0.0;
        }
        let found = fit(&measured);
        assert!(found.works.iter().all(|cost| cost.scale == 0.0), "{found:?}");
    }
}
