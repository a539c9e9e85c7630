//! Charges for the CPU time of a guest's kernel in the guest's time.
//!
//! User Mode Linux needs several system calls of its host for work that a native kernel does without any, and each kind
//! of work takes a different multiple of its native time. So work is classified from one return of a program to its
//! kernel to the next, by the cause of the return. Work after an idle time (interrupts, completions) has no such class,
//! and a scale of its own.

use serde::{Deserialize, Serialize};

use super::definitions::shared_enum;

/// Share of the guest kernel's CPU time that counts without calibration.
///
/// User Mode Linux's system calls cost 5 to 50 µs, because each is several of the host's. With this factor, a kernel's
/// most frequent work costs about its native time, as measured on a virtual machine of 2026 (native against guest, in
/// µs): page fault 4.0 / 4.1, 4 KiB `pwrite` into the cache 1.5 to 2.4 / 1.3, 4 KiB `pread` from it 1.1 to 1.8 / 0.8,
/// create, write and unlink a small file 7 to 9 / 6, fork 230 to 350 / 180. An empty system call is the exception: 0.09
/// / 0.68.
pub const KERNEL_SCALE_DEFAULT: f64 = 0.1;
/// Largest share in a file of costs, as of `--kernel-scale`.
const SCALE_MAX: f64 = 10.0;
/// Largest charge for a piece of work in a file of costs: a second.
const COST_NANOS_MAX: u64 = 1_000_000_000;

/// CPU time of each stop of a traced process at a system call, in nanoseconds, until the guest has measured it on this
/// host. In a loop of empty system calls it was 1309 to 1347 on a virtual machine of 2026; on another one it was 4,600
/// to 7,300.
pub(crate) const TRAP_NANOS_UNMEASURED: u64 = 1_300;

/// Additional cost of a stop at an emulated read of the time-stamp counter: a loop of such reads took 1840 to 1870 each
/// on the first of those machines. A signal costs the host more than a stop at a system call.
pub const TSC_EXTRA_NANOS_DEFAULT: u64 = 550;

shared_enum! {
    /// Cause of a program's return to its kernel.
    pub enum Work = "CHRONODISK_WORK" {
        /// A system call of no other kind.
        Call = 0,
        /// A system call that reads or writes.
        Copy = 1,
        /// A page fault.
        Fault = 2,
        /// A system call that changes the program's memory.
        Map = 3,
        /// A system call that begins or ends processes, or executes a program.
        Process = 4,
        /// A system call after which another program runs.
        Switch = 5,
        /// A system call that looks a name up without a change: `stat`, `access`, `readlink`, `open` of an existing
        /// file.
        LookUp = 6,
        /// A system call of asynchronous I/O: `io_submit`, `io_getevents`, `io_uring_enter`.
        Queue = 7,
        /// A page fault on a page that the guest's page tables have. Natively there is none.
        SpuriousFault = 8,
    }
}

impl Work {
    /// Number of kinds.
    pub const COUNT: usize = 9;
    /// All kinds, in the order of the page.
    pub const ALL: [Work; Work::COUNT] = [
        Work::Call,
        Work::Copy,
        Work::Fault,
        Work::Map,
        Work::Process,
        Work::Switch,
        Work::LookUp,
        Work::Queue,
        Work::SpuriousFault,
    ];

    /// Name of the kind in files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Work::Call => "call",
            Work::Copy => "copy",
            Work::Fault => "fault",
            Work::Map => "map",
            Work::Process => "process",
            Work::Switch => "switch",
            Work::LookUp => "look-up",
            Work::Queue => "queue",
            Work::SpuriousFault => "spurious-fault",
        }
    }
}

/// Smallest charge for a piece of work, in nanoseconds: a program that waits for time to pass must see it pass, and no
/// kernel executes a system call in less.
pub(crate) const WORK_NANOS_MIN: u64 = 50;
/// At least this fraction (1/n) of its CPU time counts, so that a kernel that computes until its next tick reaches the
/// tick.
pub(crate) const WORK_SHARE_MIN: u64 = 256;

