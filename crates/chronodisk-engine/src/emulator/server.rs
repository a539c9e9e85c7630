//! Sessions behind TCP: a thread per connection, and sessions that outlive theirs.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::session::{DeviceMaker, Session, SessionEnd};
use crate::protocol::{Answer, Command, Decoder, ErrorCode, Frame, SessionId, VERSION, Welcome};

/// What a server allows.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Most sessions at a time.
    pub sessions_max: usize,
    /// How long a session waits for a client whose connection was lost.
    pub keep: Duration,
}

impl Default for ServeOptions {
    /// Sixteen sessions, and ten minutes.
    fn default() -> Self {
        ServeOptions { sessions_max: 16, keep: Duration::from_secs(600) }
    }
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServeStatistics {
    /// Sessions that began.
    pub sessions: u64,
    /// Connections that went on with a session.
    pub resumptions: u64,
    /// Requests submitted in sessions that have ended.
    pub requests: u64,
    /// Predictions that were dropped in sessions that have ended.
    pub rollbacks: u64,
    /// Clients that were turned away or broke the rules.
    pub refusals: u64,
}

/// Serves devices to guests on other machines.
pub struct EmulatorServer {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    maker: Arc<dyn DeviceMaker>,
    options: ServeOptions,
    sessions: Mutex<BTreeMap<SessionId, Arc<Kept>>>,
    statistics: Mutex<ServeStatistics>,
    connections: AtomicU64,
}

/// A session and the connection that it has, if it has one.
struct Kept {
    session: Mutex<Session>,
    connection: Mutex<Connection>,
}

struct Connection {
    /// Grows with each; an older one has been taken over.
    generation: u64,
    stream: Option<TcpStream>,
    lost_at: Option<Instant>,
}

/// A greeting that does not come in this time is not waited for.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes no answers for so long is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the server looks for sessions that nobody came back to, and for its own end.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Connections beyond the sessions, for clients that come back before the loss of theirs was noticed.
const CONNECTIONS_SPARE: u64 = 64;

impl EmulatorServer {
    /// Listens at `HOST:PORT`, or at a `PORT` of the loopback interface.
    ///
    /// # Errors
    /// What the host says.
    pub fn listen(address: &str, maker: Arc<dyn DeviceMaker>, options: ServeOptions) -> io::Result<Self> {
        let with_host = if address.contains(':') { address.to_owned() } else { format!("127.0.0.1:{address}") };
        let addresses: Vec<SocketAddr> = with_host.to_socket_addrs()?.collect();
        let listener = TcpListener::bind(&*addresses)?;
        listener.set_nonblocking(true)?;
        let shared = Shared {
            maker,
            options,
            sessions: Mutex::default(),
            statistics: Mutex::default(),
            connections: AtomicU64::new(0),
        };
        Ok(EmulatorServer { listener, shared: Arc::new(shared) })
    }

    /// Where it listens, with the port that the host chose.
    ///
    /// # Errors
    /// What the host says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is set; returns what was served.
    ///
    /// # Errors
    /// If no client can be accepted any more.
    pub fn serve(&self, stop: &AtomicBool) -> io::Result<ServeStatistics> {
        while !stop.load(Ordering::Relaxed) {
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK_EVERY.subsec_nanos()) };
            let mut waits = [PollFd::new(&self.listener, PollFlags::IN)];
            match poll(&mut waits, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            match self.listener.accept() {
                Ok((stream, _peer)) => self.shared.clone().accepted(stream),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // The client gave up meanwhile, or this process has too much open for the moment.
                Err(_) => thread::sleep(LOOK_EVERY),
            }
            self.shared.drop_abandoned();
        }
        self.shared.stop();
        Ok(*lock(&self.shared.statistics))
    }
}

impl Shared {
    fn accepted(self: Arc<Self>, stream: TcpStream) {
        if self.connections.load(Ordering::Relaxed) >= self.options.sessions_max as u64 + CONNECTIONS_SPARE {
            return;
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        let shared = self.clone();
        let spawned = thread::Builder::new().name("emulator session".into()).spawn(move || {
            // A client that went away is no error of the server's.
            let _ = shared.serve_connection(stream);
            shared.connections.fetch_sub(1, Ordering::Relaxed);
        });
        if spawned.is_err() {
            self.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING_TIMEOUT))?;
        stream.set_write_timeout(Some(SEND_TIMEOUT))?;
        let mut decoder = Decoder::default();
        let Some(greeting) = receive(&mut stream, &mut decoder)? else { return Ok(()) };
        let (id, kept) = match self.greeted(&greeting) {
            Ok(session) => session,
            Err(refusal) => {
                lock(&self.statistics).refusals += 1;
                let mut bytes = Vec::new();
                refusal.encode(0, &mut bytes);
                return stream.write_all(&bytes);
            }
        };
        stream.set_read_timeout(None)?;
        let generation = kept.take_over(&stream)?;
        let served = self.serve_session(id, &kept, generation, &mut stream, &mut decoder);
        kept.lost(generation);
        served
    }

