//! The lead of a served model over its client.

use std::collections::HashMap;

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Lba, Nanos, Request, RequestId};

use super::limits::{Call, Halt, Pieces};
use crate::protocol::{NextAnswer, OUTSTANDING_BYTES_MAX, OUTSTANDING_MAX};
use crate::step::first_possible_completion;

/// A model, its way to answer the next completion, and its provisional completions.
pub(super) struct Paced {
    mode: Mode,
    outstanding: Outstanding,
    pieces: Pieces,
}

/// Requests that are not certainly completed, and the bytes that each moves.
#[derive(Default)]
struct Outstanding {
    requests: HashMap<RequestId, u64>,
    bytes: u64,
}

/// Reason why a request or a query was refused.
pub(super) enum Refusal {
    /// The client broke the rules.
    Violation(String),
    /// The call took too long.
    Halt(Halt),
}

impl From<Halt> for Refusal {
    fn from(halt: Halt) -> Self {
        Refusal::Halt(halt)
    }
}

enum Mode {
    /// Runs ahead on a fork.
    Ahead(Ahead),
    /// The model advances only to instants before which no request can arrive any more.
    Behind(Box<dyn DeviceModel>),
}

/// The model at the last arrival, or at the last confirmed prediction.
struct Ahead {
    committed: Box<dyn DeviceModel>,
    prediction: Option<Prediction>,
    /// Forks that ran to their next completion.
    predictions: u64,
    /// Predictions dropped.
    rollbacks: u64,
}

/// The completions to come if no request arrives.
struct Prediction {
    /// The fork, at the instant of the completions.
    model: Box<dyn DeviceModel>,
    completions: Vec<Completion>,
}

impl Prediction {
    fn at(&self) -> Nanos {
        self.model.now()
    }
}

impl Paced {
    pub fn new(model: Box<dyn DeviceModel>, speculate: bool) -> Self {
        let mode = if speculate {
            Mode::Ahead(Ahead { committed: model, prediction: None, predictions: 0, rollbacks: 0 })
        } else {
            Mode::Behind(model)
        };
        Paced { mode, outstanding: Outstanding::default(), pieces: Pieces::default() }
    }

    /// The model without any prediction.
    pub fn committed(&self) -> &dyn DeviceModel {
        match &self.mode {
            Mode::Ahead(ahead) => &*ahead.committed,
            Mode::Behind(model) => &**model,
        }
    }

    /// Times that the model ran ahead, and times that it did so in vain.
    pub fn predictions_and_rollbacks(&self) -> (u64, u64) {
        match &self.mode {
            Mode::Ahead(ahead) => (ahead.predictions, ahead.rollbacks),
            Mode::Behind(_) => (0, 0),
        }
    }

    /// Passes a request that arrives at `at` to the model, which chooses one of the places if there are some. Returns
    /// the place.
    ///
    /// # Errors
    /// If its id is in use, if too much would be outstanding, if the model is beyond that instant, if an unreported
    /// completion precedes it, or if the call takes too long.
    pub fn submit(&mut self, at: Nanos, request: Request, places: &[Lba], call: &mut Call<'_>) -> Result<Lba, Refusal> {
        let violation = |reason: String| Err(Refusal::Violation(reason));
        let id = request.id.0;
        let model = match &mut self.mode {
            Mode::Ahead(ahead) => {
                ahead.resolve(at, &mut self.outstanding);
                &mut *ahead.committed
            }
            Mode::Behind(model) => &mut **model,
        };
        if self.outstanding.requests.len() >= OUTSTANDING_MAX {
            return violation(format!("more than {OUTSTANDING_MAX} requests would be outstanding"));
        }
        let bytes = if request.op.moves_data() { request.len_bytes() } else { 0 };
        if self.outstanding.bytes + bytes > OUTSTANDING_BYTES_MAX {
            let most_mib = OUTSTANDING_BYTES_MAX >> 20;
            return violation(format!("reads and writes of more than {most_mib} MiB would be outstanding"));
        }
        if at < model.now() {
            return violation(format!("request {id} arrives at {at}, but the model is at {}", model.now()));
        }
        let mut untold = Vec::new();
        self.pieces.advance(model, at, &mut untold, call)?;
        if let Some(first) = untold.first() {
            return violation(format!(
                "request {id} arrives at {at}, but request {} completes at {}, which was not asked for",
                first.id.0, first.at
            ));
        }
        if !self.outstanding.insert(request.id, bytes) {
            return violation(format!("request {id} is outstanding already"));
        }
        let place = if places.is_empty() {
            model.submit(request);
            request.lba
        } else {
            model.submit_anywhere(request, places)
        };
        call.check()?;
        Ok(place)
    }

