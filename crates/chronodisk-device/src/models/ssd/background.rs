//! Background work: programs of superpages, collections, and pages of the mapping table that are written back.

use super::collector::Step;
use super::device::Ssd;
use super::flash::Class;
use super::ftl::{Stream, Superpage, Urgency};
use super::geometry::DieIndex;
use super::pool::NONE;
use super::records::{Owner, Program};

impl Ssd {
    /// Continues a die's collection if there is work.
    pub(super) fn collect(&mut self, die: DieIndex) {
        loop {
            let urgency = self.ftl.urgency(die);
            self.flash.set_urgent(die, urgency == Urgency::Urgent);
            match self.collector.advance(die, urgency, &mut self.ftl) {
                Step::Wait => return,
                Step::Read => return self.read_batch(die),
                Step::Erase => {
                    return self.flash.submit(self.now, self.transactions.erase(die), &mut self.events);
                }
                Step::Merged(superpage) => {
                    if let Some(superpage) = superpage {
                        self.program(die, superpage, Stream::Collector, NONE);
                    }
                }
            }
        }
    }

    fn read_batch(&mut self, die: DieIndex) {
        let mut reads = 0;
        for row in self.collector.rows(die) {
            let transaction = self.transactions.read(&row, Class::CollectorRead, Owner::Collect(die));
            self.flash.submit(self.now, transaction, &mut self.events);
            reads += 1;
        }
        self.collector.reads_begun(die, reads);
    }

    /// Handles the end of a read of a batch; after the last one the batch is moved.
    pub(super) fn batch_read(&mut self, die: DieIndex) {
        if !self.collector.read_done(die) {
            return;
        }
        while let Some(superpage) = self.collector.relocate(die, &mut self.ftl) {
            self.program(die, superpage, Stream::Collector, NONE);
        }
        self.collect(die);
    }

    /// Handles the end of the victim's erase.
    pub(super) fn erase_done(&mut self, die: DieIndex) {
        self.collector.erase_done(die, &mut self.ftl);
        self.append_waiting_mapping();
        self.collect(die);
        self.destage();
        self.admit();
    }

    /// Hands a superpage to the flash.
    pub(super) fn program(&mut self, die: DieIndex, superpage: Superpage, stream: Stream, first: u32) {
        let number = self.programs.insert(Program { superpage, die, stream, first });
        let class = match stream {
            Stream::Host | Stream::Cache => Class::HostProgram,
            Stream::Mapping => Class::MappingProgram,
            Stream::Collector | Stream::Levelling | Stream::Emptying => Class::CollectorProgram,
        };
        let transaction = self.transactions.program(die, superpage, class, Owner::Program(number));
        self.statistics.pages_programmed += u64::from(transaction.pages);
        self.flash.submit(self.now, transaction, &mut self.events);
    }

    /// Handles the end of a superpage's program.
    pub(super) fn program_done(&mut self, number: u32) {
        let Program { superpage, die, stream, first } = self.programs.remove(number);
        self.ftl.programmed(superpage);
        match stream {
            Stream::Host | Stream::Cache => {
                self.destager.program_done(die);
                let mut entry = first;
                while entry != NONE {
                    let next = self.buffer.entry(entry).next;
                    self.settle(entry);
                    entry = next;
                }
            }
            Stream::Mapping => {}
            Stream::Collector | Stream::Levelling | Stream::Emptying => self.collector.program_done(die, superpage),
        }
        self.collect(die);
        self.admit();
        self.destage();
    }
}
