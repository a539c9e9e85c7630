//! Mapped files of the device, with their addresses in each task.

use std::collections::BTreeMap;

use super::record::CallRecord;
use super::table::{CLONE_VM, Effect, signature};

/// The size of a page on x86-64.
pub(super) const PAGE_BYTES: u64 = 4096;
/// Flags of `mremap` and `mmap`: the old mapping stays.
const MREMAP_DONTUNMAP: u64 = 4;

/// A part of the mapping that `mmap` has made, as one range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    end: u64,
    mapping: u32,
    /// The first byte within the mapping.
    offset: u64,
}

/// A call's use of a mapping of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MappedRange {
    /// Number of the mapping.
    pub mapping: u32,
    /// The first byte within it.
    pub offset: u64,
    /// Bytes from the offset to the end of the range.
    pub bytes: u64,
}

/// The address spaces of all tasks.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    spaces: Vec<BTreeMap<u64, Area>>,
    /// The address space of each lifetime. Several lifetimes may share one.
    of_life: BTreeMap<usize, usize>,
    users: Vec<u32>,
    /// By mapping, its number of areas in all address spaces.
    areas: Vec<u32>,
    /// Mappings without any area since the last look.
    gone: Vec<u32>,
}

impl Mappings {
    fn space(&mut self, life: usize) -> usize {
        *self.of_life.entry(life).or_insert_with(|| {
            self.spaces.push(BTreeMap::new());
            self.users.push(1);
            self.spaces.len() - 1
        })
    }

    fn insert(&mut self, space: usize, start: u64, area: Area) {
        self.areas[area.mapping as usize] += 1;
        self.spaces[space].insert(start, area);
    }

    fn drop_area(&mut self, mapping: u32) {
        let left = &mut self.areas[mapping as usize];
        *left -= 1;
        if *left == 0 {
            self.gone.push(mapping);
        }
    }

    /// Removes the mappings in a range of addresses, and returns them.
    fn cut(&mut self, space: usize, start: u64, end: u64) -> Vec<(u64, Area)> {
        let touched: Vec<(u64, Area)> = self.spaces[space]
            .range(..end)
            .rev()
            .take_while(|(_, area)| area.end > start)
            .map(|(&at, &area)| (at, area))
            .collect();
        let mut inside = Vec::new();
        for (at, area) in touched {
            self.spaces[space].remove(&at);
            let (from, to) = (at.max(start), area.end.min(end));
            if at < start {
                self.insert(space, at, Area { end: start, ..area });
            }
            if area.end > end {
                self.insert(space, end, Area { offset: area.offset + (end - at), ..area });
            }
            inside.push((from, Area { end: to, offset: area.offset + (from - at), ..area }));
        }
        // Only after the new areas were inserted, so that a mapping with a remaining part does not count as removed.
        for (_, area) in &inside {
            self.drop_area(area.mapping);
        }
        inside
    }

    /// The mapping at an address of the life.
    pub fn find(&self, life: usize, address: u64) -> Option<MappedRange> {
        let space = &self.spaces[*self.of_life.get(&life)?];
        let (&start, area) = space.range(..=address).next_back().filter(|(_, area)| area.end > address)?;
        let offset = area.offset + (address - start);
        Some(MappedRange { mapping: area.mapping, offset, bytes: area.end - address })
    }

    /// The mapping made by a call of `mmap`, if its file is `of_device`. Earlier mappings at these addresses are
    /// removed in any case.
    fn map(&mut self, life: usize, record: &CallRecord, of_device: bool) -> Option<u32> {
        let start = mapped_address(record)?;
        let bytes = record.arguments[1].max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let end = start.checked_add(bytes)?;
        let space = self.space(life);
        self.cut(space, start, end);
        if !of_device {
            return None;
        }
        let mapping = self.areas.len() as u32;
        self.areas.push(0);
        self.insert(space, start, Area { end, mapping, offset: 0 });
        Some(mapping)
    }

