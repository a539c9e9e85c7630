//! A drive of DiskSim (`disksim_disk` with its `dm_disk`) as [`DiskParameters`].

use chronodisk_device::ProfileError;
use chronodisk_device::disk::*;

use super::common::{MILLIONTHS, Origins, PICOS, Surroundings, time};
use super::lexer::{Resolver, shown};
use super::reader::{Reader, Shape};
use super::seek::parse_seek_curve;
use super::{controller, layout_g4, unused};

/// The drive that `reader` describes, a `disksim_disk`.
pub(super) fn disk(
    mut reader: Reader<'_>,
    around: Surroundings,
    resolve: &mut Resolver<'_>,
) -> Result<DiskParameters, ProfileError> {
    let mut origins = Origins::default();
    let (_, model) = reader.block("Model", &["dm_disk"])?;
    let (_, scheduler) = reader.block("Scheduler", &["disksim_ioqueue"])?;
    let mut depth = reader.whole("Max queue length", 0, limits::QUEUE_DEPTH.into())? as u32;
    if around.single_request && depth > 1 {
        reader.warn_at("Max queue length", "the driver sends one request at a time; imported as 1");
        depth = 1;
    }
    let scheduler = scheduling(scheduler, depth)?;
    let (controller, host_bus) = controller::controller(&mut reader, around, (depth.max(1), scheduler), &mut origins)?;
    // Last: its tables may have megabytes, and the drive lacks something more often than they do.
    let (geometry, mechanics) = drive_model(model, &mut origins, resolve)?;
    for &(name, shape, _) in unused::DISK {
        reader.without_effect(name, shape)?;
    }
    let parameters = DiskParameters { geometry, mechanics, controller, host_bus, nonvolatile: None };
    let (definitions, place) = (reader.definitions(), reader.place());
    reader.finish()?;
    parameters.validate().map_err(|wrong| match origins.find(&wrong.field) {
        Some((_, place, name)) => definitions.file.error(*place, format!("`{name}`: {}", wrong.problem)),
        None => definitions.file.error(place, wrong.to_string()),
    })?;
    Ok(parameters)
}

/// The choice with the number in the file.
fn choice<T: Copy>(reader: &mut Reader<'_>, name: &'static str, choices: &[T]) -> Result<T, ProfileError> {
    let number = reader.whole(name, 0, choices.len() as i64 - 1)?;
    Ok(choices[number as usize])
}

/// The order in which the drive serves the requests in its queue.
fn scheduling(mut reader: Reader<'_>, depth: u32) -> Result<Scheduler, ProfileError> {
    let policy = reader.whole("Scheduling policy", 1, 28)?;
    let weight = reader.whole("Timeout time/weight", 0, 1_000)?;
    let scheduler = match policy {
        _ if depth <= 1 => Scheduler::Fcfs,
        1 => Scheduler::Fcfs,
        2 | 5 => Scheduler::Look,
        3 | 6 => Scheduler::CLook,
        4 | 7 => Scheduler::Sstf,
        8 => Scheduler::Sptf,
        14 => Scheduler::AgedSptf { weight: Millionths::from_whole(weight) },
        9 | 10 => {
            reader.warn_at("Scheduling policy", "imported as 8: hits in the cache and transfers are not weighed");
            Scheduler::Sptf
        }
        _ => {
            let known = "expected 1 to 10 or 14 where the drive queues more than one request";
            return Err(reader.error_at("Scheduling policy", format!("policy {policy} is not modelled; {known}")));
        }
    };
    let strategy = reader.whole("Cylinder mapping strategy", 0, 6)?;
    if depth > 1 && policy > 4 && strategy != 4 && strategy != 5 {
        let message = format!("strategy {strategy} is imported as 4: the scheduler knows the geometry");
        reader.warn_at("Cylinder mapping strategy", message);
    }
    for name in ["Read initiation delay", "Write initiation delay"] {
        if time(&mut reader, name)? != Picos::ZERO && depth > 1 {
            reader.warn_at(name, "not modelled; imported as 0");
        }
    }
    for (name, most) in
        [("Sequential stream scheme", 31), ("Overlapping request scheme", 2), ("Scheduling timeout scheme", 2)]
    {
        if reader.whole(name, 0, most)? != 0 && depth > 1 {
            reader.warn_at(name, "not modelled; imported as 0");
        }
    }
    for &(name, shape, _) in unused::QUEUE {
        reader.without_effect(name, shape)?;
    }
    reader.finish()?;
    Ok(scheduler)
}

