//! Generated contents of squashed files with a type known by name.
//!
//! Each type is laid out so that any part of a file can be generated independently, for any length: programs read at
//! arbitrary offsets. The length is the file's own, so a growing file gets a different end.

use super::UNIT_BYTES;
use super::checksum::{forge, solve};
use super::content::{Content, ContentKind};
use super::runs::RunValue;
use crate::crc32c;

/// A type of file whose contents can be generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FileKind {
    /// Zeros.
    Zeros,
    /// Random bytes.
    Random,
    /// Lines of English words.
    Text,
    /// A PDF document with one page of text (ISO 32000-1), for files of at least [`FileKind::len_bytes_min`].
    Pdf,
    /// A gzip member with stored text (RFC 1951 and 1952), for files of at least [`FileKind::len_bytes_min`].
    Gzip,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [FileKind; 5] = [FileKind::Zeros, FileKind::Random, FileKind::Text, FileKind::Pdf, FileKind::Gzip];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FileKind::Zeros => "zeros",
            FileKind::Random => "random",
            FileKind::Text => "text",
            FileKind::Pdf => "pdf",
            FileKind::Gzip => "gzip",
        }
    }

    /// Length in bytes of the shortest file of this kind; a shorter one begins like one.
    #[must_use]
    pub fn len_bytes_min(self) -> u64 {
        match self {
            FileKind::Zeros | FileKind::Random | FileKind::Text => 0,
            FileKind::Pdf => Pdf::LEN_BYTES_MIN,
            FileKind::Gzip => Gzip::LEN_BYTES_MIN,
        }
    }
}

/// Largest offset in a file on Linux (`MAX_LFS_FILESIZE`).
pub(crate) const FILE_MAX_BYTES: u64 = i64::MAX as u64;

/// Place in a file of a generated block of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// The file's number, as the file system or its classifier counts them.
    pub(crate) file: u64,
    pub(crate) offset_bytes: u64,
}

impl RunValue for FilePart {
    fn advanced(self, by: u64) -> Self {
        FilePart { offset_bytes: self.offset_bytes.wrapping_add(by.wrapping_mul(UNIT_BYTES)), ..self }
    }
}

/// A file with generated contents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadeUpFile {
    pub(crate) kind: FileKind,
    pub(crate) seed: u64,
    pub(crate) len_bytes: u64,
}

impl MadeUpFile {
    /// Fills `bytes` with the file's from `offset_bytes` on. Bytes beyond its end are arbitrary.
    pub(crate) fn fill(&self, offset_bytes: u64, bytes: &mut [u8]) {
        let short = self.len_bytes < self.kind.len_bytes_min();
        match self.kind {
            FileKind::Zeros => bytes.fill(0),
            FileKind::Random => self.fill_pages(ContentKind::Random, offset_bytes, bytes),
            FileKind::Text => self.fill_pages(ContentKind::Text, offset_bytes, bytes),
            FileKind::Pdf => {
                bytes.fill(b'\n');
                let len_bytes = if short { Pdf::LEN_BYTES_MIN } else { self.len_bytes };
                Pdf { seed: self.seed, len_bytes }.fill(&mut Window { offset_bytes, bytes });
            }
            FileKind::Gzip => {
                bytes.fill(0);
                let len_bytes = if short { Gzip::LEN_BYTES_MIN } else { self.len_bytes };
                Gzip { seed: self.seed, len_bytes }.fill(&mut Window { offset_bytes, bytes });
            }
        }
    }

    /// Fills a sector, 4 KiB of the file, so that its CRC-32C is `sum`.
    pub(crate) fn fill_checked(&self, number: u64, sector: &mut Sector, sum: u32) {
        let begin = number * UNIT_BYTES;
        self.fill(begin, sector);
        let ends_before = self.len_bytes.saturating_sub(begin) <= UNIT_BYTES - FORGED_BYTES;
        let MadeUpFile { seed, len_bytes, .. } = *self;
        match self.kind {
            FileKind::Text if !ends_before => spell(sector, UNIT_BYTES as usize - 1 - LETTERS, sum),
            FileKind::Pdf if !ends_before => {
                let at = Pdf { seed, len_bytes }.last_words_before(begin + UNIT_BYTES) - begin;
                spell(sector, at as usize, sum);
            }
            FileKind::Gzip if !ends_before => Gzip { seed, len_bytes }.check(number, sector, sum),
            // Unread, or arbitrary.
            _ => forge(sector, sum),
        }
    }

