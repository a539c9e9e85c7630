//! The driver side.
