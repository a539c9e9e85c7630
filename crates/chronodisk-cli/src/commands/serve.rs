//! `chronodisk serve`: an emulated device for any client, in real time.

mod before;
mod ending;
mod metrics;
mod shadow;
mod store;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_device::{DeviceInfo, Speed};
use chronodisk_engine::ending::Offspring;
use chronodisk_engine::listen::Share;
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, real_host};
use chronodisk_front::BlkConfig;
use chronodisk_front::fuse::FuseFile;
use chronodisk_front::nbd::tls::{VerifyPeer, server_config};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, OverflowView, Server, ServerOptions, ServerOutcome};
use chronodisk_native::Attachment;
use chronodisk_report::{EndedBy, ShadowResult};
use chronodisk_run::device::{self, Device};
use chronodisk_run::{
    EndSignals, Gathered, Keyboard, LabelArguments, RecordedOptions, RunDirectory, RunFolder, Runner, ServedRep,
    Setting, SquashArguments, add_served_repetition, native_failure, new_result, now_rfc3339, quantity, server_failure,
    settings_of,
};
use chronodisk_sim::SECTOR_BYTES;
use clap::{Args, ValueEnum};

use self::before::NewStore;
use self::ending::{Ending, PidFile, Waiting};
use self::metrics::Metrics;
use self::shadow::Target;
use crate::failure::{Failure, Outcome, status};
use crate::http::{Page, PageServer};
use crate::status_line::StatusLine;
use crate::{output, version};

/// Serves an emulated device over NBD or to a virtual machine, in real time
///
/// Clients use the network block device protocol (NBD): QEMU, nbdcopy, fio, the kernel's nbd module, or another
/// machine. Each reply is sent when the device model completes the request. The server ends on Ctrl-C, SIGTERM or
/// SIGHUP, or when the program of --run ends. It keeps a log of all requests, which `chronodisk verify` can replay.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: that of the program of --run; 0 without one;\n\
    2 for wrong usage; 3 if this host lacks something, if the store could not be closed,\n\
    if the result could not be written, or after a defect of this program.\n\n\
    Example: chronodisk serve --device constant-10ms --nbd unix:disk.sock --run 'nbdinfo $uri'\n\
    \x20        chronodisk serve --device first-disk --nbd 10809 --store overflow:disk.img")]
