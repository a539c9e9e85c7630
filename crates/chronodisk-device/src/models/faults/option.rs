//! A fault in one line, as a command's option takes it: `kind=recovered,every=9,retry-time=1s`.
//!
//! An entry is a key of a table `[[faults]]` and its value without quotes.

use std::fmt::Write;

use super::TABLE;
use crate::fields::{nearest, toml_string};

/// Keys whose values are plain numbers.
const NUMBERS: [&str; 5] = ["every", "rate", "factor", "after-requests", "sectors"];
/// Keys whose values are texts.
const TEXTS: [&str; 9] = ["kind", "operation", "retry-time", "at", "from", "for", "after-written", "offset", "length"];

/// The table `[[faults]]` for the text of an option.
pub(crate) fn to_toml(option: &str) -> Result<String, String> {
    let (mut table, mut known) = (format!("[[{TABLE}]]\n"), Vec::new());
    for entry in option.split(',') {
        let Some((key, value)) = entry.split_once('=') else {
            return Err(format!("'{entry}' has no value; expected KEY=VALUE such as kind=latent"));
        };
        if known.contains(&key) {
            return Err(format!("'{key}' is given twice"));
        }
        known.push(key);
        if TEXTS.contains(&key) {
            let _ = writeln!(table, "{key} = {}", toml_string(value));
        } else if NUMBERS.contains(&key) {
            let is_number = value.parse::<f64>().is_ok_and(f64::is_finite)
                && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
                && value.starts_with(|first: char| first.is_ascii_digit());
            if !is_number || value.ends_with('.') {
                return Err(format!("'{entry}': expected a number"));
            }
            let _ = writeln!(table, "{key} = {value}");
        } else {
            return Err(match nearest(key, TEXTS.iter().chain(&NUMBERS).copied()).first() {
                Some(near) => format!("unknown key '{key}' of a fault; did you mean '{near}'?"),
                None => {
                    let names: Vec<&str> = TEXTS.iter().chain(&NUMBERS).copied().collect();
                    format!("unknown key '{key}' of a fault; expected one of {}", names.join(", "))
                }
            });
        }
    }
    if !known.contains(&"kind") {
        return Err(format!("'{option}' has no kind; expected an entry such as kind=latent"));
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_become_keys_of_a_table() {
        let text = to_toml("kind=slow,factor=2.5,after-requests=10,offset=1GiB").unwrap();
        let expected = "[[faults]]\nkind = \"slow\"\nfactor = 2.5\nafter-requests = 10\noffset = \"1GiB\"\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn wrong_entries_are_refused() {
        for (option, expected) in [
            ("", "has no value; expected KEY=VALUE"),
            ("kinds=latent", "unknown key 'kinds' of a fault; did you mean 'kind'?"),
            ("kind=slow,factor=2x", "'factor=2x': expected a number"),
            ("kind=slow,factor=inf", "'factor=inf': expected a number"),
            ("kind=slow,factor=2.", "'factor=2.': expected a number"),
            ("kind=slow,kind=hang", "'kind' is given twice"),
            ("every=9", "has no kind; expected an entry such as kind=latent"),
        ] {
            let error = to_toml(option).unwrap_err();
            assert!(error.contains(expected), "{option}: {error}");
        }
    }
}
