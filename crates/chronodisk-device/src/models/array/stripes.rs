//! The stripe cache of an array with parity, as in Linux's `drivers/md/raid5.c`.
//!
//! A stripe holds a row of blocks: one page on each member. A request takes a stripe for each row that it touches:
//!
//! ```text
//!            join                   reads answered               writes answered
//!  inactive ──────► active: reads ──────────────────► writes ───────────────────► inactive, blocks stay cached
//!                     ▲   join: more data, same parity   │ join: waits
//!                     └──────────────────────────────────┘ next round
//! ```
//!
//! - A write joins a stripe at any time, unless the stripe has other new data for the same sectors. It then waits. Data
//!   that join after the writes have begun are written in the next round.
//! - Blocks stay in an inactive stripe until another row needs the stripe. The least recently used stripe goes first.
//! - If all stripes are active, requests wait until a quarter of them is inactive.

use super::jobs::{BlockSize, Piece};
use super::layout::{Layout, MemberSet};
use super::parity::Row;
use chronodisk_sim::Status;

use crate::composite::Slab;
use crate::footprint;

/// No stripe, no waiter.
const NONE: u32 = u32::MAX;

/// A row of blocks.
#[derive(Clone, Debug)]
struct Stripe {
    row: u64,
    parities: MemberSet,
    present: MemberSet,
    wanted: MemberSet,
    written: MemberSet,
    covered: MemberSet,
    /// Members whose merged read failed; they are read alone.
    alone: MemberSet,
    /// Members that cannot read their block.
    lost: MemberSet,
    /// The worst error of a read.
    read_status: Status,
    /// The worst error of the present writes.
    write_status: Status,
    /// Force unit access of the data not yet written.
    fua: bool,
    /// Members' requests that are not answered.
    outstanding: u32,
    active: bool,
    /// Whether it is listed for handling.
    listed: bool,
    readers: u32,
    /// Writers whose data are not yet being written.
    pending: u32,
    /// Writers whose data are being written.
    running: u32,
    /// The next stripe with the same hash.
    chain: u32,
    /// Neighbours in the list of inactive stripes.
    older: u32,
    newer: u32,
}

/// A request that takes part in a stripe.
#[derive(Clone, Copy, Debug)]
struct Waiter {
    parent: u32,
    blocks: MemberSet,
    next: u32,
}

/// Result of an attempt to join a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The number of the stripe.
    Joined(u32),
    /// There is no stripe, or the blocks are occupied.
    Wait,
}

/// The stripe cache.
#[derive(Clone, Debug)]
pub(crate) struct Stripes {
    members: usize,
    size: BlockSize,
    most: usize,
    stripes: Vec<Stripe>,
    /// Sectors with new data, by stripe and member.
    sectors: Vec<u8>,
    /// First stripe of each hash.
    buckets: Vec<u32>,
    oldest: u32,
    newest: u32,
    active: usize,
    /// Whether requests wait for a quarter of the stripes.
    blocked: bool,
    waiters: Slab<Waiter>,
}

impl Stripes {
    /// An empty cache of at most `most` stripes over `members` members.
    pub(crate) fn new(most: u32, members: usize, size: BlockSize) -> Self {
        let most = most as usize;
        Stripes {
            members,
            size,
            most,
            stripes: Vec::new(),
            sectors: Vec::new(),
            buckets: vec![NONE; most.next_power_of_two()],
            oldest: NONE,
            newest: NONE,
            active: 0,
            blocked: false,
            waiters: Slab::new(),
        }
    }

    /// Most memory of a full cache in bytes.
    pub(crate) fn memory_bytes(most: u32, members: usize) -> u64 {
        let most = u64::from(most);
        let parts = [
            footprint::array_bytes::<Stripe>(most),
            footprint::array_bytes::<u8>(most * members as u64),
            footprint::array_bytes::<u32>(2 * most),
            // A few requests take part in a stripe.
            footprint::array_bytes::<Waiter>(8 * most),
        ];
        footprint::sum(parts)
    }

