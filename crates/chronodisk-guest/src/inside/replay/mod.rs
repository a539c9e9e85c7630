//! Replays system calls in the guest, as a [`Plan`](chronodisk_trace::calls::Plan) says.
//!
//! Each recorded task is a thread of one process, with its own table of descriptors and working directory unless the
//! recorded one shared them, and with the recorded id where that is free, since file systems allocate by it. The
//! threads run on small stacks without the C library: they have no thread-local storage, take no memory and make system
//! calls directly. The feed comes through the guest's clock, a part of 16 KiB for each task at a time, so the trace
//! takes neither page cache nor device time.

mod feed;
mod player;
mod slots;
mod thread;

pub use feed::{ReplayOutcome, ThinkTime};
pub(crate) use feed::{read_report, write_feed};
pub use player::guest_replay;

use crate::shared::spec::ByteString;

/// First argument of this executable as the guest's replayer; further ones are user, group and groups.
const COMMAND: &str = "guest-replay";

/// The replayer as a command: this executable, which takes on the user by itself.
pub(crate) fn command(identity: &crate::launcher::host::Identity) -> Vec<ByteString> {
    let mut words = vec!["/proc/self/exe".to_owned(), COMMAND.to_owned()];
    words.extend(
        [identity.uid, identity.gid].into_iter().chain(identity.groups.iter().copied()).map(|id| id.to_string()),
    );
    words.into_iter().map(|word| word.into_bytes().into()).collect()
}
