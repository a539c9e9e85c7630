//! Runs and records made up for tests.
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::collections::BTreeMap;

use chronodisk_report::{
    ClockInfo, DeviceUsed, DroppedFiles, EndedBy, GuestInfo, HostInfo, Labels, Phase, PhaseName, RUN_SCHEMA, RepResult,
    RunResult, Summary,
};
use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};

pub fn us(micros: u64) -> Nanos {
    Nanos::from_micros(micros)
}

/// A read of 4 KiB by its instants in microseconds.
pub fn record(order: u64, arrival_us: u64, due_us: u64, completed_us: u64) -> RequestRecord {
    RequestRecord {
        device: 0,
        order,
        op: Op::Read,
        fua: false,
        priority: Priority::Normal,
        lba: Lba(8 * order),
        sectors: 8,
        queue: 0,
        issuer: 0,
        arrival: us(arrival_us),
        due: us(due_us),
        completed: us(completed_us),
        status: Status::Ok,
        store_failed: false,
        stolen: false,
        model_time: Nanos::from_nanos(500),
        store_time: Nanos::from_nanos(900),
    }
}

/// A run on `device` whose repetitions took `run_times_ms` in the guest.
#[expect(clippy::too_many_lines, reason = "all fields of a result")]
pub fn run(run_id: &str, device: &str, run_times_ms: &[u64], records: &[RequestRecord]) -> RunResult {
    let rep = |(index, run_time_ms): (usize, &u64)| RepResult {
        index: index as u32,
        seed: None,
        exit_status: 0,
        run_time_ns: Nanos::from_millis(*run_time_ms),
        host_time_ns: Nanos::from_millis(2_500),
        phases: vec![
            Phase {
                name: PhaseName::Boot,
                start_ns: Nanos::ZERO,
                end_ns: Nanos::from_millis(600),
                host_time_ns: Some(Nanos::from_millis(900)),
            },
            Phase {
                name: PhaseName::Command,
                start_ns: Nanos::from_millis(600),
                end_ns: Nanos::from_millis(600 + run_time_ms),
                host_time_ns: None,
            },
        ],
        end_ns: Nanos::from_millis(700 + run_time_ms),
        untimed_read_bytes: 3 << 20,
        untimed_written_bytes: 100,
        clock_counters: [("kicks".to_owned(), 8), ("jumps".to_owned(), 5)].into(),
        model_statistics: [("seeks".to_owned(), 7.0), ("mean seek [ms]".to_owned(), 3.5)].into(),
        samples: Vec::new(),
        store_bytes: Some(1 << 20),
        host_cpu: Some(1),
        programs_host_cpu: Some(0),
        log_file: format!("requests-{index}.parquet"),
        server: None,
        native: None,
        shadow: None,
        summary: Summary::of(records, Nanos::ZERO..Nanos::from_millis(1)),
        summaries_by_device: Vec::new(),
        verdict: None,
        dropped_files: DroppedFiles::default(),
        refused_calls: None,
    };
    RunResult {
        schema: RUN_SCHEMA.into(),
        run_id: run_id.into(),
        started_at: "2025-01-02T03:04:05Z".into(),
        chronodisk_version: "0.1.0".into(),
        chronodisk_commit: None,
        labels: Labels::default(),
        command_line: ["chronodisk", "run", "--device", device, "--", "postmark"].map(String::from).into(),
        command: vec!["postmark".into()],
        options_given: BTreeMap::from([("device".into(), device.into())]),
        options: BTreeMap::from([("device".into(), device.into()), ("reps".into(), run_times_ms.len().into())]),
        device: DeviceUsed {
            profile: device.into(),
            profile_toml: "kind = \"constant\"\n".into(),
            capacity_bytes: 8 << 30,
            seed: 1,
            state_file: None,
            initial_state_hash: "fnv1a64:0123456789abcdef".into(),
            speed: None,
            limits: None,
            faults: Vec::new(),
            program: None,
            zones_of: None,
            zones_began: None,
        },
        further_devices: Vec::new(),
        clock: ClockInfo {
            driver: "guest".into(),
            cpu: "measured".into(),
            kernel_scale: Some(0.05),
            kernel_costs: None,
            calibrated: None,
            cpu_speed: None,
        },
        guest: GuestInfo {
            kernel: Some("6.1.176".into()),
            memory_bytes: Some(512 << 20),
            cpus: Some(1),
            file_system: "ext4".into(),
            mkfs_options: String::new(),
            mount_options: String::new(),
            scheduler: "none".into(),
        },
        host: HostInfo { cpu_model: "Some Processor".into(), cores: 2, kernel: "6.1.0".into() },
        surroundings: None,
        reps: run_times_ms.iter().enumerate().map(rep).collect(),
        pilot: None,
        warnings: Vec::new(),
        ended_by: EndedBy::Command,
        replay: None,
        failure: None,
    }
}
