//! Two block traces side by side: which requests both have, and when.

use std::collections::BTreeMap;

use chronodisk_sim::{Nanos, Op, RequestRecord};
use serde::{Deserialize, Serialize};

use crate::schema::to_json;
use crate::summary::{Distribution, ratio};
use crate::table::{Align, Table};

/// Name and version of [`TraceComparison`]'s form.
pub const TRACE_COMPARISON_SCHEMA: &str = "chronodisk.trace-comparison/1";

/// Common requests of two traces, in any order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceComparison {
    /// [`TRACE_COMPARISON_SCHEMA`].
    pub schema: String,
    /// Requests with equal operation, first sector and length.
    pub requests: Matched,
    /// Accesses to blocks of 4 KiB with equal operation, however requests divide them.
    pub blocks: Matched,
    /// The same by name of the operation, with the requests that only one trace has.
    pub by_op: BTreeMap<String, OpComparison>,
    /// When requests that both have arrive and complete, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<TimeComparison>,
}

/// How many both have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Matched {
    /// In the first trace.
    pub a: u64,
    /// In the second.
    pub b: u64,
    /// In both.
    pub both: u64,
    /// Those in both, of the longer trace: 0 to 1. 1 for two traces without any.
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

/// Requests that one trace has and the other one has not, by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Remainder {
    /// The other trace has one more with this operation and first sector, with another length.
    pub other_length: u64,
    /// The other trace has one more with this range, with another operation.
    pub other_op: u64,
    /// The other trace has nothing like it.
    pub elsewhere: u64,
}

/// Times of the requests that both traces have; the first with the first, among equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimeComparison {
    /// From the first arrival to the last, in seconds, in the first trace.
    pub duration_a_s: f64,
    /// In the second.
    pub duration_b_s: f64,
    /// Differences of arrivals, each since its trace's first, without signs.
    pub arrival_difference_us: Distribution,
    /// Requests with completions in both.
    pub completed: u64,
    /// Differences of response times, without signs.
    pub response_difference_us: Distribution,
    /// Response times in the first trace.
    pub response_a_us: Distribution,
    /// In the second.
    pub response_b_us: Distribution,
}

/// A request as it is compared: operation, first sector, length.
type Key = (u8, u64, u32);

#[derive(Clone, Copy, Debug)]
struct Keyed {
    key: Key,
    arrival: Nanos,
    response: Option<Nanos>,
}

/// Compares two traces of one volume each.
#[must_use]
pub fn compare_traces(a: &[RequestRecord], b: &[RequestRecord], with_times: bool) -> TraceComparison {
    let (keyed_a, keyed_b) = (keyed(a), keyed(b));
    let (pairs, only_a, only_b) = merge(&keyed_a, &keyed_b);
    let mut comparison = TraceComparison { schema: TRACE_COMPARISON_SCHEMA.to_owned(), ..TraceComparison::default() };
    let blocks_a = boundaries(a);
    let blocks_b = boundaries(b);
    for op in Op::ALL {
        let of_op = |keyed: &&Keyed| keyed.key.0 == op as u8;
        let (count_a, count_b) = (keyed_a.iter().filter(of_op).count(), keyed_b.iter().filter(of_op).count());
        if count_a + count_b == 0 {
            continue;
        }
        let both = pairs.iter().filter(|(one, _)| of_op(&one)).count();
        let none = BTreeMap::new();
        let blocks =
            |of: &BTreeMap<u8, BTreeMap<u64, (i64, i64)>>| of.get(&(op as u8)).cloned().unwrap_or(none.clone());
        let of_op = OpComparison {
            requests: Matched::of(count_a as u64, count_b as u64, both as u64),
            blocks: matched_blocks(&blocks(&blocks_a), &blocks(&blocks_b)),
            only_a: remainder(&only_a, &only_b, op),
            only_b: remainder(&only_b, &only_a, op),
        };
        comparison.requests.add(&of_op.requests);
        comparison.blocks.add(&of_op.blocks);
        comparison.by_op.insert(op.name().to_owned(), of_op);
    }
    comparison.requests = comparison.requests.with_share();
    comparison.blocks = comparison.blocks.with_share();
    comparison.times = with_times.then(|| times(a, b, &pairs));
    comparison
}

/// All requests in order of their keys; equal ones in order of the trace.
fn keyed(records: &[RequestRecord]) -> Vec<Keyed> {
    let begin = records.iter().map(|record| record.arrival).min().unwrap_or_default();
    let mut keyed: Vec<Keyed> = records
        .iter()
        .map(|record| Keyed {
            key: (record.op as u8, record.lba.0, record.sectors),
            arrival: record.arrival - begin,
            response: record.is_completed().then(|| record.completed - record.arrival),
        })
        .collect();
    keyed.sort_by_key(|keyed| keyed.key);
    keyed
}

/// Pairs with equal keys, and the rest of both sides.
fn merge(a: &[Keyed], b: &[Keyed]) -> (Vec<(Keyed, Keyed)>, Vec<Key>, Vec<Key>) {
    let (mut pairs, mut only_a, mut only_b) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rest_a, mut rest_b) = (a.iter().peekable(), b.iter().peekable());
    loop {
        match (rest_a.peek(), rest_b.peek()) {
            (Some(one), Some(other)) if one.key == other.key => {
                pairs.push((**one, **other));
                rest_a.next();
                rest_b.next();
            }
            (Some(one), other) if other.is_none_or(|other| one.key < other.key) => {
                only_a.push(one.key);
                rest_a.next();
            }
            (_, Some(other)) => {
                only_b.push(other.key);
                rest_b.next();
            }
            (_, None) => return (pairs, only_a, only_b),
        }
    }
}

