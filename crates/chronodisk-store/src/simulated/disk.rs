//! The disk and its page cache.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::plan::{self, Call, Fault, Outcome, Plan, SimulatedOptions};
use crate::host::{Allocation, FileSize, OpenMode, SeekTo};

const SECTOR: usize = 512;
const PAGE: usize = 4096;
const PAGE_BYTES: u64 = PAGE as u64;

type Page = Box<[u8; PAGE]>;

/// All files, and the plan of faults.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) plan: Plan,
    pub(super) capacity_bytes: Option<u64>,
    pub(super) dead: bool,
    /// Counts processes.
    pub(super) generation: u64,
    options: SimulatedOptions,
    random: u64,
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    /// Names as after a power cut, without `changes`.
    names_on_disk: BTreeMap<PathBuf, usize>,
    changes: Vec<NameChange>,
    /// Number of handles of each description.
    descriptions: BTreeMap<u64, u64>,
    next_description: u64,
}

/// A change of names that a power cut may undo.
#[derive(Debug)]
enum NameChange {
    Create(PathBuf, usize),
    Rename(PathBuf, PathBuf, usize),
    Remove(PathBuf),
}

/// A file.
#[derive(Debug, Default)]
struct Inode {
    /// Contents for reads; absent pages read as zeros.
    cache: BTreeMap<u64, Page>,
    /// Contents after a power cut.
    disk: BTreeMap<u64, Page>,
    /// Pages of the cache that have not been written back since they changed.
    dirty: BTreeSet<u64>,
    /// Pages with space and without contents.
    reserved: BTreeSet<u64>,
    reserved_on_disk: BTreeSet<u64>,
    len_bytes: u64,
    len_on_disk_bytes: u64,
    exclusive: Option<u64>,
    shared: BTreeSet<u64>,
}

impl Disk {
    pub(super) fn new(options: &SimulatedOptions) -> Self {
        Disk {
            plan: Plan::default(),
            capacity_bytes: options.capacity_bytes,
            dead: false,
            generation: 0,
            options: *options,
            random: options.seed,
            inodes: Vec::new(),
            names: BTreeMap::new(),
            names_on_disk: BTreeMap::new(),
            changes: Vec::new(),
            descriptions: BTreeMap::new(),
            next_description: 0,
        }
    }

    /// A number below `below`, which is not zero (SplitMix64).
    pub(super) fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    fn happens(&mut self, per_mille: u32) -> bool {
        self.draw(1000) < u64::from(per_mille)
    }

    /// Does a call, or fails it.
    pub(super) fn call<T>(
        &mut self,
        call: Call,
        takes_space: bool,
        work: impl FnOnce(&mut Disk, Outcome) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.dead {
            return Err(plan::dead());
        }
        if self.happens(self.options.write_back_per_mille) {
            self.write_back_some();
        }
        let transfers = matches!(call, Call::Read | Call::Write);
        let waits = transfers || matches!(call, Call::Allocate);
        let fault = self.plan.count(call, takes_space).or_else(|| {
            let short = transfers && self.happens(self.options.short_per_mille);
            let interrupted = waits && self.happens(self.options.interrupted_per_mille);
            short.then_some(Fault::Short).or(interrupted.then_some(Fault::Interrupted))
        });
        let result = match fault {
            None => work(self, Outcome::Whole),
            Some(Fault::Short) => {
                let len = SECTOR * (1 + self.draw(16) as usize);
                work(self, if transfers { Outcome::Partial(len) } else { Outcome::Whole })
            }
            Some(Fault::Interrupted) if waits => Err(plan::interrupted()),
            Some(Fault::Interrupted) => work(self, Outcome::Whole),
            Some(Fault::Error | Fault::ErrorsFromNowOn) => Err(plan::io_error()),
            Some(Fault::FullFromNowOn) => Err(plan::no_space()),
            Some(Fault::Kill | Fault::PowerCut) => {
                // The call was in progress: it takes effect completely, partly or not at all.
                let reached = match call {
                    Call::Write => Some(Outcome::Partial(PAGE * self.draw(20) as usize)),
                    _ => (self.draw(2) == 0).then_some(Outcome::Whole),
                };
                if let Some(reached) = reached {
                    let _ = work(self, reached);
                }
                match fault {
                    Some(Fault::Kill) => self.kill(),
                    _ => self.power_cut(),
                }
                Err(plan::dead())
            }
        };
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::StorageFull
        {
            self.plan.note("no space");
        }
        result
    }

