//! The profiles that come with the program, compiled in from the repository's `profiles` directory.

use std::sync::OnceLock;

use super::{Profile, Validation};
use crate::fields::{ProfileError, nearest};
use crate::load::Summary;

/// A built-in profile in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuiltinProfile {
    /// The name that finds it.
    pub name: String,
    /// The kind of its model.
    pub kind: String,
    /// Description, one sentence.
    pub description: String,
    /// Validation of the profile's timing.
    pub validation: Validation,
    /// Its measured rates; `None` until the test that measures them has written them.
    pub summary: Option<Summary>,
}

/// A file in the repository's `profiles` directory: its relative path and its text.
struct Source {
    path: &'static str,
    text: &'static str,
}

macro_rules! sources {
    ($($path:literal),* $(,)?) => {
        &[$(Source { path: $path, text: include_str!(concat!("../../../../profiles/", $path)) }),*]
    };
}

/// Built-in profiles in the order of a listing.
const SOURCES: &[Source] = sources![
    "table/null.toml",
    "table/constant-10ms.toml",
    "table/constant-1ms.toml",
    "table/constant-100us.toml",
    "table/constant-50us.toml",
    "table/wu-tsai-baseline.toml",
    "nvm/battery-backed-ram.toml",
    "nvm/intel-p4800x.toml",
    "nvm/onyx-pcm.toml",
    "nvm/everspin-nvnitro.toml",
    "disk/first-disk.toml",
    "disk/cheetah-9lp.toml",
    "disk/atlas-10k.toml",
    "disk/barracuda.toml",
    "disk/ibm-18es.toml",
    "disk/hp-c2247a.toml",
    "disk/hp-c2249a.toml",
    "disk/hp-c2490a.toml",
    "disk/dec-rz26.toml",
    "disk/cheetah-x15.toml",
    "disk/cheetah-x15-30k.toml",
    "disk/cheetah-x15-zero-latency.toml",
    "disk/cheetah-x15-30k-zero-latency.toml",
    "disk/hitachi-hds728080pla380.toml",
    "disk/hitachi-hds721010kla330.toml",
    "disk/nearline-20tb.toml",
    "disk/nearline-20tb-smr.toml",
    "disk/nearline-20tb-hm.toml",
    "disk/cheetah-x15-eager.toml",
    "ssd/wd-zn540.toml",
    "ssd/wd-zn540-zones.toml",
    "ssd/nvme-a.toml",
    "ssd/samsung-970-pro.toml",
    "ssd/samsung-pm9a3.toml",
    "ssd/intel-p3700.toml",
    "ssd/samsung-sz985.toml",
    "ssd/sd-card-a1.toml",
    "ssd/sd-card-class-10.toml",
    "ssd/pcie6.toml",
    "ssd/qlc-client.toml",
    "ssd/mqsim-default.toml",
    "ssd/mqsim-ideal-mapping.toml",
    "ssd/simplessd-sample.toml",
    "mems/mems-g1.toml",
    "mems/mems-g2.toml",
    "mems/mems-g3.toml",
    "array/raid5-eight-disks.toml",
    "array/raid10-four-sleds.toml",
    "array/queued-disk.toml",
    "cloud/aws-ebs-gp3.toml",
    "cloud/aws-ebs-gp2-100gib.toml",
    "cloud/gcp-pd-balanced-100gib.toml",
    "cloud/azure-premium-ssd-p10.toml",
];

/// All built-in profiles.
fn profiles() -> impl Iterator<Item = &'static Profile> {
    (0..SOURCES.len()).map(profile)
}

/// A built-in profile, parsed once: parsing all would take ten times as long as the rest of a run's start.
fn profile(index: usize) -> &'static Profile {
    static PROFILES: [OnceLock<Profile>; SOURCES.len()] = [const { OnceLock::new() }; SOURCES.len()];
    let source = &SOURCES[index];
    PROFILES[index].get_or_init(|| Profile::parse(source.text, &label(source)).expect("a built-in profile is valid"))
}

/// Rates of all built-in profiles: a name and a summary in each line. `tests/rates_of_profiles.rs` compares the file
/// with the models, and writes it if `CHRONODISK_REGENERATE` is set.
const RATES: &str = include_str!("../../../../profiles/rates.csv");

fn rates_of(name: &str) -> Option<Summary> {
    let line = RATES.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(','))?;
    Summary::of_csv(line)
}

/// The listing.
pub(super) fn listing() -> &'static [BuiltinProfile] {
    static LISTING: OnceLock<Vec<BuiltinProfile>> = OnceLock::new();
    LISTING.get_or_init(|| {
        let entry = |profile: &Profile| BuiltinProfile {
            name: profile.name().to_owned(),
            kind: profile.kind().to_owned(),
            description: profile.description().to_owned(),
            validation: profile.validation(),
            summary: rates_of(profile.name()),
        };
        profiles().map(entry).collect()
    })
}

/// Ending of the names that drives had in version 0.1 with the bus of the computer that traced them.
const FORMER_ENDING: &str = "-traced";

