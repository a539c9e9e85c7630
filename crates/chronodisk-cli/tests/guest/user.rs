//! The program runs as the caller would run it: output, input, identity, folder, environment, status.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::support::{Chronodisk, die_with_the_test, text};

#[test]
fn output_status_folder_and_environment_pass_through() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let folder = chronodisk.path("folder with a space");
    std::fs::create_dir(&folder).unwrap();
    let script = "echo out; echo err >&2; pwd; echo \"$CHRONODISK_TEST\"; umask; ls /mnt; exit 7";
    let output = chronodisk
        .command(&["run", "--device", "null", "--", "sh", "-c", script])
        .current_dir(&folder)
        .env("CHRONODISK_TEST", "a value\nof two lines")
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{stderr}");
    let expected = format!("out\n{}\na value\nof two lines\n0022\nlost+found\n", folder.display());
    assert_eq!(text(&output.stdout), expected, "{stderr}");
    assert!(stderr.contains("err\n"), "{stderr}");
}

#[test]
fn standard_input_reaches_the_program_whole() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // More than any buffer on the way, with every byte value.
    let input: Vec<u8> = (0..400_000u32).map(|index| (index * 7 % 256) as u8).collect();
    let mut child = chronodisk
        .command(&["run", "--device", "null", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let copy = input.clone();
    let writer = thread::spawn(move || stdin.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == input, "{} bytes of {} came back", output.stdout.len(), input.len());
}

#[test]
fn much_output_arrives_whole_and_costs_the_program_little() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "t=$(date +%s%N); head -c 20000000 /dev/zero; echo $((($(date +%s%N) - t) / 1000000)) >&2";
    let output = chronodisk.run("constant-100us", &["--fs", "ext4"], &["sh", "-c", script]);
    assert_eq!(output.stdout.len(), 20_000_000);
    assert!(output.stdout.iter().all(|&byte| byte == 0));
    assert!(first_number(&output.stderr) < 2_000, "{}", text(&output.stderr));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = chronodisk
        .command(&["run", "--device", "null", "--fs", "none", "--", "seq", "3"])
        .stdout(full)
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{stderr}");
    assert!(stderr.contains("writing the command's output"), "{stderr}");
    assert!(stderr.contains("run time"), "the summary is lost: {stderr}");
}

#[test]
fn a_reader_that_leaves_ends_the_writer_and_nobody_else() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let note = chronodisk.path("status");
    let script = format!("seq 10000000; echo rc $? > {}", note.display());
    let mut child = chronodisk
        .command(&["run", "--device", "null", "--fs", "none", "--host-writes", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut line).unwrap();
    assert_eq!(&line, b"1\n");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(note).unwrap(), "rc 141\n");
}

#[test]
fn a_reader_that_waits_keeps_no_signal_from_the_program() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let note = chronodisk.path("caught");
    let script = format!("trap 'touch {}; exit 9' INT; yes", note.display());
    let mut child = chronodisk
        .command(&["run", "--device", "null", "--fs", "none", "--host-writes", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).unwrap();
    // Every buffer on the way fills meanwhile; the signal must pass before that, too.
    thread::sleep(Duration::from_millis(500));
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    let give_up = Instant::now() + Duration::from_secs(20);
    while !note.exists() && Instant::now() < give_up {
        thread::sleep(Duration::from_millis(20));
    }
    let caught_unread = note.exists();
    stdout.read_to_end(&mut Vec::new()).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
    assert!(caught_unread);
}

#[test]
fn a_slow_reader_takes_none_of_the_programs_time() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "t=$(date +%s%N); head -c 5000000 /dev/zero; echo $((($(date +%s%N) - t) / 1000000)) >&2";
    let mut child = chronodisk
        .command(&["run", "--device", "null", "--fs", "none", "--", "sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 1]).unwrap();
    thread::sleep(Duration::from_secs(3));
    assert_eq!(stdout.read_to_end(&mut Vec::new()).unwrap(), 4_999_999);
    let output = child.wait_with_output().unwrap();
    assert!(first_number(&output.stderr) < 1_000, "{}", text(&output.stderr));
}

#[test]
fn a_program_that_waits_for_input_lives_at_the_hosts_pace() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let script = "echo up; t=$(date +%s%N); read line; echo $((($(date +%s%N) - t) / 1000000)) >&2; echo got:$line";
    let mut child = chronodisk
        .command(&["run", "--device", "null", "--fs", "none", "--", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    thread::sleep(Duration::from_secs(3));
    stdin.write_all(b"late\n").unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "got:late\n", "{}", text(&output.stderr));
    let waited_millis = first_number(&output.stderr);
    assert!((500..60_000).contains(&waited_millis), "{waited_millis} ms");
}

#[test]
fn a_working_directory_that_the_guest_hides_is_named() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let folder = chronodisk.path("mount/below");
    std::fs::create_dir_all(&folder).unwrap();
    let output = chronodisk
        .command(&["run", "--device", "null", "--mount", folder.parent().unwrap().to_str().unwrap(), "--", "true"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains(&format!("working directory {}", folder.display())), "{stderr}");
}

#[test]
fn a_folder_made_for_the_mount_point_goes_again() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let outer = chronodisk.path("outer");
    let at = outer.join("inner");
    let script = format!("echo x > {}/file", at.display());
    let flags = ["--host-writes", "--mount", at.to_str().unwrap()];
    let output = chronodisk.run("null", &flags, &["sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!outer.exists());
}

#[test]
fn this_executable_may_be_where_a_name_has_a_space() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let folder = chronodisk.path("two words");
    std::fs::create_dir(&folder).unwrap();
    let copy = folder.join("chronodisk");
    // By another process: a child of a test beside this one would hold the file open for writing.
    assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_chronodisk")).arg(&copy).status().unwrap().success());
    let mut command = Command::new(copy);
    command
        .args(["run", "--device", "null", "--fs", "none", "--", "echo", "here"])
        .env("XDG_STATE_HOME", chronodisk.results.path())
        .stdin(Stdio::null());
    die_with_the_test(&mut command);
    let output = command.output().unwrap();
    assert_eq!(text(&output.stdout), "here\n", "{}", text(&output.stderr));
}

#[test]
fn a_program_that_is_not_there_or_was_killed_has_the_status_of_a_shell() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let output = chronodisk.run("null", &["--fs", "none"], &["no-such-program"]);
    assert_eq!(output.status.code(), Some(127), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("no-such-program"));
    let output = chronodisk.run("null", &["--fs", "none"], &["sh", "-c", "kill -KILL $$"]);
    assert_eq!(output.status.code(), Some(128 + 9), "{}", text(&output.stderr));
}

