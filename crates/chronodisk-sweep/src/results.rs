//! Results of a sweep: figures with intervals over the seeds, and the effects of the axes.

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_report::{Align, Curve, CurvePoint, FigureEstimate, Table, counted, four_digits};
use chronodisk_trace::bootstrap::{Bootstrap, caveats};
use serde::{Deserialize, Serialize};

use crate::cell::Value;
use crate::{Cell, Done, Sweep};

/// Name and version of [`Results`]' form.
pub const SWEEP_SCHEMA: &str = "chronodisk.sweep/1";

/// A sweep's findings. Contains nothing of the host: equal sweeps give equal bytes, if their cells do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SWEEP_SCHEMA`].
    pub schema: String,
    /// Version of Chronodisk.
    pub version: String,
    /// Command of each cell.
    pub command: String,
    /// Options that all cells have.
    pub options: BTreeMap<String, Value>,
    /// Values of each axis.
    pub axes: BTreeMap<String, Vec<Value>>,
    /// Seeds of each combination: N of the intervals.
    pub seeds: u64,
    /// Bootstrap draws: B of the intervals.
    pub draws: u32,
    /// Reservations about the intervals.
    pub warnings: Vec<String>,
    /// Cells that failed.
    pub failed: u64,
    /// One for each combination of the axes, in order.
    pub groups: Vec<Group>,
    /// Effect of each value of each axis on the main figures.
    pub effects: Vec<Effect>,
}

/// The cells of one combination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The combination.
    pub axes: BTreeMap<String, Value>,
    /// Names of its cells' files, by seed.
    pub cells: Vec<String>,
    /// Messages of the failed seeds.
    pub failures: Vec<String>,
    /// Means over the seeds with their intervals.
    pub figures: Vec<FigureEstimate>,
}

/// A main effect: how far the mean of the cells with one value of an axis is from the mean of all cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The figure.
    pub figure: String,
    /// The axis.
    pub axis: String,
    /// Its value.
    pub value: Value,
    /// Mean of the cells with it.
    pub mean: f64,
    /// Mean of the cells with this value less the mean of all cells, with intervals over the seeds.
    pub effect: FigureEstimate,
    /// Share of the figure's variance over all combinations that the axis explains alone, 0 to 1.
    pub explained: f64,
}

/// Figures that tables show, as far as there are any.
pub(crate) const MAIN_FIGURES: [&str; 4] = ["time_s", "iops", "latency_us.mean", "latency_us.p99"];

impl Results {
    /// Collects all cells of a sweep, in order, with their results.
    #[must_use]
    pub fn new(sweep: &Sweep, version: &str, cells: &[Cell], done: &[Done]) -> Self {
        let seeds = sweep.seeds as usize;
        let bootstrap = Bootstrap::new(1);
        let groups: Vec<Group> = cells
            .chunks(seeds)
            .zip(done.chunks(seeds))
            .map(|(cells, done)| Group::new(cells, done, &bootstrap))
            .collect();
        let warnings = caveats(sweep.seeds, None);
        Results {
            schema: SWEEP_SCHEMA.to_owned(),
            version: version.to_owned(),
            command: sweep.command.name().to_owned(),
            options: sweep.options.clone(),
            axes: sweep.axes.clone(),
            seeds: sweep.seeds,
            draws: bootstrap.draws,
            warnings: warnings.iter().map(ToString::to_string).collect(),
            failed: done.iter().filter(|done| done.status != 0).count() as u64,
            effects: effects(sweep, cells, done, &bootstrap),
            groups,
        }
    }

