//! Limits in one line, as a command's option takes them: `iops=3000,bandwidth=125MiB/s,read-delay=normal:5ms:1ms`.
//!
//! An entry is a key of the table `[limits]` and its value without quotes. A delay is the distribution's name and its
//! parameters in the order of the module `delay`. Entries of one direction may stand without `-delay`'s prefix:
//! `delay=..` is the delay of reads and of writes. `histogram:FILE` takes the bins from a file: a line for each bin
//! with its upper bound and its weight (`1 ms,900`); empty lines and lines that begin with `#` are passed over.

use std::fmt::Write;
use std::fs::File;
use std::path::Path;

use chronodisk_sim::{Nanos, TextFile};

use super::delay::MOST_BINS;
use super::{BANDWIDTHS, IOPS, TABLE};
use crate::fields::{nearest, toml_string};
use crate::quantity::Quantity;

/// The table `[limits]` for the text of an option.
pub(crate) fn to_toml(option: &str) -> Result<String, String> {
    let (mut plain, mut delays, mut known) = (String::new(), String::new(), Vec::new());
    for entry in option.split(',') {
        let Some((key, value)) = entry.split_once('=') else {
            return Err(format!("'{entry}' has no value; expected KEY=VALUE such as iops=3000"));
        };
        if known.contains(&key) {
            return Err(format!("'{key}' is given twice"));
        }
        known.push(key);
        if keys(&IOPS).any(|name| name == key) {
            let Ok(count) = value.parse::<u32>() else {
                return Err(format!("'{entry}': expected a whole number"));
            };
            let _ = writeln!(plain, "{key} = {count}");
        } else if key == "request-size" || keys(&BANDWIDTHS).any(|name| name == key) {
            let _ = writeln!(plain, "{key} = {}", toml_string(value));
        } else if let Some(operations) = delayed(key) {
            let table = delay(value).map_err(|problem| format!("'{entry}': {problem}"))?;
            for operation in operations {
                let _ = write!(delays, "\n[{TABLE}.{operation}-delay]\n{table}");
            }
        } else {
            let names = keys(&IOPS).chain(keys(&BANDWIDTHS));
            let names: Vec<&str> =
                names.chain(["request-size", "delay", "read-delay", "write-delay", "flush-delay"]).collect();
            return Err(match nearest(key, names.iter().copied()).first() {
                Some(near) => format!("unknown limit '{key}'; did you mean '{near}'?"),
                None => format!("unknown limit '{key}'; expected one of {}", names.join(", ")),
            });
        }
    }
    Ok(format!("[{TABLE}]\n{plain}{delays}"))
}

fn keys(limits: &'static [(super::Scope, super::Keys)]) -> impl Iterator<Item = &'static str> {
    limits.iter().flat_map(|(_, keys)| keys.iter().copied())
}

/// The operations that a key of a delay names.
fn delayed(key: &str) -> Option<&'static [&'static str]> {
    Some(match key {
        "delay" => &["read", "write"],
        "read-delay" => &["read"],
        "write-delay" => &["write"],
        "flush-delay" => &["flush"],
        _ => return None,
    })
}

/// The keys of a delay's table.
fn delay(value: &str) -> Result<String, String> {
    let (name, parameters) = value.split_once(':').unwrap_or((value, ""));
    if name == "histogram" {
        return Ok(format!("distribution = \"histogram\"\nbins = [{}]\n", bins(Path::new(parameters))?));
    }
    // A plain duration is a constant.
    if Nanos::parse(value).is_ok() {
        return Ok(format!("distribution = \"constant\"\ntime = {}\n", toml_string(value)));
    }
    let parameters: Vec<&str> = parameters.split(':').collect();
    let two = |first: &str, second: &str, is_number: bool| match parameters[..] {
        [one, other] if is_number && other.parse::<f64>().is_err() => {
            Err(format!("{second} is '{other}'; expected a number ({first} is '{one}')"))
        }
        [one, other] => {
            let other = if is_number { other.to_owned() } else { toml_string(other) };
            Ok(format!("distribution = \"{name}\"\n{first} = {}\n{second} = {other}\n", toml_string(one)))
        }
        _ => Err(format!("expected {name}:{}:{}", first.to_uppercase(), second.to_uppercase())),
    };
    match name {
        "normal" => two("mean", "deviation", false),
        "lognormal" => two("median", "sigma", true),
        "pareto" => two("minimum", "shape", true),
        _ => {
            Err("expected a duration such as 2ms, normal:MEAN:DEVIATION, lognormal:MEDIAN:SIGMA, pareto:MINIMUM:SHAPE \
             or histogram:FILE"
                .to_owned())
        }
    }
}

