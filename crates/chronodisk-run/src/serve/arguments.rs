//! The options of `chronodisk serve`.

use std::ffi::OsString;
use std::path::PathBuf;

use chronodisk_engine::Tracked;
use chronodisk_front::server::Address;
use clap::{Args, ValueEnum};

use crate::arguments::{Attach, DeviceOptions, ResultOptions, SquashArguments};
use crate::quantity;

/// Options of a device that is served.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Selects the device: a name from `chronodisk devices`, or a profile file
    #[arg(long, short, value_name = "PROFILE")]
    pub device: String,

    /// Listens for NBD clients at this address; may be repeated. A bare PORT listens on the loopback interface; a HOST
    /// that other machines reach needs --tls-verify-peer or --insecure
    #[arg(long, value_name = "unix:PATH|HOST:PORT|PORT",
        required_unless_present_any = ["iscsi", "vhost_user", "attach"])]
    pub nbd: Vec<Address>,

    /// Listens for iSCSI initiators at this address. A bare PORT listens on the loopback interface; a HOST that other
    /// machines reach needs --iscsi-user or --insecure
    #[arg(long, value_name = "HOST:PORT|PORT", value_parser = tcp_address)]
    pub iscsi: Option<Address>,

    /// Serves only iSCSI initiators that log in with this name and the secret of --iscsi-secret-file (CHAP)
    #[arg(long, value_name = "NAME", requires_all = ["iscsi", "iscsi_secret_file"])]
    pub iscsi_user: Option<String>,

    /// Reads the secret of --iscsi-user, of 12 to 255 bytes, from this file. Other users must not be able to read the
    /// file
    #[arg(long, value_name = "FILE", requires = "iscsi_user")]
    pub iscsi_secret_file: Option<PathBuf>,

    /// Listens for a virtual machine at this socket, with the protocol vhost-user-blk
    #[arg(long, value_name = "PATH")]
    pub vhost_user: Option<PathBuf>,

    /// Makes a block device of this host's kernel, which needs root. --run finds it in $device
    #[arg(long, value_name = "WAY")]
    pub attach: Option<Attach>,

    /// Capacity, state, speed and limits of the device, and the seed.
    #[command(flatten)]
    pub on: DeviceOptions,

    /// Keeps the device's bytes in memory, in a file, or in a file with a cache in memory (overflow:FILE)
    #[arg(long, value_name = "ram|FILE|overflow:FILE", default_value = "ram")]
    pub store: OsString,

    /// Serves requests from this real device or file, while the model of --device sees the same arrivals. The result
    /// compares measured and modelled times
    #[arg(long, value_name = "DEVICE|FILE", conflicts_with_all = ONLY_EMULATED)]
    pub shadow: Option<PathBuf>,

    /// Limits the requests outstanding at the real device
    #[arg(long, value_name = "N", default_value_t = 32, requires = "shadow",
        value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub shadow_depth: u32,

    /// Plots the distributions of measured and modelled service times to this file
    #[arg(long, value_name = "FILE.svg", value_parser = quantity::svg_file, requires = "shadow")]
    pub plot: Option<PathBuf>,

    /// Limits the host memory for the device's bytes (default: half of the host's memory)
    #[arg(long, value_name = "SIZE", value_parser = quantity::bytes)]
    pub ram_budget: Option<u64>,

    /// The kind of the store.
    #[command(flatten)]
    pub squash: SquashArguments,

    /// Loads the bytes that an earlier run used into memory ahead of their use, under --store overflow:FILE
    #[arg(long, value_name = "RUN")]
    pub preload: Option<String>,

    /// Makes completed writes, or flushes if the device has a volatile cache, survive a power cut of this host
    #[arg(long)]
    pub durable: bool,

    /// Refuses all requests that change data
    #[arg(long)]
    pub read_only: bool,

    /// Locks the process's memory, so that it is never paged out
    #[arg(long)]
    pub lock_memory: bool,

    /// Limits the number of clients connected at a time. One that never asked for anything, or is silent for 10
    /// minutes, makes room for another
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: u32,

    /// Limits the number of clients at one address, or of one user at a local socket (default: three quarters of
    /// --connections)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections_per_address: Option<u32>,

    /// Limits the memory for data of NBD and iSCSI clients' requests, at least 64MiB in all. Further requests wait
    #[arg(long, value_name = "SIZE", value_parser = client_memory, default_value = "1GiB")]
    pub client_memory: u64,

    /// Subtracts this time between sending and receiving a request from its arrival; auto measures it while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    pub arrival_skew: Tracked,

    /// Sends each reply earlier by the time that sending takes; auto measures it while serving
    #[arg(long, value_name = "auto|DURATION", default_value = "auto", value_parser = tracked)]
    pub completion_lead: Tracked,

    /// Does not use real-time priority, and lets idle CPUs sleep
    #[arg(long)]
    pub no_realtime: bool,

    /// Binds the serving threads to this CPU, counted from 0
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,

    /// Allows or requires encryption of NBD (default: require, if --tls-certificates is given)
    #[arg(long, value_name = "allow|require", requires = "tls_certificates")]
    pub tls: Option<TlsChoice>,

    /// Reads the server's certificate and key from this directory (server-cert.pem, server-key.pem); also ca-cert.pem
    /// and ca-crl.pem for --tls-verify-peer
    #[arg(long, value_name = "DIR", requires = "nbd")]
    pub tls_certificates: Option<PathBuf>,

    /// Serves only clients whose certificate is signed by the authority in ca-cert.pem. Pre-shared keys (PSK) are not
    /// supported
    #[arg(long, requires = "tls_certificates")]
    pub tls_verify_peer: bool,

    /// Listens beyond the loopback interface without verifying who connects, for --nbd, --iscsi and --metrics
    #[arg(long)]
    pub insecure: bool,

    /// Prints a line of statistics every second
    #[arg(long)]
    pub stats: bool,

    /// Shows neither the status line nor the summary; warnings and errors are shown
    #[arg(long, short)]
    pub quiet: bool,

    /// Serves metrics for Prometheus at http://HOST:PORT/metrics. A bare PORT listens on the loopback interface;
    /// another address needs --insecure
    #[arg(long, value_name = "HOST:PORT|PORT", value_parser = tcp_address)]
    pub metrics: Option<Address>,

    /// Runs this shell command with the address of --nbd or --iscsi in $uri and the socket's path in $unixsocket, and
    /// ends with its status
    #[arg(long, value_name = "CMD")]
    pub run: Option<OsString>,

    /// Writes the process id to this file once clients can connect, and removes it at the end
    #[arg(long, value_name = "FILE")]
    pub pidfile: Option<PathBuf>,

    /// Labels and directory of the result.
    #[command(flatten)]
    pub result: ResultOptions,
}

