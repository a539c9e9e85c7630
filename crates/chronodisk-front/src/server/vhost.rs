//! A guest that speaks vhost-user-blk: QEMU, for instance, with kicks and calls on event
//! descriptors.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use chronodisk_engine::listen::{Place, Socket};
use chronodisk_engine::{Departure, TransportIndex};
use chronodisk_sim::{Nanos, RequestId, Status};
use rustix::event::PollFlags;
use rustix::net::{Shutdown, shutdown};

use super::connection::{Incoming, Io, Link, Outlet, Protocol, Wants, serve_connection};
use super::moving::SharedStore;
use super::peer::{Left, Moment};
use super::{Shared, Totals};
use crate::BlkConfig;
use crate::vhost_user::{Arrival, Flow, RequestHandler, VhostUserError, VhostUserSession};

/// A guest's connection.
struct VhostConnection {
    session: VhostUserSession,
    arrivals: Arrivals,
    /// The latest request. Its upper half is also that of all outstanding ones, or one more.
    latest: u64,
    broken: bool,
}

/// Requests that arrived and were not reported yet.
#[derive(Default)]
struct Arrivals(VecDeque<Arrival>);

/// Serves a guest until it disconnects or the server stops.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    (socket, place): (Socket, Place),
    config: &BlkConfig,
) {
    // A duplicate, on which this thread can wait while another thread has the session's lock.
    let socket = OwnedFd::from(socket);
    let Ok(waited) = socket.try_clone() else { return };
    let store = Box::new(SharedStore(shared.clone()));
    let clock = Box::new(shared.host.clone());
    let session = match VhostUserSession::with_event_idx(UnixStream::from(socket), config.clone(), store, clock) {
        Ok(session) => session,
        Err(error) => return shared.note_violation(&error),
    };
    let protocol = VhostConnection { session, arrivals: Arrivals::default(), latest: 0, broken: false };
    serve_connection(shared, connection, transport, (waited, Some(place)), protocol);
}

impl Protocol for VhostConnection {
    const NAME: &'static str = "vhost-user connection";
    const HELPER: &'static str = "a helper of a vhost-user connection";
    type Payload = [u8; 0];

    fn next_request(&mut self, _link: &Link, _shared: &Shared) -> Option<Incoming> {
        let arrival = self.arrivals.0.pop_front()?;
        self.latest = arrival.request.id.0;
        let slot = arrival.request.id.0 as u32;
        Some(Incoming::Moved { slot, request: arrival.request, bytes: arrival.bytes() })
    }

    fn complete(&mut self, slot: u32, status: Status) {
        self.session.complete(whole_id(slot, self.latest), status);
    }

    fn deliver(&mut self, _link: &Link, departures: &[Departure], moment: &mut Moment<'_>, left: &mut Left) {
        // A polling guest sees them before its interrupt.
        let begun = moment.wait();
        for departure in departures {
            self.complete(departure.id.slot, departure.status);
        }
        if self.session.notify().is_err() || self.session.memory_fault().is_some() {
            self.broken = true;
        }
        left.sent(departures, begun, moment.shared.now());
    }

    fn flush(&mut self, _io: Io<'_>) {}

    fn receive(&mut self, io: Io<'_>, _listening: bool) -> Option<Nanos> {
        // Before its bytes move.
        let received = io.shared.now();
        match self.take_messages() {
            Ok(Flow::Continue) => Some(received),
            Ok(Flow::Ended) => None,
            Err(error) => {
                io.shared.note_violation(&error);
                None
            }
        }
    }

    fn plan(&mut self, io: Io<'_>, _moving: bool) -> Option<Wants> {
        if let Some(fault) = self.session.memory_fault() {
            io.shared.note_violation(&fault);
            return None;
        }
        let kick = self.session.kick_fd().cloned();
        if kick.is_some() {
            io.link.greeted();
        }
        (!self.broken).then_some(Wants { socket: PollFlags::IN, other: kick, impatient: false })
    }

    fn outlet(&self) -> Outlet {
        if self.broken { Outlet::Closed } else { Outlet::Open }
    }

    fn end_input(link: &Link) {
        let _ = shutdown(&link.socket, Shutdown::Both);
    }

    fn cut(link: &Link) {
        VhostConnection::end_input(link);
    }

    fn finish(&mut self, _left: &mut Left, totals: &mut Totals) {
        let stats = self.session.stats();
        totals.refused_requests += stats.bad_requests.values().sum::<u64>();
        totals.store_errors += stats.store_errors;
        if let Some(first) = &stats.first_store_error {
            totals.first_store_error.get_or_insert_with(|| first.clone());
        }
        totals.dropped_completions += stats.dropped_completions;
    }
}

impl VhostConnection {
    /// Takes a kick and a message, if they are there.
    fn take_messages(&mut self) -> Result<Flow, VhostUserError> {
        self.session.kicked(&mut self.arrivals)?;
        self.session.readable(&mut self.arrivals)
    }
}

impl RequestHandler for Arrivals {
    fn arrived(&mut self, arrival: Arrival) {
        self.0.push_back(arrival);
    }

    fn before_acknowledge(&mut self) {}
}

/// The session's id of an outstanding request from its lower half: the last one with that half up
/// to the latest.
fn whole_id(slot: u32, latest: u64) -> RequestId {
    let whole = (latest >> 32 << 32) | u64::from(slot);
    RequestId(if whole > latest { whole - (1 << 32) } else { whole })
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
