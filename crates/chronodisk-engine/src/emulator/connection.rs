//! One connection: its greeting, then the commands of its session.

use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use super::limits::PriorityLimit;
use super::session::SessionEnd;
use super::sessions::{Kept, Shared, lock};
use super::socket::Stream;
use crate::listen::{Peer, Place, Socket};
use crate::protocol::{
    Answer, BODY_BYTES_MAX, Command, Decoder, ErrorCode, Frame, GREETING_BYTES_MAX, Nonce, SessionId, VERSION, Welcome,
};

/// Serves a client until it disconnects, or its session has ended.
pub(super) fn serve(shared: &Shared, place: &Place, socket: Socket, peer: Peer) -> io::Result<()> {
    let options = &shared.options;
    let deadline = Instant::now() + options.greeting;
    let mut connection = Connection {
        shared,
        place,
        stream: Stream::new(socket, options.tls.as_ref(), deadline)?,
        decoder: Decoder::default(),
    };
    connection.decoder.limit_bodies(GREETING_BYTES_MAX);
    let greeted = match connection.greet(peer)? {
        Some(Ok(greeted)) => greeted,
        Some(Err(refusal)) => {
            shared.count_refusal();
            return connection.say(&refusal);
        }
        None => return Ok(()),
    };
    connection.decoder.limit_bodies(BODY_BYTES_MAX);
    let (id, kept) = greeted;
    let generation = kept.take_over(connection.stream.handle()?);
    let served = connection.serve_session(id, &kept, generation);
    kept.lost(generation);
    if !shared.is_kept(id) {
        // Another thread ended it during its work, and left the rest to this one.
        shared.close(&mut lock(&kept.session));
    }
    served
}

struct Connection<'a> {
    shared: &'a Shared,
    place: &'a Place,
    stream: Stream,
    decoder: Decoder,
}

/// A session, or the answer that refuses one.
type Greeted = Result<(SessionId, Arc<Kept>), Answer>;

impl Connection<'_> {
    fn say(&mut self, answer: &Answer) -> io::Result<()> {
        let mut bytes = Vec::new();
        answer.encode(0, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.stream.flush()
    }

    /// Receives the client's greeting; `None` if it disconnects instead.
    fn greet(&mut self, peer: Peer) -> io::Result<Option<Greeted>> {
        let Some(greeting) = self.receive()? else { return Ok(None) };
        let (version, wanted, nonce) = match Command::decode(&greeting) {
            Ok(Command::Hello { version, session, nonce }) => (version, session, nonce),
            Ok(_) => return Ok(Some(Err(Answer::error(ErrorCode::Violation, "a client has to greet first")))),
            Err(error) => return Ok(Some(Err(Answer::error(ErrorCode::Violation, error)))),
        };
        if version != VERSION {
            let reason = format!("it speaks version {VERSION} of the protocol, and the client version {version}");
            return Ok(Some(Err(Answer::error(ErrorCode::Version, reason))));
        }
        if let Some(refusal) = self.authenticate(wanted, nonce)? {
            return Ok(Some(Err(refusal)));
        }
        if wanted != SessionId::NEW {
            let unknown = || Answer::error(ErrorCode::UnknownSession, "it does not know the session");
            return Ok(Some(self.shared.resume(wanted).map(|kept| (wanted, kept)).ok_or_else(unknown)));
        }
        Ok(Some(self.shared.begin(peer).map_err(|reason| Answer::error(ErrorCode::Busy, reason))))
    }

    /// Verifies that the client has the token, if the server has one, and proves that the server has it.
    fn authenticate(&mut self, session: SessionId, client: Option<Nonce>) -> io::Result<Option<Answer>> {
        let Some(token) = &self.shared.options.token else { return Ok(None) };
        let denied = |reason: &str| Ok(Some(Answer::error(ErrorCode::Denied, reason)));
        let Some(client) = client else {
            // A client without support for tokens does not know that error code either.
            return Ok(Some(Answer::error(ErrorCode::Busy, "it serves only clients with its token (--server-token)")));
        };
        let server = Nonce::fresh();
        self.say(&Answer::Challenge(server))?;
        let Some(frame) = self.receive()? else { return denied("no proof came") };
        match Command::decode(&frame) {
            Ok(Command::Prove { proof }) if token.is_client_proof(&proof, session, &client, &server) => {
                self.say(&Answer::Proven(token.server_proof(session, &client, &server)))?;
                Ok(None)
            }
            Ok(Command::Prove { .. }) => denied("the client's token is not the server's"),
            Ok(_) => denied("a client has to show that it has the token"),
            Err(error) => Ok(Some(Answer::error(ErrorCode::Violation, error))),
        }
    }

    fn serve_session(&mut self, id: SessionId, kept: &Kept, generation: u64) -> io::Result<()> {
        let (executed, mut has_device) = {
            // A connection that was taken over may still be at work on its last command.
            let session = lock(&kept.session);
            (session.executed(), session.has_device())
        };
        self.say(&Answer::Welcome(Welcome { version: VERSION, session: id, executed }))?;
        if has_device {
            self.settle()?;
        }
        let mut priority = PriorityLimit::new();
        let mut bytes = Vec::new();
        while let Some(frame) = self.receive()? {
            priority.check();
            if !kept.heard(generation) || !self.shared.is_kept(id) {
                return Ok(());
            }
            bytes.clear();
            let ended = self.execute(kept, &frame, &mut bytes);
            if let Some(end) = ended {
                self.shared.finished(id, kept, end);
                self.stream.write_all(&bytes)?;
                return self.stream.flush();
            }
            let has_now = lock(&kept.session).has_device();
            if has_now != has_device {
                kept.has_device(has_now);
                has_device = has_now;
                if has_now {
                    self.settle()?;
                }
            }
            self.stream.write_all(&bytes)?;
            self.stream.flush()?;
        }
        Ok(())
    }

    /// Ends the deadline of a client that has a device; the client keeps its place.
    fn settle(&mut self) -> io::Result<()> {
        self.place.hold();
        self.stream.lift_deadline()
    }

    /// Executes a command. Returns how the session ended, if this was its last command.
    fn execute(&self, kept: &Kept, frame: &Frame, bytes: &mut Vec<u8>) -> Option<SessionEnd> {
        let mut session = lock(&kept.session);
        // A model that breaks its contract panics, and must not take other clients' sessions with it.
        match catch_unwind(AssertUnwindSafe(|| session.take(frame, bytes))) {
            Ok(Ok(())) => None,
            Ok(Err(end)) => Some(end),
            Err(_panic) => {
                bytes.clear();
                Answer::error(ErrorCode::Model, "the model broke its contract; the server's log says how")
                    .encode(frame.sequence, bytes);
                Some(SessionEnd::Violated)
            }
        }
    }

    /// The next frame; `None` when the client has closed.
    fn receive(&mut self) -> io::Result<Option<Frame>> {
        let mut bytes = [0; 16 << 10];
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => return Ok(Some(frame)),
                Ok(None) => {}
                Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Ok(None),
                Ok(len) => self.decoder.feed(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
