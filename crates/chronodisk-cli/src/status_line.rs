//! One line on the terminal with the state of a guest or a server.

use std::io::{self, IsTerminal};
use std::time::Duration;

use chronodisk_guest::{FileSystem, Progress, RunEvent, Stage, Traffic};
use chronodisk_sim::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line. It is not drawn if standard error is no terminal or the user wants quiet. It draws only on request,
/// because a thread that redraws would receive the signals for which the launcher waits.
pub struct StatusLine {
    bar: ProgressBar,
}

impl StatusLine {
    /// A line that is empty yet.
    pub fn new(quiet: bool) -> Self {
        let shown = !quiet && io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        // Truncated to the terminal's width, since a wrapped line can't be erased.
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is constant"));
        StatusLine { bar }
    }

    /// Whether the line is drawn at all.
    pub fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Replaces the line with `text`.
    pub fn say(&self, text: impl Into<String>) {
        if self.bar.is_finished() {
            self.bar.reset();
        }
        self.bar.set_message(text.into());
        self.bar.tick();
    }

    /// Takes the line off the terminal; it can be drawn again.
    pub fn clear(&self) {
        if !self.bar.is_finished() {
            self.bar.finish_and_clear();
        }
    }
}

/// State of a guest, from its boot on.
pub struct GuestStatus {
    line: StatusLine,
    file_system: FileSystem,
    before: Option<Progress>,
}

impl GuestStatus {
    /// The guest begins to boot.
    pub fn new(file_system: FileSystem, quiet: bool) -> Self {
        let status = GuestStatus { line: StatusLine::new(quiet), file_system, before: None };
        status.line.say("guest: booting");
        status
    }

    /// Shows the next state after an event.
    pub fn saw(&mut self, event: RunEvent) {
        let next = match (event, self.file_system) {
            (RunEvent::Progress(progress), _) => {
                let text = rates(&progress, self.before.replace(progress).as_ref());
                return self.line.say(text);
            }
            // From the command's first mark on, the terminal is the command's.
            (
                RunEvent::Output
                | RunEvent::Unrecordable(_)
                | RunEvent::Stage(Stage::Command | Stage::Unmount | Stage::Check),
                _,
            ) => {
                return self.clear();
            }
            (RunEvent::Stage(Stage::Boot), FileSystem::Existing)
            | (RunEvent::StoreNotice(_) | RunEvent::Acknowledged { .. }, _) => return,
            (RunEvent::Stage(Stage::Mount), _) => "waiting for the file system's own work".to_owned(),
            (RunEvent::Stage(Stage::Boot), FileSystem::None) | (RunEvent::Stage(Stage::Settle), _) => {
                "starting the command".to_owned()
            }
            (RunEvent::Stage(Stage::Mkfs), FileSystem::Existing) => "mounting the file system".to_owned(),
            (RunEvent::Stage(Stage::Boot), file_system) => format!("making {file_system}"),
            (RunEvent::Stage(Stage::Mkfs), file_system) => format!("mounting {file_system}"),
        };
        self.line.say(format!("guest: {next}"));
    }

    /// Takes it off the terminal.
    pub fn clear(&self) {
        self.line.clear();
    }
}

/// The command's progress; rates are those since `before`, per second of the guest's time.
fn rates(now: &Progress, before: Option<&Progress>) -> String {
    let begin = Progress { guest: Nanos::ZERO, host: Duration::ZERO, traffic: now.traffic };
    let before = before.unwrap_or(&begin);
    let seconds = now.guest.saturating_sub(before.guest).as_nanos() as f64 / 1e9;
    let per_second = |count: fn(&Traffic) -> u64| match seconds {
        0.0 => 0.0,
        _ => count(&now.traffic).saturating_sub(count(&before.traffic)) as f64 / seconds,
    };
    format!(
        "guest time {:.1} s, host time {:.1} s, {:.0} requests/s, {:.1} MB/s, {} outstanding",
        now.guest.as_nanos() as f64 / 1e9,
        now.host.as_secs_f64(),
        per_second(|traffic| traffic.requests),
        per_second(|traffic| traffic.bytes) / 1e6,
        now.traffic.outstanding,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(guest_s: u64, host_s: u64, requests: u64) -> Progress {
        let traffic = Traffic { requests, bytes: requests * 4096, outstanding: 3 };
        Progress { guest: Nanos::from_millis(guest_s * 1000), host: Duration::from_secs(host_s), traffic }
    }

    #[test]
    fn rates_are_per_second_of_the_guest() {
        let text = rates(&progress(30, 3, 3000), Some(&progress(20, 2, 1000)));
        assert_eq!(text, "guest time 30.0 s, host time 3.0 s, 200 requests/s, 0.8 MB/s, 3 outstanding");
    }

    #[test]
    fn a_guest_whose_time_stands_still_has_no_rate() {
        assert!(rates(&progress(5, 3, 10), Some(&progress(5, 2, 10))).contains(" 0 requests/s, 0.0 MB/s"));
        assert!(rates(&progress(5, 3, 10), None).contains(" 0 requests/s"));
    }
}
