//! The descriptors that a replayer has. The kernel numbers them as it likes, since several threads make some at once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::shared::feed::NO_WORD;

/// Written before any thread is started.
static ADDRESS: AtomicU64 = AtomicU64::new(0);
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Memory of this number of slots, in bytes.
pub(super) const fn memory_bytes(count: u64) -> u64 {
    count * size_of::<AtomicU32>() as u64
}

/// Slots are in this memory, which is zero and stays.
pub(super) fn begin(address: u64, count: u64) {
    ADDRESS.store(address, Ordering::Relaxed);
    COUNT.store(count, Ordering::Relaxed);
}

/// Descriptors by slot. An entry is the descriptor plus one; zero means none.
fn slots() -> &'static [AtomicU32] {
    let (address, count) = (ADDRESS.load(Ordering::Relaxed), COUNT.load(Ordering::Relaxed));
    // SAFETY: the memory was mapped for this number of words, is never unmapped, and zeros are valid words.
    unsafe { core::slice::from_raw_parts(address as *const AtomicU32, count as usize) }
}

/// Stores the result of a call: a descriptor, or an error, which is stored as none.
pub(super) fn keep_descriptor(slot: u64, got: i64) {
    if let Some(kept) = slots().get(slot as usize) {
        kept.store((got + 1).max(0) as u32, Ordering::Release);
    }
}

/// The descriptor in a slot, as an argument.
pub(super) fn descriptor(slot: u64) -> u64 {
    let kept = slots().get(slot as usize).map_or(0, |kept| kept.load(Ordering::Acquire));
    (i64::from(kept) - 1) as u64
}

/// Bytes of a descriptor's name, with a path from there.
pub(super) const NAME_BYTES: usize = 4200;

/// Writes the name of a descriptor of this thread, followed by a path. The first word is the descriptor's slot. Returns
/// the name's address.
pub(super) fn name_of_descriptor(words: &[u64], place: &mut [u8]) -> u64 {
    let mut digits = [0; 20];
    let mut left = descriptor(words[0]) as u32;
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    let path = words[1..].iter().flat_map(|word| word.to_ne_bytes()).take_while(|&byte| byte != 0);
    let slash = Some(b'/').filter(|_| words[1] != 0);
    let name = b"/proc/thread-self/fd/".iter().chain(&digits[first..]).copied().chain(slash).chain(path);
    // The last byte stays zero.
    let room = place.len().saturating_sub(1);
    for (to, byte) in place[..room].iter_mut().zip(name) {
        *to = byte;
    }
    place.as_ptr() as u64
}

/// Writes the descriptor into words of the feed, if one of them is to be one. Returns their address.
pub(super) fn words_at(words: &[u64]) -> u64 {
    let [word, slot, ref all @ ..] = *words else { return 0 };
    if word != NO_WORD {
        // SAFETY: the feed's part is memory of this thread alone, and the word is of the step that it carries out.
        unsafe { all.as_ptr().cast_mut().add(word as usize).write_volatile(descriptor(slot)) };
    }
    all.as_ptr() as u64
}
