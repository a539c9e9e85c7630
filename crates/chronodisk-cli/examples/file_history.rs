//! A random history of files: `file_history FOLDER SEED STEPS`. Creates, appends, overwrites, truncates, renames,
//! links, unlinks, punches holes, sets attributes, makes symbolic links and directories, preallocates and
//! synchronises, four writers in turn. The same seed makes the same history.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use chronodisk_sim::RandomStream;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, seed, steps] = arguments.as_slice() else { panic!("file_history FOLDER SEED STEPS") };
    let seed = seed.parse().expect("a number");
    let mut writers: Vec<Writer> = (0..4).map(|index| Writer::new(Path::new(folder), seed, index)).collect();
    for step in 0..steps.parse().expect("a number") {
        let count = writers.len();
        match writers[step % count].step() {
            // A full file system, and files with too many attributes or links, are part of the history.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EMLINK | libc::E2BIG)) => {}
            other => other?,
        }
    }
    Ok(())
}

/// A writer that shares the file system with others, in a folder of its own.
struct Writer {
    random: RandomStream,
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
    names: u32,
}

impl Writer {
    fn new(root: &Path, seed: u64, index: usize) -> Self {
        let folder = root.join(format!("writer-{index}"));
        fs::create_dir(&folder).expect("an empty file system");
        let random = RandomStream::new(seed, "file history", &index.to_string());
        Writer { random, folders: vec![folder], files: Vec::new(), names: 0 }
    }

    fn step(&mut self) -> io::Result<()> {
        match self.random.below(32) {
            0..=7 => self.create(),
            8..=10 => self.append(),
            11..=12 => self.overwrite(),
            13 => self.truncate(),
            14 => self.rename(),
            15 => self.link(),
            16..=18 => self.unlink(),
            19..=20 => self.allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE),
            21 => self.allocate(0),
            22..=23 => self.attribute(),
            24..=25 => self.symlink(),
            26..=27 => self.make_folder(),
            28 => self.remove_folder(),
            29..=30 => self.synchronise_file(),
            _ => {
                // SAFETY: a system call without arguments.
                unsafe { libc::sync() };
                Ok(())
            }
        }
    }

    fn name(&mut self, kind: &str) -> PathBuf {
        self.names += 1;
        let folder = self.random.below(self.folders.len() as u64) as usize;
        self.folders[folder].join(format!("{kind}-{}", self.names))
    }

    fn file(&mut self) -> Option<PathBuf> {
        let count = self.files.len() as u64;
        (count > 0).then(|| self.files[self.random.below(count) as usize].clone())
    }

    /// Bytes that no metadata look like.
    fn bytes(&mut self, len_max: u64) -> Vec<u8> {
        let len = self.random.below(len_max + 1);
        (0..len.div_ceil(8)).flat_map(|_| (self.random.next_u64() | 0x8080_8080_8080_8080).to_le_bytes()).collect()
    }

    fn create(&mut self) -> io::Result<()> {
        let path = self.name("file");
        // Log-uniform from 1 B to 1 MiB.
        let len_max = 1 << self.random.below(21);
        let bytes = self.bytes(len_max);
        self.files.push(path.clone());
        fs::write(path, bytes)
    }

    fn append(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let bytes = self.bytes(100_000);
        OpenOptions::new().append(true).open(path)?.write_all(&bytes)
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let bytes = self.bytes(20_000);
        let offset = self.random.below(fs::metadata(&path)?.len() + 1);
        OpenOptions::new().write(true).open(path)?.write_all_at(&bytes, offset)
    }

    fn truncate(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        OpenOptions::new().write(true).open(path)?.set_len(self.random.below(300_000))
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some(old) = self.file() else { return Ok(()) };
        let new = self.name("renamed");
        fs::rename(&old, &new)?;
        self.files.retain(|path| *path != old);
        self.files.push(new);
        Ok(())
    }

    fn link(&mut self) -> io::Result<()> {
        let Some(old) = self.file() else { return Ok(()) };
        let new = self.name("link");
        fs::hard_link(old, &new)?;
        self.files.push(new);
        Ok(())
    }

    fn unlink(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        self.files.retain(|other| *other != path);
        fs::remove_file(path)
    }

    fn allocate(&mut self, mode: i32) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let file = OpenOptions::new().write(true).open(path)?;
        let (offset, len) = (self.random.below(50) * 4096, (1 + self.random.below(60)) * 4096);
        // SAFETY: a system call without pointers.
        match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as libc::off_t, len as libc::off_t) } {
            0 => Ok(()),
            // ext2 and ext3 do not support it.
            _ if io::Error::last_os_error().raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn attribute(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        let value = self.bytes(400);
        let name = CString::new(format!("user.attribute-{}", self.random.below(9)))?;
        let path = CString::new(path.into_os_string().into_encoded_bytes())?;
        // SAFETY: both strings end with a zero, and the value has the given length.
        let set = unsafe { libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn symlink(&mut self) -> io::Result<()> {
        let path = self.name("symlink");
        symlink("to/".repeat(1 + self.random.below(300) as usize), path)
    }

    fn make_folder(&mut self) -> io::Result<()> {
        let path = self.name("folder");
        fs::create_dir(&path)?;
        if self.random.chance(0.2) {
            // The folder is large enough to get an index.
            for index in 0..200 {
                File::create(path.join(format!("a-rather-long-name-in-a-large-folder-{index}")))?;
            }
        }
        self.folders.push(path);
        Ok(())
    }

    fn remove_folder(&mut self) -> io::Result<()> {
        if self.folders.len() < 4 {
            return Ok(());
        }
        let index = 1 + self.random.below(self.folders.len() as u64 - 1) as usize;
        let gone = self.folders[index].clone();
        self.folders.retain(|folder| !folder.starts_with(&gone));
        self.files.retain(|file| !file.starts_with(&gone));
        fs::remove_dir_all(gone)
    }

    fn synchronise_file(&mut self) -> io::Result<()> {
        let Some(path) = self.file() else { return Ok(()) };
        File::open(path)?.sync_all()
    }
}
