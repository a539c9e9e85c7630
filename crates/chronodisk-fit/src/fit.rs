//! From a profile and a measured sweep to the profile whose model comes nearest.

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_device::{BuildOptions, FlashState, Profile, ProfileError};
use chronodisk_report::{FIT_SCHEMA, FittedConstant, PointUse, SetError, SweepFigures, SweepFit, SweepPoint};
use chronodisk_sim::Op;

use crate::FitError;
use crate::optimiser::{Search, minimise, refine};
use crate::simulate::{Conditions, simulate};
use crate::sweep::{Point, Selector, not_monotone};
use crate::template::{Constant, Template};

/// Weights of the two errors in the objective, the sum of squares of the logarithms of modelled over measured: 4 % of
/// the mean count as much as 10 % of the 99th percentile.
const MEAN_WEIGHT: f64 = 1.0;
const P99_WEIGHT: f64 = 0.4;

/// Weight of a constant's distance from where the profile had it, as a share of its bounds: a move over all of them costs
/// as much as an error of 1 % at one point. What the data say nothing about stays where it was, and of several constants
/// that could each explain a point the one moves that moves least.
const PULL_WEIGHT: f64 = 0.01;

/// The search looks with one request for so many of the final ones, and refines with all of them ...
const COARSE: u64 = 4;

/// ... but with no fewer than these, on which a 99th percentile can rest.
const COARSE_REQUESTS_LEAST: u64 = 2_500;

/// ... for this share of the simulated devices.
const REFINING: f64 = 0.25;

/// What is to be fitted to what.
#[derive(Debug)]
pub struct Problem {
    /// The profile with its free constants; none if it is only to be compared.
    pub template: Template,
    /// How the user named the profile.
    pub profile_file: String,
    /// The points, each with what it is used for.
    pub points: Vec<(Point, PointUse)>,
    /// How they are simulated.
    pub conditions: Conditions,
    /// Capacity of the device instead of the profile's.
    pub capacity_bytes: Option<u64>,
    /// The points that were measured on a flash drive in use; the others are simulated on an erased one.
    pub in_use: Option<InUse>,
}

/// A flash drive in use, and what was measured on it.
#[derive(Clone, Debug)]
pub struct InUse {
    /// Its state. What the free constants say must not change the flash or the translation layer.
    pub state: FlashState,
    /// The points for which all of these hold.
    pub points: Vec<Selector>,
}

impl InUse {
    fn holds(&self, point: &Point) -> bool {
        self.points.iter().all(|selector| selector.holds(point))
    }
}

/// What each point is used for: those that are not monotone in depth are excluded, of the others those that a condition
/// holds for are held out, and the rest is fitted.
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

/// Some points on one device: a piece of work that can be done anywhere.
#[derive(Clone, Debug)]
pub struct Task {
    profile: Profile,
    build: BuildOptions,
    points: Vec<Point>,
    conditions: Conditions,
    in_use: Option<InUse>,
    /// Whether it is part of a search, which can be given up, and not of the result.
    searching: bool,
}

impl Task {
    /// Simulates the points one after the other, each on a device of its own. While searching, `stop` is asked before
    /// each.
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
            simulate(prototype.fork().as_mut(), point, &self.conditions)
        };
        self.points.iter().map(simulated).collect()
    }
}

/// Does several tasks, in any order or at once, and returns their results in the order of the tasks.
pub type Runner<'a> = dyn Fn(&[Task]) -> Vec<Result<Vec<SweepFigures>, FitError>> + 'a;

/// Between two batches of a fit.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// What is being fitted: empty, or the set that is left out.
    pub left_out: &'a str,
    /// Devices simulated so far.
    pub evaluations: usize,
    /// Mean of the absolute errors of the mean, in per cent, of the best so far.
    pub mean_error_percent: f64,
    /// The same of the 99th percentile.
    pub p99_error_percent: f64,
}

/// How to fit.
#[derive(Clone, Copy)]
pub struct Method<'a> {
    /// How long to search.
    pub search: Search,
    /// Whether each set is also left out once, to see how well the others tell it.
    pub cross_validate: bool,
    /// Does the simulations.
    pub run: &'a Runner<'a>,
    /// Asked before each batch; the best so far is the result.
    pub stop: &'a dyn Fn() -> bool,
    /// Told after each batch.
    pub progress: &'a dyn Fn(&Progress<'_>),
}

/// The result, and the profile's text with it.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// All figures.
    pub fit: SweepFit,
    /// The values of the constants, in the order of the template's.
    pub values: Vec<f64>,
}

impl Problem {
    /// Simulates all points on the profile as it is.
    ///
    /// # Errors
    /// A profile or a point that can't be simulated.
    pub fn compare(&self, run: &Runner<'_>) -> Result<Fitted, FitError> {
        let values = self.start();
        let before = self.all_points(&values, run)?;
        Ok(Fitted { fit: self.report(&values, before, None), values })
    }

