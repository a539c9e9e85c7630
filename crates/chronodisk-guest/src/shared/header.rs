//! Makes `shim/page.h`, and compares it with the file.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use super::costs::{WORK_NANOS_MIN, WORK_SHARE_MIN, Work};
use super::definitions::{InC, SharedEnum, SharedStruct};
use super::descriptors::DEVICES_MAX;
use super::layout::{
    AnswerWords, Ask, Backend, CALENDAR_SOCKET, CPU_ANY_OTHER, CPU_OF_KERNEL, Clock, Computing, Cost,
    DEVICE_SOCKET_PREFIX, EXCHANGE_VARIABLE, EXIT_BACKEND_LOST, EXIT_NEVER_IDLES, EXIT_PROCESS_LOST, FEED_CHARGE,
    FEED_MARK, FEED_PART, FEED_PART_BYTES, FEED_REPORT, FEED_REPORT_BYTES, FEED_REPORT_OFFSET, FEED_VARIABLE, Idling,
    Issuer, LEARN_IDS, LEARN_MARK, LEARN_TABLES, Launcher, Listed, NEVER, PAGE_BYTES, PAGE_MAGIC, PAGE_VARIABLE,
    PROBE_MARK, PROBES, Page, QuestionWords, RECORD_BEGIN, RECORD_CALLS, RECORD_DROPPED, RECORD_END,
    RECORD_EVENTS_OFFSET, RECORD_HAS_PAIR, RECORD_LATE, RECORD_MARK, RECORD_NO_PATH, RECORD_RESTARTED,
    RECORD_UNREADABLE, RECORD_WORDS_SHIFT, RECORDING_VARIABLE, RecordedEvent, RecorderState, RecordingWords,
    SERIAL_OUT_VARIABLE, SMALL_COPY_BYTES, Setting, Shim, VHOST_VARIABLE, Word, WorkedWords,
};

/// Set to write the file instead of comparing it.
const REGENERATE_VARIABLE: &str = "CHRONODISK_REGENERATE";
const COLUMNS_MAX: usize = 120;
const TAB: usize = 8;

impl InC for Setting {
    const WRITER: &'static str = "the launcher before the guest starts";

    fn declaration(name: &str) -> String {
        format!("const uint64_t {name}")
    }
}

impl InC for Word<Launcher> {
    const WRITER: &'static str = "the launcher at any time";

    fn declaration(name: &str) -> String {
        format!("const volatile uint64_t {name}")
    }
}

impl InC for Word<Backend> {
    const WRITER: &'static str = "the backend while the guest stands still";

    fn declaration(name: &str) -> String {
        format!("const volatile uint64_t {name}")
    }
}

impl InC for Word<Shim> {
    const WRITER: &'static str = "the guest's clock";

    fn declaration(name: &str) -> String {
        format!("volatile uint64_t {name}")
    }
}

/// In a message.
impl InC for u64 {
    const WRITER: &'static str = "";

    fn declaration(name: &str) -> String {
        format!("uint64_t {name}")
    }
}

impl<const N: usize> InC for [Cost; N] {
    const WRITER: &'static str = Setting::WRITER;

    fn declaration(name: &str) -> String {
        format!("struct {} {name}[{N}]", Cost::NAME)
    }
}

impl<const N: usize> InC for [Setting; N] {
    const WRITER: &'static str = Setting::WRITER;

    fn declaration(name: &str) -> String {
        format!("const uint64_t {name}[{N}]")
    }
}

impl<const N: usize> InC for [WorkedWords; N] {
    const WRITER: &'static str = Word::<Shim>::WRITER;

    fn declaration(name: &str) -> String {
        format!("struct {} {name}[{N}]", WorkedWords::NAME)
    }
}

fn header() -> String {
    let mut text = String::from(
        "/* What the guest's clock shares with the launcher and the backend: the page, messages and constants.\n \
         *\n \
         * Made from src/shared/layout.rs; CONTRIBUTING.md says how. Don't change it by hand.\n \
         *\n \
         * Each word of the page has one writer. What the clock does not write is constant here. */\n\
         #ifndef CHRONODISK_PAGE_H\n#define CHRONODISK_PAGE_H\n\n#include <stddef.h>\n#include <stdint.h>\n",
    );
    for (names, docs) in constants() {
        text += "\n";
        text += &comment("", docs);
        for (name, value) in names {
            writeln!(text, "#define {name} {value}").unwrap();
        }
    }
    text += &enumeration::<Clock>(&[]);
    text += &enumeration::<Computing>(&[]);
    text += &enumeration::<Idling>(&[]);
    let other = format!("\tCHRONODISK_WORK_OTHER = {}, /* Any other, as after an idle time. */\n", Work::COUNT);
    text += &enumeration::<Work>(&[&other]);
    text += &enumeration::<Issuer>(&[]);
    text += &enumeration::<Ask>(&[]);
    text += &structure::<Cost>();
    text += &structure::<WorkedWords>();
    text += &structure::<Page>();
    text += &structure::<QuestionWords>();
    text += &structure::<AnswerWords>();
    text += &enumeration::<RecorderState>(&[]);
    text += &enumeration::<RecordedEvent>(&[]);
    text += &enumeration::<Listed>(&[]);
    text += &structure::<RecordingWords>();
    text + "\n#endif\n"
}

