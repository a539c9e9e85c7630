//! The path of a disk's heads over its sectors, and the turning platter, in exact arithmetic.
//!
//! A turn lasts 60·10⁹ / rpm nanoseconds, seldom a whole number. It is divided into 60·10¹² *positions*, so that the
//! number of positions that pass in a nanosecond is whole: the speed in thousandths of a turn per minute.
//!
//! The *path* is the heads' way when they read the whole disk from sector zero on: turn after turn, with the positions
//! that pass during each change of head and of cylinder. Tracks are skewed by exactly these changes. So a sector's
//! place on the path modulo a turn is its angle, sequential reads never wait for the platter, and the time between two
//! sectors is the difference of their places. Rounding happens once, when the instant of a place becomes nanoseconds.

use chronodisk_sim::Nanos;

use crate::quantity::Rotation;

/// The track of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Track {
    /// Counted from the outside.
    pub(super) cylinder: u64,
    /// Counted from 0.
    pub(super) head: u64,
}

/// Consecutive cylinders with equal numbers of sectors per track.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) cylinders: u64,
    pub(super) sectors_per_track: u64,
}

/// The path over all sectors.
#[derive(Debug)]
pub(super) struct Spiral {
    zones: Vec<Laid>,
    heads: u64,
    /// Positions that pass in a nanosecond.
    per_nano: u128,
    /// Positions in a turn.
    turn: u128,
    head_switch: u128,
    cylinder_switch: u128,
    sectors: u64,
    cylinders: u64,
}

/// A zone, with the cylinders and sectors before it.
#[derive(Debug)]
struct Laid {
    zone: Zone,
    first_sector: u64,
    first_cylinder: u64,
    /// Place of the zone's first sector.
    start: u128,
}

impl Spiral {
    /// The zones from the outside in; the switching times are between consecutive tracks.
    pub(super) fn new(
        zones: &[Zone],
        heads: u64,
        rotation: Rotation,
        head_switch: Nanos,
        cylinder_switch: Nanos,
    ) -> Self {
        let per_nano = u128::from(rotation.0);
        let mut spiral = Spiral {
            zones: Vec::with_capacity(zones.len()),
            heads,
            per_nano,
            turn: 60_000_000_000_000,
            head_switch: u128::from(head_switch.as_nanos()) * per_nano,
            cylinder_switch: u128::from(cylinder_switch.as_nanos()) * per_nano,
            sectors: 0,
            cylinders: 0,
        };
        let mut start = 0;
        for &zone in zones {
            let (first_sector, first_cylinder) = (spiral.sectors, spiral.cylinders);
            spiral.zones.push(Laid { zone, first_sector, first_cylinder, start });
            spiral.sectors += zone.cylinders * heads * zone.sectors_per_track;
            spiral.cylinders += zone.cylinders;
            start += u128::from(zone.cylinders) * spiral.cylinder_length();
        }
        spiral
    }

    pub(super) fn sectors(&self) -> u64 {
        self.sectors
    }

    pub(super) fn cylinders(&self) -> u64 {
        self.cylinders
    }

    /// The track of `sector`.
    pub(super) fn track(&self, sector: u64) -> Track {
        let laid = self.zone_of(sector);
        let track = (sector - laid.first_sector) / laid.zone.sectors_per_track;
        Track { cylinder: laid.first_cylinder + track / self.heads, head: track % self.heads }
    }

    /// The place at which `sector` begins.
    pub(super) fn begin(&self, sector: u64) -> u128 {
        self.place(sector, 0)
    }

    /// The place at which the sector before `end` ends.
    pub(super) fn end(&self, end: u64) -> u128 {
        self.place(end - 1, 1)
    }

    /// The sector that begins or passes at `place`; during a change of track, the next sector.
    pub(super) fn sector_at(&self, place: u128) -> u64 {
        let index = self.zones.partition_point(|laid| laid.start <= place).max(1) - 1;
        let laid = &self.zones[index];
        let rest = place - laid.start;
        let cylinder = (rest / self.cylinder_length()) as u64;
        let rest = rest % self.cylinder_length();
        let head = ((rest / self.track_length()) as u64).min(self.heads - 1);
        let angle = rest - u128::from(head) * self.track_length();
        let spt = laid.zone.sectors_per_track;
        // The last sector whose angle, as rounded in `place`, is not beyond `angle`; in the gap after the track, the
        // next track's first sector.
        let on_track = (((angle + 1) * u128::from(spt)).div_ceil(self.turn) - 1) as u64;
        let sector = laid.first_sector + (cylinder * self.heads + head) * spt + on_track.min(spt);
        sector.min(self.sectors - 1)
    }

