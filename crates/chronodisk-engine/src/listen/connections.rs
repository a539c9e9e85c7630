//! The connections of a listener: a bounded number, with a share for each peer.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chronodisk_sim::Nanos;

use super::room::{Admission, Guest, Share, admit};
use super::socket::{Peer, Socket};

/// All present connections. Instants are passed in, and must be of one clock.
#[derive(Debug)]
pub struct Connections {
    share: Share,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    there: BTreeMap<u64, There>,
    evictions: u64,
}

#[derive(Debug)]
struct There {
    peer: Peer,
    handle: Socket,
    since: Nanos,
    state: Arc<AtomicU64>,
}

/// A connection's place, which is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
    /// The client's state: one of the values below, or the instant of its last request.
    state: Arc<AtomicU64>,
}

/// The client has not greeted yet.
const NEW: u64 = 0;
/// The client has greeted, but never sent a request.
const GREETED: u64 = 1;
/// The connection keeps its place permanently.
const HELD: u64 = u64::MAX;

/// A client that asked for something and was silent for longer since makes room for others.
const SILENT_MAX: Nanos = Nanos::from_secs(600);

/// The reason for a refused connection.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// No connection makes room.
    #[error("it has {0} connections, the most that it may")]
    Full(usize),
    /// The peer's share is used up.
    #[error("{0} has {1} connections, the most that one address may")]
    PeerFull(Peer, usize),
    /// The host has no descriptor for it.
    #[error("{0}")]
    Host(#[from] io::Error),
}

impl Connections {
    /// Most connections in total; each peer has a share of them.
    #[must_use]
    pub fn new(share: Share) -> Arc<Self> {
        Arc::new(Connections { share, inner: Mutex::default() })
    }

    /// Admits a connection. If there are too many in total or of its peer, an idle one is cut to make room: first one
    /// without a greeting, then one that never sent a request, then one that was silent for ten minutes.
    ///
    /// # Errors
    /// If none is idle.
    pub fn enter(self: &Arc<Self>, socket: &Socket, peer: Peer, now: Nanos) -> Result<Place, Refusal> {
        let handle = socket.try_clone()?;
        let mut inner = self.inner();
        let guest = |(number, there): (&u64, &There)| Guest { key: *number, peer: there.peer, spare: there.spare(now) };
        let guests: Vec<Guest<u64, Nanos>> = inner.there.iter().map(guest).collect();
        match admit(&guests, self.share, peer) {
            Admission::Welcome => {}
            Admission::Instead(number) => {
                if let Some(there) = inner.there.remove(&number) {
                    there.handle.cut();
                }
                inner.evictions += 1;
            }
            Admission::Full => return Err(Refusal::Full(guests.len())),
            Admission::PeerFull => return Err(Refusal::PeerFull(peer, self.share.per_peer)),
        }
        let (number, state) = (inner.next, Arc::new(AtomicU64::new(NEW)));
        inner.next += 1;
        inner.there.insert(number, There { peer, handle, since: now, state: state.clone() });
        Ok(Place { connections: self.clone(), number, state })
    }

    /// Number of connections.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner().there.len()
    }

    /// Number of connections cut to make room so far.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.inner().evictions
    }

    /// Cuts all of them.
    pub fn cut(&self) {
        self.inner().there.values().for_each(|there| there.handle.cut());
    }

    /// Each operation leaves the table consistent, so a poisoned lock can be used.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl There {
    /// Whether the connection can be spared, and since when.
    fn spare(&self, now: Nanos) -> Option<(u8, Nanos)> {
        match self.state.load(Ordering::Relaxed) {
            NEW => Some((0, self.since)),
            GREETED => Some((1, self.since)),
            HELD => None,
            asked => {
                let asked = Nanos::from_nanos(asked);
                (now.saturating_sub(asked) > SILENT_MAX).then_some((2, asked))
            }
        }
    }
}

impl Place {
    /// Notes the client's greeting.
    pub fn greeted(&self) {
        let _ = self.state.compare_exchange(NEW, GREETED, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The client asked for something.
    pub fn asked(&self, now: Nanos) {
        self.state.store(now.as_nanos().clamp(GREETED + 1, HELD - 1), Ordering::Relaxed);
    }

    /// Protects the connection from being cut for others.
    pub fn hold(&self) {
        self.state.store(HELD, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.inner().there.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A client's end, and its place.
    fn connect(connections: &Arc<Connections>, uid: u32, seconds: u64) -> Result<(UnixStream, Place), Refusal> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let place = connections.enter(&Socket::Unix(theirs), Peer::User(uid), Nanos::from_secs(seconds))?;
        Ok((ours, place))
    }

    fn is_cut(client: &mut UnixStream) -> bool {
        client.set_nonblocking(true).unwrap();
        client.read(&mut [0]).is_ok_and(|len| len == 0)
    }

    #[test]
    fn who_is_idle_makes_room_and_who_works_stays() {
        let connections = Connections::new(Share { most: 4, per_peer: 3 });
        let mut clients: Vec<_> = (0..3).map(|second| connect(&connections, 1, second).unwrap()).collect();
        clients[0].1.asked(Nanos::from_secs(3));
        clients[1].1.greeted();
        let mut fourth = connect(&connections, 1, 4).unwrap();
        assert!(is_cut(&mut clients[2].0), "it has not greeted");
        fourth.1.hold();
        let fifth = connect(&connections, 1, 5).unwrap();
        assert!(is_cut(&mut clients[1].0) && !is_cut(&mut clients[0].0), "it never asked for anything");
        fifth.1.asked(Nanos::from_secs(6));
        let refused = connect(&connections, 1, 7).unwrap_err().to_string();
        assert_eq!(refused, "user 1 has 3 connections, the most that one address may");
        let other = connect(&connections, 2, 8).unwrap();
        other.1.asked(Nanos::from_secs(8));
        let refused = connect(&connections, 3, 9).unwrap_err().to_string();
        assert_eq!(refused, "it has 4 connections, the most that it may");
        assert!(!is_cut(&mut clients[0].0));
        let _late = connect(&connections, 3, 3 + 601).unwrap();
        assert!(is_cut(&mut clients[0].0) && !is_cut(&mut fourth.0), "it was silent for ten minutes");
        assert_eq!((connections.count(), connections.evictions()), (4, 3));
        // A connection that was cut no longer has a place.
        drop(clients);
        assert_eq!(connections.count(), 4);
        drop((fourth, fifth, other));
        assert_eq!(connections.count(), 1);
    }
}
