//! `chronodisk serve`: an emulated device for any client, in real time.

mod ending;
mod metrics;
mod recording;
mod shadow;
mod store;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use chronodisk_device::DeviceInfo;
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, real_host};
use chronodisk_front::nbd::tls::{VerifyPeer, server_config};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::server::{Address, OverflowView, Server, ServerOptions, ServerOutcome};
use chronodisk_front::{BlkConfig, SEG_MAX_DEFAULT};
use chronodisk_report::{ShadowResult, render_run_summary};
use chronodisk_sim::SECTOR_BYTES;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::ending::PidFile;
use self::metrics::Metrics;
use self::recording::Gathered;
use self::shadow::Target;
use crate::device::{self, Device};
use crate::failure::{Failure, Outcome, status};
use crate::http::{Page, PageServer};
use crate::run_result::{Served, served};
use crate::squash::SquashArguments;
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

    /// Capacity of the device, such as 8GiB, instead of the profile's; what is beyond its geometry
    /// takes several of it, one after the other
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    capacity: Option<u64>,

    /// File with the state that the device begins in, made by `chronodisk age`; a new device if not given
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,

    /// Seed of everything that is random
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Where the device's bytes are: ram, a file that keeps them, or a file with memory in front of
    /// it (overflow:FILE)
    #[arg(long, value_name = "ram|FILE|overflow:FILE", default_value = "ram")]
    store: OsString,

    /// Lets a real device, or a file, serve the requests, while the model of --device sees the same
    /// arrivals beside it; the result compares the two
    #[arg(long, value_name = "DEVICE|FILE", conflicts_with_all = ONLY_EMULATED)]
    shadow: Option<PathBuf>,

    /// Most requests that are at the real device at once
    #[arg(long, value_name = "N", default_value_t = 32, requires = "shadow",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    shadow_depth: u32,

    /// Draws the distributions of measured and modelled service times
    #[arg(long, value_name = "FILE.svg", requires = "shadow")]
    plot: Option<PathBuf>,

    /// Host memory that the device's bytes may fill; half of this host's, if not given
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    #[command(flatten)]
    squash: SquashArguments,

    /// Brings the bytes that an earlier run used into memory ahead of their use in this one; of
    /// --store overflow:FILE
    #[arg(long, value_name = "RUN")]
    preload: Option<String>,

    /// Keeps through a power cut of this host, too, what the device promises: completed writes if it has no volatile
    /// cache, else completed flushes
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

    /// Whether NBD clients may or must encrypt; must, if there are certificates
    #[arg(long, value_name = "allow|require", requires = "tls_certificates")]
    tls: Option<TlsChoice>,

    /// Directory with the server's certificate and key (server-cert.pem, server-key.pem), and for
    /// --tls-verify-peer with the authority of the clients' (ca-cert.pem, ca-crl.pem)
    #[arg(long, value_name = "DIR", requires = "nbd")]
    tls_certificates: Option<PathBuf>,

    /// Serves only clients with a certificate by the authority in ca-cert.pem. Keys that both sides
    /// know (PSK) are not possible
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,

    /// Prints a line of figures every second
    #[arg(long)]
    stats: bool,

    /// Shows figures to Prometheus at http://HOST:PORT/metrics; a bare PORT listens on the loopback
    /// interface
    #[arg(long, value_name = "HOST:PORT|PORT", value_parser = metrics_address)]
    metrics: Option<Address>,

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

/// What a real device does not need.
const ONLY_EMULATED: [&str; 7] =
    ["store", "ram_budget", "preload", "durable", "vhost_user", "arrival_skew", "completion_lead"];

/// Measured online, or fixed.
type Tracked = chronodisk_engine::Tracked;

fn tracked(text: &str) -> Result<Tracked, String> {
    if text == "auto" {
        return Ok(Tracked::Auto);
    }
    quantity::duration(text).map(Tracked::Fixed)
}

