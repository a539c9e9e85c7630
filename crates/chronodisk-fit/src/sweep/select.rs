//! Selects points: conditions given by the user, and the rule for sweeps that are not monotone.

use std::str::FromStr;

use super::Point;

/// A condition on points, such as `depth>=32` or `set=randread`.
#[derive(Clone, Debug, PartialEq)]
pub struct Selector {
    field: Field,
    relation: Relation,
    text: String,
    number: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Depth,
    Size,
    Set,
    Access,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    AtLeast,
    AtMost,
    Not,
    Above,
    Below,
    Is,
}

/// Longer ones first, since they begin alike.
const RELATIONS: [(&str, Relation); 6] = [
    (">=", Relation::AtLeast),
    ("<=", Relation::AtMost),
    ("!=", Relation::Not),
    (">", Relation::Above),
    ("<", Relation::Below),
    ("=", Relation::Is),
];

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected a condition such as depth>=32, size<=16KiB, set=randread or access=random read";
        let found = text.char_indices().find_map(|(at, _)| {
            let relation = RELATIONS.iter().find(|(sign, _)| text[at..].starts_with(sign))?;
            Some((at, relation))
        });
        let (at, &(sign, relation)) = found.ok_or_else(|| format!("\"{text}\" has no relation; {expected}"))?;
        let (field, value) = (text[..at].trim(), text[at + sign.len()..].trim());
        let field = match field {
            "depth" | "qd" => Field::Depth,
            "size" | "bs" => Field::Size,
            "set" => Field::Set,
            "access" => Field::Access,
            other => return Err(format!("unknown field \"{other}\"; {expected}")),
        };
        let number = match field {
            Field::Depth => value.parse().map_err(|_| format!("\"{value}\" is no depth; {expected}"))?,
            Field::Size => {
                let bytes = value.parse().or_else(|_| chronodisk_device::parse_capacity(value));
                bytes.map_err(|_| format!("\"{value}\" is no size; {expected}"))?
            }
            Field::Set | Field::Access => 0,
        };
        if matches!(field, Field::Set | Field::Access) && !matches!(relation, Relation::Is | Relation::Not) {
            return Err(format!("a name can be compared with = and != alone; {expected}"));
        }
        Ok(Selector { field, relation, text: value.to_owned(), number })
    }
}

impl Selector {
    /// Whether the condition holds. A set is another's if its name contains the text.
    #[must_use]
    pub fn holds(&self, point: &Point) -> bool {
        let number = match self.field {
            Field::Depth => u64::from(point.depth),
            Field::Size => point.block_bytes,
            Field::Set => return point.set.contains(&self.text) == (self.relation == Relation::Is),
            Field::Access => {
                return point.access.to_string().contains(&self.text) == (self.relation == Relation::Is);
            }
        };
        match self.relation {
            Relation::AtLeast => number >= self.number,
            Relation::AtMost => number <= self.number,
            Relation::Above => number > self.number,
            Relation::Below => number < self.number,
            Relation::Is => number == self.number,
            Relation::Not => number != self.number,
        }
    }
}

/// Accepted fall of the throughput with growing depth; a constant, so that it can't be chosen by the result.
pub const FALL_LIMIT_PERCENT: f64 = 5.0;

/// For each point, whether it is not monotone in depth: within its set, access and size, a point of lesser depth has a
/// throughput that is more than [`FALL_LIMIT_PERCENT`] higher. More outstanding requests give a device more choice and
/// never less work, so such a measurement includes another effect.
#[must_use]
pub fn not_monotone(points: &[Point]) -> Vec<bool> {
    let alike = |a: &Point, b: &Point| {
        (&a.set, a.block_bytes, a.zones, a.only) == (&b.set, b.block_bytes, b.zones, b.only) && a.access == b.access
    };
    let falls = |point: &Point| {
        let iops = point.iops().unwrap_or(f64::INFINITY);
        points.iter().any(|before| {
            alike(before, point)
                && before.depth < point.depth
                && before.iops().is_some_and(|higher| iops < higher * (1.0 - FALL_LIMIT_PERCENT / 100.0))
        })
    };
    points.iter().map(falls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_sweep;

    fn points() -> Vec<Point> {
        let text = "set,bs,qd,iops\nd seq read,131072,1,18721\nd seq read,131072,2,21206\nd seq read,131072,4,19734\n\
                    d seq read,131072,8,20500\nd seq read,131072,16,25002\nd seq read,131072,32,24100\n\
                    e randread,4096,32,100\n";
        read_sweep(text, "a.csv", &[]).unwrap()
    }

    #[test]
    fn a_fall_beyond_the_limit_is_seen_and_a_small_one_is_not() {
        assert_eq!(not_monotone(&points()), [false, false, true, false, false, false, false]);
    }

    #[test]
    fn conditions() {
        let holds = |text: &str| {
            let selector: Selector = text.parse().unwrap();
            points().iter().map(|point| u8::from(selector.holds(point))).collect::<Vec<u8>>()
        };
        assert_eq!(holds("depth>=16"), [0, 0, 0, 0, 1, 1, 1]);
        assert_eq!(holds("depth < 2"), [1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(holds("size<=16KiB"), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(holds("set=rand"), [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(holds("set!=rand"), [1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(holds("access=sequential read"), [1, 1, 1, 1, 1, 1, 0]);
        for (text, part) in [
            ("depth", "no relation"),
            ("width>3", "unknown field"),
            ("depth>many", "no depth"),
            ("size>2 ells", "no size"),
            ("set>a", "= and != alone"),
        ] {
            assert!(text.parse::<Selector>().unwrap_err().contains(part), "{text}");
        }
    }
}
