//! The host's queue against the contract and its parameters.

use chronodisk_sim::{Nanos, Op, Request};

use crate::models::testing::{build_text, closed_loop, complete, counter};
use crate::{DeviceModel, Profile, contract};

fn text(keys: &str) -> String {
    format!(
        "name = \"q\"\nkind = \"host-queue\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n{keys}\n"
    )
}

fn queue(keys: &str) -> Box<dyn DeviceModel> {
    build_text(&text(keys), 7)
}

fn check(keys: &str) {
    contract::check(keys, contract::cases(16), &|seed| build_text(&text(keys), seed));
}

#[test]
fn contract_with_every_elevator() {
    for elevator in ["noop", "deadline", "cfq", "c-look"] {
        check(&format!("member = \"cheetah-9lp\"\nelevator = \"{elevator}\""));
        check(&format!(
            "member = \"wu-tsai-ch2-x1\"\nelevator = \"{elevator}\"\ndevice-depth = 2\nunplug-at = \"never\""
        ));
    }
}

#[test]
fn contract_of_a_short_queue() {
    check(
        "member = \"first-disk\"\nqueue-limit = 2\nqueue-limit-batching = 3\nbatch-requests = 2\nmax-request = \"256 KiB\"",
    );
    check(
        "member = \"constant-1ms\"\nqueue-limit = 1\nmerge = \"back\"\nmax-request = \"512 KiB\"\nunplug-threshold = 1",
    );
}

/// Runs until no request is outstanding; returns the ids in order of completion.
fn drain(device: &mut dyn DeviceModel) -> Vec<(u64, Nanos)> {
    let mut completed = Vec::new();
    while device.outstanding() > 0 {
        let next = device.next_event().expect("an outstanding request has an event before it");
        device.step(next, &mut completed);
    }
    completed.into_iter().map(|completion| (completion.id.0, completion.at)).collect()
}

fn by(issuer: u32, request: Request) -> Request {
    Request { issuer, ..request }
}

const MILLIS: fn(u64) -> Nanos = Nanos::from_millis;

#[test]
fn a_write_waits_for_the_plug_and_a_read_does_not() {
    // The device takes 1 ms for anything; David's queue is unplugged after 3 ms.
    let mut plugged = queue("member = \"constant-1ms\"");
    assert_eq!(complete(plugged.as_mut(), Request::new(1, Op::Write, 0, 8)), MILLIS(4));
    assert_eq!(complete(plugged.as_mut(), Request::new(2, Op::Read, 0, 8)), MILLIS(1));
    assert_eq!(complete(plugged.as_mut(), Request::new(3, Op::Flush, 0, 0)), MILLIS(1));
    let mut patient = queue("member = \"constant-1ms\"\nunplug-at = \"never\"");
    assert_eq!(complete(patient.as_mut(), Request::new(1, Op::Read, 0, 8)), MILLIS(4));
    let mut direct = queue("member = \"constant-1ms\"\nunplug-at = \"all\"");
    assert_eq!(complete(direct.as_mut(), Request::new(1, Op::Write, 0, 8)), MILLIS(1));
    // The fourth request starts the queue.
    let mut busy = queue("member = \"constant-1ms\"\nmerge = \"none\"");
    (0..4).for_each(|id| busy.submit(Request::new(id, Op::Write, id * 100, 8)));
    assert_eq!(drain(busy.as_mut()), [(0, MILLIS(1)), (1, MILLIS(2)), (2, MILLIS(3)), (3, MILLIS(4))]);
    // And a queue without a plug starts at once.
    let mut open = queue("member = \"constant-1ms\"\nplug-delay = \"0 ms\"");
    assert_eq!(complete(open.as_mut(), Request::new(1, Op::Write, 0, 8)), MILLIS(1));
}

