//! The initiator's side of the protocol for tests and fuzzers, without a socket.
//!
//! [`MockInitiator`] encodes PDUs, including invalid ones, and passes them to a session. [`Pdu::decode`] decodes the
//! answers, and accepts only whole ones with valid digests.

use std::io::IoSlice;
use std::sync::Arc;

use chronodisk_sim::Status;
use chronodisk_store::Store;

use super::chap::Algorithm;
use super::text;
use super::wire::{DIGEST_BYTES, HEADER_BYTES, Header, NO_TAG, digest, flag, opcode, padding_bytes, stage};
use super::{Credentials, Event, IscsiRequest, IscsiSession, IscsiTarget};

/// A mock initiator whose bytes are chosen by the test, the session that serves it, and its store.
pub struct MockInitiator {
    /// The session.
    pub session: IscsiSession,
    /// The bytes of the device.
    pub store: Box<dyn Store>,
    /// Reported requests that are not completed, in order.
    pub outstanding: Vec<IscsiRequest>,
    /// Events other than requests.
    pub events: Vec<Event>,
    /// Output of the session that was not processed yet.
    pub said: Vec<u8>,
    /// Bytes handed over at once.
    pub piece_bytes: usize,
    /// Number of the next command.
    pub command_number: u32,
    /// Tag of the next command.
    pub tag: u32,
    /// Whether PDUs have digests.
    pub digests: bool,
}

/// A PDU of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pdu {
    /// The header.
    pub header: Header,
    /// The data segment without padding.
    pub data: Vec<u8>,
}

impl Pdu {
    /// Takes the first PDU off `bytes`. `None` if it is incomplete, or a digest does not fit.
    pub fn decode(bytes: &mut Vec<u8>, digests: bool) -> Option<Pdu> {
        let header = Header(*bytes.first_chunk()?);
        let digest_bytes = if digests { DIGEST_BYTES } else { 0 };
        let data_start = HEADER_BYTES + digest_bytes;
        let len = header.data_bytes();
        let data_end = data_start + len + padding_bytes(len);
        let end = data_end + if len > 0 { digest_bytes } else { 0 };
        let pdu = bytes.get(..end)?;
        let is_whole = !digests
            || (pdu[HEADER_BYTES..data_start] == digest(&[&pdu[..HEADER_BYTES]])
                && (len == 0 || pdu[data_end..] == digest(&[&pdu[data_start..data_end]])));
        let data = pdu[data_start..data_start + len].to_vec();
        bytes.drain(..end);
        is_whole.then_some(Pdu { header, data })
    }

    /// The status of a response to a command.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.header.0[3]
    }

    /// Sense key and code in the fixed format; `None` without sense data.
    #[must_use]
    pub fn sense(&self) -> Option<(u8, u8, u8)> {
        (self.data.len() >= 16).then(|| (self.data[4] & 0xF, self.data[14], self.data[15]))
    }
}

