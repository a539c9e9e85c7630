//! The shared bus against closed forms; its contract is tested in `models::array`.

use chronodisk_sim::{Nanos, Op, Request};

use crate::DeviceModel;
use crate::models::testing::{build_text, closed_loop, complete};

/// Members of 1 ms each, in chunks of 4 KiB, behind a bus of 4.096 MB/s: 4 KiB take 1 ms on it.
fn behind_bus(members: usize, keys: &str) -> Box<dyn DeviceModel> {
    let text = format!(
        "name = \"a\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         level = \"raid0\"\nmember = \"constant-1ms\"\ncount = {members}\nchunk = \"4 KiB\"\n\
         bus-rate = \"4.096 MB/s\"\nbus-overhead = \"100 us\"\n{keys}"
    );
    build_text(&text, 7)
}

#[test]
fn a_request_crosses_twice() {
    let micros = Nanos::from_micros;
    let mut device = behind_bus(2, "");
    // 100 µs out, 1 ms in the member, and back 100 µs and 1 ms of data; a write has its data on the way out.
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 0, 8)), micros(100 + 1_000 + 1_100));
    assert_eq!(complete(device.as_mut(), Request::new(2, Op::Write, 0, 8)), micros(1_100 + 1_000 + 100));
    assert_eq!(complete(device.as_mut(), Request::new(3, Op::Flush, 0, 0)), micros(200 + 1_000 + 100));
}

#[test]
fn saturated_the_bus_is_the_bottleneck() {
    // A read holds it 1.2 ms; eight members could serve eight in a millisecond.
    let outcome = closed_loop(behind_bus(8, "").as_mut(), 16, 800, |id| Request::new(id, Op::Read, id % 64 * 8, 8));
    let busy = 800 * 1_200_000;
    let idle = outcome.last.as_nanos() - busy;
    assert!(idle <= 1_000_000, "only the first member is waited for, not {idle} ns");
    // Little's law: 16 in the system at one per 1.2 ms.
    let mean = outcome.response_times.iter().map(|time| time.as_nanos()).sum::<u64>() / 800;
    assert!(mean.abs_diff(16 * 1_200_000) < 400_000, "{mean}");
}

#[test]
fn arbitration_decides_who_is_next() {
    let order = |keys: &str| {
        let mut device = behind_bus(4, keys);
        // One long write keeps the bus busy while three members finish their reads.
        (0..3).for_each(|id| device.submit(Request::new(id, Op::Read, id * 8, 8)));
        let mut completed = Vec::new();
        device.step(Nanos::from_micros(350), &mut completed);
        device.submit(Request::new(9, Op::Write, 24, 8));
        while device.outstanding() > 0 {
            let next = device.next_event().expect("an outstanding request has an event before it");
            device.step(next, &mut completed);
        }
        completed.into_iter().map(|completion| completion.id.0).collect::<Vec<_>>()
    };
    assert_eq!(order(""), [0, 1, 2, 9]);
    assert_eq!(order("bus-arbitration = \"highest-id\""), [2, 9, 1, 0]);
}