pub struct Arguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    device: String,

    /// Listens for NBD clients at this address; may be repeated. A bare PORT listens on the loopback interface; a HOST
    /// that other machines reach needs --tls-verify-peer or --insecure
    #[arg(long, value_name = "unix:PATH|HOST:PORT|PORT", required_unless_present_any = ["vhost_user", "attach"])]
    nbd: Vec<Address>,

    /// Listens for a virtual machine at this socket, with the protocol vhost-user-blk
    #[arg(long, value_name = "PATH")]
    vhost_user: Option<PathBuf>,

    /// Makes a block device of this host's kernel, which needs root. --run finds it in $device
    #[arg(long, value_name = "WAY")]
    attach: Option<Attach>,

    /// Sets the capacity of the device, such as 8GiB (default: the profile's). If it exceeds the drive's, several
    /// drives are concatenated
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// Starts the device in the state in this file, made by `chronodisk age` (default: a new device)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Sets the speed of the device relative to its profile, such as 2x or 0.5x (default: 1x)
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    device_speed: Option<Speed>,

    /// Seeds all random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Keeps the device's bytes in memory, in a file, or in a file with a cache in memory (overflow:FILE)
    #[arg(long, value_name = "ram|FILE|overflow:FILE", default_value = "ram")]
    store: OsString,

    /// Serves requests from this real device or file, while the model of --device sees the same arrivals. The result
    /// compares measured and modelled times
    #[arg(long, value_name = "DEVICE|FILE", conflicts_with_all = ONLY_EMULATED)]
    shadow: Option<PathBuf>,

    /// Limits the requests outstanding at the real device
    #[arg(long, value_name = "N", default_value_t = 32, requires = "shadow",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    shadow_depth: u32,

    /// Plots the distributions of measured and modelled service times to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file, requires = "shadow")]
    plot: Option<PathBuf>,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    #[command(flatten)]
    squash: SquashArguments,

    /// Loads the bytes that an earlier run used into memory ahead of their use, under --store overflow:FILE
    #[arg(long, value_name = "RUN")]
    preload: Option<String>,

    /// Makes completed writes, or flushes if the device has a volatile cache, survive a power cut of this host
    #[arg(long)]
    durable: bool,

    /// Refuses all requests that change data
    #[arg(long)]
    read_only: bool,

    /// Locks the process's memory, so that it is never paged out
    #[arg(long)]
    lock_memory: bool,

    /// Limits the number of clients connected at a time. One that never asked for anything, or is silent for 10
    /// minutes, makes room for another
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,

    /// Limits the number of clients at one address, or of one user at a local socket (default: three quarters of
    /// --connections)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections_per_address: Option<u32>,

    /// Limits the memory for data of NBD clients' requests, at least 64MiB in all. Further requests wait
    #[arg(long, value_name = "SIZE", value_parser = client_memory, default_value = "1GiB")]
    client_memory: u64,

    /// Subtracts this time between sending and receiving a request from its arrival; auto measures it while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    arrival_skew: Tracked,

    /// Sends each reply earlier by the time that sending takes; auto measures it while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    completion_lead: Tracked,

    /// Does not use real-time priority, and lets idle CPUs sleep
    #[arg(long)]
    no_realtime: bool,

    /// Binds the serving threads to this CPU, counted from 0
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Allows or requires encryption of NBD (default: require, if --tls-certificates is given)
    #[arg(long, value_name = "allow|require", requires = "tls_certificates")]
    tls: Option<TlsChoice>,

    /// Reads the server's certificate and key from this directory (server-cert.pem, server-key.pem); also ca-cert.pem
    /// and ca-crl.pem for --tls-verify-peer
    #[arg(long, value_name = "DIR", requires = "nbd")]
    tls_certificates: Option<PathBuf>,

    /// Serves only clients whose certificate is signed by the authority in ca-cert.pem. Pre-shared keys (PSK) are not
    /// supported
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,

    /// Listens beyond the loopback interface without verifying who connects, for --nbd and --metrics
    #[arg(long)]
    insecure: bool,

    /// Prints a line of statistics every second
    #[arg(long)]
    stats: bool,

    /// Shows neither the status line nor the summary; warnings and errors are shown
    #[arg(long, short)]
    quiet: bool,

    /// Serves metrics for Prometheus at http://HOST:PORT/metrics. A bare PORT listens on the loopback interface;
    /// another address needs --insecure
    #[arg(long, value_name = "HOST:PORT|PORT", value_parser = metrics_address)]
    metrics: Option<Address>,

    /// Runs this shell command with the device's address in $uri and the socket's path in $unixsocket, and ends with
    /// its status
    #[arg(long, value_name = "CMD")]
    run: Option<OsString>,

    /// Writes the process id to this file once clients can connect, and removes it at the end
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,

    #[command(flatten)]
    labels: LabelArguments,

    /// Writes the result to this directory (default: a new one in ~/.local/state/chronodisk/runs)
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Prints the result as JSON on standard output; CMD's output goes to standard error
    #[arg(long)]
    json: bool,
}

/// Options without a meaning for a real device.
const ONLY_EMULATED: [&str; 8] =
    ["store", "ram_budget", "preload", "durable", "vhost_user", "attach", "arrival_skew", "completion_lead"];

/// Measured online, or fixed.
type Tracked = chronodisk_engine::Tracked;

fn tracked(text: &str) -> Result<Tracked, String> {
    if text == "auto" {
        return Ok(Tracked::Auto);
    }
    quantity::duration(text).map(Tracked::Fixed)
}

fn client_memory(text: &str) -> Result<u64, String> {
    let bytes = quantity::bytes(text)?;
    // One request has up to 32 MiB.
    if bytes < CLIENT_MEMORY_MIN { Err("expected at least 64MiB".into()) } else { Ok(bytes) }
}

const CLIENT_MEMORY_MIN: u64 = 64 << 20;

