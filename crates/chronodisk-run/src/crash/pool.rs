//! Checks states in several guests at the same time.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chronodisk_crash::State;
use chronodisk_engine::ending::{EndRequests, kill_with_starter};
use chronodisk_guest::{DEVICES_MAX, FileSystem, StateEvent, StateStep, StatesOptions};
use rustix::process::{Pid, Signal, kill_process};

use super::acknowledged::{count_by, text_of};
use super::checker::{Answer, Job};
use super::images::{Scratch, write_base, write_difference};
use super::load::Loaded;
use super::setup::Setup;
use crate::failure::Failure;
use crate::signals::EndSignals;

/// First argument of this executable as [`crash_checker`](super::crash_checker).
const CHECKER: &str = "crash-checker";
/// Time after which a signal is looked for in any case.
const TICK: Duration = Duration::from_millis(200);
/// Bytes of a dead guest's last output that a verdict has, from its end.
const CONSOLE_BYTES_MAX: usize = 1500;

/// The verdict on a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The failed step; `None` if the state passed.
    pub failed: Option<StateStep>,
    /// Output of the failed step.
    pub output: String,
}

/// Checks states; the files of the guests are in its folder.
pub(super) struct Pool<'a> {
    setup: &'a Setup,
    loaded: &'a Loaded,
    base: usize,
    executable: PathBuf,
    jobs: usize,
    scratch: Scratch,
    signals: &'a EndSignals,
}

/// Work and results that the threads share.
struct Shared<'a> {
    queue: VecDeque<Vec<usize>>,
    verdicts: Vec<Option<Verdict>>,
    children: Vec<Pid>,
    failure: Option<Failure>,
    seen: &'a mut Seen<'a>,
}

/// Gets the index of each checked state and its verdict. A failure ends the checks.
pub(super) type Seen<'a> = dyn FnMut(usize, &Verdict) -> Result<(), Failure> + Send + 'a;

impl Shared<'_> {
    fn judge(&mut self, state: usize, verdict: Verdict, stop: &AtomicBool) {
        if let Err(failure) = (self.seen)(state, &verdict) {
            self.failure.get_or_insert(failure);
            stop.store(true, Ordering::Relaxed);
        }
        self.verdicts[state] = Some(verdict);
    }
}

impl<'a> Pool<'a> {
    /// Writes the base of the states, the newest contents at position `base`, to a folder for the guests.
    pub fn new(
        setup: &'a Setup,
        loaded: &'a Loaded,
        base: usize,
        (executable, jobs): (PathBuf, usize),
        scratch: Scratch,
        signals: &'a EndSignals,
    ) -> Result<Self, Failure> {
        let history = &loaded.history;
        write_base(&scratch.file("base"), history, &history.newest(base))?;
        Ok(Pool { setup, loaded, base, executable, jobs, scratch, signals })
    }

    /// The recording.
    pub fn loaded(&self) -> &Loaded {
        self.loaded
    }

    /// The file system of the states.
    pub fn file_system(&self) -> FileSystem {
        self.setup.file_system
    }

    /// A path for a file that lasts as long as the pool.
    pub fn file(&self, name: &str) -> PathBuf {
        self.scratch.file(name)
    }

    /// Checks all states, and calls `seen` after each. A signal leaves the rest without a verdict.
    pub fn check(&self, states: &[State], seen: &mut Seen<'_>) -> Result<Vec<Option<Verdict>>, Failure> {
        // Small batches at the end keep all guests busy.
        let batch = states.len().div_ceil(self.jobs).clamp(1, DEVICES_MAX);
        let queue = (0..states.len()).collect::<Vec<_>>().chunks(batch).map(<[usize]>::to_vec).collect();
        let verdicts = vec![None; states.len()];
        let shared = Mutex::new(Shared { queue, verdicts, children: Vec::new(), failure: None, seen });
        let failed = |error: std::io::Error| Failure::host(format!("can't wait for guests: {error}"));
        let (done, tell_done) = UnixStream::pair().map_err(failed)?;
        let stop = AtomicBool::new(self.signals.request().is_some());
        std::thread::scope(|threads| {
            threads.spawn(|| self.pass_on(&done, &stop, &shared));
            let workers: Vec<_> = (0..self.jobs).map(|_| threads.spawn(|| self.work(states, &stop, &shared))).collect();
            workers.into_iter().for_each(|worker| drop(worker.join()));
            drop(tell_done);
        });
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        shared.failure.map_or(Ok(shared.verdicts), Err)
    }

    /// Ends the guests at a signal, until `done` is closed.
    fn pass_on(&self, done: &UnixStream, stop: &AtomicBool, shared: &Mutex<Shared<'_>>) {
        let mut told = None;
        // A worker that asks for a signal takes the news of it.
        while self.signals.wait(&[done.as_fd()], Some(TICK)).is_none() {
            let Some(request) = self.signals.request() else { continue };
            stop.store(true, Ordering::Relaxed);
            if told.replace(request.insists) == Some(request.insists) {
                continue;
            }
            let signal = if request.insists { Signal::KILL } else { Signal::TERM };
            for child in &lock(shared).children {
                let _ = kill_process(*child, signal);
            }
        }
    }

    fn work(&self, states: &[State], stop: &AtomicBool, shared: &Mutex<Shared<'_>>) {
        while !stop.load(Ordering::Relaxed) {
            let Some(batch) = lock(shared).queue.pop_front() else { return };
            if let Err(failure) = self.check_batch(&batch, states, stop, shared) {
                stop.store(true, Ordering::Relaxed);
                lock(shared).failure.get_or_insert(failure);
            }
        }
    }