fn metrics_address(text: &str) -> Result<Address, String> {
    match text.parse()? {
        Address::Unix(_) => Err("expected HOST:PORT or PORT; Prometheus reaches no socket in the file system".into()),
        address => Ok(address),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TlsChoice {
    /// Clients choose
    Allow,
    /// Nothing is told or served without
    Require,
}

impl Arguments {
    fn nbd_uri(&self, address: &Address) -> String {
        address.nbd_uri(self.tls_certificates.is_some())
    }
}

/// Serves until a signal comes or the program of `--run` has ended, and keeps the result.
pub fn execute(arguments: Arguments, given: &dyn Fn(&str) -> bool) -> Outcome {
    let started_at = runs::now_rfc3339();
    let target = arguments.shadow.as_deref().map(|path| shadow::open(&arguments, path)).transpose()?;
    let device = match &target {
        Some(target) => shadow::model(&arguments, target)?,
        None => device::load(&arguments.device, arguments.capacity, arguments.seed)?.without_zones()?,
    };
    let device = device.begin_in(arguments.state.as_deref())?;
    let described =
        target.as_ref().map(|target| shadow::Described { name: target.name.clone(), direct: target.store.is_direct() });
    let directory = runs::plan(arguments.output.as_deref(), device.name())?;
    let options = server_options(&arguments)?;
    // Before any thread exists, so that none of them takes the signal.
    let signals = ending::signals()?;
    // Declared before what writes into it, and so dropped after that.
    let unused = FreshDirectory::make(&directory)?;
    let (mut server, overflow) = start(&arguments, &device, target, options)?;
    let gathered = Gathered::new(&directory.join(stored::log_name(0)))?;
    let cant_start = |error| Failure::host(format!("can't start a server: {error}"));
    server.record_to(gathered.recorder()).map_err(cant_start)?;
    let addresses = listen(&arguments, &device, &mut server)?;
    let metrics = arguments.metrics.as_ref().map(|address| {
        let profile = device.name().to_owned();
        let (server, gathered, overflow) = (server.view(), gathered.clone(), overflow.clone());
        show_metrics(address, Metrics { profile, server, gathered, overflow })
    });
    let metrics = metrics.transpose()?;
    let pidfile = arguments.pidfile.as_deref().map(PidFile::write).transpose()?;

    let child = match &arguments.run {
        Some(command) => Some(ending::captive(&arguments, command, &addresses[0])?),
        None => {
            announce(&arguments, &addresses);
            None
        }
    };
    let mut show = || show_figures(&server, &gathered);
    let mut ended_with = ending::wait(signals, child, arguments.stats.then_some(&mut show as &mut dyn FnMut()))?;
    drop((pidfile, metrics));
    let mut outcome = server.stop();
    if outcome.store_close_error.is_some() {
        ended_with = status::HOST_LACKS;
    }
    if let Some(overflow) = overflow {
        outcome.model_statistics.extend(store::overflow_statistics(&overflow));
    }
    gathered.finish_log()?;
    let log = directory.join(stored::log_name(0));
    let compare = |target| shadow::compare(&arguments, &device, target, &log);
    let shadow = described.map(compare).transpose()?;
    let keeping = Keeping { arguments: &arguments, given, device: &device, directory: &directory, started_at, shadow };
    keep(keeping, &addresses, &outcome, &gathered, ended_with)?;
    drop(unused);
    Ok(ended_with)
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
    fn make(path: &Path) -> Result<Self, Failure> {
        let fresh = !path.exists();
        runs::make(path)?;
        Ok(FreshDirectory(fresh.then(|| path.to_owned())))
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

/// What `--stats` prints: a line for the second that has passed.
fn show_figures(server: &Server, gathered: &Gathered) {
    let engine = server.statistics().engine;
    let (requests, bytes, lateness) = gathered.recent();
    output::note(format_args!(
        "{requests} requests/s, {:.1} MB/s, {} outstanding, lateness p50 {}",
        bytes as f64 / 1e6,
        engine.arrivals - engine.completions,
        lateness.map_or("-".to_owned(), |lateness| lateness.to_string()),
    ));
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
                .help("raise the limit with `ulimit -l`, or leave --lock-memory out")
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

/// What is known before serving begins.
struct Keeping<'a> {
    arguments: &'a Arguments,
    given: &'a dyn Fn(&str) -> bool,
    device: &'a Device,
    directory: &'a Path,
    started_at: String,
    shadow: Option<ShadowResult>,
}

fn keep(
    keeping: Keeping<'_>,
    addresses: &[Address],
    outcome: &ServerOutcome,
    gathered: &Gathered,
    status: u8,
) -> Result<(), Failure> {
    let Keeping { arguments, given, device, directory, started_at, shadow } = keeping;
    let all = all_options(arguments);
    let options_given = all.iter().filter(|(name, _)| given(name)).map(|(name, value)| (name.clone(), value.clone()));
    let options_given = options_given.collect();
    let command = arguments.run.iter().map(|command| command.to_string_lossy().into_owned()).collect();
    let state = gathered.state();
    let mut result = served(&Served {
        directory,
        device,
        started_at,
        addresses,
        outcome,
        summary: state.summary.finish(),
        lateness_unstolen: state.summary.lateness_unstolen(),
        command,
        status,
        shadow,
    });
    drop(state);
    (result.options_given, result.options) = (options_given, all);
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
    let tls = arguments.tls_certificates.is_some().then(|| arguments.tls.unwrap_or(TlsChoice::Require));
    let tls = tls.and_then(|choice| choice.to_possible_value());
    let entries: [(&str, Value); 27] = [
        ("device", json!(arguments.device)),
        ("nbd", json!(nbd)),
        ("vhost-user", json!(arguments.vhost_user)),
        ("capacity", json!(arguments.capacity)),
        ("state", json!(arguments.state)),
        ("seed", json!(arguments.seed)),
        ("store", json!(arguments.store.to_string_lossy())),
        ("ram-budget", json!(arguments.ram_budget)),
        ("preload", json!(arguments.preload)),
        ("shadow", json!(arguments.shadow)),
        ("shadow-depth", json!(arguments.shadow.is_some().then_some(arguments.shadow_depth))),
        ("plot", json!(arguments.plot)),
        ("durable", json!(arguments.durable)),
        ("read-only", json!(arguments.read_only)),
        ("lock-memory", json!(arguments.lock_memory)),
        ("connections", json!(arguments.connections)),
        ("arrival-skew", tracked(arguments.arrival_skew)),
        ("completion-lead", tracked(arguments.completion_lead)),
        ("no-realtime", json!(arguments.no_realtime)),
        ("cpu", json!(arguments.cpu)),
        ("tls", json!(tls.map(|choice| choice.get_name().to_owned()))),
        ("tls-certificates", json!(arguments.tls_certificates)),
        ("tls-verify-peer", json!(arguments.tls_verify_peer)),
        ("stats", json!(arguments.stats)),
        ("metrics", json!(arguments.metrics.as_ref().map(Address::to_string))),
        ("run", json!(arguments.run.as_ref().map(|command| command.to_string_lossy()))),
        ("json", json!(arguments.json)),
    ];
    let mut all = entries.map(|(name, value)| (name.to_owned(), value)).into();
    arguments.squash.all_options(&mut all);
    all
}
