//! Access to a stopped task's memory.

use chronodisk_trace::calls::{PATH_BYTES_MAX, Text};

const PAGE_BYTES: u64 = 4096;

/// Reads up to `bytes.len()` bytes, less if a part is unreadable.
#[allow(unsafe_code)]
fn read(task: u32, address: u64, bytes: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the local piece is a slice that is borrowed for the call; the remote one is another process's memory.
    let read = unsafe { libc::process_vm_readv(task as i32, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(read).unwrap_or(0)
}

/// The bytes at an address, if all can be read.
pub fn array<const N: usize>(task: u32, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (read(task, address, &mut bytes) == N).then_some(bytes)
}

/// Reads up to `count` words at an address; the first unreadable word ends them.
pub fn words(task: u32, address: u64, count: usize) -> Vec<u64> {
    let mut bytes = vec![0; if address == 0 { 0 } else { count * 8 }];
    let read = read(task, address, &mut bytes);
    bytes[..read].as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

/// The text at an address, up to its NUL byte.
pub fn path(task: u32, address: u64) -> Text {
    if address == 0 {
        return Text::None;
    }
    let (mut text, mut at, mut want) = (Vec::new(), address, 256);
    let mut piece = [0; PAGE_BYTES as usize];
    while text.len() <= PATH_BYTES_MAX {
        // A page at most, since the next may not be there.
        let bytes = want.min(PAGE_BYTES - at % PAGE_BYTES) as usize;
        let read = read(task, at, &mut piece[..bytes]);
        match piece[..read].iter().position(|&byte| byte == 0) {
            Some(end) => {
                text.extend_from_slice(&piece[..end]);
                // Longer ones are no paths: the kernel refuses them.
                return if text.len() <= PATH_BYTES_MAX { Text::Bytes(text) } else { Text::Unreadable };
            }
            None if read < bytes => break,
            None => text.extend_from_slice(&piece[..read]),
        }
        at = at.wrapping_add(read as u64);
        want = PAGE_BYTES;
    }
    Text::Unreadable
}

/// Whether a message that was received has brought descriptors.
pub fn brings_descriptors(task: u32, message: u64) -> bool {
    // struct msghdr: the control data's address is at 32, their length at 40.
    let field = |offset| array::<8>(task, message.wrapping_add(offset)).map(u64::from_ne_bytes);
    let (Some(control), Some(length)) = (field(32), field(40)) else { return false };
    // struct cmsghdr: its level is at 8, its type at 12.
    let word = |offset| array::<4>(task, control.wrapping_add(offset)).map(i32::from_ne_bytes);
    length >= 16 && word(8) == Some(libc::SOL_SOCKET) && word(12) == Some(libc::SCM_RIGHTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_up_to_their_end() {
        let own = std::process::id();
        let mut bytes = vec![b'x'; 5000];
        bytes[300] = 0;
        assert_eq!(path(own, bytes.as_ptr() as u64), Text::Bytes(vec![b'x'; 300]));
        bytes[300] = b'x';
        bytes[4999] = 0;
        assert_eq!(path(own, bytes.as_ptr() as u64), Text::Unreadable, "too long");
        assert_eq!(path(own, 0), Text::None);
        assert_eq!(path(own, 64), Text::Unreadable);
        assert_eq!(array::<4>(own, [1u8, 2, 3, 4].as_ptr() as u64), Some([1, 2, 3, 4]));
    }
}
