//! `chronodisk serve`: an emulated device for any client, in real time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, real_host};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, OverflowView, Preloaded, Server, ServerOptions, ServerOutcome};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_report::render_run_summary;
use chronodisk_sim::{Nanos, SECTOR_BYTES};
use chronodisk_store::{AccessList, FileStore, OverflowStore, RamStore, Store};
use clap::Args;
use serde_json::{Value, json};

use crate::device::{self, Device};
use crate::failure::{Failure, Outcome, status};
use crate::run_result::{host_memory_bytes, served};
use crate::{output, quantity, runs, stored};

/// Serves an emulated device in real time
///
/// Clients reach the device over the network block device protocol (NBD): qemu, nbdcopy, fio, the
/// kernel's own nbd module, or another machine. Each completion leaves when the device model says
/// that it is due. Ends on Ctrl-C, on SIGTERM, or when the program of --run ends; the log of all
/// requests is kept, and `chronodisk verify` replays it.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: that of the program of --run; 0 without one;\n\
    2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk serve --device constant-10ms --nbd unix:disk.sock --run 'nbdinfo $uri'")]
pub struct Arguments {
    /// Profile of the device: a name from `chronodisk devices`, or a file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    /// Where NBD clients find it; a bare PORT listens on the loopback interface. Can be given more
    /// than once
    #[arg(long, value_name = "unix:PATH|HOST:PORT|PORT", required_unless_present = "vhost_user")]
    nbd: Vec<Address>,

    /// Socket at which a virtual machine finds it as vhost-user-blk
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,

    /// Capacity of the device, such as 8GiB, instead of the profile's
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Seed of everything that is random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Where the device's bytes are: ram, a file that keeps them, or a file with memory in front of
    /// it (overflow:FILE)
    #[arg(long, value_name = "ram|FILE|overflow:FILE", default_value = "ram")]
    store: OsString,

    /// Host memory that the device's bytes may fill; half of this host's, if not given
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    /// Brings the bytes that an earlier run used into memory ahead of their use in this one; of
    /// --store overflow:FILE
    #[arg(long, value_name = "RUN")]
    preload: Option<String>,

    /// A flush of the client's reaches the medium of the host's file system
    #[arg(long)]
    durable: bool,

    /// Refuses everything that would change the contents
    #[arg(long)]
    read_only: bool,

    /// Keeps the process's memory from being paged out
    #[arg(long)]
    lock_memory: bool,

    /// Most clients at a time
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// From a client's request to its reception: `auto` measures while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    arrival_skew: Tracked,

    /// From the decision to reply until the reply has left: `auto` measures while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    completion_lead: Tracked,

    /// Does without real-time priority, even if it is permitted, and lets the CPUs sleep
    #[arg(long)]
    no_realtime: bool,

    /// Binds the threads that serve to this CPU, counted from 0
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Prints a line of figures every second
    #[arg(long)]
    stats: bool,

    /// Runs a shell command with the device's address in $uri (and a socket's path in $unixsocket),
    /// and ends with its exit status
    #[arg(long, value_name = "CMD")]
    run: Option<OsString>,

    /// Writes the process's number to this file when clients can connect, and removes it at the end
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    /// Directory for the result, instead of a new one in the folder of runs
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Writes the result as JSON to standard output; CMD's own output then goes to standard error
    #[arg(long)]
    json: bool,
}

/// Measured online, or fixed.
type Tracked = chronodisk_engine::Tracked;

fn tracked(text: &str) -> Result<Tracked, String> {
    if text == "auto" {
        return Ok(Tracked::Auto);
    }
    quantity::duration(text).map(Tracked::Fixed)
}

/// Serves until a signal comes or the program of `--run` has ended, and keeps the result.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    let device = device::load(&arguments.device, arguments.capacity, arguments.seed)?;
    let directory = runs::plan(arguments.output.as_deref(), device.name())?;
    let options = server_options(&arguments)?;
    // Before any thread exists, so that none of them takes the signal.
    let signals = signals()?;
    let (mut server, overflow) = start(&arguments, &device, options)?;
    let addresses = listen(&arguments, &device, &mut server)?;
    let pidfile = arguments.pidfile.as_deref().map(PidFile::write).transpose()?;

    let ended = match &arguments.run {
        Some(command) => captive(&arguments, command, &addresses, &server, signals)?,
        None => {
            let nbd = addresses.iter().take(arguments.nbd.len());
            nbd.for_each(|address| output::note(format_args!("serving at {}", address.nbd_uri())));
            if let Some(path) = &arguments.vhost_user {
                output::note(format_args!("serving vhost-user-blk at {}", path.display()));
            }
            wait(&arguments, &server, signals, None)?
        }
    };
    drop(pidfile);
    let mut outcome = server.stop();
    if let Some(overflow) = overflow {
        outcome.model_statistics.extend(overflow_statistics(&overflow));
    }
    keep(&arguments, given, &device, &directory, &addresses, &outcome, ended.status)?;
    Ok(ended.status)
}

