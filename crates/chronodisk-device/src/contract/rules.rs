//! One function per rule: a way to play a history to fresh devices, and the expected result.

use chronodisk_sim::{Completion, Nanos, Op, Request, RequestId};

use super::durability::durability;
use super::history::Plan;
use super::play::{Arrival, Player, broken};
use super::{Make, Rule, Violation};
use crate::advance;

/// The history on a particular device, with the result of playing it plainly.
struct Reference {
    arrivals: Vec<Arrival>,
    completed: Vec<Completion>,
    statistics: String,
    /// Instant of the last completion, which is also the statistics'.
    end: Nanos,
}

/// Every rule on one history.
pub(super) fn check_all(plan: &Plan, make: Make<'_>) -> Result<(), Violation> {
    let reference = play_plainly(plan, make)?;
    conservation(&reference)?;
    determinism(plan, make, &reference)?;
    drained(plan, make, &reference)?;
    stepping(plan, make, &reference)?;
    arrival(plan, make, &reference)?;
    non_anticipation(plan, make, &reference)?;
    fork(plan, make, &reference)?;
    durability(plan, make)
}

/// Finds the instants of the arrivals; [`Player`] checks bounds and counts at every call of every rule.
fn play_plainly(plan: &Plan, make: Make<'_>) -> Result<Reference, Violation> {
    let mut player = Player::new(make(plan.seed));
    let mut arrivals: Vec<Arrival> = Vec::with_capacity(plan.steps.len());
    for step in &plan.steps {
        let at = step.gap.end(player.model.as_ref());
        // The gap may pass completions, on which a relative place does not depend.
        let last = arrivals.last().map(|arrival| &arrival.request);
        let request = step.request(arrivals.len() as u64, player.model.info(), last);
        let arrival = Arrival { at, request };
        player.arrive(&arrival)?;
        arrivals.push(arrival);
    }
    player.drain()?;
    let end = player.model.now();
    Ok(Reference { arrivals, statistics: player.statistics(), completed: player.completed, end })
}

fn conservation(reference: &Reference) -> Result<(), Violation> {
    let mut ids: Vec<u64> = reference.completed.iter().map(|completion| completion.id.0).collect();
    ids.sort_unstable();
    match ids.iter().copied().eq(0..reference.arrivals.len() as u64) {
        true => Ok(()),
        false => broken(Rule::Conservation, format!("{} arrivals, completed: {ids:?}", reference.arrivals.len())),
    }
}

/// Plays two devices in turn, one request each: they must not influence each other.
fn determinism(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    let mut players = [Player::new(make(plan.seed)), Player::new(make(plan.seed))];
    for arrival in &reference.arrivals {
        for player in &mut players {
            player.arrive(arrival)?;
        }
    }
    for mut player in players {
        player.drain()?;
        same(Rule::Determinism, "played again", &player.completed, &reference.completed)?;
        if player.statistics() != reference.statistics {
            let what = format!("statistics differ: {:?}, {:?}", player.statistics(), reference.statistics);
            return broken(Rule::Determinism, what);
        }
    }
    Ok(())
}

/// After the last completion a year passes without events, and the device still serves.
fn drained(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    const YEAR: Nanos = Nanos::from_secs(365 * 24 * 3_600);
    let mut player = play(plan, make, &reference.arrivals)?;
    player.drain()?;
    let answered = player.completed.len();
    player.advance(player.model.now() + YEAR)?;
    if player.completed.len() != answered {
        return broken(Rule::Drained, "an idle device completed something");
    }
    player.arrive(&Arrival { at: player.model.now(), request: Request::new(u64::MAX, Op::Flush, 0, 0) })?;
    player.drain()
}

/// Steps in between, to events, to bounds, just before them, twice to the same instant; and the plain `advance`.
fn stepping(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    let mut pokes = plan.pokes.iter().cycle();
    let mut player = Player::new(make(plan.seed));
    for arrival in &reference.arrivals {
        for _ in 0..plan.pokes.len().min(3) {
            let Some(poke) = pokes.next() else { break };
            let instant = poke.end(player.model.as_ref()).min(arrival.at);
            player.step(instant)?;
            let now = player.model.now();
            player.step(now)?;
        }
        player.arrive(arrival)?;
        // A step to the instant of an arrival acts before the arrival.
        if plan.pokes.len().is_multiple_of(2) {
            player.step(arrival.at)?;
        }
    }
    player.drain()?;
    same(Rule::Stepping, "stepped in between", &player.completed, &reference.completed)?;

    let mut model = make(plan.seed);
    let mut completed = Vec::new();
    for arrival in &reference.arrivals {
        advance(model.as_mut(), arrival.at, &mut completed);
        model.submit(arrival.request);
    }
    for _ in 0..=reference.arrivals.len() {
        if model.outstanding() > 0 {
            model.step(Nanos::MAX, &mut completed);
        }
    }
    same(Rule::Stepping, "stepped as far as possible", &completed, &reference.completed)
}

