//! Checks the pages of a Parquet file before they are decompressed. The library allocates the size that a page claims,
//! so a few bytes could request two gigabytes.
//!
//! Page headers are structures of Thrift's compact protocol, one before each page
//! (<https://github.com/apache/parquet-format>, `parquet.thrift`).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use parquet::basic::Compression;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};

/// The largest accepted page, in bytes. Writers make pages of a mebibyte.
pub const PAGE_BYTES_MAX: u64 = 64 << 20;
/// The longest accepted header of a page: it may hold statistics of long texts.
const HEADER_BYTES_MAX: usize = 1 << 20;
/// Length within which most headers fit.
const HEADER_BYTES: usize = 1 << 10;
/// Deepest nesting of structures in a header.
const DEPTH_MAX: usize = 8;

/// Checks the compression and the pages of a file.
///
/// # Errors
/// The problem, without the file's name.
pub fn check(file: &File, metadata: &ParquetMetaData) -> Result<(), String> {
    // A file may list a column of a row group repeatedly.
    let mut seen = BTreeSet::new();
    for column in metadata.row_groups().iter().flat_map(|group| group.columns()) {
        check_compression(column)?;
        let (start, len) = column_range(column)?;
        if seen.insert(start) {
            check_column(file, column, start, len)?;
        }
    }
    Ok(())
}

fn check_compression(column: &ColumnChunkMetaData) -> Result<(), String> {
    let name = match column.compression() {
        Compression::BROTLI(_) => "brotli",
        Compression::LZO => "lzo",
        _ => return Ok(()),
    };
    Err(format!("compressed with {name}; expected zstd, snappy, gzip, lz4 or none"))
}

fn column_range(column: &ColumnChunkMetaData) -> Result<(u64, u64), String> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let range = (u64::try_from(start), u64::try_from(column.compressed_size()));
    let (Ok(start), Ok(len)) = range else { return Err(format!("column {} has no place", column.column_path())) };
    Ok((start, len))
}

fn check_column(file: &File, column: &ColumnChunkMetaData, start: u64, len: u64) -> Result<(), String> {
    let name = || column.column_path().string();
    let (mut at, end) = (start, start.saturating_add(len));
    while at < end {
        let header = header_at(file, at).ok_or_else(|| format!("column '{}' has a damaged page", name()))?;
        if header.uncompressed_bytes > PAGE_BYTES_MAX {
            let (found, most) = (header.uncompressed_bytes >> 20, PAGE_BYTES_MAX >> 20);
            return Err(format!("column '{}' has a page of {found} MiB; expected at most {most} MiB", name()));
        }
        at = at.saturating_add(header.len + header.compressed_bytes);
    }
    Ok(())
}

struct PageHeader {
    /// Length of the header itself.
    len: u64,
    uncompressed_bytes: u64,
    compressed_bytes: u64,
}

fn header_at(file: &File, at: u64) -> Option<PageHeader> {
    for most in [HEADER_BYTES, HEADER_BYTES_MAX] {
        let mut bytes = vec![0; most];
        let len = read_at_most(file, &mut bytes, at)?;
        if let Some(header) = PageHeader::parse(&bytes[..len]) {
            return Some(header);
        }
    }
    None
}

fn read_at_most(file: &File, bytes: &mut [u8], at: u64) -> Option<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at + len as u64) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    Some(len)
}

impl PageHeader {
    /// Parses the header at the beginning of `bytes`.
    fn parse(bytes: &[u8]) -> Option<Self> {
        const UNCOMPRESSED: i64 = 2;
        const COMPRESSED: i64 = 3;
        let mut reader = Compact { rest: bytes };
        let (mut uncompressed, mut compressed) = (None, None);
        let mut field = 0;
        while let Some(kind) = reader.field(&mut field)? {
            match (field, kind) {
                (UNCOMPRESSED, kind::I32) => uncompressed = u64::try_from(reader.zigzag()?).ok(),
                (COMPRESSED, kind::I32) => compressed = u64::try_from(reader.zigzag()?).ok(),
                (_, kind) => reader.skip(kind, 0)?,
            }
        }
        Some(PageHeader {
            len: (bytes.len() - reader.rest.len()) as u64,
            uncompressed_bytes: uncompressed?,
            compressed_bytes: compressed?,
        })
    }
}

/// Types of fields.
mod kind {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const STRUCT: u8 = 12;
}

/// Thrift's compact protocol, reduced to the features in page headers.
struct Compact<'a> {
    rest: &'a [u8],
}

impl Compact<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// The type of the next field; its number is written to `field`. `Some(None)` at the end of a structure.
    #[allow(clippy::option_option, reason = "the outer option is damage, the inner one the end")]
    fn field(&mut self, field: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        *field = match byte >> 4 {
            0 => self.zigzag()?,
            delta => field.checked_add(i64::from(delta))?,
        };
        Some(Some(byte & 0x0f))
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            kind::TRUE | kind::FALSE => {}
            kind::BYTE => drop(self.byte()?),
            kind::I16 | kind::I32 | kind::I64 => drop(self.varint()?),
            kind::DOUBLE => self.rest = self.rest.get(8..)?,
            kind::BINARY => {
                let len = usize::try_from(self.varint()?).ok()?;
                self.rest = self.rest.get(len..)?;
            }
            kind::STRUCT if depth < DEPTH_MAX => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth + 1)?;
                }
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_the_format_says() {
        // Type 0, uncompressed 300, compressed 20, a data page header of four numbers and statistics of one text.
        let header = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x28, 0x2c, 0x15, 0x08, 0x15, 0x00, 0x15, 0x06, 0x15, 0x06, 0x1c, 0x18,
            0x02, b'a', b'b', 0x00, 0x00, 0x00, 0xff,
        ];
        let found = PageHeader::parse(&header).unwrap();
        assert_eq!((found.uncompressed_bytes, found.compressed_bytes, found.len), (300, 20, 24));
        // Negative, truncated, and endlessly nested headers.
        assert!(PageHeader::parse(&[0x15, 0x00, 0x15, 0x01, 0x15, 0x28, 0x00]).is_none());
        assert!((0..24).all(|len| PageHeader::parse(&header[..len]).is_none()));
        assert!(PageHeader::parse(&[0x1c; 4_096]).is_none());
    }
}
