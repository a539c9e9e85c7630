//! Fits a profile to a measured sweep.

mod cross_validation;

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_device::{BuildOptions, FlashState, Profile, ProfileError};
use chronodisk_report::{
    FIT_SCHEMA, FittedConstant, MissingSweep, PointUse, SetError, SweepFigures, SweepFit, SweepPoint,
};
use chronodisk_sim::Op;

use crate::FitError;
use crate::optimiser::{Evaluation, Search, Space, minimise, refine};
use crate::simulate::{Conditions, simulate};
use crate::sweep::{Point, Selector, WRITES_IN_USE_LEAST, missing_sweeps, not_monotone};
use crate::template::{Constant, Template};

pub use cross_validation::{CrossValidation, DEEP, LARGE_BYTES};

/// Weights of the errors in the objective, a sum over the logarithms of modelled over measured: 4 % of the mean count
/// as much as 10 % of the 99th percentile and 20 % of the median and of the 99.9th.
///
/// A stall of the drive delays all outstanding requests. So the cause of the 99th percentile at a large depth shows in
/// the 99.9th at a tenth of that depth. Without it, a fit to small depths would not extrapolate to large ones.
const MEAN_WEIGHT: f64 = 1.0;
const P50_WEIGHT: f64 = 0.2;
const P99_WEIGHT: f64 = 0.4;
const P999_WEIGHT: f64 = 0.2;

/// Number of requests at which the 99.9th percentile has its full weight. With fewer, the weight falls as its error
/// grows.
const P999_REQUESTS: f64 = 20_000.0;

/// Beyond a weighted error of this size its cost grows with the error instead of its square, so that a point that the
/// model can't reach does not bend all others.
const ROBUST_SCALE: f64 = 0.1;

/// Weight of a constant's move, as a share of its bounds: a move over all of them costs as much as an error of 1 % at
/// one point. So constants without effect on the data keep their values. If several constants could each explain a
/// point, the smallest move wins.
const PULL_WEIGHT: f64 = 0.01;

/// The search simulates one n-th of the final number of requests first, and refines with all of them.
const COARSE: u64 = 4;

/// Least number of requests in the first part of the search, on which a 99th percentile can rest.
const COARSE_REQUESTS_LEAST: u64 = 2_500;

/// Share of the simulated devices that the search refines with all requests.
const REFINING: f64 = 0.25;

/// A fitting problem: a profile, points and conditions.
#[derive(Debug)]
pub struct Problem {
    /// The profile with its free constants; without any if it is only compared.
    pub template: Template,
    /// The profile's name as given by the user.
    pub profile_file: String,
    /// The points and their uses.
    pub points: Vec<(Point, PointUse)>,
    /// Conditions of the simulation.
    pub conditions: Conditions,
    /// Capacity of the device instead of the profile's.
    pub capacity_bytes: Option<u64>,
    /// The points that were measured on a flash drive in use; the others are simulated on an erased one.
    pub in_use: Option<InUse>,
}

/// A flash drive in use, and the points measured on it.
#[derive(Clone, Debug)]
pub struct InUse {
    /// Saved state of the drive. The free constants must not change the flash or the translation layer.
    pub state: FlashState,
    /// Conditions that all hold for the points on this drive.
    pub points: Vec<Selector>,
}

impl InUse {
    fn holds(&self, point: &Point) -> bool {
        self.points.iter().all(|selector| selector.holds(point))
    }
}

/// The conditions for a point. Writes on a drive in use need so many requests that the stalls of its garbage collector
/// are among them, in a search, too.
fn conditions_for(point: &Point, conditions: Conditions, in_use: Option<&InUse>) -> Conditions {
    let collects = point.access.read_share < 1.0 && in_use.is_some_and(|in_use| in_use.holds(point));
    let least = if collects { WRITES_IN_USE_LEAST } else { 0 };
    Conditions { requests: conditions.requests.max(least), ..conditions }
}

/// Assigns each point's use. Points that are not monotone in depth are excluded. Of the others, those that match a
/// condition are held out, and the rest is fitted.
#[must_use]
pub fn uses(points: Vec<Point>, hold_out: &[Selector]) -> Vec<(Point, PointUse)> {
    let excluded = not_monotone(&points);
    let used = |(point, excluded): (Point, bool)| {
        let held_out = hold_out.iter().any(|selector| selector.holds(&point));
        let used = match (excluded, held_out) {
            (true, _) => PointUse::Excluded,
            (_, true) => PointUse::HeldOut,
            _ => PointUse::Fitted,
        };
        (point, used)
    };
    points.into_iter().zip(excluded).map(used).collect()
}

