//! The report's page, in a browser without a screen. Without one the tests say SKIPPED, except for those of refusals.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn chronodisk(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_chronodisk")).args(words).output().unwrap()
}

/// Simulates, and keeps the result in a folder of this name.
fn simulate(parent: &Path, name: &str, options: &[&str]) -> String {
    let directory = parent.join(name).display().to_string();
    let output = chronodisk(&[&["simulate", "-o", &directory], options].concat());
    assert!(output.status.success(), "{output:?}");
    directory
}

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// A page as a browser has made it, and what its console said.
struct Shown {
    page: String,
    console: Vec<String>,
}

fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        println!("SKIPPED: no browser here; apt-get install chromium");
    }
    found
}

fn browse(browser: &str, profile: &Path, page: &Path, options: &[&str], fragment: &str) -> Output {
    let output = Command::new("timeout")
        .args(["120", browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--virtual-time-budget=5000", "--enable-logging=stderr", "--v=0"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(options)
        .arg(format!("file://{}#{fragment}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    output
}

fn show(browser: &str, profile: &Path, page: &Path, fragment: &str) -> Shown {
    let output = browse(browser, profile, page, &["--dump-dom"], fragment);
    let said = String::from_utf8_lossy(&output.stderr);
    let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Shown { page: String::from_utf8(output.stdout).unwrap(), console }
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
    let Some(browser) = browser() else { return };
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

    let profile = at.join("browser");
    let shown = show(browser, &profile, &page, "open&theme=dark");
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
        browse(browser, &profile, &page, &[&option, "--window-size=1000,1400"], &format!("theme={theme}"));
        fs::read(file).unwrap()
    };
    let (light, dark) = (picture("light"), picture("dark"));
    assert!(light.len() > 20_000 && dark.len() > 20_000, "{} {}", light.len(), dark.len());
    assert!(light != dark);
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
    // The library's own text has such words in strings; what it could load with them, the policy forbids.
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
    for (words, said) in [
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
