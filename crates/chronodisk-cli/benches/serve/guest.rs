//! Peak rate through vhost-user-blk, compared with qemu-storage-daemon's: one virtual machine has both disks and runs
//! fio on them in turn, so that all else is equal.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::{JOBS, ROUND_SECONDS, Server, has_program, machine, turns};

/// The two servers, in the order of the guest's disks.
pub const SERVERS: [&str; 2] = ["chronodisk null, vhost-user", "qemu-storage-daemon null-co, vhost-user"];

/// Bytes that are read, over and over.
const SIZE: &str = "64m";

/// Requests per second in each round, by the indices of job and server; empty if this host can't run the machine.
pub fn rates(rounds: usize) -> BTreeMap<(usize, usize), Vec<f64>> {
    let mut rates: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    let programs = [("fio", "fio")];
    if !has_program("qemu-storage-daemon", "qemu-system-common") || !machine::have(&programs) {
        return rates;
    }
    let Some(kernel) = machine::Kernel::find() else {
        eprintln!("SKIPPED: no kernel image with its modules here (scripts/need test unpacks one)");
        return rates;
    };
    let folder = tempfile::tempdir().expect("a folder for the sockets");
    let root = folder.path().join("root.cpio");
    machine::write_root(&root, &kernel, &["virtio_pci", "virtio_blk"], &[], &["fio"], &script(rounds));

    let peer_socket = folder.path().join("peer");
    let ours = Server::chronodisk_vhost("null", folder.path());
    let peer = Server::start_vhost(
        Command::new("qemu-storage-daemon")
            // Each read fills the guest's memory, as with our server.
            .args(["--blockdev", "driver=null-co,size=1073741824,read-zeroes=on,node-name=n"])
            .args([
                "--export",
                &format!(
                    "type=vhost-user-blk,id=v,node-name=n,writable=on,addr.type=unix,addr.path={}",
                    peer_socket.display()
                ),
            ]),
        &peer_socket,
    );
    // Emulated, and therefore slow: a host that reports virtualisation may not be able to use it.
    let mut words = machine::command(&kernel, &root, "tcg", "1G", "");
    for (name, socket) in [("ours", folder.path().join("vhost")), ("peer", peer_socket)] {
        words.extend(["-chardev".to_owned(), format!("socket,id={name},path={}", socket.display())]);
        words.extend(["-device".to_owned(), format!("vhost-user-blk-pci,chardev={name},num-queues=1")]);
    }
    eprintln!("{rounds} rounds in a virtual machine");
    let mut guest = Command::new(&words[0]).args(&words[1..]).stdout(Stdio::piped()).spawn().expect("QEMU starts");
    let said = follow(guest.stdout.take().expect("it is piped"));
    guest.wait().expect("our own child");
    assert!(said.iter().any(|line| line == "machine: status 0"), "{}", said.join("\n"));
    ours.end(libc::SIGTERM);
    peer.end(libc::SIGTERM);
    for line in said {
        if let Some(rest) = line.strip_prefix("rate ") {
            let words: Vec<&str> = rest.split(' ').collect();
            let number = |index: usize| words[index].parse::<f64>().unwrap_or_else(|error| panic!("{line}: {error}"));
            rates.entry((number(0) as usize, number(1) as usize)).or_default().push(number(2));
        }
    }
    rates
}

/// The lines of the guest's console, each printed when it arrives.
fn follow(console: impl Read) -> Vec<String> {
    let lines = BufReader::new(console).lines().map_while(Result::ok);
    lines.map(|line| line.trim().to_owned()).inspect(|line| eprintln!("  {line}")).collect()
}

/// The guest's script: it prints one line `rate JOB SERVER REQUESTS-PER-SECOND` per measurement.
fn script(rounds: usize) -> String {
    let fio = format!("fio --name=peak --ioengine=libaio --direct=1 --size={SIZE}");
    // Memory that was never written would be answered without being read.
    let mut script =
        format!("for disk in vda vdb; do {fio} --filename=/dev/$disk --rw=write --bs=1m >/dev/null; done\n");
    for round in 0..rounds {
        for (job_index, job) in JOBS.iter().enumerate() {
            for server_index in turns(round, SERVERS.len()) {
                let disk = ["vda", "vdb"][server_index];
                // The eighth field of fio's terse form, version 3, is the rate of reads.
                script += &format!(
                    "echo rate {job_index} {server_index} $({fio} --filename=/dev/{disk} --time_based \
                     --runtime={ROUND_SECONDS} --output-format=terse --terse-version=3 {} | grep '^3;' | \
                     cut -d';' -f8)\n",
                    job.arguments.join(" ")
                );
            }
        }
    }
    script
}
