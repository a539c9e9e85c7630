//! The scripts and documents of a release agree with the sources: version, changelog, formats, and the judge of skipped
//! tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pretty_assertions::assert_eq;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources of all crates, tests excluded.
fn sources() -> Vec<String> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("src")).collect();
    let mut texts = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    texts
}

/// A text between quotes that names a schema and its number, such as `chronodisk.run/1`.
fn schema(text: &str) -> Option<(String, u32)> {
    let (name, number) = text.rsplit_once('/')?;
    let is_name = name.len() > "chronodisk".len()
        && name.starts_with("chronodisk")
        && name.chars().all(|letter| letter.is_ascii_lowercase() || "-./".contains(letter));
    Some((name.to_owned(), number.parse().ok()?)).filter(|_| is_name)
}

#[test]
fn the_newest_changes_are_those_of_this_version() {
    let text = read("CHANGELOG.md");
    let heading = text.lines().find(|line| line.starts_with("## ")).expect("a heading");
    assert_eq!(heading.split(' ').nth(1), Some(VERSION), "CHANGELOG.md begins with another version");
    let newest = text.split("\n## ").nth(1).unwrap();
    for part in ["### Added", "### Changed", "### Fixed"] {
        assert!(newest.contains(part), "CHANGELOG.md has no {part} of {VERSION}");
    }
    let words = newest.split_whitespace().count();
    assert!(words <= 700, "the changes of {VERSION} have {words} words; a page has 700");
    assert!(read("docs/stability.md").contains(&format!("at version {VERSION}.")), "docs/stability.md: version");
}

#[test]
fn the_stable_schemas_are_those_of_the_sources() {
    let mut found = BTreeMap::new();
    for text in sources() {
        for (name, number) in text.split('"').filter_map(schema) {
            found.insert(name, number);
        }
    }
    let page = read("docs/stability.md");
    let table = page.split_once("<!-- schemas -->").unwrap().1.split_once("<!-- end of schemas -->").unwrap().0;
    let rows = table.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | ")?;
        Some((name.to_owned(), number.parse().unwrap()))
    });
    assert_eq!(rows.collect::<BTreeMap<String, u32>>(), found, "docs/stability.md and the sources");
}

#[test]
fn the_stable_formats_are_those_of_the_sources() {
    let page = read("docs/stability.md");
    for (row, source) in [
        ("image of a squashed device", "crates/chronodisk-squash/src/header.rs"),
        ("checksums of an image", "crates/chronodisk-squash/src/sums.rs"),
        ("recording of a store", "crates/chronodisk-store/src/recording/format.rs"),
        ("state of an aged flash drive", "crates/chronodisk-device/src/models/ssd/ftl/state.rs"),
        ("protocol of emulator servers", "crates/chronodisk-engine/src/protocol/mod.rs"),
    ] {
        let text = read(source);
        let (_, rest) = ["const VERSION: u32 = ", "const VERSION: u16 = "]
            .iter()
            .find_map(|key| text.split_once(key))
            .unwrap_or_else(|| panic!("{source}: no VERSION"));
        let version = rest.split(';').next().unwrap();
        let line = page.lines().find(|line| line.starts_with('|') && line.contains(row)).expect(row);
        assert_eq!(line.split('|').nth(2).map(str::trim), Some(version), "{row}");
    }
}

#[test]
fn the_oldest_compiler_is_the_same_everywhere() {
    let manifest = read("Cargo.toml");
    let oldest = manifest.split_once("rust-version = \"").unwrap().1.split('"').next().unwrap();
    for (file, text) in [
        ("docs/stability.md", format!("need Rust {oldest} ")),
        ("CONTRIBUTING.md", format!("version {oldest} or later")),
        ("README.md", format!("version {oldest} or later")),
        ("scripts/need", format!("({oldest} or later)")),
        (".github/workflows/ci.yml", format!("rust:{oldest}-bookworm")),
    ] {
        assert!(read(file).contains(&text), "{file} does not say {text:?}");
    }
}

/// Judges a log with these lines.
fn skips(lines: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    fs::write(&log, lines).unwrap();
    Command::new("python3").arg(root().join("scripts/skips")).args(more).arg(log).output().unwrap()
}

#[test]
fn a_skip_is_a_failure_where_the_host_lacks_nothing() {
    let text = |output: &Output| String::from_utf8(output.stdout.clone()).unwrap();
    let one = "---- exact::reads stdout ----\nSKIPPED: the kernel of the exact clock is neither built nor installed\n";
    let judged = skips(one, &[]);
    assert_eq!(judged.status.code(), Some(1));
    assert!(text(&judged).starts_with("SKIPPED WITHOUT NEED exact::reads: the kernel"), "{judged:?}");
    // `scripts/test` has no source of it, or leaves its build out.
    let judged = skips(one, &["--without", "exact"]);
    assert_eq!(judged.status.code(), Some(0), "{judged:?}");
    assert!(text(&judged).contains("(this host has no kernel exact)"), "{judged:?}");
    assert_eq!(skips(one, &["--without", "zones"]).status.code(), Some(1));
    // A package can be installed, and an unknown reason counts as none.
    for reason in ["SKIPPED: no fio here", "SKIPPED something", "SKIPPED"] {
        assert_eq!(skips(&format!("{one}{reason}\n"), &["--without", "exact"]).status.code(), Some(1), "{reason}");
    }
    // A reason is not believed: a host with user namespaces could have run this.
    let namespaces = Command::new("unshare").args(["-Urm", "true"]).status().is_ok_and(|status| status.success());
    let judged = skips("SKIPPED: this host permits no mount in a user namespace (unshare -Urm)\n", &[]);
    assert_eq!(judged.status.code(), Some(i32::from(namespaces)), "{judged:?}");
    assert_eq!(skips("test one ... ok\nNOT SKIPPED: fine\n", &[]).status.code(), Some(0));
}
