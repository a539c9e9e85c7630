//! Observes a program and its device by BPF: when requests begin and end, and when threads of the program's cgroup, and
//! kernel threads that write for it, become runnable and block.
//!
//! The programs are `observer/observer.bpf.c`. This module loads them and reads their events; [`tracker`] interprets
//! these.

pub(crate) mod tracker;

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Array, MapData, RingBuf};
use aya::programs::BtfTracePoint;
use aya::{Btf, Ebpf, EbpfLoader};
use rustix::process::getpid;
use rustix::thread::gettid;

use crate::error::NativeError;

/// The compiled programs.
static OBJECT: &[u8] = aya::include_bytes_aligned!("observer/observer.bpf.o");

/// The programs and their tracepoints, in the order of attachment. Completions come first. Otherwise a request that is
/// issued and completes during the attachment would stay in flight for ever, and the next one at its address would be
/// confused with it.
const PROGRAMS: [(&str, &str); 12] = [
    ("on_complete", "block_rq_complete"),
    ("on_requeue", "block_rq_requeue"),
    ("on_issue", "block_rq_issue"),
    ("on_bio", "block_bio_queue"),
    ("after_work", "workqueue_execute_end"),
    ("on_switch", "sched_switch"),
    ("on_waking", "sched_waking"),
    ("on_new", "sched_wakeup_new"),
    ("on_hrtimer", "hrtimer_expire_entry"),
    ("after_hrtimer", "hrtimer_expire_exit"),
    ("on_timer", "timer_expire_entry"),
    ("after_timer", "timer_expire_exit"),
];

/// Rule by which the kernel wakes the reader of events. At other times, events are only stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeUp {
    Never = 0,
    /// The kernel wakes it when no request is in flight any more.
    WhenIdle = 1,
    /// The kernel wakes it when requests are in flight and threads are runnable.
    WhenBusyAndRunnable = 2,
}

/// The programs as they run. They are detached when this is dropped.
pub(crate) struct Observer {
    _programs: Ebpf,
    events: RingBuf<MapData>,
    control: Array<MapData, u32>,
    wake_up: WakeUp,
}

impl Observer {
    /// Observes the cgroup with this number, and the block device with this major and minor number.
    pub fn attach(cgroup: u64, (major, minor): (u32, u32)) -> Result<Self, NativeError> {
        let btf = Btf::from_sys_fs().map_err(|error| NativeError::HostLacks {
            what: format!("this kernel does not describe its types (BTF): /sys/kernel/btf/vmlinux: {error}"),
            help: "use a kernel with CONFIG_DEBUG_INFO_BTF=y, such as Debian's; \
                   `chronodisk mount --device-speed` needs none"
                .to_owned(),
        })?;
        let server = u32::try_from(getpid().as_raw_nonzero().get()).unwrap_or_default();
        let mut programs = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("cgroup_id", &cgroup, true)
            .override_global("disk_major", &major, true)
            .override_global("disk_minor", &minor, true)
            .override_global("server", &server, true)
            .load(OBJECT)
            .map_err(|error| refused("loading the observer's maps", &error))?;
        for (name, tracepoint) in PROGRAMS {
            let program = programs.program_mut(name).expect("the object has it");
            let program: &mut BtfTracePoint = program.try_into().expect("it is one of a tracepoint");
            program.load(tracepoint, &btf).map_err(|error| refused(tracepoint, &error))?;
            program.attach().map_err(|error| refused(tracepoint, &error))?;
        }
        let events = programs.take_map("events").expect("the object has it");
        let control = programs.take_map("control").expect("the object has it");
        Ok(Observer {
            events: RingBuf::try_from(events).map_err(|error| refused("the ring of events", &error))?,
            control: Array::try_from(control).map_err(|error| refused("the observer's settings", &error))?,
            _programs: programs,
            wake_up: WakeUp::Never,
        })
    }

    /// Sets when to be woken. Returns whether that is a change.
    pub fn set_wake_up(&mut self, wake_up: WakeUp) -> bool {
        if self.wake_up == wake_up {
            return false;
        }
        self.wake_up = wake_up;
        // It can fail only for an invalid index.
        let _ = self.control.set(0, wake_up as u32, 0);
        true
    }

    /// Announces that the calling thread preempts the program's threads.
    pub fn tell_of_preemption(&mut self) {
        let thread = u32::try_from(gettid().as_raw_nonzero().get()).unwrap_or_default();
        let _ = self.control.set(2, thread, 0);
    }

    /// The next event, in the order of the kernel's ring.
    pub fn next(&mut self) -> Option<Record> {
        self.events.next().and_then(|bytes| Record::parse(&bytes))
    }

    /// Events that found no room, and completions that the kernel did not report.
    pub fn lost(&self) -> u64 {
        self.control.get(&1, 0).unwrap_or_default().into()
    }
}

impl AsFd for Observer {
    /// The descriptor becomes ready when the kernel wakes the reader, and while events are waiting.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn refused(what: &str, error: &(dyn std::error::Error + 'static)) -> NativeError {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let reasons: Vec<String> = causes.map(ToString::to_string).collect();
    NativeError::HostLacks {
        what: format!("this kernel refuses to be observed with BPF ({what}): {}", reasons.join(": ")),
        help: "run it as root, or give the command CAP_BPF and CAP_PERFMON with setcap; \
               `chronodisk mount --device-speed` needs neither"
            .to_owned(),
    }
}

