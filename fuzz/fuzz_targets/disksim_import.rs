//! Any text as DiskSim parameter files: an error with a place, or a device whose profile gives the same device again.
//!
//! The first file is what comes before the first NUL; each of the others is a name, a NUL and a text.
#![no_main]

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_importers::disksim::{import, lexer::SourceFile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut parts = text.split('\0');
    let top = SourceFile { label: "top".to_owned(), text: parts.next().unwrap_or_default().to_owned() };
    let parts: Vec<&str> = parts.collect();
    let mut resolve = |name: &str, _: &str| {
        let found = parts.chunks_exact(2).find(|file| file[0].trim() == name);
        let file = |file: &[&str]| SourceFile { label: file[0].trim().to_owned(), text: file[1].to_owned() };
        found.map(file).ok_or_else(|| "there is no such file".to_owned())
    };
    let imported = match import(top, &mut resolve) {
        Ok(imported) => imported,
        Err(error) => {
            assert!(error.line != Some(0) && error.column != Some(0), "{error}");
            return;
        }
    };
    // A device without capacity is one that a profile can't describe.
    let Ok(profile) = imported.to_profile(&imported.describe()) else { return };
    let profile = Profile::parse(&profile, "imported").expect("a written profile is valid");
    profile.build(&BuildOptions::default()).expect("its own capacity was checked");
});
