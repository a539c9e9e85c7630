//! Foreign clients, and malformed ones.

#[path = "common/certificates.rs"]
mod certificates;
#[path = "common/nbd_server.rs"]
mod nbd_server;

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use certificates::certify;
use chronodisk_front::nbd::mock::{RequestBytes, client_flags, info_data, option_request};
use chronodisk_front::nbd::tls::{self, VerifyPeer};
use chronodisk_front::nbd::wire::{command, option};
use chronodisk_front::nbd::{Export, Reason, ServerOffer, Tls, Violation};
use chronodisk_store::RamStore;
use nbd_server::NbdServer;

const CAPACITY_BYTES: u64 = 64 << 20;

fn export() -> Export {
    Export { description: "a disk of tests".into(), ..Export::new("disk", CAPACITY_BYTES) }
}

fn start(export: Export, tls: Tls) -> NbdServer {
    let store = RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES);
    NbdServer::start(ServerOffer::new(vec![export], tls).unwrap(), Box::new(store))
}

/// Whether the host has a working program; prints a line if not.
fn has(program: &str, package: &str) -> bool {
    let found = run(program, &["--version"]).status.success();
    if !found {
        println!("SKIPPED: no {program} that runs (Debian: apt-get install {package})");
    }
    found
}

fn run(program: &str, arguments: &[&str]) -> Output {
    // A client that hangs must not hang the tests. The distribution's Python is the one that
    // knows the distribution's libnbd.
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    Command::new("timeout").arg("60").arg(program).args(arguments).env("PATH", path).output().unwrap()
}

fn succeed(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
    stdout.into_owned()
}

/// A sparse file of the device's size with some bytes in it.
fn image(path: &Path) -> Vec<u8> {
    let mut bytes = vec![0; CAPACITY_BYTES as usize];
    for (index, place) in (0..CAPACITY_BYTES as usize - (1 << 20)).step_by(3_333_333).enumerate() {
        for (i, byte) in bytes[place..place + 300_000].iter_mut().enumerate() {
            *byte = (i % 251) as u8 ^ index as u8;
        }
    }
    fs::write(path, &bytes).unwrap();
    bytes
}

fn contents(server: &NbdServer) -> Vec<u8> {
    let mut bytes = vec![1; CAPACITY_BYTES as usize];
    server.store.lock().unwrap().read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    if !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let server = start(Export { rotational: true, ..export() }, Tls::Off);
    server.store.lock().unwrap().write(1 << 20, &[7; 8192]).unwrap();
    let text = succeed("nbdinfo", &[&server.uri()]);
    for line in [
        "protocol: newstyle-fixed without TLS",
        "export-size: 67108864 (64M)",
        "description: a disk of tests",
        "is_rotational: true",
        "is_read_only: false",
        "can_cache: true",
        "can_df: true",
        "can_fast_zero: true",
        "can_flush: true",
        "can_fua: true",
        "can_multi_conn: true",
        "can_trim: true",
        "can_zero: true",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
        "base:allocation",
    ] {
        assert!(text.contains(line), "no '{line}' in\n{text}");
    }
    let list = succeed("nbdinfo", &["--list", &server.uri()]);
    assert!(list.contains("export=\"disk\""), "{list}");
    let map = succeed("nbdinfo", &["--map", &server.uri()]);
    let fields: Vec<Vec<&str>> = map.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(fields, [["0", "1048576", "3"], ["1048576", "8192", "0"], ["1056768", "66052096", "3"]], "{map}");
}

#[test]
fn nbdcopy_copies_both_ways() {
    if !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let server = start(export(), Tls::Off);
    let path = |name: &str| server.directory().join(name).display().to_string();
    let bytes = image(Path::new(&path("image")));
    for arguments in [&["--connections=1", "--requests=1"][..], &["--connections=4", "--requests=64", "--flush"]] {
        server.store.lock().unwrap().discard(0, CAPACITY_BYTES).unwrap();
        succeed("nbdcopy", &[arguments, &[&path("image"), &server.uri()]].concat());
        assert!(contents(&server) == bytes);
        succeed("nbdcopy", &[arguments, &[&server.uri(), &path("copy")]].concat());
        assert!(fs::read(path("copy")).unwrap() == bytes);
    }
}

