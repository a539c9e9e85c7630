//! A headless browser, for the tests of this package and of the command.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];

/// A browser with a temporary profile.
pub struct Browser {
    name: &'static str,
    folder: TempDir,
}

/// A page as rendered by a browser, with its console messages.
pub struct Shown {
    pub page: String,
    pub console: Vec<String>,
}

impl Browser {
    /// The first installed browser; `None`, with a printed note, if none is installed.
    pub fn find() -> Option<Self> {
        let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
        if found.is_none() {
            println!("SKIPPED: no browser here; apt-get install chromium");
        }
        found.map(|name| Browser { name, folder: tempfile::tempdir().unwrap() })
    }

    /// Folder for files that the browser is to show.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a page with these options.
    pub fn browse(&self, page: &Path, fragment: &str, options: &[&str]) -> Output {
        let output = Command::new("timeout")
            .args(["120", self.name, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
            .args(["--virtual-time-budget=5000", "--enable-logging=stderr", "--v=0"])
            .arg(format!("--user-data-dir={}", self.folder().join("profile").display()))
            .args(options)
            .arg(format!("file://{}#{fragment}", page.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    pub fn show(&self, page: &Path, fragment: &str) -> Shown {
        let output = self.browse(page, fragment, &["--dump-dom"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let console = said.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
        Shown { page: String::from_utf8(output.stdout).unwrap(), console }
    }
}
