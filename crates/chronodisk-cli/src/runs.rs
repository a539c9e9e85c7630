//! The folder that keeps runs, and the names by which a run can be given: a directory, an id in
//! that folder, a name that a user gave, or `last`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chronodisk_report::utc_timestamp;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::failure::Failure;
use crate::kept::{self, Kept};
use crate::{stored, suggest};

/// Name of the link to the newest run.
pub const LAST: &str = "last";

/// `$XDG_STATE_HOME/chronodisk/runs`, or `~/.local/state/chronodisk/runs`.
///
/// (XDG Base Directory Specification 0.8: a relative path in the variable is ignored.)
pub fn folder() -> Result<PathBuf, Failure> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
    let state = state.ok_or_else(|| {
        Failure::usage("neither XDG_STATE_HOME nor HOME names a directory for the runs")
            .help("set one of them, or name the directory with --output")
    })?;
    Ok(state.join("chronodisk/runs"))
}

/// The directory of the run that the user named.
pub fn find(name: &str) -> Result<PathBuf, Failure> {
    let direct = PathBuf::from(name);
    if direct.join(stored::RUN).is_file() || name.contains('/') && direct.is_dir() {
        return Ok(direct);
    }
    let folder = folder()?;
    let kept = folder.join(name);
    if !name.is_empty() && !name.contains('/') && kept.is_dir() {
        // `last` is a link; messages and results name the run itself.
        return Ok(fs::canonicalize(&kept).unwrap_or(kept));
    }
    let runs = kept::list(&folder);
    let called = |kept: &&Kept| kept.head.as_ref().is_some_and(|head| head.labels.name.as_deref() == Some(name));
    if let Some(newest) = runs.iter().rev().find(called) {
        return Ok(newest.directory.clone());
    }
    // A directory without a result may have a run's name by chance. Its reader reports the missing parts.
    if direct.is_dir() {
        return Ok(direct);
    }
    let names: BTreeSet<String> = runs.iter().filter_map(|kept| kept.labels().name).collect();
    let known: Vec<String> = names.into_iter().chain(ids(&folder)).collect();
    let failure = Failure::usage(format!(
        "no run '{name}': it is neither a directory nor the id or the name of a run in {}",
        folder.display()
    ));
    Err(match suggest::nearest(name, known.iter().map(String::as_str)) {
        Some(help) => failure.help(help),
        None if known.is_empty() => failure.help("no run has been kept there yet; `chronodisk run` keeps one"),
        None => failure.help(format!("the newest is {}", known[known.len() - 1])),
    })
}

/// The directories of the kept runs with a tag, oldest first.
pub fn find_tagged(tag: &str) -> Result<Vec<PathBuf>, Failure> {
    let folder = folder()?;
    let runs = kept::list(&folder);
    let tagged = runs.iter().filter(|kept| kept.labels().tags.iter().any(|of_run| of_run == tag));
    let directories: Vec<PathBuf> = tagged.map(|kept| kept.directory.clone()).collect();
    if !directories.is_empty() {
        return Ok(directories);
    }
    let tags: BTreeSet<String> = runs.iter().flat_map(|kept| kept.labels().tags).collect();
    let failure = Failure::usage(format!("no run in {} has the tag '{tag}'", folder.display()));
    Err(match suggest::nearest(tag, tags.iter().map(String::as_str)) {
        Some(help) => failure.help(help),
        None => failure.help("`chronodisk run --tag TAG` tags a run; `chronodisk runs` lists the tags"),
    })
}

/// Points `last` to the newest existing run, if its target is gone.
pub fn forget_missing(folder: &Path) {
    let link = folder.join(LAST);
    if link.exists() || fs::symlink_metadata(&link).is_err() {
        return;
    }
    match ids(folder).last() {
        Some(newest) => remember(&folder.join(newest)),
        None => {
            let _ = fs::remove_file(&link);
        }
    }
}

/// Where a run will be kept: `output` if the user named one, else a new id in the folder. Nothing is
/// made yet, so that a run that ends early leaves nothing.
pub fn plan(output: Option<&Path>, label: &str) -> Result<PathBuf, Failure> {
    let Some(output) = output else {
        // The process's number keeps apart two runs of one device that begin in one second.
        let id = format!("{}-{label}-{}", utc_timestamp(since_epoch().as_secs(), ""), std::process::id());
        return Ok(folder()?.join(id));
    };
    if fs::metadata(output).is_ok_and(|metadata| !metadata.is_dir()) {
        return Err(Failure::usage(format!("{} is a file; expected a directory", output.display())));
    }
    if fs::read_dir(output).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::usage(format!("{} is not empty", output.display()))
            .help("name a new directory, or empty this one"));
    }
    Ok(output.to_owned())
}