/// Some points on one device: a task that any thread or process can do.
#[derive(Clone, Debug)]
pub struct Task {
    profile: Profile,
    build: BuildOptions,
    points: Vec<Point>,
    conditions: Conditions,
    in_use: Option<InUse>,
    /// Whether it belongs to a search, and may be stopped early.
    searching: bool,
    /// The sum of squares at which the remaining points need not be simulated.
    limit: f64,
}

impl Task {
    /// Simulates the points one after the other, each on its own device. While searching, `stop` is called before each,
    /// and figures of the last points are missing if the first ones are far off already.
    ///
    /// # Errors
    /// A point that can't be simulated, or that it was stopped.
    pub fn run(&self, stop: &dyn Fn() -> bool) -> Result<Vec<SweepFigures>, FitError> {
        let erased = self.profile.build(&self.build).map_err(of_profile)?;
        let in_use = match &self.in_use {
            Some(in_use) => Some(self.profile.build_with_flash_of(&self.build, &in_use.state).map_err(of_profile)?),
            None => None,
        };
        let simulated = |point: &Point| {
            if self.searching && stop() {
                return Err(FitError::new("interrupted"));
            }
            let used = self.in_use.as_ref().is_some_and(|in_use| in_use.holds(point));
            let prototype = in_use.as_ref().filter(|_| used).unwrap_or(&erased);
            simulate(prototype.fork().as_mut(), point, &conditions_for(point, self.conditions, self.in_use.as_ref()))
        };
        let (mut all, mut cost) = (Vec::with_capacity(self.points.len()), 0.0);
        for point in &self.points {
            let figures = simulated(point)?;
            let residuals = residuals(&[(measured(point), figures)], self.conditions.requests);
            cost += residuals.iter().map(|residual| residual * residual).sum::<f64>();
            all.push(figures);
            if cost > self.limit {
                break;
            }
        }
        Ok(all)
    }
}

/// Cost of simulating a point, in points of requests of about 4 KiB: each flash page of a request adds one.
fn work_of(point: &Point, conditions: Conditions, in_use: Option<&InUse>) -> f64 {
    const PAGE_BYTES: f64 = 16_384.0;
    let requests = conditions_for(point, conditions, in_use).requests as f64 / conditions.requests as f64;
    requests * (1.0 + point.block_bytes as f64 / PAGE_BYTES)
}

/// Does several tasks, in any order or at once, and returns their results in the order of the tasks.
pub type Runner<'a> = dyn Fn(&[Task]) -> Vec<Result<Vec<SweepFigures>, FitError>> + 'a;

/// Progress between two batches of a fit.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Name of the left-out set; empty for the fit to all points.
    pub left_out: &'a str,
    /// Devices simulated so far.
    pub evaluations: usize,
    /// Mean of the absolute errors of the mean, in per cent, of the best so far.
    pub mean_error_percent: f64,
    /// The error of the 99th percentile in per cent.
    pub p99_error_percent: f64,
}

/// Method of a fit.
#[derive(Clone, Copy)]
pub struct Method<'a> {
    /// Limits of the search.
    pub search: Search,
    /// Whether parts of the points are also left out once, to see how well the others tell them
    /// ([`Problem::cross_validate`]).
    pub cross_validate: bool,
    /// Does the simulations.
    pub run: &'a Runner<'a>,
    /// Asked before each batch; the best so far is the result.
    pub stop: &'a dyn Fn() -> bool,
    /// Called after each batch.
    pub progress: &'a dyn Fn(&Progress<'_>),
}

/// The result, with the profile's text.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Results in the form of a file.
    pub fit: SweepFit,
    /// The values of the constants, in the order of the template's.
    pub values: Vec<f64>,
}

impl Problem {
    /// Simulates all points on the unchanged profile.
    ///
    /// # Errors
    /// A profile or a point that can't be simulated.
    pub fn compare(&self, run: &Runner<'_>) -> Result<Fitted, FitError> {
        let values = self.start();
        let before = self.all_points(&values, run)?;
        Ok(Fitted { fit: self.report(&values, before, None), values })
    }

