//! Writes the feed of a replayer, and reads the report that the replayer leaves in it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};

use chronodisk_trace::calls::{Action, Argument, Expected, Plan, Step};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::shared::feed::{
    DIFFERENCES_MAX, Difference, FEED_MAGIC, FIRST, INDEX_OFFSET, INDEX_WORDS, NO_WORD, PART_HEADER_BYTES, Report,
    argument, expectation, head, kind,
};
use crate::shared::layout::{FEED_PART_BYTES, FEED_REPORT_OFFSET};

/// Most waits of one step; further waits are in additional steps before it.
const WAITS_MAX: usize = 256;
/// A shorter CPU time before a call is added to the next step's, since each charge costs the host as much as a call.
/// Calls are early by less than this, and the errors do not add up.
const CHARGE_MIN_NANOS: u64 = 2_000;

/// Conversion of recorded CPU time into the guest's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThinkTime {
    /// Divisor of recorded times.
    pub speed: f64,
    /// Whether the kernel's time counts for replayed calls, too, because the guest's own kernel takes no time.
    pub with_kernel: bool,
}

impl ThinkTime {
    fn of(self, step: &Step) -> u64 {
        // The guest's kernel does no work for a call that is not replayed, such as the execution of a program.
        let is_left_out = step.action == Action::Nothing && step.waits.is_empty();
        let with_kernel = self.with_kernel || is_left_out;
        let recorded = if with_kernel { step.think.saturating_add(step.kernel) } else { step.think };
        (recorded.as_nanos() as f64 / self.speed).round() as u64
    }
}

/// Writes the feed of a plan to an unnamed file in memory.
pub(crate) fn write_feed(plan: &Plan, think: ThinkTime) -> io::Result<File> {
    let mut file = File::from(memfd_create("chronodisk-feed", MemfdFlags::CLOEXEC)?);
    let steps_at = INDEX_OFFSET + plan.tasks.len() * INDEX_WORDS * 8;
    let mut index: Vec<u64> = Vec::with_capacity(plan.tasks.len() * INDEX_WORDS);
    file.seek(SeekFrom::Start(steps_at as u64))?;
    let mut offset = steps_at as u64;
    for task in &plan.tasks {
        let words = encode_task(&task.steps, think);
        file.write_all(&bytes_of(&words))?;
        let bytes = words.len() as u64 * 8;
        index.extend([offset, bytes, u64::from(task.id) | if task.is_first { FIRST } else { 0 }]);
        offset += bytes;
    }
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&bytes_of(&[FEED_MAGIC, plan.tasks.len() as u64, plan.mappings.into(), plan.slots.into()]))?;
    file.seek(SeekFrom::Start(INDEX_OFFSET as u64))?;
    file.write_all(&bytes_of(&index))?;
    Ok(file)
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn encode_task(steps: &[Step], think: ThinkTime) -> Vec<u64> {
    let (mut words, mut owed_nanos) = (Vec::new(), 0u64);
    for (at, step) in steps.iter().enumerate() {
        owed_nanos = owed_nanos.saturating_add(think.of(step));
        // A step must not be delayed if other tasks or a sleep wait for it.
        let can_be_late = matches!(step.action, Action::Call { .. }) && step.waits.is_empty() && !step.signals;
        let is_put_off = owed_nanos < CHARGE_MIN_NANOS && can_be_late && at + 1 < steps.len();
        encode(step, if is_put_off { 0 } else { std::mem::take(&mut owed_nanos) }, &mut words);
    }
    words
}

fn encode(step: &Step, think_nanos: u64, words: &mut Vec<u64>) {
    let (early, last) = step.waits.split_at(step.waits.len().saturating_sub(1) / WAITS_MAX * WAITS_MAX);
    let word = |wait: &chronodisk_trace::calls::Wait| u64::from(wait.task) | u64::from(wait.signals) << 32;
    for waits in early.chunks(WAITS_MAX) {
        let length = (head::WORDS + waits.len()) as u64;
        words.push(kind::NOTHING | (waits.len() as u64) << head::WAITS_SHIFT | length << head::WORDS_SHIFT);
        words.extend([0, step.record as u64]);
        words.extend(waits.iter().map(word));
    }
    let begin = words.len();
    words.extend([0, think_nanos, step.record as u64]);
    words.extend(last.iter().map(word));
    let kind = encode_action(&step.action, begin, words);
    let length = (words.len() - begin) as u64;
    assert!(length as usize * 8 <= FEED_PART_BYTES - PART_HEADER_BYTES, "a step of {length} words");
    let signals = if step.signals { head::SIGNALS } else { 0 };
    words[begin] = kind | signals | (last.len() as u64) << head::WAITS_SHIFT | length << head::WORDS_SHIFT;
}

