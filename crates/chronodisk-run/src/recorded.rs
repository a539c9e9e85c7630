//! The options of a command line, as recorded in a result.

use std::collections::BTreeMap;

use serde_json::Value;

/// All options of one command, by flag without the leading hyphens.
#[derive(Clone, Debug, Default)]
pub struct RecordedOptions(BTreeMap<String, RecordedOption>);

/// An option of a command.
#[derive(Clone, Debug)]
pub struct RecordedOption {
    /// Name of the option in results. If its value has a dimension, the name ends in the unit.
    pub name: String,
    /// Its value or default; null if it has neither.
    pub value: Value,
    /// Whether the user typed it.
    pub given: bool,
}

impl FromIterator<(String, RecordedOption)> for RecordedOptions {
    fn from_iter<I: IntoIterator<Item = (String, RecordedOption)>>(options: I) -> Self {
        RecordedOptions(options.into_iter().collect())
    }
}

impl RecordedOptions {
    /// Whether the user typed `flag`, such as `device-speed`.
    pub fn is_given(&self, flag: &str) -> bool {
        self.0.get(flag).is_some_and(|option| option.given)
    }

    /// Records the effective value of a flag whose default depends on other flags or on the host.
    ///
    /// # Panics
    /// If the command has no such flag.
    pub fn took_effect(&mut self, flag: &str, value: Value) {
        self.0.get_mut(flag).expect("a flag of the command").value = value;
    }

    /// Adds options that the command does not have, but that take effect: flag and recorded name.
    pub(crate) fn add_effective(&mut self, options: &[(&str, &str)]) {
        for (flag, name) in options {
            let option = RecordedOption { name: (*name).to_owned(), value: Value::Null, given: false };
            self.0.entry((*flag).to_owned()).or_insert(option);
        }
    }

    /// All options by recorded name, with their defaults.
    pub fn all(&self) -> BTreeMap<String, Value> {
        self.named(|_| true)
    }

    /// The options that the user typed, by recorded name.
    pub fn given(&self) -> BTreeMap<String, Value> {
        self.named(|option| option.given)
    }

    fn named(&self, accept: impl Fn(&RecordedOption) -> bool) -> BTreeMap<String, Value> {
        let accepted = self.0.values().filter(|option| accept(option));
        accepted.map(|option| (option.name.clone(), option.value.clone())).collect()
    }
}
