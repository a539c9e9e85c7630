//! Steps of a rebuild in its array: spares in place of lost members, requests held back, and the windows.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Op, Request, Status};

use super::layout::MemberSet;
use super::parts::Owner;
use super::policy::Array;
use super::rebuild::{Pace, Rebuild, Running, State, Window, changes_rows};
use crate::composite::Context;

/// Spares.
impl Array {
    /// The array with spares.
    pub(super) fn with_spares(mut self, spares: usize, pace: Pace) -> Self {
        self.rebuild = Some(Box::new(Rebuild::new(&self.layout, spares, pace, self.failed)));
        self
    }

    /// A member was lost.
    pub(super) fn notice_loss(&mut self, now: Nanos) {
        self.rebuild.iter_mut().for_each(|rebuild| rebuild.notice_loss(now));
    }

    /// The spare failed a write during its rebuild. Returns that it is gone.
    pub(super) fn drop_spare(&mut self, now: Nanos) -> bool {
        self.rebuild.iter_mut().for_each(|rebuild| rebuild.drop_spare(now));
        true
    }

    /// A request arrives. Returns whether it is held back.
    pub(super) fn holds(&mut self, parent: u32, request: Request) -> bool {
        let Some(rebuild) = &mut self.rebuild else { return false };
        rebuild.host_arrives();
        let Some((member, span)) = rebuild.locked() else { return false };
        let held = changes_rows(&self.layout, member, span, &request);
        if held {
            rebuild.held.push(parent);
            self.parents.get_mut(parent).held = true;
        }
        held
    }

    /// A request of the host has completed.
    pub(super) fn host_completed(&mut self, now: Nanos) {
        let arriving = self.arriving;
        self.rebuild.iter_mut().for_each(|rebuild| rebuild.host_completed(now, arriving));
    }

    /// Does everything that the rebuild can do now.
    pub(super) fn advance_rebuild(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        if let Some((_, more)) = self.failing.take_if(|(at, _)| *at <= now) {
            self.failed = self.failed.union(more);
        }
        // A rebuild that is given up, or a request that needs no member, calls for another round.
        loop {
            self.begin_rebuild();
            self.begin_held(context);
            self.next_window(context);
            if self.rebuild.as_ref().is_none_or(|rebuild| rebuild.due != Some(now)) {
                return;
            }
        }
    }

    /// Begins to rebuild the next lost member if none is being rebuilt.
    fn begin_rebuild(&mut self) {
        if let Some(member) = self.rebuild.as_mut().and_then(|rebuild| rebuild.begin(self.failed)) {
            // It was the lost device that was to fail later.
            self.failing.iter_mut().for_each(|(_, more)| more.remove(member));
        }
    }

    /// Begins the requests that need not be held back any longer.
    fn begin_held(&mut self, context: &mut Context<'_>) {
        let mut index = 0;
        while let Some(rebuild) = &mut self.rebuild
            && let Some(&parent) = rebuild.held.get(index)
        {
            let request = self.parents.get(parent).request;
            let locked = rebuild.locked();
            if locked.is_some_and(|(member, span)| changes_rows(&self.layout, member, span, &request)) {
                index += 1;
                continue;
            }
            rebuild.held.remove(index);
            self.parents.get_mut(parent).held = false;
            self.begin(parent, request, context);
        }
    }

    /// Claims the next window if it is time for it, and reads it once nothing writes to its rows.
    fn next_window(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        let Some(rebuild) = &mut self.rebuild else { return };
        let Some(running) = &rebuild.running else { return };
        let span = (running.next, rebuild.end.min(running.next + rebuild.pace.window_sectors));
        let begins = running.reading.is_none() && span.0 < span.1 && rebuild.next_window(running) <= now;
        let (layout, member) = (&self.layout, running.member);
        let holds = |&parent: &u32| changes_rows(layout, member, span, &self.parents.get(parent).request);
        if begins && rebuild.held.iter().any(holds) {
            // Otherwise a long write would be held back until all of its rows are rebuilt.
            rebuild.after_held = true;
            return;
        }
        let Some(running) = &mut rebuild.running else { return };
        let none = MemberSet::default();
        if begins {
            running.reading = Some(Window { span, state: State::Draining, read: none, lost: none, fails: false });
            running.next = span.1;
            running.last = Some(now);
        }
        let Some(window) = running.reading.filter(|window| window.state == State::Draining) else { return };
        let writes = |request: &Request| changes_rows(layout, member, window.span, request);
        if !self.parents.iter().any(|parent| !parent.held && writes(&parent.request)) {
            self.read_window(window, context);
        }
    }
}

/// Windows.
impl Array {
    fn running(&mut self) -> Option<&mut Running> {
        self.rebuild.as_mut().and_then(|rebuild| rebuild.running.as_mut())
    }

