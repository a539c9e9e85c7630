//! Failures of a guest as the user sees them.

use chronodisk_guest::{RunError, Stage};
use chronodisk_report::render_refused_calls;

use crate::failure::Failure;

/// A run's error as the user sees it.
pub fn guest_failure(error: RunError) -> Failure {
    match error {
        RunError::HostLacks(lacks) => Failure::host(&lacks.what).help(lacks.help),
        RunError::Device(message) => Failure::usage(message),
        RunError::GuestDied { ref how, ref console, ref refused_calls } => {
            let memory = how.contains("memory").then(|| "--memory gives the guest more".to_owned());
            let refused = (!refused_calls.is_empty())
                .then(|| format!("the host refused these system calls to it: {}", render_refused_calls(refused_calls)));
            let output = (!console.is_empty()).then(|| format!("its last output:\n{console}"));
            let help: Vec<String> = memory.into_iter().chain(refused).chain(output).collect();
            if help.is_empty() { Failure::host(&error) } else { Failure::host(&error).help(help.join("\n")) }
        }
        RunError::Stage(stage, ref message) => {
            let failure = Failure::host(&error);
            match next_step(stage, message) {
                Some(step) => failure.help(step),
                None => failure,
            }
        }
        error => Failure::host(error),
    }
}

/// Advice for a failed step of the guest. Other programs report only the error.
fn next_step(stage: Stage, message: &str) -> Option<&'static str> {
    match stage {
        Stage::Boot if message.contains("kernel module") => Some(
            "a module must be built for the guest's kernel (`uname -r` in a guest); give modules of your own that it \
             needs before it, each by --module",
        ),
        Stage::Mkfs => {
            Some("look at --mkfs-options and --capacity; the program that made the file system said the above")
        }
        Stage::Mount => {
            Some("look at --mount-options, --mount-type and --fs; `man 5 FS`, such as ext4, lists the options")
        }
        Stage::Unmount => Some("end all users of the file system before CMD ends, or run it with --fs none"),
        _ => None,
    }
}
