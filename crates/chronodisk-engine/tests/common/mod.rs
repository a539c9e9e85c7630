//! A device that uses every freedom of the contract, for the engine's tests.
#![allow(dead_code, reason = "each test file uses a part of this")]

use chronodisk_device::{DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, Nanos, Op, Request, Status};

/// Serves the nearest request first on several channels, with service times on a coarse grid (so that many events share
/// an instant), media errors, endless background events that change later service times, and a completion bound that is
/// either exact or useless.
///
/// The order of service depends on all waiting requests, so a replay that loses or moves one arrival shows it.
#[derive(Clone, Debug)]
pub struct Capricious {
    info: DeviceInfo,
    now: Nanos,
    channels: usize,
    grid: Nanos,
    background_period: Option<Nanos>,
    next_background: Nanos,
    background_count: u64,
    exact_bound: bool,
    head: u64,
    waiting: Vec<Request>,
    in_service: Vec<Completion>,
}

pub const CAPACITY_SECTORS: u64 = 10_000;

impl Capricious {
    pub fn new(seed: u64) -> Self {
        let background_period = (!seed.is_multiple_of(3)).then(|| Nanos::from_nanos(700 + seed % 500));
        Capricious {
            info: DeviceInfo {
                name: format!("capricious-{seed}"),
                capacity_sectors: CAPACITY_SECTORS,
                logical_block_bytes: 512,
                physical_block_bytes: 512,
                volatile_cache: false,
                discard_unit_sectors: None,
                rotational: false,
                zones: None,
                torn_write_sectors: None,
            },
            now: Nanos::ZERO,
            channels: 1 + (seed % 3) as usize,
            grid: Nanos::from_nanos(100),
            background_period,
            next_background: background_period.unwrap_or(Nanos::MAX),
            background_count: 0,
            exact_bound: seed.is_multiple_of(2),
            head: 0,
            waiting: Vec::new(),
            in_service: Vec::new(),
        }
    }

    pub fn boxed(seed: u64) -> Box<dyn DeviceModel> {
        Box::new(Capricious::new(seed))
    }

    fn start_what_can(&mut self) {
        while self.in_service.len() < self.channels && !self.waiting.is_empty() {
            let nearest = (0..self.waiting.len()).min_by_key(|index| self.waiting[*index].lba.0.abs_diff(self.head));
            let request = self.waiting.remove(nearest.expect("something waits"));
            let distance = request.lba.0.abs_diff(self.head);
            let steps = 1 + distance % 7 + u64::from(request.sectors) % 3 + self.background_count % 2;
            self.head = request.end().0;
            let status = if request.lba.0 % 101 == 100 { Status::MediaError } else { Status::Ok };
            let at = self.now + Nanos::from_nanos(self.grid.as_nanos() * steps);
            self.in_service.push(Completion { id: request.id, at, status });
        }
    }

    fn first_completion(&self) -> Option<Nanos> {
        self.in_service.iter().map(|completion| completion.at).min()
    }
}

impl DeviceModel for Capricious {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn outstanding(&self) -> u32 {
        (self.waiting.len() + self.in_service.len()) as u32
    }

    fn submit(&mut self, request: Request) {
        self.waiting.push(request);
        self.start_what_can();
    }

    fn next_event(&self) -> Option<Nanos> {
        let background = self.background_period.map(|_| self.next_background);
        [background, self.first_completion()].into_iter().flatten().min()
    }

    fn completion_bound(&self) -> Option<Nanos> {
        let first = self.first_completion()?;
        // The least that the contract requires: later than now.
        Some(if self.exact_bound { first } else { self.now + Nanos::from_nanos(1) })
    }

    fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) {
        let limit = limit.max(self.now);
        if let (Some(period), None) = (self.background_period, self.first_completion())
            && self.next_background <= limit
        {
            // Skipping an idle gap takes equal work for any length.
            let missed = 1 + (limit - self.next_background).as_nanos() / period.as_nanos();
            self.background_count += missed;
            self.next_background =
                self.next_background.saturating_add(Nanos::from_nanos(missed.saturating_mul(period.as_nanos())));
        }
        loop {
            let Some(next) = self.next_event().filter(|next| *next <= limit) else {
                self.now = limit;
                return;
            };
            self.now = next;
            if next == self.next_background {
                self.background_count += 1;
                self.next_background += self.background_period.expect("it happens");
            }
            let before = completed.len();
            completed.extend(self.in_service.extract_if(.., |completion| completion.at == next));
            self.start_what_can();
            if completed.len() > before {
                return;
            }
        }
    }

    fn fork(&self) -> Box<dyn DeviceModel> {
        Box::new(self.clone())
    }
}

/// A request inside [`Capricious`], derived from a number.
pub fn request(id: u64, number: u64) -> Request {
    let op = if number.is_multiple_of(3) { Op::Write } else { Op::Read };
    let sectors = 1 + number % 64;
    Request::new(id, op, (number / 64) % (CAPACITY_SECTORS - 64), sectors as u32)
}
