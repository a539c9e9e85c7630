//! Option haggling: from the client's flags to an export.
//!
//! Each option is answered from its data and earlier agreements; no step blocks.

use super::ending::{Reason, Violation};
use super::export::{Export, ServerOffer, Tls};
use super::request::Negotiated;
use super::wire::{
    BASE_ALLOCATION, BASE_ALLOCATION_ID, EXPORT_NAME_ZEROES_BYTES, Fields, GREETING_MAGIC, OPTION_MAGIC,
    OPTION_REPLY_HEADER_BYTES, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, client_flag, handshake_flag, info, option,
    option_reply as reply,
};
use crate::stream::Output;

/// Agreements so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Negotiation {
    fixed_newstyle: bool,
    no_zeroes: bool,
    option_count: u32,
    structured: bool,
    /// The export for which allocation information was chosen.
    allocation_export: Option<usize>,
    tls: bool,
}

/// Result of an option.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The client may send more options.
    Continue,
    /// TLS records from the next byte on.
    StartTls,
    /// Transmission on an export.
    Begin { export: usize },
    /// The negotiation and the connection end.
    End(Reason),
}

impl From<Violation> for Step {
    fn from(violation: Violation) -> Self {
        Step::End(violation.into())
    }
}

/// Most options before transmission.
pub(crate) const OPTION_COUNT_MAX: u32 = 64;
/// Longest data of an option that are parsed; enough for the longest name and some queries.
pub(crate) const OPTION_BYTES_MAX: u32 = 16 << 10;

