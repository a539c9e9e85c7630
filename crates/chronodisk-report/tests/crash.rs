//! The section on power cuts of a report: its tables without a browser, and its chart in one.

#[allow(dead_code, reason = "large.rs uses the rest")]
mod browser;
mod common;

use std::fs;

use browser::Browser;
use chronodisk_report::{CrashReport, CrashResult, CrashStates, ReportRun, ReportSource, render_report};
use chronodisk_sim::Nanos;
use common::run;
use serde_json::{Value, json};

fn request(files: &[&str]) -> Value {
    json!({ "request": 7, "op": "write", "lba": 4096, "sectors": 8, "fua": false, "arrival_ns": 1_200_000_000,
        "completed_ns": null, "files": files, "lost_blocks": 2 })
}

/// A result with two failures, one of them shrunk, by JSON as a file has it.
fn result(ended_by_signal: Option<&str>) -> CrashResult {
    let failure = |state: u32, draw: &str, fewest: Value| {
        json!({ "state": state, "cut_ns": 1_000_000_000 + 250_000_000 * u64::from(state), "draw": draw, "failed": "check",
            "output": "<script>row 3 is lost</script>", "acknowledged_lines": 3, "lost_requests": 2,
            "lost": [request(&[])], "fewest": fewest, "around": [], "repeat": format!("chronodisk crash --only {state}") })
    };
    let shrunk = json!({ "requests": 1, "lost": [request(&["/a&b", "/log"])] });
    let json = json!({ "schema": "chronodisk-crash/1", "run_id": "r", "file_system": "ext4", "check": "test <a",
        "states": "any", "seed": 1, "interval_ns": [1_000_000_000, 2_000_000_000u64], "torn_bytes": 4096,
        "requests": 40, "acknowledged_lines": 5, "cuts": 4, "states_drawn": 24, "states_distinct": 5,
        "states_checked": 5, "states_failed": 2, "ended_by_signal": ended_by_signal,
        "failures": [failure(1, "torn", shrunk), failure(2, "half-lost", Value::Null)] });
    serde_json::from_value(json).unwrap()
}

fn report(result: Option<CrashResult>) -> String {
    let mut states = CrashStates::new((Nanos::from_millis(1_000), Nanos::from_millis(2_000)));
    let verdicts = [("none-lost", 1_250, None), ("torn", 1_250, Some("check")), ("half-lost", 1_500, Some("check"))];
    let passed = [("none-lost", 1_500, None), ("all-lost", 2_000, None)];
    for (draw, at_ms, failed) in verdicts.into_iter().chain(passed) {
        states.add(draw, Nanos::from_millis(at_ms), failed);
    }
    let source = ReportSource::Run(Box::new(run("cut", "null", &[1_000], &[])));
    let crash = CrashReport { result, states, has_passed: true, directory: "a/r".to_owned() };
    let run = ReportRun { source, charts: Default::default(), crash: Some(Box::new(crash)) };
    render_report("Power cuts", &[run], "a test")
}

/// The text of a page without its markup and its scripts.
fn text(page: &str) -> String {
    let page = page.split("<script").next().unwrap().replace("</td>", " ").replace("</th>", " ").replace("<br>", " ");
    let parts = page.split('<').map(|part| part.split_once('>').map_or("", |(_, text)| text));
    parts.collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn states_and_failures_are_listed() {
    let page = report(Some(result(None)));
    let text = text(&page);
    for part in [
        "States by draw and verdict. draw states passed failed: check none-lost 2 2 0 all-lost 1 1 0 half-lost 1 0 1 torn 1 0 1",
        "check test &lt;a",
        "1 checkOutput&lt;script&gt;row 3 is lost&lt;/script&gt; 1.250000 torn 3 \
         1 7: write, 8 sectors from 4096 on of /a&amp;b, /log chronodisk crash --only 1",
        "2 (not shrunk) 7: write, 8 sectors from 4096 on … chronodisk crash --only 2",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("--resume"), "{text}");
}

#[test]
fn checks_that_were_ended_are_said_to_be() {
    let ended = text(&report(Some(result(Some("SIGTERM")))));
    let wanted = "SIGTERM ended the checks after 5 states. chronodisk crash --resume a/r continues them.";
    assert!(ended.contains(wanted), "{ended}");
    let killed = text(&report(None));
    let wanted = "have not ended, or were killed, after 5 states. chronodisk crash --resume a/r continues them.";
    assert!(killed.contains(wanted) && killed.contains("none-lost 2 2 0"), "{killed}");
}

#[test]
fn a_browser_draws_the_cuts_in_both_themes() {
    let Some(browser) = Browser::find() else { return };
    let file = browser.folder().join("report.html");
    fs::write(&file, report(Some(result(None)))).unwrap();
    for theme in ["light", "dark"] {
        let shown = browser.show(&file, &format!("open&theme={theme}"));
        assert!(shown.console.is_empty(), "{:?}", shown.console);
        let root = shown.page.split_once("<head>").unwrap().0;
        assert!(root.contains("data-errors=\"0\"") && root.contains(&format!("data-theme=\"{theme}\"")), "{root}");
        let chart = shown.page.split_once("id=\"cuts-0\"").unwrap().1.split("</svg>").next().unwrap();
        for part in ["passed", "failed", "time of the cut (s)", "none-lost", "torn", "#0072b2", "#d55e00"] {
            assert!(chart.contains(part), "{part} in {chart}");
        }
        assert!(!chart.contains("one-kept"), "{chart}");
    }
    let width = browser.width_of_contents(&file, "open", 360);
    assert!(width <= 360, "the page is {width} pixels wide");
}
