//! Imports, refusals and warnings.

#[path = "../../testdata/reference.rs"]
mod reference;

use chronodisk_device::disk::*;

use super::*;

const SPECS: &str = include_str!("testdata/drive.diskspecs");
const TOP: &str = include_str!("testdata/drive.parv");

/// Imports the example after replacing one text in one of its files.
fn import_changed(from: &str, to: &str) -> Result<Import, ProfileError> {
    assert!(from.is_empty() || TOP.contains(from) || SPECS.contains(from), "{from}");
    let change = |text: &str| if from.is_empty() { text.to_owned() } else { text.replacen(from, to, 1) };
    let file = |label: &str, text: &str| SourceFile { label: label.to_owned(), text: change(text) };
    let mut resolve = |name: &str, _: &str| match name {
        "drive.diskspecs" => Ok(file(name, SPECS)),
        "drive.seek" => Ok(file(name, "Seek distances measured: 2\n1, 0.831\n30, 1.0143968\n")),
        _ => Err("there is no such file".to_owned()),
    };
    import(file("drive.parv", TOP), &mut resolve)
}

fn parameters(import: &Import) -> &DiskParameters {
    let Imported::Disk(parameters) = &import.device else { panic!("{:?} is no drive", import.device) };
    parameters
}

fn refusal(from: &str, to: &str) -> String {
    let error = import_changed(from, to).expect_err(to);
    format!("{error} | {}", error.help.as_deref().unwrap_or_default())
}