    /// Searches for the values with which the model comes nearest to the fitted points.
    ///
    /// # Errors
    /// A profile or a point that can't be simulated.
    pub fn fit(&self, method: &Method<'_>) -> Result<Fitted, FitError> {
        let start = self.start();
        let before = self.all_points(&start, method.run)?;
        let all = |point: &(Point, PointUse)| point.1 == PointUse::Fitted;
        let search = self.search(method, "", &all);
        let values = search.values.unwrap_or_else(|| start.clone());
        let mut evaluations = search.evaluations;
        let mut cross_validation = Vec::new();
        if method.cross_validate {
            let left_out = self.cross_validate(method)?;
            evaluations += left_out.evaluations;
            cross_validation = left_out.errors;
        }
        let after = self.all_points(&values, method.run)?;
        let mut fit = self.report(&values, before, Some(after));
        fit.evaluations = evaluations.round() as u64;
        fit.interrupted = (method.stop)();
        fit.cross_validation = cross_validation;
        Ok(Fitted { fit, values })
    }

    /// Sensitivity of each point's mean latency to each constant: for each constant and point, the logarithm of the
    /// ratio of the new mean to that with `values`. The constant is multiplied by `ratio` (above one), or divided by it
    /// if its bounds leave more room there.
    ///
    /// # Errors
    /// A profile or a point that can't be simulated.
    ///
    /// # Panics
    /// Unless there is a value for each constant.
    pub fn sensitivities(&self, values: &[f64], ratio: f64, run: &Runner<'_>) -> Result<Vec<Vec<f64>>, FitError> {
        let constants = self.template.constants();
        assert_eq!(values.len(), constants.len(), "a value for each constant");
        let points: Vec<Point> = self.points.iter().map(|point| point.0.clone()).collect();
        let moved = |(index, constant): (usize, &Constant)| {
            let place = constant.place_of(values[index]);
            let step = ratio.ln() * constant.place_per_ratio();
            let mut moved = values.to_vec();
            moved[index] = constant.value_at(if place <= 0.5 { place + step } else { place - step });
            moved
        };
        let mut candidates = vec![values.to_vec()];
        candidates.extend(constants.iter().enumerate().map(moved));
        let mut figures =
            self.candidates(&candidates, &points, self.conditions, None, run).into_iter().map(|simulated| {
                simulated.map(|simulated| simulated.figures.expect("without a limit nothing is given up"))
            });
        let means = |figures: Vec<SweepFigures>| -> Vec<f64> {
            figures.iter().map(|figures| figures.mean_us.expect("each point has a mean")).collect()
        };
        let before = means(figures.next().expect("a result for each candidate")?);
        let followed =
            |after: Vec<f64>| after.iter().zip(&before).map(|(after, before)| (after / before).ln()).collect();
        figures.map(|figures| Ok(followed(means(figures?)))).collect()
    }

    fn start(&self) -> Vec<f64> {
        self.template.constants().iter().map(|constant| constant.start).collect()
    }

    /// One search over the chosen points.
    fn search(&self, method: &Method<'_>, left_out: &str, chosen: &dyn Fn(&(Point, PointUse)) -> bool) -> Searched {
        let constants = self.template.constants();
        let mut points: Vec<Point> = self.points.iter().filter(|point| chosen(point)).map(|it| it.0.clone()).collect();
        // Cheap points first: they may already exclude a candidate.
        points.sort_by_key(|point| point.block_bytes);
        if points.is_empty() || constants.is_empty() {
            return Searched { values: None, evaluations: 0.0 };
        }
        let start: Vec<f64> = constants.iter().map(|constant| constant.place_of(constant.start)).collect();
        let smallest: Vec<f64> = constants.iter().map(Constant::smallest_place_step).collect();
        let all = self.conditions.requests;
        let coarse = (all / COARSE).max(COARSE_REQUESTS_LEAST).min(all);
        let mut evaluations = method.search.evaluations;
        let refining = if coarse < all { (evaluations as f64 * REFINING) as usize } else { 0 };
        evaluations -= refining;
        let mut looking = Looking::new(self, method, left_out, &points, coarse);
        let search = Search { evaluations, ..method.search };
        let space = Space { smallest_steps: &smallest, home: &start, pull: PULL_WEIGHT };
        let evaluate = &mut |places: &[Vec<f64>], limit: f64| looking.evaluate(places, limit);
        let found = minimise(&start, space, search, evaluate, method.stop);
        let mut simulated = looking.simulated;
        let mut place = found.map(|found| found.point);
        if let Some(from) = place.as_ref().filter(|_| refining > 0 && !(method.stop)()) {
            let mut looking = Looking { simulated, ..Looking::new(self, method, left_out, &points, all) };
            let evaluate = &mut |places: &[Vec<f64>], limit: f64| looking.evaluate(places, limit);
            let found = refine(from, space, refining, evaluate, method.stop);
            simulated = looking.simulated;
            place = found.map(|found| found.point).or(place);
        }
        Searched { values: place.map(|place| values_at(constants, &place)), evaluations: simulated }
    }