    fn fill_pages(&self, kind: ContentKind, offset_bytes: u64, bytes: &mut [u8]) {
        let content = Content { kind, seed: self.seed };
        let mut done = 0;
        while done < bytes.len() {
            let at = offset_bytes + done as u64;
            let skip = (at % UNIT_BYTES) as usize;
            let len = (UNIT_BYTES as usize - skip).min(bytes.len() - done);
            content.fill(at / UNIT_BYTES, skip, &mut bytes[done..done + len]);
            done += len;
        }
    }
}

/// Bytes set by [`forge`].
const FORGED_BYTES: u64 = 4;
/// More than enough letters of three bits each for the 32 of a checksum.
const LETTERS: usize = 12;

/// Lets a sector have a CRC-32C by letters, from `h` to `o`, from `at` on.
fn spell(sector: &mut Sector, at: usize, sum: u32) {
    let letters = |bits: u64| -> [u8; LETTERS] { std::array::from_fn(|index| b'h' | (bits >> (3 * index) & 7) as u8) };
    let (head, rest) = (crc32c::crc32c(&sector[..at]), &sector[at + LETTERS..]);
    let crc = |bits| crc32c::crc32c_append(crc32c::crc32c_append(head, &letters(bits)), rest);
    if let Some(bits) = solve(3 * LETTERS as u32, crc, sum) {
        sector[at..at + LETTERS].copy_from_slice(&letters(bits));
    }
}

/// The part of a file that is asked for.
struct Window<'a> {
    offset_bytes: u64,
    bytes: &'a mut [u8],
}

impl Window<'_> {
    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.bytes.len() as u64
    }

    /// Copies the part of a piece at `at` that overlaps the window.
    fn put(&mut self, at: u64, piece: &[u8]) {
        let (from, to) = (at.max(self.offset_bytes), (at + piece.len() as u64).min(self.end_bytes()));
        if from < to {
            let target = &mut self.bytes[(from - self.offset_bytes) as usize..(to - self.offset_bytes) as usize];
            target.copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
        }
    }

    /// The part of a range of the file that is in the window.
    fn part(&self, start: u64, end: u64) -> (u64, u64) {
        let from = start.max(self.offset_bytes);
        (from, end.min(self.end_bytes()).max(from))
    }
}

type Sector = [u8; UNIT_BYTES as usize];

fn text_page(seed: u64, number: u64) -> Sector {
    let mut page = [0; UNIT_BYTES as usize];
    Content { kind: ContentKind::Text, seed }.fill(number, 0, &mut page);
    page
}

/// A member with its text in stored blocks, each ending at a multiple of 64 KiB of the file.
struct Gzip {
    seed: u64,
    len_bytes: u64,
}

