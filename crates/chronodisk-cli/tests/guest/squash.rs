//! Content of a squashing store after a guest's work: files by their names, pages by notices, mirrors once, and
//! contents that the file systems' own checksums accept.

use chronodisk_device::{BuildOptions, Profile};
use serde_json::Value;

use super::support::{Chronodisk, example, is_root, long, text};
use super::twins::btrfsprogs::btrfsprogs_are_here;
use super::twins::e2fsprogs;
use super::twins::xfsprogs::xfsprogs_are_here;
use super::twins::{capacity_bytes, here};

#[test]
fn squashed_contents_pass_the_checksums_of_btrfs() {
    let Some(chronodisk) = Chronodisk::new().filter(|_| btrfsprogs_are_here()) else { return };
    // Read past all caches before a commit, and after the next mount.
    let script = "set -e
        dd if=/dev/urandom of=/mnt/big bs=1M count=24 oflag=direct status=none
        dd if=/mnt/big of=/dev/null bs=64k iflag=direct status=none
        cp -r /usr/include/linux /mnt/tree
        umount /mnt
        mount /dev/vda /mnt
        find /mnt -type f -exec cat {} + > /dev/null
        btrfs scrub start -B -r /mnt";
    let flags = ["--fs", "btrfs", "--capacity", "256MiB", "--squash", "--content", "random", "--check"];
    let output = chronodisk.run("constant-100us", &flags, &["sh", "-c", script]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("no errors found"), "{}", text(&output.stdout));
}

