//! Reservations: `PERSISTENT RESERVE OUT` (SPC-4, 5.13), and `RESERVE (6)` and `RELEASE (6)` (SPC-2, 5.5).
//!
//! Registrations and persistent reservations outlive sessions and resets of the unit, and end with the unit itself. No
//! registration is made for another port: `SPEC_I_PT`, `ALL_TG_PT` and `REGISTER AND MOVE` are refused.

use std::sync::{Arc, Weak};

use super::access::Access;
use super::ports::{Notice, Port, Ports};
use super::wire::{number, reserve_out};
use super::{ReserveOut, Sense};

/// Most registrations of a unit.
pub const REGISTRATION_COUNT_MAX: usize = 128;
/// Bytes of the parameters of `PERSISTENT RESERVE OUT`; SPC-4, 6.16.3.
pub(crate) const PARAMETER_BYTES: u32 = 24;

/// The bits `SPEC_I_PT`, `ALL_TG_PT` and `APTPL`, in byte 20 of the parameters.
const UNSUPPORTED_BITS: u8 = 0x0D;

/// Type of a persistent reservation; SPC-4, 6.15.3.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// The type in the third byte of a command, whose scope must be the unit.
    fn decode(scope_and_type: u8) -> Result<Self, Sense> {
        Ok(match scope_and_type {
            1 => Kind::WriteExclusive,
            3 => Kind::ExclusiveAccess,
            5 => Kind::WriteExclusiveRegistrants,
            6 => Kind::ExclusiveAccessRegistrants,
            7 => Kind::WriteExclusiveAll,
            8 => Kind::ExclusiveAccessAll,
            _ => return Err(Sense::in_command(2)),
        })
    }

    /// All registrants hold the reservation.
    pub fn is_held_by_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }

    /// All registrants have access.
    fn admits_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    fn admits_readers(self) -> bool {
        matches!(self, Kind::WriteExclusive | Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll)
    }
}

/// A registered port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    pub port: String,
    /// Not zero.
    pub key: u64,
    /// The port holds the reservation, alone or with all others.
    pub holds: bool,
}

/// The state of a unit's reservations.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub ports: Ports,
    /// Number of changes of registrations (`PRGENERATION`).
    pub generation: u32,
    /// In the order of their arrival. With a reservation, at least one holds it.
    pub registrations: Vec<Registration>,
    /// The type of the persistent reservation.
    pub kind: Option<Kind>,
    /// The session that holds the reservation of `RESERVE (6)`.
    reserved: Weak<Port>,
}

/// The end of a command on reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserved {
    /// The command is done.
    Done,
    /// The status is `RESERVATION CONFLICT`.
    Conflict,
}

/// The keys of the parameters of `PERSISTENT RESERVE OUT`.
#[derive(Clone, Copy)]
struct Keys {
    /// The field `RESERVATION KEY`.
    own: u64,
    /// The field `SERVICE ACTION RESERVATION KEY`.
    action: u64,
}

impl Reservations {
    /// Whether a command of this access is permitted.
    pub fn admit(&self, port: &Port, access: Access) -> bool {
        if let Some(holder) = self.reserved.upgrade() {
            let is_holder = holder.name == port.name;
            return access == Access::Any || (is_holder && access != Access::Reservations);
        }
        let Some(kind) = self.kind else { return true };
        match access {
            Access::Any | Access::AnyPersistent | Access::Reservations => true,
            Access::Read | Access::Write => match self.find(&port.name) {
                Some(registration) if registration.holds || kind.admits_registrants() => true,
                _ => access == Access::Read && kind.admits_readers(),
            },
        }
    }

    /// `RESERVE (6)`.
    pub fn reserve_6(&mut self, port: &Arc<Port>) -> Reserved {
        let is_free = self.reserved.upgrade().is_none_or(|holder| holder.name == port.name);
        if !is_free || !self.registrations.is_empty() {
            return Reserved::Conflict;
        }
        self.reserved = Arc::downgrade(port);
        Reserved::Done
    }

    /// `RELEASE (6)`, which has no effect for other ports.
    pub fn release_6(&mut self, port: &Port) -> Reserved {
        if !self.registrations.is_empty() {
            return Reserved::Conflict;
        }
        if self.reserved.upgrade().is_some_and(|holder| holder.name == port.name) {
            self.reserved = Weak::new();
        }
        Reserved::Done
    }

    /// The end of a session, which ends its `RESERVE (6)`.
    pub fn end_session(&mut self, port: &Arc<Port>) {
        if self.reserved.as_ptr() == Arc::as_ptr(port) {
            self.reserved = Weak::new();
        }
    }

    /// A reset of the unit, which ends a `RESERVE (6)`.
    pub fn reset(&mut self) {
        self.reserved = Weak::new();
    }

