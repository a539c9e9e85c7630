//! Initiator ports with a session, and the events that their sessions are told.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use super::Sense;

/// An event of reservations that an initiator is told by a unit attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Notice {
    ReservationsPreempted = 1,
    ReservationsReleased = 2,
    RegistrationsPreempted = 4,
}

impl Notice {
    const ALL: [(Notice, Sense); 3] = [
        (Notice::ReservationsPreempted, Sense::RESERVATIONS_PREEMPTED),
        (Notice::ReservationsReleased, Sense::RESERVATIONS_RELEASED),
        (Notice::RegistrationsPreempted, Sense::REGISTRATIONS_PREEMPTED),
    ];
}

/// A session's initiator port. The target has one port, so the initiator's port alone identifies a nexus.
#[derive(Debug)]
pub(crate) struct Port {
    /// The name, in the form of the transport (iSCSI: `NAME,i,0xISID`).
    pub name: String,
    /// Notices that the session was not told.
    notices: AtomicU8,
    /// Number of times that another initiator has aborted the port's commands.
    aborts: AtomicU32,
}

impl Port {
    pub fn new(name: &str) -> Self {
        Port { name: name.to_owned(), notices: AtomicU8::new(0), aborts: AtomicU32::new(0) }
    }

    /// A notice that the session was not told; it is then.
    pub fn take_notice(&self) -> Option<Sense> {
        let waiting = self.notices.load(Ordering::Relaxed);
        let (notice, sense) = Notice::ALL.into_iter().find(|(notice, _)| waiting & *notice as u8 != 0)?;
        self.notices.fetch_and(!(notice as u8), Ordering::Relaxed);
        Some(sense)
    }

    pub fn aborts(&self) -> u32 {
        self.aborts.load(Ordering::Relaxed)
    }
}

/// The ports of all sessions. Two sessions of one port have an entry each.
#[derive(Debug, Default)]
pub(crate) struct Ports(Vec<Weak<Port>>);

impl Ports {
    pub fn add(&mut self, port: &Arc<Port>) {
        self.0.retain(|port| port.strong_count() > 0);
        self.0.push(Arc::downgrade(port));
    }

    /// Tells the sessions of a port. Without a session, the notice is dropped.
    pub fn tell(&self, name: &str, notice: Notice) {
        self.of(name).for_each(|port| {
            port.notices.fetch_or(notice as u8, Ordering::Relaxed);
        });
    }

    /// Aborts the commands of a port's sessions.
    pub fn abort(&self, name: &str) {
        self.of(name).for_each(|port| {
            port.aborts.fetch_add(1, Ordering::Relaxed);
        });
    }

    fn of(&self, name: &str) -> impl Iterator<Item = Arc<Port>> {
        self.0.iter().filter_map(Weak::upgrade).filter(move |port| port.name == name)
    }
}
