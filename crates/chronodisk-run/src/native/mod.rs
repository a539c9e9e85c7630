//! Native programs on an emulated block device of this host.

mod mount;
mod native_run;

pub use self::mount::{NativeArguments, NativePlan, execute_native};
pub use self::native_run::{
    DeviceArguments, Done, Interruption, Launch, NativeRun, Ran, native_failure, native_own_failure, serve_native,
};
