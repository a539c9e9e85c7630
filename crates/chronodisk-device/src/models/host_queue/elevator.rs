//! The order in which a host's queue submits its requests to the device.

use std::cmp::Reverse;
use std::ops::Bound;

use chronodisk_sim::Nanos;

/// The scheduler, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheduler {
    /// In order of arrival.
    Noop,
    /// Ascending addresses from the last request's, then from the lowest again; a request that has waited for 5 s goes
    /// first.
    CLook,
    /// Linux's deadline scheduler (`block/deadline-iosched.c`): batches of one direction in order of addresses, reads
    /// before writes, and the oldest first once it has waited too long.
    Deadline {
        /// Age at which a read has waited too long.
        read_expire: Nanos,
        /// Age at which a write has waited too long.
        write_expire: Nanos,
        /// Most requests of a batch.
        fifo_batch: u32,
        /// Number of times that reads may go before waiting writes.
        writes_starved: u32,
    },
    /// Like Linux's complete fair queueing (`block/cfq-iosched.c`): each reader, and all writers together, get time
    /// slices in turn; within a slice, C-LOOK. A reader without further requests keeps its slice for a while, since its
    /// next request is likely to be near.
    Cfq {
        /// Length of a reader's slice.
        slice_sync: Nanos,
        /// Length of the writers' slice.
        slice_async: Nanos,
        /// Time for which a reader without requests keeps its slice.
        slice_idle: Nanos,
    },
}

/// A request as the scheduler sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    /// First sector.
    pub(crate) lba: u64,
    /// Order of arrival.
    pub(crate) sequence: u64,
    /// Number of the request in the queue.
    pub(crate) entry: u32,
    /// Whether it is not a read.
    pub(crate) writes: bool,
    /// Issuer of the request.
    pub(crate) issuer: u32,
    /// Instant at which it entered the queue.
    pub(crate) since: Nanos,
}

/// Linux's deadline scheduler lets a write wait as long.
const C_LOOK_AGE_BOUND: Nanos = Nanos::from_secs(5);

impl Item {
    fn key(&self) -> (u64, u64) {
        (self.lba, self.sequence)
    }

    /// Owner of its slice: a reader, or all writers together, which come last.
    fn owner(&self) -> Owner {
        if self.writes { Owner::Writers } else { Owner::Reader(self.issuer) }
    }
}

/// Owner of a slice of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owner {
    Reader(u32),
    Writers,
}

/// The waiting requests, and the scheduler's state.
#[derive(Clone, Debug)]
pub(crate) struct Elevator {
    scheduler: Scheduler,
    /// In order of addresses, equals in order of arrival.
    items: Vec<Item>,
    /// The last request dispatched.
    last: Option<Item>,
    /// Requests of the present batch, and how often reads went before writes (deadline).
    batched: u32,
    starved: u32,
    slice: Option<Slice>,
    /// Owner of the last slice (CFQ).
    last_owner: Option<Owner>,
}

/// The present slice of time (CFQ).
#[derive(Clone, Copy, Debug)]
struct Slice {
    owner: Owner,
    end: Nanos,
    in_flight: u32,
    /// Instant until which its owner is waited for.
    idle_until: Option<Nanos>,
}

impl Elevator {
    pub(crate) fn new(scheduler: Scheduler) -> Self {
        let (items, last, slice) = (Vec::new(), None, None);
        Elevator { scheduler, items, last, batched: 0, starved: 0, slice, last_owner: None }
    }

    /// The waiting requests, in order of addresses.
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    /// Adds a request.
    pub(crate) fn insert(&mut self, item: Item) {
        let index = self.items.partition_point(|other| other.key() < item.key());
        self.items.insert(index, item);
        if let Some(slice) = &mut self.slice
            && slice.owner == item.owner()
        {
            slice.idle_until = None;
        }
    }

    /// Takes out the request at this place of [`items`](Self::items).
    pub(crate) fn remove(&mut self, index: usize) -> Item {
        self.items.remove(index)
    }

    /// The instant at which an idle slice ends.
    pub(crate) fn next_timer(&self) -> Option<Nanos> {
        self.slice.and_then(|slice| slice.idle_until)
    }

    /// Ends an idle slice whose time is over.
    pub(crate) fn timer(&mut self, now: Nanos) {
        self.slice = self.slice.filter(|slice| slice.idle_until.is_none_or(|until| until > now));
    }

