//! The fault model matches its description.

use std::io::ErrorKind;
use std::path::Path;

use super::*;

const PATH: &str = "/folder/file";

fn plain(seed: u64) -> SimulatedHost {
    SimulatedHost::new(&SimulatedOptions {
        short_per_mille: 0,
        interrupted_per_mille: 0,
        write_back_per_mille: 0,
        ..SimulatedOptions::new(seed)
    })
}

fn create(host: &SimulatedHost) -> Box<dyn HostFile> {
    host.open(Path::new(PATH), OpenMode::CreateNew).unwrap()
}

fn open(host: &SimulatedHost) -> io::Result<Box<dyn HostFile>> {
    host.open(Path::new(PATH), OpenMode::ReadWrite)
}

fn contents(host: &SimulatedHost) -> Vec<u8> {
    let file = open(host).unwrap();
    let mut bytes = vec![0xAA; file.size().unwrap().len_bytes as usize];
    assert_eq!(file.read_at(&mut bytes, 0, false).unwrap(), bytes.len());
    bytes
}

/// A file with a name that is safe.
fn safe_file(host: &SimulatedHost) -> Box<dyn HostFile> {
    let file = create(host);
    host.sync_folder(Path::new("/folder")).unwrap();
    file
}

#[test]
fn a_kill_keeps_what_was_written_and_ends_every_descriptor() {
    let host = plain(1);
    let file = create(&host);
    assert!(file.lock(true).unwrap());
    file.write_at(&[7; 5000], 100).unwrap();
    host.kill();
    assert!(file.write_at(&[8; 10], 0).is_err() && open(&host).is_err());
    host.restart();
    assert!(file.write_at(&[8; 10], 0).is_err(), "a descriptor of a process that has ended");
    let bytes = contents(&host);
    assert!(bytes.len() == 5100 && bytes[..100] == [0; 100] && bytes[100..] == [7; 5000]);
    assert!(open(&host).unwrap().lock(true).unwrap(), "its lock has ended, too");
}

#[test]
fn a_killed_write_stops_at_a_page() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let host = plain(seed);
        let file = create(&host);
        host.inject(Call::Write, 1, Fault::Kill);
        assert!(file.write_at(&[7; 40_000], 0).is_err());
        assert!(host.is_dead());
        host.restart();
        let len = if host.names().is_empty() { 0 } else { contents(&host).len() };
        assert!(len % 4096 == 0 || len == 40_000, "{len}");
        lengths.insert(len);
    }
    assert!(lengths.len() > 5, "{lengths:?}");
}

