//! Properties of the sources that a compiler does not check: size, direction of dependencies, absence of clocks and
//! sockets from some crates (`sim`, `device`, `trace`, `store`, `squash`), and the existence of tests named in a
//! document.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose results depend on nothing but their input.
const PURE_CRATES: [&str; 5] = ["sim", "device", "trace", "store", "squash"];

/// Crates that none of them may depend on, by the beginning of the name.
const BANNED_DEPENDENCIES: [&str; 16] = [
    "async-",
    "chronodisk-cli",
    "chronodisk-engine",
    "chronodisk-front",
    "chronodisk-guest",
    "chronodisk-py",
    "chrono ",
    "futures",
    "hyper",
    "mio",
    "pyo3",
    "rayon",
    "smol",
    "socket2",
    "time ",
    "tokio",
];

/// Words banned from their sources, each with the reason.
const BANNED_WORDS: [(&str, &str); 12] = [
    ("std::time", "time is handed in, as Nanos"),
    ("Instant::now", "time is handed in, as Nanos"),
    ("SystemTime", "time is handed in, as Nanos"),
    ("std::net", "sockets belong to the front ends"),
    ("unix::net", "sockets belong to the front ends"),
    ("std::thread", "threads belong to the engine and the front ends"),
    ("thread_rng", "random numbers come from a RandomStream"),
    ("RandomState", "results must not depend on a hash's seed"),
    ("println!", "libraries do not print"),
    ("todo!", "finish it"),
    ("TODO", "finish it"),
    ("FIXME", "finish it"),
];

const LONGEST_LINE: usize = 120;
const LONGEST_FILE: usize = 800;

#[test]
fn pure_crates_depend_on_no_runtime_socket_clock_or_python() {
    for name in PURE_CRATES {
        let manifest = crate_root(name).join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        assert!(text.contains("[dependencies]"), "{} has no dependencies to check", manifest.display());
        assert_eq!(banned_dependency(&text), None, "{}", manifest.display());
    }
}

#[test]
fn pure_sources_are_tidy() {
    let mut complaints = Vec::new();
    let mut files = 0;
    for name in PURE_CRATES {
        for path in sources(&crate_root(name).join("src")) {
            files += 1;
            let text = fs::read_to_string(&path).unwrap();
            complaints.extend(impure(&text).into_iter().map(|what| format!("{}:{what}", path.display())));
        }
    }
    assert!(files > 20, "only {files} files were found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn all_sources_have_short_lines_and_files() {
    let mut complaints = Vec::new();
    let mut files = 0;
    for name in crates() {
        for folder in ["src", "tests", "benches", "examples"] {
            for path in sources(&crate_root(&name).join(folder)) {
                files += 1;
                let text = fs::read_to_string(&path).unwrap();
                complaints.extend(long(&text).into_iter().map(|what| format!("{}:{what}", path.display())));
            }
        }
    }
    assert!(files > 300, "only {files} files were found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn dependencies_point_down_the_table_of_the_architecture() {
    let text = fs::read_to_string(crate_root("device").join("../../ARCHITECTURE.md")).unwrap();
    let order = crates_in_order(&text);
    let mut missing = crates();
    missing.retain(|name| !order.contains(name));
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name {missing:?}");
    for (rank, name) in order.iter().enumerate() {
        let manifest = fs::read_to_string(crate_root(name).join("Cargo.toml")).unwrap();
        let upward: Vec<_> = dependencies(&manifest).filter(|used| !order[rank + 1..].contains(used)).collect();
        assert!(upward.is_empty(), "{name} depends on {upward:?}, which are not below it in ARCHITECTURE.md");
    }
}

#[test]
fn tests_that_the_documents_name_are_there() {
    let root = crate_root("device").join("../..");
    let document = fs::read_to_string(root.join("docs/durability.md")).unwrap();
    let (_, table) = document.split_once("## Defects that were found").expect("the heading of the table");
    // Of "`a`, `b`" each second piece between back quotes is a name.
    let named: Vec<&str> = table.split('`').skip(1).step_by(2).filter(|name| name.matches('_').count() > 2).collect();
    assert!(named.len() > 20, "{named:?}");
    let sources: String = crates()
        .iter()
        .flat_map(|name| sources(&crate_root(name)))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let is_there = |name: &&str| sources.contains(&format!("#[test]\nfn {name}()"));
    let missing: Vec<&str> = named.into_iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "no tests of these names: {missing:?}");
}

#[test]
fn the_checks_see_what_they_look_for() {
    assert_eq!(banned_dependency("[dependencies]\ntokio = \"1\"\n"), Some("tokio = \"1\"".to_owned()));
    assert_eq!(banned_dependency("[dependencies]\ntime = \"0.3\"\n"), Some("time = \"0.3\"".to_owned()));
    assert_eq!(banned_dependency("[dependencies]\nserde = \"1\"\n[dev-dependencies]\ntokio = \"1\"\n"), None);
    assert_eq!(impure("use std::time::Instant;\n"), ["1: std::time: time is handed in, as Nanos"]);
    assert_eq!(long(&"x".repeat(121)), ["1: longer than 120 characters"]);
    assert_eq!(long(&"\n".repeat(801)), ["800: more than 800 lines; it wants to be two files"]);
    let table = "| word | x |\n| `chronodisk-a` | x |\n| `chronodisk-b` | x |\n";
    assert_eq!(crates_in_order(table), ["a", "b"]);
    let manifest =
        "[dependencies]\nchronodisk-a = { workspace = true }\nlibc = \"1\"\n[dev-dependencies]\nchronodisk-b = 1\n";
    assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["a"]);
}

