//! System-call traces: plain data, validation, and analyses without a kernel.
//!
//! A [`CallTrace`] is a [`Header`] and one [`CallRecord`] per system call. A [`Validator`] refuses impossible records.
//! A [`Resolver`] follows descriptors and directories, and names the file or the pipe of each call. [`fold`] removes
//! calls without influence on the device and charges their CPU time to later calls. [`read_strace`] imports the output
//! of strace, [`read_journal`] the observations of a recorder on the host at the calls in [`watched_calls`].
//! [`collisions`] gives the CPU time that one processor must add for several. [`groups`](groups()) finds tasks that
//! depend on each other, [`draw`] draws them with replacement, and [`compose`] repeats each as often as drawn.
//! [`plan`](plan()) lists a replayer's actions, in order.
//!
//! Paths are compared as text: symbolic links are not followed. This module does no I/O and reads no clock.

mod actions;
mod assemble;
mod assess;
mod attributes;
mod collide;
mod delays;
mod descriptors;
mod draw;
mod fold;
mod groups;
mod journal;
mod mappings;
mod meaning;
mod namespace;
mod numbers;
mod order;
mod plan;
mod record;
mod resolve;
mod steps;
mod strace;
mod table;
mod tables;
mod unused;
mod watched;
mod words;

pub use assemble::read_journal;
pub use assess::{RecordedArguments, assess, keep_faults_of_device, recorded_arguments};
pub use collide::{Collisions, collisions};
pub use draw::{Draw, compose, draw};
pub use fold::fold;
pub use groups::{Groups, groups};
pub use journal::{Entry, JournalError, JournalReader, MAGIC, StopCosts, Text};
pub use numbers::{call_name, call_number};
pub use plan::{Plan, PlanError, PlannedTask, plan};
pub use record::{
    Call, CallError, CallRecord, CallTrace, Clock, Header, INSTANT_MAX, PATH_BYTES_MAX, StartState, TASK_MAX, Think,
    TracerCost, Validator, think_times,
};
pub use resolve::{Object, ObjectUse, PathUse, Resolved, Resolver, absolute, is_below, resolution_order, walk};
pub use steps::{Action, Argument, Expected, Step, Wait};
pub use strace::{STRACE_LINE_BYTES_MAX, StraceError, read_strace};
pub use table::{AT_FDCWD, CLONE_FILES, CLONE_FS, CLONE_THREAD, CLONE_VFORK, CLONE_VM};
pub use table::{F_DUPFD, F_DUPFD_CLOEXEC, F_SETFD, O_CLOEXEC, O_CREAT, O_TRUNC, PAGE_FAULT};
pub use watched::{Watched, watched_calls};
pub use words::{lacks_words, take_late_words, take_words};
