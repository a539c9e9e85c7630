//! Writes the fields as a documented profile.

use std::fmt::Write as _;

use super::super::parameters::*;
use super::{Key, Outcome, PositionUnit, Visit, VisitZone, Visitor, disk};
use crate::fields::toml_string;
use crate::quantity::Rate;

/// Beginning of a profile, before the parameters.
#[derive(Clone, Debug)]
pub struct ProfileHeading {
    /// Comment at the top, without its marks.
    pub comment: String,
    /// The profile's name.
    pub name: String,
    /// The device, in one sentence.
    pub description: String,
    /// Where the figures come from.
    pub source: String,
    /// How far it can be trusted.
    pub validation: crate::Validation,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
}

/// The profile of `parameters` under `heading`.
#[must_use]
pub fn write_profile(heading: &ProfileHeading, parameters: &DiskParameters) -> String {
    let mut text = String::new();
    comment(&mut text, &heading.comment);
    let entries = [
        ("name", &heading.name),
        ("kind", &"disk".to_owned()),
        ("description", &heading.description),
        ("source", &heading.source),
        ("validation", &heading.validation.name().to_owned()),
        ("capacity", &format!("{} B", heading.capacity_bytes)),
    ];
    for (key, value) in entries {
        let _ = writeln!(text, "{key} = {}", toml_string(value));
    }
    let mut writer = Writer { text, path: Vec::new(), explained: false };
    let mut parameters = parameters.clone();
    disk(&mut writer, &mut parameters).expect("writing to a text fails for nothing");
    writer.text
}

struct Writer {
    text: String,
    path: Vec<&'static str>,
    /// The keys of this table were explained before.
    explained: bool,
}

impl Writer {
    fn line(&mut self, key: Key, value: &str) -> Outcome {
        let mut line = format!("{} = {value}", key.name);
        if !key.about.is_empty() && !self.explained {
            const COMMENT_COLUMN: usize = 40;
            let column = line.chars().count();
            line.extend(std::iter::repeat_n(' ', COMMENT_COLUMN.saturating_sub(column).max(1)));
            line.push_str("# ");
            line.push_str(key.about);
        }
        self.text.push_str(&line);
        self.text.push('\n');
        Ok(())
    }

    /// An array of texts, on one line or on as many as it takes.
    fn list(&mut self, key: Key, entries: &[String]) -> Outcome {
        const WIDTH: usize = 110;
        let single = format!("[{}]", entries.join(", "));
        if key.name.len() + single.len() <= WIDTH / 2 {
            return self.line(key, &single);
        }
        self.line(key, "[")?;
        let mut row = String::new();
        for entry in entries {
            if row.len() + entry.len() > WIDTH {
                let _ = writeln!(self.text, "   {}", row);
                row.clear();
            }
            let _ = write!(row, " {entry},");
        }
        let _ = writeln!(self.text, "   {row}\n]");
        Ok(())
    }
}

impl Visitor for Writer {
    fn time(&mut self, key: Key, value: &mut Picos) -> Outcome {
        self.line(key, &toml_string(&value.to_string()))
    }

    fn signed_time(&mut self, key: Key, value: &mut Picos) -> Outcome {
        self.time(key, value)
    }

    fn fraction(&mut self, key: Key, value: &mut Millionths) -> Outcome {
        self.line(key, &decimal(*value))
    }

    fn count(&mut self, key: Key, value: &mut u32, _least: u32, _most: u32) -> Outcome {
        self.line(key, &value.to_string())
    }

    fn sectors(&mut self, key: Key, value: &mut u64, _most: u64) -> Outcome {
        self.line(key, &format!("\"{value} sectors\""))
    }

    fn positions(&mut self, key: Key, value: &mut u64, unit: PositionUnit) -> Outcome {
        let unit = if unit == PositionUnit::Tracks { "tracks" } else { "sectors" };
        self.line(key, &format!("\"{value} {unit}\""))
    }

