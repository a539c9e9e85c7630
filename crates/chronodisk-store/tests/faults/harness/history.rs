//! A history: several lives of a device, each with its load, its faults and its end.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use chronodisk_store::host::Host;
use chronodisk_store::simulated::{Call, Fault, SimulatedHost, SimulatedOptions};
use chronodisk_store::{Durability, FileOperation, StoreError};

use super::client::{Client, SECTOR_BYTES};
use super::{CAPACITY_BYTES, Kind, Opened, PATH};

/// A store under a contract.
pub struct Cell<'a> {
    pub kind: &'a dyn Kind,
    pub durability: Durability,
}

impl fmt::Display for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cache = if self.durability.write_through { "without a cache" } else { "with a cache" };
        let against = if self.durability.power_cut { ", durable" } else { "" };
        write!(f, "{:?} {cache}{against}", self.kind)
    }
}

/// A promise that was broken.
#[derive(Debug)]
pub struct Violation {
    /// Name of the broken rule.
    pub rule: &'static str,
    /// The place of the mismatch in words, to repeat it.
    pub text: String,
}

/// A client's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    SmallRandom,
    Large,
    Sequential,
    FullDevice,
    FlushHeavy,
    Nothing,
}

const SHAPES: [Shape; 6] =
    [Shape::SmallRandom, Shape::Large, Shape::Sequential, Shape::FullDevice, Shape::FlushHeavy, Shape::Nothing];

/// End of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    /// The store is dropped, as when its owner fails.
    Drop,
    Kill,
    PowerCut,
}

/// PCG would do as well; this is SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

struct History<'a> {
    cell: &'a Cell<'a>,
    random: Random,
    shape: Shape,
    host: SimulatedHost,
    as_host: Arc<dyn Host>,
    client: Client,
    /// Position of a sequential client.
    position: u64,
    /// The device was made and opened at least once.
    was_open: bool,
    /// In this life something fails for another reason than space.
    hard_faults: bool,
    /// In this life space runs out.
    space_faults: bool,
    sync_failed: bool,
    trace: bool,
}

