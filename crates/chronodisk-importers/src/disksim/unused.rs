//! Parameters that are known and have no effect on an imported device's timing: each with the reason.
//!
//! They are checked (an unknown name or a text for a number is still an error) and then left out.

use chronodisk_device::ProfileError;

use super::lexer::shown;
use super::reader::Shape::{self, List, Number, Whole, Word};
use super::reader::{Definitions, Reader};
use super::syntax::{Block, Data};

/// Parameters of a module without effect on the device, with reasons.
pub(super) struct Unused {
    pub(super) module: &'static str,
    pub(super) reason: &'static str,
    pub(super) parameters: &'static [(&'static str, Shape)],
}

/// Modules that describe the experiment, not the device.
pub(super) const MODULES: &[Unused] = &[
    Unused {
        module: "disksim_global",
        reason: "seeds, names of output files and the warm-up of statistics; the device draws no random numbers",
        parameters: &[
            ("Init Seed", Whole),
            ("Init Seed with time", Whole),
            ("Real Seed", Whole),
            ("Real Seed with time", Whole),
            ("Statistic warm-up time", Number),
            ("Statistic warm-up IOs", Whole),
            ("Stat definition file", Word),
            ("Output file for trace of I/O requests simulated", Word),
            ("Detailed execution trace", Word),
        ],
    },
    Unused {
        module: "disksim_stats",
        reason: "the output of the reference",
        parameters: &[
            ("iodriver stats", Shape::Block),
            ("bus stats", Shape::Block),
            ("ctlr stats", Shape::Block),
            ("device stats", Shape::Block),
            ("process flow stats", Shape::Block),
        ],
    },
    Unused {
        module: "disksim_iodriver_stats",
        reason: "the output of the reference",
        parameters: &[
            ("Print driver size stats", Whole),
            ("Print driver locality stats", Whole),
            ("Print driver blocking stats", Whole),
            ("Print driver interference stats", Whole),
            ("Print driver queue stats", Whole),
            ("Print driver crit stats", Whole),
            ("Print driver idle stats", Whole),
            ("Print driver intarr stats", Whole),
            ("Print driver streak stats", Whole),
            ("Print driver stamp stats", Whole),
            ("Print driver per-device stats", Whole),
        ],
    },
    Unused {
        module: "disksim_bus_stats",
        reason: "the output of the reference",
        parameters: &[("Print bus idle stats", Whole), ("Print bus arbwait stats", Whole)],
    },
    Unused {
        module: "disksim_ctlr_stats",
        reason: "the output of the reference",
        parameters: &[
            ("Print controller cache stats", Whole),
            ("Print controller size stats", Whole),
            ("Print controller locality stats", Whole),
            ("Print controller blocking stats", Whole),
            ("Print controller interference stats", Whole),
            ("Print controller queue stats", Whole),
            ("Print controller crit stats", Whole),
            ("Print controller idle stats", Whole),
            ("Print controller intarr stats", Whole),
            ("Print controller streak stats", Whole),
            ("Print controller stamp stats", Whole),
            ("Print controller per-device stats", Whole),
        ],
    },
    Unused {
        module: "disksim_device_stats",
        reason: "the output of the reference",
        parameters: &[
            ("Print device queue stats", Whole),
            ("Print device crit stats", Whole),
            ("Print device idle stats", Whole),
            ("Print device intarr stats", Whole),
            ("Print device size stats", Whole),
            ("Print device seek stats", Whole),
            ("Print device latency stats", Whole),
            ("Print device xfer stats", Whole),
            ("Print device acctime stats", Whole),
            ("Print device interfere stats", Whole),
            ("Print device buffer stats", Whole),
        ],
    },
    Unused {
        module: "disksim_pf_stats",
        reason: "the output of the reference",
        parameters: &[
            ("Print per-process stats", Whole),
            ("Print per-CPU stats", Whole),
            ("Print all interrupt stats", Whole),
            ("Print sleep stats", Whole),
        ],
    },
    Unused {
        module: "disksim_pf",
        reason: "processors of the reference's own workload generator",
        parameters: &[("Number of processors", Whole), ("Process-Flow Time Scale", Number)],
    },
    Unused {
        module: "disksim_synthio",
        reason: "a workload, which a device does not have",
        parameters: &[
            ("Number of I/O requests to generate", Whole),
            ("Maximum time of trace generated", Number),
            ("System call/return with each request", Whole),
            ("Think time from call to request", Number),
            ("Think time from request to return", Number),
            ("Generators", List),
        ],
    },
    Unused {
        module: "disksim_synthgen",
        reason: "a workload, which a device does not have",
        parameters: &[
            ("Storage capacity per device", Whole),
            ("devices", List),
            ("Blocking factor", Whole),
            ("Probability of sequential access", Number),
            ("Probability of local access", Number),
            ("Probability of read access", Number),
            ("Probability of time-critical request", Number),
            ("Probability of time-limited request", Number),
            ("Time-limited think times", List),
            ("General inter-arrival times", List),
            ("Sequential inter-arrival times", List),
            ("Local inter-arrival times", List),
            ("Local distances", List),
            ("Sizes", List),
        ],
    },
    Unused {
        module: "disksim_iosim",
        reason: "how the reference reads a trace",
        parameters: &[("I/O Trace Time Scale", Number), ("I/O Mappings", List)],
    },
    Unused {
        module: "disksim_iomap",
        reason: "how the reference reads a trace",
        parameters: &[
            ("tracedev", Whole),
            ("simdev", Word),
            ("locScale", Whole),
            ("sizeScale", Whole),
            ("offset", Whole),
        ],
    },
    Unused {
        module: "disksim_syncset",
        reason: "spindles that turn together; one device has one",
        parameters: &[("type", Word), ("devices", List)],
    },
];

