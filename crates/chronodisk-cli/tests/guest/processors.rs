//! Guests with several processors. Their kernel takes minutes to build, so these tests print SKIPPED without it
//! (`chronodisk kernel build processors`).
//!
//! The bounds on times are loose: a busy host changes a program's CPU time by its caches.

use std::process::Command;

use serde_json::Value;

use super::support::{Chronodisk, text};

/// The command, where the kernel is there.
pub fn several() -> Option<Chronodisk> {
    Chronodisk::with_kernel("processors")
}

/// Runs a script on so many processors, and returns the run's time in the guest, in seconds.
fn seconds(chronodisk: &Chronodisk, processors: &str, script: &str) -> f64 {
    let result = run(chronodisk, "null", &["--fs", "none", "--cpus", processors], script);
    result["reps"][0]["run_time_ns"].as_f64().unwrap() / 1e9
}

fn run(chronodisk: &Chronodisk, device: &str, flags: &[&str], script: &str) -> Value {
    chronodisk.run_json(device, flags, &["sh", "-c", script])
}

/// Computes for some 0.3 s on one processor of 2026.
const COMPUTE: &str = "awk 'BEGIN { for (i = 0; i < 3000000; i++) s += i; print s }' > /dev/null";

#[test]
fn two_programs_take_the_time_of_one() {
    let Some(chronodisk) = several() else { return };
    let both = format!("({COMPUTE}) & ({COMPUTE}); wait");
    let (one, two, in_turn) =
        (seconds(&chronodisk, "2", COMPUTE), seconds(&chronodisk, "2", &both), seconds(&chronodisk, "1", &both));
    assert!(two < 1.5 * one, "two programs on two processors {two} s, one {one} s");
    assert!(two < 0.75 * in_turn, "two programs on two processors {two} s, on one {in_turn} s");
}

/// Compiles a program in C.
fn compiled(chronodisk: &Chronodisk, name: &str, text: &str) -> String {
    let (source, program) = (chronodisk.path(&format!("{name}.c")), chronodisk.path(name));
    std::fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    let status = compiler.args(["-O1", "-pthread", "-o"]).arg(&program).arg(&source).status().unwrap();
    assert!(status.success());
    program.to_str().unwrap().to_owned()
}

/// Threads as many as its argument that compute, each for some 0.3 s.
const THREADS: &str = "#include <pthread.h>
    #include <stdlib.h>
    static void *compute(void *unused)
    {
        volatile unsigned x = 1;
        for (long i = 0; i < 150000000; i++)
            x = x * 3 + 1;
        return unused;
    }
    int main(int count, char **words)
    {
        pthread_t threads[8];
        int wanted = atoi(words[1]);
        for (int i = 0; i < wanted; i++)
            pthread_create(threads + i, NULL, compute, NULL);
        for (int i = 0; i < wanted; i++)
            pthread_join(threads[i], NULL);
        return count - 2;
    }";

#[test]
fn two_threads_of_a_program_take_the_time_of_one() {
    let Some(chronodisk) = several() else { return };
    let program = compiled(&chronodisk, "threads", THREADS);
    let [one, two] = ["1", "2"].map(|count| seconds(&chronodisk, "2", &format!("{program} {count}")));
    assert!(two < 1.5 * one, "two threads {two} s, one {one} s");
}

#[test]
fn idle_processors_skip_time() {
    let Some(chronodisk) = several() else { return };
    let script = "[ $(nproc) = 4 ] && sleep 1000 & sleep 300; wait";
    let result = run(&chronodisk, "null", &["--fs", "none", "--cpus", "4"], script);
    let rep = &result["reps"][0];
    let run_time = rep["run_time_ns"].as_f64().unwrap() / 1e9;
    assert!((1000.0..1001.0).contains(&run_time), "{run_time} s");
    // The host's time has no place in a test; these are three hundred times as much.
    assert!(rep["host_time_ns"].as_f64().unwrap() / 1e9 < 300.0);
    assert_eq!(result["guest"]["cpus"], 4);
    assert_eq!(result["clock"]["driver"], "several");
}

#[test]
fn programs_that_write_at_once_lose_nothing() {
    let Some(chronodisk) = several() else { return };
    for file_system in ["ext4", "xfs", "btrfs"] {
        let script = "set -e
            for copy in 1 2 3; do
                (cp -r /usr/include/linux /mnt/$copy; sync -f /mnt) &
            done
            wait
            umount /mnt
            mount /dev/vda /mnt
            for copy in 1 2 3; do diff -r /usr/include/linux /mnt/$copy; done";
        let output = chronodisk.path(file_system);
        let flags = ["--fs", file_system, "--cpus", "3", "--check", "--output", output.to_str().unwrap()];
        run(&chronodisk, "cheetah-9lp", &flags, script);
        let verified = chronodisk.command(&["verify", output.to_str().unwrap()]).output().unwrap();
        assert!(verified.status.success(), "{}", text(&verified.stderr));
    }
}

