//! Several issuers on one device, each a closed loop of its own.

use std::ops::ControlFlow;

use chronodisk_sim::{EventQueue, Nanos, Request, RequestRecord};

use super::{SimulationError, Window, submit};
use crate::port::ModelPort;
use crate::step::LATEST_ARRIVAL;

/// A source of requests with a bound on the outstanding ones.
pub trait Issuer {
    /// Requests outstanding at most, at least one.
    fn depth(&self) -> u32;
    /// Called once, before the first request, with the instant at which the issuer may begin.
    fn begin(&mut self, now: Nanos);
    /// The next request and its arrival, if one may be issued at `now` or later while `outstanding` requests are
    /// outstanding. An instant before `now` counts as `now`. After `None`, it is called again after a completion. With
    /// none outstanding, `None` ends the issuer.
    fn next(&mut self, now: Nanos, outstanding: u32) -> Option<(Nanos, Request)>;
}

/// Runs groups of issuers one after the other. The issuers of a group issue their requests at the same time; a group
/// begins when all requests of the previous one have completed. Passes the records on in order of arrival. When `seen`
/// breaks, no further request arrives.
///
/// Of several arrivals at one instant, the one planned first comes first. Of issuers that plan at one instant, the
/// first in the group comes first.
///
/// # Errors
/// On a depth of zero, on a request that leaves the device or time, and if the model is lost.
///
/// # Panics
/// If a local model breaks its contract.
pub fn issuers_loop_at<I: Issuer>(
    port: &mut ModelPort,
    groups: impl IntoIterator<Item = Vec<I>>,
    mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
) -> Result<(), SimulationError> {
    let mut model = port.lend();
    let mut window = Window::default();
    let mut completions = Vec::new();
    // The issuer of each request, in order of arrival from the oldest outstanding one.
    let mut owners = Owners::default();
    let mut stopped = false;
    for mut group in groups {
        let mut later: EventQueue<(usize, Request)> = EventQueue::default();
        let mut room: Vec<u32> = Vec::with_capacity(group.len());
        for issuer in &mut group {
            if issuer.depth() == 0 {
                return Err(SimulationError::NoDepth);
            }
            issuer.begin(model.now());
            room.push(issuer.depth());
        }
        // Issuers that have room since the last look.
        let mut ready: Vec<usize> = (0..group.len()).collect();
        loop {
            let now = model.now();
            for index in ready.drain(..) {
                let depth = group[index].depth();
                while room[index] > 0
                    && !stopped
                    && let Some((at, request)) = group[index].next(now, depth - room[index])
                {
                    if at > LATEST_ARRIVAL {
                        let order = window.next_order() + later.len() as u64;
                        return Err(SimulationError::BeyondTime { order });
                    }
                    room[index] -= 1;
                    later.push(at.max(now), (index, request));
                }
            }
            while let Some((_, (index, request))) = later.pop_until(now) {
                if !stopped {
                    owners.push(index, &window);
                    submit(&mut model, &mut window, request)?;
                }
            }
            match later.next_at() {
                None if model.outstanding() == 0 => break,
                None => model.step_to_completion(&mut completions)?,
                Some(next) => model.step_whole_instant(next, &mut completions)?,
            }
            for completion in completions.drain(..) {
                let index = owners.of(completion.id.0);
                room[index] += 1;
                ready.push(index);
                window.complete(model.info(), completion);
            }
            ready.sort_unstable();
            ready.dedup();
            stopped |= window.hand_on(&mut seen).is_break();
        }
    }
    Ok(())
}

/// The issuers of the requests in a [`Window`].
#[derive(Default)]
struct Owners {
    first_order: u64,
    indices: std::collections::VecDeque<usize>,
}

impl Owners {
    /// The next request of the window is of this issuer.
    fn push(&mut self, index: usize, window: &Window) {
        // Records that were passed on are not needed any more.
        while self.first_order < window.first_order {
            self.first_order += 1;
            self.indices.pop_front();
        }
        self.indices.push_back(index);
    }

    fn of(&self, order: u64) -> usize {
        self.indices[(order - self.first_order) as usize]
    }
}