type Checked<T = ()> = Result<T, (&'static str, String)>;

/// Runs a history. Returns the number of effects of each kind of fault.
pub fn run(cell: &Cell<'_>, seed: u64) -> Result<BTreeMap<&'static str, u64>, Violation> {
    let mut random = Random(seed ^ 0xC0FF_EE00);
    let shape = random.of(&SHAPES);
    let host = SimulatedHost::new(&SimulatedOptions::new(seed));
    let mut history = History {
        cell,
        random,
        shape,
        as_host: Arc::new(host.clone()),
        host,
        client: Client::new(CAPACITY_BYTES, cell.durability),
        position: 0,
        was_open: false,
        hard_faults: false,
        space_faults: false,
        sync_failed: false,
        trace: std::env::var_os("CHRONODISK_FAULT_TRACE").is_some(),
    };
    let ended = catch_unwind(AssertUnwindSafe(|| history.live()));
    let ended = ended.unwrap_or_else(|panic| Err(("panic", message(&*panic))));
    ended.map_err(|(rule, text)| Violation { rule, text: format!("seed {seed}, {shape:?}: {text}") })?;
    Ok(history.host.effects())
}

fn message(panic: &dyn Any) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

impl History<'_> {
    fn live(&mut self) -> Checked {
        for life in 0..=self.random.below(3) {
            self.say(|| format!("life {life}"));
            let mut end = self.draw_end();
            self.inject(end);
            let opened = self.open();
            if let Some(mut store) = opened? {
                self.read_all(&mut store)?;
                let requests = if self.shape == Shape::Nothing { 0 } else { 10 + self.random.below(60) };
                for _ in 0..requests {
                    if self.host.is_dead() {
                        break;
                    }
                    self.request(&mut store)?;
                }
                if end == End::Close && !self.host.is_dead() {
                    self.close(&mut store)?;
                }
                // The call at which the process should have ended never came, so it ends now.
                if !self.host.is_dead() {
                    match end {
                        End::Close | End::Drop => {}
                        End::Kill => self.host.kill(),
                        End::PowerCut => self.host.power_cut(),
                    }
                }
                drop(store);
            } else if !self.host.is_dead() {
                end = End::Drop;
            }
            self.after(end)?;
        }
        Ok(())
    }

    fn draw_end(&mut self) -> End {
        match self.cell.durability.power_cut {
            true => self.random.of(&[End::Close, End::Drop, End::Kill, End::PowerCut, End::PowerCut]),
            false => self.random.of(&[End::Close, End::Drop, End::Kill, End::Kill]),
        }
    }

    /// Draws the faults of this life.
    fn inject(&mut self, end: End) {
        (self.hard_faults, self.space_faults, self.sync_failed) = (false, false, false);
        // Early and late calls: most calls of a store come with its first requests.
        let nth = |random: &mut Random| {
            let bound = random.of(&[4, 30, 300]);
            1 + random.below(bound)
        };
        match self.random.below(4) {
            0 => {}
            1 => {
                self.space_faults = true;
                if self.random.below(2) == 0 {
                    let nth = nth(&mut self.random);
                    self.host.inject(Call::TakesSpace, nth, Fault::FullFromNowOn);
                } else {
                    let free = self.random.below(CAPACITY_BYTES / 2);
                    self.host.set_capacity(Some(self.host.allocated_bytes() + free));
                }
            }
            _ => {
                self.hard_faults = true;
                for _ in 0..=self.random.below(3) {
                    let call = self.random.of(&[
                        Call::Any,
                        Call::Open,
                        Call::Read,
                        Call::Write,
                        Call::Write,
                        Call::Sync,
                        Call::Sync,
                        Call::SetLen,
                        Call::Allocate,
                        Call::Lock,
                        Call::Rename,
                        Call::SyncFolder,
                    ]);
                    let fault = self.random.of(&[Fault::Error, Fault::Error, Fault::ErrorsFromNowOn, Fault::Short]);
                    let nth = match call {
                        Call::Sync => 1 + self.random.below(6),
                        Call::Open | Call::SetLen | Call::Lock | Call::Rename | Call::SyncFolder => 1,
                        _ => nth(&mut self.random),
                    };
                    self.host.inject(call, nth, fault);
                    self.say(|| format!("  {fault:?} at {call:?} {nth}"));
                }
            }
        }
        let fault = match end {
            End::Kill => Fault::Kill,
            End::PowerCut => Fault::PowerCut,
            End::Close | End::Drop => return,
        };
        let call = self.random.of(&[Call::Any, Call::Any, Call::Write, Call::Sync]);
        let nth = nth(&mut self.random);
        self.host.inject(call, nth, fault);
        self.say(|| format!("  {fault:?} at {call:?} {nth}"));
    }

    /// Opens or creates the device; `None` if that fails with a reason.
    fn open(&mut self) -> Checked<Option<Opened>> {
        let path = PathBuf::from(PATH);
        let is_there = self.host.names().contains(&path);
        if self.was_open && !is_there {
            return Err(("lost", "the whole device".to_owned()));
        }
        let opened = match is_there {
            true => self.cell.kind.open(&self.as_host, self.cell.durability),
            false => self.cell.kind.create(&self.as_host, self.cell.durability),
        };
        match opened {
            Ok(store) => {
                self.was_open = true;
                Ok(Some(store))
            }
            Err(error) => {
                self.say(|| format!("  opening: {error}"));
                self.excuse("opening failed", &error)?;
                if !is_there && !self.host.is_dead() && self.host.names().contains(&path) && !self.hard_faults {
                    return Err(("a failed creation left a file", error.to_string()));
                }
                Ok(None)
            }
        }
    }

    /// An error needs a reason.
    fn excuse(&self, rule: &'static str, error: &StoreError) -> Checked {
        let has_reason = self.hard_faults || self.space_faults || self.host.is_dead();
        if has_reason { Ok(()) } else { Err((rule, format!("without a reason: {error}"))) }
    }

    fn request(&mut self, store: &mut Opened) -> Checked {
        let sectors = self.client.sectors();
        let kind = self.random.below(100);
        let flushes = match (self.shape, self.cell.durability.write_through) {
            (Shape::FlushHeavy, false) => 50,
            (_, false) => 8,
            (_, true) => 2,
        };
        if kind < flushes {
            return self.flush(store);
        }
        let longest = match self.shape {
            Shape::SmallRandom | Shape::FlushHeavy | Shape::Nothing => 16,
            Shape::Large => 1000,
            Shape::Sequential => 64,
            Shape::FullDevice => 256,
        };
        let count = (1 + self.random.below(longest)).min(sectors);
        let sector = match self.shape {
            Shape::Sequential | Shape::FullDevice => {
                let sector = if self.position + count > sectors { 0 } else { self.position };
                self.position = sector + count;
                sector
            }
            // Some addresses are used repeatedly.
            _ if self.random.below(3) == 0 => self.random.below(64).min(sectors - count),
            _ => self.random.below(sectors - count + 1),
        };
        match kind - flushes {
            0..20 => self.read(store, sector, count),
            20..26 => self.zero(store, sector, count, "write_zeroes"),
            26..30 => self.zero(store, sector, count, "discard"),
            30..32 => self.zero(store, sector, count, "reserve_zeroes"),
            _ => self.write(store, sector, count),
        }
    }

    fn read(&mut self, store: &mut Opened, sector: u64, count: u64) -> Checked {
        let mut bytes = vec![0xAA; (count * SECTOR_BYTES) as usize];
        let read = store.read(sector * SECTOR_BYTES, &mut bytes);
        self.say(|| format!("  read {sector}+{count} {}", outcome(&read)));
        match read {
            Ok(()) => self.client.read(sector, &bytes).map_err(|text| ("wrong bytes", text)),
            Err(error) if self.host.is_dead() || self.hard_faults => self.excuse("reading failed", &error),
            Err(error) if self.space_faults => Err(("a read fails on a full disk", error.to_string())),
            Err(error) => Err(("a read fails", error.to_string())),
        }
    }

    fn write(&mut self, store: &mut Opened, sector: u64, count: u64) -> Checked {
        let (value, bytes) = self.client.compose(sector, count);
        let written = store.write(sector * SECTOR_BYTES, &bytes);
        self.say(|| format!("  write {value} at {sector}+{count} {}", outcome(&written)));
        self.changed(sector, count, value, written)
    }

    fn zero(&mut self, store: &mut Opened, sector: u64, count: u64, how: &str) -> Checked {
        let (offset_bytes, len_bytes) = (sector * SECTOR_BYTES, count * SECTOR_BYTES);
        let zeroed = match how {
            "discard" => store.discard(offset_bytes, len_bytes),
            "reserve_zeroes" => store.reserve_zeroes(offset_bytes, len_bytes),
            _ => store.write_zeroes(offset_bytes, len_bytes),
        };
        self.say(|| format!("  {how} {sector}+{count} {}", outcome(&zeroed)));
        self.changed(sector, count, 0, zeroed)
    }

    fn changed(&mut self, sector: u64, count: u64, value: u64, result: Result<(), StoreError>) -> Checked {
        self.client.changed(sector, count, value, &result);
        self.note(&result);
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.excuse("writing failed", &error),
        }
    }

    fn flush(&mut self, store: &mut Opened) -> Checked {
        let flushed = store.flush();
        self.say(|| format!("  flush {}", outcome(&flushed)));
        self.check_flush(&flushed)
    }

    fn close(&mut self, store: &mut Opened) -> Checked {
        let closed = store.close();
        self.say(|| format!("  close {}", outcome(&closed)));
        self.check_flush(&closed)
    }

    fn check_flush(&mut self, result: &Result<(), StoreError>) -> Checked {
        if self.sync_failed && result.is_ok() {
            return Err(("a failed synchronisation was forgotten", "a later flush succeeded".to_owned()));
        }
        self.client.flushed(result);
        self.note(result);
        match result {
            Ok(()) => Ok(()),
            Err(error) if !self.hard_faults && !self.host.is_dead() && self.cell.kind.reserves_space() => {
                Err(("acknowledged bytes do not fit on the disk", error.to_string()))
            }
            Err(error) => self.excuse("flushing failed", error),
        }
    }

    fn note(&mut self, result: &Result<(), StoreError>) {
        self.sync_failed |= matches!(result, Err(StoreError::Io { operation: FileOperation::Sync, .. }));
    }

    fn read_all(&mut self, store: &mut Opened) -> Checked {
        const COUNT: u64 = 100;
        let mut sector = 0;
        while sector < self.client.sectors() && !self.host.is_dead() {
            let count = COUNT.min(self.client.sectors() - sector);
            self.read(store, sector, count)?;
            sector += count;
        }
        Ok(())
    }

    /// Restarts and repairs the host after the end of a life. The device is opened and compared.
    fn after(&mut self, end: End) -> Checked {
        let power_cut = end == End::PowerCut;
        let lost = match self.space_faults && matches!(end, End::Close | End::Drop) {
            true => "lost on a full disk",
            false => "lost",
        };
        self.host.restart();
        self.host.repair();
        self.host.set_capacity(None);
        (self.hard_faults, self.space_faults, self.sync_failed) = (false, false, false);
        self.say(|| format!("  after {end:?}"));
        self.client.ended(power_cut);
        let Some(mut store) = self.open()? else { return Ok(()) };
        self.read_all(&mut store).map_err(|(rule, text)| (if rule == "wrong bytes" { lost } else { rule }, text))?;
        if power_cut || !self.cell.durability.power_cut {
            self.client.settle();
        }
        // The end of this look is a life's end, too; it need not be orderly.
        drop(store);
        Ok(())
    }

    fn say(&self, text: impl FnOnce() -> String) {
        if self.trace {
            eprintln!("{}", text());
        }
    }
}

fn outcome(result: &Result<(), StoreError>) -> String {
    result.as_ref().map_or_else(ToString::to_string, |()| "ok".to_owned())
}
