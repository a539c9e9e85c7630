//! `chronodisk completions`: a completion script for a shell.

use clap::Args;
use clap_complete::env::Shells;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Prints a shell completion script
///
/// The script asks the installed command, so that it completes names of profiles, runs, tags and file systems.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk completions bash > ~/.local/share/bash-completion/completions/chronodisk")]
pub struct Arguments {
    /// Shell to complete in
    shell: clap_complete::Shell,
}

/// The environment variable by which a shell's script requests completions.
pub const VARIABLE: &str = "COMPLETE";

/// Writes the script.
pub fn execute(arguments: Arguments) -> Outcome {
    let mut script = Vec::new();
    let shells = Shells::builtins();
    let shell = arguments.shell.to_string();
    let completer = shells.completer(&shell).expect("the parser lets only known shells through");
    completer
        .write_registration(VARIABLE, "chronodisk", "chronodisk", "chronodisk", &mut script)
        .map_err(|error| Failure::host(format!("can't write the script: {error}")))?;
    output::data(&String::from_utf8_lossy(&script))?;
    Ok(status::FINE)
}