/// Options without a meaning for a real device.
const ONLY_EMULATED: [&str; 8] =
    ["store", "ram_budget", "preload", "durable", "vhost_user", "attach", "arrival_skew", "completion_lead"];

fn tracked(text: &str) -> Result<Tracked, String> {
    if text == "auto" {
        return Ok(Tracked::Auto);
    }
    quantity::duration(text).map(Tracked::Fixed)
}

fn client_memory(text: &str) -> Result<u64, String> {
    let bytes = quantity::bytes(text)?;
    // A single request has up to 32 MiB.
    if bytes < CLIENT_MEMORY_MIN { Err("expected at least 64MiB".into()) } else { Ok(bytes) }
}

const CLIENT_MEMORY_MIN: u64 = 64 << 20;

fn tcp_address(text: &str) -> Result<Address, String> {
    match text.parse()? {
        Address::Unix(_) => Err("expected HOST:PORT or PORT; clients do not support Unix sockets".into()),
        address => Ok(address),
    }
}

/// Encryption of NBD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsChoice {
    /// Clients choose
    Allow,
    /// Only encrypted connections are served
    Require,
}

impl ServeArguments {
    /// Address of an NBD client.
    pub(super) fn nbd_uri(&self, address: &Address) -> String {
        address.nbd_uri(self.tls_certificates.is_some())
    }
}
