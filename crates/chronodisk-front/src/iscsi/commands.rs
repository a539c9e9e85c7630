//! Commands: their beginning, the initiator's data, and their answers.

use std::ops::Range;

use chronodisk_sim::Status;

use super::sender::{Counted, DataIn, Residual};
use super::session::IscsiSession;
use super::tasks::{Incoming, State, Task, Tasks};
use super::wire::{Header, NO_TAG, attribute, flag, opcode, reject};
use crate::scsi::wire::{CDB_BYTES, opcode as scsi_opcode, status};
use crate::scsi::{ByteCheck, Command, Decoded, LogicalUnit, MediumWork, NO_UNIT, Reserved, Sense, StoreWork};

impl IscsiSession {
    /// Begins a command.
    pub(super) fn command(&mut self, header: &Header, data: Range<usize>) {
        if self.tasks.find(header.task_tag()).is_some() || header.task_tag() == NO_TAG {
            return self.reject(header, reject::INVALID_FIELD);
        }
        let mut cdb = [0; CDB_BYTES];
        cdb.copy_from_slice(&header.0[32..]);
        let begun = self.decode(header, &cdb).and_then(|decoded| {
            if is_unit_0(header.unit()) && !self.target.unit.admits(&decoded.command, &self.nexus) {
                self.refuse_with(header, status::RESERVATION_CONFLICT);
                return Ok(());
            }
            self.answer_or_begin(header, &cdb, decoded, data)
        });
        if let Err(sense) = begun {
            self.refuse(header, sense);
        }
    }

    fn decode(&mut self, header: &Header, cdb: &[u8; CDB_BYTES]) -> Result<Decoded, Sense> {
        if header.flags() & 7 > attribute::HEAD_OF_QUEUE {
            return Err(Sense::INVALID_MESSAGE);
        }
        if header.flags() & flag::READ != 0 && header.flags() & flag::WRITE != 0 {
            return Err(Sense::in_command(0));
        }
        let is_here = is_unit_0(header.unit());
        if !is_here && LogicalUnit::yields_to_attention(cdb[0]) {
            return Err(Sense::NO_SUCH_UNIT);
        }
        if is_here
            && LogicalUnit::yields_to_attention(cdb[0])
            && let Some(attention) = self.target.unit.attention(&mut self.nexus)
        {
            return Err(attention);
        }
        self.target.unit.decode(cdb)
    }

    fn answer_or_begin(
        &mut self,
        header: &Header,
        cdb: &[u8; CDB_BYTES],
        decoded: Decoded,
        data: Range<usize>,
    ) -> Result<(), Sense> {
        match self.target.unit.reserve_6(&decoded.command, &self.nexus) {
            Some(Reserved::Done) => {
                self.answer(header, &[]);
                return Ok(());
            }
            Some(Reserved::Conflict) => {
                self.refuse_with(header, status::RESERVATION_CONFLICT);
                return Ok(());
            }
            None => {}
        }
        let is_here = is_unit_0(header.unit());
        if let Some(mut answer) = self.target.unit.answer(&decoded, &mut self.nexus)? {
            match cdb[0] {
                scsi_opcode::INQUIRY if !is_here && cdb[1] != 0 => return Err(Sense::NO_SUCH_UNIT),
                scsi_opcode::INQUIRY if !is_here => answer.iter_mut().take(1).for_each(|first| *first = NO_UNIT),
                scsi_opcode::REQUEST_SENSE if !is_here => {
                    answer = Sense::NO_SUCH_UNIT.fixed().to_vec();
                    answer.truncate(decoded.allocation_bytes as usize);
                }
                _ => {}
            }
            self.answer(header, &answer);
            return Ok(());
        }
        self.begin(header, decoded, data)
    }

