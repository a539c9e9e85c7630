//! Devices given by a table of measured service times, kind `table`: the ChN-xS devices of Wu and Tsai, "A Storage
//! Device Emulator for System Performance Evaluation" (ACM TECS 14(4), article 82, 2015), and their like.
//!
//! Modelled: the time for which a request occupies its channel. It depends on the request's size, on its operation, and
//! on whether it is *sequential*: whether it starts at the sector where the previous request of the same operation
//! ended, in order of arrival. The first request of an operation counts as random.
//! - The time of a size between two rows is interpolated linearly, rounded to the nearest nanosecond.
//! - A size below the first row takes the first row's time.
//! - A size above the last row takes the time of its pieces, submitted one after the other on one channel: pieces of
//!   the last row's size and a remainder, all but the first of them sequential.
//! - `channels` requests are served at once, the others wait in order of arrival. Every time is divided by `speed-up`.
//! - Requests in service may slow each other down. Each `[[depth]]` gives a number of requests in service and their
//!   throughput together, as a multiple of a single request's: `read` and `write`. A request that is the n-th in
//!   service when it begins takes n / gain(n) times its time, so that a closed loop of n requests has the measured
//!   gain. Between two rows the gain is interpolated linearly; with one request it is 1. The last row's number of
//!   requests equals the number of channels. Large requests gain less, because a single one comes nearer to the
//!   device's rate. So rows may name the size of the measured requests: the gain of a size between two is interpolated
//!   linearly, and a smaller or larger size has the gain of the nearest.
//! - A flush, a discard and a write-zeroes have fixed costs, 1 ns if the profile gives none.
//!
//! Not modelled: any state of the medium, and the delay that a new request causes to those already in service.

use std::sync::Arc;

use chronodisk_sim::{Lba, Nanos, Op, Request, SECTOR_BYTES};

use crate::Probe;
use crate::fields::{Fields, MAX_CHANNELS, ProfileError};
use crate::models::blueprint::Blueprint;
use crate::quantity::Bytes;
use crate::queued::Service;

/// The service times, and the ends of the last read and the last write.
#[derive(Clone, Debug)]
pub struct Table {
    costs: Arc<Costs>,
    read_end: Option<Lba>,
    write_end: Option<Lba>,
    sequential: u64,
}

impl Service for Table {
    const COUNTS_OTHERS: bool = true;

    fn end(&mut self, request: &Request, start: Nanos, others: u32) -> Nanos {
        let costs = &self.costs;
        let (last_end, columns) = match request.op {
            Op::Read => (&mut self.read_end, &costs.read),
            Op::Write => (&mut self.write_end, &costs.write),
            Op::Discard => return start.saturating_add(costs.discard),
            Op::WriteZeroes => return start.saturating_add(costs.write_zeroes),
            _ => return start.saturating_add(costs.flush),
        };
        let sequential = *last_end == Some(request.lba);
        *last_end = Some(request.end());
        self.sequential += u64::from(sequential);
        let alone = columns.time(&costs.sizes, request.len_bytes(), sequential);
        let is_read = request.op == Op::Read;
        start.saturating_add(costs.gains.shared(alone, others, request.len_bytes(), is_read))
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("sequential-requests", self.sequential);
    }
}

/// Immutable costs; every time is already divided by the speed-up.
#[derive(Debug)]
struct Costs {
    /// Sizes of the rows in bytes, ascending.
    sizes: Vec<u64>,
    gains: Gains,
    read: Columns,
    write: Columns,
    flush: Nanos,
    discard: Nanos,
    write_zeroes: Nanos,
}

/// Service times of one operation, one per row.
#[derive(Debug, Default)]
struct Columns {
    random: Vec<Nanos>,
    sequential: Vec<Nanos>,
}

/// Throughput of several requests as a multiple of one request's; empty if requests don't slow each other down.
#[derive(Debug, Default)]
struct Gains {
    /// Sizes of requests in bytes, ascending; a single one if the rows give no sizes.
    sizes: Vec<u64>,
    /// Gains by index in `sizes`.
    by_size: Vec<Depths>,
}

