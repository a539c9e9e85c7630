//! `chronodisk trace snapshot`: the metadata of a file system, for replays that begin with it.

use std::path::PathBuf;

use chronodisk_run::snapshot;
use clap::Args;

use crate::failure::{Outcome, status};
use crate::output;

/// Keeps the metadata of a file system in a sparse image
///
/// SOURCE is an unmounted block device, an image, or the file of --store. `chronodisk run` and `chronodisk trace
/// replay` begin with the snapshot instead of a new file system if --snapshot names it. Contents of files read as
/// zeros.
#[derive(Debug, Args)]
#[command(after_help = "Snapshots are of ext2, ext3 and ext4 (by e2image) and of XFS (by xfs_metadump).\n\n\
    Example: chronodisk trace snapshot /dev/sdb1 -o project.snapshot")]
pub struct Arguments {
    /// Device or image with the file system
    #[arg(value_name = "SOURCE")]
    source: PathBuf,

    /// Writes the snapshot to this file, which is complete or not there
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
}

/// Makes the snapshot.
pub fn execute(arguments: &Arguments) -> Outcome {
    output::expect_place(&arguments.output)?;
    let found = snapshot::make(&arguments.source, &arguments.output)?;
    let (path, kind) = (arguments.output.display(), found.kind.name());
    output::note(format_args!("{path}: {kind}, {} bytes, UUID {}", found.bytes, found.uuid));
    Ok(status::FINE)
}