    /// Answers a command at once.
    fn answer(&mut self, header: &Header, answer: &[u8]) {
        let expected = if header.flags() & flag::READ != 0 { header.u32(20) } else { 0 };
        // Answers are shorter than 64 KiB.
        let residual = Residual::of(answer.len() as u32, header.u32(20));
        let data = &answer[..answer.len().min(expected as usize)];
        if data.is_empty() {
            return self.sender.response(header.task_tag(), status::GOOD, &[], residual);
        }
        let (pdu_bytes, burst_bytes) = self.piece_bytes();
        let tag = header.task_tag();
        self.sender.data_in(&DataIn { tag, data, slot: None, residual, pdu_bytes, burst_bytes });
    }

    fn piece_bytes(&self) -> (usize, usize) {
        (self.parameters.send_data_bytes as usize, self.parameters.burst_bytes as usize)
    }

    fn refuse(&mut self, header: &Header, sense: Sense) {
        self.note_refusal();
        let residual = Residual::of(0, header.u32(20));
        self.sender.response(header.task_tag(), status::CHECK_CONDITION, &sense.fixed(), residual);
    }

    fn begin(&mut self, header: &Header, decoded: Decoded, data: Range<usize>) -> Result<(), Sense> {
        let expected_bytes = header.u32(20);
        let has_data = header.flags() & flag::WRITE != 0;
        let wanted_bytes = if has_data { expected_bytes.min(decoded.outgoing_bytes) } else { 0 };
        let (immediate_bytes, most_bytes) = (data.len(), self.parameters.unasked_bytes().min(expected_bytes));
        if immediate_bytes > 0 && !(has_data && self.parameters.immediate_data) {
            return Err(Sense::UNEXPECTED_DATA);
        }
        if immediate_bytes > most_bytes as usize {
            return Err(Sense::DATA_LENGTH);
        }
        if !header.is_final() && (!has_data || self.parameters.initial_r2t) {
            return Err(Sense::UNEXPECTED_DATA);
        }
        // A PDU's length has 24 bits.
        let received_bytes = immediate_bytes as u32;
        let incoming = Incoming { wanted_bytes, received_bytes, end_bytes: most_bytes, ..Incoming::default() };
        let task = Task {
            unit: header.unit(),
            attribute: header.flags() & 7,
            expected_bytes,
            accepts_data: header.flags() & flag::READ != 0,
            aborts: self.target.unit.aborts(&self.nexus),
            incoming,
            ..Tasks::task(header.task_tag(), decoded)
        };
        let block_bytes = self.target.unit.description().block_bytes;
        let room_bytes = match decoded.command {
            Command::Read(range) => range.blocks * block_bytes,
            Command::Verify { range, check: ByteCheck::Equal | ByteCheck::EachEqual } => range.blocks * block_bytes,
            _ => 0,
        };
        let Some(slot) = self.tasks.begin(task, wanted_bytes, room_bytes) else {
            self.refuse_for_now(header);
            return Ok(());
        };
        self.take_data(slot, 0, data);
        if header.is_final() {
            self.ask_for_data(slot);
        }
        Ok(())
    }

    /// The initiator repeats the command later.
    fn refuse_for_now(&mut self, header: &Header) {
        self.refuse_with(header, if self.tasks.count() == 0 { status::BUSY } else { status::TASK_SET_FULL });
    }

    /// Refuses a command with a status that has no sense data.
    fn refuse_with(&mut self, header: &Header, status: u8) {
        self.note_refusal();
        self.sender.response(header.task_tag(), status, &[], Residual::of(0, header.u32(20)));
    }

    /// Asks for the rest of a command's data; without a rest, the command is ready.
    fn ask_for_data(&mut self, slot: u32) {
        let task = self.tasks.get_mut(slot);
        let Incoming { wanted_bytes, received_bytes, r2t_number, .. } = task.incoming;
        if received_bytes >= wanted_bytes {
            return self.receive_complete(slot);
        }
        let len = (wanted_bytes - received_bytes).min(self.parameters.burst_bytes);
        let tag = self.next_tag;
        // All ones name no task.
        self.next_tag = (self.next_tag + 1) % NO_TAG;
        task.incoming = Incoming {
            end_bytes: received_bytes + len,
            tag: Some(tag),
            data_number: 0,
            r2t_number: r2t_number + 1,
            ..task.incoming
        };
        let mut header = Header::new(opcode::READY_TO_TRANSFER, flag::FINAL);
        header.0[8..16].copy_from_slice(&task.unit);
        header.set_u32(16, task.tag);
        header.set_u32(20, tag);
        header.set_u32(36, r2t_number);
        header.set_u32(40, received_bytes);
        header.set_u32(44, len);
        self.sender.send(header, &[], Counted::No);
    }

