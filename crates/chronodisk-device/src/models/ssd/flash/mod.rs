//! The flash of a drive: dies and the buses that they share. It knows transactions, but no host addresses.
//!
//! A die executes one command at a time. When it becomes free, it chooses the next by the classes of its waiting
//! transactions ([`Class`]), so a later but more urgent one overtakes. A read may suspend a program or an erase, which
//! resumes afterwards for its remaining time.
//!
//! ```text
//!  read:    command on the bus ─► array reads ─► data out, page by page ─► die free
//!  program: command and data in, page by page ─► array programs ─► die free
//!  erase:   command on the bus ─► array erases ─► die free
//! ```
//!
//! A bus is a [`Timeline`]: a reservation takes the first gap and is never moved. Data of a program are reserved a page
//! at a time, so that reads fit in between. With a cache register a die starts its next read while its last data cross
//! the bus.
//!
//! Formulae of command overheads: ONFI 4.0 NV-DDR2 as in MQSim (Tavakkol et al., FAST 2018); the constants are the
//! profile's.

mod die;
mod timeline;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use chronodisk_sim::Nanos;

use super::events::{Event, Events};
use super::geometry::{DieIndex, Geometry};
use die::{Die, Line, NONE, Phase};
pub(crate) use timeline::Timeline;

/// Purpose of a transaction, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// A page of the mapping table that a request waits for.
    MappingRead,
    /// A read of high priority for the host.
    HostReadFirst,
    /// A read for the host.
    HostRead,
    /// A read of low priority, or ahead of the host.
    ReadAhead,
    /// A read of the collector.
    CollectorRead,
    /// A program of a mapping page.
    MappingProgram,
    /// A program of the host's data.
    HostProgram,
    /// A program of the collector's data.
    CollectorProgram,
    /// An erase.
    Erase,
}

/// Number of classes.
const CLASSES: usize = 9;

/// The order of [`Class`], but with the collector's work before the host's.
const URGENT_ORDER: [Class; CLASSES] = [
    Class::MappingRead,
    Class::CollectorRead,
    Class::CollectorProgram,
    Class::Erase,
    Class::HostReadFirst,
    Class::HostRead,
    Class::ReadAhead,
    Class::MappingProgram,
    Class::HostProgram,
];

const fn set_of(classes: &[Class]) -> u32 {
    let (mut set, mut index) = (0, 0);
    while index < classes.len() {
        set |= 1 << classes[index] as u32;
        index += 1;
    }
    set
}

/// Reads that a request waits for: they may suspend a program or an erase.
const AWAITED_READS: u32 = set_of(&[Class::MappingRead, Class::HostReadFirst, Class::HostRead]);

/// All classes of reads.
const READS: u32 = AWAITED_READS | set_of(&[Class::ReadAhead, Class::CollectorRead]);

/// All other classes, which awaited reads must not delay for ever.
const BACKGROUND: u32 = ((1 << CLASSES) - 1) & !AWAITED_READS;

/// The collector's.
const COLLECTOR: u32 = set_of(&[Class::CollectorRead, Class::CollectorProgram, Class::Erase]);

/// Operation of a die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Reads pages of as many planes.
    Read,
    /// Programs them.
    Program,
    /// Erases their blocks.
    Erase,
}

/// A command for a die; its end is reported to `owner`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transaction<O> {
    pub(crate) work: Work,
    pub(crate) class: Class,
    pub(crate) die: DieIndex,
    /// Pages that cross the bus, or planes of an erase.
    pub(crate) pages: u32,
    /// Bytes that cross the bus in all.
    pub(crate) bytes: u32,
    /// Duration in the array.
    pub(crate) array: Nanos,
    /// For a read: the row of pages, and a bit for each plane to read.
    pub(crate) row: u32,
    pub(crate) planes: u32,
    pub(crate) owner: O,
}

/// The end of a part of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done<O> {
    pub(crate) owner: O,
    /// Instant of the end; a read's data may still be crossing the bus at present.
    pub(crate) at: Nanos,
    /// Bytes that a read has brought.
    pub(crate) bytes: u32,
    /// Whether that was all.
    pub(crate) last: bool,
}

