//! Measures the path of a request between a program and a server: this host's block layer, the loop driver and FUSE.
//!
//! A device of known latency is attached for a moment, as the real one will be. What a program sees of its requests,
//! minus what the server's log has, is the path.

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_engine::{Engine, MonotonicClock, PathSample, PathTimes};
use chronodisk_front::fuse::FuseFile;
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Server, ServerOptions};
use chronodisk_sim::{Nanos, Op, RequestRecord};
use chronodisk_store::RamStore;

use crate::attachment::attach;
use crate::calibrator::Requests;
use crate::error::{Doing, NativeError};

/// A device on which no request waits for another one. Its latency is between that of a solid-state drive and that of
/// a disk: processors fall asleep in between, as they do under either.
const PROFILE: &str = r#"
name = "path"
kind = "constant"
description = "Measures the path of requests"
source = "a definition; no device is imitated"
validation = "by-definition"
capacity = "64 MiB"
time = "500 us"
"#;
const SIZE_BYTES: u64 = 64 << 20;
/// Sizes of requests; the larger one is not split by any layer.
const SIZES: [u64; 2] = [4 << 10, 128 << 10];
/// Requests of each kind and size: 0.2 s for all.
const COUNT: u32 = 80;
/// Not counted: caches are cold, and the server's own estimates not yet made.
const WARM_UP: u32 = 20;

/// Measures the path on this host. It takes 0.3 s.
///
/// # Errors
/// What [`attach`] says.
pub fn measure_path(scheduler: &str) -> Result<PathTimes, NativeError> {
    const DOING: &str = "measuring the path of requests";
    let profile = Profile::parse(PROFILE, "path").map_err(std::io::Error::other).doing(DOING)?;
    let model = profile.build(&BuildOptions::default()).map_err(std::io::Error::other).doing(DOING)?;
    let info = model.info().clone();
    let clock = MonotonicClock::new();
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(clock.clone()));
    let device = engine.attach(model);
    let store = Box::new(RamStore::new(SIZE_BYTES, 2 * SIZE_BYTES));
    let offer = ServerOffer::new(vec![Export::new("", SIZE_BYTES)], Tls::Off);
    let offer = offer.map_err(|reason| std::io::Error::other(reason.to_string())).doing(DOING)?;
    // Without priority, as every server of a loop device.
    let options = ServerOptions { realtime: false, ..ServerOptions::default() };
    let mut server = Server::new(engine, device, store, offer, clock, options).doing(DOING)?;
    let clients = attach(&mut server, &info, FuseFile::of(&info), scheduler).and_then(|attachment| {
        let of = |writes| {
            let times = SIZES.map(|request_bytes| {
                let path = attachment.path().to_owned();
                let requests = Requests {
                    path,
                    size_bytes: SIZE_BYTES,
                    request_bytes,
                    writes,
                    random: true,
                    count: COUNT,
                    seed: 1,
                };
                requests.measure()
            });
            let [small, large] = times;
            Ok::<_, NativeError>([small?, large?])
        };
        // What is read was written before.
        let writes = of(true)?;
        Ok((of(false)?, writes))
    });
    let records = server.stop().records;
    let (reads, writes) = clients?;
    let samples = |op, clients: [Vec<Nanos>; 2]| {
        let [small, large] = clients;
        [sample(&records, op, SIZES[0], small), sample(&records, op, SIZES[1], large)]
    };
    Ok(PathTimes::measured(samples(Op::Read, reads), samples(Op::Write, writes)))
}

/// A client's times beside those of the server for the same requests.
fn sample(records: &[RequestRecord], op: Op, data_bytes: u64, clients: Vec<Nanos>) -> PathSample {
    let is_same = |record: &&RequestRecord| {
        record.op == op && record.is_completed() && u64::from(record.sectors) * 512 == data_bytes
    };
    let servers: Vec<Nanos> =
        records.iter().filter(is_same).map(|it| it.completed.saturating_sub(it.arrival)).collect();
    PathSample { data_bytes, client: median(clients), server: median(servers) }
}

/// Of what came after the warm-up; zero if nothing did.
fn median(times: Vec<Nanos>) -> Nanos {
    let mut counted: Vec<Nanos> = times.into_iter().skip(WARM_UP as usize).collect();
    counted.sort_unstable();
    counted.get(counted.len() / 2).copied().unwrap_or_default()
}
