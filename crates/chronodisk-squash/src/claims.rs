//! Explicit notification: verdicts on blocks that the client's kernel calls contents of files (David, section 3.2).
//!
//! They count where no classifier knows the blocks. A block that is contents only in part stays as it would without
//! the notification, because the rest may be metadata.

use chronodisk_store::FileData;

use super::UNIT_BYTES;
use super::class::Class;
use super::classifier::{Judged, Verdict};
use super::names::{NameRule, Treatment};
use super::units::{DeviceUnit, VolumeUnit};

/// Verdicts on runs of the device's blocks, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims(Vec<(DeviceUnit, DeviceUnit, Verdict)>);

impl Claims {
    /// Verdicts on the blocks of a write of `len_bytes` from `offset_bytes` on. `is_generated` says whether the rest of
    /// a block is contents of a file already.
    pub(crate) fn new(
        offset_bytes: u64,
        len_bytes: u64,
        file_data: &[FileData],
        names: &[NameRule],
        is_generated: impl Fn(DeviceUnit) -> bool,
    ) -> Self {
        let mut claims = Claims::default();
        let files: Vec<_> = file_data
            .iter()
            .map(|file| (offset_bytes + file.bytes.start, offset_bytes + file.bytes.end, is_kept(file, names)))
            .collect();
        let Some(&(first_byte, ..)) = files.first() else { return claims };
        let end = DeviceUnit((offset_bytes + len_bytes).div_ceil(UNIT_BYTES));
        let mut rest = &files[..];
        let mut unit = DeviceUnit(first_byte / UNIT_BYTES);
        while unit < end && !rest.is_empty() {
            let (start_bytes, end_bytes) = (unit.offset_bytes(), unit.offset_bytes() + UNIT_BYTES);
            let within = rest.iter().take_while(|file| file.0 < end_bytes);
            let (covered_bytes, keep) = within.fold((0, false), |(covered_bytes, keep), &(from, to, kept)| {
                let bytes = to.min(end_bytes).saturating_sub(from.max(start_bytes));
                (covered_bytes + bytes, keep || kept && bytes > 0)
            });
            let written_bytes = end_bytes.min(offset_bytes + len_bytes) - start_bytes.max(offset_bytes);
            let whole = covered_bytes == UNIT_BYTES || covered_bytes == written_bytes && is_generated(unit);
            if keep {
                claims.add(unit, Verdict::Keep(Class::Raw));
            } else if whole {
                claims.add(unit, Verdict::Drop);
            }
            unit = unit + 1;
            let past = rest.iter().take_while(|file| file.1 <= unit.offset_bytes()).count();
            rest = &rest[past..];
            if let Some(&(from, ..)) = rest.first() {
                unit = unit.max(DeviceUnit(from / UNIT_BYTES));
            }
        }
        claims
    }

    fn add(&mut self, unit: DeviceUnit, verdict: Verdict) {
        match self.0.last_mut() {
            Some((_, end, last)) if *end == unit && *last == verdict => *end = unit + 1,
            _ => self.0.push((unit, unit + 1, verdict)),
        }
    }

    /// The verdicts on the device's blocks from `from` to `to`, which are a volume's blocks from `place` on.
    pub(crate) fn in_volume(&self, from: DeviceUnit, to: DeviceUnit, place: VolumeUnit) -> Vec<Judged> {
        let inside = self.0.iter().map(|&(start, end, verdict)| (start.max(from), end.min(to), verdict));
        let in_volume = |unit: DeviceUnit| place + (unit - from);
        inside
            .filter(|run| run.0 < run.1)
            .map(|(start, end, verdict)| (in_volume(start), in_volume(end), verdict))
            .collect()
    }
}

/// Whether a rule keeps the file. A file without a known name is kept if there is any such rule.
fn is_kept(file: &FileData, names: &[NameRule]) -> bool {
    let keeps = |rule: &&NameRule| rule.treatment == Treatment::Keep;
    match &file.path {
        Some(path) => names.iter().find(|rule| rule.names.matches(path)).as_ref().is_some_and(keeps),
        None => names.iter().any(|rule| keeps(&rule)),
    }
}

