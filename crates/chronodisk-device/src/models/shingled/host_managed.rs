//! A host-managed shingled disk: `shingled-disk` with `management = "host"`.
//!
//! The host writes each zone from its beginning on and resets it as a whole, so the drive translates no addresses and
//! moves no data: a sector has the same place on the disk below. The first zones are conventional. Their tracks do not
//! overlap, and they are written anywhere (INCITS 550, Zoned Block Commands).
//!
//! The disk below has the queue, the cache and the mechanics. A command for a zone changes its state in the controller,
//! without the medium: it completes `zone-command` after its arrival. Such drives have no append. The kernel of a host
//! makes it a write at the pointer (Linux: `drivers/scsi/sd_zbc.c` before 6.10, then `block/blk-zoned.c`), and so does
//! this model. A request that the zones refuse is answered at once.
//!
//! Not modelled: guard tracks between zones, a limit of closed zones (drives have none), the writes of the zones'
//! table, read-only and offline zones, and defects.
//!
//! ```toml
//! kind = "shingled-disk"
//! management = "host"
//! member = "first-disk"         # the disk whose tracks are shingled
//! zone-size = "256 MiB"
//! conventional-zones = 8        # the default: none
//! open-zones = 128              # the default: no limit
//! zone-command = "1 ms"
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use chronodisk_sim::{Lba, Nanos, Op, Request, RequestId, SECTOR_BYTES, Status};

use crate::composite::{Composite, Context, Members, Policy, Slab};
use crate::fields::{Fields, ProfileError};
use crate::models::blueprint::{Blueprint, FindMembers};
use crate::quantity::Bytes;
use crate::sector_set::SectorSet;
use crate::{BuildOptions, DeviceInfo, DeviceModel, Probe, ZoneCondition, ZoneLayout, ZoneMap, ZoneReport, footprint};

/// Reads the keys of a host-managed disk.
pub(super) fn parse(fields: &mut Fields<'_>, members: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let member = members.one(fields, "member")?;
    let Bytes(size) = fields.positive("zone-size")?;
    let conventional = fields.optional_count("conventional-zones", 0..=MOST_ZONES)?.unwrap_or(0);
    let most_open = fields.optional_count("open-zones", 1..=MOST_ZONES)?.unwrap_or(0);
    let zone_command: Nanos = fields.positive("zone-command")?;
    let block_bytes = u64::from(member.info().logical_block_bytes).max(BLOCK_BYTES);
    if !size.is_multiple_of(block_bytes) {
        return Err(fields.error_at("zone-size", format!("expected a multiple of {}", Bytes(block_bytes))));
    }
    let zones = member.capacity_bytes() / size;
    if zones <= u64::from(conventional) || zones > u64::from(MOST_ZONES) {
        let problem = format!("{zones} zones; expected {} to {MOST_ZONES}", u64::from(conventional) + 1);
        return Err(fields.error_at("zone-size", problem));
    }
    let size_sectors = size / SECTOR_BYTES;
    let layout = ZoneLayout { size_sectors, capacity_sectors: size_sectors, most_open, most_active: 0, conventional };
    let (below, disk_memory_bytes) = (Arc::clone(&member), member.memory_bytes_max());
    let memory = move |info: &DeviceInfo| {
        let map_bytes = ZoneMap::bytes_max(&layout, info.capacity_sectors);
        // A fork that lives on takes a map of its own.
        footprint::sum([footprint::DEVICE_BYTES, disk_memory_bytes, map_bytes])
    };
    let make = move |info: DeviceInfo, seed: u64| -> Box<dyn DeviceModel> {
        let disk = below.build(&BuildOptions { seed, ..BuildOptions::default() }).expect("its own capacity fits");
        let info = DeviceInfo { volatile_cache: disk.info().volatile_cache, discard_unit_sectors: None, ..info };
        let map = Arc::new(ZoneMap::new(layout, info.capacity_sectors));
        let block_sectors = u64::from(info.logical_block_bytes) / SECTOR_BYTES;
        let policy = HostManaged {
            map,
            block_sectors,
            zone_command,
            hosts: Slab::new(),
            commands: VecDeque::new(),
            statistics: HostManagedStatistics::default(),
        };
        Box::new(Composite::new(info, Members::new(vec![disk], None), policy))
    };
    let blueprint = Blueprint::new(memory, make).sized(zones * size).over(&[member]);
    Ok(blueprint.with_zones(layout, block_bytes))
}