#[test]
fn qemu_img_converts_and_compares() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let server = start(export(), Tls::Off);
    let path = |name: &str| server.directory().join(name).display().to_string();
    let bytes = image(Path::new(&path("image")));
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &path("image"), &server.uri()]);
    assert!(contents(&server) == bytes);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", &path("image"), &server.uri()]);
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &server.uri(), &path("copy.qcow2")]);
    succeed("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &server.uri(), &path("copy.qcow2")]);
    let map = succeed("qemu-img", &["map", "--output=json", "-f", "raw", &server.uri()]);
    assert!(map.contains("\"data\": true") && map.contains("\"data\": false"), "{map}");
}

#[test]
fn qemu_io_does_what_its_script_says() {
    if !has("qemu-io", "qemu-utils") {
        return;
    }
    let server = start(export(), Tls::Off);
    let script = [
        "write -P 0xaa 0 1M",
        "write -f -P 0xbb 4096 4096",
        "read -P 0xaa 0 4096",
        "read -P 0xbb 4096 4096",
        "read -P 0xaa 8192 65536",
        "write -z 64k 64k",
        "read -P 0 64k 64k",
        "write -z -u 128k 64k",
        "read -P 0 128k 64k",
        "discard 256k 64k",
        "read -P 0 256k 64k",
        "aio_write -P 0xcc 512k 128k",
        "aio_write -P 0xdd 640k 128k",
        "aio_write -P 0xee 768k 128k",
        "aio_flush",
        "read -P 0xcc 512k 128k",
        "read -P 0xdd 640k 128k",
        "read -P 0xee 768k 128k",
        // Not aligned to the smallest block: the client must read the rest of the block.
        "write -P 0x11 1000 1000",
        "read -P 0x11 1000 1000",
        "read -P 0xaa 0 1000",
        "flush",
        "write -P 0x22 32M 32M",
        "read -P 0x22 32M 32M",
    ];
    let mut arguments = vec!["-f", "raw"];
    for line in script {
        arguments.extend(["-c", line]);
    }
    let uri = server.uri();
    arguments.push(&uri);
    let output = succeed("qemu-io", &arguments);
    assert!(!output.contains("failed"), "{output}");
    assert_eq!(output.matches("bytes at offset").count(), script.len() - 3 + 1, "{output}");
}

