//! Notices: marker pages, by which a program states which pages must be kept and which need not be.
//!
//! A notice is a page that the program writes to the device like any other, in a file of its own, before the pages to
//! which it refers. So it needs no further interface to the store, works through every front end, and arrives in order.
//! It names pages by their checksums, as David's explicit notification does (section 3.1.3 of the paper).

use std::collections::{BTreeMap, VecDeque};

use chronodisk_store::is_zero;
use twox_hash::XxHash64;

use super::UNIT_BYTES;
use super::bytes::{u32_at, u64_at};
use super::class::Class;
use super::classifier::{Judged, Verdict};
use super::units::VolumeUnit;

/// A program's mark of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The page is kept until it is overwritten or freed.
    Keep,
    /// The page is contents of a file, and need not wait for its classification.
    Data,
}

/// Begins every notice.
const MAGIC: &[u8; 16] = b"Chronodisk note\0";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 32;
const CHECKSUM_AT: usize = UNIT_BYTES as usize - 8;

/// A page that marks other pages; see the format in `docs/marker-pages.md`.
#[derive(Clone, Debug)]
pub struct Notice {
    page: Box<[u8]>,
    count: usize,
}

impl Notice {
    /// The most pages that one notice can mark.
    pub const PAGES_MAX: usize = (CHECKSUM_AT - HEADER_BYTES) / 8;

    /// A notice without marks.
    #[must_use]
    pub fn new(mark: Mark) -> Self {
        let mut page = vec![0; UNIT_BYTES as usize];
        page[..16].copy_from_slice(MAGIC);
        page[16..20].copy_from_slice(&VERSION.to_le_bytes());
        let code: u32 = match mark {
            Mark::Keep => 1,
            Mark::Data => 2,
        };
        page[20..24].copy_from_slice(&code.to_le_bytes());
        Notice { page: page.into(), count: 0 }
    }

    /// Marks a page of 4,096 bytes; a shorter one counts as filled up with zeros, as file systems do at a file's end.
    /// False if the notice is full.
    pub fn add(&mut self, page: &[u8]) -> bool {
        if self.count == Notice::PAGES_MAX {
            return false;
        }
        let mut whole = [0; UNIT_BYTES as usize];
        let len = page.len().min(whole.len());
        whole[..len].copy_from_slice(&page[..len]);
        let at = HEADER_BYTES + 8 * self.count;
        self.page[at..at + 8].copy_from_slice(&sum(&whole).to_le_bytes());
        self.count += 1;
        true
    }

    /// Bytes to write, at a multiple of 4,096 bytes of a file.
    #[must_use]
    pub fn page(&self) -> Vec<u8> {
        let mut page = self.page.to_vec();
        page[24..28].copy_from_slice(&(self.count as u32).to_le_bytes());
        let sum = sum(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        page
    }
}

fn sum(bytes: &[u8]) -> u64 {
    XxHash64::oneshot(0, bytes)
}

/// Parses a notice, if the page is one.
fn read(page: &[u8]) -> Option<(Mark, impl Iterator<Item = u64> + '_)> {
    if !page.starts_with(MAGIC) || u32_at(page, 16) != VERSION || sum(&page[..CHECKSUM_AT]) != u64_at(page, CHECKSUM_AT)
    {
        return None;
    }
    let mark = match u32_at(page, 20) {
        1 => Mark::Keep,
        2 => Mark::Data,
        _ => return None,
    };
    let count = u32_at(page, 24) as usize;
    (count <= Notice::PAGES_MAX).then(|| (mark, (0..count).map(|index| u64_at(page, HEADER_BYTES + 8 * index))))
}

/// The current marks. A mark is dropped after more than [`MARKS_MAX`] later ones.
#[derive(Debug)]
pub(crate) struct Notes {
    marks_max: usize,
    marks: BTreeMap<u64, Mark>,
    order: VecDeque<u64>,
    /// Notices that were read.
    pub(crate) notices: u64,
    /// Bytes that were dropped because of one.
    pub(crate) data_bytes: u64,
}

/// Marks of 4 GiB of pages, which take about 32 MiB.
pub(crate) const MARKS_MAX: usize = 1 << 20;

impl Notes {
    pub(crate) fn new(marks_max: usize) -> Self {
        Notes { marks_max, marks: BTreeMap::new(), order: VecDeque::new(), notices: 0, data_bytes: 0 }
    }

    /// Memory of the marks, in bytes, in a tree whose nodes are two thirds full when filled in order.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.marks.len() * size_of::<(u64, Mark)>() * 3 / 2 + self.order.capacity() * size_of::<u64>()) as u64
    }

