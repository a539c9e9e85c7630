//! Sequential and random rates and longest waits of profiles, as JSON on standard output.
//!
//! `cargo run -p chronodisk-device --example disk_rates -- PROFILE...` (default: every built-in drive with a platter)

use chronodisk_device::rates::{Load, measure};
use chronodisk_device::{BuildOptions, Profile};

fn main() -> Result<(), chronodisk_device::ProfileError> {
    let mut names: Vec<String> = std::env::args().skip(1).collect();
    if names.is_empty() {
        let turning = |kind: &str| kind.ends_with("disk") || kind == "eager-writing";
        let builtin = Profile::builtin().iter().filter(|profile| turning(&profile.kind));
        names = builtin.map(|profile| profile.name.clone()).collect();
    }
    println!("{{\n  \"schema\": \"chronodisk.experiments.disk-rates/1\",\n  \"seed\": 1,\n  \"rows\": [");
    let mut separator = "";
    for name in names {
        let profile = Profile::find(&name)?;
        for (sequential, write) in [(true, false), (true, true), (false, false), (false, true)] {
            for bytes in [4 << 10, 128 << 10, 1 << 20] {
                for depth in [1, 4, 32] {
                    let mut device = profile.build(&BuildOptions { seed: 1, ..BuildOptions::default() })?;
                    let measured = measure(device.as_mut(), Load { sequential, write, bytes, depth }, 0, 1);
                    print!(
                        "{separator}    {{\"profile\": \"{name}\", \"load\": \"{}-{}\", \"bytes\": {bytes}, \
                         \"depth\": {depth}, \"megabytes_per_second\": {}.{:03}, \"longest_wait_ms\": {:.3}}}",
                        if sequential { "sequential" } else { "random" },
                        if write { "write" } else { "read" },
                        measured.bytes_per_second / 1_000_000,
                        measured.bytes_per_second / 1_000 % 1_000,
                        measured.longest_wait.as_millis_f64(),
                    );
                    separator = ",\n";
                }
            }
        }
    }
    println!("\n  ]\n}}");
    Ok(())
}
