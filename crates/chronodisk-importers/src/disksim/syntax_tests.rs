//! Accepted syntax, and its refusals.

use proptest::prelude::*;

use super::*;

fn file(label: &str, text: &str) -> SourceFile {
    SourceFile { label: label.to_owned(), text: text.to_owned() }
}

/// Parses `text` as `top`, with other files from `files`.
fn parse_with(text: &str, files: &[(&str, &str)]) -> Result<ParameterFile, ProfileError> {
    let mut resolve = |name: &str, _: &str| {
        let found = files.iter().find(|entry| entry.0 == name);
        found.map(|&(label, text)| file(label, text)).ok_or_else(|| "there is no such file".to_owned())
    };
    parse(file("top", text), &mut resolve)
}

fn refusal(text: &str, files: &[(&str, &str)]) -> String {
    parse_with(text, files).expect_err(text).to_string()
}

fn block(item: &Item) -> &Block {
    let Item::Block(block) = item else { panic!("{item:?} is no block") };
    block
}

#[test]
fn blocks_lists_and_components_become_a_tree() {
    let parsed = parse_with(
        "# an experiment\n\
         disk D {\n  Segment size (in blks) = 57, # comment\n  slips = [ 1, -2.5e-3, ],\n  defects = [],\n\
         \x20 Scheduler = queue { Timeout time/weight = 0 },\n} # end\n\
         instantiate [ d0, d2 .. d4 ] as D\n\
         topology driver top [ bus b [ disk d0 [], disk d2 [] ] ]\n",
        &[],
    )
    .unwrap();
    let disk = block(&parsed.items[0]);
    assert_eq!((disk.kind.text.as_str(), disk.name.as_ref().unwrap().text.as_str()), ("disk", "D"));
    let names: Vec<&str> = disk.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    assert_eq!(names, ["Segment size (in blks)", "slips", "defects", "Scheduler"]);
    assert_eq!(disk.parameters[0].place, SourcePosition { file: 0, line: 3, column: 3 });
    assert_eq!(disk.parameters[0].value.place, SourcePosition { file: 0, line: 3, column: 28 });
    let Data::List(slips) = &disk.parameters[1].value.data else { panic!() };
    assert_eq!(slips[1].data, Data::Word("-2.5e-3".to_owned()));
    assert_eq!(disk.parameters[2].value.data, Data::List(Vec::new()));
    let Data::Block(queue) = &disk.parameters[3].value.data else { panic!() };
    assert_eq!((queue.kind.text.as_str(), &queue.name), ("queue", &None));
    let Item::Instances(instances) = &parsed.items[1] else { panic!() };
    let names: Vec<&str> = instances.names.iter().map(|name| name.text.as_str()).collect();
    assert_eq!((names.as_slice(), instances.of.text.as_str()), (["d0", "d2", "d3", "d4"].as_slice(), "D"));
    let Item::Topology(driver) = &parsed.items[2] else { panic!() };
    assert_eq!(driver.below[0].below[1].name.text, "d2");
}

#[test]
fn sourced_files_stand_where_they_are_named() {
    let files = [("specs", "disk D { Model = source model, Print stats = 1 }"), ("model", "m M { Cylinders = 3 }")];
    let parsed = parse_with("\n source specs\nbus B { type = 1 }", &files).unwrap();
    assert_eq!(parsed.labels, ["top", "specs", "model"]);
    let Data::Block(model) = &block(&parsed.items[0]).parameters[0].value.data else { panic!() };
    assert_eq!(model.name.as_ref().unwrap().text, "M");
    assert_eq!(parsed.locate(model.parameters[0].place), "model:1");
    assert_eq!(parsed.locate(block(&parsed.items[1]).kind.place), "top:3");
}

#[test]
fn errors_say_where_and_what() {
    for (text, expected) in [
        ("disk D {\n a b 3 4\n}", "top:3:1: `}`; expected `=` after the parameter `a b 3 4`"),
        ("disk D {\n a = 3\n b = 4\n}", "top:3:2: `b`; expected `,` or `}`"),
        ("disk D {\n a = ,}", "top:2:6: `,`; expected a value"),
        ("disk D {\n a = [1 2]}", "top:2:9: `2`; expected `,` or `]`"),
        ("disk D {\n a = 1", "top:2:7: the end of the file; expected `,` or `}`"),
        ("disk { }", "top:1:6: `{`; expected the block's name"),
        ("instantiate [ a ] of B", "top:1:19: `of`; expected `as`"),
        ("instantiate [ a1 .. b2 ] as B", "top:1:15: `a1 .. b2`; expected a range such as"),
        ("instantiate [ a1 .. a99999999 ] as B", "expected a range such as"),
        ("topology a b [ c d e ]", "top:1:20: `e`; expected `[`"),
        ("source", "top:1:1: `source` without the name of a file"),
        ("source x\n", "top:1:8: can't read `x`: there is no such file"),
        ("a = 3", "top:1:3: `=`; expected the block's name"),
    ] {
        let error = refusal(text, &[]);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn bounds_hold() {
    assert!(refusal("source a", &[("a", "source b"), ("b", "source a")]).contains("b:1:8: a sources itself"));
    assert!(refusal("source top", &[("top", "")]).contains("top sources itself"));
    let chain: Vec<(String, String)> = (0..20).map(|i| (format!("f{i}"), format!("source f{}", i + 1))).collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|entry| (entry.0.as_str(), entry.1.as_str())).collect();
    assert!(refusal("source f0", &chain).contains("deep"));
    assert!(refusal(&"source a ".repeat(100), &[("a", "")]).contains("more than 64 files"));
    assert!(refusal(&" ".repeat(5 << 20), &[]).contains("too long"));
    let long = " ".repeat(4 << 20);
    assert!(refusal(&"source a ".repeat(5), &[("a", &long)]).contains("too long"));
    for (open, close) in [("[", "]"), ("a { b = ", "}"), ("a b [ ", "]")] {
        let nested = format!("x y {{ z = {}{} }}", open.repeat(100_000), close.repeat(100_000));
        let error = refusal(&nested, &[]);
        assert!(error.contains("nested more than 32 deep") || error.contains("expected"), "{error}");
    }
    assert!(refusal(&format!("topology a b {}", "[ a b ".repeat(100_000)), &[]).contains("nested"));
}

proptest! {
    /// Any text gives a tree or an error with a place inside it, never a panic.
    #[test]
    fn any_text_is_parsed_or_refused(
        text in "([a-z]{1,3}|[{}\\[\\],=#;:?.]|[ \n]|source|topology|instantiate|as|\\PC){0,60}",
    ) {
        if let Err(error) = parse_with(&text, &[("a", "b")]) {
            prop_assert!(error.line.is_none_or(|line| line as usize <= text.lines().count() + 1));
        }
    }
}
