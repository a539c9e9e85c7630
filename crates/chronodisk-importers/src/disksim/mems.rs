//! A MEMS device of DiskSim (`memsmodel_mems`) as the keys of a profile of kind `mems`.

use std::fmt::{self, Write as _};

use chronodisk_device::ProfileError;
use chronodisk_device::toml_string;

use super::Description;
use super::common::Surroundings;
use super::reader::{Reader, Shape};

/// A MEMS device as plain data; each number counts the unit that the field's name ends in.
///
/// `Display` writes the keys of a profile of kind `mems`, a line each, with `capacity` first and without the keys that
/// every profile has besides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemsParameters {
    /// Sleds, each with its share of the addresses.
    pub sleds: u32,
    /// Travel of a sled in X.
    pub travel_x_nm: u32,
    /// Travel of a sled in Y.
    pub travel_y_nm: u32,
    /// Side of a bit's cell.
    pub bit_nm: u32,
    /// Data of a tip in a row.
    pub tip_sector_bits: u32,
    /// Servo information before a row.
    pub servo_burst_bits: u32,
    /// Tips over which a block is striped.
    pub tips_per_block: u32,
    /// Tips that work.
    pub usable_tips: u32,
    /// Tips that work at the same time.
    pub active_tips: u32,
    /// Whether every other column is reversed.
    pub streaming: bool,
    /// Whether rows are passed in both directions.
    pub bidirectional: bool,
    /// Acceleration by the actuators in X.
    pub acceleration_x_um_s2: u64,
    /// Acceleration by the actuators in Y.
    pub acceleration_y_um_s2: u64,
    /// Bits per second of a tip.
    pub tip_rate_bit_s: u32,
    /// Resonant frequency of the sled.
    pub resonant_frequency_hz: u32,
    /// Time constants that settling takes, in thousandths.
    pub settling_milli: u32,
    /// The springs' largest force as a share of the actuators'.
    pub springs_ppm: u32,
    /// Time from arrival to service.
    pub command_overhead_ns: u64,
    /// Time of a block on the bus.
    pub bus_block_ns: u64,
    /// Idle time after which a sled is parked.
    pub park_after_ns: u64,
    /// Time to start a parked sled.
    pub startup_ns: u64,
    /// Segments of the buffer, and their size in blocks of 512 bytes.
    pub buffer: Option<(u32, u32)>,
}

impl MemsParameters {
    /// Bytes in the device.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        let row_bits = u64::from(self.servo_burst_bits + self.tip_sector_bits);
        let bits = u64::from(self.travel_y_nm / self.bit_nm).saturating_sub(u64::from(self.servo_burst_bits));
        let columns = u64::from(self.usable_tips / self.active_tips);
        let blocks = u64::from(self.active_tips / self.tips_per_block) * (bits / row_bits) * columns;
        512 * blocks * u64::from(self.travel_x_nm / self.bit_nm) * u64::from(self.sleds)
    }
}

