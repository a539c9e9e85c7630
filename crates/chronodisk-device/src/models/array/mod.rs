//! Arrays of devices, kind `array`, as built by the Linux md driver. Any model can be a member, including other arrays.
//!
//! ```toml
//! kind = "array"
//! level = "raid5"               # linear, raid0, raid1, raid4, raid5, raid6, raid10
//! member = "first-disk"         # or members = ["first-disk", "my-disk.toml"]
//! count = 8
//! chunk = "512 KiB"             # the default; not for linear and raid1
//! layout = "left-symmetric"     # raid5, raid6: the default; raid10: near, far or offset
//! copies = 2                    # raid10: the default
//! failed = [2]                  # numbers of members that are gone, counted from 0
//! fail-at = "30 s"              # when they go; from the start if missing
//! read-policy = "nearest"       # raid1, raid10: the default; round-robin, fewest-outstanding, primary
//! stripe-cache = 256            # raid4, raid5, raid6: rows of blocks in the stripe cache; the default
//! spares = ["first-disk"]       # devices that replace lost members; levels with redundancy
//! sync-speed-max = "204.8 MB/s" # most speed of a rebuild on an idle array; the default
//! sync-speed-min = "1.024 MB/s" # speed of a rebuild beside other requests; the default
//! sync-window = "1 MiB"         # sectors of each member that are rebuilt at a time; the default
//! bus-rate = "160 MB/s"         # members behind one bus, see the module `bus`; with bus-overhead, bus-arbitration
//! ```
//!
//! Modelled:
//! - A request is split at chunks. Adjacent pieces on a member become one request, as the block layer merges them. The
//!   request completes with its last part, with the worst of the members' statuses. Members of unequal size are used up
//!   to the smallest one's size (`linear`: completely).
//! - RAID 1 and 10 write all copies and read one (`balance`).
//! - RAID 4, 5 and 6 write through a cache of stripes, rows of 4 KiB blocks (`stripes`). Adjacent writes gather in a
//!   row before it is written. The parity is kept by read-modify-write or reconstruct-write, the one with fewer reads
//!   (`parity`). Rows covered completely are written at once.
//! - Nothing is submitted to a failed member. Its data are read from copies or computed from the row; a row that is
//!   handled after a failure takes it into account. With a failed member, RAID 4, 5 and 6 also read through the cache.
//! - Reads that fail are repaired from the other members, and members that fail a write are dropped (`repair`).
//! - A lost member is rebuilt onto a spare in the background (`rebuild`).
//! - A flush goes to all members, `fua` with the data and parity writes of its rows. A write of zeros goes as such to
//!   the members; on rows of chunks with parity that it covers in part, it is a plain write. A discard with parity
//!   reaches the rows that it covers completely, as in md. The array takes discards if all its members do.
//!
//! Not modelled: the time of the host's processor (parity, copying), bitmaps and journals, growth of md's stripe
//! cache, and reads that wait for a write to the same row.

mod at_risk;
mod balance;
mod jobs;
mod layout;
mod parity;
mod parts;
mod policy;
mod rebuild;
mod repair;
mod rows;
mod runs;
mod stripes;
mod volatile;
mod windows;

use std::sync::Arc;

use chronodisk_sim::{Nanos, RandomStream, SECTOR_BYTES};

use crate::composite::{Composite, Members};
use crate::fields::{Fields, ProfileError};
use crate::footprint;
use crate::models::blueprint::{Blueprint, Design, FindMembers};
use crate::models::bus;
use crate::quantity::{Bytes, Rate};
use crate::{BuildOptions, DeviceInfo, DeviceModel};
use at_risk::AtRisk;
use balance::{Balance, ReadPolicy};
use jobs::BlockSize;
pub(crate) use layout::MAX_MEMBERS;
use layout::{CopyLayout, Layout, MemberSet, ParityLayout, Shape};
use policy::Array;
use rebuild::Pace;
use stripes::Stripes;

/// The level of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Linear,
    Raid0,
    Raid1,
    Raid4,
    Raid5,
    Raid6,
    Raid10,
}

const LEVELS: &[(&str, Level)] = &[
    ("linear", Level::Linear),
    ("raid0", Level::Raid0),
    ("raid1", Level::Raid1),
    ("raid4", Level::Raid4),
    ("raid5", Level::Raid5),
    ("raid6", Level::Raid6),
    ("raid10", Level::Raid10),
];