/// The server's first words.
pub(crate) fn greet(output: &mut Output) {
    output.head(&GREETING_MAGIC.to_be_bytes());
    output.head(&OPTION_MAGIC.to_be_bytes());
    output.head(&(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
}

impl Negotiation {
    /// Takes the client's flags.
    pub fn client_flags(&mut self, flags: u32) -> Step {
        if flags & !(client_flag::FIXED_NEWSTYLE | client_flag::NO_ZEROES) != 0 {
            return Step::End(Violation::ClientFlags.into());
        }
        self.fixed_newstyle = flags & client_flag::FIXED_NEWSTYLE != 0;
        self.no_zeroes = flags & client_flag::NO_ZEROES != 0;
        Step::Continue
    }

    /// Drops all agreements made in plain text, which could be forged. "TLS support".
    pub fn tls_started(&mut self) {
        self.tls = true;
        self.structured = false;
        self.allocation_export = None;
    }

    /// Agreements that apply to requests to `export`.
    pub fn negotiated(&self, export: usize) -> Negotiated {
        let allocation = self.structured && self.allocation_export == Some(export);
        Negotiated { structured: self.structured, allocation }
    }

    /// Whether the client encrypts.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// Looks at an option before its data are there; `Err` ends the connection.
    pub fn admit(&self, option: u32, len_bytes: u32) -> Result<(), Reason> {
        if self.option_count >= OPTION_COUNT_MAX {
            return Err(Violation::TooManyOptions.into());
        }
        // The fixed newstyle introduced other options, and replies to them.
        if !self.fixed_newstyle && option != option::EXPORT_NAME {
            return Err(Violation::NotFixedNewstyle.into());
        }
        if option == option::EXPORT_NAME && len_bytes as usize > STRING_BYTES_MAX {
            return Err(Violation::NameTooLong.into());
        }
        Ok(())
    }

    /// Counts an option.
    pub fn count_option(&mut self) {
        self.option_count += 1;
    }

    /// Answers an option that is complete and was [admitted](Self::admit).
    pub fn answer(
        &mut self,
        offer: &ServerOffer,
        option: u32,
        data: &[u8],
        shutting_down: bool,
        output: &mut Output,
    ) -> Step {
        let tls_required = matches!(offer.tls(), Tls::Required(_)) && !self.tls;
        let mut answer = Answer { option, output };
        match option {
            option::EXPORT_NAME if shutting_down => Step::End(Reason::ShutDown),
            option::EXPORT_NAME if tls_required => Step::End(Violation::TlsRequired.into()),
            option::EXPORT_NAME => self.export_name(offer, data, answer.output),
            option::ABORT => {
                answer.acknowledge();
                Step::End(Reason::Abort)
            }
            _ if shutting_down => answer.refuse(reply::ERR_SHUTDOWN, "the server is shutting down"),
            option::STARTTLS => self.start_tls(offer, data, &mut answer),
            _ if tls_required => answer.refuse(reply::ERR_TLS_REQD, "TLS first"),
            option::LIST => list(offer, data, &mut answer),
            option::INFO | option::GO => self.info(offer, data, &mut answer),
            option::STRUCTURED_REPLY => self.structured_reply(data, &mut answer),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.meta_context(offer, data, &mut answer),
            option::EXTENDED_HEADERS => answer.refuse(reply::ERR_UNSUP, "extended headers are not served"),
            _ => answer.refuse(reply::ERR_UNSUP, "unknown option"),
        }
    }

    fn export_name(&self, offer: &ServerOffer, name: &[u8], output: &mut Output) -> Step {
        let Some(index) = offer.find(name) else { return Step::End(Violation::UnknownExport.into()) };
        let export = &offer.exports()[index];
        output.head(&export.size_bytes.to_be_bytes());
        output.head(&export.transmission_flags(self.structured).to_be_bytes());
        if !self.no_zeroes {
            output.head(&[0; EXPORT_NAME_ZEROES_BYTES]);
        }
        Step::Begin { export: index }
    }

    fn start_tls(&self, offer: &ServerOffer, data: &[u8], answer: &mut Answer<'_>) -> Step {
        if offer.tls().config().is_none() {
            return answer.refuse(reply::ERR_POLICY, "the server has no TLS");
        }
        if self.tls {
            return answer.refuse(reply::ERR_INVALID, "TLS is there already");
        }
        if !data.is_empty() {
            return answer.refuse(reply::ERR_INVALID, NO_DATA);
        }
        answer.acknowledge();
        Step::StartTls
    }

    fn structured_reply(&mut self, data: &[u8], answer: &mut Answer<'_>) -> Step {
        if !data.is_empty() {
            return answer.refuse(reply::ERR_INVALID, NO_DATA);
        }
        self.structured = true;
        answer.acknowledge()
    }

    fn info(&self, offer: &ServerOffer, data: &[u8], answer: &mut Answer<'_>) -> Step {
        let Some((name, wanted)) = parse_info(data) else {
            return answer.refuse(reply::ERR_INVALID, "expected a name and a list of information types");
        };
        let Some(index) = offer.find(name) else { return answer.refuse(reply::ERR_UNKNOWN, "no such export") };
        let export = &offer.exports()[index];
        let wants = |kind: u16| wanted.chunks_exact(2).any(|asked| asked == kind.to_be_bytes());
        let flags = export.transmission_flags(self.structured);
        answer
            .send(reply::INFO, &[&info::EXPORT.to_be_bytes(), &export.size_bytes.to_be_bytes(), &flags.to_be_bytes()]);
        // Sent to every client, because unaligned requests will fail.
        answer.send(reply::INFO, &[&info::BLOCK_SIZE.to_be_bytes(), &block_sizes(export)]);
        if wants(info::NAME) {
            answer.send(reply::INFO, &[&info::NAME.to_be_bytes(), export.name.as_bytes()]);
        }
        if wants(info::DESCRIPTION) && !export.description.is_empty() {
            answer.send(reply::INFO, &[&info::DESCRIPTION.to_be_bytes(), export.description.as_bytes()]);
        }
        answer.acknowledge();
        if answer.option == option::GO { Step::Begin { export: index } } else { Step::Continue }
    }

    fn meta_context(&mut self, offer: &ServerOffer, data: &[u8], answer: &mut Answer<'_>) -> Step {
        let set = answer.option == option::SET_META_CONTEXT;
        if set {
            // A new choice replaces the old one, also when it fails.
            self.allocation_export = None;
        }
        if !self.structured {
            return answer.refuse(reply::ERR_INVALID, "structured replies first");
        }
        let Some((name, query)) = parse_queries(data) else {
            return answer.refuse(reply::ERR_INVALID, "expected a name and a list of queries");
        };
        let Some(index) = offer.find(name) else { return answer.refuse(reply::ERR_UNKNOWN, "no such export") };
        let chosen = if set { query.names_allocation } else { query.asks_for_allocation() };
        if chosen {
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            answer.send(reply::META_CONTEXT, &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()]);
        }
        if set {
            self.allocation_export = chosen.then_some(index);
        }
        answer.acknowledge()
    }
}

const NO_DATA: &str = "the option has no data";

fn list(offer: &ServerOffer, data: &[u8], answer: &mut Answer<'_>) -> Step {
    if !data.is_empty() {
        return answer.refuse(reply::ERR_INVALID, NO_DATA);
    }
    for export in offer.exports() {
        // Bounded by STRING_BYTES_MAX.
        let name_bytes = export.name.len() as u32;
        answer.send(reply::SERVER, &[&name_bytes.to_be_bytes(), export.name.as_bytes(), export.description.as_bytes()]);
    }
    answer.acknowledge()
}

fn block_sizes(export: &Export) -> [u8; 12] {
    let mut bytes = [0; 12];
    for (field, size) in
        bytes.chunks_exact_mut(4).zip([export.block_bytes_min, export.block_bytes_preferred, export.payload_bytes_max])
    {
        field.copy_from_slice(&size.to_be_bytes());
    }
    bytes
}

/// Data of `NBD_OPT_INFO` and `NBD_OPT_GO`: the name, and information types of two bytes each.
fn parse_info(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = Fields(data);
    let name = fields.string().filter(|name| name.len() <= STRING_BYTES_MAX)?;
    let count = fields.u16()?;
    let wanted = fields.take(usize::from(count) * 2)?;
    fields.is_empty().then_some((name, wanted))
}

/// Contexts requested by a list of queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Query {
    any: bool,
    names_allocation: bool,
    /// The whole namespace `base:`.
    names_base: bool,
}

