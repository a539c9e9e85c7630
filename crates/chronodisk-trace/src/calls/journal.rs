//! The journal of a recorder on the host: its observations, in order.
//!
//! A recorder can be killed at any instant, so the journal only grows, and a reader uses its complete entries. It
//! begins with [`MAGIC`]. An entry is its length in bytes (four), its kind (one) and its values; all numbers are
//! little-endian. A length of zero, or fewer bytes than an entry has, ends the journal. A journal without
//! [`Entry::Complete`] at its end was cut short.

use std::fmt;
use std::io::{self, Read};

use chronodisk_sim::Nanos;

use super::record::{PATH_BYTES_MAX, TASK_MAX};

/// The first bytes of a journal.
pub const MAGIC: &[u8; 16] = b"chronodiskcalls\x01";
/// Longest entry in bytes, without its length.
const ENTRY_BYTES_MAX: usize = 4 * PATH_BYTES_MAX;
/// A CPU time, or the length of a path, that is not known.
const UNKNOWN: u64 = u64::MAX;

/// A path in a program's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Text {
    /// The call has no text, or a null pointer.
    #[default]
    None,
    /// The text was unreadable.
    Unreadable,
    /// Bytes of the text.
    Bytes(Vec<u8>),
}

/// CPU time that a stop adds to a task's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StopCosts {
    /// Between the return of a call and the entry of the next.
    pub outside: Nanos,
    /// Between a call's entry and its return.
    pub inside: Nanos,
}

/// An observation of a recorder. CPU times are the task's since its start, user and kernel together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The first entry.
    Start {
        /// Architecture of the programs.
        architecture: String,
        /// Mount point of the device's file system.
        mount: Option<String>,
        /// Costs of the recorder's stops.
        costs: StopCosts,
    },
    /// A task that existed at the beginning, with its working directory.
    First {
        /// The task, which is its own group.
        task: u32,
        /// Working directory of the task.
        directory: Text,
    },
    /// A descriptor that a first task has.
    Descriptor {
        /// The task.
        task: u32,
        /// The descriptor.
        descriptor: i32,
        /// The file's path, or a name such as `pipe:[17]`.
        path: Text,
    },
    /// A call begins.
    Enter {
        /// The task.
        task: u32,
        /// Instant of the event.
        at: Nanos,
        /// CPU time of the task.
        cpu: Option<Nanos>,
        /// The call's number.
        number: u32,
        /// Arguments, as in [`CallRecord`](super::CallRecord).
        arguments: [u64; 6],
        /// Paths of the call.
        paths: [Text; 2],
    },
    /// A call returns.
    Leave {
        /// The task.
        task: u32,
        /// Instant of the event.
        at: Nanos,
        /// CPU time of the task.
        cpu: Option<Nanos>,
        /// The kernel's result, after restarts.
        result: i64,
        /// The descriptors of a pipe.
        pipe: Option<[i32; 2]>,
    },
    /// A task makes another one.
    Made {
        /// The maker.
        maker: u32,
        /// The new task.
        child: u32,
        /// Whether it belongs to the maker's group.
        thread: bool,
    },
    /// A program was executed. Its task may have had another id before.
    Executed {
        /// The task.
        task: u32,
        /// Former id of the task.
        former: u32,
    },
    /// A task ends, for any cause.
    Ended {
        /// The task.
        task: u32,
        /// Instant of the event.
        at: Nanos,
        /// CPU time of the task.
        cpu: Option<Nanos>,
    },
    /// Reason why the trace is incomplete.
    Incomplete(String),
    /// All tasks have ended, and the journal is complete.
    Complete,
}

/// Error of reading a journal.
#[derive(Debug)]
pub enum JournalError {
    /// The file is no journal.
    NoJournal,
    /// The entry at this byte is invalid.
    Wrong {
        /// Offset of the entry.
        offset: u64,
        /// The value found and the value expected.
        message: String,
    },
    /// The system refused to read.
    Io(io::Error),
}

