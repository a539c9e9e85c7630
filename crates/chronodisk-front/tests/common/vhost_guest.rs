//! A guest's driver on a connection to a server, with kicks and calls on event descriptors as QEMU uses them.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

use chronodisk_front::mock::{self, MockDriver, MockRequest, RING_SIZE};
use chronodisk_front::vhost_user::message::{code, encode, flag, protocol_feature, vring_state};
use rustix::event::{EventfdFlags, eventfd};

/// A guest with a running ring, with some of the offered features.
pub struct Guest {
    pub driver: MockDriver,
    kick: OwnedFd,
    call: OwnedFd,
}

impl Guest {
    /// Starts a guest that accepts the offered features, except those in `without`.
    pub fn start(path: &Path, without: u64) -> Self {
        Guest::with_memory(path, without, mock::memory_file())
    }

    /// Like [`Guest::start`], with this memory.
    pub fn with_memory(path: &Path, without: u64, memory: File) -> Self {
        let new_event = || eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let driver = MockDriver::with_memory(UnixStream::connect(path).unwrap(), memory);
        let mut guest = Guest { driver, kick: new_event(), call: new_event() };
        guest.say(code::SET_OWNER, &[]);
        let features = guest.ask(code::GET_FEATURES) & !without;
        let protocol_features = 1u64 << protocol_feature::REPLY_ACK | 1 << protocol_feature::CONFIG;
        assert_eq!(guest.ask(code::GET_PROTOCOL_FEATURES) & protocol_features, protocol_features);
        guest.say(code::SET_PROTOCOL_FEATURES, &protocol_features.to_ne_bytes());
        guest.say(code::SET_FEATURES, &features.to_ne_bytes());
        let file = guest.driver.memory_file().try_clone().unwrap();
        let (table, _) = guest.driver.memory_table();
        let bytes = encode(code::SET_MEM_TABLE, 0, &table);
        guest.driver.send_bytes(&bytes, &[file.as_fd(), file.as_fd()]).unwrap();
        guest.say(code::SET_VRING_NUM, &vring_state(0, RING_SIZE.into()));
        guest.say(code::SET_VRING_BASE, &vring_state(0, 0));
        guest.say(code::SET_VRING_ADDR, &MockDriver::ring_addresses());
        for (code, fd) in [(code::SET_VRING_CALL, &guest.call), (code::SET_VRING_KICK, &guest.kick)] {
            guest.driver.send_bytes(&encode(code, 0, &0u64.to_ne_bytes()), &[fd.as_fd()]).unwrap();
        }
        let enable = encode(code::SET_VRING_ENABLE, flag::NEED_REPLY, &vring_state(0, 1));
        guest.driver.send_bytes(&enable, &[]).unwrap();
        assert_eq!(guest.reply(), 0u64.to_ne_bytes(), "a good acknowledgement");
        guest
    }

    pub fn say(&self, code: u32, payload: &[u8]) {
        self.driver.send_bytes(&encode(code, 0, payload), &[]).unwrap();
    }

    pub fn ask(&mut self, code: u32) -> u64 {
        self.say(code, &[]);
        u64::from_ne_bytes(self.reply().try_into().unwrap())
    }

    fn reply(&mut self) -> Vec<u8> {
        until(|| self.driver.receive()).1
    }

    pub fn kick(&self) {
        rustix::io::write(&self.kick, &1u64.to_ne_bytes()).unwrap();
    }

    /// Waits for a call, and returns the heads of the completed requests.
    pub fn called(&mut self) -> Vec<u32> {
        until(|| rustix::io::read(&self.call, &mut [0; 8]).ok());
        self.driver.take_used().iter().map(|entry| entry.head).collect()
    }

    pub fn completed(&mut self, requests: &[&MockRequest]) {
        let mut heads = Vec::new();
        while heads.len() < requests.len() {
            heads.extend(self.called());
        }
        assert_eq!(heads, requests.iter().map(|request| u32::from(request.head)).collect::<Vec<_>>());
        assert!(requests.iter().all(|request| self.driver.status(request) == 0));
    }
}

/// Polls `look` until it returns a value, for some seconds at most.
pub fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..4_000 {
        if let Some(found) = look() {
            return found;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("it does not come");
}
