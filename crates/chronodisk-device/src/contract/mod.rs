//! The model contract as a property test: every model and every composition of models goes through [`check`].
//!
//! ```
//! use chronodisk_device::{BuildOptions, Profile, contract};
//!
//! let profile = Profile::find("constant-1ms")?;
//! contract::check("constant-1ms", 16, &|seed| {
//!     profile.build(&BuildOptions { seed, ..BuildOptions::default() }).expect("the profile's own capacity")
//! });
//! # Ok::<(), chronodisk_device::ProfileError>(())
//! ```
//!
//! A case is a random history of arrivals: bursts at one instant, arrivals exactly at a completion or one nanosecond
//! before it, idle gaps of up to weeks, requests at the ends of the device and in sequence, all operations, and sizes
//! from one block to tens of megabytes. The history is played to fresh devices in several ways, and each of the nine
//! [rules](Rule) is checked. A history that breaks a rule is shrunk to a small one. Cases are derived from the name
//! alone, so a failure repeats.
//!
//! Not checked: the work inside a single call (a model that runs a year of refreshes one by one hangs the test rather
//! than failing it), and the order of arrivals within one instant if the model treats requests alike.

mod durability;
mod history;
mod play;
mod rules;

use std::fmt;

use chronodisk_sim::RandomStream;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::DeviceModel;

/// Makes a fresh device with the given seed.
pub type Make<'a> = &'a dyn Fn(u64) -> Box<dyn DeviceModel>;

/// The rules of the model contract, in the order of [`DeviceModel`]'s documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A request arrives at the present instant, after all events due there, in order of submission.
    Arrival,
    /// Completions up to an instant do not depend on later arrivals.
    NonAnticipation,
    /// The size of the steps does not change a model's completions.
    Stepping,
    /// Each request completes once, after its arrival, within a bounded number of events.
    Conservation,
    /// `next_event` and `completion_bound` are correct.
    Bounds,
    /// A drained model has no outstanding request, with or without background work.
    Drained,
    /// Equal seed and arrivals give equal completions and statistics.
    Determinism,
    /// A fork and its original do not influence each other.
    Fork,
    /// Flushed, FUA and uncached writes are durable once they complete, and stay so.
    Durability,
}

/// A broken rule, with the observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The observation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {:?} is broken: {}", self.rule, self.what)
    }
}

/// Plays `cases` random histories to the devices that `make` makes.
///
/// # Panics
/// If a rule is broken, with the smallest history found.
pub fn check(name: &str, cases: u32, make: Make<'_>) {
    if let Some((violation, history)) = find_violation(name, cases, make) {
        panic!("{name}: {violation}\nThe smallest history found:\n{history}");
    }
}

/// Like [`check`], but returns the broken rule and the smallest history found instead of panicking.
///
/// # Panics
/// If the model itself panics.
pub fn find_violation(name: &str, cases: u32, make: Make<'_>) -> Option<(Violation, String)> {
    find_violation_of(name, cases, &|plan| rules::check_all(plan, make))
}

/// Plays `cases` random histories, and checks rule 9 alone. A device that does not tell its volatile sectors fails.
///
/// # Panics
/// If the rule is broken, with the smallest history found.
#[cfg(test)]
pub(crate) fn check_durability(name: &str, cases: u32, make: Make<'_>) {
    assert!(make(0).volatile().is_some(), "{name} does not tell its volatile sectors");
    if let Some((violation, history)) = find_violation_of(name, cases, &|plan| durability::durability(plan, make)) {
        panic!("{name}: {violation}\nThe smallest history found:\n{history}");
    }
}

/// Searches for a history that breaks one of the rules that `check` checks.
fn find_violation_of(
    name: &str,
    cases: u32,
    check: &dyn Fn(&history::Plan) -> Result<(), Violation>,
) -> Option<(Violation, String)> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut stream = RandomStream::new(0, name, "contract");
    let seed: Vec<u8> = (0..4).flat_map(|_| stream.next_u64().to_le_bytes()).collect();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let outcome = runner
        .run(&history::plan(), |plan| check(&plan).map_err(|violation| TestCaseError::fail(violation.to_string())));
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, plan)) => {
            // A nondeterministic model may keep the rules in a second run of the same history.
            let violation = check(&plan).err();
            let violation =
                violation.unwrap_or_else(|| Violation { rule: Rule::Determinism, what: reason.to_string() });
            Some((violation, format!("{plan:#?}")))
        }
        Err(TestError::Abort(reason)) => panic!("{name}: the harness gave up: {reason}"),
    }
}

/// Number of cases: the environment's `PROPTEST_CASES`, otherwise `default`.
#[must_use]
pub fn cases(default: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[cfg(test)]
mod durability_tests;
#[cfg(test)]
mod tests;
