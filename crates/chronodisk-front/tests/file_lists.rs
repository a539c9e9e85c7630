//! Writes of a guest whose kernel says which bytes are contents of files.

mod common;

use std::sync::{Arc, Mutex};

use chronodisk_front::BlkConfig;
use chronodisk_front::mock::{Layout, TestBench};
use chronodisk_front::virtio_blk::BadRequestKind;
use chronodisk_sim::Status;
use chronodisk_store::{FileData, RamStore, Store, StoreError, forward_to_store};
use common::{IO_ERROR, OK, config, pattern, store};
use virtio_bindings::bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT};

type Told = Arc<Mutex<Vec<Vec<FileData>>>>;

/// Keeps the notifications that it gets.
struct Listener {
    store: Box<RamStore>,
    told: Told,
}

impl Store for Listener {
    forward_to_store!(self => self.store; capacity_bytes, read, write, write_zeroes, flush);
    forward_to_store!(self => self.store; allocated_bytes, budget_bytes);

    fn write_with_file_data(
        &mut self,
        offset_bytes: u64,
        bytes: &[u8],
        file_data: &[FileData],
    ) -> Result<(), StoreError> {
        self.told.lock().unwrap().push(file_data.to_vec());
        self.store.write(offset_bytes, bytes)
    }
}

fn bench(file_data: bool, torn_write_sectors: Option<u32>) -> (TestBench, Told) {
    let told = Told::default();
    let listener = Listener { store: store(), told: Arc::clone(&told) };
    let config = BlkConfig { file_data, torn_write_sectors, ..config() };
    let mut bench = TestBench::new(config, Box::new(listener));
    bench.set_up();
    (bench, told)
}

fn run(len_bytes: u32, is_file: u16, inode: u64, path: &str) -> Vec<u8> {
    let path_bytes = u16::try_from(path.len()).unwrap();
    let mut run = [&len_bytes.to_le_bytes()[..], &is_file.to_le_bytes(), &path_bytes.to_le_bytes()].concat();
    run.extend(inode.to_le_bytes());
    run.extend(path.bytes());
    run.resize(run.len().next_multiple_of(8), 0);
    run
}

fn list(runs: &[Vec<u8>]) -> Vec<u8> {
    let runs = runs.concat();
    [&(8 + runs.len() as u32).to_le_bytes()[..], &[0; 4], &runs].concat()
}

#[test]
fn the_store_is_told_and_the_bytes_are_the_data_alone() {
    // Where requests may fail, the bytes move at the completion.
    for (layout, torn) in [(Layout::Direct, None), (Layout::Indirect, None), (Layout::Direct, Some(1))] {
        let (mut bench, told) = bench(true, torn);
        let data = pattern(3, 8192);
        let list = list(&[run(1024, 0, 0, ""), run(4096, 1, 12, "a/b.db"), run(512, 1, 13, "")]);
        let sent = [&list[..], &data].concat();
        // The framing of list and data does not matter.
        let sizes = [5, list.len() as u32 - 5 + 4096, 4096];
        let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 16, &sizes, Some(&sent), layout);
        assert!(bench.kick());
        assert_eq!(bench.recorder.arrivals[0].request.sectors, 16);
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.status(&write), OK);
        let named = FileData { bytes: 1024..5120, inode: 12, path: Some(b"a/b.db".as_slice().into()) };
        let nameless = FileData { bytes: 5120..5632, inode: 13, path: None };
        assert_eq!(*told.lock().unwrap(), [vec![named, nameless]]);
        let read = bench.driver.submit(VIRTIO_BLK_T_IN, 16, &[8192], None, layout);
        assert!(bench.kick());
        bench.complete_all(Status::Ok);
        assert!(bench.driver.data(&read) == data);
    }
}

#[test]
fn an_empty_list_is_a_write_of_no_file() {
    let (mut bench, told) = bench(true, None);
    let sent = [&list(&[])[..], &[7; 512]].concat();
    let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[sent.len() as u32], Some(&sent), Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    assert_eq!(bench.driver.status(&write), OK);
    assert_eq!(*told.lock().unwrap(), [vec![]]);
    assert_eq!(bench.session.stats().written_bytes, 512);
}

#[test]
fn a_guest_that_was_not_asked_sends_no_list() {
    let (mut bench, told) = bench(false, None);
    let sent = [&list(&[run(496, 1, 1, "")])[..], &[7; 488]].concat();
    let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[512], Some(&sent), Layout::Direct);
    assert!(bench.kick());
    bench.complete_all(Status::Ok);
    assert_eq!(bench.driver.status(&write), OK);
    assert_eq!(*told.lock().unwrap(), [vec![]]);
}

#[test]
fn wrong_lists_are_refused_and_write_nothing() {
    let (mut bench, told) = bench(true, None);
    let with_length = |len_bytes: u32| [&len_bytes.to_le_bytes()[..], &[0; 4]].concat();
    let wrong = [
        with_length(0),
        with_length(12),
        with_length(1 << 20),
        list(&[run(1024, 1, 1, "a")]),
        list(&[run(512, 7, 1, "a")]),
        list(&[vec![0; 8]]),
    ];
    for list in &wrong {
        let sent = [&list[..], &[7; 512]].concat();
        let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[sent.len() as u32], Some(&sent), Layout::Direct);
        assert!(bench.kick());
        bench.complete_all(Status::Ok);
        assert_eq!(bench.driver.status(&write), IO_ERROR, "{list:?}");
    }
    // A list without data, and one that is cut off.
    let without_data = list(&[]);
    for sent in [&without_data[..], &without_data[..4]] {
        let write = bench.driver.submit(VIRTIO_BLK_T_OUT, 0, &[sent.len() as u32], Some(sent), Layout::Direct);
        assert!(bench.kick());
        assert_eq!(bench.driver.status(&write), IO_ERROR, "{sent:?}");
    }
    assert_eq!(bench.session.stats().bad_requests[&BadRequestKind::FileList], wrong.len() as u64 + 1);
    assert!(told.lock().unwrap().is_empty());
    assert_eq!(bench.session.store().allocated_bytes().unwrap(), 0);
}
