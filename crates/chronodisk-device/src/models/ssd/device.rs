//! The drive: joins front, buffer, translation layer and flash, and moves on from event to event.

use std::ops::Range;
use std::sync::Arc;

use chronodisk_sim::{Completion, Nanos, Op, Request, Status};

use super::admission::Admission;
use super::as_written::AsWritten;
use super::buffer::Buffer;
use super::collector::Collector;
use super::command::Command;
use super::destager::Destager;
use super::events::{Event, Events};
use super::flash::{Done, Flash};
use super::flushes::Flushes;
use super::front::Front;
use super::ftl::Ftl;
use super::mapping_reads::MappingReads;
use super::parameters::SsdParameters;
use super::pool::Pool;
use super::read_ahead::ReadAhead;
use super::records::{Owner, Program};
use super::statistics::SsdStatistics;
use super::transactions::Transactions;
use super::units::Units;
use crate::{DeviceInfo, DeviceModel, Probe, ZoneReport, footprint};

/// A drive.
#[derive(Clone, Debug)]
pub(crate) struct Ssd {
    pub(super) info: Arc<DeviceInfo>,
    pub(super) parameters: Arc<SsdParameters>,
    pub(super) seed: u64,
    pub(super) units: Units,
    pub(super) as_written: AsWritten,
    pub(super) transactions: Transactions,
    pub(super) now: Nanos,
    pub(super) events: Events,
    pub(super) commands: Pool<Command>,
    pub(super) front: Front,
    pub(super) buffer: Arc<Buffer>,
    pub(super) admission: Admission,
    /// Resets and finishes of zones that wait for data.
    pub(super) zone_waiters: Vec<u32>,
    pub(super) flushes: Flushes,
    pub(super) programs: Pool<Program>,
    pub(super) destager: Destager,
    pub(super) ftl: Ftl,
    pub(super) flash: Flash<Owner>,
    pub(super) collector: Collector,
    pub(super) mapping_reads: MappingReads,
    pub(super) read_ahead: ReadAhead,
    pub(super) statistics: SsdStatistics,
    /// Results of the last event; empty between events.
    pub(super) done: Vec<Done<Owner>>,
}

impl Ssd {
    /// A drive with the state of `ftl`.
    pub(crate) fn new(info: DeviceInfo, parameters: Arc<SsdParameters>, ftl: Ftl, seed: u64) -> Self {
        let geometry = *parameters.geometry();
        let mut drive = Ssd {
            units: Units::new(geometry.unit_bytes, info.capacity_sectors),
            as_written: AsWritten::new(Arc::clone(&parameters), seed),
            transactions: Transactions::new(Arc::clone(&parameters), seed),
            info: Arc::new(info),
            seed,
            now: Nanos::ZERO,
            events: Events::new(),
            commands: Pool::new(),
            front: Front::new(Arc::new(parameters.front.clone())),
            buffer: Arc::new(Buffer::new(parameters.buffer.units, parameters.buffer.in_order)),
            admission: Admission::new(ftl.has_zones()),
            zone_waiters: Vec::new(),
            flushes: Flushes::new(),
            programs: Pool::new(),
            destager: Destager::new(&parameters.buffer, &parameters.ftl),
            ftl,
            flash: Flash::new(&geometry, Arc::clone(&parameters.timing)),
            collector: Collector::new(&geometry),
            mapping_reads: MappingReads::new(),
            read_ahead: ReadAhead::new(parameters.read_ahead, &parameters.ftl),
            statistics: SsdStatistics::default(),
            done: Vec::new(),
            parameters,
        };
        // An aged drive may have stopped in the middle of a collection.
        (0..geometry.dies()).for_each(|die| drive.collect(die));
        drive
    }

    /// Most memory that a drive takes besides its translation layer.
    pub(crate) fn bytes_max(parameters: &SsdParameters) -> u64 {
        // Registers, lines and timelines of a die and of its share of a bus.
        const DIE_BYTES: u64 = 1 << 10;
        const BUS_BYTES: u64 = 1 << 10;
        const QUEUE_BYTES: u64 = 256;
        const CHUNK_BYTES: u64 = 128;
        let geometry = parameters.geometry();
        let dies = u64::from(geometry.dies());
        let read_ahead = parameters
            .read_ahead
            .map_or(0, |ahead| u64::from(ahead.streams).saturating_mul(u64::from(ahead.units) + 1));
        footprint::sum([
            footprint::DEVICE_BYTES,
            // Counts of latencies, by class.
            64 << 10,
            dies.saturating_mul(DIE_BYTES + Destager::DIE_BYTES),
            Collector::bytes_max(geometry),
            u64::from(geometry.channels) * BUS_BYTES,
            u64::from(parameters.front.queues + parameters.front.processors) * QUEUE_BYTES,
            Buffer::bytes_max(parameters.buffer.units),
            read_ahead.saturating_mul(CHUNK_BYTES),
        ])
    }

