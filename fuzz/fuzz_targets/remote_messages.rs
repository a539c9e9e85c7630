//! Anything that comes over a link: to an emulator server as commands, and from a model as answers. Neither side
//! panics, and what a session answers can be read.
//!
//! The input begins with a byte: its lowest bit says which side gets the rest, the others in which pieces.
#![no_main]

use std::io;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_device::{BackgroundRead, BackgroundTime, PlacingOptions, Profile};
use chronodisk_engine::emulator::{DeviceMaker, Devices, MadeDevice, Session};
use chronodisk_engine::protocol::{Decoder, Reset};
use chronodisk_engine::remote::{Connector, Link, Patience, RemoteModel, Wire};
use chronodisk_sim::{Nanos, Op, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, bytes)) = input.split_first() else { return };
    let piece_bytes = usize::from(first >> 1) + 1;
    if first & 1 == 0 { to_server(bytes, piece_bytes) } else { from_model(bytes, piece_bytes) }
});

/// A small device whatever the client asks for: what profiles can do is another target's.
struct Small(Devices);

impl DeviceMaker for Small {
    fn make(&self, reset: &Reset) -> Result<MadeDevice, String> {
        self.0.make(&Reset { label: String::new(), profile: String::new(), capacity_bytes: 1 << 20, ..reset.clone() })
    }
}

fn to_server(bytes: &[u8], piece_bytes: usize) {
    let profiles = vec![Profile::find("constant-1ms").expect("it is built in")];
    let mut session = Session::new(Arc::new(Small(Devices::in_memory(profiles, 1 << 20))));
    let mut decoder = Decoder::default();
    let mut out = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        decoder.feed(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    out.clear();
                    let taken = session.take(&frame, &mut out);
                    let mut answers = Decoder::default();
                    answers.feed(&out);
                    while answers.next_frame().expect("a session answers in frames").is_some() {}
                    if taken.is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// A model that says what the input says, and then nothing.
struct Parrot(Vec<u8>, usize);

impl Connector for Parrot {
    fn who(&self) -> &str {
        "parrot"
    }

    fn connect(&mut self) -> io::Result<Box<dyn Wire>> {
        Ok(Box::new(Parrot(self.0.clone(), self.1)))
    }

    fn resumes(&self) -> bool {
        false
    }
}

impl Wire for Parrot {
    fn send(&mut self, _bytes: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn receive(&mut self, bytes: &mut [u8], _timeout: Duration) -> io::Result<usize> {
        let len = self.0.len().min(self.1).min(bytes.len());
        bytes[..len].copy_from_slice(&self.0[..len]);
        self.0.drain(..len);
        Ok(len)
    }
}

fn from_model(bytes: &[u8], piece_bytes: usize) {
    let patience = Patience { answer: Duration::ZERO, reconnect: Duration::ZERO };
    let Ok(link) = Link::open(Box::new(Parrot(bytes.to_vec(), piece_bytes)), patience, Box::new(|_| {})) else {
        return;
    };
    let Ok(model) = RemoteModel::reset(link, Reset::default()) else { return };
    let capacity_sectors = model.info().capacity_sectors;
    // Some models get interface extensions, too. The map of a host that chooses places takes memory.
    let (is_placed, is_scanned) = (piece_bytes % 4 == 2 && capacity_sectors < 1 << 20, piece_bytes % 4 == 3);
    let placing = PlacingOptions { block_bytes: 64 << 10, used: 0.5, places: 4, seed: 1 };
    let placed = if is_placed { model.with_placing(placing) } else { Ok(model) };
    let Ok(mut model) = placed else { return };
    let scan = BackgroundRead::whole(capacity_sectors, BackgroundTime::Gaps);
    if is_scanned && model.want(&scan).is_err() {
        return;
    }
    let mut completed = Vec::new();
    for id in 0..32 {
        let before = model.now();
        let op = if id % 2 == 0 { Op::Read } else { Op::Write };
        if model.submit(Request::new(id, op, 0, 1)).is_err() || model.settle().is_err() {
            return;
        }
        let limit = before.saturating_add(Nanos::from_micros(id * 100));
        if model.step(limit, &mut completed).is_err() || model.fetch_statistics().is_err() {
            return;
        }
        assert!(model.now() >= before && model.now() <= limit, "a step outside of its span");
        assert!(completed.iter().all(|completion| completion.at <= model.now()), "a completion ahead of time");
        if is_scanned {
            let Ok(read) = model.take_background() else { return };
            assert!(read.done.iter().all(|done| done.at <= model.now()), "a background read ahead of time");
        }
    }
}
