//! Cross-validation: fits without a part of the points, and the errors on that part.
//!
//! These errors help to choose the structure of a model and the constants that can be trusted. Errors on fitted rows
//! only reflect the number of constants.

use chronodisk_report::{PointUse, SetError};

use super::{Method, Problem, Searched, measured};
use crate::FitError;
use crate::sweep::Point;

/// Requests of this size and above are left out together: small requests determine a drive's costs per request, large
/// ones its costs per byte.
pub const LARGE_BYTES: u64 = 32 << 10;

/// Depths from here on are left out together: queueing dominates there.
pub const DEEP: u32 = 32;

/// Points that are left out together.
#[derive(Clone, Debug, PartialEq)]
struct Fold {
    name: String,
    /// For each fitted point, whether it is left out.
    left_out: Vec<bool>,
}

/// Errors of all folds.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossValidation {
    /// Errors of each left-out part.
    pub errors: Vec<SetError>,
    /// Devices simulated, in whole ones' worth.
    pub evaluations: f64,
}

impl CrossValidation {
    /// Score of all parts, for comparing structures: the mean over all left-out rows of the error of the mean latency
    /// against 4 % and that of the 99th percentile against 10 %, half each. `None` if nothing was left out.
    #[must_use]
    pub fn score(&self) -> Option<f64> {
        const MEAN_AIM_PERCENT: f64 = 4.0;
        const P99_AIM_PERCENT: f64 = 10.0;
        let mean = weighted(&self.errors, |error| error.mean_percent)? / MEAN_AIM_PERCENT;
        Some(match weighted(&self.errors, |error| error.p99_percent) {
            Some(p99) => (mean + p99 / P99_AIM_PERCENT) / 2.0,
            None => mean,
        })
    }
}

/// The mean of an error over all rows that have it.
fn weighted(errors: &[SetError], of: fn(&SetError) -> Option<f64>) -> Option<f64> {
    let (mut rows, mut sum) = (0.0, 0.0);
    for error in errors {
        if let Some(value) = of(error) {
            rows += error.points as f64;
            sum += value * error.points as f64;
        }
    }
    (rows > 0.0).then(|| sum / rows)
}

impl Problem {
    /// Fits once without each set, once without requests of [`LARGE_BYTES`] and more, and once without depths of
    /// [`DEEP`] and more; with a single set of small requests at small depths, once without each depth. The errors are
    /// those of the left-out points. Skips a part that would leave no points, or that equals an earlier one.
    ///
    /// # Errors
    /// If a profile or a point can't be simulated.
    pub fn cross_validate(&self, method: &Method<'_>) -> Result<CrossValidation, FitError> {
        let fitted: Vec<&Point> =
            self.points.iter().filter(|point| point.1 == PointUse::Fitted).map(|point| &point.0).collect();
        let mut all = CrossValidation { errors: Vec::new(), evaluations: 0.0 };
        for fold in folds(&fitted) {
            if (method.stop)() {
                break;
            }
            let is_left_out = |point: &Point| {
                let place = fitted.iter().position(|other| std::ptr::eq(*other, point));
                place.is_some_and(|place| fold.left_out[place])
            };
            let others = |point: &(Point, PointUse)| point.1 == PointUse::Fitted && !is_left_out(&point.0);
            let Searched { values, evaluations } = self.search(method, &fold.name, &others);
            all.evaluations += evaluations;
            let Some(values) = values else { break };
            let of_fold: Vec<Point> =
                fitted.iter().zip(&fold.left_out).filter(|it| *it.1).map(|it| (*it.0).clone()).collect();
            let figures = self.figures(&values, &of_fold, method.run)?;
            let mut kinds: Vec<(String, Vec<_>)> = Vec::new();
            for (point, figures) in of_fold.iter().zip(figures) {
                let access = point.access.to_string();
                let pair = (measured(point), figures);
                match kinds.iter_mut().find(|kind| kind.0 == access) {
                    Some(kind) => kind.1.push(pair),
                    None => kinds.push((access, vec![pair])),
                }
            }
            let several = kinds.len() > 1;
            for (access, pairs) in kinds {
                let name = if several { format!("{}: {access}", fold.name) } else { fold.name.clone() };
                all.errors.extend(SetError::of(&name, &pairs));
            }
        }
        Ok(all)
    }
}