#[test]
fn jobs_at_once_get_the_devices_latency() {
    let Some(chronodisk) = several() else { return };
    let script = "fio --name=j --filename=/dev/vda --direct=1 --rw=randread --bs=4k --ioengine=psync --numjobs=2 \
        --number_ios=400 --size=1g --group_reporting --thread=0 --output-format=json --output=/dev/stdout";
    let output = chronodisk.path("run");
    let flags = ["--fs", "none", "--cpus", "2", "--output", output.to_str().unwrap()];
    run(&chronodisk, "intel-p3700", &flags, script);
    let records = chronodisk_report::read_log(&output.join("requests-0.parquet")).unwrap();
    assert!(records.len() >= 800);
    // While a request of one job is outstanding, the other's arrives.
    let overlapping = records.windows(2).filter(|two| two[1].arrival < two[0].completed).count();
    assert!(overlapping > 200, "{overlapping} of {} requests overlap", records.len());
}

/// Total rate of jobs that read one block at a time, in requests per second of the guest's time.
fn rate_of_jobs(chronodisk: &Chronodisk, device: &str, jobs: u32) -> f64 {
    let script = format!(
        "fio --name=j --filename=/dev/vda --direct=1 --rw=randread --bs=4k --ioengine=psync --numjobs={jobs} \
         --number_ios=1000 --size=1g --group_reporting --output-format=json --output=/dev/stdout"
    );
    let output = chronodisk.run(device, &["--fs", "none", "--cpus", "2"], &["sh", "-c", &script]);
    let printed = text(&output.stdout);
    let begin = printed.find("{\n  \"fio version\"").expect("fio printed its result");
    let fio = serde_json::Deserializer::from_str(&printed[begin..]).into_iter::<Value>().next().unwrap().unwrap();
    fio["jobs"][0]["read"]["iops"].as_f64().unwrap()
}

#[test]
fn two_jobs_reach_nearly_twice_the_rate_of_one() {
    let Some(chronodisk) = several() else { return };
    let [one, two] = [1, 2].map(|jobs| rate_of_jobs(&chronodisk, "constant-100us", jobs));
    assert!(two > 1.5 * one, "two jobs {two} requests/s, one {one}");
}

/// Prints the seconds that it took, and the steps of the counter meanwhile.
const COUNTER: &str = "#include <stdio.h>
    #include <time.h>
    #include <x86intrin.h>
    static double now(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec + t.tv_nsec / 1e9;
    }
    int main(void)
    {
        unsigned long long before = __rdtsc(), last = before, first = before;
        double start = now();
        for (int i = 0; i < 20000; i++) {
            unsigned core;
            unsigned long long read = i % 2 ? __rdtsc() : __rdtscp(&core);
            if (read < last)
                return 1;
            last = read;
        }
        struct timespec second = { 1, 0 };
        nanosleep(&second, NULL);
        printf(\"%f %f\\n\", now() - start, (double)(__rdtsc() - first));
        return 0;
    }";

#[test]
fn the_time_stamp_counter_agrees_with_the_clock() {
    let Some(chronodisk) = several() else { return };
    let program = compiled(&chronodisk, "counter", COUNTER);
    let output = chronodisk.run("null", &["--fs", "none", "--cpus", "2", "--quiet"], &[&program]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let words: Vec<f64> = text(&output.stdout).split_whitespace().map(|word| word.parse().unwrap()).collect();
    // A read takes nanoseconds, as on a processor: 20,000 of them are less than a tenth of a second.
    assert!((1.0..1.1).contains(&words[0]), "{} s", words[0]);
    let hertz = words[1] / words[0];
    assert!((5e8..1e10).contains(&hertz), "{hertz} reads of the counter in a second");
}

#[test]
fn what_has_one_processor_only_is_refused() {
    let Some(chronodisk) = Chronodisk::new() else { return };
    for flags in [&["--clock", "exact"][..], &["--clock", "real"], &["--cpu", "wall"]] {
        let flags = [&["--cpus", "2"][..], flags].concat();
        let output = chronodisk.run("null", &flags, &["true"]);
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        assert!(text(&output.stderr).contains("--cpus 2 needs --clock guest"), "{}", text(&output.stderr));
    }
    let output = chronodisk.run("null", &["--cpus", "9"], &["true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("expected 1 to 8 processors"), "{}", text(&output.stderr));
}
