//! Rates and longest waits of drives under streams that share the arm with other loads, as JSON on standard output.
//!
//! `cargo run -p chronodisk-device --example disk_streams -- [PROFILE...]` (default: six drives of all controllers)

use chronodisk_device::rates::{Loop, Ops, Pattern, measure_together};
use chronodisk_device::{BuildOptions, Profile, ProfileError};
use chronodisk_sim::Nanos;

const DRIVES: [&str; 6] =
    ["nearline-20tb", "hitachi-hds721010kla330", "cheetah-x15", "cheetah-9lp", "barracuda", "atlas-10k"];
const SECONDS: u64 = 20;

/// A loop without its size, depth and place.
type Part = (Pattern, Ops);

/// Loads on the device: one loop, or a stream and its companion with size and depth.
const ALONE: [Part; 9] = [
    (Pattern::Sequential, Ops::Read),
    (Pattern::Sequential, Ops::Write),
    (Pattern::Sequential, Ops::Mixed),
    (Pattern::Backwards, Ops::Read),
    (Pattern::Backwards, Ops::Write),
    (Pattern::Backwards, Ops::Mixed),
    (Pattern::Random, Ops::Read),
    (Pattern::Random, Ops::Write),
    (Pattern::Random, Ops::Mixed),
];
const STREAMS: [(Ops, Ops); 3] = [(Ops::Read, Ops::Read), (Ops::Write, Ops::Write), (Ops::Read, Ops::Write)];
const BESIDE: [(Ops, Ops); 4] =
    [(Ops::Read, Ops::Read), (Ops::Read, Ops::Write), (Ops::Write, Ops::Read), (Ops::Write, Ops::Write)];

fn main() -> Result<(), ProfileError> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        names = DRIVES.map(str::to_owned).to_vec();
    }
    println!("{{\n  \"schema\": \"chronodisk.experiments.disk-streams/1\",\n  \"seed\": 1,\n  \"rows\": [");
    let mut separator = "";
    for name in names {
        let profile = Profile::find(&name)?;
        let half = profile.capacity_bytes() / 512 / 2 / 4_096 * 4_096;
        for bytes in [128 << 10, 1 << 20] {
            for depth in [1, 4, 32] {
                let first = |(pattern, ops)| Loop { pattern, ops, bytes, depth, first_sector: 0, sectors: half };
                let second = |ops| Loop { first_sector: half, ..first((Pattern::Sequential, ops)) };
                let small = |ops, depth| Loop { pattern: Pattern::Random, bytes: 4 << 10, depth, ..second(ops) };
                let mut cases: Vec<Vec<Loop>> = ALONE.iter().map(|&part| vec![first(part)]).collect();
                cases.extend(STREAMS.map(|(one, two)| vec![first((Pattern::Sequential, one)), second(two)]));
                for (stream, beside) in BESIDE {
                    let stream = first((Pattern::Sequential, stream));
                    cases.extend([1, 8].map(|depth| vec![stream, small(beside, depth)]));
                }
                for loops in cases {
                    let mut device = profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() })?;
                    let measured = measure_together(device.as_mut(), &loops, Nanos::from_secs(SECONDS), 1);
                    let told: Vec<String> = loops
                        .iter()
                        .zip(&measured)
                        .map(|(it, measured)| {
                            format!(
                                "{{\"pattern\": \"{}\", \"ops\": \"{}\", \"bytes\": {}, \"depth\": {}, \
                             \"megabytes_per_second\": {:.3}, \"requests_per_second\": {:.1}, \
                             \"longest_wait_ms\": {:.1}}}",
                                format!("{:?}", it.pattern).to_lowercase(),
                                format!("{:?}", it.ops).to_lowercase(),
                                it.bytes,
                                it.depth,
                                measured.bytes_per_second as f64 / 1e6,
                                measured.requests_per_kilosecond as f64 / 1e3,
                                measured.longest_wait.as_millis_f64(),
                            )
                        })
                        .collect();
                    print!("{separator}    {{\"profile\": \"{name}\", \"loops\": [{}]}}", told.join(", "));
                    separator = ",\n";
                }
            }
        }
    }
    println!("\n  ]\n}}");
    Ok(())
}