    /// Reads a window from the members that have not failed to be read.
    fn read_window(&mut self, window: Window, context: &mut Context<'_>) {
        let Some(member) = self.running().map(|running| running.member) else { return };
        let failed = self.failed(context.now()).union(window.lost);
        let readable = match self.layout.has_parity() {
            true => self.collect_rows(window.span, failed),
            false => self.collect_copies(member, window.span, failed),
        };
        self.runs.close();
        let number = self.rebuild.as_ref().map_or(0, |rebuild| rebuild.number);
        let mut count = 0;
        while let Some((source, run)) = self.runs.take() {
            let pieces = if self.layout.has_parity() { 0 } else { run.pieces };
            if !readable {
                self.balance.answered(source, pieces, None);
                continue;
            }
            let sectors = u32::try_from(run.end - run.start).expect("no longer than a window");
            let request = Request::new(0, Op::Read, run.start, sectors);
            self.submit_part(Owner::Rebuild(number), source, pieces, request, context);
            count += 1;
        }
        if !readable {
            return self.give_up_rebuild(context.now());
        }
        let state = if count > 0 { State::Reading(count) } else { State::Read };
        self.running().into_iter().for_each(|running| running.reading = Some(Window { state, fails: false, ..window }));
        self.write_window(context);
    }

    /// Collects the reads of rows with parity. Returns whether they suffice.
    fn collect_rows(&mut self, span: (u64, u64), failed: MemberSet) -> bool {
        let sources = MemberSet::first(self.layout.members).without(failed);
        sources.iter().for_each(|source| self.runs.add(source, span, Op::Read, false));
        self.layout.survives(failed)
    }

    /// Collects the reads of a copy of each chunk. Returns whether all chunks have one.
    fn collect_copies(&mut self, member: usize, (mut sector, end): (u64, u64), failed: MemberSet) -> bool {
        let (layout, size) = (Arc::clone(&self.layout), self.layout.chunk_sectors);
        while sector < end {
            let (row, offset, next) = (sector / size, sector % size, end.min((sector / size + 1) * size));
            let length = next - sector;
            sector = next;
            let chunk = layout.chunk_at(member, row).filter(|chunk| chunk * size < layout.capacity_sectors);
            let Some(chunk) = chunk else { continue };
            let mut copies = (0..layout.copies()).filter_map(|copy| layout.copy(chunk, copy));
            let Some(place) = copies.find(|place| !failed.contains(place.member)) else { return false };
            let start = place.sector + offset;
            self.runs.add(place.member, (start, start + length), Op::Read, false);
            self.balance.given(place.member, 1);
        }
        true
    }

    /// Writes the window that has been read, unless the one before is still being written.
    fn write_window(&mut self, context: &mut Context<'_>) {
        let Some(running) = self.running() else { return };
        let Some(window) = running.reading.filter(|window| window.state == State::Read) else { return };
        if running.writing.is_some() {
            return;
        }
        (running.reading, running.writing) = (None, Some(window.span));
        let (member, (start, end)) = (running.member, window.span);
        let all = MemberSet::first(self.layout.members);
        let has_parity = self.layout.has_parity();
        // With parity, the data of a lost member are on no other member.
        let copies = if has_parity { MemberSet::default() } else { all.without(self.failed(context.now())) };
        self.rewrite(member, window.span, copies, context);
        let sectors = u32::try_from(end - start).expect("no longer than a window");
        self.submit_to_spare(Request::new(0, Op::Write, start, sectors), context);
    }

    fn submit_to_spare(&mut self, request: Request, context: &mut Context<'_>) {
        let Some(rebuild) = &self.rebuild else { return };
        let (number, Some(running)) = (rebuild.number, &rebuild.running) else { return };
        self.submit_part(Owner::Rebuild(number), running.member, 0, request, context);
    }

    /// Takes a member's answer to a request of a rebuild.
    pub(super) fn rebuild_answered(
        &mut self,
        number: u32,
        member: usize,
        (op, status): (Op, Status),
        context: &mut Context<'_>,
    ) {
        let Some(rebuild) = self.rebuild.as_mut().filter(|rebuild| rebuild.number == number) else { return };
        if rebuild.running.is_none() {
            return;
        }
        match op {
            Op::Read => self.window_answered(member, status, context),
            _ if status != Status::Ok => {
                self.drop_spare(context.now());
            }
            Op::Write => match rebuild.written(context.now()) {
                true if context.has_volatile_cache() => self.submit_to_spare(Request::new(0, Op::Flush, 0, 0), context),
                true => self.finish_rebuild(context.now()),
                false => self.write_window(context),
            },
            _ => self.finish_rebuild(context.now()),
        }
    }

    /// Takes the answer to a read of the window.
    fn window_answered(&mut self, member: usize, status: Status, context: &mut Context<'_>) {
        let Some(window) = self.running().and_then(|running| running.reading.as_mut()) else { return };
        let State::Reading(count) = window.state else { return };
        let answers = if status == Status::Ok { &mut window.read } else { &mut window.lost };
        answers.insert(member);
        window.fails |= status != Status::Ok;
        window.state = if count > 1 { State::Reading(count - 1) } else { State::Read };
        if count > 1 {
            return;
        }
        let window = *window;
        if self.layout.has_parity() {
            let missing = MemberSet::first(self.layout.members).without(window.read.without(window.lost));
            if !self.layout.survives(missing) {
                return self.give_up_rebuild(context.now());
            }
        } else if window.fails {
            return self.read_window(window, context);
        }
        self.write_window(context);
    }

    /// The data of the lost member cannot be read: it stays lost.
    fn give_up_rebuild(&mut self, now: Nanos) {
        self.rebuild.iter_mut().for_each(|rebuild| rebuild.give_up(now));
    }

    /// The spare has all data: the array has its member again.
    fn finish_rebuild(&mut self, now: Nanos) {
        if let Some(member) = self.rebuild.as_mut().and_then(|rebuild| rebuild.finish(now)) {
            self.failed.remove(member);
        }
    }
}
