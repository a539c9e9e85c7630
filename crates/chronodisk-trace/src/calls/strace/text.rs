//! The text of one call as strace prints it.

use chronodisk_sim::Nanos;

use crate::calls::words::request;

use super::constants;
use crate::calls::record::Call;

/// Offset of an error in a text, and the reason.
#[derive(Debug)]
pub(super) struct LineError {
    pub column: usize,
    pub message: String,
}

impl LineError {
    pub fn new(column: usize, message: impl Into<String>) -> Self {
        LineError { column, message: message.into() }
    }
}

/// A call with its arguments and result.
#[derive(Debug)]
pub(super) struct Parsed<'a> {
    pub call: Call,
    pub arguments: Arguments<'a>,
    /// `None` for the result `?`.
    pub result: Option<i64>,
    /// The result if it is a descriptor with a path.
    pub made: Option<i32>,
    /// Whether the kernel restarts the call after a signal.
    pub restarts: bool,
    pub duration: Option<Nanos>,
}

/// Task id at the beginning of a line, and its length with the spaces after it.
pub(super) fn task_id(line: &[u8]) -> Result<(u32, usize), LineError> {
    let (prefix, suffix): (&[u8], &[u8]) = if line.starts_with(b"[pid") { (b"[pid", b"]") } else { (b"", b"") };
    let missing = || LineError::new(0, "no task id; expected output of strace with -f and -o FILE");
    let mut at = prefix.len();
    at += spaces(&line[at..]);
    let digits = line[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let id = number(&line[at..at + digits]).and_then(|id| u32::try_from(id).ok()).ok_or_else(missing)?;
    at += digits;
    let rest = line[at..].strip_prefix(suffix).ok_or_else(missing)?;
    at += suffix.len();
    match spaces(rest) {
        0 => Err(missing()),
        spaces => Ok((id, at + spaces)),
    }
}

/// Nanoseconds of a time in seconds, and the length of the text with the spaces after it.
pub(super) fn instant(text: &[u8]) -> Option<(u64, usize)> {
    let end = text.iter().position(|&byte| byte == b' ')?;
    Some((seconds(&text[..end])?, end + spaces(&text[end..])))
}

/// Length of `(+     0.000123) `, which strace adds to the time with -r, including the spaces after it; 0 without it.
pub(super) fn since_before(text: &[u8]) -> usize {
    let end = text.starts_with(b"(+").then(|| text.iter().position(|&byte| byte == b')')).flatten();
    end.map_or(0, |end| end + 1 + spaces(&text[end + 1..]))
}

fn spaces(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| byte == b' ').count()
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Decimal seconds with one to nine digits after the point.
fn seconds(text: &[u8]) -> Option<u64> {
    let point = text.iter().position(|&byte| byte == b'.')?;
    let (whole, fraction) = (&text[..point], &text[point + 1..]);
    if !(1..=9).contains(&fraction.len()) || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let unit = 10u64.pow(9 - fraction.len() as u32);
    number(whole)?.checked_mul(1_000_000_000)?.checked_add(number(fraction)? * unit)
}

/// Parses a complete call; `None` for a call without a name in strace.
pub(super) fn parse_call(text: &[u8]) -> Result<Option<Parsed<'_>>, LineError> {
    let Some(open) = text.iter().position(|&byte| byte == b'(') else {
        return Err(LineError::new(0, "no '(' after the name of a call"));
    };
    if &text[..open] == b"???" {
        return Ok(None);
    }
    let name = String::from_utf8_lossy(&text[..open]);
    let call = name.parse().map_err(|message| LineError::new(0, message))?;
    let (arguments, close) =
        split(text, open + 1).ok_or_else(|| LineError::new(open, format!("the arguments of {name} have no end")))?;
    let mut at = close + 1;
    at += spaces(&text[at..]);
    let wrong = |column| LineError::new(column, format!("no result of {name}; expected '= RESULT <SECONDS>'"));
    if text.get(at) != Some(&b'=') {
        return Err(wrong(at));
    }
    at += 1;
    at += spaces(&text[at..]);
    let rest = &text[at..];
    let duration = rest.strip_suffix(b">").and_then(|inside| {
        let begin = inside.iter().rposition(|&byte| byte == b'<')?;
        seconds(&inside[begin + 1..]).map(Nanos::from_nanos)
    });
    let end = rest.iter().position(|byte| b" <".contains(byte)).unwrap_or(rest.len());
    let (word, more) = rest.split_at(end);
    let error = more.strip_prefix(b" ").unwrap_or(more).split(|&byte| byte == b' ').next().unwrap_or_default();
    let error = String::from_utf8_lossy(error);
    let mut parsed =
        Parsed { call, arguments: Arguments(arguments), result: None, made: None, restarts: false, duration };
    if word == b"?" {
        parsed.restarts = error.starts_with("ERESTART");
        return Ok(Some(parsed));
    }
    let result = match word {
        b"-1" if error.starts_with('E') => {
            let number = constants::error_number(&error);
            -number.ok_or_else(|| LineError::new(at + end + 1, format!("unknown error '{error}'")))?
        }
        _ => integer(word).ok_or_else(|| wrong(at))? as i64,
    };
    parsed.result = Some(result);
    let descriptor = more.starts_with(b"<") && !more.starts_with(b"<0.");
    parsed.made = i32::try_from(result).ok().filter(|_| descriptor);
    Ok(Some(parsed))
}

