//! The report of a sweep: its combinations with intervals, charts, main effects, and where they come from.

use serde::Serialize;

use super::{escaped, open_page, page, text};
use crate::{Curve, FigureEstimate, counted, four_digits};

const SCRIPT: &str = include_str!("../../assets/sweep.js");

/// Rows of a table at most: a sweep may have a million cells, whose table is `sweep.parquet`.
const ROWS_MAX: usize = 2_000;
/// Curves of a chart at most; more can't be told apart.
const CURVES_MAX: usize = 60;
/// Rows of a chart of combinations at most.
const BARS_MAX: usize = 60;

/// Contents of a sweep's report.
#[derive(Clone, Debug, Default)]
pub struct SweepReport {
    /// Title of the page.
    pub title: String,
    /// Names the program and its version.
    pub made_by: String,
    /// The sweep's properties: names and values.
    pub sweep: Vec<(String, String)>,
    /// Reservations about the figures.
    pub warnings: Vec<String>,
    /// Names of the axes.
    pub axes: Vec<String>,
    /// Figures that the tables and charts show, as far as combinations have them.
    pub main_figures: Vec<String>,
    /// A row for each combination.
    pub combinations: Vec<SweepCombination>,
    /// Main effect of each value of each axis.
    pub effects: Vec<SweepEffect>,
    /// Figures against axes.
    pub curves: Vec<SweepCurves>,
    /// How many seeds each combination has: N of the intervals.
    pub seeds: u64,
    /// Bootstrap draws: B of the intervals.
    pub draws: u32,
    /// Host, date and load: names and values.
    pub provenance: Vec<(String, String)>,
}

/// The cells of one combination.
#[derive(Clone, Debug, Default)]
pub struct SweepCombination {
    /// The value of each axis.
    pub axes: Vec<String>,
    /// Means over the seeds with their intervals.
    pub figures: Vec<FigureEstimate>,
    /// The cells by seed.
    pub cells: Vec<SweepCell>,
    /// Messages of the failed cells.
    pub failures: Vec<String>,
}

/// One cell.
#[derive(Clone, Debug, Default)]
pub struct SweepCell {
    /// The name of its file.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Exit status; `None` if it is not known.
    pub status: Option<i32>,
    /// Seconds that it took on its host; `None` if it is not known.
    pub host_s: Option<f64>,
}

/// A main effect.
#[derive(Clone, Debug)]
pub struct SweepEffect {
    /// The figure.
    pub figure: String,
    /// The axis.
    pub axis: String,
    /// The axis's value.
    pub value: String,
    /// Mean of the cells with this value.
    pub mean: f64,
    /// Excess of this mean over the mean of all cells.
    pub effect: FigureEstimate,
    /// Share of the figure's variance that the axis explains alone, 0 to 1.
    pub explained: f64,
}

/// A figure against an axis or another figure.
#[derive(Clone, Debug)]
pub struct SweepCurves {
    /// Name of the horizontal axis.
    pub x: String,
    /// Name of the vertical axis.
    pub y: String,
    /// A curve for each combination of the other axes.
    pub curves: Vec<Curve>,
}

/// Input of the script.
#[derive(Serialize)]
struct Data {
    curves: Vec<DataCurves>,
    bars: Vec<DataBars>,
}

#[derive(Serialize)]
struct DataCurves {
    id: String,
    title: String,
    x: String,
    y: String,
    lines: Vec<DataLine>,
    #[serde(skip)]
    left_out: usize,
}

#[derive(Serialize)]
struct DataLine {
    name: String,
    /// Coordinates of each point, and the ends of its interval.
    points: Vec<(f64, f64, Option<f64>, Option<f64>)>,
}

#[derive(Serialize)]
struct DataBars {
    id: String,
    title: String,
    name: String,
    rows: Vec<DataRow>,
}

#[derive(Serialize)]
struct DataRow {
    index: usize,
    label: String,
    mean: f64,
    low: f64,
    high: f64,
    words: String,
}

