//! Request pages and answer pages, by which a program in the guest uses interface extensions.
//!
//! Their formats are in `docs/request-pages.md`. A program may write anything, so that pages are read with all
//! bounds checked.

use chronodisk_device::{BackgroundDone, BackgroundRead, BackgroundTime};
use chronodisk_sim::{Lba, SECTOR_BYTES};

/// Bytes of a page.
pub(super) const PAGE_BYTES: usize = 4_096;
/// Sectors of a page.
pub(super) const PAGE_SECTORS: u64 = PAGE_BYTES as u64 / SECTOR_BYTES;

const REQUEST_MAGIC: &[u8; 16] = b"Chronodisk ask\0\0";
const ANSWER_MAGIC: &[u8; 16] = b"Chronodisk reply";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = PAGE_BYTES - 4;
const RANGES_AT: usize = 32;
const READS_AT: usize = 40;
const RANGE_BYTES: usize = 16;
const PLACE_BYTES: usize = 8;
const READ_BYTES: usize = 24;

/// Most ranges of a request for background reads.
const RANGES_MAX: usize = (CHECKSUM_AT - RANGES_AT) / RANGE_BYTES;
/// Most places of a write.
const PLACES_MAX: usize = (CHECKSUM_AT - RANGES_AT) / PLACE_BYTES;
/// Most background reads of an answer.
pub(super) const READS_MAX: usize = (CHECKSUM_AT - READS_AT) / READ_BYTES;

/// The request of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageRequest {
    /// Background reads.
    Want(BackgroundRead),
    /// The background reads that the device has done.
    Take,
    /// The next write to the first of these places may go to any of them.
    Anywhere(Vec<Lba>),
    /// A page with a fault.
    Malformed,
}

impl PageRequest {
    /// Reads a page; `None` if it is not a request page, or its checksum is wrong.
    pub(super) fn read(page: &[u8]) -> Option<PageRequest> {
        let is_request = page.len() == PAGE_BYTES && page.starts_with(REQUEST_MAGIC);
        if !is_request || u32_at(page, CHECKSUM_AT) != crc32fast::hash(&page[..CHECKSUM_AT]) {
            return None;
        }
        let count = u32_at(page, 24) as usize;
        Some(match (u32_at(page, 16), u32_at(page, 20)) {
            (VERSION, 1) => PageRequest::want(page, count, BackgroundTime::Gaps),
            (VERSION, 2) => PageRequest::want(page, count, BackgroundTime::GapsAndRest),
            (VERSION, 3) if count == 0 => PageRequest::Take,
            (VERSION, 4) if (1..=PLACES_MAX).contains(&count) => PageRequest::Anywhere(
                (0..count).map(|index| Lba(u64_at(page, RANGES_AT + PLACE_BYTES * index))).collect(),
            ),
            _ => PageRequest::Malformed,
        })
    }

    fn want(page: &[u8], count: usize, when: BackgroundTime) -> PageRequest {
        if !(1..=RANGES_MAX).contains(&count) {
            return PageRequest::Malformed;
        }
        let range = |index: usize| {
            let at = RANGES_AT + RANGE_BYTES * index;
            let first = u64_at(page, at);
            Some(first..first.checked_add(u64_at(page, at + 8))?)
        };
        let ranges: Option<_> = (0..count).map(range).collect();
        ranges.map_or(PageRequest::Malformed, |ranges| PageRequest::Want(BackgroundRead { ranges, when }))
    }
}

/// How a device answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It does.
    Done = 0,
    /// Its model has no such requests.
    Unsupported = 1,
    /// The page has a fault, or names sectors that the device does not have.
    Malformed = 2,
    /// The write has not arrived yet.
    Waiting = 3,
}

/// An answer without figures.
pub(super) fn answer(outcome: Outcome) -> Box<[u8; PAGE_BYTES]> {
    answer_of(outcome, 0, 0, &[])
}

/// The place of a write.
pub(super) fn answer_with_place(place: Lba) -> Box<[u8; PAGE_BYTES]> {
    answer_of(Outcome::Done, 0, place.0, &[])
}

/// Up to [`READS_MAX`] background reads, how many others there are, and how many sectors are still wanted.
pub(super) fn answer_with_reads(reads: &[BackgroundDone], others: usize, wanted_sectors: u64) -> Box<[u8; PAGE_BYTES]> {
    answer_of(Outcome::Done, u32::try_from(others).unwrap_or(u32::MAX), wanted_sectors, reads)
}

