//! Durable contents of files in a guest survive a death, on a store that squashes other files. The tests cover each
//! file system with a classifier, several kinds of death, and several patterns of durability calls.
//!
//! A program makes contents durable, and prints the path, length and checksum of each such file. Then a process or
//! machine dies: the guest's kernel by a panic or a signal, one process of the guest, the launcher, all of them, or the
//! run by three signals. Or the power of the store's host fails, which is simulated: the guest's recorded writes are
//! replayed to an image on a simulated host. The next guest mounts the device, so that the file system recovers, and
//! reads all files. Files that no rule keeps must be there, readable and of equal length.
//!
//! An ordinary run shows each file system one death or two, with all patterns in one run. `CHRONODISK_LONG` goes
//! through all deaths, patterns, devices and single calls. `CHRONODISK_KILLS=100` repeats the ordinary runs, with other
//! deaths and a program that continues to write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_squash::{NameRule, SquashOptions, SquashStore, Treatment};
use chronodisk_store::host::Host;
use chronodisk_store::simulated::{SimulatedHost, SimulatedOptions};
use chronodisk_store::{Durability, Recording, Store};

use crate::command::long;
use crate::folder::{TestFolder, signal};
use crate::guest::{can_run, family, wait_until_gone};
use crate::kills;

const PROMISES: &str = include_str!("promises.py");
const CHECK: &str = include_str!("promises_check.py");

/// The process or machine that dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    /// The guest's kernel, by a panic.
    Panic,
    /// The guest's kernel, by SIGKILL.
    Kernel,
    /// One process of the guest.
    Process,
    /// The command; its child processes end by themselves.
    Launcher,
    /// Every process of the run.
    All,
    /// The run, by up to three SIGTERMs.
    Terms,
    /// The power of the store's host.
    Power,
}

const DEATHS: [Death; 7] =
    [Death::Panic, Death::Kernel, Death::Process, Death::Launcher, Death::All, Death::Terms, Death::Power];

/// Device with a volatile cache, and one without.
const DEVICES: [&str; 2] = ["samsung-970-pro", "constant-100us"];

const COMMON: &str = "whole,new_folder,rename,link,o_dsync,overwrite,set_aside,new";

/// Each file system with a classifier: its capacity, and its durability calls. Most files are durable only by the log.
const FILE_SYSTEMS: [(&str, &str, &str); 6] = [
    ("ext4", "128MiB", COMMON),
    ("ext3", "128MiB", COMMON),
    ("ext2", "128MiB", "whole,new_folder,rename,link,o_dsync,overwrite,set_aside,new,names"),
    ("xfs", "300MiB", "whole,new_folder,rename,link,o_dsync,overwrite,set_aside,reflink,new"),
    ("btrfs", "256MiB", "whole,new_folder,subvolume,rename,link,o_dsync,overwrite,set_aside,in_place,reflink,many,new"),
    ("f2fs", "128MiB", COMMON),
];

#[derive(Clone, Copy, Debug)]
struct Cell {
    file_system: &'static str,
    capacity: &'static str,
    promises: &'static str,
    device: &'static str,
    /// The pattern of files to be kept.
    keep: Option<&'static str>,
    death: Death,
    /// The program continues to write until the death.
    busy: bool,
}

/// Length and checksum of each file, by its path.
type Files = BTreeMap<String, (String, String)>;

impl Cell {
    fn of(file_system: &str) -> Self {
        let (file_system, capacity, promises) = *FILE_SYSTEMS.iter().find(|it| it.0 == file_system).unwrap();
        let (device, death) = (DEVICES[0], Death::Panic);
        Cell { file_system, capacity, promises, device, keep: Some("*"), death, busy: false }
    }

