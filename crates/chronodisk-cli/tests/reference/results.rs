//! The page of the fields of results, from the documentation of the types that are written.

use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "# Fields of results

`--json` and the files of a run are JSON. These are their fields, with the types of the sources: `u64` and `f64` are
numbers, `Vec` is a list, `BTreeMap` an object whose keys are names, and an `Option` may be missing or null. `Nanos` is
a whole number of nanoseconds. A name ends in its unit. A schema's number changes when a reader of the old form would
misread the new one; added fields do not change it.

The columns of the request log are in [the log of requests](request-log.md). This page is generated; a test compares
it with the sources.
";

/// Schemas, and where their types are.
const SCHEMAS: &[(&str, &[&str])] = &[
    (
        "chronodisk.run/1",
        &[
            "chronodisk-report/src/schema.rs",
            "chronodisk-report/src/labels.rs",
            "chronodisk-report/src/surroundings.rs",
            "chronodisk-report/src/summary.rs",
            "chronodisk-report/src/verdict.rs",
        ],
    ),
    ("chronodisk.compare/1", &["chronodisk-report/src/compare.rs", "chronodisk-report/src/judge.rs"]),
    ("chronodisk.simulate/1", &["chronodisk-report/src/simulation.rs"]),
    ("chronodisk.whatif/1", &["chronodisk-run/src/whatif/result.rs"]),
    ("chronodisk.sweep/1", &["chronodisk-sweep/src/results.rs"]),
    ("chronodisk.validate/1", &["chronodisk-report/src/fidelity.rs"]),
    ("chronodisk.fit/1", &["chronodisk-report/src/sweep_fit.rs"]),
    ("chronodisk.trace-comparison/1", &["chronodisk-report/src/trace_comparison.rs"]),
    ("chronodisk.trace-statistics/1", &["chronodisk-report/src/trace_statistics.rs"]),
];

pub fn page(root: &Path) -> String {
    let mut page = HEAD.to_owned();
    for (schema, files) in SCHEMAS {
        write!(page, "\n## `{schema}`\n").unwrap();
        let before = page.len();
        for file in *files {
            let path = root.join("crates").join(file);
            let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
            types_of(&source, &mut page);
        }
        assert!(page.len() > before, "no type of {schema} is in {files:?}");
    }
    page
}

/// Describes the types of a source file that are serialised.
fn types_of(source: &str, page: &mut String) {
    // Tests stand behind everything else.
    let source = source.split("\n#[cfg(test)]").next().unwrap_or(source);
    let (mut comment, mut attributes) = (String::new(), String::new());
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
        } else if line.starts_with("#[") {
            attributes.push_str(line);
        } else {
            let declared = ["pub struct ", "struct ", "pub enum ", "enum ", "pub(crate) struct ", "pub(super) struct "]
                .iter()
                .find_map(|start| Some((*start, line.strip_prefix(start)?)));
            if let Some((start, rest)) = declared.filter(|_| attributes.contains("Serialize") && line.ends_with('{')) {
                let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
                let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
                write!(page, "\n### {name}\n\n{}\n", plain(&comment)).unwrap();
                match start.contains("enum") {
                    true => variants(&body, &attributes, page),
                    false => fields(&body, page),
                }
            }
            comment.clear();
            attributes.clear();
        }
    }
}

fn fields(body: &[&str], page: &mut String) {
    write!(page, "\n| field | type | meaning |\n|---|---|---|\n").unwrap();
    let (mut comment, mut skipped) = (String::new(), false);
    for line in body.iter().map(|line| line.trim()) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
        } else if line == "#[serde(skip)]" {
            skipped = true;
        } else if std::mem::take(&mut skipped) {
            comment.clear();
        } else if let Some((name, kind)) = line.split_once(": ").filter(|_| !line.starts_with("#[")) {
            let name = name.rsplit(' ').next().unwrap_or(name).trim_start_matches("r#");
            writeln!(page, "| `{name}` | `{}` | {} |", kind.trim_end_matches(','), plain(&comment)).unwrap();
            comment.clear();
        }
    }
}

fn variants(body: &[&str], attributes: &str, page: &mut String) {
    let separator = if attributes.contains("kebab-case") { Some('-') } else { None };
    let separator = if attributes.contains("snake_case") { Some('_') } else { separator };
    write!(page, "\n| value | meaning |\n|---|---|\n").unwrap();
    let mut comment = String::new();
    for line in body.iter().filter_map(|line| line.strip_prefix("    ")) {
        if let Some(text) = line.strip_prefix("///") {
            comment.push_str(text);
        } else if line.starts_with(char::is_uppercase) {
            let name: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
            let written = separator.map_or(name.clone(), |separator| in_lower_case(&name, separator));
            writeln!(page, "| `{written}` | {} |", plain(&comment)).unwrap();
            comment.clear();
        }
    }
}

fn in_lower_case(name: &str, separator: char) -> String {
    let mut written = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !written.is_empty() {
            written.push(separator);
        }
        written.extend(letter.to_lowercase());
    }
    written
}

/// A comment without the links of its documentation, for a cell of a table.
fn plain(comment: &str) -> String {
    comment.trim().replace("[`", "`").replace("`]", "`").replace('|', "\\|")
}
