//! `chronodisk emulator-server`: models and bytes for guests on other machines.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chronodisk_engine::emulator::{Devices, EmulatorServer, MemoryPool, ServeOptions, StorePlace, is_local};
use chronodisk_engine::listen::Share;
use chronodisk_engine::protocol::Token;
use chronodisk_front::nbd::tls::{VerifyPeer, server_config};
use chronodisk_run::memory::host_memory_bytes;
use chronodisk_run::{EndSignals, device, quantity};
use chronodisk_sim::Nanos;
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Serves device models and storage to guests on other machines
///
/// `chronodisk run --server HOST:PORT` boots a guest on another machine and uses this server's models and storage for
/// its devices. The guest's clock stands still during each exchange, so neither the network nor this machine's speed
/// changes its timing. Beyond the loopback interface, the server requires --token or --tls-verify-peer. It ends on
/// Ctrl-C, SIGTERM or SIGHUP.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: chronodisk emulator-server --listen 0.0.0.0:9000 --device cheetah-9lp --token secret\n\
    On the other machine: chronodisk run --server emulator:9000 --server-token secret -- postmark job.pm"
)]
pub struct Arguments {
    /// Listens at this address. A bare PORT listens on the loopback interface; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT|PORT|unix:PATH")]
    listen: String,

    /// Offers this device to guests that bring no profile: a name from `chronodisk devices`, or a profile file. May
    /// be repeated; the first is the default
    #[arg(long, short, value_name = "PROFILE")]
    device: Vec<String>,

    /// Stores the bytes of devices in memory, in FILE, or in memory with FILE behind it. A file serves one session at a
    /// time and keeps its bytes; in a directory each session has a file of its own, which is deleted with the session
    #[arg(long, value_name = "ram|FILE|overflow:FILE", default_value = "ram")]
    store: OsString,

    /// Makes completed writes, or flushes if the device has a volatile cache, survive a power cut of this host
    #[arg(long)]
    durable: bool,

    /// Limits the memory for the bytes of one device (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    /// Limits the memory for the bytes of all devices (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget_total: Option<u64>,

    /// Limits the memory for the tables of one device's model, as estimated before it is built (default: an eighth of
    /// the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    model_memory: Option<u64>,

    /// Limits the memory for the tables of all models (default: a quarter of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    model_memory_total: Option<u64>,

    /// Limits the number of devices in use at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,

    /// Limits the number of devices that clients at one address use at a time (default: three quarters of --sessions)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions_per_address: Option<u32>,

    /// Limits the number of connections; those without a device are closed for new ones (default: --sessions plus 48)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    connections: Option<u32>,

    /// Limits the number of connections from one address (default: three quarters of --connections)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    connections_per_address: Option<u32>,

    /// Keeps the device of a guest whose connection is lost for this time
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = quantity::duration)]
    keep: Nanos,

    /// Closes a connection that has no device after this time
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = quantity::duration)]
    greeting_timeout: Nanos,

    /// Gives the device of a guest that was silent for this time to another guest if there is no other room
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = quantity::duration)]
    idle_timeout: Nanos,

    /// Ends the session of a client whose command takes more processor time than this
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = quantity::duration)]
    call_limit: Nanos,

    /// Serves only clients that have the token in this file, of 16 bytes or more. Other users must not be able to read
    /// the file. The token itself is never sent
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,

    /// Encrypts all connections with server-cert.pem and server-key.pem from this directory; --tls-verify-peer also
    /// uses ca-cert.pem and ca-crl.pem
    #[arg(long, value_name = "DIR")]
    tls_certificates: Option<PathBuf>,

    /// Serves only clients whose certificate is signed by the authority in ca-cert.pem
    #[arg(long, requires = "tls_certificates")]
    tls_verify_peer: bool,

    /// Serves every client that can connect, also beyond the loopback interface
    #[arg(long)]
    insecure: bool,

    /// Prints counters as JSON on standard output at the end
    #[arg(long)]
    json: bool,
}

/// Name and version of the JSON form; added fields don't change it.
const SCHEMA: &str = "chronodisk.emulator-server/1";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    address: String,
    sessions: u64,
    resumptions: u64,
    requests: u64,
    rollbacks: u64,
    refusals: u64,
    evictions: u64,
    store_failures: u64,
}

