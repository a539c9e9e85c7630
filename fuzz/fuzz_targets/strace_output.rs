//! Any text as output of strace: an error with a place inside the text, or a trace whose records are valid.
#![no_main]

use chronodisk_trace::calls::{Validator, fold, read_strace};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    match read_strace(input, "fuzz", Some("/mnt"), "x86_64") {
        Ok(trace) => {
            trace.header.validate().expect("a header that can be written");
            let mut validator = Validator::default();
            trace.records.iter().for_each(|record| validator.check(record).expect("a record that can be written"));
            drop(fold(&trace));
        }
        Err(error) => assert!(error.line <= input.split(|&byte| byte == b'\n').count() as u64 && error.column > 0),
    }
});
