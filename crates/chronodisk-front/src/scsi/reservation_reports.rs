//! `PERSISTENT RESERVE IN`; SPC-4, 6.15.

use super::reservations::{Registration, Reservations};
use super::wire::reserve_in;

/// The first four bits of an iSCSI port's identifier, with a session's number (SPC-4, 7.6.4.6), and the protocol.
const ISCSI_PORT: u8 = 0x40 | 5;
/// The relative identifier of the target's port.
const TARGET_PORT: u16 = 1;
/// Least length of the rest of an identifier.
const PORT_BYTES_MIN: usize = 20;

impl Reservations {
    /// The answer to a service action.
    pub(crate) fn report(&self, action: u8) -> Vec<u8> {
        let body = match action {
            reserve_in::READ_KEYS => self.registrations.iter().flat_map(|one| one.key.to_be_bytes()).collect(),
            reserve_in::READ_RESERVATION => self.reservation(),
            reserve_in::REPORT_CAPABILITIES => return capabilities(),
            _ => self.registrations.iter().flat_map(|one| self.full_status(one)).collect(),
        };
        // At most REGISTRATION_COUNT_MAX descriptors of less than 512 bytes.
        let len = body.len() as u32;
        [&self.generation.to_be_bytes()[..], &len.to_be_bytes(), &body].concat()
    }

    fn reservation(&self) -> Vec<u8> {
        let Some(kind) = self.kind else { return Vec::new() };
        let holder = self.registrations.iter().find(|registration| registration.holds);
        let key = holder.filter(|_| !kind.is_held_by_all()).map_or(0, |registration| registration.key);
        let mut bytes = vec![0; 16];
        bytes[..8].copy_from_slice(&key.to_be_bytes());
        bytes[13] = kind as u8;
        bytes
    }

    fn full_status(&self, registration: &Registration) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[..8].copy_from_slice(&registration.key.to_be_bytes());
        if let (true, Some(kind)) = (registration.holds, self.kind) {
            (bytes[12], bytes[13]) = (1, kind as u8);
        }
        bytes[18..20].copy_from_slice(&TARGET_PORT.to_be_bytes());
        let port = port_identifier(&registration.port);
        bytes[20..24].copy_from_slice(&(port.len() as u32).to_be_bytes());
        bytes.extend(port);
        bytes
    }
}

/// A port's name with its terminating zero, padded to a multiple of four bytes.
fn port_identifier(name: &str) -> Vec<u8> {
    // Transports bound names.
    let len = ((name.len() + 4) & !3).max(PORT_BYTES_MIN);
    let mut bytes = vec![ISCSI_PORT, 0];
    bytes.extend((len as u16).to_be_bytes());
    bytes.extend(name.as_bytes());
    bytes.resize(4 + len, 0);
    bytes
}

/// No registrations for other ports, and none that outlive the target; all types; SPC-4, 6.15.4.
fn capabilities() -> Vec<u8> {
    /// The mask of types is valid (`TMV`).
    const HAS_TYPES: u8 = 0x80;
    /// The types 1, 3, 5, 6 and 7, and the type 8.
    const TYPES: [u8; 2] = [0xEA, 0x01];
    vec![0, 8, 0, HAS_TYPES, TYPES[0], TYPES[1], 0, 0]
}
