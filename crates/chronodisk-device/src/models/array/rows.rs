//! Requests of an array with parity: their way through the stripe cache.

use std::sync::Arc;

use chronodisk_sim::{Lba, Op, Request, Status};

use super::jobs::{Blocks, Job, Task};
use super::layout::{MemberSector, MemberSet};
use super::parity::{self, Method};
use super::parts::Owner;
use super::policy::Array;
use super::rebuild::held_sectors;
use super::stripes::Join;
use crate::composite::Context;

impl Array {
    /// A read of an array with parity. If all members are there, it goes past the cache.
    pub(super) fn read_rows(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let (mut sector, end) = (request.lba.0, request.end().0);
        if !self.failed(context.now()).is_empty() {
            self.add_job(parent, Task::Blocks { blocks: Blocks::new(sector, end), write: false, fua: false });
            return self.serve_rows(context);
        }
        let layout = Arc::clone(&self.layout);
        while sector < end {
            let (chunk, offset) = (sector / layout.chunk_sectors, sector % layout.chunk_sectors);
            let (row, unit) = (chunk / layout.units() as u64, (chunk % layout.units() as u64) as usize);
            let length = (layout.chunk_sectors - offset).min(end - sector);
            let start = row * layout.chunk_sectors + offset;
            self.runs.add(layout.data(row, unit), (start, start + length), Op::Read, request.fua);
            sector += length;
        }
        self.submit_runs(Owner::Request(parent), request, context);
    }

    /// A write, a discard or a write of zeros to an array with parity. Discards and zeros reach rows that they cover
    /// completely past the cache. At the ends, zeros are data like others.
    pub(super) fn write_rows(&mut self, parent: u32, request: Request, context: &mut Context<'_>) {
        let row_sectors = self.layout.row_sectors();
        let (start, end) = (request.lba.0, request.end().0);
        let data = |from, to| Task::Blocks { blocks: Blocks::new(from, to), write: true, fua: request.fua };
        let (first_whole, end_whole) = (start.div_ceil(row_sectors), end / row_sectors);
        if request.op == Op::Write || (request.op == Op::WriteZeroes && first_whole >= end_whole) {
            self.add_job(parent, data(start, end));
            return self.serve_rows(context);
        }
        // A row that is discarded in part keeps its data, so that its parity must stay.
        let partial = request.op != Op::Discard;
        if partial && start < first_whole * row_sectors {
            self.add_job(parent, data(start, first_whole * row_sectors));
        }
        if first_whole < end_whole {
            self.add_job(parent, Task::Rows(first_whole, end_whole));
        }
        if partial && end > end_whole * row_sectors {
            self.add_job(parent, data(end_whole * row_sectors, end));
        }
        self.serve_rows(context);
    }

    pub(super) fn add_job(&mut self, parent: u32, task: Task) {
        self.parents.get_mut(parent).remaining += 1;
        self.jobs.push_back(Job { parent, task, waited: false });
    }

    /// Hands requests over to stripes, and handles stripes, until both have to wait. The stripes of a request are
    /// handled before the next request comes, as at the end of each submission to md. So a row that a waiting request
    /// completes may already be read.
    pub(super) fn serve_rows(&mut self, context: &mut Context<'_>) {
        loop {
            while let Some(number) = self.listed.pop_front() {
                self.handle(number, context);
            }
            let Some(mut job) = self.jobs.pop_front() else { break };
            if self.hand_over(&mut job, context) {
                self.release(job.parent, context);
                continue;
            }
            self.statistics.delayed += u64::from(!job.waited);
            job.waited = true;
            self.jobs.push_front(job);
            if self.listed.is_empty() {
                break;
            }
        }
        self.submit_runs(Owner::Rows, Request::new(0, Op::Read, 0, 1), context);
    }

    /// Hands a request over to stripes while there are any. Returns whether that was all of it.
    fn hand_over(&mut self, job: &mut Job, context: &mut Context<'_>) -> bool {
        let (blocks, write) = match &mut job.task {
            Task::Blocks { blocks, write, fua } => (blocks, write.then_some(*fua)),
            &mut Task::Rows(first, end) => return self.pass_rows(job.parent, (first, end), context),
        };
        let layout = Arc::clone(&self.layout);
        while let Some(piece) = blocks.next(&layout, self.stripes.size()) {
            let Join::Joined(number) = self.stripes.join(&layout, &piece, job.parent, write) else { return false };
            self.parents.get_mut(job.parent).remaining += 1;
            self.list(number);
            blocks.advance();
        }
        true
    }