    /// The figures of all points with these values.
    fn all_points(&self, values: &[f64], run: &Runner<'_>) -> Result<Vec<SweepFigures>, FitError> {
        let points: Vec<Point> = self.points.iter().map(|point| point.0.clone()).collect();
        self.figures(values, &points, run)
    }

    fn figures(&self, values: &[f64], points: &[Point], run: &Runner<'_>) -> Result<Vec<SweepFigures>, FitError> {
        self.candidates(&[values.to_vec()], points, self.conditions, None, run)
            .pop()
            .expect("a result for each candidate")
            .map(|simulated| simulated.figures.expect("without a limit nothing is given up"))
    }

    /// The figures of the points for each of several candidates; with a limit, as part of a search.
    fn candidates(
        &self,
        candidates: &[Vec<f64>],
        points: &[Point],
        conditions: Conditions,
        limit: Option<f64>,
        run: &Runner<'_>,
    ) -> Vec<Result<Simulated, FitError>> {
        // A single candidate is cut into parts, or only one of several workers would have something to do. Points far
        // apart cost unlike much, so that each part gets every other one.
        let parts = if candidates.len() == 1 { points.len().min(PARTS) } else { 1 };
        let part = |number: usize| points.iter().skip(number).step_by(parts).cloned().collect::<Vec<Point>>();
        let (searching, limit) = (limit.is_some(), limit.unwrap_or(f64::INFINITY));
        let mut tasks = Vec::new();
        let mut owners = Vec::new();
        let mut results: Vec<Result<Simulated, FitError>> = Vec::new();
        for (owner, values) in candidates.iter().enumerate() {
            let figures = Some(vec![SweepFigures::default(); points.len()]);
            results.push(Ok(Simulated { figures, work: 0.0 }));
            match Profile::parse(&self.template.text(values), &self.profile_file) {
                Ok(profile) => {
                    let build = BuildOptions {
                        capacity_bytes: self.capacity_bytes,
                        seed: self.conditions.seed,
                        ..BuildOptions::default()
                    };
                    for number in 0..parts {
                        owners.push((owner, number));
                        let (profile, points) = (profile.clone(), part(number));
                        let in_use = self.in_use.clone();
                        tasks.push(Task { profile, build, points, conditions, in_use, searching, limit });
                    }
                }
                Err(error) => results[owner] = Err(of_profile(error)),
            }
        }
        for (((owner, number), task), done) in owners.into_iter().zip(&tasks).zip(run(&tasks)) {
            match (done, &mut results[owner]) {
                (Ok(figures), Ok(all)) => {
                    let work = |point: &Point| work_of(point, conditions, self.in_use.as_ref());
                    all.work += task.points[..figures.len()].iter().map(work).sum::<f64>();
                    if figures.len() < task.points.len() {
                        all.figures = None;
                    }
                    if let Some(all) = &mut all.figures {
                        for (index, figures) in figures.into_iter().enumerate() {
                            all[number + index * parts] = figures;
                        }
                    }
                }
                (Err(error), result @ Ok(_)) => *result = Err(error),
                (_, Err(_)) => {}
            }
        }
        results
    }