#[test]
fn every_value_arrives_exactly() {
    let import = import_changed("", "").unwrap();
    assert_eq!(import.name, "EXAMPLE_DRIVE");
    assert_eq!(import.files, ["drive.parv", "drive.diskspecs", "drive.seek"]);
    assert_eq!(import.warnings, []);
    let disk = parameters(&import);
    assert_eq!(disk.controller.read_miss, After { read: Picos(283_620_000), write: Picos(86_730_000) });
    assert_eq!(disk.controller.extra_write_disconnect, None);
    // The slower of the bus and the block transfer, 0.105 ms.
    let bus = HostBusParameters { read_block: Picos(105_000_000), write_block: Picos(105_000_000), connected: true };
    assert_eq!(disk.host_bus, Some(bus));
    let controller = &disk.controller;
    assert_eq!((controller.segments, controller.segment_blocks, controller.write_ranges), (3, 561, 1));
    assert_eq!(controller.read_water_mark, Millionths(750_000));
    assert_eq!(controller.read_ahead_to, ReadAheadTo::TrackEndOrNext);
    assert!(controller.write_cache && controller.preseek);
    assert_eq!((controller.queue_depth, controller.scheduler), (4, Scheduler::Sptf));
    assert_eq!(disk.geometry.track_order, TrackOrder::SerpentineFromZone);
    assert_eq!(disk.geometry.sparing, Sparing::BlocksAtZoneEnd);
    let zone = &disk.geometry.zones[1];
    assert_eq!((zone.first_cylinder, zone.last_cylinder, zone.blocks_per_track), (52, 99, 90));
    assert_eq!(zone.defects, [Defect { original: 7, replacement: 4_000 }]);
    assert_eq!(disk.geometry.zones[0].slips, [17, 99]);
    assert_eq!(disk.geometry.zones[0].cylinder_skew, Millionths::from_whole(33));
    assert_eq!(disk.mechanics.write_settle, Picos(-483_000_000));
    assert_eq!(disk.mechanics.rotation, Rpm { numerator: 10_045, denominator: 1 });
    let points = [(1, 831_000_000), (30, 1_014_396_800)];
    let points = points.map(|(cylinders, time)| SeekPoint { cylinders, time: Picos(time) });
    assert_eq!(disk.mechanics.seek, SeekCurve::Extracted(points.to_vec()));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn unknown_and_malformed_parameters_are_named_with_their_place() {
    for (from, to, expected) in [
        ("Preseeking level", "Preseeking levle", "`Preseeking level` is missing in `EXAMPLE_DRIVE`"),
        ("Preseeking level", "Preseeking levle", "is it `Preseeking levle`?"),
        (
            "Never disconnect = 0,",
            "Never disconnect = 0, Never reconnect = 1,",
            "drive.diskspecs:16:26: unknown parameter",
        ),
        (
            "Print stats = 1,\n   Never",
            "Print stat = 1,\n   Never",
            "unknown parameter `Print stat` of disksim_disk | did you mean",
        ),
        (
            "Init Seed",
            "Init Sede",
            "drive.parv:3:4: unknown parameter `Init Sede` of disksim_global | did you mean `Init Seed`?",
        ),
        (
            "Print bus idle",
            "Print bus idel",
            "unknown parameter `Print bus idel stats` of disksim_bus_stats | did you mean",
        ),
        ("Blocking factor = 8", "Blocking factor = [ 8 ]", "`Blocking factor`: a list; expected a whole number"),
        ("disksim_pf Proc", "disksim_fp Proc", "unknown type of block `disksim_fp` | did you mean `disksim_pf`?"),
        (
            "disksim_disk EX",
            "disksim_disc EX",
            "drive.diskspecs:1:1: unknown type of block `disksim_disc` | did you mean `disksim_disk`?",
        ),
        (
            "Segment size (in blks) = 561",
            "Segment size (in blks) = many",
            "`Segment size (in blks)`: `many`; expected a whole",
        ),
        (
            "Fast write level = 2",
            "Fast write level = 3",
            "`Fast write level`: `3`; expected a whole number from 0 to 2",
        ),
        ("read = 0.283620", "read = -0.283620", "`Read miss over. after read`: expected 0 to 10000 milliseconds"),
        ("read = 0.283620", "read = 0.28.3620", "`Read miss over. after read`: `0.28.3620`; expected a number"),
        ("slips = [ 17, 99 ]", "slips = [ 17, -99 ]", "`slips`: `-99`; expected a whole number"),
        ("defects = [ 7, 4000 ]", "defects = [ 7 ]", "`defects`: 1 positions; expected pairs"),
        ("number = 52", "number = 50", "`First cylinder number`: 50, expected a cylinder from 51 on"),
        ("Low (write) water mark = 0.5", "Low (write) water mark = 1.5", "`Low (write) water mark`: expected 0 to 1"),
        (
            "= extracted,
      Single",
            "= exacted,
      Simple",
            "unknown parameter `Simple cylinder seek time`",
        ),
        (
            "drive.seek",
            "no.seek",
            "drive.diskspecs:110:25: `Full seek curve`: can't read `no.seek`: there is no such file",
        ),
        ("source drive.diskspecs", "source no.diskspecs", "drive.parv:46:8: can't read `no.diskspecs`"),
        (
            "Head switch time = 0.03,",
            "Head switch time = 0.03, Head switch time = 1,",
            "`Head switch time` is given twice; the first is at",
        ),
        ("[ disk0 ] as", "[ disk1 ] as", "no `instantiate` makes `disk0` | did you mean `disk1`?"),
        ("as EXAMPLE_DRIVE", "as EXAMPEL_DRIVE", "there is no block `EXAMPEL_DRIVE` | did you mean `EXAMPLE_DRIVE`?"),
        ("disksim_ctlr ctlr0 [", "disksim_bus ctlr0 [", "`ctlr0` is a disksim_ctlr, not a disksim_bus"),
        ("dm_layout_g1 {", "dm_layout_g4 {", "`TP` is missing in `dm_layout_g4`; expected a list in brackets"),
        ("Scheduling policy = 8", "Scheduling policy = 27", "`Scheduling policy`: policy 27 is not modelled"),
    ] {
        let error = refusal(from, to);
        assert!(error.contains(expected), "{to}: {error}");
    }
}

#[test]
fn every_kind_of_seek_and_of_access_is_imported() {
    const EXTRACTED: &str =
        "Seek type = extracted,\n      Single cylinder seek time = 0.831,\n      Full seek curve = drive.seek,";
    const POINTS: &str = "Single cylinder seek time = 1, Average seek time = 5.5, Full strobe seek time = 10,";
    const HPL: &str = "HPL seek equation values = [ 600, 3.45, 0.597, 10.8, 0.012, -1 ],";
    let ms = Picos::from_micros;
    let points = ThreePoints { single: ms(1_000), average: ms(5_500), full: ms(10_000) };
    let hpl = HplCurve {
        threshold_cylinders: 600,
        root_constant: ms(3_450),
        root_factor: ms(597),
        line_constant: ms(10_800),
        line_factor: ms(12),
        single: None,
    };
    let first_ten = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10].map(|n| ms(n * 500));
    let ten = "First ten seek times = [ 0.5, 1.0, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5. ],";
    for (text, expected) in [
        ("Seek type = constant, Constant seek time = 5.5e0,".to_owned(), SeekCurve::Constant(ms(5_500))),
        (format!("Seek type = linear, {POINTS}"), SeekCurve::Linear(points)),
        (format!("Seek type = curve, # of Lee\r\n {POINTS}"), SeekCurve::Lee(points)),
        (format!("Seek type = hpl, {HPL}"), SeekCurve::Hpl(hpl)),
        (format!("Seek type = hplplus10, {ten} {HPL}"), SeekCurve::HplPlus10 { first_ten, rest: hpl }),
    ] {
        let import = import_changed(EXTRACTED, &text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(parameters(&import).mechanics.seek, expected, "{text}");
        assert_eq!(import.warnings, []);
    }
    for (text, expected) in [
        ("averageRotation", AccessTime::AverageRotation),
        ("constant, Constant access time = 12.5", AccessTime::Constant(ms(12_500))),
    ] {
        let import = import_changed("trackSwitchPlusRotation", text).unwrap();
        assert_eq!(parameters(&import).mechanics.access, expected, "{text}");
    }
}

#[test]
fn what_files_of_other_hands_hold_is_understood() {
    // A zone without lists, blocks of a controller's cache at the top, and comments in another encoding.
    let import = import_changed(", slips = [], defects = [ 7, 4000 ]", "").unwrap();
    let zone = &parameters(&import).geometry.zones[1];
    assert!(zone.slips.is_empty() && zone.defects.is_empty());
    let cache = "disksim_cachemem CACHE { Cache size = 1024 }\ndisksim_disk EXAMPLE_DRIVE {";
    assert_eq!(import_changed("disksim_disk EXAMPLE_DRIVE {", cache).unwrap().warnings, []);
    assert_eq!(text_of(b"# 5 \xb5s\r\n".to_vec()).unwrap(), "# 5 \u{b5}s\r\n");
    assert_eq!(text_of(b"\x7fELF\xff\0".to_vec()), None);
}

#[test]
fn what_the_device_will_not_have_is_warned_of() {
    for (from, to, expected) in [
        ("Redundancy scheme = Noredun", "Redundancy scheme = Shadowed", "`Shadowed`: an array is not imported"),
        ("Percent error in rpms = 0.0", "Percent error in rpms = 0.5", "the spindle turns at its nominal speed"),
        ("Scheduling policy = 1,\n      Cyl", "Scheduling policy = 3,\n      Cyl", "the host's queue is not part"),
        (
            "Arbitration time = 0.0,\n   Read block transfer time = 0.07",
            "Arbitration time = 0.1,\n   Read block transfer time = 0.07",
            "has its bus for itself",
        ),
        ("Scale for delays = 0.0", "Scale for delays = 1.0", "the controller's delays are not part"),
        ("Use queueing in subsystem = 1", "Use queueing in subsystem = 0", "one request at a time; imported as 1"),
        ("Scheduling policy = 8", "Scheduling policy = 10", "imported as 8"),
        ("Immediate buffer read = 0", "Immediate buffer read = 2", "has no effect in DiskSim 4.0"),
        (
            "Number of cylinders = 100",
            "Number of cylinders = 90",
            "the zones reach to cylinder 99, so 100 are imported",
        ),
        ("disksim_disk disk0 []", "disksim_disk disk0 [], disksim_disk disk9 []", "2 devices of this kind"),
    ] {
        let import = import_changed(from, to).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert_eq!(import.warnings.len(), 1, "{to}: {:?}", import.warnings);
        assert!(import.warnings[0].message.contains(expected), "{to}: {:?}", import.warnings);
        assert!(import.warnings[0].at.starts_with("drive."), "{:?}", import.warnings);
    }
}

#[test]
fn a_speed_may_have_decimals() {
    let import = import_changed("Rotation speed (in rpms) = 10045", "Rotation speed (in rpms) = 10045.25").unwrap();
    assert_eq!(parameters(&import).mechanics.rotation, Rpm { numerator: 40_181, denominator: 4 });
    let error = refusal("Rotation speed (in rpms) = 10045", "Rotation speed (in rpms) = 0.5");
    assert!(error.contains("expected 1 to 1000000 turns a minute"), "{error}");
}

#[test]
fn files_that_moved_together_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("drive.parv", &TOP.replace("source drive.diskspecs", "source ../models/drive.diskspecs"));
    write("drive.diskspecs", &SPECS.replace("= drive.seek", "= /far/away/drive.seek"));
    write("drive.seek", "Seek distances measured: 3\n1, 0.831\n30, 1.0143968\n");
    let import = import_file(&folder.path().join("drive.parv")).unwrap();
    assert_eq!(import.file_names().collect::<Vec<_>>(), ["drive.parv", "drive.diskspecs", "drive.seek"]);
    let [warning] = import.warnings.as_slice() else { panic!("{:?}", import.warnings) };
    assert_eq!(
        warning.message,
        "`Full seek curve`: `/far/away/drive.seek` announces 3 distances; all of its 2 are used"
    );
}

