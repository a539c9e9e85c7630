//! Tasks: commands from their arrival until their answers are sent.

use std::sync::Arc;

use super::wire::attribute;
use super::{IN_FLIGHT_BYTES_MAX, TASK_COUNT_MAX};
use crate::buffer_pool::BufferPool;
use crate::memory::MemoryLimit;
use crate::scsi::{Decoded, MediumWork, Sense};

/// Tasks by slot.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    free: Vec<u32>,
    in_use_bytes: u64,
    next_order: u64,
    pool: BufferPool,
}

/// A command and its data.
#[derive(Debug)]
pub(crate) struct Task {
    pub state: State,
    pub tag: u32,
    /// The address of the unit, as the initiator wrote it.
    pub unit: [u8; 8],
    pub attribute: u8,
    /// Position among all arrivals.
    pub order: u64,
    pub command: Decoded,
    /// Bytes of data that the initiator expects to send or to receive.
    pub expected_bytes: u32,
    /// Whether the initiator accepts data.
    pub accepts_data: bool,
    /// The session's aborts by others at its arrival.
    pub aborts: u32,
    pub incoming: Incoming,
    pub work: Option<MediumWork>,
    /// The initiator's data.
    pub data: Box<[u8]>,
    /// Bytes from the store.
    pub room: Box<[u8]>,
    pub claimed_bytes: u64,
    pub failure: Option<Sense>,
    /// The task was aborted by the management function of this number, and is not answered.
    pub aborted_by: Option<u32>,
}

/// Stage of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Waits for the initiator's data.
    Receiving,
    /// Waits for earlier tasks.
    Ready,
    /// Is at the device.
    AtDevice,
    /// Its answer waits to be sent.
    Answered,
}

/// Progress of the initiator's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    /// Bytes that the command uses.
    pub wanted_bytes: u32,
    pub received_bytes: u32,
    /// End of the present sequence, in bytes.
    pub end_bytes: u32,
    /// Tag of the request for the present sequence; none for unsolicited data.
    pub tag: Option<u32>,
    /// Number of the next PDU of the sequence.
    pub data_number: u32,
    /// Number of the next request for data.
    pub r2t_number: u32,
}

impl Task {
    /// Whether its answer is still to come.
    pub fn is_pending(&self) -> bool {
        matches!(self.state, State::Receiving | State::Ready | State::AtDevice)
    }

    fn is_simple(&self) -> bool {
        matches!(self.attribute, attribute::UNTAGGED | attribute::SIMPLE)
    }
}

/// Most memory of a session kept for reuse.
const KEPT_BYTES_MAX: usize = 64 << 20;

impl Tasks {
    pub fn new(limit: &Arc<MemoryLimit>) -> Self {
        Tasks {
            tasks: Vec::new(),
            free: Vec::new(),
            in_use_bytes: 0,
            next_order: 0,
            pool: BufferPool::new(limit, KEPT_BYTES_MAX),
        }
    }

