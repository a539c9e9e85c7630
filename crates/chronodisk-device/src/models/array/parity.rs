//! Access to rows with parity: the members that a read touches when some have failed, and the reads before a write.
//!
//! A write that covers a part of a row has to keep the row's parity. It can read the old data and the old parity that
//! it overwrites (*read-modify-write*) or the row's other data (*reconstruct-write*). The choice is that of
//! `handle_stripe_dirtying` in Linux's `drivers/md/raid5.c`, by the number of reads: an unreadable block counts as two
//! whole rows, and equal counts choose reconstruct-write. Linux decides for each page of the row; here the decision is
//! made for each *band*, the largest part in which the same chunks are written, exact to the sector.

use super::layout::{Layout, MemberSet};

/// A write to one row, or to several that it covers whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWrite {
    rows: (u64, u64),
    failed: MemberSet,
    /// Whether the rows are covered whole.
    whole: bool,
    bands: [Band; 3],
    count: usize,
}

/// Sectors of a row's chunks in which the same chunks are written.
#[derive(Clone, Copy, Debug)]
struct Band {
    from: u64,
    to: u64,
    /// The units written: from the first to before the second.
    units: (usize, usize),
    method: Method,
}

/// Reads before a band is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// No read is needed: the band is covered completely, or no parity is left.
    Nothing,
    /// Old data and old parity.
    Modify,
    /// The other data.
    Reconstruct,
    /// The rest of the row, since a part that both methods need has failed.
    Everything,
}

impl RowWrite {
    /// A write of the data from `span.0` to before `span.1` (in sectors of the row's data) in each row from `rows.0` to
    /// before `rows.1`; a write of several rows covers them whole.
    pub(crate) fn new(layout: &Layout, failed: MemberSet, rows: (u64, u64), span: (u64, u64)) -> RowWrite {
        let nothing = Band { from: 0, to: 0, units: (0, 0), method: Method::Nothing };
        let whole = span == (0, layout.row_sectors());
        let mut write = RowWrite { rows, failed, whole, bands: [nothing; 3], count: 0 };
        let Edges { first, from, last, to } = Edges::new(layout.chunk_sectors, span);
        if first == last {
            write.add(layout, from, to, (first, last + 1));
            return write;
        }
        let cuts = [0, from.min(to), from.max(to), layout.chunk_sectors];
        for band in cuts.windows(2) {
            let begin = if band[0] >= from { first } else { first + 1 };
            let end = if band[1] <= to { last + 1 } else { last };
            write.add(layout, band[0], band[1], (begin, end));
        }
        write
    }

    fn add(&mut self, layout: &Layout, from: u64, to: u64, units: (usize, usize)) {
        if from < to && units.0 < units.1 {
            let method = method(layout, self.failed, self.rows.0, units);
            self.bands[self.count] = Band { from, to, units, method };
            self.count += 1;
        }
    }

    /// Rows written without a read because they are covered whole.
    pub(crate) fn whole_rows(&self) -> u64 {
        if self.whole { self.rows.1 - self.rows.0 } else { 0 }
    }

    /// Whether a part is written by read-modify-write.
    pub(crate) fn modifies(&self) -> bool {
        self.bands().iter().any(|band| band.method == Method::Modify)
    }

    /// Whether a part is written by reconstruct-write.
    pub(crate) fn reconstructs(&self) -> bool {
        self.bands().iter().any(|band| matches!(band.method, Method::Reconstruct | Method::Everything))
    }

    /// Reads before the write: member, first sector, sector after the last one.
    pub(crate) fn reads(&self, layout: &Layout, mut emit: impl FnMut(usize, u64, u64)) {
        let (row, base) = (self.rows.0, self.rows.0 * layout.chunk_sectors);
        for band in self.bands() {
            let wanted = |unit: usize| {
                let written = (band.units.0..band.units.1).contains(&unit);
                match band.method {
                    Method::Nothing => false,
                    Method::Modify => written,
                    Method::Reconstruct => !written,
                    Method::Everything => true,
                }
            };
            let data = (0..layout.units()).filter(|&unit| wanted(unit)).map(|unit| layout.data(row, unit));
            for member in data.filter(|&member| !self.failed.contains(member)) {
                emit(member, base + band.from, base + band.to);
            }
            if matches!(band.method, Method::Modify | Method::Everything) {
                for member in live_parities(layout, self.failed, row) {
                    emit(member, base + band.from, base + band.to);
                }
            }
        }
    }

    /// Writes: member, first sector, sector after the last one, whether it is the parity of a part of a row.
    pub(crate) fn writes(&self, layout: &Layout, mut emit: impl FnMut(usize, u64, u64, bool)) {
        let (row, base) = (self.rows.0, self.rows.0 * layout.chunk_sectors);
        if self.whole {
            let (from, to) = (base, self.rows.1 * layout.chunk_sectors);
            for member in (0..layout.members).filter(|&member| !self.failed.contains(member)) {
                emit(member, from, to, false);
            }
            return;
        }
        for band in self.bands() {
            let data = (band.units.0..band.units.1).map(|unit| layout.data(row, unit));
            for member in data.filter(|&member| !self.failed.contains(member)) {
                emit(member, base + band.from, base + band.to, false);
            }
            for member in live_parities(layout, self.failed, row) {
                emit(member, base + band.from, base + band.to, true);
            }
        }
    }

