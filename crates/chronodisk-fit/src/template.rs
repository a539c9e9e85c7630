//! A profile with free constants and their bounds, and the profile's text with other values.
//!
//! A constant is free if the comment behind its value says so, or if the user names its key:
//!
//! ```toml
//! read-latency = "50 us"    # fit: 40 us..60 us; the part's data sheet says 50
//! channels = 8              # fit: 4..16
//! buffer = "1 MiB"          # fit: 256 KiB..4 MiB by 4 KiB
//! ```
//!
//! Keys in tables are joined by dots (`flash.read-time`), entries of arrays are numbered from zero
//! (`row.2.random-read`). The value keeps its unit, and stays a multiple of the step after `by`. The rest of the file
//! is unchanged, comments included.

use chronodisk_device::{Bytes, Quantity, Rate, Rotation, number_and_unit};
use chronodisk_report::SetError;
use chronodisk_sim::Nanos;
use toml_edit::{ArrayOfTables, DocumentMut, Item, RawString, Table, Value, value};

use crate::FitError;

/// Most constants that are fitted at once.
const MAX_CONSTANTS: usize = 64;
/// Significant digits of a value that is no whole number: no sweep is measured to a ten-thousandth.
const DIGITS: i32 = 4;
/// Begins the notes of a fit at the top and after each value.
const NOTE: &str = "# Fitted by `chronodisk fit`";
const FITTED: &str = "fitted to ";

/// A free constant.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Path of the value: keys and numbers of entries, joined by dots.
    pub key: String,
    /// Unit of all its values; empty for a plain number.
    pub unit: String,
    /// The least and the greatest value that it may have, in the unit.
    pub low: f64,
    /// See [`low`](Self::low).
    pub high: f64,
    /// The value that the profile has.
    pub start: f64,
    /// Values are multiples of this, which the bounds contained if `stepped`.
    step: f64,
    stepped: bool,
    /// Decimals that a value may have.
    decimals: i32,
}

/// A profile's text with its free constants.
#[derive(Clone, Debug)]
pub struct Template {
    document: DocumentMut,
    constants: Vec<Constant>,
}

/// A constant that the user names: a key, and bounds unless the profile has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Free {
    /// The key, as in [`Constant::key`].
    pub key: String,
    /// `LOW..HIGH` or `LOW..HIGH by STEP`.
    pub bounds: Option<String>,
}

impl std::str::FromStr for Free {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, bounds) = match text.split_once('=') {
            Some((key, bounds)) => (key, Some(bounds.trim().to_owned())),
            None => (text, None),
        };
        if key.trim().is_empty() {
            return Err("expected KEY or KEY=LOW..HIGH, such as read-latency='40 us..60 us'".to_owned());
        }
        Ok(Free { key: key.trim().to_owned(), bounds })
    }
}

impl Template {
    /// Finds the free constants of a profile: marked ones, and those named by the user. With `named_only` the marks
    /// only give bounds.
    ///
    /// # Errors
    /// If the text is not TOML, a key is missing or not a number, or bounds make no sense.
    pub fn new(text: &str, file: &str, named: &[Free], named_only: bool) -> Result<Self, FitError> {
        let document: DocumentMut =
            text.parse().map_err(|error: toml_edit::TomlError| FitError::new(error.message()).in_file(file))?;
        let mut marked = Vec::new();
        walk(document.as_item(), "", &mut |key, value| {
            if let Some(bounds) = mark(value) {
                marked.push(Free { key: key.to_owned(), bounds: Some(bounds.to_owned()) });
            }
        });
        let mut wanted: Vec<Free> = if named_only { Vec::new() } else { marked.clone() };
        for free in named {
            let of_mark = || marked.iter().find(|other| other.key == free.key)?.bounds.clone();
            let bounds = free.bounds.clone().or_else(of_mark);
            wanted.retain(|other| other.key != free.key);
            wanted.push(Free { key: free.key.clone(), bounds });
        }
        if wanted.len() > MAX_CONSTANTS {
            return Err(FitError::new(format!("more than {MAX_CONSTANTS} free constants")).in_file(file));
        }
        let constant = |free: &Free| {
            let failed = |message: String| FitError::new(message).in_field(&free.key).in_file(file);
            let value = find(document.as_item(), &free.key).ok_or_else(|| {
                failed("there is no such key, or no value behind it".to_owned())
                    .with_help("keys in tables are joined by dots, entries of arrays are numbered from 0")
            })?;
            Constant::new(&free.key, value, free.bounds.as_deref()).map_err(failed)
        };
        let constants = wanted.iter().map(constant).collect::<Result<Vec<_>, _>>()?;
        Ok(Template { document, constants })
    }

