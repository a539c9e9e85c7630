//! Makes a trace from the events recorded by the guest's clock.

use std::collections::BTreeMap;

use chronodisk_sim::Nanos;
use chronodisk_trace::calls::{
    CallRecord, CallTrace, Clock, Header, PAGE_FAULT, PATH_BYTES_MAX, StartState, TASK_MAX, assess,
    keep_faults_of_device, lacks_words, take_late_words, take_words,
};

use super::{RecordingError, names};
use crate::shared::layout::{
    RECORD_DROPPED, RECORD_HAS_PAIR, RECORD_LATE, RECORD_NO_PATH, RECORD_RESTARTED, RECORD_UNREADABLE,
    RECORD_WORDS_SHIFT, RecordedEvent,
};

/// Recorded events, with the recording's properties.
pub(crate) struct Recorded<'a> {
    pub events: &'a [u8],
    /// Events that are missing.
    pub lost: u64,
    /// Whether it was ended, rather than cut short.
    pub is_whole: bool,
    pub clock: Clock,
    pub mount: &'a str,
    /// Working directory of the command at its start.
    pub directory: &'a str,
}

/// The words of an event after the first two, and its offset.
struct Words<'a> {
    at: usize,
    words: &'a [[u8; 8]],
}

impl<'a> Words<'a> {
    fn wrong(&self, what: &'static str) -> RecordingError {
        RecordingError::Damaged { at: self.at, what }
    }

    fn next(&mut self) -> Result<u64, RecordingError> {
        let (first, rest) = self.words.split_first().ok_or(self.wrong("an event is too short"))?;
        self.words = rest;
        Ok(u64::from_ne_bytes(*first))
    }

    fn path(&mut self) -> Result<Option<Vec<u8>>, RecordingError> {
        let length = self.next()?;
        if length == RECORD_NO_PATH {
            return Ok(None);
        }
        if length > PATH_BYTES_MAX as u64 {
            return Err(self.wrong("a path is too long"));
        }
        let (words, rest) = self
            .words
            .split_at_checked((length as usize).div_ceil(8))
            .ok_or(self.wrong("a path is longer than its event"))?;
        self.words = rest;
        let path = words.as_flattened()[..length as usize].to_vec();
        if path.contains(&0) {
            return Err(self.wrong("a path contains NUL"));
        }
        Ok(Some(path))
    }
}

struct Draft {
    sequence: u64,
    record: CallRecord,
    is_restarted: bool,
    is_dropped: bool,
    is_unreadable: bool,
    /// Arguments with words that were read after the call.
    late: Vec<(usize, Vec<u64>)>,
}

/// The call that continues an interrupted wait.
const RESTART: &str = "restart_syscall";

impl Recorded<'_> {
    /// # Errors
    /// If it is damaged.
    pub fn trace(&self) -> Result<CallTrace, RecordingError> {
        let drafts = self.drafts()?;
        let mut header =
            Header { mount: Some(self.mount.to_owned()), lost_events: self.lost, ..Header::new("x86_64", self.clock) };
        if !self.is_whole {
            header.count_incomplete("cut-short");
        }
        for draft in &drafts {
            if draft.is_unreadable {
                header.count_incomplete("unreadable-path");
            }
            if lacks_words(&draft.record) {
                header.count_incomplete("unreadable-argument");
            }
        }
        let records = finished(drafts);
        if let Some(first) = records.first() {
            let directory = Some(self.directory.to_owned());
            header.start = vec![StartState { task: first.task, directory, descriptors: BTreeMap::new() }];
        }
        let mut trace = CallTrace { header, records };
        keep_faults_of_device(&mut trace);
        assess(&mut trace, true);
        Ok(trace)
    }

    /// Each call with its result, in order of entry.
    fn drafts(&self) -> Result<Vec<Draft>, RecordingError> {
        let (all, _) = self.events.as_chunks::<8>();
        let mut drafts: Vec<Draft> = Vec::new();
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        let mut at = 0;
        while at < all.len() {
            let mut words = Words { at: at * 8, words: &all[at..] };
            let first = words.next()?;
            let count = (first >> RECORD_WORDS_SHIFT) as usize;
            let event = all.get(at + 1..at.saturating_add(count)).filter(|event| !event.is_empty());
            words.words = event.ok_or(words.wrong("an event is cut off"))?;
            at += count;
            let sequence = words.next()?;
            let kind = first & u64::from(u32::MAX);
            if kind == RecordedEvent::Call as u64 {
                places.insert(sequence, drafts.len());
                drafts.push(call(&mut words, sequence)?);
                continue;
            }
            if kind == RecordedEvent::Fault as u64 {
                places.insert(sequence, drafts.len());
                drafts.push(fault(&mut words, sequence)?);
                continue;
            }
            let draft = places.get(&sequence).map(|&place| &mut drafts[place]);
            // The call's entry may be one of the lost events.
            let Some(draft) = draft else { continue };
            if kind == RecordedEvent::Return as u64 {
                returned(&mut words, draft)?;
            } else if kind == RecordedEvent::Words as u64 {
                pointed(&mut words, draft)?;
            } else if kind == RecordedEvent::KernelTime as u64 {
                let so_far = draft.record.kernel_cpu.unwrap_or(Nanos::ZERO);
                draft.record.kernel_cpu = Some(so_far.saturating_add(Nanos::from_nanos(words.next()?)));
            } else {
                return Err(words.wrong("an event is of no known kind"));
            }
        }
        // A page fault is recorded at its end.
        drafts.sort_by_key(|draft| draft.sequence);
        Ok(drafts)
    }
}

