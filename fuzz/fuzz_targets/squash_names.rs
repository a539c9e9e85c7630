//! Any bytes where ext2, ext3 or ext4 is, whose directories are read for names, and notices among them: the same holds
//! as without names.
//!
//! The input is a list of records, see [`squash::Twin::play`].
#![no_main]

use std::sync::LazyLock;

use chronodisk_squash::SquashOptions;
use libfuzzer_sys::fuzz_target;

mod squash;

/// Names and paths; what is made up by them is zeros, as without names.
static OPTIONS: LazyLock<SquashOptions> = LazyLock::new(|| {
    let rules = ["*[a-m]=keep", "/**/f*/*=zeros", "*[0-9]=zeros"];
    let names = rules.map(|rule| rule.parse().expect("a rule")).into();
    SquashOptions { names, notices: true, ..SquashOptions::default() }
});

fuzz_target!(|input: &[u8]| {
    let mut twin = squash::Twin::with(&OPTIONS);
    twin.play(input);
    twin.check();
});