fn server_options(arguments: &Arguments) -> Result<ServerOptions, Failure> {
    if let Some(cpu) = arguments.cpu
        && !real_host::usable_cpus().contains(&cpu)
    {
        let usable: Vec<String> = real_host::usable_cpus().iter().map(usize::to_string).collect();
        return Err(Failure::usage(format!("--cpu {cpu}: this process may use CPUs {}", usable.join(", "))));
    }
    Ok(ServerOptions {
        timing: RealOptions { arrival_skew: arguments.arrival_skew, completion_lead: arguments.completion_lead },
        realtime: !arguments.no_realtime,
        cpu: arguments.cpu,
        connections_max: arguments.connections as usize,
    })
}

fn start(
    arguments: &Arguments,
    device: &Device,
    options: ServerOptions,
) -> Result<(Server, Option<OverflowView>), Failure> {
    let info = device.info();
    let size_bytes = info.capacity_sectors * SECTOR_BYTES;
    let (store, overflow) = open_store(arguments, size_bytes)?;
    let export = Export {
        description: format!("chronodisk {}", info.name),
        block_bytes_min: info.logical_block_bytes.min(1 << 16),
        block_bytes_preferred: info.physical_block_bytes.max(4096).max(info.logical_block_bytes).min(1 << 25),
        read_only: arguments.read_only,
        rotational: info.rotational,
        trim: info.discard_unit_sectors.is_some(),
        ..Export::new("", size_bytes)
    };
    let offer = ServerOffer::new(vec![export], Tls::Off).map_err(Failure::usage)?;
    if arguments.lock_memory {
        real_host::lock_memory().map_err(|error| {
            Failure::host(format!("can't lock memory: {error}"))
                .help("raise the limit with `ulimit -l`, or leave --lock-memory out")
        })?;
    }
    let clock = MonotonicClock::new();
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(clock.clone()));
    let index = engine.attach(device.model());
    let server = Server::new(engine, index, store, offer, clock, options)
        .map_err(|error| Failure::host(format!("can't start a server: {error}")))?;
    Ok((server, overflow))
}

/// A store, and a view of it if it overflows.
type Opened = (Box<dyn Store>, Option<OverflowView>);

fn open_store(arguments: &Arguments, capacity_bytes: u64) -> Result<Opened, Failure> {
    let name = arguments.store.to_string_lossy();
    let overflow = name.strip_prefix("overflow:");
    if arguments.preload.is_some() && overflow.is_none() {
        return Err(Failure::usage(
            "--preload is of --store overflow:FILE; in other stores all bytes are always there",
        ));
    }
    if let Some(path) = overflow {
        let file = open_file(Path::new(path), capacity_bytes, arguments.durable)?;
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        let mut store = OverflowStore::new(file, budget_bytes);
        if let Some(run) = &arguments.preload {
            store.set_preload(access_list(run)?);
        }
        let store = Preloaded::start(store).map_err(Failure::host)?;
        let view = store.view();
        return Ok((Box::new(store), Some(view)));
    }
    if name == "ram" {
        if arguments.durable {
            return Err(Failure::usage("--durable needs a file; memory does not survive anything")
                .help("name one with --store"));
        }
        let budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
        return Ok((Box::new(RamStore::new(capacity_bytes, budget_bytes)), None));
    }
    if arguments.ram_budget.is_some() {
        return Err(Failure::usage("--ram-budget is of --store ram and overflow:FILE; a file takes what it needs"));
    }
    let file = open_file(Path::new(&arguments.store), capacity_bytes, arguments.durable)?;
    Ok((Box::new(file), None))
}

fn open_file(path: &Path, capacity_bytes: u64, durable: bool) -> Result<FileStore, Failure> {
    let opened = match path.exists() {
        true => FileStore::open(path, capacity_bytes, durable),
        false => FileStore::create(path, capacity_bytes, durable),
    };
    opened.map_err(Failure::usage)
}

/// What the requests of an earlier run used, in their order.
fn access_list(run: &str) -> Result<AccessList, Failure> {
    let replayable = stored::read_replayable(&runs::find(run)?)?;
    let records = replayable.repetitions.into_iter().flat_map(|repetition| repetition.records);
    let data = records.filter(|record| record.op.moves_data());
    Ok(AccessList::new(data.map(|record| (record.lba.offset_bytes(), u64::from(record.sectors) * SECTOR_BYTES))))
}

