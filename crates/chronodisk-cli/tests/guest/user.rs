//! The program runs as the caller would run it: output, input, identity, folder, environment, status.

use std::io::Write;
use std::process::Stdio;

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
    let writer = std::thread::spawn(move || stdin.write_all(&copy));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success());
    assert!(output.stdout == input, "{} bytes of {} came back", output.stdout.len(), input.len());
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

#[test]
fn a_terminal_is_a_terminal_in_the_guest() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // script(1) gives the command a terminal of its own.
    let own = env!("CARGO_BIN_EXE_chronodisk");
    let line = format!("{own} run --device null --fs none -- sh -c 'tty; stty size; read line; echo got:$line'");
    let mut script = std::process::Command::new("script");
    script
        .args(["-q", "-e", "-c", &line, "/dev/null"])
        .env("XDG_STATE_HOME", chronodisk.results.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    die_with_the_test(&mut script);
    let mut child = script.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let shown = text(&output.stdout);
    assert!(shown.contains("/dev/pts/"), "{shown}");
    assert!(shown.contains("got:typed"), "{shown}");
}
