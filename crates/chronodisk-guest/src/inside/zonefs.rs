//! Makes zonefs, whose own program, mkzonefs, few distributions have: all zones are reset, and the first one gets the
//! superblock. Unless it is conventional, it is finished, so that it takes none of the zones that can be active.
//!
//! `fs/zonefs/zonefs.h` defines the layout, `linux/blkzoned.h` the calls.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const SUPERBLOCK_BYTES: usize = 4096;
/// "SFOZ" in memory.
const MAGIC: u32 = 0x5a4f_4653;
/// `ZONEFS_F_UID`, `ZONEFS_F_GID` and `ZONEFS_F_PERM`.
const FEATURES: u64 = 1 << 1 | 1 << 2 | 1 << 3;
const PERMISSIONS: u32 = 0o640;

const BLKRESETZONE: libc::Ioctl = 0x4010_1283;
const BLKFINISHZONE: libc::Ioctl = 0x4010_1288;
const BLKREPORTZONE: libc::Ioctl = 0xc010_1282;
/// `BLK_ZONE_TYPE_CONVENTIONAL`.
const CONVENTIONAL: u8 = 1;

/// `struct blk_zone_range`.
#[repr(C)]
struct ZoneRange {
    sector: u64,
    sectors: u64,
}

/// `struct blk_zone_report` with one zone.
#[repr(C)]
struct ZoneReport {
    sector: u64,
    zones: u32,
    flags: u32,
    /// `struct blk_zone`: start, length and write pointer, type and state.
    zone: [u8; 64],
}

/// Direct I/O needs an aligned buffer.
#[repr(C, align(4096))]
struct Superblock([u8; SUPERBLOCK_BYTES]);

/// Makes the file system on a device of this size, whose files belong to the user.
pub(crate) fn make(device: &str, sectors: u64, zone_sectors: u64, uuid: &str, uid: u32, gid: u32) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT | libc::O_EXCL).open(device)?;
    let manage = |call: libc::Ioctl, sectors: u64| {
        let range = ZoneRange { sector: 0, sectors };
        // SAFETY: the calls read one range, which outlives them.
        match unsafe { libc::ioctl(file.as_raw_fd(), call, &raw const range) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let mut first = ZoneReport { sector: 0, zones: 1, flags: 0, zone: [0; 64] };
    // SAFETY: the call reads and writes a report with room for one zone, which outlives it.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKREPORTZONE, &raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    manage(BLKRESETZONE, sectors)?;
    file.write_all_at(&superblock(uuid, uid, gid).0, 0)?;
    match first.zone[24] {
        CONVENTIONAL => file.sync_data(),
        _ => manage(BLKFINISHZONE, zone_sectors),
    }
}

fn superblock(uuid: &str, uid: u32, gid: u32) -> Box<Superblock> {
    let mut block = Box::new(Superblock([0; SUPERBLOCK_BYTES]));
    let mut put = |at: usize, bytes: &[u8]| block.0[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &MAGIC.to_le_bytes());
    let digits: Vec<u8> = uuid.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    let uuid: Vec<u8> = digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).take(16).collect();
    put(72, &uuid);
    put(88, &FEATURES.to_le_bytes());
    put(96, &uid.to_le_bytes());
    put(100, &gid.to_le_bytes());
    put(104, &PERMISSIONS.to_le_bytes());
    let sum = crc32(&block.0);
    block.0[4..8].copy_from_slice(&sum.to_le_bytes());
    block
}

/// As `crc32(~0, …)` of the kernel: reflected, polynomial 0x04C11DB7, without the final inversion.
fn crc32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_kernels() {
        // The check value of CRC-32 (ISO-HDLC) is 0xCBF43926, with the final inversion.
        assert_eq!(!crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn the_superblock_names_its_user() {
        let block = superblock("00112233-4455-4677-8899-aabbccddeeff", 1000, 100).0;
        assert_eq!(block[..4], *b"SFOZ");
        assert_eq!(block[72..76], [0, 0x11, 0x22, 0x33]);
        assert_eq!((block[87], block[88], block[96], block[100]), (0xff, 0b1110, 0xe8, 100));
        let mut without_sum = block;
        without_sum[4..8].fill(0);
        assert_eq!(block[4..8], crc32(&without_sum).to_le_bytes());
    }
}
