//! A model beside a measured sweep, before and after its constants were fitted.

use serde::{Deserialize, Serialize};

use crate::schema::to_json;
use crate::table::{Align, Table};

/// Name and version of [`SweepFit`]'s form.
pub const FIT_SCHEMA: &str = "chronodisk.fit/1";

/// Throughput and latency at one point. `None` is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SweepFigures {
    /// Requests per second.
    pub iops: Option<f64>,
    /// Mean latency in microseconds.
    pub mean_us: Option<f64>,
    /// Median.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// 99.9th percentile.
    pub p999_us: Option<f64>,
}

/// Use of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointUse {
    /// The constants were fitted to it.
    Fitted,
    /// The point was kept from the fit, as a test of the fit of the others.
    HeldOut,
    /// Excluded: its throughput is below that at a lower depth.
    Excluded,
}

impl PointUse {
    /// The word in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PointUse::Fitted => "fitted",
            PointUse::HeldOut => "held-out",
            PointUse::Excluded => "excluded",
        }
    }
}

/// A point of a sweep, measured and modelled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// The file that it comes from, as the user named it.
    pub file: String,
    /// Line of a CSV file, number of the job in fio's output.
    pub line: u64,
    /// The sweep that it belongs to.
    pub set: String,
    /// The access pattern, such as `random read`.
    pub access: String,
    /// `read` or `write`, if the figures are of one direction of a mixture.
    pub only: Option<String>,
    /// Size of a request.
    pub block_bytes: u64,
    /// Requests outstanding.
    pub depth: u32,
    /// Zones that it went to, where that was told.
    pub zones: Option<u32>,
    /// Use of the point.
    pub used: PointUse,
    /// Measured figures.
    pub measured: SweepFigures,
    /// Modelled figures with the original profile.
    pub before: SweepFigures,
    /// Modelled figures with the fitted constants; `None` if nothing was fitted.
    pub after: Option<SweepFigures>,
}

impl SweepPoint {
    fn modelled(&self) -> &SweepFigures {
        self.after.as_ref().unwrap_or(&self.before)
    }
}

/// A free constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FittedConstant {
    /// Key of the constant in the profile, with the names of the enclosing tables.
    pub key: String,
    /// Unit of all its values; empty for a plain number.
    pub unit: String,
    /// The least value that it may have.
    pub low: f64,
    /// The greatest value that it may have.
    pub high: f64,
    /// The profile's value.
    pub before: f64,
    /// The fitted value.
    pub after: f64,
}

impl FittedConstant {
    /// Whether it ended at a bound, within a thousandth of the way between them: then the data ask for more than the
    /// bounds allow, or say nothing about it.
    #[must_use]
    pub fn is_at_bound(&self) -> bool {
        let near = |bound: f64| (self.after - bound).abs() <= (self.high - self.low) / 1_000.0;
        near(self.low) || near(self.high)
    }
}

/// Errors of several points in per cent of the measured values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetError {
    /// The points' common property.
    pub name: String,
    /// Their number.
    pub points: u64,
    /// Mean of the absolute errors of the mean latency; `None` if none was measured.
    pub mean_percent: Option<f64>,
    /// The largest of them.
    pub mean_worst_percent: Option<f64>,
    /// Mean of the absolute errors of the 99th percentile.
    pub p99_percent: Option<f64>,
    /// The largest of them.
    pub p99_worst_percent: Option<f64>,
}

