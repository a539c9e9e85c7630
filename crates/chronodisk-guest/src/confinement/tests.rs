//! Confined programs: a shell, and a hostile kernel under each of the host's means of confinement.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use super::*;

#[path = "../../tests/hostile/victims.rs"]
mod victims;

use victims::{NOBODY, Victims};

/// Whether a script succeeds in a confined shell on one of our files.
fn confined(script: &str, file: &std::path::Path, landlock: u32) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(file).stdout(Stdio::null()).stderr(Stdio::null());
    confine_with(&mut command, Needs::default(), landlock).unwrap();
    command.status().unwrap().success()
}

#[test]
fn files_are_read_and_never_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "before").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    for landlock in [0, landlock_version()] {
        assert!(confined("cat \"$1\"", &file, landlock));
        for script in [
            "echo after > \"$1\"",
            "echo after >> \"$1\"",
            ": > \"$1.new\"",
            "rm -f \"$1\"",
            "mv \"$1\" \"$1.moved\"",
            "ln \"$1\" \"$1.linked\"",
            "ln -s \"$1\" \"$1.symbolic\"",
            "mkdir \"$1.folder\"",
            "mkfifo \"$1.pipe\"",
            "truncate -s 0 \"$1\"",
            "chmod 777 \"$1\"",
            "chown 12345 \"$1\"",
            "touch -d 1999-01-01 \"$1\"",
            "mount -t tmpfs none \"${1%/*}\"",
            "echo > /dev/null",
        ] {
            assert!(!confined(script, &file, landlock), "{script}");
        }
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "before");
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o644);
    assert!(metadata.modified().unwrap().elapsed().unwrap().as_secs() < 3600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_child_of_root_has_no_capability_but_to_read() {
    let mut command = Command::new("cat");
    command.arg("/proc/self/status");
    confine(&mut command, Needs::default()).unwrap();
    let status = String::from_utf8(command.output().unwrap().stdout).unwrap();
    for set in ["CapPrm", "CapEff", "CapInh"] {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).unwrap();
        let set = u64::from_str_radix(line.trim(), 16).unwrap();
        assert_eq!(set & !(1 << CAP_DAC_READ_SEARCH), 0, "{line}");
    }
}

