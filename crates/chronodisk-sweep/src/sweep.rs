//! The file that describes a sweep.

use std::collections::BTreeMap;
use std::fmt;

use crate::SweepError;
use crate::cell::{Cell, Value};

/// A sweep's file, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Name of the file, for messages.
    pub label: String,
    /// Command of each cell.
    pub command: Command,
    /// Options common to all cells.
    pub options: BTreeMap<String, Value>,
    /// Options that vary, each with its values, by name.
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Each combination runs with the seeds from 1 to this.
    pub seeds: u64,
    /// Shell command on this host before each cell.
    pub setup: Option<String>,
    /// Shell command on this host after each cell.
    pub teardown: Option<String>,
    /// Empties the host's page cache before each cell.
    pub drop_caches: bool,
    /// The lines of the keys in the file, by path with dots.
    lines: BTreeMap<String, usize>,
}

/// A command that cells run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// `chronodisk simulate`.
    Simulate,
    /// `chronodisk run`.
    Run,
    /// `chronodisk mount`.
    Mount,
    /// `chronodisk trace replay`.
    Replay,
}

/// Cells at most.
const CELLS_MAX: u64 = 1_000_000;
/// Options that the sweep itself sets.
const OWN: [(&str, &str); 4] = [
    ("seed", "seeds = N does each cell with N seeds"),
    ("reps", "seeds = N does each cell with N seeds"),
    ("json", "the sweep reads each cell's figures itself"),
    ("output", "results are written to the directory of the sweep"),
];

impl Command {
    /// All commands.
    pub const ALL: [Command; 4] = [Command::Simulate, Command::Run, Command::Mount, Command::Replay];

