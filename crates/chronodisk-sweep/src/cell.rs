//! A cell: its command line, and the name of its result.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use chronodisk_device::Profile;
use serde::{Deserialize, Serialize};

use crate::{Sweep, SweepError};

/// The value of an option.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// An option without a value: given or not.
    Flag(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// A text.
    Text(String),
    /// An option that is repeated; a program and its arguments.
    List(Vec<Value>),
}

impl Value {
    pub(crate) fn of(value: &toml::Value) -> Option<Self> {
        Some(match value {
            toml::Value::String(text) => Value::Text(text.clone()),
            toml::Value::Integer(number) => Value::Integer(*number),
            toml::Value::Float(number) if number.is_finite() => Value::Number(*number),
            toml::Value::Boolean(flag) => Value::Flag(*flag),
            toml::Value::Array(values) => Value::List(values.iter().map(Value::of).collect::<Option<_>>()?),
            _ => return None,
        })
    }

    /// The value as a number, if it is one.
    #[must_use]
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Value::Integer(number) => Some(*number as f64),
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn to_toml(&self) -> toml::Value {
        match self {
            Value::Flag(flag) => (*flag).into(),
            Value::Integer(number) => (*number).into(),
            Value::Number(number) => (*number).into(),
            Value::Text(text) => text.clone().into(),
            Value::List(values) => toml::Value::Array(values.iter().map(Value::to_toml).collect()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => flag.fmt(f),
            Value::Integer(number) => number.fmt(f),
            Value::Number(number) => number.fmt(f),
            Value::Text(text) => f.pad(text),
            Value::List(values) => {
                let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
                f.pad(&texts.join(" "))
            }
        }
    }
}

/// One combination of a sweep's axes, with one seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The value of each axis.
    pub axes: BTreeMap<String, Value>,
    /// Seed of the cell.
    pub seed: u64,
}

/// All inputs of a cell's result. Equal keys have equal names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    /// Version of Chronodisk.
    pub(crate) version: String,
    /// Words of the command line; a profile is named by its digest.
    pub(crate) arguments: Vec<String>,
    /// Digests of the files and profiles that the words name.
    pub(crate) contents: BTreeMap<String, String>,
    pub(crate) setup: Option<String>,
    pub(crate) teardown: Option<String>,
    pub(crate) drop_caches: bool,
}

impl Key {
    /// The name of the cell's files.
    pub(crate) fn name(&self) -> String {
        // A structure of texts has a form in JSON, and always the same.
        let text = serde_json::to_string(self).unwrap_or_default();
        digest(text.as_bytes())[..32].to_owned()
    }
}

/// A cell that is ready to run.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) key: Key,
    pub(crate) arguments: Vec<String>,
    /// Profile to write first: its digest, and its text.
    pub(crate) profile: Option<(String, String)>,
}

/// Digests of files and profiles, which many cells share.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    files: BTreeMap<String, Option<String>>,
    profiles: BTreeMap<String, String>,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file of a profile that a sweep made.
pub(crate) fn profile_file(directory: &Path, digest: &str) -> std::path::PathBuf {
    directory.join("profiles").join(format!("{}.toml", &digest[..32]))
}

impl Cell {
    pub(crate) fn prepare(
        &self,
        sweep: &Sweep,
        directory: &Path,
        version: &str,
        contents: &mut Contents,
    ) -> Result<Prepared, SweepError> {
        let mut values: BTreeMap<&str, &Value> =
            sweep.options.iter().chain(&self.axes).map(|(name, value)| (name.as_str(), value)).collect();
        let argument = sweep.command.argument().and_then(|name| values.remove(name));
        let changes: Vec<(&str, &Value)> =
            values.iter().filter_map(|(name, value)| Some((name.strip_prefix("profile.")?, *value))).collect();
        values.retain(|name, _| !name.starts_with("profile."));
        let mut words: Vec<String> = sweep.command.words().iter().map(|word| (*word).to_owned()).collect();
        let mut named = BTreeMap::new();
        let profile = self.profile(sweep, values.get("device").copied(), &changes, contents, &mut named)?;
        for (name, value) in &values {
            if !(profile.is_some() && *name == "device") {
                push_option(name, value, &mut words);
            }
        }
        if let Some((digest, _)) = &profile {
            words.push(format!("--device=profile:{digest}"));
        }
        words.push(format!("--seed={}", self.seed));
        words.push("--json".to_owned());
        match argument {
            Some(Value::List(program)) => {
                words.push("--".to_owned());
                words.extend(program.iter().map(ToString::to_string));
            }
            Some(Value::Text(command)) if sweep.command.argument() == Some("cmd") => {
                words.extend(["--", "sh", "-c", command].map(str::to_owned));
            }
            Some(other) => words.push(other.to_string()),
            None => {}
        }
        for value in values.values().copied().chain(argument) {
            contents.name_files(value, &mut named)?;
        }
        let key = Key {
            version: version.to_owned(),
            arguments: words.clone(),
            contents: named,
            setup: sweep.setup.clone(),
            teardown: sweep.teardown.clone(),
            drop_caches: sweep.drop_caches,
        };
        if let Some((digest, _)) = &profile {
            let file = profile_file(directory, digest).display().to_string();
            for word in &mut words {
                if *word == format!("--device=profile:{digest}") {
                    *word = format!("--device={file}");
                }
            }
        }
        Ok(Prepared { key, arguments: words, profile })
    }