    /// Returns the next completion, given that all completions up to `taken` were reported and no request arrives
    /// before `safe_until`.
    ///
    /// # Errors
    /// If the call takes too long.
    pub fn next(&mut self, taken: Nanos, safe_until: Nanos, call: &mut Call<'_>) -> Result<NextAnswer, Halt> {
        match &mut self.mode {
            Mode::Ahead(ahead) => {
                ahead.confirm(taken, &mut self.outstanding);
                ahead.predict(&mut self.pieces, call)
            }
            Mode::Behind(model) => next_behind(&mut **model, safe_until, &mut self.outstanding, &mut self.pieces, call),
        }
    }
}

impl Outstanding {
    /// Whether the request is new.
    fn insert(&mut self, id: RequestId, bytes: u64) -> bool {
        let new = self.requests.insert(id, bytes).is_none();
        self.bytes += if new { bytes } else { 0 };
        new
    }

    fn forget(&mut self, completions: &[Completion]) {
        for completion in completions {
            self.bytes -= self.requests.remove(&completion.id).unwrap_or(0);
        }
    }
}

impl Ahead {
    /// Confirms a prediction up to `taken`.
    fn confirm(&mut self, taken: Nanos, outstanding: &mut Outstanding) {
        if let Some(prediction) = self.prediction.take_if(|prediction| prediction.at() <= taken) {
            self.committed = prediction.model;
            outstanding.forget(&prediction.completions);
        }
    }

    /// Handles an arrival at `at`: confirms the prediction up to then, and drops the rest.
    fn resolve(&mut self, at: Nanos, outstanding: &mut Outstanding) {
        self.confirm(at, outstanding);
        if self.prediction.take().is_some() {
            self.rollbacks += 1;
        }
    }

    fn predict(&mut self, pieces: &mut Pieces, call: &mut Call<'_>) -> Result<NextAnswer, Halt> {
        if self.committed.outstanding() == 0 {
            return Ok(NextAnswer::Nothing);
        }
        let prediction = match &mut self.prediction {
            Some(prediction) => prediction,
            none => {
                self.predictions += 1;
                let mut model = self.committed.fork();
                let mut completions = Vec::new();
                pieces.step_to_completion(&mut *model, &mut completions, call)?;
                none.insert(Prediction { model, completions })
            }
        };
        Ok(NextAnswer::Completions(prediction.completions.clone()))
    }
}

fn next_behind(
    model: &mut dyn DeviceModel,
    safe_until: Nanos,
    outstanding: &mut Outstanding,
    pieces: &mut Pieces,
    call: &mut Call<'_>,
) -> Result<NextAnswer, Halt> {
    if model.outstanding() == 0 {
        return Ok(NextAnswer::Nothing);
    }
    let mut completions = Vec::new();
    if model.now() <= safe_until {
        pieces.step(model, safe_until, &mut completions, call)?;
    }
    if completions.is_empty() {
        // A step to its limit includes all events there, so the next completion is later.
        return Ok(first_possible_completion(model).map_or(NextAnswer::Nothing, NextAnswer::NotBefore));
    }
    let now = model.now();
    pieces.advance(model, now, &mut completions, call)?;
    outstanding.forget(&completions);
    Ok(NextAnswer::Completions(completions))
}