fn metrics_address(text: &str) -> Result<Address, String> {
    match text.parse()? {
        Address::Unix(_) => Err("expected HOST:PORT or PORT; Prometheus does not support Unix sockets".into()),
        address => Ok(address),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Attach {
    /// The way that suits this host: fuse
    Auto,
    /// A file of FUSE, and a loop device of it
    Fuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TlsChoice {
    /// Clients choose
    Allow,
    /// Only encrypted connections are served
    Require,
}

impl Arguments {
    fn nbd_uri(&self, address: &Address) -> String {
        address.nbd_uri(self.tls_certificates.is_some())
    }
}

/// Serves until a signal comes or the program of `--run` has ended, and keeps the result.
pub fn execute(arguments: Arguments, recorded: &RecordedOptions) -> Outcome {
    let started_at = now_rfc3339();
    before::check_exposure(&arguments)?;
    let target = arguments.shadow.as_deref().map(|path| shadow::open(&arguments, path)).transpose()?;
    let device = match &target {
        Some(target) => shadow::model(&arguments, target)?,
        None => device::load(&arguments.device, arguments.capacity, arguments.seed)?.without_zones()?,
    };
    let device = device.begin_in(arguments.state.as_deref())?.with_speed(arguments.device_speed);
    arguments
        .squash
        .refuse_contradiction(Path::new(&arguments.store), recorded.is_given("seed").then_some(arguments.seed))?;
    let described =
        target.as_ref().map(|target| shadow::Described { name: target.name.clone(), direct: target.store.is_direct() });
    let directory = RunFolder::plan(arguments.output.as_deref(), device.name())?;
    arguments.plot.as_deref().map_or(Ok(()), output::expect_place)?;
    arguments.pidfile.as_deref().map_or(Ok(()), PidFile::expect_free)?;
    let options = server_options(&arguments)?;
    before::ensure_descriptors(arguments.connections)?;
    // Before any thread exists, so that none of them takes the signal.
    let signals = EndSignals::catch(Keyboard::AsksToEnd)?;
    // Declared before what writes into it, and so dropped after that.
    let unused = FreshDirectory::make(&directory)?;
    let new_store = NewStore::of(&arguments);
    let (mut server, overflow) = start(&arguments, &device, target, options)?;
    let gathered = Gathered::new(&directory.log(0))?;
    let cant_start = |error| Failure::host(format!("can't start a server: {error}"));
    server.record_to(gathered.recorder()).map_err(cant_start)?;
    let addresses = listen(&arguments, &device, &mut server)?;
    let attachment = attach(&arguments, &device, &mut server)?;
    let block_device = attachment.as_ref().map(|attachment| attachment.path().to_owned());
    let metrics = arguments.metrics.as_ref().map(|address| {
        let profile = device.name().to_owned();
        let (server, gathered, overflow) = (server.view(), gathered.clone(), overflow.clone());
        show_metrics(address, Metrics { profile, server, gathered, overflow })
    });
    let metrics = metrics.transpose()?;
    let pidfile = arguments.pidfile.as_deref().map(PidFile::write).transpose()?;

    let offspring = Offspring::adopt().map_err(|error| Failure::host(format!("can't adopt processes: {error}")))?;
    let child = match &arguments.run {
        Some(command) => Some(ending::captive(&arguments, command, addresses.first(), block_device.as_deref())?),
        None => {
            announce(&arguments, &addresses);
            None
        }
    };
    new_store.keep();
    // Where the program of --run writes to the terminal, a line that is drawn there would be in its way.
    let line = StatusLine::new(arguments.quiet || child.is_some());
    let mut show = || match figures(&server, &gathered) {
        figures if arguments.stats => output::note(figures),
        figures => line.say(figures),
    };
    let wanted = arguments.stats || line.is_shown();
    let every_second = wanted.then_some(&mut show as &mut dyn FnMut());
    let waited = Waiting { signals: &signals, child, attachment: attachment.as_ref(), every_second }.wait(&offspring);
    // What was served is kept also if that failed.
    let ending = *waited.as_ref().unwrap_or(&Ending { status: status::HOST_LACKS, by_signal: false });
    line.clear();
    // The block device goes before the server that it needs.
    drop((pidfile, metrics, attachment));
    let mut outcome = server.stop();
    if let Some(overflow) = overflow {
        outcome.model_statistics.extend(store::overflow_statistics(&overflow));
    }
    // Findings are shown even if files can't be written.
    let logged = gathered.finish_log();
    let log = directory.log(0);
    let compare = |target| shadow::compare(&arguments, &device, target, &log);
    let (shadow, compared) = match described.filter(|_| logged.is_ok()).map(compare).transpose() {
        Ok(shadow) => (shadow, Ok(())),
        Err(failure) => (None, Err(failure)),
    };
    let keeping = Keeping {
        arguments: &arguments,
        recorded,
        device: &device,
        block_device: block_device.as_deref(),
        directory: &directory,
        started_at,
        shadow,
        failure: waited.as_ref().err().map(Failure::to_string),
    };
    let kept = keep(keeping, &addresses, &outcome, &gathered, ending);
    drop(unused);
    // One is returned, which shows it; the others are shown here.
    let mut failures: Vec<Failure> =
        [waited.map(drop), logged, compared, kept].into_iter().filter_map(Result::err).collect();
    let last = failures.pop();
    failures.into_iter().for_each(output::failure);
    last.map_or_else(|| Ok(final_status(ending.status, &outcome)), Err)
}

/// The exit status: a failure of this program precedes the status of `--run`'s program, which the result has.
fn final_status(of_command: u8, outcome: &ServerOutcome) -> u8 {
    if server_failure(outcome).is_some() { status::HOST_LACKS } else { of_command }
}

fn announce(arguments: &Arguments, addresses: &[Address]) {
    let nbd = addresses.iter().take(arguments.nbd.len());
    nbd.for_each(|address| output::note(format_args!("serving at {}", arguments.nbd_uri(address))));
    if let Some(path) = &arguments.vhost_user {
        output::note(format_args!("serving vhost-user-blk at {}", path.display()));
    }
}

/// The run's directory, which is removed again if nothing comes into it.
struct FreshDirectory(Option<PathBuf>);

impl FreshDirectory {
    fn make(directory: &RunDirectory) -> Result<Self, Failure> {
        let fresh = !directory.path().exists();
        directory.make()?;
        Ok(FreshDirectory(fresh.then(|| directory.path().to_owned())))
    }
}

impl Drop for FreshDirectory {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // It fails, as it should, where something is in it.
            let _ = fs::remove_dir(path);
        }
    }
}

fn show_metrics(address: &Address, metrics: Metrics) -> Result<PageServer, Failure> {
    let Address::Tcp { host, port } = address else { unreachable!("other addresses are refused") };
    let render = Box::new(move || metrics.render());
    let page = Page { path: "/metrics", content_type: metrics::CONTENT_TYPE, render };
    let server = PageServer::start((host.as_str(), *port), page)
        .map_err(|error| Failure::host(format!("--metrics {address}: {error}")))?;
    output::note(format_args!("metrics at http://{}/metrics", server.address()));
    Ok(server)
}

/// Output of `--stats`, and the status line on a terminal: a line for the last second.
fn figures(server: &Server, gathered: &Gathered) -> String {
    let engine = server.statistics().engine;
    let (requests, bytes, lateness) = gathered.recent();
    format!(
        "{requests} requests/s, {:.1} MB/s, {} outstanding, lateness p50 {}",
        bytes as f64 / 1e6,
        engine.arrivals - engine.completions,
        lateness.map_or("-".to_owned(), |lateness| lateness.to_string()),
    )
}

fn server_options(arguments: &Arguments) -> Result<ServerOptions, Failure> {
    if let Some(cpu) = arguments.cpu
        && !real_host::usable_cpus().contains(&cpu)
    {
        let usable: Vec<String> = real_host::usable_cpus().iter().map(usize::to_string).collect();
        return Err(Failure::usage(format!(
            "--cpu {cpu}: expected one of the CPUs that this process may use: {}",
            usable.join(", ")
        )));
    }
    Ok(ServerOptions {
        timing: RealOptions { arrival_skew: arguments.arrival_skew, completion_lead: arguments.completion_lead },
        // The kernel's threads of a loop device need the CPU on which a thread with priority would wait.
        realtime: !arguments.no_realtime && arguments.attach.is_none(),
        cpu: arguments.cpu,
        connections: connections(arguments),
        client_bytes_max: arguments.client_memory,
        ..ServerOptions::default()
    })
}

fn start(
    arguments: &Arguments,
    device: &Device,
    target: Option<Target>,
    options: ServerOptions,
) -> Result<(Server, Option<OverflowView>), Failure> {
    let info = device.info();
    let real_block_bytes = target.as_ref().map_or(512, |target| target.store.block_bytes());
    let is_real = target.is_some();
    let (size_bytes, (store, overflow)): (u64, store::Opened) = match target {
        Some(target) => (shadow::size_bytes(&target, device), (Box::new(target.store), None)),
        None => {
            let size_bytes = info.capacity_sectors * SECTOR_BYTES;
            (size_bytes, store::open(arguments, size_bytes, info.volatile_cache)?)
        }
    };
    let export = Export {
        // Zeros that a real device does not know are no faster than a write.
        write_zeroes: !is_real,
        description: format!("chronodisk {}", info.name),
        block_bytes_min: info.logical_block_bytes.max(real_block_bytes).min(1 << 16),
        block_bytes_preferred: info.physical_block_bytes.max(4096).max(info.logical_block_bytes).min(1 << 25),
        read_only: arguments.read_only,
        rotational: info.rotational,
        trim: info.discard_unit_sectors.is_some(),
        ..Export::new("", size_bytes)
    };
    let offer = ServerOffer::new(vec![export], tls(arguments)?).map_err(Failure::usage)?;
    if arguments.lock_memory {
        real_host::lock_memory().map_err(|error| {
            Failure::host(format!("can't lock memory: {error}"))
                .help("raise the limit with `ulimit -l`, or omit --lock-memory")
        })?;
    }
    let clock = MonotonicClock::new();
    let cant_start = |error| Failure::host(format!("can't start a server: {error}"));
    if is_real {
        let options = ServerOptions { helpers_max: arguments.shadow_depth as usize, ..options };
        return Ok((Server::shadow(device.model()?, store, offer, clock, options).map_err(cant_start)?, None));
    }
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(clock.clone()));
    let index = engine.attach(device.model()?);
    let server = Server::new(engine, index, store, offer, clock, options).map_err(cant_start)?;
    Ok((server, overflow))
}

