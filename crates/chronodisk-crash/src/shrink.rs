//! Reduces the lost writes of a failing state: delta debugging (Zeller and Hildebrandt, 2002).

use crate::states::Lost;

/// Searches for the fewest lost requests with which a check still fails.
///
/// The caller checks the [candidates](Self::candidates) of a round at the same time, and returns the verdicts to
/// [`take`](Self::take). No request of the last result can be taken out alone.
#[derive(Clone, Debug)]
pub struct Shrink {
    whole: Lost,
    /// The requests that are still lost.
    requests: Vec<usize>,
    parts: usize,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Whether the check fails without any loss.
    Nothing,
    Parts,
    Done,
}

impl Shrink {
    /// Begins with the losses of a failing state.
    #[must_use]
    pub fn new(lost: &Lost) -> Self {
        let requests = lost.requests().map(|(request, _)| request).collect();
        Shrink { whole: lost.clone(), requests, parts: 2, stage: Stage::Nothing }
    }

    /// The present result.
    #[must_use]
    pub fn lost(&self) -> Lost {
        self.whole.of(&self.requests)
    }

    /// The losses to check in this round; none once the result is final.
    #[must_use]
    pub fn candidates(&self) -> Vec<Lost> {
        self.sets().iter().map(|requests| self.whole.of(requests)).collect()
    }

    /// Goes on with the verdicts on the candidates, in their order: whether the check failed.
    pub fn take(&mut self, fails: &[bool]) {
        let sets = self.sets();
        let found = sets.iter().zip(fails).position(|(_, fails)| *fails);
        match (self.stage, found) {
            (Stage::Done, _) => {}
            (Stage::Nothing, Some(_)) => {
                self.requests.clear();
                self.stage = Stage::Done;
            }
            (Stage::Nothing, None) => self.stage = Stage::Parts,
            (Stage::Parts, Some(index)) => {
                let is_complement = index >= self.parts;
                self.requests.clone_from(&sets[index]);
                self.parts = if is_complement { (self.parts - 1).max(2) } else { 2 };
            }
            (Stage::Parts, None) if self.parts >= self.requests.len() => self.stage = Stage::Done,
            (Stage::Parts, None) => self.parts = (2 * self.parts).min(self.requests.len()),
        }
        if self.requests.len() <= 1 && self.stage == Stage::Parts {
            self.stage = Stage::Done;
        }
    }

    /// The parts of the present result, then their complements.
    fn sets(&self) -> Vec<Vec<usize>> {
        match self.stage {
            Stage::Done => Vec::new(),
            Stage::Nothing if self.requests.is_empty() => Vec::new(),
            Stage::Nothing => vec![Vec::new()],
            Stage::Parts => {
                let count = self.requests.len();
                let bound = |part: usize| part * count / self.parts;
                let parts = (0..self.parts).map(|part| self.requests[bound(part)..bound(part + 1)].to_vec());
                let others = |part: usize| [&self.requests[..bound(part)], &self.requests[bound(part + 1)..]].concat();
                // Of two parts, each is the complement of the other.
                let complements = (0..self.parts).filter(|_| self.parts > 2).map(others);
                parts.chain(complements).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shrunk(count: usize, fails: impl Fn(&[usize]) -> bool) -> Vec<usize> {
        let mut lost = Lost::default();
        (0..count).for_each(|request| lost.insert(request, 0));
        let mut shrink = Shrink::new(&lost);
        for _ in 0..1000 {
            let candidates = shrink.candidates();
            if candidates.is_empty() {
                return shrink.lost().requests().map(|(request, _)| request).collect();
            }
            let requests = |lost: &Lost| lost.requests().map(|(request, _)| request).collect::<Vec<_>>();
            let verdicts: Vec<bool> = candidates.iter().map(|lost| fails(&requests(lost))).collect();
            shrink.take(&verdicts);
        }
        panic!("it does not end");
    }

    #[test]
    fn the_culprits_alone_are_left() {
        assert_eq!(shrunk(17, |lost| lost.contains(&11)), [11]);
        assert_eq!(shrunk(64, |lost| lost.contains(&3) && lost.contains(&40)), [3, 40]);
        assert_eq!(shrunk(5, |lost| lost.len() == 5), [0, 1, 2, 3, 4]);
        assert_eq!(shrunk(1, |lost| lost.len() == 1), [0]);
    }

    #[test]
    fn a_check_that_fails_without_a_loss_needs_none() {
        assert!(shrunk(9, |_| true).is_empty());
        assert!(shrunk(0, |_| true).is_empty());
    }
}
