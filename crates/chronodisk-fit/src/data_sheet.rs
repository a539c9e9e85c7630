//! A profile from the few figures of a data sheet.
//!
//! A [`DataSheet`] becomes the text of a profile whose model reaches the figures, and a list of assumptions. A flash
//! drive is of kind `memory`: latencies, a link of the sequential rates, and limits for the requests a second. A disk
//! is of kind `disk`: zones with equal steps, the seek curve of Lee and Katz, skews that hide a switch of the head.

use std::fmt::Write;

use chronodisk_device::{Bytes, Rate, toml_string};
use chronodisk_sim::{Nanos, SECTOR_BYTES};

/// The figures of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataSheet {
    /// Name of the profile.
    pub name: String,
    /// The figures' source, for the profile.
    pub source: String,
    /// Capacity in bytes.
    pub capacity_bytes: u64,
    /// Sequential reads; of a disk, in the outermost zone.
    pub sequential_read: Rate,
    /// Sequential writes.
    pub sequential_write: Rate,
    /// Random reads of 4 KiB a second: of a disk at depth 1, of a flash drive at great depth.
    pub random_read: Option<u32>,
    /// Random writes of 4 KiB a second, at great depth.
    pub random_write: Option<u32>,
    /// The figures of one kind of drive.
    pub medium: Medium,
}

/// The figures that only one kind of drive has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Flash or another memory.
    Flash {
        /// Latency of a read of 4 KiB at depth 1.
        read_latency: Option<Nanos>,
        /// Latency of a write of 4 KiB at depth 1.
        write_latency: Option<Nanos>,
    },
    /// A hard disk.
    Disk {
        /// Turns per minute.
        rotations_per_minute: Option<u32>,
        /// Mean seek time between two random blocks.
        average_seek: Option<Nanos>,
        /// Sequential reads in the innermost zone.
        inner_rate: Option<Rate>,
        /// Size of the buffer in bytes.
        buffer_bytes: Option<u64>,
    },
}

/// A profile, and the assumptions in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drafted {
    /// The profile's text.
    pub text: String,
    /// A sentence for each assumption.
    pub assumptions: Vec<String>,
}

/// Depth of a flash drive's random rates.
const FLASH_DEPTH: u32 = 256;

impl DataSheet {
    /// The profile for these figures.
    ///
    /// # Errors
    /// Figures that contradict each other, in a sentence.
    pub fn draft(&self) -> Result<Drafted, String> {
        let mut draft = Draft { sheet: self, assumptions: Vec::new() };
        let body = match &self.medium {
            Medium::Flash { read_latency, write_latency } => draft.flash(*read_latency, *write_latency)?,
            Medium::Disk { rotations_per_minute, average_seek, inner_rate, buffer_bytes } => {
                draft.disk(*rotations_per_minute, *average_seek, *inner_rate, *buffer_bytes)?
            }
        };
        let mut text = String::from("# Made by `chronodisk devices new` from a data sheet. Assumed:\n");
        for assumption in &draft.assumptions {
            let _ = writeln!(text, "# - {assumption}");
        }
        text.push_str(&body);
        Ok(Drafted { text, assumptions: draft.assumptions })
    }
}

struct Draft<'a> {
    sheet: &'a DataSheet,
    assumptions: Vec<String>,
}

