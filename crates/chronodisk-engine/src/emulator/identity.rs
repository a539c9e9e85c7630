//! Random identities.

use std::io;

use ring::rand::{SecureRandom, SystemRandom};

use crate::protocol::SessionId;

/// Session numbers are random, so that they can't be guessed.
pub(super) fn fresh_id() -> io::Result<SessionId> {
    let mut id = [0; 16];
    SystemRandom::new().fill(&mut id).map_err(|_| io::Error::other("the host has no random numbers"))?;
    Ok(SessionId(id))
}
