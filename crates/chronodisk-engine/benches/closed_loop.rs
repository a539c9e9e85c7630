//! Simulated requests per second, by the host's clock: `cargo bench -p chronodisk-engine`. Quote the figure as a ratio
//! to another one of the same run, because it varies on a shared machine.

use std::time::Instant;

use chronodisk_device::{BuildOptions, Profile};
use chronodisk_engine::sim::{Issue, closed_loop};
use chronodisk_engine::{Engine, GuestClock, Transfer};
use chronodisk_sim::{Nanos, Op, Request};

const REQUESTS: u64 = 2_000_000;

fn main() {
    for profile in ["null", "constant-100us", "first-disk"] {
        for depth in [1, 32] {
            let seconds = simulate(profile, depth);
            println!(
                "simulation  {profile:15} depth {depth:2}: {:6.2} million requests/s",
                REQUESTS as f64 / seconds / 1e6
            );
        }
        let seconds = through_the_engine(profile);
        println!("guest clock {profile:15} depth  1: {:6.2} million requests/s", REQUESTS as f64 / seconds / 1e6);
    }
}

fn request(id: u64) -> Request {
    Request::new(id, Op::Read, id.wrapping_mul(7_919) % 100_000 * 8, 8)
}

fn simulate(profile: &str, depth: u32) -> f64 {
    let mut model = Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap();
    let begun = Instant::now();
    let issues = (0..REQUESTS).map(|id| Issue { request: request(id), think: Nanos::ZERO });
    let log = closed_loop(&mut *model, issues, depth).unwrap();
    let seconds = begun.elapsed().as_secs_f64();
    assert_eq!(log.len() as u64, REQUESTS);
    seconds
}

fn through_the_engine(profile: &str) -> f64 {
    let mut engine = Engine::new();
    let device = engine.attach(Profile::find(profile).unwrap().build(&BuildOptions::default()).unwrap());
    let mut clock = GuestClock::new(engine);
    let begun = Instant::now();
    for id in 0..REQUESTS {
        let now = clock.kick(clock.now());
        clock.arrive(device, request(id), Transfer::MOVED);
        assert_eq!(clock.idle(now, None).due.len(), 1);
    }
    begun.elapsed().as_secs_f64()
}
