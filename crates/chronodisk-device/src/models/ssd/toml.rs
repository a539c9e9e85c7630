//! Kind `ssd` in a profile: its keys, their units and ranges.

use std::sync::Arc;

use chronodisk_sim::{Nanos, SECTOR_BYTES};

use super::aged::FlashDrive;
use super::device::Ssd;
use super::flash::{FlashTiming, Suspend};
use super::ftl::{
    Allocation, AllocationOrder, CollectorParameters, Ftl, FtlParameters, Mapping, SlcCache, VictimPolicy,
    WearLevelling, ZoneParameters,
};
use super::geometry::{CellKind, Geometry};
use super::parameters::{
    ArrayTimes, BufferParameters, FrontParameters, ReadAheadParameters, SlcTimes, SsdParameters, UnwrittenRead,
};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::Blueprint;
use crate::quantity::{Bytes, Rate};
use crate::{DeviceInfo, DeviceModel, ZoneLayout};

type Outcome<T> = Result<T, ProfileError>;

/// Reads the profile; `capacity` was read before, and is the host's view.
pub(crate) fn parse(fields: &mut Fields<'_>) -> Outcome<Blueprint> {
    let Bytes(capacity) = fields.positive("capacity")?;
    let mut flash = fields.table("flash")?;
    let geometry = read_geometry(&mut flash)?;
    let mut arrays = read_arrays(&mut flash, &geometry)?;
    let slc_cache = read_slc_cache(&mut flash)?.map(|(cache, times)| {
        arrays.slc = times;
        cache
    });
    geometry.check().map_err(|(key, problem)| flash.error_at(key, problem))?;
    let program_suspend = read_suspend(&mut flash, "program-suspend")?;
    let erase_suspend = read_suspend(&mut flash, "erase-suspend")?;
    flash.finish()?;
    let timing = read_bus(fields.table("bus")?, program_suspend, erase_suspend)?;
    let front = read_front(fields.table("front")?)?;
    let buffer = read_buffer(fields.table("buffer")?, &geometry)?;
    let read_ahead = match fields.optional_table("read-ahead")? {
        Some(table) => Some(read_read_ahead(table, &geometry)?),
        None => None,
    };
    let unwritten = [
        ("as-written", UnwrittenRead::AsWritten),
        ("mapped-by-read", UnwrittenRead::MappedByRead),
        ("zeros", UnwrittenRead::Zeros),
    ];
    let unwritten = fields.choice("unwritten-read", &unwritten)?;
    let mut translation = fields.table("translation")?;
    let ftl = FtlParameters { slc_cache, ..read_translation(&mut translation, geometry, capacity)? };
    ftl.check().map_err(|(key, problem)| match key {
        "capacity" => fields.error_at(key, problem),
        "slc-cache" => fields.error_at("flash", format!("slc-cache: {problem}")),
        _ => translation.error_at(key, problem),
    })?;
    let stripes_mixed = translation.optional_count("stripes-mixed", 1..=STRIPES_MIXED_MOST)?;
    if stripes_mixed.is_some() && ftl.allocation != Allocation::Dynamic {
        let problem = "expected allocation = \"dynamic\": elsewhere stripes have an order";
        return Err(translation.error_at("stripes-mixed", problem));
    }
    let stripes_mixed = stripes_mixed.unwrap_or(1);
    translation.finish()?;
    let zones = ftl.zones().map(|zones| layout_of(&zones, &geometry));
    if let Some(zones) = ftl.zones() {
        check_with_zones(fields, &zones, &geometry, &buffer, unwritten)?;
    }
    let protected = buffer.protected;
    let timing = Arc::new(timing);
    let parameters = SsdParameters { ftl, timing, arrays, front, buffer, read_ahead, unwritten, stripes_mixed };
    let blueprint = Blueprint::flash(Drives(Arc::new(parameters))).at_most(capacity);
    let blueprint = match zones {
        Some(zones) => blueprint.with_zones(zones, u64::from(geometry.unit_bytes)),
        None => blueprint.with_discard(),
    };
    Ok(blueprint
        .with_volatile_cache(!protected)
        .with_physical_block(u64::from(geometry.unit_bytes).min(LARGEST_PHYSICAL_BLOCK)))
}

/// Enough for a random order within a zone.
const STRIPES_MIXED_MOST: u32 = 256;

/// The largest physical block that a host is told.
const LARGEST_PHYSICAL_BLOCK: u64 = 64 << 10;

/// Drives with these parameters, of any capacity up to the profile's, with the same share of spare.
struct Drives(Arc<SsdParameters>);

