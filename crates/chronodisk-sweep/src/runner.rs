//! Doing cells: several at a time, each at most once.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use chronodisk_report::{AtomicFile, HostInfo};
use chronodisk_sim::TextFile;
use serde::{Deserialize, Serialize};

use crate::cell::{Contents, Key, Prepared, profile_file};
use crate::children::{Children, Role};
use crate::executable::Executable;
use crate::figures::figures_of;
use crate::report::{CellProvenance, PROVENANCE_FILE, PROVENANCE_SCHEMA, Provenance, REPORT_FILE, RESULTS_FILE};
use crate::table::write_table;
use crate::{Cell, Command, Results, Sweep, SweepError};

/// How cells are done.
#[derive(Clone, Debug)]
pub struct Runner {
    /// The command's executable.
    pub executable: PathBuf,
    /// Its version: cells of another one are done again.
    pub version: String,
    /// Directory of the results.
    pub directory: PathBuf,
    /// Cells that are done at the same time.
    pub jobs: usize,
    /// Which cells are done; all, if there is none.
    pub part: Option<Part>,
}

/// Every n-th cell of a sweep. Parts may run at the same time, on hosts that share the directory; the results are
/// written after all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    index: usize,
    count: usize,
}

impl Part {
    /// Part `number` of `count`, from 1 on; `None` if there is no such part.
    #[must_use]
    pub fn new(number: usize, count: usize) -> Option<Self> {
        (1..=count).contains(&number).then(|| Part { index: number - 1, count })
    }

    /// Whether the cell with this index is one of the part.
    #[must_use]
    pub fn has(self, index: usize) -> bool {
        index % self.count == self.index
    }
}

/// A cell's result, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    key: Key,
    /// Digest of the executable that did it.
    executable: String,
    /// Exit status; 128 + n if signal n ended it.
    pub status: i32,
    /// By name; empty if it failed.
    pub figures: BTreeMap<String, f64>,
    /// The end of its messages, if it failed.
    pub message: Option<String>,
    /// When it began, in seconds since 1970.
    pub begun_unix_s: u64,
    /// How long it took on the host.
    pub host_s: f64,
    /// The name of its file.
    #[serde(skip)]
    pub(crate) name: String,
    /// Whether it was there already.
    #[serde(skip)]
    pub was_there: bool,
}

/// Told after each cell.
pub type Progress<'a> = &'a (dyn Fn(&Done) + Sync);

/// Longest message that is kept.
const MESSAGE_BYTES: usize = 2_000;
/// Statuses after which no other cell would do better: wrong usage, and a host that lacks something.
const HOPELESS: [i32; 2] = [2, HOST_LACKS];
const HOST_LACKS: i32 = 3;

/// A sweep that is about to be done: its cells, and which of them are done. While it lives no other sweep can use the
/// directory; parts of one can.
pub struct Plan {
    sweep: Sweep,
    cells: Vec<Cell>,
    runner: Runner,
    executable: Executable,
    prepared: Vec<Prepared>,
    /// Whether the directory was made for it.
    is_new: bool,
    /// Whether a program of the user's was started.
    command_began: AtomicBool,
    children: Children,
    _lock: Lock,
}

/// Everything that a process needs to do a cell, on this host or elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    name: String,
    key: Key,
    /// The executable to use.
    executable: Executable,
    arguments: Vec<String>,
    /// Profile that the sweep made, in place of the argument with this index.
    profile: Option<(usize, String)>,
    /// Where the run is kept, for commands that keep one.
    runs: Option<PathBuf>,
    /// Whether the command leaves its summary out if it is asked to.
    can_be_quiet: bool,
    label: String,
    setup: Option<String>,
    teardown: Option<String>,
    drop_caches: bool,
}

