//! The load of a simulated device: a generated workload, a trace, or a job file of fio.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use chronodisk_device::DeviceInfo;
use chronodisk_engine::sim::{
    Issue, SimulationError, closed_loop_streaming_at, issuers_loop_at, open_loop_streaming_at,
};
use chronodisk_engine::{ModelFault, ModelPort};
use chronodisk_sim::{ContentsLimit, Nanos, OverLimit, RequestId, RequestRecord, SECTOR_BYTES};
use chronodisk_trace::{
    Addresses, ArrivalProcess, ArrivalTimes, GeneratedRequest, Generator, GeneratorOptions, Workload, Zones,
};
use serde_json::Value;

use crate::fio::Thread;
use crate::replay::{OUTSTANDING_BYTES, replay};
use crate::{Replayed, SweepError};

/// Options of a generated workload.
#[derive(Clone, Debug, PartialEq)]
pub struct GeneratedLoad {
    /// The kind of workload.
    pub workload: Workload,
    /// Number of requests.
    pub requests: u64,
    /// Seed; equal seeds give equal requests.
    pub seed: u64,
    /// Size of a request in bytes, for workloads without sizes of their own; `None`: 4096.
    pub block_bytes: Option<u64>,
    /// Outstanding requests of a closed loop.
    pub depth: u32,
    /// Share of reads, 0 to 1, for workloads that read and write; `None` for the workload's own.
    pub read_share: Option<f64>,
    /// Longest pause before a request of a closed loop; pauses are uniform from zero to this.
    pub think_max: Nanos,
    /// Distribution of random addresses.
    pub addresses: Addresses,
    /// Arrivals of an open loop; `None`: a closed loop.
    pub process: Option<ArrivalProcess>,
}

/// A load.
pub enum Load {
    /// A closed loop of generated requests, with this number outstanding.
    Closed(Box<Generator>, u32),
    /// An open loop of generated requests.
    Open(Box<Generator>, Box<ArrivalTimes>),
    /// The requests of a trace.
    Traced(Box<Replayed>),
    /// The threads of a job file.
    Jobs {
        /// Groups of threads; each waits for the one before it.
        groups: Vec<Vec<Thread>>,
        /// Time from the first request during which requests are not measured.
        ramp: Nanos,
    },
}

/// Why a load ended early.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The load does not fit the device, or its trace can't be read.
    #[error(transparent)]
    Load(#[from] SweepError),
    /// The remote model was lost.
    #[error(transparent)]
    Model(ModelFault),
}

impl GeneratedLoad {
    /// A sequence of requests with default options.
    #[must_use]
    pub fn new(workload: Workload, requests: u64, seed: u64) -> Self {
        GeneratedLoad {
            workload,
            requests,
            seed,
            block_bytes: None,
            depth: 1,
            read_share: None,
            think_max: Nanos::ZERO,
            addresses: Addresses::Uniform,
            process: None,
        }
    }

    /// The load for a device, and its effective options. `is_used` tells whether the device was written before.
    ///
    /// # Errors
    /// If an option contradicts the workload, the device or another option.
    pub fn begin(&self, info: &DeviceInfo, is_used: bool) -> Result<(Load, BTreeMap<String, Value>), SweepError> {
        let workload = self.workload;
        let wrong = |message: String| Err(SweepError::Usage(message));
        if self.block_bytes.is_some() && !workload.uses_block_bytes() {
            let message = format!("workload {workload} defines its request sizes; --block-size can't be used");
            return Err(SweepError::Usage(message).help(
                "for requests of a fixed size, use random-read, random-write, random-mixed, seq-read or seq-write",
            ));
        }
        if self.read_share.is_some() && !reads_and_writes(workload) {
            let message = format!("workload {workload} has only one kind of request; --read-share can't be used");
            return Err(SweepError::Usage(message).help("for a mix of reads and writes, use random-mixed"));
        }
        if self.addresses != Addresses::Uniform && is_sequential(workload) {
            return wrong(format!("workload {workload} is sequential; --addresses can't be used"));
        }
        if self.process.is_some() && (self.depth != 1 || self.think_max > Nanos::ZERO) {
            let option = if self.depth != 1 { "--depth" } else { "--think-max" };
            return wrong(format!("{option} is of closed loops; --arrivals says when requests arrive"));
        }
        let defaults = GeneratorOptions::new(workload, info.capacity_sectors, self.seed, self.requests);
        let options = GeneratorOptions {
            block_bytes: self.block_bytes.unwrap_or(defaults.block_bytes),
            read_share: self.read_share.unwrap_or(defaults.read_share),
            align_sectors: info.logical_block_bytes / SECTOR_BYTES as u32,
            think_max: self.think_max,
            addresses: self.addresses,
            zones: info.zones.map(|zones| Zones {
                size_sectors: zones.size_sectors,
                capacity_sectors: zones.capacity_sectors,
                first_sector: zones.conventional_sectors(),
                written: is_used,
            }),
            ..defaults
        };
        let generator = Box::new(Generator::new(options).map_err(SweepError::Usage)?);
        let options = self.options(generator.options());
        Ok(match self.process {
            None => (Load::Closed(generator, self.depth), options),
            Some(process) => (Load::Open(generator, Box::new(ArrivalTimes::new(process, self.seed))), options),
        })
    }