/// Such drives write their zones in physical blocks of this size.
const BLOCK_BYTES: u64 = 4096;
/// More than any drive has.
const MOST_ZONES: u32 = 1 << 22;

/// The drive's state.
#[derive(Clone, Debug)]
struct HostManaged {
    /// Shared with forks until one changes it.
    map: Arc<ZoneMap>,
    block_sectors: u64,
    zone_command: Nanos,
    /// Requests that the disk below has.
    hosts: Slab<Host>,
    /// Commands for zones, in the order of arrival, and so of their ends.
    commands: VecDeque<Command>,
    statistics: HostManagedStatistics,
}

/// A request of the host.
#[derive(Clone, Copy, Debug)]
struct Host {
    id: RequestId,
    op: Op,
    sector: u64,
}

/// A command for a zone, and the instant of its end.
#[derive(Clone, Copy, Debug)]
struct Command {
    host: Host,
    end: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct HostManagedStatistics {
    conventional_writes: u64,
    sequential_writes: u64,
    zone_commands: u64,
    refused: u64,
}

impl Policy for HostManaged {
    fn arrive(&mut self, request: Request, context: &mut Context<'_>) {
        let sector = match self.admit(&request) {
            Ok(sector) => sector,
            Err(status) => {
                self.statistics.refused += 1;
                return context.complete_at_once(request.id, status);
            }
        };
        let host = Host { id: request.id, op: request.op, sector };
        let op = match request.op {
            Op::ZoneReset | Op::ZoneOpen | Op::ZoneClose | Op::ZoneFinish => {
                self.statistics.zone_commands += 1;
                let end = context.now().saturating_add(self.zone_command);
                return self.commands.push_back(Command { host, end });
            }
            Op::ZoneAppend => Op::Write,
            op => op,
        };
        if matches!(op, Op::Write | Op::WriteZeroes) {
            match self.map.is_conventional(self.map.zone_of(sector)) {
                true => self.statistics.conventional_writes += 1,
                false => self.statistics.sequential_writes += 1,
            }
        }
        let tag = self.hosts.insert(host);
        context.submit(0, tag.into(), Request { op, lba: Lba(sector), ..request });
    }

    fn answer(&mut self, _member: usize, tag: u64, status: Status, context: &mut Context<'_>) {
        let host = self.hosts.take(tag as u32);
        self.end(host, status, context);
    }

    fn next_timer(&self) -> Option<Nanos> {
        self.commands.front().map(|command| command.end)
    }

    fn timer(&mut self, context: &mut Context<'_>) {
        while let Some(&Command { host, end }) = self.commands.front()
            && end <= context.now()
        {
            self.commands.pop_front();
            self.end(host, Status::Ok, context);
        }
    }

    fn begin_with_zones(&mut self, zones: &[ZoneReport]) -> Option<bool> {
        let kept: Vec<_> =
            zones.iter().map(|zone| (zone.written_sectors, zone.condition == ZoneCondition::Full)).collect();
        let mut map = self.map.emptied();
        let begins = map.begin_with(&kept, self.block_sectors).is_ok();
        if begins {
            self.map = Arc::new(map);
        }
        Some(begins)
    }

    fn volatile(&self, now: Nanos, members: &Members) -> Option<SectorSet> {
        members.volatile(now, 0)
    }

    fn probe(&self, sink: &mut dyn Probe) {
        sink.counter("conventional-writes", self.statistics.conventional_writes);
        sink.counter("sequential-writes", self.statistics.sequential_writes);
        sink.counter("zone-commands", self.statistics.zone_commands);
        sink.counter("refused-requests", self.statistics.refused);
        let (open, active) = self.map.in_use();
        sink.gauge("open-zones", "zones", open.into());
        sink.gauge("active-zones", "zones", active.into());
    }
}

impl HostManaged {
    /// The sector at which the request's data go.
    fn admit(&mut self, request: &Request) -> Result<u64, Status> {
        match request.op {
            // A map that a fork shares is copied for a change alone.
            Op::Read | Op::Flush => Ok(request.lba.0),
            _ => Arc::make_mut(&mut self.map).admit(request),
        }
    }

