//! The verdicts of a run, kept as they come, so that ended checks can be resumed.
//!
//! The file has a line of JSON for each verdict. Its first line names the check and the number of the states. Each line
//! is written by one call and is on the host's disk before the next check begins. A last line without its line break
//! was cut off and does not count.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use chronodisk_crash::{Draw, State};
use chronodisk_guest::StateStep;
use chronodisk_sim::Nanos;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::pool::Verdict;
use crate::failure::Failure;
use crate::folder::RunDirectory;

/// Schema of the file.
const SCHEMA: &str = "chronodisk-crash-verdicts/1";
/// Longest line that is read. The check is one argument of a command line, and an output has a few KiB.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Most states of a file. A reader of all verdicts takes a bit for each.
const STATES_MAX: usize = 1 << 26;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    schema: String,
    check: String,
    states: usize,
}

/// The verdict on a state, as a line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptVerdict {
    /// Number of the state, counted from 1.
    pub state: usize,
    /// Instant of the cut.
    pub cut_ns: Nanos,
    /// Name of the draw.
    pub draw: String,
    /// The failed step; `None` if the state passed.
    pub failed: Option<StateStep>,
    /// Output of the failed step.
    pub output: String,
}

/// Reads a file of verdicts line by line.
#[derive(Debug)]
pub(super) struct VerdictReader {
    lines: Lines,
    head: Head,
    /// A bit for each state with a verdict.
    seen: Vec<u64>,
}

impl VerdictReader {
    /// Opens the file of a run. `None` if there is none, or if its first line is incomplete.
    pub fn open(directory: &RunDirectory) -> Result<Option<Self>, Failure> {
        let path = directory.crash_verdicts();
        let file = match File::open(&path) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::usage(format!("{}: can't read: {error}", path.display()))),
        };
        let mut lines = Lines { path, file, number: 0, end_bytes: 0 };
        let Some(head) = lines.next::<Head>()? else { return Ok(None) };
        if head.schema != SCHEMA {
            return Err(lines.wrong(format!("schema is '{}'; expected '{SCHEMA}'", head.schema)));
        }
        if head.states > STATES_MAX {
            return Err(lines.wrong(format!("states is {}; expected at most {STATES_MAX}", head.states)));
        }
        let seen = vec![0; head.states.div_ceil(64)];
        Ok(Some(VerdictReader { lines, head, seen }))
    }

    /// The check that gave the verdicts.
    pub fn check(&self) -> &str {
        &self.head.check
    }

    /// The next verdict.
    pub fn next(&mut self) -> Result<Option<KeptVerdict>, Failure> {
        let Some(verdict) = self.lines.next::<KeptVerdict>()? else { return Ok(None) };
        let (state, states) = (verdict.state, self.head.states);
        if state == 0 || state > states {
            return Err(self.lines.wrong(format!("state is {state}; expected 1 to {states}")));
        }
        if Draw::named(&verdict.draw).is_none() {
            return Err(self.lines.wrong(format!("draw is '{}', which is no draw", verdict.draw)));
        }
        let (word, bit) = ((state - 1) / 64, 1 << ((state - 1) % 64));
        if self.seen[word] & bit != 0 {
            return Err(self.lines.wrong(format!("state {state} has a verdict already")));
        }
        self.seen[word] |= bit;
        Ok(Some(verdict))
    }

    /// The verdicts on these states, and the length of the complete lines in bytes.
    pub fn verdicts(mut self, states: &[State]) -> Result<(Vec<Option<Verdict>>, u64), Failure> {
        if self.head.states != states.len() {
            let (kept, made) = (self.head.states, states.len());
            return Err(self.lines.wrong(format!("the file is of {kept} states; the recording gives {made}")));
        }
        let mut verdicts = vec![None; states.len()];
        while let Some(kept) = self.next()? {
            let state = &states[kept.state - 1];
            if kept.cut_ns != state.cut.at || kept.draw != state.draw.name() {
                return Err(self.lines.wrong(format!("state {} of the recording is another one", kept.state)));
            }
            verdicts[kept.state - 1] = Some(Verdict { failed: kept.failed, output: kept.output });
        }
        Ok((verdicts, self.lines.end_bytes))
    }
}

/// The complete lines of a file.
#[derive(Debug)]
struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    /// Number of the last line, counted from 1.
    number: u64,
    /// End of the last line.
    end_bytes: u64,
}