/// Cause of a thread's becoming runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The thread has been observed for the first time.
    Started,
    /// A request completed.
    Completion,
    /// Its timeout expired.
    Timer,
    /// A thread of the kernel, such as a journal's, woke it.
    KernelThread,
    /// Another thread of the program woke it.
    Program,
    /// Another process, the network, a signal.
    Other,
}

/// An observed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// The device got a request.
    Issued { id: u64, writes: bool, by_others: bool },
    /// A request completed.
    Completed { id: u64 },
    /// A thread became runnable that was blocked since then (0: unknown). If a request woke it, it had waited for
    /// `waited_before_ns` before, interrupted only by timeouts. `only_slept`: it waited only for a timeout, as far as
    /// is known.
    Runnable { cause: Cause, since_ns: u64, waited_before_ns: u32, only_slept: bool },
    /// A thread blocked or ended.
    Blocked,
    /// The supervisor has taken the processor of a thread.
    Preempted,
    /// The supervisor has left that processor.
    Resumed,
    /// A thread of the kernel that gave the device something to do is runnable.
    Helps,
    /// The thread blocked, or has done its piece of work.
    Rests,
}

/// `struct event` of the observer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The host's monotonic clock.
    pub at_ns: u64,
    pub seen: Seen,
}

impl Record {
    fn parse(bytes: &[u8]) -> Option<Record> {
        let word = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (at_ns, value) = (word(0)?, word(8)?);
        let (kind, detail) = (*bytes.get(20)?, *bytes.get(21)?);
        let seen = match kind {
            1 => Seen::Issued { id: value, writes: detail & 1 != 0, by_others: detail & 2 != 0 },
            2 => Seen::Completed { id: value },
            3 => {
                let cause = match detail & 0x7f {
                    0 => Cause::Started,
                    1 => Cause::Completion,
                    2 => Cause::Timer,
                    3 => Cause::KernelThread,
                    4 => Cause::Program,
                    _ => Cause::Other,
                };
                Seen::Runnable {
                    cause,
                    since_ns: value,
                    waited_before_ns: u32::from_ne_bytes(bytes.get(16..20)?.try_into().ok()?),
                    only_slept: detail & 0x80 == 0,
                }
            }
            4 => Seen::Blocked,
            5 => Seen::Preempted,
            6 => Seen::Resumed,
            7 => Seen::Helps,
            8 => Seen::Rests,
            _ => return None,
        };
        Some(Record { at_ns, seen })
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        let bytes = |kind, detail| {
            let mut bytes = [0_u8; 24];
            bytes[..8].copy_from_slice(&5_u64.to_ne_bytes());
            bytes[8..16].copy_from_slice(&7_u64.to_ne_bytes());
            bytes[16..20].copy_from_slice(&3_u32.to_ne_bytes());
            (bytes[20], bytes[21]) = (kind, detail);
            bytes
        };
        let seen = |kind, detail| Record::parse(&bytes(kind, detail)).map(|record| (record.at_ns, record.seen));
        assert_eq!(seen(1, 3), Some((5, Seen::Issued { id: 7, writes: true, by_others: true })));
        assert_eq!(seen(2, 0), Some((5, Seen::Completed { id: 7 })));
        let ticked = |only_slept| Seen::Runnable { cause: Cause::Timer, since_ns: 7, waited_before_ns: 3, only_slept };
        assert_eq!(seen(3, 2), Some((5, ticked(true))));
        assert_eq!(seen(3, 0x82), Some((5, ticked(false))));
        assert_eq!(seen(4, 0), Some((5, Seen::Blocked)));
        assert_eq!(seen(5, 0), Some((5, Seen::Preempted)));
        assert_eq!(seen(6, 0), Some((5, Seen::Resumed)));
        assert_eq!(seen(7, 0), Some((5, Seen::Helps)));
        assert_eq!(seen(8, 0), Some((5, Seen::Rests)));
        assert_eq!(seen(9, 0), None);
        assert_eq!(Record::parse(&bytes(4, 0)[..20]), None);
    }

    /// The committed object was compiled from the committed source.
    #[test]
    fn the_object_is_made_from_its_source() {
        let recorded = include_str!("observer/observer.bpf.clang").trim();
        let version = Command::new("clang").arg("--version").output();
        let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        if version.lines().next().map(str::trim) != Some(recorded) {
            println!("SKIPPED the_object_is_made_from_its_source: it needs {recorded}");
            return;
        }
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/observer");
        let made = tempfile::tempdir().unwrap().keep().join("observer.bpf.o");
        let line = format!(
            "clang -O2 -g -target bpf -mcpu=v3 -fdebug-compilation-dir=. -c observer.bpf.c -o {0} && llvm-strip -g {0}",
            made.display()
        );
        let output = Command::new("sh").args(["-c", &line]).current_dir(&folder).output().unwrap();
        if !output.status.success() {
            // Without libbpf's headers or llvm-strip the object can't be made here.
            println!("SKIPPED the_object_is_made_from_its_source: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
        let is_same = std::fs::read(&made).unwrap() == OBJECT;
        std::fs::remove_dir_all(made.parent().unwrap()).unwrap();
        assert!(is_same, "observer.bpf.o is not what its source makes; its first lines say how to make it");
    }
}
