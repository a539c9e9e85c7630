//! Programs in the guest can't change the host's files without permission.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::support::{Chronodisk, is_root, processes_with, text};
use super::victims::{self, NOBODY, Victims};

/// As root in the guest: mounts the host's tree anew, past the overlay, and does its worst to a file there.
/// Returns its output and the summary.
fn attack(chronodisk: &Chronodisk, flags: &[&str], file: &Path) -> [String; 2] {
    let script = "
        mkdir \"$2\" || exit 77
        # Linux 6.12 has a name for the folder.
        mount -t hostfs none \"$2\" -o / || mount -t hostfs none \"$2\" -o hostfs=/ || exit 77
        file=$2$1
        grep -q before \"$file\" || exit 78
        dd if=/dev/zero of=\"$file\" bs=1 count=1 oflag=append conv=notrunc; echo append $?
        truncate -s 0 \"$file\"; echo truncate $?
        chmod 777 \"$file\"; echo mode $?
        touch -d 1999-01-01 \"$file\"; echo times $?
        touch \"$file.new\"; echo make $?
        mkdir \"$file.folder\"; echo folder $?
        ln -s x \"$file.link\"; echo link $?
        mknod \"$file.pipe\" p; echo pipe $?
        mv \"$file\" \"$file.moved\"; echo move $?
        mount -o remount,rw / ; rm -f \"$file\"; echo remove $?
        true";
    let at = chronodisk.path("host");
    let script = ["sh", "-c", script, "sh", file.to_str().unwrap(), at.to_str().unwrap()];
    let output = chronodisk.run("null", &[&["--fs", "none"], flags].concat(), &script);
    assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    [text(&output.stdout), text(&output.stderr)]
}

#[test]
fn root_in_the_guest_changes_none_of_the_hosts_files() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !is_root() {
        return;
    }
    let folder = chronodisk.path("folder");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("file");
    std::fs::write(&file, "before\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let modified = std::fs::metadata(&file).unwrap().modified().unwrap();

    let [said, summary] = attack(&chronodisk, &[], &file);
    assert!(!said.contains(" 0\n"), "{said}");
    let refused = summary.lines().find(|line| line.starts_with("refused calls")).expect("calls were refused");
    for call in ["openat", "chmod", "mkdir", "unlink", "utimensat"] {
        assert!(refused.contains(call), "{call} in {refused}");
    }
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\n");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.modified().unwrap()), (0o640, modified));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);

    // Without confinement the attack works, so it is one.
    let [said, summary] = attack(&chronodisk, &["--host-writes"], &file);
    assert!(said.contains("append 0\n") && said.contains("move 0\n"), "{said}");
    assert!(!file.exists() && !summary.contains("refused calls"));
}

/// Runs the hostile kernel as this user. Returns the command's error message; `None` where it can't be run.
fn run_hostile_kernel(chronodisk: &Chronodisk, victims: &Victims, user: u32) -> Option<String> {
    let kernel = victims.kernel()?;
    let arguments = ["run", "--device", "null", "--fs", "none", "--kernel", kernel.to_str().unwrap(), "--", "true"];
    let mut command = chronodisk.command(&arguments);
    command.current_dir("/");
    if user != rustix::process::geteuid().as_raw() {
        let program = Command::new(command.get_program()).arg("--version").uid(user).output();
        if program.is_err() {
            println!("SKIPPED: another user can't run this build");
            return None;
        }
        let state = chronodisk.path("state");
        std::fs::create_dir(&state).unwrap();
        std::os::unix::fs::chown(&state, Some(user), Some(user)).unwrap();
        std::fs::set_permissions(chronodisk.results.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        command.env("XDG_STATE_HOME", state).uid(user).gid(user);
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    Some(text(&output.stderr))
}

#[test]
fn a_hostile_kernel_reaches_nothing_on_the_host() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let own = rustix::process::geteuid();
    for user in std::iter::once(own.as_raw()).chain(own.is_root().then_some(NOBODY)) {
        let mut victims = Victims::of(user);
        let Some(said) = run_hostile_kernel(&chronodisk, &victims, user) else { continue };
        let attempts = victims::attempts(&said);
        assert_eq!(victims::wrongly_refused(&attempts), [""; 0], "as user {user}");
        assert_eq!(victims::not_refused(&attempts), [""; 0], "as user {user}");
        victims.assert_unharmed();
        assert_eq!(processes_with(&format!("LEFT={}", victims.folder.path().display())), [0; 0]);
        assert!(said.contains("the host refused these system calls to it:"), "{said}");
        for refused in ["prlimit64 2", "shmat 1", "mq_unlink 1", "x32 getpid 1", "32-bit call 20 1", "call 9999 1"] {
            assert!(said.contains(refused), "{refused} in {said}");
        }
    }
}
