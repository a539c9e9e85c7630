//! Values in elements of a sample, and their mean and percentiles in a draw.

/// Values, such as response times, each in one element of the sample: a value alone, or all of a block of time.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Number and sum of each element's values.
    elements: Vec<(u64, f64)>,
    /// All values in ascending order, each with its element.
    sorted: Vec<(f64, u32)>,
    /// Values between two checkpoints.
    stride: usize,
    /// At each checkpoint, the number of each element's values before it.
    before: Vec<Vec<u32>>,
}

/// Least distance of checkpoints.
const STRIDE_MIN: usize = 1_024;

impl Sample {
    /// A sample in which each value is an element.
    ///
    /// # Panics
    /// With more than 2³² values.
    #[must_use]
    pub fn of_values(values: &[f64]) -> Self {
        Sample::of_blocks(values.iter().map(std::slice::from_ref))
    }

    /// A sample in which each block is an element, even if it has no values.
    ///
    /// # Panics
    /// With more than 2³² blocks.
    #[must_use]
    pub fn of_blocks<'a>(blocks: impl IntoIterator<Item = &'a [f64]>) -> Self {
        let (mut elements, mut sorted) = (Vec::new(), Vec::new());
        for block in blocks {
            let element = u32::try_from(elements.len()).expect("at most 2³² elements");
            elements.push((block.len() as u64, block.iter().sum()));
            sorted.extend(block.iter().map(|&value| (value, element)));
        }
        sorted.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        // With few values per element there are no checkpoints, and they never need more memory than the values.
        let stride = STRIDE_MIN.max(4 * elements.len());
        let mut so_far = vec![0; elements.len()];
        let mut before = Vec::new();
        for piece in sorted.chunks(stride) {
            before.push(so_far.clone());
            for (_, element) in piece {
                so_far[*element as usize] += 1;
            }
        }
        Sample { elements, sorted, stride, before }
    }

    /// Elements (N).
    #[must_use]
    pub fn count(&self) -> usize {
        self.elements.len()
    }

    /// Mean of the values in a draw; NaN without values.
    #[must_use]
    pub fn mean(&self, copies: &[u32]) -> f64 {
        let drawn = self.elements.iter().zip(copies);
        let sum: f64 = drawn.map(|((_, sum), copies)| sum * f64::from(*copies)).sum();
        sum / self.values_of(copies) as f64
    }

    /// The smallest value that is not exceeded by at least this share of the values in a draw; NaN without values.
    #[must_use]
    pub fn quantile(&self, copies: &[u32], share: f64) -> f64 {
        let count = self.values_of(copies);
        // A product such as 0.9 · 190 may be slightly above the exact whole number.
        let rank = ((share * count as f64 - 1e-9).ceil() as u64).clamp(1, count.max(1));
        let before = |piece: &Vec<u32>| -> u64 {
            piece.iter().zip(copies).map(|(count, copies)| u64::from(*count) * u64::from(*copies)).sum()
        };
        let piece = self.before.partition_point(|piece| before(piece) < rank).saturating_sub(1);
        let mut seen = self.before.get(piece).map_or(0, before);
        for (value, element) in &self.sorted[(piece * self.stride).min(self.sorted.len())..] {
            seen += u64::from(copies[*element as usize]);
            if seen >= rank {
                return *value;
            }
        }
        f64::NAN
    }

    fn values_of(&self, copies: &[u32]) -> u64 {
        self.elements.iter().zip(copies).map(|((count, _), copies)| count * u64::from(*copies)).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_draw_has_the_figures_of_its_values(
            blocks in prop::collection::vec(prop::collection::vec(0..40_u32, 0..900), 1..9),
            seed: u64,
            share in 0.0..1.0_f64,
        ) {
            let blocks: Vec<Vec<f64>> =
                blocks.iter().map(|block| block.iter().map(|&value| f64::from(value)).collect()).collect();
            let sample = Sample::of_blocks(blocks.iter().map(Vec::as_slice));
            let copies = super::super::copies(blocks.len(), seed, 0);
            let mut values: Vec<f64> = blocks
                .iter()
                .zip(&copies)
                .flat_map(|(block, &copies)| std::iter::repeat_n(block, copies as usize).flatten().copied())
                .collect();
            values.sort_by(f64::total_cmp);
            if values.is_empty() {
                prop_assert!(sample.mean(&copies).is_nan() && sample.quantile(&copies, share).is_nan());
                return Ok(());
            }
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            prop_assert_eq!(sample.quantile(&copies, share), values[rank - 1]);
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            prop_assert!((sample.mean(&copies) - mean).abs() < 1e-9);
        }
    }
}
