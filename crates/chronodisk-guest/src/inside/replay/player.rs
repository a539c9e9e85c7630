//! The replayer in the guest: threads that carry out the steps of their feeds.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::process::ExitCode;

use chronodisk_sim::Nanos;

use super::slots::{self, NAME_BYTES, descriptor, keep_descriptor, name_of_descriptor, words_at};
use super::thread;
use crate::shared::feed::{
    DIFFERENCES_MAX, Difference, FEED_MAGIC, FIRST, HEADER_WORDS, INDEX_OFFSET, INDEX_WORDS, PART_HEADER_BYTES, Report,
    argument, expectation, head, kind,
};
use crate::shared::layout::{FEED_CHARGE, FEED_MARK, FEED_PART, FEED_PART_BYTES, FEED_REPORT};

/// Memory of a thread: a part of its feed, then its stack.
const AREA_BYTES: usize = 64 << 10;
/// Generated data, and room for calls' output. Longer transfers use it several times.
const DATA_BYTES: usize = 256 << 10;
/// Most pieces of a transfer.
const PIECES_MAX: usize = 64;
/// First id of the thread that waits for the end; above recorded tasks' ids, unless the kernel allocated all ids.
const CONTROLLER_ID: u32 = (1 << 22) - 17;
/// Distance of ids: a task whose id is taken gets the next free one with the same remainder, because file systems
/// allocate by it.
const ID_STEP: u32 = 16;
const ID_MAX: u32 = (1 << 22) - 1;
/// Longest time that a task waits for others before it gives up.
const PATIENCE: Nanos = Nanos::from_nanos(600 * 1_000_000_000);

static REPORT: Report = Report {
    calls_made: AtomicU64::new(0),
    differed: AtomicU64::new(0),
    ids_taken: AtomicU64::new(0),
    waits_abandoned: AtomicU64::new(0),
    is_whole: AtomicU64::new(0),
    began_ticks: AtomicU64::new(0),
    memory_kib: AtomicU64::new(0),
    tasks_at_once: AtomicU64::new(0),
    differences: [const { Difference { record: AtomicU64::new(0), got: AtomicU64::new(0) } }; DIFFERENCES_MAX],
};

/// A task of the plan.
#[repr(C)]
struct Task {
    /// Place of its steps in the feed, and its id.
    index: [AtomicU64; INDEX_WORDS],
    /// Number of its signals so far.
    signals: AtomicU32,
    /// Tasks that wait for that.
    waiters: AtomicU32,
}

/// Memory that one thread at a time uses.
#[repr(C)]
struct Area {
    /// Zero until its first use.
    address: AtomicU64,
    /// The id of the thread that uses it. The kernel clears it once the thread is gone.
    owner: AtomicU32,
    task: AtomicU32,
}

/// Addresses of the shared tables; written before any thread is started.
struct Stage {
    tasks: AtomicU64,
    count: AtomicU64,
    areas: AtomicU64,
    data: AtomicU64,
    scratch: AtomicU64,
    /// Addresses of mappings, by their numbers; zero for absent ones.
    mappings: AtomicU64,
    mapping_count: AtomicU64,
}

static STAGE: Stage = Stage {
    tasks: AtomicU64::new(0),
    count: AtomicU64::new(0),
    areas: AtomicU64::new(0),
    data: AtomicU64::new(0),
    scratch: AtomicU64::new(0),
    mappings: AtomicU64::new(0),
    mapping_count: AtomicU64::new(0),
};

/// Tasks that have ended.
static ENDED: AtomicU32 = AtomicU32::new(0);

fn tasks() -> &'static [Task] {
    let (address, count) = (STAGE.tasks.load(Ordering::Relaxed), STAGE.count.load(Ordering::Relaxed));
    // SAFETY: the memory was mapped for this number of tasks, is never unmapped, and zeros are a valid task.
    unsafe { core::slice::from_raw_parts(address as *const Task, count as usize) }
}