/// The gains of requests of one size, one per row.
#[derive(Debug, Default)]
struct Depths {
    /// Requests in service, ascending from 1.
    requests: Vec<u32>,
    /// Factors of reads in thousandths.
    read: Vec<u64>,
    write: Vec<u64>,
}

impl Gains {
    /// Service time of a request that takes `alone` by itself and begins while `others` are in service.
    fn shared(&self, alone: Nanos, others: u32, bytes: u64, is_read: bool) -> Nanos {
        if others == 0 || self.sizes.is_empty() {
            return alone;
        }
        let requests = u64::from(others) + 1;
        let gain = u128::from(self.gain(bytes, requests, is_read));
        let nanos = (u128::from(alone.as_nanos()) * u128::from(requests) * 1_000 + gain / 2) / gain;
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The gain of this number of requests of this size, in thousandths.
    fn gain(&self, bytes: u64, requests: u64, is_read: bool) -> u64 {
        let of = |index: usize| self.by_size[index].gain(requests, is_read);
        let above = self.sizes.partition_point(|&size| size < bytes).min(self.sizes.len() - 1);
        if above == 0 || self.sizes[above] <= bytes {
            return of(above);
        }
        between((self.sizes[above - 1], of(above - 1)), (self.sizes[above], of(above)), bytes)
    }
}

impl Depths {
    /// The gain of this number of requests, in thousandths; beyond the last row, the last row's.
    fn gain(&self, requests: u64, is_read: bool) -> u64 {
        let gains = if is_read { &self.read } else { &self.write };
        let depths = &self.requests;
        let above = depths.partition_point(|&depth| u64::from(depth) < requests).min(depths.len() - 1);
        if above == 0 || u64::from(depths[above]) <= requests {
            return gains[above];
        }
        between((depths[above - 1].into(), gains[above - 1]), (depths[above].into(), gains[above]), requests)
    }
}

/// Linear interpolation between two points, at the coordinate `at`.
fn between(below: (u64, u64), above: (u64, u64), at: u64) -> u64 {
    let share = i128::from(at - below.0) * (i128::from(above.1) - i128::from(below.1));
    let more = share / i128::from(above.0 - below.0);
    u64::try_from(i128::from(below.1) + more).expect("between two gains")
}

impl Columns {
    fn time(&self, sizes: &[u64], bytes: u64, sequential: bool) -> Nanos {
        let first = if sequential { &self.sequential } else { &self.random };
        let largest = sizes[sizes.len() - 1];
        if bytes <= largest {
            return interpolate(sizes, first, bytes);
        }
        let (whole, rest) = (bytes / largest, bytes % largest);
        let following = interpolate(sizes, &self.sequential, largest).as_nanos().saturating_mul(whole - 1);
        let remainder = if rest == 0 { Nanos::ZERO } else { interpolate(sizes, &self.sequential, rest) };
        interpolate(sizes, first, largest).saturating_add(Nanos::from_nanos(following)).saturating_add(remainder)
    }
}

/// The time for `bytes`, at most the last row's size.
fn interpolate(sizes: &[u64], times: &[Nanos], bytes: u64) -> Nanos {
    let above = sizes.partition_point(|&size| size < bytes);
    if above == 0 || sizes[above] == bytes {
        return times[above];
    }
    let share = i128::from(bytes - sizes[above - 1]);
    let span = i128::from(sizes[above] - sizes[above - 1]);
    let (below_time, above_time) = (i128::from(times[above - 1].as_nanos()), i128::from(times[above].as_nanos()));
    // Twice the dividend plus the divisor over twice the divisor rounds to the nearest.
    let numerator = below_time * span + (above_time - below_time) * share;
    let nanos = (2 * numerator + span).div_euclid(2 * span);
    Nanos::from_nanos(u64::try_from(nanos).expect("between two times of 64 bits"))
}

/// Kind `table`: `channels` or `[[depth]]`, `speed-up`, costs without a table, and one `[[row]]` per size.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Result<Blueprint, ProfileError> {
    let given_channels = fields.optional_count("channels", 1..=MAX_CHANNELS)?;
    let speed_up = fields.factor_thousandths("speed-up")?;
    let faster = |time: Nanos| {
        let nanos = (u128::from(time.as_nanos()) * 1_000 + u128::from(speed_up / 2)) / u128::from(speed_up);
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX).max(1))
    };
    let mut costs = Costs {
        sizes: Vec::new(),
        gains: Gains::default(),
        read: Columns::default(),
        write: Columns::default(),
        flush: faster(fields.quantity_or("flush", Nanos::from_nanos(1))?),
        discard: faster(fields.quantity_or("discard", Nanos::from_nanos(1))?),
        write_zeroes: faster(fields.quantity_or("write-zeroes", Nanos::from_nanos(1))?),
    };
    for mut row in fields.tables("row", MAX_ROWS)? {
        let Bytes(size) = row.positive("size")?;
        if !size.is_multiple_of(SECTOR_BYTES) || costs.sizes.last().is_some_and(|&last| last >= size) {
            return Err(row.error_at("size", "expected a multiple of 512 B larger than the row before"));
        }
        costs.sizes.push(size);
        costs.read.random.push(faster(row.positive("random-read")?));
        costs.write.random.push(faster(row.positive("random-write")?));
        costs.read.sequential.push(faster(row.positive("sequential-read")?));
        costs.write.sequential.push(faster(row.positive("sequential-write")?));
        row.finish()?;
    }
    costs.gains = parse_depths(fields)?;
    let deepest = costs.gains.by_size.last().and_then(|depths| depths.requests.last());
    let channels = match (given_channels, deepest) {
        (Some(channels), None) => channels,
        (None, Some(&deepest)) => deepest,
        (Some(_), Some(_)) => {
            return Err(
                fields.error_at("channels", "expected either channels or [[depth]], whose last row says how many")
            );
        }
        (None, None) => return Err(fields.error_at("channels", "expected the number of channels, or [[depth]]")),
    };
    let service = Table { costs: Arc::new(costs), read_end: None, write_end: None, sequential: 0 };
    Ok(Blueprint::queued(Some(channels), service).with_discard())
}

