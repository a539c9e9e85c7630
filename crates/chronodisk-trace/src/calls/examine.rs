//! What of a trace can't be replayed.

use super::record::CallTrace;
use super::resolve::{Object, Resolver, is_below, resolution_order};

/// Counts what can't be replayed in a trace of the host's, and checks that a call uses the mount point, if that is
/// `expected`. Who records on the host sees no page faults, so mapped files of the device are counted.
pub(super) fn examine(mut trace: CallTrace, expected: bool) -> Result<CallTrace, String> {
    let mount = trace.header.mount.clone();
    let mut resolver = Resolver::new(&trace.header);
    let mut used = mount.is_none();
    for index in resolution_order(&trace.records) {
        let record = &trace.records[index];
        let resolved = resolver.apply(record);
        if resolved.unresolved {
            trace.header.count_incomplete("unknown-directory");
        }
        if resolved.unsupported {
            trace.header.count_incomplete(record.call.name());
        }
        let Some(mount) = &mount else { continue };
        let below = |object: &Object| matches!(object, Object::File(path) if is_below(mount.as_bytes(), path));
        let on_device = resolved.objects.iter().any(|object| below(&object.object));
        used |= on_device;
        if on_device && record.call.name() == "mmap" && record.succeeded() {
            trace.header.count_incomplete("mapped-file");
        }
    }
    match mount {
        Some(mount) if !used && expected => {
            Err(format!("no call uses a file below {mount}; expected the mount point of the device"))
        }
        _ => Ok(trace),
    }
}
