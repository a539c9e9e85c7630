//! Makes records from the observations of a recorder on the host.
//!
//! A call that a signal interrupts and that the kernel restarts is one record. One that a handler interrupts is a
//! record with the error `EINTR` if the program saw that error, and none if the kernel repeated the call. A task that
//! ends without `exit` gets a record of one, since its descriptors are closed then.

use std::collections::BTreeMap;
use std::io::Read;

use chronodisk_sim::Nanos;

use super::assess::assess_on_host;
use super::journal::{Entry, JournalError, JournalReader, StopCosts, Text};
use super::numbers::{call_name, call_number};
use super::record::{Call, CallRecord, CallTrace, Clock, Header, StartState, TASK_MAX};
use super::table::{Effect, signature};
use super::words::lacks_words;

/// Results by which Linux announces a restart of the call: `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`,
/// `ERESTART_RESTARTBLOCK`.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
const INTERRUPTED: i64 = -4;
/// Most nested signal handlers whose interrupted calls are followed.
const HANDLERS_MAX: usize = 64;

/// Reads a journal and makes a trace of it. A journal that was cut short gives its complete entries, marked. `mount`
/// replaces the recorder's mount point.
///
/// # Errors
/// If it is no journal or an entry is wrong. A mount point without a use below it is an error, too, unless the journal
/// was cut short.
pub fn read_journal(input: impl Read, mount: Option<&str>) -> Result<CallTrace, JournalError> {
    let mut reader = JournalReader::new(input)?;
    let mut assembler = Assembler::new();
    assembler.header.mount = mount.map(str::to_owned);
    loop {
        let offset = reader.offset();
        match reader.entry()? {
            Some(entry) => assembler.apply(entry).map_err(|message| JournalError::Wrong { offset, message })?,
            None => return assembler.finish().map_err(|message| JournalError::Wrong { offset, message }),
        }
    }
}

/// A call that has entered.
#[derive(Debug)]
struct Pending {
    slot: usize,
    record: CallRecord,
    number: u32,
    /// Whether its path was unreadable, which matters if the call succeeds.
    unreadable: bool,
    /// CPU time at the last entry.
    cpu: Option<Nanos>,
}

#[derive(Debug, Default)]
struct Task {
    group: u32,
    pending: Option<Pending>,
    /// Calls that a signal interrupted, the outermost first.
    interrupted: Vec<Pending>,
    /// Whether no call was entered since the last interruption.
    fresh: bool,
    /// Whether `rt_sigreturn` has entered.
    returns: bool,
    /// CPU time at the last return.
    cpu: Option<Nanos>,
    /// CPU time of calls that were dropped.
    charge: Nanos,
    /// Whether it called `exit` or `exit_group`.
    exits: bool,
}

/// Makes records of entries, one after the other.
#[derive(Debug)]
struct Assembler {
    header: Header,
    costs: StopCosts,
    started: bool,
    complete: bool,
    /// Records by order of entry; `None` while a call has not returned, or if it is dropped.
    records: Vec<Option<CallRecord>>,
    tasks: BTreeMap<u32, Task>,
    start: BTreeMap<u32, StartState>,
    /// Slots of the exits of tasks that did not call it.
    exits: BTreeMap<u32, usize>,
    names: BTreeMap<u32, Call>,
    restart: u32,
    sigreturn: u32,
    now: Nanos,
}

impl Assembler {
    fn new() -> Self {
        let number = |name| call_number(name).unwrap_or(u32::MAX);
        Assembler {
            header: Header::new("x86_64", Clock::Host),
            costs: StopCosts::default(),
            started: false,
            complete: false,
            records: Vec::new(),
            tasks: BTreeMap::new(),
            start: BTreeMap::new(),
            exits: BTreeMap::new(),
            names: BTreeMap::new(),
            restart: number("restart_syscall"),
            sigreturn: number("rt_sigreturn"),
            now: Nanos::ZERO,
        }
    }