    fn store_flags(&self) -> Vec<&'static str> {
        let keep = self.keep.map_or(vec![], |pattern| vec!["--keep", pattern]);
        [&["--store", "disk", "--squash"], &keep[..]].concat()
    }

    fn run_flags(&self, fs: &'static str) -> Vec<&'static str> {
        ["run", "--device", self.device, "--capacity", self.capacity, "--fs", fs].to_vec()
    }

    /// Arguments of a run on the file system `fs`. For F2FS, the program in the guest makes and mounts it, because
    /// `run` does not.
    fn on(&self, fs: &'static str, store: &[&'static str], program: &[&str]) -> Vec<String> {
        let is_f2fs = self.file_system == "f2fs";
        let mut all: Vec<String> =
            self.run_flags(if is_f2fs { "none" } else { fs }).iter().map(|it| it.to_string()).collect();
        all.extend(store.iter().map(|it| it.to_string()));
        all.push("--".to_owned());
        if is_f2fs {
            let makes = if fs == "existing" { ":" } else { "mkfs.f2fs -q -f /dev/vda >&2" };
            let script = format!(
                "mkdir -p /lib/modules
                ln -sfn /usr/lib/uml/modules/$(uname -r) /lib/modules/$(uname -r)
                modprobe f2fs && {makes} && mount -t f2fs /dev/vda /mnt && \"$@\" && umount /mnt"
            );
            all.extend(["sh".to_owned(), "-c".to_owned(), script, "sh".to_owned()]);
        }
        all.extend(program.iter().map(|it| it.to_string()));
        all
    }

    /// Runs a guest that makes contents durable and then dies. Returns these contents, and the run's output.
    fn promise(&self, place: &TestFolder, more: &[&'static str]) -> (Files, String) {
        let end = match (self.death, self.busy) {
            (Death::Panic | Death::Power, _) => "panic",
            (_, true) => "busy",
            (_, false) => "quiet",
        };
        // On F2FS, and on some others, the file system is unmounted once before, which only root may do.
        let again = is_root() && (self.file_system == "f2fs" || self.keep == Some("*.db"));
        let last = if again { format!("again-{end}") } else { end.to_owned() };
        let store = [&self.store_flags()[..], more].concat();
        let program = ["python3", "-c", PROMISES, "/mnt", self.promises, &last];
        let arguments = self.on(self.file_system, &store, &program);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let mut child = place.chronodisk(&arguments).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut is_done = false;
        let mut promised = Files::new();
        for line in lines {
            if line == "done" {
                is_done = true;
                break;
            }
            promised.extend(file_of(&line));
        }
        let all = family(child.id());
        if is_done && self.busy {
            std::thread::sleep(Duration::from_millis(700));
        }
        if is_done {
            self.death.strike(child.id(), &all);
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        wait_until_gone(&all);
        assert!(is_done, "{self:?}: not all was promised: {said}");
        (promised, said)
    }

    /// The contents found by the next guest.
    fn found(&self, place: &TestFolder, store: &[&'static str]) -> (Files, String) {
        let arguments = self.on("existing", store, &["python3", "-c", CHECK, "/mnt"]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = place.chronodisk(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{self:?}: {said}");
        (String::from_utf8_lossy(&output.stdout).lines().filter_map(file_of).collect(), said)
    }

    /// The durable contents that are missing.
    fn lost(&self) -> Vec<String> {
        let place = TestFolder::new();
        let (promised, found, said) = if self.death == Death::Power {
            let (promised, _) = self.promise(&place, &["--record-store", "recording"]);
            self.cut_power(&place);
            let (found, said) = self.found(&place, &["--store", "survivor"]);
            (promised, found, said)
        } else {
            let (promised, told) = self.promise(&place, &[]);
            // The launcher survives and reports the state of the store.
            let tells = matches!(self.death, Death::Panic | Death::Kernel | Death::Process);
            let by_names = self.keep.is_some() && self.file_system == "btrfs";
            assert!(!(tells && by_names) || told.contains("was not unmounted"), "{self:?}: {told}");
            let (found, said) = self.found(&place, &self.store_flags());
            (promised, found, said)
        };
        // Two files are durable before the death at least.
        assert!(promised.len() >= 2, "{self:?}: {promised:?}");
        let is_kept = |name: &str| self.keep.is_some_and(|keep| keep == "*" || name.ends_with(&keep[1..]));
        let mut lost: Vec<String> = promised
            .iter()
            .filter(|(name, expected)| match found.get(*name) {
                Some(found) if is_kept(name) => found != *expected,
                Some(found) => found.0 != expected.0,
                None => true,
            })
            .map(|(name, expected)| format!("{name}: {expected:?}, found {:?}", found.get(name)))
            .collect();
        lost.extend(said.lines().filter(|line| line.contains("before the files had their names")).map(str::to_owned));
        lost
    }

    /// Replays the guest's writes to an image on a simulated host, cuts that host's power, and writes the surviving
    /// contents to the file `survivor`.
    fn cut_power(&self, place: &TestFolder) {
        let host = SimulatedHost::new(&SimulatedOptions::new(self.file_system.len() as u64));
        let as_host: Arc<dyn Host> = Arc::new(host.clone());
        let has_cache = self.device == DEVICES[0];
        let rule = |pattern: &str| NameRule { names: pattern.parse().unwrap(), treatment: Treatment::Keep };
        let options = SquashOptions {
            durability: Durability { write_through: !has_cache, power_cut: true },
            host: as_host,
            names: self.keep.map(rule).into_iter().collect(),
            ..SquashOptions::default()
        };
        let mib: u64 = self.capacity.strip_suffix("MiB").unwrap().parse().unwrap();
        let path = Path::new("/folder/device");
        let mut store = SquashStore::create(path, mib << 20, &options).unwrap();
        for change in Recording::open(place.path("recording")).unwrap().changes() {
            change.unwrap().apply(&mut store).unwrap();
        }
        host.power_cut();
        drop(store);
        host.restart();
        let mut store = SquashStore::open(path, mib << 20, &options).unwrap();
        let mut file = File::create(place.path("survivor")).unwrap();
        let mut bytes = vec![0; 1 << 20];
        for at in (0..mib << 20).step_by(bytes.len()) {
            store.read(at, &mut bytes).unwrap();
            file.write_all(&bytes).unwrap();
        }
    }
}

impl Death {
    /// Kills these processes of a run.
    fn strike(self, launcher: u32, all: &[u32]) {
        let is_kernel = |pid: &&u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("linux.uml") && !line.contains("guest-backend")
        };
        let kernel = || *all[1..].iter().find(is_kernel).expect("a guest's kernel");
        match self {
            Death::Panic | Death::Power => {}
            Death::Kernel => signal(kernel() as i32, libc::SIGKILL),
            Death::Process => signal(*family(kernel()).last().unwrap() as i32, libc::SIGKILL),
            Death::Launcher => signal(launcher as i32, libc::SIGKILL),
            Death::All => all.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL)),
            Death::Terms => {
                for _ in 0..3 {
                    signal(launcher as i32, libc::SIGTERM);
                    std::thread::sleep(Duration::from_millis(200));
                }
            }
        }
    }
}

/// Parses a line with a file's path, its length and the checksum of its bytes.
fn file_of(line: &str) -> Option<(String, (String, String))> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, length, sum] = words[..] else { return None };
    Some((name.to_owned(), (length.to_owned(), sum.to_owned())))
}

