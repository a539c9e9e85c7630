//! Options of a guest's run and the plans that they give. No guest is started.

use std::ffi::OsString;
use std::path::PathBuf;

use chronodisk_guest::{ExactCpu, FileSystem, GuestTime, RunOptions, StoppingCpu, StoreChoice};
use chronodisk_run::{Caller, Failure, GuestArguments, RecordedOptions, RunDirectory, RunPlan, Work, status};
use clap::Parser;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    guest: GuestArguments,
}

/// The values in a plan's results that follow other options or this host.
const DECIDED: [&str; 3] = ["cpu", "kernel-scale", "ram-budget"];

fn resolve(words: &[&str], check: impl FnOnce(&RunPlan<'_>)) -> Result<(), Failure> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("run");
    let line = Line::parse_from(
        ["run", "--device=null", "--output"]
            .iter()
            .map(OsString::from)
            .chain([output.clone().into_os_string()].into_iter().chain(words.iter().map(OsString::from))),
    );
    let recorded: RecordedOptions = DECIDED
        .map(|flag| {
            let option = chronodisk_run::RecordedOption {
                name: flag.replace('-', "_"),
                value: serde_json::Value::Null,
                given: false,
            };
            (flag.to_owned(), option)
        })
        .into_iter()
        .collect();
    let caller =
        Caller { commit: None, command_line: vec!["run".into()], executable: PathBuf::from("/usr/bin/chronodisk") };
    let work = Work::Command(vec!["true".into()], None);
    let plan = RunPlan::resolve(&line.guest, work, recorded, caller)?;
    assert_eq!(plan.directory, RunDirectory::at(&output));
    assert!(!output.exists(), "a plan makes nothing");
    check(&plan);
    Ok(())
}

fn options(words: &[&str], check: impl FnOnce(&RunOptions)) {
    resolve(words, |plan| check(&plan.options)).unwrap();
}

#[test]
fn defaults_follow_the_other_options() {
    options(&[], |options| {
        assert_eq!(options.executable, PathBuf::from("/usr/bin/chronodisk"));
        assert_eq!((options.file_system, options.settle, options.seed), (FileSystem::Ext4, true, 1));
        assert!(matches!(options.time, GuestTime::Stopping { cpu: StoppingCpu::Measured(_), .. }));
        assert!(matches!(options.devices[0].store, StoreChoice::Ram { budget_bytes: 1.. }));
    });
    options(&["--clock=exact", "--fs=none"], |options| {
        assert!(matches!(options.time, GuestTime::Exact { cpu: ExactCpu::Zero, .. }));
        assert!(!options.settle, "there is no file system to wait for");
    });
    options(&["--device=null", "--ram-budget=2GiB"], |options| {
        let budgets: Vec<u64> = options
            .devices
            .iter()
            .map(|device| match device.store {
                StoreChoice::Ram { budget_bytes } => budget_bytes,
                _ => panic!("{:?}", device.store),
            })
            .collect();
        assert_eq!(budgets, [1 << 30, 1 << 30], "devices share the memory");
    });
}

#[test]
fn zoned_devices_are_told_apart() {
    options(&["--device=wd-zn540-zones", "--fs=f2fs"], |options| {
        assert_eq!(options.devices.iter().map(|device| device.zoned).collect::<Vec<_>>(), [false, true]);
    });
}

#[test]
fn options_that_contradict_each_other_are_refused() {
    for (words, expected) in [
        (&["--cpu=zero"][..], "--cpu zero needs --clock exact"),
        (&["--clock=exact", "--cpu=wall"], "--cpu wall can't be used with --clock exact"),
        (&["--clock=real", "--idle=host"], "--idle can't be used with --clock real"),
        (&["--clock=real", "--sample-every=1s"], "--sample-every can't be used with --clock real"),
        (&["--cpu=wall", "--kernel-scale=0.5"], "--kernel-scale needs --cpu measured"),
        (&["--mount=/"], "expected an absolute path other than /"),
        (&["--fs=none", "--mkfs-options=-q"], "can't be used with --fs none"),
        (&["--fs=existing"], "--store ram begins empty"),
        (&["--fs=none", "--overwrite"], "it takes no --overwrite"),
        (&["--root-files=/bin/sh"], "--root-files needs --root device"),
        (&["--root=device", "--host-writes"], "--root device can't be used with --host-writes"),
        (&["--root=device", "--squash"], "--root device can't be used with --squash"),
        (&["--durable"], "--durable needs a file"),
        (&["--fault=kind=slow"], "kind=slow: `factor` is missing"),
        (&["--device=wd-zn540-zones", "--fault=kind=transient,every=2"], "requests to a zoned device can't fail"),
        (&["--store=file", "--ram-budget=1GiB"], "--ram-budget needs --store ram"),
        (&["--device=null", "--record-store=file"], "--record-store works with one device only"),
        (&["--module=/no/such/module"], "--module /no/such/module"),
        (&["--state=/no/such/state"], "/no/such/state"),
        (&["--fs=zonefs"], "--fs zonefs needs a zoned device"),
        (&["--fs=zonefs", "--device=wd-zn540-zones"], "the first, null, is not zoned"),
        (
            &["--device=wd-zn540-zones", "--clock=exact"],
            "--clock exact, whose kernel knows no zones, can't be used with",
        ),
        (&["--device=wd-zn540-zones", "--squash"], "--squash can't be used with wd-zn540-zones, a zoned device"),
        (
            &["--device=wd-zn540-zones", "--store=file", "--reps=2"],
            "--reps can't be used with wd-zn540-zones in a file",
        ),
    ] {
        let failure = resolve(words, |_| panic!("{words:?} were accepted")).unwrap_err();
        assert!(failure.to_string().contains(expected), "{words:?}: {failure}");
        assert_eq!(failure.status(), status::USAGE, "{words:?}");
    }
}