    /// Effect of `munmap` or `mremap` on the life's addresses.
    fn apply(&mut self, life: usize, record: &CallRecord) {
        if !self.of_life.contains_key(&life) || !record.succeeded() {
            return;
        }
        let space = self.space(life);
        let [start, bytes, new_bytes, flags, ..] = record.arguments;
        let end = |start: u64, bytes: u64| {
            start.saturating_add(bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX))
        };
        match record.call.name() {
            "munmap" => drop(self.cut(space, start, end(start, bytes))),
            "mremap" => {
                let Some(to) = mapped_address(record) else { return };
                let moved: Vec<_> = match flags & MREMAP_DONTUNMAP {
                    0 => self.take(space, start, end(start, bytes)),
                    _ => Vec::new(),
                };
                self.cut(space, to, end(to, new_bytes));
                let last = moved.iter().map(|(_, area)| area.end).max();
                for (at, mut area) in moved {
                    let is_last = Some(area.end) == last;
                    let place = to + (at - start);
                    let limit = end(to, new_bytes);
                    area.end = if is_last { limit } else { (place + (area.end - at)).min(limit) };
                    if place < area.end {
                        self.insert(space, place, area);
                    }
                    self.drop_area(area.mapping);
                }
            }
            _ => {}
        }
    }

    /// Applies the effect of any call to the addresses of the lifetime, or of the lifetime that it `made`. Returns
    /// the mapping made by a call of `mmap`, if its file is `of_device`.
    pub fn follow(&mut self, life: usize, record: &CallRecord, of_device: bool, made: Option<usize>) -> Option<u32> {
        let known = signature(record.call.name()).map(|known| known.effect);
        match (record.call.name(), known) {
            ("mmap", _) => return self.map(life, record, of_device),
            ("munmap" | "mremap", _) => self.apply(life, record),
            (_, Some(Effect::Execute)) if record.succeeded() => self.leave(life),
            (_, Some(Effect::Exit)) => self.leave(life),
            (name, Some(Effect::Fork)) => {
                let flags = match name {
                    "clone" | "clone3" => record.arguments[0],
                    "vfork" => CLONE_VM,
                    _ => 0,
                };
                if let Some(child) = made {
                    self.inherit(life, child, flags);
                }
            }
            _ => {}
        }
        None
    }

    /// Like `cut`, but the areas still count.
    fn take(&mut self, space: usize, start: u64, end: u64) -> Vec<(u64, Area)> {
        let inside = self.spaces[space].range(..end).rev().take_while(|(_, area)| area.end > start);
        for mapping in inside.map(|(_, area)| area.mapping).collect::<Vec<_>>() {
            self.areas[mapping as usize] += 1;
        }
        self.cut(space, start, end)
    }

    /// The maker's addresses become the child's, shared or as a copy.
    fn inherit(&mut self, maker: usize, child: usize, flags: u64) {
        let Some(&space) = self.of_life.get(&maker) else { return };
        if flags & CLONE_VM != 0 {
            self.users[space] += 1;
            self.of_life.insert(child, space);
            return;
        }
        let copy = self.spaces[space].clone();
        for area in copy.values() {
            self.areas[area.mapping as usize] += 1;
        }
        self.spaces.push(copy);
        self.users.push(1);
        self.of_life.insert(child, self.spaces.len() - 1);
    }

    /// Removes the addresses of a lifetime that has ended, or executes another program.
    pub fn leave(&mut self, life: usize) {
        let Some(space) = self.of_life.remove(&life) else { return };
        self.users[space] -= 1;
        if self.users[space] == 0 {
            let areas = std::mem::take(&mut self.spaces[space]);
            areas.into_values().for_each(|area| self.drop_area(area.mapping));
        }
    }

    /// Mappings without users since the last call.
    pub fn gone(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.gone)
    }
}

/// Results that are addresses look negative in no program.
fn mapped_address(record: &CallRecord) -> Option<u64> {
    record.result.and_then(|result| u64::try_from(result).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use chronodisk_sim::Nanos;

    fn call(name: &str, arguments: [u64; 4], result: i64) -> CallRecord {
        let [a, b, c, d] = arguments;
        let arguments = [a, b, c, d, 0, 0];
        CallRecord {
            arguments,
            result: Some(result),
            exit: Some(Nanos::ZERO),
            ..CallRecord::new(1, name.parse().unwrap(), Nanos::ZERO)
        }
    }

    fn mapped(mappings: &mut Mappings, life: usize, at: u64, bytes: u64) -> u32 {
        mappings.map(life, &call("mmap", [0, bytes, 1, 1], at as i64), true).unwrap()
    }

    fn found(mappings: &Mappings, life: usize, address: u64) -> Option<(u32, u64)> {
        mappings.find(life, address).map(|place| (place.mapping, place.offset))
    }

    #[test]
    fn parts_of_a_mapping_keep_their_place_in_the_file() {
        let mut mappings = Mappings::default();
        let one = mapped(&mut mappings, 0, 0x10000, 0x4000);
        mappings.apply(0, &call("munmap", [0x11000, 0x1000, 0, 0], 0));
        assert_eq!(found(&mappings, 0, 0x10fff), Some((one, 0xfff)));
        assert_eq!(found(&mappings, 0, 0x11000), None);
        assert_eq!(found(&mappings, 0, 0x12008), Some((one, 0x2008)));
        // A mapping at the address of an earlier one replaces it.
        assert_eq!(mappings.map(0, &call("mmap", [0, 0x9000, 1, 0x22], 0x10000), false), None);
        assert_eq!(found(&mappings, 0, 0x12008), None);
        assert_eq!(mappings.gone(), [one]);
    }

    #[test]
    fn a_mapping_is_gone_when_no_process_has_it() {
        let mut mappings = Mappings::default();
        let one = mapped(&mut mappings, 0, 0x10000, 0x2000);
        mappings.inherit(0, 1, 0);
        mappings.inherit(1, 2, CLONE_VM);
        mappings.leave(0);
        mappings.leave(1);
        assert_eq!(mappings.gone(), []);
        assert_eq!(found(&mappings, 2, 0x10000), Some((one, 0)));
        mappings.leave(2);
        assert_eq!(mappings.gone(), [one]);
    }

    #[test]
    fn a_mapping_that_moves_and_grows_is_the_same() {
        let mut mappings = Mappings::default();
        let one = mapped(&mut mappings, 0, 0x10000, 0x2000);
        mappings.apply(0, &call("mremap", [0x10000, 0x2000, 0x8000, 1], 0x90000));
        assert_eq!(mappings.gone(), []);
        assert_eq!(found(&mappings, 0, 0x10000), None);
        assert_eq!(found(&mappings, 0, 0x97000), Some((one, 0x7000)));
        mappings.leave(0);
        assert_eq!(mappings.gone(), [one]);
    }
}