    fn options(&self, generator: &GeneratorOptions) -> BTreeMap<String, Value> {
        let mut options: Vec<(&str, Value)> = vec![
            ("seed", self.seed.into()),
            ("capacity_bytes", (generator.capacity_sectors * SECTOR_BYTES).into()),
            ("requests", self.requests.into()),
        ];
        match self.process {
            None => {
                options.extend([("depth", self.depth.into()), ("think_max_ns", Value::from(self.think_max.as_nanos()))])
            }
            Some(process) => options.extend(process_options(process)),
        }
        if reads_and_writes(self.workload) {
            options.push(("read_share", generator.read_share.into()));
        }
        if self.addresses != Addresses::Uniform {
            options.push(("addresses", self.addresses.to_string().into()));
        }
        if self.workload.uses_block_bytes() {
            options.push(("block_size_bytes", generator.block_bytes.into()));
        }
        options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn is_sequential(workload: Workload) -> bool {
    matches!(workload, Workload::SequentialRead | Workload::SequentialWrite | Workload::ZoneAppend)
}

fn reads_and_writes(workload: Workload) -> bool {
    !workload.uses_block_bytes() || workload == Workload::RandomMixed
}

fn process_options(process: ArrivalProcess) -> Vec<(&'static str, Value)> {
    match process {
        ArrivalProcess::Regular { rate_per_s } => {
            vec![("arrivals", "regular".into()), ("rate_per_s", rate_per_s.into())]
        }
        ArrivalProcess::Poisson { rate_per_s } => {
            vec![("arrivals", "poisson".into()), ("rate_per_s", rate_per_s.into())]
        }
        ArrivalProcess::OnOff { rate_per_s, on, off } => vec![
            ("arrivals", "on-off".into()),
            ("rate_per_s", rate_per_s.into()),
            ("on_ns", on.as_nanos().into()),
            ("off_ns", off.as_nanos().into()),
        ],
    }
}

fn too_many(file: &str, outstanding: usize, limit: ContentsLimit) -> SweepError {
    let over = OverLimit { need_bytes: outstanding as u64 * OUTSTANDING_BYTES, is_whole: false, limit };
    SweepError::Usage(format!("{file}more than {outstanding} requests are outstanding at once: {over}"))
        .help("--arrivals closed or depth=N lets fewer arrive at once; --memory-limit sets another limit")
}

impl Load {
    /// Number of requests, if it is known.
    #[must_use]
    pub fn requests(&self) -> Option<u64> {
        match self {
            Load::Closed(generator, _) | Load::Open(generator, _) => Some(generator.options().requests),
            Load::Traced(_) | Load::Jobs { .. } => None,
        }
    }

    /// Time from the first request during which requests are not measured.
    #[must_use]
    pub fn ramp(&self) -> Nanos {
        match self {
            Load::Jobs { ramp, .. } => *ramp,
            _ => Nanos::ZERO,
        }
    }

    /// Submits the load to a model, and passes each record to `seen` in order of arrival. When `seen` breaks, no
    /// further request arrives. Returns notes for people about changes made on the way. A limit of memory applies to
    /// outstanding requests, and to a trace's requests whose arrivals depend on its completions.
    ///
    /// # Errors
    /// If the trace is wrong, a request does not fit on the device, the limit is exceeded, or the model is lost.
    ///
    /// # Panics
    /// If a local model breaks its contract.
    pub fn give_to(
        self,
        port: &mut ModelPort,
        limit: ContentsLimit,
        mut seen: impl FnMut(&RequestRecord) -> ControlFlow<()>,
    ) -> Result<Vec<String>, LoadError> {
        let id = RequestId(0);
        let outstanding_max = (limit.bytes() / OUTSTANDING_BYTES) as usize;
        let file = if let Load::Traced(replayed) = &self { format!("{}: ", replayed.file()) } else { String::new() };
        let (done, notes) = match self {
            Load::Closed(generator, depth) => {
                let issue =
                    |generated: GeneratedRequest| Issue { request: generated.request(id), think: generated.think };
                (closed_loop_streaming_at(port, generator.map(issue), depth, seen), Vec::new())
            }
            Load::Open(generator, times) => {
                let requests = times.zip(generator).map(|(at, generated)| (at, generated.request(id)));
                (open_loop_streaming_at(port, requests, outstanding_max, seen), Vec::new())
            }
            Load::Jobs { groups, .. } => (issuers_loop_at(port, groups, seen), Vec::new()),
            Load::Traced(mut replayed) => {
                let done = replay(port, &mut replayed, limit, &mut seen);
                if let Some(error) = replayed.take_failure() {
                    return Err(error.into());
                }
                (done?, replayed.notes())
            }
        };
        done.map(|()| notes).map_err(|error| match error {
            SimulationError::Model(fault) => LoadError::Model(fault),
            SimulationError::Outstanding { most, .. } => LoadError::Load(too_many(&file, most, limit)),
            error => LoadError::Load(SweepError::Usage(error.to_string())),
        })
    }
}
