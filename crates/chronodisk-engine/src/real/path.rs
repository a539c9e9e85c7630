//! What a request takes outside of the server.

use chronodisk_sim::Nanos;

/// The time of a request between its client and the server, beyond what the server sees by itself.
///
/// A block device's requests pass the host's block layer, a worker of the loop driver and FUSE before the server can
/// read them, and all of that again on the way back. The server can't see it, so it is measured beforehand: with a
/// device of known latency, what a client sees minus what the server's log has.
///
/// ```
/// use chronodisk_engine::{Leg, PathTimes};
/// use chronodisk_sim::Nanos;
///
/// let reply = Leg { base: Nanos::from_micros(20), per_mebibyte: Nanos::from_micros(64) };
/// let path = PathTimes { request: Leg::default(), reply };
/// assert_eq!(path.reply.of(512 << 10), Nanos::from_micros(52));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathTimes {
    /// From the client to the server; grows with the data of a write.
    pub request: Leg,
    /// From the server to the client; grows with the data of a read.
    pub reply: Leg,
}

/// One direction of a [`PathTimes`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leg {
    /// Without data.
    pub base: Nanos,
    /// For each 2^20 bytes of data.
    pub per_mebibyte: Nanos,
}

impl Leg {
    /// The time for so many bytes of data.
    #[must_use]
    pub fn of(self, data_bytes: u64) -> Nanos {
        let for_data = u128::from(self.per_mebibyte.as_nanos()) * u128::from(data_bytes) >> 20;
        self.base.saturating_add(Nanos::from_nanos(u64::try_from(for_data).unwrap_or(u64::MAX)))
    }
}

/// A client's times beside the server's, for requests of one operation and size, one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// Data of each request.
    pub data_bytes: u64,
    /// Median of the times that the client saw.
    pub client: Nanos,
    /// Median of the times from arrival to completion in the server's log.
    pub server: Nanos,
}

impl PathSample {
    fn outside(self) -> Nanos {
        self.client.saturating_sub(self.server)
    }
}

impl PathTimes {
    /// The path of which reads and writes of two sizes each, the smaller one first, were measured.
    ///
    /// Data cost what the larger requests take more than the smaller ones. What is left of the smaller ones, the mean
    /// of both directions, is divided evenly: it can't be seen where it passed.
    #[must_use]
    pub fn measured(reads: [PathSample; 2], writes: [PathSample; 2]) -> Self {
        let [read, write] = [reads, writes].map(per_mebibyte);
        let rest = |small: PathSample, rate| {
            let data = Leg { base: Nanos::ZERO, per_mebibyte: rate }.of(small.data_bytes);
            small.outside().saturating_sub(data).as_nanos()
        };
        let both = rest(reads[0], read).midpoint(rest(writes[0], write));
        let base = Nanos::from_nanos(both / 2);
        PathTimes { request: Leg { base, per_mebibyte: write }, reply: Leg { base, per_mebibyte: read } }
    }
}

fn per_mebibyte([small, large]: [PathSample; 2]) -> Nanos {
    let more = u128::from(large.outside().saturating_sub(small.outside()).as_nanos());
    let bytes = u128::from(large.data_bytes.saturating_sub(small.data_bytes).max(1));
    Nanos::from_nanos(u64::try_from((more << 20) / bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(data_bytes: u64, client_us: u64, server_us: u64) -> PathSample {
        let [client, server] = [client_us, server_us].map(Nanos::from_micros);
        PathSample { data_bytes, client, server }
    }

    #[test]
    fn what_was_measured_is_what_the_path_takes() {
        // 60 us for each, reads take 1 us more for 8 KiB, writes nothing.
        let reads = [sample(0, 560, 500), sample(256 << 10, 592, 500)];
        let writes = [sample(0, 561, 501), sample(256 << 10, 560, 500)];
        let path = PathTimes::measured(reads, writes);
        let both = |read: u64, write: u64| path.request.of(write) + path.reply.of(read);
        assert_eq!(both(0, 0), Nanos::from_micros(60));
        assert_eq!(both(0, 1 << 20), Nanos::from_micros(60));
        assert_eq!(both(128 << 10, 0), Nanos::from_micros(76));
    }

    #[test]
    fn a_client_that_saw_less_than_the_server_has_no_path() {
        let samples = [sample(4096, 490, 500), sample(256 << 10, 480, 500)];
        assert_eq!(PathTimes::measured(samples, samples), PathTimes::default());
    }

    #[test]
    fn no_length_overflows() {
        let leg = Leg { base: Nanos::MAX, per_mebibyte: Nanos::MAX };
        assert_eq!(leg.of(u64::MAX), Nanos::MAX);
    }
}
