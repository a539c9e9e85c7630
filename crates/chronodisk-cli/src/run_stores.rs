//! The files of a run's stores: their content before the run, and their removal if it never begins.

use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_guest::{DeviceOptions, StoreChoice};

use crate::failure::Failure;
use crate::squash::SquashArguments;

fn path_of(device: &DeviceOptions) -> Option<&Path> {
    match &device.store {
        StoreChoice::Ram { .. } => None,
        StoreChoice::File { path } => Some(path),
        StoreChoice::Squashed { image, .. } => image.as_deref(),
    }
}

/// Refuses flags that contradict images which are there; `seed` is one that was typed.
pub fn refuse_contradictions(
    devices: &[DeviceOptions],
    arguments: &SquashArguments,
    seed: Option<u64>,
) -> Result<(), Failure> {
    for device in devices {
        let StoreChoice::Squashed { image: Some(path), .. } = &device.store else { continue };
        arguments.refuse_contradiction(path, seed)?;
    }
    Ok(())
}

/// Files of stores that did not exist before a run.
pub struct NewFiles(Vec<PathBuf>);

impl NewFiles {
    /// Looks which do not exist.
    pub fn of(devices: &[DeviceOptions]) -> Self {
        let names = devices.iter().filter_map(path_of).filter(|path| fs::symlink_metadata(path).is_err());
        let mut new: Vec<PathBuf> = names.map(Path::to_owned).collect();
        new.dedup();
        // An image's maps and checksums are beside it.
        let beside: Vec<PathBuf> = new
            .iter()
            .flat_map(|path| {
                let of_devices = (0..devices.len()).map(|index| format!(".{index}.map"));
                of_devices.chain([".map".to_owned(), ".sums".to_owned()]).map(|end| {
                    let mut name = path.clone().into_os_string();
                    name.push(end);
                    PathBuf::from(name)
                })
            })
            .filter(|path| fs::symlink_metadata(path).is_err())
            .collect();
        new.extend(beside);
        NewFiles(new)
    }

    /// Removes the files of a run that failed before its command began, so that the next one begins equally.
    pub fn remove(&self) {
        for path in &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_guest::ModelChoice;

    use super::*;

    #[test]
    fn only_files_that_were_not_there_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let device = |name: &str| DeviceOptions {
            speed: 1.0,
            model: ModelChoice::Program { command: String::new() },
            capacity_bytes: None,
            state_file: None,
            store: StoreChoice::File { path: folder.path().join(name) },
            durable: false,
            store_recording: None,
            store_rate: None,
        };
        fs::write(folder.path().join("old"), "kept").unwrap();
        let new = NewFiles::of(&[device("old"), device("new")]);
        for name in ["new", "new.map", "new.sums", "new.0.map", "new.other", "old.map"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        new.remove();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["new.other", "old", "old.map"]);
    }
}
