//! The report's page, in a browser without a screen. Without one the tests say SKIPPED, except for those of refusals.

#[path = "common/command.rs"]
mod command;
#[path = "../../chronodisk-report/tests/browser/headless.rs"]
mod headless;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use headless::Browser;

fn chronodisk(words: &[&str]) -> Output {
    command::chronodisk(words).output().unwrap()
}

/// Simulates, and keeps the result in a folder of this name.
fn simulate(parent: &Path, name: &str, options: &[&str]) -> String {
    let directory = parent.join(name).display().to_string();
    let output = chronodisk(&[&["simulate", "-o", &directory], options].concat());
    assert!(output.status.success(), "{output:?}");
    directory
}

/// The drawings of the charts, by their ids.
fn drawings(page: &str) -> Vec<(String, String)> {
    let charts = page.split("<div class=\"chart").skip(1);
    let drawing = |chart: &str| {
        let id = chart.split_once(" id=\"").unwrap().1.split('"').next().unwrap();
        let svg = chart.split_once("<svg").map_or("", |(_, rest)| rest.split_once("</svg>").unwrap().0);
        (id.to_owned(), svg.to_owned())
    };
    charts.map(drawing).collect()
}

#[test]
fn a_browser_draws_every_chart_in_both_themes() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let runs = [
        simulate(at, "mixed", &["-d", "first-disk", "-w", "mixed-uniform", "-n", "3000", "--depth", "8"]),
        // One operation only, addresses in order, all service times equal.
        simulate(at, "sequential", &["-d", "constant-100us", "-w", "seq-write", "-n", "500"]),
        // A single request: every bin but one is empty.
        simulate(at, "single", &["-d", "mems-g2", "-w", "random-read", "-n", "1"]),
    ];
    let page = at.join("report.html");
    let words = ["report", "-o", page.to_str().unwrap(), "--title", "A <b>& report"];
    let output = chronodisk(&[&words[..], &runs.each_ref().map(String::as_str)].concat());
    assert!(output.status.success(), "{output:?}");

    let shown = browser.show(&page, "open&theme=dark");
    assert!(shown.console.is_empty(), "{:?}", shown.console);
    let root = shown.page.split_once("<head>").unwrap().0.to_owned();
    // Two operations, the distance, and four charts of each run.
    for part in ["data-theme=\"dark\"", "data-errors=\"0\"", "data-charts=\"15\"", "data-drawn=\"15\""] {
        assert!(root.contains(part), "{part} in {root}");
    }
    let drawings = drawings(&shown.page);
    assert_eq!(drawings.len(), 15);
    for (id, svg) in &drawings {
        // Each axis has its name with a unit, and something is drawn besides the axes.
        let names: &[&str] = match id.split_once('-').map_or(id.as_str(), |(kind, _)| kind) {
            "service" => &["service time, logarithmic", "requests (%)", "µs<"],
            "distance" => &["distance (bytes), logarithmic", "requests (%)"],
            "time" => &["time (s)", "service time (µs)"],
            "depth" => &["time (s)", "outstanding requests"],
            "rate" => &["time (s)", "MB/s"],
            "heat" => &["time (s)", "address (bytes)", "iB<"],
            other => panic!("a chart {other}"),
        };
        for name in names {
            assert!(svg.contains(name) || (*name == "µs<" && svg.contains("ms<")), "{id} lacks {name}: {svg}");
        }
        assert!(svg.matches("<path").count() > 5, "{id}: {svg}");
    }
    assert!(shown.page.contains("<h1>A &lt;b&gt;&amp; report</h1>"));

    // The two themes are two pictures, and neither is empty: the sizes of the files tell.
    let picture = |theme: &str| -> Vec<u8> {
        let file: PathBuf = at.join(format!("{theme}.png"));
        let option = format!("--screenshot={}", file.display());
        browser.browse(&page, &format!("theme={theme}"), &[&option, "--window-size=1000,1400"]);
        fs::read(file).unwrap()
    };
    let (light, dark) = (picture("light"), picture("dark"));
    assert!(light.len() > 20_000 && dark.len() > 20_000, "{} {}", light.len(), dark.len());
    assert!(light != dark);
}

