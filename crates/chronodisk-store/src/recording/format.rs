//! The entries of a recording as bytes.

use chronodisk_sim::{Lba, Nanos, Op, Priority, Request, RequestId, SECTOR_BYTES, Status};

use super::{Change, RecordedDevice, RecordedEntry};

/// First bytes of a recording.
pub const MAGIC: [u8; 16] = *b"chronodisk-store";
/// Version of the format.
pub const VERSION: u32 = 1;

pub(super) const HEADER_BYTES: usize = 32;
/// Kind, length and checksum of an entry.
pub(super) const HEAD_BYTES: usize = 9;
/// No device receives longer requests.
pub(super) const PAYLOAD_BYTES_MAX: u32 = 1 << 30;

const WRITE: u8 = 1;
const WRITE_ZEROES: u8 = 2;
const RESERVE_ZEROES: u8 = 3;
const DISCARD: u8 = 4;
const FLUSH: u8 = 5;
const ARRIVAL: u8 = 6;
const COMPLETION: u8 = 7;
const END: u8 = 8;

const ARRIVAL_BYTES: usize = 38;
const COMPLETION_BYTES: usize = 17;

/// An entry, or the end of the recording.
pub(super) enum Decoded {
    Entry(RecordedEntry),
    /// Number of the entries before the end.
    End(u64),
}

pub(super) fn header(device: &RecordedDevice) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..16].copy_from_slice(&MAGIC);
    bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
    bytes[20..24].copy_from_slice(&device.logical_block_bytes.to_le_bytes());
    bytes[24..32].copy_from_slice(&device.capacity_bytes.to_le_bytes());
    bytes
}

/// The device of a header. An error names the field, and its found and expected values.
pub(super) fn device_of(header: &[u8; HEADER_BYTES]) -> Result<RecordedDevice, String> {
    if header[..16] != MAGIC {
        let found = header[..16].escape_ascii();
        return Err(format!("the magic is \"{found}\"; expected \"{}\"", MAGIC.escape_ascii()));
    }
    let version = u32_at(header, 16);
    if version != VERSION {
        return Err(format!("the version is {version}; expected {VERSION}"));
    }
    let (logical_block_bytes, capacity_bytes) = (u32_at(header, 20), u64_at(header, 24));
    if !logical_block_bytes.is_power_of_two() || u64::from(logical_block_bytes) < SECTOR_BYTES {
        return Err(format!("the logical block has {logical_block_bytes} bytes; expected a power of two from 512"));
    }
    if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(SECTOR_BYTES) || capacity_bytes > i64::MAX as u64 {
        return Err(format!("the capacity is {capacity_bytes} bytes; expected a multiple of 512 below 2^63"));
    }
    Ok(RecordedDevice { capacity_bytes, logical_block_bytes })
}

/// Kind, fixed part of the payload, and data.
pub(super) type Encoded<'a> = (u8, Vec<u8>, &'a [u8]);

pub(super) fn write(offset_bytes: u64, bytes: &[u8]) -> Encoded<'_> {
    (WRITE, offset_bytes.to_le_bytes().to_vec(), bytes)
}

pub(super) fn change(change: &Change) -> Encoded<'_> {
    let range = |kind, offset_bytes: u64, len_bytes: u64| {
        (kind, [offset_bytes.to_le_bytes(), len_bytes.to_le_bytes()].concat(), &[][..])
    };
    match change {
        Change::Write(offset_bytes, bytes) => write(*offset_bytes, bytes),
        Change::WriteZeroes(offset_bytes, len_bytes) => range(WRITE_ZEROES, *offset_bytes, *len_bytes),
        Change::ReserveZeroes(offset_bytes, len_bytes) => range(RESERVE_ZEROES, *offset_bytes, *len_bytes),
        Change::Discard(offset_bytes, len_bytes) => range(DISCARD, *offset_bytes, *len_bytes),
        Change::Flush => (FLUSH, Vec::new(), &[]),
    }
}

pub(super) fn arrival(request: &Request, at: Nanos, failed: bool) -> Encoded<'static> {
    let mut bytes = Vec::with_capacity(ARRIVAL_BYTES);
    for number in [request.id.0, at.as_nanos(), request.lba.0] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(request.sectors.to_le_bytes());
    bytes.extend(request.issuer.to_le_bytes());
    bytes.extend(request.queue.to_le_bytes());
    bytes.extend([code(&Op::ALL, request.op), code(&Priority::ALL, request.priority)]);
    bytes.extend([u8::from(request.fua), u8::from(failed)]);
    (ARRIVAL, bytes, &[])
}

pub(super) fn completion(id: RequestId, at: Nanos, status: Status) -> Encoded<'static> {
    let mut bytes = [id.0.to_le_bytes(), at.as_nanos().to_le_bytes()].concat();
    bytes.push(code(&Status::ALL, status));
    (COMPLETION, bytes, &[])
}

