//! The server of a device, its listeners and its block device.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use chronodisk_engine::listen::Share;
use chronodisk_engine::protocol::secret_of_file;
use chronodisk_engine::{Engine, MonotonicClock, RealOptions, real_host};
use chronodisk_front::BlkConfig;
use chronodisk_front::iscsi::{Credentials, SECRET_BYTES_MAX, SECRET_BYTES_MIN};
use chronodisk_front::nbd::tls::{VerifyPeer, server_config};
use chronodisk_front::nbd::{Export, ServerOffer, Tls};
use chronodisk_front::scsi::UnitDescription;
use chronodisk_front::server::{Address, IscsiOptions, OverflowView, Server, ServerOptions};
use chronodisk_native::Attachment;
use chronodisk_sim::SECTOR_BYTES;

use super::arguments::{ServeArguments, TlsChoice};
use super::shadow::{self, Target};
use super::store::{Opened, StorePlan};
use crate::device::Device;
use crate::failure::Failure;
use crate::native::native_failure;
use crate::notes::note;
use crate::result::settings_of;

pub(super) fn server_options(arguments: &ServeArguments) -> Result<ServerOptions, Failure> {
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

/// The place of a device's bytes.
pub(super) enum BytesPlan {
    /// A real device, which is shadowed.
    Real(Target),
    /// A store.
    Store(StorePlan),
}

impl BytesPlan {
    /// Path of the store's file, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            BytesPlan::Real(_) => None,
            BytesPlan::Store(plan) => plan.path(),
        }
    }
}

/// A server without listeners.
pub(super) struct Started {
    pub server: Server,
    pub overflow: Option<OverflowView>,
    /// The target of `--iscsi`.
    pub iscsi: Option<IscsiOptions>,
}

/// Opens the store, and makes the server.
pub(super) fn start(
    arguments: &ServeArguments,
    device: &Device,
    bytes: BytesPlan,
    tls: Tls,
    credentials: Option<Credentials>,
    options: ServerOptions,
) -> Result<Started, Failure> {
    let info = device.info();
    let (is_real, real_block_bytes) = match &bytes {
        BytesPlan::Real(target) => (true, target.store.block_bytes()),
        BytesPlan::Store(_) => (false, 512),
    };
    let (size_bytes, (store, overflow)): (u64, Opened) = match bytes {
        BytesPlan::Real(target) => (shadow::size_bytes(&target, device), (Box::new(target.store), None)),
        BytesPlan::Store(plan) => {
            let size_bytes = info.capacity_sectors * SECTOR_BYTES;
            (size_bytes, plan.open(size_bytes)?)
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
    let iscsi = arguments.iscsi.is_some().then(|| iscsi_options(device, &export, is_real, credentials));
    let offer = ServerOffer::new(vec![export], tls).map_err(Failure::usage)?;
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
        let server = Server::shadow(device.model()?, store, offer, clock, options).map_err(cant_start)?;
        return Ok(Started { server, overflow: None, iscsi });
    }
    let mut engine = Engine::new();
    engine.set_host_clock(Box::new(clock.clone()));
    let index = engine.attach(device.model()?);
    let server = Server::new(engine, index, store, offer, clock, options).map_err(cant_start)?;
    Ok(Started { server, overflow, iscsi })
}

/// Reads the certificates.
pub(super) fn tls(arguments: &ServeArguments) -> Result<Tls, Failure> {
    let Some(directory) = &arguments.tls_certificates else { return Ok(Tls::Off) };
    let verify = if arguments.tls_verify_peer { VerifyPeer::Yes } else { VerifyPeer::No };
    let config =
        server_config(directory, verify).map_err(|error| Failure::usage(format!("--tls-certificates: {error}")))?;
    Ok(match arguments.tls {
        Some(TlsChoice::Allow) => Tls::Allowed(config),
        None | Some(TlsChoice::Require) => Tls::Required(config),
    })
}

/// Listeners of a server.
pub(super) struct Listening {
    /// Addresses of NBD, then of iSCSI, then of vhost-user.
    pub addresses: Vec<Address>,
    /// Addresses of NBD and of iSCSI as their clients expect them.
    pub uris: Vec<String>,
}

pub(super) fn listen(
    arguments: &ServeArguments,
    device: &Device,
    iscsi: Option<IscsiOptions>,
    server: &mut Server,
) -> Result<Listening, Failure> {
    let listened = arguments.nbd.iter().map(|address| server.listen_nbd(address));
    let mut addresses: Vec<Address> =
        listened.collect::<Result<_, _>>().map_err(|error| Failure::host(format!("--nbd {error}")))?;
    let mut uris: Vec<String> = addresses.iter().map(|address| arguments.nbd_uri(address)).collect();
    if let (Some(address), Some(options)) = (&arguments.iscsi, iscsi) {
        let listened = server.listen_iscsi(address, options);
        let (address, target) = listened.map_err(|error| Failure::host(format!("--iscsi {error}")))?;
        uris.push(format!("iscsi://{address}/{target}/0"));
        addresses.push(address);
    }
    if let Some(path) = &arguments.vhost_user {
        let address = Address::Unix(path.clone());
        let listened = server.listen_vhost_user(&address, BlkConfig::of(device.info()));
        listened.map_err(|error| Failure::host(format!("--vhost-user {error}")))?;
        addresses.push(address);
    }
    Ok(Listening { addresses, uris })
}

/// Name and secret of iSCSI initiators.
pub(super) fn credentials(arguments: &ServeArguments) -> Result<Option<Credentials>, Failure> {
    let (Some(user), Some(path)) = (&arguments.iscsi_user, &arguments.iscsi_secret_file) else { return Ok(None) };
    let failed = |reason: String| Failure::usage(format!("--iscsi-secret-file: {reason}"));
    let secret = secret_of_file(path).map_err(|error| failed(error.to_string()))?;
    if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&secret.len()) {
        return Err(failed(format!(
            "{}: the secret has {} bytes; expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} (such as `openssl rand \
             -hex 16`)",
            path.display(),
            secret.len()
        )));
    }
    Ok(Some(Credentials { user: user.clone(), secret }))
}

