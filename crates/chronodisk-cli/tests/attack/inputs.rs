//! Changed files and messages for every reader of foreign bytes: each gets an answer in time, without a panic.
//!
//! The fuzz targets list the readers: each has an entry in [`READERS`], and a test compares the two.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::campaign::Verdict;
use crate::clients::Client;
use crate::folder::TestFolder;
use crate::ledger::{BLOCKS, Random};

/// Creates files in a test's folder.
type Make = fn(&TestFolder, &mut Random) -> Vec<PathBuf>;

/// The path by which the bytes of a fuzz target reach the command.
enum Reader {
    /// `make` creates files in the test's folder, one of them is changed, and calls read them.
    Files { make: Make, calls: &'static [&'static [&'static str]] },
    /// Messages from the corpus go to a socket of this server, which must serve others afterwards.
    Messages { server: &'static [&'static str] },
    /// As `Messages`, from the login of an iSCSI initiator and commands.
    Initiator,
    /// Changed blocks of a file system of this kind are written to a squashing device.
    FileSystem { make: &'static [&'static str] },
    /// The target reads no file or socket; the reason.
    Internal(&'static str),
}

const SERVE: [&str; 8] =
    ["serve", "--device", "null", "--capacity", "16MiB", "--nbd", "unix:nbd.sock", "--no-realtime"];

const READERS: [(&str, Reader); 26] = [
    (
        "block_traces",
        Reader::Files {
            make: block_trace,
            calls: &[&["trace", "stats", "input"], &["simulate", "-d", "null", "--trace", "input", "--beyond", "wrap"]],
        },
    ),
    ("canary", Reader::Internal("it must fail")),
    (
        "descriptor_walk",
        Reader::Internal("descriptors are in a virtual machine's memory; vhost_user_messages has them"),
    ),
    ("disksim_import", Reader::Files { make: disksim, calls: &[&["devices", "import", "drive.parv"]] }),
    (
        "fio_job",
        Reader::Files {
            make: fio_job,
            calls: &[&["simulate", "-d", "null", "--fio-job", "input", "--capacity", "4GiB"]],
        },
    ),
    (
        "flash_state",
        Reader::Files {
            make: flash_state,
            calls: &[&["simulate", "-d", "drive.toml", "--state", "state", "-w", "random-read", "-n", "100"]],
        },
    ),
    ("fuse_messages", Reader::Internal("the host's kernel writes them")),
    ("fuse_ring", Reader::Internal("the host's kernel writes them")),
    ("iscsi_messages", Reader::Initiator),
    ("nbd_messages", Reader::Messages { server: &["--nbd", "unix:other.sock"] }),
    (
        "profile",
        Reader::Files {
            make: profile,
            calls: &[
                &["devices", "show", "drive.toml"],
                &["simulate", "-d", "drive.toml", "-w", "random-small", "-n", "100"],
            ],
        },
    ),
    (
        "recorder_journal",
        Reader::Files { make: journal, calls: &[&["trace", "import", "--journal", "input", "-o", "out"]] },
    ),
    ("remote_messages", Reader::Messages { server: &["emulator-server", "--listen", "unix:other.sock"] }),
    (
        "request_log",
        Reader::Files {
            make: run,
            calls: &[
                &["verify", "r"],
                &["report", "r", "-o", "page.html"],
                &["simulate", "-d", "null", "--trace", "r", "--beyond", "wrap"],
            ],
        },
    ),
    ("squash_btrfs", Reader::FileSystem { make: &["mkfs.btrfs", "-q"] }),
    ("squash_ext4", Reader::FileSystem { make: &["mkfs.ext4", "-q"] }),
    ("squash_f2fs", Reader::FileSystem { make: &["mkfs.f2fs", "-q"] }),
    (
        "squash_image",
        Reader::Files {
            make: image,
            calls: &[
                &["image", "info", "disk"],
                &["image", "check", "disk"],
                &[
                    "serve",
                    "-d",
                    "null",
                    "--capacity",
                    "16MiB",
                    "--squash=exact",
                    "--store",
                    "disk",
                    "--nbd",
                    "unix:s",
                    "--run",
                    "true",
                ],
                &["image", "repair", "disk"],
                &["image", "check", "disk"],
            ],
        },
    ),
    ("squash_names", Reader::FileSystem { make: &["mkfs.ext4", "-q", "-O", "^has_journal"] }),
    ("squash_volumes", Reader::FileSystem { make: &["mkfs.ext4", "-q", "-b", "1024"] }),
    ("squash_xfs", Reader::FileSystem { make: &["mkfs.xfs", "-q"] }),
    (
        "store_recording",
        Reader::Files {
            make: recording,
            calls: &[&["crash", "--from", "r", "--only", "1"], &["crash", "--resume", "r"]],
        },
    ),
    ("strace_output", Reader::Files { make: strace, calls: &[&["trace", "import", "--strace", "input", "-o", "out"]] }),
    ("system_calls", Reader::Files { make: calls, calls: &[&["trace", "groups", "calls"]] }),
    ("ublk_commands", Reader::Internal("the host's kernel writes them")),
    ("vhost_user_messages", Reader::Messages { server: &["--vhost-user", "other.sock"] }),
];

/// Longest time for the answer to a small file on a busy host.
const IN_TIME: Duration = Duration::from_secs(120);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub fn attack(random: &mut Random, described: &mut String) -> Verdict {
    let attacked: Vec<_> = READERS.iter().filter(|(_, reader)| !matches!(reader, Reader::Internal(_))).collect();
    let (name, reader) = attacked[random.below(attacked.len() as u64) as usize];
    *described = (*name).to_owned();
    let place = TestFolder::new();
    match reader {
        Reader::Files { make, calls } => change_file(&place, *make, calls, random, described),
        Reader::Messages { server } => {
            let messages: Vec<_> =
                corpus(name).iter().map(|file| fs::read(file).expect("it is in the corpus")).collect();
            let connect = || UnixStream::connect(place.path("other.sock"));
            send_messages(&place, server, &messages, connect, random)
        }
        Reader::Initiator => send_as_initiators(&place, random),
        Reader::FileSystem { make } => write_file_system(&place, make, random),
        Reader::Internal(reason) => Verdict::Skipped((*reason).to_owned()),
    }
}

/// Changes bytes as faults do: flipped bits, other bytes, cuts, repetitions, extreme numbers.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(6) {
        let len = bytes.len() as u64;
        if len == 0 {
            return;
        }
        let at = random.below(len) as usize;
        match random.below(7) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => bytes.truncate(at),
            3 => {
                let end = (at + 1 + random.below(200) as usize).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                drop(bytes.splice(at..at, piece));
            }
            4 => drop(bytes.drain(at..(at + 1 + random.below(50) as usize).min(len as usize))),
            5 => {
                let extreme = [0, 1, u64::MAX, i64::MAX as u64, 1 << 63, 1 << 32][random.below(6) as usize];
                let end = (at + 8).min(bytes.len());
                bytes[at..end].copy_from_slice(&extreme.to_le_bytes()[..end - at]);
            }
            _ => {
                let number = ["0", "-1", "1e308", "nan", "18446744073709551615", "99999999999999999999", "\u{0}", "é"];
                let number = number[random.below(number.len() as u64) as usize];
                drop(bytes.splice(at..at, number.bytes()));
            }
        }
    }
}

