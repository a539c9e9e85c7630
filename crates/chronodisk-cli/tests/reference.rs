//! The documents: `docs/commands.md` equals the commands' help, `docs/profile-keys.md` the keys of the profiles'
//! readers, and `docs/result-fields.md` the result structures of the sources. Each page is in the book, and each link
//! has a target.
//!
//! After a change of an option or a key, `CHRONODISK_REGENERATE=1 cargo test -p chronodisk-cli --test reference` writes
//! them anew; read the difference before you commit it.

#[path = "reference/fio.rs"]
mod fio;
#[path = "reference/keys.rs"]
mod keys;
#[path = "reference/limits.rs"]
mod limits;
#[path = "reference/results.rs"]
mod results;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = "# Commands

The help of each command. `chronodisk COMMAND -h` prints the options that are used most.
This page is generated; a test compares it with the command.
";

#[test]
fn the_reference_is_what_the_commands_say() {
    let mut page = HEAD.to_owned();
    describe(&[], &mut page);
    assert!(page.matches("\n## ").count() > 15, "{page}");
    compare("docs/commands.md", &page);
}

/// Compares a page that is generated with the file, or writes it.
fn compare(file: &str, page: &str) {
    let path = root().join(file);
    if std::env::var_os("CHRONODISK_REGENERATE").is_some() {
        std::fs::write(&path, page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = there.lines().zip(page.lines()).find(|(there, page)| there != page);
    assert!(there == page, "{file}: {differs:?}; CHRONODISK_REGENERATE=1 writes it anew");
}

#[test]
fn the_keys_of_profiles_are_what_their_readers_ask_for() {
    let page = keys::page();
    assert!(page.matches("\n## ").count() > 12, "{page}");
    compare("docs/profile-keys.md", &page);
}

#[test]
fn the_fields_of_results_are_those_of_the_sources() {
    let page = results::page(&root());
    assert!(page.matches("\n### ").count() > 25, "{page}");
    compare("docs/result-fields.md", &page);
}

#[test]
fn the_limits_of_files_are_those_of_their_readers() {
    compare("docs/file-limits.md", &limits::page());
}

#[test]
fn the_options_of_fio_are_those_of_the_table() {
    let page = fio::page();
    assert!(page.matches("\n| `").count() > 240, "{page}");
    compare("docs/fio-options.md", &page);
}

#[test]
fn each_page_is_in_the_book() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    let missing: Vec<_> = pages("docs")
        .into_iter()
        .filter(|page| {
            let name = page.file_name().unwrap().to_str().unwrap();
            name != "SUMMARY.md" && !summary.contains(&format!("]({name})"))
        })
        .collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md does not name {missing:?}");
}

#[test]
fn each_link_leads_somewhere() {
    let mut broken = Vec::new();
    let mut links = 0;
    for page in [pages("docs"), pages("."), notebooks()].concat() {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in links_in(&text) {
            let (file, section) = target.split_once('#').map_or((target, None), |(file, name)| (file, Some(name)));
            links += 1;
            let path = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let leads = match section {
                Some(section) => std::fs::read_to_string(&path).is_ok_and(|text| has_section(&text, section)),
                None => path.exists(),
            };
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(links > 50, "only {links} links were found");
    assert!(broken.is_empty(), "\n{}", broken.join("\n"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The pages in a folder of the repository.
fn pages(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect();
    pages.sort();
    pages
}

/// The notebooks of the experiments.
fn notebooks() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("experiments")).unwrap().map(|entry| entry.unwrap().path());
    let mut notebooks: Vec<_> = entries.map(|path| path.join("README.md")).filter(|page| page.exists()).collect();
    notebooks.sort();
    notebooks
}

/// The targets of a page's links within the repository.
fn links_in(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://") && !target.contains(char::is_whitespace))
}

/// Whether a page has a heading that a link names as GitHub and mdBook do.
fn has_section(text: &str, section: &str) -> bool {
    let name = |heading: &str| -> String {
        let kept = heading.chars().filter(|character| character.is_alphanumeric() || " -_".contains(*character));
        kept.collect::<String>().trim().to_lowercase().replace(' ', "-")
    };
    text.lines().filter(|line| line.starts_with('#')).any(|line| name(line.trim_start_matches('#').trim()) == section)
}

/// Adds a command's help, followed by its subcommands.
fn describe(command: &[&str], page: &mut String) {
    let help = help_of(command);
    write!(page, "\n## chronodisk{}\n\n```text\n{}\n```\n", words(command), help.trim_end()).unwrap();
    for name in commands_in(&help) {
        describe(&[command, &[name]].concat(), page);
    }
}

fn words(command: &[&str]) -> String {
    command.iter().fold(String::new(), |text, word| text + " " + word)
}

fn help_of(command: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(command).arg("--help").output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names below `Commands:`.
fn commands_in(help: &str) -> impl Iterator<Item = &str> {
    let section = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let lines = section.lines().take_while(|line| !line.is_empty());
    // Longer texts go on in deeper lines.
    let names = lines.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next())
}