impl Gzip {
    /// No name, no date, no system.
    const HEADER: [u8; 10] = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF];
    const TRAILER_BYTES: u64 = 8;
    const BLOCK_HEADER_BYTES: u64 = 5;
    /// File bytes from the header of one block to the next.
    const BLOCK_BYTES: u64 = 64 << 10;
    const LEN_BYTES_MIN: u64 = Gzip::HEADER.len() as u64 + Gzip::BLOCK_HEADER_BYTES + Gzip::TRAILER_BYTES;
    /// At the end of each sector's text: four free bytes, and four that set the checksum's register to zero. So a long
    /// text's checksum depends on its last sector alone.
    const RESET_BYTES: usize = 8;

    fn fill(&self, window: &mut Window<'_>) {
        window.put(0, &Gzip::HEADER);
        let end = self.text_end();
        let (from, to) = window.part(0, end);
        // The last block may begin a little later than it would.
        for block in from / Gzip::BLOCK_BYTES..to.div_ceil(Gzip::BLOCK_BYTES).min(self.blocks()) {
            let (at, next) = (self.block_at(block), self.block_at(block + 1));
            let [low, high] = ((next - at - Gzip::BLOCK_HEADER_BYTES) as u16).to_le_bytes();
            window.put(at, &[u8::from(block + 1 == self.blocks()), low, high, !low, !high]);
        }
        for sector in from / UNIT_BYTES..to.div_ceil(UNIT_BYTES) {
            let (at, text) = self.text(sector);
            window.put(at, &text);
        }
        if window.end_bytes() > end {
            let last = (end - 1) / UNIT_BYTES;
            let crc = crc32_after(Gzip::crc_before(last), &self.text(last).1);
            let text_bytes = end - Gzip::HEADER.len() as u64 - self.blocks() * Gzip::BLOCK_HEADER_BYTES;
            window.put(end, &[crc.to_le_bytes(), (text_bytes as u32).to_le_bytes()].concat());
        }
    }

    fn text_end(&self) -> u64 {
        self.len_bytes - Gzip::TRAILER_BYTES
    }

    /// Count of blocks. A rest too short for a header belongs to the previous block.
    fn blocks(&self) -> u64 {
        (self.text_end() - Gzip::BLOCK_HEADER_BYTES) / Gzip::BLOCK_BYTES + 1
    }

    /// First byte of a block.
    fn block_at(&self, block: u64) -> u64 {
        match block {
            0 => Gzip::HEADER.len() as u64,
            _ if block == self.blocks() => self.text_end(),
            _ => block * Gzip::BLOCK_BYTES,
        }
    }

    /// The text in a sector, as a range of the file: first byte and end.
    fn text_range(&self, sector: u64) -> (u64, u64) {
        let begin = sector * UNIT_BYTES;
        let (block, within) = (begin / Gzip::BLOCK_BYTES, begin % Gzip::BLOCK_BYTES);
        let has_header = within == 0 && block < self.blocks();
        let from = if has_header { self.block_at(block) + Gzip::BLOCK_HEADER_BYTES } else { begin };
        (from, (begin + UNIT_BYTES).min(self.text_end()).max(from))
    }

    /// The text in a sector, and where it begins in the file.
    fn text(&self, sector: u64) -> (u64, Vec<u8>) {
        let (from, to) = self.text_range(sector);
        let mut text = text_page(self.seed, sector)[..(to - from) as usize].to_vec();
        if let Some((words, end)) = text.split_last_chunk_mut() {
            *end = Gzip::reset(crc32_after(Gzip::crc_before(sector), words), 0);
        }
        (from, text)
    }

    /// The last bytes of a sector's text, from the CRC before them.
    fn reset(before: u32, free: u32) -> [u8; Gzip::RESET_BYTES] {
        let free = free.to_le_bytes();
        // The register's value, the complement of the CRC, makes it zero.
        let zeroing = (!crc32_after(before, &free)).to_le_bytes();
        let mut bytes = [0; Gzip::RESET_BYTES];
        bytes[..4].copy_from_slice(&free);
        bytes[4..].copy_from_slice(&zeroing);
        bytes
    }

    /// The CRC of the text before a sector.
    fn crc_before(sector: u64) -> u32 {
        if sector == 0 { 0 } else { !0 }
    }

    /// Sets the free bytes so that a sector within the file has the CRC-32C `sum`.
    fn check(&self, number: u64, sector: &mut Sector, sum: u32) {
        let (from, to) = self.text_range(number);
        let [from, to] = [from, to].map(|at| (at - number * UNIT_BYTES) as usize);
        let at = to - Gzip::RESET_BYTES;
        let before = crc32_after(Gzip::crc_before(number), &sector[from..at]);
        let (head, rest) = (crc32c::crc32c(&sector[..at]), &sector[at + Gzip::RESET_BYTES..]);
        let crc = |free| crc32c::crc32c_append(crc32c::crc32c_append(head, &Gzip::reset(before, free as u32)), rest);
        if let Some(free) = solve(32, crc, sum) {
            sector[at..at + Gzip::RESET_BYTES].copy_from_slice(&Gzip::reset(before, free as u32));
        }
    }
}

/// Continues a CRC-32 with further bytes.
fn crc32_after(before: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(before);
    hasher.update(bytes);
    hasher.finalize()
}