fn areas() -> &'static [Area] {
    let (address, count) = (STAGE.areas.load(Ordering::Relaxed), STAGE.count.load(Ordering::Relaxed));
    // SAFETY: as above.
    unsafe { core::slice::from_raw_parts(address as *const Area, count as usize + 1) }
}

fn call(number: i64, arguments: [u64; 6]) -> i64 {
    // SAFETY: calls of the feed get memory that is otherwise unused, or numbers, which can't reach this process's
    // memory: no call in a feed changes mappings.
    unsafe { thread::call(number, arguments) }
}

/// Runs as the guest's replayer. The arguments after the first are the user, the group and the groups that it takes on.
pub fn guest_replay() -> ExitCode {
    match prepare() {
        Ok(()) => run(),
        Err(what) => {
            eprintln!("chronodisk: the replayer can't begin: {what}");
            ExitCode::FAILURE
        }
    }
}

fn prepare() -> Result<(), String> {
    let mut header = [0; PART_HEADER_BYTES / 8 + HEADER_WORDS];
    if part(&mut header, 0) < HEADER_WORDS * 8 || header[1] != FEED_MAGIC {
        return Err("there is no feed".into());
    }
    let count = header[2];
    let map = |bytes: u64| match memory(bytes) {
        address @ 1.. => Ok(address as u64),
        _ => Err(format!("no memory for {bytes} bytes")),
    };
    STAGE.tasks.store(map(count * size_of::<Task>() as u64)?, Ordering::Relaxed);
    // One more for the controller.
    STAGE.areas.store(map((count + 1) * size_of::<Area>() as u64)?, Ordering::Relaxed);
    STAGE.data.store(map(DATA_BYTES as u64)?, Ordering::Relaxed);
    STAGE.scratch.store(map(DATA_BYTES as u64)?, Ordering::Relaxed);
    STAGE.count.store(count, Ordering::Relaxed);
    STAGE.mappings.store(map(header[3] * size_of::<AtomicU64>() as u64)?, Ordering::Relaxed);
    STAGE.mapping_count.store(header[3], Ordering::Relaxed);
    slots::begin(map(slots::memory_bytes(header[4]))?, header[4]);
    read_index()?;
    fill_data();
    // SAFETY: no other thread runs in this process yet.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::umask(0o022);
        // Recorded sleeps have the slack of the program's timers in them; threads inherit this.
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
        let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) == 0 {
            files.rlim_cur = files.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &files);
        }
    }
    become_caller()
}

