//! Recordings of programs of today, and their replay: nothing is missing, and no call has another outcome.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::support::{Chronodisk, long, text};

/// Slow enough for threads to wait for it while others go on.
const DEVICE: &str = "hp-c2247a";
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];

struct Program {
    name: &'static str,
    is_short: bool,
    on_each: bool,
    needs: Vec<&'static str>,
    script: &'static str,
}

fn programs() -> Vec<Program> {
    let lines = include_str!("programs/list.txt").lines().filter(|line| !line.starts_with('#'));
    let program = |line: &'static str| {
        let [first, needs, script] = line.split('\t').collect::<Vec<_>>().try_into().expect("three columns");
        let words: Vec<&str> = first.split(' ').collect();
        Program {
            name: words[0],
            is_short: words.contains(&"short"),
            on_each: words.contains(&"each"),
            needs: needs.split(' ').collect(),
            script,
        }
    };
    lines.map(program).collect()
}

/// Including programs that few users' PATH has: mkfs, and the servers of PostgreSQL.
fn search_path() -> OsString {
    let mut folders: Vec<PathBuf> =
        std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).chain(["/usr/sbin".into()]).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    std::env::join_paths(folders).unwrap()
}

/// The programs of the list that are installed here. The others are named.
fn installed(wanted: impl Fn(&Program) -> bool) -> Vec<Program> {
    let path = search_path();
    let is_here = |need: &str| match need.starts_with('/') {
        true => Path::new(need).exists(),
        false => std::env::split_paths(&path).any(|folder| folder.join(need).exists()),
    };
    let (here, missing): (Vec<_>, Vec<_>) =
        programs().into_iter().filter(wanted).partition(|program| program.needs.iter().all(|need| is_here(need)));
    for Program { name, needs, .. } in missing {
        println!("SKIPPED: {name} needs {}", needs.join(" and "));
    }
    here
}

/// A program of the folder `programs`, compiled.
pub fn compiled(chronodisk: &Chronodisk, name: &str) -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guest/programs").join(name).with_extension("c");
    let program = chronodisk.path(name);
    let made = Command::new("cc").args(["-w", "-O1", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(made.success());
    program.to_str().unwrap().to_owned()
}

/// Records a command and replays it on the same file system. Returns both results.
fn record_and_replay(chronodisk: &Chronodisk, what: &str, file_system: &str, command: &[&str]) -> [Value; 2] {
    let file = chronodisk.path("calls");
    let file = file.to_str().unwrap();
    let run = |arguments: &[&str]| {
        let common = ["--device", DEVICE, "--fs", file_system, "--json"];
        let (before, after) =
            arguments.split_at(arguments.iter().position(|word| *word == "--").unwrap_or(arguments.len()));
        let mut call = chronodisk.command(&[before, &common, after].concat());
        let output = call.env("PATH", search_path()).output().unwrap();
        assert!(output.status.success(), "{what} on {file_system}: {}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let recorded: Value = run(&[&["run", "--record-calls", file, "--"][..], command].concat());
    let replayed: Value = run(&["trace", "replay", file]);
    let replay = &replayed["replay"];
    let outcome = ["skipped", "differed", "waits_abandoned"].map(|key| replay[key].as_u64());
    let warnings = &replayed["warnings"];
    assert_eq!(outcome, [Some(0); 3], "{what} on {file_system}: {replay} {warnings}");
    [recorded, replayed]
}

fn bytes_written(result: &Value) -> u64 {
    result["reps"][0]["summary"]["by_op"]["write"]["bytes"].as_u64().unwrap_or(0)
}

fn in_folder(program: &Program) -> String {
    let Program { name, script, .. } = program;
    format!("(mkdir -p /mnt/{name} && cd /mnt/{name} && {{ {script}\n}}) >/dev/null || failed=\"$failed {name}\"\n")
}

/// The end of a script says which of its programs failed.
const END: &str = "[ -z \"$failed\" ] || { echo \"failed:$failed\" >&2; exit 1; }";

/// Programs one after the other, and those of this folder that share descriptors and make rare calls.
fn short_form(file_system: &str) {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let programs = installed(|program| program.is_short && (program.on_each || file_system == "ext4"));
    let (threads, calls) = (compiled(&chronodisk, "threads"), compiled(&chronodisk, "calls"));
    let alone = programs.iter().map(in_folder).collect::<String>();
    let alone = format!("{alone}mkdir /mnt/own && {calls} /mnt/own || failed=\"$failed calls\"; sync\n{END}");
    is_replayed(&chronodisk, file_system, &alone, 10);
    // btrfs joins syncs of several threads in one commit of its log. A replay of 100 threads that sync at once joins
    // more of them than the program did.
    let threads = format!("mkdir /mnt/own && {threads} /mnt/own && sync");
    is_replayed(&chronodisk, file_system, &threads, if file_system == "btrfs" { 25 } else { 10 });
}

fn is_replayed(chronodisk: &Chronodisk, file_system: &str, script: &str, tolerance_percent: u64) {
    let [recorded, replayed] = record_and_replay(chronodisk, "the short form", file_system, &["sh", "-c", script]);
    let (before, after) = (bytes_written(&recorded), bytes_written(&replayed));
    assert!(
        before > 1 << 20 && after.abs_diff(before) * 100 < before * tolerance_percent,
        "{before} bytes were {after} in the replay of {script}"
    );
}

#[test]
fn programs_are_replayed_on_ext4() {
    short_form("ext4");
}

#[test]
fn programs_are_replayed_on_xfs() {
    short_form("xfs");
}

#[test]
fn programs_are_replayed_on_btrfs() {
    short_form("btrfs");
}

/// The path of the command is in the launcher's memory, and the paths of its calls are constants of the program.
#[test]
fn a_command_is_recorded_without_a_shell() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let calls = compiled(&chronodisk, "calls");
    record_and_replay(&chronodisk, "calls", "ext4", &[&calls, "/mnt"]);
    // This program makes no call on the device.
    record_and_replay(&chronodisk, "true", "ext4", &["/usr/bin/true"]);
}

/// Each of the list alone, on each file system, with and without a shell.
#[test]
fn each_program_of_the_list_is_replayed_on_each_file_system() {
    if !long() {
        return println!("left to the long form");
    }
    let Some(chronodisk) = Chronodisk::new() else { return };
    assert!(programs().len() >= 60);
    for file_system in FILE_SYSTEMS {
        for program in &installed(|_| true) {
            println!("{} on {file_system}", program.name);
            let script = in_folder(program) + END;
            record_and_replay(&chronodisk, program.name, file_system, &["sh", "-c", &script]);
            let words: Vec<&str> = program.script.split(' ').collect();
            if words[0].starts_with('/') {
                record_and_replay(&chronodisk, program.name, file_system, &words);
            }
        }
    }
}
