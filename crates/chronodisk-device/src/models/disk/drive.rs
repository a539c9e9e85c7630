//! A drive's immutable part: everything that follows from its parameters, prepared once and shared by forks.

use chronodisk_sim::SECTOR_BYTES;

use super::geometry::{Geometry, mul_div};
use super::mechanics::{Access, Mechanics, Ticks, duration};
use super::parameters::{
    After, DiskParameters, ExtraDisconnect, InitialPhase, NonvolatileParameters, ParameterError, Picos, ReadAheadTo,
    Scheduler, limits,
};

/// A drive as its parameters describe it, ready to make [`Disk`](super::Disk)s of.
#[derive(Clone, Debug)]
pub struct Drive {
    pub(crate) geometry: Geometry,
    pub(crate) mechanics: Mechanics,
    pub(crate) control: Control,
    /// The controller on the bus of the computer with which the drive was traced.
    pub(super) on_host_bus: Option<Control>,
    pub(super) nonvolatile: Option<NonvolatileParameters>,
    pub(super) initial_phase: InitialPhase,
}

impl Drive {
    /// Checks the parameters and prepares the drive.
    ///
    /// # Errors
    /// The first parameter that is wrong.
    pub fn new(parameters: &DiskParameters) -> Result<Drive, ParameterError> {
        parameters.validate()?;
        let mechanics = Mechanics::new(&parameters.mechanics, parameters.geometry.cylinders);
        let geometry = Geometry::new(&parameters.geometry, mechanics.spindle().turn)?;
        let (control, on_host_bus) = Control::new(parameters);
        Ok(Drive {
            geometry,
            mechanics,
            control,
            on_host_bus,
            nonvolatile: parameters.nonvolatile,
            initial_phase: parameters.mechanics.initial_phase,
        })
    }

    /// The platters of this drive with the controller of these parameters.
    ///
    /// # Errors
    /// The first parameter of the controller that is wrong.
    pub(super) fn with_controller(&self, parameters: &DiskParameters) -> Result<Drive, ParameterError> {
        parameters.validate_controller()?;
        let (control, on_host_bus) = Control::new(parameters);
        Ok(Drive { control, on_host_bus, nonvolatile: parameters.nonvolatile, ..self.clone() })
    }

    /// Blocks of 512 bytes with data: without spares and slips.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        self.geometry.blocks()
    }

    /// The mean time to move the arm between two of the first `blocks` blocks, without head switches and rotation.
    pub(crate) fn average_seek(&self, blocks: u64) -> chronodisk_sim::Nanos {
        const PAIRS: u64 = 4_096;
        let mut stream = chronodisk_sim::RandomStream::new(0, "disk", "average-seek");
        let mut cylinder = || self.geometry.spot(stream.below(blocks)).track.cylinder;
        let total: Ticks = (0..PAIRS).map(|_| self.mechanics.seek_time(cylinder().abs_diff(cylinder()))).sum();
        super::mechanics::nanos(total / PAIRS)
    }

    /// The platter's angle at an instant, if it was at `phase` at instant zero.
    pub(super) fn angle(&self, phase: u64, at: Ticks) -> u64 {
        let spindle = self.mechanics.spindle();
        (spindle.angle(at) + phase) % spindle.turn
    }

    /// Time from an instant until the platter is at an angle.
    pub(super) fn latency(&self, phase: u64, at: Ticks, angle: u64) -> Ticks {
        match self.mechanics.access {
            Access::Full => self.mechanics.spindle().time_between(self.angle(phase, at), angle),
            Access::HalfTurn(time) | Access::Constant(time) => time,
        }
    }

    /// Blocks that will have begun to pass at an instant since the one at `angle` did.
    pub(super) fn begun(&self, phase: u64, at: Ticks, angle: u64, per_track: u32) -> u64 {
        let (turn, per_track) = (self.mechanics.spindle().turn, u64::from(per_track));
        let behind = (self.angle(phase, at) + turn - angle) % turn;
        let blocks = mul_div(behind, per_track, turn);
        if behind > mul_div(blocks, turn, per_track) { blocks + 1 } else { blocks }
    }

    /// The longest time from the arrival of a write at an idle drive to the start of its arm.
    pub(crate) fn command_overhead(&self) -> chronodisk_sim::Nanos {
        super::mechanics::nanos(self.control.write.read.max(self.control.write.write))
    }
}

