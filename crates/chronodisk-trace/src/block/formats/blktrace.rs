//! The binary events of the Linux kernel's block trace, version 7 (`include/uapi/linux/blktrace_api.h`): blktrace's
//! files of each processor, which blkparse reads.
//!
//! An event has 48 bytes, in the byte order of the machine that made it, and the number of additional bytes in its last
//! field. Files of several processors have to be merged by `blkparse -d` before, since each is sorted by itself only.

use chronodisk_sim::{Op, RequestRecord};

use super::super::TraceInfo;
use super::super::events::{Event, Kind};
use super::super::line::Problem;
use super::super::sink::Sink;
use super::{Encoder, volume_of};

const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const EVENT_BYTES: usize = 48;

/// The event, in the low half of the field `action`.
mod action {
    /// Set if the event contains its control group, in the bytes after it.
    pub(super) const CGROUP: u32 = 1 << 8;
    pub(super) const QUEUE: u32 = 1;
    pub(super) const GET_REQUEST: u32 = 4;
    pub(super) const REQUEUE: u32 = 6;
    pub(super) const ISSUE: u32 = 7;
    pub(super) const COMPLETE: u32 = 8;
    pub(super) const INSERT: u32 = 12;
}

/// The event's category: bits of the high half.
mod category {
    pub(super) const READ: u32 = 1 << 16;
    pub(super) const WRITE: u32 = 1 << 17;
    pub(super) const FLUSH: u32 = 1 << 18;
    pub(super) const QUEUE: u32 = 1 << 20;
    pub(super) const ISSUE: u32 = 1 << 22;
    pub(super) const COMPLETE: u32 = 1 << 23;
    pub(super) const FS: u32 = 1 << 24;
    pub(super) const NOTIFY: u32 = 1 << 26;
    pub(super) const DISCARD: u32 = 1 << 29;
    pub(super) const FUA: u32 = 1 << 31;
}

/// Whether a file begins with such an event, of either byte order.
pub(super) fn begins(bytes: &[u8]) -> bool {
    byte_order(bytes).is_some()
}