#[test]
fn the_slowest_of_bus_controller_and_drive_counts() {
    let import = import_changed("Bulk sector transfer time = 0.0,", "Bulk sector transfer time = 0.125,").unwrap();
    let bus = HostBusParameters { read_block: Picos(125_000_000), write_block: Picos(125_000_000), connected: true };
    assert_eq!(parameters(&import).host_bus, Some(bus));
}

#[test]
fn a_block_inherits_from_the_one_that_it_refines() {
    let text = SPECS.replace("disksim_disk EXAMPLE_DRIVE {", "disksim_disk BASE {")
        + "\nBASE EXAMPLE_DRIVE { Fast write level = 0 }\n";
    let mut resolve = |name: &str, _: &str| {
        let text = if name == "drive.seek" { "Seek distances measured: 1\n1, 1\n" } else { &text };
        Ok(SourceFile { label: name.to_owned(), text: text.to_owned() })
    };
    let top = SourceFile { label: "drive.parv".to_owned(), text: TOP.to_owned() };
    let import = import(top, &mut resolve).unwrap();
    assert_eq!(import.name, "EXAMPLE_DRIVE");
    let disk = parameters(&import);
    assert_eq!((disk.controller.write_cache, disk.controller.segments), (false, 3));
}

#[test]
fn skews_in_turns_and_in_blocks_may_be_mixed() {
    let import = import_changed("Blocks per track = 90,", "Blocks per track = 90, Skew units = revolutions,").unwrap();
    let geometry = &parameters(&import).geometry;
    assert_eq!(geometry.skew_unit, SkewUnit::Blocks);
    assert_eq!(geometry.zones[0].track_skew, Millionths::from_whole(14));
    assert_eq!(geometry.zones[1].track_skew, Millionths::from_whole(45));
}