pub(super) fn end(entries: u64) -> Encoded<'static> {
    (END, entries.to_le_bytes().to_vec(), &[])
}

/// The checksum of an entry.
pub(super) fn checksum(kind: u8, len_bytes: u32, parts: [&[u8]; 2]) -> u32 {
    let head = crc32c::crc32c_append(crc32c::crc32c(&[kind]), &len_bytes.to_le_bytes());
    parts.into_iter().fold(head, crc32c::crc32c_append)
}

/// Decodes a payload. An error names the found and the expected value.
pub(super) fn decode(kind: u8, payload: &[u8], device: &RecordedDevice) -> Result<Decoded, String> {
    let change = |change| Ok(Decoded::Entry(RecordedEntry::Change(change)));
    let exactly = |len: usize| match payload.len() == len {
        true => Ok(()),
        false => Err(format!("the payload of kind {kind} has {} bytes; expected {len}", payload.len())),
    };
    let range = || -> Result<(u64, u64), String> {
        exactly(16)?;
        let (offset_bytes, len_bytes) = (u64_at(payload, 0), u64_at(payload, 8));
        expect_inside(offset_bytes, len_bytes, device)?;
        Ok((offset_bytes, len_bytes))
    };
    match kind {
        WRITE => {
            let Some((offset, bytes)) = payload.split_at_checked(8) else {
                return Err(format!("the payload of a write has {} bytes; expected at least 8", payload.len()));
            };
            let offset_bytes = u64_at(offset, 0);
            expect_inside(offset_bytes, bytes.len() as u64, device)?;
            change(Change::Write(offset_bytes, bytes.to_vec()))
        }
        WRITE_ZEROES => range().and_then(|(offset, len)| change(Change::WriteZeroes(offset, len))),
        RESERVE_ZEROES => range().and_then(|(offset, len)| change(Change::ReserveZeroes(offset, len))),
        DISCARD => range().and_then(|(offset, len)| change(Change::Discard(offset, len))),
        FLUSH => exactly(0).and_then(|()| change(Change::Flush)),
        ARRIVAL => exactly(ARRIVAL_BYTES).and_then(|()| decode_arrival(payload, device)).map(Decoded::Entry),
        COMPLETION => exactly(COMPLETION_BYTES).and_then(|()| decode_completion(payload)).map(Decoded::Entry),
        END => exactly(8).map(|()| Decoded::End(u64_at(payload, 0))),
        _ => Err(format!("the entry has kind {kind}; expected 1 to {END}")),
    }
}

fn decode_arrival(payload: &[u8], device: &RecordedDevice) -> Result<RecordedEntry, String> {
    let request = Request {
        id: RequestId(u64_at(payload, 0)),
        op: named(&Op::ALL, payload[34], "operation")?,
        lba: Lba(u64_at(payload, 16)),
        sectors: u32_at(payload, 24),
        fua: flag(payload[36], "FUA")?,
        priority: named(&Priority::ALL, payload[35], "priority")?,
        queue: u16::from_le_bytes([payload[32], payload[33]]),
        issuer: u32_at(payload, 28),
    };
    let offset_bytes = request.lba.0.checked_mul(SECTOR_BYTES).ok_or("the first sector exceeds the device")?;
    expect_inside(offset_bytes, request.len_bytes(), device)?;
    let (at, failed) = (Nanos::from_nanos(u64_at(payload, 8)), flag(payload[37], "failure of the store")?);
    Ok(RecordedEntry::Arrival { request, at, failed })
}

fn decode_completion(payload: &[u8]) -> Result<RecordedEntry, String> {
    let status = named(&Status::ALL, payload[16], "status")?;
    let (id, at) = (RequestId(u64_at(payload, 0)), Nanos::from_nanos(u64_at(payload, 8)));
    Ok(RecordedEntry::Completion { id, at, status })
}

fn expect_inside(offset_bytes: u64, len_bytes: u64, device: &RecordedDevice) -> Result<(), String> {
    match offset_bytes.checked_add(len_bytes) {
        Some(end_bytes) if end_bytes <= device.capacity_bytes => Ok(()),
        _ => Err(format!(
            "the range has {len_bytes} bytes from byte {offset_bytes} on; expected an end within {} bytes",
            device.capacity_bytes
        )),
    }
}

fn code<T: PartialEq>(all: &[T], value: T) -> u8 {
    all.iter().position(|known| *known == value).expect("every value is in the list") as u8
}

fn named<T: Copy>(all: &[T], code: u8, field: &str) -> Result<T, String> {
    all.get(usize::from(code))
        .copied()
        .ok_or_else(|| format!("the {field} has code {code}; expected 0 to {}", all.len() - 1))
}

fn flag(byte: u8, field: &str) -> Result<bool, String> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(format!("the flag {field} is {byte}; expected 0 or 1")),
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
