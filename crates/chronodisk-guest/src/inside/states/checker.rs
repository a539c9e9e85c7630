//! The checker in the guest.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::ExitCode;

use super::steps::State;
use crate::shared::acknowledge;
use crate::shared::states::{Caller, StateReport, StatesOptions};

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
    let mut reports = OpenOptions::new().write(true).open(acknowledge::PIPE)?;
    for device in 0..options.acknowledged.len() {
        let failed = State { options: &options, caller: &caller, device }.check();
        let (failed, output) = failed.err().map_or((None, String::new()), |(step, output)| (Some(step), output));
        report(&mut reports, &StateReport { device, failed, output })?;
    }
    Ok(())
}

fn report(reports: &mut File, report: &StateReport) -> io::Result<()> {
    let mut line = serde_json::to_vec(report)?;
    line.push(b'\n');
    reports.write_all(&line)
}
