//! Programs in the guest can't change the host's files without permission.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::support::{Chronodisk, text};

/// As root in the guest: mounts the host's tree anew, past the overlay, and does its worst to a file there.
fn attack(chronodisk: &Chronodisk, flags: &[&str], file: &Path) -> String {
    let script = "
        mkdir \"$2\" && mount -t hostfs none \"$2\" -o / || exit 77
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
    text(&output.stdout)
}

#[test]
fn root_in_the_guest_changes_none_of_the_hosts_files() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root is root in the guest");
        return;
    }
    let folder = chronodisk.path("folder");
    std::fs::create_dir(&folder).unwrap();
    let file = folder.join("file");
    std::fs::write(&file, "before\n").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    let modified = std::fs::metadata(&file).unwrap().modified().unwrap();

    let said = attack(&chronodisk, &[], &file);
    assert!(!said.contains(" 0\n"), "{said}");
    let metadata = std::fs::metadata(&file).unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "before\n");
    assert_eq!((metadata.permissions().mode() & 0o777, metadata.modified().unwrap()), (0o640, modified));
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);

    // The same attack where it is let, so that it is known to be one.
    let said = attack(&chronodisk, &["--host-writes"], &file);
    assert!(said.contains("append 0\n") && said.contains("move 0\n"), "{said}");
    assert!(!file.exists());
}
