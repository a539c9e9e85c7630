//! A client that speaks NBD.

use std::io::IoSlice;
use std::sync::Arc;

use chronodisk_engine::TransportIndex;
use chronodisk_engine::listen::{Place, Socket};
use chronodisk_sim::{RequestId, Status};
use chronodisk_store::{Store, StoreError};

use super::Shared;
use super::connection::NotMoved;
use super::stream::{self, StreamEvent, StreamSession, StreamState};
use super::work::{Lent, Work, WorkKind};
use crate::nbd::{Command, Event, ExecuteError, NbdRequest, NbdSession, Reason, RequestKey, ServerOffer};
use crate::stream::Detached;

/// A client's session.
struct NbdStream {
    session: NbdSession,
    /// The keys of the outstanding requests by their slots.
    keys: Vec<Option<RequestKey>>,
}

/// Serves a client until it disconnects or the server stops.
pub(super) fn serve(
    shared: &Arc<Shared>,
    connection: u32,
    transport: TransportIndex,
    accepted: (Socket, Place),
    offer: Arc<ServerOffer>,
) {
    let session = NbdSession::with_memory(offer, shared.client_memory.clone());
    stream::serve(shared, connection, transport, accepted, NbdStream { session, keys: Vec::new() });
}

impl NbdStream {
    fn key(&self, slot: u32) -> Option<RequestKey> {
        self.keys.get(slot as usize).copied().flatten()
    }
}

impl StreamSession for NbdStream {
    const NAME: &'static str = "NBD connection";
    const HELPER: &'static str = "a helper of an NBD connection";
    type Payload = Detached;

    fn next_event(&mut self) -> Option<StreamEvent> {
        loop {
            let request = match self.session.next_event()? {
                Event::Request(request) => request,
                Event::Negotiated { .. } => return Some(StreamEvent::Negotiated),
                Event::Closing(Reason::Violation(violation)) => {
                    return Some(StreamEvent::Violation(violation.to_string()));
                }
                Event::Closing(_) => continue,
            };
            let slot = request.key.slot();
            if self.keys.len() <= slot {
                self.keys.resize(slot + 1, None);
            }
            self.keys[slot] = Some(request.key);
            // The skeleton sets both.
            let (id, issuer) = (RequestId(0), 0);
            let for_device = request.device_request(id, 0, issuer);
            return Some(StreamEvent::Request { slot: slot as u32, request: for_device, work: work(&request) });
        }
    }

    fn execute(&mut self, slot: u32, store: &mut dyn Store) -> Result<(), NotMoved> {
        let executed = match self.key(slot) {
            Some(key) => self.session.execute(key, store),
            None => Err(ExecuteError::NotOutstanding),
        };
        executed.map_err(|error| match error {
            ExecuteError::Store(StoreError::WouldWait) => NotMoved::WouldWait,
            error => NotMoved::Failed(error.to_string()),
        })
    }

    fn lend(&mut self, slot: u32) -> Lent<Detached> {
        let Some(key) = self.key(slot) else { return Lent::Nothing };
        match self.session.lend(key) {
            Some(room) => Lent::Read(room),
            None => self.session.take_payload(key).map_or(Lent::Nothing, Lent::Write),
        }
    }

    fn give_back(&mut self, slot: u32, work: &Work, lent: Lent<Detached>, moved: Result<(), StoreError>) {
        let Some(key) = self.key(slot) else { return };
        if let Lent::Read(buffer) = lent {
            let data_len = moved.is_ok().then_some(work.len_bytes as usize);
            self.session.give_back(key, buffer, data_len);
        }
        if let Err(error) = moved {
            self.session.failed(key, error);
        }
    }

    fn complete(&mut self, slot: u32, status: Status) {
        if let Some(key) = self.keys.get_mut(slot as usize).and_then(Option::take) {
            self.session.complete(key, status);
        }
    }

    fn receive_room(&mut self) -> &mut [u8] {
        self.session.receive_room()
    }

    fn received(&mut self, len: usize) {
        self.session.received(len);
    }

    fn input_ended(&mut self) {
        self.session.input_ended();
    }

    fn has_output(&self) -> bool {
        self.session.has_output()
    }

    fn gather<'a>(&'a mut self, slices: &mut [IoSlice<'a>]) -> usize {
        self.session.gather(slices)
    }

    fn sent(&mut self, len: usize) {
        self.session.sent(len);
    }

    fn is_finished(&self) -> bool {
        self.session.is_finished()
    }

    fn state(&self) -> StreamState {
        let state = self.session.state();
        StreamState {
            refused_requests: state.refused_requests,
            wants_input: state.wants_input,
            is_midway: state.is_midway,
            waits_for_memory: state.waits_for_memory,
            held_bytes: state.held_bytes,
        }
    }

    fn release_idle_memory(&mut self) {
        self.session.release_idle_memory();
    }
}

/// A request's work on the store.
fn work(request: &NbdRequest) -> Work {
    let kind = match request.command {
        Command::Read => WorkKind::Read,
        Command::Write => WorkKind::Write,
        Command::Trim => WorkKind::Discard,
        Command::WriteZeroes if request.no_hole => WorkKind::ReserveZeroes,
        Command::WriteZeroes => WorkKind::WriteZeroes,
        Command::Flush | Command::Cache | Command::BlockStatus => WorkKind::Nothing,
    };
    let flush = request.command == Command::Flush || (request.fua && kind.changes_contents());
    Work { kind, offset_bytes: request.offset_bytes, len_bytes: request.len_bytes.into(), flush }
}