    /// Searches the values with which the model comes nearest to the points that are fitted.
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
        let sets = self.fitted_sets();
        for set in sets.iter().filter(|_| method.cross_validate && sets.len() > 1) {
            if (method.stop)() {
                break;
            }
            let others = |point: &(Point, PointUse)| all(point) && point.0.set != *set;
            let without = self.search(method, set, &others);
            evaluations += without.evaluations;
            let Some(values) = without.values else { break };
            let of_set: Vec<Point> =
                self.points.iter().filter(|point| all(point) && point.0.set == *set).map(|it| it.0.clone()).collect();
            let figures = self.figures(&values, &of_set, method.run)?;
            let pairs: Vec<_> = of_set.iter().map(measured).zip(figures).collect();
            cross_validation.extend(SetError::of(set, &pairs));
        }
        let after = self.all_points(&values, method.run)?;
        let mut fit = self.report(&values, before, Some(after));
        fit.evaluations = evaluations as u64;
        fit.interrupted = (method.stop)();
        fit.cross_validation = cross_validation;
        Ok(Fitted { fit, values })
    }

    fn start(&self) -> Vec<f64> {
        self.template.constants().iter().map(|constant| constant.start).collect()
    }

    /// Names of the sets that have fitted points, in the order of their first.
    fn fitted_sets(&self) -> Vec<&str> {
        let mut seen = BTreeSet::new();
        let fitted = self.points.iter().filter(|point| point.1 == PointUse::Fitted);
        fitted.map(|point| point.0.set.as_str()).filter(|set| seen.insert(*set)).collect()
    }

    /// One search over some of the points.
    fn search(&self, method: &Method<'_>, left_out: &str, chosen: &dyn Fn(&(Point, PointUse)) -> bool) -> Searched {
        let constants = self.template.constants();
        let points: Vec<Point> = self.points.iter().filter(|point| chosen(point)).map(|it| it.0.clone()).collect();
        if points.is_empty() || constants.is_empty() {
            return Searched { values: None, evaluations: 0 };
        }
        let start: Vec<f64> = constants.iter().map(|constant| constant.place_of(constant.start)).collect();
        let smallest: Vec<f64> = constants.iter().map(Constant::smallest_place_step).collect();
        let all = self.conditions.requests;
        let coarse = (all / COARSE).max(COARSE_REQUESTS_LEAST).min(all);
        let mut evaluations = method.search.evaluations;
        let refining = if coarse < all { (evaluations as f64 * REFINING) as usize } else { 0 };
        evaluations -= refining;
        let mut looking = Looking::new(self, method, left_out, &points, &start, coarse);
        let search = Search { evaluations, ..method.search };
        let found = minimise(&start, &smallest, search, &mut |places| looking.evaluate(places), method.stop);
        let mut simulated = looking.simulated;
        let mut place = found.map(|found| found.point);
        if let Some(from) = place.as_ref().filter(|_| refining > 0 && !(method.stop)()) {
            let mut looking = Looking { simulated, ..Looking::new(self, method, left_out, &points, &start, all) };
            let evaluate = &mut |places: &[Vec<f64>]| looking.evaluate(places);
            let found = refine(from, &smallest, refining, evaluate, method.stop);
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
        self.candidates(&[values.to_vec()], points, self.conditions, false, run)
            .pop()
            .expect("a result for each candidate")
    }

    /// The figures of the points for each of several candidates.
    fn candidates(
        &self,
        candidates: &[Vec<f64>],
        points: &[Point],
        conditions: Conditions,
        searching: bool,
        run: &Runner<'_>,
    ) -> Vec<Result<Vec<SweepFigures>, FitError>> {
        // A single candidate is cut into parts, or only one of several workers would have something to do. Points far
        // apart cost unlike much, so that each part gets every other one.
        let parts = if candidates.len() == 1 { points.len().min(PARTS) } else { 1 };
        let part = |number: usize| points.iter().skip(number).step_by(parts).cloned().collect::<Vec<Point>>();
        let mut tasks = Vec::new();
        let mut owners = Vec::new();
        let mut results: Vec<Result<Vec<SweepFigures>, FitError>> = Vec::new();
        for (owner, values) in candidates.iter().enumerate() {
            results.push(Ok(vec![SweepFigures::default(); points.len()]));
            match Profile::parse(&self.template.text(values), &self.profile_file) {
                Ok(profile) => {
                    let build = BuildOptions { capacity_bytes: self.capacity_bytes, seed: self.conditions.seed };
                    for number in 0..parts {
                        owners.push((owner, number));
                        let (profile, points) = (profile.clone(), part(number));
                        let in_use = self.in_use.clone();
                        tasks.push(Task { profile, build, points, conditions, in_use, searching });
                    }
                }
                Err(error) => results[owner] = Err(of_profile(error)),
            }
        }
        for ((owner, number), done) in owners.into_iter().zip(run(&tasks)) {
            match (done, &mut results[owner]) {
                (Ok(figures), Ok(all)) => {
                    for (index, figures) in figures.into_iter().enumerate() {
                        all[number + index * parts] = figures;
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
        }
    }
}

/// Evaluates places of a search, each of them once.
struct Looking<'a> {
    problem: &'a Problem,
    method: &'a Method<'a>,
    left_out: &'a str,
    points: &'a [Point],
    start: &'a [f64],
    conditions: Conditions,
    known: BTreeMap<Vec<u64>, Option<Vec<f64>>>,
    /// Devices simulated so far.
    simulated: usize,
    /// Cost and errors of the best.
    best: (f64, f64, f64),
}

impl<'a> Looking<'a> {
    fn new(
        problem: &'a Problem,
        method: &'a Method<'a>,
        left_out: &'a str,
        points: &'a [Point],
        start: &'a [f64],
        requests: u64,
    ) -> Self {
        let conditions = Conditions { requests, ..problem.conditions };
        let (known, best) = (BTreeMap::new(), (f64::INFINITY, 0.0, 0.0));
        Looking { problem, method, left_out, points, start, conditions, known, simulated: 0, best }
    }

    /// The residuals at each place: those of the points, and how far the constants went from where they were.
    fn evaluate(&mut self, places: &[Vec<f64>]) -> Vec<Option<Vec<f64>>> {
        let constants = self.problem.template.constants();
        let candidates: Vec<Vec<f64>> = places.iter().map(|places| values_at(constants, places)).collect();
        let keys: Vec<Vec<u64>> =
            candidates.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect();
        let mut new: Vec<usize> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            if !self.known.contains_key(key) && !new.iter().any(|&other| keys[other] == *key) {
                new.push(index);
            }
        }
        let wanted: Vec<Vec<f64>> = new.iter().map(|&index| candidates[index].clone()).collect();
        let run = self.method.run;
        let all = self.problem.candidates(&wanted, self.points, self.conditions, true, run);
        for (&index, figures) in new.iter().zip(all) {
            let residuals = figures.ok().map(|figures| {
                let pairs: Vec<_> = self.points.iter().map(measured).zip(figures).collect();
                let pulls = places[index].iter().zip(self.start).map(|(place, start)| PULL_WEIGHT * (place - start));
                let residuals: Vec<f64> = residuals(&pairs).into_iter().chain(pulls).collect();
                let cost = residuals.iter().map(|residual| residual * residual).sum();
                if cost < self.best.0 {
                    let error = SetError::of("", &pairs);
                    let of = |of: fn(&SetError) -> Option<f64>| error.as_ref().and_then(of).unwrap_or(0.0);
                    self.best = (cost, of(|it| it.mean_percent), of(|it| it.p99_percent));
                }
                residuals
            });
            self.known.insert(keys[index].clone(), residuals);
        }
        self.simulated += new.len();
        (self.method.progress)(&Progress {
            left_out: self.left_out,
            evaluations: self.simulated,
            mean_error_percent: self.best.1,
            p99_error_percent: self.best.2,
        });
        keys.iter().map(|key| self.known.get(key).cloned().flatten()).collect()
    }
}

/// Parts into which a single candidate's points are cut.
const PARTS: usize = 8;

/// What a search found.
struct Searched {
    values: Option<Vec<f64>>,
    evaluations: usize,
}

fn values_at(constants: &[Constant], places: &[f64]) -> Vec<f64> {
    constants.iter().zip(places).map(|(constant, &place)| constant.value_at(place)).collect()
}

/// What was measured, in the form of a result.
fn measured(point: &Point) -> SweepFigures {
    SweepFigures {
        iops: point.iops(),
        mean_us: point.mean_us(),
        p50_us: point.measured.p50_us,
        p99_us: point.measured.p99_us,
        p999_us: point.measured.p999_us,
    }
}

/// The weighted logarithms of modelled over measured.
fn residuals(pairs: &[(SweepFigures, SweepFigures)]) -> Vec<f64> {
    let residual = |measured: Option<f64>, modelled: Option<f64>, weight: f64| {
        // Nothing takes no time: a model of a nanosecond is that far off.
        Some(weight * (modelled?.max(1e-3) / measured?).ln())
    };
    let of = |(measured, modelled): &(SweepFigures, SweepFigures)| {
        [
            residual(measured.mean_us, modelled.mean_us, MEAN_WEIGHT),
            residual(measured.p99_us, modelled.p99_us, P99_WEIGHT),
        ]
    };
    pairs.iter().flat_map(of).flatten().collect()
}

fn of_profile(error: ProfileError) -> FitError {
    let place = match (error.line, error.column) {
        (Some(line), Some(column)) => format!("{line}:{column}: "),
        _ => String::new(),
    };
    FitError { help: error.help, ..FitError::new(format!("{place}{}", error.message)).in_file(&error.file) }
}
