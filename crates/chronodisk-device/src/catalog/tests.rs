//! Accepted profiles, and refusals.

use proptest::prelude::*;

use std::ops::ControlFlow;

use super::*;
use crate::models::ssd::ftl::FtlParameters;
use crate::{AgeingOptions, DeviceInfo, Speed, contract};
use chronodisk_sim::{Nanos, Op, Request, Status};

const GOOD: &str = "\
name = \"mine\"
kind = \"constant\"
description = \"a device\"
source = \"a test\"
validation = \"by-definition\"
capacity = \"1 GiB\"
time = \"3.9 ms\"
";

/// The error, with its help, of the valid profile after one text is replaced.
fn refused(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    let error = Profile::parse(&GOOD.replacen(from, to, 1), "mine.toml").expect_err(to);
    format!("{error} | {}", error.help.as_deref().unwrap_or_default())
}

#[test]
fn a_good_profile_says_what_it_is() {
    let profile = Profile::parse(GOOD, "mine.toml").unwrap();
    assert_eq!((profile.name(), profile.kind(), profile.text()), ("mine", "constant", GOOD));
    assert_eq!((profile.description(), profile.source()), ("a device", "a test"));
    assert_eq!(profile.validation(), Validation::ByDefinition);
    assert_eq!(profile.capacity_bytes(), 1 << 30);
    let device = profile.build(&BuildOptions::default()).unwrap();
    let expected = DeviceInfo {
        name: "mine".to_owned(),
        capacity_sectors: 1 << 21,
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        volatile_cache: false,
        discard_unit_sectors: Some(1),
        rotational: false,
        zones: None,
        torn_write_sectors: None,
    };
    assert_eq!(device.info(), &expected);
}

