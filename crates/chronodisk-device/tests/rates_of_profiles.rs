//! All built-in profiles under plain and mixed loads: published figures, depth, bounds on waits, zero latency.
//!
//! Runs are short here (`Effort::Short`).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use chronodisk_device::Profile;
use chronodisk_device::rates::{Check, Effort, Summary, Verdict, check, slower_without_order, summarise};

fn checks() -> Vec<(Check, Summary)> {
    let (next, checks, builtin) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Profile::builtin());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(builtin) = builtin.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let profile = Profile::find(&builtin.name).unwrap();
                    let checked = check(&profile, Effort::Short).unwrap();
                    checks.lock().unwrap().push((checked, summarise(&profile).unwrap()));
                }
            });
        }
    });
    checks.into_inner().unwrap()
}

#[test]
fn every_profile_meets_what_was_published_of_its_device() {
    let (checks, summaries): (Vec<Check>, Vec<Summary>) = checks().into_iter().unzip();
    assert_eq!(checks.len(), Profile::builtin().len());
    the_listed_rates_are_these(checks.iter().map(|check| check.profile.as_str()).zip(&summaries).collect());
    let failed: Vec<String> = checks
        .iter()
        .filter(|check| check.verdict() == Verdict::Failed)
        .map(|check| format!("{}: {}", check.profile, check.failures.join("; ")))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    let referenced = checks.iter().filter(|check| check.verdict() == Verdict::Passed).count();
    assert!(referenced >= 15, "{referenced} profiles have published figures");
}

/// The listing shows rates measured in advance, so that it needs no time.
fn the_listed_rates_are_these(measured: Vec<(&str, &Summary)>) {
    let line = |name: &str| {
        let summary = measured.iter().find(|entry| entry.0 == name).unwrap().1;
        format!("{name},{}\n", summary.to_csv())
    };
    let title = "profile,sequential read B/s,sequential write B/s,random reads/s,random writes/s\n".to_owned();
    let lines = Profile::builtin().iter().map(|builtin| line(&builtin.name));
    let table: String = std::iter::once(title).chain(lines).collect();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/rates.csv");
    if std::env::var_os("CHRONODISK_REGENERATE").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap();
    let differ = kept.lines().zip(table.lines()).find(|(kept, now)| kept != now);
    assert!(kept == table, "profiles/rates.csv: {differ:?}; CHRONODISK_REGENERATE=1 writes it anew");
}

#[test]
fn zero_latency_access_is_slower_on_no_disk() {
    let mut compared = 0;
    for builtin in Profile::builtin() {
        let profile = Profile::find(&builtin.name).unwrap();
        let is_asked = |line: &&str| !line.starts_with("immediate-read = ") && !line.starts_with("immediate-write = ");
        let plain: String = profile.text().lines().filter(is_asked).map(|line| format!("{line}\n")).collect();
        let is_disk = profile.kind() == "disk";
        let Some((before, after)) = plain.split_once("\nqueue-depth = ").filter(|_| is_disk) else { continue };
        let keys = "immediate-read = true\nimmediate-write = true";
        let with = Profile::parse(&format!("{before}\n{keys}\nqueue-depth = {after}"), &builtin.name).unwrap();
        let without = Profile::parse(&plain, &builtin.name).unwrap();
        let slower = slower_without_order(&with, &without, Effort::Short).unwrap();
        assert!(slower.is_empty(), "{}: {}", builtin.name, slower.join("\n"));
        compared += 1;
    }
    assert!(compared >= 10, "{compared} profiles");
}

#[test]
fn few_profiles_are_allowed_more_than_the_usual_tolerance() {
    let profiles = Profile::builtin().iter().map(|builtin| Profile::find(&builtin.name).unwrap());
    let exceptions: Vec<String> = profiles
        .filter(|profile| profile.published().is_some_and(|published| published.contradicted_by.is_some()))
        .map(|profile| profile.name().to_owned())
        .collect();
    assert!(exceptions.len() <= 5, "{exceptions:?}");
}

#[test]
fn what_is_fitted_states_its_errors_on_what_it_has_not_seen() {
    for builtin in Profile::builtin() {
        let profile = Profile::find(&builtin.name).unwrap();
        let fitted = profile.text().contains("itted to the ") || profile.text().contains("# Fitted by");
        // The drives of measurements of disks were extracted from the drives, not fitted to sweeps.
        if fitted && matches!(profile.kind(), "ssd" | "memory") {
            assert!(!profile.held_out().is_empty(), "{} was fitted and states no held-out errors", profile.name());
        }
    }
}

#[test]
fn a_figure_that_is_not_met_fails_the_check() {
    let text = |rate: &str| {
        format!(
            "name = \"c\"\nkind = \"constant\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
             capacity = \"1 GiB\"\ntime = \"1 ms\"\n[published]\nsource = \"a sheet\"\n\
             rates = [{{ load = \"random-read\", size = \"4 KiB\", depth = 1, {rate} }}]\n"
        )
    };
    let verdict = |rate: &str| {
        let profile = Profile::parse(&text(rate), "c.toml").unwrap();
        let checked = check(&profile, Effort::Short).unwrap();
        (checked.verdict(), checked.failures)
    };
    assert_eq!(verdict("per-second = 1000").0, Verdict::Passed);
    assert_eq!(verdict("per-second = 880").0, Verdict::Passed, "within 15 %");
    let (failed, failures) = verdict("per-second = 800");
    assert_eq!(failed, Verdict::Failed);
    assert!(failures[0].contains("random-read 4 KiB, depth 1") && failures[0].contains("+25.0 %"), "{failures:?}");
    assert_eq!(verdict("rate = \"4.1 MB/s\"").0, Verdict::Passed);
    let both = Profile::parse(&text("per-second = 5, rate = \"1 MB/s\""), "c.toml").unwrap_err().to_string();
    assert!(both.contains("either `per-second` or `rate`"), "{both}");
}