/// Serves until a signal comes.
pub fn execute(arguments: Arguments) -> Outcome {
    let devices = devices(&arguments)?;
    let options = options(&arguments)?;
    let cant_listen = |error| Failure::host(format!("--listen {}: {error}", arguments.listen));
    let local = is_local(&arguments.listen).map_err(|error| {
        // A malformed address is a usage error; an unknown one is the host's.
        let is_wrong = error.kind() == std::io::ErrorKind::InvalidInput;
        let (listen, how) = (&arguments.listen, "expected a port, or HOST:PORT");
        if is_wrong { Failure::usage(format!("--listen {listen}: {error}; {how}")) } else { cant_listen(error) }
    })?;
    if !local && !arguments.insecure && arguments.token.is_none() && !arguments.tls_verify_peer {
        return Err(Failure::usage(format!(
            "--listen {} is not on the loopback interface, and any client that reaches it would be served",
            arguments.listen
        ))
        .help(
            "give the clients a --token FILE or certificates (--tls-verify-peer), or serve everybody with --insecure",
        ));
    }
    let asked = EndSignals::flag()?;
    let server = EmulatorServer::listen(&arguments.listen, Arc::new(devices), options).map_err(cant_listen)?;
    let address = server.address().map_err(cant_listen)?;
    output::note(format_args!("emulator server at {address}"));
    let served =
        server.serve(asked.as_flag()).map_err(|error| Failure::host(format!("can't accept guests: {error}")))?;
    output::note(format_args!(
        "{} sessions, {} requests, {} rollbacks",
        served.sessions, served.requests, served.rollbacks
    ));
    if arguments.json {
        output::json(&Report {
            schema: SCHEMA,
            address,
            sessions: served.sessions,
            resumptions: served.resumptions,
            requests: served.requests,
            rollbacks: served.rollbacks,
            refusals: served.refusals,
            evictions: served.evictions,
            store_failures: served.store_failures,
        })?;
    }
    match server.store_failure() {
        None => Ok(status::FINE),
        Some(failure) => {
            Err(Failure::host(format!("the bytes of {} devices may be lost: {failure}", served.store_failures)))
        }
    }
}

/// The devices, and the memory for them.
fn devices(arguments: &Arguments) -> Result<Devices, Failure> {
    let store = store(arguments)?;
    if arguments.ram_budget.is_some() && matches!(store, StorePlace::File { overflow: false, .. }) {
        return Err(Failure::usage("--ram-budget is of --store ram and overflow:FILE; a file has no limit"));
    }
    let memory_bytes = host_memory_bytes();
    let profiles = arguments.device.iter().map(|name| device::find(name)).collect::<Result<_, _>>()?;
    let models_bytes = arguments.model_memory_total.unwrap_or(memory_bytes / 4);
    Ok(Devices {
        profiles,
        store,
        store_budget_bytes: arguments.ram_budget.unwrap_or(memory_bytes / 2),
        stores: MemoryPool::new(arguments.ram_budget_total.unwrap_or(memory_bytes / 2)),
        model_budget_bytes: arguments.model_memory.unwrap_or(memory_bytes / 8).min(models_bytes),
        models: MemoryPool::new(models_bytes),
    })
}

fn store(arguments: &Arguments) -> Result<StorePlace, Failure> {
    let name = arguments.store.as_bytes();
    if name == b"ram" {
        return match arguments.durable {
            true => Err(Failure::usage("--durable is of a FILE; memory is gone with the server")),
            false => Ok(StorePlace::Ram),
        };
    }
    let overflow = name.strip_prefix(b"overflow:");
    let path = PathBuf::from(OsStr::from_bytes(overflow.unwrap_or(name)));
    if path.as_os_str().is_empty() {
        return Err(Failure::usage("--store overflow: has no FILE"));
    }
    Ok(StorePlace::File { path, overflow: overflow.is_some(), durable: arguments.durable })
}

/// The server's limits.
fn options(arguments: &Arguments) -> Result<ServeOptions, Failure> {
    let duration = |time: Nanos| Duration::from_nanos(time.as_nanos());
    let share = |most: u32, per_peer: Option<u32>| {
        let share = Share::of(most as usize);
        Share { per_peer: per_peer.map_or(share.per_peer, |most| most as usize), ..share }
    };
    let token = arguments.token.as_deref().map(Token::from_file).transpose();
    let tls = arguments.tls_certificates.as_deref().map(|directory| {
        let verify = if arguments.tls_verify_peer { VerifyPeer::Yes } else { VerifyPeer::No };
        server_config(directory, verify)
    });
    Ok(ServeOptions {
        sessions: share(arguments.sessions, arguments.sessions_per_address),
        connections: share(
            arguments.connections.unwrap_or(arguments.sessions + CONNECTIONS_SPARE),
            arguments.connections_per_address,
        ),
        keep: duration(arguments.keep),
        greeting: duration(arguments.greeting_timeout),
        idle: duration(arguments.idle_timeout),
        call: duration(arguments.call_limit),
        token: token.map_err(|error| Failure::usage(format!("--token: {error}")))?,
        tls: tls.transpose().map_err(|error| Failure::usage(format!("--tls-certificates: {error}")))?,
    })
}

/// Spare connections for clients before their greeting, and for clients that return before their loss was noticed.
const CONNECTIONS_SPARE: u32 = 48;
