//! A served device from its options to its result.

use std::ffi::OsString;
use std::path::Path;

use chronodisk_engine::ending::Offspring;
use chronodisk_front::iscsi::Credentials;
use chronodisk_front::nbd::Tls;
use chronodisk_front::server::{Address, Server, ServerOptions, ServerOutcome};
use chronodisk_report::{EndedBy, RunResult, ShadowResult};

use super::arguments::ServeArguments;
use super::before::{self, NewStore};
use super::ending::{self, Ending, PidFile, Waiting};
use super::guard::Guard;
use super::http::{Page, PageServer};
use super::metrics::{self, Metrics};
use super::shadow;
use super::start::{BytesPlan, Listening, Started, attach, credentials, detach, listen, server_options, start, tls};
use super::store::{self, StorePlan};
use crate::device::{self, Device};
use crate::executed::Executed;
use crate::failure::{Failure, status};
use crate::folder::{RunDirectory, RunFolder};
use crate::notes::{note, note_failed_requests};
use crate::place::expect_place;
use crate::recorded::RecordedOptions;
use crate::recording::Gathered;
use crate::result::{Caller, Runner, ServedRep, Setting, add_served_repetition, new_result, server_failure};
use crate::signals::{EndSignals, Keyboard};
use crate::times::now_rfc3339;

/// A device whose options are consistent and supported by this host. [`serve`] serves it.
pub struct ServePlan<'a> {
    /// Directory of the result, which is not made yet.
    pub directory: RunDirectory,
    arguments: &'a ServeArguments,
    recorded: &'a RecordedOptions,
    caller: Caller,
    started_at: String,
    device: Device,
    /// The real device, if one is shadowed.
    described: Option<shadow::Described>,
    bytes: BytesPlan,
    tls: Tls,
    credentials: Option<Credentials>,
    options: ServerOptions,
}

/// Progress of a server.
#[derive(Clone, Copy, Debug)]
pub enum ServeProgress<'a> {
    /// Figures of the last second.
    Second(&'a str),
    /// Serving has ended.
    Ended,
}

impl<'a> ServePlan<'a> {
    /// Checks all options, and opens the real device if one is shadowed.
    pub fn resolve(
        arguments: &'a ServeArguments,
        recorded: &'a RecordedOptions,
        caller: Caller,
    ) -> Result<Self, Failure> {
        let started_at = now_rfc3339();
        before::check_exposure(arguments)?;
        let target = arguments.shadow.as_deref().map(|path| shadow::open(arguments, path)).transpose()?;
        let device = match &target {
            Some(target) => shadow::model(arguments, target)?,
            None => device::load(&arguments.device, arguments.on.capacity, arguments.on.seed)?.without_zones()?,
        };
        let device = arguments.on.change(device)?;
        let typed_seed = recorded.is_given("seed").then_some(arguments.on.seed);
        arguments.squash.refuse_contradiction(Path::new(&arguments.store), typed_seed)?;
        let directory = RunFolder::plan(arguments.result.output.as_deref(), device.name())?;
        arguments.plot.as_deref().map_or(Ok(()), expect_place)?;
        arguments.pidfile.as_deref().map_or(Ok(()), PidFile::expect_free)?;
        let options = server_options(arguments)?;
        before::ensure_descriptors(arguments.connections)?;
        let described = target
            .as_ref()
            .map(|target| shadow::Described { name: target.name.clone(), direct: target.store.is_direct() });
        let bytes = match target {
            Some(target) => BytesPlan::Real(target),
            None => BytesPlan::Store(StorePlan::resolve(arguments, device.info().volatile_cache)?),
        };
        let tls = tls(arguments)?;
        let credentials = credentials(arguments)?;
        before::check_read_only(arguments)?;
        Ok(ServePlan {
            directory,
            arguments,
            recorded,
            caller,
            started_at,
            device,
            described,
            bytes,
            tls,
            credentials,
            options,
        })
    }
}