fn drive_model(
    mut reader: Reader<'_>,
    origins: &mut Origins,
    resolve: &mut Resolver<'_>,
) -> Result<(GeometryParameters, MechanicsParameters), ProfileError> {
    let surfaces = reader.whole("Number of data surfaces", 1, limits::SURFACES.into())? as u32;
    let mut cylinders = reader.whole("Number of cylinders", 1, limits::CYLINDERS.into())? as u32;
    // The capacity follows from the zones, here as in the reference.
    reader.whole("Block count", 0, i64::MAX)?;
    let (kind, layout) = reader.block("Layout Model", &["dm_layout_g1", "dm_layout_g4"])?;
    let mut geometry = match kind {
        "dm_layout_g4" => layout_g4::geometry(layout, surfaces, cylinders)?,
        _ => geometry(layout, surfaces, origins)?,
    };
    let reached = geometry.zones.iter().map(|zone| zone.last_cylinder).max().unwrap_or(0);
    if reached >= cylinders && reached < limits::CYLINDERS {
        let message = format!("{cylinders}; the zones reach to cylinder {reached}, so {} are imported", reached + 1);
        reader.warn_at("Number of cylinders", message);
        cylinders = reached + 1;
    }
    geometry.cylinders = cylinders;
    let (_, mechanical) = reader.block("Mechanical Model", &["dm_mech_g1"])?;
    let mechanics = mechanics(mechanical, origins, resolve)?;
    reader.finish()?;
    Ok((geometry, mechanics))
}

fn skew_unit(reader: &mut Reader<'_>) -> Result<Option<SkewUnit>, ProfileError> {
    const EXPECTED: &str = "`sectors` or `revolutions`";
    if reader.optional("Skew units").is_none() {
        return Ok(None);
    }
    match reader.word("Skew units", EXPECTED)? {
        "sectors" => Ok(Some(SkewUnit::Blocks)),
        "revolutions" => Ok(Some(SkewUnit::Revolutions)),
        other => Err(reader.error_at("Skew units", format!("`{}`; expected {EXPECTED}", shown(other)))),
    }
}

/// The layout; its number of cylinders is filled in by the caller.
fn geometry(mut reader: Reader<'_>, surfaces: u32, origins: &mut Origins) -> Result<GeometryParameters, ProfileError> {
    let orders = [TrackOrder::HeadsAscending, TrackOrder::SerpentineFromZone, TrackOrder::SerpentineFromDisk];
    let track_order = choice(&mut reader, "LBN-to-PBN mapping scheme", &orders)?;
    let sparing = choice(&mut reader, "Sparing scheme used", &Sparing::ALL)?;
    let spare_range_cylinders = reader.whole("Rangesize for sparing", 1, limits::CYLINDERS.into())? as u32;
    let disk_unit = skew_unit(&mut reader)?.unwrap_or_default();
    let list = reader.list("Zones")?;
    origins.add("geometry.zones", &reader, "Zones");
    let mut zones = Vec::new();
    for (index, entry) in list.iter().take(limits::ZONES + 1).enumerate() {
        let (_, zone_reader) = reader.as_block("Zones", entry, &["dm_layout_g1_zone"])?;
        let tracks_slip = sparing == Sparing::TracksAtZoneEnd;
        zones.push(zone(zone_reader, disk_unit, (surfaces, tracks_slip), index, origins)?);
    }
    reader.finish()?;
    let unit = zones.first().map_or(disk_unit, |first| first.1);
    let mixed = zones.iter().any(|zone| zone.1 != unit);
    let skew_unit = if mixed { SkewUnit::Blocks } else { unit };
    let zones = zones.into_iter().map(|(mut zone, unit)| {
        if mixed && unit == SkewUnit::Revolutions {
            let per_track = i64::from(zone.blocks_per_track);
            for angle in [&mut zone.first_block_offset, &mut zone.track_skew, &mut zone.cylinder_skew] {
                angle.0 = angle.0.saturating_mul(per_track);
            }
        }
        zone
    });
    Ok(GeometryParameters {
        surfaces,
        cylinders: 0,
        track_order,
        sparing,
        spare_range_cylinders,
        skew_unit,
        zones: zones.collect(),
    })
}

