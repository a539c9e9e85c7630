//! Read-ahead of sequential reads into the controller's memory.
//!
//! A read that begins where an earlier one ended continues its stream. After a few of these, the drive reads ahead of
//! the stream, a chunk of a die's planes at a time, at lower priority than host reads. A read of buffered data needs no
//! flash access; a read of data in transit waits for them.
//!
//! The drive asks for the state of each unit ([`ReadAhead::look`]), and reads the chunks for which
//! [`ReadAhead::next_chunk`] asks.

use std::ops::Range;

use chronodisk_sim::Nanos;

use super::ftl::{FtlParameters, Unit};
use super::parameters::ReadAheadParameters;
use super::pool::NONE;
use super::waiters::{Waiters, WaitingList};

/// The streams.
#[derive(Clone, Debug)]
pub(super) struct ReadAhead {
    parameters: Option<ReadAheadParameters>,
    /// Units of a chunk: a page in all planes of a die.
    units_per_chunk: u32,
    /// Chunks that a stream has places for.
    places: u32,
    /// Units of the drive.
    units: u32,
    streams: Vec<Stream>,
    /// The chunks of each stream, as many as it may be ahead.
    chunks: Vec<Chunk>,
    waiters: Waiters,
    uses: u64,
    /// Units that were read ahead, or were being read, when a command asked for them.
    units_found: u64,
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
    waiting: WaitingList,
}

/// State of a unit in the read-ahead buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ahead {
    /// The unit is not read ahead.
    Not,
    /// Being read; the command waits for it.
    Coming {
        /// Whether the command did not wait for the chunk before.
        joins: bool,
        /// Whether this command is the first that waits for the chunk: its reads get the command's priority.
        first: bool,
    },
    /// In memory, or available at this instant.
    There(Nanos),
}

/// A chunk that is read, or is to be read.
#[derive(Clone, Debug, Copy, PartialEq, Eq)]
pub(super) struct AheadChunk {
    /// Place in the read-ahead buffer.
    pub(super) place: u32,
    /// Its units: first, and end.
    pub(super) first: Unit,
    pub(super) end: Unit,
}

impl AheadChunk {
    pub(super) fn units(&self) -> Range<Unit> {
        self.first..self.end
    }
}

impl ReadAhead {
    pub(super) fn new(parameters: Option<ReadAheadParameters>, ftl: &FtlParameters) -> Self {
        let units_per_chunk = ftl.geometry.planes_per_die * ftl.geometry.units_per_page();
        ReadAhead {
            parameters,
            units_per_chunk,
            places: parameters.map_or(1, |parameters| parameters.units.div_ceil(units_per_chunk) + 1),
            units: ftl.logical_units,
            streams: Vec::new(),
            chunks: Vec::new(),
            waiters: Waiters::new(),
            uses: 0,
            units_found: 0,
        }
    }

    /// Units that were read ahead, or were being read, when a command asked for them.
    pub(super) fn units_found(&self) -> u64 {
        self.units_found
    }

    /// The stream that a read of these units continues, if the drive reads ahead of it.
    pub(super) fn follow(&mut self, first: Unit, end: Unit) -> Option<u32> {
        let parameters = self.parameters?;
        self.uses += 1;
        if let Some(index) = self.streams.iter().position(|stream| stream.next == first) {
            let stream = &mut self.streams[index];
            (stream.next, stream.used) = (end, self.uses);
            stream.hits += 1;
            return (stream.hits >= parameters.after).then_some(index as u32);
        }
        let new = Stream { next: end, hits: 0, used: self.uses, coming: 0, ahead: 0 };
        if self.streams.len() < parameters.streams as usize {
            self.streams.push(new);
            let empty = Chunk { number: NONE, reads: 0, there: Nanos::ZERO, waiting: WaitingList::EMPTY };
            self.chunks.extend((0..self.places).map(|_| empty));
            return None;
        }
        // Streams without continuation are evicted first, streams with reads in progress never.
        let idle = self.streams.iter_mut().enumerate().filter(|(_, stream)| stream.coming == 0);
        if let Some((index, stream)) = idle.min_by_key(|(_, stream)| (stream.hits > 0, stream.used)) {
            *stream = new;
            let begin = index * self.places as usize;
            self.chunks[begin..begin + self.places as usize].iter_mut().for_each(|chunk| chunk.number = NONE);
        }
        None
    }

    /// State of a command's unit in the stream. If it is in transit, the command gets it later.
    #[inline]
    pub(super) fn look(&mut self, stream: u32, command: u32, unit: Unit, bytes: u32) -> Ahead {
        let number = unit / self.units_per_chunk;
        let place = self.place_of(stream, number);
        let chunk = &mut self.chunks[place as usize];
        if chunk.number != number {
            return Ahead::Not;
        }
        self.units_found += 1;
        if chunk.reads == 0 {
            return Ahead::There(chunk.there);
        }
        let first = chunk.waiting == WaitingList::EMPTY;
        let joins = self.waiters.add(&mut chunk.waiting, command, bytes);
        Ahead::Coming { joins, first }
    }

    /// The chunk of a unit in the stream.
    pub(super) fn chunk_of(&self, stream: u32, unit: Unit) -> AheadChunk {
        let number = unit / self.units_per_chunk;
        self.chunk(self.place_of(stream, number), number)
    }

