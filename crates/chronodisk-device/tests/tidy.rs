//! What a compiler does not check about the crates that hold no clock and no socket: `sim`, `device`, `trace`, `store`,
//! `squash`.

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

/// What their sources may not name, each with the reason.
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
            complaints.extend(untidy(&text).into_iter().map(|what| format!("{}:{what}", path.display())));
        }
    }
    assert!(files > 20, "only {files} files were found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_checks_see_what_they_look_for() {
    assert_eq!(banned_dependency("[dependencies]\ntokio = \"1\"\n"), Some("tokio = \"1\"".to_owned()));
    assert_eq!(banned_dependency("[dependencies]\ntime = \"0.3\"\n"), Some("time = \"0.3\"".to_owned()));
    assert_eq!(banned_dependency("[dependencies]\nserde = \"1\"\n[dev-dependencies]\ntokio = \"1\"\n"), None);
    assert_eq!(untidy("use std::time::Instant;\n"), ["1: std::time: time is handed in, as Nanos"]);
    assert_eq!(untidy(&"x".repeat(121)), ["1: longer than 120 characters"]);
    assert_eq!(untidy(&"\n".repeat(801)), ["800: more than 800 lines; it wants to be two files"]);
}

/// The first line of the dependencies proper that names a banned crate.
fn banned_dependency(manifest: &str) -> Option<String> {
    let dependencies = manifest.split_once("[dependencies]")?.1;
    let dependencies = dependencies.split("\n[").next().unwrap_or_default();
    let banned = |line: &&str| BANNED_DEPENDENCIES.iter().any(|name| line.trim_start().starts_with(name));
    dependencies.lines().find(banned).map(str::to_owned)
}

fn untidy(text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for (word, reason) in BANNED_WORDS {
            // A test that can't run here has to say so.
            if line.contains(word) && !line.contains("eprintln!(\"SKIPPED") {
                complaints.push(format!("{number}: {word}: {reason}"));
            }
        }
        // A text that stands alone on its line can't be broken.
        if line.chars().count() > LONGEST_LINE && !line.trim_start().starts_with('"') {
            complaints.push(format!("{number}: longer than {LONGEST_LINE} characters"));
        }
    }
    if text.lines().count() > LONGEST_FILE {
        complaints.push(format!("{LONGEST_FILE}: more than {LONGEST_FILE} lines; it wants to be two files"));
    }
    complaints
}

fn crate_root(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(format!("chronodisk-{name}"))
}

fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
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