#[test]
fn merging_has_its_limit() {
    let merged = |merge: &str, lbas: [u64; 4]| {
        let mut device = queue(&format!(
            "member = \"constant-1ms\"\nmax-request = \"12 KiB\"\nmerge = \"{merge}\"\nunplug-at = \"never\""
        ));
        lbas.iter().zip(0..).for_each(|(&lba, id)| device.submit(Request::new(id, Op::Write, lba, 8)));
        drain(device.as_mut());
        let count = |name| counter(device.as_ref(), name);
        (count("host-queue-dispatched"), count("host-queue-back-merges"), count("host-queue-front-merges"))
    };
    assert_eq!(merged("both", [0, 8, 16, 24]), (2, 2, 0), "three of 4 KiB are 12 KiB, and one is left");
    assert_eq!(merged("both", [24, 16, 8, 0]), (2, 0, 2));
    assert_eq!(merged("back", [24, 16, 8, 0]), (4, 0, 0));
    assert_eq!(merged("none", [0, 8, 16, 24]), (4, 0, 0));
    assert_eq!(merged("both", [0, 16, 8, 100]), (2, 1, 0), "the third one joins the two before it");
}

#[test]
fn a_longer_request_is_split() {
    let mut device = queue("member = \"constant-1ms\"\nmax-request = \"4 KiB\"");
    assert_eq!(complete(device.as_mut(), Request::new(1, Op::Read, 4, 20)), MILLIS(3));
    assert_eq!(counter(device.as_ref(), "host-queue-dispatched"), 3);
}

#[test]
fn the_queue_is_bounded_and_who_waited_may_batch() {
    let keys =
        "member = \"constant-1ms\"\nmerge = \"none\"\nqueue-limit = 8\nqueue-limit-batching = 12\nbatch-requests = 4";
    let mut device = queue(keys);
    // A process fills the queue. With the last place it gets the privilege to batch four further requests.
    (0..20).for_each(|id| device.submit(by(1, Request::new(id, Op::Read, id * 100, 8))));
    assert_eq!(counter(device.as_ref(), "host-queue-most-places-used"), 11);
    assert_eq!(counter(device.as_ref(), "host-queue-waits"), 9);
    // Another process waits behind it.
    device.submit(by(2, Request::new(20, Op::Read, 0, 8)));
    assert_eq!(counter(device.as_ref(), "host-queue-waits"), 10);
    // Writes have places of their own.
    device.submit(by(2, Request::new(21, Op::Write, 0, 8)));
    assert_eq!(counter(device.as_ref(), "host-queue-waits"), 10);
    let order = drain(device.as_mut());
    assert_eq!(order.len(), 22);
    // The first process gets its turn when fewer than eight places are used, and batches four; then the second one.
    let place = |id| order.iter().position(|entry| entry.0 == id).unwrap();
    assert!(place(14) < place(20) && place(20) < place(15), "{order:?}");
    // Never more than the upper limit.
    assert!(counter(device.as_ref(), "host-queue-most-places-used") <= 12);
}

#[test]
fn a_full_queue_outweighs_the_disk() {
    // David: "the time spent by a request in the IORQ can outweigh the time spent at the disk".
    let outcome = closed_loop(queue("member = \"constant-1ms\"").as_mut(), 500, 2_000, |id| {
        Request::new(id, Op::Read, (id * 7_919 % 100_000) * 64, 8)
    });
    // Little's law: 500 in the system at one per millisecond.
    assert_eq!(outcome.response_times[1_000], MILLIS(500));
    assert_eq!(outcome.last, MILLIS(2_000));
}