    fn report(&self, values: &[f64], before: Vec<SweepFigures>, after: Option<Vec<SweepFigures>>) -> SweepFit {
        let constants = self.template.constants().iter().zip(values).map(|(constant, &after)| FittedConstant {
            key: constant.key.clone(),
            unit: constant.unit.clone(),
            low: constant.low,
            high: constant.high,
            before: constant.start,
            after,
        });
        let mut afters = after.map(Vec::into_iter);
        let points = self.points.iter().zip(before).map(|((point, used), before)| SweepPoint {
            file: point.file.clone(),
            line: point.line,
            set: point.set.clone(),
            access: point.access.to_string(),
            only: point.only.map(|op| if op == Op::Read { "read" } else { "write" }.to_owned()),
            block_bytes: point.block_bytes,
            depth: point.depth,
            zones: point.zones,
            used: *used,
            measured: measured(point),
            before,
            after: afters.as_mut().and_then(Iterator::next),
        });
        let data: Vec<String> = {
            let mut seen = BTreeSet::new();
            let files = self.points.iter().map(|point| point.0.file.clone());
            files.filter(|file| seen.insert(file.clone())).collect()
        };
        SweepFit {
            schema: FIT_SCHEMA.to_owned(),
            profile: self.profile_file.clone(),
            data,
            requests: self.conditions.requests,
            seed: self.conditions.seed,
            capacity_bytes: self.capacity_bytes,
            evaluations: 0,
            interrupted: false,
            constants: constants.collect(),
            points: points.collect(),
            cross_validation: Vec::new(),
            structures: Vec::new(),
            missing: self.missing(),
        }
    }

    /// The sweeps that would decide between structures, where the profile has a structure to decide about.
    fn missing(&self) -> Vec<MissingSweep> {
        let profile = Profile::parse(&self.template.text(&self.start()), &self.profile_file);
        if !profile.is_ok_and(|profile| profile.kind() == "ssd") {
            return Vec::new();
        }
        let points: Vec<Point> = self.points.iter().map(|point| point.0.clone()).collect();
        missing_sweeps(&points, &|point| self.in_use.as_ref().is_some_and(|in_use| in_use.holds(point)))
    }
}

/// Result of simulating a candidate.
struct Simulated {
    /// Figures of all points; `None` if the evaluation was stopped.
    figures: Option<Vec<SweepFigures>>,
    /// Work spent on it, in units of [`work_of`].
    work: f64,
}

/// Evaluates places of a search, each of them once.
struct Looking<'a> {
    problem: &'a Problem,
    method: &'a Method<'a>,
    left_out: &'a str,
    points: &'a [Point],
    conditions: Conditions,
    known: BTreeMap<Vec<u64>, Known>,
    /// Devices simulated so far, in whole ones' worth.
    simulated: f64,
    /// Cost and errors of the best.
    best: (f64, f64, f64),
}

/// Knowledge of a candidate.
#[derive(Clone, Debug)]
enum Known {
    /// The candidate can't be simulated.
    Impossible,
    /// Residuals of the candidate.
    Residuals(Vec<f64>),
    /// The sum of squares is above this.
    Above(f64),
}

impl<'a> Looking<'a> {
    fn new(
        problem: &'a Problem,
        method: &'a Method<'a>,
        left_out: &'a str,
        points: &'a [Point],
        requests: u64,
    ) -> Self {
        let conditions = Conditions { requests, ..problem.conditions };
        let (known, best) = (BTreeMap::new(), (f64::INFINITY, 0.0, 0.0));
        Looking { problem, method, left_out, points, conditions, known, simulated: 0.0, best }
    }