impl SetError {
    /// Errors over pairs of measured and modelled figures; `None` without pairs.
    #[must_use]
    pub fn of(name: &str, pairs: &[(SweepFigures, SweepFigures)]) -> Option<Self> {
        if pairs.is_empty() {
            return None;
        }
        let errors = |of: fn(&SweepFigures) -> Option<f64>| -> Vec<f64> {
            let error = |(measured, modelled): &(SweepFigures, SweepFigures)| percent(of(measured), of(modelled));
            pairs.iter().filter_map(error).map(f64::abs).collect()
        };
        let mean = |errors: &[f64]| (!errors.is_empty()).then(|| errors.iter().sum::<f64>() / errors.len() as f64);
        let worst = |errors: &[f64]| errors.iter().copied().reduce(f64::max);
        let (means, p99s) = (errors(|it| it.mean_us), errors(|it| it.p99_us));
        Some(SetError {
            name: name.to_owned(),
            points: pairs.len() as u64,
            mean_percent: mean(&means),
            mean_worst_percent: worst(&means),
            p99_percent: mean(&p99s),
            p99_worst_percent: worst(&p99s),
        })
    }
}

/// A profile that was considered, and how it was found by fits that did not see a part of the points.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StructureErrors {
    /// The profile as the user named it.
    pub profile: String,
    /// Errors of the left-out rows, divided by the aims: 4 % of the mean latency and 10 % of the 99th percentile.
    pub score: Option<f64>,
    /// Errors of each part that was left out.
    pub errors: Vec<SetError>,
}

/// Excess of the modelled figure over the measured one, in per cent.
fn percent(measured: Option<f64>, modelled: Option<f64>) -> Option<f64> {
    let (measured, modelled) = (measured?, modelled?);
    (measured > 0.0).then(|| (modelled / measured - 1.0) * 100.0)
}

/// A sweep that was not measured and would decide between structures of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingSweep {
    /// The requests and the state of the drive.
    pub name: String,
    /// Parts of the drive that the other sweeps do not tell apart.
    pub decides: String,
    /// A command line that measures it. Its device is `/dev/nvme0n1`, and writes overwrite the device.
    pub fio: String,
}

/// A model beside a measured sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepFit {
    /// [`FIT_SCHEMA`].
    pub schema: String,
    /// The profile as the user named it.
    pub profile: String,
    /// The files of the sweep as the user named them.
    pub data: Vec<String>,
    /// Requests simulated per point, those before the measurement left out. Writes on a drive in use get at least
    /// 65,536.
    pub requests: u64,
    /// Seed of workloads and devices.
    pub seed: u64,
    /// Capacity of the device, where it was not the profile's.
    pub capacity_bytes: Option<u64>,
    /// Devices simulated in the search.
    pub evaluations: u64,
    /// Whether the search was interrupted; the constants are the best found until then.
    pub interrupted: bool,
    /// The free constants; empty if nothing was fitted.
    pub constants: Vec<FittedConstant>,
    /// All points, in the order of the data.
    pub points: Vec<SweepPoint>,
    /// Errors of each set when the constants were fitted to the others alone; empty unless that was asked for.
    pub cross_validation: Vec<SetError>,
    /// All profiles that were considered, if there were several; the one with the smallest score was fitted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub structures: Vec<StructureErrors>,
    /// Sweeps that would decide between structures of a flash drive; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingSweep>,
}

impl SweepFit {
    /// Errors of the points that are used so, before and after.
    #[must_use]
    pub fn errors(&self, used: PointUse) -> Option<[SetError; 2]> {
        let chosen: Vec<&SweepPoint> = self.points.iter().filter(|point| point.used == used).collect();
        let before: Vec<_> = chosen.iter().map(|point| (point.measured, point.before)).collect();
        let after: Vec<_> = chosen.iter().map(|point| (point.measured, *point.modelled())).collect();
        Some([SetError::of(used.name(), &before)?, SetError::of(used.name(), &after)?])
    }