    /// Takes the request to be dispatched at `now`; none during an idle slice.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<Item> {
        let index = match self.scheduler {
            Scheduler::Noop => oldest(&self.items, |_| true),
            Scheduler::CLook => self.aged(now).or_else(|| self.upwards(|_| true)),
            Scheduler::Deadline { .. } => self.deadline(now),
            Scheduler::Cfq { .. } => self.cfq(now),
        }?;
        let item = self.items.remove(index);
        self.last = Some(item);
        Some(item)
    }

    /// A request of `issuer` that was dispatched has been answered.
    pub(crate) fn answered(&mut self, writes: bool, issuer: u32) {
        let owner = if writes { Owner::Writers } else { Owner::Reader(issuer) };
        if let Some(slice) = self.slice.as_mut().filter(|slice| slice.owner == owner) {
            slice.in_flight = slice.in_flight.saturating_sub(1);
        }
    }

    /// The first one above the last dispatched address, otherwise the lowest.
    fn upwards(&self, wanted: impl Fn(&Item) -> bool) -> Option<usize> {
        self.after_last(&wanted).or_else(|| self.items.iter().position(&wanted))
    }

    /// The oldest one if it has waited too long: otherwise a stream of ascending addresses could delay lower ones for
    /// ever.
    fn aged(&self, now: Nanos) -> Option<usize> {
        let first = oldest(&self.items, |_| true)?;
        (now.saturating_sub(self.items[first].since) > C_LOOK_AGE_BOUND).then_some(first)
    }

    fn after_last(&self, wanted: impl Fn(&Item) -> bool) -> Option<usize> {
        let from = self.last.map_or(0, |last| self.items.partition_point(|item| item.lba < last.lba));
        (from..self.items.len()).find(|&index| wanted(&self.items[index]))
    }

    fn deadline(&mut self, now: Nanos) -> Option<usize> {
        let Scheduler::Deadline { read_expire, write_expire, fifo_batch, writes_starved } = self.scheduler else {
            return None;
        };
        let last_writes = self.last.map(|last| last.writes);
        let next = |elevator: &Self, writes| {
            let same = last_writes == Some(writes);
            same.then(|| elevator.after_last(|item| item.writes == writes)).flatten()
        };
        if self.batched < fifo_batch
            && let Some(index) = last_writes.and_then(|writes| next(self, writes))
        {
            self.batched += 1;
            return Some(index);
        }
        let any = |writes: bool| self.items.iter().any(|item| item.writes == writes);
        let (reads_wait, writes_wait) = (any(false), any(true));
        let writes = !reads_wait || (writes_wait && self.starved >= writes_starved);
        self.starved = if writes { 0 } else { self.starved + u32::from(writes_wait) };
        self.batched = 1;
        let first = oldest(&self.items, |item| item.writes == writes)?;
        let expire = if writes { write_expire } else { read_expire };
        if now.saturating_sub(self.items[first].since) >= expire {
            return Some(first);
        }
        next(self, writes).or(Some(first))
    }

    fn cfq(&mut self, now: Nanos) -> Option<usize> {
        let Scheduler::Cfq { slice_sync, slice_async, slice_idle } = self.scheduler else { return None };
        if let Some(slice) = &mut self.slice {
            let owner = slice.owner;
            let has_more = self.items.iter().any(|item| item.owner() == owner);
            let keeps = match owner {
                _ if now >= slice.end => false,
                _ if has_more => true,
                Owner::Writers => false,
                Owner::Reader(_) if slice_idle == Nanos::ZERO => false,
                Owner::Reader(_) if slice.in_flight > 0 => return None,
                Owner::Reader(_) => {
                    slice.idle_until.get_or_insert(now.saturating_add(slice_idle).min(slice.end));
                    return None;
                }
            };
            if !keeps {
                self.slice = None;
            }
        }
        let slice = match &mut self.slice {
            Some(slice) => slice,
            None => {
                let owner = self.next_owner()?;
                let length = if owner == Owner::Writers { slice_async } else { slice_sync };
                self.last_owner = Some(owner);
                let end = now.saturating_add(length);
                self.slice.insert(Slice { owner, end, in_flight: 0, idle_until: None })
            }
        };
        slice.in_flight += 1;
        slice.idle_until = None;
        let owner = slice.owner;
        self.upwards(|item| item.owner() == owner)
    }

    /// The next owner after the last one, in rotation.
    fn next_owner(&self) -> Option<Owner> {
        let above = self.last_owner.map_or(Bound::Unbounded, Bound::Excluded);
        let owners = || self.items.iter().map(Item::owner);
        let later = |owner: &Owner| match above {
            Bound::Excluded(last) => *owner > last,
            Bound::Included(_) | Bound::Unbounded => true,
        };
        owners().filter(later).min().or_else(|| owners().min())
    }
}

fn oldest(items: &[Item], wanted: impl Fn(&Item) -> bool) -> Option<usize> {
    let candidates = items.iter().enumerate().filter(|(_, item)| wanted(item));
    candidates.max_by_key(|(_, item)| Reverse(item.sequence)).map(|(index, _)| index)
}
