//! The commands of the guides: the command line takes all of them, and those that need no more than a guest and some
//! seconds do what their page says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::pages::{Shown, block_of, root, shown};
use super::support::{Chronodisk, die_with_the_test, long, text};

/// Parts of commands that are not run here, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("--from last --only 12", "names a failing state of the reader"),
    ("--resume last", "needs checks that were ended; tests/guest/crash.rs"),
    ("kernel build", "minutes; tests/guest/exact.rs uses what it makes"),
    ("kernel install", "needs an archive; tests/kernel.rs makes and installs one"),
    ("calibrate", "minutes; tests/guest/calibration.rs runs it with few repetitions"),
    ("--clock exact", "needs the exact kernel; tests/guest/exact.rs"),
    ("--cpus", "needs the processors kernel; tests/guest/processors.rs"),
    ("chronodisk mount", "needs root; tests/native.rs"),
    ("chronodisk whatif", "needs root; tests/whatif.rs"),
    ("--attach", "needs root; tests/native.rs"),
    ("--shadow /dev/", "needs a disk; tests/serve.rs has a file"),
    ("--tls-certificates", "needs certificates; tests/serve.rs makes some"),
    ("--vhost-user", "until a machine connects; tests/virtual_machine.rs"),
    ("--nbd 10809", "until Ctrl-C"),
    ("--iscsi ", "needs an initiator, or until Ctrl-C; tests/serve.rs"),
    ("--nbd unix:disk.sock #", "until Ctrl-C"),
    ("--nbd unix:drive.sock", "until Ctrl-C"),
    ("--nbd unix:/tmp/memory.sock", "until Ctrl-C; tests/serve/far_memory.rs"),
    ("serve --device first-disk --nbd unix:disk.sock", "until Ctrl-C"),
    ("emulator-server", "until Ctrl-C; tests/elsewhere.rs"),
    ("--server ", "needs an emulator server; tests/elsewhere.rs"),
    ("devices check", "minutes; `make devices-check`"),
    ("/usr/src/thing", "needs a source tree"),
    ("devices import", "needs a file of the DiskSim distribution; tests/cmd has small ones"),
    ("chronodisk validate", "needs a trace of a drive; tests/validate.rs"),
    ("chronodisk fit", "needs a sweep of a drive; tests/cmd has small ones"),
    ("usr_0", "needs a trace of the MSR collection; tests/block_traces.rs"),
    ("battery-backed-ram", "the page makes this profile"),
    ("age ", "minutes for a drive of this size; tests/cmd ages a small one"),
    ("aged.state", "needs the state of the command before"),
    ("qlc-client", "writes 37 GB; cargo bench has it"),
    ("exec:./mymodel.py", "the page makes this model; tests/elsewhere.rs"),
    ("exec:./model.py", "needs a model; tests/elsewhere.rs"),
    ("trace import --journal", "needs a journal that a kill has left; tests/record.rs"),
    ("trace import --strace", "needs strace; tests/record.rs"),
    ("trace snapshot /dev/", "needs a disk; tests/guest/call_traces.rs"),
    ("project.snapshot", "needs the snapshot of the command before"),
    ("trace replay make.calls", "needs the trace of the command before"),
    ("users.calls", "needs the trace of 20 users; tests/guest/call_traces.rs"),
    ("make -C /mnt/project", "needs a project on the device"),
    ("--store disk.img", "copies all of /usr/include; tests/guest/stores.rs"),
    ("cp -r /usr/include", "as long as this host has headers; the demo"),
    ("--root-files /usr/lib/python3.11", "needs that version of Python; tests/guest/root.rs"),
    ("depths.toml", "the page has the file; tests/sweep.rs"),
    ("--device first-disk --device first-disk", "needs mdadm or mkfs.btrfs; tests/guest/md.rs and file_systems.rs"),
    ("io-pattern", "five repetitions each; tests/guest/regression.rs"),
    ("io-baseline.json", "a file that the user commits; tests/guest/regression.rs"),
    ("make -C /mnt check", "needs a project on the device"),
    ("verify RUN", "RUN stands for a run of the reader's"),
    ("compare BASELINE", "BASELINE stands for a run of the reader's"),
    ("report RUN", "RUN stands for a run of the reader's"),
    ("compare RUN", "RUN stands for a run of the reader's"),
    ("-- CMD", "CMD stands for a program of the reader's"),
    ("disk.image", "needs an image; tests/image.rs"),
    ("nbdcopy", "needs a disk image of the user's"),
    ("qemu", "needs a machine's image; tests/virtual_machine.rs"),
    ("--capacity 100TB", "minutes; tests/guest/squash.rs makes a smaller one"),
    ("du -s /mnt", "a file system of 10 TiB takes a minute; tests/guest/squash.rs"),
];

