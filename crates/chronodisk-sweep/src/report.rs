//! Provenance of a sweep's results, and the page that shows them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use chronodisk_report::{
    HostInfo, SweepCell, SweepCombination, SweepCurves, SweepEffect, SweepReport, render_sweep_report, utc_timestamp,
};
use chronodisk_sim::TextFile;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::cell::Value;
use crate::results::MAIN_FIGURES;
use crate::{Done, Group, Results, SWEEP_SCHEMA, SweepError};

/// Name and version of [`Provenance`]'s form.
pub const PROVENANCE_SCHEMA: &str = "chronodisk.sweep-provenance/1";

/// Facts about the host and the day, which are therefore not in [`Results`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// [`PROVENANCE_SCHEMA`].
    pub schema: String,
    /// Version of Chronodisk.
    pub version: String,
    /// Digest of the executable.
    pub executable: String,
    /// The host that wrote the results.
    pub host: HostInfo,
    /// Load averages of the host at the end.
    pub load: String,
    /// Cells that were done at the same time.
    pub jobs: usize,
    /// The cells, in order.
    pub cells: Vec<CellProvenance>,
}

/// Provenance of one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellProvenance {
    /// The name of its file.
    pub cell: String,
    /// Exit status.
    pub status: i32,
    /// Start time, in seconds since 1970.
    pub begun_unix_s: u64,
    /// Duration on its host.
    pub host_s: f64,
}

impl CellProvenance {
    pub(crate) fn of(done: &Done) -> Self {
        CellProvenance {
            cell: done.name.clone(),
            status: done.status,
            begun_unix_s: done.begun_unix_s,
            host_s: done.host_s,
        }
    }
}

/// Name of the file of [`Results`].
pub const RESULTS_FILE: &str = "sweep.json";
pub(crate) const PROVENANCE_FILE: &str = "sweep.provenance.json";
/// Name of the report in a sweep's directory.
pub const REPORT_FILE: &str = "sweep.html";
/// Number of axes with charts by default: those with the most values.
const AXES_CHARTED: usize = 3;

impl Results {
    /// Reads the results in a directory.
    ///
    /// # Errors
    /// If the file can't be read, or is no result of a sweep.
    pub fn read(directory: &Path) -> Result<Self, SweepError> {
        let path = directory.join(RESULTS_FILE);
        let results: Results = read(&path)?;
        expect_schema(&path, &results.schema, SWEEP_SCHEMA)?;
        Ok(results)
    }

    /// Renders the page. `plots` are additional charts: the name of an axis or a figure for x, and of a figure for y.
    ///
    /// # Errors
    /// If there are no such figures.
    pub fn report(
        &self,
        provenance: &Provenance,
        plots: &[(String, String)],
        title: &str,
        made_by: &str,
    ) -> Result<String, String> {
        let figures = self.figures();
        let main_figures: Vec<String> =
            MAIN_FIGURES.into_iter().filter(|name| figures.contains(name)).map(str::to_owned).collect();
        let is_number = |(_, values): &(&String, &Vec<Value>)| {
            values.len() > 1 && values.iter().all(|value| value.as_number().is_some())
        };
        let mut axes: Vec<(&String, &Vec<Value>)> = self.axes.iter().filter(is_number).collect();
        axes.sort_by_key(|(_, values)| std::cmp::Reverse(values.len()));
        let usual = axes
            .iter()
            .take(AXES_CHARTED)
            .flat_map(|(axis, _)| main_figures.iter().map(|figure| ((*axis).clone(), figure.clone())));
        let mut charts: Vec<(String, String)> = plots.to_vec();
        charts.extend(usual.filter(|chart| !plots.contains(chart)));
        let cells: BTreeMap<&str, &CellProvenance> =
            provenance.cells.iter().map(|cell| (cell.cell.as_str(), cell)).collect();
        let curves = charts.into_iter().map(|(x, y)| Ok(SweepCurves { curves: self.curves(&x, &y)?, x, y }));
        let report = SweepReport {
            title: title.to_owned(),
            made_by: made_by.to_owned(),
            sweep: self.described(),
            warnings: self.warnings.clone(),
            axes: self.axes.keys().cloned().collect(),
            curves: curves.collect::<Result<_, String>>()?,
            main_figures,
            combinations: self.groups.iter().map(|group| combination(group, &cells)).collect(),
            effects: self
                .effects
                .iter()
                .map(|effect| SweepEffect {
                    figure: effect.figure.clone(),
                    axis: effect.axis.clone(),
                    value: effect.value.to_string(),
                    mean: effect.mean,
                    effect: effect.effect.clone(),
                    explained: effect.explained,
                })
                .collect(),
            seeds: self.seeds,
            draws: self.draws,
            provenance: provenance.described(),
        };
        Ok(render_sweep_report(&report))
    }

