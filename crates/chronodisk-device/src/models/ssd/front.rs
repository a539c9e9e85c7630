//! Between the host and the drive: queues and their turns, the link, the processors that understand commands.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Request, Status};

use super::flash::Timeline;
use super::parameters::FrontParameters;
use super::pool::{NONE, Pool};

/// A request in the drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    pub(super) request: Request,
    pub(super) arrived: Nanos,
    /// Pending work before the next stage: transactions, or entries of the buffer that a flush waits for.
    pub(super) pending: u32,
    /// End of the latest work so far.
    pub(super) latest: Nanos,
    /// The units that it touches: the next to be admitted, and the one after the last.
    pub(super) next_unit: u32,
    pub(super) end_unit: u32,
    /// Index of the unit that arrives next in the buffer.
    pub(super) next_arrival: u32,
    /// Next command in the same queue.
    pub(super) next: u32,
    /// Instant since which a write waits for places in the buffer.
    pub(super) since: Nanos,
    /// For a flush: all entries of the buffer before this order must be programmed first.
    pub(super) order: u64,
    /// Status of the completion.
    pub(super) status: Status,
    /// Whether data of a read have entered the output stage.
    pub(super) in_output: bool,
}

impl Command {
    pub(super) fn new(request: Request, arrived: Nanos) -> Self {
        Command {
            request,
            arrived,
            pending: 0,
            latest: Nanos::ZERO,
            next_unit: 0,
            end_unit: 0,
            next_arrival: 0,
            next: NONE,
            since: Nanos::ZERO,
            order: 0,
            status: Status::Ok,
            in_output: false,
        }
    }
}

/// A line of commands, linked by their `next`.
#[derive(Clone, Copy, Debug)]
pub(super) struct CommandLine {
    first: u32,
    last: u32,
}

impl CommandLine {
    pub(super) const EMPTY: CommandLine = CommandLine { first: NONE, last: NONE };

    pub(super) fn push(&mut self, commands: &mut Pool<Command>, number: u32) {
        commands[number].next = NONE;
        match self.last {
            NONE => self.first = number,
            last => commands[last].next = number,
        }
        self.last = number;
    }

    pub(super) fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn last(&self) -> Option<u32> {
        (self.last != NONE).then_some(self.last)
    }

    pub(super) fn pop(&mut self, commands: &Pool<Command>) -> Option<u32> {
        let number = self.first()?;
        self.first = commands[number].next;
        if self.first == NONE {
            self.last = NONE;
        }
        Some(number)
    }
}

/// A submission queue as the drive sees it.
#[derive(Clone, Copy, Debug)]
struct Queue {
    /// Commands in the drive.
    fetched: u32,
    waiting: CommandLine,
}

/// The state of the front.
#[derive(Clone, Debug)]
pub(super) struct Front {
    parameters: Arc<FrontParameters>,
    queues: Vec<Queue>,
    /// Number of commands that wait in queues, and the queue whose turn it is.
    waiting: u32,
    turn: u32,
    burst_left: u32,
    /// Link from the host and link to the host; one for both if half-duplex.
    links: [Timeline; 2],
    processors: Vec<Nanos>,
    output: Timeline,
    waits: Waits,
}

/// Time that transfers waited for the link, commands for a processor, and data for the output stage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    pub(super) link_ns: u64,
    pub(super) processor_ns: u64,
    pub(super) output_ns: u64,
}

/// Direction of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    FromHost,
    ToHost,
}

impl Front {
    pub(super) fn new(parameters: Arc<FrontParameters>) -> Self {
        let queue = Queue { fetched: 0, waiting: CommandLine::EMPTY };
        Front {
            queues: vec![queue; parameters.queues as usize],
            waiting: 0,
            turn: 0,
            burst_left: parameters.burst,
            links: [Timeline::new(), Timeline::new()],
            processors: vec![Nanos::ZERO; parameters.processors as usize],
            output: Timeline::new(),
            waits: Waits::default(),
            parameters,
        }
    }

