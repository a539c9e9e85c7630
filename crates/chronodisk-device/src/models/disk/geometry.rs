//! Places of blocks: zones, spares, slips, defects, skews, in both directions, in logarithmic time.
//!
//! A zone's *physical positions* count its blocks from its first cylinder in the order of the tracks, spares and slips
//! included; its *ranks* count blocks with data. Every sparing scheme is one of two rules between them:
//!
//! * The zone is divided into equal *units* (a track, a cylinder, a range of cylinders, or the zone itself), each with
//!   room for a number of ranks; a slip shifts the ranks behind it within its unit, into the unit's spares.
//! * The same units, but a slip shifts everything behind it, to the end of the zone.
//!
//! Nothing is stored per block or track: a lookup searches the zones and the zone's slips by bisection.

use super::parameters::{Defect, GeometryParameters, ParameterError, SkewUnit, Sparing, TrackOrder, ZoneParameters};

/// The layout of a drive, prepared for lookups.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    surfaces: u32,
    order: TrackOrder,
    /// Angles in one turn.
    turn: u64,
    zones: Vec<Zone>,
    blocks: u64,
    ascends: bool,
}

/// A track as the heads see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Track {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
}

/// Place of a block alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    pub(crate) track: Track,
    /// Angle at which the block begins.
    pub(crate) angle: u64,
}

impl Spot {
    /// A place that is not known yet. No angle is as large.
    pub(crate) const UNKNOWN: Spot = Spot { track: Track { cylinder: 0, head: 0 }, angle: u64::MAX };
}

/// Place of a block, and the other blocks of its track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockPosition {
    pub(crate) track: Track,
    /// Angle at which the block begins.
    pub(crate) angle: u64,
    /// Blocks on the track, spares included: one block passes in so many parts of a turn.
    pub(crate) blocks_per_track: u32,
    /// First block whose own position is on this track.
    pub(crate) track_first: u64,
    /// The block after the last one whose own position is on this track.
    pub(crate) track_end: u64,
    /// Whether the block is a remapped one, away from its own track.
    pub(crate) remapped: bool,
}

/// The blocks whose own positions are on a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TrackBlocks {
    pub(crate) track: Track,
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// Angle at which the first block begins.
    pub(crate) angle: u64,
    pub(crate) blocks_per_track: u32,
}

#[derive(Clone, Debug)]
struct Zone {
    first_cylinder: u32,
    cylinders: u32,
    blocks_per_track: u32,
    first_block: u64,
    blocks: u64,
    empty: u64,
    unit: Unit,
    slips: Slips,
    /// By original position, in grains.
    defects: Vec<Defect>,
    offset: u64,
    track_skew: u64,
    cylinder_skew: u64,
    /// Whether the angles above are in blocks, else in parts of a turn.
    skew_in_blocks: bool,
    /// Positions of slips that push the skew of later tracks forward; empty in schemes where they do not.
    skewing_slips: Vec<u64>,
    skew_by_track: bool,
}

/// How ranks fill positions, both counted in grains.
#[derive(Clone, Copy, Debug)]
struct Unit {
    /// Blocks of a grain, the unit of slips and defects: one, or a track.
    grain: u64,
    /// Positions in a unit.
    gross: u64,
    /// Ranks in a unit.
    net: u64,
    /// Spares in front of a unit's first rank.
    front: u64,
    /// Whether slips shift everything behind them rather than their unit.
    to_end: bool,
}

/// Slipped positions, ascending; with slips to the end, positions that count no spares.
#[derive(Clone, Debug)]
struct Slips {
    positions: Vec<u64>,
    /// Position minus index: slip i is before a rank, counted from where slip 0 can matter, if `keys[i] <= rank`.
    keys: Vec<u64>,
}

