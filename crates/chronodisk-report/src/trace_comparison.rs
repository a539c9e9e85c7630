//! Comparison of two block traces: common requests, and their times.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use chronodisk_sim::{ContentsBudget, ContentsLimit, Nanos, Op, OverLimit, RequestRecord};
use serde::{Deserialize, Serialize};

use crate::schema::to_json;
use crate::summary::{Distribution, ratio};
use crate::table::{Align, Table};

/// Name and version of [`TraceComparison`]'s JSON schema.
pub const TRACE_COMPARISON_SCHEMA: &str = "chronodisk.trace-comparison/1";

/// Requests common to two traces, in any order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceComparison {
    /// [`TRACE_COMPARISON_SCHEMA`].
    pub schema: String,
    /// Requests with equal operation, first sector and length.
    pub requests: Matched,
    /// Accesses to blocks of 4 KiB with equal operation, independent of their division into requests.
    pub blocks: Matched,
    /// The same figures by operation, with the requests that only one trace has.
    pub by_op: BTreeMap<String, OpComparison>,
    /// Arrival and response times of the common requests, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimeComparison>,
}

/// Numbers of common and of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matched {
    /// In the first trace.
    pub a: u64,
    /// In the second.
    pub b: u64,
    /// In both.
    pub both: u64,
    /// Common requests as a share of the longer trace: 0 to 1. 1 for two traces without such requests.
    pub share: f64,
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpComparison {
    /// Whole requests.
    pub requests: Matched,
    /// Blocks of 4 KiB.
    pub blocks: Matched,
    /// Requests that only the first trace has.
    pub only_a: Remainder,
    /// Requests that only the second trace has.
    pub only_b: Remainder,
}

/// Requests that the other trace lacks, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remainder {
    /// The other trace has a surplus request with this operation and first sector, but another length.
    pub other_length: u64,
    /// The other trace has a surplus request with this range, but another operation.
    pub other_op: u64,
    /// The other trace has no similar request.
    pub elsewhere: u64,
}

/// Times of the requests that both traces have. Equal requests are paired in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeComparison {
    /// Time from the first arrival to the last in the first trace, in seconds.
    pub duration_a_s: f64,
    /// Time from the first arrival to the last in the second trace, in seconds.
    pub duration_b_s: f64,
    /// Absolute differences of arrivals, each relative to its trace's first.
    pub arrival_difference_us: Distribution,
    /// Common requests with completions in both traces.
    pub completed: u64,
    /// Absolute differences of response times.
    pub response_difference_us: Distribution,
    /// Response times in the first trace.
    pub response_a_us: Distribution,
    /// Response times in the second trace.
    pub response_b_us: Distribution,
}

/// Fields of a request that are compared: operation, first sector, length.
type Key = (u8, u64, u32);

/// The requests of a trace in a form for comparison, collected one by one.
///
/// Without times, memory grows with the number of distinct requests; with times, with the number of all requests.
/// Without times, memory depends on how many different requests there are, with times on how many there are.
#[derive(Clone, Debug)]
pub struct ComparedTrace {
    counts: BTreeMap<Key, u64>,
    /// All requests in order of the trace; `None` without times.
    timed: Option<Vec<Timed>>,
    first_arrival: Nanos,
    last_arrival: Nanos,
    budget: ContentsBudget,
}

#[derive(Clone, Copy, Debug)]
struct Timed {
    key: Key,
    arrival: Nanos,
    response: Option<Nanos>,
}

/// Memory of a request in the tables of a comparison: its key and its boundaries, in trees whose nodes are two thirds
/// full, and the same for unmatched requests.
const KEY_BYTES: u64 = 256;
/// Memory of a request with its times: the request, its pair, and the values of three distributions.
const TIMED_BYTES: u64 = 256;

