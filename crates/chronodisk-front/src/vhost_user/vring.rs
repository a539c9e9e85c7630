//! One ring: how it was set up, whether it runs, which of its descriptor chains are in flight.

use std::sync::atomic::Ordering;

use virtio_queue::{DescriptorChain, Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

use super::Refusal;
use super::doorbell::Doorbell;
use super::memory::GuestMemory;
use super::message::VringAddresses;

/// Most entries of a ring: the size used by User Mode Linux.
pub const QUEUE_SIZE_MAX: u16 = 256;

/// How a running ring can turn out to be unusable. The ring is stopped then, because nothing in
/// it can be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// A kick came while the ring does not run.
    #[error("the ring does not run")]
    NotRunning,
    /// The available index moved by more than the size of the ring.
    #[error("the available ring's index moved by more than the ring's {size} entries")]
    AvailableIndex {
        /// Entries in the ring.
        size: u16,
    },
    /// An entry of the available ring names no descriptor.
    #[error("the available ring names descriptor {head} of {size}")]
    Head {
        /// The entry.
        head: u16,
        /// Entries in the ring.
        size: u16,
    },
    /// An entry of the available ring names a chain that is already in flight.
    #[error("the available ring names the chain at descriptor {head} again, which is still in flight")]
    InFlight {
        /// The entry.
        head: u16,
    },
    /// The used ring can't be written.
    #[error("the used ring can't be written")]
    UsedRing,
}

/// One ring. It *runs* while its [`Queue`] exists: set up, started and enabled.
#[derive(Debug)]
pub(crate) struct Vring {
    size: u16,
    addresses: Option<VringAddresses>,
    /// Index in the available ring to go on from; the queue's own while the ring runs.
    base: u16,
    enabled: bool,
    /// Started by a kick descriptor, or by being enabled where kicks come in band.
    started: bool,
    queue: Option<Queue>,
    /// Whether either side says from which entry on it wants to be notified.
    event_idx: bool,
    /// A bit for each descriptor that heads a chain in flight.
    in_flight: [u64; QUEUE_SIZE_MAX as usize / 64],
    /// Changes when the chains in flight are forgotten.
    epoch: u64,
    pub(crate) kick: Option<Doorbell>,
    pub(crate) call: Option<Doorbell>,
    pub(crate) error: Option<Doorbell>,
}