    /// The free constants.
    #[must_use]
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// The profile's text with these values.
    ///
    /// # Panics
    /// Unless there is a value for each constant.
    #[must_use]
    pub fn text(&self, values: &[f64]) -> String {
        self.with_values(values).to_string()
    }

    /// Like [`text`](Self::text), with a note at the top, each value's data and former value after it, and the errors
    /// of left-out points at the end. Notes of an earlier fit are removed.
    ///
    /// # Panics
    /// Unless there is a value for each constant.
    #[must_use]
    pub fn documented(&self, values: &[f64], data: &str, note: &[String], held_out: &[SetError]) -> String {
        let mut document = self.with_values(values);
        state_held_out(&mut document, held_out);
        let mut uncommented = Vec::new();
        for constant in &self.constants {
            let was = format!("{FITTED}{data}, before {}", constant.spelled(constant.start));
            if self.is_inside_a_value(&constant.key) {
                uncommented.push(format!("{}: {}; {was}", constant.key, constant.bounds()));
                continue;
            }
            let Some(value) = find_mut(document.as_item_mut(), &constant.key) else { continue };
            let suffix = value.decor().suffix().and_then(RawString::as_str).unwrap_or_default().to_owned();
            // The space before the comment stays too.
            let blank = suffix.split_once('#').map_or("  ", |(blank, _)| blank);
            let rest: Vec<&str> = suffix
                .trim()
                .trim_start_matches('#')
                .split(';')
                .map(str::trim)
                .filter(|part| !part.is_empty() && !part.starts_with("fit:") && !part.starts_with(FITTED))
                .collect();
            let mut parts = vec![format!("fit: {}", constant.bounds()), was];
            parts.extend(rest.into_iter().map(str::to_owned));
            value.decor_mut().set_suffix(format!("{blank}# {}", parts.join("; ").replace(['\n', '\r'], " ")));
        }
        let text = document.to_string();
        let body = match text.starts_with(NOTE) {
            // An earlier fit's note ends with an empty comment.
            true => text.split_once("\n#\n").map_or(text.as_str(), |(_, body)| body),
            false => text.as_str(),
        };
        let lines: String = note.iter().chain(&uncommented).map(|line| format!("# {line}\n")).collect();
        format!("{NOTE} to {data}.\n{lines}#\n{body}")
    }

    /// Whether it is inside an array or an inline table, where no comment can follow it.
    fn is_inside_a_value(&self, key: &str) -> bool {
        key.rsplit_once('.').is_some_and(|(above, _)| find(self.document.as_item(), above).is_some())
    }

    fn with_values(&self, values: &[f64]) -> DocumentMut {
        assert_eq!(values.len(), self.constants.len(), "a value for each constant");
        let mut document = self.document.clone();
        for (constant, value) in self.constants.iter().zip(values) {
            let place = find_mut(document.as_item_mut(), &constant.key).expect("it was found before");
            let decor = place.decor().clone();
            let rounded = constant.rounded(*value);
            *sourced_mut(place) = match (constant.unit.as_str(), constant.decimals) {
                ("", 0) => Value::from(rounded as i64),
                ("", _) => Value::from(rounded),
                _ => Value::from(constant.spelled(rounded)),
            };
            // The replaced value may have been the key's whole value or a part of it.
            *place.decor_mut() = decor;
        }
        document
    }
}

