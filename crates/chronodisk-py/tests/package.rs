//! The tests of the Python package, with the extension module of this build.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The folder of this build's outputs, `target/debug` or similar.
fn built() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Assembles the package as installed: its Python files, and the module.
fn assemble(source: &Path, module: &Path) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("package");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(root.join("chronodisk")).unwrap();
    for entry in fs::read_dir(source.join("chronodisk")).unwrap().map(Result::unwrap) {
        // The folder may hold another build of the module or of the command.
        if entry.path().extension().is_some_and(|extension| extension == "so") || entry.file_name() == "bin" {
            continue;
        }
        symlink(entry.path(), root.join("chronodisk").join(entry.file_name())).unwrap();
    }
    symlink(module, root.join("chronodisk/_core.abi3.so")).unwrap();
    root
}

#[test]
fn the_python_package_passes_its_own_tests() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let source = repository.join("python");
    let module = built().join("deps/libchronodisk_core.so");
    assert!(module.exists(), "{} is missing, which this test depends on", module.display());
    let python = repository.join("target/experiments-python/bin/python");
    let has_pytest = |python: &Path| {
        let asked = Command::new(python).args(["-c", "import pyarrow, pytest"]).output();
        asked.is_ok_and(|output| output.status.success())
    };
    if !has_pytest(&python) {
        // Only this test of the crate needs the environment, which holds the packages that the experiments need, too.
        let made = Command::new("make")
            .args(["--silent", "-C"])
            .arg(repository.join("experiments"))
            .arg("../target/experiments-python/ready")
            .output();
        if !made.is_ok_and(|output| output.status.success()) || !has_pytest(&python) {
            println!("SKIPPED: no Python with pytest and pyarrow; make -C experiments check installs them");
            return;
        }
    }
    let mut tests = Command::new(&python);
    tests
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=append", "--durations=5", "-rs"])
        // A wheel is built by `make -C python wheel` only, whose test follows it.
        .arg(format!("--ignore={}", source.join("tests/test_wheel.py").display()))
        .arg(source.join("tests"));
    // Python looks for modules in the current folder first, and the package in the sources has no extension module.
    let package = assemble(&source, &module);
    tests.current_dir(&package).env("PYTHONPATH", &package).env("PYTHONDONTWRITEBYTECODE", "1");
    let command = built().join("chronodisk");
    if command.exists() {
        tests.env("CHRONODISK", &command);
    } else {
        println!("SKIPPED: the tests that call the command, which is not built; cargo build -p chronodisk-cli");
        tests.env("CHRONODISK", "");
        let path = env::var("PATH").unwrap_or_default();
        let without = path.split(':').filter(|folder| !Path::new(folder).join("chronodisk").exists());
        tests.env("PATH", without.collect::<Vec<_>>().join(":"));
    }
    let output = tests.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    println!("{told}");
    for line in told.lines().filter(|line| line.starts_with("SKIPPED")) {
        assert!(!line.contains("error"), "{line}");
    }
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