fn tls(arguments: &Arguments) -> Result<Tls, Failure> {
    let Some(directory) = &arguments.tls_certificates else { return Ok(Tls::Off) };
    let verify = if arguments.tls_verify_peer { VerifyPeer::Yes } else { VerifyPeer::No };
    let config =
        server_config(directory, verify).map_err(|error| Failure::usage(format!("--tls-certificates: {error}")))?;
    Ok(match arguments.tls {
        Some(TlsChoice::Allow) => Tls::Allowed(config),
        None | Some(TlsChoice::Require) => Tls::Required(config),
    })
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

/// Makes the block device of `--attach`.
fn attach(arguments: &Arguments, device: &Device, server: &mut Server) -> Result<Option<Attachment>, Failure> {
    let Some(Attach::Auto | Attach::Fuse) = arguments.attach else { return Ok(None) };
    let info = device.info();
    let file = FuseFile { read_only: arguments.read_only, ..FuseFile::of(info) };
    let mut attachment = chronodisk_native::attach(server, info, file, "none").map_err(native_failure)?;
    // A disk of this host, open by its users only.
    attachment.leave().map_err(native_failure)?;
    output::note(format_args!("block device: {}", settings_of(&attachment).line()));
    Ok(Some(attachment))
}

/// The device as a virtual machine sees it.
fn blk_config(info: &DeviceInfo, read_only: bool) -> Result<BlkConfig, Failure> {
    if read_only {
        return Err(Failure::usage(
            "--read-only works with --nbd only; configure the virtual machine to open the device read-only",
        ));
    }
    Ok(BlkConfig::of(info))
}

/// Facts known before serving begins.
struct Keeping<'a> {
    arguments: &'a Arguments,
    recorded: &'a RecordedOptions,
    device: &'a Device,
    block_device: Option<&'a Path>,
    directory: &'a RunDirectory,
    started_at: String,
    shadow: Option<ShadowResult>,
    /// The first error of serving it.
    failure: Option<String>,
}

