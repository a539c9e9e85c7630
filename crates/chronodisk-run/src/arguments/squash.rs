//! The flags that make a device's store a squashing one.

use std::path::Path;
use std::str::FromStr;

use chronodisk_guest::{DeviceOptions, StoreChoice};
use chronodisk_squash::{ContentKind, Glob, GlobError, ImageInfo, NameRule, SquashMode, SquashOptions, Treatment};
use chronodisk_store::Durability;
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::quantity;

/// Flags of every command that stores a device's bytes.
#[derive(Debug, Args)]
pub struct SquashArguments {
    /// Stores file system metadata (ext2, ext3, ext4, XFS, btrfs) and generates file contents, so that the device can
    /// exceed this host's storage. With =exact, stores everything, compressed
    #[arg(
        long,
        value_name = "classified|exact",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "classified"
    )]
    squash: Option<Mode>,

    /// Selects the generated contents: zeros (default), random or text. With GLOB=, applies to files with matching
    /// names and also allows pdf and gzip; may be repeated
    #[arg(long, value_name = "[GLOB=]KIND", requires = "squash")]
    content: Vec<Content>,

    /// Stores the contents of files whose names match, once that name is committed. A GLOB with a slash is compared
    /// with the path in the file system; may be repeated
    #[arg(long, value_name = "GLOB", requires = "squash")]
    keep: Vec<Glob>,

    /// Honours marker pages, with which a guest program flags blocks to keep or discard
    #[arg(long, requires = "squash")]
    notices: bool,

    /// Limits the memory for blocks that are not classified yet; further blocks are stored
    #[arg(long, value_name = "SIZE", default_value = "240MiB", value_parser = quantity::bytes, requires = "squash")]
    unclassified_budget: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    Classified,
    Exact,
}

/// Value of `--content`.
#[derive(Clone, Debug)]
enum Content {
    OfAll(ContentKind),
    OfNamed(NameRule),
}

impl FromStr for Content {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains('=') {
            let kind = ContentKind::ALL.into_iter().find(|kind| kind.name() == text);
            return kind.map(Content::OfAll).ok_or_else(|| {
                let names = ContentKind::ALL.map(ContentKind::name).join(", ");
                format!("expected {names}, or GLOB=KIND for files with matching names")
            });
        }
        let rule: NameRule = text.parse().map_err(|error: GlobError| error.to_string())?;
        match rule.treatment {
            Treatment::MakeUp(_) => Ok(Content::OfNamed(rule)),
            _ => Err(format!("{:?} is not a kind of content; --keep stores files", rule.treatment.name())),
        }
    }
}

impl SquashArguments {
    /// Whether there is a squashing store.
    pub fn is_given(&self) -> bool {
        self.squash.is_some()
    }

    /// Options of the squashing store; `None` without one.
    pub fn options(&self, seed: u64, durability: Durability) -> Option<SquashOptions> {
        let mode = match self.squash? {
            Mode::Classified => SquashMode::Classified,
            Mode::Exact => SquashMode::Exact,
        };
        let of_all = self.content.iter().rev().find_map(|content| match content {
            Content::OfAll(kind) => Some(*kind),
            Content::OfNamed(_) => None,
        });
        let keep = self.keep.iter().map(|names| NameRule { names: names.clone(), treatment: Treatment::Keep });
        Some(SquashOptions {
            mode,
            content: of_all.unwrap_or_default(),
            seed,
            unclassified_bytes: self.unclassified_budget,
            durability,
            notices: self.notices,
            names: keep.chain(self.made_up().cloned()).collect(),
            ..SquashOptions::default()
        })
    }

    /// Refuses flags that contradict an existing image; `seed` is present if the user gave one.
    pub fn refuse_contradiction(&self, path: &Path, seed: Option<u64>) -> Result<(), Failure> {
        // A later open of an unreadable image reports the reason.
        let Ok(images) = ImageInfo::read(path) else { return Ok(()) };
        match images.iter().find_map(|image| self.contradicts(image, seed)) {
            None => Ok(()),
            Some((what, instead)) => Err(Failure::usage(format!("the image {} {what}", path.display()))
                .help(format!("type {instead}, or name another image with --store"))),
        }
    }

    /// Like [`refuse_contradiction`](Self::refuse_contradiction), for the images of all devices.
    pub fn refuse_contradictions(&self, devices: &[DeviceOptions], seed: Option<u64>) -> Result<(), Failure> {
        for device in devices {
            let StoreChoice::Squashed { image: Some(path), .. } = &device.store else { continue };
            self.refuse_contradiction(path, seed)?;
        }
        Ok(())
    }

    /// A contradiction between an image and these flags, with advice.
    fn contradicts(&self, image: &ImageInfo, seed: Option<u64>) -> Option<(String, String)> {
        let options = self.options(0, Durability::default())?;
        let (made, kind) = (image.mode.name(), image.content.name());
        let typed_content = self.content.iter().any(|content| matches!(content, Content::OfAll(_)));
        if options.mode != image.mode {
            let what = format!("was made with --squash={made}, not --squash={}", options.mode.name());
            return Some((what, format!("--squash={made}")));
        }
        if typed_content && options.content != image.content {
            let what = format!("was made with --content {kind}, not --content {}", options.content.name());
            return Some((what, format!("--content {kind}")));
        }
        let seed = seed.filter(|seed| image.mode == SquashMode::Classified && *seed != image.seed)?;
        Some((format!("was made with --seed {}, not --seed {seed}", image.seed), format!("--seed {}", image.seed)))
    }

    /// Rules by name for generated contents.
    fn made_up(&self) -> impl Iterator<Item = &NameRule> {
        self.content.iter().filter_map(|content| match content {
            Content::OfNamed(rule) => Some(rule),
            Content::OfAll(_) => None,
        })
    }

    /// Whether a file may read differently from its written contents.
    pub fn makes_up_contents(&self) -> bool {
        matches!(self.squash, Some(Mode::Classified))
    }
}