/// Serves until a signal comes or the program of `--run` has ended, and stores the result. No thread may exist yet. If
/// `figures` is set, `watch` is called with figures each second.
pub fn serve(
    plan: ServePlan<'_>,
    figures: bool,
    watch: &mut dyn FnMut(ServeProgress<'_>),
) -> Result<Executed, Failure> {
    let ServePlan { directory, arguments, device, described, bytes, tls, credentials, options, .. } = plan;
    // Before any thread is started, so that no thread receives the signal.
    let signals = EndSignals::catch(Keyboard::AsksToEnd)?;
    // Declared before its writers, so that it is dropped after them.
    let unused = directory.make_fresh()?;
    let new_store = NewStore::at(bytes.path());
    let Started { mut server, overflow, iscsi } = start(arguments, &device, bytes, tls, credentials, options)?;
    let gathered = Gathered::new(&directory.log(0))?;
    let cant_start = |error| Failure::host(format!("can't start a server: {error}"));
    server.record_to(gathered.recorder()).map_err(cant_start)?;
    let Listening { addresses, uris } = listen(arguments, &device, iscsi, &mut server)?;
    let attachment = attach(arguments, &device, &mut server, &plan.caller.executable)?;
    let block_device = attachment.as_ref().map(|attachment| attachment.path().to_owned());
    let shown = || Metrics {
        profile: device.name().to_owned(),
        server: server.view(),
        gathered: gathered.clone(),
        overflow: overflow.clone(),
    };
    let metrics = arguments.metrics.as_ref().map(|address| show_metrics(address, shown())).transpose()?;
    let pidfile = arguments.pidfile.as_deref().map(PidFile::write).transpose()?;

    let guard = arguments.run.as_ref().map(|_| Guard::start(&plan.caller.executable)).transpose();
    let guard = guard.map_err(|error| Failure::host(format!("can't start the guard of --run: {error}")))?;
    // After the guard, which must not count as an offspring of the program.
    let offspring = Offspring::adopt().map_err(|error| Failure::host(format!("can't adopt processes: {error}")))?;
    let (first, uri) = (addresses.first(), uris.first().map(String::as_str));
    let places = ending::Places { first, uri, block_device: block_device.as_deref() };
    let child = match arguments.run.as_ref().zip(guard) {
        Some((command, guard)) => Some((ending::captive(arguments, command, places, &guard)?, guard)),
        None => {
            announce(arguments, &uris);
            None
        }
    };
    new_store.keep();
    let mut show = || watch(ServeProgress::Second(&figures_of(&server, &gathered)));
    let every_second = figures.then_some(&mut show as &mut dyn FnMut());
    let waited = Waiting { signals: &signals, child, attachment: attachment.as_ref(), every_second }.wait(&offspring);
    watch(ServeProgress::Ended);
    // The result is kept also if that failed.
    let ending = *waited.as_ref().unwrap_or(&Ending { status: status::HOST_LACKS, by_signal: false });
    // Detach the block device before its server ends.
    drop((pidfile, metrics));
    attachment.into_iter().for_each(detach);
    let mut outcome = server.stop();
    if let Some(overflow) = overflow {
        outcome.model_statistics.extend(store::overflow_statistics(&overflow));
    }
    // The findings are printed even if the files can't be written.
    let logged = gathered.finish_log();
    let log = directory.log(0);
    let compare = |target| shadow::compare(arguments, &device, target, &log);
    let compared = described.filter(|_| logged.is_ok()).map(compare).transpose();
    let (shadow, compared) = compared.map_or_else(|failure| (None, Err(failure)), |shadow| (shadow, Ok(())));
    let serving = Serving {
        arguments,
        directory: &directory,
        device: &device,
        addresses: &addresses,
        block_device: block_device.as_deref(),
        gathered: &gathered,
        outcome: &outcome,
        ending,
    };
    let mut result = serving.result(&plan.caller, plan.recorded, shadow);
    result.started_at = plan.started_at;
    result.reps.iter().for_each(|rep| note_failed_requests(&rep.summary.failed_by_status));
    result.failure = waited.as_ref().err().map(Failure::to_string).or_else(|| server_failure(&outcome));
    result.ended_by = ended_by(result.failure.is_some(), ending.by_signal);
    let kept = directory.write_run(&result);
    drop(unused);
    let is_kept = kept.is_ok();
    let failures = [waited.map(drop), logged, compared, kept].into_iter().filter_map(Result::err);
    let mut earlier_failures: Vec<Failure> = failures.collect();
    let (status, failure) = (final_status(ending.status, &outcome), earlier_failures.pop());
    Ok(Executed { result, status, failure, earlier_failures, command_began: true, is_kept })
}

fn ended_by(failed: bool, by_signal: bool) -> EndedBy {
    match (failed, by_signal) {
        (true, _) => EndedBy::Chronodisk,
        (false, true) => EndedBy::Signal,
        (false, false) => EndedBy::Command,
    }
}

/// Facts of a device that was served.
struct Serving<'a> {
    arguments: &'a ServeArguments,
    directory: &'a RunDirectory,
    device: &'a Device,
    addresses: &'a [Address],
    block_device: Option<&'a Path>,
    gathered: &'a Gathered,
    outcome: &'a ServerOutcome,
    ending: Ending,
}