/// The command descriptor block of a read or write of 10 bytes.
#[must_use]
pub fn transfer(opcode: u8, lba: u32, blocks: u16) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = opcode;
    cdb[2..6].copy_from_slice(&lba.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

impl MockInitiator {
    /// Connects.
    #[must_use]
    pub fn new(target: Arc<IscsiTarget>, store: Box<dyn Store>) -> Self {
        MockInitiator {
            session: IscsiSession::new(target, "127.0.0.1:3260".to_owned(), Arc::default()),
            store,
            outstanding: Vec::new(),
            events: Vec::new(),
            said: Vec::new(),
            piece_bytes: usize::MAX,
            command_number: 1,
            tag: 1,
            digests: false,
        }
    }

    /// Connects and logs in with these parameters besides the names.
    #[must_use]
    pub fn logged_in(target: Arc<IscsiTarget>, store: Box<dyn Store>, parameters: &[(&str, &str)]) -> Self {
        MockInitiator::logged_in_as("iqn.2026-11.org.example:mock", target, store, parameters)
    }

    /// As [`logged_in`](Self::logged_in), with this name.
    #[must_use]
    pub fn logged_in_as(
        name: &str,
        target: Arc<IscsiTarget>,
        store: Box<dyn Store>,
        parameters: &[(&str, &str)],
    ) -> Self {
        let mut initiator = MockInitiator::new(target.clone(), store);
        let names = [("InitiatorName", name), ("TargetName", &target.name)];
        initiator.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &[&names, parameters].concat());
        initiator.digests = parameters.contains(&("HeaderDigest", "CRC32C"));
        initiator
    }

    /// Sends a request of a login that asks for the next stage, and returns the answer.
    ///
    /// # Panics
    /// If the session does not answer.
    pub fn log_in(&mut self, current: u8, next: u8, pairs: &[(&str, &str)]) -> Pdu {
        let mut header = Header::new(opcode::LOGIN | flag::IMMEDIATE, flag::FINAL | current << 2 | next);
        header.set_u32(24, self.command_number);
        let mut data = Vec::new();
        pairs.iter().for_each(|(key, value)| text::put(&mut data, key, value));
        self.send_pdu(header, &data);
        self.receive();
        Pdu::decode(&mut self.said, false).expect("an answer to the login")
    }

    /// Logs in with CHAP, and returns the last answer.
    ///
    /// # Panics
    /// If the session does not answer.
    pub fn log_in_with(&mut self, credentials: &Credentials, algorithm: &str, target: &str) -> Pdu {
        let names = [("InitiatorName", "iqn.2026-11.org.example:mock"), ("TargetName", target)];
        self.log_in(stage::SECURITY, stage::OPERATIONAL, &[&names[..], &[("AuthMethod", "CHAP,None")]].concat());
        let asked = self.log_in(stage::SECURITY, stage::OPERATIONAL, &[("CHAP_A", algorithm)]);
        let pairs = text::pairs(&asked.data).expect("a text");
        let value = |key: &str| pairs.iter().find(|(name, _)| *name == key).map_or("", |(_, value)| *value);
        let chosen = Algorithm::chosen(value("CHAP_A")).expect("an algorithm");
        let identifier = value("CHAP_I").parse().expect("an identifier");
        let challenge = text::binary(value("CHAP_C")).expect("a challenge");
        let response = text::hexadecimal(&chosen.response(identifier, &credentials.secret, &challenge));
        let proof = [("CHAP_N", credentials.user.as_str()), ("CHAP_R", &response)];
        self.log_in(stage::SECURITY, stage::FULL_FEATURE, &proof)
    }

    /// Passes bytes to the session, and executes each reported request at once. Stops when the session accepts no more,
    /// and returns the number of accepted bytes.
    pub fn send(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        self.take_events();
        while !rest.is_empty() && self.session.wants_input() {
            let room = self.session.receive_room();
            let len = rest.len().min(room.len()).min(self.piece_bytes);
            room[..len].copy_from_slice(&rest[..len]);
            self.session.received(len);
            rest = &rest[len..];
            self.take_events();
        }
        bytes.len() - rest.len()
    }

    /// Sends a PDU with this header; its length of data is set here.
    pub fn send_pdu(&mut self, mut header: Header, data: &[u8]) {
        header.set_data_bytes(data.len());
        let mut bytes = header.0.to_vec();
        let padding = &[0; 3][..padding_bytes(data.len())];
        if self.digests {
            bytes.extend(digest(&[&header.0]));
        }
        bytes.extend(data);
        bytes.extend(padding);
        if self.digests && !data.is_empty() {
            bytes.extend(digest(&[data, padding]));
        }
        self.send(&bytes);
    }

    /// Sends a command and returns its tag. `flags` are those of the second byte of the PDU.
    pub fn send_command(&mut self, cdb: [u8; 16], flags: u8, expected_bytes: u32, data: &[u8]) -> u32 {
        let mut header = Header::new(opcode::SCSI_COMMAND, flags);
        let tag = self.tag;
        self.tag += 1;
        header.set_u32(16, tag);
        header.set_u32(20, expected_bytes);
        header.set_u32(24, self.command_number);
        self.command_number = self.command_number.wrapping_add(1);
        header.0[32..].copy_from_slice(&cdb);
        self.send_pdu(header, data);
        tag
    }

    /// Sends data of a write.
    pub fn send_data(&mut self, task: u32, asked: u32, number: u32, offset: u32, is_final: bool, data: &[u8]) {
        let mut header = Header::new(opcode::DATA_OUT, if is_final { flag::FINAL } else { 0 });
        header.set_u32(16, task);
        header.set_u32(20, asked);
        header.set_u32(36, number);
        header.set_u32(40, offset);
        self.send_pdu(header, data);
    }

    /// Sends a request for task management, and returns its tag.
    pub fn manage(&mut self, function: u8, task: u32) -> u32 {
        let mut header = Header::new(opcode::TASK_MANAGEMENT | flag::IMMEDIATE, flag::FINAL | function);
        let tag = self.tag;
        self.tag += 1;
        header.set_u32(16, tag);
        header.set_u32(20, task);
        header.set_u32(24, self.command_number);
        self.send_pdu(header, &[]);
        tag
    }

    /// Takes the session's events.
    pub fn take_events(&mut self) {
        while let Some(event) = self.session.next_event() {
            match event {
                Event::Request(request) => {
                    let _ = self.session.execute(request.slot, &mut *self.store);
                    self.outstanding.push(request);
                }
                Event::LoggedIn { .. } | Event::Closing(_) => self.events.push(event),
            }
        }
    }

    /// Completes all outstanding requests, and the arrivals that follow.
    pub fn complete_all(&mut self) {
        loop {
            for request in std::mem::take(&mut self.outstanding) {
                assert!(self.session.complete(request.slot, Status::Ok), "{request:?} is outstanding");
            }
            self.receive();
            self.take_events();
            if self.outstanding.is_empty() {
                return;
            }
        }
    }

    /// Takes all output.
    pub fn receive(&mut self) {
        while self.session.has_output() {
            let mut slices = [IoSlice::new(&[]); 16];
            let count = self.session.gather(&mut slices);
            let before = self.said.len();
            for slice in &slices[..count] {
                self.said.extend_from_slice(slice);
            }
            let len = self.said.len() - before;
            assert!(len > 0, "output without bytes");
            self.session.sent(len);
        }
        self.take_events();
    }

    /// Takes all output as PDUs.
    ///
    /// # Panics
    /// If the output is no sequence of whole PDUs.
    pub fn answers(&mut self) -> Vec<Pdu> {
        self.receive();
        let mut pdus = Vec::new();
        while !self.said.is_empty() {
            pdus.push(Pdu::decode(&mut self.said, self.digests).expect("a whole PDU"));
        }
        pdus
    }

    /// Sends a command without data of the initiator, completes it, and returns its status, its data and its last PDU.
    ///
    /// # Panics
    /// If the session does not answer.
    pub fn ask(&mut self, cdb: [u8; 16], expected_bytes: u32) -> (u8, Vec<u8>, Pdu) {
        let read = if expected_bytes > 0 { flag::READ } else { 0 };
        self.send_command(cdb, flag::FINAL | read, expected_bytes, &[]);
        self.complete_all();
        let pdus = self.answers();
        let last = pdus.last().expect("an answer").clone();
        let is_data = |pdu: &&Pdu| pdu.header.opcode() == opcode::DATA_IN;
        let data = pdus.iter().filter(is_data).flat_map(|pdu| pdu.data.clone()).collect();
        (last.status(), data, last)
    }

    /// Sends a command with data, as it is asked for; returns the response.
    ///
    /// # Panics
    /// If the session does not answer.
    pub fn tell(&mut self, cdb: [u8; 16], data: &[u8]) -> Pdu {
        // A device has fewer than 2^32 bytes here.
        let task = self.send_command(cdb, flag::FINAL | flag::WRITE, data.len() as u32, &[]);
        loop {
            self.complete_all();
            let answer = self.answers().pop().expect("an answer");
            if answer.header.opcode() != opcode::READY_TO_TRANSFER {
                return answer;
            }
            let (asked, start, len) = (answer.header.u32(20), answer.header.u32(40), answer.header.u32(44));
            let end = start + len;
            let (mut offset, mut number) = (start, 0);
            while offset < end {
                let next = (offset + super::RECEIVE_DATA_BYTES_MAX).min(end);
                let piece = &data[offset as usize..next as usize];
                self.send_data(task, asked, number, offset, next == end, piece);
                (offset, number) = (next, number + 1);
            }
        }
    }

    /// Sends a PDU with this operation code for immediate delivery, and returns all answers.
    pub fn say(&mut self, opcode: u8, flags: u8, data: &[u8]) -> Vec<Pdu> {
        let mut header = Header::new(opcode | flag::IMMEDIATE, flags);
        header.set_u32(16, self.tag);
        self.tag += 1;
        header.set_u32(20, NO_TAG);
        header.set_u32(24, self.command_number);
        self.send_pdu(header, data);
        self.answers()
    }
}
