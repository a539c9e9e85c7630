//! The flags that make a device's store a squashing one.

use std::collections::BTreeMap;

use chronodisk_store::squash::{ContentKind, Glob, NameRule, SquashMode, SquashOptions, Treatment};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use crate::quantity;

/// Flags of every command that gives a device bytes.
#[derive(Debug, Args)]
pub struct SquashArguments {
    /// Keeps the metadata of file systems (ext2, ext3, ext4) and makes up the contents of files, so
    /// that the device may be far larger than this host; --store then is ram or an image. With
    /// =exact everything is kept, compressed
    #[arg(
        long,
        value_name = "classified|exact",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "classified"
    )]
    squash: Option<Mode>,

    /// What contents that were not kept read as
    #[arg(long, value_name = "KIND", default_value = "zeros", requires = "squash")]
    content: Kind,

    /// Keeps files whose names match exactly, from the first commit under that name on; with a slash in GLOB their
    /// paths in the file system count (ext2, ext3, ext4; may be given again)
    #[arg(long, value_name = "GLOB", requires = "squash")]
    keep: Vec<Glob>,

    /// Memory for blocks that can't be told apart yet; what exceeds it is kept
    #[arg(long, value_name = "SIZE", default_value = "240MiB", value_parser = quantity::bytes, requires = "squash")]
    unclassified_budget: u64,

    /// Diagnostic: keeps the journals of ext3 and ext4, but does not read them, so that blocks are told apart later
    #[arg(long, requires = "squash", hide_short_help = true)]
    ignore_journal: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Classified,
    Exact,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Zeros
    Zeros,
    /// Random bytes; the same address reads the same
    Random,
    /// Lines of words; the same address reads the same
    Text,
}

impl SquashArguments {
    /// How the store squashes, if it does.
    pub fn options(&self, seed: u64, durable: bool) -> Option<SquashOptions> {
        let mode = match self.squash? {
            Mode::Classified => SquashMode::Classified,
            Mode::Exact => SquashMode::Exact,
        };
        let content = match self.content {
            Kind::Zeros => ContentKind::Zeros,
            Kind::Random => ContentKind::Random,
            Kind::Text => ContentKind::Text,
        };
        let keep = self.keep.iter().cloned();
        Some(SquashOptions {
            mode,
            content,
            seed,
            unclassified_bytes: self.unclassified_budget,
            durable,
            ignore_journal: self.ignore_journal,
            names: keep.map(|names| NameRule { names, treatment: Treatment::Keep }).collect(),
        })
    }

    /// The flags as they took effect, for a result.
    pub fn all_options(&self, options: &mut BTreeMap<String, Value>) {
        let squashed = self.options(0, false);
        options.insert("squash".to_owned(), json!(squashed.as_ref().map(|options| options.mode.name())));
        options.insert("content".to_owned(), json!(squashed.as_ref().map(|options| options.content.name())));
        let budget = squashed.as_ref().map(|options| options.unclassified_bytes);
        options.insert("unclassified-budget".to_owned(), json!(budget));
        options.insert("ignore-journal".to_owned(), json!(squashed.as_ref().map(|options| options.ignore_journal)));
        let keep: Vec<String> = self.keep.iter().map(Glob::to_string).collect();
        options.insert("keep".to_owned(), json!(squashed.map(|_| keep)));
    }
}
