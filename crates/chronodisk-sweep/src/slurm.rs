//! A sweep as an array job of Slurm: each task of the array does a part of the cells.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Contents and options of an array job.
#[derive(Clone, Debug)]
pub struct ArrayJob<'a> {
    /// The command's executable, at the same path on all nodes.
    pub executable: &'a Path,
    /// Working directory of the sweep; other paths may be relative to it. The nodes share it.
    pub working_directory: &'a Path,
    /// The sweep's file.
    pub file: &'a Path,
    /// The directory of the results.
    pub directory: &'a Path,
    /// Cells of the sweep.
    pub cells: usize,
    /// Most tasks that run at the same time.
    pub jobs: Option<u16>,
    /// Whether a cell needs a node of its own, as programs in real time do.
    pub exclusive: bool,
}

/// Most tasks of an array: Slurm's own limit (`MaxArraySize`) is 1001 if the cluster has no other.
const TASKS_MAX: usize = 1000;

/// The script's file, in the directory of the results.
const SCRIPT: &str = "slurm.sh";

impl ArrayJob<'_> {
    /// Path of the script.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(SCRIPT)
    }

    /// Tasks of the array.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.cells.clamp(1, TASKS_MAX)
    }

    /// The script for `sbatch`.
    #[must_use]
    pub fn script(&self) -> String {
        let tasks = self.tasks();
        let limit = self.jobs.map_or(String::new(), |jobs| format!("%{jobs}"));
        let mut text = String::from("#!/bin/sh\n");
        let mut option = |words: &str| {
            let _ = writeln!(text, "#SBATCH {words}");
        };
        option("--job-name=chronodisk-sweep");
        option(&format!("--array=1-{tasks}{limit}"));
        option("--ntasks=1");
        option(if self.exclusive { "--exclusive" } else { "--cpus-per-task=1" });
        option(&format!("--chdir={}", quoted(self.working_directory)));
        option(&format!("--output={}", quoted(&self.directory.join("slurm-%a.log"))));
        let words = [self.executable, Path::new("sweep"), self.file, Path::new("-o"), self.directory].map(quoted);
        let _ = writeln!(text, "exec {} --jobs 1 --part \"$SLURM_ARRAY_TASK_ID/{tasks}\"", words.join(" "));
        text
    }

    /// Commands to type: the array, and the one that writes the results.
    #[must_use]
    pub fn commands(&self) -> String {
        let script = self.path();
        let [script, file, directory] = [&*script, self.file, self.directory].map(quoted);
        format!("sbatch --wait {script}\nchronodisk sweep {file} -o {directory}\n")
    }
}

/// Quotes a path for a shell, and for `sbatch`, which parses its options in the same way.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    if !text.is_empty() && text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> ArrayJob<'static> {
        ArrayJob {
            executable: Path::new("/usr/bin/chronodisk"),
            working_directory: Path::new("/home/somebody/my sweeps"),
            file: Path::new("it's.toml"),
            directory: Path::new("depths"),
            cells: 40,
            jobs: Some(8),
            exclusive: false,
        }
    }

    #[test]
    fn the_script_names_the_parts() {
        assert_eq!(
            job().script(),
            "#!/bin/sh\n#SBATCH --job-name=chronodisk-sweep\n#SBATCH --array=1-40%8\n#SBATCH --ntasks=1\n\
             #SBATCH --cpus-per-task=1\n#SBATCH --chdir='/home/somebody/my sweeps'\n\
             #SBATCH --output=depths/slurm-%a.log\n\
             exec /usr/bin/chronodisk sweep 'it'\\''s.toml' -o depths --jobs 1 --part \"$SLURM_ARRAY_TASK_ID/40\"\n"
        );
    }

    #[test]
    fn many_cells_share_the_tasks_and_real_time_has_nodes_of_its_own() {
        let job = ArrayJob { cells: 12_345, jobs: None, exclusive: true, ..job() };
        assert_eq!(job.tasks(), 1000);
        let script = job.script();
        assert!(script.contains("--array=1-1000\n") && script.contains("#SBATCH --exclusive\n"), "{script}");
        assert!(!script.contains("--cpus-per-task"), "{script}");
    }
}