/// The times of the flash that don't depend on the page.
#[derive(Clone, Debug)]
pub(crate) struct FlashTiming {
    /// Bytes per second of a bus.
    pub(crate) bus_rate: u64,
    /// Command and address of a read.
    pub(crate) read_command: Nanos,
    /// Further command time of a read for each plane after the first.
    pub(crate) read_command_plane: Nanos,
    /// Time from the end of a read to its data.
    pub(crate) data_out: Nanos,
    /// Further time of data out for each page after the first.
    pub(crate) data_out_page: Nanos,
    /// Command and address of a program.
    pub(crate) program_command: Nanos,
    /// Further command time of a program for each page after the first.
    pub(crate) program_command_page: Nanos,
    /// Command and address of an erase.
    pub(crate) erase_command: Nanos,
    /// Further command time of an erase for each plane after the first.
    pub(crate) erase_command_plane: Nanos,
    /// Whether a die has a register that holds data while it reads on.
    pub(crate) cache_register: bool,
    /// Whether the dies of a chip take commands only while all of the chip is idle, and a bus passes commands only when
    /// no data wait: the schedule of MQSim.
    pub(crate) commands_wait_for_bus: bool,
    /// Whether the command of a die's next read follows its data on the bus directly.
    pub(crate) command_after_data: bool,
    /// Whether one command reads all waiting pages of a row, for any owner.
    pub(crate) join_reads: bool,
    /// Suspension of a program by a read.
    pub(crate) program_suspend: Option<Suspend>,
    /// Suspension of an erase by a read.
    pub(crate) erase_suspend: Option<Suspend>,
    /// Reads in a row while something of the background waits.
    pub(crate) most_reads_in_a_row: u32,
}

/// Times of a suspension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suspend {
    /// Time until the die can read.
    pub(crate) latency: Nanos,
    /// Overhead of resuming, before the remaining time.
    pub(crate) resume: Nanos,
    /// An operation with less time left than this is not suspended.
    pub(crate) least_left: Nanos,
    /// Times that one operation is suspended at most.
    pub(crate) most_times: u32,
}

impl FlashTiming {
    /// Time in which bytes cross a bus, to the nearest nanosecond.
    pub(crate) fn transfer(&self, bytes: u32) -> Nanos {
        Nanos::from_nanos((u64::from(bytes) * 1_000_000_000 + self.bus_rate / 2) / self.bus_rate)
    }

    fn command_of_read(&self, pages: u32) -> Nanos {
        times(self.read_command, self.read_command_plane, pages)
    }

    fn suspend(&self, work: Work) -> Option<&Suspend> {
        match work {
            Work::Read => None,
            Work::Program => self.program_suspend.as_ref(),
            Work::Erase => self.erase_suspend.as_ref(),
        }
    }
}

/// Components of the awaited reads' times, and the dies' activity, in nanoseconds and counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlashStatistics {
    /// Time that awaited reads waited for their die behind other transactions of the host.
    pub(crate) die_wait: u64,
    /// Time that they waited behind the collector.
    pub(crate) collector_wait: u64,
    /// Waits of data and commands of awaited reads for their bus.
    pub(crate) bus_wait: u64,
    /// Reads, programs and erases begun.
    pub(crate) works: [u64; 3],
    /// Number of suspensions.
    pub(crate) suspensions: u64,
    /// Time in which the dies worked or held data.
    pub(crate) die_busy: u64,
}

/// The dies and buses of a drive.
#[derive(Clone, Debug)]
pub(crate) struct Flash<O> {
    timing: Arc<FlashTiming>,
    channels: u32,
    dies: Vec<Die>,
    buses: Vec<Timeline>,
    /// By bus: whether commands wait for it and can pass at a known time, and the next die in turn.
    gates: Vec<Gate>,
    pool: Vec<Entry<O>>,
    free: u32,
    statistics: FlashStatistics,
}