    pub(crate) fn size(&self) -> BlockSize {
        self.size
    }

    /// Adds a request's blocks to their stripe.
    pub(crate) fn join(&mut self, layout: &Layout, piece: &Piece, parent: u32, write: Option<bool>) -> Join {
        let Some(number) = self.find_or_take(piece.row, || super::parity::parities(layout, piece.chunk_row)) else {
            return Join::Wait;
        };
        let base = number as usize * self.members;
        let stripe = &mut self.stripes[number as usize];
        let blocks = piece.members(layout);
        let list = match write {
            None => {
                stripe.wanted = stripe.wanted.union(blocks);
                &mut stripe.readers
            }
            Some(fua) => {
                let sectors = &mut self.sectors[base..base + self.members];
                let mut pieces = piece.blocks(layout, self.size);
                // Such a stripe is active already.
                if stripe.written.intersects(blocks) && pieces.clone().any(|(member, bits)| sectors[member] & bits != 0)
                {
                    return Join::Wait;
                }
                pieces.by_ref().for_each(|(member, bits)| {
                    sectors[member] |= bits;
                    if sectors[member] == self.size.whole {
                        stripe.covered.insert(member);
                    }
                });
                stripe.written = stripe.written.union(blocks);
                stripe.fua |= fua;
                &mut stripe.pending
            }
        };
        *list = self.waiters.insert(Waiter { parent, blocks, next: *list });
        Join::Joined(number)
    }

    /// The stripe of a row, made active; `None` if there is none.
    fn find_or_take(&mut self, row: u64, parities: impl Fn() -> MemberSet) -> Option<u32> {
        if let Some(number) = self.find(row) {
            if !self.stripes[number as usize].active {
                self.unlink(number);
                self.stripes[number as usize].active = true;
                self.active += 1;
            }
            return Some(number);
        }
        if self.blocked && 4 * self.active >= 3 * self.most {
            return None;
        }
        self.blocked = self.active >= self.most;
        if self.blocked {
            return None;
        }
        let number = if self.stripes.len() < self.most {
            self.sectors.resize(self.sectors.len() + self.members, 0);
            self.stripes.push(Stripe::new(row, parities()));
            (self.stripes.len() - 1) as u32
        } else {
            let number = self.oldest;
            self.unlink(number);
            self.forget(number);
            self.stripes[number as usize] = Stripe::new(row, parities());
            number
        };
        let bucket = self.bucket(row);
        self.stripes[number as usize].chain = std::mem::replace(&mut self.buckets[bucket], number);
        self.active += 1;
        Some(number)
    }

    /// The stripe of a row.
    pub(crate) fn find(&self, row: u64) -> Option<u32> {
        let mut number = self.buckets[self.bucket(row)];
        while number != NONE && self.stripes[number as usize].row != row {
            number = self.stripes[number as usize].chain;
        }
        (number != NONE).then_some(number)
    }

    fn bucket(&self, row: u64) -> usize {
        row as usize & (self.buckets.len() - 1)
    }

    /// Takes a stripe out of the hash table.
    fn forget(&mut self, number: u32) {
        let bucket = self.bucket(self.stripes[number as usize].row);
        let next = self.stripes[number as usize].chain;
        let mut before = self.buckets[bucket];
        if before == number {
            self.buckets[bucket] = next;
            return;
        }
        while self.stripes[before as usize].chain != number {
            before = self.stripes[before as usize].chain;
        }
        self.stripes[before as usize].chain = next;
    }

