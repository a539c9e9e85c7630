//! The folder that keeps runs. A run is named by its directory, by its id in the folder, by a name that a user gave, or
//! by `last`.

mod directory;
mod kept;
mod new_files;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_report::utc_timestamp;

use crate::failure::Failure;
use crate::suggest;
use crate::times::unix_seconds;

pub use self::directory::{FreshDirectory, Repetition, Replayable, RunDirectory};
pub use self::kept::{Head, KeptRun};
pub use self::new_files::NewFiles;

/// Name of the link to the newest run.
pub const LAST: &str = "last";

/// The folder that keeps runs. Each has a directory in it, named by the run's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A folder at this path.
    pub fn at(path: PathBuf) -> Self {
        RunFolder(path)
    }

    /// The user's folder: `$XDG_STATE_HOME/chronodisk/runs`, or `~/.local/state/chronodisk/runs`.
    ///
    /// (XDG Base Directory Specification 0.8: a relative path in the variable is ignored.)
    pub fn of_user() -> Result<Self, Failure> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
        let state = state.ok_or_else(|| {
            Failure::usage("neither XDG_STATE_HOME nor HOME names a directory for the runs")
                .help("set one of them, or name the directory with --output")
        })?;
        Ok(RunFolder(state.join("chronodisk/runs")))
    }

    /// The folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The directory of the run that the user named. Names, ids and `last` belong to the user's folder.
    pub fn find(name: &str) -> Result<RunDirectory, Failure> {
        let direct = RunDirectory::at(name);
        if direct.holds_run() || name.contains('/') && direct.path().is_dir() {
            return Ok(direct);
        }
        let folder = RunFolder::of_user()?;
        let kept = folder.0.join(name);
        if !name.is_empty() && !name.contains('/') && kept.is_dir() {
            // `last` is a link; messages and results name the run itself.
            return Ok(RunDirectory::at(fs::canonicalize(&kept).unwrap_or(kept)));
        }
        let runs = folder.runs();
        let called = |kept: &&KeptRun| kept.head.as_ref().is_some_and(|head| head.labels.name.as_deref() == Some(name));
        if let Some(newest) = runs.iter().rev().find(called) {
            return Ok(newest.directory.clone());
        }
        // A directory without a result may have a run's name by chance. Its reader reports the missing parts.
        if direct.path().is_dir() {
            return Ok(direct);
        }
        let names: BTreeSet<String> = runs.iter().filter_map(|kept| kept.labels().name).collect();
        let known: Vec<String> = names.into_iter().chain(folder.ids()).collect();
        let failure = Failure::usage(format!(
            "no run '{name}': it is neither a directory nor the id or the name of a run in {}",
            folder.0.display()
        ));
        Err(match suggest::nearest(name, known.iter().map(String::as_str)) {
            Some(help) => failure.help(help),
            None if known.is_empty() => failure.help("no run has been kept there yet; `chronodisk run` keeps one"),
            None => failure.help(format!("the newest is {}", known[known.len() - 1])),
        })
    }

    /// The directories of the runs with a tag, oldest first.
    pub fn find_tagged(&self, tag: &str) -> Result<Vec<RunDirectory>, Failure> {
        let runs = self.runs();
        let tagged = runs.iter().filter(|kept| kept.labels().tags.iter().any(|of_run| of_run == tag));
        let directories: Vec<RunDirectory> = tagged.map(|kept| kept.directory.clone()).collect();
        if !directories.is_empty() {
            return Ok(directories);
        }
        let tags: BTreeSet<String> = runs.iter().flat_map(|kept| kept.labels().tags).collect();
        let failure = Failure::usage(format!("no run in {} has the tag '{tag}'", self.0.display()));
        Err(match suggest::nearest(tag, tags.iter().map(String::as_str)) {
            Some(help) => failure.help(help),
            None => failure.help("`chronodisk run --tag TAG` tags a run; `chronodisk runs` lists the tags"),
        })
    }

    /// All runs, oldest first, without reading whole results.
    pub fn runs(&self) -> Vec<KeptRun> {
        self.ids().into_iter().filter_map(|id| KeptRun::read(RunDirectory::at(self.0.join(id)))).collect()
    }

    /// Ids of the kept runs, oldest first.
    fn ids(&self) -> Vec<String> {
        let mut ids: Vec<String> = fs::read_dir(&self.0)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| !name.starts_with('.') && name != LAST)
            .collect();
        ids.sort();
        ids
    }

    /// Chooses the directory of a new run: `output` if the user named one, otherwise one with a new id in the user's
    /// folder. Nothing is created yet, so that a run that ends early leaves nothing behind.
    pub fn plan(output: Option<&Path>, label: &str) -> Result<RunDirectory, Failure> {
        let Some(output) = output else {
            // The process's number keeps apart two runs of one device that begin in one second.
            let id = format!("{}-{label}-{}", utc_timestamp(unix_seconds(), ""), std::process::id());
            return Ok(RunDirectory::at(RunFolder::of_user()?.0.join(id)));
        };
        if fs::metadata(output).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(Failure::usage(format!("{} is a file; expected a directory", output.display())));
        }
        if fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some()) {
            return Err(Failure::usage(format!("{} is not empty", output.display()))
                .help("name a new directory, or empty this one"));
        }
        Ok(RunDirectory::at(output))
    }

    /// Points `last` of the user's folder to this run. Failing that is no reason to fail the run.
    pub fn remember(run: &RunDirectory) {
        if let Ok(folder) = RunFolder::of_user() {
            folder.point_last_to(run);
        }
    }

    fn point_last_to(&self, run: &RunDirectory) {
        let Ok(target) = fs::canonicalize(run.path()) else { return };
        if fs::create_dir_all(&self.0).is_err() {
            return;
        }
        // A symbolic link can't be overwritten, but replaced atomically by a rename.
        let fresh = self.0.join(format!(".{LAST}.{}", std::process::id()));
        let _ = fs::remove_file(&fresh);
        if std::os::unix::fs::symlink(target, &fresh).is_ok() && fs::rename(&fresh, self.0.join(LAST)).is_err() {
            let _ = fs::remove_file(&fresh);
        }
    }

    /// Points `last` to the newest existing run, if its target is gone.
    pub fn forget_missing(&self) {
        let link = self.0.join(LAST);
        if link.exists() || fs::symlink_metadata(&link).is_err() {
            return;
        }
        match self.ids().last() {
            Some(newest) => self.point_last_to(&RunDirectory::at(self.0.join(newest))),
            None => {
                let _ = fs::remove_file(&link);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::status;

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let fresh = RunFolder::plan(Some(&path), "null").unwrap();
        assert_eq!(fresh.path(), path);
        assert!(!path.exists());
        assert!(!RunDirectory::at(parent.path()).is_being_written() && !fresh.is_being_written());
        fresh.make().unwrap();
        assert!(fresh.is_being_written());
        assert!(RunFolder::plan(Some(&path), "null").is_ok(), "an empty one is as good as none");
        let failure = RunFolder::plan(Some(parent.path()), "null").unwrap_err();
        assert!(failure.to_string().contains("is not empty"), "{failure}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_refused_before_the_run() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(RunDirectory::at(parent.path().join("a/b")).expect_place().is_ok());
        assert!(RunFolder::plan(Some(&file), "null").unwrap_err().to_string().contains("is a file"));
        for beyond in [file.join("run"), PathBuf::from("/proc/run")] {
            let failure = RunDirectory::at(beyond).expect_place().unwrap_err();
            assert_eq!(failure.status(), status::HOST_LACKS, "{failure}");
        }
        assert!(!parent.path().join("a").exists());
    }
}
