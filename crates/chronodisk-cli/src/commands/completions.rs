//! `chronodisk completions`: a completion script for a shell.

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::{Outcome, status};
use crate::output;

/// Prints a shell completion script
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk completions bash > ~/.local/share/bash-completion/completions/chronodisk")]
pub struct Arguments {
    /// Selects the shell
    shell: clap_complete::Shell,
}

/// Writes the script.
pub fn execute(arguments: Arguments) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "chronodisk", &mut script);
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(status::FINE)
}
