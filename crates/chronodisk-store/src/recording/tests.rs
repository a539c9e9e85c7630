use chronodisk_sim::Op;

use super::*;
use crate::RamStore;

const DEVICE: RecordedDevice = RecordedDevice { capacity_bytes: 1 << 20, logical_block_bytes: 512 };

fn changes() -> [Change; 6] {
    [
        Change::Write(5000, vec![1, 2, 3]),
        Change::WriteZeroes(5001, 1),
        Change::Flush,
        Change::Write(100_000, vec![9; 9000]),
        Change::Discard(102_400, 4096),
        Change::ReserveZeroes(104_000, 100),
    ]
}

/// A recording of the changes, and of a request after each.
fn recorded() -> (Vec<u8>, Vec<RecordedEntry>, RecordingStore) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    let recorder = Recorder::create(&path, &DEVICE).unwrap();
    let mut store = RecordingStore::new(Box::new(RamStore::new(1 << 20, 1 << 20)), recorder.clone());
    let mut expected = Vec::new();
    for (change, index) in changes().into_iter().zip(0_u64..) {
        change.apply(&mut store).unwrap();
        let request = Request { fua: index == 1, ..Request::new(index, Op::ALL[index as usize], 8 * index, 8) };
        let (at, failed) = (Nanos::from_nanos(100 * index), index == 2);
        recorder.arrived(&request, at, failed);
        let (id, done, status) = (request.id, at + Nanos::from_nanos(7), Status::ALL[index as usize]);
        recorder.completed(id, done, status);
        expected.push(RecordedEntry::Change(change));
        expected.push(RecordedEntry::Arrival { request, at, failed });
        expected.push(RecordedEntry::Completion { id, at: done, status });
    }
    store.close().unwrap();
    recorder.completed(RequestId(0), Nanos::ZERO, Status::Ok);
    (std::fs::read(&path).unwrap(), expected, store)
}

#[test]
fn a_recording_is_read_as_it_was_written() {
    let (bytes, expected, mut store) = recorded();
    let recording = Recording::read(&bytes[..], "memory").unwrap();
    assert_eq!(recording.device(), DEVICE);
    assert_eq!(recording.map(Result::unwrap).collect::<Vec<_>>(), expected);
    let mut other = RamStore::new(1 << 20, 1 << 20);
    let replayed: Vec<Change> = Recording::read(&bytes[..], "memory").unwrap().changes().map(Result::unwrap).collect();
    assert_eq!(replayed, changes());
    replayed.iter().for_each(|change| change.apply(&mut other).unwrap());
    let (mut expected, mut found) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    store.read(0, &mut expected).unwrap();
    other.read(0, &mut found).unwrap();
    assert!(expected == found);
}

#[test]
fn a_cut_recording_is_reported_at_each_length() {
    let (bytes, ..) = recorded();
    for len in (0..200).chain(bytes.len() - 200..bytes.len()) {
        let outcome =
            Recording::read(&bytes[..len], "memory").and_then(|recording| recording.collect::<Result<Vec<_>, _>>());
        assert!(outcome.is_err(), "{len} bytes are taken for a whole recording");
    }
}

#[test]
fn each_damaged_byte_is_reported() {
    let (bytes, expected, _) = recorded();
    let capacity = 24..32;
    for at in (0..bytes.len()).filter(|at| !capacity.contains(at)).step_by(3) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        let outcome =
            Recording::read(&damaged[..], "memory").and_then(|recording| recording.collect::<Result<Vec<_>, _>>());
        let error = outcome.map(|entries| entries == expected).expect_err("damage is found");
        assert!(error.to_string().contains("memory: "), "{error}");
    }
}

#[test]
fn errors_name_the_field_and_the_expected_value() {
    let (bytes, ..) = recorded();
    let error_of = |bytes: &[u8]| {
        let read = Recording::read(bytes, "memory").and_then(|recording| recording.collect::<Result<Vec<_>, _>>());
        read.unwrap_err().to_string()
    };
    assert_eq!(error_of(b""), "memory: not a recording of a store: it has 0 bytes; expected at least 32");
    let mut other = bytes.clone();
    other[16] = 2;
    assert_eq!(error_of(&other), "memory: not a recording of a store: the version is 2; expected 1");
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(error_of(&longer), "memory: entry 19 is damaged: bytes follow the end; expected none");
    let mut huge = bytes[..32].to_vec();
    huge.extend([1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    assert!(error_of(&huge).contains("the payload has 4294967295 bytes"), "{}", error_of(&huge));
    let mut promised = bytes[..32].to_vec();
    promised.extend([1, 0, 0, 0, 0x40, 0, 0, 0, 0]);
    assert!(error_of(&promised).contains("cut off after 0 bytes"), "{}", error_of(&promised));
}

#[test]
fn an_existing_file_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    std::fs::write(&path, "mine").unwrap();
    assert!(Recorder::create(&path, &DEVICE).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
}