/// Classifies the remaining requests of one operation in one trace, by the remaining requests of the other.
fn remainder(left: &[Key], of_other: &[Key], op: Op) -> Remainder {
    let mut by_place: BTreeMap<(u8, u64), u64> = BTreeMap::new();
    let mut by_range: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for (op, lba, sectors) in of_other {
        *by_place.entry((*op, *lba)).or_default() += 1;
        *by_range.entry((*lba, *sectors)).or_default() += 1;
    }
    let mut found = Remainder::default();
    for (_, lba, sectors) in left.iter().filter(|key| key.0 == op as u8) {
        let take = |count: Option<&mut u64>| count.filter(|count| **count > 0).map(|count| *count -= 1).is_some();
        if take(by_place.get_mut(&(op as u8, *lba))) {
            found.other_length += 1;
        } else if take(by_range.get_mut(&(*lba, *sectors))) {
            found.other_op += 1;
        } else {
            found.elsewhere += 1;
        }
    }
    found
}

/// For each operation, at which blocks of 4 KiB its requests begin and end.
fn boundaries(records: &[RequestRecord]) -> BTreeMap<u8, BTreeMap<u64, (i64, i64)>> {
    const BLOCK_SECTORS: u64 = 8;
    let mut boundaries: BTreeMap<u8, BTreeMap<u64, (i64, i64)>> = BTreeMap::new();
    for record in records.iter().filter(|record| record.sectors > 0) {
        let (first, end) = (record.lba.0, record.lba.0 + u64::from(record.sectors));
        let of_op = boundaries.entry(record.op as u8).or_default();
        of_op.entry(first / BLOCK_SECTORS).or_default().0 += 1;
        of_op.entry(end.div_ceil(BLOCK_SECTORS)).or_default().1 += 1;
    }
    boundaries
}

/// Accesses to blocks that both have: between two boundaries all blocks are accessed equally often.
fn matched_blocks(a: &BTreeMap<u64, (i64, i64)>, b: &BTreeMap<u64, (i64, i64)>) -> Matched {
    let mut places: Vec<u64> = a.keys().chain(b.keys()).copied().collect();
    places.sort_unstable();
    places.dedup();
    let change = |of: &BTreeMap<u64, (i64, i64)>, at: u64| of.get(&at).map_or(0, |(begin, end)| begin - end);
    let (mut open_a, mut open_b, mut found) = (0_i64, 0_i64, Matched::default());
    for pair in places.windows(2) {
        open_a += change(a, pair[0]);
        open_b += change(b, pair[0]);
        let blocks = pair[1] - pair[0];
        found.a += open_a.unsigned_abs() * blocks;
        found.b += open_b.unsigned_abs() * blocks;
        found.both += open_a.min(open_b).unsigned_abs() * blocks;
    }
    found.with_share()
}

fn times(a: &[RequestRecord], b: &[RequestRecord], pairs: &[(Keyed, Keyed)]) -> TimeComparison {
    let duration_s = |records: &[RequestRecord]| {
        let first = records.iter().map(|record| record.arrival).min().unwrap_or_default();
        let last = records.iter().map(|record| record.arrival).max().unwrap_or_default();
        (last - first).as_secs_f64()
    };
    let apart = |one: Nanos, other: Nanos| one.max(other) - one.min(other);
    let responses: Vec<(Nanos, Nanos)> =
        pairs.iter().filter_map(|(one, other)| Some((one.response?, other.response?))).collect();
    TimeComparison {
        duration_a_s: duration_s(a),
        duration_b_s: duration_s(b),
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
        self.a += other.a;
        self.b += other.b;
        self.both += other.both;
    }
}

impl TraceComparison {
    /// As JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// For people.
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
            // Merged of two.
            request(Op::Write, 0, 16, 0),
            request(Op::Flush, 0, 0, 5),
            request(Op::Read, 100, 8, 250),
            request(Op::Read, 400, 8, 300),
        ];
        let found = compare_traces(&a, &b, true);
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
        // Since the first request: 200 against 250 µs, and 500 against 5 µs.
        assert_eq!((times.arrival_difference_us.p50, times.arrival_difference_us.max), (50.0, 495.0));
        assert_eq!(times.response_difference_us.max, 0.0);
    }

    #[test]
    fn a_trace_is_equal_to_itself_backwards() {
        let forwards: Vec<_> =
            (0..500).map(|index| request(Op::Read, index * 37 % 900, 1 + index as u32 % 40, index)).collect();
        let backwards: Vec<_> = forwards.iter().rev().copied().collect();
        let found = compare_traces(&forwards, &backwards, false);
        assert_eq!((found.requests.share, found.blocks.share), (1.0, 1.0));
        assert_eq!(found.by_op["read"].only_a, Remainder::default());
        assert_eq!(compare_traces(&[], &[], true).requests.share, 1.0);
    }
}
