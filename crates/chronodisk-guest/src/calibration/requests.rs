//! CPU time of the host's kernel for a request of a block device.
//!
//! Direct reads of a file on this host: with a queue that is kept full, so that the processor never idles, and one
//! after the other, so that it idles at each. The difference is the cost of turning to the idle task and back.
//! Interrupts that other processors take are in neither.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::shared::costs::RequestCosts;

const FILE_BYTES: u64 = 64 << 20;
const READ_BYTES: usize = 4096;
const DEPTH: u64 = 32;
const READS: u64 = 4_000;
/// Share of a request's CPU time that is spent before the device has it. A constant, because no clock of a process
/// tells the two apart.
const SUBMISSION_SHARE: f64 = 0.58;

/// CPU time per read by this thread, as a mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTimes {
    /// CPU time per request with a full queue.
    queued_nanos: f64,
    /// CPU time per request, one after the other.
    single_nanos: f64,
}

/// The shortest times of several runs, in a folder of this host. `None` if files there do not support direct reads.
pub(super) fn measure(folder: &Path, runs: u32) -> io::Result<Option<ReadTimes>> {
    std::fs::create_dir_all(folder)?;
    let path = folder.join(format!("chronodisk-reads-{}", std::process::id()));
    let made = make_file(&path);
    let opened = made.and_then(|()| OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path));
    // The name is this process's own.
    std::fs::remove_file(&path)?;
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut least = ReadTimes { queued_nanos: f64::INFINITY, single_nanos: f64::INFINITY };
    for _ in 0..runs.max(1) {
        least.queued_nanos = least.queued_nanos.min(queued_reads(&file)?);
        least.single_nanos = least.single_nanos.min(single_reads(&file)?);
    }
    Ok(Some(least))
}

/// Prices from read times, if a system call without work takes this long.
pub(super) fn prices(times: ReadTimes, empty_call_nanos: f64) -> RequestCosts {
    // A queued read is two calls. The second one gets several results.
    let request = (times.queued_nanos - 2.0 * empty_call_nanos).max(0.0);
    let wake_up = (times.single_nanos - empty_call_nanos - request).max(0.0);
    RequestCosts {
        submission_nanos: (request * SUBMISSION_SHARE) as u64,
        completion_nanos: (request * (1.0 - SUBMISSION_SHARE)) as u64,
        wake_up_nanos: wake_up as u64,
        ..RequestCosts::default()
    }
}

fn make_file(path: &Path) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    let bytes = vec![1; 1 << 20];
    for _ in 0..FILE_BYTES >> 20 {
        file.write_all(&bytes)?;
    }
    file.sync_all()
}

/// Memory for direct reads.
struct Buffer(*mut u8);

const BUFFER: Layout = match Layout::from_size_align(READ_BYTES, READ_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a page is a power of two"),
};

impl Buffer {
    fn new() -> Self {
        // SAFETY: the layout is not empty.
        Buffer(unsafe { alloc_zeroed(BUFFER) })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: `new` got it by this layout.
        unsafe { dealloc(self.0, BUFFER) };
    }
}

/// Offset of a read: far from the last one's, and the same in each run.
fn offset(read: u64) -> i64 {
    let pages = FILE_BYTES / READ_BYTES as u64;
    (read.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages * READ_BYTES as u64) as i64
}

fn single_reads(file: &File) -> io::Result<f64> {
    let buffer = Buffer::new();
    let began = thread_cpu();
    for read in 0..READS {
        // SAFETY: the buffer has this many bytes.
        let got = unsafe { libc::pread(file.as_raw_fd(), buffer.0.cast(), READ_BYTES, offset(read)) };
        if got != READ_BYTES as isize {
            return Err(io::Error::last_os_error());
        }
    }
    Ok((thread_cpu() - began).as_nanos() as f64 / READS as f64)
}

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct Control {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    descriptor: u32,
    buffer: u64,
    len_bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_descriptor: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    control: u64,
    result: i64,
    result2: i64,
}

/// `IOCB_CMD_PREAD` is 0, and the default.
fn queued_reads(file: &File) -> io::Result<f64> {
    let buffer = Buffer::new();
    let mut context: u64 = 0;
    // SAFETY: the context is a variable that outlives the call.
    checked(unsafe { libc::syscall(libc::SYS_io_setup, DEPTH, &raw mut context) })?;
    let began = thread_cpu();
    let (mut submitted, mut completed) = (0, 0);
    let mut events = [Event::default(); DEPTH as usize];
    let result = loop {
        if completed == READS {
            break Ok(());
        }
        if submitted < READS && submitted - completed < DEPTH {
            let mut control = Control {
                descriptor: file.as_raw_fd() as u32,
                buffer: buffer.0 as u64,
                len_bytes: READ_BYTES as u64,
                offset: offset(submitted),
                ..Control::default()
            };
            let mut list = [&raw mut control];
            // SAFETY: the list has one element, which the kernel copies; the buffer outlives the context. All reads
            // write the same bytes to it.
            if let Err(error) = checked(unsafe { libc::syscall(libc::SYS_io_submit, context, 1, list.as_mut_ptr()) }) {
                break Err(error);
            }
            submitted += 1;
            continue;
        }
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: there is room for this many events.
        let got = unsafe { libc::syscall(libc::SYS_io_getevents, context, 1, DEPTH, events.as_mut_ptr(), none) };
        match checked(got) {
            Ok(count) if events[..count as usize].iter().all(|event| event.result == READ_BYTES as i64) => {
                completed += count as u64;
            }
            Ok(_) => break Err(io::Error::other("a direct read failed")),
            Err(error) => break Err(error),
        }
    };
    let took = thread_cpu() - began;
    // SAFETY: the context is the one made above; this waits for its reads.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    result.map(|()| took.as_nanos() as f64 / READS as f64)
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_the_rest_of_the_reads() {
        let found = prices(ReadTimes { queued_nanos: 4_400.0, single_nanos: 9_200.0 }, 200.0);
        assert_eq!((found.submission_nanos, found.completion_nanos, found.wake_up_nanos), (2_320, 1_680, 5_000));
        let none = prices(ReadTimes { queued_nanos: 100.0, single_nanos: 100.0 }, 200.0);
        assert_eq!((none.submission_nanos, none.completion_nanos, none.wake_up_nanos), (0, 0, 0));
    }

    #[test]
    fn reads_take_time_and_leave_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let Some(times) = measure(folder.path(), 1).unwrap() else {
            println!("SKIPPED: no direct reads in {}", folder.path().display());
            return;
        };
        assert!(times.queued_nanos > 0.0 && times.single_nanos > 0.0, "{times:?}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