    /// The residuals of the points at each place; a place may be given up if its sum of squares is above the limit.
    fn evaluate(&mut self, places: &[Vec<f64>], limit: f64) -> Vec<Evaluation> {
        let constants = self.problem.template.constants();
        let candidates: Vec<Vec<f64>> = places.iter().map(|places| values_at(constants, places)).collect();
        let keys: Vec<Vec<u64>> =
            candidates.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect();
        let unknown = |known: Option<&Known>| match known {
            None => true,
            Some(Known::Above(above)) => *above < limit,
            Some(Known::Impossible | Known::Residuals(_)) => false,
        };
        let mut new: Vec<usize> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            if unknown(self.known.get(key)) && !new.iter().any(|&other| keys[other] == *key) {
                new.push(index);
            }
        }
        let wanted: Vec<Vec<f64>> = new.iter().map(|&index| candidates[index].clone()).collect();
        let run = self.method.run;
        let all = self.problem.candidates(&wanted, self.points, self.conditions, Some(limit), run);
        let in_use = self.problem.in_use.as_ref();
        let whole: f64 = self.points.iter().map(|point| work_of(point, self.conditions, in_use)).sum();
        let mut shares = vec![0.0; places.len()];
        for (&index, simulated) in new.iter().zip(all) {
            let known = match simulated {
                // An invalid candidate costs nothing, but a search that finds no other must end.
                Err(_) => {
                    shares[index] = 1.0;
                    Known::Impossible
                }
                Ok(Simulated { figures, work }) => {
                    shares[index] = work / whole;
                    figures.map_or(Known::Above(limit), |figures| Known::Residuals(self.residuals(figures)))
                }
            };
            self.known.insert(keys[index].clone(), known);
        }
        self.simulated += shares.iter().sum::<f64>();
        (self.method.progress)(&Progress {
            left_out: self.left_out,
            evaluations: self.simulated.round() as usize,
            mean_error_percent: self.best.1,
            p99_error_percent: self.best.2,
        });
        let told = |(key, share): (&Vec<u64>, f64)| {
            let residuals = match self.known.get(key) {
                Some(Known::Residuals(residuals)) => Some(residuals.clone()),
                _ => None,
            };
            Evaluation { residuals, share }
        };
        keys.iter().zip(shares).map(told).collect()
    }

    /// The residuals of a candidate, which may be the best so far.
    fn residuals(&mut self, figures: Vec<SweepFigures>) -> Vec<f64> {
        let pairs: Vec<_> = self.points.iter().map(measured).zip(figures).collect();
        let residuals = residuals(&pairs, self.conditions.requests);
        let cost = residuals.iter().map(|residual| residual * residual).sum();
        if cost < self.best.0 {
            let error = SetError::of("", &pairs);
            let of = |of: fn(&SetError) -> Option<f64>| error.as_ref().and_then(of).unwrap_or(0.0);
            self.best = (cost, of(|it| it.mean_percent), of(|it| it.p99_percent));
        }
        residuals
    }
}

/// Number of parts into which a single candidate's points are divided.
const PARTS: usize = 8;

/// Result of a search.
struct Searched {
    values: Option<Vec<f64>>,
    /// In whole devices' worth.
    evaluations: f64,
}

fn values_at(constants: &[Constant], places: &[f64]) -> Vec<f64> {
    constants.iter().zip(places).map(|(constant, &place)| constant.value_at(place)).collect()
}

/// The measured figures, as part of a result.
fn measured(point: &Point) -> SweepFigures {
    SweepFigures {
        iops: point.iops(),
        mean_us: point.mean_us(),
        p50_us: point.measured.p50_us,
        p99_us: point.measured.p99_us,
        p999_us: point.measured.p999_us,
    }
}

/// Weighted logarithms of modelled over measured, as roots of their costs.
fn residuals(pairs: &[(SweepFigures, SweepFigures)], requests: u64) -> Vec<f64> {
    let residual = |measured: Option<f64>, modelled: Option<f64>, weight: f64| {
        // A model with zero time counts as one of a nanosecond, to keep the logarithm finite.
        Some(robust(weight * (modelled?.max(1e-3) / measured?).ln()))
    };
    let p999_weight = P999_WEIGHT * (requests as f64 / P999_REQUESTS).min(1.0).sqrt();
    let of = |(measured, modelled): &(SweepFigures, SweepFigures)| {
        [
            residual(measured.mean_us, modelled.mean_us, MEAN_WEIGHT),
            residual(measured.p50_us, modelled.p50_us, P50_WEIGHT),
            residual(measured.p99_us, modelled.p99_us, P99_WEIGHT),
            residual(measured.p999_us, modelled.p999_us, p999_weight),
        ]
    };
    pairs.iter().flat_map(of).flatten().collect()
}

/// A residual whose square is the cost of an error: about the squared error if it is small, linear if it is large (the
/// pseudo-Huber loss).
fn robust(error: f64) -> f64 {
    let scaled = error / ROBUST_SCALE;
    // 2 (√(1 + x²) - 1), without the difference of two numbers that are nearly equal.
    let cost = 2.0 * scaled * scaled / ((1.0 + scaled * scaled).sqrt() + 1.0);
    ROBUST_SCALE * cost.sqrt().copysign(error)
}

fn of_profile(error: ProfileError) -> FitError {
    let place = match (error.line, error.column) {
        (Some(line), Some(column)) => format!("{line}:{column}: "),
        _ => String::new(),
    };
    FitError { help: error.help, ..FitError::new(format!("{place}{}", error.message)).in_file(&error.file) }
}