    /// The next chunk to read ahead of a stream. It counts as being in memory now, unless reads of it are begun.
    pub(super) fn next_chunk(&mut self, stream: u32, now: Nanos) -> Option<AheadChunk> {
        let parameters = self.parameters?;
        let per_chunk = self.units_per_chunk;
        let state = self.streams[stream as usize];
        let number = state.next.div_ceil(per_chunk).max(state.ahead);
        let end = ((u64::from(state.next) + u64::from(parameters.units)) / u64::from(per_chunk)) as u32;
        let place = self.place_of(stream, number);
        if number >= end.min(self.units.div_ceil(per_chunk)) || self.chunks[place as usize].reads > 0 {
            return None;
        }
        self.chunks[place as usize] = Chunk { number, reads: 0, there: now, waiting: WaitingList::EMPTY };
        self.streams[stream as usize].ahead = number + 1;
        Some(self.chunk(place, number))
    }

    /// Read commands of a chunk have begun.
    pub(super) fn reads_begun(&mut self, stream: u32, place: u32, reads: u32) {
        self.chunks[place as usize].reads = reads;
        self.streams[stream as usize].coming += u32::from(reads > 0);
    }

    /// Data of a chunk are in the controller at `at`, with `last` all data of a read command. Once this was the chunk's
    /// last one, returns when all of the chunk is there, and the commands that wait for it.
    pub(super) fn done(&mut self, stream: u32, place: u32, at: Nanos, last: bool) -> Option<(Nanos, WaitingList)> {
        let chunk = &mut self.chunks[place as usize];
        chunk.there = chunk.there.max(at);
        chunk.reads -= u32::from(last);
        if !last || chunk.reads > 0 {
            return None;
        }
        self.streams[stream as usize].coming -= 1;
        Some((chunk.there, std::mem::replace(&mut chunk.waiting, WaitingList::EMPTY)))
    }

    /// Takes the next command and the bytes that it waits for off a list.
    pub(super) fn next_waiter(&mut self, list: &mut WaitingList) -> Option<(u32, u32)> {
        self.waiters.take(list)
    }

    fn place_of(&self, stream: u32, chunk: u32) -> u32 {
        stream * self.places + chunk % self.places
    }

    fn chunk(&self, place: u32, number: u32) -> AheadChunk {
        let first = number * self.units_per_chunk;
        AheadChunk { place, first, end: (first + self.units_per_chunk).min(self.units) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::ssd::testing::small_parameters;

    const NOW: Nanos = Nanos::from_micros(5);

    /// Reads three chunks of 8 units ahead, after two sequential reads of two streams.
    fn read_ahead() -> ReadAhead {
        ReadAhead::new(Some(ReadAheadParameters { streams: 2, after: 2, units: 24 }), &small_parameters())
    }

    fn follow(ahead: &mut ReadAhead, reads: &[(Unit, Unit)]) {
        for &(first, end) in reads {
            ahead.follow(first, end);
        }
    }

    #[test]
    fn a_stream_is_read_ahead_after_some_sequential_reads() {
        let mut ahead = read_ahead();
        assert_eq!([(0, 4), (100, 104), (4, 8)].map(|(first, end)| ahead.follow(first, end)), [None; 3]);
        assert_eq!(ahead.follow(8, 12), Some(0));
        let chunks: Vec<_> = std::iter::from_fn(|| ahead.next_chunk(0, NOW)).map(|chunk| chunk.units()).collect();
        assert_eq!(chunks, [16..24, 24..32], "whole chunks within 24 units of unit 12");
        assert_eq!(ahead.look(0, 1, 12, 4_096), Ahead::Not);
        assert_eq!(ahead.look(0, 1, 16, 4_096), Ahead::There(NOW), "no unit of it needed the flash");
    }

    #[test]
    fn commands_wait_for_data_in_transit_and_the_first_one_hurries_them() {
        let mut ahead = read_ahead();
        follow(&mut ahead, &[(0, 8), (8, 16), (16, 24)]);
        let chunk = ahead.next_chunk(0, NOW).unwrap();
        ahead.reads_begun(0, chunk.place, 2);
        let looks = [(7, 24), (7, 25), (9, 24)].map(|(command, unit)| ahead.look(0, command, unit, 512));
        assert_eq!(looks[0], Ahead::Coming { joins: true, first: true });
        assert_eq!(looks[1..], [false, true].map(|joins| Ahead::Coming { joins, first: false }));
        assert_eq!(ahead.chunk_of(0, 25), chunk);
        let [early, late] = [6, 9].map(Nanos::from_micros);
        assert_eq!(ahead.done(0, chunk.place, early, true), None);
        assert_eq!(ahead.done(0, chunk.place, late, false), None, "its data come in parts");
        let (there, mut list) = ahead.done(0, chunk.place, early, true).expect("all reads have ended");
        assert_eq!(there, late);
        assert_eq!([(); 3].map(|()| ahead.next_waiter(&mut list)), [Some((9, 512)), Some((7, 1_024)), None]);
        assert_eq!(ahead.look(0, 9, 26, 512), Ahead::There(late));
        assert_eq!(ahead.units_found(), 4);
    }

    #[test]
    fn a_new_stream_takes_the_place_of_an_idle_one_without_continuation() {
        let mut ahead = read_ahead();
        follow(&mut ahead, &[(0, 8), (8, 16), (16, 24), (500, 508)]);
        let chunk = ahead.next_chunk(0, NOW).unwrap();
        ahead.reads_begun(0, chunk.place, 1);
        follow(&mut ahead, &[(600, 608), (608, 616), (616, 624)]);
        assert_eq!(ahead.follow(508, 516), None, "stream 1 is another one now");
        assert_eq!(ahead.follow(24, 32), Some(0), "its data are in transit");
    }
}
