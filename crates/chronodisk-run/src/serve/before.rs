//! Checks before a device is served, and their undoing if serving never begins.

use std::net::ToSocketAddrs;
use std::path::Path;

use chronodisk_front::server::Address;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::arguments::{ServeArguments, TlsChoice};
use crate::failure::Failure;
use crate::folder::NewFiles;
use crate::notes::note;

/// Refuses `--read-only` for a virtual machine.
pub fn check_read_only(arguments: &ServeArguments) -> Result<(), Failure> {
    if arguments.vhost_user.is_some() && arguments.read_only {
        return Err(Failure::usage(
            "--read-only does not work with --vhost-user; configure the virtual machine to open the device read-only",
        ));
    }
    Ok(())
}

/// Refuses options that would expose the device unintentionally.
pub fn check_exposure(arguments: &ServeArguments) -> Result<(), Failure> {
    if arguments.tls_verify_peer && arguments.tls == Some(TlsChoice::Allow) {
        return Err(Failure::usage(
            "--tls allow serves clients without TLS, so --tls-verify-peer could not verify their certificates",
        )
        .help("leave --tls out: clients must use TLS then"));
    }
    if arguments.insecure {
        return Ok(());
    }
    for address in &arguments.nbd {
        if is_beyond_loopback(address) && !arguments.tls_verify_peer {
            return Err(Failure::usage(format!(
                "--nbd {address}: clients on other machines could read and write the device without a certificate"
            ))
            .help(
                "verify clients with --tls-certificates DIR and --tls-verify-peer, listen on the loopback interface, \
                 or accept anybody with --insecure",
            ));
        }
    }
    if let Some(address) = arguments.iscsi.as_ref().filter(|address| is_beyond_loopback(address))
        && arguments.iscsi_user.is_none()
    {
        return Err(Failure::usage(format!(
            "--iscsi {address}: initiators on other machines could read and write the device without a secret"
        ))
        .help(
            "give them a secret with --iscsi-user NAME and --iscsi-secret-file FILE, listen on the loopback interface, \
             or accept anybody with --insecure",
        ));
    }
    match &arguments.metrics {
        Some(address) if is_beyond_loopback(address) => {
            Err(Failure::usage(format!("--metrics {address}: anybody on other machines could read the figures"))
                .help("listen on the loopback interface, or accept anybody with --insecure"))
        }
        _ => Ok(()),
    }
}

/// Whether other machines can reach it. An unresolvable name is refused later, by the attempt to listen.
fn is_beyond_loopback(address: &Address) -> bool {
    let Address::Tcp { host, port } = address else { return false };
    let resolved = (host.as_str(), *port).to_socket_addrs();
    resolved.is_ok_and(|mut addresses| addresses.any(|address| !address.ip().to_canonical().is_loopback()))
}

/// Descriptors of the process itself: standard streams, listeners, signals, the log, the store, helpers, metrics.
const DESCRIPTORS_BASE: u64 = 64;
/// Descriptors of a connection: its socket, its event, and one to cut it by.
const DESCRIPTORS_PER_CONNECTION: u64 = 3;

/// Raises the limit of open files for the connections, as far as the host permits.
pub fn ensure_descriptors(connections: u32) -> Result<(), Failure> {
    let needed = DESCRIPTORS_BASE + u64::from(connections) * DESCRIPTORS_PER_CONNECTION;
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    if current >= needed {
        return Ok(());
    }
    let raised = needed.min(limit.maximum.unwrap_or(u64::MAX));
    let reached = match setrlimit(Resource::Nofile, Rlimit { current: Some(raised), ..limit }) {
        Ok(()) => raised.max(current),
        Err(_) => current,
    };
    let most = reached.saturating_sub(DESCRIPTORS_BASE) / DESCRIPTORS_PER_CONNECTION;
    if most == 0 {
        return Err(Failure::host(format!(
            "the limit of open files (RLIMIT_NOFILE) is {reached}; a server for {connections} clients needs {needed}"
        ))
        .help(format!("raise it with `ulimit -n {needed}`, or set LimitNOFILE={needed} in the service's unit")));
    }
    if reached < needed {
        note(format_args!(
            "warning: the limit of open files (RLIMIT_NOFILE) is {reached}, enough for {most} of --connections \
             {connections}; `ulimit -n {needed}` raises it"
        ));
    }
    Ok(())
}

/// New files of the store, removed again if serving never begins.
pub struct NewStore(NewFiles);

impl NewStore {
    /// Looks before the store is opened.
    pub fn at(path: Option<&Path>) -> Self {
        NewStore(NewFiles::of_store(path))
    }

    /// Clients may have written: the files stay.
    pub fn keep(mut self) {
        self.0.keep();
    }
}

impl Drop for NewStore {
    fn drop(&mut self) {
        self.0.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_can_be_reached_by_other_machines() {
        for (address, beyond) in [
            ("10809", false),
            ("127.0.0.1:5", false),
            ("127.9.9.9:5", false),
            ("[::1]:5", false),
            ("[::ffff:127.0.0.1]:5", false),
            ("unix:/x", false),
            ("0.0.0.0:5", true),
            ("[::]:5", true),
            ("192.0.2.1:5", true),
        ] {
            assert_eq!(is_beyond_loopback(&address.parse().unwrap()), beyond, "{address}");
        }
    }
}
