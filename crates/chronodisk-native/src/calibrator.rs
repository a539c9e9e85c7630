//! Measures the times of a file's or device's requests as a program sees them.
//!
//! A process of its own does that: the server of a device must never wait for it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use chronodisk_sim::{Nanos, RandomStream};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Doing, NativeError};

/// Argument with which this executable becomes the calibrator.
const WORD: &str = "native-calibrator";
/// Addresses and lengths of direct I/O are multiples of this.
const ALIGNMENT: usize = 4096;

/// Requests of one kind, one after the other, past the page cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requests {
    /// A file or a block device.
    pub path: PathBuf,
    /// Size of the part that is used, from the beginning.
    pub size_bytes: u64,
    /// Size of each request; a multiple of 4096.
    pub request_bytes: u64,
    /// Whether they write, which destroys the contents.
    pub writes: bool,
    /// Whether addresses are random instead of sequential.
    pub random: bool,
    /// Number of requests.
    pub count: u32,
    /// Seed of random choices.
    pub seed: u64,
}

impl Requests {
    /// Issues the requests from a process of `executable`, which calls
    /// [`native_calibrator`](crate::native_calibrator), and returns their times.
    ///
    /// # Errors
    /// The host's error.
    pub fn measure(&self, executable: &Path) -> Result<Vec<Nanos>, NativeError> {
        let doing = format!("measuring {}", self.path.display());
        let spec = serde_json::to_string(self).map_err(io::Error::from).doing(doing.clone())?;
        let output = Command::new(executable)
            .args([WORD, &spec])
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .doing(doing.clone())?;
        let said = String::from_utf8_lossy(&output.stderr);
        if let Some(signal) = output.status.signal() {
            let what = "the process that measures requests (native-calibrator) died";
            return Err(io::Error::other(format!("{what} (killed by signal {signal})"))).doing(doing);
        }
        if !output.status.success() {
            return Err(io::Error::other(said.trim().to_owned())).doing(doing);
        }
        serde_json::from_slice::<Vec<u64>>(&output.stdout)
            .map(|times| times.into_iter().map(Nanos::from_nanos).collect())
            .map_err(io::Error::from)
            .doing(doing)
    }

    fn times(&self) -> io::Result<Vec<u64>> {
        let flags = if self.writes { OFlags::RDWR } else { OFlags::RDONLY };
        let file = rustix::fs::open(Path::new(&self.path), flags | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())?;
        let length = usize::try_from(self.request_bytes).unwrap_or(0);
        let places = self.size_bytes.checked_div(self.request_bytes).unwrap_or(0);
        if places == 0 || !length.is_multiple_of(ALIGNMENT) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut bytes = vec![0_u8; length + ALIGNMENT];
        let skip = bytes.as_ptr().align_offset(ALIGNMENT);
        let buffer = &mut bytes[skip..skip + length];
        let mut stream = RandomStream::new(self.seed, "calibrator", "place");
        // Compressible data and zeros could be written in no time.
        buffer.fill_with(|| stream.below(256) as u8);
        let mut times = Vec::with_capacity(self.count as usize);
        for number in 0..u64::from(self.count) {
            let place = if self.random { stream.below(places) } else { number % places };
            let offset = place * self.request_bytes;
            let began = clock_gettime(ClockId::Monotonic);
            let done = match self.writes {
                true => rustix::io::pwrite(&file, buffer, offset)?,
                false => rustix::io::pread(&file, &mut *buffer, offset)?,
            };
            let ended = clock_gettime(ClockId::Monotonic);
            if done != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            times.push(((ended.tv_sec - began.tv_sec) * 1_000_000_000 + ended.tv_nsec - began.tv_nsec) as u64);
        }
        Ok(times)
    }
}

/// Entry point of this executable as the calibrator.
#[must_use]
pub fn native_calibrator() -> ExitCode {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let Some(Ok(spec)) = std::env::args().nth(2).map(|text| serde_json::from_str::<Requests>(&text)) else {
        return ExitCode::FAILURE;
    };
    match spec.times().and_then(|times| Ok(serde_json::to_writer(io::stdout().lock(), &times)?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