    /// Formats the results as JSON, with a line break at the end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        format!("{text}\n")
    }

    /// The names of all figures.
    #[must_use]
    pub fn figures(&self) -> BTreeSet<&str> {
        self.groups.iter().flat_map(|group| &group.figures).map(|figure| figure.name.as_str()).collect()
    }

    /// Formats the results for people.
    #[must_use]
    pub fn render(&self) -> String {
        let figures = self.figures();
        let shown: Vec<&str> = MAIN_FIGURES.into_iter().filter(|name| figures.contains(name)).collect();
        let columns = self.axes.keys().map(|axis| (axis.as_str(), Align::Left));
        let of_figures = shown.iter().flat_map(|name| [(*name, Align::Right), ("95 % BCa", Align::Right)]);
        let mut table = Table::new(columns.chain(of_figures));
        for group in &self.groups {
            let mut row: Vec<String> = group.axes.values().map(ToString::to_string).collect();
            for name in &shown {
                let figure = group.figures.iter().find(|figure| figure.name == *name);
                row.push(figure.map_or("-".to_owned(), |figure| four_digits(figure.value)));
                let ends = figure.and_then(|figure| figure.bca_95.or(figure.percentile_95));
                row.push(
                    ends.map_or("-".to_owned(), |[low, high]| format!("{} to {}", four_digits(low), four_digits(high))),
                );
            }
            table.row(row);
        }
        let mut text = table.render();
        text.push_str(&format!("N = {}, B = {}\n", counted(self.seeds, "seed"), counted(self.draws.into(), "draw")));
        for warning in &self.warnings {
            text.push_str(&format!("warning: {warning}\n"));
        }
        let varied = self.axes.values().any(|values| values.len() > 1);
        if varied && !self.effects.is_empty() {
            text.push_str("\nMain effects\n");
            text.push_str(&self.render_effects());
        }
        for group in &self.groups {
            for failure in &group.failures {
                let axes: Vec<String> = group.axes.iter().map(|(name, value)| format!("{name}={value}")).collect();
                text.push_str(&format!("failed: {}: {}\n", axes.join(" "), failure.lines().last().unwrap_or_default()));
            }
        }
        text
    }

    fn render_effects(&self) -> String {
        use Align::{Left, Right};
        let mut table = Table::new([
            ("figure", Left),
            ("axis", Left),
            ("value", Left),
            ("mean", Right),
            ("effect", Right),
            ("95 % BCa", Right),
            ("explains", Right),
        ]);
        for effect in &self.effects {
            let ends = effect.effect.bca_95.or(effect.effect.percentile_95);
            table.row([
                effect.figure.clone(),
                effect.axis.clone(),
                effect.value.to_string(),
                four_digits(effect.mean),
                format!("{}{}", if effect.effect.value > 0.0 { "+" } else { "" }, four_digits(effect.effect.value)),
                ends.map_or("-".to_owned(), |[low, high]| format!("{} to {}", four_digits(low), four_digits(high))),
                format!("{:.1} %", effect.explained * 100.0),
            ]);
        }
        table.render()
    }

    /// A curve for each combination of the other axes: points of `x` and `y` with the ends of their intervals. `x` is
    /// an axis with numbers, or a figure; `y` is a figure.
    ///
    /// # Errors
    /// If there are no such figures.
    #[must_use = "curves are only computed"]
    pub fn curves(&self, x: &str, y: &str) -> Result<Vec<Curve>, String> {
        let figures = self.figures();
        let expected = || {
            let axes = self.axes.iter().filter(|(_, values)| values.iter().all(|value| value.as_number().is_some()));
            let names: Vec<&str> = axes.map(|(name, _)| name.as_str()).chain(figures.iter().copied()).collect();
            names.join(", ")
        };
        let is_axis = self.axes.get(x).is_some_and(|values| values.iter().all(|value| value.as_number().is_some()));
        if !is_axis && !figures.contains(x) {
            return Err(format!("'{x}' is no axis with numbers and no figure; expected one of {}", expected()));
        }
        if !figures.contains(y) {
            let names: Vec<&str> = figures.iter().copied().collect();
            return Err(format!("'{y}' is no figure; expected one of {}", names.join(", ")));
        }
        let mut curves: BTreeMap<String, Vec<CurvePoint>> = BTreeMap::new();
        for group in &self.groups {
            let figure = |name: &str| group.figures.iter().find(|figure| figure.name == name);
            let others = group.axes.iter().filter(|(name, _)| !is_axis || *name != x);
            let label: Vec<String> = others.map(|(_, value)| value.to_string()).collect();
            let at = if is_axis { group.axes.get(x).and_then(Value::as_number) } else { figure(x).map(|f| f.value) };
            let (Some(at), Some(found)) = (at, figure(y)) else { continue };
            let ends = found.bca_95.or(found.percentile_95);
            // Without an axis, points have no order, and a curve would mean nothing.
            let label = if is_axis { label.join(", ") } else { label.first().cloned().unwrap_or_default() };
            curves.entry(label).or_default().push((at, found.value, ends));
        }
        let sorted = curves.into_iter().map(|(label, mut points)| {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            (label, points)
        });
        Ok(sorted.collect())
    }
}

