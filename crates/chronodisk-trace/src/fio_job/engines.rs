//! fio's engines for block devices, and their options.

use super::treatment::{FioOption, Treatment};

/// Properties of an I/O engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Name of the engine.
    pub name: &'static str,
    /// A thread has one request outstanding, regardless of `iodepth`.
    pub is_synchronous: bool,
    /// Whether its requests pass the page cache unless the job has `direct=1`.
    pub uses_page_cache: bool,
    /// Whether its thread waits for a flush.
    pub waits_for_flush: bool,
    /// Whether it does I/O, so that its results depend on the device.
    pub does_io: bool,
}

const fn synchronous(name: &'static str) -> Engine {
    Engine { name, is_synchronous: true, uses_page_cache: true, waits_for_flush: true, does_io: true }
}

const fn asynchronous(name: &'static str, waits_for_flush: bool) -> Engine {
    Engine { name, is_synchronous: false, uses_page_cache: true, waits_for_flush, does_io: true }
}

const fn bypassing(name: &'static str) -> Engine {
    Engine { name, is_synchronous: false, uses_page_cache: false, waits_for_flush: false, does_io: true }
}

/// The engines that are followed. The first is fio's default.
pub const ENGINES: &[Engine] = &[
    synchronous("psync"),
    synchronous("sync"),
    synchronous("pvsync"),
    synchronous("pvsync2"),
    asynchronous("libaio", true),
    asynchronous("io_uring", false),
    asynchronous("posixaio", false),
    bypassing("io_uring_cmd"),
    bypassing("sg"),
    bypassing("nbd"),
    bypassing("rbd"),
    bypassing("libiscsi"),
    bypassing("xnvme"),
    Engine { name: "null", is_synchronous: true, uses_page_cache: false, waits_for_flush: true, does_io: false },
];

/// The engine with this name.
#[must_use]
pub fn engine(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

const fn is(name: &'static str, treatment: Treatment) -> FioOption {
    FioOption { name, aliases: &[], treatment }
}

const HOST: Treatment = Treatment::Ignored("it is of how the host submits and completes");
const DEVICE: Treatment = Treatment::Ignored("it names the device, which `--device` does");

/// The options of these engines.
pub const OPTIONS: &[FioOption] = &[
    is("userspace_reap", HOST),
    is("hipri", HOST),
    is("hipri_percentage", HOST),
    is("fixedbufs", HOST),
    is("registerfiles", HOST),
    is("sqthread_poll", HOST),
    is("sqthread_poll_cpu", HOST),
    is("nonvectored", HOST),
    is("uncached", HOST),
    is("nowait", HOST),
    is("force_async", HOST),
    is("busy_poll", HOST),
    is("cmd_type", DEVICE),
    is("uri", DEVICE),
    is("clustername", DEVICE),
    is("rbdname", DEVICE),
    is("pool", DEVICE),
    is("clientname", DEVICE),
    is("cmdprio_percentage", Treatment::Honoured("0 to 100, or reads,writes")),
    is("cmdprio_class", Treatment::Honoured("0 to 3, as prioclass")),
    is("cmdprio", Treatment::Ignored("only the class has an effect")),
    is("cmdprio_bssplit", Treatment::Refused("cmdprio_percentage")),
    is("writefua", Treatment::Honoured("1: each write is forced to the medium (FUA)")),
    is("readfua", Treatment::Refused("reads that may come from the drive's cache")),
    is("sg_write_mode", Treatment::Honoured("write")),
    is("stream_id", Treatment::Refused("writes without a stream")),
];
