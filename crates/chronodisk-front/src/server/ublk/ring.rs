//! The queue's ring, its descriptors in shared memory, and the requests' data.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use io_uring::types::Fixed;
use io_uring::{IoUring, opcode};
use rustix::mm::{MapFlags, ProtFlags};
use vm_memory::mmap::MmapRegion;
use vm_memory::{FileOffset, VolatileMemory};

use crate::ublk::QUEUE_DEPTH;
use crate::ublk::wire::{
    COMMIT_AND_FETCH_REQ, DESCRIPTOR_BYTES, Descriptor, FETCH_REQ, data_offset, descriptors_bytes, io_command,
};

/// `/dev/ublkcN`, and the ring of its queue. Only the thread that made it may send commands.
pub(super) struct Ring {
    ring: IoUring,
    descriptors: MmapRegion,
    device: File,
}

/// The device among the ring's registered descriptors.
const DEVICE: Fixed = Fixed(0);

impl Ring {
    /// Fetches the first request of each tag of `device`, an opened `/dev/ublkcN`.
    pub fn start(device: OwnedFd) -> io::Result<Self> {
        // The driver adds work to this thread. The thread runs it at its next system call, without an interrupt.
        let ring: IoUring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_cqsize(2 * u32::from(QUEUE_DEPTH))
            .build(QUEUE_DEPTH.into())?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        let device = File::from(device);
        let len = descriptors_bytes(QUEUE_DEPTH, rustix::param::page_size());
        let place = FileOffset::new(device.try_clone()?, 0);
        let (readable, shared) = (ProtFlags::READ.bits() as i32, MapFlags::SHARED.bits() as i32);
        let descriptors = MmapRegion::build(Some(place), len, readable, shared).map_err(io::Error::other)?;
        let mut started = Ring { ring, descriptors, device };
        for tag in 0..QUEUE_DEPTH {
            started.push(FETCH_REQ, tag, -1)?;
        }
        started.submit()?;
        // A refused command has completed by now; requests come after the start of the block device.
        match started.completed() {
            None => Ok(started),
            Some((_, result)) => Err(io::Error::from_raw_os_error(-result)),
        }
    }

    /// A duplicate of the ring's descriptor, readable when a command has completed.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        // SAFETY: the ring owns the descriptor, and lives longer than this borrow.
        let ring = unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) };
        ring.try_clone_to_owned()
    }

    /// Prepares the result of a request, and fetches the tag's next one.
    pub fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(COMMIT_AND_FETCH_REQ, tag, result)
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let entry = opcode::UringCmd16::new(DEVICE, command).cmd(io_command(tag, result)).build().user_data(tag.into());
        // SAFETY: the command carries its arguments in itself: nothing of this process must outlive it.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::other("more commands than tags"))
    }

    /// Sends the prepared commands.
    pub fn submit(&mut self) -> io::Result<()> {
        loop {
            match self.ring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                submitted => return submitted.map(drop),
            }
        }
    }

    /// Number of completed commands.
    pub fn completed_count(&mut self) -> usize {
        self.ring.completion().len()
    }

    /// The tag and the result of the oldest completed command.
    pub fn completed(&mut self) -> Option<(u16, i32)> {
        let entry = self.ring.completion().next()?;
        // This process chose the number.
        Some((entry.user_data() as u16, entry.result()))
    }

    /// The description of the tag's request; an empty one for a tag that does not exist.
    pub fn request(&self, tag: u16) -> Descriptor {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        if let Ok(place) = self.descriptors.get_slice(usize::from(tag) * DESCRIPTOR_BYTES, DESCRIPTOR_BYTES) {
            place.copy_to(&mut bytes);
        }
        Descriptor::decode(&bytes)
    }

    /// Copies the data of a write.
    pub fn copy_from_request(&self, tag: u16, data: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(data, data_offset(tag))
    }

    /// Copies the data of a read.
    pub fn copy_to_request(&self, tag: u16, data: &[u8]) -> io::Result<()> {
        self.device.write_all_at(data, data_offset(tag))
    }
}
