//! Shrinks failing states to the fewest lost writes.

use chronodisk_crash::{Lost, Shrink, State};

use super::pool::{Pool, Verdict};
use crate::failure::Failure;

/// Rounds of checks for one state. Each halves the lost writes or refines the search, so that more are rare.
const ROUNDS_MAX: usize = 24;

/// The fewest lost writes with which the state fails in the same step; `None` if a signal ended the search.
pub(super) fn fewest(
    pool: &Pool<'_>,
    state: &State,
    verdict: &Verdict,
    seen: &mut (dyn FnMut() + Send),
) -> Result<Option<Lost>, Failure> {
    let mut shrink = Shrink::new(&state.lost);
    for _ in 0..ROUNDS_MAX {
        let candidates = shrink.candidates();
        if candidates.is_empty() {
            break;
        }
        let states: Vec<State> = candidates.into_iter().map(|lost| State { lost, ..state.clone() }).collect();
        let verdicts: Option<Vec<Verdict>> = pool.check(&states, seen)?.into_iter().collect();
        let Some(verdicts) = verdicts else { return Ok(None) };
        let fails: Vec<bool> = verdicts.iter().map(|found| found.failed == verdict.failed).collect();
        shrink.take(&fails);
    }
    Ok(Some(shrink.lost()))
}