fn keep(
    keeping: Keeping<'_>,
    addresses: &[Address],
    outcome: &ServerOutcome,
    gathered: &Gathered,
    ending: Ending,
) -> Result<(), Failure> {
    let Keeping { arguments, recorded, device, block_device, directory, started_at, shadow, failure } = keeping;
    let command: Vec<OsString> = arguments.run.iter().cloned().collect();
    let mut result = new_result(&Setting {
        caller: &version::caller(),
        directory,
        devices: &[device.used()],
        command: &command,
        recorded,
        labels: &arguments.labels.labels(),
        runner: Runner::Served { shadow: shadow.is_some() },
    });
    result.started_at = started_at;
    let nodes = block_device.iter().map(|path| path.display().to_string());
    let state = gathered.state();
    let rep = ServedRep {
        addresses: addresses.iter().map(Address::to_string).chain(nodes).collect(),
        status: ending.status,
        outcome,
        summary: state.summary.finish(),
        lateness_unstolen: state.summary.lateness_unstolen(),
        shadow,
    };
    drop(state);
    add_served_repetition(&mut result, rep);
    result.failure = failure.or_else(|| server_failure(outcome));
    result.ended_by = match (&result.failure, ending.by_signal) {
        (Some(_), _) => EndedBy::Chronodisk,
        (None, true) => EndedBy::Signal,
        (None, false) => EndedBy::Command,
    };
    output::summary(&result, arguments.quiet);
    let shown = if arguments.json { output::data(&result.to_json()) } else { Ok(()) };
    directory.write_run(&result)?;
    RunFolder::remember(directory);
    if !arguments.quiet {
        output::note(format_args!("result: {}", directory.path().display()));
    }
    shown
}

fn connections(arguments: &Arguments) -> Share {
    let share = Share::of(arguments.connections as usize);
    let per_peer = arguments.connections_per_address.map_or(share.per_peer, |most| most as usize);
    Share { per_peer, ..share }
}
