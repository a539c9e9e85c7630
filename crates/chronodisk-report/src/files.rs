//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ReportError;

/// A file written under a temporary name beside its path. An existing file at the path stays until this one is kept.
/// Otherwise no file is left behind.
pub struct AtomicFile {
    path: PathBuf,
    temporary: PathBuf,
    file: BufWriter<File>,
}

impl AtomicFile {
    /// Begins a file.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let temporary = temporary_name(path);
        let failed = |source| ReportError::Io { path: path.to_owned(), action: "create", source };
        let file = BufWriter::new(File::create_new(&temporary).map_err(failed)?);
        Ok(AtomicFile { path: path.to_owned(), temporary, file })
    }

    /// It is complete.
    ///
    /// # Errors
    /// If it can't be written to its end, or get its name.
    pub fn keep(mut self) -> Result<(), ReportError> {
        let renamed = self.file.flush().and_then(|()| fs::rename(&self.temporary, &self.path));
        renamed.map_err(|source| ReportError::Io { path: self.path.clone(), action: "write", source })
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Under this name there is nothing any more once it was kept.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Writes a file as an [`AtomicFile`].
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut AtomicFile) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let mut file = AtomicFile::create(path)?;
    write(&mut file)?;
    file.keep()
}

/// Writes `text` to a file that appears complete or not at all. Without `replace`, an existing file is an error of the
/// kind `AlreadyExists`.
///
/// # Errors
/// If the file exists and is not to be replaced, or can't be written.
pub fn write_text(path: &Path, text: &str, replace: bool) -> Result<(), ReportError> {
    let failed = |source| ReportError::Io { path: path.to_owned(), action: "write", source };
    if replace {
        return write_atomically(path, |file| file.write_all(text.as_bytes()).map_err(failed));
    }
    // Unlike a rename, a hard link never replaces a file, even one that was just created.
    let temporary = temporary_name(path);
    let written = File::create_new(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::hard_link(&temporary, path));
    // The temporary name is not needed in any case.
    let _ = fs::remove_file(&temporary);
    written.map_err(failed)
}

/// Unique among the threads of this process and, by its number, among processes.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}.partial", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_replaces_a_file_only_when_told_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        write_text(&path, "one", false).unwrap();
        let refused = write_text(&path, "two", false).unwrap_err();
        assert!(
            matches!(refused, ReportError::Io { ref source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists)
        );
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        write_text(&path, "two", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(write_text(&directory.path().join("no/a.toml"), "x", false).is_err());
    }
}
