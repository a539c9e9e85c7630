//! The guest as a complete machine: mounts that programs leave behind, the disk's queue, modules, the host's name, and
//! the reasons of errors.

use std::path::PathBuf;
use std::process::Output;

use super::programs::compiled;
use super::support::{Chronodisk, has, is_root, text};

fn run(chronodisk: &Chronodisk, device: &str, flags: &[&str], script: &str) -> Output {
    let flags = [&["--capacity", "1GiB", "--quiet"], flags].concat();
    chronodisk.run(device, &flags, &["sh", "-c", script])
}

#[test]
fn mounts_and_swap_that_a_command_leaves_are_taken_away() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !is_root() {
        return;
    }
    let overlay = "mkdir /mnt/l /mnt/u /mnt/w /tmp/merged; echo x > /mnt/l/f; \
        mount -t overlay o -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w /tmp/merged; echo y > /tmp/merged/g";
    let scripts = [
        "mkdir /mnt/m; mount -t tmpfs t /mnt/m; mkdir /mnt/m/deep; mount -t tmpfs t /mnt/m/deep; echo x > /mnt/m/deep/f",
        // An overlay on another directory, with its layers on the device.
        overlay,
        "dd if=/dev/zero of=/mnt/swap bs=1M count=16 2>/dev/null; chmod 600 /mnt/swap; mkswap -q /mnt/swap; swapon /mnt/swap",
        "mkdir '/mnt/a b'; mount --bind /mnt '/mnt/a b'; mount --bind /etc '/mnt/a b/../a b'; mount -t tmpfs t /mnt",
        // A process keeps a mount busy, and ignores SIGTERM.
        "mkdir /mnt/m; mount -t tmpfs t /mnt/m; cd /mnt/m; (trap '' TERM; setsid sleep 100000000 >f 2>&1 &); cd /",
        "umount /mnt; mount /dev/vda /mnt; echo x > /mnt/f",
    ];
    for script in scripts {
        for flags in [&["--check"][..], &["--root", "device"]] {
            let strict = format!("set -e; {script}");
            let output = run(&chronodisk, "null", flags, &strict);
            // With the root on the device, there is no device file to mount again.
            if flags[0] == "--root" && (script == scripts[5] || script == overlay) {
                continue;
            }
            assert_eq!(output.status.code(), Some(0), "{script} {flags:?}: {}", text(&output.stderr));
        }
    }
}

#[test]
fn the_queue_of_a_disk_is_that_of_its_drive() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let show = "cd /sys/block; for d in vda vdb; do cat $d/queue/rotational $d/queue/physical_block_size; done; \
        cat vda/queue/write_cache; [ $(cat vda/queue/discard_granularity) -gt 0 ] && echo discards; \
        grep ' /mnt ' /proc/mounts";
    let flags = ["--device", "cheetah-9lp", "--fs", "btrfs"];
    let output = run(&chronodisk, "samsung-970-pro", &flags, show);
    let shown = text(&output.stdout);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!((lines[0], lines[2]), ("0", "1"), "{shown}{}", text(&output.stderr));
    assert_eq!(lines[3], "512", "{shown}");
    assert_eq!(lines[4], "write back", "{shown}");
    assert_eq!(lines[5], "discards", "{shown}");
    // btrfs chooses its allocator by this property.
    assert!(lines[6].contains("ssd"), "{shown}");
    let output = run(&chronodisk, "cheetah-9lp", &["--fs", "btrfs"], "grep ' /mnt ' /proc/mounts");
    assert!(output.status.success() && !text(&output.stdout).contains("ssd"), "{}", text(&output.stdout));
}

/// The folder of the distribution's modules.
fn modules() -> Option<PathBuf> {
    let folder = std::fs::read_dir("/usr/lib/uml/modules").into_iter().flatten().flatten().next();
    if folder.is_none() {
        println!("SKIPPED: this host has no modules of user-mode-linux");
    }
    Some(folder?.path().join("kernel"))
}

#[test]
fn a_module_is_loaded_with_what_it_needs() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let Some(modules) = modules() else { return };
    let crypt = modules.join("drivers/md/dm-crypt.ko");
    let thin = modules.join("drivers/md/dm-thin-pool.ko");
    // A copy in another place needs the same modules.
    let copy = chronodisk.path("my-crypt.ko");
    std::fs::copy(&crypt, &copy).unwrap();
    for module in [&crypt, &thin, &copy] {
        let name = if module == &thin { "dm_thin_pool" } else { "dm_crypt" };
        let flags = ["--fs", "none", "--module", module.to_str().unwrap()];
        let output = run(&chronodisk, "null", &flags, &format!("grep ^{name} /proc/modules"));
        assert!(output.status.success(), "{}: {}", module.display(), text(&output.stderr));
    }
    let wrong = chronodisk.path("wrong.ko");
    std::fs::write(&wrong, "no module").unwrap();
    let output = run(&chronodisk, "null", &["--module", wrong.to_str().unwrap()], "true");
    let said = text(&output.stderr);
    assert!(said.contains("wrong.ko") && said.contains("Exec format error"), "{said}");
    assert!(said.contains("--module") && said.contains("built for the guest's kernel"), "{said}");
}

