//! Order constraints between the calls of several tasks.
//!
//! Calls of one task are sequential. Calls of different tasks are ordered only by shared resources, as in ARTC (Weiss
//! and others, SOSP 2013): a call that uses a resource begins after the return of the last call that changed it. A call
//! that changes a resource also begins after the return of its users. Calls of two tasks with different resources may
//! overlap differently than in the trace, as they would on a device of another speed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use chronodisk_sim::Nanos;

use super::record::CallRecord;
use super::table::{Effect, signature};
use super::tables::StreamEnd;

/// One lifetime of a task id, which the kernel may assign to another task later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Life {
    pub id: u32,
    /// The record of the call that made the task; `None` if it existed before the trace.
    pub maker: Option<usize>,
}

/// The lifetimes in a trace, and its records in the order in which they took effect.
#[derive(Debug)]
pub(super) struct Sequence {
    pub lives: Vec<Life>,
    /// Index of the life of each record's task.
    pub life_of: Vec<usize>,
    /// Index of the lifetime that each record began.
    pub made: BTreeMap<usize, usize>,
    /// Records in order, by index.
    pub order: Vec<usize>,
}

/// Instant at which a call took effect: see [`resolution_order`](super::resolution_order). A call that wakes another
/// task does so before it returns, and a call syncs the data that exist when it begins.
fn instant(record: &CallRecord) -> Nanos {
    match signature(record.call.name()).map(|known| known.effect) {
        Some(Effect::Close | Effect::CloseRange | Effect::Exit | Effect::Fork) => record.entry,
        Some(Effect::Wait) if wakes(record) || SIGNALLING.contains(&record.call.name()) => record.entry,
        _ if syncs(record.call.name()) => record.entry,
        _ => record.exit.unwrap_or(record.entry),
    }
}

/// Whether a call writes out a file's data as of its beginning: other calls may change the file before it returns.
pub(super) fn syncs(name: &str) -> bool {
    matches!(name, "fdatasync" | "fsync" | "sync_file_range" | "syncfs")
}

/// Whether a call of `futex` wakes waiters.
pub(super) fn wakes(record: &CallRecord) -> bool {
    record.call.name() == "futex" && WAKING.contains(&(record.arguments[1] & FUTEX_COMMAND))
}

/// Whether a call of `futex` has waited and was woken.
pub(super) fn was_woken(record: &CallRecord) -> bool {
    record.call.name() == "futex" && WAITING.contains(&(record.arguments[1] & FUTEX_COMMAND)) && record.succeeded()
}

/// Task group in which a word of `futex` is unique; 0 if it is shared between groups. Processes that share a word by
/// fork have it at one address. Unrelated words at equal addresses are ordered as in the trace, which costs only
/// overlap.
pub(super) fn users_of_word(record: &CallRecord) -> u32 {
    if record.arguments[1] & FUTEX_PRIVATE_FLAG != 0 { record.group } else { 0 }
}

/// Whether a call of `futex` waited until its timeout.
pub(super) fn ran_out(record: &CallRecord) -> bool {
    record.call.name() == "futex"
        && WAITING.contains(&(record.arguments[1] & FUTEX_COMMAND))
        && record.result == Some(TIMED_OUT)
}

/// Calls that wait for descriptors to be ready, or for a time.
pub(super) const POLLS: [&str; 7] =
    ["epoll_pwait", "epoll_pwait2", "epoll_wait", "poll", "ppoll", "pselect6", "select"];
/// `EINTR`.
const INTERRUPTED: i64 = -4;

/// Whether a call without resources waited until a signal came.
pub(super) fn waits_for_signal(record: &CallRecord) -> bool {
    match record.call.name() {
        "pause" | "rt_sigsuspend" => true,
        "rt_sigtimedwait" => record.result.is_some_and(|result| result > 0 || result == INTERRUPTED),
        name => POLLS.contains(&name) && record.result == Some(INTERRUPTED),
    }
}

/// `ETIMEDOUT`.
const TIMED_OUT: i64 = -110;
/// Calls that send signals.
const SIGNALLING: [&str; 3] = ["kill", "tgkill", "tkill"];

/// Bits of the operation without `FUTEX_PRIVATE_FLAG` and `FUTEX_CLOCK_REALTIME`.
const FUTEX_COMMAND: u64 = 127;
const FUTEX_PRIVATE_FLAG: u64 = 128;
/// `FUTEX_WAKE`, `FUTEX_REQUEUE`, `FUTEX_CMP_REQUEUE`, `FUTEX_WAKE_OP`, `FUTEX_UNLOCK_PI`, `FUTEX_WAKE_BITSET`.
const WAKING: [u64; 6] = [1, 3, 4, 5, 7, 10];
/// `FUTEX_WAIT`, `FUTEX_LOCK_PI`, `FUTEX_WAIT_BITSET`.
const WAITING: [u64; 3] = [0, 6, 9];