/// The device as an iSCSI target, with the size and the blocks of the offered export.
fn iscsi_options(device: &Device, export: &Export, is_real: bool, credentials: Option<Credentials>) -> IscsiOptions {
    let options = IscsiOptions::of(device.info(), export.size_bytes);
    let block_bytes = export.block_bytes_min;
    let unit = UnitDescription {
        block_bytes,
        physical_block_bytes: options.unit.physical_block_bytes.max(block_bytes),
        read_only: export.read_only,
        // A real device may keep the contents.
        zeroes_after_discard: !is_real,
        ..options.unit
    };
    IscsiOptions { unit, credentials, ..options }
}

/// Makes the block device of `--attach`.
pub(super) fn attach(
    arguments: &ServeArguments,
    device: &Device,
    server: &mut Server,
    executable: &Path,
) -> Result<Option<Attachment>, Failure> {
    let Some(attach) = arguments.attach else { return Ok(None) };
    let (info, read_only) = (device.info(), arguments.read_only);
    let attached = chronodisk_native::attach(server, info, read_only, attach.choice(), "none", executable);
    let mut attachment = attached.map_err(native_failure)?;
    // A disk of this host, open by its users only.
    attachment.leave().map_err(native_failure)?;
    note(format_args!("block device: {}", settings_of(&attachment).line()));
    Ok(Some(attachment))
}

/// Time for the requests of a block device that is detached. Afterwards they fail.
const DETACH_MAX: Duration = Duration::from_secs(5);

/// Detaches the block device. A user that still waits for a hanging device gets errors.
pub(super) fn detach(attachment: Attachment) {
    let disconnector = attachment.disconnector();
    let (detached, told) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if told.recv_timeout(DETACH_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
                disconnector.disconnect();
            }
        });
        drop(attachment);
        drop(detached);
    });
}

fn connections(arguments: &ServeArguments) -> Share {
    let share = Share::of(arguments.connections as usize);
    let per_peer = arguments.connections_per_address.map_or(share.per_peer, |most| most as usize);
    Share { per_peer, ..share }
}