    fn apply(&mut self, entry: Entry) -> Result<(), String> {
        if self.complete {
            return Err("an entry after the last one".to_owned());
        }
        if self.started == matches!(entry, Entry::Start { .. }) {
            return Err("the first entry, and no other one, says how the recorder began".to_owned());
        }
        if let Entry::Enter { at, .. } | Entry::Leave { at, .. } | Entry::Ended { at, .. } = &entry {
            if *at < self.now {
                return Err(format!("time goes back from {} to {} ns", self.now.as_nanos(), at.as_nanos()));
            }
            self.now = *at;
        }
        match entry {
            Entry::Start { architecture, mount, costs } => {
                let mount = self.header.mount.take().or(mount);
                self.header = Header { mount, ..Header::new(architecture, Clock::Host) };
                self.header.validate().map_err(|error| error.to_string())?;
                (self.costs, self.started) = (costs, true);
            }
            Entry::First { task, directory } => {
                self.task(task);
                self.start.insert(task, StartState { task, directory: text(directory), ..StartState::default() });
            }
            Entry::Descriptor { task, descriptor, path } => {
                let state = self.start.get_mut(&task).ok_or_else(|| format!("task {task} is none of the first"))?;
                if descriptor < 0 {
                    return Err(format!("task {task} has the descriptor {descriptor}"));
                }
                if let Some(path) = text(path) {
                    state.descriptors.insert(descriptor, path);
                }
            }
            Entry::Enter { task, at, cpu, number, arguments, paths } => {
                self.enter(task, at, cpu, number, arguments, paths);
            }
            Entry::Leave { task, at, cpu, result, pipe } => self.leave(task, at, cpu, result, pipe)?,
            Entry::Made { maker, child, thread } => self.made(maker, child, thread),
            Entry::Executed { task, former } => self.executed(task, former),
            Entry::Ended { task, at, cpu } => self.ended(task, at, cpu),
            Entry::Incomplete(reason) => {
                self.header.count_incomplete(&reason);
                self.header.validate().map_err(|error| error.to_string())?;
            }
            Entry::Complete => self.complete = true,
        }
        Ok(())
    }

    fn made(&mut self, maker: u32, child: u32, thread: bool) {
        let group = if thread { self.task(maker).group } else { child };
        if self.tasks.remove(&child).is_some() {
            self.lost();
        }
        self.exits.remove(&child);
        self.tasks.insert(child, Task { group, cpu: Some(Nanos::ZERO), ..Task::default() });
    }

    fn executed(&mut self, task: u32, former: u32) {
        if task != former {
            // The program has the id of its group from now on, whose first task the kernel has ended.
            self.header.count_incomplete("superseded-by-execve");
            if let Some(slot) = self.exits.remove(&task) {
                self.records[slot] = None;
            }
            let state = self.tasks.remove(&former).unwrap_or_default();
            let leader = self.tasks.insert(task, state);
            for call in leader.into_iter().flat_map(|leader| leader.interrupted.into_iter().chain(leader.pending)) {
                self.keep(call);
            }
        }
        self.task(task).group = task;
    }

    fn task(&mut self, id: u32) -> &mut Task {
        self.tasks.entry(id).or_insert_with(|| Task { group: id, ..Task::default() })
    }

    fn lost(&mut self) {
        self.header.lost_events = self.header.lost_events.saturating_add(1);
    }

    fn name(&mut self, number: u32) -> Call {
        let parsed = || call_name(number).parse().expect("the name of a call");
        self.names.entry(number).or_insert_with(parsed).clone()
    }

    fn enter(&mut self, id: u32, at: Nanos, cpu: Option<Nanos>, number: u32, arguments: [u64; 6], paths: [Text; 2]) {
        let costs = self.costs;
        let (sigreturn, restart) = (self.sigreturn, self.restart);
        let task = self.task(id);
        let user = elapsed(task.cpu, cpu, costs.outside);
        if let Some(lost) = task.pending.take() {
            self.lost();
            self.keep(lost);
        }
        let task = self.task(id);
        if number == sigreturn {
            // The time since then belongs to the handler.
            task.charge = task.charge.saturating_add(user.unwrap_or_default());
            (task.returns, task.fresh) = (true, false);
            task.cpu = cpu;
            return;
        }
        let again = |call: &Pending| number == restart || call.number == number && call.record.arguments == arguments;
        if let Some(mut call) = task.interrupted.pop_if(|call| task.fresh && again(call)) {
            call.record.user_cpu = sum(call.record.user_cpu, user);
            call.cpu = cpu;
            (task.pending, task.fresh) = (Some(call), false);
            return;
        }
        task.fresh = false;
        if task.interrupted.len() > HANDLERS_MAX {
            let call = task.interrupted.remove(0);
            self.keep(with_result(call, INTERRUPTED));
        }
        let call = self.name(number);
        let slot = self.records.len();
        self.records.push(None);
        let task = self.task(id);
        let charge = std::mem::take(&mut task.charge);
        let [path, path_2] = paths;
        let unreadable = path == Text::Unreadable || path_2 == Text::Unreadable;
        let record = CallRecord {
            group: task.group,
            arguments,
            path: bytes(path),
            path_2: bytes(path_2),
            user_cpu: user.map(|user| user.saturating_add(charge)),
            ..CallRecord::new(id, call, at)
        };
        task.exits |= matches!(record.call.name(), "exit" | "exit_group");
        task.pending = Some(Pending { slot, record, number, unreadable, cpu });
    }

