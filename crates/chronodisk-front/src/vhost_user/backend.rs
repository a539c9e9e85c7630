//! Negotiated state, and the effect of each message.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::SocketType;
use virtio_bindings::bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

use super::Vring;
use super::doorbell::Doorbell;
use super::memory::{GuestMemory, MemoryError, Sharing};
use super::message::{
    self, CONFIG_SPACE_BYTES_MAX, F_PROTOCOL_FEATURES, MemoryRegion, Message, Request, code, protocol_feature,
};
use super::vring::QUEUE_SIZE_MAX;

/// The state of one session: takes messages and returns their answers.
///
/// It maps guest memory and holds file descriptors, but reads and writes no socket. Its owner,
/// [`VhostUserSession`](super::VhostUserSession), serves the kicks.
#[derive(Debug)]
pub struct Backend {
    offered_features: u64,
    features: u64,
    protocol_features: u64,
    config_space: Vec<u8>,
    sharing: Sharing,
    memory: Option<Arc<GuestMemory>>,
    vrings: [Vring; QUEUE_COUNT],
    channel: Option<OwnedFd>,
}

/// Rings of the device.
pub(crate) const QUEUE_COUNT: usize = 1;

/// Action after a message.
#[derive(Debug)]
pub enum Answer {
    /// Nothing.
    Silence,
    /// Send these bytes.
    Reply(Vec<u8>),
    /// Send these bytes, which say no.
    Refused {
        /// The negative acknowledgement.
        reply: Vec<u8>,
        /// Reason, for diagnosis.
        refusal: Refusal,
    },
    /// Serve the available requests of a ring, then acknowledge if asked to.
    Kick {
        /// The ring.
        queue: usize,
        /// Whether the guest waits for an acknowledgement.
        acknowledge: bool,
    },
}

/// Why a message was not obeyed. The front end learns of it by a negative acknowledgement if it
/// asked for one; otherwise the session ends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No such request.
    #[error("unknown request")]
    UnknownRequest,
    /// Feature bits that were not offered.
    #[error("feature bits {asked:#x}, expected a subset of the offered {offered:#x}")]
    Features {
        /// Bits to enable.
        asked: u64,
        /// Bits that may be enabled.
        offered: u64,
    },
    /// No such ring.
    #[error("ring {0}, expected less than {QUEUE_COUNT}")]
    RingIndex(u32),
    /// Not a size for a ring.
    #[error("a ring of {0} entries, expected a power of two up to {QUEUE_SIZE_MAX}")]
    RingSize(u32),
    /// Logging of writes was asked for.
    #[error("ring flags {0:#x}, expected none: writes are not logged")]
    RingFlags(u32),
    /// Not an index into a ring.
    #[error("ring base {0}, expected 16 bits")]
    RingBase(u32),
    /// A ring can't be changed while it runs.
    #[error("the ring runs; it must be disabled or stopped first")]
    RingRuns,
    /// A ring was started too early.
    #[error("the ring was started before {0}")]
    NotSetUp(&'static str),
    /// A part of a ring lies outside the memory table or is not aligned.
    #[error(
        "the {part} at {user_address:#x} ({len_bytes} bytes) is not inside guest memory at a multiple of {alignment_bytes}"
    )]
    RingAddress {
        /// Which part.
        part: &'static str,
        /// Where, in the front end's address space.
        user_address: u64,
        /// Which alignment was expected, in bytes.
        alignment_bytes: u64,
        /// Its length in bytes.
        len_bytes: u64,
    },
    /// A part of a ring can't be accessed.
    #[error("the ring can't be accessed")]
    RingMemory,
    /// The memory table can't be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The backend channel is not a stream socket.
    #[error("the backend channel is not a stream socket")]
    Channel,
    /// A kick, call or error descriptor can't be examined or made non-blocking.
    #[error("the event descriptor: {0}")]
    EventFd(Errno),
    /// A kick, call or error descriptor is a pipe.
    #[error("the event descriptor is a pipe, expected an eventfd or a socket")]
    EventPipe,
    /// The configuration space can't be written.
    #[error("the configuration space is read-only")]
    ConfigReadOnly,
}

impl Backend {
    /// A backend for a device with these feature bits and this configuration space, in a process that serves this
    /// guest only or others, too.
    ///
    /// # Panics
    /// If the configuration space is larger than [`CONFIG_SPACE_BYTES_MAX`].
    #[must_use]
    pub fn new(device_features: u64, config_space: Vec<u8>, sharing: Sharing) -> Self {
        assert!(config_space.len() <= CONFIG_SPACE_BYTES_MAX, "the front end could not read all of it");
        Backend {
            offered_features: device_features | 1 << F_PROTOCOL_FEATURES,
            features: 0,
            protocol_features: 0,
            config_space,
            sharing,
            memory: None,
            vrings: std::array::from_fn(|_| Vring::new()),
            channel: None,
        }
    }