    pub(super) fn kill(&mut self) {
        self.plan.note("end of the process");
        self.end_process();
    }

    fn end_process(&mut self) {
        self.dead = true;
        self.generation += 1;
        self.descriptions.clear();
        for inode in &mut self.inodes {
            inode.exclusive = None;
            inode.shared.clear();
        }
    }

    pub(super) fn power_cut(&mut self) {
        self.plan.note("power cut");
        self.end_process();
        for change in std::mem::take(&mut self.changes) {
            if self.draw(2) == 0 {
                change.apply(&mut self.names_on_disk);
            }
        }
        self.names = self.names_on_disk.clone();
        for index in 0..self.inodes.len() {
            let mut inode = std::mem::take(&mut self.inodes[index]);
            inode.write_back(|| self.draw(2) == 0);
            if self.draw(2) == 0 {
                inode.len_on_disk_bytes = inode.len_bytes;
            }
            if self.draw(2) == 0 {
                inode.reserved_on_disk = std::mem::take(&mut inode.reserved);
            }
            inode.lose_cache();
            self.inodes[index] = inode;
        }
    }

    /// The host writes back some dirty pages on its own.
    fn write_back_some(&mut self) {
        for index in 0..self.inodes.len() {
            let mut inode = std::mem::take(&mut self.inodes[index]);
            inode.write_back(|| self.draw(2) == 0);
            self.inodes[index] = inode;
        }
    }

    // Names.

    pub(super) fn names(&self) -> impl Iterator<Item = &Path> {
        self.names.keys().map(PathBuf::as_path)
    }

    pub(super) fn creates(&self, path: &Path, how: OpenMode) -> bool {
        how == OpenMode::CreateNew && !self.names.contains_key(path)
    }