fn byte_order(bytes: &[u8]) -> Option<Order> {
    let magic: [u8; 4] = bytes.get(..4)?.try_into().ok()?;
    if u32::from_le_bytes(magic) == MAGIC | VERSION {
        Some(Order::Little)
    } else if u32::from_be_bytes(magic) == MAGIC | VERSION {
        Some(Order::Big)
    } else {
        None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

#[derive(Debug, Default)]
pub(in super::super) struct BlktraceDecoder;

impl BlktraceDecoder {
    /// Length of the first event, once enough of it was read.
    pub(in super::super) fn next_len(&self, bytes: &[u8]) -> Result<Option<usize>, Problem> {
        if bytes.len() < EVENT_BYTES {
            return Ok(None);
        }
        let wrong = || format!("it does not begin with an event's magic number and version {VERSION}");
        let order = byte_order(bytes).ok_or_else(wrong)?;
        let len = EVENT_BYTES + usize::from(u16_at(order, bytes, 46));
        Ok((bytes.len() >= len).then_some(len))
    }

    pub(in super::super) fn event(
        &mut self,
        bytes: &[u8],
        sink: &mut Sink,
        records: &mut Vec<RequestRecord>,
    ) -> Result<(), Problem> {
        let order = byte_order(bytes).ok_or("no event")?;
        let (at_ns, lba) = (u64_at(order, bytes, 8), u64_at(order, bytes, 16));
        let [len_bytes, what, process, device] = [24, 28, 32, 36].map(|at| u32_at(order, bytes, at));
        let is = |bit: u32| what & bit != 0;
        let kind = match what & 0xffff & !action::CGROUP {
            _ if is(category::NOTIFY) => None,
            action::QUEUE => Some(Kind::Queue),
            action::ISSUE => Some(Kind::Issue),
            action::REQUEUE => Some(Kind::Requeue),
            action::COMPLETE => Some(Kind::Complete),
            _ => None,
        };
        let op = if is(category::DISCARD) {
            Some(Op::Discard)
        } else if len_bytes == 0 {
            is(category::FLUSH).then_some(Op::Flush)
        } else if is(category::WRITE) {
            Some(Op::Write)
        } else {
            is(category::READ).then_some(Op::Read)
        };
        let (Some(kind), Some(op)) = (kind, op) else {
            sink.skip();
            return Ok(());
        };
        if op == Op::Discard && len_bytes == 0 {
            sink.skip();
            return Ok(());
        }
        // The kernel's internal form: 20 bits of minor number.
        let volume = format!("{},{}", device >> 20, device & 0xf_ffff);
        let sectors = u64::from(len_bytes).div_ceil(512);
        let (fua, preflush) = (is(category::FUA) && op != Op::Flush, is(category::FLUSH));
        let event = Event { kind, at_ns, volume: &volume, op, fua, preflush, lba, sectors, issuer: process };
        sink.event(event, records)
    }
}

fn u16_at(order: Order, bytes: &[u8], at: usize) -> u16 {
    let field = bytes[at..at + 2].try_into().expect("two bytes");
    if order == Order::Little { u16::from_le_bytes(field) } else { u16::from_be_bytes(field) }
}

fn u32_at(order: Order, bytes: &[u8], at: usize) -> u32 {
    let field = bytes[at..at + 4].try_into().expect("four bytes");
    if order == Order::Little { u32::from_le_bytes(field) } else { u32::from_be_bytes(field) }
}

fn u64_at(order: Order, bytes: &[u8], at: usize) -> u64 {
    let field = bytes[at..at + 8].try_into().expect("eight bytes");
    if order == Order::Little { u64::from_le_bytes(field) } else { u64::from_be_bytes(field) }
}

/// Writes the events of each request, as a little-endian machine of one processor does: tools that read traces need
/// more than the issue. fio takes requests from queue events, and btt measures from each event to the next.
#[derive(Debug, Default)]
pub(super) struct BlktraceEncoder {
    sequence: u32,
}

impl Encoder for BlktraceEncoder {
    fn record(&mut self, record: &RequestRecord, info: &TraceInfo, out: &mut Vec<u8>) -> bool {
        let kind = match record.op {
            Op::Read => category::READ,
            Op::Write => category::WRITE,
            Op::Discard => category::WRITE | category::DISCARD,
            // As in the kernel, whose operation for a flush is not a write.
            Op::Flush => category::READ | category::FLUSH,
            _ => return false,
        };
        let kind = category::FS | kind | if record.fua { category::FUA } else { 0 };
        let volume = volume_of(record, info);
        let numbers =
            volume.split_once(',').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (major, minor): (u32, u32) = numbers.unwrap_or((259, u32::from(record.device)));
        let device = major << 20 | minor & 0xf_ffff;
        let mut event = |what: u32, ns: u64| {
            self.sequence = self.sequence.wrapping_add(1);
            out.extend((MAGIC | VERSION).to_le_bytes());
            out.extend(self.sequence.to_le_bytes());
            out.extend(ns.to_le_bytes());
            out.extend(record.lba.0.to_le_bytes());
            out.extend((record.sectors.saturating_mul(512)).to_le_bytes());
            out.extend(what.to_le_bytes());
            out.extend(record.issuer.to_le_bytes());
            out.extend(device.to_le_bytes());
            // Processor, error, length of the additional bytes.
            out.extend([0; 8]);
        };
        for what in [
            category::QUEUE | action::QUEUE,
            category::QUEUE | action::GET_REQUEST,
            category::QUEUE | action::INSERT,
            category::ISSUE | action::ISSUE,
        ] {
            event(kind | what, record.arrival.as_nanos());
        }
        if record.is_completed() {
            event(kind | category::COMPLETE | action::COMPLETE, record.completed.as_nanos());
        }
        true
    }
}