    /// Positions that have passed by `at`, if `phase` had passed at instant zero. Modulo a turn it is the heads' angle.
    pub(super) fn passed(&self, at: Nanos, phase: u128) -> u128 {
        u128::from(at.as_nanos()) * self.per_nano + phase
    }

    /// The first instant at which [`passed`](Self::passed) is at least `passed`.
    pub(super) fn instant(&self, passed: u128, phase: u128) -> Nanos {
        let nanos = passed.saturating_sub(phase).div_ceil(self.per_nano);
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Positions left until `place` reaches the head, `passed` positions into the turn.
    pub(super) fn wait(&self, passed: u128, place: u128) -> u128 {
        (place % self.turn + self.turn - passed % self.turn) % self.turn
    }

    /// Positions in a turn.
    pub(super) fn turn(&self) -> u128 {
        self.turn
    }

    fn place(&self, sector: u64, further_sectors: u64) -> u128 {
        let laid = self.zone_of(sector);
        let spt = laid.zone.sectors_per_track;
        let (track, on_track) = ((sector - laid.first_sector) / spt, (sector - laid.first_sector) % spt);
        let (cylinder, head) = (u128::from(track / self.heads), u128::from(track % self.heads));
        // Each sector's angle is rounded independently, to 1/60·10¹² of a turn, so rounding errors do not add up.
        let angle = u128::from(on_track + further_sectors) * self.turn / u128::from(spt);
        laid.start + cylinder * self.cylinder_length() + head * self.track_length() + angle
    }

    fn zone_of(&self, sector: u64) -> &Laid {
        let after = self.zones.partition_point(|laid| laid.first_sector <= sector);
        &self.zones[after.max(1) - 1]
    }

    fn track_length(&self) -> u128 {
        self.turn + self.head_switch
    }

    fn cylinder_length(&self) -> u128 {
        u128::from(self.heads) * self.turn + u128::from(self.heads - 1) * self.head_switch + self.cylinder_switch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spiral() -> Spiral {
        let zones = [Zone { cylinders: 10, sectors_per_track: 100 }, Zone { cylinders: 5, sectors_per_track: 70 }];
        Spiral::new(&zones, 3, Rotation(10_045_000), Nanos::from_micros(700), Nanos::from_micros(900))
    }

    #[test]
    fn sectors_and_tracks() {
        let spiral = spiral();
        assert_eq!(spiral.sectors(), 10 * 3 * 100 + 5 * 3 * 70);
        assert_eq!(spiral.cylinders(), 15);
        assert_eq!(spiral.track(0), Track { cylinder: 0, head: 0 });
        assert_eq!(spiral.track(299), Track { cylinder: 0, head: 2 });
        assert_eq!(spiral.track(300), Track { cylinder: 1, head: 0 });
        assert_eq!(spiral.track(3_000 + 210), Track { cylinder: 11, head: 0 });
        assert_eq!(spiral.track(spiral.sectors() - 1), Track { cylinder: 14, head: 2 });
    }

    #[test]
    fn the_path_grows_and_leads_back_to_its_sector() {
        let spiral = spiral();
        for sector in 0..spiral.sectors() {
            assert_eq!(spiral.sector_at(spiral.begin(sector)), sector);
            assert!(spiral.end(sector + 1) > spiral.begin(sector));
            if sector + 1 < spiral.sectors() {
                assert!(spiral.begin(sector + 1) >= spiral.end(sector + 1));
                // In the middle of the gap between two sectors, the later one is next.
                let gap = spiral.begin(sector + 1) - spiral.end(sector + 1);
                if gap > 0 {
                    assert_eq!(spiral.sector_at(spiral.end(sector + 1) + gap / 2), sector + 1);
                }
            }
        }
        let beyond = spiral.end(spiral.sectors()) + 10 * spiral.turn();
        assert_eq!(spiral.sector_at(beyond), spiral.sectors() - 1);
    }

    #[test]
    fn a_million_turns_lose_nothing() {
        // 10,045 rpm: 10,045,000 turns last exactly 60,000 s, though one is no whole number of nanoseconds.
        let spiral = spiral();
        let passed = spiral.passed(Nanos::from_secs(60_000), 0);
        assert_eq!(passed, 10_045_000 * spiral.turn());
        assert_eq!(spiral.wait(passed, 0), 0);
        assert_eq!(spiral.instant(passed, 0), Nanos::from_secs(60_000));
    }
}
