//! The requests of a run, and the changes that they made to each block.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use chronodisk_sim::{Nanos, Op, Request, RequestId, SECTOR_BYTES, Status};

/// Properties of the recorded device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Logical block in sectors of 512 bytes.
    pub block_sectors: u32,
    /// Physical block in sectors: the medium writes it as a whole, so that writes are torn at multiples of it.
    pub torn_sectors: u32,
    /// Whether a completed write may be lost without a flush.
    pub write_back: bool,
}

/// Effect of a request on the contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None, as of a read, a flush or a failed request.
    Nothing,
    /// The range has these bytes.
    Bytes(Vec<u8>),
    /// The range reads as zeros.
    Zeros,
}

/// A request of the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRequest {
    /// The request, with the id that the front end gave it.
    pub request: Request,
    /// Instant of the arrival.
    pub arrival: Nanos,
    /// Instant and status of the completion; `None` if the run ended before.
    pub completion: Option<(Nanos, Status)>,
    /// Effect on the contents.
    pub effect: Effect,
}

/// An event, in the order in which the device saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Arrival(usize),
    Completion(usize),
}

/// The content of a block. Equal contents have equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Content(u32);

impl Content {
    /// Zeros, also of a block that was never written.
    pub const ZEROS: Content = Content(0);

    /// The n-th content, counted from 1.
    pub(crate) fn nth(number: usize) -> Self {
        Content(u32::try_from(number).expect("a recording has fewer than 2^32 blocks"))
    }

    /// Number of the content among those with bytes; `None` for zeros.
    pub(crate) fn index(self) -> Option<usize> {
        Some(self.0.checked_sub(1)? as usize)
    }
}

/// A change of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    /// Index of the request.
    pub request: usize,
    pub content: Content,
}

/// The requests of a run in order of arrival. A position in the history is the number of the events before it.
#[derive(Clone, Debug)]
pub struct History {
    pub(crate) facts: DeviceFacts,
    pub(crate) requests: Vec<RecordedRequest>,
    pub(crate) events: Vec<(Nanos, Event)>,
    /// For each request, the numbers of its events.
    pub(crate) arrived: Vec<usize>,
    pub(crate) completed: Vec<Option<usize>>,
    /// Changes by block, in order of arrival.
    pub(crate) versions: BTreeMap<u64, Vec<Version>>,
    /// For each content but zeros: a request, and the offset of the bytes in its data.
    pub(crate) contents: Vec<(usize, usize)>,
}

/// Makes a [`History`] from the events of a recording.
#[derive(Debug)]
pub struct HistoryBuilder {
    facts: DeviceFacts,
    requests: Vec<RecordedRequest>,
    events: Vec<(Nanos, Event)>,
    outstanding: HashMap<RequestId, usize>,
    arrived: Vec<usize>,
    completed: Vec<Option<usize>>,
}

impl HistoryBuilder {
    /// A history without events.
    #[must_use]
    pub fn new(facts: DeviceFacts) -> Self {
        HistoryBuilder {
            facts,
            requests: Vec::new(),
            events: Vec::new(),
            outstanding: HashMap::new(),
            arrived: Vec::new(),
            completed: Vec::new(),
        }
    }

    /// Adds an arrival.
    pub fn arrived(&mut self, request: Request, at: Nanos, effect: Effect) {
        let index = self.requests.len();
        self.outstanding.insert(request.id, index);
        self.arrived.push(self.events.len());
        self.completed.push(None);
        self.requests.push(RecordedRequest { request, arrival: at, completion: None, effect });
        self.add(at, Event::Arrival(index));
    }

    /// Adds the completion of an outstanding request; others are ignored.
    pub fn completed(&mut self, id: RequestId, at: Nanos, status: Status) {
        let Some(index) = self.outstanding.remove(&id) else { return };
        self.completed[index] = Some(self.events.len());
        self.requests[index].completion = Some((at, status));
        self.add(at, Event::Completion(index));
    }

    /// A completion can be due before an arrival that the device saw first. The later instant counts then.
    fn add(&mut self, at: Nanos, event: Event) {
        let last = self.events.last().map_or(Nanos::ZERO, |(last, _)| *last);
        self.events.push((at.max(last), event));
    }

    /// The history.
    #[must_use]
    pub fn finish(self) -> History {
        let HistoryBuilder { facts, requests, events, arrived, completed, .. } = self;
        let facts = DeviceFacts { block_sectors: common_block(facts.block_sectors, &requests), ..facts };
        let (versions, contents) = versions_of(facts, &requests);
        History { facts, requests, events, arrived, completed, versions, contents }
    }
}