#[test]
fn a_file_without_topology_may_define_one_device() {
    let mut resolve = |name: &str, _: &str| {
        let text = if name == "drive.seek" { "Seek distances measured: 1\n1, 1\n" } else { "" };
        Ok(SourceFile { label: name.to_owned(), text: text.to_owned() })
    };
    let mut import_text =
        |text: &str| import(SourceFile { label: "drive.diskspecs".to_owned(), text: text.to_owned() }, &mut resolve);
    let single = import_text(SPECS).unwrap();
    assert!(single.warnings[0].message.contains("no topology"), "{:?}", single.warnings);
    let double = SPECS.to_owned() + "disksim_disk OTHER { }";
    assert!(import_text(&double).unwrap_err().message.contains("EXAMPLE_DRIVE, OTHER"));
    assert!(import_text("disksim_pf P { }").unwrap_err().message.contains("no topology and no device"));
    let other = import_text("ssdmodel_ssd S { }").unwrap_err();
    assert!(other.message.contains("`ssdmodel_ssd` are not imported"), "{other}");
}

#[test]
fn a_profile_is_named_after_the_file_and_gives_the_device_again() {
    let import = import_changed("Percent error in rpms = 0.0", "Percent error in rpms = 0.5").unwrap();
    let description = import.describe();
    assert_eq!((description.name.as_str(), description.validation), ("drive", Validation::Unvalidated));
    assert_eq!(description.source, "DiskSim 4.0 parameter files drive.parv, drive.diskspecs, drive.seek");
    let text = import.to_profile(&description).unwrap();
    assert!(text.contains("\n# drive.diskspecs:") && text.contains("the spindle turns at its nominal speed"), "{text}");
    let profile = Profile::parse(&text, "drive.toml").unwrap();
    assert_eq!((profile.name(), profile.kind()), ("drive", "disk"));
    let blocks = 51 * 4 * 100 - 20 + 48 * 4 * 90 - 20;
    assert_eq!(profile.capacity_bytes(), blocks * 512);
    let wrong = Description { name: "No Name".to_owned(), ..description };
    assert!(import.to_profile(&wrong).unwrap_err().message.contains("`name`: expected 1 to 64"));
}