/// Divides a run of blocks by the claims on them.
pub(crate) fn overrule((from, to, verdict): Judged, claims: &[Judged]) -> Vec<Judged> {
    let mut overruled = Vec::new();
    let mut at = from;
    for &(start, end, claim) in claims {
        if at < start {
            overruled.push((at, start, verdict));
        }
        overruled.push((start, end, claim));
        at = end;
    }
    if at < to {
        overruled.push((at, to, verdict));
    }
    overruled
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use proptest::prelude::*;

    use super::*;

    const KEEP: Verdict = Verdict::Keep(Class::Raw);

    fn file(bytes: Range<u64>, path: &str) -> FileData {
        FileData { bytes, inode: 1, path: (!path.is_empty()).then(|| path.as_bytes().into()) }
    }

    fn claims(offset_bytes: u64, len_bytes: u64, files: &[FileData], rules: &[&str]) -> Vec<(u64, u64, Verdict)> {
        let names: Vec<NameRule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        let claims = Claims::new(offset_bytes, len_bytes, files, &names, |unit| unit == DeviceUnit(9));
        claims.0.into_iter().map(|(from, to, verdict)| (from.0, to.0, verdict)).collect()
    }

    #[test]
    fn whole_blocks_of_contents_are_dropped_and_others_are_not() {
        assert_eq!(claims(8192, 16_384, &[file(0..16_384, "a")], &[]), [(2, 6, Verdict::Drop)]);
        assert_eq!(claims(8192, 16_384, &[file(4096..8192, "a")], &[]), [(3, 4, Verdict::Drop)]);
        assert_eq!(claims(8192, 16_384, &[file(1024..12_288, "a")], &[]), [(3, 5, Verdict::Drop)]);
        assert_eq!(claims(8704, 8192, &[file(0..8192, "a")], &[]), [(3, 4, Verdict::Drop)]);
        // Two files share a block.
        let two = [file(0..1024, "a"), file(1024..8192, "b")];
        assert_eq!(claims(8192, 8192, &two, &[]), [(2, 4, Verdict::Drop)]);
        assert_eq!(claims(8192, 8192, &[file(0..0, "a")], &[]), []);
        assert_eq!(claims(8192, 8192, &[], &[]), []);
    }

    #[test]
    fn a_part_of_a_dropped_block_leaves_it_dropped() {
        assert_eq!(claims(9 * 4096 + 1024, 1024, &[file(0..1024, "a")], &[]), [(9, 10, Verdict::Drop)]);
        assert_eq!(claims(9 * 4096 + 1024, 1024, &[file(0..512, "a")], &[]), []);
        assert_eq!(claims(8 * 4096 + 1024, 1024, &[file(0..1024, "a")], &[]), []);
    }

    #[test]
    fn names_keep_files() {
        let files = [file(0..4096, "a/x.db"), file(4096..8192, "a/y"), file(8192..12_288, "")];
        let kept = [(0, 1, KEEP), (1, 2, Verdict::Drop), (2, 3, KEEP)];
        assert_eq!(claims(0, 12_288, &files, &["*.db=keep"]), kept);
        assert_eq!(claims(0, 12_288, &files, &["/a/**=text", "*.db=keep"])[0], (0, 2, Verdict::Drop));
        assert_eq!(claims(0, 12_288, &files, &["*.db=text"]), [(0, 3, Verdict::Drop)]);
        // A block with bytes of a kept file stays, even if it has others.
        let mixed = [file(0..2048, "y"), file(2048..4096, "x.db")];
        assert_eq!(claims(0, 4096, &mixed, &["*.db=keep"]), [(0, 1, KEEP)]);
    }

    #[test]
    fn blocks_without_a_claim_keep_their_verdict() {
        let judged = |from, to, verdict| (VolumeUnit(from), VolumeUnit(to), verdict);
        let before = judged(0, 9, Verdict::Wait);
        let claims = [judged(1, 3, Verdict::Drop), judged(3, 7, KEEP)];
        let after = [judged(0, 1, Verdict::Wait), claims[0], claims[1], judged(7, 9, Verdict::Wait)];
        assert_eq!(overrule(before, &claims), after);
        assert_eq!(overrule(before, &[]), [before]);
    }

    proptest! {
        /// A dropped block has no byte that is not contents of a file, in this write or before.
        #[test]
        fn no_other_byte_is_dropped(
            offset_bytes in 0..40_u64,
            pieces in prop::collection::vec((0..30_u64, any::<bool>()), 1..12),
        ) {
            const STEP: u64 = 512;
            let (mut files, mut at) = (Vec::new(), 0);
            for (steps, is_file) in pieces {
                if is_file {
                    files.push(file(at..at + steps * STEP, "a"));
                }
                at += steps * STEP;
            }
            let offset_bytes = offset_bytes * STEP;
            let claims = Claims::new(offset_bytes, at, &files, &[], |_| false);
            let is_contents = |byte: u64| {
                byte >= offset_bytes && files.iter().any(|file| file.bytes.contains(&(byte - offset_bytes)))
            };
            for unit in 0..(offset_bytes + at).div_ceil(UNIT_BYTES) {
                let steps = (0..UNIT_BYTES / STEP).map(|step| unit * UNIT_BYTES + step * STEP);
                let all = steps.clone().all(is_contents);
                let dropped = claims.0.iter().any(|run| (run.0.0..run.1.0).contains(&unit));
                prop_assert_eq!(dropped, all, "block {}", unit);
            }
        }
    }
}