impl Group {
    fn new(cells: &[Cell], done: &[Done], bootstrap: &Bootstrap) -> Self {
        let well: Vec<&Done> = done.iter().filter(|done| done.status == 0).collect();
        // Figures that only some seeds have (an operation that did not occur) have no mean.
        let names: Vec<&String> = well.first().map_or_else(Vec::new, |first| {
            first.figures.keys().filter(|name| well.iter().all(|done| done.figures.contains_key(*name))).collect()
        });
        let estimates = bootstrap.estimate_all(well.len(), names.len(), |copies, values| {
            let total: f64 = copies.iter().map(|copies| f64::from(*copies)).sum();
            for (value, name) in values.iter_mut().zip(&names) {
                let of_seeds = well.iter().zip(copies).map(|(done, copies)| done.figures[*name] * f64::from(*copies));
                *value = of_seeds.sum::<f64>() / total;
            }
        });
        Group {
            axes: cells.first().map(|cell| cell.axes.clone()).unwrap_or_default(),
            cells: done.iter().map(|done| done.name.clone()).collect(),
            failures: done.iter().filter_map(|done| done.message.clone()).collect(),
            figures: names.iter().zip(&estimates).map(|(name, all)| FigureEstimate::new(name, all)).collect(),
        }
    }
}

/// Main effects of all axes with more than one value on the main figures; none if a cell failed, since means over
/// different combinations can't be compared.
fn effects(sweep: &Sweep, cells: &[Cell], done: &[Done], bootstrap: &Bootstrap) -> Vec<Effect> {
    let mut found = Vec::new();
    let seeds = sweep.seeds as usize;
    for figure in MAIN_FIGURES {
        let values: Option<Vec<f64>> = done.iter().map(|done| done.figures.get(figure).copied()).collect();
        let Some(values) = values else { continue };
        let mean = |of: &mut dyn Iterator<Item = f64>| {
            let (sum, count) = of.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
            sum / count
        };
        let all = mean(&mut values.iter().copied());
        // Over combinations: their means over the seeds.
        let combined: Vec<f64> = values.chunks(seeds).map(|chunk| mean(&mut chunk.iter().copied())).collect();
        let variance: f64 = combined.iter().map(|value| (value - all).powi(2)).sum::<f64>() / combined.len() as f64;
        for (axis, levels) in sweep.axes.iter().filter(|(_, levels)| levels.len() > 1) {
            let of_level = |level: &Value, seed: Option<usize>| {
                let wanted = cells.iter().zip(&values).enumerate().filter(|(index, (cell, _))| {
                    seed.is_none_or(|seed| index % seeds == seed) && cell.axes.get(axis) == Some(level)
                });
                mean(&mut wanted.map(|(_, (_, value))| *value))
            };
            let squares: f64 = levels.iter().map(|level| (of_level(level, None) - all).powi(2)).sum();
            let explained = if variance > 0.0 { squares / levels.len() as f64 / variance } else { 0.0 };
            for level in levels {
                // Cells of one seed have the same chances: differences are paired.
                let differences: Vec<f64> = (0..seeds)
                    .map(|seed| {
                        let of_seed = values.iter().skip(seed).step_by(seeds).copied();
                        of_level(level, Some(seed)) - mean(&mut { of_seed })
                    })
                    .collect();
                let estimate = bootstrap.estimate(seeds, |copies| {
                    let total: f64 = copies.iter().map(|copies| f64::from(*copies)).sum();
                    differences.iter().zip(copies).map(|(one, copies)| one * f64::from(*copies)).sum::<f64>() / total
                });
                found.push(Effect {
                    figure: figure.to_owned(),
                    axis: axis.clone(),
                    value: level.clone(),
                    mean: of_level(level, None),
                    effect: FigureEstimate::new("effect", &estimate),
                    explained,
                });
            }
        }
    }
    found
}