/// mdadm(8), `--layout`.
const PARITY_LAYOUTS: &[(&str, ParityLayout)] = &[
    ("left-asymmetric", ParityLayout::LeftAsymmetric),
    ("right-asymmetric", ParityLayout::RightAsymmetric),
    ("left-symmetric", ParityLayout::LeftSymmetric),
    ("right-symmetric", ParityLayout::RightSymmetric),
    ("parity-first", ParityLayout::ParityFirst),
    ("parity-last", ParityLayout::ParityLast),
];

const COPY_LAYOUTS: &[(&str, CopyLayout)] =
    &[("near", CopyLayout::Near), ("far", CopyLayout::Far), ("offset", CopyLayout::Offset)];

const READ_POLICIES: &[(&str, ReadPolicy)] = &[
    ("nearest", ReadPolicy::Nearest),
    ("round-robin", ReadPolicy::RoundRobin),
    ("fewest-outstanding", ReadPolicy::FewestOutstanding),
    ("primary", ReadPolicy::Primary),
];

/// mdadm's default chunk since its version 3.1.
const DEFAULT_CHUNK: Bytes = Bytes(512 << 10);

/// Default of `stripe_cache_size` in Linux's `drivers/md/raid5.c` (`NR_STRIPES`).
const DEFAULT_STRIPE_CACHE: u32 = 256;

/// Defaults of `speed_limit_min` and `speed_limit_max` in md(4): 1000 and 200000 KiB/s.
const DEFAULT_SYNC_SPEEDS: [Rate; 2] = [Rate(1_000 << 10), Rate(200_000 << 10)];

/// As many sectors as md's stripe cache has of a member by default.
const DEFAULT_SYNC_WINDOW: Bytes = Bytes(1 << 20);

/// Kind `array`: the keys as the module shows them.
pub(crate) fn parse(fields: &mut Fields<'_>, found: &mut dyn FindMembers) -> Result<Blueprint, ProfileError> {
    let members = found.several(fields, MAX_MEMBERS)?;
    let layout = Arc::new(parse_layout(fields, &members)?);
    let (failed, failing) = parse_failures(fields, &layout)?;
    let policy = match layout.shape {
        Shape::Copies { copies: 2.., .. } => fields.choice_or("read-policy", READ_POLICIES, ReadPolicy::Nearest)?,
        _ => ReadPolicy::Primary,
    };
    let most_stripes = match layout.shape {
        Shape::Parity { .. } => fields.optional_count("stripe-cache", 1..=32_768)?.unwrap_or(DEFAULT_STRIPE_CACHE),
        _ => 1,
    };
    let bus = bus::parse(fields)?;
    let (spares, pace) = parse_spares(fields, &members, &layout, found)?;
    let size = BlockSize::new(layout.chunk_sectors, sizes(&members).0 / SECTOR_BYTES);
    let (count, devices) = (spares.len(), [members, spares].concat());
    let blueprint = blueprint(&devices, layout, bus, most_stripes, move |layout, turning| {
        let balance = Balance::new(policy, layout.members, turning);
        let array = Array::new(layout, failed, failing, balance, (most_stripes, size));
        if count > 0 { array.with_spares(count, pace) } else { array }
    });
    Ok(blueprint)
}

/// Several of a device, concatenated: level `linear`.
pub(crate) fn in_a_row(member: &Arc<Design>, count: usize) -> Blueprint {
    let members = vec![Arc::clone(member); count];
    let layout = Arc::new(linear(&members));
    blueprint(&members, layout, None, 1, |layout, turning| {
        let balance = Balance::new(ReadPolicy::Primary, layout.members, turning);
        let size = BlockSize::new(layout.chunk_sectors, 1);
        Array::new(layout, MemberSet::default(), None, balance, (1, size))
    })
}

/// The array with the policy that `policy` makes from the layout and the rotational members. Spares follow the members.
fn blueprint(
    members: &[Arc<Design>],
    layout: Arc<Layout>,
    bus: Option<bus::Bus>,
    stripes: u32,
    policy: impl Fn(Arc<Layout>, MemberSet) -> Array + Send + Sync + 'static,
) -> Blueprint {
    let designs: Arc<[Arc<Design>]> = members.into();
    let capacity_bytes = layout.capacity_sectors * SECTOR_BYTES;
    // A write with parity reads the old data first and then writes.
    let phases = if matches!(layout.shape, Shape::Parity { .. }) { 2 } else { 1 };
    let make = move |info: DeviceInfo, seed: u64| -> Box<dyn DeviceModel> {
        let members = build_members(&designs, seed);
        let mut turning = MemberSet::default();
        for (number, _) in
            members.iter().take(layout.members).enumerate().filter(|(_, member)| member.info().rotational)
        {
            turning.insert(number);
        }
        let info = array_info(info, &layout, &members);
        Box::new(Composite::new(info, Members::new(members, bus.clone()), policy(Arc::clone(&layout), turning)))
    };
    let memory_bytes = footprint::sum(members.iter().map(|member| member.memory_bytes_max()))
        .saturating_add(footprint::DEVICE_BYTES)
        .saturating_add(Stripes::memory_bytes(stripes, members.len()))
        .saturating_add(AtRisk::memory_bytes())
        .saturating_add(footprint::allocations_bytes(members.len() as u64, MEMBER_BYTES));
    Blueprint::new(move |_info| memory_bytes, make).sized(capacity_bytes).over(members).in_phases(phases)
}