#[test]
fn elevators_order_as_they_are_named() {
    let order = |keys: &str, requests: &[Request]| -> Vec<u64> {
        let mut device = queue(&format!("member = \"constant-1ms\"\nmerge = \"none\"\nplug-delay = \"0 ms\"\n{keys}"));
        // The first keeps the device busy while the others arrive.
        device.submit(Request::new(100, Op::Read, 50_000, 8));
        requests.iter().for_each(|&request| device.submit(request));
        drain(device.as_mut()).into_iter().map(|entry| entry.0).skip(1).collect()
    };
    let read = |id, lba| Request::new(id, Op::Read, lba, 8);
    let write = |id, lba| Request::new(id, Op::Write, lba, 8);
    let scattered = [read(0, 60_000), read(1, 10_000), read(2, 90_000), read(3, 40_000)];
    assert_eq!(order("elevator = \"noop\"", &scattered), [0, 1, 2, 3]);
    assert_eq!(order("elevator = \"c-look\"", &scattered), [0, 2, 1, 3]);
    // Reads first, in order of addresses, and again from the oldest; two times before writes that wait.
    let mixed = [write(0, 1_000), read(1, 60_000), read(2, 70_000), read(3, 10_000), read(4, 20_000), write(5, 2_000)];
    assert_eq!(order("elevator = \"deadline\"", &mixed), [1, 2, 3, 4, 0, 5]);
    assert_eq!(order("elevator = \"deadline\"\nfifo-batch = 1\nwrites-starved = 1", &mixed), [1, 0, 2, 5, 3, 4]);
    let crossed = [read(0, 60_000), read(1, 10_000), read(2, 70_000)];
    assert_eq!(order("elevator = \"deadline\"\nfifo-batch = 1", &crossed), [0, 2, 1]);
    let expired = "elevator = \"deadline\"\nread-expire = \"1 ms\"\nfifo-batch = 1";
    assert_eq!(order(expired, &crossed), [0, 1, 2], "the oldest first once they have waited too long");
    // One reader after the other, then the writers.
    let two = [by(1, read(0, 60_000)), by(2, read(1, 61_000)), write(2, 62_000), by(1, read(3, 70_000))];
    let cfq = order("elevator = \"cfq\"\nslice-idle = \"0 ms\"", &two);
    assert_eq!(cfq, [0, 3, 1, 2]);
}

#[test]
fn cfq_waits_for_a_reader() {
    let mut device = queue("member = \"constant-1ms\"\nelevator = \"cfq\"\nmerge = \"none\"");
    device.submit(by(1, Request::new(0, Op::Read, 0, 8)));
    device.submit(by(2, Request::new(1, Op::Read, 100_000, 8)));
    // The first reader keeps its slice for 8 ms after its read. No further read comes, so the other reader is served.
    assert_eq!(drain(device.as_mut()), [(0, MILLIS(1)), (1, MILLIS(10))]);
}

#[test]
fn a_profile_says_that_it_has_a_host_queue() {
    let parse = |text: &str| Profile::parse(text, "test").unwrap();
    assert!(parse(&text("member = \"null\"")).has_host_queue());
    let array = "name = \"a\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
                 level = \"raid1\"\nmember = \"queue\"\ncount = 2\n[[member-profile]]\nname = \"queue\"\nprofile = ";
    assert!(parse(&format!("{array}'''\n{}'''\n", text("member = \"null\""))).has_host_queue());
    let disk = Profile::find("first-disk").unwrap();
    assert!(!disk.has_host_queue());
    let behind = disk.behind_host_queue("deadline").unwrap();
    assert!(behind.has_host_queue() && behind.capacity_bytes() == disk.capacity_bytes());
    assert_eq!(parse(behind.text()).text(), behind.text());
    assert!(disk.behind_host_queue("sstf").unwrap_err().message.contains("\"c-look\""));
}

#[test]
fn wrong_values_are_refused() {
    for (keys, part) in [
        ("member = \"null\"\nqueue-limit = 9\nqueue-limit-batching = 8", "at least the queue-limit"),
        ("member = \"null\"\nelevator = \"sstf\"", "\"deadline\""),
        ("member = \"null\"\nmax-request = \"100 B\"", "multiple"),
        ("member = \"null\"\nread-expire = \"1 s\"", "unknown key"),
        ("member = \"nul\"", "no profile named"),
        ("elevator = \"noop\"", "`member` is missing"),
    ] {
        let error = Profile::parse(&text(keys), "test").unwrap_err().to_string();
        assert!(error.contains(part), "{keys}: {error}");
    }
}
