//! A small NBD server for tests: a thread a connection, one store, everything answered at once,
//! last first.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use chronodisk_front::nbd::{Event, NbdSession, Reason, ServerOffer};
use chronodisk_sim::Status;
use chronodisk_store::Store;

pub struct NbdServer {
    directory: tempfile::TempDir,
    pub store: Arc<Mutex<Box<dyn Store>>>,
    /// Reasons of the connections' ends, in order.
    pub endings: Arc<Mutex<Vec<Reason>>>,
}

impl NbdServer {
    pub fn start(offer: ServerOffer, store: Box<dyn Store>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = NbdServer { directory, store: Arc::new(Mutex::new(store)), endings: Arc::default() };
        let listener = UnixListener::bind(server.socket()).unwrap();
        let (offer, store, endings) = (Arc::new(offer), Arc::clone(&server.store), Arc::clone(&server.endings));
        // The thread ends with the process; a finished test makes no further connection.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let (offer, store, endings) = (Arc::clone(&offer), Arc::clone(&store), Arc::clone(&endings));
                thread::spawn(move || {
                    // A client that is gone is no failure of the server.
                    let _ = serve(connection.unwrap(), offer, &store, &endings);
                });
            }
        });
        server
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket().display())
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(self.socket()).unwrap()
    }
}

fn serve(
    mut socket: UnixStream,
    offer: Arc<ServerOffer>,
    store: &Mutex<Box<dyn Store>>,
    endings: &Mutex<Vec<Reason>>,
) -> io::Result<()> {
    let mut session = NbdSession::new(offer);
    let mut arrived = Vec::new();
    loop {
        while let Some(event) = session.next_event() {
            match event {
                Event::Negotiated { .. } => {}
                Event::Request(request) => {
                    let _ = session.execute(request.key, &mut **store.lock().unwrap());
                    arrived.push(request.key);
                }
                Event::Closing(reason) => endings.lock().unwrap().push(reason),
            }
        }
        for key in arrived.drain(..).rev() {
            assert!(session.complete(key, Status::Ok));
        }
        if session.has_output() {
            let mut slices = [IoSlice::new(&[]); 64];
            let count = session.gather(&mut slices);
            let sent = socket.write_vectored(&slices[..count])?;
            session.sent(sent);
            continue;
        }
        if session.is_finished() {
            return Ok(());
        }
        match socket.read(session.receive_room())? {
            0 => session.input_ended(),
            len => session.received(len),
        }
    }
}
