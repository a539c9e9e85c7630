//! A run's bottleneck, and the figures that should not be believed.

use std::collections::BTreeMap;

use chronodisk_sim::{Nanos, Op, RequestRecord};
use serde::{Deserialize, Serialize};

use crate::schema::{ClockInfo, RepResult};
use crate::summary::ratio;

/// Share of the time from which a busy resource limits a run.
const LIMITS_FROM: f64 = 0.9;
/// Below this share nothing limits it.
const LIMITS_NOTHING: f64 = 0.5;
/// Above this share of the run time, kernel time that is an estimate makes the run time one.
const ESTIMATED_SHARE_MAX: f64 = 0.2;
/// From this share of the run time on, kernel time that counts in full is worth a line of its own.
const IN_FULL_SHARE_NOTED: f64 = 0.01;
/// Above this share, late completions make service times doubtful.
const LATE_SHARE_MAX: f64 = 0.01;
/// From this share on, requests that are not the command's own make its rates doubtful.
const OWN_SHARE_MAX: f64 = 0.5;

/// A repetition's verdict.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The run's bottleneck.
    pub limit: Limit,
    /// Share of the run in which the device had requests, 0 to 1.
    pub device_busy: f64,
    /// Share of the run in which the guest's processor was busy, 0 to 1; `None` where that is not known.
    pub processor_busy: Option<f64>,
    /// Factor by which the device could serve more such requests in the same time, if the processor limits the run.
    pub device_headroom: Option<f64>,
    /// CPU time of the guest's kernel, if it counts by its cost.
    pub kernel_cpu: Option<KernelCpu>,
    /// Share of completions that were late, 0 to 1.
    pub late_share: f64,
    /// Origins of the requests, if known.
    pub issuers: Option<RequestIssuers>,
    /// Work for which the guest's kernel has generic code only and a native one has instructions of the processor, as
    /// held when the command had ended. It counts in full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generic_code: Vec<GenericCode>,
    /// Figures that are not to be believed.
    pub doubts: Vec<Doubt>,
}

/// The bottleneck of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The device.
    Device,
    /// The guest's only processor.
    Processor,
    /// Neither: the command sleeps, or waits for something outside the guest.
    #[default]
    Neither,
}

/// CPU time of the guest's kernel during the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelCpu {
    /// Measured time.
    pub measured_ns: Nanos,
    /// Charged time in the guest's clock.
    pub counted_ns: Nanos,
    /// The part that counted in full: work beyond the emulation's share of a call.
    pub in_full_ns: Nanos,
}

/// An algorithm that the guest's kernel has only as generic code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GenericCode {
    /// Usual name of the algorithm, such as SHA-256.
    pub algorithm: String,
    /// File systems and arrays that hold it, by name; none if that is unknown.
    pub holders: Vec<String>,
}

impl GenericCode {
    /// Returns whether it is a checksum of a few bytes a cycle, which is a small part of the kernel's work on the
    /// bytes. Other algorithms take a multiple of that work.
    fn is_cheap(&self) -> bool {
        self.algorithm.starts_with("CRC")
    }

    fn in_words(all: &[&GenericCode]) -> String {
        let one = |code: &&GenericCode| match &code.holders[..] {
            [] => code.algorithm.clone(),
            holders => format!("{} ({})", code.algorithm, holders.join(", ")),
        };
        all.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}

/// Origins of the requests of the command's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestIssuers {
    /// Requests during a program's system call or page fault.
    pub programs: u64,
    /// Requests by threads of the kernel: write-back, a journal, a file system's own work.
    pub kernel: u64,
    /// Reads among the latter, which no program asked for.
    pub kernel_reads: u64,
    /// Requests during interrupts, or of unknown origin.
    pub unknown: u64,
}

/// Values of [`RequestRecord::issuer`] in a guest.
const OF_PROGRAM: u32 = 1;
const OF_KERNEL: u32 = 2;

/// A figure that is not to be believed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The doubtful figure.
    pub figure: Figure,
    /// Why, in a sentence.
    pub reason: String,
}

/// A figure of the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Run time of the command.
    RunTime,
    /// Requests and bytes a second.
    Rate,
    /// Percentiles of service time and lateness.
    ServiceTime,
}

impl Figure {
    /// Label of the figure in the summary.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Figure::RunTime => "run time",
            Figure::Rate => "rate",
            Figure::ServiceTime => "service time",
        }
    }
}

/// Observations of a run beside its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Origins of the requests, if known.
    pub issuers: Option<RequestIssuers>,
    /// False if the file system was still at its own work when the command began.
    pub settled: bool,
    /// Generic code that the guest's kernel held when the command had ended.
    pub generic_code: Vec<GenericCode>,
}

