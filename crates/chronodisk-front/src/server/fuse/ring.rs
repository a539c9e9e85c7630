//! The ring of a FUSE connection, and the memory of its entries.
#![allow(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use chronodisk_engine::real_host;
use io_uring::squeue::Entry128;
use io_uring::types::Fixed;
use io_uring::{IoUring, opcode};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use vm_memory::mmap::MmapRegion;
use vm_memory::{VolatileMemory, VolatileSlice};

use crate::fuse::REQUEST_BYTES_MAX;
use crate::fuse::ring_wire::{COMMIT_AND_FETCH, REGISTER, RING_HEADER_BYTES, ring_command};
use crate::server::peer::{lower, raise};

/// A queue for each CPU of the host, and the ring that serves all of them. Only the thread that made it may send
/// commands.
pub(super) struct Ring {
    ring: IoUring<Entry128>,
    memory: Arc<RingMemory>,
    queues: u16,
    /// Readable when commands may have completed.
    event: OwnedFd,
}

/// Memory of the entries. The kernel writes to it in system calls of the ring's thread, also after the ring is closed,
/// until its commands have ended. So it stays until that thread has ended.
pub(in crate::server) struct RingMemory {
    region: MmapRegion,
    /// Arguments of the entries' registrations: `struct iovec` of the header and of the payload.
    vectors: Box<[Vectors]>,
}

/// Two `struct iovec`: address and length of each.
type Vectors = [usize; 4];

/// A completed command.
pub(super) enum Completed {
    /// `/dev/fuse` may have messages, or the connection has ended.
    Messages,
    /// The command of this entry, with its result.
    Entry(u32, i32),
}

/// Entries of each queue: one for each request of a loop device, which may all be issued on one CPU.
const QUEUE_ENTRIES: u16 = 128;
/// Most queues. An entry takes [`REQUEST_BYTES_MAX`] of address space; memory only for the longest request that it had.
const QUEUES_MAX: u16 = 64;
/// Commands that are prepared before they are sent.
const PREPARED_MAX: u32 = 256;

/// Completions after which a call may have left work: the kernel does 20 works a call (`IO_LOCAL_TW_DEFAULT_MAX`), and
/// not each of them completes a command. It does not tell that it has left some.
const WORKS_AT_ONCE: usize = 16;
/// `IORING_ENTER_GETEVENTS` of `include/uapi/linux/io_uring.h`.
const GET_EVENTS: u32 = 1;
/// `/dev/fuse` among the ring's registered descriptors.
const FUSE: Fixed = Fixed(0);
/// Number of the command that waits for messages.
const MESSAGES: u64 = u64::MAX;

impl Ring {
    /// A ring for `/dev/fuse`, and memory for all entries.
    pub fn new(fuse: BorrowedFd<'_>) -> io::Result<Self> {
        let queues = possible_cpus().ok_or_else(|| io::Error::other("the number of CPUs is unknown"))?;
        if queues > QUEUES_MAX {
            return Err(io::Error::other("too many CPUs"));
        }
        let memory = RingMemory::new(usize::from(queues) * usize::from(QUEUE_ENTRIES))?;
        // The kernel leaves work to this thread, such as copying a request to its entry. The thread does it in `fetch`
        // alone: else the time of a call that sends replies would have the work of later requests in it.
        let ring: IoUring<Entry128> = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize((u32::from(queues) * u32::from(QUEUE_ENTRIES) + 1).next_power_of_two().max(2 * PREPARED_MAX))
            .build(PREPARED_MAX)?;
        ring.submitter().register_files(&[fuse.as_raw_fd()])?;
        // The ring itself becomes readable only after the work is done.
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        Ok(Ring { ring, memory: Arc::new(memory), queues, event })
    }

    /// Registers an entry of each queue. From here on the kernel sends its requests to the ring.
    ///
    /// # Errors
    /// The kernel's refusal. It then goes on to send its requests by `/dev/fuse`.
    pub fn register_first(&mut self) -> io::Result<()> {
        (0..self.queues).try_for_each(|queue| self.register(queue, 0))?;
        self.expect_registered()
    }

