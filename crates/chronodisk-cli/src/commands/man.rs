//! `chronodisk man`: the manual pages, one per command, for packagers.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Outcome, status};

/// Writes the manual pages to a directory
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk man ~/.local/share/man/man1")]
pub struct Arguments {
    /// Directory of the pages, created if needed
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one page per command of `root`, the whole command line.
pub fn execute(arguments: Arguments, root: clap::Command) -> Outcome {
    let directory = &arguments.directory;
    let cannot = |error| Failure::host(format!("can't write the manual pages to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    clap_mangen::generate_to(root, directory).map_err(cannot)?;
    Ok(status::FINE)
}
