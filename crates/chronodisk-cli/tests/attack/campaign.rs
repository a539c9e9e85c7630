//! The choice of attacks, and the report of their findings.

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::folder::{program, signal};
use crate::guest::family;
use crate::ledger::Random;

/// The outcome of an attack.
#[derive(Debug)]
pub enum Verdict {
    /// All guarantees held.
    Held,
    /// This host can't run the attack.
    Skipped(String),
    /// A promise was broken.
    Found(String),
}

/// An attack: a description, and its outcome.
pub type Attack = fn(&mut Random, &mut String) -> Verdict;

pub struct Kind {
    pub name: &'static str,
    /// Share of this kind in 100 attacks.
    pub percent: u64,
    pub attack: Attack,
}

/// Attacks of one seed, one after the other.
pub struct Campaign {
    seed: u64,
    seconds: u64,
    /// The seed of the only attack.
    one: Option<u64>,
    report: PathBuf,
}

const SCHEMA: &str = "chronodisk/attack/1";
/// An attack that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(600);

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

/// The seed of an attack, by its number in a campaign.
fn seed_of(campaign: u64, number: u64) -> u64 {
    Random::new(campaign.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ number).below(1 << 48)
}

/// One attack of each kind with a fixed seed.
pub fn one_of_each(kinds: &[Kind]) -> Vec<String> {
    let first = |kind: &Kind| (0..).find(|seed| kind_of(kinds, *seed).name == kind.name).expect("it has a share");
    kinds.iter().filter_map(|kind| make(kinds, first(kind)).1).collect()
}

fn kind_of(kinds: &[Kind], seed: u64) -> &Kind {
    let mut drawn = Random::new(seed).below(100);
    let is_drawn = |kind: &&Kind| {
        let is_it = drawn < kind.percent;
        drawn = drawn.wrapping_sub(kind.percent);
        is_it
    };
    kinds.iter().find(is_drawn).expect("the shares are 100")
}

/// Makes the attack of a seed. Returns the name of its kind and its finding.
fn make(kinds: &[Kind], seed: u64) -> (&'static str, Option<String>, &'static str) {
    let kind = kind_of(kinds, seed);
    let mut random = Random::new(seed ^ 0x5EED);
    let (mut described, started) = (String::new(), Instant::now());
    let verdict = catch_unwind(AssertUnwindSafe(|| (kind.attack)(&mut random, &mut described)));
    let verdict = verdict.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Verdict::Found(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    });
    let (became, found) = match verdict {
        Verdict::Held => ("held".to_owned(), None),
        Verdict::Skipped(reason) => (format!("SKIPPED: {reason}"), None),
        Verdict::Found(what) => {
            let what = on_one_line(&what);
            (format!("FOUND: {what}"), Some(what))
        }
    };
    let word = if found.is_some() {
        "found"
    } else if became == "held" {
        "held"
    } else {
        "skipped"
    };
    let seconds = started.elapsed().as_secs_f64();
    println!("attack {seed}: {}: {described}: {became} ({seconds:.1} s)", kind.name);
    let found = found.map(|what| format!("CHRONODISK_ATTACK_ONE={seed}: {}: {described}: {what}", kind.name));
    (kind.name, found, word)
}

/// A finding as a line of a report.
fn on_one_line(text: &str) -> String {
    const LONGEST: usize = 1_500;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST).collect()
}

impl Campaign {
    /// The campaign that is asked for, if one is.
    pub fn from_environment() -> Option<Self> {
        let (seconds, one) = (number("CHRONODISK_ATTACK_SECONDS"), number("CHRONODISK_ATTACK_ONE"));
        if seconds.is_none() && one.is_none() {
            return None;
        }
        let seed = number("CHRONODISK_ATTACK_SEED").unwrap_or(0);
        let report = std::env::var_os("CHRONODISK_ATTACK_REPORT").map_or_else(|| "attack.json".into(), PathBuf::from);
        Some(Campaign { seed, seconds: seconds.unwrap_or(0), one, report })
    }

