//! Progress of long work: at least one message every ten seconds.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output;

/// Longest interval without a message, on a terminal or in a file.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Shorter work needs no progress bar.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval of redrawing a bar, so that its elapsed time advances even without progress.
const TICK: Duration = Duration::from_millis(500);

/// Progress of counted steps: on a terminal a bar on standard error, once the work has taken a second; elsewhere a line
/// every ten seconds.
pub struct Progress {
    bar: ProgressBar,
    done: Arc<AtomicU64>,
    heartbeat: Heartbeat,
}

impl Progress {
    /// Progress of `total` steps, each a `unit`.
    pub fn new(total: u64, unit: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::hidden());
        let template = "{bar:40} {human_pos} of {human_len} {msg}, {per_sec}, {elapsed}, {eta} to go";
        let style = ProgressStyle::with_template(template).expect("the template is constant");
        bar.set_style(style);
        bar.set_message(unit);
        let done = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&done);
        let words = move || format!("{} of {total} {unit}", counted.load(Ordering::Relaxed));
        let drawn = bar.clone();
        let heartbeat = match io::stderr().is_terminal() {
            true => Heartbeat::every(PATIENCE, words, move |_| draw(&drawn)),
            false => Heartbeat::new(words),
        };
        Progress { bar, done, heartbeat }
    }

    /// Counts completed steps.
    pub fn advance(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
        self.bar.inc(steps);
    }

    /// Removes the bar from the terminal.
    pub fn finish(self) {
        drop(self.heartbeat);
        self.bar.finish_and_clear();
    }
}

/// Shows a hidden bar.
fn draw(bar: &ProgressBar) {
    if bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        bar.enable_steady_tick(TICK);
    }
}

/// Prints a line about the current work and its duration every ten seconds, until it is dropped.
pub struct Heartbeat {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Calls `words` for the text of each line.
    pub fn new(words: impl Fn() -> String + Send + 'static) -> Self {
        Heartbeat::every(SILENCE_MAX, words, output::note)
    }

    fn every(
        pause: Duration,
        words: impl Fn() -> String + Send + 'static,
        tell: impl Fn(String) + Send + 'static,
    ) -> Self {
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let begun = Instant::now();
        let told = Arc::clone(&ended);
        let beat = move || {
            let (lock, bell) = &*told;
            let mut is_over = lock.lock().unwrap_or_else(PoisonError::into_inner);
            while !*is_over {
                let (guard, wait) = bell.wait_timeout(is_over, pause).unwrap_or_else(PoisonError::into_inner);
                is_over = guard;
                if wait.timed_out() && !*is_over {
                    tell(format!("{}, {} s so far", words(), begun.elapsed().as_secs()));
                }
            }
        };
        // Without the thread, the work continues silently.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(beat).ok();
        Heartbeat { ended, thread }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let (lock, bell) = &*self.ended;
        *lock.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread can only panic while it formats a line, which is no failure of the work.
            let _ = thread.join();
        }
    }
}

/// A changeable description of the present work, printed by a [`Heartbeat`].
pub struct Working {
    words: Arc<Mutex<String>>,
    _heartbeat: Heartbeat,
}

impl Working {
    /// The initial description.
    pub fn at(words: impl Into<String>) -> Self {
        let words = Arc::new(Mutex::new(words.into()));
        let read = Arc::clone(&words);
        let now = move || read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Working { words, _heartbeat: Heartbeat::new(now) }
    }

    /// Changes the description.
    pub fn now_at(&self, words: impl Into<String>) {
        *self.words.lock().unwrap_or_else(PoisonError::into_inner) = words.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_heartbeat_tells_what_is_done_until_it_is_dropped() {
        let (sender, lines) = mpsc::channel();
        let step = Arc::new(AtomicU64::new(1));
        let counted = Arc::clone(&step);
        let words = move || format!("step {}", counted.load(Ordering::Relaxed));
        let heartbeat = Heartbeat::every(Duration::from_millis(1), words, move |line| sender.send(line).unwrap());
        assert_eq!(lines.recv().unwrap(), "step 1, 0 s so far");
        step.store(2, Ordering::Relaxed);
        assert!(lines.iter().any(|line| line == "step 2, 0 s so far"));
        drop(heartbeat);
        // The sender is gone with its thread, so the iteration ends.
        lines.iter().for_each(drop);
    }

    #[test]
    fn what_ends_at_once_tells_nothing() {
        let (sender, lines) = mpsc::channel();
        drop(Heartbeat::every(Duration::from_secs(600), || "never".to_owned(), move |line| sender.send(line).unwrap()));
        assert_eq!(lines.iter().count(), 0);
        let working = Working::at("one");
        working.now_at("two");
        assert_eq!(*working.words.lock().unwrap(), "two");
    }
}
