//! Any sequence of vhost-user messages: obeyed, refused, or the end of the session.
//!
//! The input is a list of records. A record is a code, a byte of flags, a byte that chooses file
//! descriptors, a payload length (16 bits, little-endian), and the payload. Most records are sent as
//! messages of that code; those of [`COMPLETE`] and above are the machine around the session.
#![no_main]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use chronodisk_front::mock::{MEMORY_BASE, MEMORY_BYTES, MockDriver, TestBench, memory_file};
use chronodisk_front::vhost_user::message::{MessageDecoder, PAYLOAD_BYTES_MAX, code, encode, flag, vring_state};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_sim::Status;
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

/// Completes what has arrived, last first if the flags say so.
const COMPLETE: u8 = 0xf0;
/// Writes guest memory: the payload begins with the address, in pages from the beginning.
const WRITE_MEMORY: u8 = 0xf1;
/// Negotiates and sets the ring up, as far as the session still allows it.
const SET_UP: u8 = 0xf2;
/// Sends the payload as it is, without a header.
const RAW: u8 = 0xf3;

fuzz_target!(|input: &[u8]| {
    decode_in_pieces(input);
    let mut machine = Machine::new();
    let mut alive = true;
    let mut rest = input;
    // An input of a thousand records says nothing that one of sixty-four does not.
    for _ in 0..64 {
        let Some((record, later)) = Record::take(rest) else { break };
        rest = later;
        alive = machine.run(&record).is_ok();
        if !alive {
            break;
        }
    }
    if alive {
        machine.finish();
    }
});

struct Record<'a> {
    code: u8,
    flags: u8,
    fds: u8,
    payload: &'a [u8],
}

impl<'a> Record<'a> {
    fn take(input: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (&[code, flags, fds, low, high], rest) = input.split_first_chunk()?;
        let len = usize::from(u16::from_le_bytes([low, high])).min(PAYLOAD_BYTES_MAX).min(rest.len());
        let (payload, later) = rest.split_at(len);
        Some((Record { code, flags, fds, payload }, later))
    }
}

struct Machine {
    bench: TestBench,
    /// Of every kind that a guest may send: memory, too little memory, a pipe, a socket, a channel.
    fds: [OwnedFd; 5],
}

impl Machine {
    fn new() -> Self {
        let config = BlkConfig {
            capacity_sectors: 64,
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            serial: "fuzz".into(),
            discard_unit_sectors: Some(1),
            write_zeroes: true,
            volatile_cache: true,
            seg_max: SEG_MAX_DEFAULT,
            zones: None,
            torn_write_sectors: None,
            file_data: false,
        };
        let mut bench = TestBench::new(config, Box::new(RamStore::new(64 * 512, 20_000)));
        let memory = bench.driver.memory_file().try_clone().expect("another descriptor");
        let short = memory_file();
        short.set_len(4096).expect("memory");
        // Nobody is left to read from it.
        let (_, pipe) = std::io::pipe().expect("a pipe");
        let (socket, _) = UnixStream::pair().expect("a socket pair");
        let channel = bench.driver.open_channel();
        Machine { bench, fds: [memory.into(), short.into(), pipe.into(), socket.into(), channel.into()] }
    }