#[test]
fn the_guests_host_name_resolves() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script =
        "hostname; getent hosts $(hostname) | grep -o '^[0-9.]*'; getent hosts localhost > /dev/null && echo l";
    for flags in [&[][..], &["--host-writes"], &["--root", "device"], &["--fs", "none"]] {
        let output = run(&chronodisk, "null", flags, script);
        assert_eq!(text(&output.stdout), "chronodisk\n127.0.1.1\nl\n", "{flags:?}: {}", text(&output.stderr));
    }
    assert!(!std::fs::read_to_string("/etc/hosts").unwrap_or_default().contains("chronodisk\n"), "the host's own list");
    // The module is not listed among the dropped files of the command.
    let result = chronodisk.run_json("null", &["--capacity", "1GiB"], &["true"]);
    assert_eq!(result["reps"][0]["dropped_files"]["count"], 0, "{}", result["reps"][0]["dropped_files"]);
}

#[test]
fn errors_of_other_programs_have_the_kernels_reason_and_a_next_step() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let cases = [
        (&["--mount-options", "nosuchthing"][..], "nosuchthing", "--mount-options"),
        (&["--fs", "xfs", "--mount-options", "logbsize=7"], "XFS (vda)", "--mount-options"),
        (&["--fs", "btrfs", "--mount-options", "subvol=nowhere"], "No such file", "--mount-options"),
        (&["--mkfs-options", "-b 77"], "77", "--mkfs-options"),
    ];
    for (flags, reason, step) in cases {
        let output = run(&chronodisk, "null", flags, "true");
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reason) && said.contains(step), "{flags:?}: {said}");
    }
    let output = run(&chronodisk, "null", &["--mount-options", "nosuchthing"], "true");
    // mount of util-linux 2.39 and later prints the kernel's reason.
    let said = text(&output.stderr);
    let has_reason = said.contains("the guest's kernel logged") || said.contains("Unknown parameter");
    assert!(has_reason, "{said}");
}

/// A panic ends all processes of the guest by a signal, as nothing else in a guest does.
#[test]
fn a_kernel_that_ends_early_is_reported_with_the_reason() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let writes = "i=0; while [ $i -lt 500 ]; do echo a >/mnt/a$i; sync; i=$((i+1)); done";
    let writes_beside_others = format!("sleep 60 & sleep 60 & {writes}");
    let dies = ["--fault", "kind=death,after-requests=400"];
    let cases = [
        (&["--mount-options", "errors=panic"][..], writes, "(panic: EXT4-fs (device vda): panic forced after error)"),
        (&["--mount-options", "errors=panic"], &writes_beside_others, "(panic: EXT4-fs (device vda): panic forced"),
        (&[], "echo c >/proc/sysrq-trigger; sleep 60", "(panic: sysrq triggered crash)"),
        (&[], "echo b >/proc/sysrq-trigger; sleep 60", "(a process in it shut it down)"),
    ];
    // Only root reaches the trigger.
    let cases = if is_root() { &cases[..] } else { &cases[..2] };
    for (flags, script, reason) in cases {
        let output = run(&chronodisk, "null", &[&dies[..], flags].concat(), script);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{flags:?}: {said}");
        assert!(said.contains(&format!("the guest's kernel died {reason}")), "{flags:?}: {said}");
    }
}

/// The kernel's request key for its out-of-memory killer gives the messages of a real shortage, which may take minutes.
#[test]
fn a_guest_without_memory_names_the_killed_process_and_the_option() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !is_root() || !has("python3", "python3") {
        return;
    }
    let largest = "x = b'x' * (40 << 20); open('/proc/sysrq-trigger', 'w').write('f'); __import__('time').sleep(60)";
    let output = run(&chronodisk, "null", &[], &format!("python3 -c \"{largest}\"; echo status $?"));
    let said = text(&output.stderr);
    assert_eq!(text(&output.stdout), "status 137\n", "{said}");
    let line = said.lines().find(|line| line.contains("Out of memory: Killed process")).expect(&said);
    assert!(line.contains("(python3)") && line.ends_with("--memory gives the guest more"), "{line}");
    assert!(!said.contains("Call Trace") && !said.contains("Mem-Info"), "{said}");
}

/// Files outside of the device are in the guest's memory. A program that fills it gets an error, as on a full disk.
#[test]
fn files_in_memory_leave_enough_of_it() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for memory in ["64MiB", "96MiB", "128MiB", "512MiB"] {
        let script =
            "for i in 1 2; do dd if=/dev/zero of=/tmp/fills$i bs=1M count=800 2>&1; sync; done; sort /etc/passwd";
        let output = run(&chronodisk, "null", &["--memory", memory], script);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{memory}: {said}");
        assert!(said.contains("No space left on device") && !said.contains("emory:"), "{memory}: {said}");
    }
}

/// The clock does not set registers that a program has already (`shim/processes.c`).
#[test]
fn each_thread_keeps_its_vector_registers() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let program = compiled(&chronodisk, "registers");
    let output = run(&chronodisk, "null", &["--fs", "none"], &program);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).starts_with("signals: "), "{}", text(&output.stdout));
}
