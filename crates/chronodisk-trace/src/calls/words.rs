//! Words in a program's memory that are arguments of calls: flags of structures, offsets, ranges of files.
//!
//! A record has them in place of their addresses, or in registers that the call does not take. [`READ`] marks a value
//! that was read. Without it the argument is an address, as in traces of recorders that do not read the words.

use super::record::CallRecord;

/// Marks an argument that was read from memory. Neither an address nor an offset has this bit.
pub(super) const READ: u64 = 1 << 63;

/// Requests of `ioctl` (`linux/fs.h`, `linux/fiemap.h`).
pub(super) mod request {
    pub const FICLONE: u64 = 0x4004_9409;
    pub const FICLONERANGE: u64 = 0x4020_940d;
    pub const FIDEDUPERANGE: u64 = 0xc018_9436;
    pub const FS_IOC_SETFLAGS: u64 = 0x4008_6602;
    pub const FS_IOC_FSSETXATTR: u64 = 0x401c_5820;
    pub const FS_IOC_FIEMAP: u64 = 0xc020_660b;
    pub const FITRIM: u64 = 0xc018_5879;
    /// Older than the numbers that tell the direction of a request's data.
    pub const FIBMAP: u64 = 1;
    pub const FIGETBSZ: u64 = 2;
}

/// Arguments that point to words, with the number of words; the second points to one.
#[must_use]
pub(super) fn pointers(call: &str) -> [Option<(usize, usize)>; 2] {
    match call {
        "clone3" => [Some((0, 1)), None],
        "openat2" => [Some((2, 3)), None],
        "ioctl" => [Some((2, 5)), None],
        "copy_file_range" | "splice" => [Some((1, 1)), Some((3, 1))],
        "sendfile" => [Some((2, 1)), None],
        _ => [None, None],
    }
}

/// Puts words that an argument of a call points to into its arguments. Words of requests of `ioctl` that are not known
/// are data of programs and stay out.
pub fn take_words(call: &str, arguments: &mut [u64; 6], argument: usize, words: &[u64]) {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    match (call, argument) {
        ("clone3", 0) => arguments[0] = word(0),
        ("openat2", 2) => {
            arguments[2] = word(0);
            arguments[4] = word(1) | READ;
            arguments[5] = word(2);
        }
        ("copy_file_range" | "splice", 1 | 3) | ("sendfile", 2) => arguments[argument] = word(0) | READ,
        ("ioctl", 2) => {
            let [first, second, third, fourth] = match arguments[1] {
                request::FICLONERANGE => [word(0), word(1), word(2), word(3)],
                // The number of destinations, and the first one's descriptor and offset.
                request::FIDEDUPERANGE => [word(0), word(1), (word(2) & 0xffff) << 32 | word(3) & 0xffff_ffff, word(4)],
                request::FS_IOC_SETFLAGS => [word(0) & 0xffff_ffff, 0, 0, 0],
                request::FS_IOC_FSSETXATTR => [word(0), word(1), word(2) & 0xffff_ffff, 0],
                request::FS_IOC_FIEMAP => [word(0), word(1), word(2) & 0xffff_ffff, 0],
                request::FITRIM => [word(0), word(1), word(2), 0],
                _ => return,
            };
            arguments[2..].copy_from_slice(&[first | READ, second, third, fourth]);
        }
        _ => {}
    }
}

/// Subtracts the call's own advance from an offset that was read after it.
pub fn take_late_words(record: &mut CallRecord, argument: usize, words: &[u64]) {
    let call = record.call.name().to_owned();
    take_words(&call, &mut record.arguments, argument, words);
    if matches!(&*call, "copy_file_range" | "splice" | "sendfile") {
        let moved = u64::try_from(record.result.unwrap_or(0)).unwrap_or(0);
        let offset = record.arguments[argument] & !READ;
        record.arguments[argument] = offset.saturating_sub(moved) | READ;
    }
}

/// Whether a successful call lacks words that a replay needs.
#[must_use]
pub fn lacks_words(record: &CallRecord) -> bool {
    let is_read = |argument: usize| record.arguments[argument] & READ != 0;
    let is_offset = |argument: usize| record.arguments[argument] == 0 || is_read(argument);
    record.succeeded()
        && match record.call.name() {
            "openat2" => !is_read(4),
            "copy_file_range" | "splice" => !is_offset(1) || !is_offset(3),
            "sendfile" => !is_offset(2),
            "ioctl" => has_structure(record.arguments[1]) && !is_read(2),
            _ => false,
        }
}

/// Whether a request of `ioctl` points to a structure that is part of a trace.
fn has_structure(number: u64) -> bool {
    use request::{FICLONERANGE, FIDEDUPERANGE, FITRIM, FS_IOC_FIEMAP, FS_IOC_FSSETXATTR, FS_IOC_SETFLAGS};
    [FICLONERANGE, FIDEDUPERANGE, FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_FIEMAP, FITRIM].contains(&number)
}

/// An offset passed by a pointer; `None` if it was null or unread.
pub(super) fn offset(record: &CallRecord, argument: usize) -> Option<u64> {
    let value = record.arguments[argument];
    (value & READ != 0).then_some(value & !READ)
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::Nanos;

    use super::*;

    fn record(name: &str, arguments: [u64; 6], result: i64) -> CallRecord {
        let call = name.parse().unwrap();
        CallRecord { arguments, result: Some(result), ..CallRecord::new(1, call, Nanos::ZERO) }
    }

    #[test]
    fn words_take_the_place_of_their_addresses() {
        let mut copy = record("copy_file_range", [3, 0x7fff_0000, 4, 0, 100, 0], 100);
        assert!(lacks_words(&copy));
        take_words("copy_file_range", &mut copy.arguments, 1, &[4096]);
        assert!(!lacks_words(&copy));
        assert_eq!((offset(&copy, 1), offset(&copy, 3)), (Some(4096), None));
        let mut late = record("copy_file_range", [3, 0x7fff_0000, 4, 0, 100, 0], 100);
        take_late_words(&mut late, 1, &[4196]);
        assert_eq!(offset(&late, 1), Some(4096));

        let mut range = record("ioctl", [4, request::FICLONERANGE, 0x7fff_0000, 0, 0, 0], 0);
        assert!(lacks_words(&range));
        take_words("ioctl", &mut range.arguments, 2, &[3, 4096, 8192, 12288, 7]);
        assert_eq!(range.arguments, [4, request::FICLONERANGE, 3 | READ, 4096, 8192, 12288]);
        let mut terminal = record("ioctl", [4, 0x5401, 0x7fff_0000, 0, 0, 0], 0);
        take_words("ioctl", &mut terminal.arguments, 2, &[3, 4096, 8192, 12288, 7]);
        assert_eq!(terminal.arguments, [4, 0x5401, 0x7fff_0000, 0, 0, 0], "data stay out");
    }
}