    /// `PERSISTENT RESERVE OUT`.
    pub fn persistent(&mut self, port: &Port, asked: &ReserveOut, parameters: &[u8]) -> Result<Reserved, Sense> {
        if asked.parameter_bytes != PARAMETER_BYTES || parameters.len() < PARAMETER_BYTES as usize {
            return Err(Sense::PARAMETER_LENGTH);
        }
        if self.reserved.strong_count() > 0 {
            return Ok(Reserved::Conflict);
        }
        let keys = Keys { own: number(&parameters[..8]), action: number(&parameters[8..16]) };
        let is_registering = matches!(asked.action, reserve_out::REGISTER | reserve_out::REGISTER_AND_IGNORE);
        if is_registering && parameters[20] & UNSUPPORTED_BITS != 0 {
            return Err(Sense::in_parameters(20));
        }
        let registered = self.find(&port.name).map(|registration| registration.key);
        let fits = match asked.action {
            reserve_out::REGISTER_AND_IGNORE => true,
            reserve_out::REGISTER => registered.unwrap_or(0) == keys.own,
            _ => registered == Some(keys.own),
        };
        if !fits {
            return Ok(Reserved::Conflict);
        }
        match asked.action {
            reserve_out::REGISTER | reserve_out::REGISTER_AND_IGNORE => self.register(&port.name, keys.action)?,
            reserve_out::RESERVE => return self.reserve(&port.name, Kind::decode(asked.scope_and_type)?),
            reserve_out::RELEASE => self.release(&port.name, asked.scope_and_type)?,
            reserve_out::CLEAR => self.clear(&port.name),
            _ => return self.preempt(&port.name, asked, keys.action),
        }
        Ok(Reserved::Done)
    }

    fn find(&self, port: &str) -> Option<&Registration> {
        self.registrations.iter().find(|registration| registration.port == port)
    }

    /// Registers a port, changes its key, or with a key of zero removes its registration.
    fn register(&mut self, port: &str, key: u64) -> Result<(), Sense> {
        match self.registrations.iter().position(|registration| registration.port == port) {
            None if key == 0 => return Ok(()),
            None if self.registrations.len() >= REGISTRATION_COUNT_MAX => return Err(Sense::NO_REGISTRATION),
            None => {
                let holds = self.kind.is_some_and(Kind::is_held_by_all);
                self.registrations.push(Registration { port: port.to_owned(), key, holds });
            }
            Some(index) if key == 0 => {
                let gone = self.registrations.remove(index);
                let is_last = !self.registrations.iter().any(|registration| registration.holds);
                if gone.holds && is_last {
                    self.release_for(port);
                }
            }
            Some(index) => self.registrations[index].key = key,
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn reserve(&mut self, port: &str, kind: Kind) -> Result<Reserved, Sense> {
        if self.kind.is_none() {
            self.hold(port, kind);
            return Ok(Reserved::Done);
        }
        let holds = self.find(port).is_some_and(|registration| registration.holds);
        Ok(if holds && self.kind == Some(kind) { Reserved::Done } else { Reserved::Conflict })
    }

    /// Makes a reservation for a registered port.
    fn hold(&mut self, port: &str, kind: Kind) {
        self.kind = Some(kind);
        for registration in &mut self.registrations {
            registration.holds = kind.is_held_by_all() || registration.port == port;
        }
    }

    fn release(&mut self, port: &str, scope_and_type: u8) -> Result<(), Sense> {
        let holds = self.find(port).is_some_and(|registration| registration.holds);
        match self.kind {
            Some(kind) if holds && kind as u8 != scope_and_type => Err(Sense::INVALID_RELEASE),
            Some(_) if holds => {
                self.release_for(port);
                Ok(())
            }
            // Another port's reservation stays.
            _ => Ok(()),
        }
    }

    /// Ends the reservation. The other registrants are told if they had access.
    fn release_for(&mut self, port: &str) {
        let Some(kind) = self.kind.take() else { return };
        self.registrations.iter_mut().for_each(|registration| registration.holds = false);
        if kind.admits_registrants() {
            self.tell_others(port, Notice::ReservationsReleased);
        }
    }

    fn tell_others(&self, port: &str, notice: Notice) {
        let others = self.registrations.iter().filter(|registration| registration.port != port);
        others.for_each(|registration| self.ports.tell(&registration.port, notice));
    }

    fn clear(&mut self, port: &str) {
        self.tell_others(port, Notice::ReservationsPreempted);
        self.registrations.clear();
        self.kind = None;
        self.generation = self.generation.wrapping_add(1);
    }

    fn preempt(&mut self, port: &str, asked: &ReserveOut, key: u64) -> Result<Reserved, Sense> {
        let of_all = self.kind.is_some_and(Kind::is_held_by_all);
        if key == 0 && !of_all {
            return Err(Sense::in_parameters(8));
        }
        let is_holders = |registration: &Registration| registration.holds && registration.key == key;
        let takes_over = if of_all { key == 0 } else { self.registrations.iter().any(is_holders) };
        let is_preempted = |registration: &Registration| match (takes_over, of_all) {
            (true, true) => registration.port != port,
            (true, false) => registration.key == key && registration.port != port,
            (false, _) => registration.key == key,
        };
        if !takes_over && !self.registrations.iter().any(is_preempted) {
            return Ok(Reserved::Conflict);
        }
        let kind = if takes_over { Some(Kind::decode(asked.scope_and_type)?) } else { None };
        let (gone, left): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.registrations).into_iter().partition(is_preempted);
        self.registrations = left;
        for registration in gone.iter().filter(|registration| registration.port != port) {
            self.ports.tell(&registration.port, Notice::RegistrationsPreempted);
            if asked.action == reserve_out::PREEMPT_AND_ABORT {
                self.ports.abort(&registration.port);
            }
        }
        match kind {
            Some(kind) => {
                if self.kind != Some(kind) {
                    self.tell_others(port, Notice::ReservationsReleased);
                }
                self.hold(port, kind);
            }
            // A reservation of all registrants ends with the last one.
            None if self.registrations.is_empty() => self.kind = None,
            None => {}
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(Reserved::Done)
    }
}

#[cfg(test)]
mod tests;
