//! `--debug KEY=VALUE`: settings that test the emulator itself. A guest's results must be the same with each of them.
//!
//! A command has one field of [`DebugSetting`]s, whose parser allows the keys that the command can follow.

use std::ops::RangeInclusive;

use chronodisk_sim::Nanos;

use crate::quantity;

/// One value of `--debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugSetting {
    /// Host time by which each call of the model is delayed: random in this range.
    ModelDelay(RangeInclusive<Nanos>),
    /// Device bytes per second of host time that are transferred at most.
    StoreRate(u64),
    /// Longest random host time by which one in eight of the guest clock's entries is delayed.
    ClockDisturbance(Nanos),
    /// An emulator server does not let a fork of the model run ahead.
    SpeculationOff,
    /// A squashing store does not read the journals of ext3 and ext4, so that blocks are classified later.
    JournalIgnored,
}

/// All settings of a command. Of settings with the same key, the last one counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugSettings {
    /// See [`DebugSetting::ModelDelay`].
    pub model_delay: Option<RangeInclusive<Nanos>>,
    /// See [`DebugSetting::StoreRate`].
    pub store_rate: Option<u64>,
    /// See [`DebugSetting::ClockDisturbance`].
    pub clock_disturbance: Nanos,
    /// See [`DebugSetting::SpeculationOff`].
    pub speculation_off: bool,
    /// See [`DebugSetting::JournalIgnored`].
    pub journal_ignored: bool,
}

const MODEL_DELAY: &str = "model-delay";
const STORE_RATE: &str = "store-rate";
const CLOCK_DISTURBANCE: &str = "clock-disturbance";
const SPECULATION: &str = "speculation";
const JOURNAL: &str = "journal";

impl DebugSetting {
    /// A setting of a command that runs a guest.
    pub fn of_guest(text: &str) -> Result<Self, String> {
        DebugSetting::parse(text, &[MODEL_DELAY, STORE_RATE, CLOCK_DISTURBANCE, SPECULATION, JOURNAL])
    }

    /// A setting of a simulation without a guest.
    pub fn of_simulation(text: &str) -> Result<Self, String> {
        DebugSetting::parse(text, &[SPECULATION])
    }

    fn parse(text: &str, keys: &[&str]) -> Result<Self, String> {
        let of_key = |(key, value)| keys.iter().find(|known| **known == key).map(|key| (*key, value));
        let Some((key, value)) = text.split_once('=').and_then(of_key) else {
            return Err(format!("expected KEY=VALUE with a key of: {}", keys.join(", ")));
        };
        let in_key = |error: String| format!("{key}: {error}");
        match (key, value) {
            (MODEL_DELAY, range) => quantity::duration_range(range).map(DebugSetting::ModelDelay),
            (STORE_RATE, size) => quantity::bytes(size).map(DebugSetting::StoreRate),
            (CLOCK_DISTURBANCE, most) => quantity::duration(most).map(DebugSetting::ClockDisturbance),
            (SPECULATION, "off") => Ok(DebugSetting::SpeculationOff),
            (SPECULATION, _) => Err("expected off".into()),
            (_, "ignored") => Ok(DebugSetting::JournalIgnored),
            _ => Err("expected ignored".into()),
        }
        .map_err(in_key)
    }
}

impl DebugSettings {
    /// The settings of a command line.
    pub fn new(settings: &[DebugSetting]) -> Self {
        let mut all = DebugSettings::default();
        for setting in settings {
            match setting {
                DebugSetting::ModelDelay(range) => all.model_delay = Some(range.clone()),
                DebugSetting::StoreRate(bytes_per_second) => all.store_rate = Some(*bytes_per_second),
                DebugSetting::ClockDisturbance(most) => all.clock_disturbance = *most,
                DebugSetting::SpeculationOff => all.speculation_off = true,
                DebugSetting::JournalIgnored => all.journal_ignored = true,
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_value_and_the_last_value_counts() {
        let texts = [
            "model-delay=1ms..2ms",
            "store-rate=1MB",
            "store-rate=2MB",
            "clock-disturbance=3us",
            "speculation=off",
            "journal=ignored",
        ];
        let settings: Vec<_> = texts.iter().map(|text| DebugSetting::of_guest(text).unwrap()).collect();
        let expected = DebugSettings {
            model_delay: Some(Nanos::from_millis(1)..=Nanos::from_millis(2)),
            store_rate: Some(2_000_000),
            clock_disturbance: Nanos::from_micros(3),
            speculation_off: true,
            journal_ignored: true,
        };
        assert_eq!(DebugSettings::new(&settings), expected);
    }

    #[test]
    fn a_wrong_setting_is_refused_with_its_key() {
        let refused = |text| DebugSetting::of_guest(text).unwrap_err();
        assert!(refused("model-delay=2ms..1ms").starts_with("model-delay: the range from 2.000 ms to 1.000 ms ends"));
        assert_eq!(refused("speculation=on"), "speculation: expected off");
        assert_eq!(refused("journal="), "journal: expected ignored");
        let keys = "model-delay, store-rate, clock-disturbance, speculation, journal";
        for text in ["", "model-delay", "delay=1ms", "=1ms"] {
            assert_eq!(refused(text), format!("expected KEY=VALUE with a key of: {keys}"), "{text}");
        }
    }

    #[test]
    fn a_simulation_refuses_the_keys_of_guests() {
        assert_eq!(DebugSetting::of_simulation("speculation=off"), Ok(DebugSetting::SpeculationOff));
        let expected = "expected KEY=VALUE with a key of: speculation".to_owned();
        assert_eq!(DebugSetting::of_simulation("journal=ignored"), Err(expected));
    }
}
