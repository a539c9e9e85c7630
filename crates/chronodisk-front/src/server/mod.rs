//! Serves a device to real clients: sockets and threads around the sans-I/O sessions.
//!
//! All connections share one skeleton (`connection`), with a `Protocol` for byte streams (NBD, iSCSI), vhost-user and
//! FUSE. `docs/adding-a-front-end.md` describes how to add one.
//!
//! [`Server`] owns the store, and the engine on the host's clock. Every connection has a thread of its own, which
//! answers immediate completions itself. For later completions, one thread at a time is the *pacer*: it sleeps and
//! spins until the next completion must leave, and sends it for any connection. The thread with the request that moves
//! the next completion nearer becomes the pacer, because it is awake anyway. So no thread has to wake another one.
//!
//! *Helpers*, threads with an access of their own to the store, do the work that would wait for the host's disk, so
//! that a connection's other requests continue. [`Server::shadow`] serves a real device instead of a model: helpers do
//! all requests, completions leave when the device completes, and a model without influence sees the same arrivals.
//!
//! A client that does not read its replies blocks no other client: sends never wait for room in a socket, and the rest
//! is left to that client's own thread.

mod connection;
mod core;
mod fuse;
mod helpers;
mod iscsi;
mod late;
mod listen;
mod moving;
mod nbd;
mod panics;
mod peer;
mod preload;
mod recording;
mod rehearsal;
mod shadowing;
mod stream;
mod ublk;
mod unmeasured;
mod vhost;
mod work;
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use chronodisk_device::{DeviceModel, probed};
use chronodisk_engine::listen::{Connections, Share};
use chronodisk_engine::real_host::{self, IdleProcessors, KeepAwake};
use chronodisk_engine::{
    DeviceIndex, Engine, EngineStatistics, InheritingGuard, InheritingMutex, MonotonicClock, PaceStatistics, RealClock,
    RealOptions, RealStatistics,
};
use chronodisk_sim::{Nanos, RequestRecord};
use chronodisk_store::Store;
use rustix::event::{EventfdFlags, eventfd};

use self::core::Core;
use self::fuse::RingMemory;
pub use self::fuse::{AttachPermissions, FuseChannel};
use self::helpers::Helpers;
pub use self::iscsi::IscsiOptions;
pub use self::listen::{Address, ListenError};
use self::peer::Peer;
pub use self::preload::{OverflowView, Preloaded};
pub use self::recording::Recorder;
use self::recording::Recording;
use self::rehearsal::Rehearsal;
use self::shadowing::Shadowing;
pub use self::ublk::UblkCut;
use self::unmeasured::Skipping;
use crate::BlkConfig;
use crate::late::LateChanges;
use crate::nbd::{MemoryLimit, ServerOffer};

/// A device that is being served.
pub struct Server {
    shared: Arc<Shared>,
    offer: Arc<ServerOffer>,
    acceptors: Vec<Acceptor>,
    recording: Option<Recording>,
    /// Sockets in the file system that are removed at the end.
    paths: Vec<PathBuf>,
}

/// A thread that accepts connections, or serves the kernel.
struct Acceptor {
    thread: JoinHandle<()>,
    /// Memory that the kernel may use until the thread has ended. Without a call of `join` it is never freed.
    memory: ManuallyDrop<Option<Arc<RingMemory>>>,
}

impl Acceptor {
    fn of(thread: JoinHandle<()>) -> Self {
        Acceptor::with_memory(thread, None)
    }

    fn with_memory(thread: JoinHandle<()>, memory: Option<Arc<RingMemory>>) -> Self {
        Acceptor { thread, memory: ManuallyDrop::new(memory) }
    }

    /// Waits for the end of the thread, and frees the memory.
    fn join(self) -> std::thread::Result<()> {
        let ended = self.thread.join();
        drop(ManuallyDrop::into_inner(self.memory));
        ended
    }
}