impl Sequence {
    /// Orders records by instant, then by place in the trace, since on an exact clock many calls share an instant. A
    /// task's calls keep their own order, and never precede the call that made the task.
    pub fn new(records: &[CallRecord]) -> Self {
        let mut lives = Vec::new();
        let mut of_id: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut made = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            if let Some(id) = record.child() {
                of_id.entry(id).or_default().push(lives.len());
                made.insert(index, lives.len());
                lives.push(Life { id, maker: Some(index) });
            }
        }
        let mut first: BTreeMap<u32, usize> = BTreeMap::new();
        let mut life_of = Vec::with_capacity(records.len());
        for (index, record) in records.iter().enumerate() {
            let begun = |&&life: &&usize| {
                let maker: usize = lives[life].maker.unwrap_or(index);
                maker != index && records[maker].entry <= record.entry
            };
            let last = of_id.get(&record.task).and_then(|known| known.iter().rev().find(begun));
            let life = match last {
                Some(&life) => life,
                None => *first.entry(record.task).or_insert_with(|| {
                    lives.push(Life { id: record.task, maker: None });
                    lives.len() - 1
                }),
            };
            life_of.push(life);
        }
        let order = merged(records, &lives, &life_of, &made);
        Sequence { lives, life_of, made, order }
    }
}

fn merged(records: &[CallRecord], lives: &[Life], life_of: &[usize], made: &BTreeMap<usize, usize>) -> Vec<usize> {
    let mut queues: Vec<Vec<usize>> = vec![Vec::new(); lives.len()];
    for (index, &life) in life_of.iter().enumerate().rev() {
        queues[life].push(index);
    }
    let mut heads = BinaryHeap::new();
    let push = |heads: &mut BinaryHeap<_>, queues: &[Vec<usize>], life: usize| {
        if let Some(&index) = queues[life].last() {
            heads.push(Reverse((instant(&records[index]), index)));
        }
    };
    let mut waiting: BTreeSet<usize> = BTreeSet::new();
    for (life, known) in lives.iter().enumerate() {
        if known.maker.is_some() {
            waiting.insert(life);
        } else {
            push(&mut heads, &queues, life);
        }
    }
    let mut order = Vec::with_capacity(records.len());
    loop {
        let Some(Reverse((_, index))) = heads.pop() else {
            // Tasks that made each other; no recorder writes such a trace.
            let Some(life) = waiting.pop_first() else { return order };
            push(&mut heads, &queues, life);
            continue;
        };
        order.push(index);
        let life = life_of[index];
        queues[life].pop();
        push(&mut heads, &queues, life);
        if let Some(child) = made.get(&index).filter(|child| waiting.remove(child)) {
            push(&mut heads, &queues, *child);
        }
    }
}

/// A resource shared between tasks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Resource {
    /// A name in a directory, by its absolute path. Lookups use it, including failed ones and lookups of names below
    /// it. Its creation, renaming and removal change it.
    Name(Vec<u8>),
    /// Length and allocated blocks of a file, by its absolute path: changed by writes that extend it.
    Length(Vec<u8>),
    /// A number in a descriptor table: changed by opening and closing.
    Descriptor(usize, i32),
    /// A descriptor table as a whole: changed by copying it, and used by opening and closing descriptors.
    Table(usize),
    /// An open file description with its position.
    Description(u64),
    /// An end of a pipe or socket pair: used by writes to the opposite end, and changed by closing its last descriptor.
    StreamEnd(StreamEnd),
    /// Locks of a file, which one task passes to another.
    Lock(Vec<u8>),
    /// A mapping of a file, by its number.
    Mapping(u32),
    /// A word of a thread group's memory, by which one task wakes another.
    Word(u32, u64),
}

/// A step of a lifetime, both by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Point {
    pub life: usize,
    pub step: usize,
}

#[derive(Debug, Default)]
struct Stage {
    changed: Option<Point>,
    /// The last use by each lifetime since the change.
    used: BTreeMap<usize, usize>,
}

/// The last uses and changes of all resources.
#[derive(Debug, Default)]
pub(super) struct Stages {
    stages: BTreeMap<Resource, Stage>,
    /// For each pair of lifetimes, the last step of the second that the first has waited for.
    known: BTreeMap<(usize, usize), usize>,
}

impl Stages {
    /// Step `at` uses the resource, and waits for its last change.
    pub fn uses(&mut self, resource: Resource, at: Point, waits: &mut Vec<Point>) {
        let stage = self.stages.entry(resource).or_default();
        waits.extend(stage.changed);
        stage.used.insert(at.life, at.step);
    }

    /// A step waits for the last change of the resource. Later changes do not wait for the step.
    pub fn sees(&self, resource: &Resource, waits: &mut Vec<Point>) {
        waits.extend(self.stages.get(resource).and_then(|stage| stage.changed));
    }

    /// Step `at` uses the resource without waiting. Returns the last change.
    pub fn joins(&mut self, resource: Resource, at: Point) -> Option<Point> {
        let stage = self.stages.entry(resource).or_default();
        stage.used.insert(at.life, at.step);
        stage.changed
    }

    /// Step `at` changes the resource, and waits for its last change and all later uses.
    pub fn changes(&mut self, resource: Resource, at: Point, waits: &mut Vec<Point>) {
        let stage = self.stages.entry(resource).or_default();
        waits.extend(stage.changed);
        waits.extend(stage.used.iter().map(|(&life, &step)| Point { life, step }));
        *stage = Stage { changed: Some(at), used: BTreeMap::new() };
    }

    /// Removes the waits of a step that follow from program order or from an earlier wait of the same lifetime.
    pub fn needed(&mut self, at: Point, waits: &mut Vec<Point>) {
        // Waiting for the last step of a lifetime includes its earlier ones.
        waits.sort_unstable_by_key(|wait| (wait.life, Reverse(wait.step)));
        waits.dedup_by_key(|wait| wait.life);
        waits.retain(|wait| {
            let known = self.known.entry((at.life, wait.life)).or_insert(0);
            let news = wait.life != at.life && wait.step >= *known;
            if news {
                *known = wait.step + 1;
            }
            news
        });
    }
}