    /// Name of the command in a sweep's file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Command::Simulate => "simulate",
            Command::Run => "run",
            Command::Mount => "mount",
            Command::Replay => "replay",
        }
    }

    /// The words of the command line.
    #[must_use]
    pub const fn words(self) -> &'static [&'static str] {
        match self {
            Command::Simulate => &["simulate"],
            Command::Run => &["run"],
            Command::Mount => &["mount"],
            Command::Replay => &["trace", "replay"],
        }
    }

    /// The key of the positional argument: a program, or a trace.
    #[must_use]
    pub const fn argument(self) -> Option<&'static str> {
        match self {
            Command::Simulate => None,
            Command::Run | Command::Mount => Some("cmd"),
            Command::Replay => Some("trace"),
        }
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Sweep {
    /// Parses the text of a file. `options_of` returns the long options of a command.
    ///
    /// # Errors
    /// The problem, its place, and the value expected.
    pub fn parse(text: &str, label: &str, options_of: impl Fn(Command) -> Vec<String>) -> Result<Self, SweepError> {
        let mut places = Places { label, lines: BTreeMap::new() };
        if let Ok(table) = toml::de::DeTable::parse(text) {
            places.add(text, "", table.get_ref());
        }
        Sweep::of(text, &places, options_of)
    }

    /// Like [`parse`](Self::parse), for generated text: messages name keys without lines, which the author would not
    /// know.
    ///
    /// # Errors
    /// The problem, its place, and the value expected.
    pub fn parse_generated(
        text: &str,
        label: &str,
        options_of: impl Fn(Command) -> Vec<String>,
    ) -> Result<Self, SweepError> {
        Sweep::of(text, &Places { label, lines: BTreeMap::new() }, options_of)
    }

    fn of(text: &str, places: &Places<'_>, options_of: impl Fn(Command) -> Vec<String>) -> Result<Self, SweepError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| line_of(text, span.start));
            SweepError::Usage(format!("{}:{line}: {}", places.label, error.message()))
        })?;
        let mut sweep = Sweep {
            label: places.label.to_owned(),
            command: Command::Simulate,
            options: BTreeMap::new(),
            axes: BTreeMap::new(),
            seeds: 1,
            setup: None,
            teardown: None,
            drop_caches: false,
            lines: places.lines.clone(),
        };
        let expected = |key: &str, found: &toml::Value, expected: &str| {
            places.wrong(key, format!("{key}: {}; expected {expected}", shown(found)))
        };
        for (key, value) in &table {
            match (key.as_str(), value) {
                ("command", toml::Value::String(name)) => {
                    let found = Command::ALL.into_iter().find(|command| command.name() == name);
                    sweep.command = found.ok_or_else(|| expected(key, value, "simulate, run, mount or replay"))?;
                }
                ("seeds", toml::Value::Integer(seeds)) => {
                    let found = u64::try_from(*seeds).ok().filter(|seeds| (1..=10_000).contains(seeds));
                    sweep.seeds = found.ok_or_else(|| expected(key, value, "1 to 10000"))?;
                }
                ("setup", toml::Value::String(command)) => sweep.setup = Some(command.clone()),
                ("teardown", toml::Value::String(command)) => sweep.teardown = Some(command.clone()),
                ("drop_caches", toml::Value::Boolean(drop)) => sweep.drop_caches = *drop,
                ("options" | "axes", toml::Value::Table(entries)) => {
                    let mut flat = Vec::new();
                    flatten("", entries, &mut flat);
                    for (name, value) in flat {
                        let at = format!("{key}.{name}");
                        let value = Value::of(&value)
                            .ok_or_else(|| expected(&at, &value, "a text, a number, true, false or a list of these"))?;
                        if key == "options" {
                            sweep.options.insert(name, value);
                        } else {
                            let Value::List(values) = value else {
                                return Err(places.wrong(&at, format!("{at}: {value}; expected a list of values")));
                            };
                            sweep.axes.insert(name, values);
                        }
                    }
                }
                ("command" | "setup" | "teardown", _) => return Err(expected(key, value, "a text")),
                ("seeds", _) => return Err(expected(key, value, "a whole number")),
                ("drop_caches", _) => return Err(expected(key, value, "true or false")),
                ("options" | "axes", _) => return Err(expected(key, value, "a table")),
                _ => {
                    let known = "command, seeds, setup, teardown, drop_caches, options, axes";
                    return Err(places.wrong(key, format!("unknown key {key}; expected one of {known}")));
                }
            }
        }
        if !table.contains_key("command") {
            let message = "command is missing; expected simulate, run, mount or replay";
            return Err(places.wrong("", message.to_owned()));
        }
        sweep.check(&options_of(sweep.command), places)?;
        Ok(sweep)
    }

    fn check(&self, known: &[String], places: &Places<'_>) -> Result<(), SweepError> {
        let wrong = |key: &str, message: String| Err(places.wrong(key, message));
        for (table, name) in
            self.options.keys().map(|name| ("options", name)).chain(self.axes.keys().map(|name| ("axes", name)))
        {
            let option = name.replace('_', "-");
            if let Some((_, why)) = OWN.iter().find(|(own, _)| *own == option) {
                return wrong(&format!("{table}.{name}"), format!("{table}.{name} can't be set: {why}"));
            }
            let is_argument = self.command.argument() == Some(name.as_str());
            if !is_argument && !name.starts_with("profile.") && !known.contains(&option) {
                let mut names: Vec<&str> = known.iter().map(String::as_str).collect();
                names.sort_unstable();
                let message = format!(
                    "unknown {} {name}; expected an option of `chronodisk {}` ({}), or profile.KEY",
                    if table == "axes" { "axis" } else { "option" },
                    self.command.words().join(" "),
                    names.join(", ")
                );
                return wrong(&format!("{table}.{name}"), message);
            }
        }
        for (name, values) in &self.axes {
            let key = format!("axes.{name}");
            if self.options.contains_key(name) {
                return wrong(&key, format!("{name} is in options and in axes; expected it in one of them"));
            }
            if values.is_empty() {
                return wrong(&key, format!("{key} has no values"));
            }
            if let Some(index) = (1..values.len()).find(|index| values[..*index].contains(&values[*index])) {
                return wrong(&key, format!("{key} has {} twice", values[index]));
            }
        }
        if let Some(argument) = self.command.argument()
            && !self.options.contains_key(argument)
            && !self.axes.contains_key(argument)
        {
            return wrong("command", format!("{argument} is missing in options and axes; {} needs it", self.command));
        }
        let has = |name: &str| self.axes.contains_key(name) || self.options.contains_key(name);
        let of = |table: &'static str, names: Vec<&String>| {
            names.into_iter().find(|name| name.starts_with("profile.")).map(|name| format!("{table}.{name}"))
        };
        let changed = of("axes", self.axes.keys().collect()).or_else(|| of("options", self.options.keys().collect()));
        if let Some(key) = changed.filter(|_| !has("device")) {
            return wrong(&key, "profile.KEY needs device, whose profile it changes".to_owned());
        }
        if self.seeds > 1 && !known.iter().any(|name| name == "seed") {
            return wrong("seeds", format!("{} has no seed; expected seeds = 1", self.command));
        }
        match self.cell_count() {
            cells if cells <= CELLS_MAX => Ok(()),
            cells => wrong("axes", format!("axes: {cells} cells; expected at most {CELLS_MAX}")),
        }
    }

    /// Number of its cells, capped at the largest number.
    #[must_use]
    pub fn cell_count(&self) -> u64 {
        self.axes.values().fold(self.seeds, |cells, values| cells.saturating_mul(values.len() as u64))
    }

    /// An error at a key of the file, such as `axes.depth`.
    #[must_use]
    pub fn wrong(&self, key: &str, message: impl fmt::Display) -> SweepError {
        wrong(&self.label, &self.lines, key, message)
    }

    /// The path of the key that sets an option.
    pub(crate) fn key_of(&self, option: &str) -> String {
        let table = if self.axes.contains_key(option) { "axes" } else { "options" };
        format!("{table}.{option}")
    }

    /// All cells. The seed varies fastest, then the last axis in order of names.
    #[must_use]
    pub fn cells(&self) -> Vec<Cell> {
        let mut combinations: Vec<BTreeMap<String, Value>> = vec![BTreeMap::new()];
        for (name, values) in &self.axes {
            let extended = |combination: &BTreeMap<String, Value>| {
                let one = combination.clone();
                values.iter().map(move |value| {
                    let mut one = one.clone();
                    one.insert(name.clone(), value.clone());
                    one
                })
            };
            combinations = combinations.iter().flat_map(extended).collect();
        }
        let seeded =
            |axes: BTreeMap<String, Value>| (1..=self.seeds).map(move |seed| Cell { axes: axes.clone(), seed });
        combinations.into_iter().flat_map(seeded).collect()
    }
}

