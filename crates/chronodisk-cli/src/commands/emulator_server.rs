//! `chronodisk emulator-server`: models and bytes for guests on other machines.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use chronodisk_engine::emulator::{Devices, EmulatorServer, ServeOptions};
use chronodisk_sim::Nanos;
use clap::Args;
use serde::Serialize;

use crate::failure::{Failure, Outcome, status};
use crate::run_result::host_memory_bytes;
use crate::{device, output, quantity};

/// Serves device models and storage to guests on other machines
///
/// `chronodisk run --server HOST:PORT` boots a guest on another machine and uses this server's models and memory for
/// its devices. The guest's clock stands still during each exchange, so neither the network nor this machine's speed
/// changes its timing. Every machine that can connect is served, so listen only on trusted networks. The server ends on
/// Ctrl-C or SIGTERM.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk emulator-server --listen 0.0.0.0:9000 --device cheetah-9lp\n\
    On the other machine: chronodisk run --server emulator:9000 -- postmark job.pm")]
pub struct Arguments {
    /// Listens at this address. A bare PORT listens on the loopback interface; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT|PORT")]
    listen: String,

    /// Offers this device to guests that bring no profile: a name from `chronodisk devices`, or a profile file. May
    /// be repeated; the first is the default
    #[arg(long, short, value_name = "PROFILE")]
    device: Vec<String>,

    /// Limits the memory for the bytes of one device (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    ram_budget: Option<u64>,

    /// Limits the number of devices in use at a time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    sessions: u32,

    /// Keeps the device of a guest whose connection is lost for this time
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = quantity::duration)]
    keep: Nanos,

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
}

/// Serves until a signal comes.
pub fn execute(arguments: Arguments) -> Outcome {
    let profiles = arguments.device.iter().map(|name| device::find(name)).collect::<Result<_, _>>()?;
    let store_budget_bytes = arguments.ram_budget.unwrap_or(host_memory_bytes() / 2);
    let options = ServeOptions {
        sessions_max: arguments.sessions as usize,
        keep: Duration::from_nanos(arguments.keep.as_nanos()),
    };
    let stop = stop_on_signals()?;
    let cant_listen = |error| Failure::host(format!("--listen {}: {error}", arguments.listen));
    let maker = Arc::new(Devices { profiles, store_budget_bytes });
    let server = EmulatorServer::listen(&arguments.listen, maker, options).map_err(cant_listen)?;
    let address = server.address().map_err(cant_listen)?.to_string();
    output::note(format_args!("emulator server at {address}"));
    let served = server.serve(&stop).map_err(|error| Failure::host(format!("can't accept guests: {error}")))?;
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
        })?;
    }
    Ok(status::FINE)
}

fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once, should the first not get through.
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::host(format!("can't catch signals: {error}")))?;
    }
    Ok(stop)
}
