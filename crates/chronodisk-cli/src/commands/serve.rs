//! `chronodisk serve`: an emulated device for any client, in real time.

use chronodisk_run::{RecordedOptions, RunFolder, ServeArguments, ServePlan, ServeProgress, serve};
use clap::Args;

use crate::failure::Outcome;
use crate::status_line::StatusLine;
use crate::{output, version};

/// Serves an emulated device over NBD, iSCSI or vhost-user, in real time
///
/// Clients use the network block device protocol (NBD): QEMU, nbdcopy, fio, the kernel's nbd module, or another
/// machine. iSCSI initiators see a SCSI disk. Each reply is sent when the device model completes the request. The
/// server ends on Ctrl-C, SIGTERM or SIGHUP, or when the program of --run ends. It keeps a log of all requests, which
/// `chronodisk verify` can replay.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: that of the program of --run; 0 without one;\n\
    2 for wrong usage; 3 if this host lacks something, if the store could not be closed,\n\
    if the result could not be written, or after a defect of this program.\n\n\
    Example: chronodisk serve --device constant-10ms --nbd unix:disk.sock --run 'nbdinfo $uri'\n\
    \x20        chronodisk serve --device first-disk --nbd 10809 --store overflow:disk.img")]
pub struct Arguments {
    #[command(flatten)]
    serve: ServeArguments,
}

/// Serves until a signal comes or the program of `--run` has ended, and stores the result.
pub fn execute(arguments: Arguments, recorded: &RecordedOptions) -> Outcome {
    let ServeArguments { stats, quiet, .. } = arguments.serve;
    let json = arguments.serve.result.json;
    let plan = ServePlan::resolve(&arguments.serve, recorded, version::caller())?;
    let directory = plan.directory.clone();
    // A status line would disturb the output of the program of --run.
    let line = StatusLine::new(quiet || arguments.serve.run.is_some());
    let mut run = serve(plan, stats || line.is_shown(), &mut |progress| match progress {
        ServeProgress::Second(figures) if stats => output::note(figures),
        ServeProgress::Second(figures) => line.say(figures),
        ServeProgress::Ended => line.clear(),
    })?;
    output::summary(&run.result, quiet);
    let shown = if json { output::data(&run.result.to_json()) } else { Ok(()) };
    if run.is_kept {
        RunFolder::remember(&directory);
        if !quiet {
            output::note(format_args!("result: {}", directory.path().display()));
        }
        if let Err(failure) = shown {
            run.earlier_failures.extend(run.failure.replace(failure));
        }
    }
    // The last one is returned, which shows it.
    run.earlier_failures.into_iter().for_each(output::failure);
    run.failure.map_or(Ok(run.status), Err)
}
