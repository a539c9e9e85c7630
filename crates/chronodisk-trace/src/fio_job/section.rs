//! The lines of a job file: sections, and the settings that each of them has in the end.

use super::{FioJobError, shown};

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
    pub(super) key: &'a str,
    /// `None`: the key stands alone.
    pub(super) value: Option<&'a str>,
    pub(super) line: u32,
}

/// Most settings of all jobs together; those of global sections count for each job.
const SETTINGS_MAX: usize = 1 << 20;

/// The jobs' sections in order.
pub(super) fn sections(text: &str) -> Result<Vec<Section<'_>>, FioJobError> {
    let mut global: Vec<Setting<'_>> = Vec::new();
    let mut sections: Vec<Section<'_>> = Vec::new();
    let mut is_global = None;
    let mut count = 0;
    let too_many =
        |line, key| Err(FioJobError::new(line, key, "too many settings", format_args!("up to {SETTINGS_MAX}")));
    for (line, text) in (1..).zip(text.lines()) {
        let text = without_comment(text);
        if text.is_empty() {
            continue;
        }
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
        let setting = setting(text, line)?;
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

/// fio cuts a line at the first of these two, wherever it is.
fn without_comment(line: &str) -> &str {
    line.split([';', '#']).next().unwrap_or_default().trim()
}

fn setting(text: &str, line: u32) -> Result<Setting<'_>, FioJobError> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim())),
        None => (text, None),
    };
    if key.starts_with("include ") || key == "include" {
        return Err(FioJobError::new(line, "include", shown(text), "all settings in this file"));
    }
    if let Some(value) = value.filter(|value| value.contains('$')) {
        return Err(FioJobError::new(line, key, shown(value), "a value without variables"));
    }
    Ok(Setting { key, value, line })
}

impl<'a> Section<'a> {
    /// The last setting with one of these keys.
    pub(super) fn last(&self, keys: &[&str]) -> Option<&Setting<'a>> {
        self.settings.iter().rev().find(|setting| keys.contains(&setting.key))
    }
}

/// A device is one file: all threads must use the same. Without `filename` each has one of its own.
pub(super) fn expect_one_file(sections: &[Section<'_>], threads: u64) -> Result<(), FioJobError> {
    let mut first: Option<&str> = None;
    for section in sections {
        let Some(setting) = section.last(&["filename"]) else {
            if threads == 1 {
                continue;
            }
            let found = format!("missing in [{}], so that each thread has a file of its own", shown(section.name));
            return Err(FioJobError::new(section.line, "filename", found, "one file for all jobs"));
        };
        let name = setting.value.unwrap_or_default();
        if name.is_empty() || name.contains(':') {
            return Err(FioJobError::new(
                setting.line,
                "filename",
                shown(name),
                "one file, which stands for the device",
            ));
        }
        if *first.get_or_insert(name) != name {
            return Err(FioJobError::new(setting.line, "filename", shown(name), "the file of the jobs before it"));
        }
    }
    Ok(())
}