fn ids(words: &mut Words<'_>) -> Result<(u32, u32), RecordingError> {
    let ids = words.next()?;
    let (task, group) = (ids as u32, (ids >> 32) as u32);
    if task == 0 || group == 0 || task.max(group) > TASK_MAX {
        return Err(words.wrong("a task's id is out of range"));
    }
    Ok((task, group))
}

fn draft(sequence: u64, record: CallRecord) -> Draft {
    Draft { sequence, record, is_restarted: false, is_dropped: false, is_unreadable: false, late: Vec::new() }
}

fn fault(words: &mut Words<'_>, sequence: u64) -> Result<Draft, RecordingError> {
    let (task, group) = ids(words)?;
    let entry = Nanos::from_nanos(words.next()?);
    let exit = Some(Nanos::from_nanos(words.next()?).max(entry));
    let user_cpu = Some(Nanos::from_nanos(words.next()?));
    let arguments = [words.next()?, words.next()?, 0, 0, 0, 0];
    let call = PAGE_FAULT.parse().expect("it is the name of a call");
    let of_fault =
        CallRecord { group, arguments, result: Some(0), exit, user_cpu, ..CallRecord::new(task, call, entry) };
    Ok(draft(sequence, CallRecord { kernel_cpu: Some(Nanos::ZERO), ..of_fault }))
}

fn call(words: &mut Words<'_>, sequence: u64) -> Result<Draft, RecordingError> {
    let (task, group) = ids(words)?;
    let number = words.next()?;
    let name = usize::try_from(number).ok().and_then(names::name).map(str::to_owned);
    // A program may call anything, and gets an error.
    let name = name.unwrap_or_else(|| "unknown".to_owned());
    let entry = Nanos::from_nanos(words.next()?);
    let user_cpu = Some(Nanos::from_nanos(words.next()?));
    let mut arguments = [0; 6];
    for argument in &mut arguments {
        *argument = words.next()?;
    }
    let (path, path_2) = (words.path()?, words.path()?);
    let call = name.parse().expect("names are of letters, digits and underscores");
    let record = CallRecord {
        group,
        arguments,
        path,
        path_2,
        user_cpu,
        kernel_cpu: Some(Nanos::ZERO),
        ..CallRecord::new(task, call, entry)
    };
    Ok(draft(sequence, record))
}

fn returned(words: &mut Words<'_>, draft: &mut Draft) -> Result<(), RecordingError> {
    let record = &mut draft.record;
    record.exit = Some(Nanos::from_nanos(words.next()?).max(record.entry));
    record.result = Some(words.next()? as i64);
    let flags = words.next()?;
    let pair = words.next()?;
    draft.is_restarted = flags & RECORD_RESTARTED != 0;
    draft.is_dropped = flags & RECORD_DROPPED != 0;
    draft.is_unreadable = flags & RECORD_UNREADABLE != 0;
    if flags & RECORD_HAS_PAIR != 0 {
        let descriptors = [pair as u32 as i32, (pair >> 32) as u32 as i32];
        record.pipe = Some(descriptors).filter(|pair| pair.iter().all(|&descriptor| descriptor >= 0));
    }
    record.path = record.path.take().or(words.path()?);
    record.path_2 = record.path_2.take().or(words.path()?);
    for (argument, values) in draft.late.drain(..) {
        take_late_words(record, argument, &values);
    }
    Ok(())
}