    /// Errors of each set and use, before and after, in the order of the data.
    #[must_use]
    pub fn errors_by_set(&self) -> Vec<(PointUse, [SetError; 2])> {
        let mut groups: Vec<(PointUse, &str)> = Vec::new();
        for point in &self.points {
            let group = (point.used, point.set.as_str());
            if !groups.contains(&group) {
                groups.push(group);
            }
        }
        let of_group = |(used, set): (PointUse, &str)| {
            let chosen: Vec<_> = self.points.iter().filter(|point| point.used == used && point.set == set).collect();
            let before: Vec<_> = chosen.iter().map(|point| (point.measured, point.before)).collect();
            let after: Vec<_> = chosen.iter().map(|point| (point.measured, *point.modelled())).collect();
            Some((used, [SetError::of(set, &before)?, SetError::of(set, &after)?]))
        };
        groups.into_iter().filter_map(of_group).collect()
    }

    /// Formats the report as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        to_json(self)
    }

    /// Formats the report as tables for people: each set's points, the constants, the errors.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut sets: Vec<&str> = Vec::new();
        for point in &self.points {
            if !sets.contains(&point.set.as_str()) {
                sets.push(&point.set);
                let of_set = self.points.iter().filter(|other| other.set == point.set);
                text.push_str(&format!("{}: {}\n{}\n", point.set, point.access, self.points_table(of_set)));
            }
        }
        if !self.constants.is_empty() {
            text.push_str(&format!("{}\n", self.constants_table()));
        }
        text.push_str(&self.errors_table());
        if !self.structures.is_empty() {
            text.push_str(&format!("\n{}", self.structures_table()));
        }
        for warning in self.made_worse() {
            text.push_str(&format!("\nwarning: {warning}\n"));
        }
        if !self.missing.is_empty() {
            text.push_str(
                "\nnot measured, although it would decide between structures (writes overwrite the device):\n",
            );
        }
        for MissingSweep { name, decides, fio } in &self.missing {
            text.push_str(&format!("- {name}\n  decides: {decides}\n  {fio}\n"));
        }
        text
    }

    /// Errors that the fit increased, by at least the resolution of the tables.
    #[must_use]
    pub fn made_worse(&self) -> Vec<String> {
        if self.points.iter().all(|point| point.after.is_none()) {
            return Vec::new();
        }
        let mut found = Vec::new();
        for used in [PointUse::Fitted, PointUse::HeldOut] {
            let Some([before, after]) = self.errors(used) else { continue };
            let figures =
                [("mean", before.mean_percent, after.mean_percent), ("p99", before.p99_percent, after.p99_percent)];
            for (figure, before, after) in figures {
                let (Some(before), Some(after)) = (before, after) else { continue };
                if after >= before + 0.05 {
                    let points = used.name();
                    found.push(format!(
                        "the fit made the error of the {figure} larger on the {points} points: {after:.1} %, before \
                         {before:.1} %"
                    ));
                }
            }
        }
        found
    }

    fn points_table<'a>(&self, points: impl Iterator<Item = &'a SweepPoint>) -> String {
        use Align::{Left, Right};
        let fitted = self.points.iter().any(|point| point.after.is_some());
        let mut columns = vec![
            ("size", Right),
            ("depth", Right),
            ("mean µs", Right),
            ("model", Right),
            ("error", Right),
            ("p99 µs", Right),
            ("model", Right),
            ("error", Right),
        ];
        if fitted {
            columns.extend([("before: mean", Right), ("p99", Right)]);
        }
        columns.push(("", Left));
        let mut table = Table::new(columns);
        for point in points {
            let (measured, modelled) = (&point.measured, point.modelled());
            let mut row = vec![
                size(point.block_bytes),
                point.depth.to_string(),
                micros(measured.mean_us),
                micros(modelled.mean_us),
                signed(percent(measured.mean_us, modelled.mean_us)),
                micros(measured.p99_us),
                micros(modelled.p99_us),
                signed(percent(measured.p99_us, modelled.p99_us)),
            ];
            if fitted {
                row.push(signed(percent(measured.mean_us, point.before.mean_us)));
                row.push(signed(percent(measured.p99_us, point.before.p99_us)));
            }
            row.push(if point.used == PointUse::Fitted { "" } else { point.used.name() }.to_owned());
            table.row(row);
        }
        table.render()
    }

    fn constants_table(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("constant", Left),
            ("before", Right),
            ("after", Right),
            ("from", Right),
            ("to", Right),
            ("unit", Left),
            ("", Left),
        ]);
        for constant in &self.constants {
            let bound = if constant.is_at_bound() { "at its bound" } else { "" };
            table.row([
                constant.key.clone(),
                constant.before.to_string(),
                constant.after.to_string(),
                constant.low.to_string(),
                constant.high.to_string(),
                constant.unit.clone(),
                bound.to_owned(),
            ]);
        }
        table.render()
    }

    /// A line for each profile and part that was left out.
    fn structures_table(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("structure", Left),
            ("left out", Left),
            ("points", Right),
            ("mean", Right),
            ("p99", Right),
            ("score", Right),
        ]);
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} %"));
        for structure in &self.structures {
            for error in &structure.errors {
                table.row([
                    structure.profile.clone(),
                    error.name.clone(),
                    error.points.to_string(),
                    cell(error.mean_percent),
                    cell(error.p99_percent),
                    String::new(),
                ]);
            }
            let points: u64 = structure.errors.iter().map(|error| error.points).sum();
            let score = structure.score.map_or("-".to_owned(), |score| format!("{score:.3}"));
            let [name, all] = [structure.profile.clone(), "all".to_owned()];
            table.row([name, all, points.to_string(), String::new(), String::new(), score]);
        }
        table.render()
    }

    fn errors_table(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("absolute error", Left),
            ("", Left),
            ("points", Right),
            ("mean", Right),
            ("worst", Right),
            ("p99", Right),
            ("worst", Right),
        ]);
        let mut push = |name: &str, kind: &str, error: &SetError| {
            let cell = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} %"));
            table.row([
                name.to_owned(),
                kind.to_owned(),
                error.points.to_string(),
                cell(error.mean_percent),
                cell(error.mean_worst_percent),
                cell(error.p99_percent),
                cell(error.p99_worst_percent),
            ]);
        };
        let fitted = self.points.iter().any(|point| point.after.is_some());
        for (used, [before, after]) in self.errors_by_set() {
            push(&after.name, used.name(), if fitted { &after } else { &before });
        }
        for error in &self.cross_validation {
            push(&error.name, "left out", error);
        }
        for used in [PointUse::Fitted, PointUse::HeldOut] {
            let Some([before, after]) = self.errors(used) else { continue };
            let kind = if fitted { used.name() } else { "" };
            if fitted {
                push("all, before", kind, &before);
            }
            push("all", kind, &after);
        }
        table.render()
    }
}

