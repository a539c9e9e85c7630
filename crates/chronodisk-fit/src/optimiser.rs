//! Least squares without derivatives, in a box, for costly and slightly rough functions.
//!
//! A candidate is a point of the unit cube. Each round takes differences along the coordinates, with a step of a few
//! per cent of the box, so that the stairs of percentiles and of rounded parameters do not matter. It solves the damped
//! normal equations of Levenberg and Marquardt for several dampings at once, and moves to the best point seen. If none
//! is better, the step is halved. After a large gain the differences are not taken again, but corrected from the step
//! (Broyden's update). All points of a half-round are evaluated together, so that they can run in parallel. The search
//! can end after any of them with the best point so far.
//!
//! Before that, each coordinate is tried alone over the whole box, since a coordinate may have no effect at the start:
//! a link slower than the flash hides the flash's constants. Gains are kept, the largest first, and both phases repeat
//! until neither gains. A coordinate without effect anywhere in the box is left out of the differences until it is
//! tried again. The points of a Latin hypercube are tried too, and the best of them are further starts.
//!
//! A candidate that is only compared with the best so far may be given up once it is worse. Its cost is the work done.
//!
//! No library was found that minimises squares without derivatives, takes batches and can be ended at any time. The
//! parts are from textbooks (Nocedal and Wright, "Numerical Optimization", 2006, sections 10.3, 11.1 and 9.6).

use chronodisk_sim::RandomStream;

/// Evaluates each of several points. One for which the sum of squares is above the limit may be given up.
pub type Evaluate<'a> = dyn FnMut(&[Vec<f64>], f64) -> Vec<Evaluation> + 'a;

/// Evaluation of a point.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Residuals of the point; `None` if it is invalid, or its evaluation was stopped.
    pub residuals: Option<Vec<f64>>,
    /// Completed share of the work of a full evaluation.
    pub share: f64,
}

/// Limits of the search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// Approximate limit of evaluations; a stopped one counts by its completed share.
    pub evaluations: usize,
    /// Starts besides the given one.
    pub restarts: usize,
    /// Seed of the other starts.
    pub seed: u64,
}

/// The box that is searched.
#[derive(Clone, Copy, Debug)]
pub struct Space<'a> {
    /// In each dimension, the distance below which the function does not change.
    pub smallest_steps: &'a [f64],
    /// Point to which the coordinates are pulled.
    pub home: &'a [f64],
    /// Weight of the residual for a coordinate's distance from `home`.
    pub pull: f64,
}

/// Result of the search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best point.
    pub point: Vec<f64>,
    /// Half the sum of its squared residuals.
    pub cost: f64,
    /// Whole evaluations' worth that it took.
    pub evaluations: f64,
}

/// A point with its residuals: first the function's residuals, then the pulls' residuals.
#[derive(Clone, Debug)]
struct Evaluated {
    point: Vec<f64>,
    residuals: Vec<f64>,
    cost: f64,
}

/// First and last step of the differences, as a share of the box.
const FIRST_STEP: f64 = 0.04;
const LAST_STEP: f64 = 0.002;
/// Dampings tried at once, relative to the last one that did.
const DAMPINGS: [f64; 4] = [0.01, 0.3, 3.0, 100.0];
/// Less than this share of the cost is no progress.
const PROGRESS: f64 = 0.002;
/// After a gain of this share of the cost, the differences are corrected instead of computed again.
const CORRECTED_AFTER: f64 = 0.1;
/// Most corrections of the differences in a row.
const MOST_CORRECTIONS: u32 = 4;
/// A smaller error counts as none.
const NOTHING: f64 = 1e-12;
/// Number of values at which each coordinate is tried alone.
const SCANNED: usize = 7;
/// Smallest worthwhile gain, as a share of the cost. A coordinate with a smaller gain is not tried again after others
/// have moved, and the phases are not repeated for less.
const SCAN_GAIN: f64 = 0.005;
/// Points of the Latin hypercube per dimension.
const EXPLORED_PER_DIMENSION: usize = 4;