/// The largest unit of at most this size to which all changes are aligned.
fn common_block(most: u32, requests: &[RecordedRequest]) -> u32 {
    let changes = requests.iter().filter(|request| request.effect != Effect::Nothing);
    changes.fold(most.max(1), |unit, change| {
        let (lba, sectors) = (change.request.lba.0, u64::from(change.request.sectors));
        let aligned = |unit: u32| (lba | sectors).is_multiple_of(u64::from(unit));
        let mut unit = unit;
        while unit > 1 && !aligned(unit) {
            unit /= 2;
        }
        unit
    })
}

type Versions = (BTreeMap<u64, Vec<Version>>, Vec<(usize, usize)>);

fn versions_of(facts: DeviceFacts, requests: &[RecordedRequest]) -> Versions {
    let block_bytes = (u64::from(facts.block_sectors) * SECTOR_BYTES) as usize;
    let zeros = vec![0; block_bytes];
    let mut versions: BTreeMap<u64, Vec<Version>> = BTreeMap::new();
    let mut contents = Vec::new();
    let mut known: HashMap<&[u8], Content> = HashMap::from([(&zeros[..], Content::ZEROS)]);
    for (index, recorded) in requests.iter().enumerate() {
        let blocks = blocks_of(facts, &recorded.request);
        match &recorded.effect {
            Effect::Nothing => {}
            Effect::Zeros => {
                let version = Version { request: index, content: Content::ZEROS };
                blocks.for_each(|block| versions.entry(block).or_default().push(version));
            }
            Effect::Bytes(bytes) => {
                for (block, (place, bytes)) in blocks.zip(bytes.chunks_exact(block_bytes).enumerate()) {
                    let content = *known.entry(bytes).or_insert_with(|| {
                        contents.push((index, place * block_bytes));
                        Content::nth(contents.len())
                    });
                    versions.entry(block).or_default().push(Version { request: index, content });
                }
            }
        }
    }
    (versions, contents)
}

fn blocks_of(facts: DeviceFacts, request: &Request) -> Range<u64> {
    let unit = u64::from(facts.block_sectors);
    request.lba.0 / unit..request.end().0.div_ceil(unit)
}

impl History {
    /// Properties of the device. Its block is the largest one to which all changes are aligned.
    #[must_use]
    pub fn facts(&self) -> DeviceFacts {
        self.facts
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.facts.block_sectors) * SECTOR_BYTES
    }

    /// The requests, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> &[RecordedRequest] {
        &self.requests
    }

    /// The position right after all events up to and including this instant.
    #[must_use]
    pub fn position(&self, at: Nanos) -> usize {
        self.events.partition_point(|(instant, _)| *instant <= at)
    }

    /// The blocks that a request covers, by number.
    #[must_use]
    pub fn blocks(&self, request: usize) -> Range<u64> {
        blocks_of(self.facts, &self.requests[request].request)
    }

    /// The changes that have arrived at a position and may be lost there, in order of arrival.
    ///
    /// Without a volatile cache, completion makes a change durable. With one, a write with FUA is durable when it has
    /// completed. Another change is durable when a flush has completed that arrived after the change had completed.
    #[must_use]
    pub fn pending(&self, position: usize) -> Vec<usize> {
        let horizon = self.flushed_before(position);
        let arrived = (0..self.requests.len()).take_while(|index| self.arrived[*index] < position);
        arrived
            .filter(|index| self.requests[*index].effect != Effect::Nothing)
            .filter(|index| !self.is_durable(*index, position, horizon))
            .collect()
    }

    /// The number of the arrival of the latest flush that has completed before a position.
    fn flushed_before(&self, position: usize) -> usize {
        let flushes = self.requests.iter().enumerate().filter(|(_, recorded)| {
            recorded.request.op == Op::Flush && recorded.completion.is_some_and(|(_, status)| status == Status::Ok)
        });
        let done = flushes.filter(|(index, _)| self.completed[*index].is_some_and(|event| event < position));
        done.map(|(index, _)| self.arrived[index]).max().unwrap_or(0)
    }

    fn is_durable(&self, index: usize, position: usize, horizon: usize) -> bool {
        let recorded = &self.requests[index];
        let (Some(event), Some((_, Status::Ok))) = (self.completed[index], recorded.completion) else { return false };
        match self.facts.write_back && !recorded.request.fua {
            true => event < horizon,
            false => event < position,
        }
    }
}
