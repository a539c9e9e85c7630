//! btrfs-progs as judges of file systems.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::e2fsprogs::program;

/// Whether the programs are installed; prints a line if not.
pub fn btrfsprogs_are_here() -> bool {
    let here = ["mkfs.btrfs", "btrfs"].iter().all(|name| program(name).is_some());
    if !here {
        println!("SKIPPED: no btrfs-progs here (Debian: apt-get install btrfs-progs)");
    }
    here
}

/// Runs a program of btrfs-progs.
pub fn tool(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name).unwrap()).args(arguments).output().unwrap()
}

/// Every item of every tree, logs included.
fn trees_of(image: &Path) -> String {
    let dumped = tool("btrfs", &["inspect-internal", "dump-tree", image.to_str().unwrap()]);
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    String::from_utf8_lossy(&dumped.stdout).into_owned()
}

/// The addresses of all nodes, with the transactions that wrote them.
fn nodes_of(trees: &str) -> HashMap<u64, u64> {
    let lines = trees.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let heads = lines.filter(|words| matches!(words.first(), Some(&("leaf" | "node"))) && words.contains(&"owner"));
    let numbers = heads.map(|words| {
        let generation = words.iter().position(|&word| word == "generation").unwrap() + 1;
        (words[1].parse().unwrap(), words[generation].parse().unwrap())
    });
    numbers.collect()
}

/// Output and status of a `btrfs check` without repair, contents of files included.
fn verdict(image: &Path) -> (Option<i32>, String) {
    let checked = tool("btrfs", &["check", "--check-data-csum", image.to_str().unwrap()]);
    let text = [checked.stdout, checked.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    (checked.status.code(), text.replace(image.to_str().unwrap(), "IMAGE"))
}

/// `btrfs check` gives the same output for two images; their trees and each copy of superblocks and nodes are equal.
pub fn compare_files(full: &Path, squashed: &Path, what: &str) {
    assert_eq!(verdict(full), verdict(squashed), "{what}");
    let trees = trees_of(full);
    assert!(trees == trees_of(squashed), "{what}: the trees differ");
    let nodes = nodes_of(&trees);
    let (expected, found) = (fs::read(full).unwrap(), fs::read(squashed).unwrap());
    for at in [64 << 10, 64 << 20] {
        assert!(expected[at..at + 4096] == found[at..at + 4096], "{what}: the superblocks at {at} differ");
    }
    const SUPERBLOCK_AT: usize = 64 << 10;
    let number = |at: usize| u64::from_le_bytes(expected[at..at + 8].try_into().unwrap());
    let uuid = &expected[SUPERBLOCK_AT + 32..][..16];
    let node_bytes = (number(SUPERBLOCK_AT + 144) >> 32) as usize;
    let mut copies = 0;
    for at in (0..=expected.len() - node_bytes).step_by(4096) {
        let is_node = &expected[at + 32..at + 48] == uuid && nodes.get(&number(at + 48)) == Some(&number(at + 80));
        if is_node {
            assert!(expected[at..at + node_bytes] == found[at..at + node_bytes], "{what}: the nodes at {at} differ");
            copies += 1;
        }
    }
    assert!(copies >= nodes.len(), "{what}: {copies} copies of {} nodes", nodes.len());
}
