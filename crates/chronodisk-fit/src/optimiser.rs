//! Least squares without derivatives, in a box, for functions that are costly and a little rough.
//!
//! A candidate is a point of the unit cube. Each round takes differences along the coordinates (a step of a few per
//! cent of the box, so that the stairs of percentiles and of rounded parameters do not matter), solves the damped
//! normal equations of Levenberg and Marquardt for several dampings at once, and moves to the best point seen; where
//! none is better, the step is halved. All points of a half-round are evaluated together, so that whoever evaluates can
//! do so in parallel, and the search can be ended after any of them with the best point so far.
//!
//! Before that, each coordinate is tried by itself over the whole box, since a start may lie where a coordinate changes
//! nothing that was measured: a drive whose flash is faster than its link says nothing about its flash. What gains is
//! kept, the coordinate that gains most first, and both are repeated until neither gains. Points of a Latin hypercube are tried besides; the best of them are starts
//! too. No library was found that minimises squares without derivatives, takes batches and can be ended at any time; the parts are
//! textbook ones (Nocedal and Wright, "Numerical Optimization", 2006, sections 10.3 and 9.6).

use chronodisk_sim::RandomStream;

/// The residuals of each of several points; `None` for one that can't be.
pub type Evaluate<'a> = dyn FnMut(&[Vec<f64>]) -> Vec<Option<Vec<f64>>> + 'a;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// At most about so many evaluations.
    pub evaluations: usize,
    /// Starts besides the given one.
    pub restarts: usize,
    /// Of the other starts.
    pub seed: u64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best point.
    pub point: Vec<f64>,
    /// Half the sum of its squared residuals.
    pub cost: f64,
    /// Evaluations that it took.
    pub evaluations: usize,
}

/// A point with its residuals.
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
/// Less than this is exact.
const NOTHING: f64 = 1e-12;
/// Places of the box at which each coordinate is tried by itself.
const SCANNED: usize = 7;
/// A coordinate that gains less than this share of the cost by itself isn't tried again after others have moved, nor is
/// all of it repeated for less.
const SCAN_GAIN: f64 = 0.005;
/// Points of the Latin hypercube per dimension.
const EXPLORED_PER_DIMENSION: usize = 4;

