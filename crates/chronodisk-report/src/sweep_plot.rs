//! A measured sweep and a model of it as curves: a panel for each set, latency against depth or size.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::files::write_text;
use crate::{PointUse, ReportError, SweepFigures, SweepFit, SweepPoint};

const PANEL_WIDTH_PX: u32 = 520;
const PANEL_HEIGHT_PX: u32 = 380;
const COLUMNS: usize = 2;
const FONT: &str = "sans-serif";
/// Most panels of a plot; more sets are better plotted apart.
const PANELS_MAX: usize = 24;

/// From Okabe and Ito's colours, which people with any kind of colour vision tell apart: mean and 99th percentile.
const MEAN: RGBColor = RGBColor(0, 114, 178);
const P99: RGBColor = RGBColor(213, 94, 0);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A latency that is drawn: its name, its colour, and where it stands.
type Kind = (&'static str, RGBColor, fn(&SweepFigures) -> Option<f64>);

/// Draws mean and 99th percentile of each set, measured as points and modelled as lines; points that were held out are
/// open, excluded ones crosses. The file is there whole or not at all.
///
/// # Errors
/// If there is nothing to draw, too many sets, or the file can't be written.
pub fn plot_sweeps(path: &Path, fit: &SweepFit) -> Result<(), ReportError> {
    let failed = |message: String| ReportError::Plot { path: path.to_owned(), message };
    let mut sets: Vec<(&str, Vec<&SweepPoint>)> = Vec::new();
    for point in &fit.points {
        match sets.iter_mut().find(|(set, _)| *set == point.set) {
            Some((_, points)) => points.push(point),
            None => sets.push((&point.set, vec![point])),
        }
    }
    if sets.is_empty() || sets.len() > PANELS_MAX {
        return Err(failed(format!("{} sets; expected 1 to {PANELS_MAX}", sets.len())));
    }
    let columns = COLUMNS.min(sets.len());
    let rows = sets.len().div_ceil(columns);
    let mut svg = String::new();
    {
        let size_px = (PANEL_WIDTH_PX * columns as u32, PANEL_HEIGHT_PX * rows as u32);
        let root = SVGBackend::with_string(&mut svg, size_px).into_drawing_area();
        root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        for (area, (set, points)) in root.split_evenly((rows, columns)).iter().zip(&sets) {
            draw(area, set, points).map_err(|error| failed(error.to_string()))?;
        }
        root.present().map_err(|error| failed(error.to_string()))?;
    }
    write_text(path, &svg, true)
}

/// Against depth, unless all points have the same.
fn place(points: &[&SweepPoint]) -> (&'static str, fn(&SweepPoint) -> f64) {
    match points.iter().all(|point| point.depth == points[0].depth) && points.len() > 1 {
        true => ("size of a request in KiB", |point| point.block_bytes as f64 / 1024.0),
        false => ("requests outstanding", |point| f64::from(point.depth)),
    }
}

fn draw(area: &Area<'_>, set: &str, points: &[&SweepPoint]) -> Result<(), Box<dyn std::error::Error>> {
    let (axis, place) = place(points);
    let modelled = |point: &SweepPoint| *point.after.as_ref().unwrap_or(&point.before);
    let times = points.iter().flat_map(|point| {
        let modelled = modelled(point);
        [point.measured.mean_us, point.measured.p99_us, modelled.mean_us, modelled.p99_us]
    });
    let times: Vec<f64> = times.flatten().filter(|time| *time > 0.0).collect();
    let span = |values: &[f64]| {
        let (low, high) =
            values.iter().fold((f64::INFINITY, 0.0f64), |(low, high), &value| (low.min(value), high.max(value)));
        if low <= high { (low, high) } else { (1.0, 10.0) }
    };
    let (shortest, longest) = span(&times);
    let places: Vec<f64> = points.iter().map(|point| place(point)).collect();
    let (first, last) = span(&places);
    let mut chart = ChartBuilder::on(area)
        .caption(set, (FONT, 15))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(62)
        .build_cartesian_2d(
            (first * 0.8..last * 1.25).log_scale().base(2.0),
            (shortest * 0.7..longest * 1.4).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(243, 243, 243))
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc(axis)
        .y_desc("latency (µs)")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .axis_desc_style((FONT, 13))
        .label_style((FONT, 12))
        .draw()?;
    let kinds: [Kind; 2] =
        [("mean", MEAN, |figures| figures.mean_us), ("99th percentile", P99, |figures| figures.p99_us)];
    for (name, colour, of) in kinds {
        let mut line: Vec<(f64, f64)> = points
            .iter()
            .filter_map(|point| Some((place(point), of(&modelled(point)).filter(|t| *t > 0.0)?)))
            .collect();
        line.sort_by(|a, b| a.0.total_cmp(&b.0));
        chart
            .draw_series(LineSeries::new(line, colour.stroke_width(2)))?
            .label(format!("{name}: line modelled, points measured"))
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(3)));
        for point in points {
            let Some(time) = of(&point.measured) else { continue };
            let at = (place(point), time);
            match point.used {
                PointUse::Fitted => chart.draw_series([Circle::new(at, 4, colour.filled())])?,
                PointUse::HeldOut => chart.draw_series([Circle::new(at, 4, colour.stroke_width(2))])?,
                PointUse::Excluded => chart.draw_series([Cross::new(at, 4, colour.stroke_width(2))])?,
            };
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .label_font((FONT, 12))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIT_SCHEMA;

    #[test]
    fn a_plot_has_a_panel_for_each_set() {
        let figures = SweepFigures { mean_us: Some(80.0), p99_us: Some(120.0), ..SweepFigures::default() };
        let point = |set: &str, depth, used| SweepPoint {
            file: "a.csv".to_owned(),
            line: 2,
            set: set.to_owned(),
            access: "random read".to_owned(),
            only: None,
            block_bytes: 4_096 * u64::from(depth),
            depth,
            zones: None,
            used,
            measured: figures,
            before: figures,
            after: None,
        };
        let mut fit = SweepFit {
            schema: FIT_SCHEMA.to_owned(),
            profile: "p".to_owned(),
            data: Vec::new(),
            requests: 1,
            seed: 1,
            capacity_bytes: None,
            evaluations: 0,
            interrupted: false,
            constants: Vec::new(),
            points: vec![
                point("first set", 1, PointUse::Fitted),
                point("first set", 2, PointUse::HeldOut),
                point("second set", 8, PointUse::Excluded),
            ],
            cross_validation: Vec::new(),
            structures: Vec::new(),
            missing: Vec::new(),
        };
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("plot.svg");
        plot_sweeps(&path, &fit).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["first set", "second set", "requests outstanding", "99th percentile: line modelled"] {
            assert!(svg.contains(text), "{text}");
        }
        fit.points.clear();
        assert!(plot_sweeps(&path, &fit).is_err());
    }
}
