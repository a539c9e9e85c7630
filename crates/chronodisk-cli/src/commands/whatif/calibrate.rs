//! `chronodisk whatif calibrate`: times of the device's requests.

use chronodisk_run::{Measuring, RequestTimesArguments, measure_requests};
use clap::Args;

use crate::failure::{Outcome, status};
use crate::progress::Progress;
use crate::{output, version};

/// Measures the times of the device's requests by size, direction and pattern
///
/// One request at a time, past the page cache, as seen by a program. On an emulated device it shows the overhead of the
/// path to the device. On this host's own disk it shows the repeatability of its times, which limits the accuracy of
/// predictions.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 2 for wrong usage, 3 if this host lacks something.\n\n\
    Example: chronodisk whatif calibrate --on /var/tmp")]
pub struct Arguments {
    #[command(flatten)]
    measure: RequestTimesArguments,
}

/// Measures, and prints the times.
pub fn execute(arguments: &Arguments) -> Outcome {
    let mut bar: Option<Progress> = None;
    let times = measure_requests(&arguments.measure, &version::executable(), &mut |progress| match progress {
        Measuring::Kinds(count) => bar = Some(Progress::new(count, "kinds of requests")),
        Measuring::Kind => bar.iter().for_each(|bar| bar.advance(1)),
    })?;
    bar.into_iter().for_each(Progress::finish);
    if arguments.measure.json {
        output::json(&times)?;
    } else {
        output::data(&times.render())?;
    }
    for warning in &times.warnings {
        output::note(format_args!("warning: {warning}"));
    }
    Ok(status::FINE)
}