/// Files, some of them to be kept, one in blocks of a squashed file, one that gets such a name late. Ends with status 1
/// if a file that must be equal after another mount is not, with 2 if one is equal that need not be.
const NAMED_FILES: &str = "set -e
    cd /mnt
    mkdir db other
    head -c 3000000 /dev/urandom > old.dat
    head -c 3000000 /dev/urandom > renamed.dat
    sync
    rm old.dat
    sync
    head -c 6000000 /dev/urandom > db/reused.db
    head -c 1000000 /dev/urandom > other/squashed.dat
    sync
    dd if=/dev/urandom of=db/direct.db bs=64k count=20 oflag=direct status=none
    head -c 500000 /dev/urandom >> db/reused.db
    fallocate -l 1000000 db/allocated.db || true
    head -c 2000000 /dev/urandom | dd of=db/allocated.db bs=64k conv=notrunc iflag=fullblock status=none
    sync
    dd if=/dev/urandom of=db/reused.db bs=4k seek=7 count=100 conv=notrunc,fsync status=none
    mv renamed.dat renamed.db
    sync
    head -c 1000000 /dev/urandom >> renamed.db
    mkdir later
    mv db later/
    head -c 700000 /dev/urandom > later/db/new.db
    sums() { sha256sum later/db/*; tail -c +3002369 renamed.db | sha256sum; }
    before=$(sums)
    squashed=$(sha256sum other/squashed.dat)
    cd /
    umount /mnt
    mount /dev/vda /mnt
    cd /mnt
    [ \"$before\" = \"$(sums)\" ] || exit 1
    [ \"$squashed\" != \"$(sha256sum other/squashed.dat)\" ] || exit 2
    cd /";

#[test]
fn named_files_are_kept_from_their_first_commit_on() {
    let Some(chronodisk) = here() else { return };
    let (with_btrfs, with_xfs) = (btrfsprogs_are_here(), xfsprogs_are_here());
    // XFS writes metadata to their places when it is frozen, else hardly before it is unmounted.
    let freezing = NAMED_FILES.replace("    sync\n", "    sync; fsfreeze -f /mnt; fsfreeze -u /mnt\n");
    let cases = [
        ("ext4", "-b 4096", NAMED_FILES, true),
        ("ext3", "-b 1024", NAMED_FILES, long()),
        ("ext2", "-b 4096", NAMED_FILES, true),
        ("btrfs", "-n 16384", NAMED_FILES, with_btrfs),
        ("xfs", "-b size=4096", NAMED_FILES, with_xfs),
        ("xfs", "-b size=4096", &freezing, with_xfs && long()),
    ];
    for (file_system, options, script, _) in cases.into_iter().filter(|case| case.3) {
        let capacity = format!("{}MiB", capacity_bytes(file_system) >> 20);
        let flags = ["--fs", file_system, "--mkfs-options", options, "--capacity", &capacity, "--check"];
        let squash = ["--squash", "--content", "random", "--keep", "/**/db/*", "--keep", "*.db"];
        let flags = [&flags[..], &squash].concat();
        let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", script]);
        let rep = &result["reps"][0];
        let statistic = |name: &str| rep["model_statistics"][name].as_f64().unwrap_or(0.0);
        // Without a journal nothing is squashed before the file system is unmounted, and on XFS not before it has to
        // be.
        let at_the_end = file_system == "ext2" || file_system == "xfs";
        let late_bytes = if at_the_end { 0.0 } else { 3_002_368.0 };
        let late = statistic("squash-named-too-late [bytes]");
        // Blocks of 1 KiB share units with the file's own map, which is kept, and with neighbours.
        let late_range = if late_bytes > 0.0 { late_bytes - 40_960.0..=late_bytes + 4096.0 } else { 0.0..=0.0 };
        assert!(late_range.contains(&late), "{file_system} {options}: {late}");
        let told = result["warnings"].to_string().contains("before the files had their names");
        assert_eq!(told, late > 0.0, "{file_system} {options}: {}", result["warnings"]);
        let raw = statistic("squash-kept-raw [bytes]");
        assert!(raw >= 11_000_000.0, "{file_system} {options}: {raw}");
        assert!(statistic("squash-generated [bytes]") >= 1_000_000.0, "{file_system} {options}");
    }
}

/// Files whose kind their names say, of random bytes and of zeros, appended to and renamed; read by what reads such
/// files after another mount.
const KINDS_OF_FILES: &str = "set -e
    cd /mnt
    mkdir archive
    head -c 3000001 /dev/urandom > archive/random.gz
    head -c 700000 /dev/zero > archive/zeros.gz
    head -c 70000 /dev/urandom > document.tmp
    head -c 5000 /dev/urandom > log.txt
    sync
    head -c 10000 /dev/zero >> archive/random.gz
    mv document.tmp document.pdf
    sync
    cd /
    umount /mnt
    mount /dev/vda /mnt
    cd /mnt
    gzip -t archive/*.gz
    [ $(stat -c %s archive/random.gz) = 3010001 ]
    if command -v qpdf > /dev/null; then qpdf --check document.pdf; fi
    head -c 9 document.pdf | grep -q %PDF-1.4
    tail -c 6 document.pdf | grep -q %%EOF
    ! grep -qv '^[a-z ]*$' log.txt
    cd /";

/// They still are in a later run, and so is a kept file, under any later rules.
const KINDS_OF_FILES_AGAIN: &str = "set -e
    mount /dev/vda /mnt
    cd /mnt
    gzip -t archive/*.gz
    if command -v qpdf > /dev/null; then qpdf --check document.pdf; fi
    [ ! -e kept.sum ] || sha256sum --check --quiet kept.sum
    cd /
    umount /mnt";

#[test]
fn squashed_files_have_the_kind_that_their_names_say() {
    let Some(chronodisk) = here() else { return };
    let (with_btrfs, with_xfs) = (btrfsprogs_are_here(), xfsprogs_are_here());
    let keeping = KINDS_OF_FILES.replace(
        "    sync\n    head",
        "    head -c 500000 /dev/urandom > kept; sha256sum kept > kept.sum; sync\n    head",
    );
    for (file_system, options, script, here) in [
        ("ext4", "-b 4096", KINDS_OF_FILES, true),
        ("ext2", "-b 4096", KINDS_OF_FILES, long()),
        ("xfs", "-b size=4096", KINDS_OF_FILES, with_xfs && long()),
        ("btrfs", "", KINDS_OF_FILES, with_btrfs && long()),
        // Contents wait for names where some are kept.
        ("ext4", "-b 4096", &keeping, long()),
        ("xfs", "-b size=4096", &keeping, with_xfs),
        ("btrfs", "", &keeping, with_btrfs),
    ] {
        if !here {
            continue;
        }
        let image = chronodisk.path("kinds");
        let store = ["--store", image.to_str().unwrap(), "--check", "--squash", "--content", "random"];
        let capacity = format!("{}MiB", capacity_bytes(file_system) >> 20);
        let flags = [&["--fs", file_system, "--mkfs-options", options, "--capacity", &capacity], &store[..]].concat();
        let kinds = ["--content", "/archive/*=gzip", "--content", "*.pdf=pdf", "--content", "*.txt=text"];
        let keep = if script == KINDS_OF_FILES { &[][..] } else { &["--keep", "kept*"] };
        let flags = [&flags[..], &kinds, keep].concat();
        let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", script]);
        let later = [&["--fs", "none", "--capacity", &capacity], &store[..], &kinds].concat();
        chronodisk.run_json("constant-100us", &later, &["sh", "-c", KINDS_OF_FILES_AGAIN]);
        std::fs::remove_file(&image).unwrap();
        for part in ["map", "sums"] {
            std::fs::remove_file(image.with_extension(part)).unwrap();
        }
        let rep = &result["reps"][0];
        let generated = rep["model_statistics"]["squash-generated [bytes]"].as_f64().unwrap();
        assert!(generated >= 3_700_000.0, "{file_system}: {generated}");
        assert!(!result["warnings"].to_string().contains("before the files had their names"), "{file_system}");
        let made_up = &result["options"]["content"];
        assert_eq!(made_up.to_string(), r#"["random","/archive/*=gzip","*.pdf=pdf","*.txt=text"]"#);
    }
}

/// An array of the guest's own, with a file system whose metadata and one file are kept.
const MIRROR: &str = "set -e
    mdadm --create /dev/md0 --run --level=1 --raid-devices=2 --metadata=1.2 --assume-clean /dev/vda /dev/vdb
    mkfs.ext4 -q /dev/md0
    mount /dev/md0 /mnt
    cp -r /usr/include/linux /mnt/tree
    head -c 3000000 /dev/urandom > /mnt/kept.db
    sha256sum /mnt/kept.db > /mnt/sum.db
    umount /mnt
    mount /dev/md0 /mnt
    sha256sum --check --quiet /mnt/sum.db
    umount /mnt
    mdadm --stop /dev/md0";

/// Checks the mirror of [`MIRROR`] in a later run.
const MIRROR_AGAIN: &str = "set -e
    mdadm --assemble --run /dev/md0 /dev/vda /dev/vdb
    [ -z \"$(mdadm --detail /dev/md0 | grep -i degraded)\" ]
    e2fsck -fn /dev/md0
    mount /dev/md0 /mnt
    sha256sum --check --quiet /mnt/sum.db
    umount /mnt
    mdadm --stop /dev/md0";

#[test]
fn mirrors_of_the_guest_are_there_once() {
    let Some(chronodisk) = here() else { return };
    if e2fsprogs::program("mdadm").is_none() {
        println!("SKIPPED: no mdadm (Debian: apt-get install mdadm)");
        return;
    }
    if !is_root() {
        return;
    }
    let flags = ["--device", "constant-100us", "--fs", "none", "--capacity", "96MiB", "--squash", "--keep", "*.db"];
    let in_memory = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", MIRROR]);
    a_mirror_is_there_once(&in_memory, 0.0);

    let image = chronodisk.path("mirror");
    let flags = [&flags[..], &["--store", image.to_str().unwrap()]].concat();
    let in_image = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", MIRROR]);
    let map_bytes = ["mirror.0.map", "mirror.1.map"].map(|name| chronodisk.path(name).metadata().unwrap().len());
    let map_bytes = map_bytes[0].max(map_bytes[1]);
    a_mirror_is_there_once(&in_image, map_bytes as f64);
    let info = chronodisk.command(&["image", "info", "--json", image.to_str().unwrap()]).output().unwrap();
    let info: Value = serde_json::from_slice(&info.stdout).unwrap();
    for device in info["devices"].as_array().unwrap() {
        let kept_bytes: u64 =
            device["kept_bytes"].as_object().unwrap().values().map(|value| value.as_u64().unwrap()).sum();
        assert!(device["stored_bytes"].as_u64().unwrap() < kept_bytes * 52 / 100 + map_bytes, "{info}");
    }
    chronodisk.run_json("constant-100us", &flags, &["sh", "-c", MIRROR_AGAIN]);
}

/// A device's map takes so many bytes at most besides.
fn a_mirror_is_there_once(result: &Value, map_bytes: f64) {
    let statistics = result["reps"][0]["model_statistics"].as_object().unwrap();
    let sum_of = |begin: &str| -> f64 {
        statistics.iter().filter(|(name, _)| name.starts_with(begin)).map(|(_, value)| value.as_f64().unwrap()).sum()
    };
    for device in ["vda", "vdb"] {
        let of = |name: &str| sum_of(&format!("{device}.squash-{name}"));
        assert!(of("generated") > 4e6 && of("kept-raw") >= 3e6, "{device}: {statistics:?}");
        // Each has a superblock of the array's for itself.
        let own = of("stored") - of("shared") / 2.0;
        assert!((4096.0..=65_536.0 + map_bytes).contains(&own), "{device}: {statistics:?}");
        assert!(of("stored") < 0.52 * of("kept-") + map_bytes, "{device}: {statistics:?}");
    }
}

/// Two logical volumes of the guest's own, one of them in two pieces around the other, which grows under its file
/// system.
const LOGICAL_VOLUMES: &str = r#"set -e
    exec >&2
    # Debian has the kernel's modules where modprobe does not look.
    mkdir -p /lib/modules
    ln -sfn /usr/lib/uml/modules/$(uname -r) /lib/modules/$(uname -r)
    modprobe dm-mod
    # There is no udev in here.
    without="devices/use_devicesfile=0 activation/udev_sync=0 activation/udev_rules=0 activation/monitoring=0"
    lvm() { command lvm "$@" --quiet --config "$without global/event_activation=0"; }
    lvm pvcreate /dev/vda
    lvm vgcreate group /dev/vda
    lvm lvcreate -y -Wn -n small -L 96M group
    lvm lvcreate -y -Wn -n large -L 320M group
    mkfs.ext4 -q -b 4096 /dev/mapper/group-small
    mkfs.xfs -q /dev/mapper/group-large
    mkdir -p /tmp/small /tmp/large
    mount /dev/mapper/group-small /tmp/small
    mount /dev/mapper/group-large /tmp/large
    cp -r /usr/include/linux /tmp/small/before
    lvm lvextend -L +96M group/small
    resize2fs /dev/mapper/group-small
    cp -r /usr/include/linux /tmp/small/after
    cp -r /usr/include/linux /tmp/large/tree
    head -c 100000000 /dev/urandom > /tmp/small/big
    (cd /tmp/small && find . -ls) > /tmp/names
    umount /tmp/small
    lvm lvchange -an group/small
    lvm lvchange -ay group/small
    e2fsck -fn /dev/mapper/group-small
    mount /dev/mapper/group-small /tmp/small
    (cd /tmp/small && find . -ls) | cmp - /tmp/names
    umount /tmp/small /tmp/large
    xfs_repair -n /dev/mapper/group-large"#;

#[test]
fn file_systems_on_logical_volumes_are_squashed() {
    let Some(chronodisk) = here().filter(|_| xfsprogs_are_here()) else { return };
    if e2fsprogs::program("lvm").is_none() {
        println!("SKIPPED: no lvm2 (Debian: apt-get install lvm2)");
        return;
    }
    if !is_root() {
        return;
    }
    let flags = ["--fs", "none", "--capacity", "600MiB", "--memory", "512MiB", "--squash", "--content", "random"];
    let result = chronodisk.run_json("constant-100us", &flags, &["bash", "-c", LOGICAL_VOLUMES]);
    assert_eq!(result["warnings"].to_string().matches("is kept").count(), 0, "{}", result["warnings"]);
    let statistics = result["reps"][0]["model_statistics"].as_object().unwrap();
    let of = |name: &str| statistics[&format!("squash-{name} [bytes]")].as_f64().unwrap();
    assert!(of("generated") > 110e6, "{statistics:?}");
    // The label and the metadata of LVM.
    assert!((4096.0..=1e6).contains(&of("kept-partition-table")), "{statistics:?}");
    assert!(statistics["squash-commits"].as_f64().unwrap() > 0.0, "{statistics:?}");
}

#[test]
fn a_mirror_of_ours_is_there_once() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let profile = chronodisk.path("mirror.toml");
    let text = "name = 'mirror'\nkind = 'array'\ndescription = 'two'\nsource = 'made up'\nvalidation = 'unvalidated'\n\
                level = 'raid1'\nmembers = ['constant-100us', 'constant-100us']\n";
    std::fs::write(&profile, text).unwrap();
    let flags = ["--fs", "none", "--capacity", "64MiB", "--squash=exact"];
    let program = ["dd", "if=/dev/urandom", "of=/dev/vda", "bs=64k", "count=32", "oflag=direct", "status=none"];
    let stored = |device: &str| {
        let result = chronodisk.run_json(device, &flags, &program);
        result["reps"][0]["model_statistics"]["squash-stored [bytes]"].as_f64().unwrap()
    };
    assert_eq!([stored(profile.to_str().unwrap()), stored("constant-100us")], [2_097_152.0; 2]);
}

/// A file whose pages a program marks as worth keeping, one that it marks as contents, and one without marks.
const MARKED_FILES: &str = "set -e
    head -c 3000001 /dev/urandom > /tmp/input
    $MARK_PAGES keep /mnt/notes < /tmp/input > /mnt/kept
    head -c 2000000 /dev/urandom | $MARK_PAGES data /mnt/notes > /mnt/contents
    head -c 1000000 /dev/urandom > /mnt/other
    sum=$(sha256sum < /mnt/other)
    sync
    umount /mnt
    mount /dev/vda /mnt
    cmp /tmp/input /mnt/kept || exit 1
    [ \"$sum\" != \"$(sha256sum < /mnt/other)\" ] || exit 2";

#[test]
fn a_program_says_what_is_worth_keeping() {
    let Some(chronodisk) = here().filter(|_| xfsprogs_are_here()) else { return };
    let script = MARKED_FILES.replace("$MARK_PAGES", &example("mark_pages"));
    for (file_system, capacity) in [("ext4", "128MiB"), ("ext2", "128MiB"), ("xfs", "300MiB")] {
        let flags = ["--fs", file_system, "--capacity", capacity, "--mkfs-options"];
        let options = if file_system == "xfs" { "-b size=4096" } else { "-b 4096" };
        let flags = [&flags[..], &[options, "--check", "--squash", "--content", "random", "--notices"]].concat();
        let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", &script]);
        let statistic = |name: &str| result["reps"][0]["model_statistics"][name].as_f64().unwrap_or(0.0);
        // The two files have 733 and 489 pages; a marker page describes up to 507.
        assert_eq!(statistic("squash-notices"), 3.0, "{file_system}");
        assert_eq!(statistic("squash-kept-noted [bytes]"), 733.0 * 4096.0, "{file_system}");
        // XFS drops contents at once anyway; elsewhere they would have waited.
        let data_bytes = if file_system == "xfs" { 0.0 } else { 489.0 * 4096.0 };
        assert_eq!(statistic("squash-noted-data [bytes]"), data_bytes, "{file_system}");
    }
}

/// Samples of a run in which a file of 24 MiB was written and committed, and the journal was read or not; and how many
/// of them are of the time until the program ended.
fn samples(chronodisk: &Chronodisk, flags: &[&str]) -> (Vec<Value>, usize) {
    let flags = [&["--squash", "--sample-every", "20ms", "--start-time", "1700000000"][..], flags].concat();
    let program = "yes | dd of=/mnt/f bs=1M count=24 iflag=fullblock status=none; sync; sleep 1; touch /mnt/g; sync";
    let flags = [&flags[..], &["--fs", "ext3", "--capacity", "256MiB"]].concat();
    let result = chronodisk.run_json("constant-100us", &flags, &["sh", "-c", program]);
    let rep = &result["reps"][0];
    let phases = rep["phases"].as_array().unwrap().iter();
    let end = phases.filter(|phase| phase["name"] == "command").map(|phase| phase["end_ns"].as_u64().unwrap()).next();
    let samples = rep["samples"].as_array().expect("samples").clone();
    let count = samples.iter().filter(|sample| sample["at_ns"].as_u64() <= end).count();
    (samples, count)
}

#[test]
fn samples_tell_what_each_component_takes() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let (read, count) = samples(&chronodisk, &[]);
    let last = read.last().expect("one at the end");
    for name in ["model", "classifier", "unclassified-blocks", "journal-reader", "remapping", "kept-blocks"] {
        let cpu = |sample: &Value| sample["components"][name]["cpu_ns"].as_u64().expect(name);
        assert!(read.is_sorted_by_key(cpu), "{name}: a component's processor time never shrinks");
        assert!(cpu(last) > 0 || name == "kept-blocks", "{name} worked");
    }
    assert!(read.is_sorted_by_key(|sample| sample["at_ns"].as_u64()));
    let memory = |sample: &Value, name: &str| sample["components"][name]["memory_bytes"].as_u64().unwrap();
    for name in ["classifier", "journal-reader", "remapping", "kept-blocks"] {
        assert!(memory(last, name) > 0, "{name} holds something");
    }
    let of_store = last["components"].as_object().unwrap().iter().filter(|(name, _)| *name != "model");
    let cpu: u64 = of_store.map(|(_, component)| component["cpu_ns"].as_u64().unwrap()).sum();
    assert!(cpu <= last["process_cpu_ns"].as_u64().unwrap(), "the parts are not more than the whole: {last}");
    let most = |samples: &[Value]| samples.iter().map(|sample| sample["undecided_bytes"].as_u64().unwrap()).max();
    let waited = read.iter().map(|sample| memory(sample, "unclassified-blocks")).max();
    assert!(waited >= most(&read).filter(|most| *most > 0), "what is undecided is in memory");

    // A file's inode comes to its place only when the journal wants its room back, or the file system is unmounted.
    let undecided = |sample: &Value| sample["undecided_bytes"].as_u64().unwrap();
    assert!(undecided(&read[count - 1]) < 1 << 20, "the commit decides: {}", read[count - 1]);
    let (unread, count) = samples(&chronodisk, &["--debug", "journal=ignored"]);
    assert!(undecided(&unread[count - 1]) > 20 << 20, "without it nothing does: {}", unread[count - 1]);
}

/// Built-in drives with a volatile cache, for which the kernel sends flushes.
fn cached_drives() -> Vec<String> {
    let builtin = Profile::builtin().iter().map(|builtin| Profile::find(&builtin.name).unwrap());
    let cached = builtin.filter(|profile| {
        let info = profile.build(&BuildOptions::default()).unwrap().info().clone();
        info.volatile_cache && info.zones.is_none() && !profile.has_host_queue() && profile.capacity_bytes() > 8 << 30
    });
    cached.map(|profile| profile.name().to_owned()).collect()
}

#[test]
fn the_journal_of_ext4_commits_beside_a_writer_that_never_pauses() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    // The kernel commits each second in the short form, so that few seconds of writing are undecided.
    let direct = "mount -o remount,commit=1 /mnt
        yes | dd of=/mnt/big bs=1M iflag=fullblock oflag=direct count=160 status=none
        sync";
    let files = "i=0
        while [ $i -lt 768 ]; do yes | head -c 4M > /mnt/file$i; i=$((i + 1)); done
        sync";
    let (drives, program, most_bytes) = match long() {
        true => (cached_drives(), files, 240_000_000),
        false => (vec!["cheetah-9lp".to_owned()], direct, 40_000_000),
    };
    for drive in drives {
        let flags = ["--fs", "ext4", "--capacity", "8GiB", "--squash", "--sample-every", "200ms"];
        let result = chronodisk.run_json(&drive, &flags, &["sh", "-c", program]);
        let samples = result["reps"][0]["samples"].as_array().expect("samples").iter();
        // Undecided contents are stored, too.
        let held = samples.map(|sample| sample["stored_bytes"].as_u64().unwrap()).max().unwrap();
        assert!(held <= most_bytes, "{drive}: {held} bytes are held");
    }
}

/// The guest's kernel writes an inode 30 seconds after its change, and looks for such inodes every 5 seconds.
#[test]
fn contents_on_ext2_wait_for_their_inode_only() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    const FILE_MIB: f64 = 16.0;
    let program = format!("for i in $(seq 8); do yes a line of a file | head -c {FILE_MIB}M >/mnt/$i; sleep 20; done");
    let flags = ["--fs", "ext2", "--squash", "--capacity", "2GiB"];
    let result = chronodisk.run_json("null", &flags, &["sh", "-c", &program]);
    let of = |name: &str| result["reps"][0]["model_statistics"][name].as_f64().unwrap() / f64::from(1 << 20);
    assert!(of("squash-written [bytes]") > 8.0 * FILE_MIB, "{result}");
    let waited = of("squash-waiting-max [bytes]");
    assert!((FILE_MIB..4.0 * FILE_MIB).contains(&waited), "{waited} MiB waited");
    assert!(of("squash-stored [bytes]") < 4.0, "{result}");
}

/// Seconds that an `fsync` takes in a guest beside a program.
fn fsync_beside(chronodisk: &Chronodisk, drive: &str, program: &str) -> f64 {
    let script = format!(
        "({program}) &
        sleep 1
        echo x > /mnt/small
        before=$(date +%s%N)
        sync -d /mnt/small
        echo fsync $(( $(date +%s%N) - before ))
        kill $! 2> /dev/null; wait"
    );
    let output = chronodisk.run(drive, &["--fs", "ext4", "--capacity", "8GiB"], &["sh", "-c", &script]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let nanos = printed.lines().find_map(|line| line.strip_prefix("fsync ")).expect("the time of fsync");
    nanos.trim().parse::<f64>().unwrap() / 1e9
}

#[test]
fn an_fsync_takes_little_beside_a_writer_that_never_pauses() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    let drives = if long() { cached_drives() } else { vec!["cheetah-9lp".to_owned()] };
    for drive in drives {
        // Two flushes and the journal's writes, each within the drain of the buffer and the age bound.
        let writer = "dd if=/dev/zero of=/mnt/big bs=1M count=60 oflag=direct status=none";
        let seconds = fsync_beside(&chronodisk, &drive, writer);
        assert!(seconds < 2.5, "{drive}: {seconds} s");
    }
}
