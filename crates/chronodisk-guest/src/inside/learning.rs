//! System calls without effect that reveal to the guest's clock where the kernel keeps its tasks and their page tables.

use crate::shared::layout::{LEARN_IDS, LEARN_MARK, LEARN_TABLES};

/// Makes a system call without effect whose arguments the guest's clock reads.
pub(crate) fn tell(mark: u64, what: u64, arguments: [u64; 2]) {
    // SAFETY: the arguments are numbers, and the call changes nothing.
    unsafe { libc::syscall(libc::SYS_getppid, mark, what, arguments[0], arguments[1]) };
}

/// Reveals the place of the calling task's ids. Two tasks must call it.
pub(crate) fn reveal_ids() {
    // SAFETY: system calls without arguments.
    let (id, group) = unsafe { (libc::syscall(libc::SYS_gettid), libc::syscall(libc::SYS_getpid)) };
    tell(LEARN_MARK, LEARN_IDS, [id as u64, group as u64]);
}

/// Reveals the place of page tables, after the ids'.
pub(crate) fn reveal_page_tables() {
    // In one page, and like no other memory.
    #[repr(align(256))]
    struct Sample([u64; 32]);
    let sample = std::hint::black_box(Sample(std::array::from_fn(|word| LEARN_MARK.wrapping_mul(2 * word as u64 + 1))));
    tell(LEARN_MARK, LEARN_TABLES, [&raw const sample.0 as u64, 0]);
}