#[test]
fn every_reference_drive_is_imported() {
    let folder = reference_disks();
    let mut imported = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "parv")
            && !path.file_name().unwrap().to_string_lossy().starts_with("mems")
        {
            let import = import_file(&path).unwrap_or_else(|error| panic!("{error}"));
            // One of them numbers its last cylinder beyond its number of cylinders, one holds the bus, one completes
            // only sequential writes early; some enable access out of order.
            let expected = [
                "`Number of cylinders`",
                "has no effect in DiskSim 4.0",
                "1 is not modelled; imported as 0",
                "imported as 2",
            ];
            let is_expected = |message: &str| expected.iter().any(|part| message.contains(part));
            let unexpected = import.warnings.iter().find(|warning| !is_expected(&warning.message));
            assert_eq!(unexpected, None, "{}", path.display());
            parameters(&import).validate().unwrap();
            imported += 1;
        }
    }
    assert!(imported >= 1);
}

/// The folder of reference disks.
fn reference_disks() -> std::path::PathBuf {
    reference::reference_folder().join("disks/valid")
}

#[test]
fn every_reference_drive_survives_writing_and_reading() {
    let folder = reference_disks();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "diskspecs") {
            let import = import_file(&path).unwrap();
            let text = import.to_profile(&import.describe()).unwrap();
            let Imported::Disk(parameters) = import.device else { continue };
            assert_eq!(read_parameters(&text).unwrap(), *parameters, "{}", path.display());
        }
    }
}

/// The example with a layout of another kind.
fn import_g4(layout: &str) -> Result<Import, ProfileError> {
    let begin = SPECS.find("Layout Model = dm_layout_g1").unwrap();
    let end = begin + SPECS[begin..].find("Mechanical Model").unwrap();
    import_changed(&SPECS[begin..end], &format!("Layout Model = dm_layout_g4 {{ {layout} }},\n   "))
}