impl RequestIssuers {
    /// Counts the requests that arrived in a window, which excludes its end; `None` if no issuer is known.
    #[must_use]
    pub fn of(records: &[RequestRecord], window: std::ops::Range<Nanos>) -> Option<Self> {
        let mut issuers = RequestIssuers::default();
        for record in records.iter().filter(|record| window.contains(&record.arrival)) {
            match record.issuer {
                OF_PROGRAM => issuers.programs += 1,
                OF_KERNEL => {
                    issuers.kernel += 1;
                    issuers.kernel_reads += u64::from(record.op == Op::Read);
                }
                _ => issuers.unknown += 1,
            }
        }
        (issuers.programs + issuers.kernel > 0).then_some(issuers)
    }
}

impl Verdict {
    /// Verdict on a repetition in a guest, from the counters of its clock.
    #[must_use]
    pub fn of_guest(rep: &RepResult, clock: &ClockInfo, seen: Seen) -> Self {
        let processor_busy = processor_busy(&rep.clock_counters, rep.run_time_ns, clock);
        let mut verdict = Verdict::of(rep.summary.utilisation, processor_busy, rep.summary.late_share);
        verdict.issuers = seen.issuers;
        verdict.generic_code = seen.generic_code;
        verdict.kernel_cpu = kernel_cpu(&rep.clock_counters).filter(|_| clock.cpu == "measured");
        verdict.doubt_run_time(rep.run_time_ns, clock);
        verdict.doubt_generic_code(rep.run_time_ns);
        verdict.doubt_rate(rep.summary.requests, clock, seen.settled);
        verdict.doubt_service_time();
        verdict
    }

    /// Makes the verdict about a device that programs outside of a guest use.
    #[must_use]
    pub fn of_served(rep: &RepResult) -> Self {
        let mut verdict = Verdict::of(rep.summary.utilisation, None, rep.summary.late_share);
        verdict.doubt_service_time();
        verdict
    }

    fn of(device_busy: f64, processor_busy: Option<f64>, late_share: f64) -> Self {
        let processor = processor_busy.unwrap_or(0.0);
        let limit = match () {
            () if device_busy >= LIMITS_FROM && device_busy >= processor => Limit::Device,
            () if processor >= LIMITS_NOTHING && processor > device_busy => Limit::Processor,
            () if device_busy >= LIMITS_NOTHING => Limit::Device,
            () => Limit::Neither,
        };
        let headroom = (limit == Limit::Processor && device_busy > 0.0).then(|| 1.0 / device_busy);
        Verdict { limit, device_busy, processor_busy, device_headroom: headroom, late_share, ..Verdict::default() }
    }

    fn doubt(&mut self, figure: Figure, reason: String) {
        self.doubts.push(Doubt { figure, reason });
    }

    fn doubt_run_time(&mut self, run_time: Nanos, clock: &ClockInfo) {
        let Some(kernel) = self.kernel_cpu else { return };
        let is_calibrated = clock.kernel_costs.is_some() && clock.calibrated != Some(false);
        // The native cost of work that counts in full is known of a calibrated host only. With another host's
        // constants, four kinds of work took 0.62 to 1.29 of their native time (`make kernel-work`).
        let known = if is_calibrated { kernel.in_full_ns } else { Nanos::ZERO };
        let estimated = kernel.counted_ns.saturating_sub(known);
        let share = ratio(estimated.as_secs_f64(), run_time.as_secs_f64());
        if share <= ESTIMATED_SHARE_MAX {
            return;
        }
        let how = match is_calibrated {
            true => "as calibrated",
            false => "by constants of another machine; chronodisk calibrate measures this one's",
        };
        self.doubt(
            Figure::RunTime,
            format!("{} of it is CPU time of the guest's kernel that is estimated, {how}", per_cent(share)),
        );
    }

    fn doubt_generic_code(&mut self, run_time: Nanos) {
        let share = self.in_full_share(run_time);
        let costly: Vec<&GenericCode> = self.generic_code.iter().filter(|code| !code.is_cheap()).collect();
        if costly.is_empty() || share <= ESTIMATED_SHARE_MAX {
            return;
        }
        let named = GenericCode::in_words(&costly);
        let reason =
            format!("up to {} of it is {named} by generic code, which natively takes a fraction", per_cent(share));
        self.doubt(Figure::RunTime, reason);
    }

    /// Share of the run time that is the kernel's work counting in full, 0 if that is not known.
    fn in_full_share(&self, run_time: Nanos) -> f64 {
        self.kernel_cpu.map_or(0.0, |kernel| ratio(kernel.in_full_ns.as_secs_f64(), run_time.as_secs_f64()))
    }

    fn doubt_rate(&mut self, requests: u64, clock: &ClockInfo, settled: bool) {
        if requests == 0 {
            return;
        }
        if self.limit == Limit::Processor {
            self.doubt(Figure::Rate, "the guest's processor limits it, not the device".to_owned());
        }
        if clock.cpu == "zero" {
            self.doubt(Figure::Rate, "computing took no time, so it is an upper bound".to_owned());
        }
        if !settled {
            self.doubt(Figure::Rate, "the file system was still at its own work when the command began".to_owned());
        }
        if let Some(issuers) = self.issuers {
            let share = ratio(issuers.kernel_reads as f64, requests as f64);
            if share >= OWN_SHARE_MAX {
                let reason =
                    format!("{} of the requests are reads that the file system made for itself", per_cent(share));
                self.doubt(Figure::Rate, reason);
            }
        }
    }

