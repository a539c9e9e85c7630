//! A logical unit: its description, its state, and its answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ports::Port;
use super::reservations::{Reservations, Reserved};
use super::table::Supported;
use super::wire::{mode_page, opcode};
use super::{Command, ReserveOut, Sense};

/// Properties of a logical unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitDescription {
    /// Capacity in bytes, a whole number of blocks.
    pub capacity_bytes: u64,
    /// Size of a block in bytes, a power of two from 512 to 65,536.
    pub block_bytes: u32,
    /// Unit that the medium writes without a read-modify-write, in bytes; a multiple of the block.
    pub physical_block_bytes: u32,
    /// Commands that change data are refused.
    pub read_only: bool,
    /// The medium turns.
    pub rotational: bool,
    /// A completed write may be lost without `SYNCHRONIZE CACHE`.
    pub volatile_cache: bool,
    /// Unit of discard in bytes; `None` if blocks can't be discarded.
    pub discard_bytes: Option<u32>,
    /// Discarded blocks read as zeros.
    pub zeroes_after_discard: bool,
    /// Name of the product; `INQUIRY` shows its first 16 bytes.
    pub product: String,
    /// Name of the target, in the form of the transport (iSCSI: RFC 3721).
    pub target_name: String,
    /// Number that identifies the unit among all units of an initiator; 60 bits count.
    pub identity: u64,
}

impl UnitDescription {
    /// A unit of this many bytes with blocks of 512 bytes, which can do everything.
    #[must_use]
    pub fn new(product: &str, capacity_bytes: u64) -> Self {
        UnitDescription {
            capacity_bytes,
            block_bytes: 512,
            physical_block_bytes: 4096,
            read_only: false,
            rotational: false,
            volatile_cache: true,
            discard_bytes: Some(4096),
            zeroes_after_discard: true,
            product: product.to_owned(),
            target_name: "iqn.2026-11.org.chronodisk:disk".to_owned(),
            identity: 1,
        }
    }
}

/// A logical unit, shared by its initiators.
#[derive(Debug)]
pub struct LogicalUnit {
    description: UnitDescription,
    /// The bit `WCE` of the caching page.
    write_cache: AtomicBool,
    stopped: AtomicBool,
    resets: AtomicU32,
    mode_changes: AtomicU32,
    reservations: Mutex<Reservations>,
}

/// An initiator's view of a unit: the events that it was told.
#[derive(Debug)]
pub struct Nexus {
    port: Arc<Port>,
    resets: u32,
    mode_changes: u32,
}

impl LogicalUnit {
    /// A unit that is ready.
    #[must_use]
    pub fn new(description: UnitDescription) -> Self {
        LogicalUnit {
            write_cache: AtomicBool::new(description.volatile_cache),
            description,
            stopped: AtomicBool::new(false),
            resets: AtomicU32::new(0),
            mode_changes: AtomicU32::new(0),
            reservations: Mutex::default(),
        }
    }

    /// The properties.
    #[must_use]
    pub fn description(&self) -> &UnitDescription {
        &self.description
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.description.capacity_bytes / u64::from(self.description.block_bytes)
    }

    /// The view of a new session of an initiator's port, to which all earlier events are known.
    #[must_use]
    pub fn nexus(&self, port: &str) -> Nexus {
        let port = Arc::new(Port::new(port));
        self.reservations().ports.add(&port);
        Nexus { port, resets: self.resets(), mode_changes: self.mode_changes.load(Ordering::Relaxed) }
    }

    pub(crate) fn reservations(&self) -> MutexGuard<'_, Reservations> {
        self.reservations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reservations permit a command; otherwise its status is `RESERVATION CONFLICT`.
    #[must_use]
    pub fn admits(&self, command: &Command, nexus: &Nexus) -> bool {
        self.reservations().admit(&nexus.port, command.access())
    }

    /// `RESERVE (6)` and `RELEASE (6)`; `None` for other commands.
    pub(crate) fn reserve_6(&self, command: &Command, nexus: &Nexus) -> Option<Reserved> {
        match command {
            Command::Reserve => Some(self.reservations().reserve_6(&nexus.port)),
            Command::Release => Some(self.reservations().release_6(&nexus.port)),
            _ => None,
        }
    }