    fn leave(
        &mut self,
        id: u32,
        at: Nanos,
        cpu: Option<Nanos>,
        result: i64,
        pipe: Option<[i32; 2]>,
    ) -> Result<(), String> {
        if pipe.is_some_and(|ends| ends[0] < 0 || ends[1] < 0) {
            return Err("a pipe has a negative descriptor".to_owned());
        }
        let inside = self.costs.inside;
        let task = self.task(id);
        let kernel_since = |before| elapsed(before, cpu, inside);
        if std::mem::take(&mut task.returns) {
            let spent = kernel_since(task.cpu).unwrap_or_default();
            task.charge = task.charge.saturating_add(spent);
            task.cpu = cpu;
            let interrupted = task.interrupted.last().map(|call| i64::from(call.number));
            if interrupted == Some(result) {
                // The kernel makes it again.
                let call = task.interrupted.pop().expect("there is one");
                for spent in [call.record.user_cpu, call.record.kernel_cpu].into_iter().flatten() {
                    task.charge = task.charge.saturating_add(spent);
                }
            } else if interrupted.is_some() && result == INTERRUPTED {
                let call = task.interrupted.pop().expect("there is one");
                self.keep(with_result(call, INTERRUPTED));
            }
            return Ok(());
        }
        let Some(mut call) = task.pending.take() else {
            self.lost();
            return Ok(());
        };
        let kernel = kernel_since(call.cpu);
        call.record.kernel_cpu = if call.record.exit.is_some() { sum(call.record.kernel_cpu, kernel) } else { kernel };
        call.record.exit = Some(at);
        call.record.pipe = pipe;
        task.cpu = cpu;
        if RESTARTS.contains(&result) {
            task.fresh = true;
            task.interrupted.push(call);
            return Ok(());
        }
        let forks = signature(call.record.call.name()).is_some_and(|known| known.effect == Effect::Fork);
        if forks && result > i64::from(TASK_MAX) {
            return Err(format!("task {id} has made the task {result}; no id is above {TASK_MAX}"));
        }
        if call.unreadable && result >= 0 {
            self.header.count_incomplete("unreadable-path");
        }
        let call = with_result(call, result);
        if lacks_words(&call.record) {
            self.header.count_incomplete("unreadable-argument");
        }
        self.keep(call);
        Ok(())
    }

    fn keep(&mut self, call: Pending) {
        self.records[call.slot] = Some(call.record);
    }

    fn ended(&mut self, id: u32, at: Nanos, cpu: Option<Nanos>) {
        let Some(mut task) = self.tasks.remove(&id) else { return self.lost() };
        for call in task.interrupted.drain(..) {
            self.keep(call);
        }
        let mut user = elapsed(task.cpu, cpu, Nanos::ZERO);
        if let Some(mut call) = task.pending.take() {
            call.record.kernel_cpu = elapsed(call.cpu, cpu, Nanos::ZERO);
            user = Some(Nanos::ZERO);
            self.keep(call);
        }
        if !task.exits {
            let call = "exit".parse().expect("the name of a call");
            let user_cpu = user.map(|user| user.saturating_add(task.charge));
            let record = CallRecord { group: task.group, user_cpu, ..CallRecord::new(id, call, at) };
            self.exits.insert(id, self.records.len());
            self.records.push(Some(record));
        }
    }