fn change_file(
    place: &TestFolder,
    make: Make,
    calls: &[&[&str]],
    random: &mut Random,
    described: &mut String,
) -> Verdict {
    let files = make(place, random);
    if files.is_empty() {
        return Verdict::Skipped("this command makes no such file".to_owned());
    }
    let path = &files[random.below(files.len() as u64) as usize];
    let mut bytes = fs::read(path).expect("it was made");
    change(&mut bytes, random);
    fs::write(path, &bytes).expect("it was made");
    described.push_str(&format!(", {} changed", path.file_name().unwrap_or_default().to_string_lossy()));
    for call in calls {
        if let Err(found) = answers(place, call) {
            return Verdict::Found(format!("{}: {found}", call.join(" ")));
        }
    }
    Verdict::Held
}

/// The status and the messages of a call. An error if it does not end in time with one of the command's statuses, or
/// panics.
fn answers(place: &TestFolder, call: &[&str]) -> Result<(i32, String), String> {
    let errors = fs::File::create(place.path("errors")).expect("a file");
    let mut command = place.chronodisk(call);
    let mut child = command.stdout(Stdio::null()).stderr(errors).spawn().expect("the command starts");
    let give_up = Instant::now() + IN_TIME;
    let status = loop {
        match child.try_wait().expect("it is our child") {
            Some(status) => break status,
            None if Instant::now() > give_up => {
                crate::folder::signal(-(child.id() as i32), libc::SIGKILL);
                let _ = child.wait();
                return Err(format!("no end after {IN_TIME:?}"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let errors = String::from_utf8_lossy(&fs::read(place.path("errors")).unwrap_or_default()).into_owned();
    match status.code() {
        Some(code @ 0..=3) if !errors.contains("panicked at") => Ok((code, errors)),
        _ => Err(format!("{status}: {errors}")),
    }
}

/// Files in the corpus of a fuzz target.
fn corpus(target: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(repository().join("fuzz/corpus").join(target)).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn send_messages<S: Write>(
    place: &TestFolder,
    server: &[&str],
    messages: &[Vec<u8>],
    connect: impl Fn() -> io::Result<S>,
    random: &mut Random,
) -> Verdict {
    let is_emulator = server[0] == "emulator-server";
    let arguments = if is_emulator { server.to_vec() } else { [&SERVE[..], server].concat() };
    let mut child = place.chronodisk(&arguments).stderr(Stdio::null()).spawn().expect("the command starts");
    let give_up = Instant::now() + IN_TIME;
    while connect().is_err() {
        assert!(Instant::now() < give_up, "no server");
        std::thread::sleep(Duration::from_millis(5));
    }
    for _ in 0..20 {
        let mut bytes = messages[random.below(messages.len() as u64) as usize].clone();
        change(&mut bytes, random);
        let Ok(mut stream) = connect() else { break };
        // The server may close the connection at any byte.
        let _ = stream.write_all(&bytes);
    }
    let lives = child.try_wait().expect("it is our child").is_none() && connect().is_ok();
    if lives && !is_emulator {
        let mut client = Client::nbd(&place.path("nbd.sock"));
        assert_eq!(client.write_alone(1, &[7; 4096]), 0, "a client that asks for nothing wrong");
    }
    crate::folder::signal(child.id() as i32, libc::SIGTERM);
    let status = child.wait().expect("it is our child");
    match lives && status.success() {
        true => Verdict::Held,
        false => Verdict::Found(format!("the server ended with {status}")),
    }
}

fn send_as_initiators(place: &TestFolder, random: &mut Random) -> Verdict {
    let port = free_port();
    let connect = || TcpStream::connect(("127.0.0.1", port));
    send_messages(place, &["--iscsi", &port.to_string()], &initiators(), connect, random)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// An initiator's login and a command after it, for commands of each kind (RFC 7143, section 11).
fn initiators() -> Vec<Vec<u8>> {
    let names = b"InitiatorName=iqn.2026-11.org.example:attacker\0TargetName=iqn.2026-11.org.chronodisk:null\0";
    // Immediate, from the operational stage to the full-feature phase.
    let login = pdu(0x43, 0x87, names);
    let tasks: [(u8, u8, &[u8]); 5] = [
        (0x12, 0x40, &[]),
        (0x28, 0x40, &[]),
        (0x2A, 0x20, &[7; 512]),
        (0x35, 0x00, &[]),
        (0x42, 0x20, &[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0]),
    ];
    let command = |(operation, direction, data): &(u8, u8, &[u8])| {
        let mut command = pdu(0x01, 0x80 | direction, data);
        command[20..24].copy_from_slice(&512_u32.to_be_bytes());
        // The length of each of these commands is in byte 8.
        (command[32], command[40]) = (*operation, 1);
        [login.clone(), command].concat()
    };
    tasks.iter().map(command).collect()
}

/// A message with its data, padded.
fn pdu(opcode: u8, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    (bytes[0], bytes[1]) = (opcode, flags);
    bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn write_file_system(place: &TestFolder, make: &[&str], random: &mut Random) -> Verdict {
    let image = place.path("made");
    let made = fs::File::create(&image).and_then(|file| file.set_len(400 << 20));
    made.expect("a sparse file");
    let made = Command::new(make[0])
        .args(&make[1..])
        .arg(&image)
        .env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()))
        .output();
    if !made.is_ok_and(|output| output.status.success()) {
        return Verdict::Skipped(format!("no {}", make[0]));
    }
    let bytes = fs::read(&image).expect("it was made");
    let server = place.serve("null", &["--store", "disk", "--squash", "--keep", "*"]);
    let mut client = Client::nbd(&place.path("nbd.sock"));
    let blocks: Vec<u64> =
        (0..BLOCKS * 4).filter(|at| bytes[*at as usize * 4096..][..4096].iter().any(|b| *b != 0)).collect();
    for _ in 0..3 {
        for at in &blocks {
            let mut block = bytes[*at as usize * 4096..][..4096].to_vec();
            if random.below(4) == 0 {
                change(&mut block, random);
                block.resize(4096, 0);
            }
            assert_eq!(client.write_alone(*at, &block), 0, "block {at}");
        }
    }
    drop(client);
    let (status, errors) = server.end_somehow();
    if status != Some(0) || errors.contains("panicked") {
        return Verdict::Found(format!("{status:?}: {errors}"));
    }
    match answers(place, &["image", "check", "disk"]) {
        Ok(_) => Verdict::Held,
        Err(found) => Verdict::Found(found),
    }
}

/// Copies a file into the test's folder.
fn copied(place: &TestFolder, from: &Path, name: &str) -> PathBuf {
    fs::copy(from, place.path(name)).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    place.path(name)
}

fn tests_of(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cmd").join(folder)
}

/// A trace of the corpus, without its first two bytes, which only the fuzz target uses.
fn block_trace(place: &TestFolder, random: &mut Random) -> Vec<PathBuf> {
    let traces = corpus("block_traces");
    let which = random.below(traces.len() as u64) as usize;
    let bytes = fs::read(&traces[which]).expect("a file of the corpus");
    fs::write(place.path("input"), &bytes[2.min(bytes.len())..]).expect("a file");
    vec![place.path("input")]
}

fn disksim(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    ["drive.parv", "drive.diskspecs", "drive.seek"]
        .map(|name| copied(place, &tests_of("import.in").join(name), name))
        .into()
}

fn fio_job(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    const JOB: &str = "[global]\nfilename=disk\nioengine=libaio\ndirect=1\nbs=4k\nsize=1m\n[a]\nrw=randrw\nrwmixread=70\niodepth=4\n[b]\nrw=write\nnumjobs=2\n";
    fs::write(place.path("input"), JOB).expect("a file");
    vec![place.path("input")]
}

fn profile(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    vec![copied(place, &repository().join("profiles/disk/first-disk.toml"), "drive.toml")]
}

fn flash_state(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    copied(place, &repository().join("fuzz/small-ssd.toml"), "drive.toml");
    made_by(place, &["age", "-d", "drive.toml", "-o", "state"], &["state"])
}

fn journal(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    let bytes = [&chronodisk_trace::calls::MAGIC[..], &[0; 200]].concat();
    fs::write(place.path("input"), bytes).expect("a file");
    vec![place.path("input")]
}

fn run(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    if made_by(place, &["simulate", "-d", "first-disk", "-w", "random-small", "-n", "300", "-o", "r"], &[]).is_empty()
        && !place.path("r").exists()
    {
        return Vec::new();
    }
    let entries = fs::read_dir(place.path("r")).expect("the run").flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The files of a run with power cuts whose process was killed before it wrote the result.
fn recording(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    let call = ["crash", "-d", "null", "--capacity", "16MiB", "--cuts", "1", "--quiet", "-o", "r"];
    let call = [&call[..], &["--check", "true", "--", "sh", "-c", "echo x >/mnt/file; sync"]].concat();
    let made = made_by(place, &call, &["r/store.recording", "r/crash-setup.json", "r/crash-verdicts.jsonl"]);
    let _ = fs::remove_file(place.path("r/crash.json"));
    made
}

fn image(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    let server = place.serve("null", &["--store", "disk", "--squash=exact"]);
    let mut client = Client::nbd(&place.path("nbd.sock"));
    (0..40).for_each(|at| assert_eq!(client.write_alone(at * 3, &[at as u8; 4096]), 0));
    drop(client);
    server.end();
    ["disk", "disk.map", "disk.sums"].map(|name| place.path(name)).into()
}

fn strace(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    vec![copied(place, &tests_of("trace.in").join("two-users.strace"), "input")]
}

fn calls(place: &TestFolder, _random: &mut Random) -> Vec<PathBuf> {
    copied(place, &tests_of("trace.in").join("two-users.strace"), "input");
    made_by(place, &["trace", "import", "--strace", "input", "--mount", "/mnt", "-o", "calls"], &["calls"])
}

/// The files created by a call; none if it fails.
fn made_by(place: &TestFolder, call: &[&str], files: &[&str]) -> Vec<PathBuf> {
    let output = place.chronodisk(call).output().expect("the command starts");
    let made = files.iter().map(|name| place.path(name)).filter(|path| path.exists());
    if output.status.success() { made.collect() } else { Vec::new() }
}

/// Checks the harness: refused inputs would test only the command line.
#[test]
fn unchanged_inputs_are_accepted() {
    for (name, reader) in &READERS {
        // Only the beginning of a journal is in the corpus, and some traces are cut.
        let Reader::Files { make, calls } = reader else { continue };
        if matches!(*name, "recorder_journal" | "block_traces") {
            continue;
        }
        let place = TestFolder::new();
        assert!(!make(&place, &mut Random::new(1)).is_empty(), "{name}: no file was made");
        for call in *calls {
            let (status, errors) = answers(&place, call).unwrap_or_else(|found| panic!("{call:?}: {found}"));
            assert_eq!(status, 0, "{name}: {call:?}: {errors}");
        }
    }
}

/// As [`unchanged_inputs_are_accepted`]: each initiator logs in, and its command is answered.
#[test]
fn unchanged_initiators_are_served() {
    let (place, port) = (TestFolder::new(), free_port());
    let text = port.to_string();
    let arguments = [&SERVE[..], &["--iscsi", &text]].concat();
    let mut child = place.chronodisk(&arguments).stderr(Stdio::null()).spawn().expect("the command starts");
    let give_up = Instant::now() + IN_TIME;
    for message in initiators() {
        let mut stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) => assert!(Instant::now() < give_up, "no server: {error}"),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        stream.set_read_timeout(Some(IN_TIME)).expect("a time");
        stream.write_all(&message).expect("a server that reads");
        let mut header = [0; 48];
        stream.read_exact(&mut header).expect("an answer to the login");
        assert_eq!((header[0], header[36]), (0x23, 0), "{header:?}");
        let text_bytes = u32::from_be_bytes([0, header[5], header[6], header[7]]).next_multiple_of(4);
        stream.read_exact(&mut vec![0; text_bytes as usize]).expect("the text of the answer");
        stream.read_exact(&mut header).expect("an answer to the command");
        assert!(matches!(header[0], 0x21 | 0x25), "{header:?}");
    }
    crate::folder::signal(child.id() as i32, libc::SIGTERM);
    assert!(child.wait().expect("it is our child").success());
    for seed in 0..3 {
        let verdict = send_as_initiators(&TestFolder::new(), &mut Random::new(seed));
        assert!(matches!(verdict, Verdict::Held), "seed {seed}: {verdict:?}");
    }
}

#[test]
fn every_fuzz_target_has_a_reader_that_is_attacked() {
    let targets = fs::read_dir(repository().join("fuzz/fuzz_targets")).unwrap().map(|entry| entry.unwrap().path());
    let mut targets: Vec<String> = targets
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    targets.sort();
    let readers: Vec<&str> = READERS.iter().map(|(name, _)| *name).collect();
    assert_eq!(targets, readers);
}