#[derive(Clone, Copy, Debug, Default)]
struct Gate {
    planned: bool,
    turn: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry<O> {
    transaction: Transaction<O>,
    queued: Nanos,
    /// Whether it waited behind the collector at its arrival.
    behind_collector: bool,
    next: u32,
}

impl<O: Copy> Flash<O> {
    pub(crate) fn new(geometry: &Geometry, timing: Arc<FlashTiming>) -> Self {
        Flash {
            timing,
            channels: geometry.channels,
            dies: vec![Die::new(); geometry.dies() as usize],
            buses: vec![Timeline::new(); geometry.channels as usize],
            gates: vec![Gate::default(); geometry.channels as usize],
            pool: Vec::new(),
            free: NONE,
            statistics: FlashStatistics::default(),
        }
    }

    /// The statistics.
    pub(crate) fn statistics(&self) -> &FlashStatistics {
        &self.statistics
    }

    /// Total reserved time of the buses.
    pub(crate) fn bus_busy(&self) -> u64 {
        self.buses.iter().map(|bus| bus.busy().as_nanos()).sum()
    }

    /// Sets whether the collector's work on a die goes before the host's.
    pub(crate) fn set_urgent(&mut self, die: DieIndex, urgent: bool) {
        self.dies[die as usize].urgent = urgent;
    }

    /// A transaction waits for its die from now on.
    pub(crate) fn submit(&mut self, now: Nanos, transaction: Transaction<O>, events: &mut Events) {
        let (die, class) = (transaction.die, transaction.class);
        let state = &self.dies[die as usize];
        let behind_collector = COLLECTOR & (1 << state.doing as u32) != 0 && state.phase != Phase::Idle;
        let entry = Entry { transaction, queued: now, behind_collector, next: NONE };
        let number = match self.free {
            NONE => {
                self.pool.push(entry);
                self.pool.len() as u32 - 1
            }
            number => {
                self.free = self.pool[number as usize].next;
                self.pool[number as usize] = entry;
                number
            }
        };
        let line = &mut self.dies[die as usize].lines[class as usize];
        if line.last == NONE {
            line.first = number;
        } else {
            self.pool[line.last as usize].next = number;
        }
        line.last = number;
        self.dies[die as usize].waiting |= 1 << class as u32;
        self.consider(now, die, events);
    }

    /// A request now waits for data that were read ahead: the die's transactions for them become host reads.
    pub(crate) fn promote(&mut self, now: Nanos, die: DieIndex, owner: O, events: &mut Events)
    where
        O: PartialEq,
    {
        let (ahead, awaited) = (Class::ReadAhead as usize, Class::HostRead as usize);
        let mut number = self.dies[die as usize].lines[ahead].first;
        self.dies[die as usize].lines[ahead] = Line::EMPTY;
        while number != NONE {
            let entry = &mut self.pool[number as usize];
            let next = std::mem::replace(&mut entry.next, NONE);
            let class = if entry.transaction.owner == owner { awaited } else { ahead };
            if class == awaited {
                entry.transaction.class = Class::HostRead;
            }
            let line = &mut self.dies[die as usize].lines[class];
            let last = std::mem::replace(&mut line.last, number);
            match last {
                NONE => line.first = number,
                last => self.pool[last as usize].next = number,
            }
            number = next;
        }
        let state = &mut self.dies[die as usize];
        for class in [ahead, awaited] {
            let waits = state.lines[class].first != NONE;
            state.waiting = state.waiting & !(1 << class) | u32::from(waits) << class;
        }
        self.consider(now, die, events);
    }

    /// Handles one of the flash's events; finished work is appended to `done`.
    pub(crate) fn happen(&mut self, now: Nanos, event: Event, events: &mut Events, done: &mut Vec<Done<O>>) {
        match event {
            Event::Array { die, generation } => {
                if self.dies[die as usize].generation == generation {
                    self.array_ended(now, die, events, done);
                }
            }
            Event::PageIn { die } => self.page_in(now, die, events),
            Event::DieFree { die } => {
                let state = &mut self.dies[die as usize];
                state.wakes = false;
                if state.phase == Phase::DataOut && state.until <= now {
                    state.phase = Phase::Idle;
                }
                self.consider(now, die, events);
            }
            Event::Suspended { die } => {
                self.dies[die as usize].phase = Phase::Idle;
                self.consider(now, die, events);
            }
            Event::BusFree { channel } => self.pass_commands(now, channel, events),
            Event::Decoded(_) | Event::Known(_) | Event::Arrived { .. } | Event::Completed(_) => {
                unreachable!("no event of the flash")
            }
        }
    }

