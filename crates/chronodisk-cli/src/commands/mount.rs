//! `chronodisk mount`: a program on this host itself, on an emulated block device.

use std::ffi::OsString;

use chronodisk_run::{NativeArguments, NativePlan, RecordedOptions, execute_native};
use clap::Args;

use super::run::show;
use crate::failure::Outcome;
use crate::version;

/// Runs a program natively on an emulated device
///
/// Makes a block device of this host from the emulated device, makes and mounts a file system on it, and runs CMD on
/// this host's kernel with all processors. The device works in real time: each request takes the time that the model
/// says. CMD finds the block device in $CHRONODISK_DEVICE. Only CMD sees the mount. It needs root.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: CMD's own; 127 if there is no CMD, 128+n if signal n ended it.\n\
    125 if the emulation failed after CMD had started.\n\
    Before CMD starts: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk mount --device first-disk --setup 'cp -r /usr/include /mnt' -- grep -rc main /mnt")]
pub struct Arguments {
    #[command(flatten)]
    run: NativeArguments,

    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
}

/// Runs the command as often as asked, and keeps the result.
pub fn execute(arguments: Arguments, options: RecordedOptions) -> Outcome {
    let plan = NativePlan::resolve(&arguments.run, &arguments.command, options, version::caller())?;
    let run = execute_native(&plan)?;
    show(run, &plan.directory, false, arguments.run.result.json)
}
