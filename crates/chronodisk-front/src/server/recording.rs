//! Moves finished requests out of the log while a server runs.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use chronodisk_sim::RequestRecord;

use super::Shared;

/// Receives a server's requests, each once and in order of arrival, as soon as they and all earlier ones are final.
pub trait Recorder: Send {
    /// Records the next requests, while the server continues.
    fn record(&mut self, records: &[RequestRecord]);
}

/// The thread that brings them there; it ends with this value.
pub(super) struct Recording {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Option<Box<dyn Recorder>>>>,
}

/// Pause between two checks of the log: a hundredth of the delay that a person or a scraper notices, and 4,000 requests
/// of the fastest device.
const PAUSE: Duration = Duration::from_millis(20);
/// Records copied at once under the clock's lock. That takes about a microsecond, which may delay a completion.
const AT_ONCE: usize = 64;

impl Recording {
    pub fn start(shared: Arc<Shared>, recorder: Box<dyn Recorder>) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || {
            let mut records = Vec::with_capacity(AT_ONCE);
            let mut recorder = Some(recorder);
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                loop {
                    shared.core().clock.take_settled(AT_ONCE, &mut records);
                    if records.is_empty() {
                        break;
                    }
                    // Without a recorder the requests are dropped, because memory must not grow with them.
                    if let Some(mut current) = recorder.take() {
                        let record = || {
                            current.record(&records);
                            current
                        };
                        recorder = shared.catch(|| "the log".to_owned(), record);
                    }
                    records.clear();
                }
            }
            recorder
        })?;
        Ok(Recording { stop: Some(stop), thread: Some(thread) })
    }

    /// Stops the thread; the caller takes the rest of the log. `None` if the recorder panicked.
    pub fn stop(mut self) -> Option<Box<dyn Recorder>> {
        self.stop.take();
        self.thread.take().and_then(|thread| thread.join().ok().flatten())
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