impl ComparedTrace {
    /// A trace without requests.
    #[must_use]
    pub fn new(with_times: bool, limit: ContentsLimit) -> Self {
        ComparedTrace {
            counts: BTreeMap::new(),
            timed: with_times.then(Vec::new),
            first_arrival: Nanos::MAX,
            last_arrival: Nanos::ZERO,
            budget: ContentsBudget::new(limit),
        }
    }

    /// Memory of this number of requests with their times.
    #[must_use]
    pub const fn bytes_with_times(requests: u64) -> u64 {
        requests.saturating_mul(TIMED_BYTES)
    }

    /// Adds the next request of a trace with one volume.
    ///
    /// # Errors
    /// If the requests need more memory than the limit allows.
    pub fn add(&mut self, record: &RequestRecord) -> Result<(), OverLimit> {
        let key = (record.op as u8, record.lba.0, record.sectors);
        self.first_arrival = self.first_arrival.min(record.arrival);
        self.last_arrival = self.last_arrival.max(record.arrival);
        match self.counts.entry(key) {
            Entry::Occupied(mut count) => *count.get_mut() += 1,
            Entry::Vacant(place) => {
                self.budget.take(KEY_BYTES)?;
                place.insert(1);
            }
        }
        if let Some(timed) = &mut self.timed {
            self.budget.take(TIMED_BYTES)?;
            let response = record.is_completed().then(|| record.completed - record.arrival);
            timed.push(Timed { key, arrival: record.arrival, response });
        }
        Ok(())
    }

    /// Requests of one operation.
    fn of_op(&self, op: Op) -> impl Iterator<Item = (&Key, &u64)> {
        self.counts.range((op as u8, 0, 0)..=(op as u8, u64::MAX, u32::MAX))
    }

    /// Requests that the other trace lacks.
    fn without(&self, other: &ComparedTrace) -> BTreeMap<Key, u64> {
        let left = |(key, count): (&Key, &u64)| {
            let left = count.saturating_sub(other.counts.get(key).copied().unwrap_or(0));
            (left > 0).then_some((*key, left))
        };
        self.counts.iter().filter_map(left).collect()
    }

    fn duration_s(&self) -> f64 {
        self.last_arrival.saturating_sub(self.first_arrival).as_secs_f64()
    }

    /// All requests in order of their keys, equal ones in order of the trace; empty without times.
    fn sorted(&self) -> Vec<Timed> {
        let mut timed = self.timed.clone().unwrap_or_default();
        for request in &mut timed {
            request.arrival = request.arrival - self.first_arrival;
        }
        timed.sort_by_key(|request| request.key);
        timed
    }
}

/// Compares two traces of one volume each.
#[must_use]
pub fn compare_traces(a: &ComparedTrace, b: &ComparedTrace) -> TraceComparison {
    let (only_a, only_b) = (a.without(b), b.without(a));
    let mut comparison = TraceComparison { schema: TRACE_COMPARISON_SCHEMA.to_owned(), ..TraceComparison::default() };
    for op in Op::ALL {
        let total = |of: &ComparedTrace| of.of_op(op).map(|(_, count)| count).sum::<u64>();
        let (count_a, count_b) = (total(a), total(b));
        if count_a + count_b == 0 {
            continue;
        }
        let both = a.of_op(op).map(|(key, count)| b.counts.get(key).map_or(0, |other| *count.min(other))).sum();
        let of_op = OpComparison {
            requests: Matched::of(count_a, count_b, both),
            blocks: matched_blocks(&boundaries(a.of_op(op)), &boundaries(b.of_op(op))),
            only_a: remainder(&only_a, &only_b, op),
            only_b: remainder(&only_b, &only_a, op),
        };
        comparison.requests.add(&of_op.requests);
        comparison.blocks.add(&of_op.blocks);
        comparison.by_op.insert(op.name().to_owned(), of_op);
    }
    comparison.requests = comparison.requests.with_share();
    comparison.blocks = comparison.blocks.with_share();
    comparison.times = (a.timed.is_some() && b.timed.is_some()).then(|| times(a, b));
    comparison
}