    /// An error is the end of the session.
    fn run(&mut self, record: &Record<'_>) -> Result<(), ()> {
        match record.code {
            COMPLETE => self.complete(record.flags & 1 != 0),
            WRITE_MEMORY => self.write_memory(record.payload),
            SET_UP => return self.set_up(),
            RAW => self.send(record.payload, record.fds)?,
            code => self.send(&encode(code.into(), (record.flags & 0xc).into(), record.payload), record.fds)?,
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8], fds: u8) -> Result<(), ()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let first = usize::from(fds & 7) % self.fds.len();
        let fds: Vec<BorrowedFd<'_>> =
            (0..usize::from(fds >> 3) % 11).map(|i| self.fds[(first + i * usize::from(fds & 4)) % 5].as_fd()).collect();
        self.bench.driver.send_bytes(bytes, &fds).map_err(|_| ())?;
        self.bench.pump().map_err(|_| ())?;
        while self.bench.driver.receive().is_some() {}
        self.bench.driver.take_calls();
        // Kicks may come over a descriptor, too; nothing is in the pipe, so it must not block.
        self.bench.session.kicked(&mut self.bench.recorder).map_err(|_| ())
    }

    fn complete(&mut self, reversed: bool) {
        let mut arrivals = std::mem::take(&mut self.bench.recorder.arrivals);
        if reversed {
            arrivals.reverse();
        }
        for (index, arrival) in arrivals.iter().enumerate() {
            assert!(arrival.request.end().0 <= 64);
            let status = if index % 3 == 2 { Status::MediaError } else { Status::Ok };
            self.bench.session.complete(arrival.request.id, status);
        }
        let _ = self.bench.session.notify();
    }

    /// After a stop and the last completion nothing is outstanding, whatever happened before.
    fn finish(&mut self) {
        let stop = encode(code::GET_VRING_BASE, 0, &vring_state(0, 0));
        if self.bench.driver.send_bytes(&stop, &[]).is_err() || self.bench.pump().is_err() {
            return;
        }
        // Half a message may have been there before, which has swallowed this one.
        let stopped = self.bench.driver.receive().is_some_and(|(header, _)| header.request == code::GET_VRING_BASE);
        self.complete(false);
        assert!(!stopped || self.bench.session.outstanding() == 0);
    }

    fn write_memory(&mut self, payload: &[u8]) {
        let Some((&[page], bytes)) = payload.split_first_chunk() else { return };
        let address = MEMORY_BASE + u64::from(page) * 0x1000 % (MEMORY_BYTES - 0x1000);
        self.bench.driver.write(address, bytes);
    }

    /// The messages of a driver that begins, each with the payload that it should have.
    fn set_up(&mut self) -> Result<(), ()> {
        let (table, _) = self.bench.driver.memory_table();
        let memory = self.bench.driver.memory_file().try_clone().expect("another descriptor");
        let messages: [(u32, Vec<u8>, &[BorrowedFd<'_>]); 8] = [
            (code::SET_VRING_ENABLE, vring_state(0, 0).to_vec(), &[]),
            (code::SET_PROTOCOL_FEATURES, 0x4228u64.to_ne_bytes().to_vec(), &[]),
            (code::SET_FEATURES, (1u64 << 30 | 1 << 32 | 1 << 28 | 1 << 9 | 3 << 13).to_ne_bytes().to_vec(), &[]),
            (code::SET_MEM_TABLE, table, &[memory.as_fd(), memory.as_fd()]),
            (code::SET_VRING_NUM, vring_state(0, 256).to_vec(), &[]),
            (code::SET_VRING_BASE, vring_state(0, 0).to_vec(), &[]),
            (code::SET_VRING_ADDR, MockDriver::ring_addresses(), &[]),
            (code::SET_VRING_ENABLE, vring_state(0, 1).to_vec(), &[]),
        ];
        for (code, payload, fds) in messages {
            self.bench.driver.send_bytes(&encode(code, flag::NEED_REPLY, &payload), fds).map_err(|_| ())?;
            self.bench.pump().map_err(|_| ())?;
            while self.bench.driver.receive().is_some() {}
        }
        Ok(())
    }
}

/// The decoder alone, on the bytes as they are: the same outcome in one piece and in many.
fn decode_in_pieces(input: &[u8]) {
    let outcome = |piece: usize| {
        let mut decoder = MessageDecoder::new();
        let mut outcome = String::new();
        let mut rest = input;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(decoder.wanted_bytes()).min(piece));
            match decoder.receive(now, Vec::new()) {
                Ok(None) => {}
                Ok(Some(message)) => outcome += &format!("{message:?};"),
                Err(error) => return outcome + &error.to_string(),
            }
            rest = later;
        }
        outcome
    };
    assert_eq!(outcome(usize::MAX), outcome(5));
}
