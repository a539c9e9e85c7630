//! A block trace as a plot: requests over time, sizes, cache hits.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::files::write_text;
use crate::{ReportError, TraceStatistics};

const PANEL_WIDTH_PX: u32 = 560;
const PANEL_HEIGHT_PX: u32 = 380;
const FONT: &str = "sans-serif";

/// From Okabe and Ito's colours, which people with any kind of colour vision tell apart.
const LINE: RGBColor = RGBColor(0, 114, 178);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws requests per second over time, and the share of accesses that an LRU cache has by its size. The file is there
/// whole or not at all.
///
/// # Errors
/// If there is nothing to draw, or the file can't be written.
pub fn plot_trace_statistics(path: &Path, statistics: &TraceStatistics) -> Result<(), ReportError> {
    let failed = |message: String| ReportError::Plot { path: path.to_owned(), message };
    if statistics.requests == 0 {
        return Err(failed("no requests".to_owned()));
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (2 * PANEL_WIDTH_PX, PANEL_HEIGHT_PX)).into_drawing_area();
        root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
        let (left, right) = root.split_horizontally(PANEL_WIDTH_PX);
        draw_rate(&left, statistics).map_err(|error| failed(error.to_string()))?;
        draw_hits(&right, statistics).map_err(|error| failed(error.to_string()))?;
        root.present().map_err(|error| failed(error.to_string()))?;
    }
    write_text(path, &svg, true)
}

fn draw_rate(area: &Area<'_>, statistics: &TraceStatistics) -> Result<(), Box<dyn std::error::Error>> {
    let series = &statistics.over_time;
    let mut points = Vec::with_capacity(2 * series.requests.len());
    for (index, requests) in series.requests.iter().enumerate() {
        let rate = *requests as f64 / series.window_s;
        points.push((index as f64 * series.window_s, rate));
        points.push(((index + 1) as f64 * series.window_s, rate));
    }
    let most = points.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let end = series.requests.len() as f64 * series.window_s;
    let mut chart = ChartBuilder::on(area)
        .caption("Arrivals", (FONT, 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..end, 0.0..most * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc("time since the first arrival (s)")
        .y_desc("requests per second")
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    chart.draw_series([PathElement::new(points, LINE.stroke_width(1))])?;
    Ok(())
}

fn draw_hits(area: &Area<'_>, statistics: &TraceStatistics) -> Result<(), Box<dyn std::error::Error>> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let points: Vec<(f64, f64)> =
        statistics.cache_hits.iter().map(|hits| (mib(hits.cache_bytes), hits.share * 100.0)).collect();
    let end = points.last().map_or(1.0, |(size, _)| *size).max(0.01);
    let mut chart = ChartBuilder::on(area)
        .caption("LRU cache of 4 KiB blocks", (FONT, 18))
        .margin(14)
        .x_label_area_size(44)
        .y_label_area_size(60)
        .build_cartesian_2d((mib(4_096)..end * 1.01).log_scale().base(2.0), 0.0..100.0)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc("size of the cache (MiB)")
        .y_desc("accesses that hit (%)")
        .x_label_formatter(&|value| if *value < 1.0 { format!("{value:.3}") } else { format!("{value:.0}") })
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, LINE.filled())))?;
    chart.draw_series([PathElement::new(points, LINE.stroke_width(2))])?;
    Ok(())
}
