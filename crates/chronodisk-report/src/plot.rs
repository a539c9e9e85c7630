//! Plots as SVG.

use std::io::Write;
use std::path::Path;

use chronodisk_sim::Nanos;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::files::write_atomically;
use crate::statistics::Estimate;
use crate::{ReportError, RunResult};

/// A run to draw.
#[derive(Clone, Copy, Debug)]
pub struct PlotRun<'a> {
    /// The run.
    pub run: &'a RunResult,
    /// Service times of its requests, in any order; see [`service_times`](crate::service_times).
    pub service_times: &'a [Nanos],
}

/// Draws runs beside each other: run times as bars with their 95 % confidence intervals, and the
/// cumulative distributions of their service times. The file is there whole or not at all.
///
/// # Errors
/// If there is nothing to draw, or the file can't be written.
pub fn plot_comparison(path: &Path, runs: &[PlotRun<'_>]) -> Result<(), ReportError> {
    if runs.iter().all(|run| run.run.reps.is_empty()) {
        return Err(ReportError::Plot { path: path.to_owned(), message: "no repetition in any run".into() });
    }
    let mut svg = String::new();
    draw(&mut svg, runs).map_err(|message| ReportError::Plot { path: path.to_owned(), message })?;
    write_atomically(path, |file| {
        file.write_all(svg.as_bytes()).map_err(|source| ReportError::Io {
            path: path.to_owned(),
            action: "write",
            source,
        })
    })
}

/// Draws the cumulative distributions of some service times under a title; the file is there whole or not at all.
pub(crate) fn plot_distributions(
    path: &Path,
    title: &str,
    labels: &[String],
    distributions: &[&[Nanos]],
) -> Result<(), ReportError> {
    let failed = |message: String| ReportError::Plot { path: path.to_owned(), message };
    if distributions.iter().all(|times| times.is_empty()) {
        return Err(failed("no requests".to_owned()));
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        draw_service_times(&root, title, distributions, labels).map_err(|error| failed(error.to_string()))?;
        root.present().map_err(|error| failed(error.to_string()))?;
    }
    crate::files::write_text(path, &svg, true)
}

const WIDTH_PX: u32 = 1100;
const HEIGHT_PX: u32 = 460;
const MARGIN_PX: u32 = 14;
const FONT: &str = "sans-serif";

/// Okabe and Ito's colours, which people with any kind of colour vision tell apart.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw(svg: &mut String, runs: &[PlotRun<'_>]) -> Result<(), String> {
    let root = SVGBackend::with_string(svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
    root.fill(&WHITE).map_err(|error| error.to_string())?;
    let (left, right) = root.split_horizontally(WIDTH_PX * 45 / 100);
    let labels = labels(runs);
    draw_run_times(&left, runs, &labels).map_err(|error| error.to_string())?;
    let distributions: Vec<&[Nanos]> = runs.iter().map(|run| run.service_times).collect();
    draw_service_times(&right, "Service time of the device", &distributions, &labels)
        .map_err(|error| error.to_string())?;
    root.present().map_err(|error| error.to_string())
}

/// Names of the devices, with the run's own where a device comes more than once.
fn labels(runs: &[PlotRun<'_>]) -> Vec<String> {
    let device = |run: &PlotRun<'_>| run.run.device.profile.clone();
    let label = |run: &PlotRun<'_>| {
        let namesakes = runs.iter().filter(|other| device(other) == device(run)).count();
        if namesakes > 1 { format!("{} ({})", device(run), run.run.run_id) } else { device(run) }
    };
    runs.iter().map(label).collect()
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

fn draw_run_times(area: &Area<'_>, runs: &[PlotRun<'_>], labels: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let estimates: Vec<Option<Estimate>> = runs
        .iter()
        .map(|run| Estimate::of(&run.run.reps.iter().map(|rep| rep.run_time_ns.as_secs_f64()).collect::<Vec<f64>>()))
        .collect();
    let top = |estimate: &Estimate| estimate.mean + estimate.half_width_95.unwrap_or(0.0);
    let highest = estimates.iter().flatten().map(top).fold(0.0, f64::max);
    let lowest = estimates.iter().flatten().map(|estimate| estimate.mean).filter(|mean| *mean > 0.0);
    let lowest = lowest.fold(f64::INFINITY, f64::min);
    let is_logarithmic = highest > LINEAR_RANGE_MAX * lowest;
    // A bar on a logarithmic axis begins at the decade below the shortest.
    let place = |seconds: f64| if is_logarithmic { (seconds / lowest).max(1.0).log10() + 1.0 } else { seconds };
    let highest = if highest > 0.0 { place(highest) * 1.15 } else { 1.0 };
    // About ten labels, each told from its neighbours.
    let decimals = (1.0 - highest.log10().floor()).clamp(0.0, 9.0) as usize;
    let at = |place: f64| match is_logarithmic {
        true => short(lowest * 10f64.powf(place - 1.0)),
        false => format!("{place:.decimals$}"),
    };
    let mut chart = ChartBuilder::on(area)
        .caption("Run time in the guest", (FONT, 18))
        .margin(MARGIN_PX)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..runs.len() as f64 - 0.5, 0.0..highest)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(0)
        .y_desc(if is_logarithmic { "run time (s), logarithmic" } else { "run time (s)" })
        .y_label_formatter(&|value| at(*value))
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    for (index, estimate) in estimates.iter().enumerate() {
        let Some(estimate) = estimate else { continue };
        let x = index as f64;
        let bar = Rectangle::new([(x - 0.3, 0.0), (x + 0.3, place(estimate.mean))], colour(index).mix(0.85).filled());
        chart.draw_series([bar])?;
        if let Some(half_width) = estimate.half_width_95 {
            let low = place((estimate.mean - half_width).max(0.0));
            let high = place(estimate.mean + half_width);
            let whisker = |from, to| PathElement::new(vec![from, to], BLACK.stroke_width(2));
            chart.draw_series([
                whisker((x, low), (x, high)),
                whisker((x - 0.08, low), (x + 0.08, low)),
                whisker((x - 0.08, high), (x + 0.08, high)),
            ])?;
        }
        let above = TextStyle::from((FONT, 13)).pos(Pos::new(HPos::Center, VPos::Bottom));
        chart.draw_series([Text::new(short(estimate.mean), (x, place(top(estimate)) + highest * 0.012), above)])?;
    }
    let plot = chart.plotting_area();
    let below = TextStyle::from((FONT, 13)).pos(Pos::new(HPos::Center, VPos::Top));
    let (area_x, area_y) = area.get_base_pixel();
    let slot_px = plot.dim_in_pixel().0 / runs.len() as u32;
    let widths = labels.iter().map(|label| area.estimate_text_size(label, &below)).collect::<Result<Vec<_>, _>>()?;
    // Names that would touch their neighbours take turns on two lines.
    let lines = if widths.iter().any(|(width_px, _)| width_px * 5 / 4 > slot_px) { 2 } else { 1 };
    for (index, label) in labels.iter().enumerate() {
        let (x, y) = plot.map_coordinate(&(index as f64, 0.0));
        let y = y - area_y + 8 + 16 * (index % lines) as i32;
        area.draw(&Text::new(label.clone(), (x - area_x, y), below.clone()))?;
    }
    Ok(())
}

