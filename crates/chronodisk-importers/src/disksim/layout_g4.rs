//! DiskSim 4.0's layout of its newest drives (`dm_layout_g4`: Cheetah 15K.5, Maxtor 146 GB and 300 GB).
//!
//! `TP` lists patterns of tracks (first and last sector, sectors per track). `IDX` lists indices; the last one is the
//! root. Each entry of an index gives the block, cylinder and angle at which it begins, the blocks, cylinders and turns
//! covered by one instance of its child, the blocks and cylinders covered by all instances (negative for descending
//! cylinders), and the child: a track pattern with a head, or another index. The meaning of the fields is from the
//! loader of DiskSim 4.0 (`layout_g4_tools.c`).
//!
//! Drives lay out bands of cylinders surface by surface, and each head may have its own number of sectors. A profile
//! has zones of whole cylinders. So each band becomes a zone with the mean of its heads, and the angle between
//! successive tracks comes from the file. Capacity, rates by address and sequential rates are preserved. The cylinder
//! of a block is off by up to a band.

use std::collections::BTreeMap;

use chronodisk_device::ProfileError;
use chronodisk_device::disk::{GeometryParameters, Millionths, SkewUnit, Sparing, TrackOrder, ZoneParameters, limits};

use super::reader::Reader;
use super::syntax::{Data, Value};

/// Decimal digits of an angle in turns.
const MILLIONTHS: u32 = 6;
const TURN: i64 = 1_000_000;
/// Deepest nesting of indices.
const DEPTH_MAX: usize = 16;
/// Most tracks of a drive.
const TRACKS_MAX: u64 = 1 << 22;
/// Number of fields of an entry before its child.
const FIELDS: usize = 8;
const BLOCKS_MAX: i64 = 1 << 48;

/// A pattern of tracks.
#[derive(Clone, Copy, Debug)]
struct Pattern {
    blocks: u64,
}

#[derive(Clone, Copy, Debug)]
enum Child {
    Track { pattern: usize, head: u32 },
    Index(usize),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    cylinder: i64,
    angle: i64,
    len: u64,
    cylinders: i64,
    turn: i64,
    run_len: u64,
    run_descends: bool,
    child: Child,
}

/// Totals over the tracks.
#[derive(Debug, Default)]
struct Found {
    /// Blocks by cylinder.
    cylinders: BTreeMap<u32, u64>,
    /// Number of successive tracks by the angle between them, in thousandths of a turn.
    skews: BTreeMap<i64, u64>,
    last_angle: Option<i64>,
    /// Tracks and instances of indices visited.
    visited: u64,
    blocks: u64,
}

/// Reads the layout; the caller fills in the number of cylinders.
pub(super) fn geometry(
    mut reader: Reader<'_>,
    surfaces: u32,
    cylinders: u32,
) -> Result<GeometryParameters, ProfileError> {
    let patterns = patterns(&mut reader)?;
    let indices = indices(&mut reader, patterns.len())?;
    let mut found = Found::default();
    match indices.len().checked_sub(1) {
        Some(root) => found
            .walk(&patterns, &indices, (root, 0, 0), surfaces, 0)
            .map_err(|problem| reader.error_at("IDX", problem))?,
        None => {
            reader.warn_at("IDX", "no index; every track is imported with the first pattern");
            found.blocks = patterns[0].blocks * u64::from(surfaces) * u64::from(cylinders);
        }
    }
    if found.blocks == 0 {
        return Err(reader.error_at("IDX", "no blocks; expected tracks"));
    }
    for (name, fields) in [("Slips", 2), ("Remaps", 6)] {
        let count = reader.optional(name).map_or(0, |value| match &value.data {
            Data::List(list) => list.len() / fields,
            _ => 0,
        });
        if count > 0 {
            reader.warn_at(name, format!("{count} are left out: the blocks are where they would be without them"));
        }
    }
    let skew = Millionths(found.skew());
    let mut zones = zones(&found.cylinders, surfaces);
    if indices.is_empty() {
        let blocks_per_track = patterns[0].blocks as u32;
        zones.push(ZoneParameters { last_cylinder: cylinders - 1, blocks_per_track, ..ZoneParameters::default() });
    }
    for zone in &mut zones {
        (zone.track_skew, zone.cylinder_skew) = (skew, skew);
    }
    if zones.len() > limits::ZONES {
        let message = format!("{} bands of cylinders; expected at most {}", zones.len(), limits::ZONES);
        return Err(reader.error_at("IDX", message));
    }
    let imported: u64 = zones
        .iter()
        .map(|zone| u64::from(zone.last_cylinder - zone.first_cylinder + 1) * u64::from(zone.blocks_per_track))
        .sum::<u64>()
        * u64::from(surfaces);
    reader.warn_at(
        "IDX",
        format!(
            "{} bands of cylinders are imported as zones with the mean of their heads, cylinder by cylinder: {imported} \
             blocks for {}",
            zones.len(),
            found.blocks
        ),
    );
    reader.finish()?;
    Ok(GeometryParameters {
        surfaces,
        cylinders: 0,
        track_order: TrackOrder::HeadsAscending,
        sparing: Sparing::None,
        spare_range_cylinders: 1,
        skew_unit: SkewUnit::Revolutions,
        zones,
    })
}