/// Charge for a piece of work that took CPU time `c` of the guest's kernel: added + scale × (c up to the bound - free
/// part) + (c - bound). No difference is below zero, and the charge is at least 50 ns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkCost {
    /// Nanoseconds of CPU time that do not count.
    pub taken_off_nanos: u64,
    /// Nanoseconds that count anyway.
    pub added_nanos: u64,
    /// Share of the rest that counts,
    pub scale: f64,
    /// up to a bound. CPU time beyond it counts in full, because a native kernel takes as long for it. Kinds with the
    /// emulation's work only, such as changes of address spaces, have no bound.
    #[serde(default)]
    pub bound_nanos: Option<u64>,
}

impl WorkCost {
    /// A cost of zero.
    pub(crate) const fn free() -> Self {
        WorkCost { taken_off_nanos: 0, added_nanos: 0, scale: 0.0, bound_nanos: None }
    }

    /// A call of asynchronous I/O at this price, but for the requests in it, which have their own.
    pub(crate) const fn of_queue(nanos: u64) -> Self {
        WorkCost { taken_off_nanos: 0, added_nanos: nanos, scale: 0.0, bound_nanos: Some(CALL_BOUND_NANOS) }
    }

    /// The same for pieces that are all like their mean, without copying.
    fn counts_nanos(&self, worked: Worked) -> f64 {
        let count = worked.count as f64;
        let cpu = worked.cpu_nanos as f64;
        let within = self.bound_nanos.map_or(cpu, |bound_nanos| cpu.min(count * bound_nanos as f64));
        let rest = (within - count * self.taken_off_nanos as f64).max(0.0);
        let least = (count * WORK_NANOS_MIN as f64).max(worked.cpu_nanos as f64 / WORK_SHARE_MIN as f64);
        (count * self.added_nanos as f64 + rest * self.scale + cpu - within).max(least)
    }
}

/// Prices of the kernel's work for a request to a block device, in nanoseconds of a native kernel.
///
/// A guest's kernel works by messages to another process and by signals of its host, so its own CPU time for requests
/// has no meaning. Up to a bound for each event it does not count, and the price is charged instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestCosts {
    /// A request's way from the program's system call to the device, the call itself not included.
    pub submission_nanos: u64,
    /// Price of its interrupt and completion.
    pub completion_nanos: u64,
    /// Turning from the program to the idle task and back, where the processor idles until the completion.
    pub wake_up_nanos: u64,
    /// CPU time of the guest's kernel that each of the three replaces.
    pub bound_nanos: u64,
}

impl RequestCosts {
    /// No prices: requests are work like any other.
    pub(crate) const NONE: Self =
        RequestCosts { submission_nanos: 0, completion_nanos: 0, wake_up_nanos: 0, bound_nanos: 0 };
}

impl Default for RequestCosts {
    /// Measured on a virtual machine of 2026 (Intel Xeon of the fourth generation, Linux 6.18) by direct reads of 4 KiB
    /// of a file on its disk by fio. The kernel took 2.1 to 4.3 µs of CPU time per read with libaio at depth 32 and 6.1
    /// to 10.3 µs at depth 1 with libaio, io_uring and psync, under other load.
    fn default() -> Self {
        RequestCosts {
            submission_nanos: 1_900,
            completion_nanos: 1_400,
            wake_up_nanos: 4_200,
            bound_nanos: REQUEST_BOUND_NANOS,
        }
    }
}