type Definitions = Vec<(&'static str, String)>;

/// Constants with a comment each, or one for several.
#[expect(clippy::too_many_lines, reason = "a table")]
fn constants() -> Vec<(Definitions, &'static str)> {
    let quoted = |text: &str| format!("\"{text}\"");
    vec![
        (vec![("PAGE_BYTES", PAGE_BYTES.to_string())], "The page's size in memory."),
        (
            vec![("PAGE_MAGIC", format!("{PAGE_MAGIC:#x}ull"))],
            "\"chrono\" and the size of struct chronodisk_page, so that two builds can't be mixed unnoticed.",
        ),
        (vec![("CHRONODISK_NEVER", format!("{NEVER:#x}ull"))], "The instant of nothing."),
        (vec![("CHRONODISK_WORKS", Work::COUNT.to_string())], "Kinds of work, without CHRONODISK_WORK_OTHER."),
        (
            vec![
                ("WORK_NANOS_MIN", format!("{WORK_NANOS_MIN}ull")),
                ("WORK_SHARE_MIN", format!("{WORK_SHARE_MIN}ull")),
            ],
            "What a piece of work counts at least, and one part in so many of its CPU time: a program that waits for \
             time to pass must see it pass, and so must a kernel that computes until its next tick.",
        ),
        (vec![("DEVICES_MAX", DEVICES_MAX.to_string())], "Devices of a guest."),
        (
            vec![
                ("EXIT_BACKEND_LOST", EXIT_BACKEND_LOST.to_string()),
                ("EXIT_PROCESS_LOST", EXIT_PROCESS_LOST.to_string()),
                ("EXIT_NEVER_IDLES", EXIT_NEVER_IDLES.to_string()),
            ],
            "The guest's kernel ends with these statuses when the backend is gone, when something outside of the \
             guest has killed one of its processes, and when it idles in a way that its clock does not know.",
        ),
        (
            vec![("PROBE_MARK", format!("{PROBE_MARK:#x}ull")), ("PROBES", PROBES.to_string())],
            "First argument of the system calls that measure what a stop takes, and how many are measured.",
        ),
        (
            vec![
                ("FEED_MARK", format!("{FEED_MARK:#x}ull")),
                ("FEED_PART", FEED_PART.to_string()),
                ("FEED_CHARGE", FEED_CHARGE.to_string()),
                ("FEED_REPORT", FEED_REPORT.to_string()),
                ("FEED_PART_BYTES", FEED_PART_BYTES.to_string()),
                ("FEED_REPORT_OFFSET", FEED_REPORT_OFFSET.to_string()),
                ("FEED_REPORT_BYTES", FEED_REPORT_BYTES.to_string()),
            ],
            "First argument of the system calls by which a replayer asks for its feed, the second, most bytes of a \
             part, and the place of the report in the feed.",
        ),
        (
            vec![
                ("CPU_ANY_OTHER", format!("{CPU_ANY_OTHER:#x}ull")),
                ("CPU_OF_KERNEL", format!("{CPU_OF_KERNEL:#x}ull")),
            ],
            "The guest's programs run on any processor of the host but their kernel's, or on their kernel's.",
        ),
        (
            vec![("SMALL_COPY_BYTES", SMALL_COPY_BYTES.to_string())],
            "The cost of a system call includes copying so much.",
        ),
        (
            vec![
                ("LEARN_MARK", format!("{LEARN_MARK:#x}ull")),
                ("LEARN_IDS", LEARN_IDS.to_string()),
                ("LEARN_TABLES", LEARN_TABLES.to_string()),
            ],
            "First argument of the system calls by which the guest's first process reveals the kernel's structures, \
             and the second.",
        ),
        (
            vec![
                ("RECORD_MARK", format!("{RECORD_MARK:#x}ull")),
                ("RECORD_BEGIN", RECORD_BEGIN.to_string()),
                ("RECORD_END", RECORD_END.to_string()),
            ],
            "First argument of the system calls that are for the recorder, and the second.",
        ),
        (
            vec![
                ("RECORD_CALLS", RECORD_CALLS.to_string()),
                ("RECORD_EVENTS_OFFSET", RECORD_EVENTS_OFFSET.to_string()),
                ("RECORD_WORDS_SHIFT", RECORD_WORDS_SHIFT.to_string()),
                ("RECORD_NO_PATH", format!("{RECORD_NO_PATH:#x}ull")),
                ("RECORD_RESTARTED", RECORD_RESTARTED.to_string()),
                ("RECORD_DROPPED", RECORD_DROPPED.to_string()),
                ("RECORD_UNREADABLE", RECORD_UNREADABLE.to_string()),
                ("RECORD_HAS_PAIR", RECORD_HAS_PAIR.to_string()),
                ("RECORD_LATE", RECORD_LATE.to_string()),
            ],
            "A recording: numbers of system calls are less than the first; its events begin at the second; the third \
             is the number of words in an event's first; the fourth the length of a path that is not there; the \
             others are flags of a return.",
        ),
        (
            vec![
                ("PAGE_VARIABLE", quoted(PAGE_VARIABLE)),
                ("EXCHANGE_VARIABLE", quoted(EXCHANGE_VARIABLE)),
                ("VHOST_VARIABLE", quoted(VHOST_VARIABLE)),
                ("SERIAL_OUT_VARIABLE", quoted(SERIAL_OUT_VARIABLE)),
                ("FEED_VARIABLE", quoted(FEED_VARIABLE)),
                ("RECORDING_VARIABLE", quoted(RECORDING_VARIABLE)),
            ],
            "Variables of the environment that name descriptors.",
        ),
        (
            vec![("DEVICE_SOCKET_PREFIX", quoted(DEVICE_SOCKET_PREFIX)), ("CALENDAR_SOCKET", quoted(CALENDAR_SOCKET))],
            "Names by which the guest's kernel connects to its devices, before the device's own, and to the calendar.",
        ),
    ]
}

fn enumeration<E: SharedEnum>(further: &[&str]) -> String {
    let mut text = format!("\n{}enum {} {{\n", comment("", &E::DOCS.concat()), E::PREFIX.to_lowercase());
    for constant in E::CONSTANTS {
        let line = format!("\t{}_{} = {},", E::PREFIX, snake(constant.name).to_uppercase(), constant.value);
        text += &with_comment(&line, &constant.docs.concat());
    }
    text + &further.concat() + "};\n"
}

fn structure<S: SharedStruct>() -> String {
    let mut text = format!("\n{}struct {} {{\n", comment("", &S::DOCS.concat()), S::NAME);
    let mut writer = "";
    for field in S::fields() {
        if field.writer != writer && S::NAME == Page::NAME {
            let blank = if writer.is_empty() { "" } else { "\n" };
            writeln!(text, "{blank}\t/* Written by {}. */", field.writer).unwrap();
            writer = field.writer;
        }
        text += &with_comment(&format!("\t{};", field.declaration), &field.docs.concat());
    }
    text += "};\n\n";
    for field in S::fields() {
        let assertion = format!("offsetof(struct {}, {}) == {}", S::NAME, field.name, field.offset_bytes);
        writeln!(text, "_Static_assert({assertion}, \"src/shared/layout.rs\");").unwrap();
    }
    writeln!(text, "_Static_assert(sizeof(struct {}) == {}, \"src/shared/layout.rs\");", S::NAME, size_of::<S>())
        .unwrap();
    text
}

/// The line with the comment at its end, or above it if both are too long for one line.
fn with_comment(line: &str, docs: &str) -> String {
    let docs = docs.trim();
    let together = format!("{line} /* {docs} */\n");
    if docs.is_empty() {
        format!("{line}\n")
    } else if together.len() + TAB - 1 <= COLUMNS_MAX {
        together
    } else {
        comment("\t", docs) + line + "\n"
    }
}

/// A comment in as many lines as it takes.
fn comment(indent: &str, docs: &str) -> String {
    let mut lines = vec![format!("{indent}/*")];
    for word in docs.split_whitespace() {
        let last = lines.last_mut().expect("there is one");
        if last.len() + indent.len() * (TAB - 1) + 1 + word.len() + " */".len() > COLUMNS_MAX {
            lines.push(format!("{indent} * {word}"));
        } else {
            write!(last, " {word}").unwrap();
        }
    }
    lines.join("\n") + " */\n"
}

/// `LookUp` is `look_up`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[test]
fn the_header_of_the_clock_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/page.h");
    if std::env::var_os(REGENERATE_VARIABLE).is_some() {
        std::fs::write(&path, header()).unwrap();
        return;
    }
    let there = std::fs::read_to_string(&path).unwrap();
    // The header asserts the offsets of the Rust side.
    let check = Command::new("cc").args(["-std=gnu11", "-fsyntax-only", "-x", "c"]).arg(&path).status().unwrap();
    assert!(check.success(), "the C compiler lays the page out in another way");
    for (made, found) in header().lines().zip(there.lines()) {
        assert_eq!(made, found, "shim/page.h is not what src/shared says; {REGENERATE_VARIABLE}=1 makes it anew");
    }
    assert_eq!(header().len(), there.len(), "{REGENERATE_VARIABLE}=1 makes shim/page.h anew");
}

#[test]
fn names_in_c_have_their_words_apart() {
    assert_eq!(["Wall", "LookUp"].map(snake), ["wall", "look_up"]);
}
