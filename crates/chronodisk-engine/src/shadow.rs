//! A model beside a real device.

use std::collections::VecDeque;

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Nanos, Request, RequestId, RequestRecord, Status};

use crate::log::new_record;
use crate::step::{LATEST_ARRIVAL, assert_inside, checked_advance, step_to_completion};

/// Feeds a real device's requests to a model at the same instants, and records both completions.
///
/// In the records, [`due`](RequestRecord::due) is the model's completion and [`completed`](RequestRecord::completed)
/// the device's. The model delays no request: its owner advances it from arrival to arrival at any later time.
///
/// ```
/// use chronodisk_engine::Shadow;
/// use chronodisk_sim::{Nanos, Op, Request};
/// # fn run(model: Box<dyn chronodisk_device::DeviceModel>) {
/// let mut shadow = Shadow::new(model);
/// let order = shadow.arrive(Nanos::from_micros(10), Request::new(0, Op::Read, 0, 8));
/// shadow.served(order, Nanos::from_micros(95), false);
/// let (records, model) = shadow.finish();
/// # }
/// ```
pub struct Shadow {
    model: Box<dyn DeviceModel>,
    records: VecDeque<RequestRecord>,
    first_order: u64,
    /// Reused between calls, to avoid allocations.
    completions: Vec<Completion>,
}

impl Shadow {
    /// Beside a device that gets its first request at the model's present instant or later.
    #[must_use]
    pub fn new(model: Box<dyn DeviceModel>) -> Self {
        Shadow { model, records: VecDeque::new(), first_order: 0, completions: Vec::new() }
    }

    /// Passes a request that the device received at `at` to the model; instants must not step back. Returns its order.
    ///
    /// # Panics
    /// If its range leaves the model's device, or if the model breaks its contract.
    pub fn arrive(&mut self, at: Nanos, mut request: Request) -> u64 {
        assert_inside(self.model.info(), &request);
        let at = at.max(self.model.now()).min(LATEST_ARRIVAL);
        checked_advance(&mut *self.model, at, &mut self.completions);
        let order = self.first_order + self.records.len() as u64;
        request.id = RequestId(order);
        self.records.push_back(new_record(0, order, at, &request));
        self.model.submit(request);
        self.note_completions();
        order
    }

    /// The device completed a request, or failed at it, at `at`.
    ///
    /// # Panics
    /// If no request of that order is at the device.
    pub fn served(&mut self, order: u64, at: Nanos, failed: bool) {
        let record = self.record_mut(order);
        assert!(!record.is_completed(), "request {order} was served twice");
        record.completed = at.max(record.arrival.saturating_add(Nanos::from_nanos(1)));
        if failed {
            record.store_failed = true;
            record.status = Status::MediaError;
        }
    }

    /// Takes the oldest records out, in order of arrival, up to the first one that either side has not completed.
    pub fn take_settled(&mut self, records: &mut Vec<RequestRecord>) {
        while let Some(first) = self.records.front()
            && first.is_completed()
            && first.due != Nanos::MAX
        {
            records.push(*first);
            self.records.pop_front();
            self.first_order += 1;
        }
    }

    /// Completes the model's outstanding requests. Returns the remaining records and the model.
    #[must_use]
    pub fn finish(mut self) -> (Vec<RequestRecord>, Box<dyn DeviceModel>) {
        while self.model.outstanding() > 0 {
            step_to_completion(&mut *self.model, &mut self.completions);
            self.note_completions();
        }
        (self.records.into(), self.model)
    }

    fn note_completions(&mut self) {
        let mut completions = std::mem::take(&mut self.completions);
        for completion in completions.drain(..) {
            let record = self.record_mut(completion.id.0);
            record.due = completion.at;
            if !record.store_failed {
                record.status = completion.status;
            }
        }
        self.completions = completions;
    }

    fn record_mut(&mut self, order: u64) -> &mut RequestRecord {
        let index = order.checked_sub(self.first_order);
        let record = index.and_then(|index| self.records.get_mut(index as usize));
        record.unwrap_or_else(|| panic!("no request {order} is under way"))
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_device::{BuildOptions, Profile};
    use chronodisk_sim::Op;

    use super::*;
    use crate::verify;

    fn model() -> Box<dyn DeviceModel> {
        Profile::find("first-disk").unwrap().build(&BuildOptions::default()).unwrap()
    }

    #[test]
    fn the_model_gets_the_devices_arrivals_and_both_completions_are_kept() {
        let micros = Nanos::from_micros;
        let mut shadow = Shadow::new(model());
        let mut taken = Vec::new();
        let mut under_way = VecDeque::new();
        for index in 0..200u64 {
            let at = micros(index * 2_500);
            let order = shadow.arrive(at, Request::new(7, Op::Read, index * 7_919 % 100_000 * 8, 8));
            assert_eq!(order, index);
            under_way.push_back((order, at + micros(4_000)));
            if under_way.len() > 3 {
                let (order, at) = under_way.pop_front().unwrap();
                shadow.served(order, at, order == 5);
            }
            shadow.take_settled(&mut taken);
        }
        assert!(!taken.is_empty() && taken.len() < 200, "{}", taken.len());
        for (order, at) in under_way {
            shadow.served(order, at, false);
        }
        let (rest, _) = shadow.finish();
        taken.extend(rest);
        assert_eq!(taken.len(), 200);
        for record in &taken {
            assert_eq!(record.completed - record.arrival, micros(4_000));
            assert_ne!(record.due, Nanos::MAX);
        }
        assert_eq!(taken[5].status, Status::MediaError);
        assert!(verify(&mut [model()], &taken, None).unwrap().identical());
    }
}