fn read_index() -> Result<(), String> {
    const WORDS: usize = 510;
    let mut buffer = [0; 1 + WORDS];
    for (chunk, tasks) in tasks().chunks(WORDS / INDEX_WORDS).enumerate() {
        let wanted = tasks.len() * INDEX_WORDS * 8;
        if part(&mut buffer, INDEX_OFFSET + chunk * WORDS * 8) < wanted {
            return Err("the feed is cut off".into());
        }
        for (task, words) in tasks.iter().zip(buffer[1..].chunks_exact(INDEX_WORDS)) {
            for (to, from) in task.index.iter().zip(words) {
                to.store(*from, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Data that do not compress: xorshift64 (Marsaglia 2003).
fn fill_data() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let data = STAGE.data.load(Ordering::Relaxed) as *mut u64;
    for word in 0..DATA_BYTES / 8 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // SAFETY: the memory is of DATA_BYTES, and no thread runs yet.
        unsafe { data.add(word).write(state) };
    }
}

/// Takes on the calling user's rights, but keeps the one to choose ids of tasks, with which no file can be reached.
fn become_caller() -> Result<(), String> {
    let failed = |what: &str| Err(format!("{what}: {}", std::io::Error::last_os_error()));
    let mut numbers = Vec::new();
    for word in std::env::args().skip(2) {
        numbers.push(word.parse::<u32>().map_err(|_| format!("'{word}' is no number"))?);
    }
    let [uid, gid, groups @ ..] = numbers.as_slice() else { return Err("no user was given".into()) };
    // SAFETY: system calls with memory of ours, in a process of one thread.
    unsafe {
        if libc::setgroups(groups.len(), groups.as_ptr()) != 0 || libc::setgid(*gid) != 0 {
            return failed("groups");
        }
        if *uid == 0 {
            return Ok(());
        }
        if libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0 || libc::setuid(*uid) != 0 {
            return failed("user");
        }
        let header = [CAPABILITY_VERSION_3, 0];
        let high = 1u32 << (CAP_CHECKPOINT_RESTORE - 32);
        let sets = [0, 0, 0, high, high, 0u32];
        if libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()) != 0 {
            return failed("capabilities");
        }
    }
    Ok(())
}

/// `linux/capability.h`: chooses ids of tasks.
const CAP_CHECKPOINT_RESTORE: u32 = 40;
const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// Starts the tasks without a creator, and becomes the first of them if it has the same id, as it does if the guest
/// booted as in the recording.
fn run() -> ExitCode {
    let own = call(libc::SYS_gettid, [0; 6]) as u64;
    // SAFETY: the instruction has no effect but its result, which the clock answers in virtual time.
    REPORT.began_ticks.store(unsafe { core::arch::x86_64::_rdtsc() }, Ordering::Relaxed);
    let mut mine = None;
    let controller = begin(CONTROLLER_ID, (libc::CLONE_FILES | libc::CLONE_FS) as u64, u32::MAX);
    if controller < 0 {
        eprintln!("chronodisk: the replayer can't begin: clone3 failed with error {}", -controller);
        return ExitCode::FAILURE;
    }
    for (number, task) in tasks().iter().enumerate() {
        let id = task.index[2].load(Ordering::Relaxed);
        if id & FIRST == 0 {
            continue;
        }
        if mine.is_none() && id == FIRST | own {
            mine = Some(number);
        } else {
            spawn(number as u32, 0);
        }
    }
    if let Some(number) = mine {
        // The first task has no area.
        REPORT.tasks_at_once.store(1, Ordering::Relaxed);
        call(libc::SYS_unshare, [(libc::CLONE_FILES | libc::CLONE_FS) as u64, 0, 0, 0, 0, 0]);
        let buffer = memory(FEED_PART_BYTES as u64);
        play(number as u32, buffer as u64);
    }
    thread::exit(libc::SYS_exit, 0)
}

/// Maps memory that is present at once; returns a negative error without memory.
fn memory(bytes: u64) -> i64 {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    call(libc::SYS_mmap, [0, bytes.max(1), protection, flags, u64::MAX, 0])
}

/// Requests the part of the feed at `offset` from the clock, which writes it after the buffer's first word. Returns its
/// length in bytes.
fn part(buffer: &mut [u64], offset: usize) -> usize {
    loop {
        // Touched, so that it is present when the clock writes it.
        for word in buffer.iter_mut().step_by(512) {
            // SAFETY: a word of the buffer, volatile because the clock writes it without the compiler's knowledge.
            unsafe { ptr::from_mut(word).write_volatile(0) };
        }
        let last = buffer.len() - 1;
        buffer[last] = 0;
        buffer[0] = u64::MAX;
        let bytes = (last * 8) as u64;
        call(libc::SYS_getppid, [FEED_MARK, FEED_PART, offset as u64, buffer.as_mut_ptr() as u64, bytes, 0]);
        // SAFETY: as above.
        match unsafe { ptr::from_ref(&buffer[0]).read_volatile() } {
            // Either the guest's kernel had reclaimed the memory, or there is no clock that answers.
            u64::MAX if offset > 0 => {}
            u64::MAX => return 0,
            got => return got as usize,
        }
    }
}

/// Lets CPU time pass. Interrupts come when they are due, and other tasks may run then.
fn charge(mut nanos: u64) {
    while nanos > 0 {
        let mut left = 0u64;
        call(libc::SYS_getppid, [FEED_MARK, FEED_CHARGE, nanos, &raw mut left as u64, 0, 0]);
        // SAFETY: a word of ours, which the clock may have written.
        nanos = unsafe { (&raw const left).read_volatile() };
    }
}

/// Starts the thread of a task, with its recorded id if that is free.
fn spawn(task: u32, flags: u64) -> i64 {
    let mut id = tasks()[task as usize].index[2].load(Ordering::Relaxed) as u32;
    let mut result = begin(id, flags, task);
    if result == -i64::from(libc::EEXIST) {
        REPORT.ids_taken.fetch_add(1, Ordering::Relaxed);
    }
    while result == -i64::from(libc::EEXIST) && id + ID_STEP <= ID_MAX {
        id += ID_STEP;
        result = begin(id, flags, task);
    }
    result
}

fn begin(id: u32, flags: u64, task: u32) -> i64 {
    let claimed = |area: &&Area| area.owner.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(area) = areas().iter().find(claimed) else { return -i64::from(libc::EAGAIN) };
    let mut address = area.address.load(Ordering::Relaxed);
    if address == 0 {
        match memory(AREA_BYTES as u64) {
            mapped @ 1.. => address = mapped as u64,
            error => return error,
        }
        area.address.store(address, Ordering::Relaxed);
    }
    area.task.store(task, Ordering::Relaxed);
    let stack = ((address + FEED_PART_BYTES as u64) as *mut u8, AREA_BYTES - FEED_PART_BYTES);
    // SAFETY: the area is this thread's alone until its owner's word is zero again, and areas stay.
    let result = unsafe { thread::start(id, flags, stack, &area.owner, thread_entry, ptr::from_ref(area) as u64) };
    if result < 0 {
        area.owner.store(0, Ordering::Release);
    }
    result
}

extern "C" fn thread_entry(area: u64) -> ! {
    // SAFETY: areas stay.
    let area = unsafe { &*(area as *const Area) };
    match area.task.load(Ordering::Relaxed) {
        u32::MAX => control(),
        task => play(task, area.address.load(Ordering::Relaxed)),
    }
}

/// Waits until all tasks have ended, and ends the process.
fn control() -> ! {
    let all = STAGE.count.load(Ordering::Relaxed) as u32;
    loop {
        let ended = ENDED.load(Ordering::Acquire);
        if ended >= all {
            break;
        }
        wait_for_change(&ENDED, ended, 0);
    }
    REPORT.is_whole.store(1, Ordering::Relaxed);
    REPORT.memory_kib.store(memory_high_water_kib(), Ordering::Relaxed);
    // Areas are reused, so their number is the largest number of simultaneous threads. One is this thread's.
    let used = areas().iter().filter(|area| area.address.load(Ordering::Relaxed) != 0).count();
    REPORT.tasks_at_once.fetch_add(used as u64 - 1, Ordering::Relaxed);
    report();
    thread::exit(libc::SYS_exit_group, 0)
}

fn report() {
    let bytes = size_of::<Report>() as u64;
    call(libc::SYS_getppid, [FEED_MARK, FEED_REPORT, bytes, &raw const REPORT as u64, 0, 0]);
}

/// Most resident memory of this process: `VmHWM` in the status of this thread, since `getrusage` starts counting with
/// the program that executed this one, and the first thread has ended and has no memory. Zero if the kernel does not
/// report it.
fn memory_high_water_kib() -> u64 {
    let mut text = [0u8; 2048];
    let here = libc::AT_FDCWD as i64 as u64;
    let path = c"/proc/thread-self/status";
    let file = call(libc::SYS_openat, [here, path.as_ptr() as u64, libc::O_RDONLY as u64, 0, 0, 0]);
    if file < 0 {
        return 0;
    }
    let got = call(libc::SYS_read, [file as u64, text.as_mut_ptr() as u64, text.len() as u64, 0, 0, 0]);
    // SAFETY: bytes of ours, which the kernel has written.
    let text = unsafe { ptr::from_ref(&text).read_volatile() };
    text.get(..got.max(0) as usize).and_then(high_water_in).unwrap_or(0)
}

/// The figure of a line such as `VmHWM:     1234 kB`.
fn high_water_in(status: &[u8]) -> Option<u64> {
    let mut lines = status.split(|&byte| byte == b'\n');
    let figure = lines.find_map(|line| line.strip_prefix(b"VmHWM:"))?;
    let mut digits = figure.iter().filter(|byte| byte.is_ascii_digit());
    digits.try_fold(0u64, |value, digit| value.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// A fatal error: the run fails with a report of the work so far.
fn give_up() -> ! {
    report();
    thread::exit(libc::SYS_exit_group, 1)
}

/// Waits while the word has the value, or until `nanos` have passed, unless that is zero.
fn wait_for_change(word: &AtomicU32, value: u32, nanos: u64) -> i64 {
    let most = [nanos / 1_000_000_000, nanos % 1_000_000_000];
    let timeout = if nanos > 0 { most.as_ptr() as u64 } else { 0 };
    let wait = (libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG) as u64;
    call(libc::SYS_futex, [word.as_ptr() as u64, wait, value.into(), timeout, 0, 0])
}

fn wake_all(word: &AtomicU32) {
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    call(libc::SYS_futex, [word.as_ptr() as u64, wake, i32::MAX as u64, 0, 0, 0]);
}

/// Carries out the steps of a task, and ends its thread.
fn play(number: u32, buffer: u64) -> ! {
    let task = &tasks()[number as usize];
    // SAFETY: the buffer is this thread's alone.
    let buffer = unsafe { core::slice::from_raw_parts_mut(buffer as *mut u64, FEED_PART_BYTES / 8) };
    let mut offset = task.index[0].load(Ordering::Relaxed) as usize;
    let end = offset + task.index[1].load(Ordering::Relaxed) as usize;
    while offset < end {
        let got = part(buffer, offset).min(end - offset);
        let mut words = &buffer[1..1 + got / 8];
        let mut taken = 0;
        while let Some(&first) = words.first() {
            let length = (first >> head::WORDS_SHIFT) as usize;
            if length > words.len() {
                break;
            }
            let (step, rest) = words.split_at(length);
            carry_out(task, step);
            words = rest;
            taken += length * 8;
        }
        if taken == 0 {
            give_up();
        }
        offset += taken;
    }
    ENDED.fetch_add(1, Ordering::Release);
    wake_all(&ENDED);
    thread::exit(libc::SYS_exit, 0)
}

fn carry_out(task: &Task, step: &[u64]) {
    let first = step[0];
    charge(step[1]);
    let waits = (first >> head::WAITS_SHIFT & 0xffff) as usize;
    let (waits, words) = step[head::WORDS..].split_at(waits);
    for wait in waits {
        let (task, signals) = (&tasks()[*wait as u32 as usize], (wait >> 32) as u32);
        match first & 0xff {
            kind::POLL => poll_for(task, signals, words[0]),
            _ => wait_for(task, signals),
        }
    }
    act(first & 0xff, step, words);
    if first & head::SIGNALS != 0 {
        task.signals.fetch_add(1, Ordering::SeqCst);
        if task.waiters.load(Ordering::SeqCst) > 0 {
            wake_all(&task.signals);
        }
    }
}

fn wait_for(task: &Task, signals: u32) {
    if task.signals.load(Ordering::Acquire) >= signals {
        return;
    }
    task.waiters.fetch_add(1, Ordering::SeqCst);
    loop {
        let now = task.signals.load(Ordering::SeqCst);
        if now >= signals {
            break;
        }
        if wait_for_change(&task.signals, now, PATIENCE.as_nanos()) == -i64::from(libc::ETIMEDOUT) {
            REPORT.waits_abandoned.fetch_add(1, Ordering::Relaxed);
            break;
        }
    }
    task.waiters.fetch_sub(1, Ordering::SeqCst);
}

/// Polls after each sleep of `period` nanoseconds, as the program did.
fn poll_for(task: &Task, signals: u32, period: u64) {
    let mut looks = PATIENCE.as_nanos() / period.max(1);
    while task.signals.load(Ordering::Acquire) < signals {
        if looks == 0 {
            REPORT.waits_abandoned.fetch_add(1, Ordering::Relaxed);
            return;
        }
        looks -= 1;
        sleep(period);
    }
}

fn sleep(nanos: u64) {
    let time = [nanos / 1_000_000_000, nanos % 1_000_000_000];
    call(libc::SYS_nanosleep, [time.as_ptr() as u64, 0, 0, 0, 0, 0]);
}

fn act(what: u64, step: &[u64], words: &[u64]) {
    match what {
        kind::CALL => make_call(step, words),
        kind::PIPE => make_pipe(step, words[0] == 1, [words[1], words[2]]),
        kind::RECEIVE => receive(step, descriptor(words[0]), words[1]),
        kind::SEND => send(step, descriptor(words[0]), words[1]),
        kind::SPAWN => {
            let made = spawn(words[0] as u32, words[1]);
            if made < 0 {
                // The steps of the missing task would never be done, and others wait for them.
                differs(step, made);
                give_up();
            }
        }
        kind::OWN_FILES => drop(call(libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0, 0, 0, 0])),
        kind::SLEEP => sleep(words[0]),
        kind::MAP => map_file(step, words),
        kind::FAULT => on_mapping(step, words[0], words[1], |at| {
            let advice = if words[2] == 1 { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
            call(libc::SYS_madvise, [at & !(PAGE_BYTES - 1), PAGE_BYTES, advice, 0, 0, 0])
        }),
        kind::FLUSH => {
            on_mapping(step, words[0], words[1], |at| call(libc::SYS_msync, [at, words[2], words[3], 0, 0, 0]))
        }
        kind::ADVISE => {
            on_mapping(step, words[0], words[1], |at| call(libc::SYS_madvise, [at, words[2], words[3], 0, 0, 0]))
        }
        kind::UNMAP => {
            on_mapping(step, words[0], 0, |at| call(libc::SYS_munmap, [at, words[1].max(1), 0, 0, 0, 0]));
            mapping(words[0]).store(0, Ordering::Relaxed);
        }
        kind::TOUCH => touch(step, descriptor(words[0]), words[1], words[2]),
        _ => {}
    }
}

fn made() {
    REPORT.calls_made.fetch_add(1, Ordering::Relaxed);
}

fn differs(step: &[u64], got: i64) {
    let place = REPORT.differed.fetch_add(1, Ordering::Relaxed) as usize;
    if let Some(difference) = REPORT.differences.get(place) {
        difference.record.store(step[2], Ordering::Relaxed);
        difference.got.store(got as u64, Ordering::Relaxed);
    }
}

fn make_call(step: &[u64], words: &[u64]) {
    let number = i64::from(words[0] as u32);
    let expected = words[1] as i64;
    let kinds = words[2];
    let mut arguments = [0; 6];
    let mut names = [0; 2 * NAME_BYTES];
    let mut name_places = names.chunks_exact_mut(NAME_BYTES);
    for (place, argument) in arguments.iter_mut().enumerate() {
        let value = words[3 + place];
        *argument = match kinds >> (4 * place) & 0xf {
            argument::PATH => step.as_ptr() as u64 + value,
            argument::DESCRIPTOR => descriptor(value),
            argument::DESCRIPTOR_PATH => {
                let place = name_places.next().map_or(&mut [][..], |place| place);
                name_of_descriptor(&step[value as usize / 8..], place)
            }
            argument::WORDS => words_at(&step[value as usize / 8..]),
            argument::SCRATCH => STAGE.scratch.load(Ordering::Relaxed),
            argument::DATA => STAGE.data.load(Ordering::Relaxed),
            _ => value,
        };
    }
    let got = if moves_data(number) { transfer(number, arguments) } else { call(number, bounded(number, arguments)) };
    made();
    let matches = match words[0] >> 32 {
        expectation::EXACTLY => got == expected,
        expectation::DESCRIPTOR => {
            keep_descriptor(expected as u64, got);
            got >= 0
        }
        _ if expected < 0 => got == expected,
        _ => got >= 0,
    };
    if !matches {
        differs(step, got);
    }
}

const fn moves_data(number: i64) -> bool {
    matches!(number, libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64) || has_flags(number)
}

const fn has_flags(number: i64) -> bool {
    matches!(number, libc::SYS_preadv2 | libc::SYS_pwritev2)
}

/// Limits calls that fill memory to the available memory.
fn bounded(number: i64, mut arguments: [u64; 6]) -> [u64; 6] {
    if matches!(number, libc::SYS_getdents | libc::SYS_getdents64) {
        arguments[2] = arguments[2].min(DATA_BYTES as u64);
    }
    arguments
}

/// A single transfer call of any length.
fn transfer(number: i64, arguments: [u64; 6]) -> i64 {
    let [descriptor, memory, bytes, position, flags, _] = arguments;
    if bytes <= DATA_BYTES as u64 && !has_flags(number) {
        return call(number, arguments);
    }
    let mut pieces = [[memory, DATA_BYTES as u64]; PIECES_MAX];
    let count = bytes.div_ceil(DATA_BYTES as u64).clamp(1, PIECES_MAX as u64);
    let last = (bytes - (count - 1) * DATA_BYTES as u64).min(DATA_BYTES as u64);
    pieces[count as usize - 1][1] = last;
    let vectored = match number {
        libc::SYS_read => libc::SYS_readv,
        libc::SYS_write => libc::SYS_writev,
        libc::SYS_pread64 => libc::SYS_preadv,
        libc::SYS_pwrite64 => libc::SYS_pwritev,
        with_flags => with_flags,
    };
    // The position is in one register; its upper half, in the next one, must be zero.
    let flags = if has_flags(number) { flags } else { 0 };
    call(vectored, [descriptor, pieces.as_ptr() as u64, count, position, 0, flags])
}

fn make_pipe(step: &[u64], sockets: bool, wanted: [u64; 2]) {
    let mut ends = [0i32; 2];
    let address = ends.as_mut_ptr() as u64;
    let got = match sockets {
        true => call(libc::SYS_socketpair, [libc::AF_UNIX as u64, libc::SOCK_STREAM as u64, 0, address, 0, 0]),
        false => call(libc::SYS_pipe2, [address, 0, 0, 0, 0, 0]),
    };
    made();
    if got < 0 {
        return differs(step, got);
    }
    // SAFETY: a word of ours, which the kernel has written.
    let ends = unsafe { (&raw const ends).read_volatile() };
    for (slot, end) in wanted.into_iter().zip(ends) {
        keep_descriptor(slot, end.into());
    }
}

/// Reads `bytes` bytes in several calls if necessary; a read of zero bytes ends it.
fn receive(step: &[u64], descriptor: u64, bytes: u64) {
    let scratch = STAGE.scratch.load(Ordering::Relaxed);
    let mut left = bytes;
    loop {
        let most = if bytes == 0 { DATA_BYTES as u64 } else { left.min(DATA_BYTES as u64) };
        let got = call(libc::SYS_read, [descriptor, scratch, most, 0, 0, 0]);
        made();
        if bytes == 0 || got <= 0 {
            if got != 0 || bytes > 0 {
                differs(step, got);
            }
            return;
        }
        left -= got as u64;
        if left == 0 {
            return;
        }
    }
}

/// Writes `bytes` bytes in several calls if necessary.
fn send(step: &[u64], descriptor: u64, bytes: u64) {
    let data = STAGE.data.load(Ordering::Relaxed);
    let mut left = bytes;
    while left > 0 {
        let got = call(libc::SYS_write, [descriptor, data, left.min(DATA_BYTES as u64), 0, 0, 0]);
        made();
        if got <= 0 {
            return differs(step, got);
        }
        left -= got as u64;
    }
}

/// `asm-generic/mman-common.h`: meets the page faults of a range, and fails where a program would get a signal.
const MADV_POPULATE_READ: u64 = 22;
const MADV_POPULATE_WRITE: u64 = 23;
const PAGE_BYTES: u64 = 4096;

fn mapping(number: u64) -> &'static AtomicU64 {
    let (address, count) = (STAGE.mappings.load(Ordering::Relaxed), STAGE.mapping_count.load(Ordering::Relaxed));
    // SAFETY: the memory was mapped for this number of words, is never unmapped, and zeros are valid words.
    let mappings = unsafe { core::slice::from_raw_parts(address as *const AtomicU64, count as usize) };
    &mappings[number as usize]
}

fn map_file(step: &[u64], words: &[u64]) {
    let [number, slot, offset, bytes, protection, flags] = *words else { return };
    let got = call(libc::SYS_mmap, [0, bytes.max(1), protection, flags, descriptor(slot), offset]);
    made();
    match got {
        address @ 1.. => mapping(number).store(address as u64, Ordering::Relaxed),
        error => differs(step, error),
    }
}

/// Does something at a byte of a mapping.
fn on_mapping(step: &[u64], number: u64, offset: u64, act: impl Fn(u64) -> i64) {
    let address = mapping(number).load(Ordering::Relaxed);
    // The missing mapping was counted as a difference when it was not made.
    if address == 0 {
        return;
    }
    let got = act(address + offset);
    made();
    if got < 0 {
        differs(step, got);
    }
}

/// Maps a part of a file and reads a byte of each page, up to the file's end.
fn touch(step: &[u64], descriptor: u64, offset: u64, bytes: u64) {
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    let got = call(libc::SYS_fstat, [descriptor, status.as_mut_ptr() as u64, 0, 0, 0, 0]);
    made();
    if got < 0 {
        return differs(step, got);
    }
    // SAFETY: zeros are a status, and the kernel may have written another.
    let length = unsafe { status.as_ptr().read_volatile() }.st_size as u64;
    let bytes = bytes.min(length.saturating_sub(offset));
    if bytes == 0 {
        return;
    }
    let arguments = [0, bytes, libc::PROT_READ as u64, libc::MAP_SHARED as u64, descriptor, offset];
    let address = call(libc::SYS_mmap, arguments);
    if address < 0 {
        return differs(step, address);
    }
    let mut at = 0;
    while at < bytes {
        // SAFETY: inside of the mapping, and of the file unless another task has cut it off since, which ends the run.
        unsafe { ((address as u64 + at) as *const u8).read_volatile() };
        at += PAGE_BYTES;
    }
    call(libc::SYS_munmap, [address as u64, bytes, 0, 0, 0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_memory_is_read_from_the_status() {
        let status = b"Name:\tchronodisk\nVmPeak:\t    9000 kB\nVmHWM:\t    4321 kB\nVmRSS:\t    1200 kB\n";
        assert_eq!(high_water_in(status), Some(4321));
        assert_eq!(high_water_in(b"Name:\tVmHWM:\n"), None);
    }

    #[test]
    fn the_kernel_says_how_much_memory_this_process_has_had() {
        assert!((1_000..10_000_000).contains(&memory_high_water_kib()), "{}", memory_high_water_kib());
    }
}
