//! Any bytes where a file system or a partition table is: the classifiers stay within their bounds, and what they
//! did not call contents of files reads as it was written.
//!
//! The input is a list of records, see [`squash::Twin::play`].
#![no_main]

use libfuzzer_sys::fuzz_target;

mod squash;

fuzz_target!(|input: &[u8]| {
    let mut twin = squash::Twin::new();
    twin.play(input);
    twin.check();
});