/// The page.
#[must_use]
pub fn render_sweep_report(report: &SweepReport) -> String {
    let curves: Vec<DataCurves> = report.curves.iter().enumerate().filter_map(curves).collect();
    // Without a numeric axis, the combinations are a list.
    let combinations = if curves.is_empty() { combination_bars(report) } else { Vec::new() };
    let effects = effect_bars(report);
    let mut body = String::new();
    let cells: usize = report.combinations.iter().map(|combination| combination.cells.len()).sum();
    let what = format!(
        "{}: {}, {} each",
        counted(cells as u64, "cell"),
        counted(report.combinations.len() as u64, "combination"),
        counted(report.seeds, "seed")
    );
    open_page(&mut body, &report.title, &what, &report.made_by);
    let failed: usize = report.combinations.iter().map(|combination| combination.failures.len()).sum();
    if failed > 0 {
        let all = counted(cells as u64, "cell");
        let text = "Their combinations have the figures of the other seeds only";
        body.push_str(&format!("<p class=\"warning\">{failed} of {all} failed. {text}.</p>\n"));
    }
    for warning in &report.warnings {
        body.push_str(&format!("<p class=\"warning\">{}</p>\n", escaped(warning)));
    }
    body.push_str("<h2>Sweep</h2>\n");
    text::pairs(&mut body, &report.sweep);
    combination_table(&mut body, report);
    if !(curves.is_empty() && combinations.is_empty()) {
        body.push_str("<h2>Charts</h2>\n<div class=\"grid\">\n");
        curves.iter().for_each(|chart| body.push_str(&format!("<div class=\"chart\" id=\"{}\"></div>\n", chart.id)));
        combinations.iter().for_each(|chart| bars(&mut body, chart));
        body.push_str("</div>\n");
        if let Some(left_out) = curves.iter().map(|chart| chart.left_out).max().filter(|left_out| *left_out > 0) {
            body.push_str(&format!(
                "<p class=\"dim\">Charts show {CURVES_MAX} curves; {left_out} more are in sweep.json.</p>\n"
            ));
        }
    }
    effect_section(&mut body, report, &effects);
    failures(&mut body, report);
    all_figures(&mut body, report);
    cell_table(&mut body, report);
    body.push_str("<h2>Provenance</h2>\n");
    text::pairs(&mut body, &report.provenance);
    body.push_str("</main>\n");
    let data = Data { curves, bars: combinations.into_iter().chain(effects).collect() };
    let json = serde_json::to_string(&data).expect("plain data with text keys has a JSON form");
    page(&report.title, &body, &json, SCRIPT)
}

