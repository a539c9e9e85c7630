//! Read-ahead of sequential reads into the controller's memory.
//!
//! A read that begins where an earlier one ended continues its stream. After a few of these, the drive reads ahead of
//! the stream, a chunk of a die's planes at a time, at lower priority than host reads. A read of buffered data needs no
//! flash access; a read of data in transit waits for them.

use chronodisk_sim::Nanos;

use super::device::Ssd;
use super::flash::{Class, Done};
use super::ftl::Unit;
use super::parameters::ReadAheadParameters;
use super::pool::{NONE, Pool};
use super::records::{Owner, RowRead, Rows, Source, UnitLocation};

/// The streams.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    parameters: Option<ReadAheadParameters>,
    streams: Vec<Stream>,
    /// The chunks of each stream, as many as it may be ahead.
    chunks: Vec<Chunk>,
    waiters: Pool<Waiter>,
    uses: u64,
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    /// Unit after the stream's last read.
    next: Unit,
    /// Number of reads that continued the stream.
    hits: u32,
    used: u64,
    /// Number of its chunks being read.
    coming: u32,
    /// Number of the next chunk to read ahead.
    ahead: u32,
}

/// A place for a chunk.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    /// Number of the chunk of the drive that is in it, or is coming.
    number: u32,
    /// Read commands that have not ended.
    reads: u32,
    /// Instant at which all of it is in memory.
    there: Nanos,
    waiters: u32,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    command: u32,
    bytes: u32,
    next: u32,
}

/// State of a unit in the read-ahead buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// The unit is not read ahead.
    Not,
    /// Being read; the command waits for it.
    Coming,
    /// In memory, or available at this instant.
    There(Nanos),
}

impl ReadAhead {
    pub(super) fn new(parameters: Option<ReadAheadParameters>) -> Self {
        ReadAhead { parameters, streams: Vec::new(), chunks: Vec::new(), waiters: Pool::new(), uses: 0 }
    }
}

impl Ssd {
    /// Units of a chunk: a page in all planes of a die.
    fn units_per_chunk(&self) -> u32 {
        let geometry = self.parameters.geometry();
        geometry.planes_per_die * geometry.units_per_page()
    }

    /// Chunks that a stream has places for.
    fn chunks_per_stream(&self, parameters: &ReadAheadParameters) -> u32 {
        parameters.units.div_ceil(self.units_per_chunk()) + 1
    }

    /// The stream that a read continues, if the drive reads ahead of it.
    pub(super) fn follow_stream(&mut self, number: u32) -> Option<u32> {
        let parameters = self.read_ahead.parameters?;
        let command = self.commands[number];
        let (first, end) = (command.next_unit, command.end_unit);
        let places = self.chunks_per_stream(&parameters);
        let ahead = &mut self.read_ahead;
        ahead.uses += 1;
        let sequential = ahead.streams.iter().position(|stream| stream.next == first);
        if let Some(index) = sequential {
            let stream = &mut ahead.streams[index];
            (stream.next, stream.used) = (end, ahead.uses);
            stream.hits += 1;
            return (stream.hits >= parameters.after).then_some(index as u32);
        }
        let new = Stream { next: end, hits: 0, used: ahead.uses, coming: 0, ahead: 0 };
        if ahead.streams.len() < parameters.streams as usize {
            ahead.streams.push(new);
            let empty = Chunk { number: NONE, reads: 0, there: Nanos::ZERO, waiters: NONE };
            ahead.chunks.extend((0..places).map(|_| empty));
            return None;
        }
        // Streams without continuation are evicted first, streams with reads in progress never.
        let idle = ahead.streams.iter_mut().enumerate().filter(|(_, stream)| stream.coming == 0);
        if let Some((index, stream)) = idle.min_by_key(|(_, stream)| (stream.hits > 0, stream.used)) {
            *stream = new;
            let begin = index * places as usize;
            ahead.chunks[begin..begin + places as usize].iter_mut().for_each(|chunk| chunk.number = NONE);
        }
        None
    }

    fn chunk_place(&self, stream: u32, chunk: u32) -> usize {
        let places = self.read_ahead.parameters.map_or(1, |parameters| self.chunks_per_stream(&parameters));
        (stream * places + chunk % places) as usize
    }