    fn finish(mut self) -> Result<CallTrace, String> {
        if !self.started {
            return Err("the journal ends before its first entry".to_owned());
        }
        for (_, mut task) in std::mem::take(&mut self.tasks) {
            for call in task.interrupted.drain(..).chain(task.pending.take()) {
                self.records[call.slot] = Some(call.record);
            }
        }
        let cut_short = !self.complete;
        if cut_short {
            self.header.count_incomplete("cut-short");
        }
        self.header.start = self.start.into_values().collect();
        let mut records: Vec<CallRecord> = self.records.into_iter().flatten().collect();
        // An id that is used again while its former owner's call has not returned, which only a forged journal has.
        let mut next: BTreeMap<u32, Nanos> = BTreeMap::new();
        for record in records.iter_mut().rev() {
            let entered = next.insert(record.task, record.entry);
            record.exit = record.exit.map(|exit| entered.map_or(exit, |entered| exit.min(entered)));
        }
        let trace = CallTrace { header: self.header, records };
        assess_on_host(trace, !cut_short)
    }
}

fn with_result(mut call: Pending, result: i64) -> Pending {
    call.record.result = Some(result);
    call
}

/// CPU time between two readings, without the recorder's own.
fn elapsed(before: Option<Nanos>, after: Option<Nanos>, cost: Nanos) -> Option<Nanos> {
    Some(after?.saturating_sub(before?).saturating_sub(cost))
}

fn sum(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    Some(a?.saturating_add(b?))
}

fn bytes(path: Text) -> Option<Vec<u8>> {
    match path {
        Text::Bytes(bytes) => Some(bytes),
        Text::None | Text::Unreadable => None,
    }
}

