//! Shrinks failing states to the fewest lost writes.

use chronodisk_crash::{Lost, Shrink, State};
use chronodisk_guest::StateStep;

use super::pool::Pool;
use crate::failure::Failure;

/// Rounds of checks. Each halves the lost writes or refines the search, so that more are rare.
const ROUNDS_MAX: usize = 24;

/// For each state and its failed step, the fewest lost writes with which that step still fails. `None` if a signal
/// ended the search. The candidates of all states are checked together.
pub(super) fn fewest(pool: &Pool<'_>, failing: &[(&State, StateStep)]) -> Result<Option<Vec<Lost>>, Failure> {
    let mut searches: Vec<Shrink> = failing.iter().map(|(state, _)| Shrink::new(&state.lost)).collect();
    for _ in 0..ROUNDS_MAX {
        let rounds: Vec<Vec<Lost>> = searches.iter().map(Shrink::candidates).collect();
        let candidates = failing
            .iter()
            .zip(&rounds)
            .flat_map(|((state, _), round)| round.iter().map(|lost| State { lost: lost.clone(), ..(*state).clone() }));
        let candidates: Vec<State> = candidates.collect();
        if candidates.is_empty() {
            break;
        }
        let verdicts = pool.check(&candidates, &mut |_, _| Ok(()))?.into_iter().collect::<Option<Vec<_>>>();
        let Some(verdicts) = verdicts else { return Ok(None) };
        let mut verdicts = verdicts.into_iter();
        for ((search, round), (_, step)) in searches.iter_mut().zip(&rounds).zip(failing) {
            let fails: Vec<bool> =
                verdicts.by_ref().take(round.len()).map(|verdict| verdict.failed == Some(*step)).collect();
            search.take(&fails);
        }
    }
    Ok(Some(searches.iter().map(Shrink::lost).collect()))
}