    /// Discards rows of chunks or writes zeros to them, from the first to before the second. Returns whether their
    /// stripes are inactive; otherwise does nothing.
    fn pass_rows(&mut self, parent: u32, rows: (u64, u64), context: &mut Context<'_>) -> bool {
        let chunk = self.layout.chunk_sectors;
        let per_chunk = chunk / self.stripes.size().sectors;
        if !self.stripes.clear((rows.0 * per_chunk, rows.1 * per_chunk)) {
            return false;
        }
        let request = self.parents.get(parent).request;
        let (failed, length) = (self.failed(context.now()), (rows.1 - rows.0) * chunk);
        self.statistics.full_row_writes += (rows.1 - rows.0) * per_chunk;
        for member in 0..self.layout.members {
            let place = MemberSector { member, sector: rows.0 * chunk };
            let sectors = held_sectors(self.rebuild.as_deref(), failed, place, length);
            if sectors == 0 {
                continue;
            }
            let part = Request { lba: Lba(place.sector), ..request };
            let sectors = u32::try_from(sectors).expect("no longer than the request");
            self.submit_part(Owner::Request(parent), member, 0, Request { sectors, ..part }, context);
        }
        true
    }

    fn list(&mut self, number: u32) {
        if self.stripes.list(number) {
            self.listed.push_back(number);
        }
    }

    /// Takes the next step of a stripe without requests under way, as md's `handle_stripe`.
    fn handle(&mut self, number: u32, context: &mut Context<'_>) {
        let size = self.stripes.size().sectors;
        let row_number = self.stripes.row_number(number);
        let span = (row_number * size, (row_number + 1) * size);
        let failed = self.failed_in(context.now(), span);
        let row = self.stripes.row(number, failed);
        if row.failed.count() > row.parities.count() {
            self.fail_row(number, context);
            return self.stripes.release(number);
        }
        let step = parity::next_step(&row);
        self.statistics.reconstructed_reads += step.computed.and(row.wanted).count() as u64;
        self.stripes.computed(number, step.computed);
        while let Some(parent) = self.stripes.take_read(number) {
            self.release(parent, context);
        }
        self.stripes.submitted(number, step.reads.count());
        let alone = self.stripes.reads_alone(number);
        for member in step.reads.iter() {
            match alone.contains(member) {
                true => self.runs.add_alone(member, span, Op::Read),
                false => self.runs.add(member, span, Op::Read, false),
            }
        }
        if let Some(method) = step.write {
            *match method {
                Method::Whole => &mut self.statistics.full_row_writes,
                Method::Modify => &mut self.statistics.read_modify_writes,
                Method::Reconstruct => &mut self.statistics.reconstruct_writes,
            } += 1;
            let partly_new = row.written.without(row.covered).without(failed);
            partly_new.iter().for_each(|member| self.rewrite_block(member, span, context));
            let (blocks, fua) = self.stripes.begin_writes(number);
            let blocks = blocks.without(failed);
            self.stripes.submitted(number, blocks.count());
            blocks.iter().for_each(|member| self.runs.add(member, span, Op::Write, fua));
        } else {
            let repaired = self.stripes.repairable(number).without(failed);
            self.stripes.submitted(number, repaired.count());
            for member in repaired.iter() {
                self.rewrite_block(member, span, context);
                self.runs.add_alone(member, span, Op::Write);
            }
        }
        self.stripes.release(number);
    }

    /// A block of a row is about to be written to its member, with old data.
    fn rewrite_block(&mut self, member: usize, span: (u64, u64), context: &mut Context<'_>) {
        let mut holder = MemberSet::default();
        holder.insert(member);
        self.rewrite(member, span, holder, context);
    }

    /// Fails all requests of a stripe that need blocks out of the cache, since too many blocks cannot be read.
    fn fail_row(&mut self, number: u32, context: &mut Context<'_>) {
        while let Some(parent) = self.stripes.take_read(number) {
            self.release(parent, context);
        }
        let status = self.stripes.give_up(number);
        while let Some(parent) = self.stripes.take_failed(number) {
            let request = self.parents.get_mut(parent);
            request.status = request.status.max(status);
            self.release(parent, context);
        }
    }

    /// Takes a member's answer for the blocks of consecutive rows, from the first sector to before the second.
    pub(super) fn rows_answered(
        &mut self,
        (member, device): (usize, usize),
        (start, end): (u64, u64),
        (op, status): (Op, Status),
        context: &mut Context<'_>,
    ) {
        let lost = status != Status::Ok && op == Op::Write && !self.drop_member((member, device), status, context);
        let size = self.stripes.size().sectors;
        for row in start / size..end / size {
            let number = self.stripes.find(row).expect("a stripe keeps its row while it is active");
            let last = match op {
                Op::Read => self.stripes.read_answered(number, member, status),
                _ => {
                    let repaired = self.stripes.is_lost(number, member) && status == Status::Ok;
                    self.statistics.repaired_reads += u64::from(repaired);
                    self.stripes.write_answered(number, member, if lost { status } else { Status::Ok })
                }
            };
            if last {
                let status = self.stripes.take_status(number);
                while let Some(parent) = self.stripes.take_written(number) {
                    let request = self.parents.get_mut(parent);
                    request.status = request.status.max(status);
                    self.release(parent, context);
                }
                self.list(number);
            }
        }
        self.serve_rows(context);
    }
}