    /// The drive fetches a command.
    fn fetch(&mut self, number: u32) {
        let request = self.commands[number].request;
        let (first, end) = self.units.of(&request);
        let understood = self.front.understand(self.now, &request, end - first);
        let command = &mut self.commands[number];
        (command.next_unit, command.end_unit, command.next_arrival) = (first, end, first);
        self.events.push(understood, Event::Decoded(number));
    }

    /// Handles the end of a command's decoding.
    fn decoded(&mut self, number: u32) {
        match self.commands[number].request.op {
            Op::Read => self.look_up(number, false),
            Op::Flush => self.flush(number),
            _ if self.ftl.has_zones() => self.zone_command(number),
            Op::Write => self.look_up(number, true),
            Op::Discard => self.discard(number),
            Op::WriteZeroes => self.write_zeroes(number),
            op => {
                debug_assert!(op.is_for_zones());
                self.commands[number].status = Status::Unsupported;
                self.answer(number, self.now);
            }
        }
    }

    /// Sends the answer to the host.
    pub(super) fn answer(&mut self, number: u32, at: Nanos) {
        let seen = self.front.completion_of(self.now, &self.commands[number], at);
        self.events.push(seen, Event::Completed(number));
    }

    /// Completes a command, which leaves the drive. The queues may have another one for its place.
    fn complete(&mut self, number: u32, completed: &mut Vec<Completion>) {
        let command = self.commands.remove(number);
        self.statistics.complete(&command.request, self.now - command.arrived);
        completed.push(Completion { id: command.request.id, at: self.now, status: command.status });
        self.front.leave(command.request.queue);
        while let Some(next) = self.front.next(&self.commands) {
            self.fetch(next);
        }
    }

    fn happen(&mut self, event: Event, completed: &mut Vec<Completion>) {
        match event {
            Event::Decoded(number) => self.decoded(number),
            Event::Known(number) => self.known(number),
            Event::Arrived { command, units } => self.arrived(command, units),
            Event::Completed(number) => self.complete(number, completed),
            event => {
                let mut done = std::mem::take(&mut self.done);
                self.flash.happen(self.now, event, &mut self.events, &mut done);
                for done in done.drain(..) {
                    self.flash_done(done);
                }
                self.done = done;
            }
        }
    }

    /// Handles the end of a transaction of the flash.
    fn flash_done(&mut self, done: Done<Owner>) {
        match done.owner {
            Owner::Read(command) => self.read_done(command, &done),
            Owner::Ahead { stream, place } => self.ahead_done(stream, place, &done),
            _ if !done.last => {}
            Owner::Modify(command) => self.modify_done(command, done.at),
            Owner::Mapping(place) => self.mapping_done(place, done.at),
            Owner::Program(program) => self.program_done(program),
            Owner::Collect(die) => self.batch_read(die),
            Owner::Erase(die) => self.erase_done(die),
        }
    }
}

impl DeviceModel for Ssd {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        self.commands.len() as u32
    }

    fn submit(&mut self, request: Request) {
        let number = self.commands.insert(Command::new(request, self.now));
        if self.front.enter(&mut self.commands, number) {
            self.fetch(number);
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        self.events.next_at()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        if self.commands.len() == 0 { None } else { self.events.next_at() }
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let before = completed.len();
        let limit = limit.max(self.now);
        while let Some(at) = self.events.next_at() {
            let done = completed.len() > before;
            if at > limit || (done && at > self.now) {
                break;
            }
            self.now = at;
            if let Some((_, event)) = self.events.pop_until(at) {
                self.happen(event, completed);
                debug_assert!(
                    self.buffer.free() == 0 || !self.admission.waits_for_room(),
                    "a write waits for no place"
                );
            }
        }
        if completed.len() == before {
            self.now = limit;
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }

    fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> bool {
        self.ftl.has_zones() && {
            self.fill_zones(zones);
            true
        }
    }

    fn volatile(&self) -> Option<Vec<Range<u64>>> {
        Some(self.volatile_sectors().into_ranges())
    }

    fn probe(&self, sink: &mut dyn Probe) {
        self.tell(sink);
    }
}
