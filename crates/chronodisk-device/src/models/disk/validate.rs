//! Which parameters a disk can have: everything that the model relies on is checked here, once.

use super::parameters::*;

impl DiskParameters {
    /// Checks every value against its meaning and against [`limits`].
    ///
    /// # Errors
    /// The first wrong field, by its path, and the value expected.
    pub fn validate(&self) -> Result<(), ParameterError> {
        self.geometry.validate()?;
        self.mechanics.validate()?;
        self.validate_controller()
    }

    /// As [`validate`](Self::validate), without geometry and mechanics.
    pub(super) fn validate_controller(&self) -> Result<(), ParameterError> {
        self.controller.validate()?;
        if let Some(bus) = &self.host_bus {
            time("host_bus.read_block", bus.read_block)?;
            time("host_bus.write_block", bus.write_block)?;
        }
        if let Some(memory) = &self.nonvolatile {
            range("nonvolatile.blocks", memory.blocks.into(), 1, limits::SEGMENT_BLOCKS.into())?;
            time("nonvolatile.access", memory.access)?;
        }
        Ok(())
    }
}

impl GeometryParameters {
    fn validate(&self) -> Result<(), ParameterError> {
        range("geometry.surfaces", self.surfaces.into(), 1, limits::SURFACES.into())?;
        range("geometry.cylinders", self.cylinders.into(), 1, limits::CYLINDERS.into())?;
        range("geometry.spare_range_cylinders", self.spare_range_cylinders.into(), 0, limits::CYLINDERS.into())?;
        if self.sparing == Sparing::BlocksAtRangeEnd && self.spare_range_cylinders == 0 {
            return wrong("geometry.spare_range_cylinders", "expected at least 1 with spares at the end of each range");
        }
        range("geometry.zones", self.zones.len() as u64, 1, limits::ZONES as u64)?;
        let listed: usize = self.zones.iter().map(|zone| zone.slips.len().saturating_add(zone.defects.len())).sum();
        if listed > limits::LISTED_POSITIONS {
            let most = limits::LISTED_POSITIONS;
            return wrong("geometry.zones", format!("{listed} slips and defects, expected at most {most}"));
        }
        let mut free_from = 0;
        for (index, zone) in self.zones.iter().enumerate() {
            let field = |name: &str| format!("geometry.zones[{index}].{name}");
            if zone.first_cylinder < free_from {
                let problem = format!("{}, expected a cylinder from {free_from} on", zone.first_cylinder);
                return wrong(field("first_cylinder"), problem);
            }
            if zone.last_cylinder < zone.first_cylinder || zone.last_cylinder >= self.cylinders {
                let (first, end) = (zone.first_cylinder, self.cylinders);
                let problem = format!("{}, expected a cylinder from {first} to below {end}", zone.last_cylinder);
                return wrong(field("last_cylinder"), problem);
            }
            free_from = zone.last_cylinder + 1;
            self.validate_zone(zone, &field)?;
        }
        Ok(())
    }

