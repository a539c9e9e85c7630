//! `MODE SENSE` and `MODE SELECT`: the pages of caching and of control.

use super::unit::{LogicalUnit, has_mode_page};
use super::wire::{mode_page, number};
use super::{ModeSense, Sense};

/// `WCE`, in the third byte of the caching page.
const WRITE_CACHE_ENABLED: u8 = 0x04;
/// `WP` and `DPOFUA`, in the device-specific parameter.
const WRITE_PROTECTED: u8 = 0x80;
const DPO_AND_FUA: u8 = 0x10;

/// Values of the field `PC`.
const CHANGEABLE: u8 = 1;
const DEFAULT: u8 = 2;
const SAVED: u8 = 3;

/// The answer to `MODE SENSE`.
pub(crate) fn sense(unit: &LogicalUnit, asked: &ModeSense) -> Result<Vec<u8>, Sense> {
    if asked.control == SAVED {
        return Err(Sense::SAVING_NOT_SUPPORTED);
    }
    if !has_mode_page(asked.page, asked.subpage) {
        // The subpage, if the page alone would do.
        return Err(Sense::in_command(if has_mode_page(asked.page, 0) { 3 } else { 2 }));
    }
    let is_asked = |page| asked.page == page || asked.page == mode_page::ALL;
    let mut pages = Vec::new();
    if is_asked(mode_page::CACHING) {
        pages.extend(caching(unit, asked.control));
    }
    if is_asked(mode_page::CONTROL) {
        pages.extend(control(asked.control));
    }
    let descriptor = if asked.no_descriptor { Vec::new() } else { block_descriptor(unit, asked.long_descriptor) };
    let is_long = asked.long_descriptor && !descriptor.is_empty();
    let parameter = DPO_AND_FUA | if unit.description().read_only { WRITE_PROTECTED } else { 0 };
    let header_bytes = if asked.long { 8 } else { 4 };
    let mut bytes = vec![0; header_bytes];
    let total = header_bytes + descriptor.len() + pages.len();
    if asked.long {
        bytes[..2].copy_from_slice(&((total - 2) as u16).to_be_bytes());
        (bytes[3], bytes[4]) = (parameter, u8::from(is_long));
        bytes[6..8].copy_from_slice(&(descriptor.len() as u16).to_be_bytes());
    } else {
        // All pages are shorter than 255 bytes together.
        bytes[0] = (total - 1) as u8;
        (bytes[2], bytes[3]) = (parameter, descriptor.len() as u8);
    }
    bytes.extend(descriptor);
    bytes.extend(pages);
    Ok(bytes)
}

/// The value for the bit `WCE` in the parameters of `MODE SELECT`; `None` without a page of caching.
pub(crate) fn selected_write_cache(unit: &LogicalUnit, long: bool, parameters: &[u8]) -> Result<Option<bool>, Sense> {
    if parameters.is_empty() {
        return Ok(None);
    }
    let header_bytes = if long { 8 } else { 4 };
    let header = parameters.get(..header_bytes).ok_or(Sense::PARAMETER_LENGTH)?;
    let is_long = long && header[4] & 1 != 0;
    let descriptor_bytes = if long { number(&header[6..8]) as usize } else { header[3].into() };
    let pages = header_bytes + descriptor_bytes;
    let descriptor = parameters.get(header_bytes..pages).ok_or(Sense::PARAMETER_LENGTH)?;
    if !descriptor.is_empty() && !describes(unit, is_long, descriptor) {
        return Err(Sense::in_parameters(header_bytes as u16));
    }
    let mut rest = &parameters[pages..];
    let mut place = pages;
    let mut selected = None;
    while !rest.is_empty() {
        let &[code, len, ..] = rest else { return Err(Sense::PARAMETER_LENGTH) };
        let page_bytes = 2 + usize::from(len);
        // `PS` is reserved here.
        let current = match code & 0x7F {
            mode_page::CACHING => caching(unit, 0),
            mode_page::CONTROL => control(0),
            _ => return Err(Sense::in_parameters(place as u16)),
        };
        if page_bytes != current.len() {
            return Err(Sense::in_parameters(place as u16 + 1));
        }
        let page = rest.get(..page_bytes).ok_or(Sense::PARAMETER_LENGTH)?;
        let changeable = match code & 0x7F {
            mode_page::CACHING => caching(unit, CHANGEABLE),
            _ => control(CHANGEABLE),
        };
        let differs = |index: &usize| (page[*index] ^ current[*index]) & !changeable[*index] != 0;
        if let Some(index) = (2..page_bytes).find(differs) {
            return Err(Sense::in_parameters((place + index) as u16));
        }
        if code & 0x7F == mode_page::CACHING {
            selected = Some(page[2] & WRITE_CACHE_ENABLED != 0);
        }
        rest = &rest[page_bytes..];
        place += page_bytes;
    }
    Ok(selected)
}

/// The caching page; SBC-3, 6.4.5.
fn caching(unit: &LogicalUnit, control: u8) -> Vec<u8> {
    let mut page = vec![0; 20];
    (page[0], page[1]) = (mode_page::CACHING, 18);
    let is_on = match control {
        CHANGEABLE | DEFAULT => unit.description().volatile_cache,
        _ => unit.has_write_cache(),
    };
    page[2] = if is_on { WRITE_CACHE_ENABLED } else { 0 };
    page
}

/// The control page; SPC-4, 7.5.8.
fn control(control: u8) -> Vec<u8> {
    let mut page = vec![0; 12];
    (page[0], page[1]) = (mode_page::CONTROL, 10);
    if control != CHANGEABLE {
        // A task set for each initiator (`TST`).
        page[2] = 1 << 5;
        // Commands that another initiator's reset aborts are answered (`TAS`).
        page[5] = 0x40;
    }
    page
}

/// Number and size of the blocks; SBC-3, 6.4.2.
fn block_descriptor(unit: &LogicalUnit, long: bool) -> Vec<u8> {
    let block_bytes = unit.description().block_bytes;
    if long {
        let mut bytes = unit.blocks().to_be_bytes().to_vec();
        bytes.extend([0; 4]);
        bytes.extend(block_bytes.to_be_bytes());
        return bytes;
    }
    let mut bytes = u32::try_from(unit.blocks()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    // The first byte of this number is reserved; a block has fewer than 2^24 bytes.
    bytes.extend(block_bytes.to_be_bytes());
    bytes
}

/// Whether a block descriptor leaves number and size as they are.
fn describes(unit: &LogicalUnit, long: bool, descriptor: &[u8]) -> bool {
    let current = block_descriptor(unit, long);
    let (count, size) = if long { (0..8, 12..16) } else { (0..4, 5..8) };
    descriptor.len() == current.len()
        && descriptor[size.clone()] == current[size]
        && (descriptor[count.clone()] == current[count.clone()] || descriptor[count].iter().all(|byte| *byte == 0))
}
