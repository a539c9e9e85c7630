//! An emulator server in this process, without sockets, whose connections break at bytes chosen by a test.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chronodisk_engine::emulator::{DeviceMaker, MadeDevice, Session};
use chronodisk_engine::protocol::{Answer, Command, Decoder, ErrorCode, Reset, SessionId, VERSION, Welcome};
use chronodisk_engine::remote::{Connector, Link, Patience, RemoteModel, Wire};
use chronodisk_store::RamStore;

use super::Capricious;

/// A maker of capricious devices, seeded by the client's seed.
pub struct MakeCapricious;

impl DeviceMaker for MakeCapricious {
    fn make(&self, reset: &Reset) -> Result<MadeDevice, String> {
        let model = Capricious::boxed(reset.seed);
        let store = Box::new(RamStore::new(model.info().capacity_sectors * 512, 64 << 20));
        Ok(MadeDevice { model, profile: String::new(), store, memory: None })
    }
}

/// The server's end: at most one session.
pub struct Host {
    session: Option<Session>,
    pub executed_bytes: u64,
}

const ID: SessionId = SessionId([7; 16]);

impl Host {
    pub fn new() -> Arc<Mutex<Host>> {
        Arc::new(Mutex::new(Host { session: None, executed_bytes: 0 }))
    }

    /// Effect of a restart.
    pub fn forget(&mut self) {
        self.session = None;
    }
}

/// Connects to a [`Host`]; each connection breaks after as many bytes as `cuts` yields, sent and received together.
pub struct Loopback {
    pub host: Arc<Mutex<Host>>,
    pub cuts: Box<dyn FnMut() -> usize + Send>,
}

struct LoopbackWire {
    host: Arc<Mutex<Host>>,
    decoder: Decoder,
    greeted: bool,
    answers: Vec<u8>,
    left_bytes: usize,
}

impl Connector for Loopback {
    fn who(&self) -> &str {
        "loopback"
    }

    fn connect(&mut self) -> io::Result<Box<dyn Wire>> {
        Ok(Box::new(LoopbackWire {
            host: self.host.clone(),
            decoder: Decoder::default(),
            greeted: false,
            answers: Vec::new(),
            left_bytes: (self.cuts)(),
        }))
    }

    fn resumes(&self) -> bool {
        true
    }
}

impl LoopbackWire {
    fn obey(&mut self) {
        let mut host = self.host.lock().unwrap();
        while let Some(frame) = self.decoder.next_frame().unwrap() {
            if !std::mem::replace(&mut self.greeted, true) {
                let Ok(Command::Hello { version: VERSION, session, .. }) = Command::decode(&frame) else {
                    panic!("not a greeting")
                };
                if session == SessionId::NEW {
                    host.session = Some(Session::new(Arc::new(MakeCapricious)));
                }
                let answer = match &host.session {
                    None => Answer::error(ErrorCode::UnknownSession, "unknown"),
                    Some(session) => {
                        Answer::Welcome(Welcome { version: VERSION, session: ID, executed: session.executed() })
                    }
                };
                answer.encode(0, &mut self.answers);
                continue;
            }
            if let Some(session) = &mut host.session {
                let _ = session.take(&frame, &mut self.answers);
            }
        }
    }
}

impl Wire for LoopbackWire {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let arrive = bytes.len().min(self.left_bytes);
        self.left_bytes -= arrive;
        self.decoder.feed(&bytes[..arrive]);
        self.obey();
        if arrive < bytes.len() { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
    }

    fn receive(&mut self, bytes: &mut [u8], _timeout: Duration) -> io::Result<usize> {
        let len = bytes.len().min(self.answers.len()).min(self.left_bytes);
        self.left_bytes -= len;
        bytes[..len].copy_from_slice(&self.answers[..len]);
        self.answers.drain(..len);
        Ok(len)
    }
}

pub fn patience() -> Patience {
    Patience { answer: Duration::from_secs(5), reconnect: Duration::from_secs(5) }
}

/// A capricious device at a loopback server.
pub fn capricious_elsewhere(
    seed: u64,
    speculate: bool,
    host: &Arc<Mutex<Host>>,
    cuts: impl FnMut() -> usize + Send + 'static,
) -> RemoteModel {
    let connector = Loopback { host: host.clone(), cuts: Box::new(cuts) };
    let link = Link::open(Box::new(connector), patience(), Box::new(|_| {})).unwrap();
    let reset = Reset { seed, speculate, ..Reset::default() };
    RemoteModel::reset(link, reset).unwrap()
}