impl Constant {
    fn new(key: &str, value: &Value, bounds: Option<&str>) -> Result<Self, String> {
        let (start, unit, decimals) = match sourced(value) {
            Value::String(text) => {
                let (number, unit) = split(text.value())?;
                (number, unit.clone(), decimals_of(&unit))
            }
            Value::Integer(number) => (*number.value() as f64, String::new(), 0),
            Value::Float(number) => (*number.value(), String::new(), 6),
            _ => return Err("neither a number nor a quantity, so it can't be fitted".to_owned()),
        };
        let example = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let expected = format!("expected bounds such as {start}{example}..{}{example}", start * 2.0);
        let bounds = bounds.ok_or_else(|| format!("no bounds; {expected}"))?;
        let (range, step) = match bounds.split_once(" by ") {
            Some((range, step)) => (range, Some(step)),
            None => (bounds, None),
        };
        let (low, high) = range.split_once("..").ok_or_else(|| format!("\"{range}\"; {expected}"))?;
        let value_of = |text: &str| in_unit(text, &unit).map_err(|problem| format!("{problem}; {expected}"));
        let (low, high) = (value_of(low)?, value_of(high)?);
        let (step, decimals) = match step {
            Some(step) => {
                let step = value_of(step)?;
                (step, decimals.max(decimals_in(step)))
            }
            None => (10f64.powi(-decimals), decimals),
        };
        if !(low >= 0.0 && low < high && step > 0.0) {
            return Err(format!("bounds from {low} to {high} in steps of {step} leave no choice; {expected}"));
        }
        if !(low..=high).contains(&start) {
            return Err(format!("its value, {start}{example}, is not between its bounds {range}"));
        }
        let stepped = bounds.contains(" by ");
        Ok(Constant { key: key.to_owned(), unit, low, high, start, step, stepped, decimals })
    }

    /// The value at a place between the bounds, 0 to 1; by ratio unless the lower bound is zero.
    #[must_use]
    pub fn value_at(&self, place: f64) -> f64 {
        let place = place.clamp(0.0, 1.0);
        let value = match self.low > 0.0 {
            true => self.low * (self.high / self.low).powf(place),
            false => self.low + place * (self.high - self.low),
        };
        self.rounded(value.clamp(self.low, self.high))
    }

