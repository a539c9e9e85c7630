//! Creation of an image's files: all of them or none, and never in place of an existing file.
//!
//! The image's own file is made first and locked. It becomes an image when its header is written, last. So a killed
//! start leaves an image's file without a header, and empty files beside it. The next start takes these over. Any other
//! file of these names belongs to an incomplete image, and creation is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_store::host::{Host, OpenMode};
use chronodisk_store::image_files::{sums_path, taken_beside};
use chronodisk_store::{FileOperation, StoreError, StoreFile};

use super::header::HEADER_BYTES;
use super::map_log::MapLog;
use super::slot_file::open_image;
use super::sums::Sums;

/// The files of an image during its creation. Files created by this value are removed unless it is
/// [finished](Self::finish).
#[derive(Debug)]
pub(crate) struct NewImage<'a> {
    host: &'a Arc<dyn Host>,
    image: &'a Path,
    /// Whether the image's file was created by this value.
    made_image: bool,
    made_beside: Vec<PathBuf>,
    power_cut: bool,
    finished: bool,
}

impl<'a> NewImage<'a> {
    /// Creates an image's file, or takes over one that [never became an image](is_unfinished).
    pub(crate) fn begin(
        host: &'a Arc<dyn Host>,
        image: &'a Path,
        power_cut: bool,
    ) -> Result<(Self, StoreFile), StoreError> {
        if !StoreFile::exists(host, image)? {
            refuse(image, taken_beside(host, image)?)?;
        }
        let (file, made_image) = match StoreFile::open(host, image, OpenMode::CreateNew) {
            Ok(file) => (file, true),
            Err(error) => match StoreFile::open(host, image, OpenMode::ReadWrite) {
                Ok(file) if is_unfinished(&file)? => (file, false),
                _ => return Err(error),
            },
        };
        if let Err(error) = file.lock(true) {
            // Another start that took the file over meanwhile needs it.
            if made_image && !matches!(error, StoreError::InUse { .. }) {
                let _ = host.remove(image);
            }
            return Err(error);
        }
        let mut new = NewImage { host, image, made_image, made_beside: Vec::new(), power_cut, finished: false };
        // Before the lock another start may have made an image of the file, or removed it again.
        if !is_unfinished(&file)? || !file.has_its_name()? {
            new.finished = true;
            return Err(StoreError::InUse { path: image.to_owned() });
        }
        new.take_over_leftovers()?;
        if power_cut {
            // The name of the image's file must be durable before any other name.
            file.sync_folder()?;
        }
        Ok((new, file))
    }

    /// Makes a file of the image.
    pub(crate) fn file(&mut self, path: &Path) -> Result<StoreFile, StoreError> {
        let file = StoreFile::open(self.host, path, OpenMode::CreateNew)?;
        self.made_beside.push(path.to_owned());
        Ok(file)
    }

    /// Keeps all files of the image, which is complete.
    pub(crate) fn finish(mut self) {
        self.finished = true;
    }

    /// Removes files that a killed start left beside the image's file; any others are refused.
    fn take_over_leftovers(&self) -> Result<(), StoreError> {
        let (mut leftovers, mut others) = (Vec::new(), Vec::new());
        for path in taken_beside(self.host, self.image)? {
            let file = StoreFile::open(self.host, &path, OpenMode::Read)?;
            let is_leftover =
                if path == sums_path(self.image) { Sums::is_empty(&file)? } else { MapLog::is_empty(&file)? };
            if is_leftover { leftovers.push(path) } else { others.push(path) }
        }
        refuse(self.image, others)?;
        let removed = |path: &PathBuf| {
            let (path, operation) = (path.clone(), FileOperation::Create);
            move |source| StoreError::Io { path, operation, offset_bytes: 0, len_bytes: 0, source }
        };
        leftovers.iter().try_for_each(|path| self.host.remove(path).map_err(removed(path)))
    }

    fn remove_made(&self) {
        // A file with a header is no image without the files beside it.
        if let Ok(file) = StoreFile::open(self.host, self.image, OpenMode::ReadWrite)
            && !is_unfinished(&file).unwrap_or(false)
        {
            let _ = file.set_len(0, FileOperation::Create);
        }
        let left = self.made_beside.iter().rev().filter(|path| self.host.remove(path).is_err()).count();
        if !self.made_image || left > 0 {
            // The remaining files stay with the image's file, and the next start takes them over.
            return;
        }
        if self.power_cut && !self.made_beside.is_empty() {
            let _ = self.host.sync_folder(self.image.parent().unwrap_or(Path::new(".")));
        }
        let _ = self.host.remove(self.image);
    }
}

impl Drop for NewImage<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.remove_made();
        }
    }
}

/// Fails if other files of an image exist without the image's file.
fn refuse(image: &Path, there: Vec<PathBuf>) -> Result<(), StoreError> {
    match there.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Incomplete { image: image.to_owned(), missing: vec![image.to_owned()], there }),
    }
}

/// Whether a file is one that a killed start left before it wrote the header, or an empty one.
pub(crate) fn is_unfinished(file: &StoreFile) -> Result<bool, StoreError> {
    const SECTOR_BYTES: u64 = 512;
    let len_bytes = file.size()?.len_bytes;
    let mut sector = vec![0; len_bytes.min(SECTOR_BYTES) as usize];
    file.read(0, &mut sector)?;
    Ok(len_bytes <= HEADER_BYTES && sector.iter().all(|byte| *byte == 0))
}

/// Whether a file of this name exists that never became an image.
pub(crate) fn is_unfinished_at(host: &Arc<dyn Host>, path: &Path) -> Result<bool, StoreError> {
    is_unfinished(&open_image(host, path, OpenMode::Read)?)
}
