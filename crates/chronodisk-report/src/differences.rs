//! Differences of two runs besides the compared device.

use std::fmt::Display;

use serde_json::Value;

use crate::RunResult;
use crate::surroundings::Surroundings;

/// Options without effect on a run's behaviour, and options with a field of their own in the result.
const OPTIONS_TOLD_OTHERWISE: [&str; 22] = [
    "capacity_bytes",
    "clock",
    "cpu",
    "cpu_speed",
    "device",
    "device_speed",
    "limit",
    "fs",
    "json",
    "kernel_scale",
    "memory_bytes",
    "mkfs_options",
    "mount_options",
    "name",
    "note",
    "output",
    "quiet",
    "reps",
    "scheduler",
    "seed",
    "server_token",
    "tag",
];
/// Most environment variables that are named.
const VARIABLES_NAMED: usize = 5;
/// A longer value is not shown.
const VALUE_CHARACTERS_MAX: usize = 40;

/// The differences, each by name, with the values of run and baseline where they are short.
pub(crate) fn differences(run: &RunResult, baseline: &RunResult) -> Vec<String> {
    let mut found = Differences(Vec::new());
    found.named("command", run.command != baseline.command);
    let (one, two) = (&run.clock, &baseline.clock);
    found.valued("clock", &one.driver, &two.driver);
    found.valued("cpu", &one.cpu, &two.cpu);
    found.named("calibration", one.kernel_costs != two.kernel_costs || one.calibrated != two.calibrated);
    found.optional("kernel scale", one.kernel_scale, two.kernel_scale);
    found.optional("cpu speed", one.cpu_speed, two.cpu_speed);
    let (one, two) = (&run.guest, &baseline.guest);
    let kernel = |run: &RunResult| run.guest.kernel.clone().unwrap_or_default();
    found.valued("guest's kernel", &kernel(run), &kernel(baseline));
    found.valued("memory", one.memory_bytes.unwrap_or_default(), two.memory_bytes.unwrap_or_default());
    found.valued("fs", &one.file_system, &two.file_system);
    found.valued("mkfs options", &one.mkfs_options, &two.mkfs_options);
    found.valued("mount options", &one.mount_options, &two.mount_options);
    found.valued("scheduler", &one.scheduler, &two.scheduler);
    found.valued("capacity", run.device.capacity_bytes, baseline.device.capacity_bytes);
    found.optional("device speed", run.device.speed, baseline.device.speed);
    found.optional("limits", run.device.limits.as_deref(), baseline.device.limits.as_deref());
    let [one, two] = [run, baseline].map(|run| Some(run.device.faults.join(" ")).filter(|faults| !faults.is_empty()));
    found.optional("faults", one.as_deref(), two.as_deref());
    found.options(run, baseline);
    if let (Some(one), Some(two)) = (&run.surroundings, &baseline.surroundings) {
        found.surroundings(one, two, run.guest.kernel == baseline.guest.kernel);
    }
    let (one, two) = (&run.host, &baseline.host);
    found.valued("host's processor", &one.cpu_model, &two.cpu_model);
    found.valued("host's CPUs", one.cores, two.cores);
    found.valued("host's kernel", &one.kernel, &two.kernel);
    found.0
}

struct Differences(Vec<String>);

impl Differences {
    fn named(&mut self, name: &str, differs: bool) {
        if differs {
            self.0.push(name.to_owned());
        }
    }

    fn valued<T: Display + PartialEq>(&mut self, name: &str, run: T, baseline: T) {
        if run == baseline {
            return;
        }
        let shown = |value: T| match value.to_string() {
            text if text.is_empty() => "none".to_owned(),
            text => text,
        };
        let (run, baseline) = (shown(run), shown(baseline));
        let is_short = |text: &String| text.chars().count() <= VALUE_CHARACTERS_MAX;
        match is_short(&run) && is_short(&baseline) {
            true => self.0.push(format!("{name} ({run}, {baseline})")),
            false => self.0.push(name.to_owned()),
        }
    }

    fn optional<T: Display>(&mut self, name: &str, run: Option<T>, baseline: Option<T>) {
        let shown = |value: Option<T>| value.map_or_else(String::new, |value| value.to_string());
        self.valued(name, shown(run), shown(baseline));
    }

    /// Options that both results have. One of an older version lacks some.
    fn options(&mut self, run: &RunResult, baseline: &RunResult) {
        let shown = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        for (name, value) in &run.options {
            let Some(other) = baseline.options.get(name) else { continue };
            if !OPTIONS_TOLD_OTHERWISE.contains(&name.as_str()) {
                self.valued(name, shown(value), shown(other));
            }
        }
    }

    fn surroundings(&mut self, run: &Surroundings, baseline: &Surroundings, equal_releases: bool) {
        // Kernels of two releases were told above.
        self.named("build of the guest's kernel", equal_releases && run.kernel_hash != baseline.kernel_hash);
        self.named("executable of the command", run.program_hash != baseline.program_hash);
        self.optional("distribution", run.distribution.as_ref(), baseline.distribution.as_ref());
        self.named("installed packages", run.packages_hash != baseline.packages_hash);
        let variables = run.variables_that_differ(baseline);
        if variables.is_empty() {
            return;
        }
        let named = variables.iter().take(VARIABLES_NAMED).copied().collect::<Vec<_>>().join(", ");
        let more = match variables.len().saturating_sub(VARIABLES_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.0.push(format!("environment ({named}{more})"));
    }
}
