//! The zones as a host sees them agree with the zones of a model, which decides at other instants.

use chronodisk_device::{BuildOptions, DeviceModel, Profile, ZoneMap, advance};
use chronodisk_sim::{Completion, Nanos, Op, Priority, RandomStream, Request, RequestId, Status};

const CAPACITY_SECTORS: u64 = (64 << 20) / 512;

/// The drive with zones of 3 MiB and few of them open, so that they fill and meet the limits.
fn drive(seed: u64) -> Box<dyn DeviceModel> {
    let text = Profile::find("wd-zn540-zones").unwrap().text().to_owned();
    let text = text
        .replace("\"1808 GiB\"", "\"64 MiB\"")
        .replace("\"2048 MiB\"", "\"4 MiB\"")
        .replace("\"1077 MiB\"", "\"3 MiB\"")
        .replace("open-zones = 14", "open-zones = 3")
        .replace("active-zones = 14", "active-zones = 5");
    let profile = Profile::parse(&text, "small-zones").unwrap();
    profile.build(&BuildOptions { capacity_bytes: None, seed, ..BuildOptions::default() }).unwrap()
}

fn random_request(id: u64, stream: &mut RandomStream, map: &ZoneMap) -> Request {
    let zone = (stream.next_u64() % u64::from(map.count())) as u32;
    let report = map.report(zone).unwrap();
    let most = (report.capacity_sectors - report.written_sectors) / 8;
    let blocks = match stream.next_u64() % 4 {
        0 => most.max(1),
        1 => 1,
        _ => 1 + stream.next_u64() % 128,
    };
    let (op, lba, sectors) = match stream.next_u64() % 20 {
        0..=6 => (Op::Write, report.start + report.written_sectors, blocks * 8),
        7 => (Op::Write, report.start + 8 * (stream.next_u64() % 700), blocks * 8),
        8..=11 => (Op::ZoneAppend, report.start, blocks * 8),
        12 | 13 => (Op::ZoneReset, report.start, 8),
        14 => (Op::ZoneFinish, report.start, 8),
        15 => (Op::ZoneOpen, report.start, 8),
        16 => (Op::ZoneClose, report.start, 8),
        17 => (Op::ZoneAppend, report.start + 8, 8),
        18 => (Op::Flush, 0, 0),
        _ => (Op::Read, report.start + 8 * (stream.next_u64() % 512), blocks * 8),
    };
    let sectors = sectors.min(CAPACITY_SECTORS - lba);
    Request {
        id: RequestId(id),
        op,
        lba: chronodisk_sim::Lba(lba),
        sectors: sectors as u32,
        fua: false,
        priority: Priority::Normal,
        queue: 0,
        issuer: 0,
    }
}

/// Sends a request to the map and to the model, which must agree on its status. Returns the status.
fn ends_alike(model: &mut dyn DeviceModel, map: &mut ZoneMap, request: Request) -> Status {
    let admitted = map.admit(&request);
    model.submit(request);
    let mut completed = Vec::new();
    while completed.is_empty() {
        let next = model.next_event().unwrap();
        model.step(next, &mut completed);
    }
    let expected = admitted.map_or_else(|status| status, |_| Status::Ok);
    assert_eq!(completed[0].status, expected, "{request:?}");
    if let Ok(place) = admitted {
        map.completed(request.op, place);
    }
    expected
}

#[test]
fn one_request_at_a_time_ends_as_in_the_model() {
    for seed in 0..20 {
        let mut model = drive(seed);
        let layout = model.info().zones.unwrap();
        let mut map = ZoneMap::new(layout, model.info().capacity_sectors);
        let mut stream = RandomStream::new(seed, "test", "zone-map");
        let mut seen = std::collections::BTreeSet::new();
        for id in 0..600 {
            let request = random_request(id, &mut stream, &map);
            seen.insert(ends_alike(&mut *model, &mut map, request));
        }
        assert!(seen.len() >= 6, "seed {seed} saw {seen:?} only");
    }
}

#[test]
fn the_model_accepts_every_request_that_the_map_accepts() {
    for seed in 0..40 {
        let mut model = drive(seed);
        let mut map = ZoneMap::new(model.info().zones.unwrap(), model.info().capacity_sectors);
        let mut stream = RandomStream::new(seed, "test", "zone-map-deep");
        let mut accepted = std::collections::BTreeMap::new();
        let settle = |map: &mut ZoneMap,
                      accepted: &mut std::collections::BTreeMap<RequestId, (Request, u64)>,
                      completed: &mut Vec<Completion>| {
            for completion in completed.drain(..) {
                let (request, place) = accepted.remove(&completion.id).unwrap();
                assert_eq!(completion.status, Status::Ok, "seed {seed}, {request:?}");
                map.completed(request.op, place);
            }
        };
        let mut completed = Vec::new();
        for id in 0..1_500 {
            let request = random_request(id, &mut stream, &map);
            if let Ok(place) = map.admit(&request) {
                accepted.insert(request.id, (request, place));
                model.submit(request);
            }
            if stream.next_u64().is_multiple_of(3) {
                let until = model.now() + Nanos::from_nanos(stream.next_u64() % 3_000_000);
                while model.now() < until {
                    model.step(until, &mut completed);
                    settle(&mut map, &mut accepted, &mut completed);
                }
            }
        }
        let end = model.now() + Nanos::from_secs(10);
        advance(model.as_mut(), end, &mut completed);
        settle(&mut map, &mut accepted, &mut completed);
        assert!(accepted.is_empty());
    }
}

/// Writes at random, cuts the power, begins anew with the zones as they were, and goes on.
#[test]
fn a_drive_that_begins_with_written_zones_goes_on_at_their_pointers() {
    for seed in 0..20 {
        let mut stream = RandomStream::new(seed, "test", "zone-map-restart");
        let layout = drive(seed).info().zones.unwrap();
        let mut kept = vec![(0, false); 16];
        let mut id = 0;
        for _ in 0..6 {
            let mut model = drive(seed);
            let mut map = ZoneMap::new(layout, model.info().capacity_sectors);
            map.begin_with(&kept, 8).unwrap();
            let reports: Vec<_> = map.reports().collect();
            assert!(model.begin_with_zones(&reports));
            assert_eq!((model.now(), model.outstanding()), (Nanos::ZERO, 0));
            for _ in 0..100 {
                let request = random_request(id, &mut stream, &map);
                id += 1;
                ends_alike(&mut *model, &mut map, request);
            }
            kept = (0..map.count()).map(|zone| map.at_rest(zone)).collect();
        }
    }
}

#[test]
fn zones_that_can_not_be_are_refused() {
    let model = drive(1);
    let refusal = |kept: &[(u64, bool)]| {
        let mut map = ZoneMap::new(model.info().zones.unwrap(), model.info().capacity_sectors);
        map.begin_with(kept, 8).unwrap_err()
    };
    let with = |written, full| [vec![(written, full)], vec![(0, false); 15]].concat();
    assert!(refusal(&[(0, false)]).contains("expected 16"));
    for wrong in [with(6_145, false), with(7, false), with(6_144, false)] {
        assert!(refusal(&wrong).contains("of 6144 sectors written"), "{wrong:?}");
    }
    assert!(refusal(&[(8, false); 16]).contains("16 zones are active; at most 5 can be"));
}
