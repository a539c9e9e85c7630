//! Replays system calls in the guest, as a [`Plan`](chronodisk_trace::calls::Plan) says.
//!
//! Each recorded task is a thread of one process, with its own table of descriptors and working directory unless the
//! recorded one shared them, and with the recorded id where that is free, since file systems allocate by it. The
//! threads run on small stacks without the C library: they have no thread-local storage, take no memory and make system
//! calls directly. The feed comes through the guest's clock, a part of 16 KiB for each task at a time, so the trace
//! takes neither page cache nor device time.

mod player;
mod slots;
mod thread;

pub use player::guest_replay;