/// Charges for all CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelCosts {
    /// Subtracted from the CPU time of a stretch of user code that ends at a page fault, in nanoseconds, beyond the
    /// cost of every stop (which each run measures): the host's cost of seeing the fault, and of its own fault when the
    /// page is touched again.
    pub fault_extra_nanos: u64,
    /// Deduction for a stretch that ends at an emulated read of the time stamp counter.
    pub tsc_extra_nanos: u64,
    /// Share that counts of work without a kind,
    pub other_scale: f64,
    /// up to this bound.
    #[serde(default)]
    pub other_bound_nanos: Option<u64>,
    /// Nanoseconds of the guest kernel's CPU time for copying a MiB for a system call; they count by `copy_scale`.
    #[serde(default)]
    pub copy_nanos_per_mib: u64,
    /// Share of that copying that counts.
    #[serde(default)]
    pub copy_scale: f64,
    /// Prices of requests; `None` if requests count as part of the work in which they occur.
    #[serde(default)]
    pub requests: Option<RequestCosts>,
    /// Costs of each kind of work, in the order of [`Work::ALL`].
    pub works: [WorkCost; Work::COUNT],
}

impl KernelCosts {
    /// The same factor for all work.
    #[must_use]
    pub fn uniform(scale: f64) -> Self {
        let cost = WorkCost { taken_off_nanos: 0, added_nanos: 0, scale, bound_nanos: None };
        let mut works = [cost; Work::COUNT];
        works[Work::SpuriousFault as usize] = WorkCost::free();
        KernelCosts {
            fault_extra_nanos: 0,
            tsc_extra_nanos: TSC_EXTRA_NANOS_DEFAULT,
            other_scale: scale,
            other_bound_nanos: None,
            copy_nanos_per_mib: 0,
            copy_scale: 0.0,
            requests: None,
            works,
        }
    }

    /// Checks costs from a file.
    ///
    /// # Errors
    /// The field that is out of range, its value and its range.
    pub(crate) fn check(&self) -> Result<(), String> {
        let scale_in_range = |field: &str, scale: f64| match (0.0..=SCALE_MAX).contains(&scale) {
            true => Ok(()),
            false => Err(format!("costs.{field} is {scale}, expected 0 to {SCALE_MAX}")),
        };
        let nanos_in_range = |field: &str, nanos: u64| match nanos <= COST_NANOS_MAX {
            true => Ok(()),
            false => Err(format!("costs.{field} is {nanos}, expected at most {COST_NANOS_MAX}")),
        };
        nanos_in_range("fault_extra_nanos", self.fault_extra_nanos)?;
        nanos_in_range("tsc_extra_nanos", self.tsc_extra_nanos)?;
        nanos_in_range("copy_nanos_per_mib", self.copy_nanos_per_mib)?;
        scale_in_range("other_scale", self.other_scale)?;
        scale_in_range("copy_scale", self.copy_scale)?;
        if let Some(requests) = &self.requests {
            nanos_in_range("requests.submission_nanos", requests.submission_nanos)?;
            nanos_in_range("requests.completion_nanos", requests.completion_nanos)?;
            nanos_in_range("requests.wake_up_nanos", requests.wake_up_nanos)?;
            nanos_in_range("requests.bound_nanos", requests.bound_nanos)?;
        }
        for (index, work) in self.works.iter().enumerate() {
            nanos_in_range(&format!("works[{index}].taken_off_nanos"), work.taken_off_nanos)?;
            nanos_in_range(&format!("works[{index}].added_nanos"), work.added_nanos)?;
            scale_in_range(&format!("works[{index}].scale"), work.scale)?;
        }
        Ok(())
    }

    /// Total charge of pieces of a kind that are all like their mean, in nanoseconds.
    #[must_use]
    pub fn counts_nanos(&self, work: Work, worked: Worked) -> f64 {
        let copying = worked.copied_bytes as f64 / f64::from(1 << 20) * self.copy_nanos_per_mib as f64;
        let copying = (copying as u64).min(worked.cpu_nanos);
        let rest = Worked { cpu_nanos: worked.cpu_nanos - copying, ..worked };
        self.works[work as usize].counts_nanos(rest) + copying as f64 * self.copy_scale
    }

    /// The factor, if all work has the same.
    #[must_use]
    pub fn uniform_scale(&self) -> Option<f64> {
        (self.works == KernelCosts::uniform(self.other_scale).works).then_some(self.other_scale)
    }
}

