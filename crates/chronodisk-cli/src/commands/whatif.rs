//! `chronodisk whatif`: how long a program would take if its device were some times as fast.

mod calibrate;

use std::ffi::OsString;

use chronodisk_report::plot_curves;
use chronodisk_run::{Predicted, WhatIfArguments, predict};
use clap::{Args, Subcommand};

use crate::failure::{Failure, Outcome, status};
use crate::{output, version};

/// Predicts a program's run time on a device that is R times as fast
///
/// Runs CMD on this host's kernel with all processors, as `chronodisk mount` does. While the device is busy, CMD is
/// frozen for a part of the time, so that it gets no further than on the faster device; the time in which it was frozen
/// does not count. It needs root, BPF and cgroup v2.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Exit status: CMD's own if it is not 0; 125 if Chronodisk failed after CMD had started.\n\
    Before CMD starts: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk whatif --device first-disk --speedup 2,5,inf --setup 'cp -r /usr/include /mnt' \
    -- grep -rc main /mnt")]
pub struct Arguments {
    #[command(subcommand)]
    other: Option<Other>,

    #[command(flatten)]
    predict: WhatIfArguments,

    /// Program to run, with its arguments
    #[arg(last = true, required = true, value_name = "CMD ARGS", num_args = 1..)]
    command: Vec<OsString>,
}

/// Other subcommands.
#[derive(Debug, Subcommand)]
enum Other {
    Calibrate(calibrate::Arguments),
}

/// Runs the command in all the ways that were asked for, and shows the predictions.
pub fn execute(arguments: Arguments) -> Outcome {
    if let Some(Other::Calibrate(arguments)) = &arguments.other {
        return calibrate::execute(arguments);
    }
    let WhatIfArguments { json, plot, .. } = &arguments.predict;
    let Predicted { result, ended, has_run } = predict(&arguments.predict, &arguments.command, &version::executable())?;
    let after_start = |outcome: Outcome| if has_run { outcome.map_err(Failure::after_start) } else { outcome };
    if ended.is_none() {
        output::note(result.render().trim_end());
    }
    if *json && has_run {
        output::json(&result).map_err(Failure::after_start)?;
    }
    if let Some(ended) = ended {
        return after_start(ended);
    }
    if let Some(path) = plot {
        plot_curves(path, "R", "run time in s", &result.curves())
            .map_err(|error| Failure::host(error).after_start())?;
        output::note(format_args!("plot: {}", path.display()));
    }
    Ok(status::FINE)
}