/// The gains in `[[depth]]`; empty without any.
fn parse_depths(fields: &mut Fields<'_>) -> Result<Gains, ProfileError> {
    let mut gains = Gains::default();
    let mut are_sized = None;
    for mut row in fields.tables_or_none("depth", MAX_ROWS)? {
        let requests = row.count("requests", 1..=MAX_CHANNELS)?;
        let Bytes(size) = row.quantity_or("size", Bytes(0))?;
        if *are_sized.get_or_insert(row.has("size")) != row.has("size") {
            return Err(row.error_at("size", "expected in each [[depth]], or in none"));
        }
        let last = gains.sizes.last().copied();
        if last.is_some_and(|last| size < last) {
            return Err(row.error_at("size", "expected no less than in the depth before"));
        }
        if last != Some(size) {
            is_as_deep_as_the_first(&gains).map_err(|said| row.error_at("size", said))?;
            gains.sizes.push(size);
            gains.by_size.push(Depths::default());
        }
        let depths = gains.by_size.last_mut().expect("just made sure");
        if depths.requests.is_empty() && requests > 1 {
            depths.add(1, [1_000; 2]);
        }
        if depths.requests.last().is_some_and(|&last| last >= requests) {
            return Err(row.error_at("requests", "expected more requests than in the depth before"));
        }
        let gained = [row.factor_thousandths("read")?, row.factor_thousandths("write")?];
        if requests == 1 && gained != [1_000; 2] {
            return Err(row.error_at("requests", "expected 1 for read and write: a single request has no gain"));
        }
        depths.add(requests, gained);
        row.finish()?;
    }
    is_as_deep_as_the_first(&gains).map_err(|said| fields.error_at("depth", said))?;
    Ok(gains)
}

/// Checks that the last number of requests is equal for all sizes, since it is the device's number of channels.
fn is_as_deep_as_the_first(gains: &Gains) -> Result<(), &'static str> {
    let ends = [gains.by_size.first(), gains.by_size.last()].map(|depths| depths.and_then(|one| one.requests.last()));
    if ends[0] == ends[1] { Ok(()) } else { Err("expected the rows of each size to end with the same requests") }
}