/// Bands of four cylinders, each surface in one go and back on the next: two bands of 100 blocks, one of 80 and 90.
const BANDS: &str = "TP = [ 0, 99, 100, 0, 79, 80, 0, 89, 90 ], IDX = [
    [ 0, 0, 0.0, 100, 1, 0.25, 400, 4, TRACK, 0, 0, 400, 3, 0.1, 100, 1, 0.25, 400, -4, TRACK, 0, 1 ],
    [ 0, 0, 0.0, 80, 1, 0.25, 320, 4, TRACK, 1, 0, 320, 3, 0.1, 90, 1, 0.25, 360, -4, TRACK, 2, 1 ],
    [ 0, 0, 0.0, 800, 4, 0.35, 1600, 8, IDX, 0, 1600, 8, 0.7, 680, 4, 0.35, 680, 4, IDX, 1 ]
  ], Slips = [], Remaps = []";

#[test]
fn the_layout_of_the_newest_drives_is_imported_band_by_band() {
    let two_heads = SPECS.find("Number of data surfaces").unwrap();
    let line = SPECS[two_heads..].split(',').next().unwrap().to_owned();
    let heads: u32 = line.rsplit('=').next().unwrap().trim().parse().unwrap();
    let import = import_g4(BANDS).unwrap();
    let geometry = &parameters(&import).geometry;
    let found: Vec<(u32, u32, u32)> =
        geometry.zones.iter().map(|zone| (zone.first_cylinder, zone.last_cylinder, zone.blocks_per_track)).collect();
    let mean = |blocks: u32| (blocks + heads / 2) / heads;
    assert_eq!(found, [(0, 7, mean(200)), (8, 11, mean(170))]);
    assert_eq!(geometry.skew_unit, SkewUnit::Revolutions);
    assert!(geometry.zones.iter().all(|zone| zone.track_skew == Millionths(250_000)), "{:?}", geometry.zones);
    let warned: Vec<&str> = import.warnings.iter().map(|warning| warning.message.as_str()).collect();
    assert!(warned.iter().any(|text| text.contains("2 bands of cylinders are imported as zones")), "{warned:?}");
}

#[test]
fn a_layout_without_an_index_has_the_first_pattern_everywhere() {
    let import = import_g4("TP = [ 0, 99, 100 ], IDX = [ ], Slips = [ ], Remaps = [ ]").unwrap();
    let zones = &parameters(&import).geometry.zones;
    assert_eq!((zones.len(), zones[0].first_cylinder, zones[0].blocks_per_track), (1, 0, 100));
}

#[test]
fn layouts_of_the_newest_drives_that_make_no_sense_are_refused() {
    for (layout, expected) in [
        ("TP = [ 0, 99 ], IDX = [ ]", "2 numbers; expected first sector"),
        ("TP = [ 0, 100, 100 ], IDX = [ ]", "sectors 0 to 100 of 100"),
        ("TP = [ 0, 99, 100 ], IDX = [ 5 ]", "a list of indices"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ 0, 0, 0.0, 100 ] ]", "an entry of 4 fields"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ 0, 0, 0.0, 100, 1, 0.1, 100, 1, TRACK, 1, 0 ] ]", "the child TRACK 1"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ 0, 0, 0.0, 100, 1, 0.1, 100, 1, TRACK, 0, 200 ] ]", "head 200"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ 0, -5, 0.0, 100, 1, 0.1, 100, 1, TRACK, 0, 0 ] ]", "outside of the drive's"),
        // A cycle, and an endless list.
        ("TP = [ 0, 99, 100 ], IDX = [ [ 0, 0, 0.0, 1, 1, 0.1, 1, 1, IDX, 0 ] ]", "in a circle"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ ], [ 0, 0, 0.0, 1, 1, 0.1, 1000000000000, 1, IDX, 0 ] ]", "more than 4194304"),
        ("TP = [ 0, 99, 100 ], IDX = [ [ ] ]", "no blocks"),
    ] {
        let error = import_g4(layout).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains("dm_layout_g4"), "{layout}: {error}");
    }
}