/// Searches from `start`; `smallest_steps` are the distances in each dimension below which the function does not
/// change. `stop` is asked before each batch. `None` if not even the start can be evaluated.
pub fn minimise(
    start: &[f64],
    smallest_steps: &[f64],
    search: Search,
    evaluate: &mut Evaluate<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<Found> {
    let mut batch = Batch { evaluate, evaluations: 0, limit: search.evaluations, stop };
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
            here = scan(here, &mut batch);
            here = descend(here, smallest_steps, &mut batch);
            // Where the descent has ended, other coordinates may show than where it began.
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

/// Tries each coordinate by itself over the whole box and keeps what gains: the coordinate that gains most first, the
/// others again from there, in the order of what they gained.
fn scan(start: Evaluated, batch: &mut Batch<'_, '_>) -> Evaluated {
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
    let results = batch.run(&all);
    let best_of =
        |tried: &[Option<Evaluated>]| tried.iter().flatten().min_by(|a, b| a.cost.total_cmp(&b.cost)).cloned();
    let mut gains: Vec<(usize, Evaluated)> = (0..)
        .zip(results.chunks(SCANNED))
        .filter_map(|(dimension, tried)| Some((dimension, best_of(tried)?)))
        .filter(|(_, best)| best.cost < start.cost * (1.0 - SCAN_GAIN))
        .collect();
    gains.sort_by(|a, b| a.1.cost.total_cmp(&b.1.cost));
    let mut gains = gains.into_iter();
    let Some((_, mut here)) = gains.next() else { return start };
    for (dimension, _) in gains {
        if let Some(better) = best_of(&batch.run(&along(&here.point, dimension))).filter(|it| it.cost < here.cost) {
            here = better;
        }
    }
    here
}

/// Descends from `start` without looking elsewhere first, as [`minimise`] does from the best that it saw.
pub fn refine(
    start: &[f64],
    smallest_steps: &[f64],
    evaluations: usize,
    evaluate: &mut Evaluate<'_>,
    stop: &dyn Fn() -> bool,
) -> Option<Found> {
    let mut batch = Batch { evaluate, evaluations: 0, limit: evaluations, stop };
    let start = batch.run(&[start.to_vec()]).pop().flatten()?;
    let best = descend(start, smallest_steps, &mut batch);
    Some(Found { point: best.point, cost: best.cost, evaluations: batch.evaluations })
}

/// Counts evaluations, and refuses more than allowed.
struct Batch<'a, 'b> {
    evaluate: &'a mut Evaluate<'b>,
    evaluations: usize,
    limit: usize,
    stop: &'a dyn Fn() -> bool,
}

impl Batch<'_, '_> {
    fn exhausted(&self) -> bool {
        self.evaluations >= self.limit || (self.stop)()
    }

    fn run(&mut self, points: &[Vec<f64>]) -> Vec<Option<Evaluated>> {
        if points.is_empty() || self.exhausted() {
            return Vec::new();
        }
        self.evaluations += points.len();
        let evaluated = |(point, residuals): (&Vec<f64>, Option<Vec<f64>>)| {
            let residuals = residuals.filter(|all| all.iter().all(|residual| residual.is_finite()))?;
            let cost = residuals.iter().map(|residual| residual * residual).sum::<f64>() / 2.0;
            Some(Evaluated { point: point.clone(), residuals, cost })
        };
        points.iter().zip((self.evaluate)(points)).map(evaluated).collect()
    }
}

/// One descent, from one start.
fn descend(start: Evaluated, smallest_steps: &[f64], batch: &mut Batch<'_, '_>) -> Evaluated {
    let (mut here, mut step, mut damping) = (start, FIRST_STEP, 1.0);
    while step >= LAST_STEP && here.cost > NOTHING && !batch.exhausted() {
        let beside = neighbours(&here.point, step, smallest_steps);
        let differences = batch.run(&beside);
        if differences.len() < beside.len() {
            break;
        }
        let columns = columns(&here, &beside, &differences);
        let steps: Vec<(f64, Vec<f64>)> = DAMPINGS
            .iter()
            .map(|factor| damping * factor)
            .filter_map(|damping| Some((damping, damped_step(&here, &columns, damping)?)))
            .collect();
        let points: Vec<Vec<f64>> = steps.iter().map(|(_, point)| point.clone()).collect();
        let mut next: Option<(f64, Evaluated)> = None;
        let tried = steps.iter().map(|(damping, _)| *damping).zip(batch.run(&points));
        // A neighbour may be better than any step, as where the function is too rough for its differences.
        let all = tried.chain(differences.into_iter().map(|neighbour| (damping, neighbour)));
        for (damping, candidate) in all {
            let Some(candidate) = candidate else { continue };
            if next.as_ref().is_none_or(|(_, best)| candidate.cost < best.cost) {
                next = Some((damping, candidate));
            }
        }
        match next {
            Some((tried, candidate)) if candidate.cost < here.cost * (1.0 - PROGRESS) => {
                (here, damping) = (candidate, tried.clamp(1e-6, 1e6));
            }
            better => {
                if let Some((_, candidate)) = better.filter(|(_, candidate)| candidate.cost < here.cost) {
                    here = candidate;
                }
                step /= 2.0;
            }
        }
    }
    here
}

/// The point moved along each coordinate, towards the middle of the box.
fn neighbours(point: &[f64], step: f64, smallest_steps: &[f64]) -> Vec<Vec<f64>> {
    let moved = |dimension: usize| {
        let step = step.max(smallest_steps[dimension]).min(0.5);
        let mut beside = point.to_vec();
        beside[dimension] += if point[dimension] > 0.5 { -step } else { step };
        beside
    };
    (0..point.len()).map(moved).collect()
}

/// Differences of the residuals per unit of each coordinate; zero where the neighbour can't be.
fn columns(here: &Evaluated, beside: &[Vec<f64>], differences: &[Option<Evaluated>]) -> Vec<Vec<f64>> {
    let column = |dimension: usize| {
        let length = beside[dimension][dimension] - here.point[dimension];
        match &differences[dimension] {
            Some(there) => {
                let pairs = there.residuals.iter().zip(&here.residuals);
                pairs.map(|(there, here)| (there - here) / length).collect()
            }
            None => vec![0.0; here.residuals.len()],
        }
    };
    (0..beside.len()).map(column).collect()
}

/// The end of the step that the damped normal equations give, cut at the box; `None` if it goes nowhere.
fn damped_step(here: &Evaluated, columns: &[Vec<f64>], damping: f64) -> Option<Vec<f64>> {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let gradient: Vec<f64> = columns.iter().map(|column| dot(column, &here.residuals)).collect();
    // A coordinate that is at its bound and would leave the box stays; one that changes nothing has no column.
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

/// So many points, one in each slice of each dimension.
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

    fn run(search: Search, start: &[f64], mut residuals: impl FnMut(&[f64]) -> Option<Vec<f64>>) -> Found {
        let steps = vec![0.0; start.len()];
        let mut evaluate = |points: &[Vec<f64>]| points.iter().map(|point| residuals(point)).collect();
        minimise(start, &steps, search, &mut evaluate, &|| false).expect("the start can be evaluated")
    }

    #[test]
    fn a_curved_valley_is_followed_to_its_end() {
        // Rosenbrock's function on [-2, 2]²; its minimum, zero, is at (1, 1).
        let found = run(SEARCH, &[0.2, 0.8], |z| {
            let (x, y) = (4.0 * z[0] - 2.0, 4.0 * z[1] - 2.0);
            Some(vec![10.0 * (y - x * x), 1.0 - x])
        });
        assert!(found.cost < 1e-4, "{found:?}");
        assert!(found.evaluations <= SEARCH.evaluations + 8);
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
        // Along a narrow valley, so that neither coordinate leads out of a bump by itself.
        let bumpy = |z: &[f64]| Some(vec![(z[0] - 0.85) * 2.0, 0.6 * (20.0 * z[0]).cos() + 0.6, 9.0 * (z[1] - z[0])]);
        let alone = run(Search { restarts: 0, ..SEARCH }, &[0.15, 0.15], bumpy);
        let restarted = run(Search { restarts: 3, ..SEARCH }, &[0.15, 0.15], bumpy);
        assert!(restarted.cost < alone.cost * 0.5, "{alone:?} {restarted:?}");
    }

    #[test]
    fn a_start_where_a_coordinate_changes_nothing_is_left() {
        // The first coordinate shows only above 0.7, where it is what limits; from below no difference tells of it.
        let limited = |z: &[f64]| Some(vec![z[0].max(0.7) - 0.9, z[1] - 0.4]);
        let found = run(Search { restarts: 0, ..SEARCH }, &[0.1, 0.8], limited);
        assert!((found.point[0] - 0.9).abs() < 1e-3 && (found.point[1] - 0.4).abs() < 1e-3, "{found:?}");
    }

    #[test]
    fn it_stops_when_told_to_with_the_best_so_far() {
        let mut calls = 0;
        let mut evaluate = |points: &[Vec<f64>]| {
            points.iter().map(|point| Some(vec![point[0] - 0.5])).collect::<Vec<Option<Vec<f64>>>>()
        };
        let never = minimise(&[0.0], &[0.0], SEARCH, &mut evaluate, &|| true);
        assert_eq!(never, None);
        let mut counting = |points: &[Vec<f64>]| {
            calls += points.len();
            points.iter().map(|point| Some(vec![point[0] - 0.5])).collect::<Vec<Option<Vec<f64>>>>()
        };
        let few = Search { evaluations: 1, restarts: 0, seed: 0 };
        let found = minimise(&[0.0], &[0.0], few, &mut counting, &|| false).unwrap();
        assert_eq!((found.point, found.evaluations, calls), (vec![0.0], 1, 1));
        let nowhere = minimise(&[0.0], &[0.0], SEARCH, &mut |_: &[Vec<f64>]| vec![None], &|| false);
        assert_eq!(nowhere, None);
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