    /// Checks a batch in one guest. If the guest dies, its present state is checked again, alone.
    fn check_batch(
        &self,
        batch: &[usize],
        states: &[State],
        stop: &AtomicBool,
        shared: &Mutex<Shared<'_>>,
    ) -> Result<(), Failure> {
        let job = self.job(batch, states)?;
        let mut begun = StateStep::Mount;
        let ended = self.run(&job, shared, &mut |event| match event {
            StateEvent::Begins(step) => begun = step,
            StateEvent::Judged(report) => {
                let Some(state) = batch.get(report.device) else { return };
                lock(shared).judge(*state, Verdict { failed: report.failed, output: report.output }, stop);
            }
        });
        job.differences
            .iter()
            .chain(job.states.acknowledged.iter().map(PathBuf::from).collect::<Vec<_>>().iter())
            .for_each(|file| drop(std::fs::remove_file(file)));
        let ended = ended?;
        let mut shared = lock(shared);
        let left: Vec<usize> = batch.iter().copied().filter(|state| shared.verdicts[*state].is_none()).collect();
        match (ended, left.split_first()) {
            (_, None) | (Some(Answer::Interrupted), _) => Ok(()),
            // The signal may have ended the guest as well, which is no finding.
            _ if stop.load(Ordering::Relaxed) || self.signals.request().is_some() => Ok(()),
            (Some(Answer::Failed(what)), _) => Err(Failure::host(format!("a guest could not check states: {what}"))),
            (None | Some(Answer::State(_)), Some(_)) if batch.len() == 1 => {
                Err(Failure::host("a guest ended without a verdict on its state"))
            }
            (ended, Some((first, rest))) => {
                let (step, how, console) = match ended {
                    Some(Answer::Died { how, console }) if batch.len() == 1 => (StateStep::Panic, how, console),
                    Some(Answer::Hung { how, console }) if batch.len() == 1 => {
                        (begun, format!("the guest's kernel hangs ({how})"), console)
                    }
                    _ => {
                        shared.queue.push_back(vec![*first]);
                        shared.queue.extend((!rest.is_empty()).then(|| rest.to_vec()));
                        return Ok(());
                    }
                };
                let output = format!("{how}\n{}", end_of(&console)).trim_end().to_owned();
                shared.judge(*first, Verdict { failed: Some(step), output }, stop);
                Ok(())
            }
        }
    }

    fn job(&self, batch: &[usize], states: &[State]) -> Result<Job, Failure> {
        let Setup { file_system, mount_options, mount_point, check, check_timeout, acknowledged, .. } = self.setup;
        let (mut differences, mut files) = (Vec::new(), Vec::new());
        for index in batch {
            let state = &states[*index];
            let difference = self.loaded.history.difference(self.base, state.cut.position, &state.lost);
            let path = self.scratch.file(&format!("difference-{index}"));
            write_difference(&path, &self.loaded.history, self.loaded.capacity_bytes, &difference)?;
            differences.push(path);
            let path = self.scratch.file(&format!("acknowledged-{index}"));
            let lines = &acknowledged[..count_by(acknowledged, state.cut.at)];
            std::fs::write(&path, text_of(lines))
                .map_err(|error| Failure::host(format!("{}: can't write: {error}", path.display())))?;
            files.push(path.display().to_string());
        }
        Ok(Job {
            executable: self.executable.clone(),
            kernel: self.setup.kernel.clone(),
            modules: self.setup.modules.clone(),
            memory_bytes: self.setup.memory_bytes,
            capacity_bytes: self.loaded.capacity_bytes,
            base: self.scratch.file("base"),
            differences,
            states: StatesOptions {
                file_system: *file_system,
                mount_options: mount_options.clone(),
                mount_type: None,
                mount_point: mount_point.clone(),
                check: check.clone(),
                check_timeout: *check_timeout,
                acknowledged: files,
            },
        })
    }

    /// Runs a job in a process of its own. Returns its last answer that is no event of a state.
    fn run(
        &self,
        job: &Job,
        shared: &Mutex<Shared<'_>>,
        take: &mut dyn FnMut(StateEvent),
    ) -> Result<Option<Answer>, Failure> {
        let failed = |error: std::io::Error| Failure::host(format!("can't start a guest: {error}"));
        let mut command = Command::new(&self.executable);
        command.arg(CHECKER).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        kill_with_starter(&mut command);
        let mut child = command.spawn().map_err(failed)?;
        let pid = Pid::from_child(&child);
        lock(shared).children.push(pid);
        let answered = answers(&mut child, job, take);
        let waited = child.wait();
        lock(shared).children.retain(|running| *running != pid);
        let status = waited.map_err(failed)?;
        if !status.success() && self.signals.request().is_none() {
            let what = "the process that checks states in a guest (crash-checker) died";
            return Err(Failure::host(format!("{what} ({status})")));
        }
        answered.map_err(failed)
    }
}

fn answers(child: &mut Child, job: &Job, take: &mut dyn FnMut(StateEvent)) -> std::io::Result<Option<Answer>> {
    let json = serde_json::to_vec(job)?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&json)?;
    }
    let mut last = None;
    for line in child.stdout.take().into_iter().flat_map(|output| BufReader::new(output).lines()) {
        match serde_json::from_str(&line?)? {
            Answer::State(event) => take(event),
            other => last = Some(other),
        }
    }
    Ok(last)
}

fn lock<'m, 's>(shared: &'m Mutex<Shared<'s>>) -> MutexGuard<'m, Shared<'s>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of a console's text.
fn end_of(text: &str) -> String {
    let begin = text.len().saturating_sub(CONSOLE_BYTES_MAX);
    let begin = (begin..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[begin..].trim().to_owned()
}
