//! Derives operation and pattern from the name of a set of measurements.

use super::Access;

/// The properties found in a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Understood {
    /// The access pattern.
    pub access: Access,
    /// Number of zones, if the name has it.
    pub zones: Option<u32>,
}

/// Reads names such as `zns-a SPDK 4K randread, 1 zone` and `nvme-a SPDK 4K randwrite (preconditioned)`.
///
/// - `rand` anywhere means random; without it the requests are sequential, as in fio's `read` and `write`.
/// - `read` or `write` at the end of a word is the operation. `randrw`, `mixed` or `70/30` is a mixture, with 70 %
///   reads unless two numbers with the sum 100 state the shares. After the first `(` or `,` only mixtures and zones
///   count.
/// - A number before `zone` or `zones` is the number of zones.
///
/// # Errors
/// The missing or contradictory property.
pub fn understand(name: &str) -> Result<Understood, String> {
    let lower = name.to_lowercase();
    let zones = zones(&lower);
    let head = lower.split(['(', ',']).next().unwrap_or_default();
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_alphanumeric() && c != '/').map(str::to_owned).collect()
    };
    let random = head.contains("rand");
    let mixture = words(&lower).iter().find_map(|word| mixture(word));
    let mixed = mixture.is_some() || head.contains("randrw") || words(head).iter().any(|word| word == "mixed");
    let ends = |operation: &str| words(head).iter().any(|word| word.ends_with(operation) || is_plural(word, operation));
    let read_share = match (mixed, ends("read"), ends("write")) {
        (true, ..) => mixture.unwrap_or(0.7),
        (false, true, false) => 1.0,
        (false, false, true) => 0.0,
        (false, true, true) => return Err(format!("\"{name}\" names both reads and writes")),
        (false, false, false) => return Err(format!("\"{name}\" names neither reads nor writes")),
    };
    Ok(Understood { access: Access { read_share, random }, zones })
}

fn is_plural(word: &str, operation: &str) -> bool {
    word.strip_suffix('s').is_some_and(|word| word.ends_with(operation))
}

/// `70/30` or `70r30w`: the share of reads.
fn mixture(word: &str) -> Option<f64> {
    let (reads, writes) = word.split_once('/').or_else(|| word.strip_suffix('w')?.split_once('r'))?;
    let (reads, writes) = (reads.parse::<u32>().ok()?, writes.parse::<u32>().ok()?);
    (reads.checked_add(writes) == Some(100)).then(|| f64::from(reads) / 100.0)
}

/// The number before `zone`.
fn zones(name: &str) -> Option<u32> {
    let (before, _) = name.split_once("zone")?;
    let before = before.trim_end_matches([' ', '-', '_']);
    let start = before.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
    before.get(start..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_as_people_write_them() {
        for (name, read_share, random, zones) in [
            ("zns-a SPDK 4K randread, 1 zone", 1.0, true, Some(1)),
            ("zns-a SPDK write QD1 by size", 0.0, false, None),
            ("zns-a SPDK seq read 128K", 1.0, false, None),
            ("nvme-a SPDK 4K randwrite (preconditioned)", 0.0, true, None),
            ("nvme-a io_uring 4K randread (after random writes), 14 zones", 1.0, true, Some(14)),
            ("drive 70/30 random", 0.7, true, None),
            ("x randrw 50/50", 0.5, true, None),
            ("x randrw", 0.7, true, None),
            ("random 4 KiB reads", 1.0, true, None),
            ("mixed rand 30r70w", 0.3, true, None),
            ("128K sequential writes 4-zone", 0.0, false, Some(4)),
        ] {
            let understood = understand(name).unwrap();
            assert_eq!(understood, Understood { access: Access { read_share, random }, zones }, "{name}");
        }
    }

    #[test]
    fn names_that_say_too_little_or_too_much() {
        assert!(understand("drive A, 4 KiB").unwrap_err().contains("neither reads nor writes"));
        assert!(understand("").is_err());
        assert!(understand("read and write").unwrap_err().contains("both reads and writes"));
        assert!(understand("zone zones 99999999999999zone read").unwrap().zones.is_none());
    }
}
