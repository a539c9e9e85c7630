//! System calls without effect and reads of the time stamp counter, with which the guest's clock measures the CPU time
//! of stopping a program.

use crate::shared::layout::{PROBE_MARK, PROBES};

/// A few more than the clock needs.
const STOPS: u32 = PROBES + 5;

/// Makes the calls of the probe.
pub(crate) fn run() {
    for _ in 0..STOPS {
        // SAFETY: the call takes no arguments and changes nothing.
        unsafe { libc::syscall(libc::SYS_getppid, PROBE_MARK) };
    }
    for _ in 0..STOPS {
        // SAFETY: the instruction has no effect but its result.
        std::hint::black_box(unsafe { core::arch::x86_64::_rdtsc() });
    }
}