/// Options for serving a device.
#[derive(Clone, Copy, Debug)]
pub struct ServerOptions {
    /// Overrides for the arrival skew and the completion lead.
    pub timing: RealOptions,
    /// Threads that wait for completions keep the CPUs awake, and become real-time threads where
    /// that is permitted.
    pub realtime: bool,
    /// CPU to which the threads are bound.
    pub cpu: Option<usize>,
    /// Most connections at a time, in all and of one address. Further ones are closed at once, unless one that is idle
    /// makes room.
    pub connections: Share,
    /// Time for a client's negotiation; a slower client is disconnected. While clients wait for memory, a client that
    /// holds some and neither sends the rest of its request nor takes its replies is disconnected after this time.
    pub handshake_max: Nanos,
    /// Memory that NBD clients' requests may fill together; further requests wait in the sockets.
    pub client_bytes_max: u64,
    /// Most requests that are at the host's disk at once; where the bytes are in memory, one helper copies.
    pub helpers_max: usize,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            timing: RealOptions::default(),
            realtime: true,
            cpu: None,
            connections: Share::of(256),
            handshake_max: Nanos::from_secs(10),
            client_bytes_max: 1 << 30,
            helpers_max: 16,
        }
    }
}

/// Activity of a server so far.
#[derive(Clone, Debug, Default)]
pub struct ServerStatistics {
    /// Counters of the engine.
    pub engine: EngineStatistics,
    /// Estimates and counters of the host's clock.
    pub clock: RealStatistics,
    /// Statistics about the threads' time.
    pub pace: PaceStatistics,
    /// Whether some thread was a real-time thread.
    pub realtime: bool,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused because of the limit on their number.
    pub connections_refused: u64,
    /// Idle connections that made room for others.
    pub connections_evicted: u64,
    /// Connections that ended because the client took too long for negotiation.
    pub handshakes_given_up: u64,
    /// Connections ended because the client held memory for which others waited, without progress.
    pub stalled: u64,
    /// Connections that ended because the client broke the protocol.
    pub violations: u64,
    /// The first reason for one.
    pub first_violation: Option<String>,
    /// Requests that were answered with an error before they reached the device.
    pub refused_requests: u64,
    /// Requests that the store could not do.
    pub store_errors: u64,
    /// The first of these errors.
    pub first_store_error: Option<String>,
    /// Completions of clients that had disconnected.
    pub dropped_completions: u64,
    /// Panics: defects of this program. Each ended one connection.
    pub panics: u64,
    /// Place and message of the first panic.
    pub first_panic: Option<String>,
}

/// Result of a server.
#[derive(Debug)]
pub struct ServerOutcome {
    /// The requests in order of arrival, unless a [`Recorder`] got them.
    pub records: Vec<RequestRecord>,
    /// Instant of the end, to which the model was run.
    pub end: Nanos,
    /// Counters.
    pub statistics: ServerStatistics,
    /// Reason why the store could not be closed: bytes that clients wrote may be lost.
    pub close_error: Option<String>,
    /// Bytes that the store kept, if it could tell.
    pub store_bytes: Option<u64>,
    /// The model's own statistics.
    pub model_statistics: Vec<(String, f64)>,
    /// Warnings about the bytes that the store keeps.
    pub store_notices: Vec<String>,
}

impl Server {
    /// Serves device `device` of `engine` with the bytes of `store` to NBD clients, with the exports in `offer`.
    ///
    /// # Errors
    /// If the host refuses a descriptor or a thread.
    pub fn new(
        engine: Engine,
        device: DeviceIndex,
        store: Box<dyn Store>,
        offer: ServerOffer,
        host: MonotonicClock,
        options: ServerOptions,
    ) -> io::Result<Self> {
        Server::build(engine, device, store, offer, host, options, None)
    }

