//! Sessions of a server: limits, counters, and sessions that outlive their connections.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use rustls::ServerConfig;

use super::identity::fresh_id;
use super::limits::Workshop;
use super::session::{CALL_LIMIT, DeviceMaker, Session, SessionEnd};
use crate::host::MonotonicClock;
use crate::listen::{Admission, Connections, Guest, Peer, Share, Socket, admit};
use crate::protocol::{SessionId, Token};

/// Limits of a server.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Most sessions at a time.
    pub sessions: Share,
    /// Most connections at a time, including those without a greeting yet.
    pub connections: Share,
    /// Time for which a session waits for a client after its connection was lost.
    pub keep: Duration,
    /// Longest time from a client's connection to its first device, including TLS and greeting.
    pub greeting: Duration,
    /// A session that has been silent for longer may be evicted for another one.
    pub idle: Duration,
    /// Most processor time of one command.
    pub call: Duration,
    /// Clients must have this token.
    pub token: Option<Token>,
    /// Clients must encrypt.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Default for ServeOptions {
    /// Sixteen sessions, 64 connections, ten minutes to reconnect, ten seconds for a greeting, one second for a
    /// command.
    fn default() -> Self {
        ServeOptions {
            sessions: Share::of(16),
            connections: Share::of(64),
            keep: Duration::from_secs(600),
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(600),
            call: CALL_LIMIT,
            token: None,
            tls: None,
        }
    }
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeStatistics {
    /// Sessions that began.
    pub sessions: u64,
    /// Connections that resumed a session.
    pub resumptions: u64,
    /// Requests submitted in sessions that have ended.
    pub requests: u64,
    /// Predictions dropped in sessions that have ended.
    pub rollbacks: u64,
    /// Clients that were rejected, or that violated the protocol.
    pub refusals: u64,
    /// Connections and sessions evicted for others.
    pub evictions: u64,
    /// Devices whose bytes could not be made durable at the end.
    pub store_failures: u64,
}

pub(super) struct Shared {
    pub maker: Arc<dyn DeviceMaker>,
    pub options: ServeOptions,
    pub shop: Arc<Workshop>,
    pub sessions: Mutex<BTreeMap<SessionId, Arc<Kept>>>,
    pub connections: Arc<Connections>,
    pub clock: MonotonicClock,
    pub statistics: Mutex<ServeStatistics>,
    pub store_failure: Mutex<Option<String>>,
}

/// A session, and its connection if it has one.
pub(super) struct Kept {
    pub session: Mutex<Session>,
    peer: Peer,
    state: Mutex<State>,
}

struct State {
    /// Increases with each connection; a thread with an older value has lost the session to a later connection.
    generation: u64,
    socket: Option<Socket>,
    lost_at: Option<Instant>,
    heard_at: Instant,
    has_device: bool,
}

/// Minimum time for which a lost client's session is kept.
const RETURN: Duration = Duration::from_secs(60);
/// Longest wait at shutdown for sessions that are executing commands.
const FAREWELL: Duration = Duration::from_secs(1);

/// Beginning, resumption and end of sessions.
impl Shared {
    pub fn count_refusal(&self) {
        lock(&self.statistics).refusals += 1;
    }

    /// The session with this id.
    pub fn resume(&self, id: SessionId) -> Option<Arc<Kept>> {
        lock(&self.statistics).resumptions += 1;
        lock(&self.sessions).get(&id).cloned()
    }

    /// A new session for a peer.
    pub fn begin(&self, peer: Peer) -> Result<(SessionId, Arc<Kept>), String> {
        let evicted = self.admit_session(peer)?;
        if let Some(id) = evicted {
            self.end(id);
            lock(&self.statistics).evictions += 1;
        }
        let id = fresh_id().map_err(|error| error.to_string())?;
        let kept = Arc::new(Kept {
            session: Mutex::new(Session::in_shop(self.maker.clone(), self.shop.clone())),
            peer,
            state: Mutex::new(State {
                generation: 0,
                socket: None,
                lost_at: None,
                heard_at: Instant::now(),
                has_device: false,
            }),
        });
        lock(&self.sessions).insert(id, kept.clone());
        lock(&self.statistics).sessions += 1;
        Ok((id, kept))
    }

