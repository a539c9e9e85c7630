//! Cuts and states, and the states that the rules of the block layer allow.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};

use chronodisk_sim::{Nanos, RandomStream};

use crate::history::History;

/// A loss of power right after an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The instant.
    pub at: Nanos,
    /// Position in the history, after all events up to and including the instant.
    pub position: usize,
}

/// The blocks that the device loses, by request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost(BTreeMap<usize, BTreeSet<u64>>);

impl Lost {
    /// Adds a block of a request.
    pub fn insert(&mut self, request: usize, block: u64) {
        self.0.entry(request).or_default().insert(block);
    }

    /// Whether the change of the block by the request is lost.
    #[must_use]
    pub fn contains(&self, request: usize, block: u64) -> bool {
        self.0.get(&request).is_some_and(|blocks| blocks.contains(&block))
    }

    /// The requests with lost blocks, in order of arrival, and the number of these blocks.
    pub fn requests(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().map(|(request, blocks)| (*request, blocks.len()))
    }

    /// The losses of these requests alone.
    #[must_use]
    pub fn of(&self, requests: &[usize]) -> Lost {
        let kept = requests.iter().filter_map(|request| Some((*request, self.0.get(request)?.clone())));
        Lost(kept.collect())
    }

    /// The lost blocks, by number.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        self.0.values().flatten().copied()
    }
}

/// Rule by which the lost changes of a state were drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// No change is lost.
    NoneLost,
    /// Every change that may be lost is lost.
    AllLost,
    /// One request is lost.
    OneLost,
    /// All but one request are lost.
    OneKept,
    /// Each request is lost with probability one half.
    Half,
    /// Each physical block of each request is lost with probability one half.
    Torn,
    /// The device model decides.
    Model,
}

impl Draw {
    /// The rules of [`any`], in order.
    pub const ANY: [Draw; 6] = [Draw::NoneLost, Draw::AllLost, Draw::OneLost, Draw::OneKept, Draw::Half, Draw::Torn];

    /// The draw of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Draw> {
        Draw::ANY.into_iter().chain([Draw::Model]).find(|draw| draw.name() == name)
    }

    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Draw::NoneLost => "none-lost",
            Draw::AllLost => "all-lost",
            Draw::OneLost => "one-lost",
            Draw::OneKept => "one-kept",
            Draw::Half => "half-lost",
            Draw::Torn => "torn",
            Draw::Model => "model",
        }
    }
}

/// A state of the device after a power cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The loss of power.
    pub cut: Cut,
    /// Rule of the draw.
    pub draw: Draw,
    /// The lost changes.
    pub lost: Lost,
}

/// The cuts within an interval: `count` of them drawn by the seed, or all. Cuts are right after the events, after the
/// instants in `further`, and at both ends of the interval. The end is always among them.
#[must_use]
pub fn cuts(
    history: &History,
    interval: (Nanos, Nanos),
    further: &[Nanos],
    count: Option<usize>,
    seed: u64,
) -> Vec<Cut> {
    let (begin, end) = interval;
    let instants = history.events.iter().map(|(at, _)| *at).chain(further.iter().copied()).chain([begin]);
    let instants: BTreeSet<Nanos> = instants.filter(|at| (begin..end).contains(at)).collect();
    let mut instants: Vec<Nanos> = instants.into_iter().collect();
    if let Some(count) = count {
        let mut random = RandomStream::new(seed, "crash", "cuts");
        while instants.len() + 1 > count.max(1) {
            instants.swap_remove(random.below(instants.len() as u64) as usize);
        }
        instants.sort_unstable();
    }
    let cut = |at| Cut { at, position: history.position(at) };
    instants.into_iter().chain([end]).map(cut).collect()
}

/// Draws states that the rules of the block layer allow: any subset of the changes that are not durable, torn at
/// physical blocks. A block then has the newest of its changes that is not lost.
#[must_use]
pub fn any(history: &History, cuts: &[Cut], seed: u64) -> Vec<State> {
    let mut random = RandomStream::new(seed, "crash", "states");
    let mut states = Vec::new();
    for cut in cuts {
        let pending = history.pending(cut.position);
        for draw in Draw::ANY {
            let lost = lost_by(draw, &pending, history, &mut random);
            states.push(State { cut: *cut, draw, lost });
        }
    }
    states
}

fn lost_by(draw: Draw, pending: &[usize], history: &History, random: &mut RandomStream) -> Lost {
    let mut lost = Lost::default();
    if pending.is_empty() {
        return lost;
    }
    let one = random.below(pending.len() as u64) as usize;
    let facts = history.facts();
    let physical = |block: u64| block * u64::from(facts.block_sectors) / u64::from(facts.torn_sectors.max(1));
    for (place, request) in pending.iter().enumerate() {
        let is_lost = match draw {
            Draw::NoneLost | Draw::Model => false,
            Draw::AllLost | Draw::Torn => true,
            Draw::OneLost => place == one,
            Draw::OneKept => place != one,
            Draw::Half => random.chance(0.5),
        };
        let mut drawn = None;
        for block in history.blocks(*request).filter(|_| is_lost) {
            let (_, keeps) = match drawn {
                Some((unit, keeps)) if unit == physical(block) => (unit, keeps),
                _ => *drawn.insert((physical(block), draw == Draw::Torn && random.chance(0.5))),
            };
            if !keeps {
                lost.insert(*request, block);
            }
        }
    }
    lost
}

/// Keeps the first of states with equal contents and equal `mark`, such as the number of acknowledged lines.
#[must_use]
pub fn distinct(history: &History, base: usize, states: Vec<State>, mark: impl Fn(&State) -> u64) -> Vec<State> {
    let mut seen = HashSet::new();
    let mut kept = states;
    kept.retain(|state| {
        let difference = history.difference(base, state.cut.position, &state.lost);
        // Two hashes of 64 bits: states are too large to be kept.
        let hash = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, mark(state), &difference).hash(&mut hasher);
            hasher.finish()
        };
        seen.insert((hash(0), hash(1)))
    });
    kept
}