    /// Obeys a message.
    ///
    /// # Errors
    /// A [`Refusal`] that the front end can't be told of.
    pub fn handle(&mut self, message: Message) -> Result<Answer, Refusal> {
        let Message { code, needs_reply, request } = message;
        let outcome = self.obey(code, request);
        // Negotiated by the very message that enables it, as User Mode Linux expects.
        let acknowledge = needs_reply && self.has_protocol_feature(protocol_feature::REPLY_ACK);
        match outcome {
            Ok(Effect::Replied(bytes)) => Ok(Answer::Reply(bytes)),
            Ok(Effect::Kicked(queue)) => Ok(Answer::Kick { queue, acknowledge }),
            Ok(Effect::Done) if acknowledge => Ok(Answer::Reply(message::acknowledgement(code, true))),
            Ok(Effect::Done) => Ok(Answer::Silence),
            Err(refusal) if acknowledge => {
                Ok(Answer::Refused { reply: message::acknowledgement(code, false), refusal })
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Feature bits of the device and the transport that the guest enabled.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// The guest's memory, once there is a table.
    #[must_use]
    pub fn memory(&self) -> Option<&Arc<GuestMemory>> {
        self.memory.as_ref()
    }

    /// Where in-band calls go; `None` if they are not negotiated or the channel has not come.
    #[must_use]
    pub fn call_channel(&self) -> Option<BorrowedFd<'_>> {
        let inband = self.has_protocol_feature(protocol_feature::INBAND_NOTIFICATIONS);
        self.channel.as_ref().filter(|_| inband).map(AsFd::as_fd)
    }

    pub(crate) fn vring(&self, queue: usize) -> &Vring {
        &self.vrings[queue]
    }

    pub(crate) fn vring_mut(&mut self, queue: usize) -> &mut Vring {
        &mut self.vrings[queue]
    }

    fn has_protocol_feature(&self, bit: u32) -> bool {
        self.protocol_features & 1 << bit != 0
    }

    fn obey(&mut self, code: u32, request: Request) -> Result<Effect, Refusal> {
        let number = |number: u64| Ok(Effect::Replied(message::reply(code, &number.to_ne_bytes())));
        match request {
            Request::GetFeatures => number(self.offered_features),
            Request::SetFeatures(bits) => self.set_features(bits),
            Request::SetOwner => Ok(Effect::Done),
            Request::ResetOwner => self.reset_owner(),
            Request::SetMemTable(table) => self.set_memory_table(table),
            Request::SetVringNum { index, size } => self.ring(index)?.set_size(size).map(done),
            Request::SetVringAddr { index, addresses } => self.ring(index)?.set_addresses(addresses).map(done),
            Request::SetVringBase { index, base } => self.ring(index)?.set_base(base).map(done),
            Request::GetVringBase { index } => self.get_vring_base(index),
            Request::SetVringKick { index, fd } => self.set_vring_kick(index, fd),
            Request::SetVringCall { index, fd } => {
                self.ring(index)?.call = doorbell(fd)?;
                Ok(Effect::Done)
            }
            Request::SetVringErr { index, fd } => {
                self.ring(index)?.error = doorbell(fd)?;
                Ok(Effect::Done)
            }
            Request::GetProtocolFeatures => number(PROTOCOL_FEATURES),
            Request::SetProtocolFeatures(bits) => self.set_protocol_features(bits),
            Request::GetQueueNum => number(QUEUE_COUNT as u64),
            Request::SetVringEnable { index, enabled } => self.set_vring_enable(index, enabled),
            Request::SetBackendReqFd(fd) => self.set_channel(fd),
            Request::GetConfig { offset, size, flags } => Ok(Effect::Replied(self.config(offset, size, flags))),
            Request::SetConfig => Err(Refusal::ConfigReadOnly),
            Request::VringKick { index } => self.ring_index(index).map(Effect::Kicked),
            Request::Unknown => Err(Refusal::UnknownRequest),
        }
    }

    fn ring_index(&self, index: u32) -> Result<usize, Refusal> {
        match usize::try_from(index) {
            Ok(queue) if queue < QUEUE_COUNT => Ok(queue),
            _ => Err(Refusal::RingIndex(index)),
        }
    }

    fn ring(&mut self, index: u32) -> Result<&mut Vring, Refusal> {
        let queue = self.ring_index(index)?;
        Ok(&mut self.vrings[queue])
    }

    fn set_features(&mut self, asked: u64) -> Result<Effect, Refusal> {
        check_features(asked, self.offered_features)?;
        self.features = asked;
        for vring in &mut self.vrings {
            vring.set_event_idx(asked & 1 << VIRTIO_RING_F_EVENT_IDX != 0);
        }
        if asked & 1 << F_PROTOCOL_FEATURES == 0 {
            // "Ring states" in the specification: without protocol features rings need no enabling.
            for vring in &mut self.vrings {
                vring.set_enabled(true, self.memory.as_deref())?;
            }
        }
        Ok(Effect::Done)
    }

    fn set_protocol_features(&mut self, asked: u64) -> Result<Effect, Refusal> {
        check_features(asked, PROTOCOL_FEATURES)?;
        self.protocol_features = asked;
        Ok(Effect::Done)
    }

    fn reset_owner(&mut self) -> Result<Effect, Refusal> {
        for vring in &mut self.vrings {
            vring.set_enabled(false, None)?;
        }
        Ok(Effect::Done)
    }

    fn set_memory_table(&mut self, table: Vec<(MemoryRegion, OwnedFd)>) -> Result<Effect, Refusal> {
        let memory = Arc::new(GuestMemory::map(table, self.sharing)?);
        self.memory = Some(Arc::clone(&memory));
        for vring in &mut self.vrings {
            vring.memory_changed(&memory)?;
        }
        Ok(Effect::Done)
    }

    fn get_vring_base(&mut self, index: u32) -> Result<Effect, Refusal> {
        let base = self.ring(index)?.stop();
        let state = message::vring_state(index, u32::from(base));
        Ok(Effect::Replied(message::reply(code::GET_VRING_BASE, &state)))
    }

    fn set_vring_kick(&mut self, index: u32, fd: Option<OwnedFd>) -> Result<Effect, Refusal> {
        let queue = self.ring_index(index)?;
        let vring = &mut self.vrings[queue];
        vring.kick = doorbell(fd)?;
        vring.start(self.memory.as_deref()).map(done)
    }

    fn set_vring_enable(&mut self, index: u32, enabled: bool) -> Result<Effect, Refusal> {
        let queue = self.ring_index(index)?;
        let inband = self.has_protocol_feature(protocol_feature::INBAND_NOTIFICATIONS);
        let vring = &mut self.vrings[queue];
        vring.set_enabled(enabled, self.memory.as_deref())?;
        if enabled && inband {
            // With in-band kicks no kick descriptor ever comes to start the ring.
            vring.start(self.memory.as_deref())?;
        }
        Ok(Effect::Done)
    }

    fn set_channel(&mut self, fd: OwnedFd) -> Result<Effect, Refusal> {
        // A call must never block, and only sockets take a flag for that with each message.
        if rustix::net::sockopt::socket_type(&fd) != Ok(SocketType::STREAM) {
            return Err(Refusal::Channel);
        }
        self.channel = Some(fd);
        Ok(Effect::Done)
    }

    /// A reply without bytes tells that the range can't be read. "VHOST_USER_GET_CONFIG" in the
    /// specification.
    fn config(&self, offset: u32, size: u32, flags: u32) -> Vec<u8> {
        let range = offset as usize..(offset as usize).saturating_add(size as usize);
        if range.end > CONFIG_SPACE_BYTES_MAX {
            return message::reply(code::GET_CONFIG, &[]);
        }
        let mut space = [0; CONFIG_SPACE_BYTES_MAX];
        space[..self.config_space.len()].copy_from_slice(&self.config_space);
        let mut payload = Vec::with_capacity(message::PAYLOAD_BYTES_MAX);
        for word in [offset, size, flags] {
            payload.extend_from_slice(&word.to_ne_bytes());
        }
        payload.extend_from_slice(&space[range]);
        message::reply(code::GET_CONFIG, &payload)
    }
}

/// Bits of the protocol's features that we offer.
const PROTOCOL_FEATURES: u64 = 1 << protocol_feature::MQ
    | 1 << protocol_feature::REPLY_ACK
    | 1 << protocol_feature::BACKEND_REQ
    | 1 << protocol_feature::CONFIG
    | 1 << protocol_feature::INBAND_NOTIFICATIONS;

/// Result of executing a message.
enum Effect {
    Done,
    Replied(Vec<u8>),
    Kicked(usize),
}

fn done((): ()) -> Effect {
    Effect::Done
}

fn doorbell(fd: Option<OwnedFd>) -> Result<Option<Doorbell>, Refusal> {
    fd.map(Doorbell::new).transpose()
}

fn check_features(asked: u64, offered: u64) -> Result<(), Refusal> {
    if asked & !offered != 0 { Err(Refusal::Features { asked, offered }) } else { Ok(()) }
}
