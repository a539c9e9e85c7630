//! The command line: one variant per command, each with its flags in its own module.

use chronodisk_run::RecordedOptions;
use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    age, calibrate, compare, completions, crash, devices, doctor, emulator_server, fit, help, image, kernel, man,
    mount, report, rm, run, runs, serve, show, simulate, sweep, trace, validate, verify, whatif,
};
use crate::failure::Outcome;
use crate::{completion, version};

/// Runs real programs on emulated storage devices with accurate timing.
#[derive(Debug, Parser)]
#[command(
    name = "chronodisk",
    version = version::long(),
    max_term_width = 100,
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true,
    after_help = "Data is written to standard output, messages to standard error.\n\n\
        Exit status: 0 success, 1 a check failed, 2 wrong usage, 3 this host lacks something.\n\
        `run`, `mount`, `whatif` and `serve --run` end with the status of their program.\n\n\
        Example: chronodisk run --device first-disk -- cp -r /usr/include /mnt"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Arguments>),
    Crash(Box<crash::Arguments>),
    Mount(mount::Arguments),
    Whatif(whatif::Arguments),
    Serve(serve::Arguments),
    EmulatorServer(emulator_server::Arguments),
    Simulate(simulate::Arguments),
    Sweep(sweep::Arguments),
    Trace(trace::Arguments),
    Age(age::Arguments),
    Validate(validate::Arguments),
    Fit(fit::Arguments),
    Verify(verify::Arguments),
    Compare(compare::Arguments),
    Report(report::Arguments),
    Runs(runs::Arguments),
    Show(show::Arguments),
    Rm(rm::Arguments),
    Devices(devices::Arguments),
    Doctor(doctor::Arguments),
    Calibrate(calibrate::Arguments),
    Kernel(kernel::Arguments),
    Image(image::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
    Help(help::Arguments),
}

/// The definition of the command line, with shell completions.
pub fn command() -> clap::Command {
    completion::with_completers(Cli::command())
}

impl Cli {
    /// Executes the command; one that keeps a result records its `options`.
    pub fn execute(self, options: RecordedOptions) -> Outcome {
        match self.command {
            Command::Run(arguments) => run::execute(*arguments, options),
            Command::Crash(arguments) => crash::execute(&arguments, options),
            Command::Mount(arguments) => mount::execute(arguments, options),
            Command::Whatif(arguments) => whatif::execute(arguments),
            Command::Serve(arguments) => serve::execute(arguments, &options),
            Command::EmulatorServer(arguments) => emulator_server::execute(arguments),
            Command::Simulate(arguments) => simulate::execute(arguments),
            Command::Sweep(arguments) => sweep::execute(&arguments, &command()),
            Command::Trace(arguments) => trace::execute(arguments, options),
            Command::Age(arguments) => age::execute(arguments),
            Command::Validate(arguments) => validate::execute(arguments),
            Command::Fit(arguments) => fit::execute(arguments),
            Command::Verify(arguments) => verify::execute(arguments),
            Command::Compare(arguments) => compare::execute(arguments),
            Command::Report(arguments) => report::execute(arguments),
            Command::Runs(arguments) => runs::execute(arguments),
            Command::Show(arguments) => show::execute(arguments),
            Command::Rm(arguments) => rm::execute(arguments),
            Command::Devices(arguments) => devices::execute(arguments),
            Command::Doctor(arguments) => doctor::execute(arguments),
            Command::Calibrate(arguments) => calibrate::execute(arguments),
            Command::Kernel(arguments) => kernel::execute(arguments),
            Command::Image(arguments) => image::execute(arguments),
            Command::Completions(arguments) => completions::execute(arguments),
            Command::Man(arguments) => man::execute(arguments, command()),
            Command::Help(arguments) => help::execute(arguments, command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        command().debug_assert();
    }
}