fn encode_action(action: &Action, begin: usize, words: &mut Vec<u64>) -> u64 {
    match action {
        Action::Nothing => kind::NOTHING,
        Action::Call { number, arguments, expected } => {
            encode_call(*number, arguments, *expected, begin, words);
            kind::CALL
        }
        Action::Pipe { sockets, descriptors: [first, second] } => {
            words.extend([u64::from(*sockets), u64::from(*first), u64::from(*second)]);
            kind::PIPE
        }
        Action::Receive { descriptor, bytes } => {
            words.extend([u64::from(*descriptor), *bytes]);
            kind::RECEIVE
        }
        Action::Send { descriptor, bytes } => {
            words.extend([u64::from(*descriptor), *bytes]);
            kind::SEND
        }
        Action::Spawn { task, shares_files, shares_directory } => {
            let files = if *shares_files { libc::CLONE_FILES as u64 } else { 0 };
            let directory = if *shares_directory { libc::CLONE_FS as u64 } else { 0 };
            words.extend([u64::from(*task), files | directory]);
            kind::SPAWN
        }
        Action::OwnFiles => kind::OWN_FILES,
        Action::Sleep(time) => {
            words.push(time.as_nanos());
            kind::SLEEP
        }
        Action::Poll(period) => {
            words.push(period.as_nanos());
            kind::POLL
        }
        Action::Map { mapping, descriptor, offset, bytes, protection, flags } => {
            words.extend([u64::from(*mapping), u64::from(*descriptor), *offset, *bytes, *protection, *flags]);
            kind::MAP
        }
        Action::Fault { mapping, offset, writes } => {
            words.extend([u64::from(*mapping), *offset, u64::from(*writes)]);
            kind::FAULT
        }
        Action::Flush { mapping, offset, bytes, flags } => {
            words.extend([u64::from(*mapping), *offset, *bytes, *flags]);
            kind::FLUSH
        }
        Action::Advise { mapping, offset, bytes, advice } => {
            words.extend([u64::from(*mapping), *offset, *bytes, *advice]);
            kind::ADVISE
        }
        Action::Unmap { mapping, bytes } => {
            words.extend([u64::from(*mapping), *bytes]);
            kind::UNMAP
        }
        Action::Touch { descriptor, offset, bytes } => {
            words.extend([u64::from(*descriptor), *offset, *bytes]);
            kind::TOUCH
        }
    }
}

fn encode_call(number: u32, arguments: &[Argument; 6], expected: Expected, begin: usize, words: &mut Vec<u64>) {
    let (expectation, value) = match expected {
        Expected::Outcome(result) => (expectation::OUTCOME, result),
        Expected::Exactly(result) => (expectation::EXACTLY, result),
        Expected::Descriptor(descriptor) => (expectation::DESCRIPTOR, descriptor.into()),
    };
    words.extend([u64::from(number) | expectation << 32, value as u64]);
    let at = words.len();
    words.extend([0; 7]);
    for (place, given) in arguments.iter().enumerate() {
        let offset = ((words.len() - begin) * 8) as u64;
        let (kind, value) = match given {
            Argument::Number(value) => (argument::NUMBER, *value),
            Argument::Path(path) => {
                encode_text(path, words);
                (argument::PATH, offset)
            }
            Argument::Descriptor(slot) => (argument::DESCRIPTOR, u64::from(*slot)),
            Argument::DescriptorPath(slot, path) => {
                words.push(u64::from(*slot));
                encode_text(path, words);
                (argument::DESCRIPTOR_PATH, offset)
            }
            Argument::Words(all) => {
                words.extend([NO_WORD, 0]);
                words.extend(all);
                (argument::WORDS, offset)
            }
            Argument::WordsOf(slot, word, all) => {
                words.extend([u64::from(*word), u64::from(*slot)]);
                words.extend(all);
                (argument::WORDS, offset)
            }
            Argument::Scratch => (argument::SCRATCH, 0),
            Argument::Data => (argument::DATA, 0),
        };
        words[at] |= kind << (4 * place);
        words[at + 1 + place] = value;
    }
}