fn answer_of(outcome: Outcome, others: u32, figure: u64, reads: &[BackgroundDone]) -> Box<[u8; PAGE_BYTES]> {
    let mut page = Box::new([0; PAGE_BYTES]);
    page[..16].copy_from_slice(ANSWER_MAGIC);
    for (at, number) in [(16, VERSION), (20, outcome as u32), (24, reads.len() as u32), (28, others)] {
        page[at..at + 4].copy_from_slice(&number.to_le_bytes());
    }
    page[32..40].copy_from_slice(&figure.to_le_bytes());
    for (read, bytes) in reads.iter().zip(page[READS_AT..CHECKSUM_AT].chunks_exact_mut(READ_BYTES)) {
        bytes[..8].copy_from_slice(&read.lba.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&u64::from(read.sectors).to_le_bytes());
        bytes[16..].copy_from_slice(&read.at.as_nanos().to_le_bytes());
    }
    let checksum = crc32fast::hash(&page[..CHECKSUM_AT]);
    page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    page
}

fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// A request page with these numbers from byte 32 on.
#[cfg(test)]
pub(super) fn request_page(kind: u32, count: u32, numbers: &[u64]) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    page[..16].copy_from_slice(REQUEST_MAGIC);
    for (at, number) in [(16, VERSION), (20, kind), (24, count)] {
        page[at..at + 4].copy_from_slice(&u32::to_le_bytes(number));
    }
    for (number, bytes) in numbers.iter().zip(page[RANGES_AT..CHECKSUM_AT].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&number.to_le_bytes());
    }
    let checksum = crc32fast::hash(&page[..CHECKSUM_AT]);
    page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    page
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::Nanos;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pages_ask_for_what_they_name() {
        let want = |when| PageRequest::Want(BackgroundRead { ranges: vec![8..24, 100..101], when });
        let gaps = request_page(1, 2, &[8, 16, 100, 1]);
        assert_eq!(PageRequest::read(&gaps), Some(want(BackgroundTime::Gaps)));
        assert_eq!(PageRequest::read(&request_page(2, 2, &[8, 16, 100, 1])), Some(want(BackgroundTime::GapsAndRest)));
        assert_eq!(PageRequest::read(&request_page(3, 0, &[])), Some(PageRequest::Take));
        assert_eq!(
            PageRequest::read(&request_page(4, 2, &[80, 8])),
            Some(PageRequest::Anywhere(vec![Lba(80), Lba(8)]))
        );
        assert_eq!(PageRequest::read(&gaps[..PAGE_BYTES - 1]), None);
        let mut damaged = gaps;
        damaged[40] ^= 1;
        assert_eq!(PageRequest::read(&damaged), None);
    }

    #[test]
    fn pages_with_faults_are_malformed() {
        let faults = [(0, 0), (1, 0), (2, 254), (3, 1), (4, 0), (4, 508), (5, 1), (u32::MAX, u32::MAX)];
        for (kind, count) in faults {
            assert_eq!(
                PageRequest::read(&request_page(kind, count, &[])),
                Some(PageRequest::Malformed),
                "{kind} {count}"
            );
        }
        assert_eq!(PageRequest::read(&request_page(1, 1, &[u64::MAX, 1])), Some(PageRequest::Malformed));
    }

    #[test]
    fn answers_are_what_the_page_documents() {
        let read = |lba, sectors, at| BackgroundDone { lba: Lba(lba), sectors, at: Nanos::from_nanos(at) };
        let page = answer_with_reads(&[read(7, 3, 1_000), read(64, 8, 2_000)], 5, 99);
        assert!(page.starts_with(b"Chronodisk reply"));
        assert_eq!([16, 20, 24, 28].map(|at| u32_at(&page[..], at)), [1, 0, 2, 5]);
        assert_eq!([32, 40, 48, 56, 64, 72, 80].map(|at| u64_at(&page[..], at)), [99, 7, 3, 1_000, 64, 8, 2_000]);
        assert_eq!(u32_at(&page[..], CHECKSUM_AT), crc32fast::hash(&page[..CHECKSUM_AT]));
        assert_eq!(u32_at(&answer(Outcome::Waiting)[..], 20), 3);
        assert_eq!(u64_at(&answer_with_place(Lba(12))[..], 32), 12);
    }

    proptest! {
        #[test]
        fn no_page_is_too_strange(
            kind in 0_u32..6,
            count: u32,
            numbers in prop::collection::vec(any::<u64>(), 0..508),
        ) {
            PageRequest::read(&request_page(kind, count, &numbers));
            PageRequest::read(&request_page(kind, count % 509, &numbers));
        }
    }
}
