//! A program that says which of its pages a squashing store should keep, or need not hold: `mark_pages keep|data NOTES`
//! copies standard input to standard output, and before each 507 pages writes a notice about them to the file NOTES.
//!
//! NOTES lies on the file system that the output is for. A notice must reach the device before the pages that it is
//! about; the output goes to a file in whole pages, so that they are on the device as they were marked.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;

use chronodisk_squash::{Mark, Notice, UNIT_BYTES};

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let mark = match arguments.get(1).map(String::as_str) {
        Some("keep") => Mark::Keep,
        Some("data") => Mark::Data,
        _ => panic!("mark_pages keep|data NOTES"),
    };
    let notes = arguments.get(2).expect("the file for notices");
    // O_SYNC: each write is on the device before the next one begins.
    let mut notes = OpenOptions::new().create(true).append(true).custom_flags(libc::O_SYNC).open(notes)?;
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    loop {
        let mut pages = Vec::new();
        input.by_ref().take(Notice::PAGES_MAX as u64 * UNIT_BYTES).read_to_end(&mut pages)?;
        if pages.is_empty() {
            return Ok(());
        }
        let mut notice = Notice::new(mark);
        for page in pages.chunks(UNIT_BYTES as usize) {
            assert!(notice.add(page), "no more were read");
        }
        notes.write_all(&notice.page())?;
        output.write_all(&pages)?;
    }
}
