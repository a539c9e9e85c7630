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
        let mut warnings = Warnings::default();
        loop {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(len) => warning_in(&record[..len]).into_iter().for_each(|text| warnings.add(text)),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                // Old records were overwritten; the next read returns newer ones.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => warnings.more += 1,
                Err(_) => break,
            }
        }
        warnings.into_lines()
    }
}

/// Warnings without the dumps of the kernel's state that follow some of them.
#[derive(Default)]
struct Warnings {
    lines: Vec<String>,
    /// Warnings beyond the ones that are reported.
    more: usize,
    /// The message that memory is short, until the one that names the killed process. A dump is between them.
    shortage: Option<String>,
}

/// Beginnings of a dump's lines. Others begin with a space.
const DUMP: [&str; 6] = ["CPU: ", "Stack:", "Call Trace:", "Code: ", "Modules linked in:", "---[ end trace"];

impl Warnings {
    fn add(&mut self, text: String) {
        if text.contains(" invoked oom-killer: ") {
            self.shortage = Some(text);
            return;
        }
        if self.shortage.is_some() {
            if !text.to_lowercase().contains("out of memory: ") {
                return;
            }
            self.shortage = None;
        }
        if text.starts_with(' ') || DUMP.iter().any(|beginning| text.starts_with(beginning)) {
            return;
        }
        if self.lines.last() == Some(&text) {
            return;
        }
        if self.lines.len() < WARNINGS_MAX {
            self.lines.push(text);
        } else {
            self.more += 1;
        }
    }

    fn into_lines(mut self) -> Vec<String> {
        self.lines.extend(self.shortage);
        if self.more > 0 {
            self.lines.push(format!("and {} more", self.more));
        }
        self.lines
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

    #[test]
    fn dumps_and_repeated_warnings_are_left_out() {
        let killed = "Out of memory: Killed process 59 (dd) total-vm:2480kB, anon-rss:64kB";
        let log = [
            "a warning",
            "a warning",
            "dd invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
            "CPU: 0 PID: 59 Comm: dd Not tainted 6.1.176 #1 ",
            "Stack:",
            " 606944ba 607e7fcd 614d36b0 6067bb96",
            "Call Trace:",
            " [<6002d37a>] show_stack+0x184/0x193",
            "Mem-Info:",
            "0 pages HighMem/MovableOnly",
            killed,
            "a warning",
            "WARNING: CPU: 0 PID: 1 at fs/ext4/inode.c:1 ext4_function+0x1/0x2",
            "Call Trace:",
            " [<6002d37a>] show_stack+0x184/0x193",
        ];
        let kept = |log: &[&str]| {
            let mut warnings = Warnings::default();
            log.iter().for_each(|line| warnings.add((*line).to_owned()));
            warnings.into_lines()
        };
        assert_eq!(kept(&log), [log[0], killed, log[11], log[12]]);
        assert_eq!(kept(&log[2..9]), [log[2]]);
        let many: Vec<String> = (0..WARNINGS_MAX + 3).map(|number| format!("warning {number}")).collect();
        let many = kept(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!((many.len(), many.last().map(String::as_str)), (WARNINGS_MAX + 1, Some("and 3 more")));
    }
}