/// The controller's parameters, its times in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    /// Of the command of a read that finds its first block in the buffer.
    pub(super) read_hit: AfterTicks,
    /// Of the command of another read.
    pub(super) read_miss: AfterTicks,
    /// Of any other command.
    pub(super) write: AfterTicks,
    pub(super) read_completion: Ticks,
    pub(super) write_completion: Ticks,
    /// A block on the way to the host and from it.
    pub(super) read_block: Ticks,
    pub(super) write_block: Ticks,
    pub(super) store_and_forward: bool,
    /// In millionths; 0: data cross as they come.
    pub(super) read_water_mark: u64,
    pub(super) reselect: Ticks,
    pub(super) write_data_delay: Ticks,
    pub(super) extra_disconnect: Option<ExtraTicks>,
    pub(super) minimum_write_seek: Ticks,
    pub(super) preseek: bool,
    pub(super) depth: u32,
    pub(super) scheduler: Scheduler,
    pub(super) segments: u32,
    pub(super) segment_blocks: u64,
    pub(super) read_ahead_blocks: u64,
    pub(super) read_ahead_to: ReadAheadTo,
    pub(super) read_free_blocks: bool,
    pub(super) read_hits_on_write_data: bool,
    pub(super) write_buffer_blocks: u64,
    pub(super) write_ranges: u32,
    pub(super) write_cache: bool,
    pub(super) immediate_read: bool,
    pub(super) immediate_write: bool,
    pub(super) age_bound: Ticks,
    pub(super) longest_pass: Ticks,
}

/// A time that depends on the last completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AfterTicks {
    read: Ticks,
    write: Ticks,
}

impl AfterTicks {
    fn new(times: After) -> Self {
        AfterTicks { read: duration(times.read), write: duration(times.write) }
    }

    pub(super) fn after(self, write: bool) -> Ticks {
        if write { self.write } else { self.read }
    }
}

/// The disconnection of a write before its data: see [`ExtraDisconnect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExtraTicks {
    pub(super) overhead: Ticks,
    pub(super) data_delay: Ticks,
    pub(super) completion: Ticks,
}

impl ExtraTicks {
    fn new(times: ExtraDisconnect) -> Self {
        ExtraTicks {
            overhead: duration(times.overhead),
            data_delay: duration(times.data_delay),
            completion: duration(times.completion),
        }
    }
}

impl Control {
    /// Segments for reads, and one for blocks of writes if reads find them.
    pub(super) fn all_segments(&self) -> usize {
        self.segments as usize + usize::from(self.read_hits_on_write_data)
    }

    /// The controller as the profile connects it, and on the bus of the computer with which the drive was traced.
    fn new(parameters: &DiskParameters) -> (Control, Option<Control>) {
        let of = &parameters.controller;
        let interface = of.interface_rate.map_or(0, |bytes_per_second| {
            let picos = u128::from(SECTOR_BYTES) * 1_000_000_000_000 / u128::from(bytes_per_second.max(1));
            duration(Picos(i64::try_from(picos).unwrap_or(i64::MAX).min(limits::TIME_PICOS)))
        });
        let control = Control {
            read_hit: AfterTicks::new(of.read_hit),
            read_miss: AfterTicks::new(of.read_miss),
            write: AfterTicks::new(of.write),
            read_completion: duration(of.read_completion),
            write_completion: duration(of.write_completion),
            read_block: interface,
            write_block: interface,
            store_and_forward: of.store_and_forward,
            read_water_mark: of.read_water_mark.0.unsigned_abs(),
            reselect: duration(of.reselect),
            write_data_delay: duration(of.write_data_delay),
            extra_disconnect: of.extra_write_disconnect.map(ExtraTicks::new),
            minimum_write_seek: duration(of.minimum_write_seek),
            preseek: of.preseek,
            depth: of.queue_depth,
            scheduler: of.scheduler,
            segments: of.segments,
            segment_blocks: of.segment_blocks.into(),
            read_ahead_blocks: of.read_ahead_blocks.into(),
            read_ahead_to: of.read_ahead_to,
            read_free_blocks: of.read_free_blocks,
            read_hits_on_write_data: of.read_hits_on_write_data,
            write_buffer_blocks: of.write_buffer_blocks.into(),
            write_ranges: of.write_ranges,
            write_cache: of.write_cache,
            immediate_read: of.immediate_read,
            immediate_write: of.immediate_write,
            age_bound: duration(of.age_bound),
            longest_pass: duration(of.longest_pass),
        };
        let Some(bus) = parameters.host_bus else { return (control, None) };
        let on_host_bus = Control {
            read_block: interface.max(duration(bus.read_block)),
            write_block: interface.max(duration(bus.write_block)),
            ..control
        };
        (if bus.connected { on_host_bus } else { control }, Some(on_host_bus))
    }
}
