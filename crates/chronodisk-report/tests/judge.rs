//! Conditions under which a comparison fails.

mod common;

use chronodisk_report::{Condition, Judgement, RunResult, compare, judge, render_junit, render_markdown};

fn run(id: &str, run_times_ms: &[u64]) -> RunResult {
    common::run(id, "first-disk", run_times_ms, &[])
}

fn judged(condition: &str, baseline: &[u64], run_times_ms: &[u64]) -> Judgement {
    let condition: Condition = condition.parse().unwrap();
    let [judgement] = &judge(&[run("base", baseline), run("new", run_times_ms)], &[condition])[..] else { panic!() };
    judgement.clone()
}

#[test]
fn the_nearer_end_of_the_interval_decides() {
    // 9, 10 and 11 % longer: 10 ± 2.48 % by Student's t with two degrees of freedom.
    let (base, longer) = ([1_000, 1_000, 1_000], [1_090, 1_100, 1_110]);
    for (limit, fails) in [("+5%", true), ("7%", true), ("+7.6 %", false), ("+10%", false), ("+15%", false)] {
        let judgement = judged(&format!("run_time > {limit}"), &base, &longer);
        assert_eq!(judgement.failed, fails, "{limit}: {judgement:?}");
    }
    let shorter = [910, 900, 890];
    assert!(judged("run_time < -5%", &base, &shorter).failed);
    assert!(!judged("run_time < -9%", &base, &shorter).failed);
    assert!(!judged("run_time > +5%", &base, &shorter).failed);
    // Wide as the noise is, its mean alone says nothing.
    assert!(!judged("run_time > +5%", &base, &[1_000, 1_000, 1_900]).failed);
}

#[test]
fn one_repetition_is_judged_by_its_difference() {
    let judgement = judged("run_time > +5%", &[1_000], &[1_060]);
    assert!(judgement.failed && judgement.reason.contains("one repetition, no interval"), "{judgement:?}");
    assert!(!judged("run_time > +5%", &[1_000], &[1_049]).failed);
}

#[test]
fn what_cannot_be_judged_does_not_pass() {
    let condition: Condition = "run_time > +5%".parse().unwrap();
    let mut base = run("base", &[1_000, 1_000]);
    base.reps[0].seed = Some(1);
    base.reps[1].seed = Some(2);
    let mut failed = run("failed", &[1_000, 1_000]);
    failed.reps[1].exit_status = 3;
    let mut unpaired = run("unpaired", &[1_000]);
    unpaired.reps[0].seed = Some(77);
    let empty = run("empty", &[]);
    let judgements = judge(&[base, failed, unpaired, empty], &[condition]);
    assert_eq!(judgements.iter().filter(|judgement| judgement.failed).count(), 3, "{judgements:?}");
    assert!(judgements[0].reason.contains("status 3 in repetition 1"), "{judgements:?}");
    // Requests that were none before, and none now, did not change; some where there were none have no percentage.
    let requests: Condition = "requests > 0%".parse().unwrap();
    let (none, mut some) = (run("none", &[1_000]), run("some", &[1_000]));
    some.reps[0].summary.requests = 5;
    let judgements = judge(&[run("base", &[1_000]), none, some], &[requests]);
    assert_eq!([judgements[0].failed, judgements[1].failed], [false, true], "{judgements:?}");
}

#[test]
fn conditions_are_read_and_written() {
    for text in ["run_time > +5%", "flushes > +0%", "service_time_p99 < -12.5%"] {
        assert_eq!(text.parse::<Condition>().unwrap().to_string(), text);
    }
    assert_eq!("requests>3 %".parse::<Condition>().unwrap().to_string(), "requests > +3%");
    for wrong in ["", "run_time", "run_time > 5", "run_time > x%", "run_time > NaN%", "run_time = 5%", "> 5%"] {
        assert!(wrong.parse::<Condition>().is_err(), "{wrong}");
    }
    let unknown = "runtime > 5%".parse::<Condition>().unwrap_err();
    assert!(unknown.contains("no metric 'runtime'") && unknown.contains("run_time"), "{unknown}");
}

#[test]
fn services_get_xml_and_markdown() {
    let runs = [run("base", &[1_000, 1_001]), run("a<b>|\"c\"", &[2_000, 2_001])];
    let mut comparison = compare(&runs);
    comparison.judgements = judge(&runs, &["run_time > +5%".parse().unwrap(), "requests > +5%".parse().unwrap()]);
    let xml = render_junit(&comparison);
    assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
    assert!(
        xml.contains("classname=\"a&lt;b&gt;|&quot;c&quot;\" name=\"run_time &gt; +5%\"><failure message=\""),
        "{xml}"
    );
    let markdown = render_markdown(&comparison);
    assert!(markdown.contains("| a<b>\\|\"c\" | first-disk | 2.000"), "{markdown}");
    assert!(markdown.contains("`run_time > +5%`: **failed**, run_time +"), "{markdown}");
    assert!(comparison.render().contains("FAILED: a<b>|\"c\": run_time > +5%: run_time +"), "{}", comparison.render());
}