/// Files used by the pages: a page with several commands has its own.
const FILES: &[(&str, &str)] = &[
    ("job.fio", "[job]\nrw=randwrite\nbs=4k\nsize=256k\nfilename=/mnt/file\n"),
    ("my-experiment", "#!/bin/sh\nls /dev\n"),
    ("big.txt", "many words\n"),
    ("interface_extensions.py", include_str!("../../../../python/examples/interface_extensions.py")),
    (
        "commits.sh",
        "{ echo 'CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER);'\n\
         for id in $(seq 20); do echo \"INSERT INTO account VALUES ($id, 100);\"; done; } | sqlite3 /mnt/bank.db\n",
    ),
    (
        "database.toml",
        "command = 'run'\nseeds = 1\n[options]\nfs = 'ext4'\ncapacity = '4GB'\ncmd = 'sh commits.sh'\n\
         [axes]\ndevice = ['cheetah-9lp', 'nearline-20tb', 'sd-card-a1', 'wd-zn540', 'intel-p3700']\n",
    ),
    (
        "my-array.toml",
        "name = 'my-array'\nkind = 'array'\ndescription = 'three disks'\nsource = 'a test'\n\
         validation = 'unvalidated'\nlevel = 'raid5'\nchunk = '64 KiB'\n\
         members = ['first-disk', 'first-disk', 'first-disk']\n",
    ),
];

/// Scripts that stand on a page, with their name in the first line.
const SCRIPTS: &[(&str, &str)] = &[
    ("slow-disk.md", "pgbench.sh"),
    ("database-against-power-cuts.md", "bank.sh"),
    ("database-against-power-cuts.md", "every-commit.sh"),
];

/// Runs that a page takes for granted.
const BEFORE: &[(&str, &str)] = &[
    ("block-traces.md", "chronodisk run -d null --memory 128MiB -- sh -c 'echo 1 >/mnt/file; sync'"),
    ("keeping-runs.md", "chronodisk run -d null --memory 128MiB --name before --tag nightly -- sync"),
    ("keeping-runs.md", "chronodisk run -d null --memory 128MiB --name after --tag nightly -- sync"),
];

/// Pages whose commands take so long together that only `make test-long` runs them: sweeps of five devices, file
/// systems of a terabyte, and forty megabytes of random bytes. tests/guest/faults.rs has smaller ones.
const LONG_PAGES: &[&str] = &["database-on-five-devices.md", "hundred-terabytes.md", "file-systems-on-bad-sectors.md"];

/// Parts of commands that take minutes: only `make test-long` runs them.
const LONG_COMMANDS: &[&str] = &["--reps 5 -- fio job.fio", "-- sh pgbench.sh"];

