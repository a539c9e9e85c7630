//! Any bytes as the journal of a recorder: an error with a place inside it, or a trace that can be written.
#![no_main]

use chronodisk_trace::calls::{JournalError, MAGIC, Validator, collisions, fold, plan, read_journal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let journal = [MAGIC, input].concat();
    match read_journal(&journal[..], None) {
        Ok(trace) => {
            trace.header.validate().expect("a header that can be written");
            let mut validator = Validator::default();
            trace.records.iter().for_each(|record| validator.check(record).expect("a record that can be written"));
            let found = collisions(&trace.records);
            assert!(found.excess <= found.cpu);
            let _ = plan(&fold(&trace));
        }
        Err(JournalError::Wrong { offset, .. }) => assert!(offset <= journal.len() as u64),
        Err(error) => panic!("{error}"),
    }
});
