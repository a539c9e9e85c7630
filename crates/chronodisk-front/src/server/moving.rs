//! Moving the bytes of requests: at once, or by a helper that waits for the host's disk.

use std::sync::Arc;

use chronodisk_engine::{RealId, Transfer};
use chronodisk_sim::{Request, Status};
use chronodisk_store::{Store, StoreError, forward_to_store};

use super::Shared;
use super::connection::{Connection, Io, Outlet, Protocol, State};
use super::helpers::Job;
use super::peer::{Left, Peer, raise};
use super::shadowing::Shadowing;
use super::work::{Slow, Work};

/// Bytes charged for a request without data while it waits for the host's disk.
const MOVING_BYTES_MIN: u64 = 4 << 10;

impl<P: Protocol> State<P> {
    pub fn begin_moving(&mut self, slot: u32, request: Request, work: Work) -> Slow<P::Payload> {
        let lent = self.protocol.lend(slot);
        let len_bytes = if work.kind.moves_data() { work.len_bytes } else { 0 };
        let counted_bytes = len_bytes.max(MOVING_BYTES_MIN);
        self.moving += 1;
        self.moving_bytes += counted_bytes;
        Slow { slot, request, work, lent, counted_bytes }
    }

    /// Returns a lent buffer. The request still counts as moving: the clock does not know its completion yet.
    fn end_moving(&mut self, shared: &Shared, slow: Slow<P::Payload>, moved: Result<(), StoreError>) {
        self.moving_bytes -= slow.counted_bytes;
        if let Err(error) = &moved {
            shared.note_store_error(error);
        }
        self.protocol.give_back(slow.slot, &slow.work, slow.lent, moved);
    }
}

impl<P: Protocol> Connection<P> {
    /// Lets a helper move a request's bytes; moves them here if there is no helper.
    pub fn have_moved(self: &Arc<Self>, shared: &Arc<Shared>, slow: Slow<P::Payload>) {
        let (peer, owner) = (self.clone(), shared.clone());
        let job: Job = Box::new(move |store| {
            let moved = || match owner.shadowing.as_ref() {
                Some(shadowing) => peer.serve_really(&owner, shadowing, slow, store),
                None => peer.move_bytes(&owner, slow, store),
            };
            if owner.catch(|| P::HELPER.to_owned(), moved).is_none() {
                peer.abandon();
            }
        });
        let way = || {
            let own = shared.store().second_way()?;
            Ok(Some(own.unwrap_or_else(|| Box::new(SharedStore(shared.clone())))))
        };
        if let Err(job) = shared.helpers.submit(job, way) {
            job(&mut SharedStore(shared.clone()));
        }
    }

    /// Moves the bytes of a request. The clock holds its completion until then.
    fn move_bytes(&self, shared: &Shared, mut slow: Slow<P::Payload>, store: &mut dyn Store) {
        let begun = shared.now();
        let moved = self.perform(shared, &mut slow, store);
        let took = shared.now().saturating_sub(begun);
        let bytes = if moved.is_ok() { Transfer::Moved { took } } else { Transfer::Failed { took } };
        let id = RealId::unpack(slow.request.id);
        self.state().end_moving(shared, slow, moved);
        {
            let mut core = shared.core();
            core.clock.store_done(shared.now(), shared.device, id, bytes);
            shared.set_wake_at(core.clock.wake_at());
        }
        // Only now: a thread that sees no moving bytes and no completion waits for its client alone.
        self.state().moving -= 1;
        // The completion may have to leave at once.
        raise(&self.link.event);
    }

    /// Performs the work. After a panic the request has failed, so that the clock and the log continue, and the
    /// connection ends.
    fn perform(&self, shared: &Shared, slow: &mut Slow<P::Payload>, store: &mut dyn Store) -> Result<(), StoreError> {
        let performed = shared.catch(|| P::HELPER.to_owned(), || slow.work.perform(&mut slow.lent, store));
        performed.unwrap_or_else(|| {
            self.abandon();
            Err(StoreError::Damaged { what: "the store, whose code panicked,".to_owned() })
        })
    }

    /// Lets the real device serve a request, and answers it.
    fn serve_really(&self, shared: &Shared, shadowing: &Shadowing, mut slow: Slow<P::Payload>, store: &mut dyn Store) {
        let order = shadowing.arrives(&shared.host, slow.request);
        let served = self.perform(shared, &mut slow, store);
        shadowing.served(order, shared.now(), served.is_err());
        let mut state = self.state();
        let state = &mut *state;
        let slot = slow.slot;
        state.end_moving(shared, slow, served);
        state.moving -= 1;
        state.protocol.complete(slot, Status::Ok);
        if state.protocol.outlet() != Outlet::Full {
            state.protocol.flush(Io { link: &self.link, shared, left: &mut Left::default() });
        }
        if state.needs_attention() {
            raise(&self.link.event);
        }
    }
}

/// Data that are copied while the others wait for the store: some 10 µs.
const HELD_BYTES_MAX: usize = 64 << 10;

/// The server's store, with ownership.
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