    /// The place of a value, the inverse of [`value_at`](Self::value_at).
    #[must_use]
    pub fn place_of(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.low > 0.0 {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Change of the coordinate per relative change of the value; per share of the bounds if they begin at zero.
    #[must_use]
    pub fn place_per_ratio(&self) -> f64 {
        if self.low > 0.0 { 1.0 / (self.high / self.low).ln() } else { 1.0 }
    }

    /// Smallest distance of a coordinate from the start's that certainly gives another value.
    #[must_use]
    pub fn smallest_place_step(&self) -> f64 {
        let step = self.step.max(if self.stepped { 0.0 } else { 10f64.powi(-self.decimals_at(self.start)) });
        let beside = if self.start + step <= self.high { self.start + step } else { self.start - step };
        ((self.place_of(beside) - self.place_of(self.start)).abs() * 1.01).min(0.5)
    }

    /// Rounds to a multiple of the step, or to as many digits as the model distinguishes, at most four.
    fn rounded(&self, value: f64) -> f64 {
        let multiple = (value / self.step).round() * self.step;
        let decimals = if self.stepped { self.decimals } else { self.decimals_at(value) };
        let scale = 10f64.powi(decimals);
        (multiple * scale).round() / scale
    }

    /// Decimals that four digits leave.
    fn decimals_at(&self, value: f64) -> i32 {
        match value > 0.0 {
            true => (DIGITS - 1 - value.log10().floor() as i32).clamp(0, self.decimals),
            false => 0,
        }
    }

    /// The value with its unit.
    #[must_use]
    pub fn spelled(&self, value: f64) -> String {
        let number = format!("{:.*}", self.decimals.max(0) as usize, value);
        let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
        if self.unit.is_empty() { number.to_owned() } else { format!("{number} {}", self.unit) }
    }

    /// `LOW..HIGH`, with the step if one was given.
    fn bounds(&self) -> String {
        let range = format!("{}..{}", self.spelled(self.low), self.spelled(self.high));
        match self.stepped {
            true => format!("{range} by {}", self.spelled(self.step)),
            false => range,
        }
    }
}

/// Writes `[[held-out]]`, which every fitted profile has if it was cross-validated.
fn state_held_out(document: &mut DocumentMut, held_out: &[SetError]) {
    document.remove("held-out");
    let share = |percent: f64| (percent * 10.0).round() / 1_000.0;
    let mut tables = ArrayOfTables::new();
    for error in held_out {
        let Some(mean) = error.mean_percent else { continue };
        let mut table = Table::new();
        table["left-out"] = value(error.name.replace(['"', '\\'], " "));
        table["rows"] = value(error.points as i64);
        table["mean-error"] = value(share(mean));
        if let Some(p99) = error.p99_percent {
            table["p99-error"] = value(share(p99));
        }
        tables.push(table);
    }
    if !tables.is_empty() {
        document.insert("held-out", Item::ArrayOfTables(tables));
    }
}

/// A number and its unit.
fn split(text: &str) -> Result<(f64, String), String> {
    let (number, unit) = number_and_unit(text);
    let number = number.parse::<f64>().ok().filter(|number| number.is_finite());
    let wrong = || format!("\"{}\" does not begin with a number, so it can't be fitted", text.trim());
    Ok((number.ok_or_else(wrong)?, unit.to_owned()))
}

/// Sizes of all units that can replace each other, in the integers of a model.
const DIMENSIONS: [&[(&str, u64)]; 4] = [Nanos::UNITS, Bytes::UNITS, Rate::UNITS, Rotation::UNITS];

fn size_of(unit: &str) -> Option<(usize, u64)> {
    DIMENSIONS.iter().enumerate().find_map(|(dimension, units)| {
        let size = units.iter().find(|entry| entry.0 == unit)?.1;
        Some((dimension, size))
    })
}

/// Parses a number with or without its unit, in `unit`.
fn in_unit(text: &str, unit: &str) -> Result<f64, String> {
    let (number, own) = split(text)?;
    if own.is_empty() || own == unit {
        return Ok(number);
    }
    match (size_of(&own), size_of(unit)) {
        (Some((dimension, from)), Some((other, to))) if dimension == other => Ok(number * from as f64 / to as f64),
        _ => Err(format!("\"{}\" is not in {}", text.trim(), if unit.is_empty() { "plain numbers" } else { unit })),
    }
}

/// Number of decimals with which every value is an integer in the model's unit.
fn decimals_of(unit: &str) -> i32 {
    match size_of(unit) {
        Some((_, mut size)) => {
            let mut decimals = 0;
            while size.is_multiple_of(10) {
                size /= 10;
                decimals += 1;
            }
            decimals
        }
        // Units of a single kind of model have at least two decimals.
        None => 2,
    }
}

/// Decimals that a step is written with.
fn decimals_in(step: f64) -> i32 {
    (0..9).find(|&decimals| (step * 10f64.powi(decimals)).fract() == 0.0).unwrap_or(9)
}

/// The value in a table that carries its source, or the value itself.
fn sourced(value: &Value) -> &Value {
    value.as_inline_table().and_then(|table| table.get("value")).unwrap_or(value)
}

fn sourced_mut(value: &mut Value) -> &mut Value {
    match value.as_inline_table().is_some_and(|table| table.contains_key("value")) {
        true => value.as_inline_table_mut().and_then(|table| table.get_mut("value")).expect("it is there"),
        false => value,
    }
}

/// The bounds in the comment after a value.
fn mark(value: &Value) -> Option<&str> {
    let comment = value.decor().suffix()?.as_str()?.trim().strip_prefix('#')?;
    let marked = comment.trim_start().strip_prefix("fit:")?;
    Some(marked.split(';').next().unwrap_or(marked).trim())
}

/// Calls `seen` with each value and its key.
fn walk(item: &Item, key: &str, seen: &mut dyn FnMut(&str, &Value)) {
    let below = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    if let Some(tables) = item.as_array_of_tables() {
        for (index, table) in tables.iter().enumerate() {
            for (name, item) in table.iter() {
                walk(item, &below(&format!("{index}.{name}")), seen);
            }
        }
    } else if let Some(table) = item.as_table() {
        for (name, item) in table.iter() {
            walk(item, &below(name), seen);
        }
    } else if let Some(value) = item.as_value() {
        seen(key, value);
    }
}

fn find<'a>(root: &'a Item, key: &str) -> Option<&'a Value> {
    let mut item = root;
    let mut names = key.split('.');
    while let Some(name) = names.next() {
        if let Some(Value::Array(array)) = item.as_value() {
            let entry = array.get(name.parse::<usize>().ok()?)?;
            return names.next().is_none().then_some(entry);
        }
        item = match item {
            Item::ArrayOfTables(tables) => {
                let table = tables.get(name.parse::<usize>().ok()?)?;
                table.get(names.next()?)?
            }
            other => other.as_table_like()?.get(name)?,
        };
    }
    item.as_value()
}