impl Plan {
    /// Prepares all cells.
    ///
    /// # Errors
    /// If the directory can't be used, or a profile is wrong.
    pub fn new(sweep: Sweep, runner: Runner) -> Result<Self, SweepError> {
        let directory = &runner.directory;
        // A sweep that is refused leaves nothing.
        let executable = Executable::of(&runner.executable)?;
        let mut contents = Contents::default();
        let cells = sweep.cells();
        let prepared: Vec<Prepared> = cells
            .iter()
            .map(|cell| cell.prepare(&sweep, directory, &runner.version, &mut contents))
            .collect::<Result<_, _>>()?;
        if fs::metadata(directory).is_ok_and(|metadata| !metadata.is_dir()) {
            return Err(SweepError::Usage(format!("{} is a file; expected a directory", directory.display())));
        }
        let is_new = !directory.exists();
        for folder in [directory.clone(), directory.join("cells")] {
            fs::create_dir_all(&folder).map_err(|error| SweepError::io("create", &folder, &error))?;
        }
        let lock = lock(directory, runner.part.is_some())?;
        // Beside a part there may be others, whose runs are no leftovers.
        if runner.part.is_none() {
            remove_leftovers(directory);
        }
        for (digest, text) in prepared.iter().filter_map(|prepared| prepared.profile.as_ref()) {
            let file = profile_file(directory, digest);
            if !file.exists() {
                let folder = directory.join("profiles");
                fs::create_dir_all(&folder).map_err(|error| SweepError::io("create", &folder, &error))?;
                write(&file, text.as_bytes())?;
            }
        }
        let command_began = AtomicBool::new(false);
        let children = Children::default();
        Ok(Plan { sweep, cells, runner, executable, prepared, is_new, command_began, children, _lock: lock })
    }

    /// The sweep.
    #[must_use]
    pub fn sweep(&self) -> &Sweep {
        &self.sweep
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        self.prepared.len()
    }

    /// The result of a cell that is done already.
    ///
    /// # Panics
    /// If there is no such cell.
    #[must_use]
    pub fn found(&self, index: usize) -> Option<Done> {
        let prepared = &self.prepared[index];
        let name = prepared.key.name();
        let there = TextFile::Result.read(fs::File::open(self.file_of(&name)).ok()?).ok()?;
        let done = serde_json::from_str::<Done>(&there).ok()?;
        let counts = done.key == prepared.key && done.executable == self.executable.digest && done.status == 0;
        counts.then_some(Done { name, was_there: true, ..done })
    }

    /// Returns the task of a cell.
    ///
    /// # Panics
    /// If there is no such cell.
    #[must_use]
    pub fn task(&self, index: usize) -> Task {
        let prepared = &self.prepared[index];
        let keeps_run = self.sweep.command != Command::Simulate;
        let profile = prepared.profile.as_ref().and_then(|(digest, text)| {
            let word = format!("--device={}", profile_file(&self.runner.directory, digest).display());
            let at = prepared.arguments.iter().position(|argument| *argument == word)?;
            Some((at, text.clone()))
        });
        Task {
            name: prepared.key.name(),
            key: prepared.key.clone(),
            executable: self.executable.clone(),
            arguments: prepared.arguments.clone(),
            profile,
            runs: keeps_run.then(|| self.runner.directory.join("runs")),
            can_be_quiet: matches!(self.sweep.command, Command::Run | Command::Replay),
            label: self.sweep.label.clone(),
            setup: self.sweep.setup.clone(),
            teardown: self.sweep.teardown.clone(),
            drop_caches: self.sweep.drop_caches,
        }
    }