impl fmt::Display for MemsParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = |count: u64, decimals: usize| {
            let text = format!("{count:0width$}", width = decimals + 1);
            let (whole, fraction) = text.split_at(text.len() - decimals);
            format!("{whole}.{fraction}").trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        writeln!(f, "capacity = \"{} B\"", self.capacity_bytes())?;
        writeln!(f, "sleds = {}", self.sleds)?;
        writeln!(f, "sled-travel-x = \"{} nm\"", self.travel_x_nm)?;
        writeln!(f, "sled-travel-y = \"{} nm\"", self.travel_y_nm)?;
        writeln!(f, "bit-length = \"{} nm\"", self.bit_nm)?;
        writeln!(f, "tip-sector-bits = {}", self.tip_sector_bits)?;
        writeln!(f, "servo-burst-bits = {}", self.servo_burst_bits)?;
        writeln!(f, "tips-per-block = {}", self.tips_per_block)?;
        writeln!(f, "usable-tips = {}", self.usable_tips)?;
        writeln!(f, "active-tips = {}", self.active_tips)?;
        writeln!(f, "layout = \"{}\"", if self.streaming { "streaming" } else { "simple" })?;
        writeln!(f, "access = \"{}\"", if self.bidirectional { "bidirectional" } else { "one-way" })?;
        writeln!(f, "acceleration-x = \"{} m/s2\"", decimal(self.acceleration_x_um_s2, 6))?;
        writeln!(f, "acceleration-y = \"{} m/s2\"", decimal(self.acceleration_y_um_s2, 6))?;
        writeln!(f, "tip-rate = \"{} bit/s\"", self.tip_rate_bit_s)?;
        writeln!(f, "resonant-frequency = \"{} Hz\"", self.resonant_frequency_hz)?;
        writeln!(f, "settling = \"{} time constants\"", decimal(self.settling_milli.into(), 3))?;
        writeln!(f, "springs = \"{} %\"", decimal(self.springs_ppm.into(), 4))?;
        writeln!(f, "command-overhead = \"{} ms\"", decimal(self.command_overhead_ns, 6))?;
        writeln!(f, "bus-time-per-block = \"{} ms\"", decimal(self.bus_block_ns, 6))?;
        writeln!(f, "write-acknowledgement = \"1 us\"   # a constant of DiskSim 4.0")?;
        writeln!(f, "park-after = \"{} ms\"", decimal(self.park_after_ns, 6))?;
        writeln!(f, "startup = \"{} ms\"", decimal(self.startup_ns, 6))?;
        writeln!(f, "idle-sweep = \"scattered\"         # as DiskSim 4.0")?;
        if let Some((segments, blocks)) = self.buffer {
            writeln!(f, "buffer-segments = {segments}")?;
            writeln!(f, "buffer-segment = \"{} B\"", u64::from(blocks) * 512)?;
        }
        Ok(())
    }
}

/// The profile of `parameters`, with a comment at its top.
pub(super) fn profile(comment: &str, description: &Description, parameters: &MemsParameters) -> String {
    let mut text = String::new();
    for line in comment.lines() {
        let _ = writeln!(text, "# {line}");
    }
    for (key, value) in [
        ("name", description.name.as_str()),
        ("kind", "mems"),
        ("description", &description.description),
        ("source", &description.source),
        ("validation", description.validation.name()),
    ] {
        let _ = writeln!(text, "{key} = {}", toml_string(value));
    }
    let _ = write!(text, "{parameters}");
    text
}

/// The device that `reader` describes, a `memsmodel_mems`.
pub(super) fn mems(mut reader: Reader<'_>, around: Surroundings) -> Result<MemsParameters, ProfileError> {
    let parameters = read(&mut reader, around)?;
    reader.finish()?;
    Ok(parameters)
}

fn read(reader: &mut Reader<'_>, around: Surroundings) -> Result<MemsParameters, ProfileError> {
    let place = reader.place();
    let geometry = Geometry::read(reader)?;
    let bulk = nanos(reader, "Bulk sector transfer time", 1_000)?;
    // Picoseconds; the model knows one time for both directions.
    let (read, write) = (around.bus.read_block.0, around.bus.write_block.0);
    if read != write {
        reader.definitions().warn(place, "the bus is imported with the larger of its two block times");
    }
    let bus_block_ns = bulk.max(u64::try_from(read.max(write)).unwrap_or(0) / 1_000);
    if around.single_request {
        reader.definitions().warn(place, "the driver sends one request at a time, which the device does not know");
    }
    super::queue_in_order(reader, "the model serves in order of arrival, as with 1")?;
    if reader.whole("Points in precomputed seek curve", 0, 1_000_000)? != 0 {
        reader.warn_at("Points in precomputed seek curve", "each seek is computed by itself instead");
    }
    if reader.whole("Seek function", 0, 1)? != 0 {
        reader.warn_at("Seek function", "seeks are computed piecewise, as with 0");
    }
    if reader.whole("Prefetch depth", 0, i64::from(i32::MAX))? != 0 {
        reader.warn_at("Prefetch depth", "the reference prefetches nothing for any value, and neither does the model");
    }
    for &(name, shape, _) in UNUSED {
        reader.without_effect(name, shape)?;
    }
    let segments = reader.whole("Number of buffer segments", 0, 1_024)? as u32;
    let blocks = reader.whole("Segment size (in blks)", 0, 1 << 20)? as u32;
    let parameters = MemsParameters {
        acceleration_x_um_s2: positive(reader, "Sled acceleration X", 6)?,
        acceleration_y_um_s2: positive(reader, "Sled acceleration Y", 6)?,
        tip_rate_bit_s: reader.whole("Sled access speed", 1, 1_000_000_000)? as u32,
        resonant_frequency_hz: reader.whole("Sled resonant frequency", 1, 1_000_000)? as u32,
        settling_milli: scaled(reader, "Settling time constants", 3, 0, 1_000_000)?,
        springs_ppm: scaled(reader, "Spring constant factor", 6, 0, 999_999)?,
        command_overhead_ns: nanos(reader, "Command overhead", 1_000)?,
        park_after_ns: nanos(reader, "Time before sled inactive", 3_600_000)?,
        startup_ns: nanos(reader, "Startup delay", 1_000_000)?,
        bus_block_ns,
        buffer: (segments > 0 && blocks > 0).then_some((segments, blocks)),
        ..geometry.0
    };
    geometry.check(reader)?;
    Ok(parameters)
}