/// Parameters of a queue that decide nothing in a drive's queue, each with its reason.
pub(super) const QUEUE: &[(&str, Shape, &str)] = &[
    ("Scheduling priority scheme", Whole, "requests carry no priority class in the validated setups"),
    ("Priority scheduling", Whole, "used by the priority scheme alone"),
    ("Timeout scheduling", Whole, "used by the timeout scheme alone"),
    ("Sequential stream diff maximum", Whole, "used by the sequential stream scheme alone"),
    ("Maximum concat size", Whole, "used by the sequential stream scheme alone"),
];

/// Parameters of a drive that have no effect on its timing, each with its reason.
pub(super) const DISK: &[(&str, Shape, &str)] = &[
    ("Print stats", Whole, "the output of the reference"),
    ("Avg sectors per cylinder", Whole, "an estimate for schedulers outside the drive"),
    ("Calc sector by sector", Whole, "a switch of the reference's implementation that it ignores"),
];

/// Checks the parameters of a block that describes the experiment; `None` if its module is another one.
pub(super) fn check<'a>(definitions: &'a Definitions<'a>, block: &'a Block) -> Option<Result<(), ProfileError>> {
    let module = match definitions.module_of(block) {
        Ok(module) => module,
        Err(error) => return Some(Err(error)),
    };
    let unused = MODULES.iter().find(|unused| unused.module == module.text)?;
    Some(check_block(definitions, block, unused))
}

fn check_block<'a>(
    definitions: &'a Definitions<'a>,
    block: &'a Block,
    unused: &'static Unused,
) -> Result<(), ProfileError> {
    let mut reader: Reader<'_> = definitions.reader(block)?;
    for &(name, shape) in unused.parameters {
        reader.without_effect(name, shape)?;
    }
    // Nested blocks are checked like those at the top.
    for parameter in &block.parameters {
        let values = match &parameter.value.data {
            Data::List(list) => list.as_slice(),
            _ => std::slice::from_ref(&parameter.value),
        };
        for value in values {
            if let Data::Block(inner) = &value.data {
                match check(definitions, inner) {
                    Some(checked) => checked?,
                    None => {
                        let (inner, reason) = (&inner.kind, unused.reason);
                        let message = format!("`{}` can't stand in {} ({reason})", shown(&inner.text), unused.module);
                        return Err(definitions.file.error(inner.place, message));
                    }
                }
            }
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_left_out_has_its_reason() {
        for unused in MODULES {
            assert!(!unused.reason.is_empty() && !unused.parameters.is_empty(), "{}", unused.module);
        }
        for &(name, _, reason) in QUEUE.iter().chain(DISK) {
            assert!(!reason.is_empty(), "{name}");
        }
    }
}