    /// The device's profile with the changes, and its digest; `None` without changes. A file that is used as it is gets
    /// its digest in `named`.
    fn profile(
        &self,
        sweep: &Sweep,
        device: Option<&Value>,
        changes: &[(&str, &Value)],
        contents: &mut Contents,
        named: &mut BTreeMap<String, String>,
    ) -> Result<Option<(String, String)>, SweepError> {
        let Some(Value::Text(device)) = device else { return Ok(None) };
        let key = sweep.key_of("device");
        let text = contents.profile(device).map_err(|error| sweep.wrong(&key, format!("{key}: {error}")))?;
        let Some((first, _)) = changes.first() else {
            if let Some(text) = text {
                named.insert(device.clone(), digest(text.as_bytes()));
            }
            return Ok(None);
        };
        let key = sweep.key_of(&format!("profile.{first}"));
        let wrong = |message: String| sweep.wrong(&key, format!("{key}: {message}"));
        let text = text.ok_or_else(|| wrong(format!("profile.KEY can't change {device}")))?;
        let text = changed_profile(&text, device, changes).map_err(|error| wrong(error.to_string()))?;
        Ok(Some((digest(text.as_bytes()), text)))
    }
}

/// The words of a command line that give an option a value.
#[must_use]
pub fn option_words(name: &str, value: &Value) -> Vec<String> {
    let mut words = Vec::new();
    push_option(name, value, &mut words);
    words
}

fn push_option(name: &str, value: &Value, words: &mut Vec<String>) {
    let option = name.replace('_', "-");
    match value {
        Value::Flag(true) => words.push(format!("--{option}")),
        Value::Flag(false) => {}
        Value::List(values) => values.iter().for_each(|value| push_option(name, value, words)),
        value => words.push(format!("--{option}={value}")),
    }
}

/// The text of a profile with changed values; a key such as `seek.settle` is in a table.
///
/// # Errors
/// If there is no such table, or the profile does not allow the values.
pub fn changed_profile(text: &str, label: &str, changes: &[(&str, &Value)]) -> Result<String, SweepError> {
    let wrong = |message: String| SweepError::Usage(message);
    let mut table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| wrong(format!("{label}: {}", error.message())))?;
    for (key, value) in changes {
        let mut at = &mut table;
        let mut parts: Vec<&str> = key.split('.').collect();
        let Some(last) = parts.pop() else { continue };
        for part in parts {
            let inner = at.get_mut(part).and_then(toml::Value::as_table_mut);
            at = inner.ok_or_else(|| wrong(format!("the profile of {label} has no table {part} (profile.{key})")))?;
        }
        at.insert(last.to_owned(), value.to_toml());
    }
    // The table is printed and parsed again, so that the profile's own checks apply.
    let text = table.to_string();
    Profile::parse(&text, label).map_err(|error| wrong(format!("profile of {label}, changed: {error}")))?;
    Ok(text)
}

impl Contents {
    /// The text of a device's profile; `None` if the model is a program.
    fn profile(&mut self, device: &str) -> Result<Option<String>, SweepError> {
        if device.starts_with("exec:") {
            return Ok(None);
        }
        if let Some(text) = self.profiles.get(device) {
            return Ok(Some(text.clone()));
        }
        let profile = Profile::find(device).map_err(|error| SweepError::Usage(error.to_string()))?;
        self.profiles.insert(device.to_owned(), profile.text().to_owned());
        Ok(Some(profile.text().to_owned()))
    }

    /// Adds the digests of the files that a value names: for any option, the result depends on their contents.
    fn name_files(&mut self, value: &Value, named: &mut BTreeMap<String, String>) -> Result<(), SweepError> {
        match value {
            Value::List(values) => values.iter().try_for_each(|value| self.name_files(value, named)),
            Value::Text(text) => {
                if !self.files.contains_key(text) {
                    let found = digest_of_path(Path::new(text))?;
                    self.files.insert(text.clone(), found);
                }
                if let Some(Some(found)) = self.files.get(text) {
                    named.insert(text.clone(), found.clone());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// Digest of a file, or of the logs and results in a directory; `None` if it does not exist.
fn digest_of_path(path: &Path) -> Result<Option<String>, SweepError> {
    if path.is_file() {
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        add_file(path, &mut context)?;
        return Ok(Some(hex(context)));
    }
    if !path.is_dir() {
        return Ok(None);
    }
    let entries = fs::read_dir(path).map_err(|error| SweepError::io("read", path, &error))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "parquet" || extension == "json"));
    files.sort();
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for file in &files {
        context.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        add_file(file, &mut context)?;
    }
    Ok((!files.is_empty()).then(|| hex(context)))
}

fn add_file(path: &Path, context: &mut ring::digest::Context) -> Result<(), SweepError> {
    use std::io::Read;
    let failed = |error: std::io::Error| SweepError::io("read", path, &error);
    let mut file = fs::File::open(path).map_err(failed)?;
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece).map_err(failed)? {
            0 => return Ok(()),
            len => context.update(&piece[..len]),
        }
    }
}

fn hex(context: ring::digest::Context) -> String {
    context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn digest_of_file(path: &Path) -> Result<String, SweepError> {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    add_file(path, &mut context)?;
    Ok(hex(context))
}