/// A document of one page, with the length of contents that its file needs.
struct Pdf {
    seed: u64,
    len_bytes: u64,
}

impl Pdf {
    const OBJECTS: [&str; 4] = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 5 0 R \
         /Resources << /Font << /F1 4 0 R >> >> >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ];
    const BEGIN_TEXT: &[u8] = b"BT /F1 9 Tf 11 TL 40 810 Td\n";
    const END_TEXT: &[u8] = b"\nET\n";
    const END_STREAM: &str = "\nendstream\nendobj\n";
    /// A line of text as an operator: `(words) Tj T*`.
    const LINE_BYTES: u64 = 64;
    const LINE_END: &[u8] = b") Tj T*\n";
    /// Digits of the largest number of 64 bits.
    const DIGITS: usize = 20;
    /// Length of everything but the lines; a test checks it.
    const LEN_BYTES_MIN: u64 = 617;

    /// All bytes before the stream, and the offsets of the objects. The length does not depend on the stream's.
    fn head(stream_bytes: u64) -> (Vec<u8>, Vec<usize>) {
        // A comment with non-ASCII bytes marks the file as binary.
        let mut head = b"%PDF-1.4\n%\xE2\xE3\xCF\xD3\n".to_vec();
        let mut places = Vec::new();
        for (object, number) in Pdf::OBJECTS.iter().zip(1..) {
            places.push(head.len());
            head.extend_from_slice(format!("{number} 0 obj\n{object}\nendobj\n").as_bytes());
        }
        places.push(head.len());
        let width = Pdf::DIGITS;
        head.extend_from_slice(format!("5 0 obj\n<< /Length {stream_bytes:<width$} >>\nstream\n").as_bytes());
        (head, places)
    }

    /// All bytes after the stream, which ends at `at`. The length does not depend on `at`.
    fn tail(places: &[usize], at: u64) -> Vec<u8> {
        let table_at = at + Pdf::END_STREAM.len() as u64;
        let mut tail = format!("{}xref\n0 {}\n0000000000 65535 f \n", Pdf::END_STREAM, places.len() + 1);
        places.iter().for_each(|place| tail.push_str(&format!("{place:010} 00000 n \n")));
        let width = Pdf::DIGITS - table_at.to_string().len();
        let size = places.len() + 1;
        tail.push_str(&format!("trailer\n<< /Size {size} /Root 1 0 R >>{:width$}\n", ""));
        tail.push_str(&format!("startxref\n{table_at}\n%%EOF\n"));
        tail.into_bytes()
    }

    fn fill(&self, window: &mut Window<'_>) {
        let (head, places) = Pdf::head(0);
        let tail_len = Pdf::tail(&places, 0).len() as u64;
        let stream_end = self.len_bytes - tail_len;
        let stream_bytes = stream_end - head.len() as u64;
        let (head, _) = Pdf::head(stream_bytes);
        let stream_at = head.len() as u64;
        window.put(0, &head);
        window.put(stream_at, Pdf::BEGIN_TEXT);
        let end_at = stream_end - Pdf::END_TEXT.len() as u64;
        // Between the last line and the end are line feeds, with which the window was filled.
        let (lines_at, count) = self.lines(stream_at);
        let (from, to) = window.part(lines_at, lines_at + count * Pdf::LINE_BYTES);
        if from < to {
            let (first, last) = ((from - lines_at) / Pdf::LINE_BYTES, (to - lines_at).div_ceil(Pdf::LINE_BYTES));
            self.fill_lines(first, last, lines_at, window);
        }
        window.put(end_at, Pdf::END_TEXT);
        window.put(stream_end, &Pdf::tail(&places, stream_end));
    }

    /// Offset of the first line, for a stream that begins at `stream_at`, and the number of lines.
    fn lines(&self, stream_at: u64) -> (u64, u64) {
        let lines_at = stream_at + Pdf::BEGIN_TEXT.len() as u64;
        (lines_at, (self.len_bytes - Pdf::LEN_BYTES_MIN) / Pdf::LINE_BYTES)
    }

    /// The end of the last line before a place, after its parenthesis.
    fn last_words_before(&self, end: u64) -> u64 {
        let (lines_at, count) = self.lines(Pdf::head(0).0.len() as u64);
        lines_at + (count.min((end - lines_at) / Pdf::LINE_BYTES) - 1) * Pdf::LINE_BYTES + 1
    }

    fn fill_lines(&self, first: u64, last: u64, lines_at: u64, window: &mut Window<'_>) {
        let per_page = UNIT_BYTES / Pdf::LINE_BYTES;
        let mut page = (u64::MAX, [0; UNIT_BYTES as usize]);
        for line in first..last {
            if page.0 != line / per_page {
                page = (line / per_page, text_page(self.seed, line / per_page));
            }
            let words_at = (line % per_page * Pdf::LINE_BYTES) as usize;
            let mut text = [0; Pdf::LINE_BYTES as usize];
            text.copy_from_slice(&page.1[words_at..words_at + Pdf::LINE_BYTES as usize]);
            text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            text[0] = b'(';
            text[Pdf::LINE_BYTES as usize - Pdf::LINE_END.len()..].copy_from_slice(Pdf::LINE_END);
            window.put(lines_at + line * Pdf::LINE_BYTES, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(kind: FileKind, len_bytes: u64) -> Vec<u8> {
        let mut bytes = vec![1; len_bytes as usize];
        MadeUpFile { kind, seed: 7, len_bytes }.fill(0, &mut bytes);
        bytes
    }

    const LENGTHS: [u64; 13] =
        [23, 24, 35, 4095, 4096, 4104, 65_543, 65_544, 65_548, 65_549, 131_084, 131_085, 1_000_000];

    /// The text of a member that has only stored blocks.
    fn unpacked(member: &[u8]) -> Vec<u8> {
        let (mut text, mut at) = (Vec::new(), Gzip::HEADER.len());
        loop {
            let short = |at: usize| u16::from_le_bytes([member[at], member[at + 1]]);
            let (kind, len) = (member[at], short(at + 1));
            assert_eq!(len, !short(at + 3));
            text.extend_from_slice(&member[at + 5..][..usize::from(len)]);
            at += 5 + usize::from(len);
            match kind {
                0 => {}
                1 => break,
                other => panic!("a block that is not stored: {other}"),
            }
        }
        let trailer = [crc32fast::hash(&text).to_le_bytes(), (text.len() as u32).to_le_bytes()].concat();
        assert_eq!(member[at..], trailer);
        text
    }

    #[test]
    fn a_member_is_whole_whatever_its_length() {
        for len_bytes in LENGTHS {
            let member = whole(FileKind::Gzip, len_bytes);
            assert!(member.starts_with(&Gzip::HEADER));
            let blocks = (len_bytes - 13) / Gzip::BLOCK_BYTES + 1;
            assert_eq!(unpacked(&member).len() as u64, len_bytes - 18 - 5 * blocks);
        }
    }

    /// A file of whole sectors, each with a checksum of its own.
    fn checked(kind: FileKind, len_bytes: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in 0..len_bytes.div_ceil(UNIT_BYTES) {
            let (mut sector, sum) = ([3; UNIT_BYTES as usize], (number as u32 + 1).wrapping_mul(0x9E37_79B9));
            MadeUpFile { kind, seed: 7, len_bytes }.fill_checked(number, &mut sector, sum);
            assert_eq!(crc32c::crc32c(&sector), sum, "{kind:?} of {len_bytes}, sector {number}");
            bytes.extend(sector);
        }
        bytes.truncate(len_bytes as usize);
        bytes
    }

    #[test]
    fn files_whose_sectors_pass_checksums_are_of_their_kind_too() {
        for len_bytes in LENGTHS.into_iter().chain([4093, 8185, 8191, 8193, 65_540, 131_072]) {
            unpacked(&checked(FileKind::Gzip, len_bytes));
            let text = checked(FileKind::Text, len_bytes);
            assert!(text.iter().all(|byte| byte.is_ascii_lowercase() || b" \n".contains(byte)), "{len_bytes}");
            checked(FileKind::Random, len_bytes);
            checked(FileKind::Zeros, len_bytes);
            let differing = checked(FileKind::Pdf, len_bytes).into_iter().zip(whole(FileKind::Pdf, len_bytes));
            for (byte, plain) in differing.filter(|(byte, plain)| byte != plain) {
                assert!(byte.is_ascii_lowercase() && (plain.is_ascii_lowercase() || plain == b' '), "{len_bytes}");
            }
        }
    }

    #[test]
    fn a_document_is_as_readers_want_it() {
        assert_eq!(Pdf::LEN_BYTES_MIN, {
            let (head, places) = Pdf::head(0);
            let tail = Pdf::tail(&places, 0);
            (head.len() + Pdf::BEGIN_TEXT.len() + Pdf::END_TEXT.len() + tail.len()) as u64
        });
        for len_bytes in [Pdf::LEN_BYTES_MIN, Pdf::LEN_BYTES_MIN + 63, Pdf::LEN_BYTES_MIN + 64, 5_000, 1_000_003] {
            let bytes = whole(FileKind::Pdf, len_bytes);
            let text = String::from_utf8_lossy(&bytes);
            assert!(text.ends_with("\n%%EOF\n") && text.starts_with("%PDF-1.4\n"), "{len_bytes}");
            // The end of the file points to the table, and the table to the objects.
            let table: usize = text[text.rfind("startxref\n").unwrap() + 10..].lines().next().unwrap().parse().unwrap();
            assert!(bytes[table..].starts_with(b"xref\n0 6\n"), "{len_bytes}");
            for number in 1..6 {
                let entry = std::str::from_utf8(&bytes[table + 9 + 20 * number..][..10]).unwrap();
                let object: usize = entry.parse().unwrap();
                assert!(bytes[object..].starts_with(format!("{number} 0 obj\n").as_bytes()), "{len_bytes} {number}");
            }
        }
    }

    #[test]
    fn short_files_begin_like_long_ones() {
        assert!(whole(FileKind::Pdf, 8) == b"%PDF-1.4");
        assert_eq!(whole(FileKind::Gzip, 10), Gzip::HEADER);
        assert!(std::str::from_utf8(&whole(FileKind::Text, 9_999)).unwrap().lines().all(|line| line.len() <= 72));
    }

    #[test]
    fn the_end_of_a_huge_file_takes_no_longer_than_that_of_a_small_one() {
        let mut end = [0; 16];
        for kind in FileKind::ALL {
            MadeUpFile { kind, seed: 1, len_bytes: 1 << 60 }.fill((1 << 60) - 16, &mut end);
        }
    }

    proptest! {
        /// Extreme numbers, as in damaged inodes and trees.
        #[test]
        fn any_length_and_any_place_are_borne(
            kind in prop::sample::select(&FileKind::ALL[..]),
            len_bytes in prop_oneof![any::<u64>(), 0..8192u64, u64::MAX - 70_000..=u64::MAX],
            number in prop_oneof![0..1u64 << 51, 0..3u64],
            behind_bytes in 0..4096u64,
        ) {
            let mut sector = [0; UNIT_BYTES as usize];
            for number in [number, len_bytes / UNIT_BYTES % (1 << 51)] {
                MadeUpFile { kind, seed: 7, len_bytes }.fill(number * UNIT_BYTES + behind_bytes, &mut sector);
                MadeUpFile { kind, seed: 7, len_bytes }.fill_checked(number, &mut sector, 9);
                prop_assert_eq!(crc32c::crc32c(&sector), 9);
            }
        }

        #[test]
        fn parts_are_those_of_the_whole(
            kind in prop::sample::select(&FileKind::ALL[..]),
            len_bytes in prop_oneof![0..200_000u64, 65_520..65_560u64, 131_060..131_090u64],
            start in 0..200_000u64,
            part_len in 0..10_000u64,
        ) {
            let bytes = whole(kind, len_bytes);
            let (from, to) = (start.min(len_bytes), (start + part_len).min(len_bytes));
            let mut part = vec![2; (to - from) as usize];
            MadeUpFile { kind, seed: 7, len_bytes }.fill(from, &mut part);
            prop_assert!(part == bytes[from as usize..to as usize]);
        }
    }
}
