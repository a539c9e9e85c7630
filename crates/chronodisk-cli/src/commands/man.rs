//! `chronodisk man`: the manual pages, one per command, for packagers.

use std::path::PathBuf;

use clap::Args;
use clap_mangen::Man;

use crate::failure::{Failure, Outcome, status};
use crate::since::since;

/// Writes the manual pages to a directory
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk man ~/.local/share/man/man1")]
pub struct Arguments {
    /// Directory of the pages, created if needed
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Writes one page per command of `root`, the whole command line.
pub fn execute(arguments: Arguments, root: clap::Command) -> Outcome {
    let directory = &arguments.directory;
    let cannot = |error| Failure::host(format!("can't write the manual pages to {}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    for man in pages(root) {
        let mut text = Vec::new();
        man.render(&mut text).map_err(cannot)?;
        if let Some(version) = since(&page_name(&man)) {
            text.extend_from_slice(format!(".SH HISTORY\nSince version {version}.\n").as_bytes());
        }
        std::fs::write(directory.join(man.get_filename()), text).map_err(cannot)?;
    }
    Ok(status::FINE)
}

/// The manual pages of a command and of those below it.
fn pages(root: clap::Command) -> Vec<Man> {
    let mut root = root.disable_help_subcommand(true);
    root.build();
    let mut commands = vec![root];
    let mut next = 0;
    while next < commands.len() {
        let below = commands[next].get_subcommands().filter(|command| !command.is_hide_set()).cloned();
        commands.extend(below.collect::<Vec<_>>());
        next += 1;
    }
    commands.into_iter().map(Man::new).collect()
}

/// Name of a page without its section.
fn page_name(man: &Man) -> String {
    man.get_filename().trim_end_matches(".1").to_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::since::entries;

    fn number(version: &str) -> Vec<u32> {
        version.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("{version} is no version"))).collect()
    }

    #[test]
    fn each_page_says_since_when_its_command_exists() {
        let found: BTreeSet<String> = pages(crate::cli::command()).iter().map(page_name).collect();
        let listed: Vec<(&str, &str)> = entries().collect();
        let names: BTreeSet<String> = listed.iter().map(|(_, page)| (*page).to_owned()).collect();
        let differences: Vec<&String> = found.symmetric_difference(&names).collect();
        assert!(differences.is_empty(), "src/since.rs and the commands differ in {differences:?}");
        assert_eq!(listed.len(), names.len(), "a command has two versions");
        let changes = include_str!("../../../../CHANGELOG.md");
        for (version, page) in listed {
            assert!(number(version) <= number(env!("CARGO_PKG_VERSION")), "{page} is of a later version, {version}");
            assert!(changes.lines().any(|line| line.starts_with(&format!("## {version}"))), "{version} has no changes");
        }
    }
}
