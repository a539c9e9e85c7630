//! Results of fio 3.33 with options of all kinds: each option is read or refused by its name.

use chronodisk_fit::{Point, read_sweep};
use serde_json::{Value, json};

/// fio's output with its notes, without figures that no reader uses.
const RESULT: &str = include_str!("data/options.json");

fn result() -> Value {
    serde_json::from_str(&RESULT[RESULT.find("\n{").unwrap_or(0)..]).unwrap()
}

fn read(jobs: &[Value]) -> Result<Vec<Point>, String> {
    let all = json!({"fio version": "fio-3.33", "global options": result()["global options"], "jobs": jobs});
    read_sweep(&all.to_string(), "a.json", &[]).map_err(|error| error.to_string())
}

#[test]
fn each_option_is_read_or_refused_by_its_name() {
    let result = result();
    let jobs = result["jobs"].as_array().unwrap();
    let mut groups: Vec<Vec<Value>> = Vec::new();
    for job in jobs {
        match groups.last_mut().filter(|group| group[0]["groupid"] == job["groupid"]) {
            Some(group) => group.push(job.clone()),
            None => groups.push(vec![job.clone()]),
        }
    }
    assert!(groups.len() >= 38, "{}", groups.len());
    for group in &groups {
        let expected = group[0]["job options"]["description"].as_str().unwrap();
        match (expected.strip_prefix("depth "), read(group)) {
            (Some(depth), Ok(points)) => {
                assert!(points.iter().all(|point| point.depth.to_string() == depth), "{points:?}");
            }
            (None, Err(error)) => {
                assert!(error.starts_with(&format!("a.json:1: `{expected}`: ")), "{expected}: {error}")
            }
            (_, other) => panic!("{}: expected {expected}, found {other:?}", group[0]["jobname"]),
        }
    }
}

#[test]
fn notes_before_the_json_are_left_out_and_its_lines_counted() {
    assert!(RESULT.starts_with("fio: Any use of blockalign="), "{}", &RESULT[..80]);
    let error = read_sweep(RESULT, "a.json", &[]).unwrap_err().to_string();
    assert!(error.starts_with("a.json:13: `error`: job 13: fio's job failed"), "{error}");
    let notes = "note: both iodepth >= 1 and synchronous I/O engine are selected, queue depth will be capped at 1\n";
    let broken = format!("{notes}{{\n\"fio version\": \"fio-3.33\",\n\"jobs\": [}}");
    let error = read_sweep(&broken, "a.json", &[]).unwrap_err().to_string();
    assert!(error.starts_with("a.json:4: not JSON"), "{error}");
    let one = json!({"fio version": "fio-3.33", "jobs": []}).to_string();
    let error = read_sweep(&format!("{one}\n{one}\n"), "a.json", &[]).unwrap_err().to_string();
    assert!(error.contains("several results of fio in one file"), "{error}");
}

/// A job without anything special; the text is its options.
fn job(name: &str, group: u64, options: Value, iops: f64, mean_ns: f64) -> Value {
    let percentiles = json!({"50.000000": mean_ns, "99.000000": mean_ns});
    let figures = json!({"iops": iops, "clat_ns": {"mean": mean_ns, "percentile": percentiles}});
    json!({"jobname": name, "groupid": group, "error": 0, "job options": options, "read": figures})
}

#[test]
fn threads_are_one_point_and_jobs_that_run_together_none() {
    let of = |iops, mean_ns| job("a", 0, json!({"numjobs": "2", "iodepth": "2"}), iops, mean_ns);
    let points = read(&[of(10_000.0, 180_000.0), of(30_000.0, 100_000.0)]).unwrap();
    let [point] = &points[..] else { panic!("{points:?}") };
    assert_eq!((point.depth, point.measured.iops, point.measured.mean_us), (4, Some(40_000.0), Some(120.0)));
    assert_eq!(point.measured.p99_us, None, "percentiles of two threads make none of both");
    let lonely = |name: &str, group| job(name, group, json!({"number_ios": "9"}), 100.0, 10_000.0);
    assert_eq!(read(&[lonely("a", 0), lonely("b", 1)]).unwrap().len(), 2);
    let error = read(&[lonely("a", 0), lonely("b", 0)]).unwrap_err();
    assert!(error.starts_with("a.json:1: `stonewall`: job 1: \"a\" ran at the same time as \"b\""), "{error}");
    let three = job("a", 0, json!({"numjobs": "3", "rw": "randread"}), 1.0, 1.0);
    let error = read(&[three.clone(), three]).unwrap_err();
    assert!(error.contains("`numjobs`: job 1: 3, but the result has 2 threads of this job"), "{error}");
}