/// The first line of the dependencies proper that names a banned crate.
fn banned_dependency(manifest: &str) -> Option<String> {
    let dependencies = manifest.split_once("[dependencies]")?.1;
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let banned = |line: &&str| BANNED_DEPENDENCIES.iter().any(|name| line.trim_start().starts_with(name));
    dependencies.lines().find(banned).map(str::to_owned)
}

/// The crates that the rows of a table begin with, in order, without `chronodisk-`.
fn crates_in_order(text: &str) -> Vec<String> {
    let name = |line: &str| Some(line.strip_prefix("| `chronodisk-")?.split_once('`')?.0.to_owned());
    text.lines().filter_map(name).collect()
}

/// The crates of ours that a manifest's crate needs, but for its tests, without `chronodisk-`.
fn dependencies(manifest: &str) -> impl Iterator<Item = String> {
    let section = manifest.split_once("[dependencies]").map_or("", |(_, rest)| rest);
    let section = section.split("\n[").next().unwrap_or_default();
    let name = |line: &str| {
        let rest = line.strip_prefix("chronodisk-")?;
        Some(rest.split([' ', '.', '=']).next()?.to_owned())
    };
    section.lines().filter_map(name).collect::<Vec<_>>().into_iter()
}

/// Banned words in a crate with results that depend on nothing but its input.
fn impure(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for (word, reason) in BANNED_WORDS {
            // A test that can't run here has to say so.
            if line.contains(word) && !line.contains("eprintln!(\"SKIPPED") {
                complaints.push(format!("{number}: {word}: {reason}"));
            }
        }
    }
    complaints
}

fn long(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        // A text can't be broken, nor an attribute with one value.
        let is_fixed = line.contains('"') || line.trim_start().starts_with("#[");
        if line.chars().count() > LONGEST_LINE && !is_fixed {
            complaints.push(format!("{number}: longer than {LONGEST_LINE} characters"));
        }
    }
    if text.lines().count() > LONGEST_FILE {
        complaints.push(format!("{LONGEST_FILE}: more than {LONGEST_FILE} lines; it wants to be two files"));
    }
    complaints
}

/// All crates, without `chronodisk-`.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(crate_root("device").join("..")).unwrap();
    let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix("chronodisk-").map(str::to_owned);
    folders.filter_map(|entry| name(entry.unwrap())).collect()
}

fn crate_root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(format!("chronodisk-{name}"))
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(directory) else { return found };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}
