//! The commands that the documentation shows.

use std::path::{Path, PathBuf};

/// A call of `chronodisk` on a page.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The page's file name.
    pub page: String,
    /// The line of its beginning, from 1.
    pub line: usize,
    /// Text of the command as written, for a shell; continued lines are joined.
    pub text: String,
    /// Its words up to the first operator of the shell, without `chronodisk`.
    pub words: Vec<String>,
}

impl Shown {
    pub fn place(&self) -> String {
        format!("{}:{}: {}", self.page, self.line, self.text)
    }
}

/// The root of the sources.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Console examples of the guides and the README, in the order of the pages' names.
pub fn shown() -> Vec<Shown> {
    let mut pages: Vec<PathBuf> =
        std::fs::read_dir(root().join("docs")).unwrap().map(|it| it.unwrap().path()).collect();
    // The help is a reference, and its commands come from the parser.
    pages.retain(|path| path.extension().is_some_and(|it| it == "md") && !path.ends_with("commands.md"));
    pages.push(root().join("README.md"));
    pages.sort();
    pages.iter().flat_map(|path| commands_of(path)).collect()
}

/// The block of a page that begins so.
pub fn block_of(page: &str, beginning: &str) -> String {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    let blocks = text.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap().1);
    blocks.filter(|block| block.starts_with(beginning)).last().unwrap().to_owned()
}

fn commands_of(path: &Path) -> Vec<Shown> {
    let page = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).unwrap();
    let mut found = Vec::new();
    let mut block = None;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            block = block.is_none().then(|| language.to_owned());
            continue;
        }
        let call = match block.as_deref() {
            Some("sh") => line,
            Some("console") => line.strip_prefix("$ ").unwrap_or_default(),
            _ => continue,
        };
        if !call.starts_with("chronodisk ") {
            continue;
        }
        let mut call = call.to_owned();
        // A command ends where no line is continued and no quotation is open.
        let words = loop {
            let continued = call.strip_suffix('\\').map(str::to_owned);
            let whole = continued.is_none().then(|| shlex::split(&call)).flatten();
            if let Some(words) = whole {
                break words;
            }
            let (_, next) = lines.next().unwrap_or_else(|| panic!("{page}:{}: no end of {call}", index + 1));
            call = match continued {
                Some(begun) => format!("{begun}{}", next.trim_start_matches("> ").trim_start()),
                None => format!("{call}\n{next}"),
            };
        };
        let is_operator = |word: &String| ["|", "&", ">", "2>", "&&", ";"].contains(&word.as_str());
        let words = words.into_iter().skip(1).take_while(|word| !is_operator(word)).collect();
        found.push(Shown { page: page.clone(), line: index + 1, text: call, words });
    }
    found
}
