//! Places of a job file's files on the device.

use super::{Amount, FioJob, shown};

/// A file's bytes on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// First byte.
    pub begin_bytes: u64,
    /// Length.
    pub len_bytes: u64,
}

/// No device holds a longer file.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// Files begin at multiples of this.
const FILE_ALIGN_BYTES: u64 = 1 << 20;

/// The files of all threads, by job and thread, on a device of this size. If all jobs use one file, or name the device,
/// that is the whole device. Otherwise the files lie side by side, in the order in which jobs name them first.
///
/// # Errors
/// The job, and a sentence about the part that does not fit.
pub fn lay_out(jobs: &[FioJob], device_bytes: u64) -> Result<Vec<Vec<FilePlace>>, (usize, String)> {
    let names: Vec<Vec<String>> =
        jobs.iter().map(|job| (0..job.threads).map(|thread| file_name(job, thread)).collect()).collect();
    let whole = FilePlace { begin_bytes: 0, len_bytes: device_bytes };
    let first = &names[0][0];
    if names.iter().flatten().all(|name| name == first) {
        return Ok(names.iter().map(|of_job| vec![whole; of_job.len()]).collect());
    }
    let mut files: Vec<(&str, FilePlace)> = Vec::new();
    let mut by_name = std::collections::HashMap::new();
    for (index, (job, of_job)) in jobs.iter().zip(&names).enumerate() {
        for (thread, name) in of_job.iter().enumerate() {
            if name.starts_with("/dev/") {
                let other = names.iter().flatten().find(|other| *other != name).unwrap_or(first);
                let message = format!("{} and {} are different; expected one device", shown(name), shown(other));
                return Err((index, message));
            }
            let len_bytes = needed_bytes(job, thread as u64).map_err(|message| (index, message))?;
            match by_name.get(name.as_str()) {
                None => {
                    by_name.insert(name.as_str(), files.len());
                    files.push((name, FilePlace { begin_bytes: 0, len_bytes }));
                }
                Some(known) => {
                    let file: &mut (&str, FilePlace) = &mut files[*known];
                    file.1.len_bytes = file.1.len_bytes.max(len_bytes);
                }
            }
        }
    }
    let mut end_bytes: u64 = 0;
    for (_, place) in &mut files {
        place.begin_bytes = end_bytes;
        end_bytes = end_bytes.saturating_add(place.len_bytes.next_multiple_of(FILE_ALIGN_BYTES));
    }
    if files.last().is_some_and(|(_, last)| last.begin_bytes.saturating_add(last.len_bytes) > device_bytes) {
        let count = files.len();
        let message = format!("{count} files of {end_bytes} bytes in all; the device has {device_bytes} bytes");
        return Err((jobs.len() - 1, message));
    }
    Ok(names.iter().map(|of_job| of_job.iter().map(|name| files[by_name[name.as_str()]].1).collect()).collect())
}

/// A thread's file.
fn file_name(job: &FioJob, thread: u32) -> String {
    if let Some(name) = &job.file {
        return format!("{}{name}", job.directory);
    }
    let format = job.file_format.as_deref().unwrap_or("$jobname.$jobnum.$filenum");
    let name = format.replace("$jobname", &job.name).replace("$jobnum", &thread.to_string()).replace("$filenum", "0");
    format!("{}{name}", job.directory)
}

/// Length that the file of a thread needs.
fn needed_bytes(job: &FioJob, thread: u64) -> Result<u64, String> {
    let of = |amount: Amount| match amount {
        Amount::Bytes(bytes) => Some(bytes),
        Amount::Percent(_) => None,
    };
    if let Some(bytes) = job.file_size {
        return Ok(bytes.min(FILE_BYTES_MAX));
    }
    let bytes = job.size.and_then(of).zip(of(job.offset)).zip(of(job.offset_increment));
    let bytes = bytes.map(|((size, offset), increment)| {
        size.saturating_add(offset).saturating_add(increment.saturating_mul(thread))
    });
    bytes.map(|bytes| bytes.min(FILE_BYTES_MAX)).ok_or_else(|| {
        format!(
            "[{}]: size is missing or a share; expected the size of its file in bytes, since the jobs use several \
             files, which lie side by side on the device, or one filename for all jobs",
            job.name
        )
    })
}
