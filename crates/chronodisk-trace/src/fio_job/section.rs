//! The lines of a job file: sections, and the settings that each of them has in the end.

use super::{FioJobError, Surroundings, shown};

/// A line of a job file or of a file that it includes, with its variables replaced.
#[derive(Clone, Debug)]
pub(super) struct Line {
    text: String,
    number: u32,
    /// The included file; `None`: the job file.
    file: Option<String>,
}

/// A job's section, with the settings of the global sections before it.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    pub(super) line: u32,
    /// In order; of equal keys the last one counts.
    pub(super) settings: Vec<Setting<'a>>,
}

/// A key with its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting<'a> {
    /// fio's first name of the key, if it is an option of fio.
    pub(super) key: &'a str,
    /// The key as written.
    pub(super) written: &'a str,
    /// The value; `None` if the key stands alone.
    pub(super) value: Option<&'a str>,
    pub(super) line: u32,
    pub(super) file: Option<&'a str>,
    /// Bytes of a unit `k`.
    pub(super) kilo: u64,
}

/// Most settings of all jobs together; settings of global sections count for each job.
const SETTINGS_MAX: usize = 1 << 20;
/// fio's own limit of files that include each other.
const INCLUDES_MAX: usize = 16;
/// Most included files.
const FILES_MAX: usize = 1_000;
/// Most lines, with all included files.
const LINES_MAX: usize = 1 << 20;
/// Most bytes of a line after its variables are replaced.
const LINE_BYTES_MAX: usize = 1 << 16;

/// The non-empty lines of a job file and of its included files.
pub(super) fn lines(text: &str, surroundings: &dyn Surroundings) -> Result<Vec<Line>, FioJobError> {
    let mut reading = Reading { surroundings, lines: Vec::new(), files: 0 };
    reading.add(text, None, 0)?;
    Ok(reading.lines)
}

/// A job file and its includes.
struct Reading<'a> {
    surroundings: &'a dyn Surroundings,
    lines: Vec<Line>,
    files: usize,
}

impl Reading<'_> {
    fn add(&mut self, text: &str, file: Option<&str>, depth: usize) -> Result<(), FioJobError> {
        for (number, text) in (1..).zip(text.lines()) {
            let text = without_comment(text);
            if text.is_empty() {
                continue;
            }
            let wrong = |key: &str, found: &str, expected: String| {
                FioJobError::new(number, key, shown(found), expected).in_file(file)
            };
            if self.lines.len() >= LINES_MAX {
                return Err(wrong("line", "too many lines", format!("up to {LINES_MAX}")));
            }
            if let Some(name) = text.strip_prefix("include").filter(|rest| rest.starts_with([' ', '\t'])) {
                let name = name.trim();
                self.files += 1;
                if depth == INCLUDES_MAX || self.files > FILES_MAX {
                    let expected =
                        format!("at most {INCLUDES_MAX} files that include each other, and {FILES_MAX} in all");
                    return Err(wrong("include", name, expected));
                }
                let included = self.surroundings.include(name).map_err(|error| wrong("include", name, error))?;
                self.add(&included, Some(name), depth + 1)?;
                continue;
            }
            if file.is_some() && text.starts_with('[') {
                return Err(wrong("section", text, "no sections in an included file".to_owned()));
            }
            let text =
                replaced(text, self.surroundings).map_err(|(found, expected)| wrong("variable", &found, expected))?;
            self.lines.push(Line { text, number, file: file.map(str::to_owned) });
        }
        Ok(())
    }
}

/// The text with `${NAME}` replaced by the variable's value.
fn replaced(text: &str, surroundings: &dyn Surroundings) -> Result<String, (String, String)> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, behind)) = after.split_once('}') else {
            return Err((rest.to_owned(), "a closing brace behind ${".to_owned()));
        };
        let value = surroundings
            .variable(name)
            .ok_or_else(|| (format!("${{{name}}}"), format!("the environment variable {name} to be set")))?;
        whole.push_str(before);
        whole.push_str(&value);
        if whole.len() > LINE_BYTES_MAX {
            return Err((format!("${{{name}}}"), format!("a line of up to {LINE_BYTES_MAX} bytes")));
        }
        rest = behind;
    }
    whole.push_str(rest);
    Ok(whole.trim().to_owned())
}

/// The jobs' sections in order.
pub(super) fn sections(lines: &[Line]) -> Result<Vec<Section<'_>>, FioJobError> {
    let mut global: Vec<Setting<'_>> = Vec::new();
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut is_global = None;
    let mut count = 0;
    let too_many =
        |line, key| Err(FioJobError::new(line, key, "too many settings", format_args!("up to {SETTINGS_MAX}")));
    for Line { text, number, file } in lines {
        let line = *number;
        if let Some(rest) = text.strip_prefix('[') {
            let name = rest.strip_suffix(']').map(str::trim).filter(|name| !name.is_empty());
            let name = name
                .ok_or_else(|| FioJobError::new(line, "section", shown(text), "a name in brackets, such as [job]"))?;
            is_global = Some(name.eq_ignore_ascii_case("global"));
            if is_global == Some(false) {
                count += global.len();
                if count > SETTINGS_MAX {
                    return too_many(line, "section");
                }
                sections.push(Section { name, line, settings: global.clone() });
            }
            continue;
        }
        let setting = setting(text, line, file.as_deref());
        count += 1;
        if count > SETTINGS_MAX {
            return too_many(line, setting.key);
        }
        match (is_global, sections.last_mut()) {
            (Some(false), Some(section)) => section.settings.push(setting),
            (Some(true), _) => global.push(setting),
            _ => return Err(FioJobError::new(line, setting.key, "no section", "[global] or a job's name before it")),
        }
    }
    Ok(sections)
}

/// fio cuts a line at the first `#` or `;`, wherever it is.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}

fn setting<'a>(text: &'a str, line: u32, file: Option<&'a str>) -> Setting<'a> {
    let (written, value) = match text.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim())),
        None => (text, None),
    };
    Setting::new(written, value, line, file)
}

impl<'a> Setting<'a> {
    pub(super) fn new(written: &'a str, value: Option<&'a str>, line: u32, file: Option<&'a str>) -> Self {
        let key = super::options::find(written).map_or(written, |option| option.name);
        Setting { key, written, value, line, file, kilo: 1 << 10 }
    }
}

impl<'a> Section<'a> {
    /// The last setting with one of these keys.
    pub(super) fn last(&self, keys: &[&str]) -> Option<&Setting<'a>> {
        self.settings.iter().rev().find(|setting| keys.contains(&setting.key))
    }
}