fn curves((index, found): (usize, &SweepCurves)) -> Option<DataCurves> {
    let point = |&(x, y, ends): &crate::CurvePoint| {
        let [low, high] = ends.map_or([None; 2], |ends| ends.map(Some));
        (x, y, low, high)
    };
    let finite = |(x, y, _, _): &(f64, f64, _, _)| x.is_finite() && y.is_finite();
    let lines: Vec<DataLine> = found
        .curves
        .iter()
        .take(CURVES_MAX)
        .map(|(name, points)| DataLine {
            name: name.clone(),
            points: points.iter().map(point).filter(finite).collect(),
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    (!lines.is_empty()).then(|| DataCurves {
        id: format!("curves-{index}"),
        title: format!("{} against {}", found.y, found.x),
        x: found.x.clone(),
        y: found.y.clone(),
        lines,
        left_out: found.curves.len().saturating_sub(CURVES_MAX),
    })
}

fn combination_bars(report: &SweepReport) -> Vec<DataBars> {
    if report.combinations.len() < 2 {
        return Vec::new();
    }
    let of_figure = |(number, name): (usize, &String)| {
        let rows: Vec<DataRow> = report
            .combinations
            .iter()
            .take(BARS_MAX)
            .enumerate()
            .filter_map(|(index, combination)| {
                let figure = combination.figures.iter().find(|figure| figure.name == *name)?;
                let words = format!("{}{}", four_digits(figure.value), parenthesised(figure));
                Some(row(index, combination.axes.join(", "), figure, words))
            })
            .collect();
        let title = match report.combinations.len() {
            more if more > BARS_MAX => format!("{name}, the first {BARS_MAX} of {more} combinations"),
            _ => name.clone(),
        };
        (!rows.is_empty()).then(|| DataBars { id: format!("bars-{number}"), title, name: name.clone(), rows })
    };
    report.main_figures.iter().enumerate().filter_map(of_figure).collect()
}

fn effect_bars(report: &SweepReport) -> Vec<DataBars> {
    let of_figure = |(number, name): (usize, &String)| {
        let of_it: Vec<&SweepEffect> = report.effects.iter().filter(|effect| effect.figure == *name).collect();
        let mut axes: Vec<&str> = Vec::new();
        let rows: Vec<DataRow> = of_it
            .iter()
            .take(BARS_MAX)
            .map(|effect| {
                if axes.last() != Some(&effect.axis.as_str()) {
                    axes.push(&effect.axis);
                }
                let words = format!("{}{}", signed(effect.effect.value), parenthesised(&effect.effect));
                // A colour for each axis.
                row(axes.len() - 1, format!("{} {}", effect.axis, effect.value), &effect.effect, words)
            })
            .collect();
        (!rows.is_empty()).then(|| DataBars {
            id: format!("effects-{number}"),
            title: format!("Main effects on {name}"),
            name: format!("{name}, less the mean of all cells"),
            rows,
        })
    };
    report.main_figures.iter().enumerate().filter_map(of_figure).collect()
}

fn row(index: usize, label: String, figure: &FigureEstimate, words: String) -> DataRow {
    let [low, high] = ends(figure).unwrap_or([figure.value; 2]);
    DataRow { index, label, mean: figure.value, low, high, words }
}

fn bars(body: &mut String, chart: &DataBars) {
    // About a line per row.
    let height_rem = (6 + 2 * chart.rows.len()).max(10);
    body.push_str(&format!("<div class=\"chart\" id=\"{}\" style=\"height: {height_rem}rem\"></div>\n", chart.id));
}

fn combination_table(body: &mut String, report: &SweepReport) {
    let has = |name: &&String| report.combinations.iter().any(|one| one.figures.iter().any(|f| f.name == **name));
    let shown: Vec<&String> = report.main_figures.iter().filter(has).collect();
    body.push_str("<h2>Combinations</h2>\n<div class=\"scroll\"><table>\n<thead><tr>");
    report.axes.iter().for_each(|axis| body.push_str(&format!("<th>{}</th>", escaped(axis))));
    for name in &shown {
        body.push_str(&format!("<th class=\"n\">{}</th><th class=\"n\">95 % BCa</th>", escaped(name)));
    }
    body.push_str("</tr></thead>\n<tbody>\n");
    for combination in report.combinations.iter().take(ROWS_MAX) {
        body.push_str("<tr>");
        combination.axes.iter().for_each(|value| body.push_str(&format!("<td>{}</td>", escaped(value))));
        for name in &shown {
            let figure = combination.figures.iter().find(|figure| figure.name == **name);
            let value = figure.map_or("-".to_owned(), |figure| four_digits(figure.value));
            let interval = figure.and_then(ends).map_or("-".to_owned(), between);
            body.push_str(&format!("<td class=\"n\">{value}</td><td class=\"n\">{interval}</td>"));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div>\n");
    cut(body, report.combinations.len(), "sweep.json");
    body.push_str(&format!(
        "<p class=\"dim\">Means over the seeds. Intervals are bootstrap intervals over the seeds: N = {}, B = {}. They \
         say how much the random parts of workload and device matter, not how well the model fits a \
         drive.</p>\n",
        counted(report.seeds, "seed"),
        counted(report.draws.into(), "draw")
    ));
}

fn effect_section(body: &mut String, report: &SweepReport, charts: &[DataBars]) {
    if report.effects.is_empty() {
        return;
    }
    body.push_str("<h2>Main effects</h2>\n<div class=\"grid\">\n");
    charts.iter().for_each(|chart| bars(body, chart));
    body.push_str(
        "</div>\n<div class=\"scroll\"><table>\n<thead><tr><th>figure</th><th>axis</th><th>value</th>\
         <th class=\"n\">mean</th><th class=\"n\">effect</th><th class=\"n\">95 % BCa</th>\
         <th class=\"n\">explains</th></tr></thead>\n<tbody>\n",
    );
    for effect in report.effects.iter().take(ROWS_MAX) {
        let interval = ends(&effect.effect).map_or("-".to_owned(), between);
        body.push_str(&format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{interval}</td><td class=\"n\">{:.1} %</td></tr>\n",
            escaped(&effect.figure),
            escaped(&effect.axis),
            escaped(&effect.value),
            four_digits(effect.mean),
            signed(effect.effect.value),
            effect.explained * 100.0,
        ));
    }
    body.push_str("</tbody></table></div>\n");
    cut(body, report.effects.len(), "sweep.json");
    body.push_str(
        "<p class=\"dim\">An effect is the mean of the cells with one value of an axis, less the mean of all cells. \
         Explains: the share of the figure's variance over all combinations that the axis explains alone. What is \
         missing to 100 % are interactions.</p>\n",
    );
}

fn failures(body: &mut String, report: &SweepReport) {
    let failed = || {
        report
            .combinations
            .iter()
            .flat_map(|one| one.failures.iter().map(move |message| (one.axes.join(", "), message)))
    };
    if failed().next().is_none() {
        return;
    }
    body.push_str("<h2>Failed cells</h2>\n");
    for (axes, message) in failed().take(ROWS_MAX) {
        body.push_str(&format!("<p>{}</p>\n<pre>{}</pre>\n", escaped(&axes), escaped(message)));
    }
    cut(body, failed().count(), "the directory cells");
}

fn all_figures(body: &mut String, report: &SweepReport) {
    let rows = || report.combinations.iter().flat_map(|one| one.figures.iter().map(move |figure| (&one.axes, figure)));
    body.push_str(
        "<h2>Details</h2>\n<details><summary>All figures</summary><div class=\"scroll\"><table>\n<thead><tr>",
    );
    report.axes.iter().for_each(|axis| body.push_str(&format!("<th>{}</th>", escaped(axis))));
    body.push_str(
        "<th>figure</th><th class=\"n\">mean</th><th class=\"n\">95 % BCa</th><th class=\"n\">95 % percentile</th>\
         </tr></thead>\n<tbody>\n",
    );
    for (axes, figure) in rows().take(ROWS_MAX) {
        body.push_str("<tr>");
        axes.iter().for_each(|value| body.push_str(&format!("<td>{}</td>", escaped(value))));
        let [bca, percentile] = [figure.bca_95, figure.percentile_95].map(|ends| ends.map_or("-".to_owned(), between));
        body.push_str(&format!(
            "<td>{}</td><td class=\"n\">{}</td><td class=\"n\">{bca}</td><td class=\"n\">{percentile}</td></tr>\n",
            escaped(&figure.name),
            four_digits(figure.value)
        ));
    }
    body.push_str("</tbody></table></div>");
    cut(body, rows().count(), "sweep.json");
    body.push_str("</details>\n");
}

fn cell_table(body: &mut String, report: &SweepReport) {
    let cells = || report.combinations.iter().flat_map(|one| one.cells.iter().map(move |cell| (&one.axes, cell)));
    body.push_str("<details><summary>Cells</summary><div class=\"scroll\"><table>\n<thead><tr>");
    report.axes.iter().for_each(|axis| body.push_str(&format!("<th>{}</th>", escaped(axis))));
    body.push_str(
        "<th class=\"n\">seed</th><th class=\"n\">exit status</th><th class=\"n\">s on the host</th><th>file</th>\
         </tr></thead>\n<tbody>\n",
    );
    for (axes, cell) in cells().take(ROWS_MAX) {
        body.push_str("<tr>");
        axes.iter().for_each(|value| body.push_str(&format!("<td>{}</td>", escaped(value))));
        body.push_str(&format!(
            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>cells/{}.json</td></tr>\n",
            cell.seed,
            cell.status.map_or("-".to_owned(), |status| status.to_string()),
            cell.host_s.map_or("-".to_owned(), |seconds| format!("{seconds:.3}")),
            escaped(&cell.name)
        ));
    }
    body.push_str("</tbody></table></div>");
    cut(body, cells().count(), "sweep.parquet");
    body.push_str("</details>\n");
}

/// Says where the rest of a table is.
fn cut(body: &mut String, rows: usize, place: &str) {
    if rows > ROWS_MAX {
        body.push_str(&format!("<p class=\"dim\">{ROWS_MAX} of {rows} rows; all are in {place}.</p>\n"));
    }
}

fn ends(figure: &FigureEstimate) -> Option<[f64; 2]> {
    figure.bca_95.or(figure.percentile_95)
}

fn between([low, high]: [f64; 2]) -> String {
    format!("{} to {}", four_digits(low), four_digits(high))
}

fn parenthesised(figure: &FigureEstimate) -> String {
    ends(figure).map_or(String::new(), |ends| format!(" ({})", between(ends)))
}

fn signed(value: f64) -> String {
    format!("{}{}", if value > 0.0 { "+" } else { "" }, four_digits(value))
}
