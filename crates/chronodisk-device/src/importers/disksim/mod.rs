//! DiskSim 4.0 parameter files.
//!
//! A `.parv` file describes an experiment: components, how they are connected, a workload. [`syntax::parse`] turns it
//! and the files that it sources into a tree.

pub mod lexer;
pub mod syntax;
