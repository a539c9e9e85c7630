//! Files that claim more than they have, or have no end.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use chronodisk_report::{write_calls, write_log};
use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};
use chronodisk_trace::calls::{CallRecord, CallTrace, Clock, Header};
use parquet::file::metadata::{FileMetaData, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter};

/// Bytes that compressed files have once they are decompressed.
const DECOMPRESSED_BYTES: usize = 2 << 30;
/// Depth of nested brackets.
const DEPTH: usize = 200_000;

/// A process that fills a pipe endlessly; killed when dropped.
pub struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Files for any command, and the processes that feed them.
pub fn of_any_kind(folder: &Path) -> (Vec<PathBuf>, Vec<Writer>) {
    let place = |name: &str| folder.join(name);
    let text = |name: &str, text: &str| {
        fs::write(place(name), text).unwrap();
        place(name)
    };
    let sparse = place("line-without-end");
    File::create(&sparse).unwrap().set_len(8 << 30).unwrap();
    let fifo = place("pipe-without-end");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let writer = Command::new("sh")
        .args(["-c", "while :; do yes 1,2,3 >\"$0\" 2>/dev/null || sleep 0.05; done"])
        .arg(&fifo)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let files = vec![
        PathBuf::from("/dev/zero"),
        fifo,
        sparse,
        text("deep.json", &"[".repeat(DEPTH)),
        text("deep-keys.json", &"{\"schema\":".repeat(DEPTH)),
        text("deep.toml", &format!("a = {}", "[".repeat(DEPTH))),
        text("deep-keys.toml", &format!("[{}a]", "a.".repeat(DEPTH))),
        gzip(&place("zeros.gz")),
        zstd(&place("zeros.zst"), &[0; 1 << 20]),
        zstd(&place("requests.csv.zst"), "0,R,0,4096,1577808000000046\n".repeat(30_000).as_bytes()),
    ];
    (files, vec![Writer(writer)])
}

/// Whether a file is worth testing with this argument: nested texts and compressed files are only invalid bytes for
/// most readers.
pub fn suits(file: &Path, argument: &str, call: &str) -> bool {
    let is_trace = argument.contains("trace") || argument.contains("image") || argument.contains("kernel");
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("json") => call.contains(".json") || argument.starts_with("fit"),
        Some("toml") => argument.contains("device") || argument.contains("profile") || argument.contains("toml"),
        Some("gz" | "zst") => is_trace,
        _ => true,
    }
}

fn gzip(path: &Path) -> PathBuf {
    let mut member = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 8 << 20];
    member.write_all(&zeros).unwrap();
    let member = member.finish().unwrap();
    fs::write(path, member.repeat(DECOMPRESSED_BYTES / zeros.len())).unwrap();
    path.to_owned()
}

/// Frames with these contents, repeated up to two gibibytes, or less so that a test ends.
fn zstd(path: &Path, contents: &[u8]) -> PathBuf {
    const TEXT_FRAMES: usize = 60;
    let frame = zstd::stream::encode_all(contents, 1).unwrap();
    let frames = if contents[0] == 0 { DECOMPRESSED_BYTES / contents.len() } else { TEXT_FRAMES };
    fs::write(path, frame.repeat(frames)).unwrap();
    path.to_owned()
}

/// A directory with one file, which is that file.
pub fn directory_with(folder: &Path, name: &str, file: &Path) -> PathBuf {
    let directory = folder.join(format!("with-{}-{name}", file.file_name().unwrap().to_string_lossy()));
    if fs::create_dir(&directory).is_ok() {
        symlink(file, directory.join(name)).unwrap();
    }
    directory
}

/// Rows of a row group.
const GROUP_ROWS: usize = 65_536;

/// A log with this number of row groups of equal requests. The file stores each group once.
pub fn log_of_equal_requests(path: &Path, groups: usize) -> PathBuf {
    let record = RequestRecord {
        device: 0,
        order: 0,
        op: Op::Read,
        fua: false,
        priority: Priority::Normal,
        lba: Lba(64),
        sectors: 8,
        queue: 0,
        issuer: 0,
        arrival: Nanos::ZERO,
        due: Nanos::from_nanos(1_000),
        completed: Nanos::from_nanos(1_000),
        status: Status::Ok,
        store_failed: false,
        stolen: false,
        model_time: Nanos::ZERO,
        store_time: Nanos::ZERO,
    };
    write_log(path, &vec![record; GROUP_ROWS]).unwrap();
    repeat_row_groups(path, groups);
    path.to_owned()
}

/// A trace of system calls of the same kind.
pub fn calls_of_equal_rows(path: &Path, groups: usize) -> PathBuf {
    let mut record = CallRecord::new(1, "stat".parse().unwrap(), Nanos::ZERO);
    record.path = Some(b"/mnt/file".to_vec());
    (record.result, record.exit) = (Some(0), Some(Nanos::ZERO));
    let mut header = Header::new("x86_64", Clock::Host);
    header.mount = Some("/mnt".to_owned());
    write_calls(path, &CallTrace { header, records: vec![record; GROUP_ROWS] }).unwrap();
    repeat_row_groups(path, groups);
    path.to_owned()
}

/// Lets the footer of a Parquet file name its row group again and again.
fn repeat_row_groups(path: &Path, groups: usize) {
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&File::open(path).unwrap()).unwrap();
    let (file, group) = (metadata.file_metadata(), metadata.row_group(0).clone());
    let schema = file.schema_descr_ptr();
    let claimed = FileMetaData::new(
        file.version(),
        group.num_rows() * groups as i64,
        file.created_by().map(str::to_owned),
        file.key_value_metadata().cloned(),
        Arc::clone(&schema),
        file.column_orders().cloned(),
    );
    let claimed = ParquetMetaData::new(claimed, vec![group; groups]);
    let mut bytes = fs::read(path).unwrap();
    ParquetMetaDataWriter::new(&mut bytes, &claimed).finish().unwrap();
    fs::write(path, bytes).unwrap();
}
