//! Passes the commit of the sources to the command, and whether they were changed since.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CHRONODISK_COMMIT");
    // A packager builds from an archive without git.
    let given = std::env::var("CHRONODISK_COMMIT").ok().filter(|commit| !commit.is_empty());
    let commit = given.or_else(commit_of_checkout);
    println!("cargo::rustc-env=CHRONODISK_COMMIT={}", commit.unwrap_or_default());
    // In a work tree they may be elsewhere. A dependency on a missing file would cause a build each time.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name]);
        if let Some(path) = path.filter(|path| Path::new(path).exists()) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // Without optimisation a position-independent executable has 200,000 relocations. Each process of a guest's run,
    // and its init inside, would begin with them: 15 % of a run of `true`. Packages keep a random address.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}

/// Commit of this checkout, with `-dirty` if the command is built from other sources.
fn commit_of_checkout() -> Option<String> {
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let root = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let mut sources: Vec<PathBuf> = ["Cargo.toml", "Cargo.lock", "profiles"].map(|name| root.join(name)).into();
    for entry in std::fs::read_dir(root.join("crates")).ok()?.flatten() {
        sources.extend(["Cargo.toml", "src", "kernel", "shim"].map(|name| entry.path().join(name)));
    }
    sources.retain(|path| path.exists());
    let mut status = vec!["status", "--porcelain", "--"];
    for path in sources.iter().filter_map(|path| path.to_str()) {
        // A change builds the command again, so that the mark comes and goes with it.
        println!("cargo::rerun-if-changed={path}");
        status.push(path);
    }
    let is_dirty = git(&status).is_some();
    Some(if is_dirty { format!("{commit}-dirty") } else { commit })
}

/// The first line of git's output in this repository.
fn git(arguments: &[&str]) -> Option<String> {
    // A refreshed index would be written while another git of the user's may use it.
    let arguments = [&["--no-optional-locks"], arguments].concat();
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
}