    fn angle(&mut self, key: Key, value: &mut Millionths, unit: &mut Option<SkewUnit>) -> Outcome {
        let unit = if *unit == Some(SkewUnit::Revolutions) { "turns" } else { "sectors" };
        self.line(key, &format!("\"{} {unit}\"", decimal(*value)))
    }

    fn rate(&mut self, key: Key, value: &mut Option<u64>) -> Outcome {
        value.map_or(Ok(()), |bytes_per_second| self.line(key, &toml_string(&Rate(bytes_per_second).to_string())))
    }

    fn rotation(&mut self, key: Key, value: &mut Rpm) -> Outcome {
        let text = match value.denominator {
            1 => format!("\"{} rpm\"", value.numerator),
            denominator => format!("\"{}/{denominator} rpm\"", value.numerator),
        };
        self.line(key, &text)
    }

    fn flag(&mut self, key: Key, value: &mut bool) -> Outcome {
        self.line(key, if *value { "true" } else { "false" })
    }

    fn choice(&mut self, key: Key, names: &[&str], index: &mut usize) -> Outcome {
        self.line(key, &toml_string(names[*index]))
    }

    fn wholes(&mut self, key: Key, values: &mut Vec<u64>) -> Outcome {
        let entries: Vec<String> = values.iter().map(u64::to_string).collect();
        self.list(key, &entries)
    }

    fn defects(&mut self, key: Key, values: &mut Vec<Defect>) -> Outcome {
        let entry = |defect: &Defect| format!("[{}, {}]", defect.original, defect.replacement);
        let entries: Vec<String> = values.iter().map(entry).collect();
        self.list(key, &entries)
    }

    fn seek_points(&mut self, key: Key, values: &mut Vec<SeekPoint>) -> Outcome {
        let entry = |point: &SeekPoint| format!("[{}, \"{}\"]", point.cylinders, point.time);
        let entries: Vec<String> = values.iter().map(entry).collect();
        self.list(key, &entries)
    }

    fn times(&mut self, key: Key, values: &mut [Picos]) -> Outcome {
        let entries: Vec<String> = values.iter().map(|time| toml_string(&time.to_string())).collect();
        self.list(key, &entries)
    }

    fn table(&mut self, key: Key, present: &mut bool, visit: &mut Visit<'_>) -> Outcome {
        if !*present {
            return Ok(());
        }
        self.path.push(key.name);
        self.text.push('\n');
        comment(&mut self.text, key.about);
        let _ = writeln!(self.text, "[{}]", self.path.join("."));
        visit(self)?;
        self.path.pop();
        Ok(())
    }

    fn zones(&mut self, key: Key, zones: &mut Vec<ZoneParameters>, visit: &mut VisitZone<'_>) -> Outcome {
        self.path.push(key.name);
        for (index, zone) in zones.iter_mut().enumerate() {
            self.text.push('\n');
            self.explained = index > 0;
            if index == 0 {
                comment(&mut self.text, key.about);
            }
            let _ = writeln!(self.text, "[[{}]]", self.path.join("."));
            visit(self, zone)?;
        }
        self.explained = false;
        self.path.pop();
        Ok(())
    }

    fn is_reading(&self) -> bool {
        false
    }
}

/// `text` as comment lines of moderate length.
fn comment(into: &mut String, text: &str) {
    const WIDTH: usize = 110;
    let printable = |character: char| if character.is_control() && character != '\n' { '?' } else { character };
    let text: String = text.chars().map(printable).collect();
    for paragraph in text.lines() {
        let mut line = String::from("#");
        for word in paragraph.split_whitespace() {
            if line.len() + word.len() > WIDTH && line.len() > 1 {
                into.push_str(&line);
                into.push('\n');
                line = String::from("#");
            }
            line.push(' ');
            line.push_str(word);
        }
        into.push_str(&line);
        into.push('\n');
    }
}

/// A plain number with as many decimals as there are.
fn decimal(value: Millionths) -> String {
    let (whole, rest) = (value.0.unsigned_abs() / 1_000_000, value.0.unsigned_abs() % 1_000_000);
    let text = format!("{whole}.{rest:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
