//! `chronodisk trace`: traces of block requests and of system calls.

mod convert;
mod replay;

use clap::{Args, Subcommand};

use crate::failure::Outcome;

/// Works with traces of block requests and of system calls
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk trace replay calls.parquet --device first-disk")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Convert(convert::Arguments),
    Replay(Box<replay::Arguments>),
}

/// Does what was asked.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    match arguments.command {
        Command::Convert(arguments) => convert::execute(arguments),
        Command::Replay(arguments) => replay::execute(*arguments, given),
    }
}