/// State per member in bytes: its place in the layout, its runs, its last request.
const MEMBER_BYTES: u64 = 512;

/// The members, each with a seed of its own, so that their spindles are not in phase.
fn build_members(designs: &[Arc<Design>], seed: u64) -> Vec<Box<dyn DeviceModel>> {
    let mut seeds = RandomStream::new(seed, "array", "members");
    let mut build = |design: &Arc<Design>| {
        let options = BuildOptions { seed: seeds.next_u64(), ..BuildOptions::default() };
        design.build(&options).expect("its own capacity fits")
    };
    designs.iter().map(&mut build).collect()
}

/// The array's properties, derived from its members'.
fn array_info(info: DeviceInfo, layout: &Layout, members: &[Box<dyn DeviceModel>]) -> DeviceInfo {
    let units: Option<Vec<u32>> = members.iter().map(|member| member.info().discard_unit_sectors).collect();
    let largest = units.and_then(|units| units.into_iter().max());
    let discard_unit_sectors = largest.and_then(|unit| match layout.shape {
        Shape::Parity { .. } => u32::try_from(layout.row_sectors()).ok(),
        _ => Some(unit),
    });
    let volatile_cache = members.iter().any(|member| member.info().volatile_cache);
    DeviceInfo { discard_unit_sectors, volatile_cache, ..info }
}

/// The largest logical block of the members in bytes, and how many sectors of each are used.
fn sizes(members: &[Arc<Design>]) -> (u64, Vec<u64>) {
    let block = members.iter().map(|member| member.logical_block_bytes()).max().unwrap_or(SECTOR_BYTES);
    (block, members.iter().map(|member| member.capacity_bytes() / block * (block / SECTOR_BYTES)).collect())
}

fn linear(members: &[Arc<Design>]) -> Layout {
    Layout::linear(&sizes(members).1)
}

fn parse_layout(fields: &mut Fields<'_>, members: &[Arc<Design>]) -> Result<Layout, ProfileError> {
    let level = fields.choice("level", LEVELS)?;
    let (block, sizes) = sizes(members);
    let smallest = sizes.iter().copied().min().unwrap_or(0);
    let least = match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => 1,
        Level::Raid10 => 2,
        Level::Raid4 | Level::Raid5 => 3,
        Level::Raid6 => 4,
    };
    if members.len() < least {
        return Err(fields.error_at("level", format!("{} members; expected at least {least}", members.len())));
    }
    match level {
        Level::Linear => return Ok(linear(members)),
        Level::Raid1 => return Ok(Layout::mirrored(members.len(), smallest)),
        Level::Raid0 | Level::Raid4 | Level::Raid5 | Level::Raid6 | Level::Raid10 => {}
    }
    let Bytes(chunk) = fields.quantity_or("chunk", DEFAULT_CHUNK)?;
    if chunk == 0 || !chunk.is_multiple_of(block) || chunk > LARGEST_CHUNK_BYTES {
        let (block, most) = (Bytes(block), Bytes(LARGEST_CHUNK_BYTES));
        return Err(
            fields.error_at("chunk", format!("expected a multiple of the members' block, {block}, up to {most}"))
        );
    }
    let chunk = chunk / SECTOR_BYTES;
    let count = members.len();
    let rotating = |fields: &mut Fields<'_>, parities| {
        let layout = fields.choice_or("layout", PARITY_LAYOUTS, ParityLayout::LeftSymmetric)?;
        Ok::<_, ProfileError>(Layout::with_parity(count, smallest, chunk, parities, layout))
    };
    let layout = match level {
        Level::Raid4 => Layout::with_parity(count, smallest, chunk, 1, ParityLayout::ParityLast),
        Level::Raid5 => rotating(fields, 1)?,
        Level::Raid6 => rotating(fields, 2)?,
        Level::Raid10 => {
            let layout = fields.choice_or("layout", COPY_LAYOUTS, CopyLayout::Near)?;
            let copies = fields.optional_count("copies", 2..=count as u32)?.unwrap_or(2);
            Layout::striped(count, smallest, chunk, copies as usize, layout)
        }
        Level::Linear | Level::Raid0 | Level::Raid1 => Layout::striped(count, smallest, chunk, 1, CopyLayout::Near),
    };
    if layout.capacity_sectors == 0 {
        return Err(fields.error_at("chunk", format!("the smallest member, {}, is too small", Bytes(smallest * 512))));
    }
    Ok(layout)
}

