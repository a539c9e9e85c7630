//! The command as a user would call it, with a real kernel in the guest. Each test says so and is
//! counted as skipped where the host has no guest kernel.
//!
//! Nothing here asserts the host's time; what guests see is asserted in their own.

#[macro_use(assert_eq)]
extern crate pretty_assertions;

/// The name is in no path of another binary's tests: `scripts/test` tells the two by it.
#[path = "guest"]
mod in_guest {
    mod accuracy;
    mod calibration;
    mod call_traces;
    mod clocks;
    #[path = "../common/command.rs"]
    mod command;
    #[path = "../common/helpers.rs"]
    mod common;
    mod confined;
    mod crash;
    #[path = "../common/default_signals.rs"]
    mod default_signals;
    mod elsewhere;
    mod endings;
    mod exact;
    mod extensions;
    mod faults;
    mod file_systems;
    mod guides;
    mod helpers;
    mod machine;
    mod md;
    mod notified;
    #[path = "../common/pages.rs"]
    mod pages;
    mod processors;
    mod programs;
    mod recorded;
    mod regression;
    mod root;
    mod signals;
    mod squash;
    mod stores;
    mod support;
    mod twins;
    mod user;
    mod verdict;
    #[path = "../../../chronodisk-guest/tests/hostile/victims.rs"]
    mod victims;
    mod xfs_log;
    mod zones;
}