impl Lines {
    fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Failure> {
        let mut line = Vec::new();
        let read = self.file.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        read.map_err(|error| Failure::usage(format!("{}: can't read: {error}", self.path.display())))?;
        let is_complete = line.ends_with(b"\n");
        if !is_complete && line.len() as u64 <= LINE_BYTES_MAX {
            return Ok(None);
        }
        self.number += 1;
        if !is_complete {
            return Err(self.wrong(format!("the line is longer than {LINE_BYTES_MAX} bytes")));
        }
        self.end_bytes += line.len() as u64;
        serde_json::from_slice(&line).map(Some).map_err(|error| {
            let (said, column) = (error.to_string(), error.column());
            // The parser sees one line, so its line number is always 1.
            let what = said.split_once(" at line ").map_or(&*said, |(what, _)| what);
            self.wrong(format!("{what} (column {column})"))
        })
    }

    /// A damaged line.
    fn wrong(&self, what: impl std::fmt::Display) -> Failure {
        Failure::usage(format!("{}: line {}: {what}", self.path.display(), self.number))
            .help("`chronodisk crash --from` checks all states again, and writes a new file")
    }
}

/// Keeps the verdicts on the states of a run. Nothing changes before the first one.
#[derive(Debug)]
pub(super) struct VerdictKeeper {
    path: PathBuf,
    result: PathBuf,
    head: Head,
    /// Length of the kept lines in bytes; 0 starts anew.
    kept_bytes: u64,
    file: Option<File>,
    is_broken: bool,
}

impl VerdictKeeper {
    /// Continues after the kept lines, or starts a new file if there are none.
    pub fn new(directory: &RunDirectory, check: &str, states: usize, kept_bytes: u64) -> Self {
        let head = Head { schema: SCHEMA.to_owned(), check: check.to_owned(), states };
        let (path, result) = (directory.crash_verdicts(), directory.crash_result());
        VerdictKeeper { path, result, head, kept_bytes, file: None, is_broken: false }
    }

