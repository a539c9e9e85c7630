//! The request log on its way from the backend to the launcher: fixed-size records in shared memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};

use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};

const RECORD_BYTES: usize = 80;

/// Writes the log from the beginning of `file`.
pub(crate) fn write(file: &File, records: &[RequestRecord]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    for record in records {
        out.write_all(&encode(record))?;
    }
    out.flush()
}

/// Reads the records written by [`write`].
pub(crate) fn read(file: &mut File) -> io::Result<Vec<RequestRecord>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    if !rest.is_empty() {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the backend's request log ends inside a record"));
    }
    records
        .iter()
        .map(decode)
        .collect::<Option<_>>()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the backend's request log is damaged"))
}

const PRIORITIES: [Priority; 3] = [Priority::Idle, Priority::Normal, Priority::High];

fn encode(record: &RequestRecord) -> [u8; RECORD_BYTES] {
    let position = |found: Option<usize>| found.expect("the list is complete") as u8;
    let mut bytes = [0; RECORD_BYTES];
    let words = [
        record.order,
        record.lba.0,
        record.arrival.as_nanos(),
        record.due.as_nanos(),
        record.completed.as_nanos(),
        record.model_time.as_nanos(),
        record.store_time.as_nanos(),
    ];
    for (index, word) in words.into_iter().enumerate() {
        bytes[8 * index..8 * index + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes[56..60].copy_from_slice(&record.sectors.to_le_bytes());
    bytes[60..64].copy_from_slice(&record.issuer.to_le_bytes());
    bytes[64..66].copy_from_slice(&record.device.to_le_bytes());
    bytes[66..68].copy_from_slice(&record.queue.to_le_bytes());
    bytes[68] = position(Op::ALL.iter().position(|&op| op == record.op));
    bytes[69] = position(Status::ALL.iter().position(|&status| status == record.status));
    bytes[70] = position(PRIORITIES.iter().position(|&priority| priority == record.priority));
    bytes[71] = u8::from(record.fua);
    bytes[72] = u8::from(record.store_failed);
    bytes[73] = u8::from(record.stolen);
    bytes
}

fn decode(bytes: &[u8; RECORD_BYTES]) -> Option<RequestRecord> {
    let word = |index: usize| u64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let quarter = |at: usize| u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"));
    Some(RequestRecord {
        device: quarter(64),
        order: word(0),
        op: *Op::ALL.get(usize::from(bytes[68]))?,
        fua: bytes[71] != 0,
        priority: *PRIORITIES.get(usize::from(bytes[70]))?,
        lba: Lba(word(1)),
        sectors: half(56),
        queue: quarter(66),
        issuer: half(60),
        arrival: Nanos::from_nanos(word(2)),
        due: Nanos::from_nanos(word(3)),
        completed: Nanos::from_nanos(word(4)),
        status: *Status::ALL.get(usize::from(bytes[69]))?,
        store_failed: bytes[72] != 0,
        stolen: bytes[73] != 0,
        model_time: Nanos::from_nanos(word(5)),
        store_time: Nanos::from_nanos(word(6)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(order: u64) -> RequestRecord {
        RequestRecord {
            device: 1,
            order,
            op: Op::WriteZeroes,
            fua: true,
            priority: Priority::High,
            lba: Lba(1 << 40),
            sectors: 8,
            queue: 3,
            issuer: 4,
            arrival: Nanos::from_nanos(5),
            due: Nanos::from_nanos(6),
            completed: Nanos::MAX,
            status: Status::Aborted,
            store_failed: true,
            stolen: true,
            model_time: Nanos::from_nanos(8),
            store_time: Nanos::from_nanos(9),
        }
    }

    #[test]
    fn records_come_back_as_they_were() {
        let mut file = tempfile::tempfile().unwrap();
        let records = [record(0), record(1)];
        write(&file, &records).unwrap();
        assert_eq!(read(&mut file).unwrap(), records);
    }

    #[test]
    fn a_cut_or_damaged_log_is_refused() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&encode(&record(0))[..70]).unwrap();
        assert_eq!(read(&mut file).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let mut file = tempfile::tempfile().unwrap();
        let mut bytes = encode(&record(0));
        bytes[68] = u8::MAX;
        file.write_all(&bytes).unwrap();
        assert_eq!(read(&mut file).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