impl Geometry {
    /// Prepares a validated layout; a turn has `turn` parts.
    pub(crate) fn new(parameters: &GeometryParameters, turn: u64) -> Result<Geometry, ParameterError> {
        let mut zones = Vec::with_capacity(parameters.zones.len());
        let mut first_block = 0;
        for (index, zone) in parameters.zones.iter().enumerate() {
            let zone = Zone::new(parameters, zone, first_block, turn).map_err(|problem| ParameterError {
                field: format!("geometry.zones[{index}]"),
                problem: problem.to_owned(),
            })?;
            first_block += zone.blocks;
            zones.push(zone);
        }
        let ascends =
            zones.iter().all(|zone| zone.defects.is_empty()) && zones.is_sorted_by_key(|zone| zone.first_cylinder);
        let (surfaces, order) = (parameters.surfaces, parameters.track_order);
        Ok(Geometry { surfaces, order, turn, zones, blocks: first_block, ascends })
    }

    /// Blocks that hold data.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Where `block` is.
    pub(crate) fn locate(&self, block: u64) -> BlockPosition {
        let zone = self.zone_of(block);
        let (own, position) = self.positions(zone, block);
        let per_track = u64::from(zone.blocks_per_track);
        let remapped = position != own && zone.unit.grain == 1;
        let (track_first, track_end) = match remapped {
            // Alone on a track that is not its own.
            true => (block, block + 1),
            false => zone.track_bounds(own / per_track, block),
        };
        let Spot { track, angle } = self.spot_at(zone, position);
        BlockPosition { track, angle, blocks_per_track: zone.blocks_per_track, track_first, track_end, remapped }
    }

    /// The blocks whose own positions are on a track; `None` if there are none.
    pub(crate) fn blocks_on(&self, track: Track) -> Option<TrackBlocks> {
        let in_zone = |zone: &&Zone| track.cylinder.wrapping_sub(zone.first_cylinder) < zone.cylinders;
        let zone = self.zones.iter().find(in_zone).filter(|_| track.head < self.surfaces)?;
        let backwards = self.is_backwards(zone, track.cylinder);
        let index = if backwards { self.surfaces - 1 - track.head } else { track.head };
        let number = u64::from(track.cylinder - zone.first_cylinder) * u64::from(self.surfaces) + u64::from(index);
        let per_track = u64::from(zone.blocks_per_track);
        let (first, end) = (zone.block_at(number * per_track), zone.block_at((number + 1) * per_track));
        if first >= end {
            return None;
        }
        let (own, _) = self.positions(zone, first);
        let angle = self.angle(zone, number, track, own % per_track);
        let blocks_per_track = zone.blocks_per_track;
        (own / per_track == number).then_some(TrackBlocks { track, first, end, angle, blocks_per_track })
    }

    /// The track on which `block` is, if its defect is not replaced.
    pub(crate) fn own_track(&self, block: u64) -> Track {
        let zone = self.zone_of(block);
        self.track(zone, self.positions(zone, block).0 / u64::from(zone.blocks_per_track))
    }

    pub(crate) fn surfaces(&self) -> u32 {
        self.surfaces
    }

    /// The cylinder after the last one with blocks.
    pub(crate) fn cylinders(&self) -> u32 {
        self.zones.iter().map(|zone| zone.first_cylinder + zone.cylinders).max().unwrap_or(0)
    }

    /// Tracks of all zones.
    pub(crate) fn tracks(&self) -> u64 {
        self.zones.iter().map(|zone| zone.tracks(self.surfaces)).sum()
    }

    /// Whether cylinders never fall as block numbers rise. Only remapped defects break this order.
    pub(crate) fn ascends(&self) -> bool {
        self.ascends
    }

    /// Where `block` is, without the bounds of its track, which take half of the time.
    pub(crate) fn spot(&self, block: u64) -> Spot {
        let zone = self.zone_of(block);
        self.spot_at(zone, self.positions(zone, block).1)
    }

    /// The position of a block's rank in its zone, and the position where the block is.
    fn positions(&self, zone: &Zone, block: u64) -> (u64, u64) {
        debug_assert!(block < self.blocks);
        let rank = block - zone.first_block + zone.empty;
        // More slips than spares would lead out of the zone.
        let own = zone.position(rank).min(zone.tracks(self.surfaces) * u64::from(zone.blocks_per_track) - 1);
        (own, zone.remap(own))
    }

    fn spot_at(&self, zone: &Zone, position: u64) -> Spot {
        let per_track = u64::from(zone.blocks_per_track);
        let (track_number, sector) = (position / per_track, position % per_track);
        let track = self.track(zone, track_number);
        Spot { track, angle: self.angle(zone, track_number, track, sector) }
    }

