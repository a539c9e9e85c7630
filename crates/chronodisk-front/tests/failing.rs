//! Devices whose requests can fail: bytes move at the completion, and only if it is a success.

mod common;
#[path = "common/fuse_mount.rs"]
mod fuse_mount;

use std::os::unix::fs::FileExt;
use std::process::Command;

use chronodisk_device::{BuildOptions, DeviceModel, Profile};
use chronodisk_engine::verify;
use chronodisk_front::BlkConfig;
use chronodisk_front::fuse::FuseFile;
use chronodisk_front::mock::{Layout, MockRequest, TestBench};
use chronodisk_front::server::{Address, FuseChannel, ServerOutcome};
use chronodisk_sim::{Op, Status};
use chronodisk_store::{RamStore, Store};
use common::{IO_ERROR, OK, config, pattern, store};
use fuse_mount::{Attached, CAPACITY_BYTES, CHANNELS, server_of};
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};

fn bench(torn_write_sectors: Option<u32>) -> TestBench {
    let mut bench = TestBench::new(BlkConfig { torn_write_sectors, ..config() }, store());
    bench.set_up();
    bench
}

/// Sends a request for 4 KiB from this sector on; a write has the pattern of this seed.
fn send(bench: &mut TestBench, sector: u64, seed: Option<u8>) -> MockRequest {
    let (kind, data) = match seed {
        Some(seed) => (VIRTIO_BLK_T_OUT, Some(pattern(seed, 4_096))),
        None => (VIRTIO_BLK_T_IN, None),
    };
    let request = bench.driver.submit(kind, sector, &[4_096], data.as_deref(), Layout::Direct);
    assert!(bench.kick());
    request
}

/// Ends the request that arrived at this place with this status.
fn end(bench: &mut TestBench, place: usize, status: Status) {
    let id = bench.recorder.arrivals[place].request.id;
    bench.session.complete(id, status);
    bench.session.notify().unwrap();
}

/// Sends a request, which ends with this status at once. Returns the byte with its status.
fn serve(bench: &mut TestBench, sector: u64, seed: Option<u8>, status: Status) -> (MockRequest, u8) {
    let request = send(bench, sector, seed);
    end(bench, bench.recorder.arrivals.len() - 1, status);
    let byte = bench.driver.status(&request);
    (request, byte)
}

/// The 4 KiB from this sector on.
fn contents(bench: &mut TestBench, sector: u64) -> Vec<u8> {
    let (request, status) = serve(bench, sector, None, Status::Ok);
    assert_eq!(status, OK);
    bench.driver.data(&request)
}

#[test]
fn a_guests_bytes_move_at_the_completion_of_a_success() {
    let bench = &mut bench(Some(0));
    let write = send(bench, 8, Some(1));
    assert!(contents(bench, 8).iter().all(|&byte| byte == 0));
    end(bench, 0, Status::Ok);
    assert_eq!((bench.driver.status(&write), contents(bench, 8)), (OK, pattern(1, 4_096)));
    for status in [Status::MediaError, Status::Aborted] {
        assert_eq!(serve(bench, 8, Some(2), status).1, IO_ERROR);
        assert_eq!(contents(bench, 8), pattern(1, 4_096));
        // A read that fails delivers nothing.
        let (read, byte) = serve(bench, 8, None, status);
        assert_eq!((byte, bench.driver.data(&read)), (IO_ERROR, vec![0; 4_096]));
    }
    assert_eq!(bench.session.stats().store_errors, 0);
}

#[test]
fn a_torn_write_of_a_guest_writes_its_first_sectors() {
    let bench = &mut bench(Some(3));
    serve(bench, 8, Some(1), Status::Ok);
    assert_eq!(serve(bench, 8, Some(2), Status::MediaError).1, IO_ERROR);
    let torn = [&pattern(2, 4_096)[..1_536], &pattern(1, 4_096)[1_536..]].concat();
    assert_eq!(contents(bench, 8), torn);
    assert_eq!(serve(bench, 8, Some(3), Status::Aborted).1, IO_ERROR);
    assert_eq!(contents(bench, 8), torn);
}