/// Requests arrive in the order of their submission, and other ids change nothing.
fn arrival(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    let renamed = |id: RequestId| RequestId(u64::MAX / 2 - id.0 * 3);
    let arrivals: Vec<Arrival> = reference
        .arrivals
        .iter()
        .map(|arrival| Arrival { request: Request { id: renamed(arrival.request.id), ..arrival.request }, ..*arrival })
        .collect();
    let mut player = play(plan, make, &arrivals)?;
    player.drain()?;
    let expected: Vec<Completion> =
        reference.completed.iter().map(|completion| Completion { id: renamed(completion.id), ..*completion }).collect();
    same(Rule::Arrival, "with other identities", &player.completed, &expected)
}

/// Plays no requests, or other requests, from some instant on: completions up to then are equal.
fn non_anticipation(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    let cut = plan.cut.index(reference.arrivals.len());
    let instant = reference.arrivals[cut].at;
    let until = |completed: &[Completion]| -> Vec<Completion> {
        completed.iter().copied().filter(|completion| completion.at <= instant).collect()
    };
    let expected = until(&reference.completed);
    let common: Vec<Arrival> = reference.arrivals.iter().copied().filter(|arrival| arrival.at < instant).collect();

    let mut player = play(plan, make, &common)?;
    player.advance(instant)?;
    same(Rule::NonAnticipation, "when nothing more arrived", &player.completed, &expected)?;

    for arrival in reference.arrivals.iter().filter(|arrival| arrival.at >= instant) {
        let request = Request { op: Op::Flush, lba: chronodisk_sim::Lba(0), sectors: 0, fua: false, ..arrival.request };
        player.arrive(&Arrival { request, ..*arrival })?;
    }
    player.drain()?;
    same(Rule::NonAnticipation, "when other requests arrived", &until(&player.completed), &expected)
}

/// In the middle of the history, a fork that is driven elsewhere and dropped, and one that is driven on.
fn fork(plan: &Plan, make: Make<'_>, reference: &Reference) -> Result<(), Violation> {
    let (before, after) = reference.arrivals.split_at(plan.cut.index(reference.arrivals.len()) + 1);
    let mut original = play(plan, make, before)?;
    // Somewhere on the way to the next arrival.
    let instant = plan.pokes[0].end(original.model.as_ref());
    original.advance(after.first().map_or(instant, |next| instant.min(next.at)))?;
    let answered = original.completed.len();

    let mut kept = original.fork();
    let properties = |player: &Player| {
        let model = player.model.as_ref();
        let told = (model.now(), model.outstanding(), model.next_event(), model.completion_bound(), model.volatile());
        (told, model.info().clone(), player.statistics())
    };
    if properties(&kept) != properties(&original) {
        return broken(Rule::Fork, "a fork differs from its original from the start");
    }
    let mut dropped = kept.fork();
    for (index, arrival) in before.iter().enumerate() {
        let request = Request { id: RequestId(u64::MAX - index as u64), ..arrival.request };
        dropped.arrive(&Arrival { at: dropped.model.now() + Nanos::from_nanos(index as u64 * 5_000), request })?;
    }
    dropped.drain()?;
    drop(dropped);

    // The fork and the original in turn, so that each would be seen to disturb the other.
    for arrival in after {
        kept.arrive(arrival)?;
        original.arrive(arrival)?;
    }
    kept.drain()?;
    original.drain()?;
    same(Rule::Fork, "of a fork", &kept.completed, &reference.completed[answered..])?;
    same(Rule::Fork, "after forks", &original.completed, &reference.completed)?;
    // A step beyond the last completion may have let background work happen, which then counts.
    let end = original.model.now();
    let expected = match end > reference.end {
        false => reference.statistics.clone(),
        true => {
            let mut player = play(plan, make, &reference.arrivals)?;
            player.drain()?;
            player.advance(end)?;
            player.statistics()
        }
    };
    match original.statistics() == expected && kept.statistics() == expected {
        true => Ok(()),
        false => broken(Rule::Fork, "statistics differ after forks"),
    }
}

fn play(plan: &Plan, make: Make<'_>, arrivals: &[Arrival]) -> Result<Player, Violation> {
    let mut player = Player::new(make(plan.seed));
    for arrival in arrivals {
        player.arrive(arrival)?;
    }
    Ok(player)
}

/// Equal completions in equal order.
fn same(rule: Rule, when: &str, seen: &[Completion], expected: &[Completion]) -> Result<(), Violation> {
    if seen == expected {
        return Ok(());
    }
    let index = seen.iter().zip(expected).take_while(|(seen, expected)| seen == expected).count();
    let (seen, expected) = (seen.get(index), expected.get(index));
    broken(rule, format!("{when}, completion {index} is {seen:?} instead of {expected:?}"))
}