    /// Blocks on each track of the zone of `block`.
    pub(crate) fn blocks_per_track(&self, block: u64) -> u32 {
        self.zone_of(block).blocks_per_track
    }

    fn zone_of(&self, block: u64) -> &Zone {
        &self.zones[self.zones.partition_point(|zone| zone.first_block <= block) - 1]
    }

    /// The track that is `number`-th in its zone.
    fn track(&self, zone: &Zone, number: u64) -> Track {
        let surfaces = u64::from(self.surfaces);
        let cylinder = zone.first_cylinder + (number / surfaces) as u32;
        let index = (number % surfaces) as u32;
        let backwards = self.is_backwards(zone, cylinder);
        Track { cylinder, head: if backwards { self.surfaces - 1 - index } else { index } }
    }

    /// Whether the tracks of a cylinder follow each other from the last head on.
    fn is_backwards(&self, zone: &Zone, cylinder: u32) -> bool {
        match self.order {
            TrackOrder::HeadsAscending => false,
            TrackOrder::SerpentineFromZone => (cylinder - zone.first_cylinder) % 2 == 1,
            TrackOrder::SerpentineFromDisk => cylinder % 2 == 1,
        }
    }

    /// The angle at which sector `sector` of a track begins: skews accumulate over the tracks of the zone.
    fn angle(&self, zone: &Zone, track_number: u64, track: Track, sector: u64) -> u64 {
        let surfaces = u64::from(self.surfaces);
        let (cylinder, index) = (track_number / surfaces, track_number % surfaces);
        let switches = index + (surfaces - 1) * cylinder;
        let per_track = u64::from(zone.blocks_per_track);
        let skew = zone.offset + switches * zone.track_skew + cylinder * zone.cylinder_skew;
        let mut sectors = sector;
        if !zone.skewing_slips.is_empty() {
            let tracks = cylinder * surfaces + if zone.skew_by_track { u64::from(track.head) } else { 0 };
            let cutoff = tracks * per_track;
            sectors += zone.skewing_slips.partition_point(|&slip| slip < cutoff) as u64;
        }
        match zone.skew_in_blocks {
            true => mul_div((skew + sectors) % per_track, self.turn, per_track),
            false => (skew % self.turn + mul_div(sectors % per_track, self.turn, per_track)) % self.turn,
        }
    }
}

