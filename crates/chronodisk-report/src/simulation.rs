//! The result of a simulation.

use std::collections::BTreeMap;
use std::path::Path;

use chronodisk_sim::RequestRecord;
use serde::{Deserialize, Serialize};

use crate::schema::{read_json, to_json};
use crate::{Distribution, ReportError, Summary};

/// Name and version of [`Simulation`]'s form.
pub const SIMULATION_SCHEMA: &str = "chronodisk.simulate/1";

/// Result of a workload on a device, without a guest. Contains nothing of the host, so equal options give equal bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Simulation {
    /// [`SIMULATION_SCHEMA`].
    pub schema: String,
    /// Name of the device's profile.
    pub device: String,
    /// Name of the workload.
    pub workload: String,
    /// All options as they took effect, by name.
    pub options: BTreeMap<String, serde_json::Value>,
    /// Requests that completed.
    pub requests: u64,
    /// Simulated time from the first arrival to the last completion, in seconds.
    pub simulated_s: f64,
    /// Requests per second of that time.
    pub iops: f64,
    /// Data in 10⁶ bytes per second of that time.
    pub mb_per_s: f64,
    /// Service times, queueing in the device included.
    pub latency_us: Distribution,
    /// All figures.
    pub summary: Summary,
    /// The model's own statistics at the end, by name; a unit stands in brackets.
    #[serde(default)]
    pub model_statistics: BTreeMap<String, f64>,
    /// A background scan beside the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundScan>,
}

/// A background scan of the whole device, in the gaps of a workload's requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackgroundScan {
    /// When it reads: `gaps` or `gaps-and-rest`.
    pub when: String,
    /// Bytes read up to the last completion of the workload.
    pub bytes: u64,
    /// These bytes as a share of the device.
    pub share_of_device: f64,
    /// Seconds from the beginning to the last sector read.
    pub seconds: f64,
    /// Data in 10⁶ bytes per second of this time.
    pub mb_per_s: f64,
    /// Data that pass a head, on average over all tracks, in 10⁶ bytes per second.
    pub media_mb_per_s: f64,
    /// `mb_per_s` as a share of `media_mb_per_s`.
    pub share_of_media: f64,
    /// Service times of the same workload without the scan.
    pub latency_alone_us: Distribution,
    /// Whether each request of the workload completes at the same instant as without the scan.
    pub foreground_is_equal: bool,
}

impl Simulation {
    /// Condenses a simulation's records.
    #[must_use]
    pub fn new(
        device: impl Into<String>,
        workload: impl Into<String>,
        options: BTreeMap<String, serde_json::Value>,
        records: &[RequestRecord],
    ) -> Self {
        let start = records.iter().map(|record| record.arrival).min().unwrap_or_default();
        let completed = records.iter().filter(|record| record.is_completed());
        let end = completed.map(|record| record.completed).max().unwrap_or(start);
        // The window leaves out its end, and with it only arrivals that nothing followed.
        let summary = Summary::of(records, start..end);
        Simulation::of_summary(device, workload, options, summary)
    }

    /// With figures that are there already.
    #[must_use]
    pub fn of_summary(
        device: impl Into<String>,
        workload: impl Into<String>,
        options: BTreeMap<String, serde_json::Value>,
        summary: Summary,
    ) -> Self {
        Simulation {
            schema: SIMULATION_SCHEMA.to_owned(),
            device: device.into(),
            workload: workload.into(),
            options,
            requests: summary.requests - summary.unfinished,
            simulated_s: summary.window_ns.as_secs_f64(),
            iops: summary.iops,
            mb_per_s: summary.mb_per_s,
            latency_us: summary.service_time_us,
            summary,
            model_statistics: BTreeMap::new(),
            background: None,
        }
    }

    /// Reads a result from JSON.
    ///
    /// # Errors
    /// If the file can't be read, is not JSON, has another schema, or lacks a field.
    pub fn read(path: &Path) -> Result<Self, ReportError> {
        read_json(path, SIMULATION_SCHEMA)
    }

    /// Formats the result as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }
}
