// Finds the reference data of disks. Each test that reads them includes this file as a module.

use std::path::{Path, PathBuf};

/// The folder in `CHRONODISK_REFERENCE`, otherwise `shared/reference` beside the repository, otherwise the subset in
/// the repository: one measured drive and some outputs of the reference simulator.
pub fn reference_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let whole =
        std::env::var_os("CHRONODISK_REFERENCE").map_or_else(|| root.join("../shared/reference"), PathBuf::from);
    if whole.is_dir() {
        return whole;
    }
    println!("no reference data in {}, so only those of the repository are used", whole.display());
    root.join("crates/chronodisk-importers/testdata/reference")
}