    /// The names of the cells, in order; the file of a cell's result is `cells/NAME.json`.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.prepared.iter().map(|prepared| prepared.key.name()).collect()
    }

    /// Keeps the result of a cell, so that it need not be done again.
    ///
    /// # Errors
    /// If it is of another cell or another executable, or can't be written.
    pub fn keep(&self, index: usize, done: Done) -> Result<Done, SweepError> {
        let name = self.prepared[index].key.name();
        if done.key != self.prepared[index].key || done.executable != self.executable.digest {
            return Err(SweepError::Usage(format!("a worker gave the result of another cell than {name}")));
        }
        let text =
            serde_json::to_string_pretty(&done).map_err(|error| SweepError::Host(format!("cell {name}: {error}")))?;
        write(&self.file_of(&name), text.as_bytes())?;
        Ok(Done { name, ..done })
    }

    /// Whether the runner is to do this cell.
    fn is_ours(&self, index: usize) -> bool {
        self.runner.part.is_none_or(|part| part.has(index))
    }

    /// Does all cells of the runner's part that are not done yet in processes of this host, and gives the results in
    /// the order of the cells; fewer if `stop` became true.
    ///
    /// # Errors
    /// If a cell ends with a status that all would end with, or a result can't be written.
    pub fn run(&self, stop: &AtomicBool, progress: Progress<'_>) -> Result<Vec<Option<Done>>, SweepError> {
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let results: Vec<Mutex<Option<Done>>> = self.prepared.iter().map(|_| Mutex::new(None)).collect();
        let one = |index: usize| match self.found(index) {
            Some(done) => Ok(Some(done)),
            None => match self.task(index).execute_and_note(&self.runner.executable, stop, self.noted())? {
                Some(done) => self.keep(index, done).map(Some),
                None => Ok(None),
            },
        };
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.prepared.len() {
                    return;
                }
                if !self.is_ours(index) {
                    continue;
                }
                if stop.load(Ordering::Relaxed) || failure.lock().is_ok_and(|failure| failure.is_some()) {
                    return;
                }
                match one(index) {
                    Ok(Some(done)) => {
                        progress(&done);
                        if let Ok(mut place) = results[index].lock() {
                            *place = Some(done);
                        }
                    }
                    Ok(None) => return,
                    Err(error) => {
                        if let Ok(mut failure) = failure.lock() {
                            failure.get_or_insert(error);
                        }
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.runner.jobs.clamp(1, self.prepared.len().max(1)) {
                scope.spawn(work);
            }
        });
        if let Ok(Some(error)) = failure.into_inner() {
            self.remove_unused();
            return Err(error);
        }
        Ok(results.into_iter().map(|result| result.into_inner().unwrap_or(None)).collect())
    }

    fn noted(&self) -> Noted<'_> {
        Noted { command_began: &self.command_began, children: &self.children }
    }

    /// Passes a signal that asks to end on to the processes of cells. Cells of `simulate` end with the results so far,
    /// others end their programs. The flag that [`Plan::run`] was given is to be set before.
    pub fn ask_to_end(&self, signal: i32) {
        self.children.ask_to_end(signal);
    }

    /// Ends the processes of cells at once, after [`Plan::ask_to_end`].
    pub fn end_at_once(&self) {
        self.children.end_at_once();
    }

    /// Whether [`Plan::run`] has started the program that cells of `run`, `mount` and `replay` run.
    #[must_use]
    pub fn command_began(&self) -> bool {
        self.command_began.load(Ordering::Relaxed)
    }

    /// Removes the directory if it was made for a sweep that was refused before any cell was done.
    fn remove_unused(&self) {
        let directory = &self.runner.directory;
        // A folder is removed only if it is empty.
        if !self.is_new || fs::remove_dir(directory.join("cells")).is_err() {
            return;
        }
        let _ = fs::remove_dir(directory.join("runs"));
        let _ = fs::remove_dir_all(directory.join("profiles"));
        let _ = fs::remove_file(directory.join("lock"));
        let _ = fs::remove_dir(directory);
    }

    /// Writes `sweep.json`, `sweep.parquet` and `sweep.provenance.json` of a whole sweep, and gives its results. The
    /// first two hold nothing of the host.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn write_results(&self, done: &[Done]) -> Result<Results, SweepError> {
        let results = Results::new(&self.sweep, &self.runner.version, &self.cells, done);
        let directory = &self.runner.directory;
        write_table(&directory.join("sweep.parquet"), &self.sweep, &self.cells, done)?;
        write(&directory.join(RESULTS_FILE), results.to_json().as_bytes())?;
        // Cells of a sweep that was killed may have gone on for a while.
        remove_leftovers(directory);
        let provenance = serde_json::to_string_pretty(&self.provenance(done)).unwrap_or_default();
        write(&directory.join(PROVENANCE_FILE), format!("{provenance}\n").as_bytes())?;
        Ok(results)
    }

    /// Writes `sweep.html`: a page with the results, their charts, and their provenance. `plots` are additional charts;
    /// those without figures in the results are omitted.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn write_report(
        &self,
        results: &Results,
        done: &[Done],
        plots: &[(String, String)],
        made_by: &str,
    ) -> Result<PathBuf, SweepError> {
        let there: Vec<_> = plots.iter().filter(|(x, y)| results.curves(x, y).is_ok()).cloned().collect();
        let title = format!("Sweep {}", self.sweep.label);
        let page = results.report(&self.provenance(done), &there, &title, made_by).map_err(SweepError::Host)?;
        let path = self.runner.directory.join(REPORT_FILE);
        write(&path, page.as_bytes())?;
        Ok(path)
    }

    fn provenance(&self, done: &[Done]) -> Provenance {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Provenance {
            schema: PROVENANCE_SCHEMA.to_owned(),
            version: self.runner.version.clone(),
            executable: self.executable.digest.clone(),
            host: host_info(),
            load: load.split(' ').take(3).collect::<Vec<_>>().join(" "),
            jobs: self.runner.jobs,
            cells: done.iter().map(CellProvenance::of).collect(),
        }
    }

    fn file_of(&self, name: &str) -> PathBuf {
        self.runner.directory.join("cells").join(format!("{name}.json"))
    }
}

