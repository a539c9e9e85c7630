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
//! A case is a random history of arrivals: bursts at one instant, arrivals exactly when something
//! completes or one nanosecond before, idle gaps up to weeks, requests at the ends of the device and in sequence, all
//! operations, sizes from one block to tens of megabytes. The history is played to fresh devices in several ways and
//! each of the eight [rules](Rule) is checked. A history that breaks a rule is shrunk to a small one. Cases follow from
//! the name alone, so a failure repeats.
//!
//! What it can't see: how much work is done inside a single call (a model that runs a year of refreshes one by one
//! hangs the test rather than failing it), and the order of arrivals within one instant where the model treats requests
//! alike.

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
    /// A request arrives at the present instant, after all that is due there, in order of submission.
    Arrival,
    /// Completions up to an instant do not depend on later arrivals.
    NonAnticipation,
    /// How a model is stepped changes nothing.
    Stepping,
    /// Each request completes once, after its arrival, within a bounded number of events.
    Conservation,
    /// `next_event` and `completion_bound` tell the truth.
    Bounds,
    /// A drained model has nothing outstanding, with or without background work.
    Drained,
    /// Equal seed and arrivals give equal completions and statistics.
    Determinism,
    /// A fork and its original know nothing of each other.
    Fork,
}

/// A rule that was broken, and how.
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

/// As [`check`], but returns the broken rule and the smallest history found instead of panicking.
///
/// # Panics
/// If the model itself panics.
pub fn find_violation(name: &str, cases: u32, make: Make<'_>) -> Option<(Violation, String)> {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut stream = RandomStream::new(0, name, "contract");
    let seed: Vec<u8> = (0..4).flat_map(|_| stream.next_u64().to_le_bytes()).collect();
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let outcome = runner.run(&history::plan(), |plan| {
        rules::check_all(&plan, make).map_err(|violation| TestCaseError::fail(violation.to_string()))
    });
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, plan)) => {
            // A model that is not deterministic may keep the rules when the same history is played again.
            let violation = rules::check_all(&plan, make).err();
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
mod tests;
