//! Arrays against the contract, against a byte-level shadow, and against closed forms.

use std::collections::{BTreeMap, BTreeSet};

use chronodisk_sim::{Nanos, Op, RandomStream, Request};
use proptest::prelude::*;

use super::layout::{CopyLayout, Layout, MemberSet, ParityLayout, Place, Shape};
use super::parity::{RowWrite, row_read};
use crate::models::testing::{build_text, closed_loop, complete};
use crate::{DeviceModel, Probe, contract};

/// A profile of an array with these keys.
fn text(keys: &str) -> String {
    format!(
        "name = \"a\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n{keys}\n"
    )
}

fn array(keys: &str) -> Box<dyn DeviceModel> {
    build_text(&text(keys), 7)
}

fn check(keys: &str) {
    contract::check(keys, contract::cases(48), &|seed| build_text(&text(keys), seed));
}

#[test]
fn contract_of_raid_0_and_linear() {
    check("level = \"raid0\"\nmember = \"first-disk\"\ncount = 3\nchunk = \"64 KiB\"");
    check("level = \"linear\"\nmembers = [\"first-disk\", \"battery-backed-ram\"]");
}

#[test]
fn contract_of_raid_1() {
    for policy in ["nearest", "round-robin", "fewest-outstanding", "primary"] {
        check(&format!("level = \"raid1\"\nmember = \"first-disk\"\ncount = 3\nread-policy = \"{policy}\""));
    }
    check("level = \"raid1\"\nmembers = [\"first-disk\", \"wu-tsai-ch2-x1\"]\nfailed = [0]\nfail-at = \"20 ms\"");
}

#[test]
fn contract_of_raid_5_of_eight_disks_with_a_failed_member() {
    check("level = \"raid5\"\nmember = \"first-disk\"\ncount = 8\nchunk = \"64 KiB\"\nfailed = [2]");
}

#[test]
fn contract_of_raid_4_and_5() {
    check("level = \"raid5\"\nmember = \"first-disk\"\ncount = 5\nchunk = \"64 KiB\"\nstripe-cache = 2");
    check("level = \"raid4\"\nmember = \"constant-1ms\"\ncount = 4\nfailed = [3]\nfail-at = \"30 ms\"");
}

#[test]
fn contract_of_raid_6() {
    check("level = \"raid6\"\nmember = \"first-disk\"\ncount = 6\nchunk = \"16 KiB\"\nfailed = [1, 4]");
}

#[test]
fn contract_of_raid_10() {
    check("level = \"raid10\"\nmember = \"first-disk\"\ncount = 4\nfailed = [1]");
    check("level = \"raid10\"\nmember = \"battery-backed-ram\"\ncount = 5\nlayout = \"far\"\ncopies = 3");
    check("level = \"raid10\"\nmember = \"wu-tsai-ch3-x2\"\ncount = 3\nlayout = \"offset\"");
}

#[test]
fn contract_of_arrays_behind_a_bus() {
    let bus = "bus-rate = \"40 MB/s\"\nbus-overhead = \"20 us\"";
    check(&format!("level = \"raid5\"\nmember = \"first-disk\"\ncount = 4\nfailed = [0]\n{bus}"));
    check(&format!("level = \"raid0\"\nmember = \"null\"\ncount = 3\n{bus}\nbus-arbitration = \"highest-id\""));
}
