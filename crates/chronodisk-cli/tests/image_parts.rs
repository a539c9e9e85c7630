//! Parts of an image without the others: every command refuses them by name and changes nothing.

#[path = "common/command.rs"]
mod command;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pretty_assertions::assert_eq;

/// Files of the image of one device, and of several.
const ONE: [&str; 3] = ["e.img", "e.img.sums", "e.img.map"];
const SEVERAL: [&str; 4] = ["e.img", "e.img.sums", "e.img.0.map", "e.img.1.map"];

const SERVE: [&str; 10] = ["serve", "-d", "null", "--capacity", "4MiB", "--nbd", "unix:s", "--run", "true", "--quiet"];
const RUN: [&str; 4] = ["run", "--capacity", "4MiB", "--quiet"];

/// `chronodisk ARGUMENTS` in a folder, whose results go elsewhere.
fn chronodisk(folder: &Path, results: &Path, arguments: &[&str]) -> Output {
    let mut command = command::chronodisk(arguments);
    command.current_dir(folder).env("XDG_STATE_HOME", results);
    command.output().unwrap()
}

/// The files of a folder, with their bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

/// An image that has data: `e.img` of a served device, or of the two devices of a run.
fn image(files: &[&str], make: &[&str], results: &Path) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let made = chronodisk(folder.path(), results, make);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let whole = contents(folder.path());
    assert!(files.iter().all(|name| whole.contains_key(*name)), "{:?}", whole.keys());
    whole.into_iter().filter(|(name, _)| files.contains(&name.as_str())).collect()
}

/// Each call on each subset of the files but all and none.
fn refuse_subsets(files: &[&str], whole: &BTreeMap<String, Vec<u8>>, calls: &[Vec<&str>], results: &Path) {
    for subset in 1..(1_u32 << files.len()) - 1 {
        let is_there = |name: &str| {
            let index = files.iter().position(|file| *file == name).expect("a file of the image");
            subset >> index & 1 == 1
        };
        let parts: BTreeMap<String, Vec<u8>> = whole
            .iter()
            .filter(|(name, _)| is_there(name))
            .map(|(name, bytes)| (name.clone(), bytes.clone()))
            .collect();
        let missing: Vec<&str> = files.iter().copied().filter(|name| !is_there(name)).collect();
        for call in calls {
            let repairs = call[..2] == ["image", "repair"];
            if missing == ["e.img.sums"] && repairs {
                continue;
            }
            let folder = tempfile::tempdir().unwrap();
            parts.iter().for_each(|(name, bytes)| fs::write(folder.path().join(name), bytes).unwrap());
            let output = chronodisk(folder.path(), results, call);
            let errors = String::from_utf8_lossy(&output.stderr).replace(['\n', '│'], " ");
            let case = format!("{call:?} with {:?}: {:?} {errors}", parts.keys(), output.status.code());
            assert!(matches!(output.status.code(), Some(1..=3)), "{case}");
            assert_eq!(contents(folder.path()), parts, "{case}");
            let is_squashed = call[0] == "image" || call.iter().any(|word| word.starts_with("--squash"));
            // A file that is there is another device's to `--store` without --squash, or is checked without checksums.
            let image_is_enough = is_there("e.img") && !is_squashed || missing == ["e.img.sums"] && call[1] == "check";
            let named = if is_there("e.img") { missing[missing.len() - 1] } else { "e.img" };
            assert!(image_is_enough || errors.contains(named), "{case}");
            assert!(image_is_enough || errors.contains("missing"), "{case}");
        }
    }
}

#[test]
fn every_part_of_a_served_devices_image_is_refused_by_every_command() {
    let results = tempfile::tempdir().unwrap();
    let write = "qemu-io -f raw -c 'write -P 7 0 1M' nbd+unix:///?socket=s";
    let has_client = Command::new("qemu-io").arg("--version").output().is_ok_and(|output| output.status.success());
    let make = [
        &SERVE[..7],
        &["--run", if has_client { write } else { "true" }, "--quiet"],
        &["--squash=exact"],
        &["--store", "e.img"],
    ]
    .concat();
    let whole = image(&ONE, &make, results.path());
    let mut calls: Vec<Vec<&str>> = Vec::new();
    for squash in ["--squash=exact", "--squash"] {
        calls.push([&SERVE[..], &[squash, "--store", "e.img"]].concat());
    }
    calls.push([&SERVE[..], &["--store", "e.img"]].concat());
    calls.push([&SERVE[..], &["--store", "overflow:e.img"]].concat());
    for command in ["info", "check", "repair", "upgrade"] {
        calls.push(vec!["image", command, "e.img"]);
    }
    refuse_subsets(&ONE, &whole, &calls, results.path());
}

#[test]
fn every_part_of_a_runs_image_is_refused_by_every_run() {
    if !command::has_guest() {
        return;
    }
    let results = tempfile::tempdir().unwrap();
    let two = ["-d", "null", "-d", "null", "--fs", "none", "--squash=exact", "--store", "e.img", "--", "true"];
    let whole = image(&SEVERAL, &[&RUN[..], &two].concat(), results.path());
    let calls = vec![
        [&RUN[..], &two].concat(),
        [&RUN[..], &["-d", "null", "--fs", "none", "--squash=exact", "--store", "e.img", "--", "true"]].concat(),
        [&RUN[..], &["-d", "null", "--fs", "none", "--store", "e.img", "--", "true"]].concat(),
        vec!["image", "check", "e.img"],
        vec!["image", "info", "e.img"],
    ];
    refuse_subsets(&SEVERAL, &whole, &calls, results.path());
}