impl Draft<'_> {
    /// The figure, or a value that is assumed.
    fn or_assume<T: Copy>(&mut self, figure: Option<T>, value: T, sentence: impl Into<String>) -> T {
        figure.unwrap_or_else(|| {
            self.assumptions.push(sentence.into());
            value
        })
    }

    fn head(&self, kind: &str, medium: &str) -> String {
        let DataSheet { name, source, capacity_bytes, .. } = self.sheet;
        let (name, source) = (toml_string(name), toml_string(source));
        let capacity = Bytes(*capacity_bytes);
        format!(
            "name = {name}\nkind = \"{kind}\"\ndescription = \"A {medium} of {capacity}, made from its data sheet\"\n\
             source = {source}\nvalidation = \"unvalidated\"\ncapacity = \"{capacity}\"\n"
        )
    }

    fn flash(&mut self, read_latency: Option<Nanos>, write_latency: Option<Nanos>) -> Result<String, String> {
        let DataSheet { sequential_read, sequential_write, random_read, random_write, .. } = *self.sheet;
        let read =
            self.or_assume(read_latency, micros(80), "a read of 4 KiB takes 80 us at depth 1, as of 3D TLC flash");
        let write = self.or_assume(write_latency, micros(20), "a write of 4 KiB takes 20 us at depth 1, into a buffer");
        self.assumptions.push("the drive is fresh: nothing is collected, and no write waits for an erase".to_owned());
        self.assumptions.push("requests wait for each other only in the link and in the limits".to_owned());
        let latency = |name: &str, total: Nanos, link: Rate| {
            let rest = total.saturating_sub(OVERHEAD).saturating_sub(link.time_for(4_096)).saturating_sub(unit_time());
            match rest > Nanos::ZERO {
                true => Ok(rest),
                false => Err(format!(
                    "the {name} latency, {total}, is less than the time of 4 KiB at {link} and {OVERHEAD} of the controller"
                )),
            }
        };
        let (read_rest, write_rest) =
            (latency("read", read, sequential_read)?, latency("write", write, sequential_write)?);
        let mut text = self.head("memory", "flash drive");
        let _ = writeln!(
            text,
            "physical-block = \"4 KiB\"\n\nunits = {UNITS}\ninterleave = \"4 KiB\"\n\
             read-overhead = \"{0} ns\"\nread-latency = \"{1} ns\"\nunit-read-bandwidth = \"{UNIT_RATE}\"\n\
             link-read-bandwidth = \"{sequential_read}\"\n\
             write-overhead = \"{0} ns\"\nwrite-latency = \"{2} ns\"\nunit-write-bandwidth = \"{UNIT_RATE}\"\n\
             link-write-bandwidth = \"{sequential_write}\"",
            OVERHEAD.as_nanos(),
            read_rest.as_nanos(),
            write_rest.as_nanos(),
        );
        let (mut limits, mut rates) = (String::new(), String::new());
        for (operation, iops, link) in
            [("read", random_read, sequential_read), ("write", random_write, sequential_write)]
        {
            let Some(iops) = iops else {
                self.assumptions.push(format!("random {operation}s of 4 KiB reach the sequential rate at great depth"));
                continue;
            };
            if u64::from(iops) * 4_096 > link.0 + link.0 / 10 {
                return Err(format!("{iops} random {operation}s of 4 KiB a second are more than {link}"));
            }
            let _ = writeln!(limits, "{operation}-iops = {iops}");
            let _ = writeln!(
                rates,
                "    {{ load = \"random-{operation}\", size = \"4 KiB\", depth = {FLASH_DEPTH}, per-second = {iops} }},"
            );
        }
        if !limits.is_empty() {
            let _ = write!(text, "\n[limits]\n{limits}");
            rates = format!("rates = [\n{rates}]\n");
        }
        text.push_str(&self.published(&rates));
        Ok(text)
    }

    fn disk(
        &mut self,
        rotations_per_minute: Option<u32>,
        average_seek: Option<Nanos>,
        inner_rate: Option<Rate>,
        buffer_bytes: Option<u64>,
    ) -> Result<String, String> {
        let DataSheet { sequential_read, sequential_write, random_read, .. } = *self.sheet;
        let turns = self.or_assume(rotations_per_minute, 7_200, "the medium turns 7,200 times a minute");
        let seek = self.or_assume(average_seek, micros(8_500), "the average seek takes 8.5 ms");
        let half = Rate(sequential_read.0 / 2);
        let inner = self.or_assume(inner_rate, half, format!("the innermost zone reads at half of the rate, {half}"));
        let buffer = self.or_assume(buffer_bytes, 64 << 20, "the buffer has 64 MiB");
        if inner > sequential_read {
            return Err(format!("the innermost zone, {inner}, is faster than the outermost, {sequential_read}"));
        }
        if sequential_write != sequential_read {
            self.assumptions
                .push(format!("writes are as fast as reads, {sequential_read}, as the medium turns at one speed"));
        }
        if !(1_000..=30_000).contains(&turns) {
            return Err(format!("{turns} turns a minute; expected 1,000 to 30,000"));
        }
        let mut text = self.disk_geometry(turns, inner);
        let (single, full) = (micros(1_000).min(seek), Nanos::from_nanos(seek.as_nanos() * 2));
        let _ = writeln!(
            text,
            "\n[mechanics]\nrotation = \"{turns} rpm\"\nhead-switch = \"{} ns\"\nwrite-settle = \"0.3 ms\"\n\
             initial-phase = \"random\"\n\n[mechanics.seek]\ncurve = \"lee\"\nsingle = \"{} ns\"\naverage = \"{} ns\"\n\
             full = \"{} ns\"\n\n[controller]\ninterface-rate = \"550 MB/s\"\nread-overhead = \"0.05 ms\"\n\
             write-overhead = \"0.05 ms\"\nqueue-depth = 32\nsegments = {}\nsegment-size = \"1 MiB\"\n\
             read-ahead = \"512 KiB\"\nwrite-buffer = \"{}\"\nwrite-ranges = 256\nwrite-cache = true\n\
             immediate-read = true\nimmediate-write = true",
            HEAD_SWITCH.as_nanos(),
            single.as_nanos(),
            seek.as_nanos(),
            full.as_nanos(),
            (buffer >> 21).clamp(4, 64),
            Bytes(((buffer / 4) >> 20).max(2) << 20),
        );
        let random = random_read.map_or_else(String::new, |iops| format!("random-read-4k-per-second = {iops}\n"));
        let seek = format!("average-seek = \"{} ns\"\n", seek.as_nanos());
        text.push_str(&self.published(&format!("{seek}{random}")));
        Ok(text)
    }

    /// Beginning of the profile of a disk, with its geometry.
    fn disk_geometry(&mut self, turns: u32, inner: Rate) -> String {
        let DataSheet { capacity_bytes, sequential_read, .. } = *self.sheet;
        // In nanoseconds. A switch of the head takes a share of a turn, in which skewed tracks are not read.
        let turn_ns = 60_000_000_000 / u64::from(turns);
        let sectors_of = |rate: Rate| {
            let passed = u128::from(rate.0) * u128::from(turn_ns + HEAD_SWITCH.as_nanos()) / 1_000_000_000;
            u64::try_from(passed / u128::from(SECTOR_BYTES)).unwrap_or(u64::MAX).max(2)
        };
        let (outermost, innermost) = (sectors_of(sequential_read), sectors_of(inner));
        let zones: Vec<u64> = (0..ZONES).map(|zone| outermost - (outermost - innermost) * zone / (ZONES - 1)).collect();
        let capacity_sectors = capacity_bytes / SECTOR_BYTES;
        let surfaces = (capacity_bytes / SURFACE_BYTES).clamp(2, 20);
        let surfaces = surfaces + surfaces % 2;
        self.assumptions.push(format!("the drive has {surfaces} surfaces and {ZONES} zones of equal width"));
        self.assumptions.push("a switch of the head takes 1 ms; the seek curve follows Lee and Katz (1993)".to_owned());
        let per_cylinder: u64 = zones.iter().sum::<u64>() * surfaces;
        let cylinders = capacity_sectors.div_ceil(per_cylinder).max(2);
        let mut text = self.head("disk", "hard disk");
        let _ = writeln!(
            text,
            "physical-block = \"4 KiB\"\n\n[geometry]\nsurfaces = {surfaces}\ncylinders = {}\n\
             track-order = \"serpentine-from-zone\"\nsparing = \"sectors-at-zone-end\"",
            cylinders * ZONES
        );
        for (sectors, zone) in zones.iter().zip(0u64..) {
            let skew = sectors * HEAD_SWITCH.as_nanos() / turn_ns + 1;
            let _ = writeln!(
                text,
                "\n[[geometry.zones]]\nfirst-cylinder = {}\nlast-cylinder = {}\nblocks-per-track = {sectors}\n\
                 track-skew = \"{skew} sectors\"\ncylinder-skew = \"{} sectors\"",
                zone * cylinders,
                (zone + 1) * cylinders - 1,
                skew + skew / 5,
            );
        }
        text
    }

    fn published(&self, more: &str) -> String {
        let DataSheet { source, sequential_read, sequential_write, .. } = self.sheet;
        let write = match self.sheet.medium {
            Medium::Flash { .. } => format!("sequential-write = \"{sequential_write}\"\n"),
            Medium::Disk { .. } => String::new(),
        };
        format!(
            "\n[published]\nsource = {}\nsequential-read = \"{sequential_read}\"\n{write}{more}",
            toml_string(source)
        )
    }
}

