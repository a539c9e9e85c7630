//! The arguments that name files, for each command, from the commands' help.

use std::process::Command;

/// A call of a command for each kind of file. `FILE` stands for the file, `DIRECTORY/NAME` for a directory with a file
/// of that name.
pub const READ: &[(&str, &str)] = &[
    ("run --device", "run --device FILE -- true"),
    ("run --server-token", "run --server localhost:1 --server-token FILE -- true"),
    (
        "run --server-tls-certificates",
        "run --server localhost:1 --server-tls-certificates DIRECTORY/ca-cert.pem -- true",
    ),
    ("run --snapshot", "run --device null --snapshot FILE -- true"),
    ("run --machine", "run --device null --fs none --machine FILE -- true"),
    ("run --state", "run --device wd-zn540 --capacity 4GiB --state FILE -- true"),
    ("run --store", "run --device null --capacity 64MiB --store FILE -- true"),
    ("crash --device", "crash --device FILE --check true -- true"),
    ("crash --from", "crash --from DIRECTORY/crash-setup.json"),
    ("crash --resume", "crash --resume DIRECTORY/crash-verdicts.jsonl"),
    ("crash --server-token", "crash --server localhost:1 --server-token FILE --check true -- true"),
    (
        "crash --server-tls-certificates",
        "crash --server localhost:1 --server-tls-certificates DIRECTORY/ca-cert.pem --check true -- true",
    ),
    ("crash --state", "crash --device wd-zn540 --capacity 4GiB --state FILE --check true -- true"),
    ("mount --device", "mount --device FILE -- true"),
    ("mount --state", "mount --device wd-zn540 --capacity 4GiB --state FILE -- true"),
    ("whatif --device", "whatif --device FILE --speedup 2 -- true"),
    ("whatif --state", "whatif --device wd-zn540 --capacity 4GiB --speedup 2 --state FILE -- true"),
    ("whatif calibrate --device", "whatif calibrate --device FILE"),
    ("serve --device", "serve --device FILE --nbd unix:s --run true"),
    ("serve --state", "serve --device wd-zn540 --capacity 4GiB --state FILE --nbd unix:s --run true"),
    ("serve --shadow", "serve --device null --capacity 64MiB --shadow FILE --nbd unix:s --run true"),
    ("serve --store", "serve --device null --capacity 64MiB --store FILE --nbd unix:s --run true"),
    (
        "serve --iscsi-secret-file",
        "serve --device null --capacity 1MiB --iscsi 10814 --iscsi-user me --iscsi-secret-file FILE --run true",
    ),
    (
        "serve --preload",
        "serve --device null --capacity 1MiB --store overflow:s.img --preload DIRECTORY/result.json --nbd unix:s --run true",
    ),
    (
        "serve --tls-certificates",
        "serve --device null --capacity 1MiB --tls require --tls-certificates DIRECTORY/server-cert.pem --nbd 10811 --run true",
    ),
    ("emulator-server --device", "emulator-server --device FILE --listen unix:s"),
    ("emulator-server --token", "emulator-server --device null --listen 10812 --token FILE"),
    ("emulator-server --store", "emulator-server --device FILE --store FILE --listen unix:s"),
    (
        "emulator-server --tls-certificates",
        "emulator-server --device null --listen 10813 --tls-certificates DIRECTORY/server-cert.pem",
    ),
    ("simulate --device", "simulate --device FILE --workload random-read"),
    ("simulate --server-token", "simulate --server localhost:1 --server-token FILE --workload random-read"),
    (
        "simulate --server-tls-certificates",
        "simulate --server localhost:1 --server-tls-certificates DIRECTORY/ca-cert.pem --workload random-read",
    ),
    ("simulate --trace", "simulate --device null --trace FILE --arrivals closed"),
    ("simulate --fio-job", "simulate --device null --fio-job FILE"),
    ("simulate --state", "simulate --device wd-zn540 --capacity 4GiB --state FILE --workload random-read"),
    ("sweep FILE.toml", "sweep FILE -o out"),
    ("trace convert TRACE", "trace convert FILE --to alibaba -o out"),
    ("trace cut TRACE", "trace cut FILE --to alibaba -o out"),
    ("trace merge TRACE", "trace merge FILE FILE --to alibaba -o out"),
    ("trace scale TRACE", "trace scale FILE --time 2 --to alibaba -o out"),
    ("trace stats TRACE", "trace stats FILE"),
    ("trace compare A", "trace compare FILE FILE"),
    ("trace compare B", "trace compare FILE FILE --times"),
    ("trace import --strace", "trace import --strace FILE -o out"),
    ("trace import --journal", "trace import --journal FILE -o out"),
    ("trace snapshot SOURCE", "trace snapshot FILE -o out"),
    ("trace groups FILE", "trace groups FILE"),
    ("trace bootstrap FILE", "trace bootstrap FILE --count 2 -o out"),
    ("trace replay FILE", "trace replay FILE --device null"),
    ("age --device", "age --device FILE -o out"),
    ("validate --device", "validate --device FILE --trace /dev/null"),
    ("validate --trace", "validate --device null --trace FILE"),
    ("fit --data", "fit --profile wd-zn540 --data FILE"),
    ("fit --profile", "fit --profile FILE --data /dev/null"),
    ("fit --alternative", "fit --profile wd-zn540 --alternative FILE --data /dev/null"),
    ("fit --state", "fit --profile wd-zn540 --data /dev/null --state FILE"),
    ("verify RUN", "verify DIRECTORY/result.json"),
    ("verify --device", "verify --device FILE last"),
    ("compare RUN", "compare DIRECTORY/result.json FILE"),
    ("report RUN", "report DIRECTORY/result.json -o out.html"),
    ("runs DIR", "runs DIRECTORY/result.json"),
    ("show RUN", "show DIRECTORY/simulation.json"),
    ("rm RUN", "rm DIRECTORY/result.json --dry-run"),
    ("devices show PROFILE", "devices show FILE"),
    ("devices check PROFILE", "devices check FILE"),
    ("devices import FILE", "devices import FILE"),
    ("kernel install FILE", "kernel install FILE"),
    ("image info FILE", "image info FILE"),
    ("image check FILE", "image check FILE"),
    ("image repair FILE", "image repair FILE"),
    ("image upgrade FILE", "image upgrade FILE"),
];