fn is_root() -> bool {
    // SAFETY: a system call without arguments.
    unsafe { libc::geteuid() == 0 }
}

/// The test cases of a file system: the first death in an ordinary run, all deaths in the long form.
fn cells(file_system: &str, first: Death) -> Vec<Cell> {
    let plain = Cell::of(file_system);
    let from = DEATHS.iter().position(|death| *death == first).unwrap();
    let deaths = |round: u64| DEATHS[(from + round as usize) % DEATHS.len()];
    let mut cells: Vec<Cell> =
        (0..kills(1)).map(|round| Cell { death: deaths(round), busy: round > 0, ..plain }).collect();
    if long() {
        for (death, keep) in
            DEATHS.into_iter().flat_map(|death| [(death, Some("*.db")), (death, None), (death, Some("*"))])
        {
            cells.push(Cell { death, keep, ..plain });
        }
        for device in DEVICES {
            let single = plain.promises.split(',').flat_map(|promises| {
                [Death::Panic, Death::Launcher].map(|death| Cell {
                    promises,
                    death,
                    device,
                    keep: Some("*.db"),
                    ..plain
                })
            });
            cells.extend(single);
        }
    }
    // Names are not read on F2FS, so a rule would keep all files.
    cells.iter_mut().filter(|cell| cell.file_system == "f2fs").for_each(|cell| cell.keep = None);
    cells
}

fn lose_nothing(cells: &[Cell]) {
    if !can_run() {
        return;
    }
    let needed = match cells[0].file_system {
        "ext2" | "ext3" => "mkfs.ext4".to_owned(),
        file_system => format!("mkfs.{file_system}"),
    };
    if !["/sbin", "/usr/sbin", "/usr/bin"].iter().any(|folder| Path::new(folder).join(&needed).exists()) {
        println!("SKIPPED: no {needed}");
        return;
    }
    if cells[0].file_system == "f2fs" && !is_root() {
        println!("SKIPPED: only root may mount, in a guest too");
        return;
    }
    let mut all_lost = Vec::new();
    for cell in cells {
        let lost = cell.lost();
        println!("{cell:?}: {} files lost", lost.len());
        all_lost.extend(lost.into_iter().map(|file| format!("{cell:?}: {file}")));
    }
    assert!(all_lost.is_empty(), "{}", all_lost.join("\n"));
}

#[test]
fn files_on_ext4_survive_a_death() {
    lose_nothing(&cells("ext4", Death::Terms));
}

#[test]
fn files_on_ext3_survive_a_death() {
    if long() {
        lose_nothing(&cells("ext3", Death::Terms));
    }
}

#[test]
fn files_on_ext2_survive_a_death() {
    lose_nothing(&cells("ext2", Death::All));
}

#[test]
fn files_on_xfs_survive_a_death() {
    lose_nothing(&cells("xfs", Death::Process));
}

#[test]
fn files_on_btrfs_survive_a_death() {
    lose_nothing(&cells("btrfs", Death::Kernel));
}

#[test]
fn files_on_btrfs_survive_the_launchers_death() {
    let cell = Cell { death: Death::Launcher, keep: Some("*.db"), device: DEVICES[1], busy: true, ..Cell::of("btrfs") };
    lose_nothing(&[cell]);
}

#[test]
fn files_on_btrfs_survive_a_power_cut() {
    lose_nothing(&[Cell { death: Death::Power, ..Cell::of("btrfs") }]);
}

/// F2FS keeps the mark of an unmount in its checkpoint while programs synchronise files.
#[test]
fn files_on_f2fs_survive_a_death() {
    lose_nothing(&cells("f2fs", Death::Panic));
}