fn patterns(reader: &mut Reader<'_>) -> Result<Vec<Pattern>, ProfileError> {
    let numbers = reader.wholes("TP", 0, limits::BLOCKS_PER_TRACK.into())?;
    if numbers.is_empty() || !numbers.len().is_multiple_of(3) {
        let message =
            format!("{} numbers; expected first sector, last sector and sectors of each pattern", numbers.len());
        return Err(reader.error_at("TP", message));
    }
    let pattern = |of: &[(i64, _)]| match (of[0].0, of[1].0, of[2].0) {
        (low, high, per_turn) if low <= high && high - low < per_turn => {
            Ok(Pattern { blocks: (high - low + 1) as u64 })
        }
        (low, high, per_turn) => {
            Err(reader.error_at("TP", format!("sectors {low} to {high} of {per_turn}; expected some of them")))
        }
    };
    numbers.chunks_exact(3).map(pattern).collect()
}

fn indices(reader: &mut Reader<'_>, patterns: usize) -> Result<Vec<Vec<Entry>>, ProfileError> {
    let lists = reader.list("IDX")?;
    lists
        .iter()
        .map(|list| match &list.data {
            Data::List(fields) => entries(reader, fields, patterns, lists.len()),
            _ => Err(reader.error_at("IDX", "expected a list of indices, each a list of entries in brackets")),
        })
        .collect()
}

fn entries<'a>(
    reader: &Reader<'a>,
    fields: &'a [Value],
    patterns: usize,
    indices: usize,
) -> Result<Vec<Entry>, ProfileError> {
    let (mut rest, mut entries) = (fields, Vec::new());
    while !rest.is_empty() {
        if rest.len() < FIELDS + 2 {
            let message = format!("an entry of {} fields; expected {} and the head of a track", rest.len(), FIELDS + 2);
            return Err(reader.error_at("IDX", message));
        }
        let whole = |at: usize, least: i64, most: i64| reader.as_whole("IDX", &rest[at], least, most);
        let cylinders = i64::from(limits::CYLINDERS);
        let child = whole(9, 0, i64::MAX)? as usize;
        let kind = reader.as_word("IDX", &rest[8], "TRACK or IDX")?;
        let (child, used) = match kind {
            "TRACK" if rest.len() > 10 && child < patterns => {
                (Child::Track { pattern: child, head: whole(10, 0, i64::from(limits::SURFACES) - 1)? as u32 }, 11)
            }
            "IDX" if child < indices => (Child::Index(child), 10),
            _ => {
                let expected = format!("TRACK below {patterns} with its head, or IDX below {indices}");
                return Err(reader.error_at("IDX", format!("the child {kind} {child}; expected {expected}")));
            }
        };
        whole(0, 0, BLOCKS_MAX)?;
        entries.push(Entry {
            cylinder: whole(1, -cylinders, cylinders)?,
            angle: reader.as_number("IDX", &rest[2], MILLIONTHS)?,
            len: whole(3, 1, BLOCKS_MAX)? as u64,
            cylinders: whole(4, -cylinders, cylinders)?,
            turn: reader.as_number("IDX", &rest[5], MILLIONTHS)?,
            run_len: whole(6, 1, BLOCKS_MAX)? as u64,
            run_descends: whole(7, -cylinders, cylinders)? < 0,
            child,
        });
        rest = &rest[used..];
    }
    Ok(entries)
}