    /// Takes a stripe out of the list of inactive ones.
    fn unlink(&mut self, number: u32) {
        let Stripe { older, newer, .. } = self.stripes[number as usize];
        match older {
            NONE => self.oldest = newer,
            _ => self.stripes[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            _ => self.stripes[newer as usize].older = older,
        }
    }

    /// Lists a stripe for handling, which [`row`](Self::row) ends. Returns whether it was not listed before and has no
    /// requests under way.
    pub(crate) fn list(&mut self, number: u32) -> bool {
        let stripe = &mut self.stripes[number as usize];
        let lists = stripe.outstanding == 0 && !stripe.listed;
        stripe.listed |= lists;
        lists
    }

    /// The number of a stripe's row.
    pub(crate) fn row_number(&self, number: u32) -> u64 {
        self.stripes[number as usize].row
    }

    /// A listed stripe's row.
    pub(crate) fn row(&mut self, number: u32, failed: MemberSet) -> Row {
        let stripe = &mut self.stripes[number as usize];
        stripe.listed = false;
        let &mut Stripe { parities, present, wanted, written, covered, lost, .. } = stripe;
        let failed = failed.union(lost);
        Row { members: self.members, parities, failed, present, wanted, written, covered }
    }

    /// Blocks of failed members were computed.
    pub(crate) fn computed(&mut self, number: u32, blocks: MemberSet) {
        let stripe = &mut self.stripes[number as usize];
        stripe.present = stripe.present.union(blocks);
    }

    /// `count` requests to members begin.
    pub(crate) fn submitted(&mut self, number: u32, count: usize) {
        self.stripes[number as usize].outstanding += count as u32;
    }

    /// Begins to write the new data. Returns the written blocks, parity included, and whether with force unit access.
    pub(crate) fn begin_writes(&mut self, number: u32) -> (MemberSet, bool) {
        let base = number as usize * self.members;
        let stripe = &mut self.stripes[number as usize];
        stripe.written.iter().for_each(|member| self.sectors[base + member] = 0);
        let blocks = stripe.written.union(stripe.parities);
        stripe.present = stripe.present.union(blocks);
        stripe.written = MemberSet::default();
        stripe.covered = MemberSet::default();
        stripe.running = std::mem::replace(&mut stripe.pending, NONE);
        (blocks, std::mem::take(&mut stripe.fua))
    }

    /// A member's read is answered. Returns whether it was the last request of the stripe.
    pub(crate) fn read_answered(&mut self, number: u32, member: usize, status: Status) -> bool {
        let stripe = &mut self.stripes[number as usize];
        if status == Status::Ok {
            stripe.present.insert(member);
            stripe.alone.remove(member);
        } else if stripe.alone.contains(member) {
            stripe.lost.insert(member);
            stripe.read_status = stripe.read_status.max(status);
        } else {
            stripe.alone.insert(member);
        }
        stripe.outstanding -= 1;
        stripe.outstanding == 0
    }

    /// A member's write is answered, with the status for the requests. Returns whether it was the last request of the
    /// stripe.
    pub(crate) fn write_answered(&mut self, number: u32, member: usize, status: Status) -> bool {
        let stripe = &mut self.stripes[number as usize];
        stripe.write_status = stripe.write_status.max(status);
        stripe.lost.remove(member);
        stripe.alone.remove(member);
        stripe.outstanding -= 1;
        stripe.outstanding == 0
    }

    /// Members whose merged read failed.
    pub(crate) fn reads_alone(&self, number: u32) -> MemberSet {
        self.stripes[number as usize].alone
    }

    /// Whether a member cannot read its block.
    pub(crate) fn is_lost(&self, number: u32, member: usize) -> bool {
        self.stripes[number as usize].lost.contains(member)
    }

    /// Members that cannot read their block although the cache has it.
    pub(crate) fn repairable(&self, number: u32) -> MemberSet {
        let stripe = &self.stripes[number as usize];
        stripe.lost.and(stripe.present)
    }

    /// Takes the worst error of the writes that have ended.
    pub(crate) fn take_status(&mut self, number: u32) -> Status {
        std::mem::take(&mut self.stripes[number as usize].write_status)
    }

    /// Forgets all data to be read and written. Returns the error; [`take_failed`](Self::take_failed) has the requests.
    /// Later requests read the blocks anew.
    pub(crate) fn give_up(&mut self, number: u32) -> Status {
        let base = number as usize * self.members;
        let stripe = &mut self.stripes[number as usize];
        stripe.written.iter().for_each(|member| self.sectors[base + member] = 0);
        let none = MemberSet::default();
        (stripe.wanted, stripe.written, stripe.covered) = (none, none, none);
        (stripe.alone, stripe.lost, stripe.fua) = (none, none, false);
        std::mem::take(&mut stripe.read_status)
    }

    /// Takes the next request of a stripe that was given up; its parent is returned.
    pub(crate) fn take_failed(&mut self, number: u32) -> Option<u32> {
        let Stripe { readers, pending, .. } = &mut self.stripes[number as usize];
        take(&mut self.waiters, readers, |_| true).or_else(|| take(&mut self.waiters, pending, |_| true))
    }

    /// Takes the next request whose data are written; its parent is returned.
    pub(crate) fn take_written(&mut self, number: u32) -> Option<u32> {
        take(&mut self.waiters, &mut self.stripes[number as usize].running, |_| true)
    }

    /// Takes the next read whose blocks are in the cache; its parent is returned.
    pub(crate) fn take_read(&mut self, number: u32) -> Option<u32> {
        let stripe = &mut self.stripes[number as usize];
        let present = stripe.present;
        let taken = take(&mut self.waiters, &mut stripe.readers, |waiter| present.includes(waiter.blocks));
        if taken.is_some() {
            stripe.wanted = stripe.wanted.without(present);
        }
        taken
    }

    /// Makes a stripe inactive if no request takes part in it.
    pub(crate) fn release(&mut self, number: u32) {
        let newest = self.newest;
        let stripe = &mut self.stripes[number as usize];
        let waiters = [stripe.readers, stripe.pending, stripe.running];
        if waiters != [NONE; 3] || stripe.outstanding > 0 || !stripe.active {
            return;
        }
        stripe.active = false;
        (stripe.older, stripe.newer) = (newest, NONE);
        match newest {
            NONE => self.oldest = number,
            _ => self.stripes[newest as usize].newer = number,
        }
        self.newest = number;
        self.active -= 1;
    }

    /// Empties the cached blocks of rows from the first to before the second. Returns whether none of them is active;
    /// otherwise does nothing.
    pub(crate) fn clear(&mut self, rows: (u64, u64)) -> bool {
        let inside = |stripe: &Stripe| (rows.0..rows.1).contains(&stripe.row);
        if self.active > 0 && self.stripes.iter().any(|stripe| stripe.active && inside(stripe)) {
            return false;
        }
        for stripe in self.stripes.iter_mut().filter(|stripe| inside(stripe)) {
            stripe.present = MemberSet::default();
        }
        true
    }
}

impl Stripe {
    fn new(row: u64, parities: MemberSet) -> Stripe {
        let none = MemberSet::default();
        Stripe {
            row,
            parities,
            present: none,
            wanted: none,
            written: none,
            covered: none,
            alone: none,
            lost: none,
            read_status: Status::Ok,
            write_status: Status::Ok,
            fua: false,
            outstanding: 0,
            active: true,
            listed: false,
            readers: NONE,
            pending: NONE,
            running: NONE,
            chain: NONE,
            older: NONE,
            newer: NONE,
        }
    }
}

/// Takes the first waiter that fits out of a list and returns its parent.
fn take(waiters: &mut Slab<Waiter>, list: &mut u32, fits: impl Fn(&Waiter) -> bool) -> Option<u32> {
    let (mut before, mut number) = (NONE, *list);
    while number != NONE {
        let waiter = *waiters.get(number);
        if fits(&waiter) {
            match before {
                NONE => *list = waiter.next,
                _ => waiters.get_mut(before).next = waiter.next,
            }
            return Some(waiters.take(number).parent);
        }
        (before, number) = (number, waiter.next);
    }
    None
}
