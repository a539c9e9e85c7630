//! Orders calls of different tasks by the objects that they share.

use super::super::actions;
use super::super::descriptors::{CLOSE_RANGE_UNSHARE, range_of};
use super::super::order::{Point, Resource, syncs};
use super::super::record::CallRecord;
use super::super::resolve::{Object, Resolved, is_below};
use super::super::table::{Effect, signature};
use super::super::tables::Kind;
use super::{Awaited, Planner};

impl Planner<'_> {
    /// Orders a call among the calls of other tasks.
    pub(super) fn order(&mut self, index: usize, resolved: &Resolved, at: Point, waits: &mut Vec<Point>) {
        let record = &self.records[index];
        let life = self.sequence.life_of[index];
        let name = record.call.name();
        self.order_descriptors(record, life, at, waits);
        for used in &resolved.objects {
            let Object::File(path) = &used.object else { continue };
            if !is_below(self.mount, path) {
                continue;
            }
            let is_fifo = self.fifos.has(path);
            if used.opener.is_none() {
                let opens = signature(name).is_some_and(|known| matches!(known.effect, Effect::Open(_)));
                self.order_name(record, path, used.changed && !(is_fifo && opens), at, waits);
            }
            if is_fifo {
                continue;
            }
            let length = Resource::Length(path.clone());
            match actions::extent(record) {
                actions::Extent::Of { end: Some(end) } if used.changed => {
                    let known = self.lengths.entry(path.clone()).or_default();
                    if end > *known {
                        *known = end;
                        self.stages.changes(length, at, waits);
                    } else {
                        self.stages.uses(length, at, waits);
                    }
                }
                actions::Extent::Of { .. } if syncs(name) => self.stages.sees(&length, waits),
                actions::Extent::Of { end: None } if used.changed => self.stages.changes(length, at, waits),
                actions::Extent::Of { .. } => self.stages.uses(length, at, waits),
                actions::Extent::None => {}
            }
            if actions::locks(record) {
                self.stages.changes(Resource::Lock(path.clone()), at, waits);
            }
        }
    }

    /// Orders a call by descriptors: used, opened and closed ones.
    pub(super) fn order_descriptors(&mut self, record: &CallRecord, life: usize, at: Point, waits: &mut Vec<Point>) {
        let table = self.tables.table(life);
        let name = record.call.name();
        let number = |descriptor: i32| Resource::Descriptor(table, descriptor);
        let copies = name == "close_range" && record.arguments[2] & CLOSE_RANGE_UNSHARE != 0 || name == "unshare";
        let worked_on = actions::descriptors_of(record);
        for &descriptor in worked_on.iter().filter(|&&descriptor| self.tables.is_live(life, descriptor)) {
            if name == "close" {
                self.stages.changes(number(descriptor), at, waits);
            } else {
                self.stages.uses(number(descriptor), at, waits);
            }
        }
        if let Some(&descriptor) = worked_on.first()
            && actions::moves_position(name)
            && self.tables.kind(life, descriptor) == Some(Kind::File)
            && let Some(description) = self.tables.description(life, descriptor)
        {
            self.stages.changes(Resource::Description(description), at, waits);
        }
        // A pipe without a reader refuses data, also data that the reader would never have read.
        if let Some(descriptor) = actions::written_to(record)
            && let Some(end) = self.tables.stream_end(life, descriptor)
        {
            // A reader may have taken the data and closed its end before the writer's call returned.
            let closed = self.stages.joins(Resource::StreamEnd(end.opposite()), at);
            if let Some(closed) = closed.filter(|closed| closed.life != at.life)
                && let Some(step) = self.lives[closed.life].steps.get_mut(closed.step)
            {
                step.waits.push(Awaited::Step(at));
            }
        }
        let made = actions::descriptors_made(record);
        let closed = match name {
            "close_range" => self.tables.within(life, range_of(record)),
            _ => Vec::new(),
        };
        let opens_or_closes = name == "close" || !made.is_empty() || !closed.is_empty();
        for descriptor in made.into_iter().chain(closed) {
            self.stages.changes(number(descriptor), at, waits);
        }
        if copies {
            self.stages.changes(Resource::Table(table), at, waits);
        } else if opens_or_closes {
            self.stages.uses(Resource::Table(table), at, waits);
        }
    }

    /// The step that closed the last descriptors of streams waits for all that were written to them.
    pub(super) fn order_closed_ends(&mut self, at: Point) {
        let mut waits = Vec::new();
        for end in self.tables.take_closed_ends() {
            self.stages.changes(Resource::StreamEnd(end), at, &mut waits);
        }
        self.stages.needed(at, &mut waits);
        if let Some(step) = self.lives[at.life].steps.get_mut(at.step) {
            step.waits.extend(waits.into_iter().map(Awaited::Step));
        }
    }

    /// The order by a name, and by the directories on the way to it.
    fn order_name(&mut self, record: &CallRecord, path: &[u8], changed: bool, at: Point, waits: &mut Vec<Point>) {
        let mut end = self.mount.len() + 1;
        while let Some(slash) = path[end.min(path.len())..].iter().position(|&byte| byte == b'/') {
            self.stages.uses(Resource::Name(path[..end + slash].to_vec()), at, waits);
            end += slash + 1;
        }
        let name = Resource::Name(path.to_vec());
        if changed && actions::changes_names(record) {
            self.lengths.remove(path);
            self.stages.changes(name, at, waits);
        } else {
            self.stages.uses(name, at, waits);
        }
    }
}
