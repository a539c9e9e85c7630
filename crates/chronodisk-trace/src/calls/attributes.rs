//! Extended attributes in a replay: names are recorded, values are not.

use super::record::CallRecord;
use super::steps::Argument;

/// The kernel accepts any value of these attributes. It would refuse generated values of others.
const ATTRIBUTES: &[u8] = b"user.";
/// Access control lists. Their generated values are in the form that the kernel accepts.
const ACCESS_LISTS: &[u8] = b"system.posix_acl_";
/// Name used for an attribute with an unknown name.
const ATTRIBUTE: &[u8] = b"user.chronodisk";
/// Name of an attribute that no file has.
const ATTRIBUTE_ABSENT: &[u8] = b"user.absent";
/// Longest name of an attribute.
const ATTRIBUTE_NAME_BYTES_MAX: usize = 255;
/// `ENODATA`.
const NO_ATTRIBUTE: i64 = -61;
/// Size to which longer access control lists are shortened, so that the step of a replay is bounded.
const ACCESS_LIST_BYTES_MAX: u64 = 4 + 100 * 8;
/// Linux's limit on the bytes of an extended attribute's value.
const ATTRIBUTE_BYTES_MAX: u64 = 65_536;

/// Arguments of a call on an extended attribute: name, value, size and flags. Values are generated, so attributes that
/// the kernel itself interprets get other names. All attributes without a recorded name share one name. An attribute
/// that was absent in the recording is absent in the replay.
pub(super) fn attribute(record: &CallRecord, value: Argument, bytes: u64) -> Vec<Argument> {
    let result = record.result.unwrap_or(0);
    let sets = record.call.name().ends_with("setxattr");
    let flags = if sets && record.path_2.is_some() { record.arguments[4] } else { 0 };
    let (value, bytes) = match &record.path_2 {
        Some(name) if sets && name.starts_with(ACCESS_LISTS) => {
            let bytes = bytes.min(ACCESS_LIST_BYTES_MAX);
            (Argument::Words(access_list(bytes)), bytes)
        }
        _ => (value, bytes.min(ATTRIBUTE_BYTES_MAX)),
    };
    let name = match &record.path_2 {
        Some(name) if name.starts_with(ATTRIBUTES) || name.starts_with(ACCESS_LISTS) => name.clone(),
        // A request that failed for another reason gets the kernel's own answer.
        Some(name) if result < 0 && result != NO_ATTRIBUTE && !sets => name.clone(),
        Some(name) => {
            let mut name = [ATTRIBUTES, name].concat();
            name.truncate(ATTRIBUTE_NAME_BYTES_MAX);
            name
        }
        None if result == NO_ATTRIBUTE => ATTRIBUTE_ABSENT.to_vec(),
        None => ATTRIBUTE.to_vec(),
    };
    vec![Argument::Path(name), value, Argument::Number(bytes), Argument::Number(flags)]
}

/// A valid access control list of the same length (`linux/posix_acl_xattr.h`): full access for the owner, read and
/// search for others.
fn access_list(bytes: u64) -> Vec<u64> {
    const VERSION: u64 = 2;
    const ENTRY_BYTES: u64 = 8;
    let [owner, user, group, mask, other] = [0x01, 0x02, 0x04, 0x10, 0x20];
    let entry = |tag: u64, may: u64, id: u64| tag | may << 16 | id << 32;
    let nobody = u64::from(u32::MAX);
    let count = bytes / ENTRY_BYTES;
    let named = (0..count.saturating_sub(4)).map(|number| entry(user, 5, 1_000 + number));
    let mask = (count > 3).then(|| entry(mask, 5, nobody));
    let entries = std::iter::once(entry(owner, 7, nobody))
        .chain(named)
        .chain([entry(group, 5, nobody)])
        .chain(mask)
        .chain([entry(other, 5, nobody)]);
    // The first word holds the version and half of the first entry.
    let mut words = vec![VERSION];
    for entry in entries {
        *words.last_mut().expect("it has the version") |= entry << 32;
        words.push(entry >> 32);
    }
    words
}

/// Memory and size for a list of names.
pub(super) fn list_of_attributes() -> Vec<Argument> {
    vec![Argument::Scratch, Argument::Number(ATTRIBUTE_BYTES_MAX)]
}
