//! A small simulated world without noise: threads compute, read, read ahead and sleep, on shared processors and on a
//! device with channels. It runs at any speed of the device, and either follows and freezes the program by a
//! [`Dilation`] or leaves it alone.

use std::collections::HashMap;

use chronodisk_engine::dilation::{Dilation, DilationOptions, Direction, Event, Prediction, Wake, Wish};
use chronodisk_sim::Nanos;

/// The next step of a thread. Durations are in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Compute(f64),
    /// Reads this number of bytes and waits for them.
    Read(f64),
    /// Reads bytes in an event loop: wakes for a moment at each interval until they are there.
    Poll(f64, f64),
    /// Begins to read ahead this number of bytes.
    Start(f64),
    /// Waits for the thread's read-ahead with this number, counted from 0.
    Await(usize),
    Sleep(f64),
    /// Waits for the end of the thread with this number.
    Join(usize),
}

/// A device: each request takes `latency` on one of the channels; then its bytes cross a single bus, in order.
#[derive(Clone, Copy, Debug)]
pub struct Device {
    pub latency: f64,
    /// Bytes per nanosecond; zero for an infinite rate.
    pub rate: f64,
    pub channels: usize,
    /// Each n-th request takes 30 times the latency; zero for none.
    pub hiccup_every: usize,
}

/// Further properties of the world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub processors: f64,
    /// Delay from the decision to freeze until the program stands, and from the decision to thaw until it runs.
    pub freeze_delay: f64,
    pub thaw_delay: f64,
    /// First of the kernel's threads: they work for the program, and are never frozen.
    pub kernel_from: usize,
}

impl Default for World {
    /// Measured on a machine of 2026 with cgroup v2.
    fn default() -> Self {
        World { processors: 2.0, freeze_delay: 4_000.0, thaw_delay: 15_000.0, kernel_from: usize::MAX }
    }
}

struct Serving {
    device: Device,
    speed: f64,
    channels_free: Vec<f64>,
    bus_free: f64,
    requests: usize,
}

impl Serving {
    fn submit(&mut self, now: f64, bytes: f64) -> f64 {
        let free = |&a: &usize, &b: &usize| self.channels_free[a].total_cmp(&self.channels_free[b]);
        let channel = (0..self.channels_free.len()).min_by(free).expect("there is a channel");
        self.requests += 1;
        let hiccup = self.device.hiccup_every > 0 && self.requests.is_multiple_of(self.device.hiccup_every);
        let latency = self.device.latency * if hiccup { 30.0 } else { 1.0 };
        let mut end = now.max(self.channels_free[channel]) + latency / self.speed;
        if self.device.rate > 0.0 {
            end = if self.channels_free.len() > 1 { end.max(self.bus_free) } else { end };
            end += bytes / self.device.rate / self.speed;
            self.bus_free = end;
        }
        self.channels_free[channel] = end;
        end
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// Needs a processor for this long.
    Runs(f64),
    /// Waits for a request, from an instant on.
    Waits(u64, f64),
    /// Polls for a request, from an instant on. The last two numbers are the interval of the ticks and the next tick.
    Polls(u64, f64, f64, f64),
    /// Sleeps until one instant, from another one on.
    Sleeps(f64, f64),
    /// Waits for the end of a thread, from an instant on.
    Joins(usize, f64),
    Ended,
}

struct Thread<'a> {
    steps: &'a [Step],
    next: usize,
    started: Vec<u64>,
    state: State,
    is_kernels: bool,
}

/// Running time of the program alone on a device of this speed, in nanoseconds.
pub fn truth(world: World, program: &[Vec<Step>], device: Device, speed: f64) -> f64 {
    Run::new(world, program, device, speed, None).follow_through().0
}

/// Runs the program with a dilation on the device. Returns its running time and the prediction.
pub fn followed(world: World, program: &[Vec<Step>], device: Device, options: DilationOptions) -> (f64, Prediction) {
    let dilation = Dilation::new(options, Nanos::ZERO);
    let (elapsed, prediction) = Run::new(world, program, device, 1.0, Some(dilation)).follow_through();
    (elapsed, prediction.expect("it was followed"))
}

struct Run<'a> {
    world: World,
    threads: Vec<Thread<'a>>,
    serving: Serving,
    in_flight: HashMap<u64, f64>,
    last_id: u64,
    now: f64,
    dilation: Option<Dilation>,
    frozen: bool,
    /// The supervisor's pending freeze or thaw, and the instant of its effect.
    under_way: Option<(f64, bool)>,
    told_runnable: bool,
    told_helped: bool,
}

