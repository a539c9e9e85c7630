//! Between the host and the drive: queues and their turns, the link, the processors that understand commands.

use std::sync::Arc;

use chronodisk_sim::{Nanos, Request};

use super::command::{Command, CommandLine};
use super::flash::Timeline;
use super::parameters::FrontParameters;
use super::pool::Pool;
use super::records::Source;

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
    #[inline]
    pub(super) fn leave(&mut self, queue: u16) {
        self.queues[usize::from(queue) % self.parameters.queues as usize].fetched -= 1;
    }

    /// The next command to fetch: the queues take turns, `burst` commands each.
    #[inline]
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
    #[inline]
    pub(super) fn transfer(&mut self, now: Nanos, ready: Nanos, bytes: u64, direction: Direction) -> Nanos {
        let length = self.length_on_link(bytes);
        let link = if self.parameters.half_duplex { 0 } else { direction as usize };
        let begun = self.links[link].reserve(now, ready, length);
        self.waits.link_ns += (begun - ready).as_nanos();
        begun + length
    }

    /// Sends data of a read, which are in the controller at `ready`, to the host. Reads that cross the link as a whole
    /// wait for [`Front::end_of_read`].
    #[inline]
    pub(super) fn send(
        &mut self,
        now: Nanos,
        command: &mut Command,
        ready: Nanos,
        (bytes, units): (u32, u32),
        source: Source,
    ) {
        let (ready, last_ready) = match source {
            Source::Memory if !self.parameters.output_memory => (ready, ready),
            Source::Memory | Source::Flash => {
                let first = !std::mem::replace(&mut command.in_output, true);
                self.output(now, ready, units, first)
            }
        };
        let over = match self.parameters.whole_reads {
            true => last_ready,
            // Units cross the link while later ones are being read; the last one crosses it by itself.
            false => {
                let over = self.transfer(now, ready, u64::from(bytes), Direction::ToHost);
                let last_bytes = u64::from(bytes / units.max(1));
                over.max(last_ready + self.length_on_link(last_bytes))
            }
        };
        command.latest = command.latest.max(over);
    }

    /// The instant at which the host has all data of a read, once all have been sent.
    #[inline]
    pub(super) fn end_of_read(&mut self, now: Nanos, command: &Command) -> Nanos {
        match self.parameters.whole_reads {
            true => self.transfer(now, command.latest, command.request.len_bytes(), Direction::ToHost),
            false => command.latest,
        }
    }

    /// The instant at which the host sees the completion of a command whose work ends at `at`.
    #[inline]
    pub(super) fn completion_of(&self, now: Nanos, command: &Command, at: Nanos) -> Nanos {
        let earliest = command.arrived + Nanos::from_nanos(1);
        (at + self.parameters.completion).max(earliest).max(now)
    }

    /// Time of `bytes` on the link.
    #[inline]
    fn length_on_link(&self, bytes: u64) -> Nanos {
        let parameters = &self.parameters;
        let packets = bytes.div_ceil(u64::from(parameters.packet_bytes));
        let total = bytes + packets * u64::from(parameters.packet_overhead_bytes);
        Nanos::from_nanos((total * 1_000_000_000 + parameters.link_rate / 2) / parameters.link_rate)
    }

    /// Passes units of a read, which are ready at `ready`, through the output stage: correction of errors and set-up of
    /// the transfer, one after the other. Returns when the first and the last of them have passed.
    #[inline]
    fn output(&mut self, now: Nanos, ready: Nanos, units: u32, first_of_command: bool) -> (Nanos, Nanos) {
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

#[cfg(test)]
mod tests {
    use chronodisk_sim::Op;

    use super::*;
    use crate::models::ssd::testing::SLOW_LINK;

    fn read(id: u64, queue: u16) -> Request {
        Request { queue, ..Request::new(id, Op::Read, 0, 8) }
    }

    #[test]
    fn a_full_queue_waits_and_queues_take_turns() {
        let mut front = Front::new(Arc::new(SLOW_LINK));
        let mut commands = Pool::new();
        let numbers = [0, 0, 1, 1].map(|queue| commands.insert(Command::new(read(0, queue), Nanos::ZERO)));
        assert_eq!(numbers.map(|number| front.enter(&mut commands, number)), [true, false, true, false]);
        assert_eq!(front.next(&commands), None);
        front.leave(1);
        front.leave(0);
        // The turn of queue 0 has passed.
        assert_eq!([(); 3].map(|()| front.next(&commands)), [Some(numbers[3]), Some(numbers[1]), None]);
    }

    #[test]
    fn commands_wait_for_the_processor_and_data_for_the_output_stage_and_the_link() {
        let mut front = Front::new(Arc::new(SLOW_LINK));
        let [first, second] = [0, 1].map(|id| front.understand(Nanos::ZERO, &read(id, 0), 1).as_nanos());
        assert_eq!((first, second, front.waits().processor_ns), (150, 250, 100));
        let mut command = Command::new(read(0, 0), Nanos::ZERO);
        let at = Nanos::from_nanos(1_000);
        front.send(at, &mut command, at, (4_096, 1), Source::Flash);
        assert_eq!(command.latest.as_nanos(), 1_000 + 10 + 4_096);
        front.send(at, &mut command, at, (4_096, 1), Source::Memory);
        assert_eq!(command.latest.as_nanos(), 1_000 + 10 + 2 * 4_096, "it waits for the link alone");
        let end = front.end_of_read(at, &command);
        assert_eq!((end, front.completion_of(at, &command, end)), (command.latest, end + SLOW_LINK.completion));
    }
}
