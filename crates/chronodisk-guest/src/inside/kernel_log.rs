//! Warnings in the log of the guest's kernel, which make a run's figures doubtful.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// `Documentation/ABI/testing/dev-kmsg` of the kernel: each read returns one record.
const FILE: &str = "/dev/kmsg";
/// `LOG_LINE_MAX` and the longest head, with room.
const RECORD_BYTES_MAX: usize = 8 << 10;
/// `KERN_WARNING`; more severe levels have smaller numbers.
const WARNING: u32 = 4;
/// Warnings reported; of the rest only the number is.
const WARNINGS_MAX: usize = 20;

/// The kernel's log from now on; empty on a kernel without a log.
pub(crate) struct KernelLog(Option<File>);

impl KernelLog {
    /// Begins at the current end of the log.
    pub fn from_now() -> Self {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(FILE);
        let at_end = file.and_then(|mut file| file.seek(SeekFrom::End(0)).map(|_| file));
        KernelLog(at_end.ok())
    }

    /// The warnings since.
    pub fn warnings(&mut self) -> Vec<String> {
        let Some(file) = &mut self.0 else { return Vec::new() };
        let mut record = [0; RECORD_BYTES_MAX];
        let (mut warnings, mut more) = (Vec::new(), 0);
        loop {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(len) => match warning_in(&record[..len]) {
                    Some(text) if warnings.len() < WARNINGS_MAX => warnings.push(text),
                    Some(_) => more += 1,
                    None => {}
                },
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Old records were overwritten; the next read returns newer ones.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => more += 1,
                Err(_) => break,
            }
        }
        if more > 0 {
            warnings.push(format!("and {more} more"));
        }
        warnings
    }
}

/// A place in the kernel's log, to find its messages about a failed step. It needs no `/dev`.
pub(crate) struct LogPlace {
    lines: usize,
}

/// `SYSLOG_ACTION_READ_ALL` of syslog(2).
const READ_ALL: libc::c_int = 3;
const LOG_BYTES_MAX: usize = 1 << 20;
/// Number of last lines that are shown.
const REASONS_MAX: usize = 5;

impl LogPlace {
    /// The place after the last message.
    pub fn now() -> Self {
        LogPlace { lines: whole_log().lines().count() }
    }

    /// The last warnings since then, a line each; empty without any.
    pub fn complaints(&self) -> String {
        let log = whole_log();
        let complaints: Vec<&str> = log.lines().skip(self.lines).filter_map(complaint_in).collect();
        complaints[complaints.len().saturating_sub(REASONS_MAX)..].join("\n")
    }
}

fn whole_log() -> String {
    let mut bytes = vec![0_u8; LOG_BYTES_MAX];
    // SAFETY: the call writes at most as many bytes as the buffer has.
    let count = unsafe { libc::klogctl(READ_ALL, bytes.as_mut_ptr().cast(), bytes.len() as libc::c_int) };
    bytes.truncate(usize::try_from(count).unwrap_or(0));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The text of a line `<PRIORITY>[SECONDS] TEXT` if it is a warning or worse from the kernel.
fn complaint_in(line: &str) -> Option<&str> {
    let (priority, rest) = line.strip_prefix('<')?.split_once('>')?;
    let text = rest.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(rest, |(_, text)| text);
    (priority.parse::<u32>().ok()? <= WARNING).then_some(text)
}

/// The text of a record if it is a warning or worse from the kernel: `PRIORITY,NUMBER,MICROSECONDS,...;TEXT`.
fn warning_in(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, text) = record.split_once(';')?;
    let priority: u32 = head.split(',').next()?.parse().ok()?;
    // A priority is eight times the facility, 0 for the kernel, plus the level.
    (priority <= WARNING).then(|| text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_the_rest_of_the_log() {
        let unknown = "dm_crypt: Unknown symbol key_type_encrypted (err -2)";
        assert_eq!(complaint_in(&format!("<4>[    0.310000] {unknown}")), Some(unknown));
        assert_eq!(complaint_in("<3>EXT4-fs (vda): bad geometry"), Some("EXT4-fs (vda): bad geometry"));
        for other in ["<6>[    0.100000] virtio_blk: [vda] 8 blocks", "<14>[1.0] a program's", "", "<x>[1.0] a"] {
            assert_eq!(complaint_in(other), None, "{other}");
        }
    }

    #[test]
    fn warnings_of_the_kernel_are_told_from_its_chatter_and_from_others() {
        let bug = b"0,12,345,-;BUG: something\n SUBSYSTEM=block\n DEVICE=b254:0\n";
        assert_eq!(warning_in(bug).as_deref(), Some("BUG: something"));
        assert_eq!(warning_in(b"4,7,0,-;a warning").as_deref(), Some("a warning"));
        assert_eq!(warning_in(b"6,8,0,-;EXT4-fs (vda): mounted filesystem"), None);
        assert_eq!(warning_in(b"12,9,0,-;a program's warning"), None);
        for nothing in [&b""[..], b"4", b";", b"x,1;text"] {
            assert_eq!(warning_in(nothing), None);
        }
    }
}
