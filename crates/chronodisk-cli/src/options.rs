//! The options of a command line, as recorded in a result.
//!
//! The parser's own list of flags is read, so that a new flag is recorded without a change here. A value with a
//! dimension is a number, and the name of its option ends in the unit: `capacity_bytes`, `sample_every_ns`. Other
//! values are as typed.

use std::any::TypeId;

use chronodisk_device::Speed;
use chronodisk_run::{RecordedOption, RecordedOptions, Reps};
use chronodisk_sim::Nanos;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::{Value, json};

/// The options of the innermost command of `matches`, such as `replay` of `chronodisk trace replay`.
pub fn recorded_options(command: &clap::Command, matches: &ArgMatches) -> RecordedOptions {
    if let Some((name, matches)) = matches.subcommand() {
        return recorded_options(command.find_subcommand(name).expect("the parser found it"), matches);
    }
    let record = |(flag, arg): (&str, &Arg)| {
        let given = matches.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
        let option = RecordedOption { name: recorded_name(flag, arg), value: recorded_value(arg, matches), given };
        (flag.to_owned(), option)
    };
    recorded_flags(command).map(record).collect()
}

/// Every flag of a command except help flags. CMD is not a flag: a result has it as `command`.
fn recorded_flags(command: &clap::Command) -> impl Iterator<Item = (&str, &Arg)> {
    let asks_for_help = |action: &ArgAction| {
        matches!(action, ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
    };
    command.get_arguments().filter(move |arg| !asks_for_help(arg.get_action())).filter_map(|arg| {
        let flag = arg.get_long()?;
        Some((flag, arg))
    })
}

fn recorded_name(flag: &str, arg: &Arg) -> String {
    let unit = match Kind::of(arg) {
        Kind::Bytes => "_bytes",
        Kind::Duration => "_ns",
        Kind::Seconds => "_s",
        Kind::Switch | Kind::Integer | Kind::Number | Kind::Factor | Kind::Repetitions | Kind::Text => "",
    };
    flag.replace('-', "_") + unit
}

/// Type of a flag's values.
#[derive(Clone, Copy)]
enum Kind {
    Switch,
    Bytes,
    Seconds,
    Integer,
    Number,
    Factor,
    Duration,
    Repetitions,
    Text,
}

impl Kind {
    fn of(arg: &Arg) -> Kind {
        let parsed = arg.get_value_parser().type_id();
        let is_named = |name: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|it| it == name));
        if matches!(arg.get_action(), ArgAction::SetTrue | ArgAction::SetFalse) {
            Kind::Switch
        } else if parsed == TypeId::of::<u64>() && is_named("SIZE") {
            Kind::Bytes
        } else if parsed == TypeId::of::<u64>() && is_named("SECONDS") {
            Kind::Seconds
        } else if [TypeId::of::<u64>(), TypeId::of::<u32>(), TypeId::of::<usize>()].iter().any(|id| parsed == *id) {
            Kind::Integer
        } else if parsed == TypeId::of::<f64>() {
            Kind::Number
        } else if parsed == TypeId::of::<Speed>() {
            Kind::Factor
        } else if parsed == TypeId::of::<Nanos>() {
            Kind::Duration
        } else if parsed == TypeId::of::<Reps>() {
            Kind::Repetitions
        } else {
            Kind::Text
        }
    }
}

fn recorded_value(arg: &Arg, matches: &ArgMatches) -> Value {
    let id = arg.get_id().as_str();
    let values = match Kind::of(arg) {
        Kind::Switch => return json!(matches.get_flag(id)),
        Kind::Bytes | Kind::Seconds => typed(id, matches, |value: &u64| json!(value)),
        // Of several types, all of them decimal.
        Kind::Integer => {
            text(id, matches, |value| value.parse::<u64>().map_or_else(|_| json!(value), |value| json!(value)))
        }
        Kind::Number => typed(id, matches, |value: &f64| json!(value)),
        Kind::Factor => typed(id, matches, |value: &Speed| json!(value.factor())),
        Kind::Duration => typed(id, matches, |value: &Nanos| json!(value.as_nanos())),
        Kind::Repetitions => typed(id, matches, |value: &Reps| match value {
            Reps::Fixed(count) => json!(count),
            Reps::Auto => json!("auto"),
        }),
        Kind::Text => text(id, matches, |value| json!(value)),
    };
    if matches!(arg.get_action(), ArgAction::Append) {
        return json!(values);
    }
    values.into_iter().next().unwrap_or(Value::Null)
}

/// The values as the user typed them.
fn text(id: &str, matches: &ArgMatches, record: impl Fn(&str) -> Value) -> Vec<Value> {
    matches.get_raw(id).into_iter().flatten().map(|value| record(&value.to_string_lossy())).collect()
}

