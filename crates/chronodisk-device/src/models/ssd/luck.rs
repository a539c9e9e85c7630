//! Draws without state: a number or a place determines its luck.

/// A time off its mean by at most an amplitude, by the sum of two uniform numbers that luck has.
pub(super) fn vary(time: u64, amplitude: u64, luck: u64) -> u64 {
    let sum = (luck & 0xffff) + (luck >> 16 & 0xffff);
    (time + amplitude * sum / 0xffff).saturating_sub(amplitude)
}

/// Spreads a number over all 64 bits: the finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Position of a number below `count` in an order drawn by `luck`: the swap-or-not shuffle (Hoang, Morris, Rogaway,
/// CRYPTO 2012).
pub(super) fn shuffled(mut place: u32, count: u32, luck: u64) -> u32 {
    for round in 0..SHUFFLE_ROUNDS {
        let luck = mix(luck ^ u64::from(round));
        let key = (((luck & 0xffff_ffff) * u64::from(count)) >> 32) as u32;
        let partner = if key >= place { key - place } else { key + count - place };
        if mix(luck ^ u64::from(place.max(partner))) >> 63 == 1 {
            place = partner;
        }
    }
    place
}

/// Rounds after which some hundred numbers are in any order.
const SHUFFLE_ROUNDS: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_is_taken_once_and_few_stay() {
        for (count, luck) in [(1, 7), (5, 1), (32, 3), (96, 0), (32 * 1_024, 9)] {
            let mut seen = vec![false; count as usize];
            let mut stay = 0;
            for place in 0..count {
                let other = shuffled(place, count, luck);
                assert!(!std::mem::replace(&mut seen[other as usize], true), "{other} of {count} twice");
                stay += u32::from(other == place);
            }
            // One is expected by chance.
            assert!(count < 32 || stay <= 8, "{stay} of {count}");
        }
    }

    #[test]
    fn a_time_varies_by_at_most_its_amplitude() {
        assert_eq!((vary(100, 30, 0), vary(100, 30, u64::MAX)), (70, 130));
        assert_eq!(vary(20, 30, 0), 0);
    }
}
