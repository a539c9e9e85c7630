//! Time in a guest: its clock, the charge for computing, and the pace of idle time.

use chronodisk_sim::Nanos;

use super::costs::KernelCosts;

/// The clock of a guest. Each combination that a guest can run with is a value, and nothing else is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GuestTime {
    /// A preload library is the clock of the distribution's kernel, or of one like it: time stops while the emulator
    /// works.
    Stopping {
        /// Time base while the guest computes.
        cpu: StoppingCpu,
        /// Passing of idle time.
        idle: IdlePace,
    },
    /// The kernel keeps simulated time itself, to the nanosecond; see [`built_kernel`](crate::built_kernel).
    Exact {
        /// Time base while the guest computes.
        cpu: ExactCpu,
        /// Passing of idle time.
        idle: IdlePace,
    },
    /// The kernel keeps the time of several processors: each has a clock of its own, and none gets more than a quantum
    /// ahead of the slowest. Runs do not repeat.
    Several {
        /// Charge for the guest's CPU time.
        cpu: MeasuredCpu,
        /// Number of processors, 2 to [`PROCESSORS_MAX`].
        processors: usize,
        /// Largest lead of a processor over the slowest one: the error of an instant.
        quantum: Nanos,
        /// Passing of idle time.
        idle: IdlePace,
    },
    /// All time is the host's, also while a request is outstanding or the device computes. The kernel is the
    /// distribution's, or one like it.
    Real,
}

/// Charge for computing in a guest whose clock stops.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few, and they stay plain values")]
pub enum StoppingCpu {
    /// The guest's own CPU time: immune to the host's load.
    Measured(MeasuredCpu),
    /// The host's time: another program's load on the host shows.
    Wall,
}

/// Charge for computing in a guest whose kernel keeps simulated time.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "there are few, and they stay plain values")]
pub enum ExactCpu {
    /// The guest's own CPU time, as with a clock that stops.
    Measured(MeasuredCpu),
    /// Nothing: computing takes no time, and runs repeat to the nanosecond.
    Zero,
}

/// Charge for the guest's CPU time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCpu {
    /// Costs of programs and of the kernel.
    pub costs: KernelCosts,
    /// Speed of the guest's processor relative to this host's.
    pub speed: f64,
}

/// The guest's processor is this host's.
pub const CPU_SPEED_DEFAULT: f64 = 1.0;

/// Most processors of a guest (`CONFIG_NR_CPUS` of its kernel).
pub const PROCESSORS_MAX: usize = 8;

/// Lead of a processor over the slowest one without a choice. Below 200 µs, the alarms at each quantum cost more than
/// the shorter quantum gains: single requests of two jobs then took one and a half times as long as with 1 ms.
pub const QUANTUM_DEFAULT: Nanos = Nanos::from_millis(1);

/// Passing of time while the guest is idle and no request is outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePace {
    /// Time jumps to the guest's next timer.
    Jump,
    /// Time passes with the host's: for a person at a terminal.
    Host,
    /// It jumps until the user types at a terminal, or from the start if the command is a shell at one, and then passes
    /// with the host's.
    JumpUntilTyping,
}

impl GuestTime {
    /// The clock's name in results: `guest`, `exact` or `real`.
    #[must_use]
    pub fn clock_name(&self) -> &'static str {
        match self {
            GuestTime::Stopping { .. } => "guest",
            GuestTime::Exact { .. } => "exact",
            GuestTime::Real => "real",
            GuestTime::Several { .. } => "several",
        }
    }

    /// Name of the charge in results: `measured`, `wall` or `zero`.
    #[must_use]
    pub fn cpu_name(&self) -> &'static str {
        match self {
            GuestTime::Stopping { cpu: StoppingCpu::Measured(_), .. }
            | GuestTime::Exact { cpu: ExactCpu::Measured(_), .. }
            | GuestTime::Several { .. } => "measured",
            GuestTime::Stopping { cpu: StoppingCpu::Wall, .. } | GuestTime::Real => "wall",
            GuestTime::Exact { cpu: ExactCpu::Zero, .. } => "zero",
        }
    }

    /// Charge for the guest's CPU time, if it counts.
    #[must_use]
    pub fn measured_cpu(&self) -> Option<MeasuredCpu> {
        match *self {
            GuestTime::Stopping { cpu: StoppingCpu::Measured(cpu), .. }
            | GuestTime::Exact { cpu: ExactCpu::Measured(cpu), .. }
            | GuestTime::Several { cpu, .. } => Some(cpu),
            GuestTime::Stopping { cpu: StoppingCpu::Wall, .. }
            | GuestTime::Exact { cpu: ExactCpu::Zero, .. }
            | GuestTime::Real => None,
        }
    }

    /// Whether idle time takes none of the host's when the command begins.
    pub(crate) fn skips_idle_time(&self) -> bool {
        match self {
            GuestTime::Stopping { idle, .. } | GuestTime::Exact { idle, .. } | GuestTime::Several { idle, .. } => {
                *idle != IdlePace::Host
            }
            GuestTime::Real => false,
        }
    }

    /// Whether the guest's idle time passes with the host's once the user types.
    pub(crate) fn follows_typing(&self) -> bool {
        match self {
            GuestTime::Stopping { idle, .. } | GuestTime::Exact { idle, .. } | GuestTime::Several { idle, .. } => {
                *idle == IdlePace::JumpUntilTyping
            }
            GuestTime::Real => false,
        }
    }

    /// Number of the guest's processors.
    #[must_use]
    pub fn processors(&self) -> usize {
        match self {
            GuestTime::Several { processors, .. } => *processors,
            GuestTime::Stopping { .. } | GuestTime::Exact { .. } | GuestTime::Real => 1,
        }
    }
}