    /// Applies the parameters of `PERSISTENT RESERVE OUT`.
    ///
    /// # Errors
    /// The sense data of a refusal; nothing has changed then.
    pub fn reserve_out(&self, asked: &ReserveOut, parameters: &[u8], nexus: &Nexus) -> Result<Reserved, Sense> {
        self.reservations().persistent(&nexus.port, asked, parameters)
    }

    /// Ends what lasts as long as a session.
    pub(crate) fn end_session(&self, nexus: &Nexus) {
        self.reservations().end_session(&nexus.port);
    }

    /// Number of events so far that abort a session's commands: resets, and preemptions with an abort. A command of
    /// another count than at its arrival was aborted.
    #[must_use]
    pub fn aborts(&self, nexus: &Nexus) -> u32 {
        self.resets().wrapping_add(nexus.port.aborts())
    }

    /// Number of resets so far.
    #[must_use]
    pub fn resets(&self) -> u32 {
        self.resets.load(Ordering::Relaxed)
    }

    /// Resets the unit: all commands are aborted, mode pages have their default values, and a `RESERVE (6)` ends.
    pub fn reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
        self.write_cache.store(self.description.volatile_cache, Ordering::Relaxed);
        self.reservations().reset();
    }

    /// Starts or stops the medium.
    pub(crate) fn set_stopped(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
    }

    /// Whether completed writes may wait in a volatile cache.
    #[must_use]
    pub fn has_write_cache(&self) -> bool {
        self.description.volatile_cache && self.write_cache.load(Ordering::Relaxed)
    }

    /// Switches the volatile cache. Other initiators are told.
    pub(crate) fn set_write_cache(&self, on: bool, nexus: &mut Nexus) {
        if self.write_cache.swap(on, Ordering::Relaxed) != on {
            let before = self.mode_changes.fetch_add(1, Ordering::Relaxed);
            if nexus.mode_changes == before {
                nexus.mode_changes = before.wrapping_add(1);
            }
        }
    }

    /// An event that the initiator was not told; it is then.
    #[must_use]
    pub fn attention(&self, nexus: &mut Nexus) -> Option<Sense> {
        let (resets, mode_changes) = (self.resets(), self.mode_changes.load(Ordering::Relaxed));
        if std::mem::replace(&mut nexus.resets, resets) != resets {
            return Some(Sense::RESET);
        }
        if std::mem::replace(&mut nexus.mode_changes, mode_changes) != mode_changes {
            return Some(Sense::MODE_CHANGED);
        }
        nexus.port.take_notice()
    }

    /// Whether an event precedes the execution of a command; SAM-5, 5.14.
    #[must_use]
    pub fn yields_to_attention(opcode: u8) -> bool {
        !matches!(opcode, opcode::INQUIRY | opcode::REPORT_LUNS | opcode::REQUEST_SENSE)
    }

    /// Whether the unit's properties permit the command's operation code.
    pub(crate) fn supports(&self, command: &Supported) -> bool {
        command.opcode != opcode::UNMAP || self.description.discard_bytes.is_some()
    }

    /// Refuses a command in a state that does not permit it.
    pub(crate) fn permits(&self, command: &Command) -> Result<(), Sense> {
        let writes = matches!(command, Command::Write { .. } | Command::WriteSame { .. } | Command::Unmap);
        let uses_medium = writes
            || matches!(
                command,
                Command::Read(_) | Command::Verify { .. } | Command::Synchronize | Command::TestUnitReady
            );
        if uses_medium && self.stopped.load(Ordering::Relaxed) {
            return Err(Sense::STOPPED);
        }
        if writes && self.description.read_only {
            return Err(Sense::WRITE_PROTECTED);
        }
        Ok(())
    }
}

/// Whether a mode page exists.
pub(crate) fn has_mode_page(page: u8, subpage: u8) -> bool {
    let is_known = matches!(page, mode_page::CACHING | mode_page::CONTROL);
    (is_known && (subpage == 0 || subpage == 0xFF)) || (page == mode_page::ALL && matches!(subpage, 0 | 0xFF))
}