impl Query {
    /// Whether the queries include the allocation. For `NBD_OPT_LIST_META_CONTEXT`, an empty list means all contexts.
    fn asks_for_allocation(self) -> bool {
        !self.any || self.names_allocation || self.names_base
    }
}

/// Data of the metadata options: the name, the number of queries, the queries.
fn parse_queries(data: &[u8]) -> Option<(&[u8], Query)> {
    let mut fields = Fields(data);
    let name = fields.string().filter(|name| name.len() <= STRING_BYTES_MAX)?;
    let count = fields.u32()?;
    let mut query = Query { any: count > 0, ..Query::default() };
    // Each query takes at least four bytes, so the data's limited length bounds the loop.
    for _ in 0..count {
        let text = fields.string().filter(|text| text.len() <= STRING_BYTES_MAX)?;
        query.names_allocation |= text == BASE_ALLOCATION.as_bytes();
        query.names_base |= text == b"base:";
    }
    fields.is_empty().then_some((name, query))
}

/// Replies to one option.
struct Answer<'a> {
    option: u32,
    output: &'a mut Output,
}

impl Answer<'_> {
    fn send(&mut self, kind: u32, data: &[&[u8]]) {
        send_reply(self.output, self.option, kind, data);
    }

    fn acknowledge(&mut self) -> Step {
        self.send(reply::ACK, &[]);
        Step::Continue
    }

    fn refuse(&mut self, error: u32, message: &str) -> Step {
        self.send(error, &[message.as_bytes()]);
        Step::Continue
    }
}

/// Refuses an option whose data are too long to be parsed.
pub(crate) fn refuse_too_big(output: &mut Output, option: u32) {
    send_reply(output, option, reply::ERR_TOO_BIG, &[b"too much data"]);
}

fn send_reply(output: &mut Output, option: u32, kind: u32, data: &[&[u8]]) {
    let mut head = [0; OPTION_REPLY_HEADER_BYTES];
    let len: usize = data.iter().map(|part| part.len()).sum();
    head[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    head[8..12].copy_from_slice(&option.to_be_bytes());
    head[12..16].copy_from_slice(&kind.to_be_bytes());
    // Strings are bounded, and no reply has more than two.
    head[16..].copy_from_slice(&(len as u32).to_be_bytes());
    output.head(&head);
    for part in data {
        output.head(part);
    }
}