impl Vring {
    pub(crate) fn new() -> Self {
        Vring {
            size: QUEUE_SIZE_MAX,
            addresses: None,
            base: 0,
            enabled: false,
            started: false,
            queue: None,
            event_idx: false,
            in_flight: [0; QUEUE_SIZE_MAX as usize / 64],
            epoch: 0,
            kick: None,
            call: None,
            error: None,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.queue.is_some()
    }

    /// Chains taken in another epoch are no longer in flight.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Where kicks come while the ring runs.
    pub(crate) fn running_kick(&self) -> Option<&Doorbell> {
        self.kick.as_ref().filter(|_| self.is_running())
    }

    /// `VIRTIO_RING_F_EVENT_IDX`, virtio 1.2, section 2.7.10: to be set before the ring runs.
    pub(crate) fn set_event_idx(&mut self, event_idx: bool) {
        self.event_idx = event_idx;
    }

    pub(crate) fn set_size(&mut self, size: u32) -> Result<(), Refusal> {
        self.refuse_if_running()?;
        match u16::try_from(size) {
            Ok(size) if size.is_power_of_two() && size <= QUEUE_SIZE_MAX => self.size = size,
            _ => return Err(Refusal::RingSize(size)),
        }
        self.forget_in_flight();
        Ok(())
    }

    pub(crate) fn set_addresses(&mut self, addresses: VringAddresses) -> Result<(), Refusal> {
        self.refuse_if_running()?;
        if addresses.flags != 0 {
            return Err(Refusal::RingFlags(addresses.flags));
        }
        self.addresses = Some(addresses);
        self.forget_in_flight();
        Ok(())
    }

    pub(crate) fn set_base(&mut self, base: u32) -> Result<(), Refusal> {
        self.refuse_if_running()?;
        self.base = u16::try_from(base).map_err(|_| Refusal::RingBase(base))?;
        self.forget_in_flight();
        Ok(())
    }

    pub(crate) fn set_enabled(&mut self, enabled: bool, memory: Option<&GuestMemory>) -> Result<(), Refusal> {
        self.enabled = enabled;
        self.run_or_stop(memory)
    }

    pub(crate) fn start(&mut self, memory: Option<&GuestMemory>) -> Result<(), Refusal> {
        self.started = true;
        self.run_or_stop(memory)
    }

    /// Guest memory moved: the ring goes on at its addresses in the new table, or stops.
    pub(crate) fn memory_changed(&mut self, memory: &GuestMemory) -> Result<(), Refusal> {
        if !self.is_running() {
            return Ok(());
        }
        self.stop_queue();
        self.run_or_stop(Some(memory))
    }

    /// Stops the ring for good, until it is started again; returns the index to go on from.
    pub(crate) fn stop(&mut self) -> u16 {
        self.stop_queue();
        self.started = false;
        self.kick = None;
        self.forget_in_flight();
        self.base
    }

    /// Stops a ring that broke the rules.
    pub(crate) fn fail(&mut self) {
        self.stop();
        self.enabled = false;
    }

    /// Takes the next available chain.
    pub(crate) fn pop<'m>(
        &mut self,
        memory: &'m GuestMemory,
    ) -> Result<Option<DescriptorChain<&'m GuestMemory>>, RingError> {
        let size = self.size;
        let queue = self.queue.as_mut().ok_or(RingError::NotRunning)?;
        // The ring lies inside the memory, so the index is all that can be wrong.
        let mut available = queue.iter(memory).map_err(|_| RingError::AvailableIndex { size })?;
        let Some(chain) = available.next() else { return Ok(None) };
        let head = chain.head_index();
        if head >= size {
            return Err(RingError::Head { head, size });
        }
        let (word, bit) = in_flight_bit(head);
        if self.in_flight[word] & bit != 0 {
            return Err(RingError::InFlight { head });
        }
        self.in_flight[word] |= bit;
        Ok(Some(chain))
    }

    /// Gives a chain back; `written_bytes` of its memory were filled.
    pub(crate) fn push_used(&mut self, memory: &GuestMemory, head: u16, written_bytes: u32) -> Result<(), RingError> {
        let queue = self.queue.as_mut().ok_or(RingError::NotRunning)?;
        queue.add_used(memory, head, written_bytes).map_err(|_| RingError::UsedRing)?;
        let (word, bit) = in_flight_bit(head);
        self.in_flight[word] &= !bit;
        Ok(())
    }

    /// Returns whether the guest wants a call for the entries returned since the last one.
    pub(crate) fn wants_call(&mut self, memory: &GuestMemory) -> bool {
        // A ring that can't be read is told of once too often rather than never.
        self.queue.as_mut().is_none_or(|queue| queue.needs_notification(memory).unwrap_or(true))
    }

    /// Requests a kick for the next chain, after all available ones were taken. Returns true if there is one already,
    /// which the guest may not announce.
    pub(crate) fn await_kick(&mut self, memory: &GuestMemory) -> Result<bool, RingError> {
        if !self.event_idx {
            return Ok(false);
        }
        let size = self.size;
        let queue = self.queue.as_mut().ok_or(RingError::NotRunning)?;
        queue.enable_notification(memory).map_err(|_| RingError::AvailableIndex { size })
    }

    fn refuse_if_running(&self) -> Result<(), Refusal> {
        if self.is_running() { Err(Refusal::RingRuns) } else { Ok(()) }
    }

    fn forget_in_flight(&mut self) {
        self.in_flight = [0; QUEUE_SIZE_MAX as usize / 64];
        self.epoch += 1;
    }

    fn stop_queue(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.base = queue.next_avail();
        }
    }

    fn run_or_stop(&mut self, memory: Option<&GuestMemory>) -> Result<(), Refusal> {
        if !(self.enabled && self.started) {
            self.stop_queue();
        } else if self.queue.is_none() {
            self.queue = Some(self.make_queue(memory)?);
        }
        Ok(())
    }

    fn make_queue(&self, memory: Option<&GuestMemory>) -> Result<Queue, Refusal> {
        let memory = memory.ok_or(Refusal::NotSetUp("SET_MEM_TABLE"))?;
        let addresses = self.addresses.ok_or(Refusal::NotSetUp("SET_VRING_ADDR"))?;
        // Sizes of a split ring's parts: virtio 1.2, section 2.7, "Split Virtqueues".
        let size = u64::from(self.size);
        let descriptors = locate(memory, "descriptor table", addresses.descriptors, 16, 16 * size)?;
        let available = locate(memory, "available ring", addresses.available, 2, 6 + 2 * size)?;
        let used = locate(memory, "used ring", addresses.used, 4, 6 + 8 * size)?;
        let invalid = |_| Refusal::RingMemory;
        let mut queue = Queue::new(QUEUE_SIZE_MAX).map_err(invalid)?;
        queue.try_set_size(self.size).map_err(invalid)?;
        queue.try_set_desc_table_address(descriptors).map_err(invalid)?;
        queue.try_set_avail_ring_address(available).map_err(invalid)?;
        queue.try_set_used_ring_address(used).map_err(invalid)?;
        queue.set_next_avail(self.base);
        queue.set_next_used(queue.used_idx(memory, Ordering::Acquire).map_err(invalid)?.0);
        queue.set_event_idx(self.event_idx);
        queue.set_ready(true);
        if !queue.is_valid(memory) {
            return Err(Refusal::RingMemory);
        }
        Ok(queue)
    }
}

fn in_flight_bit(head: u16) -> (usize, u64) {
    (usize::from(head / 64), 1 << (head % 64))
}

fn locate(
    memory: &GuestMemory,
    part: &'static str,
    user_address: u64,
    alignment_bytes: u64,
    len_bytes: u64,
) -> Result<GuestAddress, Refusal> {
    match memory.translate(user_address, len_bytes) {
        // Address zero means "not set" to the queue.
        Some(address) if address.0 != 0 && address.0.is_multiple_of(alignment_bytes) => Ok(address),
        _ => Err(Refusal::RingAddress { part, user_address, alignment_bytes, len_bytes }),
    }
}
