//! Tells the guest's clock when its recording of system calls begins and ends.

use super::learning::tell;
use crate::shared::layout::{RECORD_BEGIN, RECORD_END, RECORD_MARK};

/// Recording begins with the caller's next call.
pub(crate) fn begin() {
    tell(RECORD_MARK, RECORD_BEGIN, [0; 2]);
}

/// Recording ends.
pub(crate) fn end() {
    tell(RECORD_MARK, RECORD_END, [0; 2]);
}