#[test]
fn the_command_line_takes_every_command_of_the_documentation() {
    let all = shown();
    assert!(all.len() > 80, "{} commands", all.len());
    let refused: Vec<String> = all.iter().filter_map(refusal).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// Why the parser refuses it, asked for help instead of running: what stands before is parsed first.
fn refusal(shown: &Shown) -> Option<String> {
    let is_program = |word: &&String| *word != "--" && *word != "...";
    let words: Vec<&String> = shown.words.iter().take_while(is_program).filter(|word| *word != "[--json]").collect();
    if words.iter().any(|word| word.starts_with('[')) {
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    let output = command.args(&words).arg("--help").stdin(Stdio::null()).output().unwrap();
    (!output.status.success()).then(|| format!("{}\n{}", shown.place(), text(&output.stderr)))
}

#[test]
fn the_commands_of_the_guides_run() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let mut by_page: BTreeMap<String, Vec<Shown>> = BTreeMap::new();
    for command in shown() {
        by_page.entry(command.page.clone()).or_default().push(command);
    }
    for page in LONG_PAGES {
        assert!(by_page.contains_key(*page), "{page} shows no command");
        if !long() {
            by_page.remove(*page);
        }
    }
    let (mut count, mut ran) = (0, BTreeSet::new());
    for (page, commands) in by_page {
        let directory = chronodisk.path(&page);
        prepare(&directory);
        for (_, text) in BEFORE.iter().filter(|(of, _)| *of == page) {
            let (page, text) = (page.clone(), (*text).to_owned());
            run(&chronodisk, &directory, &Shown { page, line: 0, text, words: Vec::new() });
        }
        for command in commands {
            let contains = |part: &&str| command.text.contains(*part);
            let is_left_out = NOT_RUN.iter().any(|(part, _)| contains(part));
            // The first page shows a power cut as its own page does.
            let is_known = command.text.contains(" crash ") && !ran.insert(command.text.clone());
            if !is_left_out && !is_known && (long() || !LONG_COMMANDS.iter().any(contains)) {
                run(&chronodisk, &directory, &command);
                count += 1;
            }
        }
    }
    assert!(count >= 15, "{count} commands ran");
}

#[test]
fn nothing_is_left_out_for_a_reason_that_is_gone() {
    let all = shown();
    let parts = NOT_RUN.iter().map(|(part, _)| part).chain(LONG_COMMANDS);
    let unused: Vec<&&str> = parts.filter(|part| !all.iter().any(|it| it.text.contains(**part))).collect();
    assert!(unused.is_empty(), "no command of the documentation contains {unused:?}");
}

fn prepare(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for (name, content) in FILES {
        let path = directory.join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (page, script) in SCRIPTS {
        fs::write(directory.join(script), block_of(page, &format!("# {script}"))).unwrap();
    }
}

/// Limit of a command's time, in seconds: several times the longest command's time on a busy host.
const SECONDS_MAX: &str = "600";

/// Runs it as its reader would, by a shell.
fn run(chronodisk: &Chronodisk, directory: &Path, shown: &Shown) {
    let executable = Path::new(env!("CARGO_BIN_EXE_chronodisk")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    // A page that shows a command without an end must name it in `NOT_RUN`.
    let mut command = Command::new("timeout");
    command.args([SECONDS_MAX, "sh", "-c", &shown.text]).current_dir(directory).stdin(Stdio::null());
    command.env("PATH", format!("{}:{path}", executable.display())).env("XDG_STATE_HOME", directory.join("state"));
    command.env("CHRONODISK_CALIBRATION", chronodisk.calibration()).env("CHRONODISK_ROOT", root());
    die_with_the_test(&mut command);
    let begun = Instant::now();
    let output = command.output().unwrap();
    println!("{:5.1} s  {}", begun.elapsed().as_secs_f64(), shown.place());
    // A comparison may find that two runs differ, which is no error.
    assert_ne!(output.status.code(), Some(124), "{}\nran for {SECONDS_MAX} s", shown.place());
    let is_comparison = shown.text.contains("--fail-if") && output.status.code() == Some(1);
    assert!(output.status.success() || is_comparison, "{}\n{}", shown.place(), text(&output.stderr));
}