impl Depths {
    fn add(&mut self, requests: u32, [read, write]: [u64; 2]) {
        self.requests.push(requests);
        self.read.push(read);
        self.write.push(write);
    }
}

/// More sizes than any measurement has.
const MAX_ROWS: usize = 1_024;

#[cfg(test)]
mod tests {
    use chronodisk_sim::{Nanos, Op, Request};

    use crate::fields::ProfileError;
    use crate::models::testing::{build, closed_loop, complete};
    use crate::{BuildOptions, DeviceModel, Profile, contract};

    fn nanos(count: u64) -> Nanos {
        Nanos::from_nanos(count)
    }

    #[test]
    fn contracts() {
        for name in ["wu-tsai-baseline", "wu-tsai-ch3-x2", "wu-tsai-ch4-x4"] {
            contract::check(name, contract::cases(256), &|seed| build(name, seed));
        }
    }

    #[test]
    fn without_load_it_gives_the_table_as_printed() {
        // Wu and Tsai, table III: 4 KiB take 0.0057 and 1.1601 ms at random, 0.0027 and 0.0115 ms in sequence.
        let mut device = build("wu-tsai-baseline", 0);
        let mut ask = |id, op, lba, sectors| complete(device.as_mut(), Request::new(id, op, lba, sectors));
        assert_eq!(ask(1, Op::Read, 800, 8), nanos(5_700));
        assert_eq!(ask(2, Op::Write, 808, 8), nanos(1_160_100), "a write does not continue a read");
        assert_eq!(ask(3, Op::Read, 808, 8), nanos(2_700));
        assert_eq!(ask(4, Op::Write, 816, 8), nanos(11_500));
        assert_eq!(ask(5, Op::Write, 816, 8), nanos(1_160_100), "not where the last one ended");
        assert_eq!(ask(6, Op::Flush, 0, 0), nanos(1));
    }

    #[test]
    fn sizes_between_and_beyond_the_rows() {
        let mut device = build("wu-tsai-baseline", 0);
        let mut ask = |id, lba, sectors| complete(device.as_mut(), Request::new(id, Op::Read, lba, sectors));
        assert_eq!(ask(1, 0, 12), nanos(6_000), "6 KiB lie half way between 0.0057 and 0.0063 ms");
        assert_eq!(ask(2, 4_096, 3), nanos(5_350), "1.5 KiB between 0.0053 and 0.0054 ms");
        assert_eq!(ask(3, 100_000, 256), nanos(15_100 + 13_900), "128 KiB are 64 KiB twice, the second in sequence");
        assert_eq!(ask(4, 0, 136), nanos(15_100 + 2_700), "68 KiB are 64 KiB and 4 KiB in sequence");
    }

    const SHARED: &str = r#"
name = "shared"
kind = "table"
description = "three depths"
source = "a test"
validation = "unvalidated"
capacity = "1 GiB"
speed-up = 1
[[row]]
size = "4 KiB"
random-read = "100 us"
random-write = "200 us"
sequential-read = "100 us"
sequential-write = "200 us"
[[depth]]
requests = 4
read = 2
write = 1
[[depth]]
requests = 8
read = 3
write = 1
"#;

    fn parsed(text: &str) -> Result<Profile, ProfileError> {
        Profile::parse(text, "shared.toml")
    }

    fn shared() -> Box<dyn DeviceModel> {
        parsed(SHARED).unwrap().build(&BuildOptions::default()).unwrap()
    }

    #[test]
    fn requests_in_service_together_have_the_gain_of_their_number() {
        contract::check("shared", contract::cases(256), &|_| shared());
        let rate = |depth, op| {
            let outcome =
                closed_loop(shared().as_mut(), depth, 4_000, |id| Request::new(id, op, id * 7_919 % 50_000 * 16, 8));
            4_000.0 / outcome.last.as_secs_f64()
        };
        let close = |rate: f64, expected: f64| assert!((rate / expected - 1.0).abs() < 0.01, "{rate} for {expected}");
        close(rate(1, Op::Read), 10_000.0);
        close(rate(4, Op::Read), 20_000.0);
        // Half way between the rows.
        close(rate(6, Op::Read), 25_000.0);
        close(rate(8, Op::Read), 30_000.0);
        // Beyond the last row requests wait.
        close(rate(16, Op::Read), 30_000.0);
        close(rate(8, Op::Write), 5_000.0);
    }