fn draw_service_times(
    area: &Area<'_>,
    title: &str,
    distributions: &[&[Nanos]],
    labels: &[String],
) -> Result<(), Box<dyn std::error::Error>> {
    let micros = |nanos: &Nanos| nanos.as_micros_f64().max(SHORTEST_US);
    let all = || distributions.iter().flat_map(|times| times.iter().map(micros));
    let (shortest, longest) = all().fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)));
    let (shortest, longest) = if shortest <= longest { (shortest, longest) } else { (1.0, 1000.0) };
    // Whole decades, so that every label of the axis is a power of ten; a little more, so that both ends have one.
    let low = 10f64.powf(shortest.log10().floor()) * 0.999;
    let high = 10f64.powf(longest.log10().floor() + 1.0) * 1.001;
    let legend_height_px = draw_legend(area, labels)?;
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 18))
        .margin(MARGIN_PX)
        .margin_right(MARGIN_PX + 20)
        .margin_bottom(MARGIN_PX + legend_height_px)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d((low..high).log_scale(), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(RGBColor(243, 243, 243))
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc("service time, logarithmic")
        .y_desc("requests served within it (%)")
        .y_max_light_lines(0)
        .x_label_formatter(&|value| with_unit(*value))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    for (index, times) in distributions.iter().enumerate() {
        let mut sorted: Vec<f64> = times.iter().map(micros).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        if sorted.is_empty() {
            continue;
        }
        chart.draw_series([PathElement::new(steps(&sorted), colour(index).stroke_width(2))])?;
    }
    Ok(())
}