/// Searches from `start`. `stop` is asked before each batch. `None` if not even the start can be evaluated.
pub fn minimise(
    start: &[f64],
    space: Space<'_>,
    search: Search,
    evaluate: &mut Evaluate<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<Found> {
    let mut batch = Batch { space, evaluate, evaluations: 0.0, limit: search.evaluations as f64, stop };
    let mut first: Vec<Vec<f64>> = vec![start.iter().map(|z| z.clamp(0.0, 1.0)).collect()];
    if search.restarts > 0 {
        first.extend(latin_hypercube(start.len(), EXPLORED_PER_DIMENSION * start.len(), search.seed));
    }
    let given = batch.run(&first[..1]).pop().flatten()?;
    let mut others: Vec<Evaluated> = batch.run(&first[1..]).into_iter().flatten().collect();
    others.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    let mut best = given.clone();
    for start in std::iter::once(given).chain(others.into_iter().take(search.restarts)) {
        let mut here = start;
        loop {
            let before = here.cost;
            let scanned = scan(here, &mut batch);
            here = descend(scanned.best, &scanned.telling, &mut batch);
            // At the end of the descent, other coordinates may have an effect than at its beginning.
            if here.cost > before * (1.0 - SCAN_GAIN) || here.cost <= NOTHING || batch.exhausted() {
                break;
            }
        }
        if here.cost < best.cost {
            best = here;
        }
        if batch.exhausted() {
            break;
        }
    }
    Some(Found { point: best.point, cost: best.cost, evaluations: batch.evaluations })
}

/// Result of trying each coordinate alone.
struct Scanned {
    best: Evaluated,
    /// The coordinates that change something anywhere.
    telling: Vec<usize>,
}

/// Tries each coordinate alone over the whole box and keeps gains: the coordinate with the largest gain first, then the
/// others from there, in the order of their gains.
fn scan(start: Evaluated, batch: &mut Batch<'_, '_>) -> Scanned {
    let dimensions = start.point.len();
    let along = |point: &[f64], dimension: usize| -> Vec<Vec<f64>> {
        let moved = |place: usize| {
            let mut moved = point.to_vec();
            moved[dimension] = (place as f64 + 0.5) / SCANNED as f64;
            moved
        };
        (0..SCANNED).map(moved).collect()
    };
    let all: Vec<Vec<f64>> = (0..dimensions).flat_map(|dimension| along(&start.point, dimension)).collect();
    let results = batch.run_below(&all, start.cost);
    let unchanged = |tried: &Option<Evaluated>| {
        let told = start.residuals.len() - dimensions;
        tried.as_ref().is_some_and(|tried| tried.residuals[..told] == start.residuals[..told])
    };
    // A coordinate that was not tried may have an effect.
    let tells = |&dimension: &usize| {
        let tried = results.get(dimension * SCANNED..(dimension + 1) * SCANNED);
        !tried.is_some_and(|tried| tried.iter().all(unchanged))
    };
    let telling = (0..dimensions).filter(tells).collect();
    let best_of =
        |tried: &[Option<Evaluated>]| tried.iter().flatten().min_by(|a, b| a.cost.total_cmp(&b.cost)).cloned();
    let mut gains: Vec<(usize, Evaluated)> = (0..)
        .zip(results.chunks(SCANNED))
        .filter_map(|(dimension, tried)| Some((dimension, best_of(tried)?)))
        .filter(|(_, best)| best.cost < start.cost * (1.0 - SCAN_GAIN))
        .collect();
    gains.sort_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
    let mut gains = gains.into_iter();
    let Some((_, mut best)) = gains.next() else { return Scanned { best: start, telling } };
    for (dimension, _) in gains {
        let tried = batch.run_below(&along(&best.point, dimension), best.cost);
        if let Some(better) = best_of(&tried).filter(|it| it.cost < best.cost) {
            best = better;
        }
    }
    Scanned { best, telling }
}

/// Descends from `start` without looking elsewhere first, as [`minimise`] does from the best that it saw.
pub fn refine(
    start: &[f64],
    space: Space<'_>,
    evaluations: usize,
    evaluate: &mut Evaluate<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<Found> {
    let mut batch = Batch { space, evaluate, evaluations: 0.0, limit: evaluations as f64, stop };
    let all: Vec<usize> = (0..start.len()).collect();
    let start = batch.run(&[start.to_vec()]).pop().flatten()?;
    let best = descend(start, &all, &mut batch);
    Some(Found { point: best.point, cost: best.cost, evaluations: batch.evaluations })
}

/// Counts evaluations, and refuses more than allowed.
struct Batch<'a, 'b> {
    space: Space<'a>,
    evaluate: &'a mut Evaluate<'b>,
    evaluations: f64,
    limit: f64,
    stop: &'a dyn Fn() -> bool,
}

impl Batch<'_, '_> {
    fn exhausted(&self) -> bool {
        self.evaluations >= self.limit || (self.stop)()
    }

    /// Evaluates all of them to the end.
    fn run(&mut self, points: &[Vec<f64>]) -> Vec<Option<Evaluated>> {
        self.run_below(points, f64::INFINITY)
    }

    /// Evaluates the points; those with a cost above `cost` may be omitted.
    fn run_below(&mut self, points: &[Vec<f64>], cost: f64) -> Vec<Option<Evaluated>> {
        if points.is_empty() || self.exhausted() {
            return Vec::new();
        }
        let Space { home, pull, .. } = self.space;
        let mut all = (self.evaluate)(points, 2.0 * cost);
        self.evaluations += all.iter().map(|evaluation| evaluation.share).sum::<f64>();
        let evaluated = |(point, evaluation): (&Vec<f64>, Evaluation)| {
            let mut residuals = evaluation.residuals?;
            residuals.extend(point.iter().zip(home).map(|(place, home)| pull * (place - home)));
            let cost = residuals.iter().map(|residual| residual * residual).sum::<f64>() / 2.0;
            cost.is_finite().then(|| Evaluated { point: point.clone(), residuals, cost })
        };
        points.iter().zip(all.drain(..)).map(evaluated).collect()
    }
}

/// One descent from one start, along the coordinates with an effect.
fn descend(start: Evaluated, telling: &[usize], batch: &mut Batch<'_, '_>) -> Evaluated {
    let (mut here, mut step, mut damping) = (start, FIRST_STEP, 1.0);
    let mut slopes: Option<Slopes> = None;
    while step >= LAST_STEP && here.cost > NOTHING && !batch.exhausted() {
        let mut next: Option<(f64, Evaluated)> = None;
        let Slopes { columns, corrections } = match slopes.take() {
            Some(slopes) => slopes,
            None => {
                let beside = neighbours(&here.point, telling, step, batch.space.smallest_steps);
                let differences = batch.run(&beside);
                if differences.len() < beside.len() {
                    break;
                }
                let columns = columns(&here, telling, &beside, &differences);
                // A neighbour may be better than any step, as where the function is too rough for its differences.
                for neighbour in differences.into_iter().flatten() {
                    keep_better(&mut next, damping, neighbour);
                }
                Slopes { columns, corrections: 0 }
            }
        };
        let steps: Vec<(f64, Vec<f64>)> = DAMPINGS
            .iter()
            .map(|factor| damping * factor)
            .filter_map(|damping| Some((damping, damped_step(&here, &columns, damping)?)))
            .collect();
        let points: Vec<Vec<f64>> = steps.iter().map(|(_, point)| point.clone()).collect();
        let results = batch.run_below(&points, here.cost);
        for ((damping, _), candidate) in steps.iter().zip(results) {
            if let Some(candidate) = candidate {
                keep_better(&mut next, *damping, candidate);
            }
        }
        match next {
            Some((tried, candidate)) if candidate.cost < here.cost * (1.0 - PROGRESS) => {
                // Differences along few coordinates cost no more than the steps do.
                let much = telling.len() > DAMPINGS.len() && candidate.cost < here.cost * (1.0 - CORRECTED_AFTER);
                if much && corrections < MOST_CORRECTIONS {
                    let columns = corrected(columns, &here, &candidate);
                    slopes = Some(Slopes { columns, corrections: corrections + 1 });
                }
                (here, damping) = (candidate, tried.clamp(1e-6, 1e6));
            }
            better => {
                if let Some((_, candidate)) = better.filter(|(_, candidate)| candidate.cost < here.cost) {
                    here = candidate;
                }
                // Compute corrected differences again before the step is reduced.
                if corrections == 0 {
                    step /= 2.0;
                }
            }
        }
    }
    here
}

/// Change of the residuals with each coordinate, and the number of corrections since its evaluation.
struct Slopes {
    columns: Vec<Vec<f64>>,
    corrections: u32,
}

fn keep_better(best: &mut Option<(f64, Evaluated)>, damping: f64, candidate: Evaluated) {
    if best.as_ref().is_none_or(|(_, best)| candidate.cost < best.cost) {
        *best = Some((damping, candidate));
    }
}

/// Broyden's update: slopes along the step from `here` to `there` are the observed ones, slopes across it stay.
fn corrected(mut columns: Vec<Vec<f64>>, here: &Evaluated, there: &Evaluated) -> Vec<Vec<f64>> {
    let step: Vec<f64> = there.point.iter().zip(&here.point).map(|(there, here)| there - here).collect();
    let length2: f64 = step.iter().map(|step| step * step).sum();
    for row in 0..here.residuals.len() {
        let foreseen: f64 = columns.iter().zip(&step).map(|(column, step)| column[row] * step).sum();
        let missed = there.residuals[row] - here.residuals[row] - foreseen;
        for (column, step) in columns.iter_mut().zip(&step) {
            column[row] += missed * step / length2;
        }
    }
    columns
}

/// The point moved along each of the coordinates, towards the middle of the box.
fn neighbours(point: &[f64], telling: &[usize], step: f64, smallest_steps: &[f64]) -> Vec<Vec<f64>> {
    let moved = |&dimension: &usize| {
        let step = step.max(smallest_steps[dimension]).min(0.5);
        let mut beside = point.to_vec();
        beside[dimension] += if point[dimension] > 0.5 { -step } else { step };
        beside
    };
    telling.iter().map(moved).collect()
}

/// Differences of the residuals per unit of each coordinate; zero if the neighbour is invalid, or the coordinate was
/// not requested.
fn columns(
    here: &Evaluated,
    telling: &[usize],
    beside: &[Vec<f64>],
    differences: &[Option<Evaluated>],
) -> Vec<Vec<f64>> {
    let mut columns = vec![vec![0.0; here.residuals.len()]; here.point.len()];
    for ((&dimension, beside), there) in telling.iter().zip(beside).zip(differences) {
        let length = beside[dimension] - here.point[dimension];
        if let Some(there) = there {
            let pairs = there.residuals.iter().zip(&here.residuals);
            columns[dimension] = pairs.map(|(there, here)| (there - here) / length).collect();
        }
    }
    columns
}

/// The end of the step of the damped normal equations, limited to the box; `None` if the step is zero.
fn damped_step(here: &Evaluated, columns: &[Vec<f64>], damping: f64) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let gradient: Vec<f64> = columns.iter().map(|column| dot(column, &here.residuals)).collect();
    // Excludes coordinates that would leave the box, and those without an effect.
    let free: Vec<usize> = (0..columns.len())
        .filter(|&j| {
            let outward = (here.point[j] <= 0.0 && gradient[j] > 0.0) || (here.point[j] >= 1.0 && gradient[j] < 0.0);
            !outward && dot(&columns[j], &columns[j]) > 0.0
        })
        .collect();
    let normal: Vec<Vec<f64>> = free
        .iter()
        .map(|&i| {
            let entry = |&j: &usize| dot(&columns[i], &columns[j]) * if i == j { 1.0 + damping } else { 1.0 };
            free.iter().map(entry).collect()
        })
        .collect();
    let step = solve(normal, free.iter().map(|&j| -gradient[j]).collect())?;
    let mut point = here.point.clone();
    for (&j, step) in free.iter().zip(&step) {
        point[j] = (point[j] + step).clamp(0.0, 1.0);
    }
    (point != here.point).then_some(point)
}

/// Gaussian elimination with pivots by rows; `None` if the matrix is singular or empty.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let n = right.len();
    for column in 0..n {
        let pivot = (column..n).max_by(|&a, &b| matrix[a][column].abs().total_cmp(&matrix[b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let head = matrix[column].clone();
        if head[column].abs() < 1e-300 {
            return None;
        }
        for row in column + 1..n {
            let factor = matrix[row][column] / head[column];
            for (entry, above) in matrix[row].iter_mut().zip(&head).skip(column) {
                *entry -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    for row in (0..n).rev() {
        let known: f64 = (row + 1..n).map(|column| matrix[row][column] * right[column]).sum();
        right[row] = (right[row] - known) / matrix[row][row];
    }
    (n > 0 && right.iter().all(|value| value.is_finite())).then_some(right)
}

/// A Latin hypercube: points with one in each slice of each dimension.
fn latin_hypercube(dimensions: usize, points: usize, seed: u64) -> Vec<Vec<f64>> {
    let mut stream = RandomStream::new(seed, "fit", "starts");
    let mut all = vec![vec![0.0; dimensions]; points];
    for dimension in 0..dimensions {
        let mut slices: Vec<usize> = (0..points).collect();
        // Fisher and Yates.
        for last in (1..points).rev() {
            slices.swap(last, stream.below(last as u64 + 1) as usize);
        }
        for (point, slice) in all.iter_mut().zip(slices) {
            point[dimension] = (slice as f64 + stream.unit()) / points as f64;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: Search = Search { evaluations: 600, restarts: 2, seed: 1 };

    const FREE: Space<'static> = Space { smallest_steps: &[0.0; 2], home: &[0.0; 2], pull: 0.0 };

    fn whole(residuals: Option<Vec<f64>>) -> Evaluation {
        Evaluation { residuals, share: 1.0 }
    }

    fn run(search: Search, start: &[f64], mut residuals: impl FnMut(&[f64]) -> Option<Vec<f64>>) -> Found {
        let mut evaluate = |points: &[Vec<f64>], _: f64| points.iter().map(|point| whole(residuals(point))).collect();
        minimise(start, FREE, search, &mut evaluate, &|| false).expect("the start can be evaluated")
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        // Rosenbrock's function on [-2, 2]²; its minimum, zero, is at (1, 1).
        let found = run(SEARCH, &[0.2, 0.8], |z| {
            let (x, y) = (4.0 * z[0] - 2.0, 4.0 * z[1] - 2.0);
            Some(vec![10.0 * (y - x * x), 1.0 - x])
        });
        assert!(found.cost < 1e-4, "{found:?}");
        assert!(found.evaluations <= (SEARCH.evaluations + 8) as f64);
    }

    #[test]
    fn a_minimum_outside_is_met_at_the_bound() {
        let found = run(SEARCH, &[0.5, 0.5], |z| Some(vec![z[0] + 1.0, z[1] - 0.3]));
        assert!(found.point[0] < 1e-9 && (found.point[1] - 0.3).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn stairs_and_places_that_can_not_be_do_not_stop_it() {
        let stairs = |value: f64| (value * 50.0).round() / 50.0;
        let found = run(SEARCH, &[0.9, 0.1], |z| {
            let forbidden = z[0] > 0.95;
            (!forbidden).then(|| vec![stairs(z[0]) - 0.3, 2.0 * (stairs(z[1]) - 0.7), 0.5 * (z[0] - 0.3)])
        });
        assert!((found.point[0] - 0.3).abs() < 0.03 && (found.point[1] - 0.7).abs() < 0.03, "{found:?}");
    }

    #[test]
    fn restarts_leave_a_local_minimum() {
        // A narrow valley, in which neither coordinate alone leads out of a bump.
        let bumpy = |z: &[f64]| Some(vec![(z[0] - 0.85) * 2.0, 0.6 * (20.0 * z[0]).cos() + 0.6, 9.0 * (z[1] - z[0])]);
        let alone = run(Search { restarts: 0, ..SEARCH }, &[0.15, 0.15], bumpy);
        let restarted = run(Search { restarts: 3, ..SEARCH }, &[0.15, 0.15], bumpy);
        assert!(restarted.cost < alone.cost * 0.5, "{alone:?} {restarted:?}");
    }

    #[test]
    fn a_start_where_a_coordinate_changes_nothing_is_left() {
        // The first coordinate has an effect only above 0.7, so differences below it are zero.
        let limited = |z: &[f64]| Some(vec![z[0].max(0.7) - 0.9, z[1] - 0.4]);
        let found = run(Search { restarts: 0, ..SEARCH }, &[0.1, 0.8], limited);
        assert!((found.point[0] - 0.9).abs() < 1e-3 && (found.point[1] - 0.4).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn it_stops_when_told_to_with_the_best_so_far() {
        let mut calls = 0;
        let mut evaluate =
            |points: &[Vec<f64>], _: f64| points.iter().map(|point| whole(Some(vec![point[0] - 0.5]))).collect();
        let never = minimise(&[0.0], FREE, SEARCH, &mut evaluate, &|| true);
        assert_eq!(never, None);
        let mut counting = |points: &[Vec<f64>], _: f64| {
            calls += points.len();
            points.iter().map(|point| whole(Some(vec![point[0] - 0.5]))).collect::<Vec<Evaluation>>()
        };
        let few = Search { evaluations: 1, restarts: 0, seed: 0 };
        let found = minimise(&[0.0], FREE, few, &mut counting, &|| false).unwrap();
        assert_eq!((found.point, found.evaluations, calls), (vec![0.0], 1.0, 1));
        let nowhere = minimise(&[0.0], FREE, SEARCH, &mut |_: &[Vec<f64>], _: f64| vec![whole(None)], &|| false);
        assert_eq!(nowhere, None);
    }

    #[test]
    fn what_is_given_up_changes_nothing_but_the_number_of_evaluations() {
        let residuals = |z: &[f64]| vec![z[0] - 0.2, z[1] * z[0] - 0.1, (9.0 * z[1]).sin()];
        let mut given_up = 0;
        let mut evaluate = |points: &[Vec<f64>], limit: f64| {
            let evaluated = |point: &Vec<f64>| {
                let all = residuals(point);
                let kept = all.iter().map(|residual| residual * residual).sum::<f64>() <= limit;
                given_up += usize::from(!kept);
                Evaluation { residuals: kept.then_some(all), share: if kept { 1.0 } else { 0.5 } }
            };
            points.iter().map(evaluated).collect::<Vec<Evaluation>>()
        };
        let cheaper = minimise(&[0.5, 0.5], FREE, SEARCH, &mut evaluate, &|| false).unwrap();
        let whole = run(SEARCH, &[0.5, 0.5], |z| Some(residuals(z)));
        assert!(given_up > 0 && cheaper.evaluations < whole.evaluations, "{cheaper:?} {whole:?}");
        assert_eq!((cheaper.point, cheaper.cost), (whole.point, whole.cost));
    }

    #[test]
    fn a_coordinate_that_changes_nothing_is_not_differentiated() {
        let mut off_the_start = 0;
        let found = run(Search { restarts: 0, ..SEARCH }, &[0.9, 0.3], |z| {
            off_the_start += usize::from(z[1] != 0.3);
            Some(vec![z[0] - 0.2, (5.0 * z[0]).cos()])
        });
        assert!(off_the_start <= 3 * SCANNED && found.point[1] == 0.3, "{off_the_start} of {found:?}");
    }

    #[test]
    fn what_the_function_does_not_tell_stays_where_it_is_pulled_to() {
        let space = Space { home: &[0.3, 0.6], pull: 0.01, ..FREE };
        // Only the sum has an effect; the result is the nearest point with that sum.
        let mut evaluate =
            |points: &[Vec<f64>], _: f64| points.iter().map(|z| whole(Some(vec![z[0] + z[1] - 1.1]))).collect();
        let found = minimise(&[0.3, 0.6], space, SEARCH, &mut evaluate, &|| false).unwrap();
        assert!((found.point[0] - 0.4).abs() < 0.01 && (found.point[1] - 0.7).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn equal_seeds_search_alike() {
        let function = |z: &[f64]| Some(vec![z[0] - 0.2, z[1] * z[0] - 0.1, (9.0 * z[1]).sin()]);
        assert_eq!(run(SEARCH, &[0.5, 0.5], function), run(SEARCH, &[0.5, 0.5], function));
    }

    #[test]
    fn a_linear_system_is_solved() {
        let solution = solve(vec![vec![0.0, 2.0], vec![4.0, 1.0]], vec![6.0, 7.0]).unwrap();
        assert!((solution[0] - 1.0).abs() < 1e-12 && (solution[1] - 3.0).abs() < 1e-12);
        assert_eq!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 2.0]), None);
        assert_eq!(solve(Vec::new(), Vec::new()), None);
    }
}
