//! Imports have no circle: of files that import each other, in a loop of any length, none can be read or changed
//! without the others.
//!
//! Only `use` declarations count. Re-exports by parent modules are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A module's path within its crate.
type Module = Vec<String>;

#[test]
fn imports_have_no_circle() {
    let mut complaints = Vec::new();
    let mut files = 0;
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for entry in fs::read_dir(crates).unwrap() {
        let source = entry.unwrap().path().join("src");
        let mut modules = BTreeMap::new();
        collect(&source, &source, &mut modules);
        files += modules.len();
        let imports = modules.iter().map(|(module, path)| {
            let text = fs::read_to_string(path).unwrap();
            (module.clone(), imported(&text, module, modules.keys().cloned().collect()))
        });
        complaints.extend(circles(&imports.collect()).into_iter().map(|(from, to)| {
            format!("{} imports {}, which imports it", modules[&from].display(), modules[&to].display())
        }));
    }
    assert!(files > 300, "only {files} files were found");
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The folders of `chronodisk-guest`, each with the folders that it imports. The first ones name processes.
const GUEST_FOLDERS: [(&str, &[&str]); 9] = [
    ("shared", &[]),
    ("inside", &["shared"]),
    ("backend", &["shared"]),
    ("sweeper", &[]),
    ("kernel", &["shared"]),
    ("recording", &["shared"]),
    ("confinement", &["shared", "recording"]),
    ("launcher", &["shared", "kernel", "recording", "confinement"]),
    ("calibration", &["shared", "kernel", "launcher"]),
];

#[test]
fn processes_of_a_guest_share_data_alone() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chronodisk-guest/src");
    let mut modules = BTreeMap::new();
    collect(&source, &source, &mut modules);
    let mut complaints = Vec::new();
    for (module, path) in modules.iter().filter(|(module, _)| !module.is_empty()) {
        let (_, allowed) = GUEST_FOLDERS.iter().find(|(folder, _)| *folder == module[0]).expect("a known folder");
        let text = fs::read_to_string(path).unwrap();
        let folders = imported(&text, module, modules.keys().cloned().collect()).into_iter().map(|to| to[0].clone());
        let other = folders.filter(|folder| *folder != module[0] && !allowed.contains(&folder.as_str()));
        complaints.extend(other.map(|folder| format!("{} imports {folder}", path.display())));
    }
    assert!(modules.len() > 60, "only {} files were found", modules.len());
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn the_check_sees_a_circle_and_follows_every_form_of_an_import() {
    let module = |name: &str| name.split("::").map(str::to_owned).collect::<Module>();
    let all: BTreeSet<Module> = ["a", "a::b", "a::c", "d", "d::e"].map(module).into();
    let text = "use std::fmt;\n// use crate::d;\nuse super::{\n    c::{Left, Right as Other},\n};\n\
        pub(crate) use crate::a::c::Gone;\nuse crate::d::{self, e::Thing};\n#[cfg(test)]\nmod tests {\nuse crate::a::c;\n";
    assert_eq!(imported(text, &module("a::b"), all), ["a::c", "d", "d::e"].map(module).into());

    let of = |edges: &[(&str, &str)]| -> BTreeMap<Module, BTreeSet<Module>> {
        let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
        for (from, to) in edges {
            imports.entry(module(from)).or_default().insert(module(to));
        }
        imports
    };
    assert_eq!(circles(&of(&[("a::b", "d"), ("d", "d::e")])), []);
    let found = circles(&of(&[("a::b", "a::c"), ("a::c", "a::b")]));
    assert_eq!(found, [(module("a::b"), module("a::c")), (module("a::c"), module("a::b"))]);
    let found = circles(&of(&[("a::b", "d"), ("d", "d::e"), ("d::e", "a::b"), ("d", "a::c")]));
    let all = [("a::b", "d"), ("d", "d::e"), ("d::e", "a::b")].map(|(from, to)| (module(from), module(to)));
    assert_eq!(found, all);
}

/// Imports that are part of a circle.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<(Module, Module)> {
    let leads_to = |from: &Module, to: &Module| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
        while let Some(module) = left.pop() {
            if module == to {
                return true;
            }
            if seen.insert(module) {
                left.extend(imports.get(module).into_iter().flatten());
            }
        }
        false
    };
    let edges = imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)));
    edges.filter(|(from, to)| leads_to(to, from)).map(|(from, to)| (from.clone(), to.clone())).collect()
}

/// The modules that a file imports from.
fn imported(text: &str, module: &Module, all: BTreeSet<Module>) -> BTreeSet<Module> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut found = BTreeSet::new();
    for statement in code.split(';') {
        // The statement begins on a line of its own, after any code without a semicolon.
        let Some(line) = statement.lines().position(|line| line.trim_start().starts_with("use ")) else { continue };
        let tree: String = statement.lines().skip(line).collect::<String>().trim_start()[4..].split(' ').collect();
        for path in leaves(&tree) {
            let mut base = module.clone();
            let mut parts = path.split("::").peekable();
            match parts.peek().copied() {
                Some("crate") => base.clear(),
                Some("self") => {}
                Some("super") => {
                    while parts.next_if_eq(&"super").is_some() {
                        base.pop();
                    }
                }
                _ => continue,
            }
            let parts = parts.filter(|part| !["crate", "self"].contains(part)).map(str::to_owned);
            let mut target: Module = base.into_iter().chain(parts).collect();
            while !target.is_empty() && !all.contains(&target) {
                target.pop();
            }
            if !target.is_empty() && !module.starts_with(&target) {
                found.insert(target);
            }
        }
    }
    found
}

/// The single paths of a tree such as `a::{b, c::{d, e}}`.
fn leaves(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.to_owned()] };
    let body = rest.rsplit_once('}').map_or(rest, |(body, _)| body);
    let mut depth = 0;
    let parts = body.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    parts.filter(|part| !part.is_empty()).flat_map(|part| leaves(&format!("{before}{part}"))).collect()
}

/// All modules of a crate except tests, with their files.
fn collect(source: &Path, folder: &Path, modules: &mut BTreeMap<Module, PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem.ends_with("tests") || stem == "testing" {
            continue;
        }
        if path.is_dir() {
            collect(source, &path, modules);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let within = path.with_extension("");
            let names = within.strip_prefix(source).unwrap().iter().map(|name| name.to_string_lossy().into_owned());
            let mut module: Module = names.collect();
            if ["mod", "lib", "main"].contains(&module.last().unwrap().as_str()) {
                module.pop();
            }
            modules.insert(module, path);
        }
    }
}