impl FlashDrive for Drives {
    fn translation(&self, info: &DeviceInfo) -> Arc<FtlParameters> {
        let units = units_of(info.capacity_sectors * SECTOR_BYTES, self.0.geometry());
        Arc::new(self.0.ftl.scaled_to(units as u32))
    }

    fn memory_bytes_max(&self, info: &DeviceInfo) -> u64 {
        let ftl = self.translation(info);
        footprint::sum([Ftl::bytes_max(&ftl), Ssd::bytes_max(&self.0)])
    }

    fn drive(&self, info: DeviceInfo, seed: u64, ftl: Ftl) -> Box<dyn DeviceModel> {
        let parameters = match *ftl.parameters() == self.0.ftl {
            true => Arc::clone(&self.0),
            false => Arc::new(SsdParameters { ftl: ftl.parameters().clone(), ..SsdParameters::clone(&self.0) }),
        };
        Box::new(Ssd::new(info, parameters, ftl, seed))
    }
}

fn units_of(bytes: u64, geometry: &Geometry) -> u64 {
    bytes.div_ceil(u64::from(geometry.unit_bytes))
}

fn read_geometry(fields: &mut Fields<'_>) -> Outcome<Geometry> {
    const CELLS: [(&str, CellKind); 4] =
        [("SLC", CellKind::Slc), ("MLC", CellKind::Mlc), ("TLC", CellKind::Tlc), ("QLC", CellKind::Qlc)];
    let size = |fields: &mut Fields<'_>, key| {
        let Bytes(bytes) = fields.positive(key)?;
        u32::try_from(bytes).map_err(|_| fields.error_at(key, "expected at most 1 MiB"))
    };
    let channels = fields.count("channels", 1..=256)?;
    let chips_per_channel = fields.count("chips-per-channel", 1..=256)?;
    let dies_per_chip = fields.count("dies-per-chip", 1..=64)?;
    let planes_per_die = fields.count("planes-per-die", 1..=16)?;
    let blocks_per_plane = fields.count("blocks-per-plane", 4..=1 << 20)?;
    let pages_per_block = fields.count("pages-per-block", 1..=1 << 14)?;
    let page_bytes = size(fields, "page-size")?;
    let unit_bytes = size(fields, "mapping-unit")?;
    let cells = fields.choice("cells", &CELLS)?;
    let one_shot_pages = match fields.flag_or("one-shot", false)? {
        true => cells.pages_per_word_line(),
        false => 1,
    };
    Ok(Geometry {
        channels,
        chips_per_channel,
        dies_per_chip,
        planes_per_die,
        blocks_per_plane,
        pages_per_block,
        page_bytes,
        unit_bytes,
        cells,
        one_shot_pages,
    })
}

/// A time for all pages of a word line, or one for each.
fn read_times(fields: &mut Fields<'_>, key: &'static str, pages: u32) -> Outcome<Option<[Nanos; 4]>> {
    let times = fields.quantities::<Nanos>(key, 4)?;
    let expected = if pages == 1 { "one time".to_owned() } else { format!("one time or {pages}") };
    match times.as_slice() {
        [] => Ok(None),
        [time] => Ok(Some([*time; 4])),
        times if times.len() as u32 == pages => {
            let mut all = [times[0]; 4];
            all[..times.len()].copy_from_slice(times);
            Ok(Some(all))
        }
        times => Err(fields.error_at(key, format!("{} times; expected {expected}", times.len()))),
    }
}

fn read_arrays(fields: &mut Fields<'_>, geometry: &Geometry) -> Outcome<ArrayTimes> {
    let pages = geometry.cells.pages_per_word_line();
    let missing =
        |fields: &Fields<'_>, key: &str| fields.error(format!("the key `{key}` is missing: an array of times"));
    let read = read_times(fields, "read", pages)?.ok_or_else(|| missing(fields, "read"))?;
    let read_small = read_times(fields, "read-small", pages)?;
    let Bytes(small_bytes) = fields.quantity_or("small", Bytes(0))?;
    let programs = if geometry.one_shot_pages > 1 { 1 } else { pages };
    let program = read_times(fields, "program", programs)?.ok_or_else(|| missing(fields, "program"))?;
    Ok(ArrayTimes {
        read,
        read_small: read_small.unwrap_or(read),
        small_bytes: u32::try_from(small_bytes).map_err(|_| fields.error_at("small", "expected at most a page"))?,
        whole_pages: fields.flag_or("whole-pages", false)?,
        read_variation: fields.quantity_or("read-variation", Nanos::ZERO)?,
        retries_per_million: fields.optional_count("retries-per-million", 0..=1_000_000)?.unwrap_or(0),
        retry: fields.quantity_or("retry", Nanos::ZERO)?,
        program,
        program_variation: fields.quantity_or("program-variation", Nanos::ZERO)?,
        erase: fields.quantity("erase")?,
        slc: SlcTimes::default(),
    })
}