/// This host, as results name it.
#[must_use]
pub fn host_info() -> HostInfo {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    HostInfo {
        cpu_model: model.map_or("unknown", |(_, model)| model.trim()).to_owned(),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        kernel: kernel.trim().to_owned(),
    }
}

/// Two sweeps must not do the same cells; parts of one do not.
fn lock(directory: &Path, is_part: bool) -> Result<Lock, SweepError> {
    let path = directory.join("lock");
    let file = fs::File::create(&path).map_err(|error| SweepError::io("create", &path, &error))?;
    let how = if is_part {
        rustix::fs::FlockOperation::NonBlockingLockShared
    } else {
        rustix::fs::FlockOperation::NonBlockingLockExclusive
    };
    rustix::fs::flock(&file, how)
        .map_err(|_| SweepError::Usage(format!("another sweep is at work in {}", directory.display())))?;
    Ok(Lock(file))
}

/// Gives the directory back, even if a process that is just being started still has the file open.
struct Lock(fs::File);

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

/// Where the run of a cell is until the cell is done.
struct Partial {
    /// A folder that is removed in any case.
    around: PathBuf,
    /// The run's folder in it.
    run: PathBuf,
    /// Where the run is kept.
    kept: PathBuf,
}

/// Removes the leftovers of killed cells.
fn remove_leftovers(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory.join("runs")) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|extension| extension == "partial") {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    let failed = |error: chronodisk_report::ReportError| SweepError::Host(error.to_string());
    let mut file = AtomicFile::create(path).map_err(failed)?;
    file.write_all(bytes).map_err(|error| SweepError::io("write", path, &error))?;
    file.keep().map_err(failed)
}

impl Task {
    /// The name of the cell.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the cell with this executable; `None` if it was interrupted.
    ///
    /// # Errors
    /// If the executable differs from the sweep's, can't be started, or refuses the options.
    pub fn execute(&self, executable: &Path, stop: &AtomicBool) -> Result<Option<Done>, SweepError> {
        let (command_began, children) = (AtomicBool::new(false), Children::default());
        self.execute_and_note(executable, stop, Noted { command_began: &command_began, children: &children })
    }

