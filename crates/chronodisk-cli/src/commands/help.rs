//! `chronodisk help`: the help of a command, as `--help` prints it.

use chronodisk_run::nearest;
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Prints the help of a command
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk help trace import")]
pub struct Arguments {
    /// Command to describe (default: the list of all commands)
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// Prints it; `root` is the whole command line.
pub fn execute(arguments: Arguments, root: clap::Command) -> Outcome {
    let mut command = root.clone();
    // Sets the full name of each command.
    command.build();
    for name in &arguments.command {
        let known: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
        let Some(found) = command.find_subcommand(name) else {
            let failure = Failure::usage(format!("no command '{name}' in `{}`", whole_name(&command)));
            return Err(match nearest(name, known.iter().map(String::as_str)) {
                Some(help) => failure.help(help),
                None if known.is_empty() => failure.help("it has no commands below it"),
                None => failure.help(format!("the commands are {}", known.join(", "))),
            });
        };
        command = found.clone();
    }
    // Via the command's own option, whose help is longer for some commands.
    let line = ["chronodisk"].into_iter().chain(arguments.command.iter().map(String::as_str)).chain(["--help"]);
    match root.try_get_matches_from(line) {
        Err(help) => output::data(&help.render().to_string())?,
        Ok(_) => unreachable!("--help is no wish to go on"),
    }
    Ok(status::FINE)
}

fn whole_name(command: &clap::Command) -> String {
    command.get_bin_name().unwrap_or(command.get_name()).to_owned()
}