/// The region with one bit per cell, if there is one.
fn read_slc_cache(flash: &mut Fields<'_>) -> Outcome<Option<(SlcCache, SlcTimes)>> {
    let Some(mut table) = flash.optional_table("slc-cache")? else { return Ok(None) };
    let superblocks = table.count("blocks-per-plane", 2..=1 << 20)?;
    let empty_below = table.optional_count("empty-below", 1..=1 << 20)?.unwrap_or(superblocks);
    let times = SlcTimes { read: table.quantity("read")?, program: table.quantity("program")? };
    table.finish()?;
    Ok(Some((SlcCache { superblocks, empty_below }, times)))
}

fn read_suspend(fields: &mut Fields<'_>, key: &'static str) -> Outcome<Option<Suspend>> {
    let Some(mut table) = fields.optional_table(key)? else { return Ok(None) };
    let suspend = Suspend {
        latency: table.quantity("latency")?,
        resume: table.quantity_or("resume", Nanos::ZERO)?,
        least_left: table.quantity_or("least-left", Nanos::ZERO)?,
        most_times: table.optional_count("most-times", 1..=1_000_000)?.unwrap_or(DEFAULT_MOST_SUSPENSIONS),
    };
    table.finish()?;
    Ok(Some(suspend))
}

/// Enough for reads during a word line's program; it bounds the delay of programs.
const DEFAULT_MOST_SUSPENSIONS: u32 = 16;

fn read_bus(
    mut fields: Fields<'_>,
    program_suspend: Option<Suspend>,
    erase_suspend: Option<Suspend>,
) -> Outcome<FlashTiming> {
    let Rate(bus_rate) = fields.positive("rate")?;
    let timing = FlashTiming {
        bus_rate,
        read_command: fields.quantity_or("read-command", Nanos::ZERO)?,
        read_command_plane: fields.quantity_or("read-command-plane", Nanos::ZERO)?,
        data_out: fields.quantity_or("data-out", Nanos::ZERO)?,
        data_out_page: fields.quantity_or("data-out-page", Nanos::ZERO)?,
        program_command: fields.quantity_or("program-command", Nanos::ZERO)?,
        program_command_page: fields.quantity_or("program-command-page", Nanos::ZERO)?,
        erase_command: fields.quantity_or("erase-command", Nanos::ZERO)?,
        erase_command_plane: fields.quantity_or("erase-command-plane", Nanos::ZERO)?,
        cache_register: fields.flag_or("cache-register", false)?,
        join_reads: fields.flag_or("join-reads", false)?,
        commands_wait_for_bus: fields.flag_or("commands-wait-for-bus", false)?,
        command_after_data: fields.flag_or("command-after-data", false)?,
        program_suspend,
        erase_suspend,
        most_reads_in_a_row: fields.optional_count("most-reads-in-a-row", 1..=1_000_000)?.unwrap_or(DEFAULT_MOST_READS),
    };
    if timing.command_after_data && (timing.cache_register || timing.commands_wait_for_bus) {
        let problem = "expected neither cache-register nor commands-wait-for-bus beside it, which say otherwise";
        return Err(fields.error_at("command-after-data", problem));
    }
    fields.finish()?;
    Ok(timing)
}

/// Reads that may keep a program waiting, if the profile does not say.
const DEFAULT_MOST_READS: u32 = 64;