    /// Does the same, and notes the processes that it starts.
    fn execute_and_note(
        &self,
        executable: &Path,
        stop: &AtomicBool,
        noted: Noted<'_>,
    ) -> Result<Option<Done>, SweepError> {
        self.executable.expect(executable)?;
        let begun_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let begun = Instant::now();
        if let Some(setup) = &self.setup {
            let done = self.shell("setup", setup, noted.children, Role::Setup);
            // A signal ends the shell, too.
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            done?;
        }
        if self.drop_caches {
            drop_caches()?;
        }
        let mut arguments = self.arguments.clone();
        // A worker elsewhere does not have the sweep's directory.
        let elsewhere = self.profile_elsewhere(&mut arguments)?;
        let partial = match &self.runs {
            Some(runs) => {
                // A run's name is its folder's name at run time.
                let around = runs.join(format!("{}.{}.partial", self.name, std::process::id()));
                fs::create_dir_all(&around).map_err(|error| SweepError::io("create", &around, &error))?;
                let partial = around.join(&self.name);
                let before = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
                arguments.insert(before, format!("--output={}", partial.display()));
                // A summary contains host times, and hides a program's error messages.
                if self.can_be_quiet && !arguments[..before].iter().any(|word| word == "--quiet") {
                    arguments.insert(before, "--quiet".to_owned());
                }
                Some(Partial { around, run: partial, kept: runs.join(&self.name) })
            }
            None => None,
        };
        let output = noted
            .children
            .output(Process::new(executable).args(&arguments), Role::Cell)
            .map_err(|error| SweepError::io("start", executable, &error))?;
        if let Some(file) = elsewhere {
            let _ = fs::remove_file(file);
        }
        let status = {
            use std::os::unix::process::ExitStatusExt;
            output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0))
        };
        let result: Option<serde_json::Value> = serde_json::from_slice(&output.stdout).ok();
        // Before its program has started, a command ends with one of these and has no result.
        if self.runs.is_some() && !(HOPELESS.contains(&status) && result.is_none()) {
            noted.command_began.store(true, Ordering::Relaxed);
        }
        let tear_down = |teardown: &String| self.shell("teardown", teardown, noted.children, Role::Teardown);
        let torn_down = self.teardown.as_ref().map_or(Ok(()), tear_down);
        if stop.load(Ordering::Relaxed) {
            partial.iter().for_each(|partial| drop(fs::remove_dir_all(&partial.around)));
            return Ok(None);
        }
        torn_down?;
        let tail = |bytes: &[u8]| {
            String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(MESSAGE_BYTES)..]).trim().to_owned()
        };
        if HOPELESS.contains(&status) && self.runs.is_none() {
            let words = arguments.join(" ");
            let told = tail(&output.stderr);
            let message = format!("{}: chronodisk {words} ended with status {status}: {told}", self.label);
            return Err(if status == HOST_LACKS { SweepError::Host(message) } else { SweepError::Usage(message) });
        }
        let figures = result.as_ref().filter(|_| status == 0).and_then(figures_of);
        let message = match (status, &figures) {
            (0, Some(_)) => None,
            (0, None) => Some("it printed no result".to_owned()),
            _ => Some(tail(&output.stderr)).filter(|told| !told.is_empty()).or_else(|| Some(ended_with(status))),
        };
        if let Some(Partial { around, run, kept }) = partial {
            if run.exists() {
                let _ = fs::remove_dir_all(&kept);
                fs::rename(&run, &kept).map_err(|error| SweepError::io("write", &kept, &error))?;
            }
            let _ = fs::remove_dir_all(&around);
        }
        Ok(Some(Done {
            key: self.key.clone(),
            executable: self.executable.digest.clone(),
            status: if figures.is_none() && status == 0 { 125 } else { status },
            figures: figures.unwrap_or_default(),
            message,
            begun_unix_s,
            host_s: begun.elapsed().as_secs_f64(),
            name: self.name.clone(),
            was_there: false,
        }))
    }

    /// Writes the profile that the sweep made, if its file is not there; the file is for one cell.
    fn profile_elsewhere(&self, arguments: &mut [String]) -> Result<Option<PathBuf>, SweepError> {
        let Some((at, text)) = &self.profile else { return Ok(None) };
        let Some(word) = arguments.get_mut(*at) else { return Ok(None) };
        if word.strip_prefix("--device=").is_some_and(|path| Path::new(path).exists()) {
            return Ok(None);
        }
        let file = std::env::temp_dir().join(format!("chronodisk-{}-{}.toml", self.name, std::process::id()));
        write(&file, text.as_bytes())?;
        *word = format!("--device={}", file.display());
        Ok(Some(file))
    }

    fn shell(&self, what: &str, command: &str, children: &Children, role: Role) -> Result<(), SweepError> {
        let output = children
            .output(Process::new("sh").args(["-c", command]), role)
            .map_err(|error| SweepError::Host(format!("can't start sh for {what}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        Err(SweepError::Usage(format!("{}: {what} failed ({}): {}", self.label, output.status, message.trim())))
    }
}

/// The note of a cell's process.
#[derive(Clone, Copy)]
struct Noted<'a> {
    /// Set once the user's program was started.
    command_began: &'a AtomicBool,
    children: &'a Children,
}

/// What is known of a cell that failed and said nothing.
fn ended_with(status: i32) -> String {
    match status {
        129..=192 => format!("signal {} ended it", status - 128),
        _ => format!("it ended with status {status}"),
    }
}

fn drop_caches() -> Result<(), SweepError> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3\n").map_err(|error| {
        SweepError::Host(format!(
            "drop_caches: /proc/sys/vm/drop_caches: {error}; expected the right to write it (root)"
        ))
    })
}