fn find_mut<'a>(root: &'a mut Item, key: &str) -> Option<&'a mut Value> {
    let mut item = root;
    let mut names = key.split('.');
    while let Some(name) = names.next() {
        if item.is_value() && item.as_array().is_some() {
            let entry = item.as_array_mut()?.get_mut(name.parse::<usize>().ok()?)?;
            return names.next().is_none().then_some(entry);
        }
        item = match item {
            Item::ArrayOfTables(tables) => {
                let table = tables.get_mut(name.parse::<usize>().ok()?)?;
                table.get_mut(names.next()?)?
            }
            other => other.as_table_like_mut()?.get_mut(name)?,
        };
    }
    item.as_value_mut()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "# A profile.\nname = \"d\"\ncapacity = \"8 GiB\" # room\n\
        time = \"50 us\"   # fit: 0.04 ms..60 us; data sheet\nchannels = 8 # fit: 4..16\n\
        rate = { value = \"2 GB/s\", source = \"page 3\" }  # fit: 500 MB/s..4 GB/s\n\n\
        [flash]\nbuffer = \"1 MiB\"  # fit: 256 KiB..4 MiB by 128 KiB\nreads = [\"45 us\", \"60 us\"]\n\n\
        [[row]]\nsize = \"512 B\"\n[[row]]\nsize = \"4 KiB\"\nread = \"3 ms\"\n";

    fn template(named: &[&str]) -> Template {
        let named: Vec<Free> = named.iter().map(|text| text.parse().unwrap()).collect();
        Template::new(PROFILE, "p.toml", &named, false).unwrap()
    }

    fn error(named: &str) -> String {
        Template::new(PROFILE, "p.toml", &[named.parse().unwrap()], true).unwrap_err().to_string()
    }

    #[test]
    fn marked_and_named_constants_are_found_with_their_bounds() {
        let template = template(&["flash.reads.1=40 us..80 us", "row.1.read=1 ms..9 ms", "time=30 us..90 us"]);
        let found: Vec<(&str, f64, f64, f64, &str)> = template
            .constants()
            .iter()
            .map(|it| (it.key.as_str(), it.low, it.high, it.start, it.unit.as_str()))
            .collect();
        assert_eq!(
            found,
            [
                ("channels", 4.0, 16.0, 8.0, ""),
                ("rate", 0.5, 4.0, 2.0, "GB/s"),
                ("flash.buffer", 0.25, 4.0, 1.0, "MiB"),
                ("flash.reads.1", 40.0, 80.0, 60.0, "us"),
                ("row.1.read", 1.0, 9.0, 3.0, "ms"),
                ("time", 30.0, 90.0, 50.0, "us"),
            ]
        );
        let marked = self::template(&[]);
        assert_eq!((marked.constants()[0].low, marked.constants()[0].high), (40.0, 60.0));
    }

    #[test]
    fn other_values_change_nothing_else() {
        let template = template(&["row.1.read=1 ms..9 ms", "flash.reads.0=1 us..99 us"]);
        let start: Vec<f64> = template.constants().iter().map(|constant| constant.start).collect();
        assert_eq!(template.text(&start), PROFILE);
        let text = template.text(&[45.678_91, 11.7, 1.234_567, 2.0, 1.234_567_8, 12.5]);
        for part in [
            "time = \"45.68 us\"   # fit: 0.04 ms..60 us; data sheet\n",
            "channels = 12 # fit",
            "rate = { value = \"1.235 GB/s\", source = \"page 3\" }  # fit",
            "read = \"1.235 ms\"\n",
            "reads = [\"12.5 us\", \"60 us\"]",
            "# A profile.\nname",
            "capacity = \"8 GiB\" # room",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn a_fitted_profile_says_so_and_can_be_fitted_again() {
        let note = ["mean 2 %".to_owned()];
        let once = template(&[]).documented(&[45.0, 6.0, 1.5, 2.0], "sweep.csv", &note, &[]);
        assert!(
            once.starts_with("# Fitted by `chronodisk fit` to sweep.csv.\n# mean 2 %\n#\n# A profile.\n"),
            "{once}"
        );
        let line = "time = \"45 us\"   # fit: 40 us..60 us; fitted to sweep.csv, before 50 us; data sheet\n";
        assert!(once.contains(line), "{once}");
        let buffer = "buffer = \"2 MiB\"  # fit: 0.25 MiB..4 MiB by 0.125 MiB; fitted to sweep.csv, before 1 MiB\n";
        assert!(once.contains(buffer), "{once}");
        let again = Template::new(&once, "p.toml", &[], false).unwrap();
        let twice = again.documented(&[44.0, 6.0, 1.5, 2.0], "other.csv", &note, &[]);
        assert!(twice.contains("# fit: 40 us..60 us; fitted to other.csv, before 45 us; data sheet\n"), "{twice}");
        assert_eq!(twice.matches("Fitted by").count(), 1);
        assert_eq!(twice.matches("# A profile.").count(), 1);
    }

    #[test]
    fn an_entry_of_an_array_is_documented_at_the_top() {
        let named = ["flash.reads.0=40 us..50 us".parse().unwrap()];
        let text = Template::new(PROFILE, "p.toml", &named, true).unwrap().documented(&[44.0], "s.csv", &[], &[]);
        let note =
            "# Fitted by `chronodisk fit` to s.csv.\n# flash.reads.0: 40 us..50 us; fitted to s.csv, before 45 us\n#\n";
        assert!(text.starts_with(note), "{text}");
        assert!(text.contains("reads = [\"44 us\", \"60 us\"]\n"), "{text}");
        assert!(Template::new(&text, "p.toml", &named, true).is_ok());
    }

    #[test]
    fn places_and_values_are_each_others_inverse_and_stay_between_the_bounds() {
        for constant in template(&["time=0 us..100 us"]).constants() {
            for place in [0.0, 0.3, 0.5, 1.0] {
                let value = constant.value_at(place);
                assert!((constant.low..=constant.high).contains(&value), "{constant:?} {value}");
                assert!((constant.place_of(value) - place).abs() < 0.06, "{constant:?} {value}");
            }
            let moved = constant.place_of(constant.start) + constant.smallest_place_step();
            assert_ne!(constant.value_at(moved), constant.start, "{constant:?}");
        }
    }

    #[test]
    fn mistakes_name_the_key() {
        for (named, expected) in [
            ("tim=1 us..2 us", "p.toml: `tim`: there is no such key"),
            ("flash=1 us..2 us", "p.toml: `flash`: there is no such key, or no value"),
            ("row.7.read=1 us..2 us", "p.toml: `row.7.read`: there is no such key"),
            ("name=1..2", "p.toml: `name`: \"d\" does not begin with a number"),
            ("row.1.read", "p.toml: `row.1.read`: no bounds; expected bounds such as 3 ms..6 ms"),
            ("row.1.read=3 ms", "p.toml: `row.1.read`: \"3 ms\"; expected bounds"),
            ("row.1.read=4 ms..5 ms", "p.toml: `row.1.read`: its value, 3 ms, is not between"),
            ("row.1.read=4 KiB..5 KiB", "p.toml: `row.1.read`: \"4 KiB\" is not in ms"),
            ("row.1.read=5 ms..1 ms", "p.toml: `row.1.read`: bounds from 5 to 1"),
        ] {
            let error = error(named);
            assert!(error.starts_with(expected), "{error}\nexpected {expected}");
        }
        assert!("=3".parse::<Free>().is_err());
        let broken = Template::new("a = = 1", "p.toml", &[], false).unwrap_err();
        assert_eq!(broken.file, "p.toml");
    }
}
