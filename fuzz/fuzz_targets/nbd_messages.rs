//! Any client: obeyed, refused, or the end of the connection; and what the session says is NBD.
//!
//! The input begins with a byte that chooses the server, one that says how much of the
//! negotiation is done in order, and one that says in which pieces bytes arrive. Then come
//! records: a kind, a length (16 bits, little-endian), and as many bytes.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use chronodisk_front::nbd::mock::{
    Content, MockClient, OptionReply, Reply, RequestBytes, client_flags, info_data, meta_context, option_request,
};
use chronodisk_front::nbd::wire::{GREETING_BYTES, command, option};
use chronodisk_front::nbd::{
    Command, Event, Export, IN_FLIGHT_BYTES_MAX, IN_FLIGHT_COUNT_MAX, NbdError, ServerOffer, Tls,
};
use chronodisk_sim::{RequestId, Status};
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 1 << 20;

/// Kinds of records; others send their bytes as they are.
const OPTION: u8 = 1;
const REQUEST: u8 = 2;
const COMPLETE: u8 = 3;
const SEND_OUTPUT: u8 = 4;
const SHUT_DOWN: u8 = 5;
const END: u8 = 6;
const RELEASE: u8 = 7;

fuzz_target!(|input: &[u8]| {
    let Some((&[server, negotiation, piece], mut rest)) = input.split_first_chunk() else { return };
    let mut machine = Machine::new(server);
    machine.client.piece_bytes = usize::from(piece) + 1;
    machine.negotiate(negotiation);
    for _ in 0..64 {
        let Some((&[kind, low, high], later)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_le_bytes([low, high])).min(later.len());
        let (bytes, later) = later.split_at(len);
        rest = later;
        machine.run(kind, bytes);
        machine.check();
    }
    machine.finish();
});

struct Machine {
    client: MockClient,
    structured: bool,
    shut_down: bool,
}

impl Machine {
    fn new(server: u8) -> Self {
        let has = |bit: u8| server & 1 << bit != 0;
        let mut export = Export::new("disk", CAPACITY_BYTES);
        export.read_only = has(0);
        export.rotational = has(1);
        export.multi_conn = has(2);
        export.trim = has(3);
        export.write_zeroes = has(4);
        export.block_bytes_min = if has(5) { 4096 } else { 512 };
        export.payload_bytes_max = if has(6) { 65_536 } else { 32 << 20 };
        let offer = ServerOffer::new(vec![export, Export::new("other", 4096)], Tls::Off).expect("valid");
        let budget_bytes = if has(7) { 40_000 } else { 4 * CAPACITY_BYTES };
        let store = Box::new(RamStore::new(CAPACITY_BYTES, budget_bytes));
        Machine { client: MockClient::new(Arc::new(offer), store), structured: false, shut_down: false }
    }

    /// As far as the byte says: nothing, the flags, all but the last step, or all.
    fn negotiate(&mut self, how: u8) {
        let has = |bit: u8| how & 1 << bit != 0;
        if has(0) {
            self.client.send(&client_flags());
        }
        if has(1) {
            self.client.send(&option_request(option::STRUCTURED_REPLY, &[]));
        }
        if has(2) {
            let data = meta_context("disk", &["base:allocation"]);
            self.client.send(&option_request(option::SET_META_CONTEXT, &data));
        }
        if has(3) {
            self.client.send(&option_request(option::GO, &info_data("", &[1, 2, 3])));
        }
    }

    fn run(&mut self, kind: u8, bytes: &[u8]) {
        match kind {
            OPTION => {
                let (code, data) = bytes.split_at(bytes.len().min(1));
                let code = code.first().map_or(0, |&code| u32::from(code));
                self.client.send(&option_request(code, data));
            }
            REQUEST => self.request(bytes),
            COMPLETE => self.complete(bytes),
            SEND_OUTPUT => {
                self.client.receive();
                self.client.take_events();
            }
            SHUT_DOWN => {
                self.client.session.shut_down();
                self.shut_down = true;
            }
            END => {
                self.client.session.input_ended();
                self.client.take_events();
            }
            RELEASE => self.client.session.release_idle_memory(),
            _ => {
                self.client.send(bytes);
            }
        }
    }