/// Pairs of requests with equal keys.
fn pairs(a: &[Timed], b: &[Timed]) -> Vec<(Timed, Timed)> {
    let mut pairs = Vec::new();
    let (mut rest_a, mut rest_b) = (a.iter().peekable(), b.iter().peekable());
    while let (Some(one), Some(other)) = (rest_a.peek(), rest_b.peek()) {
        let order = one.key.cmp(&other.key);
        if order.is_eq() {
            pairs.push((**one, **other));
        }
        if order.is_le() {
            rest_a.next();
        }
        if order.is_ge() {
            rest_b.next();
        }
    }
    pairs
}

/// Classifies the unmatched requests of one operation in one trace, by the unmatched requests of the other.
fn remainder(left: &BTreeMap<Key, u64>, of_other: &BTreeMap<Key, u64>, op: Op) -> Remainder {
    let mut by_place: BTreeMap<u64, u64> = BTreeMap::new();
    let mut by_range: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for ((other_op, lba, sectors), count) in of_other {
        if *other_op == op as u8 {
            *by_place.entry(*lba).or_default() += count;
        }
        *by_range.entry((*lba, *sectors)).or_default() += count;
    }
    let mut found = Remainder::default();
    for ((_, lba, sectors), count) in left.iter().filter(|(key, _)| key.0 == op as u8) {
        let take = |available: Option<&mut u64>, most: u64| {
            available.map_or(0, |available| {
                let taken = most.min(*available);
                *available -= taken;
                taken
            })
        };
        let other_length = take(by_place.get_mut(lba), *count);
        let other_op = take(by_range.get_mut(&(*lba, *sectors)), count - other_length);
        found.other_length += other_length;
        found.other_op += other_op;
        found.elsewhere += count - other_length - other_op;
    }
    found
}

/// Numbers of requests that begin and end at each block of 4 KiB.
type Boundaries = BTreeMap<u64, (u64, u64)>;

fn boundaries<'a>(requests: impl Iterator<Item = (&'a Key, &'a u64)>) -> Boundaries {
    const BLOCK_SECTORS: u64 = 8;
    let mut boundaries = Boundaries::new();
    for ((_, first, sectors), count) in requests.filter(|(key, _)| key.2 > 0) {
        let end = first + u64::from(*sectors);
        boundaries.entry(first / BLOCK_SECTORS).or_default().0 += count;
        boundaries.entry(end.div_ceil(BLOCK_SECTORS)).or_default().1 += count;
    }
    boundaries
}

/// Block accesses common to both. Between two boundaries, all blocks have equal numbers of accesses.
fn matched_blocks(a: &Boundaries, b: &Boundaries) -> Matched {
    let mut places: Vec<u64> = a.keys().chain(b.keys()).copied().collect();
    places.sort_unstable();
    places.dedup();
    let change = |open: u64, of: &Boundaries, at: u64| {
        let (begun, ended) = of.get(&at).copied().unwrap_or_default();
        (open + begun).saturating_sub(ended)
    };
    let (mut open_a, mut open_b, mut found) = (0, 0, Matched::default());
    for pair in places.windows(2) {
        open_a = change(open_a, a, pair[0]);
        open_b = change(open_b, b, pair[0]);
        let blocks = pair[1] - pair[0];
        let accesses = |open: u64| open.saturating_mul(blocks);
        found.a = found.a.saturating_add(accesses(open_a));
        found.b = found.b.saturating_add(accesses(open_b));
        found.both = found.both.saturating_add(accesses(open_a.min(open_b)));
    }
    found.with_share()
}

