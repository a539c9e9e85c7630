//! A job file of fio as a load.

use std::collections::BTreeMap;
use std::path::Path;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::sim::Issuer;
use chronodisk_sim::{Nanos, Request, SECTOR_BYTES, TextFile};
use chronodisk_trace::fio_job::{FioJob, FioThread, Region};
use serde_json::Value;

use crate::{Load, SweepError};

/// The jobs of a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct FioLoad {
    label: String,
    jobs: Vec<FioJob>,
}

impl FioLoad {
    /// Reads a file.
    ///
    /// # Errors
    /// If it can't be read, or holds what can't be followed.
    pub fn open(path: &Path) -> Result<Self, SweepError> {
        let label = path.display().to_string();
        let wrong =
            |error: &dyn std::fmt::Display| SweepError::Usage(format!("{label}: can't read the job file: {error}"));
        let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        let text = TextFile::FioJob.read(file).map_err(|error| wrong(&error))?;
        FioLoad::parse(&text, &label)
    }

    /// Reads a text; messages name it by its label.
    ///
    /// # Errors
    /// If it holds what can't be followed.
    pub fn parse(text: &str, label: &str) -> Result<Self, SweepError> {
        let jobs = FioJob::parse(text).map_err(|error| {
            SweepError::Usage(format!("{label}:{error}"))
                .help("docs/block-traces.md lists the keys of job files that a simulation follows")
        })?;
        Ok(FioLoad { label: label.to_owned(), jobs })
    }

    /// The load for a device, and its options as they take effect.
    ///
    /// # Errors
    /// If a job does not fit on the device.
    pub fn begin(&self, info: &DeviceInfo, seed: u64) -> Result<(Load, BTreeMap<String, Value>), SweepError> {
        if info.zones.is_some() {
            return Err(SweepError::Usage(format!(
                "{}: the device has zones; expected one without for a job file",
                self.label
            ))
            .help("--workload seq-write or zone-append writes the zones of a device in order"));
        }
        let device_bytes = info.capacity_sectors * SECTOR_BYTES;
        let (mut groups, mut group) = (Vec::new(), Vec::new());
        let mut issuer = 0;
        for job in &self.jobs {
            if job.waits && !group.is_empty() {
                groups.push(std::mem::take(&mut group));
            }
            for thread in 0..job.threads {
                let region = Region::new(job, thread, device_bytes, u64::from(info.logical_block_bytes))
                    .map_err(|message| SweepError::Usage(format!("{}:{}: {message}", self.label, job.line)))?;
                issuer += 1;
                group.push(Thread(FioThread::new(job, thread, region, device_bytes, seed, issuer)));
            }
        }
        groups.push(group);
        let options = [
            ("seed", seed.into()),
            ("capacity_bytes", device_bytes.into()),
            ("fio_job", self.label.as_str().into()),
            ("threads", issuer.into()),
        ];
        let options = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Ok((Load::Jobs(groups), options))
    }

    /// What of the file takes effect in another way than its words say, for people.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let capped = self.jobs.iter().filter(|job| job.is_capped);
        capped
            .map(|job| {
                format!("[{}]: its ioengine is synchronous, so one request is outstanding, as with fio", job.name)
            })
            .collect()
    }
}

/// A thread of a job.
pub struct Thread(FioThread);

impl Issuer for Thread {
    fn depth(&self) -> u32 {
        self.0.depth()
    }

    fn begin(&mut self, now: Nanos) {
        self.0.begin(now);
    }

    fn next(&mut self, now: Nanos) -> Option<(Nanos, Request)> {
        self.0.next(now)
    }
}