    /// Handles the arrival of a command. Returns whether the drive fetches it now; if not, it waits until
    /// [`Front::next`] finds it.
    pub(super) fn enter(&mut self, commands: &mut Pool<Command>, number: u32) -> bool {
        let queue = &mut self.queues[usize::from(commands[number].request.queue) % self.parameters.queues as usize];
        if queue.fetched < self.parameters.fetch_limit {
            queue.fetched += 1;
            return true;
        }
        queue.waiting.push(commands, number);
        self.waiting += 1;
        false
    }

    /// A command of this queue leaves the drive.
    pub(super) fn leave(&mut self, queue: u16) {
        self.queues[usize::from(queue) % self.parameters.queues as usize].fetched -= 1;
    }

    /// The next command to fetch: the queues take turns, `burst` commands each.
    pub(super) fn next(&mut self, commands: &Pool<Command>) -> Option<u32> {
        if self.waiting == 0 {
            return None;
        }
        for _ in 0..=self.queues.len() {
            let queue = &mut self.queues[self.turn as usize];
            if self.burst_left > 0
                && queue.fetched < self.parameters.fetch_limit
                && let Some(number) = queue.waiting.pop(commands)
            {
                queue.fetched += 1;
                self.burst_left -= 1;
                self.waiting -= 1;
                return Some(number);
            }
            self.turn = (self.turn + 1) % self.parameters.queues;
            self.burst_left = self.parameters.burst;
        }
        None
    }

    /// Instant at which a command that is fetched now has been decoded.
    pub(super) fn understand(&mut self, now: Nanos, request: &Request, units: u32) -> Nanos {
        let parameters = &self.parameters;
        let read = request.op == chronodisk_sim::Op::Read;
        let (command, latency) = match read {
            true => (parameters.read_processing, parameters.read_latency),
            false => (parameters.write_processing, parameters.write_latency),
        };
        let units = if request.op.moves_data() { u64::from(units) } else { 1 };
        let busy = command.as_nanos() + parameters.unit_processing.as_nanos() * units;
        let fetched = now + parameters.submission;
        let mut begun = fetched;
        if busy > 0 {
            let first = self.processors.iter_mut().min().expect("a drive has a processor");
            begun = fetched.max(*first);
            *first = begun + Nanos::from_nanos(busy);
        }
        self.waits.processor_ns += (begun - fetched).as_nanos();
        begun + Nanos::from_nanos(busy) + latency
    }

    /// Sends bytes that are ready at `ready` over the link and returns when they have arrived.
    pub(super) fn transfer(&mut self, now: Nanos, ready: Nanos, bytes: u64, direction: Direction) -> Nanos {
        let length = self.length_on_link(bytes);
        let link = if self.parameters.half_duplex { 0 } else { direction as usize };
        let begun = self.links[link].reserve(now, ready, length);
        self.waits.link_ns += (begun - ready).as_nanos();
        begun + length
    }

    /// Time of `bytes` on the link.
    pub(super) fn length_on_link(&self, bytes: u64) -> Nanos {
        let parameters = &self.parameters;
        let packets = bytes.div_ceil(u64::from(parameters.packet_bytes));
        let total = bytes + packets * u64::from(parameters.packet_overhead_bytes);
        Nanos::from_nanos((total * 1_000_000_000 + parameters.link_rate / 2) / parameters.link_rate)
    }

    /// Passes units of a read, which are ready at `ready`, through the output stage: correction of errors and set-up of
    /// the transfer, one after the other. Returns when the first and the last of them have passed.
    pub(super) fn output(&mut self, now: Nanos, ready: Nanos, units: u32, first_of_command: bool) -> (Nanos, Nanos) {
        let parameters = &self.parameters;
        let command = if first_of_command { parameters.output_command } else { Nanos::ZERO };
        let busy = command + Nanos::from_nanos(parameters.output_unit.as_nanos() * u64::from(units));
        if busy == Nanos::ZERO {
            return (ready, ready);
        }
        let begun = self.output.reserve(now, ready, busy);
        self.waits.output_ns += (begun - ready).as_nanos();
        (begun + command + parameters.output_unit, begun + busy)
    }

    pub(super) fn waits(&self) -> Waits {
        self.waits
    }

    /// Busy time of the link in each direction, and of the output stage.
    pub(super) fn busy_ns(&self) -> ([u64; 2], u64) {
        ([0, 1].map(|link: usize| self.links[link].busy().as_nanos()), self.output.busy().as_nanos())
    }
}
