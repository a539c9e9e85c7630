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

/// Unique among the threads of this process and, by its number, among processes.
fn temporary_name(path: &Path) -> PathBuf {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{count}.partial", std::process::id()));
    path.with_file_name(name)
}