    /// Serves a real device, opened as `store`, to NBD clients, with the exports in `offer`. `model` gets the same
    /// arrivals; its capacity must not be below the offered one. At most [`helpers_max`](ServerOptions::helpers_max)
    /// requests are at the device at once.
    ///
    /// # Errors
    /// If the host refuses a descriptor or a thread.
    pub fn shadow(
        model: Box<dyn DeviceModel>,
        store: Box<dyn Store>,
        offer: ServerOffer,
        host: MonotonicClock,
        options: ServerOptions,
    ) -> io::Result<Self> {
        let shadowing = Some(Shadowing::start(model)?);
        Server::build(Engine::new(), DeviceIndex(0), store, offer, host, options, shadowing)
    }

    fn build(
        engine: Engine,
        device: DeviceIndex,
        store: Box<dyn Store>,
        offer: ServerOffer,
        host: MonotonicClock,
        options: ServerOptions,
        shadowing: Option<Shadowing>,
    ) -> io::Result<Self> {
        let cpus = real_host::usable_cpus();
        let torn_write_sectors = if shadowing.is_none() { engine.info(device).torn_write_sectors } else { None };
        let only_copy = shadowing.is_none() && matches!(store.second_way(), Ok(None));
        let helpers_max = if only_copy { options.helpers_max.min(COPIERS) } else { options.helpers_max };
        let shared = Shared {
            host,
            device,
            options,
            core: InheritingMutex::new(Core::new(RealClock::new(engine))),
            store: InheritingMutex::new(store),
            late: torn_write_sectors.map(|sectors| InheritingMutex::new(LateChanges::new(sectors))),
            helpers: Helpers::new(helpers_max),
            client_memory: Arc::new(MemoryLimit::new(options.client_bytes_max)),
            shadowing,
            wake_at: AtomicU64::new(u64::MAX),
            peers: InheritingMutex::new(BTreeMap::new()),
            next_connection: AtomicU32::new(1),
            connections: Connections::new(options.connections),
            connection_count: AtomicUsize::new(0),
            skipping: Skipping::default(),
            attached: AtomicBool::new(false),
            idle_processors: IdleProcessors::watch().ok(),
            stopping: AtomicBool::new(false),
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            rehearsal: Rehearsal::default(),
            keep_awake: OnceLock::new(),
            may_linger: options.realtime && cpus.len() > 1,
            cpus,
            lingering: AtomicBool::new(false),
            totals: InheritingMutex::new(Totals::default()),
        };
        Ok(Server {
            shared: Arc::new(shared),
            offer: Arc::new(offer),
            acceptors: Vec::new(),
            recording: None,
            paths: Vec::new(),
        })
    }

    /// Passes finished requests to `recorder`, from a thread of its own, instead of keeping them to the end. Memory
    /// then does not grow with their number.
    ///
    /// # Errors
    /// If the host refuses a thread.
    pub fn record_to(&mut self, recorder: Box<dyn Recorder>) -> io::Result<()> {
        match &self.shared.shadowing {
            Some(shadowing) => shadowing.record_to(recorder),
            None => self.recording = Some(Recording::start(self.shared.clone(), recorder)?),
        }
        Ok(())
    }

