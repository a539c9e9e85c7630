//! Tells the guest's clock when its recording of system calls begins and ends.

use crate::shared::layout::{RECORD_BEGIN, RECORD_END, RECORD_LEARN, RECORD_MARK};

fn tell(what: u64, arguments: [u64; 2]) {
    // SAFETY: the arguments are numbers, and the call changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid, RECORD_MARK, what, arguments[0], arguments[1]) };
}

/// Lets the clock find out where the kernel keeps the calling task's ids.
pub(crate) fn learn_ids() {
    // SAFETY: system calls without arguments.
    let (id, group) = unsafe { (libc::syscall(libc::SYS_gettid), libc::syscall(libc::SYS_getpid)) };
    tell(RECORD_LEARN, [id as u64, group as u64]);
}

/// Recording begins with the caller's next call. The clock finds out where the kernel keeps page tables.
pub(crate) fn begin() {
    // In one page, and like no other memory.
    #[repr(align(256))]
    struct Sample([u64; 32]);
    let sample =
        std::hint::black_box(Sample(std::array::from_fn(|word| RECORD_MARK.wrapping_mul(2 * word as u64 + 1))));
    tell(RECORD_BEGIN, [&raw const sample.0 as u64, 0]);
}

/// Recording ends.
pub(crate) fn end() {
    tell(RECORD_END, [0; 2]);
}
