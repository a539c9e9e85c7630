//! The model beside a real device.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use chronodisk_device::DeviceModel;
use chronodisk_engine::{HostClock, MonotonicClock, Shadow};
use chronodisk_sim::{Nanos, Request, RequestRecord};

use super::recording::Recorder;

/// Sends the device's arrivals and completions to the model's thread. No thread waits for that one.
pub(super) struct Shadowing {
    /// Held while an arrival gets its instant and its place in the order.
    next_order: Mutex<u64>,
    events: Sender<Event>,
    served: AtomicU64,
    thread: Mutex<Option<JoinHandle<Shadowed>>>,
}

/// Result of shadowing.
pub(super) struct Shadowed {
    pub model: Box<dyn DeviceModel>,
    /// Records that were not passed to a recorder.
    pub records: Vec<RequestRecord>,
}

/// Payload of a panicked thread.
type Panic = Box<dyn std::any::Any + Send>;

enum Event {
    Arrived { at: Nanos, request: Request },
    Served { order: u64, at: Nanos, failed: bool },
    Recorder(Box<dyn Recorder>),
    End,
}

impl Shadowing {
    pub fn start(model: Box<dyn DeviceModel>) -> io::Result<Self> {
        let (events, received) = mpsc::channel();
        let thread = std::thread::Builder::new().name("model".into()).spawn(move || follow(model, &received))?;
        Ok(Shadowing { next_order: Mutex::new(0), events, served: AtomicU64::new(0), thread: Mutex::new(Some(thread)) })
    }

    pub fn record_to(&self, recorder: Box<dyn Recorder>) {
        self.tell(Event::Recorder(recorder));
    }

    /// Notes that the device gets a request now. Returns its order.
    pub fn arrives(&self, host: &MonotonicClock, request: Request) -> u64 {
        let mut next_order = self.next_order.lock().unwrap_or_else(PoisonError::into_inner);
        let order = *next_order;
        *next_order += 1;
        self.tell(Event::Arrived { at: host.now(), request });
        order
    }

    /// The device completed it.
    pub fn served(&self, order: u64, at: Nanos, failed: bool) {
        self.served.fetch_add(1, Ordering::Relaxed);
        self.tell(Event::Served { order, at, failed });
    }

    /// Requests received by the device, and requests completed.
    pub fn counts(&self) -> (u64, u64) {
        let served = self.served.load(Ordering::Relaxed);
        (*self.next_order.lock().unwrap_or_else(PoisonError::into_inner), served)
    }

    /// Completes the model's requests. The device must have none outstanding.
    ///
    /// # Errors
    /// The panic that ended the model's thread.
    pub fn end(&self) -> Result<Option<Shadowed>, Panic> {
        self.tell(Event::End);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        thread.map(JoinHandle::join).transpose()
    }

    fn tell(&self, event: Event) {
        // A model that broke its contract has ended its thread with a message; the clients get on.
        let _ = self.events.send(event);
    }
}

fn follow(model: Box<dyn DeviceModel>, events: &Receiver<Event>) -> Shadowed {
    let mut shadow = Shadow::new(model);
    let mut recorder: Option<Box<dyn Recorder>> = None;
    let mut settled = Vec::new();
    while let Some(event) = next(events, || {
        // No event for a moment: complete records go to the log.
        shadow.take_settled(&mut settled);
        if let Some(recorder) = &mut recorder {
            recorder.record(&settled);
            settled.clear();
        }
    }) {
        match event {
            Event::Arrived { at, request } => drop(shadow.arrive(at, request)),
            Event::Served { order, at, failed } => shadow.served(order, at, failed),
            Event::Recorder(new) => recorder = Some(new),
            Event::End => break,
        }
    }
    let (rest, model) = shadow.finish();
    settled.extend(rest);
    if let Some(recorder) = &mut recorder {
        recorder.record(&settled);
        settled = Vec::new();
    }
    Shadowed { model, records: settled }
}

/// The next event; `idle` is called before waiting for one.
fn next(events: &Receiver<Event>, idle: impl FnOnce()) -> Option<Event> {
    match events.try_recv() {
        Ok(event) => Some(event),
        Err(TryRecvError::Disconnected) => None,
        Err(TryRecvError::Empty) => {
            idle();
            events.recv().ok()
        }
    }
}