fn folds(points: &[&Point]) -> Vec<Fold> {
    let mut folds: Vec<Fold> = Vec::new();
    let mut add = |name: String, is_left_out: &dyn Fn(&Point) -> bool| {
        let left_out: Vec<bool> = points.iter().map(|point| is_left_out(point)).collect();
        let some = left_out.iter().any(|out| *out) && !left_out.iter().all(|out| *out);
        if some && !folds.iter().any(|fold| fold.left_out == left_out) {
            folds.push(Fold { name, left_out });
        }
    };
    for point in points {
        add(point.set.clone(), &|other| other.set == point.set);
    }
    add(format!("requests of {} KiB and more", LARGE_BYTES >> 10), &|point| point.block_bytes >= LARGE_BYTES);
    add(format!("depths of {DEEP} and more"), &|point| point.depth >= DEEP);
    if folds.is_empty() {
        let mut depths: Vec<u32> = points.iter().map(|point| point.depth).collect();
        depths.sort_unstable();
        depths.dedup();
        for depth in depths.iter().filter(|_| depths.len() > 1) {
            let left_out = points.iter().map(|point| point.depth == *depth).collect();
            folds.push(Fold { name: format!("depth {depth}"), left_out });
        }
    }
    folds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_sweep;

    fn names(csv: &str) -> Vec<(String, usize)> {
        let points = read_sweep(&format!("set,bs,qd,mean_us\n{csv}"), "a.csv", &[]).unwrap();
        let points: Vec<&Point> = points.iter().collect();
        let count = |fold: &Fold| fold.left_out.iter().filter(|out| **out).count();
        folds(&points).iter().map(|fold| (fold.name.clone(), count(fold))).collect()
    }

    fn expected(folds: &[(&str, usize)]) -> Vec<(String, usize)> {
        folds.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn each_set_large_requests_and_large_depths_are_left_out_once() {
        let three = "a randread,4096,1,5\na randread,4096,64,5\nb randwrite,4096,2,5\nb randwrite,65536,2,5\n";
        let all =
            [("a randread", 2), ("b randwrite", 2), ("requests of 32 KiB and more", 1), ("depths of 32 and more", 1)];
        assert_eq!(names(three), expected(&all));
    }

    #[test]
    fn a_part_that_equals_another_or_is_all_is_passed_over() {
        // The large requests are the second set, and all depths are small.
        let two = "a randread,4096,1,5\na randread,4096,2,5\nb seq read,131072,1,5\n";
        assert_eq!(names(two), expected(&[("a randread", 2), ("b seq read", 1)]));
    }

    #[test]
    fn a_single_small_sweep_is_left_out_depth_by_depth() {
        let one = "a randread,4096,1,5\na randread,4096,16,5\n";
        assert_eq!(names(one), expected(&[("depth 1", 1), ("depth 16", 1)]));
        assert_eq!(names("a randread,4096,1,5\n"), []);
    }

    #[test]
    fn the_score_is_one_where_both_aims_are_just_met() {
        let error = |points, mean, p99| SetError {
            name: "a".to_owned(),
            points,
            mean_percent: Some(mean),
            mean_worst_percent: Some(mean),
            p99_percent: p99,
            p99_worst_percent: p99,
        };
        let of = |errors| CrossValidation { errors, evaluations: 0.0 }.score();
        assert_eq!(of(vec![error(3, 4.0, Some(10.0))]), Some(1.0));
        assert_eq!(of(vec![error(3, 2.0, None), error(1, 10.0, None)]), Some(1.0));
        assert_eq!(of(vec![]), None);
    }
}
