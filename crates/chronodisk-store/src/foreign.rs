//! Images in the formats of other programs, which are no raw images.

use std::path::Path;

use crate::StoreError;
use crate::store_file::StoreFile;

/// A format by the bytes that its files begin with.
struct Foreign {
    name: &'static str,
    /// Offset and bytes.
    magic: (u64, &'static [u8]),
    /// The name that `qemu-img` has for it; without it, the program that unpacks it.
    unpacked_by: Unpacked,
}

enum Unpacked {
    QemuImg(&'static str),
    Command(&'static str),
}

const FOREIGN: [Foreign; 12] = {
    use Unpacked::{Command, QemuImg};
    const fn foreign(name: &'static str, at: u64, magic: &'static [u8], unpacked_by: Unpacked) -> Foreign {
        Foreign { name, magic: (at, magic), unpacked_by }
    }
    [
        foreign("QEMU's qcow2", 0, b"QFI\xfb\0\0\0\x03", QemuImg("qcow2")),
        foreign("QEMU's qcow2", 0, b"QFI\xfb\0\0\0\x02", QemuImg("qcow2")),
        foreign("QEMU's qcow", 0, b"QFI\xfb", QemuImg("qcow")),
        foreign("QEMU's qed", 0, b"QED\0", QemuImg("qed")),
        foreign("VMware's vmdk", 0, b"KDMV", QemuImg("vmdk")),
        foreign("VMware's vmdk", 0, b"# Disk DescriptorFile", QemuImg("vmdk")),
        foreign("VirtualBox's vdi", 64, b"\x7f\x10\xda\xbe", QemuImg("vdi")),
        foreign("Hyper-V's vhdx", 0, b"vhdxfile", QemuImg("vhdx")),
        foreign("Hyper-V's vhd", 0, b"conectix", QemuImg("vpc")),
        foreign("gzip", 0, b"\x1f\x8b\x08", Command("gzip -dc")),
        foreign("xz", 0, b"\xfd7zXZ\0", Command("xz -dc")),
        foreign("zstd", 0, b"\x28\xb5\x2f\xfd", Command("zstd -dc")),
    ]
};

/// Bytes of a file that show its format.
const HEAD_BYTES: usize = 512;

/// Refuses a file in another program's format. A device's contents may begin like one, so use it only for files whose
/// size differs from the device's.
pub(crate) fn expect_raw(path: &Path, file: &StoreFile) -> Result<(), StoreError> {
    let size = file.size()?.len_bytes;
    let mut head = vec![0; HEAD_BYTES.min(size as usize)];
    file.read(0, &mut head)?;
    let begins = |foreign: &&Foreign| {
        let (at, magic) = foreign.magic;
        head.get(at as usize..).is_some_and(|rest| rest.starts_with(magic))
    };
    let Some(foreign) = FOREIGN.iter().find(begins) else { return Ok(()) };
    let shown = path.display();
    let advice = match foreign.unpacked_by {
        Unpacked::QemuImg(format) => format!("qemu-img convert -f {format} -O raw {shown} {shown}.raw"),
        Unpacked::Command(command) => format!("{command} {shown} > {shown}.raw"),
    };
    Err(StoreError::ForeignFormat { path: path.to_owned(), format: foreign.name, advice })
}