impl Zone {
    fn new(
        parameters: &GeometryParameters,
        zone: &ZoneParameters,
        first_block: u64,
        turn: u64,
    ) -> Result<Zone, &'static str> {
        let cylinders = zone.last_cylinder - zone.first_cylinder + 1;
        let tracks = u64::from(cylinders) * u64::from(parameters.surfaces);
        let positions = tracks * u64::from(zone.blocks_per_track);
        let (unit, lost) = Zone::unit(parameters, zone);
        let blocks = positions
            .checked_sub(zone.empty_blocks)
            .and_then(|left| left.checked_sub(lost))
            .filter(|&blocks| blocks > 0)
            .ok_or("no block is left beside empty space, spares and slips")?;
        let skew_in_blocks = parameters.skew_unit == SkewUnit::Blocks;
        let angle = |value: super::parameters::Millionths| match skew_in_blocks {
            // Drives skew by whole blocks.
            true => (value.0 / 1_000_000) as u64,
            false => mul_div(value.0 as u64 % 1_000_000, turn, 1_000_000),
        };
        let slipped: Vec<u64> = match parameters.sparing {
            Sparing::None => Vec::new(),
            // A slip among the spares takes nothing.
            _ if unit.to_end => {
                zone.slips.iter().filter(|&&slip| !unit.is_spare(slip)).map(|&slip| unit.rank_at(slip)).collect()
            }
            _ => zone.slips.clone(),
        };
        let (skewing, skew_by_track) = match parameters.sparing {
            Sparing::BlocksAtTrackEnd => (true, true),
            Sparing::BlocksAtCylinderEnd
            | Sparing::BlocksAtCylinderEndSlipsToDiskEnd
            | Sparing::BlocksAtCylinderFront
            | Sparing::BlocksAtCylinderFrontSlipsToDiskEnd => (true, false),
            _ => (false, false),
        };
        let mut defects: Vec<Defect> =
            zone.defects.iter().copied().filter(|defect| defect.original != defect.replacement).collect();
        defects.sort_by_key(|defect| defect.original);
        defects.dedup_by_key(|defect| defect.original);
        Ok(Zone {
            first_cylinder: zone.first_cylinder,
            cylinders,
            blocks_per_track: zone.blocks_per_track,
            first_block,
            blocks,
            empty: zone.empty_blocks,
            unit,
            slips: Slips::new(slipped),
            defects,
            offset: angle(zone.first_block_offset),
            track_skew: angle(zone.track_skew),
            cylinder_skew: angle(zone.cylinder_skew),
            skew_in_blocks,
            skewing_slips: if skewing { zone.slips.clone() } else { Vec::new() },
            skew_by_track,
        })
    }

    /// Unit in which blocks and spares take turns, and the number of blocks that spares and slips take.
    fn unit(parameters: &GeometryParameters, zone: &ZoneParameters) -> (Unit, u64) {
        let cylinders = zone.last_cylinder - zone.first_cylinder + 1;
        let per_track = u64::from(zone.blocks_per_track);
        let per_cylinder = per_track * u64::from(parameters.surfaces);
        let tracks = u64::from(cylinders) * u64::from(parameters.surfaces);
        let positions = tracks * per_track;
        let range = u64::from(parameters.spare_range_cylinders);
        let slips = zone.slips.len() as u64;
        let whole = Unit { grain: 1, gross: positions, net: positions, front: 0, to_end: false };
        let in_cylinder =
            |front, to_end| Unit { gross: per_cylinder, net: per_cylinder - zone.spares, front, to_end, ..whole };
        match parameters.sparing {
            Sparing::None => (whole, 0),
            Sparing::TracksAtZoneEnd => {
                (Unit { grain: per_track, gross: tracks, net: tracks, ..whole }, zone.spares * per_track)
            }
            Sparing::BlocksAtCylinderEnd => (in_cylinder(0, false), zone.spares * u64::from(cylinders)),
            Sparing::BlocksAtCylinderEndSlipsToDiskEnd => {
                (in_cylinder(0, true), zone.spares * u64::from(cylinders) + slips)
            }
            Sparing::BlocksAtCylinderFront => (in_cylinder(zone.spares, false), zone.spares * u64::from(cylinders)),
            Sparing::BlocksAtCylinderFrontSlipsToDiskEnd => {
                (in_cylinder(zone.spares, true), zone.spares * u64::from(cylinders) + slips)
            }
            Sparing::BlocksAtTrackEnd => {
                let unit = Unit { gross: per_track, net: per_track - zone.spares, ..whole };
                (unit, zone.spares * tracks)
            }
            Sparing::BlocksAtDiskEnd => (whole, slips),
            Sparing::BlocksAtRangeEnd => {
                let gross = per_cylinder * range;
                let unit = Unit { gross, net: gross - zone.spares, ..whole };
                (unit, zone.spares * (u64::from(cylinders) / range))
            }
            Sparing::BlocksAtZoneEnd => (whole, zone.spares),
            Sparing::BlocksAtZoneEndSlipsToDiskEnd => (whole, zone.spares + slips),
        }
    }

    fn tracks(&self, surfaces: u32) -> u64 {
        u64::from(self.cylinders) * u64::from(surfaces)
    }

    /// The position of a rank, slips and spares counted, defects not.
    fn position(&self, rank: u64) -> u64 {
        let unit = self.unit;
        let (rank, within) = if unit.grain == 1 { (rank, 0) } else { (rank / unit.grain, rank % unit.grain) };
        let place = match unit.to_end {
            true => {
                let shifted = rank + self.slips.before_rank(rank, 0);
                unit.position_of(shifted)
            }
            false => {
                let number = rank / unit.net;
                let start = number * unit.gross;
                let from = self.slips.before_position(start);
                // The keys count from slip 0 on, so the rank does too.
                let offset = start + unit.front + rank % unit.net;
                offset + self.slips.before_rank(offset - from, from)
            }
        };
        place * unit.grain + within
    }

    /// Ranks whose own position is before `position`.
    fn ranks_before(&self, position: u64) -> u64 {
        let unit = self.unit;
        let (grain, within) = (position / unit.grain, position % unit.grain);
        let rank = match unit.to_end {
            true => {
                let rank = unit.rank_at(grain);
                rank - self.slips.before_position(rank)
            }
            false => {
                let number = grain / unit.gross;
                let start = number * unit.gross;
                let slips = self.slips.before_position(grain) - self.slips.before_position(start);
                number * unit.net + (grain - start).saturating_sub(unit.front + slips).min(unit.net)
            }
        };
        rank * unit.grain + within
    }

    /// The block of a rank.
    fn block_of(&self, rank: u64) -> u64 {
        self.first_block + rank.saturating_sub(self.empty).min(self.blocks)
    }

    /// The first block whose own position is not before `position`.
    fn block_at(&self, position: u64) -> u64 {
        self.block_of(self.ranks_before(position))
    }

    /// The first block on a track and the one after its last, defects not counted; `block` is on it.
    fn track_bounds(&self, track: u64, block: u64) -> (u64, u64) {
        let per_track = u64::from(self.blocks_per_track);
        let (start, end) = (track * per_track, (track + 1) * per_track);
        let (first, end) = match self.unit.grain == 1 && start / self.unit.gross == (end - 1) / self.unit.gross {
            // Slips on the track are few: they are found from those before it on.
            true => {
                let first = self.ranks_before(start);
                (first, self.ranks_to_end(first, start, end))
            }
            false => (self.ranks_before(start), self.ranks_before(end)),
        };
        let (first, end) = (self.block_of(first), self.block_of(end));
        // More slips than spares in a unit would push blocks over others.
        (first.min(block), end.max(block + 1))
    }

    /// Ranks before `end`, `first` of them before `start` on the same track.
    fn ranks_to_end(&self, first: u64, start: u64, end: u64) -> u64 {
        let whole = self.unit.front == 0 && self.unit.net == self.unit.gross && !self.unit.to_end;
        if !whole {
            return self.ranks_before(end);
        }
        let before = (start - first) as usize;
        let slips = self.slips.positions[before..].iter().take_while(|&&slip| slip < end).count();
        first + (end - start) - slips as u64
    }

    /// Where the contents of a position are.
    fn remap(&self, position: u64) -> u64 {
        if self.defects.is_empty() {
            return position;
        }
        let (grain, within) = (position / self.unit.grain, position % self.unit.grain);
        match self.defects.binary_search_by_key(&grain, |defect| defect.original) {
            Ok(index) => self.defects[index].replacement * self.unit.grain + within,
            Err(_) => position,
        }
    }
}