fn zone(
    mut reader: Reader<'_>,
    disk_unit: SkewUnit,
    (surfaces, tracks_slip): (u32, bool),
    index: usize,
    origins: &mut Origins,
) -> Result<(ZoneParameters, SkewUnit), ProfileError> {
    let unit = skew_unit(&mut reader)?.unwrap_or(disk_unit);
    let mut zone = ZoneParameters {
        first_cylinder: reader.whole("First cylinder number", 0, limits::CYLINDERS.into())? as u32,
        last_cylinder: reader.whole("Last cylinder number", 0, limits::CYLINDERS.into())? as u32,
        blocks_per_track: reader.whole("Blocks per track", 1, limits::BLOCKS_PER_TRACK.into())? as u32,
        first_block_offset: Millionths(reader.number("Offset of first block", MILLIONTHS)?),
        empty_blocks: reader.whole("Empty space at zone front", 0, i64::MAX)? as u64,
        track_skew: Millionths(reader.optional_number("Skew for track switch", MILLIONTHS)?.unwrap_or(0)),
        cylinder_skew: Millionths(reader.optional_number("Skew for cylinder switch", MILLIONTHS)?.unwrap_or(0)),
        spares: reader.whole("Number of spares", 0, i64::MAX)? as u64,
        slips: positions(&mut reader, "slips")?,
        defects: defects(&mut reader)?,
    };
    let tracks = u64::from(zone.last_cylinder.saturating_sub(zone.first_cylinder) + 1) * u64::from(surfaces);
    let positions = if tracks_slip { tracks } else { tracks * u64::from(zone.blocks_per_track) };
    tidy_slips(&reader, &mut zone.slips, positions);
    for (field, name) in [
        ("first_cylinder", "First cylinder number"),
        ("last_cylinder", "Last cylinder number"),
        ("blocks_per_track", "Blocks per track"),
        ("first_block_offset", "Offset of first block"),
        ("empty_blocks", "Empty space at zone front"),
        ("track_skew", "Skew for track switch"),
        ("cylinder_skew", "Skew for cylinder switch"),
        ("spares", "Number of spares"),
        ("slips", "slips"),
        ("defects", "defects"),
    ] {
        origins.add(format!("geometry.zones[{index}].{field}"), &reader, name);
    }
    reader.finish()?;
    Ok((zone, unit))
}

/// Sorts the slips of a zone, which has `positions` positions, and removes duplicates.
fn tidy_slips(reader: &Reader<'_>, slips: &mut Vec<u64>, positions: u64) {
    if !slips.is_sorted() {
        reader.warn_at("slips", "not in ascending order; imported in that order");
        slips.sort_unstable();
    }
    let listed = slips.len();
    slips.dedup();
    if slips.len() < listed {
        reader.warn_at("slips", format!("{} are listed twice; imported once", listed - slips.len()));
    }
    let inside = slips.partition_point(|&slip| slip < positions);
    if inside < slips.len() {
        let message = format!("{} are beyond the zone's {positions} positions; left out", slips.len() - inside);
        reader.warn_at("slips", message);
        slips.truncate(inside);
    }
}