    pub(super) fn open(&mut self, path: &Path, how: OpenMode) -> io::Result<(usize, u64)> {
        let inode = match (self.names.get(path).copied(), how) {
            (Some(_), OpenMode::CreateNew) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(inode), OpenMode::Read | OpenMode::ReadWrite) => inode,
            (None, OpenMode::Read | OpenMode::ReadWrite) => return Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::CreateNew) => {
                if self.free_pages() == 0 {
                    return Err(plan::no_space());
                }
                self.inodes.push(Inode::default());
                let inode = self.inodes.len() - 1;
                self.change(NameChange::Create(path.to_owned(), inode));
                inode
            }
        };
        self.next_description += 1;
        self.descriptions.insert(self.next_description, 1);
        Ok((inode, self.next_description))
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.names.contains_key(path)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let inode = *self.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        self.change(NameChange::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        if !self.names.contains_key(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.change(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push(change);
    }

    pub(super) fn sync_folder(&mut self, folder: &Path) {
        let (inside, outside) = std::mem::take(&mut self.changes).into_iter().partition(|change| change.is_in(folder));
        self.changes = outside;
        for change in inside {
            change.apply(&mut self.names_on_disk);
        }
    }

    // Descriptors and locks.

    pub(super) fn hold(&mut self, description: u64) {
        if let Some(count) = self.descriptions.get_mut(&description) {
            *count += 1;
        }
    }

    pub(super) fn release(&mut self, inode: usize, description: u64) {
        let Some(count) = self.descriptions.get_mut(&description) else { return };
        *count -= 1;
        if *count == 0 {
            self.descriptions.remove(&description);
            self.inodes[inode].unlock(description);
        }
    }

    pub(super) fn lock(&mut self, inode: usize, description: u64, exclusive: bool) -> bool {
        let inode = &mut self.inodes[inode];
        let others = inode.exclusive.is_some_and(|holder| holder != description)
            || (exclusive && inode.shared.iter().any(|holder| *holder != description));
        if others {
            return false;
        }
        inode.unlock(description);
        match exclusive {
            true => inode.exclusive = Some(description),
            false => {
                inode.shared.insert(description);
            }
        }
        true
    }

    // Contents.

    pub(super) fn read(&self, inode: usize, bytes: &mut [u8], offset_bytes: u64) -> usize {
        let inode = &self.inodes[inode];
        let len = inode.len_bytes.saturating_sub(offset_bytes).min(bytes.len() as u64);
        for (page, within, part) in pieces(offset_bytes, len) {
            match inode.cache.get(&page) {
                Some(contents) => bytes[part].copy_from_slice(&contents[within]),
                None => bytes[part].fill(0),
            }
        }
        len as usize
    }

    /// Writes until the space ends.
    pub(super) fn write(&mut self, inode: usize, bytes: &[u8], offset_bytes: u64) -> io::Result<usize> {
        let mut free = self.free_pages();
        let inode = &mut self.inodes[inode];
        let mut done = 0;
        for (page, within, part) in pieces(offset_bytes, bytes.len() as u64) {
            if !inode.has_space(page) {
                if free == 0 {
                    break;
                }
                free -= 1;
            }
            done = part.end;
            inode.page_mut(page)[within].copy_from_slice(&bytes[part]);
        }
        if done == 0 && !bytes.is_empty() {
            return Err(plan::no_space());
        }
        inode.len_bytes = inode.len_bytes.max(offset_bytes + done as u64);
        Ok(done)
    }

    pub(super) fn sync(&mut self, inode: usize) {
        self.inodes[inode].sync();
    }

    /// The pages of a failed synchronisation count as clean; some are dropped at once.
    pub(super) fn lose_dirty_pages(&mut self, inode: usize) {
        let dirty = std::mem::take(&mut self.inodes[inode].dirty);
        for page in dirty {
            if self.draw(2) == 0 {
                let inode = &mut self.inodes[inode];
                match inode.disk.get(&page).cloned() {
                    Some(contents) => inode.cache.insert(page, contents),
                    None => inode.cache.remove(&page),
                };
            }
        }
    }

    pub(super) fn size(&self, inode: usize) -> FileSize {
        let inode = &self.inodes[inode];
        FileSize { len_bytes: inode.len_bytes, allocated_bytes: inode.pages() * PAGE_BYTES }
    }

    pub(super) fn set_len(&mut self, inode: usize, len_bytes: u64) {
        let inode = &mut self.inodes[inode];
        if len_bytes < inode.len_bytes {
            inode.clear(len_bytes, inode.len_bytes.next_multiple_of(PAGE_BYTES) - len_bytes);
        }
        inode.len_bytes = len_bytes;
    }

    pub(super) fn allocate(
        &mut self,
        inode: usize,
        change: Allocation,
        offset_bytes: u64,
        len_bytes: u64,
    ) -> io::Result<()> {
        if len_bytes == 0 {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let free = self.free_pages();
        let inode = &mut self.inodes[inode];
        let pages = offset_bytes / PAGE_BYTES..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
        if change != Allocation::Punch {
            let lacking: Vec<u64> = pages.clone().filter(|page| !inode.has_space(*page)).collect();
            if lacking.len() as u64 > free {
                return Err(plan::no_space());
            }
            inode.reserved.extend(lacking);
        }
        match change {
            Allocation::Reserve => {}
            Allocation::Punch => inode.clear(offset_bytes, len_bytes),
            Allocation::Zero => {
                inode.clear(offset_bytes, len_bytes);
                let emptied: Vec<u64> = pages.filter(|page| !inode.has_space(*page)).collect();
                inode.reserved.extend(emptied);
            }
        }
        Ok(())
    }

    pub(super) fn seek(&self, inode: usize, what: SeekTo, offset_bytes: u64) -> Option<u64> {
        let inode = &self.inodes[inode];
        if offset_bytes >= inode.len_bytes {
            return None;
        }
        let mut page = offset_bytes / PAGE_BYTES;
        let end = inode.len_bytes.div_ceil(PAGE_BYTES);
        while page < end && inode.cache.contains_key(&page) != (what == SeekTo::Data) {
            page += 1;
        }
        match what {
            SeekTo::Data if page == end => None,
            _ => Some(offset_bytes.max(page * PAGE_BYTES).min(inode.len_bytes)),
        }
    }

    // Space.

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.names.values().map(|inode| self.inodes[*inode].pages() * PAGE_BYTES).sum()
    }

    fn free_pages(&self) -> u64 {
        match self.capacity_bytes {
            Some(capacity_bytes) => capacity_bytes.saturating_sub(self.allocated_bytes()) / PAGE_BYTES,
            None => u64::MAX,
        }
    }

    pub(super) fn lacks_space(&self, inode: usize, offset_bytes: u64, len_bytes: u64) -> bool {
        let mut pages = offset_bytes / PAGE_BYTES..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
        pages.any(|page| !self.inodes[inode].has_space(page))
    }
}

impl Inode {
    fn has_space(&self, page: u64) -> bool {
        self.cache.contains_key(&page) || self.reserved.contains(&page)
    }

    fn pages(&self) -> u64 {
        (self.cache.len() + self.reserved.len()) as u64
    }

    /// A page that will be changed.
    fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE] {
        self.dirty.insert(page);
        self.reserved.remove(&page);
        self.cache.entry(page).or_insert_with(|| Box::new([0; PAGE]))
    }

    /// Zeroes a range; whole pages are freed.
    fn clear(&mut self, offset_bytes: u64, len_bytes: u64) {
        let ends_file = offset_bytes + len_bytes >= self.len_bytes;
        let touched: Vec<u64> = {
            let last = (offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
            let pages = offset_bytes / PAGE_BYTES..last;
            let cached = self.cache.range(pages.clone()).map(|(page, _)| *page);
            cached.chain(self.reserved.range(pages).copied()).collect()
        };
        for page in touched {
            let from = offset_bytes.max(page * PAGE_BYTES) - page * PAGE_BYTES;
            let to = (offset_bytes + len_bytes).min((page + 1) * PAGE_BYTES) - page * PAGE_BYTES;
            let is_whole = from == 0 && (to == PAGE_BYTES || ends_file);
            if is_whole {
                self.reserved.remove(&page);
                self.cache.remove(&page);
                self.dirty.insert(page);
            } else if self.cache.contains_key(&page) {
                self.page_mut(page)[from as usize..to as usize].fill(0);
            }
        }
    }

    fn sync(&mut self) {
        self.write_back(|| true);
        self.dirty.clear();
        self.len_on_disk_bytes = self.len_bytes;
        self.reserved_on_disk = self.reserved.clone();
    }

    /// Writes back the dirty sectors that `choose` selects.
    fn write_back(&mut self, mut choose: impl FnMut() -> bool) {
        const ZEROS: [u8; PAGE] = [0; PAGE];
        for page in &self.dirty {
            let new = self.cache.get(page);
            let on_disk = self.disk.entry(*page).or_insert_with(|| Box::new(ZEROS));
            let mut taken = 0;
            for start in (0..PAGE).step_by(SECTOR) {
                if choose() {
                    let new = new.map_or(&ZEROS, |page| &**page);
                    on_disk[start..start + SECTOR].copy_from_slice(&new[start..start + SECTOR]);
                    taken += 1;
                }
            }
            if new.is_none() && taken == PAGE / SECTOR {
                self.disk.remove(page);
            }
        }
    }

    fn lose_cache(&mut self) {
        self.len_bytes = self.len_on_disk_bytes;
        self.reserved = self.reserved_on_disk.clone();
        self.dirty.clear();
        self.cache = self.disk.clone();
        let end = self.len_bytes.div_ceil(PAGE_BYTES);
        self.cache.split_off(&end);
        self.reserved.split_off(&end);
        let tail = (self.len_bytes % PAGE_BYTES) as usize;
        if tail > 0
            && let Some(last) = self.cache.get_mut(&(end - 1))
        {
            last[tail..].fill(0);
        }
        self.disk = self.cache.clone();
        self.reserved.retain(|page| !self.cache.contains_key(page));
        self.reserved_on_disk = self.reserved.clone();
    }

    fn unlock(&mut self, description: u64) {
        self.exclusive = self.exclusive.filter(|holder| *holder != description);
        self.shared.remove(&description);
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            NameChange::Create(path, inode) => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
        }
    }

    fn is_in(&self, folder: &Path) -> bool {
        let path = match self {
            NameChange::Create(path, _) | NameChange::Rename(_, path, _) | NameChange::Remove(path) => path,
        };
        path.parent().unwrap_or(Path::new("")) == folder
    }
}

/// The parts of a range that lie in each page: the page, where in it, and where in the range.
fn pieces(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
    let pages = offset_bytes / PAGE_BYTES..(offset_bytes + len_bytes).div_ceil(PAGE_BYTES);
    let pages = if len_bytes == 0 { 0..0 } else { pages };
    pages.map(move |page| {
        let from = offset_bytes.max(page * PAGE_BYTES);
        let to = (offset_bytes + len_bytes).min((page + 1) * PAGE_BYTES);
        let within = (from - page * PAGE_BYTES) as usize..(to - page * PAGE_BYTES) as usize;
        (page, within, (from - offset_bytes) as usize..(to - offset_bytes) as usize)
    })
}