    /// Slots in use: tasks, and answers that wait to be sent.
    pub fn count(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Begins a task with buffers of these sizes. `None` without a slot or memory.
    pub fn begin(&mut self, task: Task, data_bytes: u32, room_bytes: u32) -> Option<u32> {
        let claimed_bytes = u64::from(data_bytes) + u64::from(room_bytes);
        let fits = self.in_use_bytes == 0 || self.in_use_bytes + claimed_bytes <= IN_FLIGHT_BYTES_MAX;
        if self.count() >= TASK_COUNT_MAX || !fits {
            return None;
        }
        let data = self.take(data_bytes)?;
        let Some(room) = self.take(room_bytes) else {
            self.pool.give(data);
            return None;
        };
        let order = self.next_order;
        self.next_order += 1;
        self.in_use_bytes += claimed_bytes;
        let task = Task { order, data, room, claimed_bytes, ..task };
        if let Some(slot) = self.free.pop() {
            self.tasks[slot as usize] = task;
            return Some(slot);
        }
        self.tasks.push(task);
        // Bounded by the number of tasks.
        Some(self.tasks.len() as u32 - 1)
    }

    /// Replaces a task's data by a buffer of this size, and returns the former one. `None` without memory.
    pub fn enlarge(&mut self, slot: u32, bytes: u32) -> Option<Box<[u8]>> {
        let larger = self.take(bytes)?;
        let task = &mut self.tasks[slot as usize];
        task.claimed_bytes += u64::from(bytes);
        self.in_use_bytes += u64::from(bytes);
        Some(std::mem::replace(&mut task.data, larger))
    }

    /// Takes back the buffer that [`enlarge`](Self::enlarge) returned.
    pub fn give_back_block(&mut self, slot: u32, block: Box<[u8]>, bytes: u32) {
        self.tasks[slot as usize].claimed_bytes -= u64::from(bytes);
        self.in_use_bytes -= u64::from(bytes);
        self.pool.give(block);
    }

    pub fn give(&mut self, buffer: Box<[u8]>) {
        self.pool.give(buffer);
    }

    fn take(&mut self, bytes: u32) -> Option<Box<[u8]>> {
        if bytes == 0 { Some(Box::default()) } else { self.pool.take(bytes as usize) }
    }

    /// A new task without buffers.
    pub fn task(tag: u32, command: Decoded) -> Task {
        Task {
            state: State::Receiving,
            tag,
            unit: [0; 8],
            attribute: attribute::SIMPLE,
            order: 0,
            command,
            expected_bytes: 0,
            accepts_data: false,
            aborts: 0,
            incoming: Incoming::default(),
            work: None,
            data: Box::default(),
            room: Box::default(),
            claimed_bytes: 0,
            failure: None,
            aborted_by: None,
        }
    }

    pub fn get(&self, slot: u32) -> &Task {
        &self.tasks[slot as usize]
    }

    pub fn get_mut(&mut self, slot: u32) -> &mut Task {
        &mut self.tasks[slot as usize]
    }

    /// The task at the device; `None` if there is no such task in the slot.
    pub fn at_device(&mut self, slot: u32) -> Option<&mut Task> {
        self.tasks.get_mut(slot as usize).filter(|task| task.state == State::AtDevice)
    }

    /// The pending task with a tag.
    pub fn find(&self, tag: u32) -> Option<u32> {
        self.slots().find(|slot| self.get(*slot).is_pending() && self.get(*slot).tag == tag)
    }

    /// All slots, including free ones.
    pub fn slots(&self) -> std::ops::Range<u32> {
        0..self.tasks.len() as u32
    }

    /// Number of tasks in a state.
    pub fn count_in(&self, state: State) -> usize {
        self.tasks.iter().filter(|task| task.state == state).count()
    }

    /// The next task that may go to the device: the newest one at the head of the queue, else the oldest one that need
    /// not wait. An ordered task waits for all earlier ones. A simple one waits for earlier ones with another
    /// attribute; SAM-5, 8.6.
    pub fn next_ready(&self) -> Option<u32> {
        let ready = || self.slots().filter(|slot| self.get(*slot).state == State::Ready);
        let head = ready().filter(|slot| self.get(*slot).attribute == attribute::HEAD_OF_QUEUE);
        if let Some(slot) = head.max_by_key(|slot| self.get(*slot).order) {
            return Some(slot);
        }
        ready().filter(|slot| !self.waits(self.get(*slot))).min_by_key(|slot| self.get(*slot).order)
    }

    fn waits(&self, task: &Task) -> bool {
        let earlier = self.tasks.iter().filter(|other| other.is_pending() && other.order < task.order);
        earlier.into_iter().any(|other| !task.is_simple() || !other.is_simple())
    }

    /// The slot serves another task.
    pub fn free(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        task.state = State::Free;
        self.in_use_bytes -= task.claimed_bytes;
        for buffer in [std::mem::take(&mut task.data), std::mem::take(&mut task.room)] {
            self.pool.give(buffer);
        }
        self.free.push(slot);
    }

    /// Memory that is claimed.
    pub fn held_bytes(&self) -> u64 {
        self.pool.held_bytes()
    }

    /// Frees memory kept for reuse.
    pub fn release(&mut self) {
        self.pool.release();
    }
}

/// A management function that waits for the device to finish the tasks that it aborts: no later command sees an effect
/// of them.
#[derive(Debug)]
pub(crate) struct Management {
    pub(super) number: u32,
    pub(super) tag: u32,
    /// Tasks that the device has not finished.
    pub(super) left: usize,
}
