//! Profiles of drives: written and read again, and how wrong ones are refused.

use proptest::prelude::*;

use super::*;

fn heading() -> ProfileHeading {
    ProfileHeading {
        comment: "A drive for tests.\u{7}\n\nTwo paragraphs.".to_owned(),
        name: "a-drive".to_owned(),
        description: "a \"drive\"".to_owned(),
        source: "made up \\ here".to_owned(),
        validation: crate::Validation::Unvalidated,
        capacity_bytes: 512,
    }
}

fn plain_drive() -> DiskParameters {
    let mut parameters = plain();
    parameters.geometry.cylinders = 100;
    let zone = ZoneParameters { last_cylinder: 99, blocks_per_track: 50, ..ZoneParameters::default() };
    parameters.geometry.zones = vec![zone];
    parameters.mechanics.rotation = Rpm { numerator: 7_200, denominator: 1 };
    parameters.controller.segments = 2;
    parameters.controller.segment_blocks = 64;
    parameters.controller.write_buffer_blocks = 128;
    parameters.validate().unwrap();
    parameters
}

#[test]
fn what_is_missing_has_the_default_of_a_plain_drive() {
    let text = "
        [geometry]
        surfaces = 1
        cylinders = 100
        [[geometry.zones]]
        first-cylinder = 0
        last-cylinder = 99
        blocks-per-track = 50
        track-skew = \"0 sectors\"
        cylinder-skew = { value = \"0 sectors\", source = \"a guess\" }
        [mechanics]
        rotation = \"7200 rpm\"
        head-switch = \"0 ms\"
        seek = { curve = \"constant\", time = \"0 ms\" }
        [controller]
        segments = 2
        segment-size = \"32 KiB\"
        write-buffer = \"64 KiB\"
    ";
    assert_eq!(read_parameters(text).unwrap(), plain_drive());
}

#[test]
fn errors_say_where_and_what() {
    let good = write_profile(&heading(), &plain_drive());
    for (from, to, expected) in [
        ("surfaces = 1", "surfaces = 0", "`surfaces`: out of range; expected a whole number from 1 to 256"),
        ("last-cylinder = 99", "last-cylinder = 100", "`geometry.zones[0].last-cylinder`: 100, expected"),
        ("slips = []", "slips = [5, 4]", "`geometry.zones[0].slips[1]`: 4, expected ascending positions"),
        ("slips = []", "slips = [\"5\"]", "`slips`: expected an array of whole numbers"),
        ("slips = []", "slips = 5", "`slips`: a plain number; expected an array of whole numbers"),
        ("defects = []", "defects = [[1, 2, 3]]", "`defects`: expected an array of pairs"),
        ("track-skew = \"0 sectors\"", "track-skew = \"0.5 turns\"", "expected the unit of the angles before"),
        ("track-skew = \"0 sectors\"", "track-skew = 3", "`track-skew`: a number without a unit"),
        ("spares = \"0 sectors\"", "spares = \"0 tracks\"", "unknown unit \"tracks\""),
        ("rotation = \"7200 rpm\"", "rotation = \"7200\"", "`rotation`: expected turns a minute"),
        ("curve = \"constant\"", "curve = \"extracted\"", "unknown key `time`"),
        ("curve = \"constant\"", "curve = \"constnat\"", "no such choice; expected constant, linear"),
        ("head-switch = \"0 ms\"", "head-swich = \"0 ms\"", "`head-switch` is missing"),
        ("read-completion = ", "read-completoin = ", "unknown key `read-completoin`"),
        ("preseek = false", "preseek = 0", "`preseek`: a plain number; expected true"),
        (
            "read-water-mark = 0",
            "read-water-mark = 1.5",
            "`controller.read-water-mark`: expected a share of the request",
        ),
        ("read-ahead = \"0 sectors\"", "read-ahead = \"65 sectors\"", "`controller.read-ahead`: expected at most"),
        ("scheduler = \"sptf\"", "scheduler = \"sptff\"", "no such choice; expected fcfs, sstf"),
        (
            "write-ranges = 64",
            "write-ranges = 0",
            "`write-ranges`: out of range; expected a whole number from 1 to 4096",
        ),
        ("segment-size = \"64 sectors\"", "segment-size = \"1 TiB\"", "`segment-size`: expected at most"),
        ("[controller]", "[control]", "the table [controller] is missing"),
    ] {
        assert!(good.contains(from), "{from} in\n{good}");
        let error = read_parameters(&good.replacen(from, to, 1)).expect_err(to);
        assert!(error.to_string().contains(expected), "{to}: {error}");
        let line = error.line.unwrap();
        let place = good.lines().position(|line| line.contains(from)).unwrap() as u32 + 1;
        // A missing key or table is reported where its own table begins, or nowhere in particular.
        assert!(
            line == place || line < place && error.message.contains("missing") || to.contains("extracted"),
            "{error}"
        );
    }
}

#[test]
fn a_written_profile_explains_its_keys_once() {
    let mut parameters = plain_drive();
    parameters.geometry.zones[0].last_cylinder = 49;
    let second = ZoneParameters { first_cylinder: 50, last_cylinder: 99, ..parameters.geometry.zones[0].clone() };
    parameters.geometry.zones.push(second);
    let text = write_profile(&heading(), &parameters);
    assert_eq!(text.matches("# spares included").count(), 1);
    assert_eq!(text.matches("blocks-per-track").count(), 2);
    assert!(
        text.starts_with("# A drive for tests.?\n#\n# Two paragraphs.\nname = \"a-drive\"\nkind = \"disk\"\n"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 200), "{text}");
}

#[test]
fn the_pages_list_every_key() {
    let page = concat!(
        include_str!("../../../../../../docs/importing-a-disk.md"),
        include_str!("../../../../../../docs/profile-keys.md")
    );
    let mut drive = plain_drive();
    drive.controller.extra_write_disconnect = Some(ExtraDisconnect::default());
    drive.controller.interface_rate = Some(1);
    drive.host_bus = Some(HostBusParameters::default());
    drive.nonvolatile = Some(NonvolatileParameters { blocks: 1, access: Picos::ZERO });
    drive.controller.scheduler = Scheduler::AgedSptf { weight: Millionths(0) };
    drive.mechanics.access = AccessTime::Constant(Picos::ZERO);
    let hpl = HplCurve { single: Some(Picos::ZERO), ..HplCurve::default() };
    for curve in [
        SeekCurve::Constant(Picos::ZERO),
        SeekCurve::Lee(ThreePoints::default()),
        SeekCurve::HplPlus10 { first_ten: [Picos::ZERO; 10], rest: hpl },
        SeekCurve::Extracted(vec![SeekPoint::default()]),
    ] {
        drive.mechanics.seek = curve;
        let text = write_profile(&heading(), &drive);
        let parameters = text.lines().skip_while(|line| *line != "[geometry]");
        for line in parameters.filter(|line| !line.starts_with(['#', ' ', ']'])) {
            let name = line.split_once(" = ").map_or(line, |(key, _)| key);
            assert!(name.is_empty() || page.contains(&format!("`{name}`")), "{name}");
        }
    }
}

fn time() -> BoxedStrategy<Picos> {
    prop_oneof![Just(0), 0..=limits::TIME_PICOS, (0i64..20_000).prop_map(|micros| micros * 1_000_000)]
        .prop_map(Picos)
        .boxed()
}

fn after() -> impl Strategy<Value = After> {
    (time(), time()).prop_map(|(read, write)| After { read, write })
}

fn hpl() -> impl Strategy<Value = HplCurve> {
    (0u32..=limits::CYLINDERS, [time(), time(), time(), time()], prop::option::of(time())).prop_map(
        |(threshold_cylinders, [root_constant, root_factor, line_constant, line_factor], single)| HplCurve {
            threshold_cylinders,
            root_constant,
            root_factor,
            line_constant,
            line_factor,
            single,
        },
    )
}

fn seek() -> impl Strategy<Value = SeekCurve> {
    let three = || {
        [time(), time(), time()].prop_map(|mut times| {
            times.sort();
            ThreePoints { single: times[0], average: times[1], full: times[2] }
        })
    };
    let points = prop::collection::btree_map(1u32..=limits::CYLINDERS, time(), 1..40).prop_map(|points| {
        points.into_iter().map(|(cylinders, time)| SeekPoint { cylinders, time }).collect::<Vec<_>>()
    });
    prop_oneof![
        time().prop_map(SeekCurve::Constant),
        three().prop_map(SeekCurve::Linear),
        three().prop_map(SeekCurve::Lee),
        hpl().prop_map(SeekCurve::Hpl),
        (prop::array::uniform10(time()), hpl()).prop_map(|(first_ten, rest)| SeekCurve::HplPlus10 { first_ten, rest }),
        points.prop_map(SeekCurve::Extracted),
    ]
}

fn mechanics_strategy() -> impl Strategy<Value = MechanicsParameters> {
    let access =
        prop_oneof![Just(AccessTime::Full), Just(AccessTime::AverageRotation), time().prop_map(AccessTime::Constant)];
    let rotation = prop_oneof![
        (1u32..=limits::RPM).prop_map(|numerator| Rpm { numerator, denominator: 1 }),
        (1u32..1_000).prop_map(|thirds| Rpm { numerator: thirds * 7 + 1, denominator: 7 }),
    ];
    let rotation = rotation.prop_filter("at least one turn a minute", |rpm| rpm.numerator >= rpm.denominator);
    (access.boxed(), seek().boxed(), time().boxed(), time().boxed(), any::<bool>(), rotation, any::<bool>()).prop_map(
        |(access, seek, head_switch, settle, negative, rotation, random)| MechanicsParameters {
            access,
            seek,
            head_switch,
            write_settle: Picos(if negative { -settle.0 } else { settle.0 }),
            rotation,
            initial_phase: if random { InitialPhase::Random } else { InitialPhase::Index },
        },
    )
}

/// A zone that begins so many cylinders after the one before; its cylinders are counted from there.
fn zone_strategy() -> impl Strategy<Value = ZoneParameters> {
    let slips = prop::collection::btree_set(0u64..8, 0..6);
    let defects = prop::collection::vec((0u64..8, 0u64..8), 0..4);
    let angles = prop::array::uniform3(0i64..1_000_000);
    (1u32..50, 0u32..3, 8u32..400, angles, 0u64..3, 0u64..4, slips, defects).prop_map(
        |(cylinders, gap, blocks_per_track, angles, empty_blocks, spares, slips, defects)| ZoneParameters {
            first_cylinder: gap,
            // Enough tracks for the positions above, for any kind of position.
            last_cylinder: gap + cylinders + 8,
            blocks_per_track,
            first_block_offset: Millionths(angles[0]),
            empty_blocks,
            track_skew: Millionths(angles[1]),
            cylinder_skew: Millionths(angles[2]),
            spares,
            slips: slips.into_iter().collect(),
            defects: defects.into_iter().map(|(original, replacement)| Defect { original, replacement }).collect(),
        },
    )
}

fn geometry_strategy() -> impl Strategy<Value = GeometryParameters> {
    let zones = prop::collection::vec(zone_strategy(), 1..5);
    (1u32..6, zones, 0usize..11, 0usize..3, any::<bool>()).prop_map(|(surfaces, mut zones, sparing, order, turns)| {
        let mut cylinders = 0;
        for zone in &mut zones {
            zone.first_cylinder += cylinders;
            zone.last_cylinder += cylinders;
            cylinders = zone.last_cylinder + 1;
        }
        GeometryParameters {
            surfaces,
            cylinders,
            track_order: TRACK_ORDERS[order].1,
            sparing: Sparing::ALL[sparing],
            spare_range_cylinders: 3,
            skew_unit: if turns { SkewUnit::Revolutions } else { SkewUnit::Blocks },
            zones,
        }
    })
}

fn scheduler() -> impl Strategy<Value = Scheduler> {
    prop_oneof![
        Just(Scheduler::Fcfs),
        Just(Scheduler::Sstf),
        Just(Scheduler::Look),
        Just(Scheduler::CLook),
        Just(Scheduler::Sptf),
        (0i64..=1_000_000_000).prop_map(|weight| Scheduler::AgedSptf { weight: Millionths(weight) }),
    ]
}

fn controller_strategy() -> impl Strategy<Value = ControllerParameters> {
    let extra = prop::option::of(prop::array::uniform3(time()));
    let times = (prop::array::uniform3(after()), prop::array::uniform7(time()), extra);
    let counts = (1u32..=limits::QUEUE_DEPTH, 1u32..=limits::SEGMENTS, 1u32..=limits::WRITE_RANGES);
    let blocks = prop::array::uniform3(1u32..=limits::SEGMENT_BLOCKS);
    let choices = (any::<[bool; 7]>(), 0usize..3, 0i64..=1_000_000, scheduler());
    let rate = prop::option::of(1u64..1 << 40);
    (times, counts, blocks, choices, rate).prop_map(|((a, t, extra), counts, blocks, choices, interface_rate)| {
        let (f, read_ahead_to, mark, scheduler) = choices;
        ControllerParameters {
            interface_rate,
            read_hit: a[0],
            read_miss: a[1],
            write: a[2],
            read_completion: t[0],
            write_completion: t[1],
            store_and_forward: f[0],
            read_water_mark: Millionths(mark),
            reselect: t[2],
            write_data_delay: t[3],
            extra_write_disconnect: extra.map(|t| ExtraDisconnect {
                overhead: t[0],
                data_delay: t[1],
                completion: t[2],
            }),
            minimum_write_seek: t[4],
            preseek: f[1],
            queue_depth: counts.0,
            scheduler,
            segments: counts.1,
            segment_blocks: blocks[0].max(blocks[1]),
            read_ahead_blocks: blocks[0].min(blocks[1]),
            read_ahead_to: [ReadAheadTo::ReadAhead, ReadAheadTo::TrackEnd, ReadAheadTo::TrackEndOrNext][read_ahead_to],
            read_free_blocks: f[2],
            read_hits_on_write_data: f[6],
            write_buffer_blocks: blocks[2],
            write_ranges: counts.2,
            write_cache: f[3],
            immediate_read: f[4],
            immediate_write: f[5],
            age_bound: t[5],
            longest_pass: t[6],
        }
    })
}

prop_compose! {
    fn drives()(
        geometry in geometry_strategy().boxed(),
        mechanics in mechanics_strategy().boxed(),
        controller in controller_strategy().boxed(),
        bus in prop::option::of((time(), time(), any::<bool>())),
        nonvolatile in prop::option::of((1..=limits::SEGMENT_BLOCKS, time())),
    ) -> DiskParameters {
        DiskParameters {
            geometry,
            mechanics,
            controller,
            host_bus: bus.map(|(read_block, write_block, connected)| HostBusParameters {
                read_block,
                write_block,
                connected,
            }),
            nonvolatile: nonvolatile.map(|(blocks, access)| NonvolatileParameters { blocks, access }),
        }
    }
}

proptest! {
    /// Writing and reading any drive's profile gives the drive.
    #[test]
    fn a_written_profile_gives_equal_parameters(
        drive in drives().prop_filter("legal", |drive| drive.validate().is_ok()),
    ) {
        let text = write_profile(&heading(), &drive);
        match read_parameters(&text) {
            Ok(read) => prop_assert_eq!(read, drive),
            Err(error) => prop_assert!(false, "{error}\n{text}"),
        }
    }

    /// Lines of a profile taken out, doubled or swapped: an error or a drive, never a panic.
    #[test]
    fn mutated_profiles_do_not_panic(
        drive in drives(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..3), 1..4),
    ) {
        let text = write_profile(&heading(), &drive);
        let mut lines: Vec<&str> = text.lines().collect();
        for (at, what) in edits {
            let index = at.index(lines.len());
            match what {
                0 => { lines.remove(index); }
                1 => lines.insert(index, lines[index]),
                _ => lines.swap(index, 0),
            }
        }
        let text = lines.join("\n");
        if ::toml::de::DeTable::parse(&text).is_ok() {
            let _ = read_parameters(&text);
        }
    }
}
