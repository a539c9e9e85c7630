//! A fio job file as a load.

use std::collections::BTreeMap;
use std::path::Path;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::sim::Issuer;
use chronodisk_sim::{Nanos, Request, SECTOR_BYTES, TextFile};
use chronodisk_trace::fio_job::{FioJob, FioThread, Region, Surroundings, lay_out};
use serde_json::Value;

use crate::{Load, SweepError};

/// The jobs of a job file.
#[derive(Clone, Debug, PartialEq)]
pub struct FioLoad {
    label: String,
    jobs: Vec<FioJob>,
}

/// The text of a job file, or of a file that it includes.
fn read_text(path: &Path) -> Result<String, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("can't read the job file: {error}");
    let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
    TextFile::FioJob.read(file).map_err(|error| wrong(&error))
}

/// The environment of this process, and the directory of a job file.
struct Host<'a> {
    directory: Option<&'a Path>,
}

impl Surroundings for Host<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    /// fio looks in its working directory first, then beside the job file.
    fn include(&self, name: &str) -> Result<String, String> {
        let here = Path::new(name);
        let beside = self.directory.map(|directory| directory.join(name)).filter(|_| !here.exists());
        read_text(beside.as_deref().unwrap_or(here)).map_err(|error| format!("a file that can be read ({error})"))
    }
}

impl FioLoad {
    /// Reads a file.
    ///
    /// # Errors
    /// If it can't be read, or holds unsupported options.
    pub fn open(path: &Path) -> Result<Self, SweepError> {
        let label = path.display().to_string();
        let text = read_text(path).map_err(|error| SweepError::Usage(format!("{label}: {error}")))?;
        FioLoad::parse_in(&text, &label, path.parent())
    }

    /// Parses a text; messages name it by its label.
    ///
    /// # Errors
    /// If it holds unsupported options.
    pub fn parse(text: &str, label: &str) -> Result<Self, SweepError> {
        FioLoad::parse_in(text, label, None)
    }

    fn parse_in(text: &str, label: &str, directory: Option<&Path>) -> Result<Self, SweepError> {
        let jobs = FioJob::parse_in(text, &Host { directory }).map_err(|error| {
            SweepError::Usage(format!("{label}:{error}"))
                .help("docs/fio-options.md lists the options of fio that a simulation follows")
        })?;
        Ok(FioLoad { label: label.to_owned(), jobs })
    }

    /// The load for a device, and its effective options.
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
        let wrong = |line: u32, message: String| SweepError::Usage(format!("{}:{line}: {message}", self.label));
        let files = lay_out(&self.jobs, device_bytes).map_err(|(job, message)| wrong(self.jobs[job].line, message))?;
        let (mut groups, mut group) = (Vec::new(), Vec::new());
        let mut issuer = 0;
        for (job, files) in self.jobs.iter().zip(&files) {
            if (job.waits || job.waits_for.is_some()) && !group.is_empty() {
                groups.push(std::mem::take(&mut group));
            }
            for (thread, file) in (0..job.threads).zip(files) {
                let region = Region::new(job, thread, *file, u64::from(info.logical_block_bytes))
                    .map_err(|message| wrong(job.line, message))?;
                issuer += 1;
                let mut thread = FioThread::new(job, thread, region, *file, seed, issuer);
                if !info.volatile_cache {
                    thread.without_flushes();
                }
                group.push(Thread(thread));
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
        let ramp = self.jobs.first().map_or(Nanos::ZERO, |job| job.ramp);
        Ok((Load::Jobs { groups, ramp }, options))
    }

    /// Notes for people about options that take effect differently than in fio.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let of_job = |job: &FioJob| {
            let capped =
                job.is_capped.then_some("its ioengine is synchronous, so one request is outstanding, as with fio");
            let null = (!job.engine.does_io).then_some("fio's engine does no I/O; here its requests go to the device");
            capped.into_iter().chain(null).map(|note| format!("[{}]: {note}", job.name)).collect::<Vec<_>>()
        };
        let ramp = self.jobs.iter().any(|job| job.ramp > Nanos::ZERO);
        let ramp = ramp.then(|| "the figures leave out the requests of the ramp_time; the log has them".to_owned());
        self.jobs.iter().flat_map(of_job).chain(ramp).collect()
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

    fn next(&mut self, now: Nanos, outstanding: u32) -> Option<(Nanos, Request)> {
        self.0.next(now, outstanding)
    }
}