/// A path with its NUL byte, padded to whole words.
fn encode_text(path: &[u8], words: &mut Vec<u64>) {
    let mut bytes = path.to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    words.extend(bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))));
}

/// Result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayOutcome {
    /// Replayed system calls.
    pub calls_made: u64,
    /// Replayed calls with another outcome than recorded.
    pub differed: u64,
    /// Tasks that could not get their recorded id.
    pub ids_taken: u64,
    /// Abandoned waits for other tasks.
    pub waits_abandoned: u64,
    /// Whether all tasks ended.
    pub is_whole: bool,
    /// The guest's time stamp counter just before the first task. Earlier work is the replayer's own.
    pub began_ticks: u64,
    /// Most resident memory of the replayer, if its kernel reported it.
    pub memory_bytes: Option<u64>,
    /// Most simultaneous tasks.
    pub tasks_at_once: u64,
    /// The first calls with a different result: index of the record, and the new result.
    pub differences: Vec<(usize, i64)>,
}

/// Reads the report that the replayer has left in its feed.
pub(crate) fn read_report(feed: &mut File) -> io::Result<ReplayOutcome> {
    let mut bytes = [0; size_of::<Report>()];
    feed.seek(SeekFrom::Start(FEED_REPORT_OFFSET as u64))?;
    feed.read_exact(&mut bytes)?;
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes"))).collect();
    let [calls_made, differed, ids_taken, waits_abandoned, is_whole, began_ticks, memory_kib, tasks_at_once] =
        words[..8]
    else {
        unreachable!("more words")
    };
    let kept = differed.min(DIFFERENCES_MAX as u64) as usize;
    let differences = words[8..].chunks_exact(size_of::<Difference>() / 8);
    Ok(ReplayOutcome {
        calls_made,
        differed,
        ids_taken,
        waits_abandoned,
        is_whole: is_whole == 1,
        began_ticks,
        memory_bytes: Some(memory_kib.saturating_mul(1024)).filter(|&bytes| bytes > 0),
        tasks_at_once,
        differences: differences.take(kept).map(|difference| (difference[0] as usize, difference[1] as i64)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::Nanos;
    use chronodisk_trace::calls::Wait;

    use super::*;

    fn call(think_nanos: u64) -> Step {
        let arguments = [const { Argument::Number(0) }; 6];
        let action = Action::Call { number: 1, arguments, expected: Expected::Outcome(0) };
        let (think, kernel) = (Nanos::from_nanos(think_nanos), Nanos::ZERO);
        Step { record: 0, think, kernel, waits: Vec::new(), signals: false, action }
    }

    /// CPU time charged before each step.
    fn charges(steps: &[Step]) -> Vec<u64> {
        let words = encode_task(steps, ThinkTime { speed: 0.5, with_kernel: false });
        let (mut charges, mut at) = (Vec::new(), 0);
        while at < words.len() {
            charges.push(words[at + 1]);
            at += (words[at] >> head::WORDS_SHIFT) as usize;
        }
        charges
    }

    #[test]
    fn little_cpu_time_is_charged_together_and_none_is_lost() {
        // Twice as long, at half the speed.
        let steps: Vec<Step> = [300, 300, 300, 300, 5_000, 0, 400].map(call).into();
        assert_eq!(charges(&steps), [0, 0, 0, 2_400, 10_000, 0, 800], "the last step has what is left");
    }

    #[test]
    fn the_kernels_time_counts_for_calls_that_are_not_made_again_on_each_clock() {
        let with_kernel = |step: Step| Step { kernel: Nanos::from_nanos(4_000), ..step };
        let executes = with_kernel(Step { action: Action::Nothing, ..call(3_000) });
        let waits = with_kernel(Step { waits: vec![Wait { task: 0, signals: 1 }], ..executes.clone() });
        let made = with_kernel(call(3_000));
        assert_eq!(charges(&[executes, waits, made]), [14_000, 6_000, 6_000], "the guest's kernel waits and calls");
    }

    #[test]
    fn what_others_or_a_sleep_wait_for_is_not_put_off() {
        let waits = Step { waits: vec![Wait { task: 0, signals: 1 }], ..call(100) };
        let signals = Step { signals: true, ..call(100) };
        let sleeps = Step { action: Action::Sleep(Nanos::from_nanos(1)), ..call(100) };
        let steps = [call(50), waits, call(50), signals, call(50), sleeps, call(50)];
        assert_eq!(charges(&steps), [0, 300, 0, 300, 0, 300, 100]);
    }
}
