//! A guest that speaks vhost-user-blk: QEMU, for instance, with kicks and calls on event
//! descriptors.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use chronodisk_engine::{Bytes, Departure, Found, InheritingGuard, RealId, TransportIndex};
use chronodisk_sim::RequestId;
use chronodisk_store::{Store, StoreError, forward_to_store};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::net::{Shutdown, shutdown};

use super::Shared;
use super::peer::{Guarded, Left, Moment, Peer, raise};
use super::worker::{Woken, Worker};
use crate::{Arrival, BlkConfig, Flow, RequestHandler, Session};

/// A guest's connection, shared with the threads that deliver to it.
struct VhostPeer {
    /// The session's socket, to be waited for while another thread has the session in hand.
    socket: OwnedFd,
    event: OwnedFd,
    state: Guarded<State>,
}

struct State {
    session: Session,
    /// The latest request; its upper half is that of all that are outstanding, or one more.
    latest: u64,
    broken: bool,
}

/// Serves a guest until it is gone or the server stops.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    socket: OwnedFd,
    config: &BlkConfig,
) {
    let Ok(event) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return };
    let Ok(waited) = socket.try_clone() else { return };
    let store = Box::new(SharedStore(shared.clone()));
    let session = match Session::with_event_idx(UnixStream::from(socket), config.clone(), store) {
        Ok(session) => session,
        Err(error) => return note_end(shared, &error.to_string()),
    };
    let state = State { session, latest: 0, broken: false };
    let peer = Arc::new(VhostPeer { socket: waited, event, state: Guarded::new(state) });
    shared.peers().insert(connection, peer.clone());
    // Stopping raises the flag first and looks for peers then.
    if shared.is_stopping() {
        peer.end_input();
    }
    let mut worker = Worker::new(shared.clone(), connection, transport);
    shared.catch(|| format!("vhost-user connection {connection}"), || peer.run(&mut worker, transport));
    shared.peers().remove(&connection);
    let stats = peer.state().session.stats().clone();
    // Whoever comes now finds the state free.
    let handed_over = peer.state.take_handed_over().map_or_else(Vec::new, |(departures, _)| departures);
    worker.left().dropped(&handed_over);
    {
        let mut totals = shared.totals();
        totals.refused_requests += stats.bad_requests.values().sum::<u64>();
        totals.store_errors += stats.store_errors;
        if let Some(first) = stats.first_store_error {
            totals.first_store_error.get_or_insert(first);
        }
        totals.dropped_completions += stats.dropped_completions + handed_over.len() as u64;
    }
    worker.finish();
}

impl VhostPeer {
    fn state(&self) -> InheritingGuard<'_, State> {
        self.state.lock()
    }

    fn run(&self, worker: &mut Worker, transport: TransportIndex) {
        let shared = worker.shared.clone();
        let (mut received, mut found) = (shared.now(), Found::Busy);
        let mut kick: Option<Arc<OwnedFd>> = None;
        loop {
            worker.turn(self, received, found);
            worker.deliver_handed_over(self, &self.state);
            let socket = (self.socket.as_fd(), PollFlags::IN);
            let woken = match &kick {
                Some(kick) => worker.wait(&self.event, &[socket, (kick.as_fd(), PollFlags::IN)], false),
                None => worker.wait(&self.event, &[socket], false),
            };
            match woken {
                Woken::Look => (received, found) = (shared.now(), Found::Busy),
                Woken::Ready(how) => {
                    (received, found) = (shared.now(), how);
                    match self.receive(worker, transport) {
                        Ok(true) => {}
                        Ok(false) => return,
                        Err(error) => return note_end(&shared, &error.to_string()),
                    }
                    // Messages replace it; a share can be waited for without the session in hand.
                    kick = self.state().session.kick_fd().cloned();
                }
            }
            let state = self.state();
            if let Some(fault) = state.session.memory_fault() {
                return note_end(&shared, fault);
            }
            if state.broken {
                return;
            }
        }
    }

    /// Takes a kick and a message, if they are there; false when the guest is gone.
    fn receive(&self, worker: &mut Worker, transport: TransportIndex) -> Result<bool, crate::FrontError> {
        let mut state = self.state();
        let mut arrivals = Arrivals { worker, transport, latest: state.latest };
        state.session.kicked(&mut arrivals)?;
        let flow = state.session.readable(&mut arrivals)?;
        state.latest = arrivals.latest;
        Ok(flow == Flow::Continue)
    }
}