impl Serving<'_> {
    fn result(&self, caller: &Caller, recorded: &RecordedOptions, shadow: Option<ShadowResult>) -> RunResult {
        let command: Vec<OsString> = self.arguments.run.iter().cloned().collect();
        let mut result = new_result(&Setting {
            caller,
            directory: self.directory,
            devices: &[self.device.used()],
            command: &command,
            recorded,
            labels: &self.arguments.result.labels.labels(),
            runner: Runner::Served { shadow: shadow.is_some() },
        });
        let nodes = self.block_device.iter().map(|path| path.display().to_string());
        let state = self.gathered.state();
        let rep = ServedRep {
            addresses: self.addresses.iter().map(Address::to_string).chain(nodes).collect(),
            status: self.ending.status,
            outcome: self.outcome,
            summary: state.summary.finish(),
            lateness_unstolen: state.summary.lateness_unstolen(),
            shadow,
        };
        drop(state);
        add_served_repetition(&mut result, rep);
        result
    }
}

/// The exit status: a failure of this program precedes the status of `--run`'s program, which the result has.
fn final_status(of_command: u8, outcome: &ServerOutcome) -> u8 {
    if server_failure(outcome).is_some() { status::HOST_LACKS } else { of_command }
}

fn announce(arguments: &ServeArguments, uris: &[String]) {
    uris.iter().for_each(|uri| note(format_args!("serving at {uri}")));
    if let Some(path) = &arguments.vhost_user {
        note(format_args!("serving vhost-user-blk at {}", path.display()));
    }
}

fn show_metrics(address: &Address, metrics: Metrics) -> Result<PageServer, Failure> {
    let Address::Tcp { host, port } = address else { unreachable!("other addresses are refused") };
    let render = Box::new(move || metrics.render());
    let page = Page { path: "/metrics", content_type: metrics::CONTENT_TYPE, render };
    let server = PageServer::start((host.as_str(), *port), page)
        .map_err(|error| Failure::host(format!("--metrics {address}: {error}")))?;
    note(format_args!("metrics at http://{}/metrics", server.address()));
    Ok(server)
}

/// A line for the last second.
fn figures_of(server: &Server, gathered: &Gathered) -> String {
    let engine = server.statistics().engine;
    let (requests, bytes, lateness) = gathered.recent();
    format!(
        "{requests} requests/s, {:.1} MB/s, {} outstanding, lateness p50 {}",
        bytes as f64 / 1e6,
        engine.arrivals - engine.completions,
        lateness.map_or("-".to_owned(), |lateness| lateness.to_string()),
    )
}