    /// Begins to accept NBD clients at an address. Returns the address with the port that the host chose.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn listen_nbd(&mut self, address: &Address) -> Result<Address, ListenError> {
        let (listener, bound) = listen::bind(address)?;
        if let Address::Unix(path) = &bound {
            self.paths.push(path.clone());
        }
        let transport = self.shared.core().clock.add_transport(&bound.to_string(), self.shared.options.timing);
        let (shared, offer) = (self.shared.clone(), self.offer.clone());
        let accept = move || {
            listen::accept(&shared, &listener, |shared, connection, socket, place| {
                nbd::serve(shared, connection, transport, (socket, place), offer.clone())
            });
        };
        let acceptor = std::thread::Builder::new().name("accept".into()).spawn(accept);
        let acceptor = acceptor.map_err(|source| ListenError::new(&bound, "starting a thread", source))?;
        self.acceptors.push(Acceptor::of(acceptor));
        Ok(bound)
    }

    /// Begins to accept guests at an address, with the device as vhost-user-blk, described by `config`.
    ///
    /// # Errors
    /// [`ListenError`].
    ///
    /// # Panics
    /// If the address is not a Unix domain socket.
    pub fn listen_vhost_user(&mut self, address: &Address, config: BlkConfig) -> Result<(), ListenError> {
        let Address::Unix(path) = address else { panic!("vhost-user passes descriptors, which TCP can't") };
        let (listener, _) = listen::bind(address)?;
        self.paths.push(path.clone());
        let name = format!("vhost-user {address}");
        let transport = self.shared.core().clock.add_transport(&name, self.shared.options.timing);
        let shared = self.shared.clone();
        let accept = move || {
            listen::accept(&shared, &listener, |shared, connection, socket, place| {
                vhost::serve(shared, connection, transport, (socket, place), &config)
            });
        };
        let acceptor = std::thread::Builder::new().name("accept".into()).spawn(accept);
        let acceptor = acceptor.map_err(|source| ListenError::new(address, "starting a thread", source))?;
        self.acceptors.push(Acceptor::of(acceptor));
        Ok(())
    }

    /// Statistics so far.
    #[must_use]
    pub fn statistics(&self) -> ServerStatistics {
        self.shared.statistics()
    }

    /// Access to the statistics from other threads, and after this value.
    #[must_use]
    pub fn view(&self) -> ServerView {
        ServerView(self.shared.clone())
    }

    /// The instant that the clients' requests are measured by.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.shared.now()
    }

    /// Stops accepting, answers outstanding requests, closes the connections, and returns the result.
    #[must_use]
    pub fn stop(mut self) -> ServerOutcome {
        self.shared.stopping.store(true, Ordering::SeqCst);
        peer::raise(&self.shared.stop);
        for peer in self.shared.peers().values() {
            peer.end_input();
        }
        // An acceptor ends when its connections have.
        for acceptor in self.acceptors.drain(..) {
            if let Err(panic) = acceptor.join() {
                self.shared.note_panic("the thread that accepts connections", &*panic);
            }
        }
        for path in &self.paths {
            // Another process may have removed it.
            let _ = std::fs::remove_file(path);
        }
        self.shared.helpers.end();
        let recorder = self.recording.take().and_then(Recording::stop);
        let closed = self.shared.close_store();
        let shadowed = self.shared.shadowing.as_ref().map(|shadowing| {
            let shadowed = shadowing.end().unwrap_or_else(|panic| {
                self.shared.note_panic("the model", &*panic);
                None
            });
            shadowed.map_or_else(Ended::default, |shadowed| Ended {
                model_statistics: probed(|sink| shadowed.model.probe(sink)),
                records: shadowed.records,
            })
        });
        let now = self.shared.now();
        let before = self.shared.statistics();
        let (ended, end) = match shadowed {
            Some(ended) => (ended, now),
            None => self.shared.end_model(now, recorder, closed.statistics),
        };
        // Ending the model may have panicked.
        let ServerStatistics { panics, first_panic, .. } = self.shared.statistics();
        ServerOutcome {
            records: ended.records,
            end,
            statistics: ServerStatistics { panics, first_panic, ..before },
            close_error: closed.error,
            store_bytes: closed.bytes,
            model_statistics: ended.model_statistics,
            store_notices: closed.notices,
        }
    }
}

/// Result of closing a store.
#[derive(Default)]
struct Closed {
    error: Option<String>,
    bytes: Option<u64>,
    statistics: Vec<(String, f64)>,
    notices: Vec<String>,
}

/// Final state of the device's model.
#[derive(Default)]
struct Ended {
    model_statistics: Vec<(String, f64)>,
    records: Vec<RequestRecord>,
}

