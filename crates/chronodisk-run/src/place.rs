//! Places of files that a command is to write.

use std::path::Path;

use crate::failure::Failure;

/// Refuses a place where no file can be created, as far as that can be checked before the run.
pub fn expect_place(file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    if file.is_dir() {
        return Err(Failure::usage(format!("{shown} is a directory; expected the name of a file")));
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Failure::usage(format!(
            "{shown} can't be written: the directory {} does not exist",
            folder.display()
        )));
    }
    rustix::fs::access(folder, rustix::fs::Access::WRITE_OK)
        .map_err(|error| Failure::host(format!("{shown} can't be written: {}: {error}", folder.display())))
}