/// Parameters of a MEMS device with only the geometry set.
struct Geometry(MemsParameters);

impl Geometry {
    fn read(reader: &mut Reader<'_>) -> Result<Self, ProfileError> {
        let mut count = |name, most| Ok::<_, ProfileError>(reader.whole(name, 1, most)? as u32);
        let parameters = MemsParameters {
            sleds: count("Number of sleds", 16)?,
            travel_x_nm: count("Sled movement X", 1_000_000_000)?,
            travel_y_nm: count("Sled movement Y", 1_000_000_000)?,
            bit_nm: count("Bit cell length", 1_000_000)?,
            tip_sector_bits: count("Tip sector length", 1_000_000)?,
            servo_burst_bits: reader.whole("Servo burst length", 0, 1_000_000)? as u32,
            tips_per_block: reader.whole("Tip sectors per lbn", 1, 1_000_000)? as u32,
            usable_tips: reader.whole("Number of usable tips", 1, 1_000_000)? as u32,
            active_tips: reader.whole("Simultaneously active tips", 1, 1_000_000)? as u32,
            streaming: reader.whole("Layout policy", 6, 7)? == 7,
            bidirectional: reader.flag("Bidirectional access")?,
            acceleration_x_um_s2: 0,
            acceleration_y_um_s2: 0,
            tip_rate_bit_s: 0,
            resonant_frequency_hz: 0,
            settling_milli: 0,
            springs_ppm: 0,
            command_overhead_ns: 0,
            bus_block_ns: 0,
            park_after_ns: 0,
            startup_ns: 0,
            buffer: None,
        };
        Ok(Geometry(parameters))
    }

    /// Checks relations between values, and the size in the file.
    fn check(&self, reader: &mut Reader<'_>) -> Result<(), ProfileError> {
        let parameters = &self.0;
        if parameters.active_tips > parameters.usable_tips {
            return Err(reader.error_at("Simultaneously active tips", "more than there are usable"));
        }
        if parameters.tips_per_block > parameters.active_tips {
            return Err(reader.error_at("Tip sectors per lbn", "more tips than work at the same time"));
        }
        if parameters.capacity_bytes() == 0 {
            return Err(reader.error_at("Tip sector length", "no row of bits fits into the sled's travel"));
        }
        if reader.optional("Block count").is_some() {
            let blocks = reader.whole("Block count", 0, i64::MAX)? as u64;
            if blocks != 0 && blocks * 512 != parameters.capacity_bytes() {
                reader.warn_at("Block count", format!("the geometry has {}", parameters.capacity_bytes() / 512));
            }
        }
        Ok(())
    }
}

/// Parameters without effect on times, with the reason.
const UNUSED: &[(&str, Shape, &str)] = &[
    ("Print stats", Shape::Whole, "the output of the reference"),
    ("Max queue length", Shape::Whole, "the device takes all requests of the host"),
    ("Sled active power", Shape::Number, "energy is not modelled"),
    ("Sled inactive power", Shape::Number, "energy is not modelled"),
    ("Tip access power", Shape::Number, "energy is not modelled"),
];

/// Milliseconds as nanoseconds, up to `most` milliseconds.
fn nanos(reader: &mut Reader<'_>, name: &'static str, most: i64) -> Result<u64, ProfileError> {
    let nanos = reader.number(name, 6)?;
    match u64::try_from(nanos) {
        Ok(count) if nanos <= most * 1_000_000 => Ok(count),
        _ => Err(reader.error_at(name, format!("expected 0 to {most} milliseconds"))),
    }
}

