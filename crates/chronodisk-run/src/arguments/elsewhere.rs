//! Flags for models that are elsewhere: at an emulator server, or in another program.

use std::path::PathBuf;
use std::time::Duration;

use chronodisk_engine::protocol::Reset;
use chronodisk_engine::remote::{self, Credentials, Patience, RemoteModel};
use chronodisk_engine::{FaultKind, ModelFault};
use chronodisk_sim::Nanos;
use clap::Args;

use super::DebugSettings;
use crate::failure::Failure;
use crate::notes::note;
use crate::quantity;

/// Prefix of a device that is a program.
pub const PROGRAM_PREFIX: &str = "exec:";

/// Where the models are, and how long they are waited for.
#[derive(Clone, Debug, Args)]
pub struct Elsewhere {
    /// Uses the model and the storage of this emulator server; without --device, its first device
    #[arg(long, value_name = "HOST:PORT|unix:PATH", value_parser = server_address)]
    pub server: Option<String>,

    /// Proves with the token in this file that the emulator server may serve this client (its --token)
    #[arg(long, value_name = "FILE", requires = "server", value_parser = absolute)]
    pub server_token: Option<PathBuf>,

    /// Encrypts the connection to the emulator server, whose certificate ca-cert.pem in this directory has signed.
    /// client-cert.pem and client-key.pem are used if the server verifies its clients
    #[arg(long, value_name = "DIR", requires = "server", value_parser = absolute)]
    pub server_tls_certificates: Option<PathBuf>,

    /// Fails if a model in another program or on a server does not answer within this time
    #[arg(long, value_name = "DURATION", default_value = "60s", hide_short_help = true, value_parser = quantity::duration)]
    pub answer_timeout: Nanos,

    /// Fails if a lost connection to the server is not restored within this time; the guest stands still meanwhile
    #[arg(long, value_name = "DURATION", default_value = "60s", hide_short_help = true, value_parser = quantity::duration)]
    pub reconnect_timeout: Nanos,
}

/// The process that uses it may have another working directory.
fn absolute(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|error| error.to_string())
}

fn server_address(text: &str) -> Result<String, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return absolute(path).map(|path| format!("unix:{}", path.display()));
    }
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
    match port.map(str::parse::<u16>) {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as 192.168.1.7:9000, or unix:PATH".into()),
    }
}

impl Elsewhere {
    /// Refuses settings of `--debug` that need an emulator server if there is none.
    pub fn expect_server_for(&self, debug: &DebugSettings) -> Result<(), Failure> {
        match debug.speculation_off && self.server.is_none() {
            true => Err(Failure::usage("--debug speculation=off needs --server")),
            false => Ok(()),
        }
    }

    /// Timeouts for remote models.
    pub fn patience(&self) -> Patience {
        let duration = |time: Nanos| Duration::from_nanos(time.as_nanos());
        Patience { answer: duration(self.answer_timeout), reconnect: duration(self.reconnect_timeout) }
    }

    /// A device at the emulator server that was named.
    pub fn at_server(&self, address: &str, reset: Reset) -> Result<RemoteModel, Failure> {
        let tell = Box::new(|text: &str| note(text));
        let (token, tls) = (self.server_token.as_deref(), self.server_tls_certificates.as_deref());
        let credentials = Credentials::from_files(token, tls).map_err(Failure::usage)?;
        remote::open_server(address, credentials, reset, self.patience(), tell).map_err(model_lost)
    }

    /// A device that is a program.
    pub fn program(&self, command: &str, reset: Reset) -> Result<RemoteModel, Failure> {
        let tell = Box::new(|text: &str| note(text));
        remote::open_program(command, reset, self.patience(), tell).map_err(model_lost)
    }
}

/// A refusal by a model is a usage error; any other failure is not the user's.
pub fn model_lost(fault: ModelFault) -> Failure {
    let failure = match fault.kind {
        FaultKind::Refused => return Failure::usage(fault),
        _ => Failure::host(&fault),
    };
    match fault.kind {
        FaultKind::Unreachable => failure.help("`chronodisk emulator-server --listen HOST:PORT` starts one"),
        FaultKind::Version => failure.help("run the same version of chronodisk on both machines"),
        FaultKind::Nonsense => failure.help("docs/models-in-any-language.md describes the protocol of external models"),
        _ => failure,
    }
}
