//! Files that are kept by their names on XFS: its log says at once which ones they are.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::support::{Chronodisk, long, text};

/// Six files that are not kept, of 300 MB together, each committed beside one that is.
const MANY: &str = "set -e
    cd /mnt
    mkdir other
    for i in 1 2 3 4 5 6; do
        head -c 50000000 /dev/urandom > other/$i.dat
        head -c 500000 /dev/urandom > $i.db
        sync
    done
    sums=$(sha256sum *.db)
    cd /
    umount /mnt
    mount /dev/vda /mnt
    cd /mnt
    [ \"$sums\" = \"$(sha256sum *.db)\" ] || exit 1
    cd /";

/// Makes and removes files; the log is so small that it is written several times.
const SMALL_LOG: &str = "set -e
    export TEST_DIR=/mnt TEST_DEV=/dev/vda QA_CHECK_FS=yes
    mkfs.xfs -q -l size=8m /dev/vda
    mount /dev/vda /mnt
    for round in 1 2 3 4 5; do
        mkdir /mnt/d$round
        i=0
        while [ $i -lt 2000 ]; do
            : > /mnt/d$round/a-rather-long-name-of-a-file-$i
            i=$((i + 1))
            [ $((i % 500)) != 0 ] || sync
        done
        [ $round = 1 ] || rm -r /mnt/d$((round - 1))
        sync
    done
";

#[test]
fn other_files_are_not_spilled_while_the_log_of_xfs_is_followed() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let small_log = SMALL_LOG.to_owned() + MANY;
    let cases = [("xfs", MANY), ("none", &small_log)];
    for (file_system, script) in &cases[..if long() { 2 } else { 1 }] {
        let flags = ["--fs", file_system, "--capacity", "600MiB", "--squash", "--content", "random", "--keep", "*.db"];
        let image = chronodisk.path(&format!("image-{file_system}"));
        let flags = [&flags[..], &["--store", image.to_str().unwrap()]].concat();
        // With a cache there are flushes, and each of them keeps its promise.
        let result = chronodisk.run_json("nearline-20tb", &flags, &["sh", "-c", script]);
        let statistic = |name: &str| result["reps"][0]["model_statistics"][name].as_f64().unwrap_or(0.0);
        assert!(statistic("squash-commits") >= 6.0, "{file_system}: {result}");
        assert_eq!(statistic("squash-named-too-late [bytes]"), 0.0, "{file_system}");
        assert!(statistic("squash-kept-raw [bytes]") >= 3_000_000.0, "{file_system}");
        let spilled = statistic("squash-spilled [bytes]");
        assert!(spilled < 4_000_000.0, "{file_system}: {spilled}");
        let used_bytes = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&image).unwrap()) * 512;
        assert!(used_bytes < 32 << 20, "{file_system}: {used_bytes}");
    }
}

/// Files replaced as programs do, and others in between; ends with the data that a kill must not change.
const REPLACED: &str = "set -e
    cd /mnt
    mkdir a
    for i in 1 2 3 4 5 6 7 8; do
        head -c $((i * 100000)) /dev/urandom > a/temporary
        sync
        mv a/temporary a/file-$((i % 3)).db
        head -c 1000000 /dev/urandom > a/other-$i
        sync
        dd if=/dev/urandom of=a/file-$((i % 3)).db bs=4k count=2 seek=3 conv=notrunc,fsync status=none
    done
    cp --reflink=always a/file-0.db a/copy.db
    dd if=/dev/urandom of=a/copy.db bs=4k count=3 seek=1 conv=notrunc status=none
    sync
    sha256sum a/*.db
    echo done
    exec sleep 1000";

#[test]
fn files_that_are_kept_on_xfs_survive_a_kill() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let image = chronodisk.path("image");
    let squash = ["--squash", "--content", "random", "--keep", "*.db", "--store", image.to_str().unwrap()];
    let flags = [&["--capacity", "600MiB"], &squash[..]].concat();
    let arguments = [&["run", "--device", "nearline-20tb", "--fs", "xfs"], &flags[..], &["--", "sh", "-c", REPLACED]];
    let mut command = chronodisk.command(&arguments.concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let sums: Vec<String> = lines.take_while(|line| line != "done").collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sums.len(), 4, "{sums:?}");
    let check = "mount /dev/vda /mnt; cd /mnt; sha256sum a/*.db; cd /; umount /mnt";
    let output = chronodisk.run("nearline-20tb", &[&["--fs", "none"], &flags[..]].concat(), &["sh", "-c", check]);
    let found = text(&output.stdout);
    assert!(sums.iter().all(|sum| found.contains(sum)), "{sums:?}\n{found}\n{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("before the files had their names"), "{}", text(&output.stderr));
}