    /// Starts the next operation of a die, if there is one.
    fn consider(&mut self, now: Nanos, die: DieIndex, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        match state.phase {
            Phase::Idle => self.start(now, die, events),
            Phase::DataOut if state.until <= now => {
                state.phase = Phase::Idle;
                self.start(now, die, events);
            }
            Phase::DataOut => {
                let until = state.until;
                self.look_again(until, die, events);
            }
            Phase::Array => self.suspend(now, die, events),
            Phase::DataIn | Phase::Suspending => {}
        }
    }

    /// Starts the next operation of a free die.
    fn start(&mut self, now: Nanos, die: DieIndex, events: &mut Events) {
        let most_reads = self.timing.most_reads_in_a_row;
        let state = &mut self.dies[die as usize];
        let Some(class) = state.next_class(most_reads) else {
            if state.suspended.is_some() {
                self.resume(now, die, events);
            }
            return;
        };
        let channel = die % self.channels;
        if self.timing.commands_wait_for_bus && self.buses[channel as usize].busy_until() > now {
            self.wait_for_bus(channel, events);
            return;
        }
        let number = state.take(class, |number| self.pool[number as usize].next);
        self.pool[number as usize].next = NONE;
        self.count_wait(now, number);
        let transaction = self.pool[number as usize].transaction;
        self.statistics.works[transaction.work as usize] += 1;
        let state = &mut self.dies[die as usize];
        state.doing = class;
        state.running = number;
        state.since = now;
        match transaction.work {
            Work::Read => {
                let background = 1 << class as u32 & BACKGROUND != 0;
                state.reads_in_a_row = if background { 0 } else { state.reads_in_a_row + 1 };
                let (pages, array) = match self.timing.join_reads {
                    true => self.join(now, number),
                    false => (transaction.pages, transaction.array),
                };
                let command = self.timing.command_of_read(pages);
                let begun = match self.dies[die as usize].command.take() {
                    Some(reserved) if reserved == (now, command) => now,
                    _ => self.reserve(now, now, channel, command, class),
                };
                self.run_array(die, begun + command, array, events);
            }
            Work::Program => {
                state.reads_in_a_row = 0;
                state.pages_left = transaction.pages;
                state.suspensions = 0;
                state.phase = Phase::DataIn;
                self.page_in(now, die, events);
            }
            Work::Erase => {
                state.reads_in_a_row = 0;
                state.suspensions = 0;
                let command = times(self.timing.erase_command, self.timing.erase_command_plane, transaction.pages);
                let begun = self.reserve(now, now, channel, command, class);
                self.run_array(die, begun + command, transaction.array, events);
            }
        }
    }

    /// Counts a transaction's wait for its die.
    fn count_wait(&mut self, now: Nanos, number: u32) {
        let entry = &self.pool[number as usize];
        if 1 << entry.transaction.class as u32 & AWAITED_READS != 0 {
            let waited = (now - entry.queued).as_nanos();
            let wait = match entry.behind_collector {
                true => &mut self.statistics.collector_wait,
                false => &mut self.statistics.die_wait,
            };
            *wait += waited;
        }
    }

    /// Takes reads of other planes of the same row out of the queue, and links them to a read that is begun. Returns
    /// the number of pages, and the time of the slowest.
    fn join(&mut self, now: Nanos, number: u32) -> (u32, Nanos) {
        let Transaction { class, die, row, mut planes, mut pages, mut array, .. } =
            self.pool[number as usize].transaction;
        let (mut before, mut last_joined) = (NONE, number);
        let mut candidate = self.dies[die as usize].lines[class as usize].first;
        for _ in 0..JOIN_LOOKS_MOST {
            if candidate == NONE {
                break;
            }
            let Entry { transaction, next, .. } = self.pool[candidate as usize];
            if transaction.row != row || transaction.planes & planes != 0 {
                (before, candidate) = (candidate, next);
                continue;
            }
            planes |= transaction.planes;
            pages += transaction.pages;
            array = array.max(transaction.array);
            let state = &mut self.dies[die as usize];
            let line = &mut state.lines[class as usize];
            match before {
                NONE => line.first = next,
                before => self.pool[before as usize].next = next,
            }
            if next == NONE {
                line.last = before;
            }
            if line.first == NONE {
                state.waiting &= !(1 << class as u32);
            }
            self.pool[last_joined as usize].next = candidate;
            self.pool[candidate as usize].next = NONE;
            self.count_wait(now, candidate);
            (last_joined, candidate) = (candidate, next);
        }
        (pages, array)
    }

