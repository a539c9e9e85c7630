//! The user's command as a process of the guest.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use crate::shared::spec::GuestSpec;

/// The command for the calling user, without its standard streams.
pub(crate) fn command_of(spec: &GuestSpec) -> Command {
    let mut command = Command::new(OsStr::from_bytes(&spec.command[0]));
    command.args(spec.command[1..].iter().map(|argument| OsStr::from_bytes(argument)));
    command.env_clear();
    for variable in &spec.environment {
        if let Some(equals) = variable.iter().position(|&byte| byte == b'=') {
            command.env(OsStr::from_bytes(&variable[..equals]), OsStr::from_bytes(&variable[equals + 1..]));
        }
    }
    hide_avx512(&mut command);
    command
}

/// Keeps the C library's copying functions off AVX-512 on processors that have it. Signal frames of a guest kernel of
/// release 6.1 hold registers only up to AVX (832 bytes of extended state), so a signal handler that copies memory
/// would corrupt the copy that it interrupted.
///
/// Hiding the feature in CPUID would affect all programs, but then every switch between the guest's kernel and a
/// program writes a model-specific register, which costs 15 µs per request in a virtual machine.
fn hide_avx512(command: &mut Command) {
    if !std::arch::is_x86_feature_detected!("avx512f") {
        return;
    }
    const NAME: &str = "GLIBC_TUNABLES";
    const TUNABLE: &str = "glibc.cpu.hwcaps";
    let given = command.get_envs().find(|(name, _)| *name == NAME).and_then(|(_, value)| value).map(OsStr::to_owned);
    let mut value = given.unwrap_or_default();
    if value.to_string_lossy().contains(TUNABLE) {
        return;
    }
    if !value.is_empty() {
        value.push(":");
    }
    value.push(TUNABLE);
    value.push("=-AVX512F,-AVX512VL,-AVX512BW,-AVX512CD,-AVX512DQ");
    command.env(NAME, value);
}