/// The arguments from `begin` on, and the offset of the closing parenthesis.
fn split(text: &[u8], begin: usize) -> Option<(Vec<&[u8]>, usize)> {
    let mut arguments = Vec::new();
    let (mut depth, mut from, mut at) = (0usize, begin, begin);
    while at < text.len() {
        match text[at] {
            b'"' => at = string_end(text, at)?,
            b'/' if text[at..].starts_with(b"/*") => {
                at += 2 + text[at + 2..].windows(2).position(|window| window == b"*/")? + 1;
            }
            b'<' if is_annotation(text, at) => at = annotation_end(text, at)?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                if at > begin {
                    arguments.push(text[from..at].trim_ascii());
                }
                return Some((arguments, at));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                arguments.push(text[from..at].trim_ascii());
                from = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The place of the quote that ends a string.
fn string_end(text: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Whether a '<' begins the annotation of a descriptor: it follows a digit or `AT_FDCWD`, and is no shift.
fn is_annotation(text: &[u8], at: usize) -> bool {
    text.get(at + 1) != Some(&b'<')
        && at.checked_sub(1).is_some_and(|before| text[before].is_ascii_digit() || text[before] == b'D')
}

/// Offset of the '>' that ends an annotation. strace escapes '<' and '>' in paths; annotations of devices are nested,
/// and those of sockets have arrows.
fn annotation_end(text: &[u8], begin: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (at, &byte) in text.iter().enumerate().skip(begin) {
        match byte {
            b'<' => depth += 1,
            b'>' if text[at - 1] != b'-' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The arguments as strace prints them.
#[derive(Debug)]
pub(super) struct Arguments<'a>(Vec<&'a [u8]>);

impl Arguments<'_> {
    /// A number, or flags.
    pub fn number(&self, place: usize) -> Option<u64> {
        integer(self.0.get(place)?)
    }

    /// A string without its escapes, and whether strace cut it.
    pub fn string(&self, place: usize) -> Option<(Vec<u8>, bool)> {
        let text = self.0.get(place)?;
        let inside = text.strip_prefix(b"\"")?;
        let end = string_end(text, 0)?;
        Some((unescape(&inside[..end - 1]), &text[end + 1..] == b"..."))
    }

    /// The path in the address of a Unix socket, as [`Arguments::string`]. A name without a file begins with `@`.
    pub fn socket_path(&self, place: usize) -> Option<(Vec<u8>, bool)> {
        let text = self.0.get(place)?.strip_prefix(b"{sa_family=AF_UNIX, sun_path=")?;
        let inside = text.strip_prefix(b"\"")?;
        let end = string_end(text, 0)?;
        Some((unescape(&inside[..end - 1]), text[end + 1..].starts_with(b"...")))
    }

    /// Two descriptors in brackets.
    pub fn pair(&self, place: usize) -> Option<[i32; 2]> {
        let inside = self.0.get(place)?.strip_prefix(b"[")?.strip_suffix(b"]")?;
        // An annotation of a socket may contain a comma.
        let comma = inside.windows(2).position(|window| window == b", ")?;
        let descriptor = |text: &[u8]| integer(text).and_then(|value| i32::try_from(value as i64).ok());
        Some([descriptor(&inside[..comma])?, descriptor(&inside[comma + 2..])?])
    }

    /// The number in brackets that an argument points to, before the call changed it.
    pub fn pointed(&self, place: usize) -> Option<u64> {
        let inside = self.0.get(place)?.strip_prefix(b"[")?.strip_suffix(b"]")?;
        integer(inside.split(|&byte| byte == b' ').next()?)
    }

    /// A known request of `ioctl`. strace prints its own name for a request, whose number is in the table.
    pub fn request(&self, place: usize) -> Option<u64> {
        let names = self.0.get(place)?.split(|&byte| byte == b' ');
        names.into_iter().find_map(|name| match name {
            b"FICLONE" => Some(request::FICLONE),
            b"FICLONERANGE" => Some(request::FICLONERANGE),
            _ => None,
        })
    }

    /// A field of the arguments or of a structure among them.
    pub fn field(&self, name: &str) -> Option<u64> {
        let key = format!("{name}=");
        self.0.iter().find_map(|argument| {
            let fields = argument.strip_prefix(b"{").unwrap_or(argument);
            let mut fields = fields.split(|byte| b",}".contains(byte)).map(<[u8]>::trim_ascii);
            fields.find_map(|field| integer(field.strip_prefix(key.as_bytes())?))
        })
    }

    /// Descriptors with the paths that strace found for them. Paths that are no text are left out.
    pub fn descriptors(&self) -> impl Iterator<Item = (i32, String)> + '_ {
        self.0.iter().filter_map(|argument| {
            let open = argument.iter().position(|&byte| byte == b'<')?;
            let inside = argument[open + 1..].strip_suffix(b">")?;
            if !is_annotation(argument, open) {
                return None;
            }
            let end = inside.iter().position(|&byte| byte == b'<').unwrap_or(inside.len());
            let path = inside[..end].strip_suffix(b" (deleted)").unwrap_or(&inside[..end]);
            let descriptor = i32::try_from(integer(&argument[..open])? as i64).ok()?;
            Some((descriptor, String::from_utf8(unescape(path)).ok().filter(|path| !path.contains('\0'))?))
        })
    }
}

/// A number, a name, or several with '|' between them, optionally with an annotation.
fn integer(text: &[u8]) -> Option<u64> {
    let end = (0..text.len()).find(|&at| text[at] == b'<' && is_annotation(text, at)).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).ok()?;
    // A flag that is not known has no influence on anything that is read.
    let part = |word: &str| {
        let word = word.trim();
        if let Some(digits) = word.strip_prefix("0x") {
            return u64::from_str_radix(digits, 16).ok();
        }
        if let Some(digits) = word.strip_prefix('-') {
            return digits.parse::<u64>().ok().map(u64::wrapping_neg);
        }
        match word.as_bytes().first()? {
            b'0' if word.len() > 1 => u64::from_str_radix(&word[1..], 8).ok(),
            b'0'..=b'9' => word.parse().ok(),
            b'A'..=b'Z' => Some(constants::value(word).unwrap_or(0)),
            _ => None,
        }
    };
    text.split('|').try_fold(0, |sum, word| Some(sum | part(word)?))
}

/// Replaces the escapes of C.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if byte != b'\\' || at == text.len() {
            bytes.push(byte);
            continue;
        }
        let escape = text[at];
        at += 1;
        let radix = match escape {
            b'n' => 10,
            b't' => 9,
            b'r' => 13,
            b'v' => 11,
            b'f' => 12,
            b'x' => {
                let digits = text[at..].iter().take(2).take_while(|byte| byte.is_ascii_hexdigit()).count();
                let value = std::str::from_utf8(&text[at..at + digits]).ok();
                at += digits;
                value.and_then(|value| u8::from_str_radix(value, 16).ok()).unwrap_or(b'x')
            }
            b'0'..=b'7' => {
                let more = text[at..].iter().take(2).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
                let digits = &text[at - 1..at + more];
                at += more;
                digits.iter().fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0'))
            }
            other => other,
        };
        bytes.push(radix);
    }
    bytes
}