    fn admit_session(&self, peer: Peer) -> Result<Option<SessionId>, String> {
        let sessions = lock(&self.sessions);
        let guest = |(id, kept): (&SessionId, &Arc<Kept>)| Guest {
            key: *id,
            peer: kept.peer,
            spare: lock(&kept.state).spare(self.options.idle),
        };
        let guests: Vec<Guest<SessionId, Instant>> = sessions.iter().map(guest).collect();
        match admit(&guests, self.options.sessions, peer) {
            Admission::Welcome => Ok(None),
            Admission::Instead(id) => Ok(Some(id)),
            Admission::Full => Err(format!("it has {} sessions, the most that it may", guests.len())),
            Admission::PeerFull => {
                let most = self.options.sessions.per_peer;
                Err(format!("{peer} has {most} sessions, the most that one address may"))
            }
        }
    }

    /// Removes a session that has executed its last command.
    pub fn finished(&self, id: SessionId, kept: &Kept, end: SessionEnd) {
        lock(&self.sessions).remove(&id);
        lock(&self.statistics).refusals += u64::from(end == SessionEnd::Violated);
        self.close(&mut lock(&kept.session));
    }

    /// Ends a session for another reason. A session that is executing a command ends after the command.
    fn end(&self, id: SessionId) {
        let Some(kept) = lock(&self.sessions).remove(&id) else { return };
        kept.cut();
        match kept.session.try_lock() {
            Ok(mut session) => self.close(&mut session),
            Err(TryLockError::Poisoned(poisoned)) => self.close(&mut poisoned.into_inner()),
            // The thread that executes the command notices the removal.
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Whether the session still exists.
    pub fn is_kept(&self, id: SessionId) -> bool {
        lock(&self.sessions).contains_key(&id)
    }

    /// Adds a session's work to the counters, and makes its bytes durable.
    pub fn close(&self, session: &mut Session) {
        let (requests, rollbacks) = session.submitted_and_rollbacks();
        let closed = session.close();
        let mut statistics = lock(&self.statistics);
        statistics.requests += requests;
        statistics.rollbacks += rollbacks;
        if let Err(error) = closed {
            statistics.store_failures += 1;
            lock(&self.store_failure).get_or_insert_with(|| error.to_string());
        }
    }

    pub fn drop_abandoned(&self) {
        let abandoned = |kept: &Kept| {
            let state = lock(&kept.state);
            let keep = if state.has_device { self.options.keep } else { self.options.greeting };
            state.lost_at.is_some_and(|at| at.elapsed() > keep)
        };
        let ids: Vec<SessionId> =
            lock(&self.sessions).iter().filter(|(_, kept)| abandoned(kept)).map(|(id, _)| *id).collect();
        for id in ids {
            self.end(id);
        }
    }

    /// Ends all sessions. Waits up to [`FAREWELL`] for those that are executing commands.
    pub fn stop(&self) {
        self.shop.stop();
        self.connections.cut();
        let deadline = Instant::now() + FAREWELL;
        for (_, kept) in std::mem::take(&mut *lock(&self.sessions)) {
            loop {
                match kept.session.try_lock() {
                    Ok(mut session) => self.close(&mut session),
                    Err(TryLockError::Poisoned(poisoned)) => self.close(&mut poisoned.into_inner()),
                    Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                        thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    Err(TryLockError::WouldBlock) => {}
                }
                break;
            }
        }
    }
}

impl Kept {
    /// Makes `socket` the session's connection, and cuts the previous one.
    pub fn take_over(&self, socket: Socket) -> u64 {
        let mut state = lock(&self.state);
        if let Some(before) = state.socket.replace(socket) {
            before.cut();
        }
        state.generation += 1;
        state.lost_at = None;
        state.heard_at = Instant::now();
        state.generation
    }

    /// Marks the session as active now. Returns whether the connection is still the session's.
    pub fn heard(&self, generation: u64) -> bool {
        let mut state = lock(&self.state);
        state.heard_at = Instant::now();
        state.generation == generation
    }

    pub fn has_device(&self, has_device: bool) {
        lock(&self.state).has_device = has_device;
    }

    pub fn lost(&self, generation: u64) {
        let mut state = lock(&self.state);
        if state.generation == generation {
            state.socket = None;
            state.lost_at = Some(Instant::now());
        }
    }

    fn cut(&self) {
        if let Some(socket) = &lock(&self.state).socket {
            socket.cut();
        }
    }
}

impl State {
    /// Rank for eviction, and since when: a session without a device at once, one whose client did not reconnect in
    /// time, or one that has been silent for long.
    fn spare(&self, idle: Duration) -> Option<(u8, Instant)> {
        match self.lost_at {
            _ if !self.has_device => Some((0, self.heard_at)),
            Some(at) if at.elapsed() > RETURN => Some((1, at)),
            _ if self.heard_at.elapsed() > idle => Some((2, self.heard_at)),
            _ => None,
        }
    }
}

/// A panicked thread's data are still consistent: it panics only inside a session, and that session then ends.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