fn listen(arguments: &Arguments, device: &Device, server: &mut Server) -> Result<Vec<Address>, Failure> {
    let listened = arguments.nbd.iter().map(|address| server.listen_nbd(address));
    let mut addresses: Vec<Address> =
        listened.collect::<Result<_, _>>().map_err(|error| Failure::host(format!("--nbd {error}")))?;
    if let Some(path) = &arguments.vhost_user {
        let address = Address::Unix(path.clone());
        let listened = server.listen_vhost_user(&address, blk_config(device.info(), arguments.read_only)?);
        listened.map_err(|error| Failure::host(format!("--vhost-user {error}")))?;
        addresses.push(address);
    }
    Ok(addresses)
}

/// The device as a virtual machine sees it.
fn blk_config(info: &DeviceInfo, read_only: bool) -> Result<BlkConfig, Failure> {
    if read_only {
        return Err(Failure::usage("--read-only is of --nbd; let the virtual machine open the device read-only"));
    }
    Ok(BlkConfig {
        capacity_sectors: info.capacity_sectors,
        logical_block_bytes: info.logical_block_bytes,
        physical_block_bytes: info.physical_block_bytes,
        serial: info.name.clone(),
        discard_unit_sectors: info.discard_unit_sectors,
        write_zeroes: true,
        volatile_cache: info.volatile_cache,
        seg_max: SEG_MAX_DEFAULT,
    })
}

/// How serving ended.
struct Ended {
    status: u8,
}

/// A descriptor that gets a byte for every signal that ends the server.
fn signals() -> Result<UnixStream, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("can't catch signals: {error}"));
    let (reader, writer) = UnixStream::pair().map_err(failed)?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        let writer = writer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, writer).map_err(failed)?;
    }
    Ok(reader)
}

/// Runs the command, and serves until it has ended.
fn captive(
    arguments: &Arguments,
    command: &OsString,
    addresses: &[Address],
    server: &Server,
    signals: UnixStream,
) -> Result<Ended, Failure> {
    let first = addresses.first().expect("the command line asks for one");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command);
    if !arguments.nbd.is_empty() {
        shell.env("uri", first.nbd_uri());
    }
    match first {
        Address::Unix(path) => {
            shell.env("unixsocket", path);
        }
        Address::Tcp { port, .. } => {
            shell.env("port", port.to_string());
        }
    }
    if arguments.json {
        // Standard output is the result's.
        shell.stdout(Stdio::from(std::io::stderr()));
    }
    let child = shell.spawn().map_err(|error| Failure::host(format!("can't start a shell: {error}")))?;
    wait(arguments, server, signals, Some(child))
}

