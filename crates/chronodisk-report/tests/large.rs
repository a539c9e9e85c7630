//! A report of a million requests: it stays small, a browser draws it, and it can be read on a telephone. Without a
//! browser the test of the picture says SKIPPED.

mod browser;
mod common;

use std::fs;
use std::path::Path;

use browser::{Browser, Picture};
use chronodisk_report::{ChartsBuilder, ReportRun, ReportSource, Resolution, charted_window, render_report};
use chronodisk_sim::{Lba, Nanos, Op, RandomStream, RequestRecord};
use common::{record, run};

/// Number of requests of each of three runs.
const REQUESTS: u64 = 333_340;
/// Largest size of the whole page, with the library that draws.
const PAGE_BYTES_MAX: usize = 3_000_000;
/// A narrow telephone's, in CSS pixels.
const TELEPHONE_WIDTH: u32 = 360;

/// Small requests all over a terabyte, seven of ten of them reads.
fn random_small(random: &mut RandomStream) -> Vec<RequestRecord> {
    let mut now_us = 0;
    let one = |order| {
        now_us += random.below(200);
        let service_us = 60 + random.below(40) + if random.chance(0.01) { random.below(5_000) } else { 0 };
        let op = if random.chance(0.7) { Op::Read } else { Op::Write };
        let lba = Lba(8 * random.below((1 << 40) / 4_096));
        RequestRecord { op, lba, ..record(order, now_us, now_us + service_us, now_us + service_us) }
    };
    (0..REQUESTS).map(one).collect()
}

/// A mebibyte after the other, four at a time.
fn sequential_large() -> Vec<RequestRecord> {
    let one = |order: u64| {
        let (arrival_us, end_us) = (order * 250, order * 250 + 1_000);
        RequestRecord {
            op: Op::Write,
            lba: Lba(2_048 * order),
            sectors: 2_048,
            ..record(order, arrival_us, end_us, end_us)
        }
    };
    (0..REQUESTS).map(one).collect()
}

/// Bursts of requests of any size in a part of the device, with hours without any in between.
fn mixed_with_pauses(random: &mut RandomStream) -> Vec<RequestRecord> {
    let mut now_us = 0;
    let one = |order: u64| {
        now_us += if order.is_multiple_of(REQUESTS / 20) { 3_600_000_000 } else { random.below(3_000) };
        let sectors = 8 << random.below(8);
        let service_us = 500 + random.below(12_000);
        let op = [Op::Read, Op::Write, Op::Write, Op::Flush][random.below(4) as usize];
        let part = order / (REQUESTS / 20) % 3 * (1 << 30);
        RequestRecord {
            op,
            lba: Lba(part + random.below(1 << 24)),
            sectors: if op == Op::Flush { 0 } else { sectors as u32 },
            ..record(order, now_us, now_us + service_us, now_us + service_us)
        }
    };
    (0..REQUESTS).map(one).collect()
}

fn page() -> String {
    let mut random = RandomStream::new(1, "report", "large");
    let shapes = [
        ("random-small", "wd-zn540", random_small(&mut random)),
        ("sequential-large", "nearline-20tb", sequential_large()),
        ("mixed-with-pauses", "cheetah-9lp", mixed_with_pauses(&mut random)),
    ];
    let runs = shapes.map(|(name, device, mut records)| {
        let last = records.last().expect("there are some").arrival;
        let length_ms = last.as_nanos() / 1_000_000 + 1;
        let mut result = run(name, device, &[length_ms], &[]);
        let window = charted_window(&result.reps[0]);
        for record in &mut records {
            for instant in [&mut record.arrival, &mut record.due, &mut record.completed] {
                *instant = instant.saturating_add(window.start);
            }
        }
        result.reps[0].summary = chronodisk_report::Summary::of(&records, window.clone());
        let mut charts = ChartsBuilder::new(Resolution::for_runs(3));
        charts.add(&records, &window);
        ReportRun { source: ReportSource::Run(Box::new(result)), charts: charts.finish(), crash: None }
    });
    render_report("A million requests", &runs, "a test")
}

#[test]
fn a_million_requests_are_one_small_page_that_any_screen_shows() {
    let page = page();
    assert!(page.len() < PAGE_BYTES_MAX, "{} bytes", page.len());
    let requests_bytes = page.len() - page_of_nothing().len();
    assert!(requests_bytes < 600_000, "{requests_bytes} bytes beside the library");
    let Some(browser) = Browser::find() else { return };
    let file = browser.folder().join("report.html");
    fs::write(&file, &page).unwrap();

    let shown = browser.show(&file, "open&theme=light");
    assert!(shown.console.is_empty(), "{:?}", shown.console);
    let root = shown.page.split_once("<head>").unwrap().0;
    // Three operations, the distance, run times, differences, and four charts of each run.
    for part in ["data-errors=\"0\"", "data-charts=\"18\"", "data-drawn=\"18\""] {
        assert!(root.contains(part), "{part} in {root}");
    }

    let width = browser.width_of_contents(&file, "open", TELEPHONE_WIDTH);
    assert!(width <= TELEPHONE_WIDTH, "the page is {width} pixels wide on a screen of {TELEPHONE_WIDTH}");

    let picture = browser.picture(&file, "theme=light", (900, 1_600));
    let reference = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pictures/large.png");
    if std::env::var_os("CHRONODISK_REGENERATE").is_some() {
        fs::write(&reference, &picture.png).unwrap();
    }
    let expected = Picture::read(&reference);
    assert!(picture.resembles(&expected), "likeness {:.3} to {}", picture.likeness(&expected), reference.display());
    // A page without its charts is another one, and a page in another font is not.
    let without = page.replace("class=\"chart", "style=\"visibility: hidden\" class=\"chart");
    fs::write(&file, without).unwrap();
    let without = browser.picture(&file, "theme=light", (900, 1_600));
    assert!(!without.resembles(&expected), "likeness {:.3} without charts", without.likeness(&expected));
    fs::write(&file, page.replace("</style>", "body { font-family: serif; letter-spacing: 0.3px }</style>")).unwrap();
    let otherwise = browser.picture(&file, "theme=light", (900, 1_600));
    assert!(otherwise.resembles(&expected), "likeness {:.3} in another font", otherwise.likeness(&expected));
}

/// A report of a run without requests: the library, the styles and the scripts.
fn page_of_nothing() -> String {
    let source = ReportSource::Run(Box::new(run("empty", "null", &[1], &[])));
    render_report("Nothing", &[ReportRun { source, charts: Default::default(), crash: None }], "a test")
}

#[test]
fn what_the_log_has_is_counted_once() {
    let one = |order| record(order, order * 10, order * 10 + 5, order * 10 + 5);
    let records: Vec<RequestRecord> = (0..1_000).map(one).collect();
    let mut charts = ChartsBuilder::new(Resolution::for_runs(1));
    charts.add(&records, &(Nanos::ZERO..Nanos::from_millis(10)));
    let cells = charts.finish().heat.cells;
    assert_eq!(cells.iter().map(|cell| cell[2]).sum::<u64>(), 1_000);
}
