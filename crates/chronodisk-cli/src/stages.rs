//! One line on the terminal that says what the guest is doing until its command begins.

use chronodisk_guest::{FileSystem, Stage};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};

/// The line; nothing is drawn if standard error is no terminal. It draws only when told, because a
/// thread that redraws would take the signals which the launcher waits for.
pub struct StageLine {
    bar: ProgressBar,
    file_system: FileSystem,
}

impl StageLine {
    /// The guest begins to boot.
    pub fn new(file_system: FileSystem) -> Self {
        let target =
            if io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(ProgressStyle::with_template("{msg}").expect("the template is constant"));
        let line = StageLine { bar, file_system };
        line.say("booting");
        line
    }

    /// A stage has ended: says what comes next.
    pub fn ended(&mut self, stage: Stage) {
        match (stage, self.file_system) {
            (Stage::Mount, _) => self.say("waiting for the file system's own work"),
            (Stage::Boot, FileSystem::None) | (Stage::Settle, _) => self.say("starting the command"),
            (Stage::Boot, FileSystem::Existing) => {}
            (Stage::Mkfs, FileSystem::Existing) => self.say("mounting the file system"),
            (Stage::Boot, file_system) => self.say(&format!("making {file_system}")),
            (Stage::Mkfs, file_system) => self.say(&format!("mounting {file_system}")),
            // From its first mark on, the terminal is the command's.
            (Stage::Command | Stage::Unmount | Stage::Check, _) => self.clear(),
        }
    }

    /// Takes it off the terminal.
    pub fn clear(&mut self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("guest: {what}"));
        self.bar.tick();
    }
}