    /// 4 KiB requests gain as above; 512 KiB requests gain nothing.
    const SIZED: &str = r#"
[[depth]]
requests = 8
size = "512 KiB"
read = 1
write = 1
"#;

    fn sized() -> String {
        SHARED
            .replace("requests = 4", "requests = 4\nsize = \"4 KiB\"")
            .replace("requests = 8", "requests = 8\nsize = \"4 KiB\"")
            + SIZED
    }

    #[test]
    fn large_requests_have_a_gain_of_their_own() {
        let built = || parsed(&sized()).unwrap().build(&BuildOptions::default()).unwrap();
        contract::check("sized", contract::cases(256), &|_| built());
        let rate = |depth, sectors| {
            let outcome = closed_loop(built().as_mut(), depth, 4_000, |id| {
                Request::new(id, Op::Read, id * 7_919 % 1_000 * 2_048, sectors)
            });
            4_000.0 / outcome.last.as_secs_f64()
        };
        let close = |gain: f64, expected: f64| assert!((gain / expected - 1.0).abs() < 0.01, "{gain} for {expected}");
        close(rate(8, 8) / rate(1, 8), 3.0);
        close(rate(4, 8) / rate(1, 8), 2.0);
        close(rate(8, 1_024) / rate(1, 1_024), 1.0);
        // Half way between the sizes, and beyond both.
        close(rate(8, 516) / rate(1, 516), 2.0);
        close(rate(8, 1) / rate(1, 1), 3.0);
        close(rate(8, 2_048) / rate(1, 2_048), 1.0);
    }

    #[test]
    fn depths_that_make_no_sense_are_refused() {
        for (from, to, said) in [
            ("size = \"512 KiB\"\nread", "read", "in each [[depth]], or in none"),
            ("size = \"512 KiB\"\nread", "size = \"1 KiB\"\nread", "no less than in the depth before"),
            ("requests = 8\nsize = \"512 KiB\"", "requests = 4\nsize = \"512 KiB\"", "end with the same requests"),
            ("requests = 8\nsize = \"4 KiB\"", "requests = 9\nsize = \"4 KiB\"", "end with the same requests"),
        ] {
            let text = sized().replace(from, to);
            assert_ne!(text, sized(), "{from}");
            let error = parsed(&text).expect_err("it is refused").to_string();
            assert!(error.contains(said), "{error}");
        }
        let refused = |from: &str, to: &str, said: &str| {
            let error = parsed(&SHARED.replace(from, to)).expect_err("it is refused").to_string();
            assert!(error.contains(said), "{error}");
        };
        refused("speed-up = 1", "speed-up = 1\nchannels = 4", "either channels or [[depth]]");
        refused("requests = 8", "requests = 4", "more requests than in the depth before");
        refused("requests = 4", "requests = 1", "a single request has no gain");
        refused("read = 2", "read = 0", "read");
        let without = SHARED.split("[[depth]]").next().unwrap();
        assert!(parsed(without).expect_err("no channels").to_string().contains("number of channels, or [[depth]]"));
    }

    #[test]
    fn speed_up_divides_and_channels_multiply() {
        let mut device = build("wu-tsai-ch1-x4", 0);
        assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 800, 8)), nanos(1_425));
        // 4 channels, twice as fast, 32 random 4 KiB writes waiting: 4 every 580,050 ns.
        let outcome = closed_loop(build("wu-tsai-ch4-x2", 0).as_mut(), 32, 4_000, |id| {
            Request::new(id, Op::Write, (id * 7_919 % 50_000) * 16, 8)
        });
        assert_eq!(outcome.last, nanos(1_000 * 580_050));
        // Little's law: 32 requests in the system at a rate of 4 per 580,050 ns stay for eight times that.
        assert_eq!(outcome.response_times[2_000], nanos(8 * 580_050));
    }
}