    /// State of a command's unit in the stream. If it is in transit, the command gets it later.
    pub(super) fn look_ahead(&mut self, stream: u32, number: u32, unit: Unit, bytes: u32) -> Ahead {
        let chunk_number = unit / self.units_per_chunk();
        let place = self.chunk_place(stream, chunk_number);
        let ahead = &mut self.read_ahead;
        let chunk = &mut ahead.chunks[place];
        if chunk.number != chunk_number {
            return Ahead::Not;
        }
        self.statistics.units_ahead += 1;
        if chunk.reads == 0 {
            return Ahead::There(chunk.there);
        }
        if chunk.waiters != NONE && ahead.waiters[chunk.waiters].command == number {
            ahead.waiters[chunk.waiters].bytes += bytes;
            return Ahead::Coming;
        }
        let first = chunk.waiters == NONE;
        chunk.waiters = ahead.waiters.insert(Waiter { command: number, bytes, next: chunk.waiters });
        self.commands[number].pending += 1;
        if first {
            self.hurry(chunk_number, Owner::Ahead { stream, place: place as u32 });
        }
        Ahead::Coming
    }

    /// Gives the waiting transactions of a chunk being read ahead the priority of the request for it.
    fn hurry(&mut self, chunk: u32, owner: Owner) {
        let units = chunk * self.units_per_chunk()..(chunk + 1) * self.units_per_chunk();
        let mut last = None;
        for unit in units.start..units.end.min(self.parameters.ftl.logical_units) {
            // A unit that was written meanwhile is elsewhere, and is not read ahead.
            let UnitLocation::Flash(slot) = self.place_of(unit) else { continue };
            let geometry = self.parameters.geometry();
            let die = geometry.die_of_superblock(geometry.superblock_of(slot));
            if last.replace(die) != Some(die) {
                self.flash.promote(self.now, die, owner, &mut self.events);
            }
        }
    }

    /// Reads ahead of a stream as far as permitted.
    pub(super) fn read_on(&mut self, stream: u32) {
        let Some(parameters) = self.read_ahead.parameters else { return };
        let per_chunk = self.units_per_chunk();
        let state = self.read_ahead.streams[stream as usize];
        let units = self.parameters.ftl.logical_units;
        let first = state.next.div_ceil(per_chunk).max(state.ahead);
        let end = ((u64::from(state.next) + u64::from(parameters.units)) / u64::from(per_chunk)) as u32;
        let end = end.min(units.div_ceil(per_chunk));
        for chunk in first..end {
            let place = self.chunk_place(stream, chunk);
            if self.read_ahead.chunks[place].reads > 0 {
                break;
            }
            self.read_chunk(stream, chunk, place);
            self.read_ahead.streams[stream as usize].ahead = chunk + 1;
        }
    }

    fn read_chunk(&mut self, stream: u32, chunk: u32, place: usize) {
        let geometry = *self.parameters.geometry();
        let units = chunk * self.units_per_chunk()..(chunk + 1) * self.units_per_chunk();
        self.read_ahead.chunks[place] = Chunk { number: chunk, reads: 0, there: self.now, waiters: NONE };
        let owner = Owner::Ahead { stream, place: place as u32 };
        let mut rows = Rows::default();
        for unit in units.start..units.end.min(self.parameters.ftl.logical_units) {
            let UnitLocation::Flash(slot) = self.place_of(unit) else { continue };
            if let Some(row) = rows.add(RowRead::of(slot, &geometry, geometry.unit_bytes)) {
                self.read_chunk_row(place, &row, owner);
            }
        }
        if let Some(row) = rows.take() {
            self.read_chunk_row(place, &row, owner);
        }
        if self.read_ahead.chunks[place].reads > 0 {
            self.read_ahead.streams[stream as usize].coming += 1;
        }
    }

    fn read_chunk_row(&mut self, place: usize, row: &RowRead, owner: Owner) {
        self.read_ahead.chunks[place].reads += 1;
        let transaction = self.transactions.read(row, Class::ReadAhead, owner);
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles a part of a chunk that has left the flash. Once the whole chunk has, its waiting commands continue.
    pub(super) fn ahead_done(&mut self, stream: u32, place: u32, done: &Done<Owner>) {
        let chunk = &mut self.read_ahead.chunks[place as usize];
        chunk.there = chunk.there.max(done.at);
        if !done.last {
            return;
        }
        chunk.reads -= 1;
        if chunk.reads > 0 {
            return;
        }
        let there = chunk.there;
        let mut waiter = std::mem::replace(&mut chunk.waiters, NONE);
        self.read_ahead.streams[stream as usize].coming -= 1;
        while waiter != NONE {
            let Waiter { command, bytes, next } = self.read_ahead.waiters.remove(waiter);
            self.send(command, there, bytes, Source::Memory);
            self.part_read(command);
            waiter = next;
        }
    }
}