    /// Attacks until the time is over. Returns the findings.
    pub fn run(&self, kinds: &'static [Kind]) -> Vec<String> {
        if let Some(seed) = self.one {
            return make(kinds, seed).1.into_iter().collect();
        }
        let mut report = Report::open(&self.report, self.seed);
        println!("attack: campaign {}, from attack {} on, {} s, {}", self.seed, report.next, self.seconds, program());
        let started = Instant::now();
        let (tell, told) = channel();
        let watchdog = std::thread::spawn(move || watch(&told));
        while started.elapsed().as_secs() < self.seconds {
            let seed = seed_of(self.seed, report.next);
            let _ = tell.send(Some(seed));
            let (kind, found, became) = make(kinds, seed);
            report.add(kind, found, became, started.elapsed());
        }
        let _ = tell.send(None);
        watchdog.join().expect("the watchdog ends when it is told");
        print!("{}", report.text());
        report.findings
    }
}

/// Ends the process if an attack hangs. Its seed repeats it.
fn watch(told: &Receiver<Option<u64>>) {
    let mut at = 0;
    loop {
        match told.recv_timeout(LONGEST) {
            Ok(Some(seed)) => at = seed,
            Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                eprintln!("attack {at}: FOUND: it hangs; CHRONODISK_ATTACK_ONE={at} repeats it");
                let own = std::process::id();
                family(own).into_iter().filter(|pid| *pid != own).for_each(|pid| signal(pid as i32, libc::SIGKILL));
                std::process::exit(1);
            }
        }
    }
}

/// The work of a campaign, including earlier calls.
struct Report {
    path: PathBuf,
    seed: u64,
    next: u64,
    seconds_before: f64,
    seconds: f64,
    /// Counts by kind and outcome.
    counts: BTreeMap<String, BTreeMap<String, u64>>,
    findings: Vec<String>,
}

impl Report {
    /// Continues an existing report of the same campaign.
    fn open(path: &Path, seed: u64) -> Self {
        let mut report = Report {
            path: path.to_owned(),
            seed,
            next: 0,
            seconds_before: 0.0,
            seconds: 0.0,
            counts: BTreeMap::new(),
            findings: Vec::new(),
        };
        let before = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(before) = before.filter(|before| before["schema"] == SCHEMA && before["seed"] == json!(seed)) else {
            return report;
        };
        report.next = before["next"].as_u64().unwrap_or(0);
        report.seconds_before = before["seconds"].as_f64().unwrap_or(0.0);
        report.counts = serde_json::from_value(before["attacks"].clone()).unwrap_or_default();
        report.findings = serde_json::from_value(before["findings"].clone()).unwrap_or_default();
        report
    }

    fn add(&mut self, kind: &str, found: Option<String>, became: &str, elapsed: Duration) {
        self.next += 1;
        self.seconds = self.seconds_before + elapsed.as_secs_f64();
        *self.counts.entry(kind.to_owned()).or_default().entry(became.to_owned()).or_default() += 1;
        self.findings.extend(found.map(|found| format!("after {:.0} s: {found}", self.seconds)));
        self.write().unwrap_or_else(|error| panic!("{}: {error}", self.path.display()));
    }

    fn write(&self) -> std::io::Result<()> {
        let value = json!({
            "schema": SCHEMA,
            "seed": self.seed,
            "command": program(),
            "next": self.next,
            "seconds": self.seconds,
            "attacks": self.counts,
            "findings": self.findings,
        });
        let beside = self.path.with_extension("json.new");
        let mut file = std::fs::File::create(&beside)?;
        writeln!(file, "{value:#}")?;
        std::fs::rename(beside, &self.path)?;
        std::fs::write(self.path.with_extension("txt"), self.text())
    }

    fn text(&self) -> String {
        let mut text = format!("campaign {}: {} attacks in {:.0} s\n", self.seed, self.next, self.seconds);
        for (kind, counts) in &self.counts {
            let counts: Vec<String> = counts.iter().map(|(word, count)| format!("{count} {word}")).collect();
            text.push_str(&format!("{kind:10} {}\n", counts.join(", ")));
        }
        self.findings.iter().for_each(|found| text.push_str(&format!("found {found}\n")));
        text
    }
}