fn read_front(mut fields: Fields<'_>) -> Outcome<FrontParameters> {
    let single = fields.choice("interface", &[("nvme", false), ("single-queue", true)])?;
    let queues = if single { 1 } else { fields.optional_count("queues", 1..=1_024)?.unwrap_or(64) };
    let Rate(link_rate) = fields.positive("link-rate")?;
    let Bytes(packet) = fields.quantity_or("packet", Bytes(4_096))?;
    let Bytes(overhead) = fields.quantity_or("packet-overhead", Bytes(0))?;
    if packet == 0 || packet > 1 << 20 || overhead > packet {
        return Err(fields.error_at("packet", "expected 1 B to 1 MiB, and an overhead of at most a packet"));
    }
    let front = FrontParameters {
        queues,
        fetch_limit: fields.count("queue-depth", 1..=65_535)?,
        burst: fields.optional_count("arbitration-burst", 1..=65_535)?.unwrap_or(1),
        submission: fields.quantity_or("submission", Nanos::ZERO)?,
        completion: fields.quantity_or("completion", Nanos::ZERO)?,
        link_rate,
        half_duplex: single,
        packet_bytes: packet as u32,
        packet_overhead_bytes: overhead as u32,
        whole_reads: fields.flag_or("whole-reads", false)?,
        processors: fields.optional_count("processors", 1..=64)?.unwrap_or(1),
        read_processing: fields.quantity_or("read-processing", Nanos::ZERO)?,
        write_processing: fields.quantity_or("write-processing", Nanos::ZERO)?,
        unit_processing: fields.quantity_or("unit-processing", Nanos::ZERO)?,
        output_command: fields.quantity_or("output-command", Nanos::ZERO)?,
        output_unit: fields.quantity_or("output-unit", Nanos::ZERO)?,
        output_memory: fields.flag_or("output-memory", true)?,
        read_latency: fields.quantity_or("read-latency", Nanos::ZERO)?,
        write_latency: fields.quantity_or("write-latency", Nanos::ZERO)?,
        write_jitter: fields.quantity_or("write-jitter", Nanos::ZERO)?,
    };
    fields.finish()?;
    Ok(front)
}

fn read_buffer(mut fields: Fields<'_>, geometry: &Geometry) -> Outcome<BufferParameters> {
    let Bytes(size) = fields.positive("size")?;
    let units = size / u64::from(geometry.unit_bytes);
    let least = u64::from(2 * geometry.units_per_superpage());
    if units < least || units > MOST_BUFFERED_UNITS {
        let least = Bytes(least * u64::from(geometry.unit_bytes));
        let most = Bytes(MOST_BUFFERED_UNITS * u64::from(geometry.unit_bytes));
        let message = format!("expected two program units, {least}, to {most}");
        return Err(fields.error_at("size", message));
    }
    let Bytes(mapping_read) = fields.quantity_or("mapping-read", Bytes(u64::from(geometry.unit_bytes)))?;
    if mapping_read == 0 || mapping_read > u64::from(geometry.unit_bytes) {
        return Err(fields.error_at("mapping-read", "expected 1 B to a mapping unit"));
    }
    let in_order = fields.choice_or("release", &[("any-order", false), ("in-order", true)], false)?;
    let buffer = BufferParameters {
        units: units as u32,
        in_order,
        write_unit: fields.quantity_or("write-unit", Nanos::ZERO)?,
        read_hit: fields.quantity_or("read-hit", Nanos::ZERO)?,
        protected: fields.flag_or("power-loss-protection", false)?,
        programs_per_die: fields.optional_count("programs-per-die", 1..=1_024)?.unwrap_or(2),
        mapping_read_bytes: mapping_read as u32,
    };
    fields.finish()?;
    Ok(buffer)
}

const MOST_BUFFERED_UNITS: u64 = 1 << 20;

fn read_read_ahead(mut fields: Fields<'_>, geometry: &Geometry) -> Outcome<ReadAheadParameters> {
    let Bytes(size) = fields.positive("size")?;
    let units = (size / u64::from(geometry.unit_bytes)).min(MOST_BUFFERED_UNITS) as u32;
    let read_ahead = ReadAheadParameters {
        streams: fields.optional_count("streams", 1..=64)?.unwrap_or(8),
        after: fields.optional_count("after", 1..=1_000)?.unwrap_or(2),
        units,
    };
    fields.finish()?;
    Ok(read_ahead)
}

/// Zone properties shown to a host.
fn layout_of(zones: &ZoneParameters, geometry: &Geometry) -> ZoneLayout {
    let sectors = |units| u64::from(units) * u64::from(geometry.unit_bytes) / SECTOR_BYTES;
    ZoneLayout {
        size_sectors: sectors(zones.size_units),
        capacity_sectors: sectors(zones.capacity_units),
        most_open: zones.most_open,
        most_active: zones.most_active,
        conventional: 0,
    }
}