    fn run_array(&mut self, die: DieIndex, begun: Nanos, time: Nanos, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        state.phase = Phase::Array;
        state.array_since = begun;
        state.until = begun + time;
        state.generation = state.generation.wrapping_add(1);
        events.push(state.until, Event::Array { die, generation: state.generation });
        if state.waiting & AWAITED_READS != 0 && self.pool[state.running as usize].transaction.work != Work::Read {
            self.look_again(begun, die, events);
        }
    }

    /// Looks at a die again when its array has begun, or its data have left.
    fn look_again(&mut self, at: Nanos, die: DieIndex, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        if !state.wakes {
            state.wakes = true;
            events.push(at, Event::DieFree { die });
        }
    }

    /// Moves the next page of a program over the bus.
    fn page_in(&mut self, now: Nanos, die: DieIndex, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        let transaction = self.pool[state.running as usize].transaction;
        let first = state.pages_left == transaction.pages;
        state.pages_left -= 1;
        let last = state.pages_left == 0;
        let overhead = if first { self.timing.program_command } else { self.timing.program_command_page };
        let length = overhead + self.timing.transfer(transaction.bytes / transaction.pages);
        let begun = self.reserve(now, now, die % self.channels, length, transaction.class);
        if last {
            self.run_array(die, begun + length, transaction.array, events);
        } else {
            events.push(begun + length, Event::PageIn { die });
        }
    }

    fn array_ended(&mut self, now: Nanos, die: DieIndex, events: &mut Events, done: &mut Vec<Done<O>>) {
        let state = &self.dies[die as usize];
        let (number, register_free) = (state.running, state.register_free);
        let transaction = self.pool[number as usize].transaction;
        let mut free_at = now;
        if transaction.work == Work::Read {
            let mut ready = now.max(register_free);
            let mut overhead = self.timing.data_out;
            let command = self.command_after_data(die);
            let mut one = number;
            while one != NONE {
                let Entry { transaction, next, .. } = self.pool[one as usize];
                let mut sent = 0;
                for page in 1..=transaction.pages {
                    let upto = (u64::from(transaction.bytes) * u64::from(page) / u64::from(transaction.pages)) as u32;
                    let bytes = upto - sent;
                    sent = upto;
                    let length = overhead + self.timing.transfer(bytes);
                    overhead = self.timing.data_out_page;
                    let last = page == transaction.pages;
                    let after = if last && next == NONE { command } else { Nanos::ZERO };
                    ready = self.reserve(now, ready, die % self.channels, length + after, transaction.class) + length;
                    done.push(Done { owner: transaction.owner, at: ready, bytes, last });
                }
                self.give_back(one);
                one = next;
            }
            free_at = if self.timing.cache_register { now.max(register_free) } else { ready };
            let state = &mut self.dies[die as usize];
            state.register_free = ready;
            state.command = (command > Nanos::ZERO).then_some((ready, command));
        } else {
            done.push(Done { owner: transaction.owner, at: now, bytes: 0, last: true });
            self.give_back(number);
        }
        let state = &mut self.dies[die as usize];
        self.statistics.die_busy += (free_at - state.since).as_nanos();
        state.running = NONE;
        state.until = free_at;
        state.phase = if free_at > now { Phase::DataOut } else { Phase::Idle };
        if state.waiting != 0 || state.suspended.is_some() {
            self.consider(now, die, events);
        }
    }