/// A positive number, in units of 10^-`decimals`.
fn positive(reader: &mut Reader<'_>, name: &'static str, decimals: u32) -> Result<u64, ProfileError> {
    match reader.number(name, decimals)? {
        count @ 1..=1_000_000_000_000 => Ok(count as u64),
        _ => Err(reader.error_at(name, "expected more than 0 and at most a million")),
    }
}

/// From `least` to `most` counts of 10^-`decimals`.
fn scaled(
    reader: &mut Reader<'_>,
    name: &'static str,
    decimals: u32,
    least: i64,
    most: i64,
) -> Result<u32, ProfileError> {
    let count = reader.number(name, decimals)?;
    if !(least..=most).contains(&count) {
        let scale = 10f64.powi(decimals as i32);
        let (least, most) = (least as f64 / scale, most as f64 / scale);
        return Err(reader.error_at(name, format!("expected {least} to {most}")));
    }
    Ok(count as u32)
}

#[cfg(test)]
mod tests {
    use super::super::lexer::SourceFile;
    use super::super::{Import, Imported, import};
    use super::*;
    use chronodisk_device::Profile;

    const SPECS: &str = include_str!("testdata/sled.diskspecs");

    fn import_changed(from: &str, to: &str) -> Result<Import, ProfileError> {
        assert!(from.is_empty() || SPECS.contains(from), "{from}");
        let text = if from.is_empty() { SPECS.to_owned() } else { SPECS.replacen(from, to, 1) };
        import(SourceFile { label: "sled.diskspecs".to_owned(), text }, &mut |_, _| Err("no files".to_owned()))
    }

    #[test]
    fn every_value_arrives_in_the_profile() {
        let import = import_changed("", "").unwrap();
        let Imported::Mems(parameters) = &import.device else { panic!("{:?}", import.device) };
        assert_eq!((parameters.acceleration_x_um_s2, parameters.springs_ppm), (688_800_000, 750_000));
        assert_eq!(parameters.bus_block_ns, 5_120);
        let description = Description { name: "sled".to_owned(), ..import.describe() };
        let text = import.to_profile(&description).unwrap();
        for line in [
            "kind = \"mems\"",
            "capacity = \"2252800000 B\"",
            "sleds = 1",
            "acceleration-y = \"700 m/s2\"",
            "settling = \"2.5 time constants\"",
            "springs = \"75 %\"",
            "command-overhead = \"0.3 ms\"",
            "bus-time-per-block = \"0.00512 ms\"",
            "buffer-segment = \"65536 B\"",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert_eq!(Profile::parse(&text, "sled").unwrap().capacity_bytes(), 2_252_800_000);
        assert_eq!(import.warnings.len(), 1, "no topology: {:?}", import.warnings);
    }

    #[test]
    fn what_is_wrong_or_not_modelled_is_named_with_its_place() {
        for (from, to, expected) in [
            ("Bit cell length = 50", "Bit cel length = 50", "`Bit cell length` is missing in `sled`"),
            ("Print stats = 1", "Print stats = 1, Colour = 1", "unknown parameter `Colour`"),
            ("Spring constant factor = 0.75", "Spring constant factor = 1.0", "expected 0 to 0.999999"),
            ("tips = 640,", "tips = 6500,", "more than there are usable"),
            ("Tip sector length = 80", "Tip sector length = 8000", "no row of bits"),
            ("Layout policy = 7", "Layout policy = 5", "expected a whole number from 6 to 7"),
            ("Command overhead = 0.3", "Command overhead = -0.3", "expected 0 to 1000 milliseconds"),
        ] {
            let error = import_changed(from, to).unwrap_err().to_string();
            assert!(error.contains(expected) && error.starts_with("sled.diskspecs:"), "{error}");
        }
        for (from, to, expected) in [
            ("Seek function = 0", "Seek function = 1", "computed piecewise"),
            ("Prefetch depth = 0", "Prefetch depth = 4", "prefetches nothing"),
            ("Scheduling policy = 1", "Scheduling policy = 8", "in order of arrival"),
            ("Points in precomputed seek curve = 0", "Points in precomputed seek curve = 50", "computed by itself"),
            ("memsmodel_mems sled {", "memsmodel_mems sled { Block count = 7,", "the geometry has 4400000"),
        ] {
            let warnings = import_changed(from, to).unwrap().warnings;
            assert!(warnings.iter().any(|warning| warning.message.contains(expected)), "{expected}: {warnings:?}");
        }
    }
}
