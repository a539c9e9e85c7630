//! Mapped files: a replayer's actions for page faults, which a recorder in the guest sees.

use chronodisk_sim::Nanos;

use super::super::mappings::{MappedRange, PAGE_BYTES};
use super::super::order::{Point, Resource};
use super::super::record::CallRecord;
use super::super::resolve::{Object, Resolved};
use super::super::table::PAGE_FAULT;
use super::super::tables::Kind;
use super::{Action, Planner};

/// `PROT_READ` and `PROT_WRITE`.
const PROTECTION: u64 = 3;
const PROT_READ: u64 = 1;
const MAP_SHARED: u64 = 1;
/// `MAP_SHARED`, `MAP_PRIVATE`, `MAP_SHARED_VALIDATE`, `MAP_POPULATE` and `MAP_NONBLOCK`, without flags for fixed
/// addresses and for the place and size of memory.
const FLAGS: u64 = 0x3 | 0x8000 | 0x1_0000;
const MAP_ANONYMOUS: u64 = 0x20;
/// Advice that changes the I/O: `MADV_NORMAL`, `MADV_RANDOM`, `MADV_SEQUENTIAL`, `MADV_WILLNEED`, `MADV_DONTNEED`,
/// `MADV_REMOVE`, `MADV_COLD`, `MADV_PAGEOUT`, `MADV_POPULATE_READ`, `MADV_POPULATE_WRITE`.
const ADVICE: [u64; 10] = [0, 1, 2, 3, 4, 9, 20, 21, 22, 23];

/// A mapping that the replayer makes.
pub(super) struct Mapped {
    file: Vec<u8>,
    bytes: u64,
    /// The step that makes it.
    made_by: Point,
}

impl Planner<'_> {
    /// Plans a call that only concerns memory. Returns whether it is one.
    pub(super) fn memory(&mut self, index: usize, resolved: &Resolved) -> bool {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        match record.call.name() {
            PAGE_FAULT => self.on_mapping(index, record.arguments[0], |_, MappedRange { mapping, offset, .. }| {
                Action::Fault { mapping, offset, writes: record.arguments[1] != 0 }
            }),
            "msync" => self.on_mapping(index, record.arguments[0], |record, MappedRange { mapping, offset, bytes }| {
                let [_, wanted, flags, ..] = record.arguments;
                Action::Flush { mapping, offset, bytes: wanted.min(bytes), flags }
            }),
            "madvise" if record.succeeded() && ADVICE.contains(&record.arguments[2]) => {
                self.on_mapping(index, record.arguments[0], |record, MappedRange { mapping, offset, bytes }| {
                    let [_, wanted, advice, ..] = record.arguments;
                    Action::Advise { mapping, offset, bytes: wanted.min(bytes), advice }
                });
            }
            "mmap" => self.map(index, resolved),
            "munmap" | "mremap" => {
                self.mappings.follow(life, record, false, None);
                self.leave_out(index);
                self.grow(index);
            }
            _ => return false,
        }
        self.unmap(index);
        true
    }

    /// Adds a step on the mapping at the address, if there is one.
    fn on_mapping(&mut self, index: usize, address: u64, action: impl Fn(&CallRecord, MappedRange) -> Action) {
        let life = self.sequence.life_of[index];
        let Some(place) = self.mappings.find(life, address) else { return self.leave_out(index) };
        let (at, mut waits) = (self.next(life), Vec::new());
        self.stages.uses(Resource::Mapping(place.mapping), at, &mut waits);
        let file = self.mapped[place.mapping as usize].file.clone();
        self.stages.uses(Resource::Length(file), at, &mut waits);
        self.stages.needed(at, &mut waits);
        self.step(index, waits, action(&self.records[index], place));
    }

    fn map(&mut self, index: usize, resolved: &Resolved) {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let [_, bytes, protection, flags, descriptor, offset] = record.arguments;
        let is_file = flags & MAP_ANONYMOUS == 0 && self.tables.kind(life, descriptor as i32) == Some(Kind::File);
        let file = resolved.objects.iter().find_map(|used| match &used.object {
            Object::File(path) => Some(path.clone()),
            Object::Pipe(_) => None,
        });
        let file = file.filter(|_| is_file);
        let mapping = self.mappings.follow(life, record, file.is_some(), None);
        let (Some(mapping), Some(file)) = (mapping, file) else { return self.leave_out(index) };
        let (at, mut waits) = (self.next(life), Vec::new());
        self.order(index, resolved, at, &mut waits);
        self.stages.changes(Resource::Mapping(mapping), at, &mut waits);
        self.stages.needed(at, &mut waits);
        let is_shared = flags & MAP_SHARED != 0;
        // For any later protection: the pages of a private mapping belong to the process.
        let protection = if is_shared { protection & PROTECTION | PROT_READ } else { PROTECTION };
        let Some(descriptor) = self.tables.slot(life, descriptor as i32) else { return self.leave_out(index) };
        let action = Action::Map { mapping, descriptor, offset, bytes, protection, flags: flags & FLAGS };
        let step = self.step(index, waits, action);
        debug_assert_eq!(mapping as usize, self.mapped.len());
        self.mapped.push(Mapped { file, bytes, made_by: Point { life, step } });
        self.touches_device = true;
    }

    /// A mapping that `mremap` has made larger is as large from the beginning.
    fn grow(&mut self, index: usize) {
        let record = &self.records[index];
        let address = record.result.and_then(|result| u64::try_from(result).ok());
        let address = address.filter(|_| record.call.name() == "mremap");
        let life = self.sequence.life_of[index];
        let Some(place) = address.and_then(|address| self.mappings.find(life, address)) else { return };
        let mapped = &mut self.mapped[place.mapping as usize];
        let end = place.offset.saturating_add(place.bytes);
        if end <= mapped.bytes.next_multiple_of(PAGE_BYTES) {
            return;
        }
        mapped.bytes = end;
        let maker = &mut self.lives[mapped.made_by.life].steps[mapped.made_by.step];
        if let Action::Map { bytes, .. } = &mut maker.action {
            *bytes = end;
        }
    }

    /// Effect of a call of any kind on mappings, with the steps that remove mappings without users.
    pub(super) fn unmap(&mut self, index: usize) {
        let life = self.sequence.life_of[index];
        for mapping in self.mappings.gone() {
            let (at, mut waits) = (self.next(life), Vec::new());
            self.stages.changes(Resource::Mapping(mapping), at, &mut waits);
            self.stages.needed(at, &mut waits);
            let bytes = self.mapped[mapping as usize].bytes;
            let waits = waits.into_iter().map(super::Awaited::Step).collect();
            self.push(life, index, Nanos::ZERO, Nanos::ZERO, waits, Action::Unmap { mapping, bytes });
        }
    }
}
