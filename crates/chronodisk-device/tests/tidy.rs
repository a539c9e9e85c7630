//! Properties of the sources that a compiler does not check: size, direction of dependencies, absence of clocks and
//! sockets from some crates (`sim`, `device`, `trace`, `store`, `squash`), and the existence of tests named in a
//! document.

use std::fs;
use std::path::{Path, PathBuf};

/// Crates whose results depend only on their input.
const PURE_CRATES: [&str; 6] = ["sim", "device", "trace", "crash", "store", "squash"];

/// Crates on which none of them may depend, by the beginning of the name.
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

/// The module that makes all listeners, so that each connection has a place among a bounded number.
const LISTENING: &str = "chronodisk-engine/src/listen";

#[test]
fn listeners_are_made_in_one_module_and_each_is_attacked() {
    let tests = fs::read_to_string(crate_root("cli").join("tests/serve/listeners.rs")).unwrap();
    let (mut elsewhere, mut untested) = (Vec::new(), Vec::new());
    for name in crates() {
        for path in sources(&crate_root(&name).join("src")) {
            let shown = path.display().to_string();
            if shown.contains(LISTENING) {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let code = || text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let binds = ["TcpListener::bind", "UnixListener::bind", "net::listen(", "libc::listen("];
            if code().any(|line| binds.iter().any(|bind| line.contains(bind))) {
                elsewhere.push(shown.clone());
            }
            let makes = code().any(|line| line.contains("Listener::tcp(") || line.contains("Listener::unix("));
            let source = shown.rsplit_once("/../").map_or(&*shown, |(_, source)| source);
            if makes && !tests.contains(&format!("\"{source}\"")) {
                untested.push(shown);
            }
        }
    }
    assert!(elsewhere.is_empty(), "{LISTENING} makes listeners: {elsewhere:?}");
    assert!(untested.is_empty(), "listeners without a case in tests/serve/listeners.rs: {untested:?}");
}

/// Functions that read a whole file into memory; `TextFile` of `chronodisk-sim` does so within its limit.
const WHOLE_READS: [&str; 4] = ["read_to_string(", "read_to_end(", "fs::read(", "read_to_string)"];
/// Folders and files of the kernel and of the host's system, which no user writes.
const HOST_FILES: [&str; 3] = ["\"/proc", "\"/sys", "\"/etc/os-release\""];
/// Sources that read other files of the host's own as a whole, with the reason and the number of places.
const OWN_READS: [(&str, usize, &str); 31] = [
    ("sim/src/text.rs", 1, "the reading function itself"),
    ("run/src/guest/surroundings.rs", 1, "the list of packages of the system"),
    ("run/src/guest/snapshot.rs", 1, "at most 68 KiB by `take`"),
    ("run/src/memory.rs", 1, "a file of /sys"),
    ("run/src/serve/ending.rs", 1, "a file of /sys"),
    ("guest/src/inside/init.rs", 2, "files of /sys"),
    ("guest/src/inside/root.rs", 1, "at most a head by `take`"),
    ("guest/src/inside/generic_code.rs", 2, "files of /proc and /sys"),
    ("guest/src/inside/settle.rs", 2, "files of /proc"),
    ("guest/src/recording/mod.rs", 1, "memory that the launcher shares with its guest"),
    ("guest/src/shared/records.rs", 1, "memory that the launcher shares with its backend"),
    ("guest/src/kernel/built/mod.rs", 1, "a file of a build of ours"),
    ("guest/src/kernel/built/package.rs", 2, "files beside a kernel of ours, and the system's licence"),
    ("guest/src/calibration/native.rs", 2, "files of /sys and /proc"),
    ("guest/src/shared/header.rs", 1, "a test"),
    ("guest/src/sweeper/mod.rs", 1, "a pipe of the launcher"),
    ("guest/src/launcher/host.rs", 2, "files of /sys, and at most 8 KiB by `take`"),
    ("guest/src/launcher/modules.rs", 3, "the modules of the host's kernel and their lists"),
    ("guest/src/confinement/tests.rs", 1, "a test"),
    ("guest/src/inside/machine.rs", 1, "the host's /etc/hosts"),
    ("engine/src/ending/offspring.rs", 1, "files of /proc"),
    ("native/src/queue.rs", 1, "a file of /sys"),
    ("native/src/loop_device.rs", 1, "a file of /sys"),
    ("native/src/watch.rs", 1, "a file of /sys"),
    ("run/src/folder/directory.rs", 1, "at most the size of a file of write pointers by `take`"),
    ("run/src/crash/checker.rs", 1, "a pipe of the caller"),
    ("guest/src/inside/states/steps.rs", 1, "at most 2 KiB by `take`"),
    ("store/src/recording/reader.rs", 3, "at most the length of an entry by `take`"),
    ("store/src/recording/tests.rs", 2, "a test"),
    ("sweep/src/block_trace.rs", 1, "at most 4 KiB by `take`"),
    ("front/src/nbd/mod.rs", 1, "an example in a document"),
];

#[test]
fn whole_files_are_read_within_the_limits_of_their_kind() {
    let mut complaints = Vec::new();
    for name in crates() {
        if name == "py" {
            continue;
        }
        for path in sources(&crate_root(&name).join("src")) {
            let text = fs::read_to_string(&path).unwrap();
            let found = whole_reads(&text);
            let shown = path.display().to_string();
            let allowed = OWN_READS.iter().find(|(file, ..)| shown.ends_with(&format!("chronodisk-{file}")));
            if found != allowed.map_or(0, |(_, count, _)| *count) {
                complaints.push(format!("{shown}: {found} places"));
            }
        }
    }
    let told = "read a text with `TextFile` of `chronodisk-sim`, which has a limit";
    assert!(complaints.is_empty(), "{told}\n{}", complaints.join("\n"));
}

/// Places outside of tests where a file that a user may have written is read as a whole.
fn whole_reads(text: &str) -> usize {
    let own = text.split("#[cfg(test)]").next().unwrap_or_default();
    let is_read = |line: &&str| {
        WHOLE_READS.iter().any(|call| line.contains(call)) && !HOST_FILES.iter().any(|file| line.contains(file))
    };
    own.lines().filter(is_read).count()
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
    let document = fs::read_to_string(root.join("experiments/store_faults/README.md")).unwrap();
    let (_, table) = document.split_once("## Defects that were found").expect("the heading of the table");
    // In "`a`, `b`", every second piece between back quotes is a name.
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

/// Banned words in a crate whose results depend only on its input.
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
        // A long text or an attribute with one value can't be split.
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