    fn validate_zone(&self, zone: &ZoneParameters, field: &dyn Fn(&str) -> String) -> Result<(), ParameterError> {
        let per_track = u64::from(zone.blocks_per_track);
        range(field("blocks_per_track"), per_track, 1, limits::BLOCKS_PER_TRACK.into())?;
        for (name, angle) in [
            ("first_block_offset", zone.first_block_offset),
            ("track_skew", zone.track_skew),
            ("cylinder_skew", zone.cylinder_skew),
        ] {
            let turns = match self.skew_unit {
                SkewUnit::Blocks => i64::from(zone.blocks_per_track),
                SkewUnit::Revolutions => 1,
            };
            // More than a turn is legal but a sign of a wrong unit only beyond any plausible figure.
            let most = Millionths::from_whole(turns * 16).0;
            if !(0..=most).contains(&angle.0) {
                let problem = format!("{} millionths, expected 0 to {most}, sixteen turns", angle.0);
                return wrong(field(name), problem);
            }
        }
        let cylinders = u64::from(zone.last_cylinder - zone.first_cylinder + 1);
        let tracks = cylinders * u64::from(self.surfaces);
        let blocks = tracks * per_track;
        let positions = if self.sparing == Sparing::TracksAtZoneEnd { tracks } else { blocks };
        if zone.empty_blocks >= blocks {
            return wrong(
                field("empty_blocks"),
                format!("{}, expected less than the zone's {blocks}", zone.empty_blocks),
            );
        }
        let most_spares = match self.sparing {
            Sparing::TracksAtZoneEnd => tracks,
            Sparing::BlocksAtTrackEnd => per_track,
            Sparing::BlocksAtCylinderEnd
            | Sparing::BlocksAtCylinderEndSlipsToDiskEnd
            | Sparing::BlocksAtCylinderFront
            | Sparing::BlocksAtCylinderFrontSlipsToDiskEnd => per_track * u64::from(self.surfaces),
            Sparing::BlocksAtRangeEnd => {
                per_track * u64::from(self.surfaces) * u64::from(self.spare_range_cylinders).min(cylinders)
            }
            Sparing::None | Sparing::BlocksAtDiskEnd => u64::MAX,
            Sparing::BlocksAtZoneEnd | Sparing::BlocksAtZoneEndSlipsToDiskEnd => blocks,
        };
        if zone.spares >= most_spares {
            return wrong(field("spares"), format!("{}, expected less than {most_spares}", zone.spares));
        }
        let mut free_from = 0;
        for (index, &slip) in zone.slips.iter().enumerate() {
            if slip < free_from || slip >= positions {
                let problem = format!("{slip}, expected ascending positions, here {free_from} to below {positions}");
                return wrong(field(&format!("slips[{index}]")), problem);
            }
            free_from = slip + 1;
        }
        for (index, defect) in zone.defects.iter().enumerate() {
            for (name, position) in [("original", defect.original), ("replacement", defect.replacement)] {
                if position >= positions {
                    let problem = format!("{position}, expected a position of the zone, below {positions}");
                    return wrong(field(&format!("defects[{index}].{name}")), problem);
                }
            }
        }
        Ok(())
    }
}

impl MechanicsParameters {
    fn validate(&self) -> Result<(), ParameterError> {
        if let AccessTime::Constant(access) = self.access {
            time("mechanics.access", access)?;
        }
        time("mechanics.head_switch", self.head_switch)?;
        time("mechanics.write_settle", Picos(self.write_settle.0.saturating_abs()))?;
        let Rpm { numerator, denominator } = self.rotation;
        range("mechanics.rotation.denominator", denominator.into(), 1, limits::RPM.into())?;
        let most = u64::from(denominator) * u64::from(limits::RPM);
        range("mechanics.rotation.numerator", numerator.into(), denominator.into(), most)?;
        self.seek.validate()
    }
}

impl SeekCurve {
    fn validate(&self) -> Result<(), ParameterError> {
        match self {
            SeekCurve::Constant(always) => time("mechanics.seek.constant", *always),
            SeekCurve::Linear(points) | SeekCurve::Lee(points) => {
                time("mechanics.seek.single", points.single)?;
                time("mechanics.seek.average", points.average)?;
                time("mechanics.seek.full", points.full)?;
                if points.single > points.average || points.average > points.full {
                    return wrong("mechanics.seek", "expected single <= average <= full");
                }
                Ok(())
            }
            SeekCurve::Hpl(curve) => curve.validate(),
            SeekCurve::HplPlus10 { first_ten, rest } => {
                for (index, &seek) in first_ten.iter().enumerate() {
                    time(format!("mechanics.seek.first_ten[{index}]"), seek)?;
                }
                rest.validate()
            }
            SeekCurve::Extracted(points) => {
                range("mechanics.seek.extracted", points.len() as u64, 1, limits::SEEK_POINTS as u64)?;
                let mut free_from = 1;
                for (index, point) in points.iter().enumerate() {
                    let field = format!("mechanics.seek.extracted[{index}]");
                    if point.cylinders < free_from || point.cylinders > limits::CYLINDERS {
                        let problem = format!("{} cylinders, expected ascending, from {free_from}", point.cylinders);
                        return wrong(field, problem);
                    }
                    free_from = point.cylinders + 1;
                    time(field, point.time)?;
                }
                Ok(())
            }
        }
    }
}