/// Draws the runs' names and colours at the foot of an area, in as many lines as they need, and
/// tells the height of those lines in pixels.
fn draw_legend(area: &Area<'_>, labels: &[String]) -> Result<u32, Box<dyn std::error::Error>> {
    const LINE_PX: i32 = 20;
    const SAMPLE_PX: i32 = 20;
    const LEFT_PX: i32 = 80;
    let style = TextStyle::from((FONT, 13)).pos(Pos::new(HPos::Left, VPos::Center));
    let (width_px, height_px) = area.dim_in_pixel();
    let mut places = Vec::new();
    let (mut x, mut line) = (LEFT_PX, 0);
    for label in labels {
        let text_px = area.estimate_text_size(label, &style)?.0 as i32;
        let entry_px = SAMPLE_PX + 6 + text_px * 5 / 4 + 18;
        if x > LEFT_PX && x + entry_px > width_px as i32 {
            (x, line) = (LEFT_PX, line + 1);
        }
        places.push((x, line));
        x += entry_px;
    }
    let lines = line + 1;
    for (index, (label, (x, line))) in labels.iter().zip(places).enumerate() {
        let y = height_px as i32 - MARGIN_PX as i32 / 2 - LINE_PX * (lines - line) + LINE_PX / 2;
        area.draw(&PathElement::new(vec![(x, y), (x + SAMPLE_PX, y)], colour(index).stroke_width(4)))?;
        area.draw(&Text::new(label.clone(), (x + SAMPLE_PX + 6, y), style.clone()))?;
    }
    Ok((LINE_PX * lines) as u32)
}

/// A linear axis shows ranges up to this, from the shortest run to the longest.
const LINEAR_RANGE_MAX: f64 = 50.0;

/// Smallest service time that is drawn, because a logarithm has no zero.
const SHORTEST_US: f64 = 0.001;

/// Points of a distribution's stairs at most; a million requests would make a file of many megabytes.
const STEPS_MAX: usize = 500;

/// The stairs of a cumulative distribution in per cent, from the smallest value to the largest.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let steps = STEPS_MAX.min(count);
    let mut points = Vec::with_capacity(2 * steps);
    let mut share = 0.0;
    for step in 1..=steps {
        let rank = (count * step).div_ceil(steps);
        let value = sorted[rank - 1];
        points.push((value, share));
        share = 100.0 * rank as f64 / count as f64;
        points.push((value, share));
    }
    points
}

/// Three significant digits.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        value if value < 1.0 => format!("{value:.3}"),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A number of microseconds with the unit that suits it.
fn with_unit(micros: f64) -> String {
    let (value, unit) = match micros {
        micros if micros < 0.9995 => (micros * 1e3, "ns"),
        micros if micros < 999.5 => (micros, "µs"),
        micros if micros < 999_500.0 => (micros / 1e3, "ms"),
        micros => (micros / 1e6, "s"),
    };
    format!("{value:.0} {unit}")
}
