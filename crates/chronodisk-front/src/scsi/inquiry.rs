//! `INQUIRY`: standard data and pages of vital product data.

use super::unit::UnitDescription;
use super::wire::vital;
use super::{Sense, TRANSFER_BYTES_MAX, UNMAP_BYTES_MAX};

/// The field `T10 VENDOR IDENTIFICATION`.
const VENDOR: &[u8; 8] = b"CHRONODK";
/// The field `PRODUCT REVISION LEVEL`: the version without its last number.
const REVISION: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));
/// Bytes of the standard data.
const STANDARD_BYTES: usize = 96;
/// Version descriptors: SAM-5, SPC-4, SBC-3, iSCSI; SPC-4, 6.6.2.
const VERSIONS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];
/// Bytes of an optimal transfer.
const OPTIMAL_BYTES: u32 = 1 << 20;
/// Bytes of the pages of block limits and of characteristics, without the header.
const LIMITS_BYTES: usize = 0x3C;

/// Peripheral qualifier and type of a unit that does not exist; the first byte of the standard data.
pub const NO_UNIT: u8 = 0x7F;

/// Standard data; SPC-4, 6.6.2.
pub(crate) fn standard(description: &UnitDescription) -> Vec<u8> {
    let mut bytes = vec![0; STANDARD_BYTES];
    // SPC-4.
    bytes[2] = 0x06;
    // The response format, and hierarchical addresses of units (`HISUP`).
    bytes[3] = 0x12;
    bytes[4] = (STANDARD_BYTES - 5) as u8;
    // Queueing (`CMDQUE`).
    bytes[7] = 0x02;
    bytes[8..16].copy_from_slice(VENDOR);
    fill_text(&mut bytes[16..32], &description.product);
    fill_text(&mut bytes[32..36], REVISION);
    for (place, version) in bytes[58..].chunks_exact_mut(2).zip(VERSIONS) {
        place.copy_from_slice(&version.to_be_bytes());
    }
    bytes
}

/// A page of vital product data.
pub(crate) fn vital(description: &UnitDescription, page: u8) -> Result<Vec<u8>, Sense> {
    let body = match page {
        vital::SUPPORTED_PAGES => vital::ALL.to_vec(),
        vital::SERIAL_NUMBER => serial_number(description).into_bytes(),
        vital::IDENTIFICATION => identification(description),
        vital::BLOCK_LIMITS => block_limits(description),
        vital::CHARACTERISTICS => {
            let mut body = vec![0; LIMITS_BYTES];
            // The rotation rate: not reported, or a medium that does not turn.
            body[1] = u8::from(!description.rotational);
            body
        }
        vital::PROVISIONING => provisioning(description),
        _ => return Err(Sense::in_command(2)),
    };
    let mut bytes = vec![0, page];
    bytes.extend((body.len() as u16).to_be_bytes());
    bytes.extend(body);
    Ok(bytes)
}

fn serial_number(description: &UnitDescription) -> String {
    format!("{:016x}", description.identity)
}

/// Designators; SPC-4, 7.8.6.
fn identification(description: &UnitDescription) -> Vec<u8> {
    const BINARY: u8 = 1;
    const ASCII: u8 = 2;
    const UTF_8: u8 = 3;
    /// The designator is the unit's, the port's or the target's; the protocol iSCSI is stated with both latter ones.
    const PORT: u8 = 0x80 | 1 << 4;
    const TARGET: u8 = 0x80 | 2 << 4;
    const ISCSI: u8 = 5 << 4;
    let mut bytes = Vec::new();
    // Locally assigned (NAA 3h).
    let number = 3 << 60 | description.identity & (u64::MAX >> 4);
    designator(&mut bytes, BINARY, 3, &number.to_be_bytes());
    let vendor = [&VENDOR[..], serial_number(description).as_bytes()].concat();
    designator(&mut bytes, ASCII, 1, &vendor);
    let name = &description.target_name;
    designator(&mut bytes, ISCSI | BINARY, PORT | 4, &[0, 0, 0, 1]);
    designator(&mut bytes, ISCSI | UTF_8, PORT | 8, &terminated(&format!("{name},t,0x0001")));
    designator(&mut bytes, ISCSI | UTF_8, TARGET | 8, &terminated(name));
    bytes
}

fn designator(bytes: &mut Vec<u8>, code_set: u8, kind: u8, designator: &[u8]) {
    // Names are bounded by the description's maker.
    let len = designator.len().min(252);
    bytes.extend([code_set, kind, 0, len as u8]);
    bytes.extend(&designator[..len]);
}

/// A name with its terminating zero, padded to a multiple of four bytes.
fn terminated(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((bytes.len() + 4) & !3, 0);
    bytes
}

/// Block limits; SBC-3, 6.5.3. The places are those of the page without its header.
fn block_limits(description: &UnitDescription) -> Vec<u8> {
    let block_bytes = description.block_bytes;
    let mut body = vec![0; LIMITS_BYTES];
    let mut put = |place: usize, number: u32| body[place..place + 4].copy_from_slice(&number.to_be_bytes());
    put(4, TRANSFER_BYTES_MAX / block_bytes);
    put(8, OPTIMAL_BYTES / block_bytes);
    if let Some(discard_bytes) = description.discard_bytes {
        put(16, UNMAP_BYTES_MAX / block_bytes);
        // One range in a command.
        put(20, 1);
        put(24, (discard_bytes / block_bytes).max(1));
        // The first unit begins at block 0 (`UGAVALID`).
        put(28, 1 << 31);
    }
    // 64 bits.
    put(36, TRANSFER_BYTES_MAX / block_bytes);
    // A number of blocks of zero is refused by `WRITE SAME` (`WSNZ`).
    body[0] = 1;
    let granularity = (description.physical_block_bytes / block_bytes).clamp(1, u16::MAX.into()) as u16;
    body[2..4].copy_from_slice(&granularity.to_be_bytes());
    body
}

/// Logical block provisioning; SBC-3, 6.5.4.
fn provisioning(description: &UnitDescription) -> Vec<u8> {
    if description.discard_bytes.is_none() {
        return vec![0; 4];
    }
    // `LBPU`, `LBPWS` and `LBPWS10`, `LBPRZ`; thin provisioning.
    let zeroes = if description.zeroes_after_discard { 0x04 } else { 0 };
    vec![0, 0xE0 | zeroes, 2, 0]
}

/// Left-aligned printable ASCII, padded with spaces.
fn fill_text(place: &mut [u8], text: &str) {
    place.fill(b' ');
    let bytes = text.bytes().map(|byte| if (0x20..0x7F).contains(&byte) { byte } else { b'?' });
    place.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
}
