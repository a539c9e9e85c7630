//! Answers of members with an error: reads repaired from other members, and members that are dropped.
//!
//! As in Linux's md (`fix_read_error` in `raid1.c` and `raid10.c`, `raid5_end_read_request`):
//! - A read that fails is answered from another copy, or computed from its row. The data are then written back to the
//!   member that failed to read them, so that its medium may reassign the sectors. The request does not wait for that.
//! - In a row, the blocks of a merged read that failed are read again one by one before they count as lost.
//! - A member that fails a write, also of data written back, is dropped: the array goes on without it. A member whose
//!   loss the array does not survive stays, and its errors are the requests' errors.
//!
//! Other than in md, a mirrored array repairs a failed read as a whole, not page by page, and nothing is read back
//! after its repair. Members are not dropped for the number of their read errors.

use chronodisk_sim::{Lba, Op, Request, Status};

use super::jobs::{Blocks, Task};
use super::layout::{MemberSector, MemberSet};
use super::parts::{Owner, Part, Repair};
use super::policy::Array;
use super::rebuild::held_sectors;
use crate::composite::Context;

/// Whether a member that answers a write so no longer has the array's data.
fn loses_data(status: Status) -> bool {
    matches!(status, Status::MediaError | Status::Aborted)
}

impl Array {
    /// Takes the answer to a part of a request that goes past the stripe cache. Returns the status that the request
    /// gets from it.
    pub(super) fn judge(
        &mut self,
        parent: u32,
        device: usize,
        part: &Part,
        status: Status,
        context: &mut Context<'_>,
    ) -> Status {
        let (member, range) = (part.member, (part.request.lba.0, part.request.end().0));
        let has_parity = self.layout.has_parity();
        match part.request.op {
            _ if !has_parity && self.layout.copies() == 1 => status,
            Op::Read if has_parity => {
                self.read_by_rows(parent, member, range, context);
                Status::Ok
            }
            Op::Read => {
                self.read_copies(parent, member, range, status, context);
                Status::Ok
            }
            Op::Write | Op::WriteZeroes if self.drop_member((member, device), status, context) => Status::Ok,
            _ => status,
        }
    }

    /// Drops a member whose device failed a write, if the array survives without it. Returns whether the device is
    /// gone.
    pub(super) fn drop_member(
        &mut self,
        (member, device): (usize, usize),
        status: Status,
        context: &Context<'_>,
    ) -> bool {
        if self.device(member) != device {
            return true;
        }
        if self.rebuild.as_ref().is_some_and(|rebuild| rebuild.member().contains(member)) {
            return loses_data(status) && self.drop_spare(context.now());
        }
        if self.failed(context.now()).contains(member) {
            return true;
        }
        let mut rest = self.failing.map_or(self.failed, |(_, more)| self.failed.union(more));
        rest.insert(member);
        if !loses_data(status) || !self.layout.survives(rest) {
            return false;
        }
        self.failed.insert(member);
        self.statistics.dropped_members += 1;
        self.notice_loss(context.now());
        true
    }

    /// Reads a member's sectors again by way of the stripe cache.
    fn read_by_rows(&mut self, parent: u32, member: usize, (start, end): (u64, u64), context: &mut Context<'_>) {
        let chunk = self.layout.chunk_sectors;
        let mut sector = start;
        while sector < end {
            let (row, next) = (sector / chunk, end.min((sector / chunk + 1) * chunk));
            let unit = (0..self.layout.units()).find(|&unit| self.layout.data(row, unit) == member);
            let begin = row * self.layout.row_sectors() + unit.expect("a read of data") as u64 * chunk + sector % chunk;
            let blocks = Blocks::new(begin, begin + next - sector);
            self.add_job(parent, Task::Blocks { blocks, write: false, fua: false });
            sector = next;
        }
        self.serve_rows(context);
    }

    /// Reads a member's sectors from other copies.
    fn read_copies(
        &mut self,
        parent: u32,
        member: usize,
        (start, end): (u64, u64),
        status: Status,
        context: &mut Context<'_>,
    ) {
        let size = self.layout.chunk_sectors;
        let mut sector = start;
        while sector < end {
            let next = end.min((sector / size + 1) * size);
            let chunk = self.layout.chunk_at(member, sector / size).expect("a sector with data");
            let mut tried = MemberSet::default();
            tried.insert(member);
            let repair = Repair { parent, chunk, offset: sector % size, tried, status };
            self.parents.get_mut(parent).remaining += 1;
            self.read_next_copy(repair, (next - sector) as u32, context);
            sector = next;
        }
    }

    /// Reads the next copy that has not failed; without one, the request fails.
    fn read_next_copy(&mut self, repair: Repair, sectors: u32, context: &mut Context<'_>) {
        let (failed, length) = (self.failed(context.now()), u64::from(sectors));
        let rebuild = self.rebuild.as_deref();
        let usable = |place: &MemberSector| {
            !repair.tried.contains(place.member) && held_sectors(rebuild, failed, *place, length) == length
        };
        let Some(place) = self.copies_of(repair).find(usable) else {
            let parent = self.parents.get_mut(repair.parent);
            parent.status = parent.status.max(repair.status);
            return self.release(repair.parent, context);
        };
        let request = Request::new(0, Op::Read, place.sector, sectors);
        let owner = Owner::Copy(self.repairs.insert(repair));
        self.submit_part(owner, place.member, 0, request, context);
    }

    /// The places of the sectors that a repair reads.
    fn copies_of(&self, repair: Repair) -> impl Iterator<Item = MemberSector> + use<> {
        let layout = std::sync::Arc::clone(&self.layout);
        (0..layout.members).map_while(move |copy| {
            let place = layout.copy(repair.chunk, copy).filter(|_| copy < layout.copies());
            place.map(|place| MemberSector { sector: place.sector + repair.offset, ..place })
        })
    }

    /// Takes the answer of another copy: the data go to the request, and back to the copies that failed.
    pub(super) fn copy_answered(
        &mut self,
        number: u32,
        member: usize,
        sectors: u32,
        status: Status,
        context: &mut Context<'_>,
    ) {
        let mut repair = self.repairs.take(number);
        if status != Status::Ok {
            repair.tried.insert(member);
            return self.read_next_copy(repair, sectors, context);
        }
        let failed = self.failed(context.now());
        for place in self.copies_of(repair) {
            let length = u64::from(sectors);
            let held = held_sectors(self.rebuild.as_deref(), failed, place, length);
            if repair.tried.contains(place.member) && held == length {
                let span = (place.sector, place.sector + length);
                let there = MemberSet::first(self.layout.members).without(failed);
                self.rewrite(place.member, span, there, context);
                let request = Request { lba: Lba(place.sector), ..Request::new(0, Op::Write, 0, sectors) };
                self.submit_part(Owner::WriteBack, place.member, 0, request, context);
            }
        }
        self.release(repair.parent, context);
    }

    /// Takes the answer to data written back to a copy.
    pub(super) fn written_back(&mut self, member: (usize, usize), status: Status, context: &Context<'_>) {
        if status == Status::Ok {
            self.statistics.repaired_reads += 1;
        } else {
            self.drop_member(member, status, context);
        }
    }
}