    /// A request of the host ends.
    fn end(&mut self, host: Host, status: Status, context: &mut Context<'_>) {
        if !matches!(host.op, Op::Read | Op::Flush) {
            Arc::make_mut(&mut self.map).completed(host.op, host.sector);
        }
        context.complete(host.id, status);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::over_memory;
    use super::*;
    use crate::models::testing::{build_text, closed_loop, counter};
    use crate::{Profile, advance, contract};

    /// A disk of 2 ms a request and 100 MB/s with 16 zones of 4 MiB, the first three of them conventional.
    fn text(change: &[(&str, &str)]) -> String {
        let keys = "management = \"host\"\nzone-size = \"4 MiB\"\nconventional-zones = 3\nopen-zones = 2\n\
                    zone-command = \"5 ms\"\n";
        over_memory(keys, "65 MiB", change)
    }

    const ZONE: u64 = 8_192;

    fn request(id: u64, op: Op, lba: u64, sectors: u32) -> Request {
        Request::new(id, op, lba, sectors)
    }

    fn disk() -> Box<dyn DeviceModel> {
        build_text(&text(&[]), 7)
    }

    /// Status of a request, and the time that it took.
    fn taken(device: &mut dyn DeviceModel, request: Request) -> (Status, Nanos) {
        let (begun, mut completed) = (device.now(), Vec::new());
        device.submit(request);
        while completed.is_empty() {
            let next = device.next_event().expect("an outstanding request has an event before it");
            device.step(next, &mut completed);
        }
        (completed[0].status, completed[0].at - begun)
    }

    #[test]
    fn contracts() {
        contract::check("host-managed memory", contract::cases(24), &|seed| build_text(&text(&[]), seed));
        contract::check("host-managed disk", contract::cases(8), &|seed| {
            let text = text(&[("\"below\"", "\"first-disk\"")]);
            build_text(text.split("[[member-profile]]").next().unwrap_or_default(), seed)
        });
    }

    #[test]
    fn a_capacity_is_whole_zones_behind_the_conventional_ones() {
        let device = disk();
        let info = device.info();
        assert_eq!((info.capacity_sectors, info.logical_block_bytes), (16 * ZONE, 4096));
        let expected =
            ZoneLayout { size_sectors: ZONE, capacity_sectors: ZONE, most_open: 2, most_active: 0, conventional: 3 };
        assert_eq!(info.zones, Some(expected));
        for (from, to, expected) in [
            ("\"4 MiB\"", "\"4095 KiB\"", "`zone-size`: expected a multiple of 4 KiB"),
            ("\"4 MiB\"", "\"128 MiB\"", "`zone-size`: 0 zones; expected 4 to"),
            ("conventional-zones = 3", "conventional-zones = 16", "`zone-size`: 16 zones; expected 17 to"),
            ("zone-command = \"5 ms\"", "zone-command = \"0 ms\"", "`zone-command`: zero"),
            ("zone-command", "band = \"1 MiB\"\nzone-command", "band"),
        ] {
            let error = Profile::parse(&text(&[(from, to)]), "h").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let profile = Profile::parse(&text(&[]), "h").unwrap();
        let small = |zones: u64| {
            let options = BuildOptions { capacity_bytes: Some(zones * ZONE * SECTOR_BYTES), ..BuildOptions::default() };
            profile.build(&options).map(|device| device.info().capacity_sectors)
        };
        assert_eq!(small(4).unwrap(), 4 * ZONE);
        let error = small(3).unwrap_err().to_string();
        assert!(error.contains("expected more than its conventional zones, 12"), "{error}");
    }

    #[test]
    fn conventional_zones_are_written_anywhere_in_the_time_of_the_disk() {
        let mut device = disk();
        let mut below = build_text(text(&[]).split("'''").nth(1).unwrap(), 7);
        for (lba, sectors) in [(3 * ZONE - 8, 8), (0, 64), (16, 8), (ZONE - 8, 16)] {
            let write = request(0, Op::Write, lba, sectors);
            assert_eq!(taken(&mut *device, write), taken(&mut *below, write), "{lba}");
        }
        for op in [Op::ZoneReset, Op::ZoneOpen, Op::ZoneAppend] {
            assert_eq!(taken(&mut *device, request(0, op, ZONE, 8)).0, Status::InvalidField, "{op}");
        }
        assert_eq!(taken(&mut *device, request(0, Op::Write, 3 * ZONE - 8, 16)).0, Status::ZoneBoundary);
        assert_eq!(counter(&*device, "conventional-writes"), 4);
        assert_eq!(counter(&*device, "refused-requests"), 4);
    }

    #[test]
    fn sequential_zones_are_written_at_their_pointers() {
        let mut device = disk();
        let first = 3 * ZONE;
        let status = |device: &mut dyn DeviceModel, op, lba| taken(device, request(0, op, lba, 8)).0;
        assert_eq!(status(&mut *device, Op::Write, first + 8), Status::ZoneInvalidWrite);
        assert_eq!(status(&mut *device, Op::Write, first), Status::Ok);
        assert_eq!(status(&mut *device, Op::Write, first), Status::ZoneInvalidWrite);
        assert_eq!(status(&mut *device, Op::ZoneAppend, first), Status::Ok);
        assert_eq!(status(&mut *device, Op::Write, first + 16), Status::Ok);
        let (reset, time) = taken(&mut *device, request(0, Op::ZoneReset, first, 8));
        assert_eq!((reset, time), (Status::Ok, Nanos::from_nanos(5_000_000)));
        assert_eq!(status(&mut *device, Op::Write, first), Status::Ok);
        // Two are open by the host; more zones can be closed than open.
        for zone in [4, 5] {
            assert_eq!(status(&mut *device, Op::ZoneOpen, zone * ZONE), Status::Ok);
        }
        assert_eq!(status(&mut *device, Op::Write, 6 * ZONE), Status::TooManyOpenZones);
        for zone in [4, 5] {
            status(&mut *device, Op::Write, zone * ZONE);
            assert_eq!(status(&mut *device, Op::ZoneClose, zone * ZONE), Status::Ok);
        }
        for zone in 6..16 {
            assert_eq!(status(&mut *device, Op::Write, zone * ZONE), Status::Ok, "{zone}");
        }
        assert_eq!((counter(&*device, "open-zones"), counter(&*device, "active-zones")), (2, 13));
    }

    #[test]
    fn a_reset_waits_for_no_other_request() {
        let mut device = disk();
        device.submit(request(1, Op::ZoneReset, 3 * ZONE, 8));
        device.submit(request(2, Op::Read, 0, 8));
        device.submit(request(3, Op::ZoneReset, 4 * ZONE, 8));
        let mut completed = Vec::new();
        advance(&mut *device, Nanos::from_nanos(4_999_999), &mut completed);
        assert_eq!(completed.iter().map(|done| done.id.0).collect::<Vec<_>>(), [2]);
        advance(&mut *device, Nanos::from_nanos(5_000_000), &mut completed);
        assert_eq!(completed.iter().map(|done| done.id.0).collect::<Vec<_>>(), [2, 1, 3]);
    }

    #[test]
    fn a_disk_goes_on_at_the_pointers_that_were_kept() {
        let mut device = disk();
        let layout = device.info().zones.unwrap();
        let mut map = ZoneMap::new(layout, device.info().capacity_sectors);
        let mut kept = vec![(0, false); 16];
        kept[3] = (24, false);
        kept[4] = (8, true);
        map.begin_with(&kept, 8).unwrap();
        assert!(device.begin_with_zones(&map.reports().collect::<Vec<_>>()));
        let status = |device: &mut dyn DeviceModel, lba| taken(device, request(0, Op::Write, lba, 8)).0;
        assert_eq!(status(&mut *device, 3 * ZONE), Status::ZoneInvalidWrite);
        assert_eq!(status(&mut *device, 3 * ZONE + 24), Status::Ok);
        assert_eq!(status(&mut *device, 4 * ZONE + 8), Status::ZoneFull);
        assert_eq!(status(&mut *device, 5 * ZONE), Status::Ok);
        assert_eq!(status(&mut *device, 0), Status::Ok);
    }

    #[test]
    fn a_stream_runs_at_the_rate_of_the_disk() {
        let rate = |device: &mut dyn DeviceModel, first: u64| {
            // Two zones from their beginnings on.
            closed_loop(device, 1, 128, |index| request(index, Op::Write, first + index * 128, 128)).last
        };
        let mut below = build_text(text(&[]).split("'''").nth(1).unwrap(), 7);
        assert_eq!(rate(&mut *disk(), 4 * ZONE), rate(&mut *below, 4 * ZONE));
    }
}
