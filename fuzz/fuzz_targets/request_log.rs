//! Any bytes as a request log in Parquet: refused, or records that could have been logged, which are written again.
//!
//! The Parquet library panics on some damaged files; the reader turns that into an error. Only a panic that gets out of
//! the reader is one of ours, so the hook that ends the program at any panic is taken away.
#![no_main]

use std::io::Write;
use std::path::Path;
use std::sync::Once;

use chronodisk_report::{LogReader, read_log, write_log};
use libfuzzer_sys::fuzz_target;

static QUIET: Once = Once::new();

fuzz_target!(|input: &[u8]| {
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    std::fs::File::create(&path).and_then(|mut file| file.write_all(input)).expect("a file");
    let whole = read_log(&path);
    let pieces = LogReader::open(&path).and_then(|reader| reader.collect::<Result<Vec<_>, _>>());
    assert_eq!(whole.is_ok(), pieces.is_ok());
    let Ok(records) = whole else { return };
    assert_eq!(records, pieces.unwrap_or_default().concat());
    for record in &records {
        assert!(record.completed >= record.arrival && record.due >= record.arrival);
        assert!(record.lba.0.checked_add(u64::from(record.sectors)).is_some());
    }
    let again = folder.path().join("again");
    write_log(&again, &records).expect("records that were read can be written");
    assert_eq!(read_log(Path::new(&again)).expect("what was written can be read"), records);
});