    fn greeted(&self, greeting: &Frame) -> Result<(SessionId, Arc<Kept>), Answer> {
        let (version, wanted) = match Command::decode(greeting) {
            Ok(Command::Hello { version, session }) => (version, session),
            Ok(_) => return Err(Answer::error(ErrorCode::Violation, "a client has to greet first")),
            Err(error) => return Err(Answer::error(ErrorCode::Violation, error)),
        };
        if version != VERSION {
            let reason = format!("it speaks version {VERSION} of the protocol, and the client version {version}");
            return Err(Answer::error(ErrorCode::Version, reason));
        }
        let mut sessions = lock(&self.sessions);
        if wanted != SessionId::NEW {
            lock(&self.statistics).resumptions += 1;
            let kept = sessions.get(&wanted).cloned();
            return kept
                .map(|kept| (wanted, kept))
                .ok_or_else(|| Answer::error(ErrorCode::UnknownSession, "it does not know the session"));
        }
        if sessions.len() >= self.options.sessions_max {
            let reason = format!("it has {} sessions, the most that it may", sessions.len());
            return Err(Answer::error(ErrorCode::Busy, reason));
        }
        let id = fresh_id().map_err(|error| Answer::error(ErrorCode::Busy, error))?;
        let kept = Arc::new(Kept {
            session: Mutex::new(Session::new(self.maker.clone())),
            connection: Mutex::new(Connection { generation: 0, stream: None, lost_at: None }),
        });
        sessions.insert(id, kept.clone());
        lock(&self.statistics).sessions += 1;
        Ok((id, kept))
    }

    fn serve_session(
        &self,
        id: SessionId,
        kept: &Kept,
        generation: u64,
        stream: &mut TcpStream,
        decoder: &mut Decoder,
    ) -> io::Result<()> {
        let mut bytes = Vec::new();
        {
            // A connection that was taken over may still be at work on its last command.
            let session = lock(&kept.session);
            let welcome = Welcome { version: VERSION, session: id, executed: session.executed() };
            Answer::Welcome(welcome).encode(0, &mut bytes);
        }
        stream.write_all(&bytes)?;
        while let Some(frame) = receive(stream, decoder)? {
            bytes.clear();
            let taken = {
                let mut session = lock(&kept.session);
                if !kept.is_current(generation) {
                    return Ok(());
                }
                // A model that breaks its contract panics, and must not take other clients' sessions with it.
                catch_unwind(AssertUnwindSafe(|| session.take(&frame, &mut bytes)))
            };
            let end = match taken {
                Ok(Ok(())) => None,
                Ok(Err(end)) => Some(end),
                Err(_panic) => {
                    bytes.clear();
                    Answer::error(ErrorCode::Model, "the model broke its contract; the server's log says how")
                        .encode(frame.sequence, &mut bytes);
                    Some(SessionEnd::Violated)
                }
            };
            if let Some(end) = end {
                self.end(id, end);
                return stream.write_all(&bytes);
            }
            stream.write_all(&bytes)?;
        }
        Ok(())
    }

    fn end(&self, id: SessionId, end: SessionEnd) {
        let kept = lock(&self.sessions).remove(&id);
        let mut statistics = lock(&self.statistics);
        statistics.refusals += u64::from(end == SessionEnd::Violated);
        if let Some(kept) = kept {
            let (requests, rollbacks) = lock(&kept.session).submitted_and_rollbacks();
            statistics.requests += requests;
            statistics.rollbacks += rollbacks;
        }
    }

    fn drop_abandoned(&self) {
        let abandoned: Vec<SessionId> = lock(&self.sessions)
            .iter()
            .filter(|(_, kept)| lock(&kept.connection).lost_at.is_some_and(|at| at.elapsed() > self.options.keep))
            .map(|(id, _)| *id)
            .collect();
        for id in abandoned {
            self.end(id, SessionEnd::Ended);
        }
    }

    fn stop(&self) {
        let sessions: Vec<SessionId> = lock(&self.sessions).keys().copied().collect();
        for id in sessions {
            if let Some(kept) = lock(&self.sessions).get(&id).cloned()
                && let Some(stream) = &lock(&kept.connection).stream
            {
                let _ = stream.shutdown(Shutdown::Both);
            }
            self.end(id, SessionEnd::Ended);
        }
    }
}

impl Kept {
    /// Makes this the session's connection; one before it is cut.
    fn take_over(&self, stream: &TcpStream) -> io::Result<u64> {
        let mut connection = lock(&self.connection);
        if let Some(before) = connection.stream.replace(stream.try_clone()?) {
            let _ = before.shutdown(Shutdown::Both);
        }
        connection.generation += 1;
        connection.lost_at = None;
        Ok(connection.generation)
    }

    fn is_current(&self, generation: u64) -> bool {
        lock(&self.connection).generation == generation
    }

    fn lost(&self, generation: u64) {
        let mut connection = lock(&self.connection);
        if connection.generation == generation {
            connection.stream = None;
            connection.lost_at = Some(Instant::now());
        }
    }
}

/// The next frame; `None` when the client has closed.
fn receive(stream: &mut TcpStream, decoder: &mut Decoder) -> io::Result<Option<Frame>> {
    let mut bytes = [0; 16 << 10];
    loop {
        match decoder.next_frame() {
            Ok(Some(frame)) => return Ok(Some(frame)),
            Ok(None) => {}
            Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
        }
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(None),
            Ok(len) => decoder.feed(&bytes[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sessions are told apart by numbers that nobody can guess.
fn fresh_id() -> io::Result<SessionId> {
    let mut id = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(SessionId(id))
}

/// What a thread that panicked held is still whole: it panics only inside of a session, which then ends.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