/// Checks the drive against its zones: begun program units stay in the buffer as long as their zones are active.
fn check_with_zones(
    fields: &Fields<'_>,
    zones: &ZoneParameters,
    geometry: &Geometry,
    buffer: &BufferParameters,
    unwritten: UnwrittenRead,
) -> Outcome<()> {
    let per_program = geometry.units_per_superpage();
    let least = (u64::from(zones.most_active) + 1) * u64::from(per_program);
    if u64::from(buffer.units) < least {
        let least = Bytes(least * u64::from(geometry.unit_bytes));
        let problem = format!("size: expected a program unit for each active zone and one more, {least}");
        return Err(fields.error_at("buffer", problem));
    }
    if !buffer.protected {
        return Err(fields.error_at("buffer", "expected power-loss-protection = true where there are zones"));
    }
    if buffer.in_order {
        let problem = "release: expected \"any-order\" with zones, because one zone may rest for ever";
        return Err(fields.error_at("buffer", problem));
    }
    if unwritten == UnwrittenRead::MappedByRead {
        return Err(fields.error_at("unwritten-read", "expected \"zeros\" or \"as-written\" where there are zones"));
    }
    Ok(())
}

fn read_zones(fields: &mut Fields<'_>, geometry: &Geometry) -> Outcome<ZoneParameters> {
    let units = |fields: &mut Fields<'_>, key| {
        let Bytes(bytes) = fields.positive(key)?;
        let unit = u64::from(geometry.unit_bytes);
        match u32::try_from(bytes / unit) {
            Ok(units) if bytes.is_multiple_of(unit) => Ok(units),
            _ => Err(fields.error_at(key, format!("expected a multiple of the mapping unit, {}", Bytes(unit)))),
        }
    };
    let size_units = units(fields, "zone-size")?;
    let capacity_units = if fields.has("zone-capacity") { units(fields, "zone-capacity")? } else { size_units };
    let most_active = fields.count("active-zones", 1..=1_024)?;
    Ok(ZoneParameters {
        size_units,
        capacity_units,
        dies: fields.optional_count("zone-dies", 1..=1 << 20)?.unwrap_or(geometry.dies()),
        most_open: fields.optional_count("open-zones", 1..=1_024)?.unwrap_or(most_active),
        most_active,
    })
}

fn read_translation(fields: &mut Fields<'_>, geometry: Geometry, capacity: u64) -> Outcome<FtlParameters> {
    let allocation = match fields.text("allocation")?.as_str() {
        "dynamic" => Allocation::Dynamic,
        "log-block" => Allocation::LogBlock { open_logs: fields.count("open-logs", 1..=64)? },
        "zones" => Allocation::Zones(read_zones(fields, &geometry)?),
        order => Allocation::Static(order.parse::<AllocationOrder>().map_err(|problem| {
            fields.error_at("allocation", format!("{problem}, or \"dynamic\", \"log-block\" or \"zones\""))
        })?),
    };
    let mapping = match fields.optional_count("mapping-cache-entries", 16..=1 << 28)? {
        None => Mapping::Ideal,
        Some(entries) => Mapping::DemandCached { entries },
    };
    const POLICIES: [(&str, VictimPolicy); 5] = [
        ("greedy", VictimPolicy::Greedy),
        ("cost-benefit", VictimPolicy::CostBenefit),
        ("fifo", VictimPolicy::Fifo),
        ("random", VictimPolicy::RANDOM),
        ("choices", VictimPolicy::Choices(8)),
    ];
    let policy = match allocation {
        // Logs are merged in the order of writing; superblocks without valid data are erased first. With zones, only
        // superblocks without valid data are erased.
        Allocation::LogBlock { .. } | Allocation::Zones(_) => VictimPolicy::Greedy,
        Allocation::Static(_) | Allocation::Dynamic => {
            let policy = fields.choice("collector", &POLICIES)?;
            fields.optional_count("choices", 1..=1_000)?.map_or(policy, VictimPolicy::Choices)
        }
    };
    let start_below = match allocation {
        Allocation::Zones(_) => 0,
        _ => fields.count("collect-below", 2..=1 << 20)?,
    };
    let collector = CollectorParameters {
        policy,
        start_below,
        urgent_below: fields.optional_count("collect-urgently-below", 0..=1 << 20)?.unwrap_or(2).min(start_below),
        preemptible: fields.flag_or("collector-preemptible", true)?,
    };
    let wear = WearLevelling {
        dynamic: fields.flag_or("level-wear-dynamically", true)?,
        move_at_difference: fields.optional_count("level-wear-at-difference", 2..=1_000_000)?,
    };
    let units = units_of(capacity, &geometry);
    let logical_units =
        u32::try_from(units).map_err(|_| fields.error("the capacity has 2^32 or more mapping units"))?;
    Ok(FtlParameters { geometry, logical_units, allocation, collector, wear, mapping, slc_cache: None })
}