#[test]
fn writes_to_the_hosts_tree_are_undone_unless_asked_for() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let file = chronodisk.path("note");
    let script = format!("echo written > {0} && cat {0}", file.display());
    let output = chronodisk.run("null", &["--fs", "none"], &["sh", "-c", &script]);
    assert_eq!(text(&output.stdout), "written\n", "{}", text(&output.stderr));
    assert!(!file.exists());
    let output = chronodisk.run("null", &["--fs", "none", "--host-writes"], &["sh", "-c", &script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "written\n");
}

/// script(1), which gives the command of `line` a terminal of its own.
fn on_a_terminal(chronodisk: &Chronodisk, line: &str) -> Command {
    let mut script = Command::new("script");
    script
        .args(["-q", "-e", "-c", line, "/dev/null"])
        .env("XDG_STATE_HOME", chronodisk.results.path())
        // A service that runs tests may have none, and nothing is drawn on a terminal without a name.
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    die_with_the_test(&mut script);
    script
}

#[test]
fn what_a_program_writes_to_its_terminal_is_shown_there() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (out, err) = (chronodisk.path("out"), chronodisk.path("err"));
    let own = env!("CARGO_BIN_EXE_chronodisk");
    let program = "echo to out; echo to err >&2; echo to terminal >/dev/tty";
    let line = format!("{own} run --device null --fs none -- sh -c '{program}' >{} 2>{}", out.display(), err.display());
    let output = on_a_terminal(&chronodisk, &line).output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("to terminal") && !shown.contains("to out") && !shown.contains("to err"), "{shown}");
    assert_eq!(std::fs::read_to_string(out).unwrap(), "to out\n");
    assert!(std::fs::read_to_string(err).unwrap().starts_with("to err\n"));
}

#[test]
fn a_terminal_is_a_terminal_in_the_guest() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let own = env!("CARGO_BIN_EXE_chronodisk");
    let line = format!("{own} run --device null --fs none -- sh -c 'tty; stty size; read line; echo got:$line'");
    let mut child = on_a_terminal(&chronodisk, &line).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("/dev/pts/"), "{shown}");
    assert!(shown.contains("got:typed"), "{shown}");
}

#[test]
fn a_terminal_shows_what_a_long_command_does() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let own = env!("CARGO_BIN_EXE_chronodisk");
    let shown = |options: &str, begin: &str| {
        let program = format!("{begin}; i=0; while [ $i -lt 1200000 ]; do i=$((i+1)); done; echo end");
        let line = format!("{own} run --device null --fs none {options} -- sh -c \"{program}\"").replace('$', "\\$");
        let output = on_a_terminal(&chronodisk, &line).output().unwrap();
        assert!(output.status.success() && text(&output.stdout).contains("end"), "{}", text(&output.stdout));
        text(&output.stdout).to_owned()
    };
    let normal = shown("", "echo begin");
    assert!(normal.contains("guest time ") && normal.contains(" requests/s, "), "{normal}");
    let quiet = shown("--quiet", "echo begin");
    assert!(!quiet.contains("guest") && !quiet.contains("result"), "{quiet}");
    // A line that the command has begun stays its own, and so does a screen that it controls.
    for (begin, written) in [("printf name:", "name:"), ("printf '\\033[7m\\n'", "\x1b[7m")] {
        let shown = shown("", begin);
        let (_, from_there_on) = shown.split_once(written).unwrap();
        assert!(!from_there_on.contains("guest time "), "{shown}");
    }
}

/// The number on a line of its own that the program wrote before the summary.
fn first_number(stderr: &[u8]) -> u64 {
    text(stderr).lines().find_map(|line| line.parse().ok()).unwrap_or_else(|| panic!("{}", text(stderr)))
}