/// The positions in a list; empty if the parameter is absent.
fn positions(reader: &mut Reader<'_>, name: &'static str) -> Result<Vec<u64>, ProfileError> {
    if reader.optional(name).is_none() {
        return Ok(Vec::new());
    }
    Ok(reader.wholes(name, 0, i64::MAX)?.into_iter().map(|position| position.0 as u64).collect())
}

/// Pairs of a bad position and its replacement.
fn defects(reader: &mut Reader<'_>) -> Result<Vec<Defect>, ProfileError> {
    let positions = positions(reader, "defects")?;
    if !positions.len().is_multiple_of(2) {
        let message = format!("{} positions; expected pairs of a bad one and its replacement", positions.len());
        return Err(reader.error_at("defects", message));
    }
    let pair = |pair: &[u64]| Defect { original: pair[0], replacement: pair[1] };
    Ok(positions.chunks_exact(2).map(pair).collect())
}

fn mechanics(
    mut reader: Reader<'_>,
    origins: &mut Origins,
    resolve: &mut Resolver<'_>,
) -> Result<MechanicsParameters, ProfileError> {
    let access = match reader.word("Access time type", ACCESS_TYPES)? {
        "trackSwitchPlusRotation" => AccessTime::Full,
        "averageRotation" => AccessTime::AverageRotation,
        "constant" => AccessTime::Constant(time(&mut reader, "Constant access time")?),
        other => {
            let message = format!("`{}`; expected {ACCESS_TYPES}", shown(other));
            return Err(reader.error_at("Access time type", message));
        }
    };
    reader.without_effect("Constant access time", Shape::Number)?;
    let seek = seek_curve(&mut reader, origins, resolve)?;
    let write_settle = Picos(reader.number("Add. write settling delay", PICOS)?);
    origins.add("mechanics.write_settle", &reader, "Add. write settling delay");
    let head_switch = time(&mut reader, "Head switch time")?;
    let rotation = rotation(&mut reader)?;
    if reader.number("Percent error in rpms", MILLIONTHS)? != 0 {
        reader.warn_at("Percent error in rpms", "the spindle turns at its nominal speed");
    }
    reader.finish()?;
    Ok(MechanicsParameters { access, seek, head_switch, write_settle, rotation, initial_phase: InitialPhase::Index })
}

/// Turns a minute, to the thousandth.
fn rotation(reader: &mut Reader<'_>) -> Result<Rpm, ProfileError> {
    let name = "Rotation speed (in rpms)";
    let thousandths = reader.number(name, 3)?;
    let possible = (1_000..=i64::from(limits::RPM) * 1_000).contains(&thousandths);
    let rotation = possible.then(|| Rpm::fraction(thousandths as u64, 1_000)).flatten();
    rotation.ok_or_else(|| reader.error_at(name, format!("expected 1 to {} turns a minute", limits::RPM)))
}

const ACCESS_TYPES: &str = "`trackSwitchPlusRotation`, `averageRotation` or `constant`";
const SEEK_TYPES: &str = "`constant`, `linear`, `curve`, `hpl`, `hplplus10` or `extracted`";

