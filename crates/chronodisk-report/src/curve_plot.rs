//! Curves with intervals as SVG: a figure against a parameter.

use std::path::Path;

use plotters::prelude::*;

use crate::ReportError;
use crate::files::write_text;

const WIDTH_PX: u32 = 900;
const HEIGHT_PX: u32 = 520;
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

/// Coordinates of a point, and the ends of its interval.
pub type CurvePoint = (f64, f64, Option<[f64; 2]>);
/// The label of a curve, and its points in order.
pub type Curve = (String, Vec<CurvePoint>);

/// Draws curves, each point with its interval. Axes are logarithmic where values are above zero and span more than a
/// factor of twenty. The file is there whole or not at all.
///
/// # Errors
/// If there is nothing to draw, or the file can't be written.
pub fn plot_curves(path: &Path, x: &str, y: &str, curves: &[Curve]) -> Result<(), ReportError> {
    let svg = curves_svg(x, y, curves).map_err(|message| ReportError::Plot { path: path.to_owned(), message })?;
    write_text(path, &svg, true)
}

/// The drawing of [`plot_curves`] as a text.
///
/// # Errors
/// If there is nothing to draw.
pub fn curves_svg(x: &str, y: &str, curves: &[Curve]) -> Result<String, String> {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let span_x = Span::of(points().map(|(x, _, _)| *x));
    let span_y = Span::of(points().flat_map(|(_, y, ends)| [*y].into_iter().chain(ends.iter().flatten().copied())));
    let (Some(span_x), Some(span_y)) = (span_x, span_y) else { return Err("no points".to_owned()) };
    let mut svg = String::new();
    draw(&mut svg, [x, y], [span_x, span_y], curves).map_err(|error| error.to_string())?;
    Ok(svg)
}

/// Values of an axis.
#[derive(Clone, Copy, Debug)]
struct Span {
    low: f64,
    high: f64,
    is_logarithmic: bool,
}

impl Span {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        (low <= high).then_some(Span { low, high, is_logarithmic: low > 0.0 && high / low > 20.0 })
    }

    /// Coordinate of a value: its logarithm, or itself.
    fn place(self, value: f64) -> f64 {
        if self.is_logarithmic { value.log10() } else { value }
    }

    fn value(self, place: f64) -> f64 {
        if self.is_logarithmic { 10_f64.powf(place) } else { place }
    }

    fn range(self) -> std::ops::Range<f64> {
        let (low, high) = (self.place(self.low), self.place(self.high));
        let margin = if high > low { (high - low) * 0.05 } else { low.abs().max(1.0) * 0.1 };
        low - margin..high + margin
    }
}

fn draw(
    svg: &mut String,
    names: [&str; 2],
    [span_x, span_y]: [Span; 2],
    curves: &[Curve],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, (WIDTH_PX, HEIGHT_PX)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .margin(16)
        .x_label_area_size(46)
        .y_label_area_size(80)
        .build_cartesian_2d(span_x.range(), span_y.range())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_desc(names[0])
        .y_desc(names[1])
        .x_label_formatter(&|place| label(span_x.value(*place)))
        .y_label_formatter(&|place| label(span_y.value(*place)))
        .axis_desc_style((FONT, 14))
        .label_style((FONT, 13))
        .draw()?;
    for (index, (name, points)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let place = |x: f64, y: f64| (span_x.place(x), span_y.place(y));
        let line: Vec<(f64, f64)> = points.iter().map(|(x, y, _)| place(*x, *y)).collect();
        chart.draw_series(line.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
        let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2)))?;
        if !name.is_empty() {
            drawn
                .label(name.as_str())
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour.stroke_width(3)));
        }
        let whiskers = points.iter().filter_map(|(x, _, ends)| ends.map(|[low, high]| (*x, low, high)));
        chart.draw_series(
            whiskers
                .map(|(x, low, high)| PathElement::new(vec![place(x, low), place(x, high)], colour.stroke_width(1))),
        )?;
    }
    if curves.iter().any(|(name, _)| !name.is_empty()) {
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .label_font((FONT, 13))
            .draw()?;
    }
    root.present()?;
    Ok(())
}

/// Three significant digits.
fn label(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_names_and_intervals() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plot.svg");
        let curve = |name: &str| (name.to_owned(), vec![(1.0, 5.0, Some([4.0, 6.0])), (64.0, 9.0, None)]);
        plot_curves(&path, "depth", "iops", &[curve("disk"), curve("flash")]).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["depth", "iops", "disk", "flash"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(plot_curves(&path, "depth", "iops", &[]).is_err());
        plot_curves(&path, "x", "y", &[("one".to_owned(), vec![(0.0, 0.0, None)])]).unwrap();
    }
}
