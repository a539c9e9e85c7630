//! The version since which each command exists, for its manual page.

/// Commands by the first version that has them, with the names of their manual pages.
const COMMANDS: [(&str, &[&str]); 1] = [(
    "0.2.0",
    &[
        "chronodisk",
        "chronodisk-age",
        "chronodisk-calibrate",
        "chronodisk-compare",
        "chronodisk-completions",
        "chronodisk-crash",
        "chronodisk-devices",
        "chronodisk-devices-check",
        "chronodisk-devices-import",
        "chronodisk-devices-new",
        "chronodisk-devices-show",
        "chronodisk-doctor",
        "chronodisk-emulator-server",
        "chronodisk-fit",
        "chronodisk-help",
        "chronodisk-image",
        "chronodisk-image-check",
        "chronodisk-image-info",
        "chronodisk-image-repair",
        "chronodisk-image-upgrade",
        "chronodisk-kernel",
        "chronodisk-kernel-build",
        "chronodisk-kernel-install",
        "chronodisk-kernel-package",
        "chronodisk-kernel-path",
        "chronodisk-man",
        "chronodisk-mount",
        "chronodisk-report",
        "chronodisk-rm",
        "chronodisk-run",
        "chronodisk-runs",
        "chronodisk-serve",
        "chronodisk-show",
        "chronodisk-simulate",
        "chronodisk-sweep",
        "chronodisk-trace",
        "chronodisk-trace-bootstrap",
        "chronodisk-trace-compare",
        "chronodisk-trace-convert",
        "chronodisk-trace-cut",
        "chronodisk-trace-groups",
        "chronodisk-trace-import",
        "chronodisk-trace-merge",
        "chronodisk-trace-record",
        "chronodisk-trace-replay",
        "chronodisk-trace-scale",
        "chronodisk-trace-snapshot",
        "chronodisk-trace-stats",
        "chronodisk-validate",
        "chronodisk-verify",
        "chronodisk-whatif",
        "chronodisk-whatif-calibrate",
    ],
)];

/// The first version with the command of this manual page.
pub fn since(page: &str) -> Option<&'static str> {
    COMMANDS.iter().find(|(_, pages)| pages.contains(&page)).map(|(version, _)| *version)
}

/// All entries of the table: version and manual page.
#[cfg(test)]
pub fn entries() -> impl Iterator<Item = (&'static str, &'static str)> {
    COMMANDS.iter().flat_map(|(version, pages)| pages.iter().map(|page| (*version, *page)))
}
