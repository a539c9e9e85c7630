//! Files that are there whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ReportError;

/// Writes a file under a temporary name beside `path`, and renames it when it is complete; what
/// was at `path` stays until then, and nothing is left behind on failure.
pub(crate) fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let temporary = temporary_name(path);
    let failed = |action| move |source| ReportError::Io { path: path.to_owned(), action, source };
    let result = (|| {
        let mut file = BufWriter::new(File::create_new(&temporary).map_err(failed("create"))?);
        write(&mut file)?;
        file.flush().map_err(failed("write"))?;
        fs::rename(&temporary, path).map_err(failed("write"))
    })();
    if result.is_err() {
        // The first failure is the one to tell; this one can only follow from it.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Writes `text` to a file that is there whole or not at all; unless it is to replace what is there, an existing file
/// is an error of the kind `AlreadyExists`.
///
/// # Errors
/// A file that is there and is not to be replaced, or that can't be written.
pub fn write_text(path: &Path, text: &str, replace: bool) -> Result<(), ReportError> {
    let failed = |source| ReportError::Io { path: path.to_owned(), action: "write", source };
    if replace {
        return write_atomically(path, |file| file.write_all(text.as_bytes()).map_err(failed));
    }
    // A hard link refuses to replace what is there, even what came there a moment ago; a rename would not.
    let temporary = temporary_name(path);
    let written = File::create_new(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::hard_link(&temporary, path));
    // Whatever became of it, its other name is not needed.
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