/// Refuses a planned directory that could not be made or written, before the work whose result goes there.
pub fn expect_place(directory: &Path) -> Result<(), Failure> {
    let absolute = std::path::absolute(directory)
        .map_err(|error| Failure::host(format!("can't create the run's directory {}: {error}", directory.display())))?;
    let nearest = absolute.ancestors().find(|folder| fs::symlink_metadata(folder).is_ok()).unwrap_or(Path::new("/"));
    let refused = |why: String| {
        let failure = Failure::host(format!("can't create the run's directory {}: {why}", directory.display()));
        Err(failure.help("name another with --output"))
    };
    // Permissions alone do not tell: the file system may be read-only, or full.
    let tried = nearest.join(format!(".chronodisk-{}", std::process::id()));
    match fs::create_dir(&tried).and_then(|()| fs::remove_dir(&tried)) {
        Ok(()) => Ok(()),
        Err(error) => refused(format!("{}: {error}", nearest.display())),
    }
}

/// Makes the directory that was planned, and keeps `rm` from it as long as this process may write to it.
pub fn make(directory: &Path) -> Result<(), Failure> {
    fs::create_dir_all(directory)
        .map_err(|error| Failure::host(format!("can't create the run's directory {}: {error}", directory.display())))?;
    claim(directory);
    Ok(())
}

/// Locks a directory until this process ends. A file system without locks is no reason to fail the run.
fn claim(directory: &Path) {
    static CLAIMED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());
    let (Ok(mut claimed), Ok(file)) = (CLAIMED.lock(), File::open(directory)) else { return };
    if !claimed.contains_key(directory) && flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        claimed.insert(directory.to_owned(), file);
    }
}

/// Whether another process may still write to a run's directory.
pub fn is_being_written(directory: &Path) -> bool {
    let Ok(file) = File::open(directory) else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
}

/// Makes `last` name this run from now on; failing that is no reason to fail the run.
pub fn remember(directory: &Path) {
    let (Ok(folder), Ok(target)) = (folder(), fs::canonicalize(directory)) else { return };
    if fs::create_dir_all(&folder).is_err() {
        return;
    }
    // A link can't be overwritten, but a rename over it is atomic.
    let fresh = folder.join(format!(".{LAST}.{}", std::process::id()));
    let _ = fs::remove_file(&fresh);
    if std::os::unix::fs::symlink(target, &fresh).is_ok() && fs::rename(&fresh, folder.join(LAST)).is_err() {
        let _ = fs::remove_file(&fresh);
    }
}

/// Ids of the kept runs, oldest first.
pub fn ids(folder: &Path) -> Vec<String> {
    let mut ids: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && name != LAST)
        .collect();
    ids.sort();
    ids
}

/// The present, as in RFC 3339.
pub fn now_rfc3339() -> String {
    utc_timestamp(since_epoch().as_secs(), "-:")
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A note for readers of a run that this signal ended.
pub fn ended_early(signal: &str) -> String {
    format!("{signal} ended the run; its last repetition is not that of a whole command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_with_something_in_it_is_refused() {
        let parent = tempfile::tempdir().unwrap();
        let fresh = parent.path().join("a/b");
        assert_eq!(plan(Some(&fresh), "null").unwrap(), fresh);
        assert!(!fresh.exists());
        assert!(!is_being_written(parent.path()) && !is_being_written(&fresh));
        make(&fresh).unwrap();
        assert!(is_being_written(&fresh));
        assert!(plan(Some(&fresh), "null").is_ok(), "an empty one is as good as none");
        let failure = plan(Some(parent.path()), "null").unwrap_err();
        assert!(failure.to_string().contains("is not empty"), "{failure}");
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_refused_before_the_run() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(expect_place(&parent.path().join("a/b")).is_ok());
        assert!(plan(Some(&file), "null").unwrap_err().to_string().contains("is a file"));
        for beyond in [file.join("run"), PathBuf::from("/proc/run")] {
            let failure = expect_place(&beyond).unwrap_err();
            assert_eq!(failure.status(), crate::failure::status::HOST_LACKS, "{failure}");
        }
        assert!(!parent.path().join("a").exists());
    }
}