impl Shared {
    /// Writes that a client saw acknowledged stay written.
    fn close_store(&self) -> Closed {
        let mut store = self.store();
        let closed = self.catch(
            || "closing the store".to_owned(),
            || {
                let error = store.close().err().map(|error| error.to_string());
                let bytes = store.allocated_bytes().ok();
                Closed { error, bytes, statistics: store.statistics(), notices: store.notices() }
            },
        );
        closed.unwrap_or_else(|| Closed { error: Some("its code panicked".to_owned()), ..Closed::default() })
    }

    /// Takes the model's statistics and the rest of the log, which goes to `recorder` if there is one.
    fn end_model(
        &self,
        now: Nanos,
        recorder: Option<Box<dyn Recorder>>,
        store_statistics: Vec<(String, f64)>,
    ) -> (Ended, Nanos) {
        let clock = std::mem::replace(&mut self.core().clock, RealClock::new(Engine::new()));
        let ended = self.catch(
            || "the model".to_owned(),
            || {
                let mut model_statistics = probed(|sink| clock.engine().port(self.device).probe(sink));
                model_statistics.extend(store_statistics);
                let (log, end) = clock.finish(now);
                (Ended { model_statistics, records: log.into_records() }, end)
            },
        );
        let (mut ended, end) = ended.unwrap_or_else(|| (Ended::default(), now));
        if let Some(mut recorder) = recorder {
            self.catch(|| "the log".to_owned(), || recorder.record(&ended.records));
            ended.records = Vec::new();
        }
        (ended, end)
    }
}

/// Shows a server's statistics.
#[derive(Clone)]
pub struct ServerView(Arc<Shared>);

impl ServerView {
    /// Statistics so far.
    #[must_use]
    pub fn statistics(&self) -> ServerStatistics {
        self.0.statistics()
    }
}

/// State shared by all threads.
struct Shared {
    host: MonotonicClock,
    device: DeviceIndex,
    options: ServerOptions,
    core: InheritingMutex<Core>,
    store: InheritingMutex<Box<dyn Store>>,
    /// The outstanding changes if the device may fail requests. Locked before the store.
    late: Option<InheritingMutex<LateChanges>>,
    helpers: Helpers,
    client_memory: Arc<MemoryLimit>,
    shadowing: Option<Shadowing>,
    /// Instant at which the next completion must leave, in nanoseconds; all ones if no request is outstanding. The
    /// pacer reads it while it spins.
    wake_at: AtomicU64,
    peers: InheritingMutex<BTreeMap<u32, Arc<dyn Peer>>>,
    next_connection: AtomicU32,
    connections: Arc<Connections>,
    connection_count: AtomicUsize,
    /// Skipped time, and whether waits are being skipped.
    skipping: Skipping,
    /// Whether this host's kernel has attached the device.
    attached: AtomicBool,
    /// If absent, threads sleep as if no processor was ever idle.
    idle_processors: Option<IdleProcessors>,
    stopping: AtomicBool,
    stop: OwnedFd,
    rehearsal: Rehearsal,
    /// CPUs of the process, unless one of its threads is bound.
    cpus: Vec<usize>,
    /// If absent, wake-ups are slower, without any other effect.
    keep_awake: OnceLock<Option<KeepAwake>>,
    /// Whether a thread may look for a request for a while: only where its client has another CPU.
    may_linger: bool,
    /// Whether one does.
    lingering: AtomicBool,
    totals: InheritingMutex<Totals>,
}

/// Totals of ended threads.
#[derive(Debug, Default)]
struct Totals {
    pace: PaceStatistics,
    realtime: bool,
    connections: u64,
    connections_refused: u64,
    handshakes_given_up: u64,
    stalled: u64,
    violations: u64,
    first_violation: Option<String>,
    refused_requests: u64,
    store_errors: u64,
    first_store_error: Option<String>,
    dropped_completions: u64,
    panics: u64,
    first_panic: Option<String>,
}