/// Hands requests on to the worker.
struct Arrivals<'a> {
    worker: &'a mut Worker,
    transport: TransportIndex,
    latest: u64,
}

impl RequestHandler for Arrivals<'_> {
    fn arrived(&mut self, arrival: Arrival) {
        let mut request = arrival.request;
        self.latest = request.id.0;
        let took = arrival.store_time;
        let bytes = if arrival.failed { Bytes::Failed { took } } else { Bytes::Moved { took } };
        let connection = self.worker.connection;
        request.id = RealId { transport: self.transport, connection, slot: request.id.0 as u32 }.pack();
        request.issuer = connection;
        self.worker.arrived(request, bytes, None);
    }

    fn before_acknowledge(&mut self) {}
}

impl Peer for VhostPeer {
    fn deliver(&self, departures: &[Departure], moment: &mut Moment<'_>, foreign: bool, left: &mut Left) {
        self.state.deliver(departures, moment, foreign.then_some(&self.event), |state, departures, moment| {
            // A guest that polls sees them before it is told.
            let begun = moment.wait();
            for departure in departures {
                let id = whole_id(departure.id.slot, state.latest);
                state.session.complete(id, departure.status);
            }
            let notified = state.session.notify();
            if notified.is_err() || state.session.memory_fault().is_some() {
                state.broken = true;
                if foreign {
                    raise(&self.event);
                }
            }
            left.sent(departures, begun, moment.shared.now());
        });
    }

    fn nudge(&self) {
        raise(&self.event);
    }

    fn end_input(&self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        raise(&self.event);
    }

    fn abandon(&self) {
        self.state().broken = true;
        self.end_input();
    }
}

/// The session's id of an outstanding request from its lower half: the last one with that half up
/// to the latest.
fn whole_id(slot: u32, latest: u64) -> RequestId {
    let whole = (latest >> 32 << 32) | u64::from(slot);
    RequestId(if whole > latest { whole - (1 << 32) } else { whole })
}

fn note_end(shared: &Shared, reason: &str) {
    let mut totals = shared.totals();
    totals.violations += 1;
    totals.first_violation.get_or_insert_with(|| reason.to_owned());
}

/// Data that are copied while the others wait for the store: some 10 µs.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The server's store as a session's own.
pub(super) struct SharedStore(pub Arc<Shared>);

impl Store for SharedStore {
    forward_to_store!(self => self.0.store(); capacity_bytes, write_zeroes, reserve_zeroes, discard, extent);
    forward_to_store!(self => self.0.store(); flush, allocated_bytes, budget_bytes);

    fn read(&mut self, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), StoreError> {
        let mut pieces = bytes.chunks_mut(HELD_BYTES_MAX).zip((offset_bytes..).step_by(HELD_BYTES_MAX));
        pieces.try_for_each(|(piece, offset_bytes)| self.0.store().read(offset_bytes, piece))
    }

    fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut pieces = bytes.chunks(HELD_BYTES_MAX).zip((offset_bytes..).step_by(HELD_BYTES_MAX));
        pieces.try_for_each(|(piece, offset_bytes)| self.0.store().write(offset_bytes, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_found_by_their_lower_half() {
        assert_eq!(whole_id(5, 9), RequestId(5));
        assert_eq!(whole_id(u32::MAX, (1 << 32) + 3), RequestId(u64::from(u32::MAX)));
        assert_eq!(whole_id(3, (1 << 32) + 3), RequestId((1 << 32) + 3));
    }
}