fn seek_curve(
    reader: &mut Reader<'_>,
    origins: &mut Origins,
    resolve: &mut Resolver<'_>,
) -> Result<SeekCurve, ProfileError> {
    let mut kind = reader.word("Seek type", SEEK_TYPES)?;
    // A curve in a file counts for any type.
    if reader.optional("Full seek curve").is_some() {
        kind = "extracted";
    }
    origins.add("mechanics.seek", reader, "Seek type");
    let curve = match kind {
        "constant" => SeekCurve::Constant(time(reader, "Constant seek time")?),
        "linear" => SeekCurve::Linear(three_points(reader)?),
        "curve" => SeekCurve::Lee(three_points(reader)?),
        "hpl" => SeekCurve::Hpl(hpl(reader)?),
        "hplplus10" => {
            let times = reader.numbers("First ten seek times", PICOS)?;
            let times: Vec<Picos> = times.into_iter().map(|entry| Picos(entry.0)).collect();
            let Ok(first_ten) = <[Picos; 10]>::try_from(times.as_slice()) else {
                let message = format!("{} entries; expected the times of 1 to 10 cylinders", times.len());
                return Err(reader.error_at("First ten seek times", message));
            };
            origins.add("mechanics.seek.first_ten", reader, "First ten seek times");
            SeekCurve::HplPlus10 { first_ten, rest: hpl(reader)? }
        }
        "extracted" => {
            let name = reader.word("Full seek curve", "the name of a file with the seek curve")?;
            let from = reader.definitions().file.labels[usize::from(reader.place_of("Full seek curve").file)].clone();
            let file = resolve(name, &from).map_err(|problem| {
                reader.error_at("Full seek curve", format!("can't read `{}`: {problem}", shown(name)))
            })?;
            let curve = parse_seek_curve(&file)?;
            if curve.points.len() != curve.announced {
                let (found, announced) = (curve.points.len(), curve.announced);
                let message = format!("`{}` announces {announced} distances; all of its {found} are used", shown(name));
                reader.warn_at("Full seek curve", message);
            }
            SeekCurve::Extracted(curve.points)
        }
        other => return Err(reader.error_at("Seek type", format!("`{}`; expected {SEEK_TYPES}", shown(other)))),
    };
    // Parameters of the other types.
    for name in ["Constant seek time", "Single cylinder seek time", "Average seek time", "Full strobe seek time"] {
        reader.without_effect(name, Shape::Number)?;
    }
    reader.without_effect("First ten seek times", Shape::List)?;
    reader.without_effect("HPL seek equation values", Shape::List)?;
    Ok(curve)
}

fn three_points(reader: &mut Reader<'_>) -> Result<ThreePoints, ProfileError> {
    Ok(ThreePoints {
        single: time(reader, "Single cylinder seek time")?,
        average: time(reader, "Average seek time")?,
        full: time(reader, "Full strobe seek time")?,
    })
}

fn hpl(reader: &mut Reader<'_>) -> Result<HplCurve, ProfileError> {
    const NAME: &str = "HPL seek equation values";
    let values: Vec<i64> = reader.numbers(NAME, PICOS)?.into_iter().map(|entry| entry.0).collect();
    let Ok([threshold, v2, v3, v4, v5, v6]) = <[i64; 6]>::try_from(values.as_slice()) else {
        return Err(reader.error_at(NAME, format!("{} entries; expected V1 to V6", values.len())));
    };
    const ONE: i64 = 1_000_000_000;
    if threshold % ONE != 0 || !(0..=i64::from(limits::CYLINDERS)).contains(&(threshold / ONE)) {
        return Err(reader.error_at(NAME, "V1 is no number of cylinders"));
    }
    if let Some(wrong) = [v2, v3, v4, v5].into_iter().find(|value| !(0..=limits::TIME_PICOS).contains(value)) {
        return Err(reader.error_at(NAME, format!("{wrong} ps; expected 0 to 10000 milliseconds in V2 to V5")));
    }
    let single = match v6 {
        v6 if v6 == -ONE => None,
        v6 if (0..=limits::TIME_PICOS).contains(&v6) => Some(Picos(v6)),
        _ => return Err(reader.error_at(NAME, "V6: expected 0 to 10000 milliseconds, or -1")),
    };
    Ok(HplCurve {
        threshold_cylinders: (threshold / ONE) as u32,
        root_constant: Picos(v2),
        root_factor: Picos(v3),
        line_constant: Picos(v4),
        line_factor: Picos(v5),
        single,
    })
}
