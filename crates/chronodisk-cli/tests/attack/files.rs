//! A guest program writes files and reports each one that is guaranteed to be durable. Its guest dies, and the next
//! guest looks for these files.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::time::{Duration, Instant};

use crate::campaign::Verdict;
use crate::folder::{TestFolder, signal};
use crate::guest::{can_run, family, wait_until_gone};
use crate::ledger::Random;

/// Shared by both programs: a seed's sequence of files. A repeated name replaces its file.
const PLAN: &str = "
import os, random, sys
seed, count, keeps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
drawn = random.Random(seed)
def plan():
    for at in range(count):
        how = drawn.choice(['fsync', 'fdatasync', 'dsync', 'sync', 'append', 'folder', 'rename', 'replace'])
        size = drawn.choice([1, 100, 4096, 20000, 20000, 70000, 300000])
        again = how == 'replace' and at > 0
        name = 'f%d' % (drawn.randrange(at) if again else at)
        name += '.keep' if keeps == 'all' or drawn.random() < 0.5 else '.txt'
        yield at, how, name, (b'%d %d %d\\n' % (seed, at, size) * (size // 4 + 1))[:size]
";

/// Prints the number of each durable file, and may make the kernel panic at the end.
const WRITE: &str = "
def put(name, flags, data):
    file = os.open(name, os.O_CREAT | os.O_WRONLY | flags, 0o600)
    at = 0
    while at < len(data): at += os.write(file, data[at:at + 16384])
    return file
def sync_folder(path):
    folder = os.open(path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
os.chdir('/mnt')
for at, how, name, data in plan():
    if how in ('rename', 'replace'):
        # A name by which it is kept from the beginning.
        new = 'new' + name[name.rindex('.'):]
        file = put(new, os.O_TRUNC, data)
        os.fsync(file)
        os.rename(new, name)
    elif how == 'append':
        file = put(name, 0, data[:len(data) // 2])
        os.fsync(file)
        os.close(file)
        file = put(name, os.O_APPEND, data[len(data) // 2:])
        os.fdatasync(file)
    else:
        file = put(name, os.O_DSYNC if how == 'dsync' else 0, data)
        if how == 'sync': os.sync()
        elif how == 'fdatasync': os.fdatasync(file)
        else: os.fsync(file)
    os.close(file)
    if how in ('rename', 'replace', 'folder'): sync_folder('/mnt')
    os.write(1, b'%d\\n' % at)
if sys.argv[4] == 'panic': open('/proc/sysrq-trigger', 'w').write('c')
";

/// Compares each durable file with its last durable content, or with its later replacement.
const CHECK: &str = "
last = int(sys.argv[4])
safe, later = {}, {}
for at, how, name, data in plan():
    if at <= last: safe[name] = [data]
    elif name in safe: safe[name].append(data)
lost = []
for name, datas in safe.items():
    if not name.endswith('.keep'): continue
    try: found = open('/mnt/' + name, 'rb').read()
    except OSError as error: found = error
    if found not in datas:
        zeros = isinstance(found, bytes) and not any(found)
        lost.append('%s: %s' % (name, 'zeros' if zeros else len(found) if isinstance(found, bytes) else found))
print('lost', len(lost), 'of', len(safe), lost[:3]) if lost else print('all there')
";

const SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
const DEVICES: [&str; 3] = ["samsung-970-pro", "constant-100us", "null"];
const STORES: [(&[&str], &str); 5] = [
    (&["--squash", "--keep", "*"], "all"),
    (&["--squash", "--keep", "*"], "all"),
    (&["--squash", "--keep", "*.keep"], "some"),
    (&["--squash=exact"], "all"),
    (&[], "all"),
];

/// Death of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Its kernel panics.
    Panic,
    /// SIGKILL of every process of the run.
    All,
    /// SIGKILL of the launcher.
    Launcher,
    /// SIGKILL of a random process.
    One,
    /// Three SIGTERMs to the launcher.
    Terms,
    /// No death: the program ends.
    Ends,
}

const DEATHS: [Death; 6] = [Death::Panic, Death::All, Death::Launcher, Death::One, Death::Terms, Death::Ends];

/// Number of files of a guest that lives to the end, and of one that is killed.
const FILES_FEW: u64 = 40;
const FILES_MANY: u64 = 4_000;
/// Time that processes have to end by themselves.
const GOING: Duration = Duration::from_secs(20);

pub fn attack(random: &mut Random, described: &mut String) -> Verdict {
    let system = SYSTEMS[random.below(3) as usize];
    let device = DEVICES[random.below(3) as usize];
    let (squash, keeps) = STORES[random.below(5) as usize];
    let death = DEATHS[random.below(6) as usize];
    let durable: &[&str] = if random.below(4) == 0 { &["--durable"] } else { &[] };
    let store = [squash, durable, &["--store", "disk"]].concat();
    *described = format!("{system} on {device}, {}, {death:?}", store.join(" "));
    if !can_run() {
        return Verdict::Skipped("no guest can run here".to_owned());
    }
    // SAFETY: no memory is involved.
    if death == Death::Panic && unsafe { libc::geteuid() } != 0 {
        return Verdict::Skipped("only root can make its guest panic".to_owned());
    }
    let place = TestFolder::new();
    let seed = random.below(1 << 32).to_string();
    let count = if matches!(death, Death::Panic | Death::Ends) { FILES_FEW } else { FILES_MANY }.to_string();
    let run = ["run", "--device", device, "--capacity", "2GiB", "--quiet"];
    let words = |fs: &'static str, program: &str, last: &str| -> Vec<String> {
        let guest =
            [&run[..], &["--fs", fs], &store[..], &["--", "python3", "-c", program, &seed, &count, keeps, last]];
        guest.concat().into_iter().map(str::to_owned).collect()
    };
    let write = words(system, &format!("{PLAN}{WRITE}"), if death == Death::Panic { "panic" } else { "stay" });
    let write: Vec<&str> = write.iter().map(String::as_str).collect();
    let mut child = place.chronodisk(&write).spawn().expect("the command starts");
    let last = live_and_die(&mut child, death, random);
    let output = child.wait_with_output().expect("it ended");
    let Some(last) = last else {
        let errors = String::from_utf8_lossy(&output.stderr);
        return match death {
            Death::Panic | Death::Ends => Verdict::Found(format!("the guest made no file: {errors}")),
            _ => Verdict::Held,
        };
    };
    described.push_str(&format!(", {} files were safe", last + 1));
    let check = words("existing", &format!("{PLAN}{CHECK}"), &last.to_string());
    let check: Vec<&str> = check.iter().map(String::as_str).collect();
    let output = place.chronodisk(&check).output().expect("the command starts");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() && said.contains("all there") {
        true => Verdict::Held,
        false => Verdict::Found(format!("{:?}: {}{}", output.status.code(), said.trim(), errors.trim())),
    }
}

/// Reads the program's output until its guest is dead. Returns the number of the last safe file.
fn live_and_die(child: &mut Child, death: Death, random: &mut Random) -> Option<u64> {
    let (files, delay, which) = (random.below(60), random.below(300), random.below(1_000) as usize);
    let pid = child.id();
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let mut last = None;
    let mut see = |last: &mut Option<u64>| match lines.next() {
        Some(Ok(line)) => {
            *last = line.trim().parse().ok().or(*last);
            true
        }
        _ => false,
    };
    // Kills the guest after some files and some milliseconds.
    while last.is_none_or(|last| last < files) && see(&mut last) {}
    let all = family(pid);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(delay));
        let all = family(pid);
        kill(death, pid, &all, which);
        // Kills surviving processes; other attacks test whether they end by themselves.
        let give_up = Instant::now() + GOING;
        let dies = !matches!(death, Death::Panic | Death::Ends);
        while dies && Instant::now() < give_up && all.iter().any(|pid| is_there(*pid)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if dies {
            all.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL));
        }
        all
    });
    while see(&mut last) {}
    let killed = killer.join().expect("a thread that sends signals");
    let _ = child.wait();
    wait_until_gone(&[all, killed].concat());
    last
}

fn kill(death: Death, launcher: u32, all: &[u32], which: usize) {
    match death {
        Death::Panic | Death::Ends => {}
        Death::All => all.iter().for_each(|pid| signal(*pid as i32, libc::SIGKILL)),
        Death::Launcher => signal(launcher as i32, libc::SIGKILL),
        Death::One => signal(all[which % all.len()] as i32, libc::SIGKILL),
        Death::Terms => (0..3).for_each(|_| {
            signal(launcher as i32, libc::SIGTERM);
            std::thread::sleep(Duration::from_millis(50));
        }),
    }
}

fn is_there(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok()
}