#[test]
fn errors_say_where_and_what() {
    for (from, to, expected) in [
        ("\"3.9 ms\"", "3.9", "mine.toml:7:8: `time`: a number without a unit; expected a duration such as \"3.9 ms\""),
        ("\"3.9 ms\"", "\"3.9\"", "mine.toml:7:8: `time`: \"3.9\" has no unit; expected a duration"),
        ("\"3.9 ms\"", "\"3.9 mb\"", "unknown unit \"mb\""),
        ("\"3.9 ms\"", "\"0 ms\"", "`time`: zero; expected a duration"),
        ("\"3.9 ms\"", "true", "`time`: true or false; expected a duration"),
        ("\"3.9 ms\"", "{ value = \"3 ms\" }", "mine.toml:7:8: `source` is missing"),
        ("\"3.9 ms\"", "{ source = \"x\" }", "`value` is missing beside `source`"),
        ("time =", "tíme =", "mine.toml:7:2:"),
        ("time =", "tiem =", "`time` is missing; expected a duration"),
        ("time =", "tiem =", "| is `tiem` a misspelt `time`?"),
        ("time = ", "chanels = 3\ntime = ", "mine.toml:7:1: unknown key `chanels` | did you mean `channels`?"),
        ("time = ", "xyzzy = 3\ntime = ", "unknown key `xyzzy` | the keys here are name, kind"),
        ("time = ", "channels = 0\ntime = ", "`channels`: out of range; expected a whole number from 1 to 65536"),
        ("time = ", "channels = \"3\"\ntime = ", "`channels`: a text; expected a whole number"),
        ("time = ", "channels = 99999999999999999999\ntime = ", "mine.toml:7:"),
        ("\"constant\"", "\"konstant\"", "mine.toml:2:8: `kind`: no such kind of model; expected null, constant"),
        ("\"by-definition\"", "\"sure\"", "mine.toml:5:14: `validation`: no such state"),
        ("\"mine\"", "\"Mine Own\"", "mine.toml:1:8: `name`: expected 1 to 64"),
        ("\"1 GiB\"", "\"0 GiB\"", "mine.toml:6:12: `capacity`: zero"),
        ("\"1 GiB\"", "\"1000 B\"", "mine.toml:6:12: `capacity`: expected a multiple of the logical block, 512 B"),
        ("\"1 GiB\"", "\"2000000000 TiB\"", "`capacity`: \"2000000000 TiB\" is too large"),
        ("time", "logical-block = \"1000 B\"\ntime", "`logical-block`: expected a power of two from 512 B to 64 KiB"),
        ("time", "physical-block = \"256 B\"\ntime", "`physical-block`: expected a power of two from 512 B"),
        ("\"a device\"", "\"a device", "mine.toml:3:"),
        ("time", "name = \"again\"\ntime", "mine.toml:7:1:"),
    ] {
        let error = refused(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn values_may_carry_their_source() {
    let text = GOOD.replace("\"3.9 ms\"", "{ value = \"2 ms\", source = \"data sheet, page 7\" }");
    let mut device = Profile::parse(&text, "mine.toml").unwrap().build(&BuildOptions::default()).unwrap();
    assert_eq!(
        crate::models::testing::complete(device.as_mut(), Request::new(1, Op::Read, 0, 1)),
        Nanos::from_millis(2)
    );
}

#[test]
fn unknown_names_suggest_the_nearest() {
    let error = Profile::find("frist-disk").unwrap_err();
    assert_eq!(error.to_string(), "there is no profile named \"frist-disk\"");
    assert_eq!(error.help.as_deref(), Some("did you mean first-disk?"));
    assert!(Profile::find("wu-tsai-ch5-x1").unwrap_err().help.unwrap().contains("wu-tsai-ch"));
    assert!(Profile::find("qqqqqqqqqqqq").unwrap_err().help.unwrap().contains("chronodisk devices"));
    let error = Profile::find("./no-such-file.toml").unwrap_err();
    assert!(error.to_string().starts_with("./no-such-file.toml: can't read the profile:"), "{error}");
}

#[test]
fn a_path_is_read() {
    let path = std::env::temp_dir().join(format!("chronodisk-profile-{}.toml", std::process::id()));
    std::fs::write(&path, GOOD).unwrap();
    let found = Profile::find(path.to_str().unwrap());
    std::fs::write(&path, b"name = \"\xff\"").unwrap();
    let not_text = Profile::find(path.to_str().unwrap());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(found.unwrap().name(), "mine");
    assert!(not_text.unwrap_err().message.contains("UTF-8"));
}

#[test]
fn capacities_are_checked_when_a_device_is_built() {
    let disk = Profile::find("first-disk").unwrap();
    let build = |bytes| {
        disk.build(&BuildOptions { capacity_bytes: Some(bytes), seed: 0, ..BuildOptions::default() })
            .map(|d| d.info().capacity_sectors)
    };
    assert_eq!(build(1 << 30).unwrap(), 1 << 21);
    assert!(build(0).unwrap_err().message.contains("at least one block"));
    assert!(build(1_000).unwrap_err().message.contains("multiple of the logical block"));
    assert!(build(1 << 40).unwrap_err().message.contains("the device's geometry ends at"));
    let text = disk.text().replace("\"100 GB\"", "\"200 GB\"");
    let error = Profile::parse(&text, "large.toml").unwrap_err();
    assert!(error.line.is_some() && error.message.contains("geometry"), "{error}");
}

#[test]
fn what_one_device_can_not_have_a_row_of_them_has() {
    let disk = Profile::find("first-disk").unwrap();
    assert_eq!(disk.reaching(100_000_000_000).unwrap().text(), disk.text());
    let three = disk.reaching(250_000_000_000).unwrap();
    assert_eq!((three.kind(), three.name(), three.capacity_bytes()), ("array", "first-disk", 300_000_000_000));
    let large = disk.reaching(100 << 40).unwrap();
    // The array would have 1,100 disks; rows of 62 make it 18 rows.
    assert_eq!(large.capacity_bytes(), 18 * 62 * 100_000_000_000);
    assert_eq!(Profile::parse(large.text(), "kept").unwrap().capacity_bytes(), large.capacity_bytes());
    let build = |profile: &Profile, bytes| {
        profile.build(&BuildOptions { capacity_bytes: Some(bytes), seed: 7, ..BuildOptions::default() }).unwrap()
    };
    let mut device = build(&large, 100 << 40);
    let sectors = device.info().capacity_sectors;
    assert_eq!(sectors, (100 << 40) / SECTOR_BYTES);
    assert!(device.info().rotational);
    let mut completed = Vec::new();
    // The last sectors, and a request that two disks share.
    device.submit(Request::new(0, Op::Read, sectors - 8, 8));
    device.submit(Request::new(1, Op::Write, 100_000_000_000 / SECTOR_BYTES - 8, 16));
    while completed.len() < 2 {
        device.step(Nanos::MAX, &mut completed);
    }
    assert!(completed.iter().all(|completion| completion.status == Status::Ok));

    let sled = Profile::find("mems-g2").unwrap();
    let sleds = sled.reaching(100 << 40).unwrap();
    assert_eq!(sleds.capacity_bytes(), 8 * 63 * 64 * sled.capacity_bytes(), "31,815 are the least");
    assert_eq!(build(&sleds, 100 << 40).info().capacity_sectors, sectors);

    let error = disk.reaching(9_000 << 40).unwrap_err();
    assert!(error.message.contains("takes 98957 of this device, which ends at 100 GB"), "{error}");
    let constant = Profile::find("constant-10ms").unwrap();
    assert_eq!(constant.reaching(100 << 40).unwrap().kind(), "constant", "it has no geometry");
}

#[test]
fn every_built_in_device_has_a_row() {
    for known in Profile::builtin() {
        let profile = Profile::find(&known.name).unwrap();
        let twice = 2 * profile.capacity_bytes();
        if ["wd-zn540-zones", "nearline-20tb-hm"].contains(&&*known.name) {
            assert!(profile.reaching(twice).unwrap_err().message.contains("has zones"));
            continue;
        }
        let row = profile.reaching(twice).unwrap();
        let options = BuildOptions { capacity_bytes: Some(twice), seed: 1, ..BuildOptions::default() };
        assert_eq!(row.build(&options).unwrap().info().capacity_sectors * SECTOR_BYTES, twice, "{}", known.name);
    }
}

#[test]
fn every_built_in_device_tells_its_volatile_sectors() {
    for known in Profile::builtin() {
        let profile = Profile::find(&known.name).unwrap();
        contract::check_durability(&known.name, contract::cases(8), &|seed| {
            profile.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap()
        });
    }
}

#[test]
fn wrapped_devices_tell_their_volatile_sectors() {
    for name in ["first-disk", "cheetah-9lp", "samsung-970-pro", "raid5-eight-disks"] {
        let profile = Profile::find(name).unwrap();
        let limited = profile.within_limits("iops=3000,delay=1ms").unwrap();
        for wrapped in [limited, profile.behind_host_queue("deadline").unwrap()] {
            let build = |seed| wrapped.build(&BuildOptions { seed, ..BuildOptions::default() }).unwrap();
            contract::check_durability(&format!("{name}, wrapped"), contract::cases(8), &build);
            let fast = |seed| Speed::from_factor(1.7).unwrap().apply(build(seed));
            contract::check_durability(&format!("{name}, wrapped and faster"), contract::cases(8), &fast);
        }
    }
}

#[test]
fn hostile_sizes_are_refused() {
    let long = format!("{GOOD}# {}", "x".repeat(1 << 20));
    assert!(Profile::parse(&long, "long.toml").unwrap_err().message.contains("longer than 1 MiB"));
    let baseline = Profile::find("wu-tsai-baseline").unwrap().text().to_owned();
    let row =
        "random-read = \"1 ms\"\nrandom-write = \"1 ms\"\nsequential-read = \"1 ms\"\nsequential-write = \"1 ms\"\n";
    let rows: String = (0..1_100).map(|i| format!("[[row]]\nsize = \"{} KiB\"\n{row}", i + 100)).collect();
    let error = Profile::parse(&format!("{baseline}\n{rows}"), "rows.toml").unwrap_err();
    assert!(error.message.contains("1108 entries; expected one to 1024 tables"), "{error}");
    let nested = format!("{GOOD}x = {}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(Profile::parse(&nested, "nested.toml").is_err());
    let unordered = baseline.replace("\"64 KiB\"", "\"16 KiB\"");
    assert!(Profile::parse(&unordered, "rows.toml").unwrap_err().message.contains("larger than the row before"));
}

proptest! {
    /// Built-in texts with a few bytes changed: an error or a device, never a panic, and a device works.
    #[test]
    fn mutated_profiles_do_not_panic(
        which in 0usize..8,
        edits in prop::collection::vec((any::<prop::sample::Index>(), "[ -~\n]{0,4}", 0usize..6), 1..4),
    ) {
        let builtin = &Profile::builtin()[which];
        let mut text = Profile::find(&builtin.name).unwrap().text().to_owned();
        for (at, insert, remove) in edits {
            let start = at.index(text.len());
            let end = (start + remove).min(text.len());
            if text.is_char_boundary(start) && text.is_char_boundary(end) {
                text.replace_range(start..end, &insert);
            }
        }
        match Profile::parse(&text, "mutated") {
            Ok(profile) => {
                let mut device = profile.build(&BuildOptions::default()).unwrap();
                let sectors = device.info().capacity_sectors.min(1 << 20) as u32 & !127;
                if sectors > 0 {
                    crate::models::testing::complete(device.as_mut(), Request::new(1, Op::Write, 0, sectors));
                }
            }
            Err(error) => prop_assert!(error.line.is_none_or(|line| line as usize <= text.lines().count() + 1)),
        }
    }
}

/// A wrapped profile and its recorded text build the same device.
#[test]
fn a_wrapped_profile_and_its_text_are_the_same_device() {
    let disk = Profile::find("cheetah-9lp").unwrap();
    let rows = disk.reaching(70 * disk.capacity_bytes()).unwrap();
    let mut wrapped: Vec<Profile> = ["noop", "deadline", "cfq", "c-look"]
        .iter()
        .map(|elevator| disk.behind_host_queue(elevator).unwrap())
        .collect();
    wrapped.extend([disk.reaching(3 * disk.capacity_bytes()).unwrap(), rows.behind_host_queue("cfq").unwrap(), rows]);
    for profile in wrapped {
        let again = Profile::parse(profile.text(), "again").unwrap();
        let properties = |profile: &Profile| {
            let design = &profile.0.design;
            (
                (profile.text().to_owned(), profile.description().to_owned(), profile.source().to_owned()),
                (profile.kind().to_owned(), profile.validation(), profile.age_bound(), profile.has_host_queue()),
                (design.info().clone(), design.capacity_limit_bytes(), design.memory_bytes_max(), profile.0.nesting),
            )
        };
        assert_eq!(properties(&again), properties(&profile));
        let times = |profile: &Profile| {
            let mut device = profile.build(&BuildOptions { seed: 7, ..BuildOptions::default() }).unwrap();
            let sectors = profile.capacity_bytes() / SECTOR_BYTES;
            let mut completed = Vec::new();
            for id in 0..100_u64 {
                let op = if id % 3 == 0 { Op::Write } else { Op::Read };
                device.submit(Request::new(id, op, id * 0x9E37_79B9 % (sectors / 8) * 8, 8));
                crate::advance(device.as_mut(), Nanos::from_millis(5 * id), &mut completed);
            }
            crate::advance(device.as_mut(), Nanos::from_secs(100), &mut completed);
            assert_eq!(completed.len(), 100);
            completed
        };
        assert_eq!(times(&again), times(&profile), "{}", profile.description());
    }
}

/// A text that no reader accepts is never recorded.
#[test]
fn what_is_wrapped_too_often_is_refused() {
    let mut profile = Profile::find("first-disk").unwrap();
    for _ in 0..4 {
        profile = profile.behind_host_queue("noop").unwrap();
        Profile::parse(profile.text(), "again").unwrap();
    }
    let error = profile.behind_host_queue("noop").unwrap_err().to_string();
    assert!(error.contains("more than 4 levels"), "{error}");
    let error = Profile::find("first-disk").unwrap().behind_host_queue("bfq").unwrap_err().to_string();
    assert!(error.contains("no elevator is called \"bfq\"; expected \"noop\", "), "{error}");
}

/// Parameters of the translation layer of a profile's drive at a capacity.
fn translation_of(profile: &Profile, capacity_bytes: Option<u64>) -> Arc<FtlParameters> {
    let info =
        profile.0.design.info_with(&BuildOptions { capacity_bytes, seed: 0, ..BuildOptions::default() }).unwrap();
    profile.0.design.flash_drive().unwrap().translation(&info)
}

fn flash_drives() -> Vec<Profile> {
    let names = Profile::builtin().iter().filter(|builtin| builtin.kind == "ssd").map(|builtin| &builtin.name);
    names.map(|name| Profile::find(name).unwrap()).collect()
}

/// Superblocks of a die without data, relative to those that may have data.
fn spare(translation: &FtlParameters) -> f64 {
    1.0 - data(translation) / f64::from(translation.superblocks_in_use())
}

/// Superblocks that the data of a die fill.
fn data(translation: &FtlParameters) -> f64 {
    let geometry = &translation.geometry;
    f64::from(translation.logical_units) / f64::from(geometry.dies() * geometry.units_per_superblock())
}

proptest! {
    /// The share of spare is the profile's within a superblock of each die, and a second one where data are allocated
    /// unevenly.
    #[test]
    fn a_smaller_flash_drive_keeps_its_share_of_spare(share in 0.0001..1.0) {
        for profile in flash_drives() {
            let whole = translation_of(&profile, None);
            let grain = profile.0.design.info().zones.map_or(1 << 20, |zones| zones.size_sectors * SECTOR_BYTES);
            let bytes = ((profile.capacity_bytes() as f64 * share) as u64 / grain).max(1) * grain;
            let part = translation_of(&profile, Some(bytes));
            prop_assert!(part.check().is_ok());
            let in_use = f64::from(part.superblocks_in_use());
            let exact = data(&part) / (1.0 - spare(&whole));
            prop_assert!(in_use >= exact - 1e-6, "{} at {bytes}: {in_use} superblocks, {exact} exactly", profile.name());
            if in_use >= exact + 1.0 {
                let mut less = FtlParameters::clone(&part);
                less.geometry.blocks_per_plane -= 1;
                prop_assert!(less.check().is_err(), "{} at {bytes}: more spare for no reason", profile.name());
            }
        }
    }
}

#[test]
fn a_smaller_flash_drive_amplifies_writes_as_the_whole_one_does() {
    let text = Profile::find("wd-zn540").unwrap().text().to_owned();
    // The superblocks of the real drive are too large for a test. Its buffer holds several programs of all dies.
    let small = [
        ("\nchannels = 8", "\nchannels = 2"),
        ("\nchips-per-channel = 4", "\nchips-per-channel = 1"),
        ("\npages-per-block = 1152", "\npages-per-block = 12"),
        ("\ncapacity = \"1 TB\"", "\ncapacity = \"620 MiB\""),
    ];
    let text = small.iter().fold(text, |text, (from, to)| {
        assert!(text.contains(from), "{from}");
        text.replacen(from, to, 1)
    });
    let profile = Profile::parse(&text, "small").unwrap();
    let amplification = |capacity_bytes: u64| {
        let options = BuildOptions { capacity_bytes: Some(capacity_bytes), seed: 3, ..BuildOptions::default() };
        let aged = profile.age(&options, &AgeingOptions::default(), &mut |_| ControlFlow::Continue(()));
        aged.unwrap().expect("nobody ended it").1.write_amplification
    };
    let whole = amplification(620 << 20);
    assert!(whole > 3.0, "{whole}");
    for share in [2, 5, 20] {
        let part = amplification((620 << 20) / share / 4_096 * 4_096);
        assert!((part / whole - 1.0).abs() < 0.25, "a {share}th: {part}; whole: {whole}");
    }
    // The collector can gain space at any size.
    for megabytes in [1, 2, 3, 5, 8, 13] {
        let part = amplification(megabytes * 1_000_000 / 4_096 * 4_096);
        assert!((0.9..3.0 * whole).contains(&part), "{megabytes} MB: {part}; whole: {whole}");
    }
}
