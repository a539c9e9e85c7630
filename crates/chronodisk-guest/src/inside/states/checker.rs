//! The checker in the guest.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::process::ExitCode;

use super::steps::{Failed, State};
use crate::shared::acknowledge;
use crate::shared::states::{Caller, StateEvent, StateReport, StatesOptions};

/// Runs as the checker of a guest's devices.
#[must_use]
pub fn guest_states() -> ExitCode {
    match check_all() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("chronodisk guest: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check_all() -> io::Result<()> {
    let json = std::env::args().nth(2).unwrap_or_default();
    let (options, caller): (StatesOptions, Caller) = serde_json::from_str(&json)?;
    let mut pipe = OpenOptions::new().write(true).open(acknowledge::PIPE)?;
    let mut tell = |event: &StateEvent| {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        pipe.write_all(&line)
    };
    for device in 0..options.acknowledged.len() {
        // A lost line costs the name of a step that hangs.
        let mut begins = |step| drop(tell(&StateEvent::Begins(step)));
        let failed = State { options: &options, caller: &caller, device, begins: &mut begins }.check().err();
        let is_stuck = failed.as_ref().is_some_and(|failed| failed.is_stuck);
        let (failed, output) = failed.map_or((None, String::new()), |Failed { step, output, .. }| (Some(step), output));
        tell(&StateEvent::Judged(StateReport { device, failed, output }))?;
        if is_stuck {
            // Other states get another guest.
            break;
        }
    }
    Ok(())
}