/// The present name of the built-in profile that was called `name` in version 0.1. Such names go with version 0.3.
pub(super) fn renamed(name: &str) -> Option<&'static str> {
    const FORMER: [&str; 7] = [
        "atlas-10k",
        "barracuda",
        "cheetah-9lp",
        "cheetah-x15",
        "hitachi-hds721010kla330",
        "hitachi-hds728080pla380",
        "ibm-18es",
    ];
    let present = name.strip_suffix(FORMER_ENDING)?;
    FORMER.into_iter().find(|&former| former == present)
}

/// The profile called `name`, be it a file of its own or a variant of the Wu-Tsai device.
pub(super) fn find(name: &str) -> Option<Profile> {
    let name = renamed(name).unwrap_or(name);
    let own = SOURCES.iter().position(|source| stem(source) == name).map(|index| profile(index).clone());
    own.or_else(|| wu_tsai_variant(name))
}

/// The text of a built-in profile, found without parsing the others, so that built-in profiles can name each other.
pub(super) struct NamedText {
    /// Name of the profile in errors.
    pub(super) label: String,
    pub(super) text: String,
}

/// The text of the profile called `name`.
pub(super) fn source(name: &str) -> Option<NamedText> {
    let name = renamed(name).unwrap_or(name);
    let file_name = format!("/{name}.toml");
    match SOURCES.iter().find(|source| source.path.ends_with(&file_name)) {
        Some(source) => Some(NamedText { label: label(source), text: source.text.to_owned() }),
        None => wu_tsai_text(name).map(|text| NamedText { label: name.to_owned(), text }),
    }
}

/// Error for an unknown name.
pub(super) fn no_such(name: &str) -> ProfileError {
    let shown: String = name.chars().take(64).collect();
    let near = nearest(name, names());
    let help = match near.as_slice() {
        [] => "`chronodisk devices` lists the built-in profiles; a path to a .toml file works too".to_owned(),
        near => format!("did you mean {}?", near.join(" or ")),
    };
    ProfileError::whole("", format!("there is no profile named \"{shown}\"")).with_help(help)
}

/// The name of the profile's file, which is its own.
fn stem(source: &Source) -> &'static str {
    let file = source.path.rsplit('/').next().unwrap_or(source.path);
    file.strip_suffix(".toml").unwrap_or(file)
}

fn label(source: &Source) -> String {
    format!("profiles/{}", source.path)
}

/// Every name that [`find`] knows.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    SOURCES.iter().map(stem).chain(WU_TSAI_VARIANTS)
}

/// The device `wu-tsai-chN-xS`: the baseline's file with N channels and speed-up S (Wu and Tsai, evaluation).
///
/// Its text is a complete profile, so that a run that records it can be repeated from it.
fn wu_tsai_variant(name: &str) -> Option<Profile> {
    Some(Profile::parse(&wu_tsai_text(name)?, name).expect("a variant of a valid profile is valid"))
}

fn wu_tsai_text(name: &str) -> Option<String> {
    let name = WU_TSAI_VARIANTS.into_iter().find(|&variant| variant == name)?;
    let (channels, speed_up) = name.strip_prefix("wu-tsai-ch")?.split_once("-x")?;
    let baseline = SOURCES.iter().find(|source| stem(source) == "wu-tsai-baseline")?;
    let mut text = baseline.text.to_owned();
    for (line, replacement) in [
        ("\nname = \"wu-tsai-baseline\"\n", format!("\nname = \"{name}\"\n")),
        ("\nchannels = 1\n", format!("\nchannels = {channels}\n")),
        ("\nspeed-up = 1\n", format!("\nspeed-up = {speed_up}\n")),
    ] {
        assert_eq!(text.matches(line).count(), 1, "the baseline's file has the line {line:?} once");
        text = text.replace(line, &replacement);
    }
    Some(text)
}

const WU_TSAI_VARIANTS: [&str; 16] = [
    "wu-tsai-ch1-x1",
    "wu-tsai-ch1-x2",
    "wu-tsai-ch1-x3",
    "wu-tsai-ch1-x4",
    "wu-tsai-ch2-x1",
    "wu-tsai-ch2-x2",
    "wu-tsai-ch2-x3",
    "wu-tsai-ch2-x4",
    "wu-tsai-ch3-x1",
    "wu-tsai-ch3-x2",
    "wu-tsai-ch3-x3",
    "wu-tsai-ch3-x4",
    "wu-tsai-ch4-x1",
    "wu-tsai-ch4-x2",
    "wu-tsai-ch4-x3",
    "wu-tsai-ch4-x4",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_named_as_its_profile() {
        for (source, profile) in SOURCES.iter().zip(profiles()) {
            assert_eq!(stem(source), profile.name());
        }
    }

    #[test]
    fn every_name_is_found_and_its_text_gives_it_again() {
        assert_eq!(names().count(), SOURCES.len() + 16);
        for name in names() {
            let profile = Profile::find(name).unwrap();
            assert_eq!(profile.name(), name);
            let again = Profile::parse(profile.text(), "again").unwrap();
            assert_eq!((again.name(), again.capacity_bytes()), (name, profile.capacity_bytes()));
        }
    }
}
