//! Order of writes to an array with parity.
//!
//! Between reading old parity and writing the new one, no other write may touch the same parity. So a write waits for
//! earlier ones that overlap with it in the members' sectors, as md locks its stripes during a write. At most
//! `stripe-cache` writes are in progress or wait in this way. Further writes wait for a place, first come, first
//! served, as requests wait for a stripe of md's stripe cache.

use std::collections::VecDeque;

use chronodisk_sim::Request;

use crate::composite::Slab;

/// A write of a row or of rows covered whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) parent: u32,
    /// The host's request.
    pub(crate) request: Request,
    /// First row, and the one after the last.
    pub(crate) rows: (u64, u64),
    /// The span of the write, in sectors of a row's data.
    pub(crate) span: (u64, u64),
    /// Members' requests that are not answered.
    pub(crate) parts: u32,
    /// Whether these are reads.
    pub(crate) reading: bool,
    /// In the members' sectors.
    low: u64,
    high: u64,
    /// Number of earlier writes that overlap with it.
    blockers: u32,
}

impl Write {
    pub(crate) fn new(
        parent: u32,
        request: Request,
        rows: (u64, u64),
        span: (u64, u64),
        (low, high): (u64, u64),
    ) -> Write {
        Write { parent, request, rows, span, parts: 0, reading: false, low, high, blockers: 0 }
    }

    fn overlaps(&self, other: &Write) -> bool {
        self.low < other.high && other.low < self.high
    }
}

/// All unfinished writes.
#[derive(Clone, Debug)]
pub(crate) struct Writes {
    slab: Slab<Write>,
    /// Writes with a place, in order of arrival.
    placed: Vec<u32>,
    /// Writes without a place.
    waiting: VecDeque<u32>,
    /// Writes that can begin.
    ready: VecDeque<u32>,
    places: usize,
    delayed: u64,
}

impl Writes {
    /// No writes, and room for `places` of them at once.
    pub(crate) fn new(places: u32) -> Self {
        Writes {
            slab: Slab::new(),
            placed: Vec::new(),
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            places: places as usize,
            delayed: 0,
        }
    }

    /// A write arrives; its number is returned if it may begin.
    pub(crate) fn arrive(&mut self, write: Write) -> Option<u32> {
        let number = self.slab.insert(write);
        let begins = self.placed.len() < self.places && self.place(number);
        if self.placed.last() != Some(&number) {
            self.waiting.push_back(number);
        }
        self.delayed += u64::from(!begins);
        begins.then_some(number)
    }

    /// Ends a write: writes that waited only for it become ready.
    pub(crate) fn finish(&mut self, number: u32) {
        let done = self.slab.take(number);
        let index = self.placed.iter().position(|&placed| placed == number).expect("only what has a place is done");
        self.placed.remove(index);
        for &later in &self.placed[index..] {
            let write = self.slab.get_mut(later);
            if write.overlaps(&done) {
                write.blockers -= 1;
                if write.blockers == 0 {
                    self.ready.push_back(later);
                }
            }
        }
        if let Some(next) = self.waiting.pop_front()
            && self.place(next)
        {
            self.ready.push_back(next);
        }
    }

    /// The next write that may begin.
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        self.ready.pop_front()
    }

    /// The host's requests of all unfinished writes.
    pub(crate) fn requests(&self) -> impl Iterator<Item = &Request> {
        self.slab.iter().map(|write| &write.request)
    }

    pub(crate) fn get(&self, number: u32) -> &Write {
        self.slab.get(number)
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> &mut Write {
        self.slab.get_mut(number)
    }

    /// Number of writes that had to wait.
    pub(crate) fn delayed(&self) -> u64 {
        self.delayed
    }

    /// Assigns a place. Returns whether the write may begin.
    fn place(&mut self, number: u32) -> bool {
        let write = *self.slab.get(number);
        let overlapping = |&&placed: &&u32| self.slab.get(placed).overlaps(&write);
        let blockers = self.placed.iter().filter(overlapping).count() as u32;
        self.slab.get_mut(number).blockers = blockers;
        self.placed.push(number);
        blockers == 0
    }
}
