//! The page of the limits of files, from the constants of their readers.

use std::fmt::Write;

use chronodisk_report::PAGE_BYTES_MAX;
use chronodisk_sim::TextFile;
use chronodisk_trace::block::{LINE_BYTES_MAX, VOLUME_NAME_BYTES_MAX, VOLUMES_MAX};
use chronodisk_trace::calls::{INSTANT_MAX, PATH_BYTES_MAX, STRACE_LINE_BYTES_MAX, TASK_MAX};
use chronodisk_trace::{MEASURED_LINE_BYTES_MAX, MEASURED_REQUESTS_MAX};

const HEAD: &str = "# Limits of files

A file may come from anyone, and may be a pipe or a device without an end. Each reader has a limit. A file beyond it is
refused with a message that names the file and the limit; the exit status is 2. This page is generated; a test compares
it with the readers.

## Text files that are read as a whole

| file | longest |
|---|---|
";

const MEMORY: &str = "
Decompressed bytes (gzip, zstd) count, not those of the file.

## Files of any length

Most commands read traces and logs request by request, so that memory does not grow with the file. Others need all
requests or calls at once. `--memory-limit SIZE` bounds their memory. The default is a quarter of the smallest of: the
host's memory, the limit of the control group (`memory.max`), the limit of the process (`ulimit -v`). A file that needs
more is refused with its need and the limit. What a Parquet file says of its number of rows is compared with the limit
before a row is read.

| command | in memory at once |
|---|---|
| `simulate --trace` | outstanding requests |
| `simulate --trace --arrivals closed` | all requests |
| `trace compare` | different requests of both traces |
| `trace compare --times` | all requests of both traces |
| `verify` | outstanding requests; the time with punctual completions is left out where it needs more |
| `report`, `show`, `trace convert`, `cut`, `merge`, `scale`, `stats` | distributions of bounded size |
| `compare --plot`, `show --plot` | all service times |
| `trace groups`, `bootstrap`, `replay`, `import`; `validate` | all calls or requests |
";

pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for file in TextFile::ALL {
        writeln!(page, "| {} | {} |", file.name(), size(file.limit_bytes())).unwrap();
    }
    page.push_str("\n## Parts of files\n\n| part | most |\n|---|---|\n");
    for (part, most) in [
        ("line of a block trace in text", size(LINE_BYTES_MAX as u64)),
        ("line of an output of strace", size(STRACE_LINE_BYTES_MAX)),
        ("line of a trace of a measured drive", size(MEASURED_LINE_BYTES_MAX as u64)),
        ("requests of a trace of a measured drive", MEASURED_REQUESTS_MAX.to_string()),
        ("page of a log in Parquet, decompressed", size(PAGE_BYTES_MAX)),
        ("volumes of a block trace", VOLUMES_MAX.to_string()),
        ("name of a volume", size(VOLUME_NAME_BYTES_MAX as u64)),
        ("path in a trace of system calls", size(PATH_BYTES_MAX as u64)),
        ("id of a task", TASK_MAX.to_string()),
        ("latest instant of a trace of system calls", format!("{} days", INSTANT_MAX.as_nanos() / 86_400_000_000_000)),
    ] {
        writeln!(page, "| {part} | {most} |").unwrap();
    }
    page + MEMORY
}

fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes => format!("{} KiB", bytes >> 10),
    }
}