impl Found {
    /// Visits the tracks of an index that begins at a cylinder and an angle, in order of their blocks.
    fn walk(
        &mut self,
        patterns: &[Pattern],
        indices: &[Vec<Entry>],
        (index, cylinder, angle): (usize, i64, i64),
        surfaces: u32,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("indices are nested more than {DEPTH_MAX} deep, or in a circle"));
        }
        for entry in &indices[index] {
            let instances = entry.run_len.div_ceil(entry.len);
            for instance in 0..instances {
                self.visited += 1;
                if self.visited > TRACKS_MAX {
                    return Err(format!("more than {TRACKS_MAX} tracks"));
                }
                let step = if entry.run_descends { -(instance as i64) } else { instance as i64 };
                let at = cylinder
                    .saturating_add(entry.cylinder)
                    .saturating_add(step.saturating_mul(entry.cylinders.abs().max(1)));
                let turned = (instance as i64).saturating_mul(entry.turn.rem_euclid(TURN)) % TURN;
                let turned = (angle + entry.angle.rem_euclid(TURN) + turned).rem_euclid(TURN);
                match entry.child {
                    Child::Index(child) => self.walk(patterns, indices, (child, at, turned), surfaces, depth + 1)?,
                    Child::Track { pattern, head } => {
                        if head >= surfaces {
                            return Err(format!("head {head}; expected one below {surfaces}"));
                        }
                        self.track(patterns[pattern], at, turned)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn track(&mut self, pattern: Pattern, cylinder: i64, angle: i64) -> Result<(), String> {
        let cylinder = u32::try_from(cylinder).ok().filter(|cylinder| *cylinder < limits::CYLINDERS);
        let cylinder = cylinder.ok_or("a track outside of the drive's cylinders")?;
        self.blocks += pattern.blocks;
        *self.cylinders.entry(cylinder).or_default() += pattern.blocks;
        if let Some(last) = self.last_angle.replace(angle) {
            let skew = (angle - last).rem_euclid(TURN) / (TURN / 1_000);
            *self.skews.entry(skew).or_default() += 1;
        }
        Ok(())
    }

    /// The median angle between the beginnings of successive tracks, in millionths of a turn.
    fn skew(&self) -> i64 {
        let half = self.skews.values().sum::<u64>() / 2;
        let mut below = 0;
        let median = self.skews.iter().find(|(_, count)| {
            below += *count;
            below > half
        });
        median.map_or(0, |(skew, _)| skew * (TURN / 1_000))
    }
}

/// Zones of consecutive cylinders with equal numbers of blocks.
fn zones(cylinders: &BTreeMap<u32, u64>, surfaces: u32) -> Vec<ZoneParameters> {
    let mut zones: Vec<ZoneParameters> = Vec::new();
    for (&cylinder, &blocks) in cylinders {
        let surfaces = u64::from(surfaces);
        let blocks_per_track = ((blocks + surfaces / 2) / surfaces).max(1) as u32;
        match zones.last_mut() {
            Some(zone) if zone.last_cylinder + 1 == cylinder && zone.blocks_per_track == blocks_per_track => {
                zone.last_cylinder = cylinder;
            }
            _ => zones.push(ZoneParameters {
                first_cylinder: cylinder,
                last_cylinder: cylinder,
                blocks_per_track,
                ..ZoneParameters::default()
            }),
        }
    }
    zones
}
