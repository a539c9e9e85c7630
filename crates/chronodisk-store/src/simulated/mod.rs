//! A host in memory whose calls fail on request, for tests of stores.
//!
//! [`SimulatedHost`] is a [`Host`] without threads, clock or real files. Equal seeds and equal calls give equal
//! results. The fault model, in full:
//!
//! - *Page cache.* A write reaches the cache. It reaches the disk when the file is synchronised, or earlier: before
//!   some calls, drawn by the seed, the host writes back some of the dirty sectors on its own. A sector of 512 bytes is
//!   old or new, never a mixture.
//! - *End of the process* ([`Fault::Kill`], [`SimulatedHost::kill`]). The cache survives. A write in progress may stop
//!   at any of its page boundaries; any other call in progress takes effect or does not. Each later call of the dead
//!   process fails, and its locks are released. [`SimulatedHost::restart`] begins a new process.
//! - *Power cut* ([`Fault::PowerCut`], [`SimulatedHost::power_cut`]). As the end of the process, and the cache is lost.
//!   Each sector changed since it was last on the disk is independently old or new, drawn by the seed. The file's
//!   length is one that it had since it was synchronised, the first or the last. Reserved space may be free again. A
//!   name that was created, changed or removed since its folder was synchronised has that change or does not, each
//!   change independently; a rename is one change. A file without a name is gone.
//! - *No space.* The disk has a capacity, or is full from a given space-taking call on. A write to a page without space
//!   takes space, in pages of 4 KiB, and so do a reservation and the creation of a file. A write ends early where the
//!   space ends; if not one byte fits, it fails with `ENOSPC`. Pages that have space can be overwritten.
//! - *I/O errors.* A call fails with `EIO`, once or from then on, and has no effect. A failed synchronisation is worse,
//!   as it is on Linux: the dirty pages that it covered count as clean although they are not on the disk. Some are
//!   dropped from the cache at once and read as the disk's old contents. The next synchronisation succeeds.
//! - *Short transfers and interruptions.* A read or a write transfers less than requested, in whole sectors; an
//!   interruptible call fails with `EINTR` and has no effect.
//! - *Names.* A query for a name fails in a dead process only.
//! - *Locks* belong to a descriptor and its duplicates, and end with the last of them.
//!
//! Not modelled: a disk that returns other bytes than were written, torn sectors, writes of other programs.

mod disk;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::host::{Allocation, FileSize, Host, HostFile, OpenMode, SeekTo};
use disk::Disk;
use plan::Outcome;
pub use plan::{Call, Fault, SimulatedOptions};

/// A host in memory; clones are the same host. The module documentation describes its faults.
#[derive(Clone, Debug)]
pub struct SimulatedHost(Arc<Mutex<Disk>>);

impl SimulatedHost {
    /// A host with an empty disk.
    #[must_use]
    pub fn new(options: &SimulatedOptions) -> Self {
        SimulatedHost(Arc::new(Mutex::new(Disk::new(options))))
    }

    /// Injects a fault at the `nth` call of a kind from now on, the first being number 1. [`Call::Any`] counts all
    /// calls, [`Call::TakesSpace`] those that need additional space.
    pub fn inject(&self, call: Call, nth: u64, fault: Fault) {
        self.disk().plan.inject(call, nth, fault);
    }

    /// Removes all injected faults. Their past effects stay.
    pub fn repair(&self) {
        self.disk().plan.repair();
    }

    /// Sets the disk's capacity in bytes; `None` for unlimited.
    pub fn set_capacity(&self, capacity_bytes: Option<u64>) {
        self.disk().capacity_bytes = capacity_bytes;
    }