    fn bands(&self) -> &[Band] {
        &self.bands[..self.count]
    }
}

/// Chooses the method by the number of reads, as md counts them.
fn method(layout: &Layout, failed: MemberSet, row: u64, units: (usize, usize)) -> Method {
    let gone = 2 * layout.members;
    let cost = |member: usize| if failed.contains(member) { gone } else { 1 };
    if live_parities(layout, failed, row).next().is_none() {
        return Method::Nothing;
    }
    let written = units.0..units.1;
    let parities: usize = (0..2).filter_map(|which| layout.parity(row, which)).map(cost).sum();
    let data = |unit: usize| cost(layout.data(row, unit));
    let modify: usize = parities + written.clone().map(data).sum::<usize>();
    let reconstruct: usize = (0..layout.units()).filter(|unit| !written.contains(unit)).map(data).sum();
    match (modify < reconstruct, modify.min(reconstruct)) {
        (_, 0) => Method::Nothing,
        (_, reads) if reads >= gone => Method::Everything,
        (true, _) => Method::Modify,
        (false, _) => Method::Reconstruct,
    }
}

fn live_parities(layout: &Layout, failed: MemberSet, row: u64) -> impl Iterator<Item = usize> + '_ {
    (0..2).filter_map(move |which| layout.parity(row, which)).filter(move |&member| !failed.contains(member))
}

/// Reports the sectors that a read of a row's data from `span.0` to before `span.1` touches: member, first sector,
/// sector after the last one, each at most once. Returns the number of chunks that must be computed from others.
///
/// A chunk of a failed member needs the same sectors of the remaining data, and of as many parity chunks as data chunks
/// are missing.
pub(crate) fn row_read(
    layout: &Layout,
    failed: MemberSet,
    row: u64,
    span: (u64, u64),
    mut emit: impl FnMut(usize, u64, u64),
) -> u64 {
    let edges = Edges::new(layout.chunk_sectors, span);
    let gone = |unit: &usize| failed.contains(layout.data(row, *unit));
    let mut rebuilt = [(0, 0); 2];
    let mut count = 0;
    for unit in (edges.first..=edges.last).filter(gone) {
        rebuilt[count] = edges.of(unit, layout.chunk_sectors);
        count += 1;
    }
    if count == 0 {
        for unit in edges.first..=edges.last {
            let (from, to) = edges.of(unit, layout.chunk_sectors);
            emit(layout.data(row, unit), from, to);
        }
        return 0;
    }
    let rebuilt = &rebuilt[..count];
    for unit in (0..layout.units()).filter(|unit| !gone(unit)) {
        let asked = (edges.first..=edges.last).contains(&unit).then(|| edges.of(unit, layout.chunk_sectors));
        union(rebuilt, asked, |from, to| emit(layout.data(row, unit), from, to));
    }
    let missing = (0..layout.units()).filter(gone).count();
    for member in live_parities(layout, failed, row).take(missing) {
        union(rebuilt, None, |from, to| emit(member, from, to));
    }
    count as u64
}

/// Reports the union of at most three ranges in order.
fn union(rebuilt: &[(u64, u64)], asked: Option<(u64, u64)>, mut emit: impl FnMut(u64, u64)) {
    let mut ranges = [(u64::MAX, u64::MAX); 3];
    let mut count = 0;
    for &range in rebuilt.iter().chain(&asked) {
        ranges[count] = range;
        count += 1;
    }
    let ranges = &mut ranges[..count];
    ranges.sort_unstable();
    let mut open = ranges[0];
    for &(from, to) in &ranges[1..] {
        if from <= open.1 {
            open.1 = open.1.max(to);
        } else {
            emit(open.0, open.1);
            open = (from, to);
        }
    }
    emit(open.0, open.1);
}

/// Begin and end of a span of a row's data in its chunks.
#[derive(Clone, Copy, Debug)]
struct Edges {
    /// Unit and sector in it of the beginning.
    first: usize,
    from: u64,
    /// Unit of the last sector, and the sector after it in that unit.
    last: usize,
    to: u64,
}

impl Edges {
    fn new(chunk_sectors: u64, span: (u64, u64)) -> Edges {
        let last = (span.1 - 1) / chunk_sectors;
        Edges {
            first: (span.0 / chunk_sectors) as usize,
            from: span.0 % chunk_sectors,
            last: last as usize,
            to: span.1 - last * chunk_sectors,
        }
    }

    /// The sectors of a unit between the first and the last.
    fn of(&self, unit: usize, chunk_sectors: u64) -> (u64, u64) {
        let from = if unit == self.first { self.from } else { 0 };
        let to = if unit == self.last { self.to } else { chunk_sectors };
        (from, to)
    }
}

/// The members' sectors that a write's parity depends on, from the first to before the last.
pub(crate) fn member_span(chunk_sectors: u64, rows: (u64, u64), span: (u64, u64)) -> (u64, u64) {
    let edges = Edges::new(chunk_sectors, span);
    let (from, to) = if edges.first == edges.last { (edges.from, edges.to) } else { (0, chunk_sectors) };
    (rows.0 * chunk_sectors + from, (rows.1 - 1) * chunk_sectors + to)
}
