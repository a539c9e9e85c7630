//! The client's side of the protocol, sans-I/O: commands that wait for answers, and their repetition after a lost
//! connection.

use std::collections::VecDeque;

use crate::protocol::{
    Answer, Command, Decoder, Frame, Nonce, ProtocolError, SessionId, Token, UNANSWERED_MAX, VERSION, Welcome,
};

/// The client's side of a session, over any number of connections.
#[derive(Debug)]
pub struct Client {
    session: SessionId,
    last_sequence: u64,
    unanswered: VecDeque<Sent>,
    decoder: Decoder,
    token: Option<Token>,
    /// The client's nonce of this connection, if there is a token.
    nonce: Option<Nonce>,
    greeting: Greeting,
}

/// Progress of the greeting on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Greeting {
    /// The client has sent its greeting.
    Said,
    /// We have shown that we have the token, after this challenge.
    Challenged(Nonce),
    /// The server has proved that it has the token.
    Proven,
    /// The server has welcomed us.
    Welcomed,
}

#[derive(Debug)]
struct Sent {
    sequence: u64,
    command: Command,
    frame: Vec<u8>,
}

/// A message of the server.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// The server welcomes the client; [`Client::unanswered_bytes`] must be sent now.
    Welcome(Welcome),
    /// The server asks for a proof: these bytes must be sent now.
    Challenge(Vec<u8>),
    /// The server lacks the client's token, for this reason.
    Impostor(&'static str),
    /// The server answers the oldest unanswered command.
    Answer {
        /// The command's number.
        sequence: u64,
        /// The answer.
        answer: Answer,
    },
    /// The server refuses the greeting.
    Refused(Answer),
}

impl Client {
    /// A client without a session.
    #[must_use]
    pub fn new() -> Self {
        Client::with_token(None)
    }

    /// A client without a session, which accepts only servers with the same token, if there is one.
    #[must_use]
    pub fn with_token(token: Option<Token>) -> Self {
        Client {
            session: SessionId::NEW,
            last_sequence: 0,
            unanswered: VecDeque::new(),
            decoder: Decoder::default(),
            token,
            nonce: None,
            greeting: Greeting::Said,
        }
    }

    /// Begins a connection and returns its first bytes. Input of an earlier connection is dropped.
    pub fn greet(&mut self) -> Vec<u8> {
        self.decoder = Decoder::default();
        self.greeting = Greeting::Said;
        self.nonce = self.token.is_some().then(Nonce::fresh);
        let mut bytes = Vec::new();
        self.hello().encode(0, 0, &mut bytes);
        bytes
    }

    /// Whether one more command may wait for its answer.
    #[must_use]
    pub fn may_send(&self) -> bool {
        self.unanswered.len() < UNANSWERED_MAX
    }

    /// Numbers a command; returns its number and the bytes to send.
    ///
    /// # Panics
    /// If too many commands wait for answers.
    pub fn send(&mut self, command: Command) -> (u64, &[u8]) {
        assert!(self.may_send(), "at most {UNANSWERED_MAX} commands wait for their answers");
        self.last_sequence += 1;
        let mut frame = Vec::new();
        command.encode(self.unanswered.len() as u16, self.last_sequence, &mut frame);
        self.unanswered.push_back(Sent { sequence: self.last_sequence, command, frame });
        (self.last_sequence, &self.unanswered.back().expect("it was just added").frame)
    }

    /// All unanswered commands, to be sent again on a new connection.
    #[must_use]
    pub fn unanswered_bytes(&self) -> Vec<u8> {
        self.unanswered.iter().flat_map(|sent| sent.frame.iter().copied()).collect()
    }

    /// Commands that wait for their answers.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Takes received bytes.
    pub fn received(&mut self, bytes: &[u8]) {
        self.decoder.feed(bytes);
    }

    /// The next message of the server.
    ///
    /// # Errors
    /// If it violates the protocol.
    pub fn hear(&mut self) -> Result<Option<Heard>, ProtocolError> {
        let Some(frame) = self.decoder.next_frame()? else { return Ok(None) };
        if self.greeting != Greeting::Welcomed {
            return self.greeted(&frame).map(Some);
        }
        let expected = self.unanswered.front().map_or(0, |sent| sent.sequence);
        if frame.sequence != expected || expected == 0 {
            return Err(ProtocolError::Order { expected, actual: frame.sequence });
        }
        let sent = self.unanswered.pop_front().expect("it was just looked at");
        let answer = Answer::decode(&frame, &sent.command)?;
        Ok(Some(Heard::Answer { sequence: sent.sequence, answer }))
    }

    fn hello(&self) -> Command {
        Command::Hello { version: VERSION, session: self.session, nonce: self.nonce }
    }

    /// The next message of a greeting.
    fn greeted(&mut self, frame: &Frame) -> Result<Heard, ProtocolError> {
        if let (Greeting::Challenged(theirs), Some(token), Some(ours)) = (self.greeting, &self.token, &self.nonce) {
            let proof = token.client_proof(self.session, ours, &theirs);
            return match Answer::decode(frame, &Command::Prove { proof })? {
                Answer::Proven(proof) if token.is_server_proof(&proof, self.session, ours, &theirs) => {
                    self.greeting = Greeting::Proven;
                    Ok(Heard::Challenge(Vec::new()))
                }
                Answer::Proven(_) => Ok(Heard::Impostor("it has another token")),
                refusal => Ok(Heard::Refused(refusal)),
            };
        }
        match (Answer::decode(frame, &self.hello())?, &self.token, &self.nonce) {
            (Answer::Challenge(theirs), Some(token), Some(ours)) if self.greeting == Greeting::Said => {
                let proof = token.client_proof(self.session, ours, &theirs);
                self.greeting = Greeting::Challenged(theirs);
                let mut bytes = Vec::new();
                Command::Prove { proof }.encode(0, 0, &mut bytes);
                Ok(Heard::Challenge(bytes))
            }
            (Answer::Welcome(_), Some(_), _) if self.greeting != Greeting::Proven => {
                Ok(Heard::Impostor("it does not show that it has the token"))
            }
            (Answer::Welcome(welcome), ..) => self.welcomed(welcome),
            (refusal, ..) => Ok(Heard::Refused(refusal)),
        }
    }

    fn welcomed(&mut self, welcome: Welcome) -> Result<Heard, ProtocolError> {
        let answered = self.last_sequence - self.unanswered.len() as u64;
        let resumes = self.session != SessionId::NEW;
        let knows_us = !resumes || welcome.session == self.session;
        // An answered command was executed, and an unsent one can't have been.
        if !knows_us || !(answered..=self.last_sequence).contains(&welcome.executed) {
            return Err(ProtocolError::Order { expected: answered, actual: welcome.executed });
        }
        self.session = welcome.session;
        self.greeting = Greeting::Welcomed;
        Ok(Heard::Welcome(welcome))
    }
}

impl Default for Client {
    fn default() -> Self {
        Client::new()
    }
}