    /// Looks for notices among whole pages.
    pub(crate) fn look_at(&mut self, pages: &[u8]) {
        for page in pages.chunks_exact(UNIT_BYTES as usize) {
            let Some((mark, sums)) = read(page) else { continue };
            self.notices += 1;
            for sum in sums {
                if self.marks.insert(sum, mark).is_none() {
                    self.order.push_back(sum);
                }
            }
            while self.order.len() > self.marks_max {
                let oldest = self.order.pop_front();
                oldest.map(|sum| self.marks.remove(&sum));
            }
        }
    }

    /// Applies marks to the verdicts on pages written from `unit` on; counts pages that are dropped because of a mark.
    pub(crate) fn hear(&mut self, unit: VolumeUnit, bytes: &[u8], judged: Vec<Judged>) -> Vec<Judged> {
        if self.marks.is_empty() {
            return judged;
        }
        let heard = self.overrule(unit, bytes, &judged);
        self.data_bytes += dropped_units(&heard).saturating_sub(dropped_units(&judged)) * UNIT_BYTES;
        heard
    }

    /// Verdicts on pages from `unit` on after marks. Known metadata are kept regardless of marks. Marks of zero pages
    /// are ignored, because these occur everywhere.
    pub(crate) fn overrule(&self, unit: VolumeUnit, bytes: &[u8], judged: &[Judged]) -> Vec<Judged> {
        let mut heard: Vec<Judged> = Vec::new();
        for &(from, to, verdict) in judged {
            for at in from.up_to(to) {
                let page = &bytes[((at - unit) * UNIT_BYTES) as usize..][..UNIT_BYTES as usize];
                let mark = if is_zero(page) { None } else { self.marks.get(&sum(page)) };
                let verdict = match (verdict, mark) {
                    (Verdict::Wait | Verdict::Drop, Some(Mark::Keep)) => Verdict::Keep(Class::Noted),
                    (Verdict::Wait | Verdict::Keep(Class::Everything | Class::Noted), Some(Mark::Data)) => {
                        Verdict::Drop
                    }
                    (verdict, _) => verdict,
                };
                match heard.last_mut() {
                    Some((_, end, last)) if *last == verdict => *end = at + 1,
                    _ => heard.push((at, at + 1, verdict)),
                }
            }
        }
        heard
    }
}

/// Number of blocks that are dropped.
pub(crate) fn dropped_units(judged: &[Judged]) -> u64 {
    judged.iter().filter(|judged| judged.2 == Verdict::Drop).map(|judged| judged.1 - judged.0).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn judged(from: u64, to: u64, verdict: Verdict) -> Judged {
        (VolumeUnit(from), VolumeUnit(to), verdict)
    }

    #[test]
    fn what_is_marked_is_recognised_and_nothing_else() {
        let (kept, data, other) = ([1; 4096], [2; 4096], [3; 4096]);
        let mut notes = Notes::new(MARKS_MAX);
        for (mark, page) in [(Mark::Keep, kept), (Mark::Data, data), (Mark::Data, [0; 4096])] {
            let mut notice = Notice::new(mark);
            assert!(notice.add(&page));
            notes.look_at(&[other.to_vec(), notice.page()].concat());
        }
        assert_eq!(notes.notices, 3);
        let bytes = [kept, data, other, [0; 4096], kept].concat();
        let metadata = Verdict::Keep(Class::InodeTable);
        let waiting = vec![judged(7, 11, Verdict::Wait), judged(11, 12, metadata)];
        let noted = Verdict::Keep(Class::Noted);
        let heard =
            [judged(7, 8, noted), judged(8, 9, Verdict::Drop), judged(9, 11, Verdict::Wait), judged(11, 12, metadata)];
        assert_eq!(notes.overrule(VolumeUnit(7), &bytes, &waiting), heard);
    }

    #[test]
    fn a_notice_ends_when_it_is_full_and_old_marks_are_forgotten() {
        const MARKS: usize = 2_000;
        let mut notes = Notes::new(MARKS);
        let mut number = 0u32;
        for _ in 0..MARKS / Notice::PAGES_MAX + 2 {
            let mut notice = Notice::new(Mark::Keep);
            while notice.add(&number.to_le_bytes()) {
                number += 1;
            }
            notes.look_at(&notice.page());
        }
        assert_eq!((notes.marks.len(), notes.order.len()), (MARKS, MARKS));
        let mut first = [0; 4096];
        first[..4].copy_from_slice(&1u32.to_le_bytes());
        let waiting = vec![judged(0, 1, Verdict::Wait)];
        assert_eq!(notes.overrule(VolumeUnit(0), &first, &waiting), waiting);
    }

    proptest! {
        #[test]
        fn damaged_notices_are_nothing(at in 0..4096usize, bit in 0..8u8) {
            let mut notice = Notice::new(Mark::Data);
            notice.add(&[9; 4096]);
            let mut page = notice.page();
            page[at] ^= 1 << bit;
            prop_assert!(read(&page).is_none());
        }
    }
}