/// A sweep with these axes and options, and its directory.
fn sweep(parent: &Path, name: &str, text: &str, options: &[&str]) -> (Output, PathBuf) {
    let (file, directory) = (parent.join(format!("{name}.toml")), parent.join(name));
    fs::write(&file, text).unwrap();
    let words = ["sweep", file.to_str().unwrap(), "-o", directory.to_str().unwrap()];
    (chronodisk(&[&words[..], options].concat()), directory)
}

const SWEEP: &str = "command = 'simulate'\nseeds = 3\n[options]\nworkload = 'random-mixed'\nrequests = 300\n[axes]\n";

#[test]
fn a_browser_draws_every_chart_of_a_sweep() {
    let Some(browser) = Browser::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let axes = "device = ['cheetah-9lp', 'constant-1ms', 'mems-g2']\ndepth = [1, 4, 64]\nread_share = [0.5]\n";
    let (output, directory) =
        sweep(folder.path(), "<depths>", &format!("{SWEEP}{axes}"), &["--plot", "depth,latency_us.p999"]);
    assert!(output.status.success(), "{output:?}");
    let page = directory.join("sweep.html");
    let shown = browser.show(&page, "theme=dark");
    assert!(shown.console.is_empty(), "{:?}", shown.console);
    let root = shown.page.split_once("<head>").unwrap().0.to_owned();
    // The chart that was asked for, four figures against the depth, and the effects on them.
    for part in ["data-theme=\"dark\"", "data-errors=\"0\"", "data-charts=\"9\"", "data-drawn=\"9\""] {
        assert!(root.contains(part), "{part} in {root}");
    }
    let drawn = drawings(&shown.page);
    assert_eq!(drawn.len(), 9);
    for (id, svg) in &drawn {
        let names: &[&str] = match id.split_once('-').map_or(id.as_str(), |(kind, _)| kind) {
            "curves" => &["depth<", "cheetah-9lp, 0.5<", "mems-g2, 0.5<", " against depth<", "64<"],
            "effects" => &["Main effects on ", "depth 64<", "device constant-1ms<", ", less the mean of all cells<"],
            other => panic!("a chart {other}"),
        };
        for name in names {
            assert!(svg.contains(name), "{id} lacks {name}: {svg}");
        }
    }
    // Three devices at three depths, each point with a whisker of three strokes.
    let curves = &drawn.iter().find(|(id, _)| id == "curves-1").unwrap().1;
    assert!(curves.contains("time_s against depth") && curves.matches("<path").count() > 3 + 9 + 27, "{curves}");
    let plain = |text: &str| shown.page.contains(text);
    assert!(plain("<h1>Sweep ") && plain("&lt;depths&gt;.toml</h1>") && !plain("<depths>"));
    for text in ["27 cells: 9 combinations, 3 seeds each", "N = 3 seeds", "fewer than 30", "axis device", "Linux "] {
        assert!(plain(text), "{text}");
    }
    // The table has the figures of sweep.json.
    let results: serde_json::Value = serde_json::from_slice(&fs::read(directory.join("sweep.json")).unwrap()).unwrap();
    let iops = |group: &serde_json::Value| {
        let figures = group["figures"].as_array().unwrap();
        figures.iter().find(|figure| figure["name"] == "iops").unwrap()["value"].as_f64().unwrap()
    };
    for group in results["groups"].as_array().unwrap() {
        let digits = (3 - iops(group).log10().floor() as i32).max(0) as usize;
        let cell = format!("<td class=\"n\">{:.digits$}</td>", iops(group));
        assert!(plain(&cell), "{cell}");
    }
    assert_eq!(shown.page.matches("<td>cells/").count(), 27);

    // Draw the report again from the files, with a title; without an axis of numbers it lists the combinations.
    let again = folder.path().join("again.html");
    let words = ["report", directory.to_str().unwrap(), "-o", again.to_str().unwrap(), "--title", "Depths & devices"];
    let output = chronodisk(&words);
    assert!(output.status.success(), "{output:?}");
    let shown = browser.show(&again, "");
    assert!(shown.page.contains("<h1>Depths &amp; devices</h1>") && shown.page.contains("data-drawn=\"8\""));
    let (output, directory) =
        sweep(folder.path(), "names", &format!("{SWEEP}device = ['null', 'constant-1ms']\n"), &[]);
    assert!(output.status.success(), "{output:?}");
    let shown = browser.show(&directory.join("sweep.html"), "");
    assert!(shown.console.is_empty() && shown.page.contains("data-errors=\"0\""), "{:?}", shown.console);
    let ids: Vec<String> = drawings(&shown.page).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids.iter().filter(|id| id.starts_with("bars-")).count(), 4, "{ids:?}");
}