fn times(a: &ComparedTrace, b: &ComparedTrace) -> TimeComparison {
    let pairs = pairs(&a.sorted(), &b.sorted());
    let apart = |one: Nanos, other: Nanos| one.max(other) - one.min(other);
    let responses: Vec<(Nanos, Nanos)> =
        pairs.iter().filter_map(|(one, other)| Some((one.response?, other.response?))).collect();
    TimeComparison {
        duration_a_s: a.duration_s(),
        duration_b_s: b.duration_s(),
        arrival_difference_us: Distribution::of(pairs.iter().map(|(one, other)| apart(one.arrival, other.arrival))),
        completed: responses.len() as u64,
        response_difference_us: Distribution::of(responses.iter().map(|(one, other)| apart(*one, *other))),
        response_a_us: Distribution::of(responses.iter().map(|(one, _)| *one)),
        response_b_us: Distribution::of(responses.iter().map(|(_, other)| *other)),
    }
}

impl Matched {
    fn of(a: u64, b: u64, both: u64) -> Self {
        Matched { a, b, both, share: 0.0 }.with_share()
    }

    fn with_share(self) -> Self {
        let most = self.a.max(self.b);
        Matched { share: if most == 0 { 1.0 } else { ratio(self.both as f64, most as f64) }, ..self }
    }

    fn add(&mut self, other: &Matched) {
        self.a = self.a.saturating_add(other.a);
        self.b = self.b.saturating_add(other.b);
        self.both = self.both.saturating_add(other.both);
    }
}