impl Unit {
    /// Position of a rank, no slips counted.
    fn position_of(&self, rank: u64) -> u64 {
        rank / self.net * self.gross + self.front + rank % self.net
    }

    /// Ranks before a position, no slips counted.
    fn rank_at(&self, position: u64) -> u64 {
        position / self.gross * self.net + (position % self.gross).saturating_sub(self.front).min(self.net)
    }

    fn is_spare(&self, position: u64) -> bool {
        let within = position % self.gross;
        within < self.front || within >= self.front + self.net
    }
}

impl Slips {
    fn new(positions: Vec<u64>) -> Self {
        let keys = positions.iter().zip(0..).map(|(&position, index)| position - index).collect();
        Slips { positions, keys }
    }

    /// Slips before a position.
    fn before_position(&self, position: u64) -> u64 {
        if self.positions.first().is_none_or(|&first| first >= position) {
            return 0;
        }
        self.positions.partition_point(|&slip| slip < position) as u64
    }

    /// Slips from number `from` on that the rank, counted from position 0 without the first `from` slips, is behind.
    fn before_rank(&self, rank: u64, from: u64) -> u64 {
        // Slip i is passed after i - from others: position <= rank + from + (i - from).
        let keys = &self.keys[from as usize..];
        keys.partition_point(|&key| key <= rank) as u64
    }
}

/// `a * b / c` without overflow in between; the quotient must fit.
pub(crate) fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product / c,
        None => (u128::from(a) * u128::from(b) / u128::from(c)) as u64,
    }
}
