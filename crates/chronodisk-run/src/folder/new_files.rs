//! The files of stores: their state before a run, and their removal if the run never begins.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use chronodisk_guest::{DeviceOptions, StoreChoice};
use chronodisk_store::image_files::names_beside;
use chronodisk_store::zones_path;
use rustix::fs::{FlockOperation, flock};

fn path_of(device: &DeviceOptions) -> Option<&Path> {
    match &device.store {
        StoreChoice::Ram { .. } | StoreChoice::Overlay { .. } => None,
        StoreChoice::File { path } => Some(path),
        StoreChoice::Squashed { image, .. } => image.as_deref(),
    }
}

/// Files of stores that did not exist before a command, removed again if no device was ever used: an unfinished one
/// would be in the way of the next start.
pub struct NewFiles(Vec<NewStore>);

struct NewStore {
    path: PathBuf,
    /// Names beside it that were free, which files of its image may have.
    beside: Vec<PathBuf>,
}

/// Longest wait for the end of the process that uses a store.
const RELEASE_MAX: Duration = Duration::from_secs(1);

impl NewFiles {
    /// Looks which of a run's stores do not exist.
    pub fn of(devices: &[DeviceOptions]) -> Self {
        let mut paths: Vec<&Path> = devices.iter().filter_map(path_of).collect();
        paths.dedup();
        NewFiles(paths.into_iter().filter_map(NewStore::at).collect())
    }

    /// Looks whether one store's file exists.
    pub fn of_store(path: Option<&Path>) -> Self {
        NewFiles(path.into_iter().filter_map(NewStore::at).collect())
    }

    /// Removes files created meanwhile. A store of another process holds its lock, and stays.
    pub fn remove(&self) {
        self.0.iter().for_each(NewStore::remove);
    }

    /// Devices may have been used: the files stay.
    pub fn keep(&mut self) {
        self.0.clear();
    }
}

impl NewStore {
    /// A store that does not exist yet.
    fn at(path: &Path) -> Option<Self> {
        let beside = is_missing(path)
            .then(|| names_beside(path).chain([zones_path(path)]).filter(|path| is_missing(path)).collect());
        beside.map(|beside| NewStore { path: path.to_owned(), beside })
    }

    fn remove(&self) {
        // Without the store's own file, the files beside it belong to another program.
        let Ok(file) = File::open(&self.path) else { return };
        let give_up = Instant::now() + RELEASE_MAX;
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if Instant::now() > give_up {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            self.beside.iter().chain([&self.path]).for_each(|path| drop(fs::remove_file(path)));
        }
    }
}

fn is_missing(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use chronodisk_guest::ModelChoice;

    use super::*;

    #[test]
    fn only_files_that_were_not_there_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let device = |name: &str| {
            let model = ModelChoice::Program { command: String::new() };
            DeviceOptions::new(model, StoreChoice::File { path: folder.path().join(name) })
        };
        fs::write(folder.path().join("old"), "kept").unwrap();
        let new = NewFiles::of(&[device("old"), device("new")]);
        let names = ["new.map", "new.sums", "new.0.map", "new.other", "old.map"];
        for name in names {
            fs::write(folder.path().join(name), "").unwrap();
        }
        // There is no store, so the file belongs to another program.
        new.remove();
        assert!(names.iter().all(|name| folder.path().join(name).exists()));
        let other = File::create(folder.path().join("new")).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        new.remove();
        assert!(names.iter().all(|name| folder.path().join(name).exists()), "another one has made it, and uses it");
        drop(other);
        new.remove();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["new.other", "old", "old.map"]);
    }
}
