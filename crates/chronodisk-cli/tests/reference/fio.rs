//! The page of fio's options, made of the table by which they are read.

use std::fmt::Write;

use chronodisk_trace::fio_job::options::{FioOption, OPTIONS, Treatment};
use chronodisk_trace::fio_job::{ENGINE_OPTIONS, ENGINES};

const HEAD: &str = "# Options of fio

What is done with each option of fio 3.33, in a job file (`chronodisk simulate --fio-job`, the Python package) and in a
result (`chronodisk fit`). An option is followed, has no effect on the requests of a device, or is refused by its name.
An option that is refused may be there with the value 0.
`fit` takes options of one kind of requests only: what a point of a sweep can't hold is refused there, too.
This page is generated; a test compares it with the sources.
";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    section(&mut page, "Options", OPTIONS);
    page.push_str("\n## Engines\n\n| `ioengine` | requests outstanding | page cache |\n|---|---|---|\n");
    for engine in ENGINES {
        let depth = if engine.is_synchronous { "1" } else { "`iodepth`" };
        let cache = match (engine.does_io, engine.uses_page_cache) {
            (false, _) => "none: it does no I/O, and `fit` refuses it",
            (true, true) => "used, unless `direct=1` is given, which is expected",
            (true, false) => "none",
        };
        let _ = writeln!(page, "| `{}` | {depth} | {cache} |", engine.name);
    }
    section(&mut page, "Options of engines", ENGINE_OPTIONS);
    page
}

fn section(page: &mut String, title: &str, options: &[FioOption]) {
    let _ = write!(page, "\n## {title}\n\n| option | is | values, or the reason |\n|---|---|---|\n");
    for option in options {
        let names: Vec<String> =
            [&option.name].into_iter().chain(option.aliases).map(|name| format!("`{name}`")).collect();
        let (is, text) = match option.treatment {
            Treatment::Honoured(values) => ("followed", values.to_owned()),
            Treatment::Ignored(reason) => ("without effect", reason.to_owned()),
            Treatment::Refused(expected) => ("refused", format!("expected is {expected}")),
        };
        let _ = writeln!(page, "| {} | {is} | {text} |", names.join(", "));
    }
}
