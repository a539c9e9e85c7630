//! Flags that select runs.

use std::path::PathBuf;

use chronodisk_run::{RunDirectory, RunFolder};
use clap::Args;

use crate::failure::Failure;

/// Flags of every command that works on several runs.
#[derive(Debug, Args)]
pub struct RunChoice {
    /// Runs: directories, ids, names (the newest of that name), or `last`
    #[arg(required_unless_present = "tags", value_name = "RUN")]
    runs: Vec<String>,

    /// Adds the kept runs with this tag, oldest first; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

impl RunChoice {
    /// The directories of the runs, in the order given.
    pub fn directories(&self) -> Result<Vec<RunDirectory>, Failure> {
        self.find(RunFolder::find)
    }

    /// Like [`directories`](Self::directories), but also accepts a file: a result that was stored without its requests,
    /// as a baseline.
    pub fn directories_or_files(&self) -> Result<Vec<RunDirectory>, Failure> {
        self.find(|run| match PathBuf::from(run) {
            file if file.is_file() => Ok(RunDirectory::at(file)),
            _ => RunFolder::find(run),
        })
    }

    fn find(&self, find: impl Fn(&str) -> Result<RunDirectory, Failure>) -> Result<Vec<RunDirectory>, Failure> {
        let mut found = self.runs.iter().map(|run| find(run)).collect::<Result<Vec<_>, _>>()?;
        for tag in &self.tags {
            // A run named twice may be compared with itself, but not one selected by two tags.
            let tagged = RunFolder::of_user()?.find_tagged(tag)?;
            let new: Vec<RunDirectory> = tagged.into_iter().filter(|run| !found.contains(run)).collect();
            found.extend(new);
        }
        Ok(found)
    }
}