impl Default for KernelCosts {
    /// From calibrations of a virtual machine of 2026 (AMD EPYC of the first generation, nested, Linux 6.18), with
    /// programs on a processor of their own.
    fn default() -> Self {
        let cost = |taken_off_nanos, added_nanos, scale, bound_nanos| WorkCost {
            taken_off_nanos,
            added_nanos,
            scale,
            bound_nanos,
        };
        let mut works = [WorkCost::free(); Work::COUNT];
        works[Work::Call as usize] = cost(2_200, 0, 0.25, Some(CALL_BOUND_NANOS));
        works[Work::Copy as usize] = cost(2_300, 0, 0.25, Some(COPY_BOUND_NANOS));
        works[Work::Fault as usize] = cost(0, 0, 0.11, None);
        works[Work::Map as usize] = cost(0, 0, 0.12, None);
        works[Work::Process as usize] = cost(0, 0, 0.1, None);
        works[Work::Switch as usize] = cost(0, 0, 0.28, Some(SWITCH_BOUND_NANOS));
        works[Work::LookUp as usize] = cost(0, 600, 0.0, None);
        works[Work::Queue as usize] = WorkCost::of_queue(QUEUE_NANOS);
        KernelCosts {
            fault_extra_nanos: FAULT_EXTRA_NANOS_DEFAULT,
            other_bound_nanos: Some(OTHER_BOUND_NANOS),
            copy_nanos_per_mib: COPY_NANOS_PER_MIB,
            copy_scale: 1.0,
            requests: Some(RequestCosts::default()),
            works,
            ..KernelCosts::uniform(KERNEL_SCALE_DEFAULT)
        }
    }
}

/// CPU time of a program per page fault beyond any stop's, without calibration.
pub(crate) const FAULT_EXTRA_NANOS_DEFAULT: u64 = 3_300;

/// CPU time of the guest's kernel for a piece of work that only enters the kernel, finds its way and leaves it. Kinds
/// without a bound change address spaces or access the host's tree, which takes User Mode Linux a multiple of the
/// native time for any duration.
const CALL_BOUND_NANOS: u64 = 38_000;
const COPY_BOUND_NANOS: u64 = 26_000;
const SWITCH_BOUND_NANOS: u64 = 21_000;

/// CPU time of copying a MiB for a system call, in the guest as natively.
const COPY_NANOS_PER_MIB: u64 = 140_000;

/// A system call without work, natively.
const QUEUE_NANOS: u64 = 200;

/// Bound for work after an idle time: an interrupt and the way to its receiver.
pub(crate) const OTHER_BOUND_NANOS: u64 = 75_000;

/// Bound for a request's submission, its completion and a wake-up, each.
const REQUEST_BOUND_NANOS: u64 = 60_000;

/// Amount of a kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worked {
    /// Number of pieces of work.
    pub count: u64,
    /// CPU nanoseconds of the guest's kernel, unscaled.
    pub cpu_nanos: u64,
    /// Bytes that its system calls transferred, each without its first 4 KiB.
    pub copied_bytes: u64,
}

impl Worked {
    /// Difference to `before`.
    #[must_use]
    pub fn since(self, before: Worked) -> Worked {
        Worked {
            count: self.count.saturating_sub(before.count),
            cpu_nanos: self.cpu_nanos.saturating_sub(before.cpu_nanos),
            copied_bytes: self.copied_bytes.saturating_sub(before.copied_bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_taken_off_time_passes() {
        let nothing = WorkCost { taken_off_nanos: 1_000_000_000, added_nanos: 0, scale: 0.0, bound_nanos: None };
        assert!((nothing.counts_nanos(Worked { count: 10, cpu_nanos: 100_000, copied_bytes: 0 }) - 500.0).abs() < 1e-9);
        assert!(
            (nothing.counts_nanos(Worked { count: 1, cpu_nanos: 256_000_000, copied_bytes: 0 }) - 1e6).abs() < 1e-6
        );
    }
}