/// Arguments that name a file or a directory whose contents the command does not read, with the reason.
pub const NOT_READ: &[(&str, &str)] = &[
    ("run --mount", "a directory of the guest"),
    ("run --root-files", "files of the guest's root, which programs of the guest read"),
    ("run --kernel", "executed"),
    ("run --module", "loaded by the guest's kernel"),
    ("run --record-store", "written"),
    ("run --record-calls", "written"),
    ("run --output", "written"),
    ("crash --kernel", "executed"),
    ("crash --module", "loaded by the guest's kernel"),
    ("crash --mount", "a directory of the guest"),
    ("crash --output", "written"),
    ("crash --root-files", "files of the guest's root, which programs of the guest read"),
    ("crash --server", "a socket"),
    ("mount --mount", "a directory"),
    ("mount --output", "written"),
    ("whatif --mount", "a directory"),
    ("whatif --on", "a device of the host, which is read as a device"),
    ("whatif --plot", "written"),
    ("whatif calibrate --on", "a device of the host, which is read as a device"),
    ("serve --vhost-user", "a socket"),
    ("serve --nbd", "a socket"),
    ("serve --pidfile", "written"),
    ("serve --output", "written"),
    ("serve --plot", "written"),
    ("emulator-server --listen", "a socket"),
    ("run --server", "a socket"),
    ("simulate --server", "a socket"),
    ("simulate --output", "written"),
    ("sweep --output", "written, and cells that are there are read as results"),
    ("trace convert --output", "written"),
    ("trace cut --output", "written"),
    ("trace merge --output", "written"),
    ("trace scale --output", "written"),
    ("trace stats --plot", "written"),
    ("trace record --output", "written"),
    ("trace record --mount", "a directory"),
    ("trace import --output", "written"),
    ("trace import --mount", "a directory"),
    ("trace snapshot --output", "written"),
    ("trace bootstrap --output", "written"),
    ("age --output", "written"),
    ("validate --plot", "written"),
    ("validate --per-request", "written"),
    ("fit --plot", "written"),
    ("compare --plot", "written"),
    ("report --output", "written"),
    ("show --plot", "written"),
    ("devices import --output", "written"),
    ("devices new --output", "written"),
    ("kernel build --source", "unpacked by tar"),
    ("kernel build --patch", "read by patch"),
    ("kernel build --output", "written"),
    ("kernel build --tree", "written"),
    ("kernel package --output", "written"),
    ("man DIR", "written"),
];

/// Parts of the names of values that are files, directories or runs.
const PATHS: [&str; 7] = ["FILE", "PATH", "PROFILE", "TRACE", "RUN", "DIR", "SOURCE"];

/// Each argument that names a file, as `COMMAND ARGUMENT`.
pub fn of_files() -> Vec<String> {
    let mut found = Vec::new();
    gather(&[], &mut found);
    found.sort();
    found.dedup();
    found
}

fn gather(command: &[String], found: &mut Vec<String>) {
    let output = Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(command).arg("--help").output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let words = command.join(" ");
    let section = |heading: &str| -> Vec<String> {
        let rest = help.split_once(&format!("\n{heading}:\n")).map_or("", |(_, rest)| rest);
        rest.lines().take_while(|line| line.is_empty() || line.starts_with(' ')).map(str::to_owned).collect()
    };
    for line in section("Arguments") {
        let Some(name) = line.trim_start().strip_prefix(['<', '[']).filter(|_| line.starts_with("  ")) else {
            continue;
        };
        let name: String = name.chars().take_while(|letter| !"]>".contains(*letter)).collect();
        let is_path = PATHS.iter().any(|part| name.contains(part)) || ["A", "B"].contains(&name.as_str());
        if is_path && line.starts_with("  ") && !line.starts_with("   ") {
            found.push(format!("{words} {name}"));
        }
    }
    for line in help.lines().filter(|line| line.trim_start().starts_with('-')) {
        let Some(at) = line.find("--") else { continue };
        let option: String =
            line[at..].chars().take_while(|letter| letter.is_alphanumeric() || *letter == '-').collect();
        let value = line[at + option.len()..].trim_start().split("  ").next().unwrap_or_default();
        if value.contains('<') && PATHS.iter().any(|part| value.contains(part)) {
            found.push(format!("{words} {option}"));
        }
    }
    for line in section("Commands") {
        let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
        let Some(name) = name.and_then(|rest| rest.split_whitespace().next()) else { continue };
        if name != "help" {
            gather(&[command, &[name.to_owned()]].concat(), found);
        }
    }
}