fn typed<T: Clone + Send + Sync + 'static>(id: &str, matches: &ArgMatches, record: impl Fn(&T) -> Value) -> Vec<Value> {
    matches.get_many::<T>(id).into_iter().flatten().map(record).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    /// A command, its required flags, and the words after its flags.
    const COMMANDS: [(&str, &[&str], &[&str]); 3] = [
        ("run", &["--device", "null"], &["--", "true"]),
        ("mount", &["--device", "null"], &["--", "true"]),
        ("serve", &["--device", "null", "--nbd", "unix:socket"], &[]),
    ];

    /// Requirements of single flags.
    const COMPANIONS: [&[&str]; 8] = [
        &[],
        &["--squash"],
        &["--server=localhost:9000"],
        &["--shadow=disk"],
        &["--tls-certificates=folder"],
        &["--nbd=unix:socket"],
        &["--iscsi=3260", "--iscsi-user=name"],
        &["--iscsi=3260", "--iscsi-secret-file=secret"],
    ];

    /// Values for flags of text whose values are neither free nor listed by the parser.
    const VALUES: [(&str, &str); 12] = [
        ("arrival-skew", "20us"),
        ("completion-lead", "20us"),
        ("content", "text"),
        ("debug", "speculation=off"),
        ("iscsi", "127.0.0.1:3260"),
        ("metrics", "tcp:127.0.0.1:9"),
        ("nbd", "unix:other"),
        ("plot", "plot.svg"),
        ("server", "localhost:9000"),
        ("store", "ram"),
        ("tls-certificates", "certificates"),
        ("vhost-user", "socket"),
    ];

    /// A value for the flag, and its form in a result.
    fn sample(flag: &str, arg: &Arg) -> (Option<String>, Value) {
        let text = |text: &str| (Some(text.to_owned()), json!(text));
        match Kind::of(arg) {
            Kind::Switch => (None, json!(true)),
            Kind::Bytes => (Some("128MiB".to_owned()), json!(128 << 20)),
            Kind::Seconds | Kind::Integer => (Some("1".to_owned()), json!(1)),
            Kind::Number if flag.ends_with("speed") => (Some("2x".to_owned()), json!(2.0)),
            Kind::Number => (Some("0.5".to_owned()), json!(0.5)),
            Kind::Factor => (Some("2x".to_owned()), json!(2.0)),
            Kind::Duration => (Some("2ms".to_owned()), json!(2_000_000)),
            Kind::Repetitions => (Some("3".to_owned()), json!(3)),
            Kind::Text => match arg.get_possible_values().first() {
                Some(value) => text(value.get_name()),
                None => text(VALUES.iter().find(|(name, _)| *name == flag).map_or("value", |(_, value)| value)),
            },
        }
    }

    #[test]
    fn every_flag_of_a_command_that_keeps_a_result_is_recorded() {
        for (name, before, after) in COMMANDS {
            let command = Cli::command();
            let inner = command.find_subcommand(name).unwrap();
            for (flag, arg) in recorded_flags(inner) {
                let (value, expected) = sample(flag, arg);
                let typed = value.map_or(format!("--{flag}"), |value| format!("--{flag}={value}"));
                let fixed = before.chunks(2).filter(|pair| pair[0] != format!("--{flag}")).flatten().copied();
                let line = |companions: &'static [&'static str]| {
                    let line = ["chronodisk", name].into_iter().chain(fixed.clone()).chain(companions.iter().copied());
                    let line = line.map(str::to_owned).chain([typed.clone()]);
                    line.chain(after.iter().map(|word| (*word).to_owned())).collect::<Vec<_>>()
                };
                let tried = COMPANIONS.map(|companions| command.clone().try_get_matches_from(line(companions)));
                let matches = tried.into_iter().find_map(Result::ok);
                let matches = matches.unwrap_or_else(|| panic!("no companions make a line: {:?}", line(&[])));
                let options = recorded_options(&command, &matches);
                assert!(options.is_given(flag), "{name} --{flag}");
                let recorded = &options.given()[&recorded_name(flag, arg)];
                let several = json!([expected]);
                assert!(*recorded == expected || *recorded == several, "{name} --{flag}: {recorded}");
                assert!(options.all().len() > options.given().len());
            }
        }
    }

    #[test]
    fn defaults_are_recorded_and_not_given() {
        let command = Cli::command();
        let line = ["chronodisk", "run", "-d", "null", "--capacity", "1GiB", "--", "true"];
        let matches = command.clone().try_get_matches_from(line).unwrap();
        let mut options = recorded_options(&command, &matches);
        assert_eq!(options.all()["fs"], "ext4");
        assert_eq!(options.all()["memory_bytes"], 512 << 20);
        assert_eq!(options.all()["kernel"], Value::Null);
        let given = [("capacity_bytes".to_owned(), json!(1 << 30)), ("device".to_owned(), json!(["null"]))];
        assert_eq!(options.given(), BTreeMap::from(given));
        options.took_effect("cpu", json!("measured"));
        assert_eq!(options.all()["cpu"], "measured");
    }
}