    /// Opens the file, and removes the result of earlier checks, to which it does not belong any more.
    pub fn begin(&mut self) -> Result<(), Failure> {
        if self.file.is_some() {
            return Ok(());
        }
        let cannot = |path: &Path, error| Failure::host(format!("{}: can't write: {error}", path.display()));
        match fs::remove_file(&self.result) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(cannot(&self.result, error)),
            _ => {}
        }
        let opened = OpenOptions::new().append(true).create(true).open(&self.path);
        let file = opened.and_then(|file| {
            file.set_len(self.kept_bytes)?;
            File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(file)
        });
        self.file = Some(file.map_err(|error| cannot(&self.path, error))?);
        match self.kept_bytes {
            0 => self.write(&serde_json::to_vec(&self.head).expect("plain data")),
            _ => Ok(()),
        }
    }

    /// Keeps the verdict on the state with this index.
    pub fn keep(&mut self, index: usize, state: &State, verdict: &Verdict) -> Result<(), Failure> {
        self.begin()?;
        let kept = KeptVerdict {
            state: index + 1,
            cut_ns: state.cut.at,
            draw: state.draw.name().to_owned(),
            failed: verdict.failed,
            output: verdict.output.clone(),
        };
        self.write(&serde_json::to_vec(&kept).expect("plain data"))
    }

    /// Writes a line. After a failure, nothing may follow the part of a line that it may have left.
    fn write(&mut self, line: &[u8]) -> Result<(), Failure> {
        let Some(file) = self.file.as_mut().filter(|_| !self.is_broken) else {
            return Err(Failure::host(format!("{}: an earlier write failed", self.path.display())));
        };
        let written = file.write_all(&[line, b"\n"].concat()).and_then(|()| file.sync_data());
        self.is_broken = written.is_err();
        written.map_err(|error| Failure::host(format!("{}: can't write: {error}", self.path.display())))
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_crash::{Cut, Draw, Lost};

    use super::*;
    use crate::failure::status;

    fn states() -> Vec<State> {
        let cut = |at| Cut { at: Nanos::from_nanos(at), position: 0 };
        let draws = [(3, Draw::NoneLost), (3, Draw::Torn), (9, Draw::AllLost)];
        draws.map(|(at, draw)| State { cut: cut(at), draw, lost: Lost::default() }).to_vec()
    }

    fn passed() -> Verdict {
        Verdict { failed: None, output: String::new() }
    }

    fn failed() -> Verdict {
        Verdict { failed: Some(StateStep::Check), output: "row 3\n\"is\" lost".to_owned() }
    }

    /// A run with the verdicts on its last and its first state.
    fn run() -> (tempfile::TempDir, RunDirectory) {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::at(folder.path());
        let mut keeper = VerdictKeeper::new(&directory, "test -s a", 3, 0);
        keeper.keep(2, &states()[2], &failed()).unwrap();
        keeper.keep(0, &states()[0], &passed()).unwrap();
        (folder, directory)
    }

    fn read(directory: &RunDirectory) -> Result<(Vec<Option<Verdict>>, u64), Failure> {
        VerdictReader::open(directory)?.map_or(Ok((Vec::new(), 0)), |reader| reader.verdicts(&states()))
    }

    #[test]
    fn verdicts_are_read_as_they_were_kept_and_continued() {
        let (_folder, directory) = run();
        let (verdicts, kept_bytes) = read(&directory).unwrap();
        assert_eq!(verdicts, [Some(passed()), None, Some(failed())]);
        let mut keeper = VerdictKeeper::new(&directory, "test -s a", 3, kept_bytes);
        keeper.keep(1, &states()[1], &passed()).unwrap();
        assert_eq!(read(&directory).unwrap().0, [Some(passed()), Some(passed()), Some(failed())]);
        assert_eq!(VerdictReader::open(&directory).unwrap().unwrap().check(), "test -s a");
    }

    #[test]
    fn a_file_that_ends_anywhere_has_its_complete_lines_and_is_continued() {
        let (_folder, directory) = run();
        let path = directory.crash_verdicts();
        let whole = fs::read(&path).unwrap();
        let counts = (0..=whole.len()).map(|len| {
            fs::write(&path, &whole[..len]).unwrap();
            let (verdicts, kept_bytes) = read(&directory).unwrap();
            let count = verdicts.iter().flatten().count();
            assert!(kept_bytes as usize <= len && whole[..kept_bytes as usize].iter().all(u8::is_ascii));
            let mut keeper = VerdictKeeper::new(&directory, "test -s a", 3, kept_bytes);
            keeper.keep(1, &states()[1], &passed()).unwrap();
            assert_eq!(read(&directory).unwrap().0.iter().flatten().count(), count + 1);
            count
        });
        let counts: Vec<usize> = counts.collect();
        assert!(counts.is_sorted() && counts[0] == 0 && counts[whole.len() - 1] == 1 && counts[whole.len()] == 2);
    }

    #[test]
    fn nothing_changes_before_the_first_verdict_and_the_older_result_goes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let directory = RunDirectory::at(folder.path());
        fs::write(directory.crash_result(), "older").unwrap();
        let mut keeper = VerdictKeeper::new(&directory, ":", 3, 0);
        assert!(directory.crash_result().exists() && !directory.crash_verdicts().exists());
        keeper.keep(0, &states()[0], &passed()).unwrap();
        assert!(!directory.crash_result().exists());
    }

    #[test]
    fn a_damaged_line_is_refused_with_its_file_and_number() {
        let (_folder, directory) = run();
        let path = directory.crash_verdicts();
        let whole = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        let long = format!("{}\n", "x".repeat(LINE_BYTES_MAX as usize + 1));
        let cases = [
            (whole.replace("verdicts/1", "verdicts/2"), "line 1: schema"),
            (whole.replace("\"states\":3", "\"states\":4"), "line 1: the file is of 4 states"),
            (whole.replace("\"state\":3", "\"state\":0"), "line 2: state is 0"),
            (whole.replace("\"state\":3", "\"state\":4"), "line 2: state is 4"),
            (whole.replace("\"state\":3", "\"state\":-3"), "line 2: invalid value"),
            (whole.replace("\"cut_ns\":9", "\"cut_ns\":8"), "line 2: state 3 of the recording is another one"),
            (whole.replace("none-lost", "<b>"), "line 3: draw is '<b>'"),
            (whole.replace("\"states\":3", "\"states\":99999999999"), "line 1: states is"),
            (whole.replace("none-lost", "torn"), "line 3: state 1 of the recording is another one"),
            (whole.replace("\"check\",\"output\"", "\"czech\",\"output\""), "line 2: unknown variant"),
            (format!("{whole}{}\n", lines[2]), "line 4: state 1 has a verdict already"),
            (format!("{whole}\n"), "line 4: EOF"),
            (whole.clone() + &long, "line 4: the line is longer than"),
        ];
        for (text, message) in cases {
            fs::write(&path, text).unwrap();
            let refused = read(&directory).unwrap_err();
            assert_eq!(refused.status(), status::USAGE);
            let said = refused.to_string();
            assert!(said.contains("crash-verdicts.jsonl: ") && said.contains(message), "{message}: {said}");
        }
    }

    #[test]
    fn no_damaged_byte_leads_to_a_panic() {
        let (_folder, directory) = run();
        let path = directory.crash_verdicts();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            for byte in [0, b'\n', b'"', b'9', 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = byte;
                fs::write(&path, damaged).unwrap();
                let _ = read(&directory);
            }
        }
    }
}