    /// Seven bytes are the fields, small enough to be meaningful; the data of a write follow.
    fn request(&mut self, bytes: &[u8]) {
        let Some((&[flags, code, cookie, offset, offset_odd, len, len_odd], data)) = bytes.split_first_chunk() else {
            return;
        };
        let offset_bytes = u64::from(offset) * 4096 + u64::from(offset_odd & 7) * 512 + u64::from(offset_odd >> 7);
        let len_bytes = u32::from(len) * 512 + u32::from(len_odd >> 7) + (u32::from(len_odd & 3) << 20);
        let mut request = RequestBytes {
            flags: flags.into(),
            command: code.into(),
            cookie: cookie.into(),
            offset_bytes,
            len_bytes,
            data: &[],
        };
        let filled: Vec<u8>;
        if request.command == command::WRITE {
            filled = data.iter().copied().chain(std::iter::repeat(0xA5)).take(len_bytes as usize).collect();
            request.data = &filled;
        }
        self.client.send(&request.encode());
    }

    fn complete(&mut self, choices: &[u8]) {
        for &choice in choices {
            if self.client.outstanding.is_empty() {
                break;
            }
            let index = usize::from(choice >> 2) % self.client.outstanding.len();
            let request = self.client.outstanding.swap_remove(index);
            if choice & 3 == 3 {
                self.client.session.fail(request.key, NbdError::NoSpace);
            }
            let status = if choice & 3 == 2 { Status::MediaError } else { Status::Ok };
            assert!(self.client.session.complete(request.key, status));
            assert!(!self.client.session.complete(request.key, status));
        }
        self.client.take_events();
    }

    /// What must hold at any moment.
    fn check(&mut self) {
        let state = self.client.session.state();
        assert_eq!(state.outstanding, self.client.outstanding.len());
        assert!(state.outstanding <= IN_FLIGHT_COUNT_MAX);
        let mut read_bytes = 0;
        for request in &self.client.outstanding {
            let capacity_bytes = if self.client.session.export() == 0 { CAPACITY_BYTES } else { 4096 };
            assert!(request.offset_bytes + u64::from(request.len_bytes) <= capacity_bytes);
            assert_eq!(request.len_bytes == 0, request.command == Command::Flush);
            if let Some(device) = request.device_request(RequestId(0), 0, 0) {
                assert_eq!(device.len_bytes(), u64::from(request.len_bytes));
                assert_eq!(device.lba.offset_bytes(), request.offset_bytes);
            }
            if request.command == Command::Read {
                read_bytes += u64::from(request.len_bytes);
            }
        }
        assert!(read_bytes <= IN_FLIGHT_BYTES_MAX);
    }

    /// After the last completion nothing waits, and everything said was NBD.
    fn finish(&mut self) {
        self.client.complete_all();
        let state = self.client.session.state();
        assert_eq!(state.outstanding, 0);
        assert!(!self.client.session.has_output());
        let ended = self.client.events.iter().any(|event| matches!(event, Event::Closing(_)));
        assert_eq!(self.client.session.is_finished(), ended || self.shut_down);
        let said = std::mem::take(&mut self.client.said);
        let (options, mut rest) = OptionReply::decode_all(&said[GREETING_BYTES..]);
        self.structured = options.iter().any(|reply| reply.option == option::STRUCTURED_REPLY && reply.kind == 1);
        let negotiated = self.client.events.iter().any(|event| matches!(event, Event::Negotiated { .. }));
        if !negotiated {
            assert!(rest.is_empty());
            return;
        }
        // Negotiation ends with the acknowledgement of NBD_OPT_GO, or with size and flags.
        if options.last().is_none_or(|reply| (reply.option, reply.kind) != (option::GO, 1)) {
            rest = &rest[10..];
            if rest.len() >= 124 && rest[..124] == [0; 124] {
                rest = &rest[124..];
            }
        }
        if self.structured {
            for reply in Reply::decode_all(rest, &BTreeMap::new()).expect("NBD") {
                if let Reply::Chunk { content: Content::Data { offset_bytes, data }, .. } = reply {
                    assert!(offset_bytes + data.len() as u64 <= CAPACITY_BYTES);
                }
            }
        }
    }
}
