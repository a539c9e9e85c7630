//! Set-up and clean-up of the device around the command. Programs of the host do it, as children of this process, so
//! that this process never waits for its own device.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use std::os::unix::process::{CommandExt, ExitStatusExt};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::error::{Doing, NativeError};
use crate::scope::CommandScope;

/// Makes a file system with this program and these arguments, the device among them.
///
/// # Errors
/// If the program is missing or fails.
pub fn make(program: &str, package: &str, arguments: &[String]) -> Result<(), NativeError> {
    let mut command = Command::new(program);
    command.args(arguments);
    step(program, &mut command).map_err(|error| match error {
        NativeError::System { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            let help = format!("install the package {package}, which has it");
            NativeError::HostLacks { what: format!("this host has no {program}"), help }
        }
        error => error,
    })
}

/// Mounts the device at a directory.
///
/// # Errors
/// If mount(8) fails.
pub fn mount(device: &Path, kind: &str, options: &str, directory: &Path) -> Result<(), NativeError> {
    let mut command = Command::new("mount");
    command.args(["-t", kind]);
    if !options.is_empty() {
        command.args(["-o", options]);
    }
    step("mount", command.arg("--").args([device, directory]))
}

/// Unmounts the file systems at and below a directory, which writes their dirty data.
///
/// # Errors
/// If umount(8) fails.
pub fn unmount(directory: &Path) -> Result<(), NativeError> {
    step("umount", Command::new("umount").args(["--recursive", "--"]).arg(directory))
}

/// Runs the commands of `--setup` in a shell with the device in its environment. Their processes are in the command's
/// cgroup, so background processes end with the command.
///
/// # Errors
/// If they fail.
#[allow(unsafe_code)]
pub fn run_setup(scope: &CommandScope, commands: &OsStr, device: &Path) -> Result<(), NativeError> {
    let processes = scope.cgroup.processes()?;
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(commands).env(crate::program::DEVICE_VARIABLE, device);
    shell.stdout(Stdio::from(std::io::stderr())).stdin(Stdio::null());
    // SAFETY: only system calls that are safe between fork and exec.
    unsafe {
        shell.pre_exec(move || {
            rustix::io::write(&processes, b"0")?;
            set_parent_process_death_signal(Some(Signal::KILL))?;
            Ok(())
        });
    }
    let status = shell.status().doing("starting a shell")?;
    expect_success("--setup", status, "")
}

fn step(name: &str, command: &mut Command) -> Result<(), NativeError> {
    let output = command.stdin(Stdio::null()).output().doing(format!("starting {name}"))?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    expect_success(name, output.status, said.trim())
}

fn expect_success(step: &str, status: ExitStatus, output: &str) -> Result<(), NativeError> {
    if status.success() {
        return Ok(());
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    };
    Err(NativeError::Step { step: step.to_owned(), how, output: output.to_owned() })
}