fn text(path: Text) -> Option<String> {
    bytes(path).and_then(|bytes| String::from_utf8(bytes).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(nanos: u64) -> Nanos {
        Nanos::from_nanos(nanos)
    }

    /// A journal of one task with id 7.
    struct Story(Vec<Entry>, u64);

    impl Story {
        fn new() -> Self {
            let costs = StopCosts { outside: nanos(2), inside: nanos(3) };
            let start = Entry::Start { architecture: "x86_64".into(), mount: None, costs };
            Story(vec![start, Entry::First { task: 7, directory: Text::Bytes(b"/m".to_vec()) }], 0)
        }

        /// At each event, time advances by 10 and CPU time by 7.
        fn next(&mut self) -> (Nanos, Option<Nanos>) {
            self.1 += 1;
            (nanos(self.1 * 10), Some(nanos(self.1 * 7)))
        }

        fn enter(mut self, name: &str) -> Self {
            let ((at, cpu), number) = (self.next(), call_number(name).unwrap());
            self.0.push(Entry::Enter { task: 7, at, cpu, number, arguments: [0; 6], paths: Default::default() });
            self
        }

        fn leave(mut self, result: i64) -> Self {
            let (at, cpu) = self.next();
            self.0.push(Entry::Leave { task: 7, at, cpu, result, pipe: None });
            self
        }

        fn with(mut self, entry: Entry) -> Self {
            self.0.push(entry);
            self
        }

        fn end(mut self) -> CallTrace {
            let (at, cpu) = self.next();
            self.0.extend([Entry::Ended { task: 7, at, cpu }, Entry::Complete]);
            self.trace()
        }

        fn trace(&self) -> CallTrace {
            let mut assembler = Assembler::new();
            self.0.iter().for_each(|entry| assembler.apply(entry.clone()).unwrap());
            assembler.finish().unwrap()
        }
    }

    fn calls(trace: &CallTrace) -> Vec<(&str, Option<i64>)> {
        trace.records.iter().map(|record| (record.call.name(), record.result)).collect()
    }

    #[test]
    fn times_are_the_tasks_own_without_the_stops() {
        let trace = Story::new().enter("read").leave(5).enter("read").leave(5).end();
        assert_eq!(calls(&trace), [("read", Some(5)), ("read", Some(5)), ("exit", None)]);
        assert!(trace.header.is_complete());
        let times = |record: &CallRecord| (record.user_cpu, record.kernel_cpu, record.entry, record.exit);
        assert_eq!(times(&trace.records[0]), (None, Some(nanos(4)), nanos(10), Some(nanos(20))));
        assert_eq!(times(&trace.records[1]), (Some(nanos(5)), Some(nanos(4)), nanos(30), Some(nanos(40))));
        assert_eq!(times(&trace.records[2]), (Some(nanos(7)), None, nanos(50), None));
    }

    #[test]
    fn a_call_that_the_kernel_restarts_without_a_handler_is_one() {
        let trace = Story::new().enter("wait4").leave(-512).enter("wait4").leave(-512).enter("wait4").leave(9).end();
        assert_eq!(calls(&trace), [("wait4", Some(9)), ("exit", None)]);
        assert_eq!((trace.records[0].entry, trace.records[0].exit), (nanos(10), Some(nanos(60))));
        assert_eq!(trace.records[0].kernel_cpu, Some(nanos(12)));
        let trace = Story::new().enter("nanosleep").leave(-516).enter("restart_syscall").leave(0).end();
        assert_eq!(calls(&trace), [("nanosleep", Some(0)), ("exit", None)]);
    }

    #[test]
    fn a_handlers_calls_are_within_the_call_that_it_interrupts() {
        let handled = || Story::new().enter("read").leave(-512).enter("write").leave(1).enter("rt_sigreturn");
        let error = handled().leave(-4).enter("close").leave(0).end();
        assert_eq!(calls(&error)[..3], [("read", Some(-4)), ("write", Some(1)), ("close", Some(0))]);
        let read = i64::from(call_number("read").unwrap());
        let again = handled().leave(read).enter("read").leave(3).end();
        assert_eq!(calls(&again)[..2], [("write", Some(1)), ("read", Some(3))]);
        // The times of the handler and of a dropped call are charged to the next call.
        assert_eq!(error.records[2].user_cpu, Some(nanos(5 + 5 + 4)));
        assert_eq!(again.records[1].user_cpu, Some(nanos(5 + 5 + 4 + 4)));
        // A handler that interrupted no call returns to anything.
        let other = Story::new().enter("write").leave(1).enter("rt_sigreturn").leave(4711).end();
        assert_eq!(calls(&other), [("write", Some(1)), ("exit", None)]);
    }

    #[test]
    fn a_task_that_is_killed_has_an_exit_and_its_call_no_result() {
        let trace = Story::new().enter("read").end();
        assert_eq!(calls(&trace), [("read", None), ("exit", None)]);
        assert_eq!(calls(&Story::new().enter("exit_group").end()), [("exit_group", None)]);
    }

    #[test]
    fn threads_are_of_their_makers_group_and_ids_are_used_again() {
        let made = |thread| Entry::Made { maker: 7, child: 8, thread };
        let child = |at, number: &str| Entry::Enter {
            task: 8,
            at: nanos(at),
            cpu: None,
            number: call_number(number).unwrap(),
            arguments: [0; 6],
            paths: Default::default(),
        };
        let ended = |at| Entry::Ended { task: 8, at: nanos(at), cpu: None };
        let story = Story::new().enter("clone").with(made(true)).leave(8).with(child(20, "exit")).with(ended(20));
        let story = story.enter("fork").with(made(false)).leave(8).with(child(40, "read")).with(ended(40));
        let trace = story.end();
        let seen: Vec<_> = trace.records.iter().map(|record| (record.task, record.group)).collect();
        assert_eq!(seen, [(7, 7), (8, 7), (7, 7), (8, 8), (8, 8), (7, 7)]);
        assert_eq!(trace.header.lost_events, 0);
    }

    #[test]
    fn what_is_cut_short_is_marked_and_kept() {
        let trace = Story::new().enter("read").leave(1).enter("write").trace();
        assert_eq!(calls(&trace), [("read", Some(1)), ("write", None)]);
        assert_eq!(trace.header.incomplete.get("cut-short"), Some(&1));
    }

    #[test]
    fn what_can_not_be_is_an_error() {
        let refused = |entries: Vec<Entry>| {
            let mut assembler = Assembler::new();
            entries.into_iter().find_map(|entry| assembler.apply(entry).err())
        };
        let start = || Story::new().0[0].clone();
        let ended = |at| Entry::Ended { task: 7, at: nanos(at), cpu: None };
        assert!(refused(vec![Entry::Complete]).unwrap().contains("the first entry"));
        assert!(refused(vec![start(), start()]).unwrap().contains("no other one"));
        assert!(refused(vec![start(), ended(5), ended(4)]).unwrap().contains("from 5 to 4 ns"));
        assert!(refused(vec![start(), Entry::Complete, ended(4)]).unwrap().contains("after the last"));
        assert!(refused(vec![start(), Entry::Incomplete("a b".into())]).unwrap().contains("'a b'"));
    }
}