/// The bins of a histogram's file, as a profile has them.
fn bins(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let file = File::open(path).map_err(|error| format!("{shown}: {error}"))?;
    let text = TextFile::Histogram.read(file).map_err(|error| format!("{shown}: {error}"))?;
    let mut bins = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong =
            |problem: &str| format!("{shown}:{number}: {problem}; expected a bound and a weight such as '1 ms,900'");
        let (bound, weight) = line.split_once(',').ok_or_else(|| wrong("no comma"))?;
        let bound = bound.trim();
        Nanos::parse(bound).map_err(|problem| wrong(&problem))?;
        let weight: u64 = weight.trim().parse().map_err(|_| wrong("the weight is no whole number"))?;
        if bins.len() == MOST_BINS {
            return Err(format!("{shown}:{number}: more than {MOST_BINS} bins"));
        }
        bins.push(format!("[{weight}, {}]", toml_string(bound)));
    }
    Ok(bins.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_become_keys_and_tables() {
        let text =
            to_toml("iops=3000,iops-burst=6000,iops-credits=100,write-bandwidth=125MiB/s,request-size=256KiB").unwrap();
        let expected = "[limits]\niops = 3000\niops-burst = 6000\niops-credits = 100\n\
            write-bandwidth = \"125MiB/s\"\nrequest-size = \"256KiB\"\n";
        assert_eq!(text, expected);
        let text = to_toml("delay=2ms,flush-delay=lognormal:1ms:0.5").unwrap();
        let constant = "distribution = \"constant\"\ntime = \"2ms\"\n";
        let expected = format!(
            "[limits]\n\n[limits.read-delay]\n{constant}\n[limits.write-delay]\n{constant}\n[limits.flush-delay]\n\
             distribution = \"lognormal\"\nmedian = \"1ms\"\nsigma = 0.5\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_histogram_is_read_from_its_file() {
        let folder = std::env::temp_dir().join(format!("chronodisk-histogram-{}", std::process::id()));
        std::fs::write(&folder, "# measured\n1 ms,900\n\n20ms, 100\n").unwrap();
        let text = to_toml(&format!("read-delay=histogram:{}", folder.display())).unwrap();
        assert!(text.ends_with("bins = [[900, \"1 ms\"], [100, \"20ms\"]]\n"), "{text}");
        std::fs::write(&folder, "1 ms,900\n20 ms\n").unwrap();
        let error = to_toml(&format!("read-delay=histogram:{}", folder.display())).unwrap_err();
        assert!(error.contains(":2: no comma"), "{error}");
        std::fs::remove_file(&folder).unwrap();
        let error = to_toml(&format!("read-delay=histogram:{}", folder.display())).unwrap_err();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn wrong_entries_are_refused() {
        for (option, expected) in [
            ("", "has no value; expected KEY=VALUE"),
            ("iop=3", "unknown limit 'iop'; did you mean 'iops'?"),
            ("iops=3k", "'iops=3k': expected a whole number"),
            ("iops=3,iops=4", "'iops' is given twice"),
            ("delay=normal:5ms", "expected normal:MEAN:DEVIATION"),
            ("delay=gamma:5ms", "expected a duration such as 2ms"),
            ("delay=pareto:5ms:steep", "shape is 'steep'; expected a number"),
        ] {
            let error = to_toml(option).unwrap_err();
            assert!(error.contains(expected), "{option}: {error}");
        }
    }
}
