//! `chronodisk man`: the manual pages, one per command, for packagers.

use std::path::PathBuf;

use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::failure::{Failure, Outcome, status};

/// Writes the manual pages into a directory
#[derive(Debug, Args)]
pub struct Arguments {
    /// Where the pages go; created if need be
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one page per command.
pub fn execute(arguments: Arguments) -> Outcome {
    let directory = &arguments.directory;
    let cannot = |error| Failure::host(format!("can't write the manual pages to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(cannot)?;
    Ok(status::FINE)
}