impl fmt::Display for JournalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalError::NoJournal => f.write_str("no journal of `chronodisk trace record`"),
            JournalError::Wrong { offset, message } => write!(f, "byte {offset}: {message}"),
            JournalError::Io(error) => write!(f, "can't be read: {error}"),
        }
    }
}

impl std::error::Error for JournalError {}

impl Entry {
    /// Appends the entry, with its length, to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Entry::Start { architecture, mount, costs } => {
                out.push(1);
                put_text(out, Some(architecture.as_bytes()));
                put_text(out, mount.as_ref().map(|mount| mount.as_bytes()));
                put(out, costs.outside.as_nanos());
                put(out, costs.inside.as_nanos());
            }
            Entry::First { task, directory } => {
                out.push(2);
                out.extend_from_slice(&task.to_le_bytes());
                put_path(out, directory);
            }
            Entry::Descriptor { task, descriptor, path } => {
                out.push(3);
                out.extend_from_slice(&task.to_le_bytes());
                out.extend_from_slice(&descriptor.to_le_bytes());
                put_path(out, path);
            }
            Entry::Enter { task, at, cpu, number, arguments, paths } => {
                out.push(4);
                out.extend_from_slice(&task.to_le_bytes());
                put(out, at.as_nanos());
                put(out, cpu.map_or(UNKNOWN, Nanos::as_nanos));
                out.extend_from_slice(&number.to_le_bytes());
                arguments.iter().for_each(|&argument| put(out, argument));
                paths.iter().for_each(|path| put_path(out, path));
            }
            Entry::Leave { task, at, cpu, result, pipe } => {
                out.push(5);
                out.extend_from_slice(&task.to_le_bytes());
                put(out, at.as_nanos());
                put(out, cpu.map_or(UNKNOWN, Nanos::as_nanos));
                put(out, *result as u64);
                out.push(u8::from(pipe.is_some()));
                pipe.iter().flatten().for_each(|descriptor| out.extend_from_slice(&descriptor.to_le_bytes()));
            }
            Entry::Made { maker, child, thread } => {
                out.push(6);
                out.extend_from_slice(&maker.to_le_bytes());
                out.extend_from_slice(&child.to_le_bytes());
                out.push(u8::from(*thread));
            }
            Entry::Executed { task, former } => {
                out.push(7);
                out.extend_from_slice(&task.to_le_bytes());
                out.extend_from_slice(&former.to_le_bytes());
            }
            Entry::Ended { task, at, cpu } => {
                out.push(8);
                out.extend_from_slice(&task.to_le_bytes());
                put(out, at.as_nanos());
                put(out, cpu.map_or(UNKNOWN, Nanos::as_nanos));
            }
            Entry::Incomplete(reason) => {
                out.push(9);
                put_text(out, Some(reason.as_bytes()));
            }
            Entry::Complete => out.push(10),
        }
        let bytes = (out.len() - begin - 4) as u32;
        out[begin..begin + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Decodes an entry without its length.
    ///
    /// # Errors
    /// The problem.
    fn decode(bytes: &[u8]) -> Result<Entry, String> {
        let mut input = Input(bytes);
        let entry = match input.array::<1>()?[0] {
            1 => Entry::Start {
                architecture: input.text()?.ok_or("the architecture is missing")?,
                mount: input.text()?,
                costs: StopCosts { outside: input.nanos()?, inside: input.nanos()? },
            },
            2 => Entry::First { task: input.task()?, directory: input.path()? },
            3 => Entry::Descriptor { task: input.task()?, descriptor: input.number()?, path: input.path()? },
            4 => Entry::Enter {
                task: input.task()?,
                at: input.nanos()?,
                cpu: input.cpu()?,
                number: input.number()? as u32,
                arguments: {
                    let mut arguments = [0; 6];
                    for argument in &mut arguments {
                        *argument = input.long()?;
                    }
                    arguments
                },
                paths: [input.path()?, input.path()?],
            },
            5 => Entry::Leave {
                task: input.task()?,
                at: input.nanos()?,
                cpu: input.cpu()?,
                result: input.long()? as i64,
                pipe: if input.flag()? { Some([input.number()?, input.number()?]) } else { None },
            },
            6 => Entry::Made { maker: input.task()?, child: input.task()?, thread: input.flag()? },
            7 => Entry::Executed { task: input.task()?, former: input.task()? },
            8 => Entry::Ended { task: input.task()?, at: input.nanos()?, cpu: input.cpu()? },
            9 => Entry::Incomplete(input.text()?.ok_or("the reason is missing")?),
            10 => Entry::Complete,
            kind => return Err(format!("kind is {kind}; expected 1 to 10")),
        };
        match input.0.len() {
            0 => Ok(entry),
            more => Err(format!("{more} bytes too many")),
        }
    }
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

/// Length that stands for a missing path.
const NO_PATH: u16 = u16::MAX;
const UNREADABLE_PATH: u16 = u16::MAX - 1;

fn put_text(out: &mut Vec<u8>, text: Option<&[u8]>) {
    let text = text.map(|text| &text[..text.len().min(PATH_BYTES_MAX)]);
    out.extend_from_slice(&text.map_or(NO_PATH, |text| text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.unwrap_or_default());
}

fn put_path(out: &mut Vec<u8>, path: &Text) {
    match path {
        Text::None => put_text(out, None),
        Text::Unreadable => out.extend_from_slice(&UNREADABLE_PATH.to_le_bytes()),
        Text::Bytes(bytes) if bytes.len() > PATH_BYTES_MAX => out.extend_from_slice(&UNREADABLE_PATH.to_le_bytes()),
        Text::Bytes(bytes) => put_text(out, Some(bytes)),
    }
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or("the entry is too short")?;
        self.0 = rest;
        Ok(*first)
    }

    fn number(&mut self) -> Result<i32, String> {
        self.array().map(i32::from_le_bytes)
    }

    fn long(&mut self) -> Result<u64, String> {
        self.array().map(u64::from_le_bytes)
    }

    fn nanos(&mut self) -> Result<Nanos, String> {
        self.long().map(Nanos::from_nanos)
    }

    fn cpu(&mut self) -> Result<Option<Nanos>, String> {
        self.long().map(|cpu| (cpu != UNKNOWN).then_some(Nanos::from_nanos(cpu)))
    }

    fn flag(&mut self) -> Result<bool, String> {
        match self.array::<1>()?[0] {
            byte @ (0 | 1) => Ok(byte == 1),
            byte => Err(format!("a flag is {byte}; expected 0 or 1")),
        }
    }

    fn task(&mut self) -> Result<u32, String> {
        match u32::from_le_bytes(self.array()?) {
            task @ 1..=TASK_MAX => Ok(task),
            task => Err(format!("task id is {task}; expected 1 to {TASK_MAX}")),
        }
    }

    fn path(&mut self) -> Result<Text, String> {
        let length = u16::from_le_bytes(self.array()?);
        let bytes = match length {
            NO_PATH => return Ok(Text::None),
            UNREADABLE_PATH => return Ok(Text::Unreadable),
            length if usize::from(length) > PATH_BYTES_MAX => {
                return Err(format!("a path has {length} bytes; expected at most {PATH_BYTES_MAX}"));
            }
            length => self.0.split_at_checked(length.into()).ok_or("a path is cut short")?,
        };
        self.0 = bytes.1;
        if bytes.0.contains(&0) {
            return Err("a path contains a NUL byte".to_owned());
        }
        Ok(Text::Bytes(bytes.0.to_vec()))
    }

    fn text(&mut self) -> Result<Option<String>, String> {
        match self.path()? {
            Text::Bytes(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "a text is not UTF-8".to_owned()),
            _ => Ok(None),
        }
    }
}

/// Reads a journal entry by entry.
#[derive(Debug)]
pub struct JournalReader<R> {
    input: R,
    offset: u64,
}

impl<R: Read> JournalReader<R> {
    /// Expects the first bytes of a journal.
    ///
    /// # Errors
    /// If they are others.
    pub fn new(mut input: R) -> Result<Self, JournalError> {
        let mut magic = [0; MAGIC.len()];
        match filled(&mut input, &mut magic).map_err(JournalError::Io)? && magic == *MAGIC {
            true => Ok(JournalReader { input, offset: MAGIC.len() as u64 }),
            false => Err(JournalError::NoJournal),
        }
    }

    /// The next entry; `None` at the journal's end.
    ///
    /// # Errors
    /// If the entry is invalid, or the system refuses to read.
    pub fn entry(&mut self) -> Result<Option<Entry>, JournalError> {
        let mut length = [0; 4];
        if !filled(&mut self.input, &mut length).map_err(JournalError::Io)? {
            return Ok(None);
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 {
            return Ok(None);
        }
        let wrong = |message| JournalError::Wrong { offset: self.offset, message };
        if length > ENTRY_BYTES_MAX {
            return Err(wrong(format!("an entry has {length} bytes; expected at most {ENTRY_BYTES_MAX}")));
        }
        let mut bytes = [0; ENTRY_BYTES_MAX];
        if !filled(&mut self.input, &mut bytes[..length]).map_err(JournalError::Io)? {
            return Ok(None);
        }
        let entry = Entry::decode(&bytes[..length]).map_err(wrong)?;
        self.offset += 4 + length as u64;
        Ok(Some(entry))
    }

    /// Offset of the next entry in bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

/// Fills the bytes. Returns false if the input ends before.
fn filled(input: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let nanos = Nanos::from_nanos;
        let costs = StopCosts { outside: nanos(1), inside: nanos(2) };
        let path = Text::Bytes(b"/m/f".to_vec());
        vec![
            Entry::Start { architecture: "x86_64".into(), mount: Some("/m".into()), costs },
            Entry::First { task: 7, directory: path.clone() },
            Entry::Descriptor { task: 7, descriptor: 3, path: Text::Unreadable },
            Entry::Enter {
                task: 7,
                at: nanos(5),
                cpu: Some(nanos(3)),
                number: 257,
                arguments: [1, u64::MAX, 3, 4, 5, 6],
                paths: [path, Text::None],
            },
            Entry::Leave { task: 7, at: nanos(6), cpu: None, result: -512, pipe: Some([3, 4]) },
            Entry::Made { maker: 7, child: 8, thread: true },
            Entry::Executed { task: 7, former: 8 },
            Entry::Ended { task: 7, at: nanos(9), cpu: Some(nanos(4)) },
            Entry::Incomplete("reason".into()),
            Entry::Complete,
        ]
    }

    fn journal() -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        entries().iter().for_each(|entry| entry.encode(&mut bytes));
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Entry>, JournalError> {
        let mut reader = JournalReader::new(bytes)?;
        std::iter::from_fn(|| reader.entry().transpose()).collect()
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = journal();
        assert_eq!(read(&bytes).unwrap(), entries());
        bytes.extend_from_slice(&[0; 4096]);
        assert_eq!(read(&bytes).unwrap(), entries(), "the rest of a page that was never written");
    }

    #[test]
    fn a_journal_may_end_anywhere() {
        let bytes = journal();
        for end in MAGIC.len()..bytes.len() {
            let found = read(&bytes[..end]).unwrap();
            assert!(found.len() < entries().len() && entries().starts_with(&found), "{end}");
        }
        assert!(matches!(read(&bytes[..9]), Err(JournalError::NoJournal)));
    }

    #[test]
    fn what_no_recorder_writes_is_refused_with_its_place() {
        let mut bytes = MAGIC.to_vec();
        Entry::Complete.encode(&mut bytes);
        let begin = bytes.len();
        Entry::Made { maker: 0, child: 1, thread: false }.encode(&mut bytes);
        let error = read(&bytes).unwrap_err().to_string();
        assert_eq!(error, format!("byte {begin}: task id is 0; expected 1 to 4194304"));
        bytes.truncate(begin);
        bytes.extend_from_slice(&[0xff, 0xff, 0, 0, 1]);
        let error = read(&bytes).unwrap_err().to_string();
        assert_eq!(error, format!("byte {begin}: an entry has 65535 bytes; expected at most 16384"));
    }
}
