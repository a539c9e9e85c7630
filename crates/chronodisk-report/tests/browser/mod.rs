//! Pictures of pages in a headless browser, that are compared by the distribution of their ink.

use std::fs;
use std::path::{Path, PathBuf};

mod headless;

pub use headless::Browser;

impl Browser {
    /// Width of a page's contents in a frame of this width, in CSS pixels. A window can't be narrower than 500 pixels,
    /// so another page embeds this one in a frame and measures it.
    pub fn width_of_contents(&self, page: &Path, fragment: &str, frame_width: u32) -> u32 {
        let outer = self.folder().join("frame.html");
        let text = format!(
            "<!doctype html><iframe src=\"file://{}#{fragment}\" style=\"width: {frame_width}px; height: 740px; \
             border: 0\" onload=\"setTimeout(() => {{ const root = this.contentDocument.documentElement; \
             document.title = 'width ' + Math.max(root.scrollWidth, this.contentDocument.body.scrollWidth); }}, \
             2000)\"></iframe>",
            page.display()
        );
        fs::write(&outer, text).unwrap();
        let options = ["--dump-dom", "--allow-file-access-from-files", "--disable-web-security"];
        let dom = String::from_utf8(self.browse(&outer, "", &options).stdout).unwrap();
        let title = dom.split_once("<title>width ").unwrap_or_else(|| panic!("no width was measured: {dom}")).1;
        title.split('<').next().unwrap().parse().unwrap()
    }

    /// A screenshot of the beginning of a page, in a window of this size.
    pub fn picture(&self, page: &Path, fragment: &str, (width, height): (u32, u32)) -> Picture {
        let file: PathBuf = self.folder().join("picture.png");
        let (place, size) = (format!("--screenshot={}", file.display()), format!("--window-size={width},{height}"));
        self.browse(page, fragment, &[&place, &size]);
        Picture::read(&file)
    }
}

/// A picture on white, reduced to the amount of ink in each cell.
pub struct Picture {
    pub png: Vec<u8>,
    columns: usize,
    /// Ink by rows, 0 to 1.
    ink: Vec<f64>,
}

/// Width and height of a cell, in pixels: larger than differences between letters of two fonts.
const CELL: usize = 20;
/// Number of cell rows that are compared together.
const BAND: usize = 8;
/// Most rows of cells by which other fonts move the content below them.
const SHIFT_MAX: isize = 6;
/// Likeness above which two pictures show the same page.
const LIKE: f64 = 0.6;

impl Picture {
    pub fn read(file: &Path) -> Self {
        let png = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let mut decoder = png::Decoder::new(std::io::Cursor::new(&png));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        let (width, samples) = (info.width as usize, info.color_type.samples());
        let (columns, rows) = (width / CELL, info.height as usize / CELL);
        let mut ink = vec![0.0; columns * rows];
        for (row, line) in pixels.chunks(info.line_size).take(rows * CELL).enumerate() {
            for (column, pixel) in line.chunks(samples).take(columns * CELL).enumerate() {
                let colours = &pixel[..samples.min(3)];
                let light = colours.iter().map(|&value| f64::from(value)).sum::<f64>() / colours.len() as f64;
                ink[row / CELL * columns + column / CELL] += (255.0 - light) / 255.0 / (CELL * CELL) as f64;
            }
        }
        Picture { png, columns, ink }
    }

    fn rows(&self) -> isize {
        (self.ink.len() / self.columns) as isize
    }

    fn cell(&self, row: isize, column: usize) -> f64 {
        if (0..self.rows()).contains(&row) { self.ink[row as usize * self.columns + column] } else { 0.0 }
    }

    /// Mean correlation of the ink in bands of rows. Each band is compared at the shift with the highest correlation.
    pub fn likeness(&self, other: &Picture) -> f64 {
        let bands = self.rows() / BAND as isize;
        let of_band = |band: isize| {
            let rows = band * BAND as isize..(band + 1) * BAND as isize;
            let at = |shift: isize| {
                let pairs: Vec<(f64, f64)> = rows
                    .clone()
                    .flat_map(|row| (0..self.columns.min(other.columns)).map(move |column| (row, column)))
                    .map(|(row, column)| (other.cell(row, column), self.cell(row + shift, column)))
                    .collect();
                correlation(&pairs)
            };
            (-SHIFT_MAX..=SHIFT_MAX).map(at).fold(f64::NEG_INFINITY, f64::max)
        };
        (0..bands).map(of_band).sum::<f64>() / bands as f64
    }

    pub fn resembles(&self, other: &Picture) -> bool {
        self.columns == other.columns && self.likeness(other) >= LIKE
    }
}

/// Correlation coefficient; zero if one side does not vary.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let count = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (one, two) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum = |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|&(a, b)| of(a - one, b - two)).sum::<f64>();
    let scale = (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt();
    if scale > 1e-9 { sum(&|a, b| a * b) / scale } else { 0.0 }
}