/// Places of the keys in a file.
struct Places<'a> {
    label: &'a str,
    /// Line of each key, by its path with dots.
    lines: BTreeMap<String, usize>,
}

impl Places<'_> {
    fn add(&mut self, text: &str, prefix: &str, table: &toml::de::DeTable<'_>) {
        for (key, value) in table {
            let name = key.get_ref();
            let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
            if let toml::de::DeValue::Table(inner) = value.get_ref() {
                self.add(text, &path, inner);
            }
            self.lines.insert(path, line_of(text, key.span().start));
        }
    }

    /// An error at a key.
    fn wrong(&self, key: &str, message: String) -> SweepError {
        wrong(self.label, &self.lines, key, message)
    }
}

fn wrong(label: &str, lines: &BTreeMap<String, usize>, key: &str, message: impl fmt::Display) -> SweepError {
    SweepError::Usage(match lines.get(key) {
        Some(line) => format!("{label}:{line}: {message}"),
        None => format!("{label}: {message}"),
    })
}

/// The line of a byte, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes()[..byte.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

/// Keys of tables within tables become one, with dots: `profile.seek.settle`.
fn flatten(prefix: &str, table: &toml::Table, flat: &mut Vec<(String, toml::Value)>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => flatten(&name, inner, flat),
            value => flat.push((name, value.clone())),
        }
    }
}

fn shown(value: &toml::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
