//! "Did you mean": the names nearest to one that does not exist.

/// A sentence with up to three of `names` that resemble `wrong`, nearest first; `None` if none does.
pub fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let quoted: Vec<String> = chronodisk_device::nearest(wrong, names).iter().map(|name| format!("'{name}'")).collect();
    match quoted.as_slice() {
        [] => None,
        [one] => Some(format!("did you mean {one}?")),
        [first @ .., last] => Some(format!("did you mean {} or {last}?", first.join(", "))),
    }
}

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