impl HplCurve {
    fn validate(&self) -> Result<(), ParameterError> {
        range("mechanics.seek.threshold_cylinders", self.threshold_cylinders.into(), 0, limits::CYLINDERS.into())?;
        time("mechanics.seek.root_constant", self.root_constant)?;
        time("mechanics.seek.root_factor", self.root_factor)?;
        time("mechanics.seek.line_constant", self.line_constant)?;
        time("mechanics.seek.line_factor", self.line_factor)?;
        self.single.map_or(Ok(()), |single| time("mechanics.seek.single", single))
    }
}

impl ControllerParameters {
    fn validate(&self) -> Result<(), ParameterError> {
        for (name, value) in [
            ("read_hit_after_read", self.read_hit.read),
            ("read_hit_after_write", self.read_hit.write),
            ("read_miss_after_read", self.read_miss.read),
            ("read_miss_after_write", self.read_miss.write),
            ("write_after_read", self.write.read),
            ("write_after_write", self.write.write),
            ("read_completion", self.read_completion),
            ("write_completion", self.write_completion),
            ("reselect", self.reselect),
            ("write_data_delay", self.write_data_delay),
            ("minimum_write_seek", self.minimum_write_seek),
            ("age_bound", self.age_bound),
            ("longest_pass", self.longest_pass),
        ] {
            time(format!("controller.{name}"), value)?;
        }
        if let Some(extra) = &self.extra_write_disconnect {
            time("controller.extra_write_disconnect.overhead", extra.overhead)?;
            time("controller.extra_write_disconnect.data_delay", extra.data_delay)?;
            time("controller.extra_write_disconnect.completion", extra.completion)?;
        }
        if self.interface_rate == Some(0) {
            return wrong("controller.interface_rate", "expected at least a byte a second");
        }
        let mark = self.read_water_mark.0;
        if !(0..=Millionths::ONE.0).contains(&mark) || (mark > 0 && self.store_and_forward) {
            let problem = "expected a share of the request, from 0 to 1, and none with `store-and-forward`";
            return wrong("controller.read_water_mark", problem);
        }
        range("controller.queue_depth", self.queue_depth.into(), 1, limits::QUEUE_DEPTH.into())?;
        if let Scheduler::AgedSptf { weight } = self.scheduler {
            const LARGEST_WEIGHT: i64 = 1_000_000_000;
            if !(0..=LARGEST_WEIGHT).contains(&weight.0) {
                return wrong("controller.weight", "expected 0 to 1000");
            }
        }
        range("controller.segments", self.segments.into(), 1, limits::SEGMENTS.into())?;
        range("controller.segment_size", self.segment_blocks.into(), 1, limits::SEGMENT_BLOCKS.into())?;
        if self.read_ahead_blocks > self.segment_blocks {
            return wrong("controller.read_ahead", "expected at most `segment-size`");
        }
        range("controller.write_buffer", self.write_buffer_blocks.into(), 1, limits::SEGMENT_BLOCKS.into())?;
        range("controller.write_ranges", self.write_ranges.into(), 1, limits::WRITE_RANGES.into())
    }
}

fn wrong(field: impl Into<String>, problem: impl Into<String>) -> Result<(), ParameterError> {
    Err(ParameterError { field: field.into(), problem: problem.into() })
}

fn range(field: impl Into<String>, value: u64, least: u64, most: u64) -> Result<(), ParameterError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => wrong(field, format!("{value}, expected {least} to {most}")),
    }
}

fn time(field: impl Into<String>, value: Picos) -> Result<(), ParameterError> {
    match (0..=limits::TIME_PICOS).contains(&value.0) {
        true => Ok(()),
        false => wrong(field, format!("{} ps, expected 0 to ten seconds", value.0)),
    }
}
