//! Endless files, and files that claim more contents than they have: no command allocates memory for them, and each
//! reports the fault. The commands and their arguments are taken from the help, so that a new one can't be forgotten.

#[path = "bombs/arguments.rs"]
mod arguments;
#[path = "bombs/files.rs"]
mod files;

use std::path::Path;
use std::process::{Command, Output};

/// A command that is not done by then hangs.
const LIVENESS_S: &str = "300";
/// Address space of a command.
const GIB_KIB: u64 = 1 << 20;

/// Calls the command with a limit on its address space.
fn limited(folder: &Path, kib: u64, words: &[String]) -> Output {
    let script = format!("ulimit -v {kib}; ulimit -c 0; exec \"$0\" \"$@\"");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", LIVENESS_S, "sh", "-c", &script, env!("CARGO_BIN_EXE_chronodisk")]);
    command.args(words).current_dir(folder).env("XDG_STATE_HOME", folder).env("NO_COLOR", "1");
    command.env_remove("RUST_BACKTRACE").output().unwrap()
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Reason why a command's end is wrong: it must have a status of its own, and a message if it failed.
fn complaint(output: &Output, allowed: &[i32]) -> Option<String> {
    let told = String::from_utf8_lossy(&output.stderr);
    let wrong = ["memory allocation of", "panicked at", "stack overflow", "stack backtrace"];
    let is_wrong = wrong.iter().any(|text| told.contains(text));
    let code = output.status.code();
    if is_wrong || !code.is_some_and(|code| allowed.contains(&code)) {
        return Some(format!("{:?}: {}", output.status, &told[..told.len().min(400)]));
    }
    None
}

#[test]
fn every_argument_that_names_a_file_is_tested() {
    let found = arguments::of_files();
    assert!(found.len() > 80, "{found:?}");
    // A replay has the options of a run.
    let as_run =
        |name: &str| name.strip_prefix("trace replay -").map_or(name.to_owned(), |rest| format!("run -{rest}"));
    let known = |name: &String| {
        let name = as_run(name);
        let is = |(known, _): &&(&str, &str)| *known == name;
        arguments::READ.iter().find(is).is_some() || arguments::NOT_READ.iter().find(is).is_some()
    };
    let forgotten: Vec<_> = found.iter().filter(|name| !known(name)).collect();
    assert!(forgotten.is_empty(), "add these to READ or NOT_READ of tests/bombs/arguments.rs: {forgotten:?}");
    let gone: Vec<_> = [arguments::READ, arguments::NOT_READ]
        .concat()
        .into_iter()
        .filter(|(name, _)| !found.iter().any(|there| there == name))
        .collect();
    assert!(gone.is_empty(), "no such arguments: {gone:?}");
}

#[test]
fn no_file_makes_a_command_take_a_gibibyte() {
    let folder = tempfile::tempdir().unwrap();
    let (files, _writers) = files::of_any_kind(folder.path());
    let mut complaints = Vec::new();
    for (name, call) in arguments::READ {
        for file in files.iter().filter(|file| files::suits(file, name, call)) {
            let place = |word: String| match word.strip_prefix("DIRECTORY/") {
                Some(name) => files::directory_with(folder.path(), name, file).display().to_string(),
                None if word == "FILE" => file.display().to_string(),
                None => word,
            };
            let call: Vec<String> = words(call).into_iter().map(place).collect();
            let output = limited(folder.path(), GIB_KIB, &call);
            // The text of requests is a trace, and a file of any contents stands for a real device.
            let is_trace = name.starts_with("serve --shadow")
                || file.ends_with("requests.csv.zst") && (name.contains("TRACE") || name.contains("compare"));
            let allowed: &[i32] =
                if is_trace || name.starts_with("runs") || name.starts_with("rm") { &[0, 2] } else { &[2, 3] };
            if let Some(complaint) = complaint(&output, allowed) {
                complaints.push(format!("{name} with {}: {complaint}", file.display()));
            }
        }
    }
    assert!(complaints.is_empty(), "{} of them:\n{}", complaints.len(), complaints.join("\n"));
}

#[test]
fn a_log_of_millions_of_equal_requests_is_read_in_half_a_gibibyte() {
    const HALF_GIB_KIB: u64 = GIB_KIB / 2;
    let folder = tempfile::tempdir().unwrap();
    let done = |call: &str| assert!(limited(folder.path(), GIB_KIB, &words(call)).status.success(), "{call}");
    done("simulate --device null --workload random-read --requests 10 -o kept");
    let log = files::log_of_equal_requests(&folder.path().join("kept/requests.parquet"), 18);
    std::fs::copy(&log, folder.path().join("t.parquet")).unwrap();
    files::log_of_equal_requests(&folder.path().join("short.parquet"), 2);
    let calls = [
        ("simulate --device null --trace t.parquet", 2, "t.parquet: more than"),
        ("simulate --device null --trace t.parquet --arrivals closed", 2, "memory; the limit is"),
        ("simulate --device null --trace short.parquet --arrivals depth=4 -o again", 0, "131072 requests"),
        ("trace stats short.parquet", 0, ""),
        ("trace stats short.parquet --block requests --draws 2", 0, ""),
        ("trace compare t.parquet t.parquet", 0, ""),
        ("trace compare t.parquet t.parquet --times", 2, "memory; the limit is"),
        ("trace convert short.parquet --to alibaba -o out.csv", 0, ""),
        ("trace merge short.parquet short.parquet -o merged.parquet", 0, ""),
        ("verify kept", 2, "has order 0; expected 1"),
        ("report kept -o out.html", 0, ""),
        ("show kept", 0, ""),
    ];
    for (call, status, told) in calls {
        let output = limited(folder.path(), HALF_GIB_KIB, &words(call));
        let complaint = complaint(&output, &[status]);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(complaint.is_none() && text.contains(told), "{call}: {complaint:?} {text}");
    }
}

#[test]
fn a_trace_of_millions_of_equal_calls_names_file_need_and_limit() {
    let folder = tempfile::tempdir().unwrap();
    files::calls_of_equal_rows(&folder.path().join("t.calls"), 230);
    for call in
        ["trace groups t.calls", "trace bootstrap t.calls --count 1 -o out", "trace replay t.calls --device null"]
    {
        let output = limited(folder.path(), GIB_KIB, &words(call));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(complaint(&output, &[2]), None, "{call}");
        let wanted = ["t.calls", "GiB of memory; the limit is 256 MiB", "--memory-limit"];
        assert!(wanted.iter().all(|text| told.contains(text)), "{call}: {told}");
    }
    // A file that fits is read, and the limit can be set.
    files::calls_of_equal_rows(&folder.path().join("small.calls"), 2);
    assert!(limited(folder.path(), GIB_KIB, &words("trace groups small.calls")).status.success());
    let output = limited(folder.path(), GIB_KIB, &words("trace groups small.calls --memory-limit 10MiB"));
    assert_eq!(complaint(&output, &[2]), None);
}

/// The library panics on some damage; the command must answer with an error in each case.
#[test]
fn a_damaged_log_prints_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let done =
        limited(folder.path(), GIB_KIB, &words("simulate --device null --workload random-read --requests 50 -o kept"));
    assert!(done.status.success());
    let log = folder.path().join("kept/requests.parquet");
    let good = std::fs::read(&log).unwrap();
    let step = good.len() / 150;
    for at in (4..good.len()).step_by(step.max(1)) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&log, &bytes).unwrap();
        let output = limited(folder.path(), GIB_KIB, &words("verify kept"));
        assert_eq!(complaint(&output, &[0, 1, 2]), None, "byte {at}");
    }
}