/// Waits for a signal, or for the child's end; shows figures meanwhile if asked to.
fn wait(
    arguments: &Arguments,
    server: &Server,
    mut signals: UnixStream,
    child: Option<Child>,
) -> Result<Ended, Failure> {
    let failed = |error: std::io::Error| Failure::host(format!("can't wait: {error}"));
    let (mut news, tell) = UnixStream::pair().map_err(failed)?;
    let tick = arguments.stats.then_some(std::time::Duration::from_secs(1));
    news.set_read_timeout(tick).map_err(failed)?;
    let mut by_signal = tell.try_clone().map_err(failed)?;
    // These two end with the process at the latest.
    thread::spawn(move || {
        let mut byte = [0];
        if signals.read_exact(&mut byte).is_ok() {
            let _ = std::io::Write::write_all(&mut by_signal, b"s");
        }
    });
    let child_number = child.as_ref().map(Child::id);
    let waiting = child.map(|mut child| {
        let mut by_child = tell;
        thread::spawn(move || {
            let status = child.wait();
            let _ = std::io::Write::write_all(&mut by_child, b"c");
            status
        })
    });
    let mut figures = Figures::default();
    let mut byte = [0];
    loop {
        match news.read(&mut byte) {
            Ok(1) if byte == *b"s" => break,
            Ok(_) => {
                let status = waiting.map(thread::JoinHandle::join);
                return match status {
                    Some(Ok(Ok(status))) => Ok(Ended { status: exit_status(status) }),
                    _ => Err(Failure::host("can't wait for the command")),
                };
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                figures.show(server);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    // A signal ends the command, too, if there is one: it would be left without its device.
    if let Some(number) = child_number.and_then(|number| i32::try_from(number).ok())
        && let Some(process) = rustix::process::Pid::from_raw(number)
    {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let status = waiting.map(thread::JoinHandle::join);
        if let Some(Ok(Ok(status))) = status {
            return Ok(Ended { status: exit_status(status) });
        }
    }
    Ok(Ended { status: status::FINE })
}

/// As a shell has it: 128 and the signal's number if one ended the process.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// What `--stats` prints: a line for the second that has passed.
#[derive(Default)]
struct Figures {
    seen: usize,
}

impl Figures {
    fn show(&mut self, server: &Server) {
        let statistics = server.statistics();
        let first = self.seen;
        let (count, bytes, lateness) = server.look_at_records(|records| {
            self.seen = records.len();
            let fresh = &records[first.min(records.len())..];
            let bytes: u64 = fresh.iter().map(|record| u64::from(record.sectors) * SECTOR_BYTES).sum();
            let seen = fresh.iter().filter(|record| record.is_completed());
            let mut lateness: Vec<Nanos> = seen.map(chronodisk_sim::RequestRecord::lateness).collect();
            let median = lateness.len() / 2;
            let median = (!lateness.is_empty()).then(|| *lateness.select_nth_unstable(median).1);
            (fresh.len(), bytes, median)
        });
        let outstanding = statistics.engine.arrivals - statistics.engine.completions;
        output::note(format_args!(
            "{count} requests/s, {:.1} MB/s, {outstanding} outstanding, lateness p50 {}",
            bytes as f64 / 1e6,
            lateness.map_or("-".to_owned(), |lateness| lateness.to_string()),
        ));
    }
}

/// A file with this process's number, removed when this value is dropped.
struct PidFile<'a>(&'a Path);

impl<'a> PidFile<'a> {
    fn write(path: &'a Path) -> Result<Self, Failure> {
        fs::write(path, format!("{}\n", std::process::id()))
            .map_err(|error| Failure::host(format!("--pidfile {}: {error}", path.display())))?;
        Ok(PidFile(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

/// The store's figures, beside the model's.
fn overflow_statistics(overflow: &OverflowView) -> Vec<(String, f64)> {
    let statistics = overflow.statistics();
    let named = [
        ("store-hits", statistics.hits),
        ("store-misses", statistics.misses),
        ("store-evictions", statistics.evictions),
        ("store-written-back", statistics.written_back),
        ("store-preloaded", statistics.preloaded),
        ("store-memory-bytes", overflow.memory_bytes()),
    ];
    named.map(|(name, value)| (name.to_owned(), value as f64)).into()
}

fn keep(
    arguments: &Arguments,
    given: &dyn Fn(&str) -> bool,
    device: &Device,
    directory: &Path,
    addresses: &[Address],
    outcome: &ServerOutcome,
    status: u8,
) -> Result<(), Failure> {
    let all = all_options(arguments);
    let options_given = all.iter().filter(|(name, _)| given(name)).map(|(name, value)| (name.clone(), value.clone()));
    let command = arguments.run.iter().map(|command| command.to_string_lossy().into_owned()).collect();
    let options_given = options_given.collect();
    let mut result = served(directory, device, outcome, addresses, command, status);
    (result.options_given, result.options) = (options_given, all);
    runs::make(directory)?;
    stored::write_repetition(directory, 0, &outcome.records)?;
    stored::write_run(directory, &result)?;
    runs::remember(directory);
    output::note(render_run_summary(&result).trim_end());
    output::note(format_args!("result: {}", directory.display()));
    if arguments.json { output::data(&result.to_json()) } else { Ok(()) }
}

/// All options as they took effect, by the names of their flags.
fn all_options(arguments: &Arguments) -> BTreeMap<String, Value> {
    let tracked = |tracked: Tracked| match tracked {
        Tracked::Auto => json!("auto"),
        Tracked::Fixed(duration) => json!(duration.as_nanos()),
    };
    let nbd: Vec<String> = arguments.nbd.iter().map(Address::to_string).collect();
    let entries: [(&str, Value); 19] = [
        ("device", json!(arguments.device)),
        ("nbd", json!(nbd)),
        ("vhost-user", json!(arguments.vhost_user)),
        ("capacity", json!(arguments.capacity)),
        ("seed", json!(arguments.seed)),
        ("store", json!(arguments.store.to_string_lossy())),
        ("ram-budget", json!(arguments.ram_budget)),
        ("preload", json!(arguments.preload)),
        ("durable", json!(arguments.durable)),
        ("read-only", json!(arguments.read_only)),
        ("lock-memory", json!(arguments.lock_memory)),
        ("connections", json!(arguments.connections)),
        ("arrival-skew", tracked(arguments.arrival_skew)),
        ("completion-lead", tracked(arguments.completion_lead)),
        ("no-realtime", json!(arguments.no_realtime)),
        ("cpu", json!(arguments.cpu)),
        ("stats", json!(arguments.stats)),
        ("run", json!(arguments.run.as_ref().map(|command| command.to_string_lossy()))),
        ("json", json!(arguments.json)),
    ];
    entries.map(|(name, value)| (name.to_owned(), value)).into()
}