#[test]
fn overlapping_writes_of_a_guest_end_in_order_of_arrival() {
    let bench = &mut bench(Some(0));
    let [_, _, _] = [(8, 1), (12, 2), (8, 3)].map(|(sector, seed)| send(bench, sector, Some(seed)));
    // The last one fails, and the first one ends after the second.
    for (place, status) in [(2, Status::MediaError), (1, Status::Ok), (0, Status::Ok)] {
        end(bench, place, status);
    }
    assert_eq!(contents(bench, 8), [&pattern(1, 4_096)[..2_048], &pattern(2, 4_096)[..2_048]].concat());
    assert_eq!(contents(bench, 12), pattern(2, 4_096));
}

#[test]
fn the_bytes_of_a_device_without_errors_move_at_the_arrival() {
    let bench = &mut bench(None);
    let write = send(bench, 8, Some(1));
    assert_eq!(contents(bench, 8), pattern(1, 4_096));
    end(bench, 0, Status::Ok);
    assert_eq!(bench.driver.status(&write), OK);
}

fn model(fault: &str) -> Box<dyn DeviceModel> {
    let build = BuildOptions { capacity_bytes: Some(CAPACITY_BYTES), ..BuildOptions::default() };
    Profile::find("constant-1ms").unwrap().with_fault(fault).unwrap().build(&build).unwrap()
}

fn ram() -> Box<dyn Store> {
    Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES))
}

/// The log has these statuses of operations that move data, and a new model gives them again.
fn agrees(outcome: &ServerOutcome, fault: &str, expected: &[(Op, Status)]) {
    let moving = outcome.records.iter().filter(|record| record.op.moves_data());
    let found: Vec<(Op, Status)> = moving.map(|record| (record.op, record.status)).collect();
    assert_eq!(found, expected);
    assert!(verify(&mut [model(fault)], &outcome.records, Some(outcome.end)).unwrap().identical());
    assert_eq!((outcome.statistics.store_errors, outcome.statistics.panics), (0, 0));
}

#[test]
fn a_client_of_nbd_gets_an_error_and_the_old_bytes() {
    if !Command::new("qemu-io").arg("--version").output().is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: no qemu-io that runs (Debian: apt-get install qemu-utils)");
        return;
    }
    let fault = "kind=torn-write,every=2,sectors=3";
    let mut server = server_of(model(fault), ram());
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    server.listen_nbd(&Address::Unix(socket.clone())).unwrap();
    let script = ["write -P 7 0 128k", "write -P 9 0 128k", "read -P 9 0 1536", "read -P 7 1536 129536"];
    let arguments = script.iter().flat_map(|line| ["-c", line]);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let output = Command::new("timeout").args(["60", "qemu-io", "-f", "raw"]).args(arguments).arg(&uri).output();
    let output = output.unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("write failed: Input/output error"), "{output:?}");
    assert_eq!(printed.matches("read ").count(), 2, "{printed}");
    assert!(!printed.contains("Pattern verification failed"), "{printed}");
    let outcome = server.stop();
    let ends = [Status::Ok, Status::MediaError, Status::Ok, Status::Ok];
    let expected: Vec<_> = [Op::Write, Op::Write, Op::Read, Op::Read].into_iter().zip(ends).collect();
    agrees(&outcome, fault, &expected);
}

#[test]
fn a_program_gets_an_error_and_the_old_bytes_through_fuse() {
    CHANNELS.into_iter().for_each(a_program_gets_an_error_by);
}

fn a_program_gets_an_error_by(channel: FuseChannel) {
    let fault = "kind=transient,every=2";
    let model_with_fault = model(fault);
    let file = FuseFile::of(model_with_fault.info());
    let Some(attached) = Attached::of(channel, model_with_fault, ram(), file) else { return };
    let device = attached.open();
    let aligned = |byte: u8| Aligned(Box::new(Page([byte; 4_096])));
    device.write_all_at(&aligned(7).0.0, 8_192).unwrap();
    let refused = device.write_all_at(&aligned(9).0.0, 8_192).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    let mut found = aligned(0);
    device.read_exact_at(&mut found.0.0, 8_192).unwrap();
    assert_eq!(found.0.0, [7; 4_096]);
    let refused = device.read_exact_at(&mut found.0.0, 8_192).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    drop(device);
    let ends = [(Op::Write, Status::Ok), (Op::Write, Status::MediaError)];
    let reads = [(Op::Read, Status::Ok), (Op::Read, Status::MediaError)];
    agrees(&attached.stop(), fault, &[ends, reads].concat());
}

/// A page for direct access.
struct Aligned(Box<Page>);

#[repr(align(4096))]
struct Page([u8; 4_096]);
