//! Tables in plain text.

/// Rows of cells that become lines of aligned columns. No colours and no lines but one under the
/// header, so it reads the same on a terminal, in a file and in a mail.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

/// Side to which a column's cells are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

impl Table {
    /// A table without rows.
    #[must_use]
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, Align)>) -> Self {
        Table { columns: columns.into_iter().map(|(name, align)| (name.to_owned(), align)).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// If it has not one cell per column.
    pub fn row<Cell: Into<String>>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(cells.len(), self.columns.len(), "a row has one cell per column");
        self.rows.push(cells);
    }

    /// The lines, each ended by a line break; the header is left out if all its names are empty.
    #[must_use]
    pub fn render(&self) -> String {
        let width_of = |column: usize| {
            let cells = self.rows.iter().map(|row| &row[column]);
            cells.chain([&self.columns[column].0]).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width_of).collect();
        let mut text = String::new();
        if self.columns.iter().any(|(name, _)| !name.is_empty()) {
            let names: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
            self.push_line(&mut text, &widths, &names);
            let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            self.push_line(&mut text, &widths, &dashes);
        }
        for row in &self.rows {
            self.push_line(&mut text, &widths, row);
        }
        text
    }

    fn push_line(&self, text: &mut String, widths: &[usize], cells: &[String]) {
        let mut line = String::new();
        for (index, cell) in cells.iter().enumerate() {
            if index > 0 {
                line.push_str("  ");
            }
            let width = widths[index];
            match self.columns[index].1 {
                Align::Left => line.push_str(&format!("{cell:<width$}")),
                Align::Right => line.push_str(&format!("{cell:>width$}")),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

/// A number of things that have a regular plural: "1 seed", "30 seeds".
#[must_use]
pub fn counted(count: u64, singular: &str) -> String {
    format!("{count} {singular}{}", if count == 1 { "" } else { "s" })
}

/// A number with four significant digits.
#[must_use]
pub fn four_digits(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_thing_is_in_the_singular() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "seed")), ["0 seeds", "1 seed", "2 seeds"]);
    }
}