fn micros(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.1}"))
}

fn signed(value: Option<f64>) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:+.1} %"))
}

/// In the largest binary unit that leaves a whole number.
fn size(bytes: u64) -> String {
    match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(mean: f64, p99: Option<f64>) -> SweepFigures {
        SweepFigures { mean_us: Some(mean), p99_us: p99, ..SweepFigures::default() }
    }

    fn point(depth: u32, used: PointUse, measured: f64, before: f64, after: Option<f64>) -> SweepPoint {
        SweepPoint {
            file: "a.csv".to_owned(),
            line: u64::from(depth),
            set: "drive randread".to_owned(),
            access: "random read".to_owned(),
            only: None,
            block_bytes: 4_096,
            depth,
            zones: None,
            used,
            measured: figures(measured, Some(2.0 * measured)),
            before: figures(before, None),
            after: after.map(|mean| figures(mean, Some(3.0 * mean))),
        }
    }

    fn fit() -> SweepFit {
        SweepFit {
            schema: FIT_SCHEMA.to_owned(),
            profile: "p.toml".to_owned(),
            data: vec!["a.csv".to_owned()],
            requests: 1_000,
            seed: 1,
            capacity_bytes: None,
            evaluations: 12,
            interrupted: false,
            constants: vec![FittedConstant {
                key: "flash.read".to_owned(),
                unit: "us".to_owned(),
                low: 40.0,
                high: 60.0,
                before: 50.0,
                after: 60.0,
            }],
            points: vec![
                point(1, PointUse::Fitted, 100.0, 150.0, Some(110.0)),
                point(2, PointUse::Fitted, 100.0, 50.0, Some(80.0)),
                point(64, PointUse::HeldOut, 200.0, 200.0, Some(202.0)),
            ],
            cross_validation: Vec::new(),
            structures: Vec::new(),
            missing: Vec::new(),
        }
    }

    #[test]
    fn errors_are_means_of_absolute_per_cents() {
        let [before, after] = fit().errors(PointUse::Fitted).unwrap();
        assert_eq!((before.mean_percent, before.p99_percent, before.points), (Some(50.0), None, 2));
        assert!((after.mean_percent.unwrap() - 15.0).abs() < 1e-9);
        assert!((after.mean_worst_percent.unwrap() - 20.0).abs() < 1e-9);
        // 330 and 240 against 200.
        assert!((after.p99_percent.unwrap() - 42.5).abs() < 1e-9);
        assert!(fit().errors(PointUse::Excluded).is_none() && SetError::of("", &[]).is_none());
        assert_eq!(fit().errors_by_set().len(), 2);
    }

    #[test]
    fn a_fit_reads_like_this() {
        let expected = "\
drive randread: random read
 size  depth  mean µs  model    error  p99 µs  model    error  before: mean  p99
-----  -----  -------  -----  -------  ------  -----  -------  ------------  ---  --------
4 KiB      1    100.0  110.0  +10.0 %   200.0  330.0  +65.0 %       +50.0 %    -
4 KiB      2    100.0   80.0  -20.0 %   200.0  240.0  +20.0 %       -50.0 %    -
4 KiB     64    200.0  202.0   +1.0 %   400.0  606.0  +51.5 %        +0.0 %    -  held-out

constant    before  after  from  to  unit
----------  ------  -----  ----  --  ----  ------------
flash.read      50     60    40  60  us    at its bound

absolute error            points    mean   worst     p99   worst
--------------  --------  ------  ------  ------  ------  ------
drive randread  fitted         2  15.0 %  20.0 %  42.5 %  65.0 %
drive randread  held-out       1   1.0 %   1.0 %  51.5 %  51.5 %
all, before     fitted         2  50.0 %  50.0 %       -       -
all             fitted         2  15.0 %  20.0 %  42.5 %  65.0 %
all, before     held-out       1   0.0 %   0.0 %       -       -
all             held-out       1   1.0 %   1.0 %  51.5 %  51.5 %

warning: the fit made the error of the mean larger on the held-out points: 1.0 %, before 0.0 %
";
        assert_eq!(fit().render(), expected);
    }

    #[test]
    fn missing_sweeps_come_last() {
        let (name, decides, fio) = ("a mixture".to_owned(), "the order".to_owned(), "fio --rw=randrw".to_owned());
        let told = SweepFit { missing: vec![MissingSweep { name, decides, fio }], ..fit() };
        let expected = "\
not measured, although it would decide between structures (writes overwrite the device):
- a mixture
  decides: the order
  fio --rw=randrw
";
        assert!(told.render().ends_with(expected), "{}", told.render());
        assert_eq!(serde_json::from_str::<SweepFit>(&told.to_json()).unwrap(), told);
        assert!(!fit().to_json().contains("missing"));
    }

    #[test]
    fn json_reads_back() {
        let json = fit().to_json();
        assert!(json.starts_with("{\n  \"schema\": \"chronodisk.fit/1\"") && json.contains("\"held-out\""));
        assert_eq!(serde_json::from_str::<SweepFit>(&json).unwrap(), fit());
    }
}