    /// The sweep's properties, as names and values.
    fn described(&self) -> Vec<(String, String)> {
        let list = |values: &[Value]| values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let mut pairs = vec![("command".to_owned(), self.command.clone())];
        pairs.extend(self.options.iter().map(|(name, value)| (format!("option {name}"), value.to_string())));
        pairs.extend(self.axes.iter().map(|(name, values)| (format!("axis {name}"), list(values))));
        pairs.push(("seeds".to_owned(), format!("1 to {}", self.seeds)));
        pairs
    }
}

fn combination(group: &Group, cells: &BTreeMap<&str, &CellProvenance>) -> SweepCombination {
    let cell = |(seed, name): (u64, &String)| {
        let known = cells.get(name.as_str());
        SweepCell {
            name: name.clone(),
            seed,
            status: known.map(|cell| cell.status),
            host_s: known.map(|cell| cell.host_s),
        }
    };
    SweepCombination {
        axes: group.axes.values().map(ToString::to_string).collect(),
        figures: group.figures.clone(),
        cells: (1..).zip(&group.cells).map(cell).collect(),
        failures: group.failures.clone(),
    }
}

impl Provenance {
    /// Reads the provenance in a directory.
    ///
    /// # Errors
    /// If the file can't be read, or is of another kind.
    pub fn read(directory: &Path) -> Result<Self, SweepError> {
        let path = directory.join(PROVENANCE_FILE);
        let provenance: Provenance = read(&path)?;
        expect_schema(&path, &provenance.schema, PROVENANCE_SCHEMA)?;
        Ok(provenance)
    }

    fn described(&self) -> Vec<(String, String)> {
        let host = &self.host;
        let mut pairs = vec![
            ("made by", format!("chronodisk {}, executable {}", self.version, self.executable)),
            ("host", format!("{}, {} CPUs, Linux {}", host.cpu_model, host.cores, host.kernel)),
            ("load averages at the end", self.load.clone()),
            ("cells at the same time", self.jobs.to_string()),
        ];
        let begun = |cell: &CellProvenance| cell.begun_unix_s;
        if let (Some(first), Some(last)) =
            (self.cells.iter().map(begun).min(), self.cells.iter().max_by_key(|cell| begun(cell)))
        {
            pairs.push(("first cell", format!("{} (host's clock, UTC)", utc_timestamp(first, "-:"))));
            pairs.push(("last cell", format!("{} (host's clock, UTC)", utc_timestamp(begun(last), "-:"))));
            let total: f64 = self.cells.iter().map(|cell| cell.host_s).sum();
            pairs.push(("time of all cells on their hosts", format!("{total:.3} s")));
        }
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, SweepError> {
    let wrong = |error: &dyn std::fmt::Display| SweepError::Usage(format!("{}: {error}", path.display()));
    let file = fs::File::open(path).map_err(|error| wrong(&format!("can't read: {error}")))?;
    let text = TextFile::SweepResults.read(file).map_err(|error| wrong(&format!("can't read: {error}")))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}

fn expect_schema(path: &Path, found: &str, expected: &str) -> Result<(), SweepError> {
    if found == expected {
        return Ok(());
    }
    Err(SweepError::Usage(format!("{}: schema: \"{found}\"; expected \"{expected}\"", path.display())))
}