const LARGEST_CHUNK_BYTES: u64 = 1 << 30;

/// Members that have failed from the start, and those that fail later.
type Failures = (MemberSet, Option<(Nanos, MemberSet)>);

fn parse_failures(fields: &mut Fields<'_>, layout: &Layout) -> Result<Failures, ProfileError> {
    let mut gone = MemberSet::default();
    for member in fields.wholes("failed", MAX_MEMBERS)? {
        let member = usize::try_from(member).unwrap_or(usize::MAX);
        if member >= layout.members || gone.contains(member) {
            let last = layout.members - 1;
            return Err(fields.error_at("failed", format!("expected numbers of members, 0 to {last}, each once")));
        }
        gone.insert(member);
    }
    if !layout.survives(gone) {
        return Err(fields.error_at("failed", "the array does not survive the loss of these members"));
    }
    let at = fields.quantity_or("fail-at", Nanos::ZERO)?;
    if gone.is_empty() && fields.has("fail-at") {
        return Err(fields.error_at("fail-at", "there are no `failed` members"));
    }
    if at > Nanos::ZERO { Ok((MemberSet::default(), Some((at, gone)))) } else { Ok((gone, None)) }
}

/// The spares, and the limits of rebuilds.
fn parse_spares(
    fields: &mut Fields<'_>,
    members: &[Arc<Design>],
    layout: &Layout,
    found: &mut dyn FindMembers,
) -> Result<(Vec<Arc<Design>>, Pace), ProfileError> {
    let spares = found.listed(fields, "spares", MAX_MEMBERS - members.len())?;
    if !spares.is_empty() && layout.copies() == 1 && !layout.has_parity() {
        return Err(fields.error_at("spares", "the level has no redundancy from which to rebuild a member"));
    }
    let (block, used_bytes) = (sizes(members).0, layout.used_sectors() * SECTOR_BYTES);
    if let Some(spare) = spares.iter().find(|spare| spare.capacity_bytes() < used_bytes) {
        let (small, used) = (Bytes(spare.capacity_bytes()), Bytes(used_bytes));
        return Err(fields.error_at("spares", format!("a spare of {small}; the array uses {used} of each member")));
    }
    if spares.iter().any(|spare| spare.logical_block_bytes() > block) {
        let block = Bytes(block);
        return Err(fields.error_at("spares", format!("a spare's block is larger than the members' block, {block}")));
    }
    let [min, max] = DEFAULT_SYNC_SPEEDS;
    let max = fields.quantity_or("sync-speed-max", max)?;
    let min = fields.quantity_or("sync-speed-min", min.min(max))?;
    if min > max || min == Rate(0) {
        return Err(
            fields.error_at("sync-speed-min", format!("expected more than zero, up to `sync-speed-max`, {max}"))
        );
    }
    let Bytes(window) = fields.quantity_or("sync-window", DEFAULT_SYNC_WINDOW)?;
    if window == 0 || !window.is_multiple_of(block.max(PAGE_BYTES)) || window > LARGEST_WINDOW_BYTES {
        let (unit, most) = (Bytes(block.max(PAGE_BYTES)), Bytes(LARGEST_WINDOW_BYTES));
        return Err(fields.error_at("sync-window", format!("expected a multiple of {unit}, up to {most}")));
    }
    if let Some(key) = SYNC_KEYS.into_iter().find(|key| spares.is_empty() && fields.has(key)) {
        return Err(fields.error_at(key, "there are no `spares`"));
    }
    Ok((spares, Pace { min, max, window_sectors: window / SECTOR_BYTES }))
}

const SYNC_KEYS: [&str; 3] = ["sync-speed-max", "sync-speed-min", "sync-window"];
const PAGE_BYTES: u64 = jobs::PAGE_SECTORS * SECTOR_BYTES;
const LARGEST_WINDOW_BYTES: u64 = 1 << 30;

#[cfg(test)]
mod rebuild_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing_tests;