    /// Bytes allocated by all files.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.disk().allocated_bytes()
    }

    /// Number of calls so far of one kind, or of all kinds.
    #[must_use]
    pub fn calls(&self, call: Call) -> u64 {
        self.disk().plan.calls(call)
    }

    /// Number of effects of each kind of fault so far. Short transfers and interruptions that were not injected do not
    /// count.
    #[must_use]
    pub fn effects(&self) -> BTreeMap<&'static str, u64> {
        self.disk().plan.effects.clone()
    }

    /// Ends the process between two calls.
    pub fn kill(&self) {
        self.disk().kill();
    }

    /// Cuts the power between two calls.
    pub fn power_cut(&self) {
        self.disk().power_cut();
    }

    /// Whether the process has ended, so that all calls fail.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.disk().dead
    }

    /// Begins a new process. Files opened by the old one stay unusable.
    pub fn restart(&self) {
        self.disk().dead = false;
    }

    /// The names of all files, in order.
    #[must_use]
    pub fn names(&self) -> Vec<PathBuf> {
        self.disk().names().map(Path::to_owned).collect()
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Host for SimulatedHost {
    fn open(&self, path: &Path, how: OpenMode) -> io::Result<Box<dyn HostFile>> {
        let mut disk = self.disk();
        let takes_space = disk.creates(path, how);
        let (inode, description) = disk.call(Call::Open, takes_space, |disk, outcome| match outcome {
            Outcome::Whole | Outcome::Partial(_) => disk.open(path, how),
        })?;
        let generation = disk.generation;
        drop(disk);
        Ok(Box::new(SimulatedFile { host: self.clone(), inode, description, generation }))
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let disk = self.disk();
        if disk.dead { Err(plan::dead()) } else { Ok(disk.exists(path)) }
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk().call(Call::Rename, false, |disk, _| disk.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk().call(Call::Remove, false, |disk, _| disk.remove(path))
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.disk().call(Call::SyncFolder, false, |disk, _| {
            disk.sync_folder(folder);
            Ok(())
        })
    }
}

/// An open file of a [`SimulatedHost`].
#[derive(Debug)]
struct SimulatedFile {
    host: SimulatedHost,
    inode: usize,
    /// Owner of the file's locks, shared by duplicates.
    description: u64,
    /// The process that opened it.
    generation: u64,
}

impl SimulatedFile {
    fn call<T>(
        &self,
        call: Call,
        takes_space: impl FnOnce(&Disk) -> bool,
        work: impl FnOnce(&mut Disk, Outcome) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut disk = self.host.disk();
        if disk.generation != self.generation {
            return Err(plan::dead());
        }
        let takes_space = takes_space(&disk);
        disk.call(call, takes_space, work)
    }
}

impl HostFile for SimulatedFile {
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64, cached_only: bool) -> io::Result<usize> {
        self.call(
            Call::Read,
            |_| false,
            |disk, outcome| match cached_only && disk.draw(4) == 0 {
                true => Err(io::ErrorKind::WouldBlock.into()),
                false => {
                    let len = outcome.len(bytes.len());
                    Ok(disk.read(self.inode, &mut bytes[..len], offset_bytes))
                }
            },
        )
    }

    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        self.call(
            Call::Write,
            |disk| disk.lacks_space(self.inode, offset_bytes, bytes.len() as u64),
            |disk, outcome| disk.write(self.inode, &bytes[..outcome.len(bytes.len())], offset_bytes),
        )
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.call(
            Call::Sync,
            |_| false,
            |disk, _| {
                disk.sync(self.inode);
                Ok(())
            },
        );
        if let Err(error) = &synced
            && error.raw_os_error() == plan::io_error().raw_os_error()
        {
            self.host.disk().lose_dirty_pages(self.inode);
        }
        synced
    }

    fn size(&self) -> io::Result<FileSize> {
        self.call(Call::Size, |_| false, |disk, _| Ok(disk.size(self.inode)))
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        self.call(
            Call::SetLen,
            |_| false,
            |disk, _| {
                disk.set_len(self.inode, len_bytes);
                Ok(())
            },
        )
    }

    fn allocate(&self, change: Allocation, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        self.call(
            Call::Allocate,
            |disk| change != Allocation::Punch && disk.lacks_space(self.inode, offset_bytes, len_bytes),
            |disk, _| disk.allocate(self.inode, change, offset_bytes, len_bytes),
        )
    }

    fn seek(&self, what: SeekTo, offset_bytes: u64) -> io::Result<Option<u64>> {
        self.call(Call::Seek, |_| false, |disk, _| Ok(disk.seek(self.inode, what, offset_bytes)))
    }

    fn lock(&self, exclusive: bool) -> io::Result<bool> {
        self.call(Call::Lock, |_| false, |disk, _| Ok(disk.lock(self.inode, self.description, exclusive)))
    }

    fn identity(&self) -> io::Result<u64> {
        self.call(Call::Identity, |_| false, |_, _| Ok(self.inode as u64))
    }

    fn duplicate(&self) -> io::Result<Box<dyn HostFile>> {
        self.call(
            Call::Duplicate,
            |_| false,
            |disk, _| {
                disk.hold(self.description);
                Ok(())
            },
        )?;
        Ok(Box::new(SimulatedFile { host: self.host.clone(), ..*self }))
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.host.disk().release(self.inode, self.description);
    }
}
