//! "Did you mean": the names nearest to one that does not exist.

/// A sentence with up to three of `names` that resemble `wrong`, nearest first; `None` if none does.
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut near: Vec<(f64, &str)> = names
        .map(|name| (strsim::jaro_winkler(&wrong.to_lowercase(), &name.to_lowercase()), name))
        .filter(|&(similarity, _)| similarity >= SIMILAR_ENOUGH)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.truncate(3);
    let quoted: Vec<String> = near.iter().map(|(_, name)| format!("'{name}'")).collect();
    match quoted.as_slice() {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

/// Jaro-Winkler similarity from which a name counts as a typing error. clap's own threshold for flags is 0.7 of Jaro's
/// similarity, which Winkler's bonus for a common beginning raises.
const SIMILAR_ENOUGH: f64 = 0.8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_first_and_nothing_far() {
        let names = ["null", "constant-10ms", "constant-100us", "first-disk"];
        let help = nearest("constant-100ms", names.into_iter()).unwrap();
        assert!(help.contains("'constant-10ms'") && help.contains("'constant-100us'"), "{help}");
        assert_eq!(nearest("frist-disk", names.into_iter()), Some("did you mean 'first-disk'?".into()));
        assert_eq!(nearest("zebra", names.into_iter()), None);
    }
}