/// The controller's time for a request.
const OVERHEAD: Nanos = Nanos::from_nanos(2_000);

/// Enough units that requests seldom collide in one.
const UNITS: u32 = 4_096;

/// The rate of a unit, at which 4 KiB take 1 us.
const UNIT_RATE: Rate = Rate(4_096_000_000);

fn unit_time() -> Nanos {
    UNIT_RATE.time_for(4_096)
}

const HEAD_SWITCH: Nanos = Nanos::from_nanos(1_000_000);

const ZONES: u64 = 16;

/// Bytes per surface, which determines the number of surfaces; 1 TB as in drives of 2021.
const SURFACE_BYTES: u64 = 1_000_000_000_000;

const fn micros(micros: u64) -> Nanos {
    Nanos::from_nanos(micros * 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronodisk_device::Profile;
    use chronodisk_device::rates::{Effort, Verdict, check};

    fn flash() -> DataSheet {
        DataSheet {
            name: "my-nvme".to_owned(),
            source: "a data sheet".to_owned(),
            capacity_bytes: 1_000_000_000_000,
            sequential_read: Rate(7_000_000_000),
            sequential_write: Rate(5_000_000_000),
            random_read: Some(1_000_000),
            random_write: Some(800_000),
            medium: Medium::Flash { read_latency: Some(micros(80)), write_latency: Some(micros(15)) },
        }
    }

    fn disk() -> DataSheet {
        let medium =
            Medium::Disk { rotations_per_minute: None, average_seek: None, inner_rate: None, buffer_bytes: None };
        DataSheet {
            name: "my-disk".to_owned(),
            source: "a \"data sheet\"".to_owned(),
            capacity_bytes: 4_000_000_000_000,
            sequential_read: Rate(180_000_000),
            sequential_write: Rate(180_000_000),
            random_read: None,
            random_write: None,
            medium,
        }
    }

    fn passes(sheet: &DataSheet) -> Drafted {
        let drafted = sheet.draft().unwrap();
        let profile =
            Profile::parse(&drafted.text, "draft").unwrap_or_else(|error| panic!("{error}\n{}", drafted.text));
        let checked = check(&profile, Effort::Short).unwrap();
        assert_eq!(
            checked.verdict(),
            Verdict::Passed,
            "{:?} {:?}\n{}",
            checked.failures,
            checked.figures,
            drafted.text
        );
        drafted
    }

    #[test]
    fn a_flash_drive_reaches_its_figures() {
        assert_eq!(passes(&flash()).assumptions.len(), 2);
        // A SATA drive without figures of random requests.
        let sata = DataSheet {
            sequential_read: Rate(550_000_000),
            sequential_write: Rate(520_000_000),
            random_read: None,
            random_write: Some(90_000),
            medium: Medium::Flash { read_latency: None, write_latency: None },
            ..flash()
        };
        assert_eq!(passes(&sata).assumptions.len(), 5);
        assert_eq!(passes(&DataSheet { random_write: None, ..sata }).assumptions.len(), 6);
    }

    #[test]
    fn a_disk_reaches_its_figures() {
        for (capacity_bytes, rate, turns) in
            [(4_000_000_000_000, 180, 7_200), (300_000_000_000, 125, 15_000), (24_000_000_000_000, 285, 7_200)]
        {
            let medium = Medium::Disk {
                rotations_per_minute: Some(turns),
                average_seek: Some(micros(if turns == 15_000 { 3_800 } else { 8_000 })),
                inner_rate: Some(Rate(rate * 600_000)),
                buffer_bytes: Some(128 << 20),
            };
            let (sequential_read, sequential_write) = (Rate(rate * 1_000_000), Rate(rate * 1_000_000));
            passes(&DataSheet { capacity_bytes, sequential_read, sequential_write, medium, ..disk() });
        }
        let assumed = passes(&disk()).assumptions;
        assert!(assumed.iter().any(|sentence| sentence.contains("7,200 times a minute")), "{assumed:?}");
    }

    #[test]
    fn figures_that_contradict_each_other_are_refused() {
        let refuse = |sheet: DataSheet, expected: &str| {
            let error = sheet.draft().unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let short = Medium::Flash { read_latency: Some(micros(2)), write_latency: None };
        refuse(DataSheet { medium: short, ..flash() }, "the read latency, 2.000 µs, is less than");
        refuse(
            DataSheet { random_read: Some(3_000_000), ..flash() },
            "3000000 random reads of 4 KiB a second are more",
        );
        let inner = Medium::Disk {
            rotations_per_minute: None,
            average_seek: None,
            inner_rate: Some(Rate(200_000_000)),
            buffer_bytes: None,
        };
        refuse(DataSheet { medium: inner, ..disk() }, "is faster than the outermost");
    }
}
