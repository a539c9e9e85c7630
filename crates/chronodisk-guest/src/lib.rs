//! Runs a program in User Mode Linux, on an emulated device, in the guest's own time or the host's.
//!
//! Three processes work together, and a fourth ([`guest_sweeper`]) cleans up after them. The *launcher* ([`run`]) is
//! the user's command: it starts the two others, relays the program's input and output, and collects the result. The
//! *backend* ([`guest_backend`]) is the device: vhost-user front end, engine, model, store. The *guest* is the
//! distribution's `linux.uml` with a preload library as its clock (`shim`); its first process ([`guest_init`]) is this
//! executable again.
//!
//! The guest's time stands still from a virtqueue kick to its acknowledgement, and jumps when the guest idles. Not
//! modelled: more than one CPU, and the exact cost of a native kernel's system calls; one stated factor scales the
//! guest kernel's CPU time. In a kernel that keeps simulated time itself ([`built_kernel`]), computing takes no time,
//! or the programs' own. In the host's time ([`GuestTime::Real`]) nothing stands still and nothing jumps, and the costs
//! of User Mode Linux are visible.

mod acknowledge;
mod backend;
pub mod built_kernel;
pub mod calibration;
mod confinement;
mod control;
mod costs;
mod descriptors;
mod device_options;
mod dropped;
mod filesystem;
mod frames;
mod generic_code;
mod holding;
mod host;
mod init;
mod kernel_log;
mod launch;
mod leftovers;
mod machine;
mod modules;
mod outcome;
mod output;
mod page;
mod processes;
mod progress;
mod real_time;
mod recording;
mod records;
mod relay;
mod replay;
mod root;
mod run_options;
mod samples;
mod settle;
mod shared;
mod signals;
mod spec;
mod states;
mod sweeper;
mod throttled;
mod time;
mod trap_probe;
mod zonefs;
mod zones;

pub use backend::guest_backend;
pub use control::BackendReport;
pub use costs::{KERNEL_SCALE_DEFAULT, KernelCosts, RequestCosts, TSC_EXTRA_NANOS_DEFAULT, Work, WorkCost, Worked};
pub use descriptors::DEVICES_MAX;
pub use filesystem::FileSystem;
pub use generic_code::GenericCode;
pub use host::{HostLacks, UserModeLinux};
pub use init::{DEVICE, guest_init};
pub use launch::{DeviceOptions, ModelChoice, ReplayOptions, RunOptions, StoreChoice, run};
pub use outcome::{RunError, RunOutcome};
pub use page::{ClockCounters, ClockOptions, INTERRUPT_NANOS_DEFAULT, Traffic};
pub use progress::{Progress, RunEvent};
pub use recording::{Recording, RecordingError};
pub use replay::{ReplayOutcome, ThinkTime, guest_replay};
pub use root::RootChoice;
pub use samples::{ComponentSample, Sample};
pub use settle::Settled;
pub use spec::{CheckResult, DroppedFiles, Stage};
pub use states::{StateReport, StateStep, StatesOptions, guest_states};
pub use sweeper::guest_sweeper;
pub use time::{
    CPU_SPEED_DEFAULT, ExactCpu, GuestTime, IdlePace, MeasuredCpu, PROCESSORS_MAX, QUANTUM_DEFAULT, StoppingCpu,
};
pub use zones::{ZonesBegan, zone_shape};
