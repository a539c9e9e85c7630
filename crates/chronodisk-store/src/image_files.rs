//! Names of the files of a squashed image, and the refusal to create a store if only some of them exist.
//!
//! An image FILE has checksums in FILE.sums, and its map in FILE.map, or several devices' maps in FILE.0.map,
//! FILE.1.map and so on. If some of these are missing, the image was moved in part, or lies on a disk that is not
//! mounted. A store created in that place would be in the way of the image, or overwrite it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::host::{Host, OpenMode};
use crate::{StoreError, StoreFile};

/// Most devices of one image.
pub const IMAGE_DEVICES_MAX: usize = 64;

/// The first bytes of an image, of its checksums, and of a map.
const MAGICS: [&[u8; 8]; 3] = [b"CDSQUASH", b"CDSQSUM\0", b"CDSQMAP\0"];

/// A path with letters after its last ones.
#[must_use]
pub fn append_name(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// The checksums of an image.
#[must_use]
pub fn sums_path(image: &Path) -> PathBuf {
    append_name(image, ".sums")
}

/// The file of a device's map; `devices` is the number of devices in the image.
#[must_use]
pub fn map_path(image: &Path, devices: usize, index: usize) -> PathBuf {
    if devices == 1 { append_name(image, ".map") } else { append_name(image, &format!(".{index}.map")) }
}

/// Every name that a file of an image may have beside the image itself.
pub fn names_beside(image: &Path) -> impl Iterator<Item = PathBuf> + '_ {
    let of_several = (0..IMAGE_DEVICES_MAX).map(|index| map_path(image, IMAGE_DEVICES_MAX, index));
    [sums_path(image), map_path(image, 1, 0)].into_iter().chain(of_several)
}

/// Existing files with names beside an image.
///
/// # Errors
/// [`StoreError::Io`].
pub fn taken_beside(host: &Arc<dyn Host>, image: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let mut taken = Vec::new();
    for path in names_beside(image) {
        if StoreFile::exists(host, &path)? {
            taken.push(path);
        }
    }
    Ok(taken)
}

/// An error if parts of an image are beside a file that is to be created.
///
/// # Errors
/// [`StoreError::Incomplete`], [`StoreError::Io`].
pub(crate) fn refuse_parts_beside(host: &Arc<dyn Host>, path: &Path) -> Result<(), StoreError> {
    let mut there = taken_beside(host, path)?;
    // Other programs name their files so, too.
    there.retain(|part| is_part(host, part).unwrap_or(true));
    match there.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Incomplete { image: path.to_owned(), missing: vec![path.to_owned()], there }),
    }
}

/// Whether a file begins like a file of an image.
fn is_part(host: &Arc<dyn Host>, path: &Path) -> io::Result<bool> {
    let file = match host.open(path, OpenMode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    let (mut magic, mut done) = ([0; 8], 0);
    while done < magic.len() {
        match file.read_at(&mut magic[done..], done as u64, false) {
            Ok(0) => return Ok(false),
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(MAGICS.contains(&&magic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::real_host;

    #[test]
    fn a_file_is_not_created_beside_parts_of_an_image_but_beside_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        std::fs::write(folder.path().join("disk.map"), "# ddrescue's map file\n").unwrap();
        refuse_parts_beside(&real_host(), &disk).unwrap();
        for (name, magic) in [("disk.map", "CDSQMAP\0"), ("disk.sums", "CDSQSUM\0"), ("disk.63.map", "CDSQMAP\0")] {
            let part = folder.path().join(name);
            std::fs::write(&part, magic).unwrap();
            let error = refuse_parts_beside(&real_host(), &disk).unwrap_err().to_string();
            assert!(error.contains(&format!("{} is there", part.display())), "{error}");
            std::fs::remove_file(&part).unwrap();
        }
        // A link that leads nowhere is no part of an image.
        std::os::unix::fs::symlink("nowhere", folder.path().join("disk.map")).unwrap();
        refuse_parts_beside(&real_host(), &disk).unwrap();
        assert_eq!(taken_beside(&real_host(), &disk).unwrap(), [folder.path().join("disk.map")]);
    }
}
