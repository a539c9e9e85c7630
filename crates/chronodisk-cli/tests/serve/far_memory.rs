//! A store that overflows into the memory of another machine: nbdfuse shows a server there as a file here.

use std::process::{Child, Command};
use std::time::Duration;

use super::{FLUSH, Serving, TestFolder, fs, text};

/// The other machine's server with its memory, and its file here.
struct FarMemory {
    place: TestFolder,
    server: Serving,
    file: Child,
}

impl FarMemory {
    /// Where no file system can be mounted, prints that and returns `None`.
    fn new(size: &str) -> Option<Self> {
        if !std::path::Path::new("/dev/fuse").exists() {
            println!("SKIPPED: this host has no /dev/fuse");
            return None;
        }
        if !Command::new("unshare").args(["--mount", "true"]).output().is_ok_and(|output| output.status.success()) {
            println!("SKIPPED: this user may mount no file system");
            return None;
        }
        let place = TestFolder::new();
        let server = place.serve_exactly(&["--device", "null", "--capacity", size]);
        fs::create_dir(place.path("mounted")).unwrap();
        let address = format!("nbd+unix:///?socket={}", place.path("socket").display());
        let mut nbdfuse = Command::new("nbdfuse");
        nbdfuse.arg("--pidfile").arg(place.path("ready")).arg(place.path("mounted/disk")).arg(address);
        let file = nbdfuse.spawn().expect("nbdfuse (Debian: apt-get install libnbd-bin)");
        let far = FarMemory { place, server, file };
        let is_ready = (0..1_000).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            far.place.path("ready").exists()
        });
        assert!(is_ready, "nbdfuse has mounted its file");
        Some(far)
    }

    /// The value of `--store`.
    fn store(&self) -> String {
        format!("overflow:{}", self.place.path("mounted/disk").display())
    }
}

impl Drop for FarMemory {
    fn drop(&mut self) {
        // SAFETY: no memory is involved; the process is our own child, which was not waited for.
        unsafe { libc::kill(self.file.id() as i32, libc::SIGTERM) };
        let _ = self.file.wait();
        // nbdfuse of libnbd 1.14 aborts when its server dies, and leaves its mount behind.
        let _ = Command::new("umount").arg("--lazy").arg(self.place.path("mounted")).output();
        let _ = self.server.0.kill();
        let _ = self.server.0.wait();
    }
}

#[test]
fn bytes_overflow_into_the_memory_of_another_machine() {
    let Some(far) = FarMemory::new("16MiB") else { return };
    let place = TestFolder::new();
    let store = far.store();
    let near = || place.serve(&["--device", "cheetah-9lp", "--store", &store, "--ram-budget", "1MiB"]);
    let server = near();
    let mut client = place.connect();
    let block = |index: u64| [(index % 251) as u8 + 1; 64 << 10];
    for index in 0..256 {
        assert_eq!(client.write(index << 16, &block(index)), 0);
    }
    client.flush();
    for index in (0..256).rev() {
        assert_eq!(client.read(index << 16, 64 << 10), block(index), "{index}");
    }
    server.signal(libc::SIGTERM);
    let output = server.end();
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The bytes are there, also for the next server.
    let mut there = far.place.connect();
    assert_eq!(there.read(255 << 16, 64 << 10), block(255));
    let again = near();
    assert_eq!(place.connect().read(0, 64 << 10), block(0));
    again.signal(libc::SIGTERM);
    assert!(again.end().status.success());
}

#[test]
fn a_flush_fails_when_the_other_machine_has_died() {
    let Some(far) = FarMemory::new("16MiB") else { return };
    let place = TestFolder::new();
    let store = far.store();
    let server = place.serve(&["--device", "cheetah-9lp", "--store", &store, "--ram-budget", "4MiB"]);
    let mut client = place.connect();
    assert_eq!(client.write(0, &[1; 64 << 10]), 0);
    client.flush();
    assert_eq!(client.write(1 << 20, &[2; 64 << 10]), 0);
    far.server.signal(libc::SIGKILL);
    assert_ne!(client.ask(FLUSH, 0, 0, &[]).0, 0, "what was written is nowhere but here");
    // It can still be read, until the end reports the loss.
    assert_eq!(client.read(1 << 20, 64 << 10), [2; 64 << 10]);
    server.signal(libc::SIGTERM);
    let output = server.end();
    assert!(!output.status.success(), "{}", text(&output.stderr));
}
