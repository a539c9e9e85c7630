//! `chronodisk sweep`: every combination of some options.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chronodisk_report::plot_curves;
use chronodisk_sweep::{Command, Done, Plan, Results, Runner, Sweep, Value};
use clap::Args;

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Runs every combination of some options, each with several seeds
///
/// FILE.toml names a command, options of it, and axes: options with a list of values. Each combination and seed is a
/// cell. Cells whose results are in DIR are not run again, so that a sweep that was interrupted goes on where it ended.
/// DIR then has sweep.json, sweep.parquet (a row for each cell) and sweep.provenance.json (date, host and load).
#[derive(Debug, Args)]
#[command(after_help = "FILE.toml:  command = \"simulate\"          # or run, mount, replay\n            \
    seeds = 30\n            [options]\n            workload = \"random-read\"\n            [axes]\n            \
    device = [\"cheetah-9lp\", \"wd-zn540\"]\n            depth = [1, 4, 16]\n\n\
    Ctrl-C ends the sweep with exit status 130; the same command goes on with it.\n\n\
    Example: chronodisk sweep depths.toml -o depths --plot depth,iops")]
pub struct Arguments {
    /// Reads the sweep from this file
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,

    /// Keeps the results in this directory. One that an earlier sweep made may be used again
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,

    /// Runs this number of cells at the same time (default: one for each processor; for guests, as many as the memory
    /// is enough for; one for programs in real time)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,

    /// Plots a figure, such as iops or latency_us.mean, against an axis or another figure, to DIR/X-Y.svg; may be
    /// repeated
    #[arg(long, value_name = "X,Y", value_parser = plot_names)]
    plot: Vec<(String, String)>,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

fn plot_names(text: &str) -> Result<(String, String), String> {
    match text.split_once(',') {
        Some((x, y)) if !x.is_empty() && !y.is_empty() && !text.contains('/') => Ok((x.to_owned(), y.to_owned())),
        _ => Err("expected two names, such as depth,iops".to_owned()),
    }
}

/// Runs what is missing, and writes the results; `root` is the whole command line.
pub fn execute(arguments: &Arguments, root: &clap::Command) -> Outcome {
    let label = arguments.file.display().to_string();
    let text = fs::read_to_string(&arguments.file)
        .map_err(|error| Failure::usage(format!("{label}: can't read the sweep: {error}")))?;
    let sweep = Sweep::parse(&text, &label, |command| options_of(root, command))?;
    // Before hours of cells; a figure that no cell has is found out after them.
    for (x, _) in &arguments.plot {
        if let Some(text) = sweep.axes.get(x).and_then(|values| values.iter().find(|value| value.as_number().is_none()))
        {
            return Err(Failure::usage(format!("--plot {x}: the axis has the value {text}; expected numbers")));
        }
    }
    let runner = Runner {
        executable: std::env::current_exe()
            .map_err(|error| Failure::host(format!("can't find the command's own executable: {error}")))?,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        directory: arguments.output.clone(),
        jobs: arguments.jobs.map_or_else(|| jobs(&sweep), usize::from),
    };
    let plan = Plan::new(sweep, runner)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::host(format!("can't catch signals: {error}")))?;
    }
    let progress = output::Progress::new(plan.cells() as u64, "cells");
    let there = AtomicU64::new(0);
    let seen = |done: &Done| {
        there.fetch_add(u64::from(done.was_there), Ordering::Relaxed);
        progress.advance(1);
    };
    let found = plan.run(&stop, &seen);
    progress.finish();
    let found: Vec<Option<Done>> = found?;
    let (total, there) = (found.len(), there.into_inner());
    let Some(done) = found.iter().cloned().collect::<Option<Vec<Done>>>() else {
        let complete = found.iter().flatten().count();
        output::note(format_args!("interrupted after {complete} of {total} cells; the same command goes on"));
        return Ok(status::INTERRUPTED);
    };
    let results = plan.write_results(&done)?;
    output::data(&if arguments.json { results.to_json() } else { results.render() })?;
    output::note(format_args!("{total} cells, {there} of them from earlier: {}", arguments.output.display()));
    for (x, y) in &arguments.plot {
        plot(arguments, &results, x, y)?;
    }
    if results.failed > 0 {
        output::note(format_args!("{} of {total} cells failed; the same command runs them again", results.failed));
        return Ok(status::CHECK_FAILED);
    }
    Ok(status::FINE)
}

fn plot(arguments: &Arguments, results: &Results, x: &str, y: &str) -> Result<(), Failure> {
    let curves = results.curves(x, y).map_err(|message| Failure::usage(format!("--plot {x},{y}: {message}")))?;
    let path = arguments.output.join(format!("{x}-{y}.svg"));
    plot_curves(&path, x, y, &curves).map_err(Failure::host)?;
    output::note(format_args!("plot: {}", path.display()));
    Ok(())
}

/// The long options of a command of `root`, the whole command line.
fn options_of(root: &clap::Command, command: Command) -> Vec<String> {
    let found = command.words().iter().try_fold(root, |at, word| at.find_subcommand(word));
    let options = found.into_iter().flat_map(clap::Command::get_arguments);
    options.filter_map(|argument| argument.get_long()).map(str::to_owned).collect()
}

/// Cells that this host does well at the same time.
fn jobs(sweep: &Sweep) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let values = |name: &str| -> Vec<Value> {
        let of_axis = sweep.axes.get(name).into_iter().flatten();
        sweep.options.get(name).into_iter().chain(of_axis).cloned().collect()
    };
    let in_real_time = values("clock").contains(&Value::Text("real".to_owned()));
    match sweep.command {
        Command::Simulate => processors,
        Command::Mount => 1,
        Command::Run | Command::Replay if in_real_time => 1,
        Command::Run | Command::Replay => {
            let sizes = values("memory").iter().filter_map(|size| crate::quantity::bytes(&size.to_string()).ok()).max();
            // As much again for the emulator, and for the bytes of the device.
            let need = 2 * sizes.unwrap_or(GUEST_MEMORY_BYTES);
            processors.min((memory_available_bytes() / need) as usize).max(1)
        }
    }
}

/// A guest's memory if none is asked for.
const GUEST_MEMORY_BYTES: u64 = 512 << 20;

fn memory_available_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