#[test]
fn the_page_needs_no_network_and_stays_small() {
    let folder = tempfile::tempdir().unwrap();
    let run = simulate(folder.path(), "run", &["-d", "constant-10ms", "-w", "random-read", "-n", "30000"]);
    let page = folder.path().join("report.html");
    let words: Vec<&str> = ["report", "-o", page.to_str().unwrap()].into_iter().chain([run.as_str(); 12]).collect();
    let output = chronodisk(&words);
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.len() < 3_000_000, "{} bytes", text.len());
    assert!(text.contains("default-src 'none'"));
    // The library's own text has such words in strings; the policy forbids loading by them.
    let markup = text.split("<script").next().unwrap();
    for reference in ["src=", "href=", "@import", "url(", "<link"] {
        assert!(!markup.contains(reference), "{reference}");
    }
}

#[test]
fn wrong_input_is_refused_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let page = page.to_str().unwrap();
    let run = simulate(folder.path(), "run", &["-d", "null", "-w", "random-read", "-n", "10"]);
    let broken = simulate(folder.path(), "broken", &["-d", "null", "-w", "random-read", "-n", "10"]);
    fs::write(Path::new(&broken).join("simulation.json"), "{\"schema\": \"chronodisk.simulate/1\"}").unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let nowhere = folder.path().join("no/report.html");
    let (output, directory) = sweep(folder.path(), "sweep", &format!("{SWEEP}device = ['null']\n"), &[]);
    assert!(output.status.success(), "{output:?}");
    let spoilt = |name: &str, change: &dyn Fn(&Path)| {
        let copy = folder.path().join(name);
        fs::create_dir(&copy).unwrap();
        for file in ["sweep.json", "sweep.provenance.json"] {
            fs::copy(directory.join(file), copy.join(file)).unwrap();
        }
        change(&copy);
        copy.display().to_string()
    };
    let cut = spoilt("cut", &|copy| fs::write(copy.join("sweep.json"), "{\"schema\": ").unwrap());
    let other = spoilt("other", &|copy| {
        let text = fs::read_to_string(copy.join("sweep.json")).unwrap();
        fs::write(copy.join("sweep.json"), text.replace("chronodisk.sweep/1", "chronodisk.sweep/9")).unwrap();
    });
    let bare = spoilt("bare", &|copy| fs::remove_file(copy.join("sweep.provenance.json")).unwrap());
    let whole = directory.to_str().unwrap();
    for (words, said) in [
        (vec!["report", "-o", page, whole, &run], "a sweep has a report of its own"),
        (vec!["report", "-o", page, &cut], "sweep.json: EOF"),
        (vec!["report", "-o", page, &other], "schema: \"chronodisk.sweep/9\"; expected \"chronodisk.sweep/1\""),
        (vec!["report", "-o", page, &bare], "sweep.provenance.json: can't read"),
        (vec!["report", &run], "--output"),
        (vec!["report", "-o", page], "<RUN>"),
        (vec!["report", "-o", page, "no-such-run"], "no run 'no-such-run'"),
        (vec!["report", "-o", page, &run, empty.to_str().unwrap()], "holds no run"),
        (vec!["report", "-o", page, &run, &broken], "missing field"),
        (vec!["report", "-o", nowhere.to_str().unwrap(), &run], "does not exist"),
        (vec!["report", "-o", &run, &run], "is a directory"),
    ] {
        let output = chronodisk(&words);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(said), "{words:?}: {message}");
        assert!(!Path::new(page).exists(), "{words:?}");
    }
}
