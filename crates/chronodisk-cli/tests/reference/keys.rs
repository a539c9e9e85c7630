//! The page of the keys of profiles, from the readers of the built-in ones.

use std::collections::BTreeMap;
use std::fmt::Write;

use chronodisk_device::{Profile, ProfileKey};

const HEAD: &str = "# Keys of profiles

A profile is a TOML file. These are the keys that the readers of profiles ask for, by the kind of device. An example is
the value in a built-in profile. What a key does is said in the documentation of the kind's module
(`cargo doc --no-deps --document-private-items --package chronodisk-device --open`), and beside the key in
`chronodisk devices show NAME`. A value may also be written as `{ value = .., source = \"..\" }`.

This page is generated; a test compares it with the readers.
";

/// Profiles by their kinds, with the tables and choices that no built-in profile has and that bring keys of their own.
const RARE: &[(&str, &str)] = &[("disk", RARE_DISK)];

const RARE_DISK: &str = r#"
name = "rare"
kind = "disk"
description = "a drive with rare keys"
source = "none"
validation = "unvalidated"
capacity = "51200 B"

[geometry]
surfaces = 1
cylinders = 10

[[geometry.zones]]
first-cylinder = 0
last-cylinder = 9
blocks-per-track = 10
track-skew = "0 sectors"
cylinder-skew = "0 sectors"

[mechanics]
access = "constant"
access-time = "5 ms"
rotation = "6000 rpm"
head-switch = "1 ms"

[mechanics.seek]
curve = "constant"
time = "1 ms"

[controller]
interface-rate = "80 MB/s"
queue-depth = 1
segments = 1
segment-size = "64 sectors"
read-ahead = "0 sectors"
write-buffer = "64 sectors"
scheduler = "aged-sptf"
weight = 0.5

[nonvolatile]
blocks = "8 sectors"
access = "1 us"
"#;

/// A fault of each kind, with all its keys: no built-in profile has faults.
const FAULTS: [&str; 9] = [
    "kind=latent,offset=1GiB,length=64KiB,retry-time=1s,from=10s",
    "kind=transient,rate=0.001,operation=read",
    "kind=recovered,every=9,retry-time=1s",
    "kind=slow,factor=10,for=1min",
    "kind=hang,at=5s,for=30s",
    "kind=death,after-requests=1000",
    "kind=wear-out,after-written=1TiB",
    "kind=lying-flush",
    "kind=torn-write,every=100,sectors=8",
];

/// Longer examples are left out.
const EXAMPLE_MAX_CHARS: usize = 40;

/// A key of all profiles of a kind.
struct Key {
    table: String,
    name: &'static str,
    expected: String,
    /// Number of reads that require the key.
    required: usize,
    /// A value, and the name of the profile that has it.
    example: Option<(String, String)>,
}

/// The keys of a kind, in the order in which they were asked for first, and how often each table was read.
#[derive(Default)]
struct Kind {
    keys: Vec<Key>,
    reads: BTreeMap<String, usize>,
}

pub fn page() -> String {
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for builtin in Profile::builtin() {
        let profile = Profile::find(&builtin.name).unwrap();
        kinds.entry(builtin.kind.clone()).or_default().add(&profile, true);
    }
    for (kind, text) in RARE {
        let profile = Profile::parse(text, kind).unwrap_or_else(|error| panic!("{error}"));
        kinds.get_mut(*kind).expect("a built-in profile of the kind").add(&profile, false);
    }
    let common: Vec<(String, &'static str)> = kinds.values().next().map_or(Vec::new(), |first| {
        let all_have = |key: &&Key| kinds.values().all(|kind| kind.find(&key.table, key.name).is_some());
        first.keys.iter().filter(all_have).map(|key| (key.table.clone(), key.name)).collect()
    });
    let is_common = |key: &Key| common.contains(&(key.table.clone(), key.name));

    let mut page = HEAD.to_owned();
    let any = kinds.values().next().expect("there are built-in profiles");
    section("Every profile", any, &mut page, |key| is_common(key));
    let (mut faults, null) = (Kind::default(), Profile::find("null").unwrap());
    FAULTS.iter().for_each(|fault| faults.add(&null.with_fault(fault).unwrap(), true));
    section("Faults of every profile", &faults, &mut page, |key| key.table == "faults");
    for (name, kind) in &kinds {
        section(&format!("`kind = \"{name}\"`"), kind, &mut page, |key| !is_common(key));
    }
    page
}

impl Kind {
    fn add(&mut self, profile: &Profile, gives_examples: bool) {
        let keys = profile.keys();
        let mut tables: Vec<&str> = Vec::new();
        for ProfileKey { table, name, expected, is_required, value } in &keys {
            // Of several tables of an array, all have the same path.
            if !tables.contains(&table.as_str()) {
                tables.push(table);
                *self.reads.entry(table.clone()).or_default() += 1;
            }
            let known = self.keys.iter().position(|key| key.table == *table && key.name == *name);
            let at = known.unwrap_or_else(|| {
                let key = Key { table: table.clone(), name, expected: String::new(), required: 0, example: None };
                self.keys.push(key);
                self.keys.len() - 1
            });
            let key = &mut self.keys[at];
            // The expected value may depend on another key.
            match expected {
                Some(expected) if key.expected.is_empty() => key.expected.clone_from(expected),
                Some(expected) if !key.expected.contains(expected) => write!(key.expected, ", or {expected}").unwrap(),
                _ => {}
            }
            key.required += usize::from(*is_required);
            let is_table = expected.as_ref().is_some_and(|expected| expected.contains("table"));
            let short =
                |value: &&String| !is_table && value.chars().count() <= EXAMPLE_MAX_CHARS && !value.contains('\n');
            let value = value.as_ref().filter(|value| gives_examples && short(value));
            if let (None, Some(value)) = (&key.example, value) {
                key.example = Some((value.clone(), profile.name().to_owned()));
            }
        }
    }

    fn find(&self, table: &str, name: &str) -> Option<&Key> {
        self.keys.iter().find(|key| key.table == table && key.name == name)
    }
}

fn section(title: &str, kind: &Kind, page: &mut String, is_in: impl Fn(&Key) -> bool) {
    write!(page, "\n## {title}\n").unwrap();
    let mut tables: Vec<&str> = Vec::new();
    for key in kind.keys.iter().filter(|key| is_in(key)) {
        if !tables.contains(&key.table.as_str()) {
            tables.push(&key.table);
        }
    }
    if tables.is_empty() {
        write!(page, "\nNo keys of its own.\n").unwrap();
    }
    for table in tables {
        if !table.is_empty() {
            write!(page, "\n### `[{table}]`\n").unwrap();
        }
        write!(page, "\n| key | value | required | example |\n|---|---|---|---|\n").unwrap();
        for key in kind.keys.iter().filter(|key| key.table == table && is_in(key)) {
            let required = if key.required >= kind.reads[table] { "yes" } else { "" };
            let example = key.example.as_ref().map_or(String::new(), |(value, of)| format!("`{value}` ({of})"));
            let expected = key.expected.replace('|', "\\|");
            writeln!(page, "| `{}` | {expected} | {required} | {example} |", key.name).unwrap();
        }
    }
}