#[test]
fn libnbd_gets_every_error_and_every_chunk() {
    if !has("nbdsh", "python3-libnbd libnbd-bin") {
        return;
    }
    let server = start(export(), Tls::Off);
    let script = r#"
import errno
h.set_strict_mode(0)
size = h.get_size()
def fails(number, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == number, (error.errnum, number)
    else:
        raise AssertionError("succeeded")
data = bytes(i % 251 for i in range(8192))
h.pwrite(data, 4096)
assert h.pread(16384, 0) == bytes(4096) + data + bytes(4096)
h.pwrite(data, 65536, nbd.CMD_FLAG_FUA)
chunks = []
def chunk(part, offset, status, error):
    chunks.append((offset, len(part), status))
h.pread_structured(131072, 0, chunk)
assert chunks[0] == (0, 4096, nbd.READ_HOLE), chunks
assert chunks[1] == (4096, 8192, nbd.READ_DATA), chunks
assert sum(len for _, len, _ in chunks) == 131072
chunks.clear()
h.pread_structured(131072, 0, chunk, nbd.CMD_FLAG_DF)
assert chunks == [(0, 131072, nbd.READ_DATA)], chunks
extents = []
def extent(context, offset, entries, error):
    extents.append((context, offset, entries))
h.block_status(65536, 0, extent)
assert extents == [("base:allocation", 0, [4096, 3, 8192, 0, 53248, 3])], extents
extents.clear()
h.block_status(65536, 0, extent, nbd.CMD_FLAG_REQ_ONE)
assert extents == [("base:allocation", 0, [4096, 3])], extents
h.zero(4096, 4096, nbd.CMD_FLAG_FAST_ZERO)
h.zero(4096, 65536, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(4096, 65536) == bytes(4096)
h.trim(4096, 8192, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.flush()
fails(errno.ENOTSUP, lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
fails(errno.EINVAL, lambda: h.pread(512, size))
fails(errno.ENOSPC, lambda: h.pwrite(bytes(512), size))
fails(errno.ENOSPC, lambda: h.zero(512, size))
fails(errno.EINVAL, lambda: h.trim(512, size))
fails(errno.EINVAL, lambda: h.pread(1, 0))
fails(errno.EINVAL, lambda: h.pwrite(bytes(512), 1))
fails(errno.EINVAL, lambda: h.pread(512, 0, 1 << 14))
assert h.pread(512, 0) == bytes(512)
cookies = [h.aio_pread(nbd.Buffer(4096), i * 4096) for i in range(200)]
for cookie in cookies:
    while not h.aio_command_completed(cookie):
        h.poll(-1)
h.shutdown()
"#;
    succeed("nbdsh", &["--base-allocation", "-u", &server.uri(), "-c", script]);
    assert_eq!(*server.endings.lock().unwrap(), [Reason::Disconnect]);
}

#[test]
fn a_read_only_export_stays_as_it_is() {
    if !has("qemu-io", "qemu-utils") {
        return;
    }
    let server = start(Export { read_only: true, ..export() }, Tls::Off);
    let refused = run("qemu-io", &["-f", "raw", "-c", "write -P 1 0 4096", &server.uri()]);
    assert!(!refused.status.success());
    let output = succeed("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 0 4096", &server.uri()]);
    assert!(output.contains("read 4096/4096 bytes"), "{output}");
}

fn tls_uri(server: &NbdServer, certificates: &Path) -> String {
    format!("nbds+unix:///?socket={}&tls-certificates={}", server.socket().display(), certificates.display())
}

#[test]
fn libnbd_encrypts_where_it_may_and_must() {
    if !has("nbdinfo", "libnbd-bin") || !has("nbdcopy", "libnbd-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let config = tls::server_config(directory.path(), VerifyPeer::No).unwrap();

    let allowed = start(export(), Tls::Allowed(config.clone()));
    let text = succeed("nbdinfo", &[&allowed.uri()]);
    assert!(text.contains("newstyle-fixed without TLS"), "{text}");
    let text = succeed("nbdinfo", &[&tls_uri(&allowed, directory.path())]);
    assert!(text.contains("newstyle-fixed with TLS"), "{text}");
    assert!(text.contains("base:allocation"), "negotiated again after TLS began\n{text}");

    let required = start(export(), Tls::Required(config));
    let refused = run("nbdinfo", &[&required.uri()]);
    assert!(!refused.status.success());
    let path = |name: &str| required.directory().join(name).display().to_string();
    let bytes = image(Path::new(&path("image")));
    let uri = tls_uri(&required, directory.path());
    succeed("nbdcopy", &["--connections=2", "--requests=16", &path("image"), &uri]);
    assert!(contents(&required) == bytes);
    succeed("nbdcopy", &[&uri, &path("copy")]);
    assert!(fs::read(path("copy")).unwrap() == bytes);
}

#[test]
fn only_clients_with_a_certificate_pass_where_peers_are_verified() {
    if !has("nbdinfo", "libnbd-bin") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let server = start(export(), Tls::Required(tls::server_config(directory.path(), VerifyPeer::Yes).unwrap()));
    succeed("nbdinfo", &[&tls_uri(&server, directory.path())]);
    let stranger = tempfile::tempdir().unwrap();
    fs::copy(directory.path().join(tls::CA_CERT_FILE), stranger.path().join(tls::CA_CERT_FILE)).unwrap();
    assert!(!run("nbdinfo", &[&tls_uri(&server, stranger.path())]).status.success());
    certify(stranger.path());
    assert!(!run("nbdinfo", &[&tls_uri(&server, stranger.path())]).status.success());
    let endings = server.endings.lock().unwrap();
    assert!(endings.contains(&Reason::Violation(Violation::Tls)), "{endings:?}");
}

#[test]
fn qemu_encrypts() {
    if !has("qemu-img", "qemu-utils") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let server = start(export(), Tls::Required(tls::server_config(directory.path(), VerifyPeer::Yes).unwrap()));
    let path = server.directory().join("image").display().to_string();
    let bytes = image(Path::new(&path));
    let credentials = format!("tls-creds-x509,id=tls0,dir={},endpoint=client", directory.path().display());
    let target = format!(
        "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={},file.tls-creds=tls0,file.tls-hostname=localhost",
        server.socket().display()
    );
    succeed(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "--object", &credentials, "--target-image-opts", &path, &target],
    );
    assert!(contents(&server) == bytes);
}

#[test]
fn certificates_that_are_not_there_or_not_right_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let message = |verify| tls::server_config(directory.path(), verify).unwrap_err().to_string();
    assert!(message(VerifyPeer::No).contains(tls::SERVER_CERT_FILE));
    certify(directory.path());
    tls::server_config(directory.path(), VerifyPeer::Yes).unwrap();
    fs::write(directory.path().join(tls::CA_CERT_FILE), "nothing").unwrap();
    assert!(message(VerifyPeer::Yes).contains(tls::CA_CERT_FILE));
    tls::server_config(directory.path(), VerifyPeer::No).unwrap();
    let key = directory.path().join(tls::SERVER_KEY_FILE);
    fs::copy(directory.path().join("client-key.pem"), &key).unwrap();
    assert!(message(VerifyPeer::No).contains(tls::SERVER_CERT_FILE), "a key of another certificate");
    fs::write(&key, "").unwrap();
    assert!(message(VerifyPeer::No).contains(tls::SERVER_KEY_FILE));
}

/// Sends bytes, and returns the server's output until it hangs up.
fn talk(server: &NbdServer, bytes: &[u8]) -> Vec<u8> {
    let mut socket = server.connect();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // The server may have hung up before it read all.
    let _ = socket.write_all(bytes);
    let mut said = Vec::new();
    let _ = socket.read_to_end(&mut said);
    said
}

#[test]
fn hostile_clients_end_alone() {
    let directory = tempfile::tempdir().unwrap();
    certify(directory.path());
    let server = start(export(), Tls::Allowed(tls::server_config(directory.path(), VerifyPeer::No).unwrap()));
    let negotiated = [client_flags().to_vec(), option_request(option::GO, &info_data("", &[]))].concat();
    let mut friend = server.connect();
    friend.write_all(&negotiated).unwrap();
    let mut greeting = [0; 18 + 32 + 34 + 20];
    friend.read_exact(&mut greeting).unwrap();

    let start_tls = [client_flags().to_vec(), option_request(option::STARTTLS, &[])].concat();
    let write = |len_bytes| RequestBytes { command: command::WRITE, len_bytes, ..RequestBytes::default() }.encode();
    let bad: [(&str, Vec<u8>, Violation); 6] = [
        ("unknown flags", vec![0xff; 4], Violation::ClientFlags),
        ("no option", [&client_flags()[..], &[0; 16]].concat(), Violation::OptionMagic),
        (
            "a huge option",
            [&client_flags()[..], b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff"].concat(),
            Violation::OptionTooLong,
        ),
        ("no request", [&negotiated[..], &[7; 28]].concat(), Violation::RequestMagic),
        ("a huge write", [&negotiated[..], &write(u32::MAX)].concat(), Violation::PayloadTooLong),
        ("no TLS", [&start_tls[..], b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"].concat(), Violation::Tls),
    ];
    for (name, bytes, violation) in bad {
        let said = talk(&server, &bytes);
        assert!(said.starts_with(b"NBDMAGICIHAVEOPT"), "{name}");
        assert_eq!(server.endings.lock().unwrap().pop(), Some(Reason::Violation(violation)), "{name}");
    }

    // Half a request, half a payload, and requests in flight without a reader of their replies.
    let read = RequestBytes { len_bytes: 1 << 20, ..RequestBytes::default() }.encode();
    for bytes in [read[..10].to_vec(), [&write(4096)[..], &[1; 100]].concat(), read.repeat(500)] {
        let mut socket = server.connect();
        socket.write_all(&[&negotiated[..], &bytes].concat()).unwrap();
    }
    let crowd: Vec<_> = (0..200).map(|_| server.connect()).collect();

    for _ in 0..10 {
        friend.write_all(&RequestBytes { len_bytes: 512, ..RequestBytes::default() }.encode()).unwrap();
        let mut reply = [1; 16 + 512];
        friend.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..8], *b"\x67\x44\x66\x98\0\0\0\0");
        assert_eq!(reply[16..], [0; 512]);
    }
    drop(crowd);
    assert!(contents(&server).iter().all(|&byte| byte == 0), "no half write has an effect");
}