    fn doubt_service_time(&mut self) {
        if self.late_share > LATE_SHARE_MAX {
            let reason =
                format!("{} of the completions came late, so the program saw longer times", per_cent(self.late_share));
            self.doubt(Figure::ServiceTime, reason);
        }
    }

    /// Whether a figure is doubtful.
    #[must_use]
    pub fn doubts(&self, figure: Figure) -> bool {
        self.doubts.iter().any(|doubt| doubt.figure == figure)
    }

    /// The bottleneck, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let device = per_cent(self.device_busy);
        let Some(processor) = self.processor_busy.map(per_cent) else {
            return match self.limit {
                Limit::Device => format!("device-bound: the device was busy {device} of the time"),
                Limit::Processor | Limit::Neither => {
                    format!("not device-bound: the device was busy {device} of the time")
                }
            };
        };
        let both = format!("the guest's processor was busy {processor} of the time, the device {device}");
        match (self.limit, self.device_headroom) {
            (Limit::Device, _) => {
                format!("device-bound: the device was busy {device} of the time, the guest's processor {processor}")
            }
            (Limit::Processor, Some(headroom)) => {
                format!("CPU-bound: {both}; this device could do {} times as much", times(headroom))
            }
            (Limit::Processor, None) => format!("CPU-bound: {both}"),
            (Limit::Neither, _) => format!("bound by neither: {both}"),
        }
    }

    /// The kernel's CPU time in words, if there is enough of it to matter.
    pub(crate) fn kernel_line(&self) -> Option<String> {
        let KernelCpu { measured_ns, counted_ns, in_full_ns } = self.kernel_cpu?;
        (measured_ns > Nanos::ZERO).then(|| {
            format!("{measured_ns} measured, counts {counted_ns}, of which {in_full_ns} is work that counts in full")
        })
    }

    /// Which of the work that counts in full is generic code, in words, if there is enough of it to matter.
    pub(crate) fn generic_code_line(&self, run_time: Nanos) -> Option<String> {
        let all: Vec<&GenericCode> = self.generic_code.iter().collect();
        let noted = !all.is_empty() && self.in_full_share(run_time) >= IN_FULL_SHARE_NOTED;
        noted.then(|| {
            let named = GenericCode::in_words(&all);
            format!("{named}: part of the work that counts in full; a native kernel uses instructions of the processor")
        })
    }

    /// The requests that were not the command's, in words, if there were any.
    pub(crate) fn issuers_line(&self) -> Option<String> {
        let RequestIssuers { programs, kernel, kernel_reads, unknown } = self.issuers?;
        (kernel > 0).then(|| {
            let all = (programs + kernel + unknown) as f64;
            format!(
                "{kernel} ({}) by the guest's kernel (write-back, journal, file system's own work); {kernel_reads} of \
                 them reads",
                per_cent(kernel as f64 / all)
            )
        })
    }
}

/// Share of the run in which the processor was not idle. Idle time is jumped over, but in the host's time, where CPU
/// time counts itself.
fn processor_busy(counters: &BTreeMap<String, u64>, run_time: Nanos, clock: &ClockInfo) -> Option<f64> {
    let counted = |name: &str| counters.get(name).map(|&count| count as f64);
    let run_time = run_time.as_nanos() as f64;
    let busy = match (clock.driver.as_str(), clock.cpu.as_str()) {
        (_, "zero") => return Some(0.0),
        ("real", _) => counted("kernel_cpu_nanos")? + counted("user_cpu_nanos")?,
        ("exact", _) => counted("kernel_counted_nanos")? + counted("user_cpu_nanos")?,
        _ => run_time - counted("jumped_nanos")?,
    };
    Some(ratio(busy, run_time).clamp(0.0, 1.0))
}

fn kernel_cpu(counters: &BTreeMap<String, u64>) -> Option<KernelCpu> {
    let counted = |name: &str| counters.get(name).copied().map(Nanos::from_nanos);
    Some(KernelCpu {
        measured_ns: counted("kernel_work_nanos")?,
        counted_ns: counted("kernel_counted_nanos")?,
        in_full_ns: counted("kernel_in_full_nanos")?,
    })
}

/// Without a digit after the point, unless it is below ten.
fn per_cent(share: f64) -> String {
    let per_cent = share * 100.0;
    match per_cent {
        _ if per_cent == 0.0 || (9.95..=100.0).contains(&per_cent) => format!("{per_cent:.0} %"),
        _ => format!("{per_cent:.1} %"),
    }
}

fn times(factor: f64) -> String {
    if factor < 9.95 { format!("{factor:.1}") } else { format!("{factor:.0}") }
}
