//! The disk model against a reference simulator's outputs, request by request. (Measured drives are compared by
//! `chronodisk validate`, and so in the command's tests.)
//!
//! The data lie where `CHRONODISK_REFERENCE` says, or beside the repository; a subset is in the repository. Each drive
//! is imported from its files; none is treated specially.

#[path = "../testdata/reference.rs"]
mod reference;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_device::disk::{Disk, Drive};
use chronodisk_device::{DeviceInfo, DeviceModel, advance};
use chronodisk_importers::disksim::{Imported, import_file};
use chronodisk_sim::{Nanos, Op, Request};

/// The folder of disks.
fn disks() -> PathBuf {
    reference::reference_folder().join("disks")
}

fn drive(folder: &Path, name: &str) -> Disk {
    let import = import_file(&folder.join("valid").join(format!("{name}.parv"))).unwrap_or_else(|e| panic!("{e}"));
    let Imported::Disk(parameters) = import.device else { panic!("{name} is no disk") };
    let drive = Arc::new(Drive::new(&parameters).unwrap_or_else(|error| panic!("{name}: {error}")));
    let info = DeviceInfo {
        name: name.to_owned(),
        capacity_sectors: drive.capacity_blocks(),
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: None,
        rotational: true,
        zones: None,
        torn_write_sectors: None,
    };
    Disk::new(info, drive, 0)
}

/// Issues a request at an instant and returns that of its completion.
fn serve(disk: &mut Disk, at: Nanos, write: bool, lba: u64, sectors: u32) -> Nanos {
    let mut completed = Vec::new();
    advance(disk, at, &mut completed);
    let op = if write { Op::Write } else { Op::Read };
    disk.submit(Request::new(0, op, lba, sectors));
    while completed.is_empty() {
        let next = disk.next_event().expect("an outstanding request has an event before it");
        disk.step(next, &mut completed);
    }
    completed[0].at
}

/// Compares response times one by one; returns the share within 1 % for each file.
fn compare(folder: &Path) -> Vec<(String, f64)> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder.join("ref")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut shares = Vec::new();
    for path in files {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(device) = name.split('-').next().filter(|device| !device.starts_with("mems")) else { continue };
        let mut disk = drive(folder, device);
        let (mut good, mut count) = (0, 0);
        for line in std::fs::read_to_string(&path).unwrap().lines().skip(1) {
            let fields: Vec<&str> = line.split(',').collect();
            let &[arrival_ms, lba, sectors, op, _, response_ms] = fields.as_slice() else { panic!("{name}: {line}") };
            let arrival = Nanos::from_nanos((arrival_ms.parse::<f64>().unwrap() * 1e6).round() as u64);
            let at = arrival.max(disk.now());
            let end = serve(&mut disk, at, op == "W", lba.parse().unwrap(), sectors.parse().unwrap());
            let expected: f64 = response_ms.parse().unwrap();
            good += usize::from(((end - at).as_millis_f64() - expected).abs() <= 0.01 * expected);
            count += 1;
        }
        shares.push((name, good as f64 / count as f64));
    }
    shares
}

/// DiskSim and this model have the same mechanics, and controllers that agree on a request alone in the drive. They
/// differ in the buffer. A written range can grow here, where DiskSim's next write waits a turn. A write makes this
/// buffer forget the segments that it overlaps, as the measured drives do. Blocks that pass before the first wanted one
/// are kept where the drive's file says so, which DiskSim ignores. In idle times, the phases of reading ahead drift
/// apart, as DiskSim's platter loses 2^-24 of a turn with every block.
#[test]
fn requests_agree_with_disksim() {
    let shares = compare(&disks());
    assert!(shares.len() >= 2, "{} files", shares.len());
    let least = |name: &str| match (name.contains("-random-"), name.contains("-z-")) {
        (true, true) => 0.97,
        (false, true) => 0.92,
        (true, false) => 0.86,
        (false, false) => 0.77,
    };
    println!("shares of the requests that are within 1 %: {shares:?}");
    let off: Vec<&(String, f64)> = shares.iter().filter(|(name, share)| *share < least(name)).collect();
    assert!(off.is_empty(), "{off:?}");
}