#[test]
fn a_power_cut_keeps_what_was_synchronised_and_some_sectors_of_the_rest() {
    let (mut old, mut new, mut mixed_pages) = (0, 0, 0);
    for seed in 0..50 {
        let host = plain(seed);
        let file = safe_file(&host);
        file.write_at(&[1; 16384], 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(&[2; 8192], 0).unwrap();
        host.power_cut();
        host.restart();
        let bytes = contents(&host);
        assert!(bytes.len() == 16384 && bytes[8192..] == [1; 8192]);
        for sector in bytes[..8192].chunks(512) {
            assert!(sector == [1; 512] || sector == [2; 512]);
            if sector[0] == 1 { old += 1 } else { new += 1 }
        }
        mixed_pages += bytes[..8192].chunks(4096).filter(|page| page.contains(&1) && page.contains(&2)).count();
    }
    assert!(old > 200 && new > 200 && mixed_pages > 50, "{old} {new} {mixed_pages}");
}

#[test]
fn after_a_power_cut_a_length_is_old_or_new() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let host = plain(seed);
        let file = safe_file(&host);
        file.write_at(&[1; 1000], 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(&[2; 1000], 9000).unwrap();
        host.power_cut();
        host.restart();
        let bytes = contents(&host);
        assert!(bytes[..1000] == [1; 1000] && bytes[1000..].iter().all(|byte| [0, 2].contains(byte)));
        seen.insert(bytes.len());
        // Data beyond the shorter length do not reappear.
        open(&host).unwrap().set_len(20_000).unwrap();
        assert!(bytes.len() > 1000 || contents(&host)[1000..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [1000, 10_000]);
}

#[test]
fn names_need_their_folder_synchronised() {
    let (mut created, mut renamed, mut lost) = (0, 0, 0);
    for seed in 0..100 {
        let host = plain(seed);
        create(&host).sync_data().unwrap();
        host.power_cut();
        host.restart();
        created += host.names().len();

        let host = plain(seed);
        let _ = safe_file(&host);
        host.rename(Path::new(PATH), Path::new("/folder/other")).unwrap();
        // Synchronise another folder.
        host.sync_folder(Path::new("/")).unwrap();
        host.power_cut();
        host.restart();
        match host.names()[..] {
            [ref name] if name == Path::new("/folder/other") => renamed += 1,
            [ref name] if name == Path::new(PATH) => lost += 1,
            ref names => panic!("{names:?}"),
        }
    }
    assert!((20..80).contains(&created) && renamed > 20 && lost > 20, "{created} {renamed} {lost}");
    let host = plain(1);
    let _ = safe_file(&host);
    host.power_cut();
    host.restart();
    assert_eq!(host.names(), [Path::new(PATH)]);
}

#[test]
fn a_full_disk_takes_part_of_a_write_and_lets_pages_be_overwritten() {
    let host = plain(1);
    host.set_capacity(Some(4 * 4096));
    let file = create(&host);
    assert_eq!(file.write_at(&[1; 20_000], 0).unwrap(), 16384);
    assert_eq!(file.write_at(&[1; 4096], 16384).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_at(&[2; 16384], 0).unwrap(), 16384);
    file.allocate(Allocation::Punch, 4096, 4096).unwrap();
    assert_eq!(file.size().unwrap().allocated_bytes, 3 * 4096);
    file.allocate(Allocation::Reserve, 4096, 100).unwrap();
    assert_eq!(file.write_at(&[3; 4096], 12 << 20).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.write_at(&[3; 4096], 4096).unwrap(), 4096, "what was reserved is there");
    let other = host.open(Path::new("/other"), OpenMode::CreateNew).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::StorageFull);

    let host = plain(1);
    let file = create(&host);
    host.inject(Call::TakesSpace, 2, Fault::FullFromNowOn);
    file.write_at(&[1; 4096], 0).unwrap();
    file.write_at(&[2; 4096], 0).unwrap();
    for _ in 0..3 {
        assert_eq!(file.write_at(&[1; 4096], 4096).unwrap_err().kind(), ErrorKind::StorageFull);
        file.write_at(&[2; 4096], 0).unwrap();
    }
    host.repair();
    file.write_at(&[1; 4096], 4096).unwrap();
}

#[test]
fn a_failed_synchronisation_loses_pages_and_the_next_succeeds() {
    let (mut dropped, mut still_read) = (0, 0);
    for seed in 0..20 {
        let host = plain(seed);
        let file = safe_file(&host);
        file.write_at(&[1; 8192], 0).unwrap();
        file.sync_data().unwrap();
        file.write_at(&[2; 8192], 0).unwrap();
        host.inject(Call::Sync, 1, Fault::Error);
        assert_eq!(file.sync_data().unwrap_err().raw_os_error(), plan::io_error().raw_os_error());
        file.sync_data().unwrap();
        for page in contents(&host).chunks(4096) {
            if page == [1; 4096] { dropped += 1 } else { still_read += 1 }
        }
        host.power_cut();
        host.restart();
        assert!(contents(&host) == [1; 8192], "nothing of it is on the disk");
    }
    assert!(dropped > 5 && still_read > 5, "{dropped} {still_read}");
}

#[test]
fn errors_come_once_or_from_then_on() {
    let host = plain(1);
    let file = create(&host);
    host.inject(Call::Write, 2, Fault::Error);
    host.inject(Call::Any, 5, Fault::ErrorsFromNowOn);
    file.write_at(&[1], 0).unwrap();
    file.write_at(&[2], 0).unwrap_err();
    file.write_at(&[3], 0).unwrap();
    file.sync_data().unwrap();
    for _ in 0..3 {
        file.read_at(&mut [0], 0, false).unwrap_err();
    }
    assert_eq!((host.calls(Call::Write), host.calls(Call::Any)), (3, 8));
    assert_eq!(host.effects(), BTreeMap::from([("EIO of another call", 4)]));
    host.repair();
    assert_eq!(contents(&host), [3]);
}

#[test]
fn transfers_are_short_and_interrupted_and_all_is_drawn_from_the_seed() {
    let run = |seed| {
        let host = SimulatedHost::new(&SimulatedOptions {
            short_per_mille: 300,
            interrupted_per_mille: 300,
            ..SimulatedOptions::new(seed)
        });
        let file = create(&host);
        let writes = (0..200).map(|_| match file.write_at(&[1; 16384], 0) {
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) => panic!("{error}"),
        });
        let writes: Vec<usize> = writes.collect();
        host.power_cut();
        (writes, host.names())
    };
    let (writes, _) = run(1);
    let count = |test: fn(usize) -> bool| writes.iter().filter(|len| test(**len)).count();
    assert!(count(|len| len == 0) > 20 && count(|len| len == 16384) > 20);
    assert!(count(|len| len % 512 == 0 && len != 0 && len < 16384) > 20);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1).0, run(2).0);
}

#[test]
fn holes_and_data_are_told_apart() {
    let host = plain(1);
    let file = create(&host);
    file.set_len(40_000).unwrap();
    file.write_at(&[1; 100], 8192).unwrap();
    assert_eq!(file.seek(SeekTo::Data, 5).unwrap(), Some(8192));
    assert_eq!(file.seek(SeekTo::Hole, 9000).unwrap(), Some(12288));
    assert_eq!(file.seek(SeekTo::Data, 12288).unwrap(), None);
    assert_eq!(file.seek(SeekTo::Hole, 39_000).unwrap(), Some(39_000));
    file.allocate(Allocation::Zero, 0, 40_000).unwrap();
    assert!(contents(&host).iter().all(|byte| *byte == 0));
    assert_eq!(file.size().unwrap(), FileSize { len_bytes: 40_000, allocated_bytes: 10 * 4096 });
    file.write_at(&[1; 4096], 0).unwrap();
    file.set_len(100).unwrap();
    file.set_len(4096).unwrap();
    let bytes = contents(&host);
    assert!(bytes[..100] == [1; 100] && bytes[100..] == [0; 3996]);
}

#[test]
fn a_lock_keeps_others_out_until_the_last_duplicate_goes() {
    let host = plain(1);
    let file = create(&host);
    let other = open(&host).unwrap();
    assert!(file.lock(false).unwrap() && other.lock(false).unwrap());
    assert!(!file.lock(true).unwrap());
    drop(other);
    assert!(file.lock(true).unwrap());
    let duplicate = file.duplicate().unwrap();
    drop(file);
    assert!(!open(&host).unwrap().lock(false).unwrap());
    drop(duplicate);
    assert!(open(&host).unwrap().lock(true).unwrap());
}