/// Number of helpers that share the single access to a store in memory. They wait only for its lock, and more of them
/// would only take CPUs from clients on this host.
const COPIERS: usize = 1;

impl Shared {
    fn now(&self) -> Nanos {
        use chronodisk_engine::HostClock;
        self.host.now().saturating_add(self.skipping.skipped())
    }

    fn core(&self) -> InheritingGuard<'_, Core> {
        self.core.lock()
    }

    fn store(&self) -> InheritingGuard<'_, Box<dyn Store>> {
        self.store.lock()
    }

    fn peers(&self) -> InheritingGuard<'_, BTreeMap<u32, Arc<dyn Peer>>> {
        self.peers.lock()
    }

    fn totals(&self) -> InheritingGuard<'_, Totals> {
        self.totals.lock()
    }

    fn note_store_error(&self, error: &dyn std::fmt::Display) {
        let mut totals = self.totals();
        totals.store_errors += 1;
        totals.first_store_error.get_or_insert_with(|| error.to_string());
    }

    /// A client broke its protocol, and its connection ends.
    fn note_violation(&self, reason: &dyn std::fmt::Display) {
        let mut totals = self.totals();
        totals.violations += 1;
        totals.first_violation.get_or_insert_with(|| reason.to_string());
    }

    /// Instant at which the next completion must leave; [`Nanos::MAX`] if no request is outstanding.
    fn wake_at(&self) -> Nanos {
        Nanos::from_nanos(self.wake_at.load(Ordering::Acquire))
    }

    fn set_wake_at(&self, wake_at: Option<Nanos>) {
        self.wake_at.store(wake_at.map_or(u64::MAX, Nanos::as_nanos), Ordering::Release);
    }

    /// Whether this host's kernel has the device. No thread may be a real-time thread then: the kernel's workers, which
    /// bring the requests, are ordinary ones and would starve.
    fn is_attached(&self) -> bool {
        self.attached.load(Ordering::Relaxed)
    }

    /// Whether a processor other than the calling thread's is idle.
    fn has_idle_processor(&self) -> bool {
        self.idle_processors.as_ref().is_some_and(IdleProcessors::has_another)
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Whether this is the only connection, so that its thread need not listen for others.
    fn is_alone(&self) -> bool {
        self.connection_count.load(Ordering::Relaxed) <= 1
    }

    /// Keeps the CPUs awake for a while.
    fn keep_awake(&self) {
        if let Some(keep_awake) = self.keep_awake.get_or_init(|| KeepAwake::start(&self.cpus).ok()) {
            keep_awake.want();
        }
    }

    /// Moves to an idle CPU, so that the preempted thread can continue.
    fn leave_busy_cpu(&self) {
        if let (None, Some(Some(keep_awake))) = (self.options.cpu, self.keep_awake.get()) {
            keep_awake.leave_busy_cpu();
        }
    }

    fn statistics(&self) -> ServerStatistics {
        let (mut engine, clock) = {
            let core = self.core();
            (core.clock.engine().statistics(), core.clock.statistics())
        };
        if let Some(shadowing) = &self.shadowing {
            (engine.arrivals, engine.completions) = shadowing.counts();
        }
        let totals = self.totals();
        ServerStatistics {
            engine,
            clock,
            pace: totals.pace,
            realtime: totals.realtime,
            connections: totals.connections,
            connections_refused: totals.connections_refused,
            connections_evicted: self.connections.evictions(),
            handshakes_given_up: totals.handshakes_given_up,
            stalled: totals.stalled,
            violations: totals.violations,
            first_violation: totals.first_violation.clone(),
            refused_requests: totals.refused_requests,
            store_errors: totals.store_errors,
            first_store_error: totals.first_store_error.clone(),
            dropped_completions: totals.dropped_completions,
            panics: totals.panics,
            first_panic: totals.first_panic.clone(),
        }
    }
}
