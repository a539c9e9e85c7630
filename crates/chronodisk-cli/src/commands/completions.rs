//! `chronodisk completions`: a completion script for a shell.

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::{Outcome, status};
use crate::output;

/// Writes a shell's completion script to standard output
#[derive(Debug, Args)]
pub struct Arguments {
    /// The shell
    shell: clap_complete::Shell,
}

/// Writes the script.
pub fn execute(arguments: Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "chronodisk", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(status::FINE)
}
