//! `chronodisk kernel`: kernels that no distribution has.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chronodisk_guest::built_kernel::{self, BuildError, BuildOptions, KernelVariant, PackageError, Progress};
use chronodisk_report::HostInfo;
use chronodisk_run::EndSignals;
use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::failure::{Failure, Outcome, status};
use crate::output;
use crate::progress::Working;

/// Builds and installs the guest kernels that --clock exact and zoned devices need
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk kernel build")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Builds the kernel from the distribution's source into your cache: 3 to 18 minutes on two processors
    #[command(after_help = "Example: chronodisk kernel build && chronodisk run --clock exact --device null -- true")]
    Build(Build),
    /// Writes the kernel that was built here as an archive for other hosts
    ///
    /// The archive can be unpacked below any prefix, such as /usr/local; the executable finds the kernel below its own.
    #[command(
        after_help = "Example: chronodisk kernel package && sudo tar -C /usr/local -xf chronodisk-kernel-*.tar.gz"
    )]
    Package {
        /// Selects the kernel
        #[arg(value_name = "NAME", default_value = "exact")]
        name: KernelName,

        /// Writes the archive into this directory
        #[arg(long, short, value_name = "DIR", default_value = ".")]
        output: PathBuf,

        /// Prints the path of the archive as JSON
        #[arg(long)]
        json: bool,
    },
    /// Installs the kernel of such an archive into your cache
    #[command(after_help = "Example: chronodisk kernel install chronodisk-kernel-0123456789abcdef-x86_64.tar.gz")]
    Install {
        /// Archive of `chronodisk kernel package`
        file: PathBuf,

        /// Prints the path of the kernel as JSON
        #[arg(long)]
        json: bool,
    },
    /// Prints the path of a kernel
    #[command(after_help = "Example: chronodisk kernel path zones")]
    Path {
        /// Selects the kernel
        #[arg(value_name = "NAME", default_value = "exact")]
        name: KernelName,

        /// Prints the path as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
struct Build {
    /// Selects the kernel
    #[arg(value_name = "NAME", default_value = "exact")]
    name: KernelName,

    /// Uses this archive of Linux's source (default: from Debian's package linux-source-6.1 for exact, and from the
    /// newest package since linux-source-6.10 for zones)
    #[arg(long, value_name = "FILE")]
    source: Option<PathBuf>,

    /// Applies this patch after ours, such as a modified file system; may be repeated
    #[arg(long = "patch", value_name = "FILE", requires = "output")]
    patches: Vec<PathBuf>,

    /// Writes the kernel to this file, for `run --kernel` (default: your cache)
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Builds in this new directory and keeps it, for modules and for rebuilding after a change
    #[arg(long, value_name = "DIR", requires = "output")]
    tree: Option<PathBuf>,

    /// Runs this number of compilers at a time (default: one per processor)
    #[arg(long, short, value_name = "N")]
    jobs: Option<usize>,

    /// Builds the kernel even if it exists
    #[arg(long)]
    force: bool,

    /// Prints the path of the kernel as JSON
    #[arg(long)]
    json: bool,
}

/// The kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelName {
    /// For --clock exact: Linux 6.1 with simulated time
    Exact,
    /// For guests with zoned devices: Linux 6.10 or later with BLK_DEV_ZONED, btrfs, f2fs and zonefs
    Zones,
    /// For run --cpus: Linux 7.2 with a clock of several processors; it has zones, too
    Processors,
}

impl From<KernelName> for KernelVariant {
    fn from(name: KernelName) -> Self {
        match name {
            KernelName::Exact => KernelVariant::Exact,
            KernelName::Zones => KernelVariant::Zones,
            KernelName::Processors => KernelVariant::Processors,
        }
    }
}

/// Builds the kernel, or prints its path if it exists.
pub fn execute(arguments: Arguments) -> Outcome {
    match arguments.command {
        Command::Build(build) => execute_build(build),
        Command::Package { name, output, json } => {
            let archive = built_kernel::package(name.into(), &output).map_err(package_failure)?;
            match json {
                true => output::data(&format!("{}\n", json!({ "schema": KERNEL_SCHEMA, "archive": archive })))?,
                false => output::data(&format!("{}\n", archive.display()))?,
            }
            Ok(status::FINE)
        }
        Command::Install { file, json } => tell(&built_kernel::install(&file).map_err(package_failure)?, json),
        Command::Path { name, json } => {
            let kernel =
                built_kernel::find(name.into()).map_err(|lacks| Failure::host(&lacks.what).help(lacks.help))?;
            tell(&kernel.executable, json)
        }
    }
}