/// Runs the hostile kernel's attacks on this user's `victims` under this version of Landlock. Returns the results of
/// its attempts, and the refused calls.
fn attack(
    victims: &Victims,
    user: u32,
    landlock: u32,
    listens: bool,
) -> Option<(BTreeMap<String, i32>, BTreeMap<String, u64>)> {
    let mut command = Command::new(victims.kernel()?);
    if user != own_user() {
        command.uid(user).gid(user);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    // The launcher shares such a page with a kernel.
    let page = rustix::fs::memfd_create("page", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&page, 4096).unwrap();
    let kept = page.try_clone().unwrap();
    descriptors::bequeath(&mut command, &[], vec![(page, descriptors::PAGE)]);
    if !listens {
        listen_before(&mut command);
    }
    let confinement = confine_with(&mut command, Needs::default(), landlock).unwrap();
    let child = command.spawn().unwrap();
    drop(command);
    let refusals = confinement.listen(child.id()).unwrap();
    assert_eq!(refusals.is_some(), listens);
    let output = child.wait_with_output().unwrap();
    assert_eq!(rustix::fs::fstat(&kept).unwrap().st_size, 4096);
    let said = String::from_utf8(output.stdout).unwrap();
    Some((victims::attempts(&said), refusals.map(|refusals| refusals.counts()).unwrap_or_default()))
}

/// Lets another process listen to the command's calls, as a container's runtime may.
fn listen_before(command: &mut Command) {
    let mut everything = Program::new(&[], filter::Action::Allow).unwrap();
    // SAFETY: only system calls that are safe between fork and exec; the data were made before.
    unsafe {
        command.pre_exec(move || {
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())?;
            everything.apply(libc::SECCOMP_FILTER_FLAG_NEW_LISTENER).map(|_| ())
        });
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Users and versions of Landlock for running a kernel: this user, and the unprivileged one if this is root.
fn users_and_landlocks() -> impl Iterator<Item = (u32, u32)> {
    let users = if own_user() == 0 { vec![0, NOBODY] } else { vec![own_user()] };
    users.into_iter().flat_map(|user| landlocks().into_iter().map(move |landlock| (user, landlock)))
}

/// Versions of Landlock with different restrictions: none, Debian 12's, the last one without signals, this host's.
fn landlocks() -> Vec<u32> {
    let mut versions = vec![0, 2, SIGNALS_SINCE - 1, u32::MAX];
    versions.iter_mut().for_each(|version| *version = landlock_version().min(*version));
    versions.dedup();
    versions
}

#[test]
fn a_hostile_kernel_reaches_nothing_with_any_landlock() {
    for (user, landlock) in users_and_landlocks() {
        let mut victims = Victims::of(user);
        let Some((attempts, refused)) = attack(&victims, user, landlock, true) else { return };
        assert_eq!(victims::wrongly_refused(&attempts), [""; 0], "as user {user} with Landlock {landlock}");
        assert_eq!(victims::not_refused(&attempts), [""; 0], "as user {user} with Landlock {landlock}");
        victims.assert_unharmed();
        for (call, count) in [("prlimit64", 2), ("shmat", 1), ("mq_unlink", 1), ("fcntl", 7), ("x32 getpid", 1)] {
            assert_eq!(refused.get(call), Some(&count), "{call} in {refused:?}");
        }
        assert_eq!((refused.get("32-bit call 20"), refused.get("call 9999")), (Some(&1), Some(&1)));
        assert_eq!((refused.get("clone3"), refused.get("read")), (None, None));
    }
}

#[test]
fn without_a_listener_only_signals_need_landlock() {
    for (user, landlock) in users_and_landlocks() {
        let mut victims = Victims::of(user);
        let Some((attempts, _)) = attack(&victims, user, landlock, false) else { return };
        assert_eq!(victims::wrongly_refused(&attempts), [""; 0], "as user {user} with Landlock {landlock}");
        let signals = ["helper-kill", "kill", "kill-group", "tgkill"];
        let reached = if landlock < SIGNALS_SINCE { &signals[..] } else { &[] };
        assert_eq!(victims::not_refused(&attempts), reached, "as user {user} with Landlock {landlock}");
        victims.assert_unharmed();
    }
}

#[test]
fn a_flood_of_refused_calls_is_no_work_for_the_launcher() {
    let mut command = Command::new("sh");
    command.args(["-c", "for call in 1 2 3 4 5 6 7 8 9; do mkdir /tmp/never-made; done; true"]).stderr(Stdio::null());
    let confinement = confine(&mut command, Needs::default()).unwrap();
    let mut child = command.spawn().unwrap();
    drop(command);
    let refusals = Refusals::listen_to(&confinement.listener, child.id(), 4).unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(refusals.counts().values().sum::<u64>(), 4);
    assert!(!fs::exists("/tmp/never-made").unwrap());
}

#[test]
fn a_guest_of_root_has_shared_objects_of_its_own() {
    if own_user() != 0 {
        println!("SKIPPED: only root may make a namespace");
        return;
    }
    let mut command = Command::new("readlink");
    command.arg("/proc/self/ns/ipc");
    confine(&mut command, Needs::default()).unwrap();
    let theirs = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(theirs.starts_with("ipc:"), "{theirs}");
    assert_ne!(theirs.trim(), fs::read_link("/proc/self/ns/ipc").unwrap().to_str().unwrap());
}

#[test]
fn refused_calls_are_answered_when_the_launcher_has_gone() {
    let mut command = Command::new("sh");
    command.args(["-c", "mkdir /tmp/never-made; true"]).stderr(Stdio::null());
    let confinement = confine(&mut command, Needs::default()).unwrap();
    let mut child = command.spawn().unwrap();
    drop((command, confinement));
    assert!(child.wait().unwrap().success());
    assert!(!fs::exists("/tmp/never-made").unwrap());
}
