//! Commands of the guest that are this executable again: the replayer of system calls, and the checker of states.

use super::host::Identity;
use crate::shared::spec::ByteString;
use crate::shared::states::{Caller, StatesOptions};

/// First argument of this executable as the guest's replayer; further ones are user, group and groups.
const REPLAYER: &str = "guest-replay";
/// First argument of this executable as the checker in the guest.
const CHECKER: &str = "guest-states";

/// The replayer as a command: this executable, which takes on the user by itself.
pub(crate) fn replayer(identity: &Identity) -> Vec<ByteString> {
    let mut words = vec!["/proc/self/exe".to_owned(), REPLAYER.to_owned()];
    words.extend(
        [identity.uid, identity.gid].into_iter().chain(identity.groups.iter().copied()).map(|id| id.to_string()),
    );
    words.into_iter().map(|word| word.into_bytes().into()).collect()
}

/// The checker as a command.
pub(crate) fn checker(options: &StatesOptions, identity: &Identity) -> Vec<ByteString> {
    let caller = Caller { uid: identity.uid, gid: identity.gid, groups: identity.groups.clone() };
    let json = serde_json::to_string(&(options, caller)).expect("plain data");
    ["/proc/self/exe", CHECKER, &json].into_iter().map(|word| word.as_bytes().into()).collect()
}
