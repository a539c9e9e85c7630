//! The two streams: data on standard output, words for people on standard error.

use std::io::{self, IsTerminal, Write};

use chronodisk_report::{RunResult, render_run_summary};
use miette::{GraphicalTheme, ThemeCharacters, ThemeStyles};
use serde::Serialize;

use crate::failure::{Failure, Rendered};

pub use chronodisk_run::expect_place;

/// Writes data to standard output; a reader that has gone away (`| head`) is no failure.
pub fn data(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::host(format!("can't write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document to standard output.
pub fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::host(format!("can't write the result as JSON: {error}")))?;
    text.push('\n');
    data(&text)
}

/// Writes a line for people to standard error, which may be closed.
pub fn note(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Shows the summary of a run; with `quiet` only its warnings.
pub fn summary(result: &RunResult, quiet: bool) {
    match quiet {
        false => note(render_run_summary(result).trim_end()),
        true => result.warnings.iter().for_each(|warning| note(format_args!("warning: {warning}"))),
    }
}

/// A number of bytes with a decimal unit and three digits, as `ls` and disks have it.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let (mut value, mut unit) = (bytes as f64, None);
    while value >= 999.5 {
        value /= 1000.0;
        unit = Some(unit.map_or(0, |unit| unit + 1));
    }
    match unit {
        None => format!("{bytes} B"),
        Some(unit) if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        Some(unit) if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        Some(unit) => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// The beginning of a text in one line, with an ellipsis if that is not all.
pub fn shortened(text: &str, characters_max: usize) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(characters_max) {
        None => line,
        Some(_) => line.chars().take(characters_max - 1).chain(['…']).collect(),
    }
}

/// Renders a failure on standard error.
pub fn failure(failure: Failure) {
    let rendered = format!("{:?}", miette::Report::new(Rendered::from(failure)));
    // Like clap's own errors, without the space that miette leaves around a report.
    note(rendered.trim());
}

/// Makes miette render failures with colour only where a terminal shows it and `NO_COLOR` does not
/// forbid it, with line-drawing characters only on a terminal, and unbroken elsewhere, so that a
/// message can be searched for.
pub fn set_up_rendering() {
    let terminal = io::stderr().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Only a second hook would be refused, and this is the only call.
    let _ = miette::set_hook(Box::new(move |_| {
        let mut characters = if terminal { ThemeCharacters::unicode() } else { ThemeCharacters::ascii() };
        characters.error = "error:".into();
        let styles = if colour { ThemeStyles::ansi() } else { ThemeStyles::none() };
        let options = miette::MietteHandlerOpts::new()
            .graphical_theme(GraphicalTheme { characters, styles })
            .color(colour)
            .terminal_links(false)
            .wrap_lines(terminal);
        Box::new(options.build())
    }));
}
