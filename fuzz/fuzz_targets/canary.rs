//! A target that fails on the one input of its corpus. `scripts/fuzz-corpus` expects that, so that it is known to see
//! failures.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| assert_ne!(bytes, b"canary", "the canary's input was played"));