impl TraceComparison {
    /// Formats the comparison as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Renders the comparison for people.
    #[must_use]
    pub fn render(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([("", Left), ("A", Right), ("B", Right), ("in both", Right), ("share", Right)]);
        let mut line = |name: String, of: &Matched| {
            let share = format!("{:.2} %", of.share * 100.0);
            table.row([name, of.a.to_string(), of.b.to_string(), of.both.to_string(), share]);
        };
        line("requests".to_owned(), &self.requests);
        line("4 KiB blocks".to_owned(), &self.blocks);
        for (op, of_op) in &self.by_op {
            line(format!("{op}: requests"), &of_op.requests);
            if of_op.blocks.a + of_op.blocks.b > 0 {
                line(format!("{op}: 4 KiB blocks"), &of_op.blocks);
            }
        }
        let mut text = table.render();
        let mut rest = Table::new([
            ("only in one", Left),
            ("A: other length", Right),
            ("other operation", Right),
            ("elsewhere", Right),
            ("B: other length", Right),
            ("other operation", Right),
            ("elsewhere", Right),
        ]);
        let mut has_rest = false;
        for (op, OpComparison { only_a, only_b, .. }) in &self.by_op {
            let counts = [
                only_a.other_length,
                only_a.other_op,
                only_a.elsewhere,
                only_b.other_length,
                only_b.other_op,
                only_b.elsewhere,
            ];
            if counts.iter().any(|count| *count > 0) {
                has_rest = true;
                rest.row(std::iter::once(op.clone()).chain(counts.map(|count| count.to_string())));
            }
        }
        if has_rest {
            text.push('\n');
            text.push_str(&rest.render());
        }
        if let Some(times) = &self.times {
            let mut table = Table::new([
                ("µs", Left),
                ("mean", Right),
                ("p50", Right),
                ("p90", Right),
                ("p99", Right),
                ("max", Right),
            ]);
            for (name, of) in [
                ("difference of arrivals", times.arrival_difference_us),
                ("difference of response times", times.response_difference_us),
                ("response times of A", times.response_a_us),
                ("response times of B", times.response_b_us),
            ] {
                let values = [of.mean, of.p50, of.p90, of.p99, of.max].map(|value| format!("{value:.1}"));
                table.row(std::iter::once(name.to_owned()).chain(values));
            }
            text.push('\n');
            text.push_str(&table.render());
            text.push_str(&format!("Duration: A {:.6} s, B {:.6} s\n", times.duration_a_s, times.duration_b_s));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Lba, Priority, Status};

    use super::*;

    fn request(op: Op, lba: u64, sectors: u32, arrival_us: u64) -> RequestRecord {
        RequestRecord {
            device: 0,
            order: 0,
            op,
            fua: false,
            priority: Priority::default(),
            lba: Lba(lba),
            sectors,
            queue: 0,
            issuer: 0,
            arrival: Nanos::from_micros(arrival_us),
            due: Nanos::MAX,
            completed: Nanos::from_micros(arrival_us + u64::from(sectors)),
            status: Status::Ok,
            store_failed: false,
            stolen: false,
            model_time: Nanos::ZERO,
            store_time: Nanos::ZERO,
        }
    }

    fn compare(a: &[RequestRecord], b: &[RequestRecord], with_times: bool) -> TraceComparison {
        let [a, b] = [a, b].map(|records| {
            let mut trace = ComparedTrace::new(with_times, ContentsLimit::NONE);
            records.iter().for_each(|record| trace.add(record).unwrap());
            trace
        });
        compare_traces(&a, &b)
    }

    #[test]
    fn requests_match_in_any_order_and_the_rest_has_classes() {
        let a = [
            request(Op::Write, 0, 8, 100),
            request(Op::Write, 8, 8, 200),
            request(Op::Read, 100, 8, 300),
            request(Op::Read, 100, 8, 400),
            request(Op::Write, 400, 8, 500),
            request(Op::Flush, 0, 0, 600),
        ];
        let b = [
            // A request merged from two.
            request(Op::Write, 0, 16, 0),
            request(Op::Flush, 0, 0, 5),
            request(Op::Read, 100, 8, 250),
            request(Op::Read, 400, 8, 300),
        ];
        let found = compare(&a, &b, true);
        assert_eq!((found.requests.a, found.requests.b, found.requests.both), (6, 4, 2));
        assert!((found.requests.share - 2.0 / 6.0).abs() < 1e-12);
        let write = found.by_op["write"];
        assert_eq!((write.blocks.a, write.blocks.b, write.blocks.both), (3, 2, 2));
        assert_eq!(write.only_a, Remainder { other_length: 1, other_op: 1, elsewhere: 1 });
        assert_eq!(write.only_b, Remainder { other_length: 1, ..Remainder::default() });
        // Sectors 100 to 108 are in two blocks.
        assert_eq!(found.by_op["read"].blocks.both, 2);
        let times = found.times.unwrap();
        assert_eq!(times.completed, 2);
        // Arrivals since the first request: 200 and 250 µs, 500 and 5 µs.
        assert_eq!((times.arrival_difference_us.p50, times.arrival_difference_us.max), (50.0, 495.0));
        assert_eq!(times.response_difference_us.max, 0.0);
    }

    #[test]
    fn a_trace_is_equal_to_itself_backwards() {
        let forwards: Vec<_> =
            (0..500).map(|index| request(Op::Read, index * 37 % 900, 1 + index as u32 % 40, index)).collect();
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        let found = compare(&forwards, &backwards, false);
        assert_eq!((found.requests.share, found.blocks.share), (1.0, 1.0));
        assert_eq!(found.by_op["read"].only_a, Remainder::default());
        assert_eq!(compare(&[], &[], true).requests.share, 1.0);
    }

    #[test]
    fn equal_requests_need_no_more_memory_and_different_ones_reach_the_limit() {
        let limit = ContentsLimit::of_bytes(1000 * KEY_BYTES);
        let mut trace = ComparedTrace::new(false, limit);
        (0..100_000).for_each(|_| trace.add(&request(Op::Read, 7, 8, 1)).unwrap());
        let reached = (0..).position(|lba| trace.add(&request(Op::Read, 100 + lba, 8, 1)).is_err());
        assert_eq!(reached, Some(999));
        let mut timed = ComparedTrace::new(true, limit);
        assert!((0..2_000).any(|_| timed.add(&request(Op::Read, 7, 8, 1)).is_err()));
    }
}