    /// Time for which a die needs the bus after its data for the command of its next read; zero if none waits.
    ///
    /// If the profile says so, it is reserved together with the data. Otherwise the command waits behind the data of
    /// other dies, which are reserved as soon as they are ready. Dies whose transfers once coincide then begin their
    /// next reads together, and stay in lockstep while reads are queued. This slows all of them down, on one bus and
    /// not on another.
    fn command_after_data(&self, die: DieIndex) -> Nanos {
        let (timing, state) = (&self.timing, &self.dies[die as usize]);
        if !timing.command_after_data || timing.cache_register || state.waiting & READS == 0 {
            return Nanos::ZERO;
        }
        match state.next_class(timing.most_reads_in_a_row) {
            Some(class) if READS & (1 << class as u32) != 0 => {
                let next = state.lines[class as usize].first;
                timing.command_of_read(self.pool[next as usize].transaction.pages)
            }
            _ => Nanos::ZERO,
        }
    }

    fn give_back(&mut self, number: u32) {
        self.pool[number as usize].next = self.free;
        self.free = number;
    }

    /// Reserves a bus and notes how long an awaited read waits for it.
    fn reserve(&mut self, now: Nanos, ready: Nanos, channel: u32, length: Nanos, class: Class) -> Nanos {
        let begun = self.buses[channel as usize].reserve(now, ready, length);
        if 1 << class as u32 & AWAITED_READS != 0 {
            self.statistics.bus_wait += (begun - ready).as_nanos();
        }
        begun
    }

    /// Suspends a die's operation if that pays for a waiting read.
    fn suspend(&mut self, now: Nanos, die: DieIndex, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        if state.waiting & AWAITED_READS == 0 || state.suspended.is_some() {
            return;
        }
        let work = self.pool[state.running as usize].transaction.work;
        let Some(suspend) = self.timing.suspend(work) else { return };
        let begun = state.array_since;
        if begun > now {
            return self.look_again(begun, die, events);
        }
        let left = state.until - now;
        let forbidden = state.urgent && COLLECTOR & (1 << state.doing as u32) != 0;
        if left < suspend.least_left || state.suspensions >= suspend.most_times || forbidden {
            return;
        }
        self.statistics.suspensions += 1;
        self.statistics.die_busy += (now - state.since).as_nanos();
        state.suspensions += 1;
        state.suspended = Some((state.running, state.doing, left));
        state.running = NONE;
        state.reads_in_a_row = 0;
        // The end that was planned no longer is one.
        state.generation = state.generation.wrapping_add(1);
        state.phase = Phase::Suspending;
        events.push(now + suspend.latency, Event::Suspended { die });
    }

    fn resume(&mut self, now: Nanos, die: DieIndex, events: &mut Events) {
        let state = &mut self.dies[die as usize];
        let (number, class, left) = state.suspended.take().expect("something is suspended");
        state.running = number;
        state.doing = class;
        state.since = now;
        state.reads_in_a_row = 0;
        let work = self.pool[number as usize].transaction.work;
        let resume = self.timing.suspend(work).map_or(Nanos::ZERO, |suspend| suspend.resume);
        self.run_array(die, now, resume + left, events);
    }

    fn wait_for_bus(&mut self, channel: u32, events: &mut Events) {
        let gate = &mut self.gates[channel as usize];
        if !gate.planned {
            gate.planned = true;
            events.push(self.buses[channel as usize].busy_until(), Event::BusFree { channel });
        }
    }

    /// Lets the next die in turn have its command, because the bus is free.
    fn pass_commands(&mut self, now: Nanos, channel: u32, events: &mut Events) {
        self.gates[channel as usize].planned = false;
        let per_channel = self.dies.len() as u32 / self.channels;
        for _ in 0..per_channel {
            let gate = &mut self.gates[channel as usize];
            let die = channel + self.channels * gate.turn;
            gate.turn = (gate.turn + 1) % per_channel;
            if self.dies[die as usize].waiting != 0 {
                self.consider(now, die, events);
            }
            if self.buses[channel as usize].busy_until() > now {
                break;
            }
        }
        let anyone = (0..per_channel).any(|turn| self.dies[(channel + self.channels * turn) as usize].wants_command());
        if anyone && self.buses[channel as usize].busy_until() > now {
            self.wait_for_bus(channel, events);
        }
    }
}

/// Most waiting reads that are searched for one to join.
const JOIN_LOOKS_MOST: u32 = 16;

fn times(first: Nanos, each_more: Nanos, count: u32) -> Nanos {
    Nanos::from_nanos(first.as_nanos() + each_more.as_nanos() * u64::from(count.saturating_sub(1)))
}
