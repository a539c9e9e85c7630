//! Runs a program in User Mode Linux, on an emulated device, in the guest's own time or the host's.
//!
//! Three processes work together, and a fourth ([`guest_sweeper`]) cleans up after them. The *launcher* ([`run`]) is
//! the user's command: it starts the two others, relays the program's input and output, and collects the result. The
//! *backend* ([`guest_backend`]) is the device: vhost-user front end, engine, model, store. The *guest* is the
//! distribution's `linux.uml` with a preload library as its clock (`shim`); its first process ([`guest_init`]) is this
//! executable again. Each process has a folder in the sources; `shared` has their common data.
//!
//! The guest's time stands still from a virtqueue kick to its acknowledgement, and jumps when the guest idles. Not
//! modelled: more than one CPU, and the exact cost of a native kernel's system calls; one stated factor scales the
//! guest kernel's CPU time. In a kernel that keeps simulated time itself ([`built_kernel`]), computing takes no time,
//! or the programs' own. In the host's time ([`GuestTime::Real`]) nothing stands still and nothing jumps, and the costs
//! of User Mode Linux are visible.

mod backend;
pub mod calibration;
mod confinement;
mod inside;
mod kernel;
mod launcher;
mod recording;
mod shared;
mod sweeper;

pub use backend::process::guest_backend;
pub use inside::init::guest_init;
pub use inside::replay::guest_replay;
pub use inside::states::guest_states;
pub use kernel::built as built_kernel;
pub use kernel::installed::UserModeLinux;
pub use kernel::programs::HostLacks;
pub use launcher::launch::run;
pub use launcher::outcome::{RunError, RunOutcome};
pub use launcher::progress::{Progress, RunEvent};
pub use launcher::replay::{ReplayOutcome, ThinkTime};
pub use launcher::run_options::{ReplayOptions, RunOptions};
pub use recording::{Recording, RecordingError};
pub use shared::control::BackendReport;
pub use shared::costs::{
    KERNEL_SCALE_DEFAULT, KernelCosts, RequestCosts, TSC_EXTRA_NANOS_DEFAULT, Work, WorkCost, Worked,
};
pub use shared::descriptors::DEVICES_MAX;
pub use shared::device_names::DEVICE;
pub use shared::device_options::{DeviceOptions, ModelChoice, StoreChoice};
pub use shared::filesystem::FileSystem;
pub use shared::page::{ClockCounters, ClockOptions, INTERRUPT_NANOS_DEFAULT, Traffic};
pub use shared::samples::{ComponentSample, Sample};
pub use shared::spec::{CheckResult, DroppedFiles, GenericCode, RootChoice, Settled, Stage};
pub use shared::states::{StateEvent, StateReport, StateStep, StatesOptions};
pub use shared::time::{
    CPU_SPEED_DEFAULT, ExactCpu, GuestTime, IdlePace, MeasuredCpu, PROCESSORS_MAX, QUANTUM_DEFAULT, StoppingCpu,
};
pub use shared::zones::{ZonesBegan, zone_shape};
pub use sweeper::guest_sweeper;