    /// Registers the other entries, and waits for messages on `/dev/fuse`.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn register_others(&mut self) -> io::Result<()> {
        for queue in 0..self.queues {
            (1..QUEUE_ENTRIES).try_for_each(|index| self.register(queue, index))?;
        }
        self.expect_registered()?;
        self.expect_messages()?;
        self.submit()
    }

    fn register(&mut self, queue: u16, index: u16) -> io::Result<()> {
        let entry = u32::from(queue) * u32::from(QUEUE_ENTRIES) + u32::from(index);
        let vectors = &self.memory.vectors[entry as usize];
        let command = opcode::UringCmd80::new(FUSE, REGISTER).addr(Some(vectors.as_ptr() as u64));
        let command = command.cmd(ring_command(queue, 0)).build().user_data(entry.into());
        self.push(&with_len(command, VECTORS))
    }

    /// Sends the registrations. A refused one has completed by then. Others have not: requests wait for `fetch`.
    fn expect_registered(&mut self) -> io::Result<()> {
        self.submit()?;
        match self.ring.completion().next() {
            Some(refused) => Err(io::Error::from_raw_os_error(-refused.result())),
            None => Ok(()),
        }
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        u32::from(self.queues) * u32::from(QUEUE_ENTRIES)
    }

    /// The memory, to be kept until the ring's thread has ended.
    pub fn memory(&self) -> Arc<RingMemory> {
        self.memory.clone()
    }

    /// A duplicate of the descriptor that is readable when [`fetch`](Self::fetch) may find completed commands.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.event.try_clone()
    }

    /// Whether the kernel has left work to this thread. Needs no system call.
    pub fn is_announced(&mut self) -> bool {
        self.ring.submission().taskrun()
    }

    /// Does some of the kernel's work, which completes commands. The descriptor stays readable if more may be left.
    pub fn fetch(&mut self) -> io::Result<()> {
        let before = self.completed_count();
        self.enter(0, GET_EVENTS)?;
        // The work itself has made it readable, too.
        lower(&self.event);
        if self.is_announced() || self.completed_count() >= before + WORKS_AT_ONCE {
            self.announce();
        }
        Ok(())
    }

    /// Makes the descriptor readable.
    pub fn announce(&self) {
        raise(&self.event);
    }

    fn enter(&self, count: u32, flags: u32) -> io::Result<usize> {
        loop {
            // SAFETY: no argument is passed. The memory of the commands stays until this thread has ended.
            match unsafe { self.ring.submitter().enter::<()>(count, 0, flags, None) } {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                entered => return entered,
            }
        }
    }

    /// Prepares to be told of messages on `/dev/fuse`, once.
    pub fn expect_messages(&mut self) -> io::Result<()> {
        let readable = u32::from(PollFlags::IN.bits());
        self.push(&opcode::PollAdd::new(FUSE, readable).build().user_data(MESSAGES).into())
    }

    /// Prepares the reply to a request, whose payload is in place, and fetches the entry's next one.
    pub fn commit(&mut self, entry: u32, commit_id: u64) -> io::Result<()> {
        let queue = (entry / u32::from(QUEUE_ENTRIES)) as u16;
        let command = opcode::UringCmd80::new(FUSE, COMMIT_AND_FETCH).cmd(ring_command(queue, commit_id));
        self.push(&command.build().user_data(entry.into()))
    }

    fn push(&mut self, entry: &Entry128) -> io::Result<()> {
        if self.ring.submission().is_full() {
            self.submit()?;
        }
        // SAFETY: the memory of an entry and the arguments of its registration stay until this thread has ended, and
        // the commands by then. The descriptor is registered with the ring.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(|_| io::Error::other("the ring accepts no commands"))
    }

    /// Whether commands are prepared.
    pub fn has_prepared(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Sends the prepared commands.
    pub fn submit(&mut self) -> io::Result<()> {
        while self.has_prepared() {
            let count = self.ring.submission().len() as u32;
            if self.enter(count, 0)? == 0 {
                return Err(io::Error::other("the kernel takes no commands"));
            }
        }
        Ok(())
    }

    /// Number of completed commands.
    pub fn completed_count(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// The oldest completed command.
    pub fn completed(&mut self) -> Option<Completed> {
        let completed = self.ring.completion().next()?;
        Some(match completed.user_data() {
            MESSAGES => Completed::Messages,
            // This process chose the number.
            entry => Completed::Entry(entry as u32, completed.result()),
        })
    }

    /// The header of an entry without a command; zeros for an entry that does not exist.
    pub fn header(&self, entry: u32) -> [u8; RING_HEADER_BYTES] {
        let mut bytes = [0; RING_HEADER_BYTES];
        if let Some(header) = self.memory.header(entry) {
            header.copy_to(&mut bytes);
        }
        bytes
    }

    /// Replaces the header of an entry without a command.
    pub fn put_header(&mut self, entry: u32, bytes: &[u8; RING_HEADER_BYTES]) {
        if let Some(header) = self.memory.header(entry) {
            header.copy_from(bytes);
        }
    }

    /// The first `len` bytes of the payload of an entry without a command; nothing if it is shorter.
    pub fn payload(&mut self, entry: u32, len: usize) -> &mut [u8] {
        let payload = self.memory.payload(entry).filter(|payload| len <= payload.len());
        let Some(payload) = payload else { return &mut [] };
        // SAFETY: the range is inside the mapping, which this value keeps. The kernel uses an entry's memory only while
        // its command is sent, and this value is borrowed exclusively, so nothing else uses it.
        unsafe { std::slice::from_raw_parts_mut(payload.ptr_guard_mut().as_ptr(), len) }
    }
}

/// Bytes from an entry's header to the next: whole cache lines.
const HEADER_STRIDE: usize = RING_HEADER_BYTES.next_multiple_of(64);
const PAYLOAD_BYTES: usize = REQUEST_BYTES_MAX as usize;
/// Number of `struct iovec` of a registration.
const VECTORS: u32 = 2;

impl RingMemory {
    fn new(entries: usize) -> io::Result<Self> {
        let headers_bytes = Self::headers_bytes(entries);
        let region = MmapRegion::new(headers_bytes + entries * PAYLOAD_BYTES).map_err(io::Error::other)?;
        let begin = region.as_ptr() as usize;
        let vectors = (0..entries).map(|entry| {
            let (header, payload) = (entry * HEADER_STRIDE, headers_bytes + entry * PAYLOAD_BYTES);
            [begin + header, RING_HEADER_BYTES, begin + payload, PAYLOAD_BYTES]
        });
        let vectors = vectors.collect();
        Ok(RingMemory { region, vectors })
    }

    /// Bytes before the first payload: whole pages.
    fn headers_bytes(entries: usize) -> usize {
        (entries * HEADER_STRIDE).next_multiple_of(rustix::param::page_size())
    }

    fn header(&self, entry: u32) -> Option<VolatileSlice<'_>> {
        self.slice(entry, 0)
    }

    fn payload(&self, entry: u32) -> Option<VolatileSlice<'_>> {
        self.slice(entry, 2)
    }

    /// The memory of the `struct iovec` whose address is at `at`.
    fn slice(&self, entry: u32, at: usize) -> Option<VolatileSlice<'_>> {
        let vectors = self.vectors.get(entry as usize)?;
        self.region.get_slice(vectors[at] - self.region.as_ptr() as usize, vectors[at + 1]).ok()
    }
}

