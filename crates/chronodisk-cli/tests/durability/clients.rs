//! Clients that keep several writes under way, over NBD or vhost-user.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chronodisk_front::mock::{Layout, MockRequest};

use crate::ledger::BLOCK_BYTES;
use crate::vhost_guest::Guest;

/// `NBD_CMD_READ`, `NBD_CMD_WRITE`, `NBD_CMD_FLUSH` and `NBD_CMD_FLAG_FUA`.
const NBD: (u16, u16, u16, u16) = (0, 1, 3, 1);
/// `VIRTIO_BLK_T_OUT` and `VIRTIO_BLK_T_FLUSH`.
const VIRTIO: (u32, u32) = (1, 4);
/// A flush's number; writes begin at 1.
const FLUSH: u64 = 0;

pub enum Client {
    Nbd { socket: UnixStream, under_way: usize },
    Vhost { guest: Box<Guest>, requests: BTreeMap<u32, (u64, MockRequest)>, done: Vec<u64>, gone: Arc<AtomicBool> },
}

impl Client {
    pub fn nbd(path: &Path) -> Self {
        let mut socket = UnixStream::connect(path).unwrap();
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting).unwrap();
        // Client flags: fixed newstyle, no zeroes. NBD_OPT_EXPORT_NAME with the empty name.
        socket.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        Client::Nbd { socket, under_way: 0 }
    }

    pub fn vhost(path: &Path, gone: Arc<AtomicBool>) -> Self {
        let guest = Box::new(Guest::start(path, 0));
        Client::Vhost { guest, requests: BTreeMap::new(), done: Vec::new(), gone }
    }

    /// Writes that were sent and have not completed.
    pub fn under_way(&self) -> usize {
        match self {
            Client::Nbd { under_way, .. } => *under_way,
            Client::Vhost { requests, done, .. } => requests.len() + done.len(),
        }
    }

    pub fn has_fua(&self) -> bool {
        matches!(self, Client::Nbd { .. })
    }

    /// Sends a write; `None` if the server is gone.
    pub fn write(&mut self, id: u64, block: u64, bytes: &[u8], fua: bool) -> Option<()> {
        match self {
            Client::Nbd { socket, under_way } => {
                *under_way += 1;
                let flags = if fua { NBD.3 } else { 0 };
                let mut request = nbd_request(flags, NBD.1, id, block, bytes.len());
                request.extend(bytes);
                socket.write_all(&request).ok()
            }
            Client::Vhost { guest, requests, .. } => {
                let sector = block * (BLOCK_BYTES / 512) as u64;
                let segments = vec![BLOCK_BYTES as u32; bytes.len() / BLOCK_BYTES];
                let request = guest.driver.submit(VIRTIO.0, sector, &segments, Some(bytes), Layout::Indirect);
                requests.insert(request.head.into(), (id, request));
                guest.kick();
                Some(())
            }
        }
    }

    /// Waits for a write to complete, and tells which; `None` if the server is gone.
    pub fn completed(&mut self) -> Option<u64> {
        match self {
            Client::Nbd { socket, under_way } => {
                let (id, error) = nbd_reply(socket)?;
                assert_eq!(error, 0, "write {id} failed");
                *under_way -= 1;
                Some(id)
            }
            Client::Vhost { guest, requests, done, gone } => loop {
                if let Some(id) = done.pop() {
                    return Some(id);
                }
                let was_gone = gone.load(Ordering::SeqCst);
                for entry in guest.driver.take_used() {
                    let (id, request) = requests.remove(&entry.head).expect("it was submitted");
                    assert_eq!(guest.driver.status(&request), 0, "write {id} failed");
                    done.push(id);
                }
                if done.is_empty() {
                    if was_gone {
                        return None;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
            },
        }
    }

    /// Flushes while nothing else is under way; `None` if the server is gone.
    pub fn flush(&mut self) -> Option<()> {
        match self {
            Client::Nbd { socket, under_way } => {
                *under_way += 1;
                socket.write_all(&nbd_request(0, NBD.2, FLUSH, 0, 0)).ok()?;
            }
            Client::Vhost { guest, requests, .. } => {
                let request = guest.driver.submit(VIRTIO.1, 0, &[], Some(&[]), Layout::Direct);
                requests.insert(request.head.into(), (FLUSH, request));
                guest.kick();
            }
        }
        self.completed().map(|id| assert_eq!(id, FLUSH))
    }

    /// Writes over NBD while nothing else is under way; the error.
    pub fn write_alone(&mut self, block: u64, bytes: &[u8]) -> u32 {
        let Client::Nbd { socket, .. } = self else { unreachable!("it is used over NBD") };
        let mut request = nbd_request(0, NBD.1, 7, block, bytes.len());
        request.extend(bytes);
        socket.write_all(&request).unwrap();
        nbd_reply(socket).expect("the server is there").1
    }

    /// Flushes over NBD while nothing else is under way; the error.
    pub fn flush_alone(&mut self) -> u32 {
        let Client::Nbd { socket, .. } = self else { unreachable!("it is used over NBD") };
        socket.write_all(&nbd_request(0, NBD.2, FLUSH, 0, 0)).unwrap();
        nbd_reply(socket).expect("the server is there").1
    }

    /// Reads so many blocks, over NBD.
    pub fn read(&mut self, block: u64, count: usize) -> Vec<u8> {
        let Client::Nbd { socket, .. } = self else { unreachable!("contents are compared over NBD") };
        socket.write_all(&nbd_request(0, NBD.0, 7, block, count * BLOCK_BYTES)).unwrap();
        assert_eq!(nbd_reply(socket), Some((7, 0)), "block {block} can't be read");
        let mut bytes = vec![0; count * BLOCK_BYTES];
        socket.read_exact(&mut bytes).unwrap();
        bytes
    }
}

fn nbd_request(flags: u16, command: u16, id: u64, block: u64, len: usize) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend(flags.to_be_bytes());
    request.extend(command.to_be_bytes());
    request.extend(id.to_be_bytes());
    request.extend((block * BLOCK_BYTES as u64).to_be_bytes());
    request.extend((len as u32).to_be_bytes());
    request
}

/// The request that was answered, and the error; `None` if the server is gone.
fn nbd_reply(socket: &mut UnixStream) -> Option<(u64, u32)> {
    let mut reply = [0; 16];
    socket.read_exact(&mut reply).ok()?;
    let error = u32::from_be_bytes(reply[4..8].try_into().expect("four bytes"));
    Some((u64::from_be_bytes(reply[8..].try_into().expect("eight bytes")), error))
}
