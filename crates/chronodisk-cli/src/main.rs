//! The `chronodisk` command: parses the command line, calls the library, and turns the results into text, data and an
//! exit status.
#![forbid(unsafe_code)]

mod block_trace;
mod cli;
mod commands;
mod completion;
mod failure;
mod options;
mod output;
mod progress;
mod run_choice;
mod since;
mod status_line;
mod version;

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::FromArgMatches;
use clap_complete::env::CompleteEnv;

use crate::commands::completions;

fn main() -> ExitCode {
    // Handle SIGXFSZ, so that a write beyond `ulimit -f` fails with EFBIG instead of killing the process. Not SIG_IGN:
    // children would inherit it. Registration fails only without memory.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::new(AtomicBool::new(false)));
    // This executable is also the guest's first process, the device's process, the sweeper, and the programs of the
    // calibration. Only this program starts these, with exactly these words, before any other argument is parsed.
    match std::env::args_os().nth(1).as_ref().and_then(|word| word.to_str()) {
        Some("guest-init") => chronodisk_guest::guest_init(),
        Some("guest-replay") => return chronodisk_guest::guest_replay(),
        Some("guest-states") => return chronodisk_guest::guest_states(),
        Some("guest-probe") => return chronodisk_guest::calibration::run_as_probe(),
        Some("guest-backend") => return chronodisk_guest::guest_backend(),
        Some("guest-sweeper") => return chronodisk_guest::guest_sweeper(),
        Some("crash-checker") => return chronodisk_run::crash_checker(),
        Some("native-attacher") => return chronodisk_native::native_attacher(),
        Some("native-calibrator") => return chronodisk_native::native_calibrator(),
        Some("serve-guard") => return chronodisk_run::serve_guard(),
        Some("native-watchdog") => return chronodisk_native::native_watchdog(),
        _ => {}
    }
    // A shell asks for completions by a variable; this ends the process then.
    CompleteEnv::with_factory(cli::command).var(completions::VARIABLE).complete();
    output::set_up_rendering();
    chronodisk_run::show_notes_with(|text| output::note(text));
    // clap itself ends with status 2 on wrong usage.
    let command = cli::command();
    let matches = command.clone().get_matches();
    let options = options::recorded_options(&command, &matches);
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // A panic prints its place by itself; the command ends with the status of an internal failure.
    let done = panic::catch_unwind(AssertUnwindSafe(|| cli.execute(options)));
    match done {
        Ok(Ok(status)) => ExitCode::from(status),
        Ok(Err(failure)) => {
            let status = failure.status();
            output::failure(failure);
            ExitCode::from(status)
        }
        Err(_) => ExitCode::from(chronodisk_run::status_of_defect()),
    }
}
