//! Chronodisk's own processes, as `docs/endings.md` lists them.

/// A row of the table.
#[derive(Clone, Debug)]
pub struct Helper {
    /// A word of its command line.
    pub word: String,
    /// The commands that have it.
    pub commands: String,
    /// A run's message about its death; one of these.
    pub messages: Vec<String>,
}

/// The rows for a command.
pub fn helpers_of(command: &str) -> Vec<Helper> {
    let page = include_str!("../../../../docs/endings.md");
    let (_, rest) = page.split_once("<!-- helpers -->").unwrap();
    let (table, _) = rest.split_once("<!-- end of helpers -->").unwrap();
    let rows = table.trim().lines().skip(2).map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let [process, commands, _, message] = cells[..] else { panic!("{line}") };
        Helper { word: quoted(process).remove(0), commands: commands.to_owned(), messages: quoted(message) }
    });
    rows.filter(|row| row.commands.contains(&format!("`{command}`"))).collect()
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    pub number: u32,
    /// Its command line.
    pub line: String,
}

/// All that a process has started and that lives, parents first.
pub fn descendants(number: u32) -> Vec<Process> {
    let mut all: Vec<Process> = children(number);
    let mut next = 0;
    while next < all.len() {
        all.extend(children(all[next].number));
        next += 1;
    }
    all
}

fn children(number: u32) -> Vec<Process> {
    let threads = std::fs::read_dir(format!("/proc/{number}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<u32> =
        lists.flat_map(|list| list.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect();
    let process = |number: u32| {
        let bytes = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
        // A zombie has none.
        (!line.is_empty()).then_some(Process { number, line })
    };
    numbers.into_iter().filter_map(process).collect()
}

/// The row of a process. A process without a row is a helper that the table lacks.
pub fn row_of<'a>(helpers: &'a [Helper], process: &Process, model: Option<&str>) -> &'a Helper {
    let is_model = model.is_some_and(|model| process.line.contains(model)) && !process.line.contains("exec-guard");
    let word = if is_model { "exec:" } else { process.line.as_str() };
    let row = helpers.iter().find(|row| word.contains(&row.word));
    row.unwrap_or_else(|| panic!("docs/endings.md does not list this process of a run: {process:?}"))
}

/// Kills a process.
pub fn kill(number: u32) {
    // SAFETY: a number and a signal; a process that has ended meanwhile gets none.
    unsafe { libc::kill(number as libc::pid_t, libc::SIGKILL) };
}
