//! A flash drive, kind `ssd`.

// Its parts are used by each other's tests until the kind that joins them is there.
#![allow(dead_code)]

mod events;
mod flash;
mod ftl;
mod geometry;