    /// Takes data of a command. Data of a task that has ended are ignored.
    pub(super) fn data_out(&mut self, header: &Header, data: Range<usize>) {
        let Some(slot) = self.tasks.find(header.task_tag()) else { return };
        let task = self.tasks.get(slot);
        let incoming = task.incoming;
        if task.state != State::Receiving || header.u32(20) != incoming.tag.unwrap_or(NO_TAG) {
            return;
        }
        let len = data.len() as u32;
        let left = incoming.end_bytes.saturating_sub(incoming.received_bytes);
        if header.u32(36) != incoming.data_number || header.u32(40) != incoming.received_bytes {
            return self.finish_with_sense(slot, Sense::DATA_ORDER);
        }
        // The sequence is asked for as a whole; unsolicited data may be fewer.
        let is_incomplete = incoming.tag.is_some() && header.is_final() != (len == left);
        if len > left || is_incomplete {
            return self.finish_with_sense(slot, Sense::DATA_LENGTH);
        }
        self.take_data(slot, incoming.received_bytes as usize, data);
        let task = self.tasks.get_mut(slot);
        task.incoming.received_bytes += len;
        task.incoming.data_number = task.incoming.data_number.wrapping_add(1);
        if header.is_final() {
            self.ask_for_data(slot);
        }
    }

    /// All data of a command are there.
    fn receive_complete(&mut self, slot: u32) {
        let task = self.tasks.get(slot);
        let (decoded, wanted) = (task.command, task.incoming.wanted_bytes as usize);
        let outgoing = &task.data[..wanted];
        let work = match decoded.command {
            Command::ModeSelect { .. } if wanted < decoded.outgoing_bytes as usize => Err(Sense::PARAMETER_LENGTH),
            Command::ModeSelect { long } => {
                let selected = self.target.unit.select_mode(long, outgoing, &mut self.nexus);
                selected.map(|writes_back| writes_back.then_some(MediumWork::FLUSH))
            }
            Command::ReserveOut(asked) => match self.target.unit.reserve_out(&asked, outgoing, &self.nexus) {
                Ok(Reserved::Conflict) => return self.finish_with_status(slot, status::RESERVATION_CONFLICT),
                Ok(Reserved::Done) => Ok(None),
                Err(sense) => Err(sense),
            },
            _ => self.target.unit.work(&decoded, outgoing),
        };
        match work {
            Err(sense) => self.finish_with_sense(slot, sense),
            Ok(None) => self.finish_well(slot),
            Ok(Some(work)) if work.store == StoreWork::WriteRepeatedly && !self.repeat(slot, work.len_bytes) => {
                self.finish_with_status(slot, status::BUSY);
            }
            Ok(Some(work)) => {
                let task = self.tasks.get_mut(slot);
                (task.work, task.state) = (Some(work), State::Ready);
            }
        }
    }

    /// Replaces a block of data by its repetition. Returns false without memory.
    fn repeat(&mut self, slot: u32, len: u32) -> bool {
        let Some(block) = self.tasks.enlarge(slot, len) else { return false };
        let task = self.tasks.get_mut(slot);
        let block_bytes = task.incoming.wanted_bytes as usize;
        task.data[..len as usize]
            .chunks_mut(block_bytes)
            .for_each(|place| place.copy_from_slice(&block[..place.len()]));
        self.tasks.give_back_block(slot, block, block_bytes as u32);
        true
    }

