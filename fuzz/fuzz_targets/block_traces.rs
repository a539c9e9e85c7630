//! Any bytes as a block trace of any format: refused, or records that a log could have.
//!
//! The first byte chooses the format, the second whether requests begin when they are queued, and how many wrong lines
//! are accepted.
#![no_main]

use chronodisk_trace::block::{Format, TraceReader, TraceWriter, dependences};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&[format, options], bytes)) = input.split_first_chunk() else { return };
    let _ = Format::detect(bytes);
    let mut reader = TraceReader::new(Format::ALL[usize::from(format) % Format::ALL.len()]);
    if options & 1 == 1 {
        reader = reader.from_queueing();
    }
    let mut reader = reader.accepting_bad(u64::from(options >> 1));
    let mut records = Vec::new();
    for piece in bytes.chunks(97) {
        if reader.read(piece, &mut records).is_err() {
            return;
        }
    }
    let _ = reader.finish(&mut records);
    for record in &records {
        assert!(record.completed >= record.arrival && record.lba.0 + u64::from(record.sectors) <= 1 << 56);
    }
    for format in Format::ALL {
        let mut out = Vec::new();
        if let Some(mut writer) = TraceWriter::new(format, reader.info().clone(), &mut out) {
            writer.write(&records, &mut out);
            writer.finish(&mut out);
        }
    }
    records.sort_by_key(|record| record.arrival);
    assert_eq!(dependences(&records).len(), records.len());
});