/// Words that an argument points to.
fn pointed(words: &mut Words<'_>, draft: &mut Draft) -> Result<(), RecordingError> {
    let first = words.next()?;
    let argument = usize::try_from(first & !RECORD_LATE).ok().filter(|&argument| argument < 6);
    let argument = argument.ok_or(words.wrong("a call has no such argument"))?;
    let values: Vec<u64> = words.words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    if first & RECORD_LATE != 0 {
        draft.late.push((argument, values));
        return Ok(());
    }
    let call = draft.record.call.clone();
    take_words(call.name(), &mut draft.record.arguments, argument, &values);
    Ok(())
}

/// Removes returns of signal handlers and repeated calls. A wait that the kernel continues is one call, from its first
/// entry on.
fn finished(drafts: Vec<Draft>) -> Vec<CallRecord> {
    // CPU time of calls that were removed, and one that is to go on.
    let mut carried: BTreeMap<u32, (Nanos, Option<CallRecord>)> = BTreeMap::new();
    let mut records: Vec<CallRecord> = Vec::with_capacity(drafts.len());
    for draft in drafts {
        let mut record = draft.record;
        let (cpu, interrupted) = carried.remove(&record.task).unwrap_or_default();
        record.user_cpu = record.user_cpu.map(|user| user.saturating_add(cpu));
        if let Some(interrupted) = interrupted.filter(|_| record.call.name() == RESTART) {
            let CallRecord { result, exit, user_cpu, kernel_cpu, .. } = record;
            record = CallRecord { result, exit, user_cpu, kernel_cpu, ..interrupted };
        }
        if draft.is_dropped || draft.is_restarted {
            let cpu = record.user_cpu.unwrap_or(Nanos::ZERO).saturating_add(record.kernel_cpu.unwrap_or(Nanos::ZERO));
            carried.insert(record.task, (cpu, Some(record).filter(|_| draft.is_restarted)));
            continue;
        }
        records.push(record);
    }
    // A wait that was gone on with has an earlier entry than its place.
    records.sort_by_key(|record| record.entry);
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events as the clock writes them.
    #[derive(Default)]
    struct Events(Vec<u64>);

    impl Events {
        fn add(&mut self, kind: RecordedEvent, sequence: u64, words: &[u64]) -> &mut Self {
            self.0.extend([kind as u64 | (words.len() as u64 + 2) << RECORD_WORDS_SHIFT, sequence]);
            self.0.extend(words);
            self
        }

        fn call(&mut self, sequence: u64, task: u64, number: i64, entry: u64, path: Option<&str>) -> &mut Self {
            let mut words = vec![task | task << 32, number as u64, entry, 10, 1, 2, 3, 4, 5, 6];
            if let Some(path) = path {
                let mut bytes = path.as_bytes().to_vec();
                bytes.resize(path.len().next_multiple_of(8), 0);
                words.push(path.len() as u64);
                words.extend(bytes.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())));
            } else {
                words.push(RECORD_NO_PATH);
            }
            words.push(RECORD_NO_PATH);
            self.add(RecordedEvent::Call, sequence, &words)
        }

        fn returns(&mut self, sequence: u64, exit: u64, result: i64, flags: u64) -> &mut Self {
            let words = [exit, result as u64, flags, 3 | 4 << 32, RECORD_NO_PATH, RECORD_NO_PATH];
            self.add(RecordedEvent::Return, sequence, &words)
        }

        fn bytes(&self) -> Vec<u8> {
            self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
        }

        fn trace(&self) -> CallTrace {
            decoded(&self.bytes()).unwrap()
        }
    }

    fn decoded(events: &[u8]) -> Result<CallTrace, RecordingError> {
        let (mount, directory) = ("/mnt", "/mnt");
        Recorded { events, lost: 0, is_whole: true, clock: Clock::Exact, mount, directory }.trace()
    }

    fn names(trace: &CallTrace) -> Vec<&str> {
        trace.records.iter().map(|record| record.call.name()).collect()
    }

    #[test]
    fn calls_of_several_tasks_are_joined_with_their_returns() {
        let mut events = Events::default();
        events.call(1, 70, libc::SYS_unlink, 100, Some("a-longer-name")).call(2, 71, libc::SYS_pipe, 110, None);
        events.returns(2, 120, 0, RECORD_HAS_PAIR).returns(1, 130, -2, 0);
        events.add(RecordedEvent::KernelTime, 1, &[7]).call(3, 70, libc::SYS_exit_group, 140, None);
        let trace = events.trace();
        let [unlink, pipe, exit] = trace.records.as_slice() else { panic!("{:?}", trace.records) };
        assert_eq!(unlink.path.as_deref(), Some(&b"a-longer-name"[..]));
        assert_eq!((unlink.result, unlink.exit), (Some(-2), Some(Nanos::from_nanos(130))));
        assert_eq!((unlink.user_cpu, unlink.kernel_cpu), (Some(Nanos::from_nanos(10)), Some(Nanos::from_nanos(7))));
        assert_eq!((pipe.task, pipe.pipe), (71, Some([3, 4])));
        assert_eq!((exit.result, exit.exit), (None, None));
        assert!(trace.header.is_complete(), "{:?}", trace.header);
        assert_eq!(trace.header.start[0].directory.as_deref(), Some("/mnt"));
    }

    #[test]
    fn a_call_that_is_made_again_is_recorded_once_with_all_of_its_cpu_time() {
        let mut events = Events::default();
        events.call(1, 70, libc::SYS_read, 100, None).returns(1, 200, -512, RECORD_RESTARTED);
        events.call(2, 70, libc::SYS_getpid, 210, None).returns(2, 220, 70, 0);
        events.call(3, 70, libc::SYS_rt_sigreturn, 230, None).returns(3, 240, 0, RECORD_DROPPED);
        events.call(4, 70, libc::SYS_read, 250, None).returns(4, 260, 1, 0);
        let trace = events.trace();
        assert_eq!(names(&trace), ["getpid", "read"]);
        let cpu = trace.records.iter().map(|record| record.user_cpu.unwrap().as_nanos()).collect::<Vec<_>>();
        assert_eq!(cpu, [20, 20]);
        assert_eq!(trace.records[1].entry, Nanos::from_nanos(250));
    }

    #[test]
    fn a_sleep_that_the_kernel_goes_on_with_is_one_from_its_beginning() {
        let mut events = Events::default();
        events.call(1, 70, libc::SYS_nanosleep, 100, None).returns(1, 200, -516, RECORD_RESTARTED);
        events.call(2, 71, libc::SYS_getpid, 150, None).returns(2, 160, 71, 0);
        events.call(3, 70, libc::SYS_restart_syscall, 200, None).returns(3, 900, 0, 0);
        let trace = events.trace();
        assert_eq!(names(&trace), ["nanosleep", "getpid"]);
        assert_eq!((trace.records[0].entry.as_nanos(), trace.records[0].exit.unwrap().as_nanos()), (100, 900));
    }

    #[test]
    fn what_is_missing_makes_the_trace_incomplete() {
        let mut events = Events::default();
        events.call(1, 70, libc::SYS_unlink, 100, None).returns(1, 110, 0, RECORD_UNREADABLE);
        events.call(2, 70, libc::SYS_io_uring_enter, 120, None).returns(2, 130, 1, 0);
        events.call(3, 70, libc::SYS_io_uring_setup, 140, None).returns(3, 150, -38, 0);
        let incomplete = events.trace().header.incomplete;
        assert_eq!(incomplete.keys().collect::<Vec<_>>(), ["io_uring_enter", "unknown-directory", "unreadable-path"]);
        assert!(incomplete.values().all(|&count| count == 1), "{incomplete:?}");
    }

    #[test]
    fn damage_is_an_error_or_another_trace_and_never_a_panic() {
        let mut events = Events::default();
        events.call(1, 70, libc::SYS_unlink, 100, Some("/mnt/file")).returns(1, 110, 0, 0);
        events.call(2, 70, libc::SYS_exit, 120, None).add(RecordedEvent::KernelTime, 1, &[5]);
        let whole = events.bytes();
        for length in 0..whole.len() {
            let _ = decoded(&whole[..length]);
        }
        let mut refused = 0;
        for byte in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[byte] = value;
                refused += usize::from(decoded(&damaged).is_err());
            }
        }
        assert!(refused > 20, "{refused}");
    }
}