/// Sets the length of a command, which the library leaves zero.
fn with_len(mut command: Entry128, len: u32) -> Entry128 {
    const LEN_AT: usize = 24;
    const { assert!(size_of::<Entry128>() == 128 && LEN_AT.is_multiple_of(align_of::<u32>())) };
    // SAFETY: the type is `struct io_uring_sqe` of Linux's `include/uapi/linux/io_uring.h`, whose field `len` has this
    // place; a test compares it with a command whose length the library sets.
    unsafe { (&raw mut command).cast::<u8>().add(LEN_AT).cast::<u32>().write_unaligned(len) };
    command
}

/// Number of CPUs that the host may ever have, by which the kernel numbers its queues.
fn possible_cpus() -> Option<u16> {
    let cpus = real_host::listed_cpus(&fs::read_to_string("/sys/devices/system/cpu/possible").ok()?)?;
    u16::try_from(cpus.len()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_has_the_same_place_as_in_other_commands() {
        let bytes_of = |command: Entry128| {
            // SAFETY: any bytes are valid, and the sizes are equal.
            unsafe { std::mem::transmute::<Entry128, [u8; 128]>(command) }
        };
        let read = |len| bytes_of(opcode::Read::new(FUSE, std::ptr::null_mut(), len).build().into());
        let differing: Vec<usize> = (0..128).filter(|at| read(0)[*at] != read(u32::MAX)[*at]).collect();
        assert_eq!(differing, [24, 25, 26, 27]);
        let command = || opcode::UringCmd80::new(FUSE, REGISTER).addr(Some(0x0102)).cmd([9; 80]).build();
        let (without, with) = (bytes_of(command()), bytes_of(with_len(command(), 0x0304)));
        assert_eq!((with[16], with[17], with[24], with[25], with[48], with[127]), (2, 1, 4, 3, 9, 9));
        assert!((0..128).all(|at| with[at] == without[at] || (24..28).contains(&at)));
    }

    #[test]
    fn the_memory_of_entries_does_not_overlap() {
        let memory = RingMemory::new(3).unwrap();
        let mut ranges: Vec<(usize, usize)> =
            memory.vectors.iter().flat_map(|vectors| [(vectors[0], vectors[1]), (vectors[2], vectors[3])]).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0));
        assert_eq!(ranges.len(), 6);
        let (header, payload) = (memory.header(2).unwrap(), memory.payload(2).unwrap());
        assert_eq!((header.len(), payload.len()), (RING_HEADER_BYTES, PAYLOAD_BYTES));
        assert!(memory.header(3).is_none() && memory.payload(3).is_none());
    }
}