fn package_failure(error: PackageError) -> Failure {
    match error {
        PackageError::HostLacks(lacks) => Failure::host(&lacks.what).help(lacks.help),
        error @ PackageError::Archive { .. } => Failure::usage(error),
        error @ PackageError::File { .. } => Failure::host(error),
    }
}

fn execute_build(build: Build) -> Outcome {
    if let (None, false, Ok(kernel)) = (&build.output, build.force, built_kernel::find(build.name.into())) {
        output::note("the kernel is already built; --force builds it again");
        return tell(&kernel.executable, build.json);
    }
    let asked = EndSignals::flag()?;
    let Build { name, source, patches, output, tree, jobs, .. } = build;
    let options = BuildOptions { variant: name.into(), source, patches, output, tree, jobs };
    let bar = ProgressBar::new(1);
    bar.enable_steady_tick(TICK);
    // A bar is drawn on a terminal alone.
    let working = (!io::stderr().is_terminal()).then(|| Working::at("starting"));
    let began = Instant::now();
    let result = built_kernel::build(&options, asked.as_flag(), &mut |progress| {
        if let Some(working) = &working {
            working.now_at(words_of(&progress));
        }
        show(&bar, progress);
    });
    bar.finish_and_clear();
    drop(working);
    match result {
        Ok(file) => {
            output::note(what_it_took(began.elapsed(), &chronodisk_sweep::host_info()));
            tell(&file, build.json)
        }
        Err(BuildError::Interrupted) => {
            output::note("interrupted; no kernel was kept");
            Ok(asked.status())
        }
        Err(BuildError::HostLacks(lacks)) => Err(Failure::host(&lacks.what).help(lacks.help)),
        Err(error @ BuildError::File { .. }) => Err(Failure::usage(error)),
        Err(error) => Err(Failure::host(error)),
    }
}

/// The measured time with the machine, on which it depends.
fn what_it_took(elapsed: Duration, host: &HostInfo) -> String {
    let seconds = elapsed.as_secs();
    format!("built in {} min {} s on {} CPUs, {}", seconds / 60, seconds % 60, host.cores, host.cpu_model)
}

/// Interval of redrawing the elapsed time.
const TICK: Duration = Duration::from_millis(500);

fn words_of(progress: &Progress) -> String {
    match progress {
        Progress::Unpacking => "unpacking and patching".to_owned(),
        Progress::Configuring => "configuring".to_owned(),
        Progress::Compiling { done, of } => format!("compiling: {done} of about {of} files"),
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    let words = |words: &'static str| {
        bar.set_style(ProgressStyle::with_template("{msg} {elapsed}").expect("a fixed template"));
        bar.set_message(words);
        bar.tick();
    };
    match progress {
        Progress::Unpacking => words("unpacking and patching"),
        Progress::Configuring => words("configuring"),
        Progress::Compiling { done, of } => {
            if done == 1 {
                let template = "compiling {bar:40} {pos} of about {len} files, {elapsed}";
                bar.set_style(ProgressStyle::with_template(template).expect("a fixed template"));
            }
            bar.set_length(u64::from(of));
            bar.set_position(u64::from(done));
        }
    }
}

const KERNEL_SCHEMA: &str = "chronodisk.kernel/1";

fn tell(file: &std::path::Path, json: bool) -> Outcome {
    if json {
        output::data(&format!("{}\n", json!({ "schema": KERNEL_SCHEMA, "kernel": file })))?;
    } else {
        output::data(&format!("{}\n", file.display()))?;
    }
    Ok(status::FINE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_time_names_its_machine() {
        let host = HostInfo { cpu_model: "Some Processor".into(), cores: 2, kernel: "6.1".into() };
        assert_eq!(what_it_took(Duration::from_secs(166), &host), "built in 2 min 46 s on 2 CPUs, Some Processor");
    }
}
