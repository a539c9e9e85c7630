//! A drive's immutable part: everything that follows from its parameters, prepared once and shared by forks.

use super::geometry::{Geometry, mul_div};
use super::mechanics::{Access, Mechanics, Ticks, duration};
use super::parameters::{
    After, CacheParameters, DiskParameters, ExtraDisconnect, InitialPhase, Millionths, NonvolatileParameters,
    ParameterError, Picos, Preseek, QueueParameters,
};

/// A drive as its parameters describe it, ready to make [`Disk`](super::Disk)s of.
#[derive(Debug)]
pub struct Drive {
    pub(crate) geometry: Geometry,
    pub(crate) mechanics: Mechanics,
    pub(crate) control: Control,
    pub(crate) cache: CacheParameters,
    pub(crate) queue: QueueParameters,
    pub(crate) nonvolatile: Option<NonvolatileParameters>,
    pub(crate) initial_phase: InitialPhase,
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
        Ok(Drive {
            geometry,
            mechanics,
            control: Control::new(parameters),
            cache: parameters.cache.clone(),
            queue: parameters.queue.clone(),
            nonvolatile: parameters.nonvolatile,
            initial_phase: parameters.mechanics.initial_phase,
        })
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
        let Control { per_request, write_hit, write_miss, data_preparation, .. } = self.control;
        let command =
            write_hit.after(true).max(write_hit.after(false)).max(write_miss.after(true)).max(write_miss.after(false));
        super::mechanics::nanos(per_request + command + data_preparation)
    }
}

/// The controller's times in ticks, scaled, and its switches.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) per_request: Ticks,
    pub(crate) read_hit: AfterTicks,
    pub(crate) read_miss: AfterTicks,
    pub(crate) write_hit: AfterTicks,
    pub(crate) write_miss: AfterTicks,
    pub(crate) read_completion: Ticks,
    pub(crate) write_completion: Ticks,
    pub(crate) data_preparation: Ticks,
    pub(crate) first_reselect: Ticks,
    pub(crate) other_reselect: Ticks,
    pub(crate) read_disconnect: AfterTicks,
    pub(crate) write_disconnect: Ticks,
    pub(crate) extra: Option<Extra>,
    pub(crate) minimum_write_seek: Ticks,
    /// Time of a block on the bus in a read and in a write.
    pub(crate) read_block: Ticks,
    pub(crate) write_block: Ticks,
    pub(crate) never_disconnect: bool,
    pub(crate) hold_for_read: bool,
    pub(crate) hold_for_write: bool,
    pub(crate) sneaky_full: bool,
    pub(crate) sneaky_partial: bool,
    pub(crate) sneaky_intermediate: bool,
    pub(crate) write_prebuffering: bool,
    pub(crate) preseek: Preseek,
    pub(crate) disconnect_in_seek: bool,
}

/// A time that depends on the last completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AfterTicks {
    pub(crate) read: Ticks,
    pub(crate) write: Ticks,
}

impl AfterTicks {
    pub(crate) fn after(self, write: bool) -> Ticks {
        if write { self.write } else { self.read }
    }
}

/// The extra disconnection of a write that follows a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    pub(crate) command: Ticks,
    pub(crate) disconnect: Ticks,
    pub(crate) delay: Ticks,
    pub(crate) second_disconnect: Ticks,
    pub(crate) seek_delta: Ticks,
}

impl Control {
    fn new(parameters: &DiskParameters) -> Control {
        let (control, bus) = (&parameters.controller, &parameters.bus);
        let scaled = |time: Picos| scale(time, control.overhead_scale);
        let after = |times: After| AfterTicks { read: scaled(times.read), write: scaled(times.write) };
        let extra = |times: ExtraDisconnect| Extra {
            command: scaled(times.command),
            disconnect: scaled(times.disconnect),
            // The reference does not scale this one: it is a pause and no overhead.
            delay: duration(times.inter_disconnect_delay),
            second_disconnect: scaled(times.second_disconnect),
            seek_delta: scaled(times.seek_delta),
        };
        // Giving up the bus and taking it back again at once is no different from holding it.
        let free = [control.read_disconnect.read, control.read_disconnect.write, control.first_reselect]
            .iter()
            .chain([&control.data_preparation])
            .all(|&time| time == Picos::ZERO)
            && parameters.cache.high_water.0 == 0;
        Control {
            per_request: scaled(control.per_request_overhead),
            read_hit: after(control.read_hit),
            read_miss: after(control.read_miss),
            write_hit: after(control.write_hit),
            write_miss: after(control.write_miss),
            read_completion: scaled(control.read_completion),
            write_completion: scaled(control.write_completion),
            data_preparation: scaled(control.data_preparation),
            first_reselect: scaled(control.first_reselect),
            other_reselect: scaled(control.other_reselect),
            read_disconnect: after(control.read_disconnect),
            write_disconnect: scaled(control.write_disconnect),
            extra: control.extra_write_disconnect.map(extra),
            minimum_write_seek: duration(control.minimum_write_seek),
            read_block: duration(control.block_transfer.max(bus.read_block)),
            write_block: duration(control.block_transfer.max(bus.write_block)),
            never_disconnect: control.never_disconnect,
            hold_for_read: control.hold_bus_for_read || control.never_disconnect || free,
            hold_for_write: control.hold_bus_for_write || control.never_disconnect,
            sneaky_full: control.sneaky_full_read_hits,
            sneaky_partial: control.sneaky_partial_read_hits,
            sneaky_intermediate: control.sneaky_intermediate_read_hits,
            write_prebuffering: control.write_prebuffering,
            preseek: control.preseek,
            disconnect_in_seek: control.disconnect_write_if_seek,
        }
    }
}

fn scale(time: Picos, factor: Millionths) -> Ticks {
    let scaled = i128::from(time.0) * i128::from(factor.0) / 1_000_000;
    duration(Picos(scaled as i64))
}