    /// Answers a command that the device has completed.
    pub(super) fn finish_at_device(&mut self, slot: u32, device: Status) {
        let task = self.tasks.get(slot);
        if task.aborts != self.target.unit.aborts(&self.nexus) {
            return self.finish_by_reset(slot);
        }
        let block_bytes = self.target.unit.description().block_bytes;
        match task.failure.or_else(|| device_failure(task, device, block_bytes)).or_else(|| difference(task)) {
            Some(sense) => self.finish_with_sense(slot, sense),
            None => self.finish_well(slot),
        }
    }

    fn finish_well(&mut self, slot: u32) {
        let task = self.tasks.get(slot);
        if let Command::StartStop { start, .. } = task.command.command {
            self.target.unit.set_stopped(!start);
        }
        let expected = task.expected_bytes;
        let (actual, len) = match (task.command.command, task.work) {
            (Command::Read(_), Some(work)) => (work.len_bytes, if task.accepts_data { expected } else { 0 }),
            _ => (task.command.outgoing_bytes, 0),
        };
        let residual = Residual::of(actual, expected);
        let len = len.min(actual) as usize;
        if len == 0 {
            return self.respond_and_free(slot, status::GOOD, &[], residual);
        }
        let (pdu_bytes, burst_bytes) = self.piece_bytes();
        let data = &task.room[..len];
        self.sender.data_in(&DataIn { tag: task.tag, data, slot: Some(slot), residual, pdu_bytes, burst_bytes });
        self.tasks.get_mut(slot).state = State::Answered;
    }

    pub(super) fn finish_with_sense(&mut self, slot: u32, sense: Sense) {
        let residual = Residual::of(0, self.tasks.get(slot).expected_bytes);
        self.respond_and_free(slot, status::CHECK_CONDITION, &sense.fixed(), residual);
    }

    /// Another initiator has aborted the command.
    pub(super) fn finish_by_reset(&mut self, slot: u32) {
        self.finish_with_status(slot, status::TASK_ABORTED);
    }

    fn finish_with_status(&mut self, slot: u32, status: u8) {
        let residual = Residual::of(0, self.tasks.get(slot).expected_bytes);
        self.respond_and_free(slot, status, &[], residual);
    }

    /// The response already opens the window for another command.
    fn respond_and_free(&mut self, slot: u32, status: u8, sense: &[u8], residual: Residual) {
        let tag = self.tasks.get(slot).tag;
        self.tasks.free(slot);
        self.open_window();
        self.sender.response(tag, status, sense, residual);
    }
}

/// Whether an address is that of unit 0, in the peripheral or the flat format; SAM-5, 4.6.
pub(super) fn is_unit_0(unit: [u8; 8]) -> bool {
    matches!(unit[0], 0 | 0x40) && unit[1..] == [0; 7]
}

fn device_failure(task: &Task, device: Status, block_bytes: u32) -> Option<Sense> {
    let work = task.work?;
    match device {
        Status::Ok => None,
        Status::MediaError => {
            let block = work.offset_bytes / u64::from(block_bytes);
            Some(Sense::medium_error(work.operation != chronodisk_sim::Op::Read, block))
        }
        Status::Aborted => Some(Sense::GIVEN_UP),
        Status::Unsupported => Some(Sense::INVALID_OPCODE),
        _ => Some(Sense::INTERNAL),
    }
}

/// The first difference that `VERIFY` finds.
fn difference(task: &Task) -> Option<Sense> {
    let Command::Verify { check: ByteCheck::Equal | ByteCheck::EachEqual, .. } = task.command.command else {
        return None;
    };
    let medium = &task.room[..task.work?.len_bytes as usize];
    let wanted = &task.data[..task.incoming.wanted_bytes as usize];
    let place = medium.iter().zip(wanted.iter().cycle()).position(|(left, right)| left != right)?;
    // A transfer has fewer than 2^32 bytes.
    Some(Sense::miscompare(place as u32))
}
