//! Stepping a model while holding it to its contract.

pub(crate) use chronodisk_device::LATEST_ARRIVAL;
use chronodisk_device::{DeviceInfo, DeviceModel};
use chronodisk_sim::{Completion, Nanos, Request, RequestRecord};

/// Calls [`DeviceModel::step`], and checks the contract: time moves forward, the model stops before `limit` only at a
/// completion, and completions are of the present instant.
///
/// # Panics
/// If the model breaks its contract.
pub(crate) fn checked_step(model: &mut dyn DeviceModel, limit: Nanos, completed: &mut Vec<Completion>) {
    let before = model.now();
    let first_new = completed.len();
    model.step(limit, completed);
    let now = model.now();
    let limit = limit.max(before);
    assert!(
        now >= before && now <= limit,
        "model {}: a step from {before} to {limit} ended at {now}, outside of that span",
        model.info().name
    );
    if completed.len() == first_new {
        assert!(
            now == limit,
            "model {}: a step stopped at {now}, before its limit of {limit}, but completed nothing",
            model.info().name
        );
    }
    for completion in &completed[first_new..] {
        assert!(
            completion.at == now,
            "model {}: request {} completed at {} during a step that ended at {now}",
            model.info().name,
            completion.id.0,
            completion.at
        );
    }
}

/// Runs a model to `until`, including all events there. Does nothing if it is already beyond.
///
/// # Panics
/// If the model breaks its contract, such as by completing more requests than it was given.
pub(crate) fn checked_advance(model: &mut dyn DeviceModel, until: Nanos, completed: &mut Vec<Completion>) {
    if model.now() > until {
        return;
    }
    let first_new = completed.len();
    let outstanding = model.outstanding() as usize;
    loop {
        let before_step = completed.len();
        checked_step(model, until, completed);
        if completed.len() == before_step {
            return;
        }
        assert!(
            completed.len() - first_new <= outstanding,
            "model {}: {} completions by {until}, but only {outstanding} requests were outstanding",
            model.info().name,
            completed.len() - first_new,
        );
    }
}

/// Runs a model with outstanding requests to its first completion, and completes all events of that instant.
///
/// # Panics
/// If the model breaks its contract, such as by never completing anything.
pub(crate) fn step_to_completion(model: &mut dyn DeviceModel, completed: &mut Vec<Completion>) {
    let first_new = completed.len();
    checked_step(model, Nanos::MAX, completed);
    assert!(
        completed.len() > first_new,
        "model {}: {} requests never complete",
        model.info().name,
        model.outstanding()
    );
    let now = model.now();
    checked_advance(model, now, completed);
}

/// Panics unless a request completes after its arrival.
pub(crate) fn assert_later(info: &DeviceInfo, record: &RequestRecord, completion: Completion) {
    assert!(
        completion.at > record.arrival,
        "model {}: request {} completed at {}, not after its arrival at {}",
        info.name,
        completion.id.0,
        completion.at,
        record.arrival
    );
}

/// The earliest instant at which an outstanding request can complete if none arrives; in the future if the model has
/// processed all events due at its present instant. `None` if no request is outstanding.
///
/// A completion is an event, so the next event bounds it as well as the model's own bound does.
///
/// # Panics
/// If requests are outstanding and the model says that nothing will ever happen.
pub(crate) fn first_possible_completion(model: &dyn DeviceModel) -> Option<Nanos> {
    if model.outstanding() == 0 {
        return None;
    }
    let next_event = model.next_event().unwrap_or_else(|| {
        panic!("model {}: {} requests outstanding, but no event ahead", model.info().name, model.outstanding())
    });
    Some(model.completion_bound().map_or(next_event, |bound| bound.max(next_event)))
}

/// Panics if a request is not inside the device. Callers of `submit` check this before.
pub(crate) fn assert_inside(info: &DeviceInfo, request: &Request) {
    assert!(
        fits(info.capacity_sectors, request.lba.0, request.sectors),
        "model {}: a request for {} sectors at sector {} reached the engine, but the device ends at sector {}",
        info.name,
        request.sectors,
        request.lba,
        info.capacity_sectors
    );
}

/// Whether a range lies inside a device; an empty one may begin at its end.
pub(crate) fn fits(capacity_sectors: u64, lba: u64, sectors: u32) -> bool {
    lba.checked_add(u64::from(sectors)).is_some_and(|end| end <= capacity_sectors)
}