impl<'a> Run<'a> {
    fn new(world: World, program: &'a [Vec<Step>], device: Device, speed: f64, dilation: Option<Dilation>) -> Run<'a> {
        let thread = |(index, steps): (usize, &'a Vec<Step>)| {
            let is_kernels = index >= world.kernel_from;
            Thread { steps, next: 0, started: Vec::new(), state: State::Runs(0.0), is_kernels }
        };
        let channels_free = vec![0.0; device.channels];
        Run {
            world,
            threads: program.iter().enumerate().map(thread).collect(),
            serving: Serving { device, speed, channels_free, bus_free: 0.0, requests: 0 },
            in_flight: HashMap::new(),
            last_id: 0,
            now: 0.0,
            dilation,
            frozen: false,
            under_way: None,
            told_runnable: false,
            told_helped: false,
        }
    }

    fn tell(&mut self, event: Event) {
        let at = Nanos::from_nanos(self.now.round() as u64);
        if let Some(dilation) = &mut self.dilation {
            dilation.event(at, event);
        }
    }

    fn runnable(&self, kernels: bool) -> usize {
        let runs = |thread: &&Thread<'_>| thread.is_kernels == kernels && matches!(thread.state, State::Runs(_));
        self.threads.iter().filter(runs).count()
    }

    /// Reports whether any thread can run, if that changed.
    fn tell_runnable(&mut self, wake: Wake) {
        let helped = self.runnable(true) > 0;
        if helped != self.told_helped {
            self.told_helped = helped;
            self.tell(if helped { Event::Helped } else { Event::Unhelped });
        }
        let runs = self.runnable(false) > 0 && !self.frozen;
        if runs != self.told_runnable {
            self.told_runnable = runs;
            self.tell(if runs { Event::Runnable(wake) } else { Event::Blocked });
        }
    }

    fn submit(&mut self, bytes: f64) -> u64 {
        self.last_id += 1;
        let end = self.serving.submit(self.now, bytes);
        self.in_flight.insert(self.last_id, end);
        self.tell(Event::Issued { id: self.last_id, direction: Direction::Read });
        self.last_id
    }

    /// Advances a thread to its next step that takes time.
    fn go_on(&mut self, index: usize) {
        loop {
            let thread = &mut self.threads[index];
            let Some(&step) = thread.steps.get(thread.next) else {
                thread.state = State::Ended;
                return;
            };
            thread.next += 1;
            let state = match step {
                Step::Compute(time) => State::Runs(time),
                Step::Read(bytes) => State::Waits(self.submit(bytes), self.now),
                Step::Poll(bytes, tick) => {
                    State::Polls(self.submit(bytes), self.now, tick, (self.now / tick).floor() * tick + tick)
                }
                Step::Start(bytes) => {
                    let id = self.submit(bytes);
                    self.threads[index].started.push(id);
                    continue;
                }
                Step::Await(number) => match thread.started[number] {
                    id if self.in_flight.contains_key(&id) => State::Waits(id, self.now),
                    _ => continue,
                },
                Step::Sleep(time) => State::Sleeps(self.now + time, self.now),
                Step::Join(number) if self.threads[number].state == State::Ended => continue,
                Step::Join(number) => State::Joins(number, self.now),
            };
            self.threads[index].state = state;
            return;
        }
    }

    /// The share of a processor that each runnable thread gets.
    fn share(&self) -> f64 {
        let program = if self.frozen { 0 } else { self.runnable(false) };
        match program + self.runnable(true) {
            0 => 0.0,
            count => (self.world.processors / count as f64).min(1.0),
        }
    }

    fn may_run(&self, thread: &Thread<'_>) -> bool {
        thread.is_kernels || !self.frozen
    }

    fn follow_through(mut self) -> (f64, Option<Prediction>) {
        self.tell_runnable(Wake::Other);
        while self.threads.iter().any(|thread| thread.state != State::Ended) {
            let share = self.share();
            let look_again = self.supervise();
            let ends = self.threads.iter().filter_map(|thread| match thread.state {
                State::Runs(left) if share > 0.0 && self.may_run(thread) => Some(self.now + left / share),
                State::Sleeps(until, _) => Some(until),
                State::Polls(_, _, _, tick_at) => Some(tick_at),
                _ => None,
            });
            let next = ends
                .chain(self.in_flight.values().copied())
                .chain(self.under_way.map(|(at, _)| at))
                .chain(look_again)
                .fold(f64::INFINITY, f64::min)
                .max(self.now);
            assert!(next.is_finite(), "nothing happens any more");
            self.pass(next, share);
            self.happen();
        }
        let at = Nanos::from_nanos(self.now.round() as u64);
        let prediction = self.dilation.map(|mut dilation| {
            dilation.tick(at);
            dilation.prediction()
        });
        (self.now, prediction)
    }

    /// Begins the freeze or thaw that the prediction asks for; otherwise returns when to ask again.
    fn supervise(&mut self) -> Option<f64> {
        let dilation = self.dilation.as_mut()?;
        dilation.tick(Nanos::from_nanos(self.now.round() as u64));
        if self.under_way.is_some() {
            return None;
        }
        match dilation.wish() {
            Wish::Nothing(at) => at.map(|at| at.as_nanos() as f64),
            Wish::Freeze => {
                self.under_way = Some((self.now + self.world.freeze_delay, true));
                None
            }
            Wish::Thaw => {
                self.under_way = Some((self.now + self.world.thaw_delay, false));
                None
            }
        }
    }

    fn pass(&mut self, until: f64, share: f64) {
        let passed = until - self.now;
        self.now = until;
        for thread in &mut self.threads {
            if let State::Runs(left) = &mut thread.state
                && (thread.is_kernels || !self.frozen)
            {
                *left -= passed * share;
            }
        }
    }

    fn happen(&mut self) {
        const INSTANT: f64 = 1e-3;
        if let Some((at, freeze)) = self.under_way
            && at <= self.now
        {
            self.under_way = None;
            self.frozen = freeze;
            self.tell(if freeze { Event::Frozen } else { Event::Thawed });
            self.tell_runnable(Wake::Completion);
        }
        let mut completed: Vec<u64> =
            self.in_flight.iter().filter(|&(_, &end)| end <= self.now + INSTANT).map(|(&id, _)| id).collect();
        completed.sort_unstable();
        for id in &completed {
            self.in_flight.remove(id);
            self.tell(Event::Completed { id: *id });
        }
        for index in 0..self.threads.len() {
            match self.threads[index].state {
                State::Polls(id, since, tick, tick_at) if tick_at <= self.now + INSTANT && !completed.contains(&id) => {
                    // The thread has blocked since the previous tick, or since it began to poll.
                    let blocked = since.max(tick_at - tick);
                    self.tell(Event::Slept { since: Nanos::from_nanos(blocked.round() as u64) });
                    // It runs for no time, so no other thread's state changes.
                    if !self.told_runnable && !self.frozen {
                        self.tell(Event::Runnable(Wake::Other));
                        self.tell(Event::Ticked);
                        self.tell(Event::Blocked);
                    }
                    self.threads[index].state = State::Polls(id, since, tick, tick_at + tick);
                }
                State::Polls(id, since, tick, tick_at) if completed.contains(&id) => {
                    let instant = |at: f64| Nanos::from_nanos(at.round() as u64);
                    let blocked = since.max(tick_at - tick);
                    self.threads[index].state = State::Runs(0.0);
                    self.tell_runnable(Wake::Completion);
                    self.tell(Event::Woken { since: instant(blocked) });
                    self.tell(Event::KeptWaiting { since: instant(since), blocked: instant(blocked) });
                }
                State::Waits(id, since) if completed.contains(&id) => {
                    self.threads[index].state = State::Runs(0.0);
                    self.tell_runnable(Wake::Completion);
                    self.tell(Event::Woken { since: Nanos::from_nanos(since.round() as u64) });
                }
                State::Sleeps(until, since) if until <= self.now + INSTANT => {
                    self.threads[index].state = State::Runs(0.0);
                    self.tell(Event::Slept { since: Nanos::from_nanos(since.round() as u64) });
                    self.tell_runnable(Wake::Other);
                }
                _ => {}
            }
        }
        for index in 0..self.threads.len() {
            let thread = &self.threads[index];
            if self.may_run(thread) && matches!(thread.state, State::Runs(left) if left <= INSTANT) {
                self.go_on(index);
            }
        }
        for index in 0..self.threads.len() {
            if let State::Joins(number, since) = self.threads[index].state
                && self.threads[number].state == State::Ended
            {
                self.threads[index].state = State::Runs(0.0);
                self.tell_runnable(Wake::Completion);
                self.tell(Event::Woken { since: Nanos::from_nanos(since.round() as u64) });
            }
        }
        self.tell_runnable(Wake::Completion);
    }
}
