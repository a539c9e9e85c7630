//! Shell completions beyond the command line's definition: names of profiles and runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use chronodisk_device::Profile;
use chronodisk_run::{KeptRun, LAST, RunFolder};
use clap::Command;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};

/// Adds the completers to every command below `command`, by the names of their arguments.
pub fn with_completers(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut command = command.mut_args(|argument| match (argument.get_id().as_str(), argument.get_value_names()) {
        ("device" | "profile", _) => argument.add(ArgValueCompleter::new(profiles)),
        ("from" | "run" | "runs", _) => argument.add(ArgValueCompleter::new(run_names)),
        ("tags" | "tag", _) => argument.add(ArgValueCandidates::new(tags)),
        _ => argument,
    });
    for name in names {
        command = command.mut_subcommand(name, with_completers);
    }
    command
}

/// The built-in profiles, and files.
fn profiles(begun: &OsStr) -> Vec<CompletionCandidate> {
    let builtin = Profile::builtin().iter().map(|profile| {
        let about = profile.description.clone();
        CompletionCandidate::new(profile.name.clone()).help(Some(about.into()))
    });
    and_paths(begun, builtin, PathCompleter::file())
}

/// Names and ids of the kept runs, newest first, and directories.
fn run_names(begun: &OsStr) -> Vec<CompletionCandidate> {
    let kept = RunFolder::of_user().map(|folder| folder.runs()).unwrap_or_default();
    let last = (!kept.is_empty()).then(|| CompletionCandidate::new(LAST));
    let about = |kept: &KeptRun| kept.head.as_ref().map(|head| head.command.join(" ").into());
    let mut names = BTreeMap::new();
    for kept in &kept {
        names.extend(kept.labels().name.map(|name| (name, about(kept))));
    }
    let names = names.into_iter().map(|(name, about)| CompletionCandidate::new(name).help(about));
    let ids = kept.iter().rev().map(|kept| CompletionCandidate::new(kept.id.clone()).help(about(kept)));
    and_paths(begun, last.into_iter().chain(names).chain(ids), PathCompleter::dir())
}

fn tags() -> Vec<CompletionCandidate> {
    let kept = RunFolder::of_user().map(|folder| folder.runs()).unwrap_or_default();
    let tags: std::collections::BTreeSet<String> = kept.iter().flat_map(|kept| kept.labels().tags).collect();
    tags.into_iter().map(CompletionCandidate::new).collect()
}

fn and_paths(
    begun: &OsStr,
    names: impl Iterator<Item = CompletionCandidate>,
    paths: PathCompleter,
) -> Vec<CompletionCandidate> {
    let begins = begun.to_string_lossy();
    let names = names.filter(|name| name.get_value().to_string_lossy().starts_with(&*begins));
    names.chain(paths.complete(begun)).collect()
}
