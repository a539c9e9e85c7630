//! The table of options against fio itself.

use std::process::Command;

use super::super::options::{OPTIONS, Treatment, find};
use super::super::{ENGINE_OPTIONS, FioJob};
use super::{error_in_job, one};

/// The options listed by `fio --cmdhelp` of fio 3.33, one name a line.
const LISTED: &str = include_str!("../testdata/options-of-fio-3.33.txt");

#[test]
fn every_option_that_fio_lists_is_in_the_table_and_no_other() {
    let in_table: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
    let hidden = ["softrandommap", "verifysort", "verifysort_nr", "flow_watermark"];
    let listed: Vec<&str> = LISTED.lines().collect();
    let missing: Vec<&&str> = listed.iter().filter(|name| !in_table.contains(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let added: Vec<&&str> = in_table.iter().filter(|name| !listed.contains(name) && !hidden.contains(name)).collect();
    assert!(added.is_empty(), "{added:?}");
    let mut names: Vec<&str> = OPTIONS
        .iter()
        .chain(ENGINE_OPTIONS)
        .flat_map(|option| option.aliases.iter().chain([&option.name]))
        .copied()
        .collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count, "a name is there twice");
}

/// Where this host's fio is another version, it may list others.
#[test]
fn the_options_of_the_fio_of_this_host_are_known() {
    let Ok(output) = Command::new("fio").arg("--cmdhelp").output() else {
        eprintln!("SKIPPED: this host has no fio");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = Command::new("fio").arg("--version").output().unwrap();
    if !String::from_utf8_lossy(&version.stdout).starts_with("fio-3.33") {
        eprintln!("SKIPPED: this host has another fio than 3.33");
        return;
    }
    let names: Vec<&str> = text.lines().filter_map(|line| Some(line.split_once(':')?.0.trim())).collect();
    assert!(names.len() > 200, "{}", names.len());
    assert_eq!(names, LISTED.lines().collect::<Vec<_>>());
}

#[test]
fn each_option_is_honoured_ignored_or_refused_by_name() {
    for option in OPTIONS.iter().chain(ENGINE_OPTIONS) {
        for name in option.aliases.iter().chain([&option.name]) {
            assert_eq!(find(name), Some(option));
            match option.treatment {
                Treatment::Ignored(_) => drop(one(&format!("{name}=17"))),
                Treatment::Refused(expected) => {
                    let found = error_in_job(&format!("{name}=17"));
                    assert_eq!(found, format!("4: {name}: 17; expected {expected}"));
                }
                // A value that none of them has.
                Treatment::Honoured(_) => {
                    let text = format!("[global]\ndirect=1\n[job]\n{name}=a:b?\n");
                    match FioJob::parse(&text) {
                        Ok(_) => assert!(["filename_format", "verify"].contains(&option.name), "{name}"),
                        Err(error) => assert_eq!(error.key, *name, "{error}"),
                    }
                }
            }
        }
    }
}
