//! How far a served model goes.

use std::collections::HashSet;

use chronodisk_device::DeviceModel;
use chronodisk_sim::{Completion, Nanos, Request, RequestId};

use crate::protocol::{NextAnswer, OUTSTANDING_MAX};
use crate::step::{checked_advance, checked_step, first_possible_completion, step_to_completion};

/// A model, how it answers what completes next, and what it has not certainly completed.
pub(super) struct Paced {
    mode: Mode,
    outstanding: HashSet<RequestId>,
}

enum Mode {
    /// Runs ahead on a fork.
    Ahead(Ahead),
    /// Goes only as far as nothing can arrive any more.
    Behind(Box<dyn DeviceModel>),
}

/// The model at the last arrival, or at the last prediction that came true.
struct Ahead {
    committed: Box<dyn DeviceModel>,
    prediction: Option<Prediction>,
    /// Forks that ran to their next completion.
    predictions: u64,
    /// Those of them that were dropped.
    rollbacks: u64,
}

/// What happens if nothing arrives.
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
        Paced { mode, outstanding: HashSet::new() }
    }

    /// The model as far as it is certain.
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

    /// A request arrives at `at`.
    ///
    /// # Errors
    /// If its id is taken, if too much would be outstanding, if the model is beyond that instant, or if something
    /// completes before it that the client was not told.
    pub fn submit(&mut self, at: Nanos, request: Request) -> Result<(), String> {
        let id = request.id.0;
        let model = match &mut self.mode {
            Mode::Ahead(ahead) => {
                ahead.resolve(at, &mut self.outstanding);
                &mut *ahead.committed
            }
            Mode::Behind(model) => &mut **model,
        };
        if self.outstanding.len() >= OUTSTANDING_MAX {
            return Err(format!("more than {OUTSTANDING_MAX} requests would be outstanding"));
        }
        if at < model.now() {
            return Err(format!("request {id} arrives at {at}, but the model is at {}", model.now()));
        }
        let mut untold = Vec::new();
        checked_advance(model, at, &mut untold);
        if let Some(first) = untold.first() {
            return Err(format!(
                "request {id} arrives at {at}, but request {} completes at {}, which was not asked for",
                first.id.0, first.at
            ));
        }
        if !self.outstanding.insert(request.id) {
            return Err(format!("request {id} is outstanding already"));
        }
        model.submit(request);
        Ok(())
    }

    /// What completes next, when everything up to `taken` was told and nothing arrives before `safe_until`.
    pub fn next(&mut self, taken: Nanos, safe_until: Nanos) -> NextAnswer {
        match &mut self.mode {
            Mode::Ahead(ahead) => {
                ahead.confirm(taken, &mut self.outstanding);
                ahead.predict()
            }
            Mode::Behind(model) => next_behind(&mut **model, safe_until, &mut self.outstanding),
        }
    }
}

impl Ahead {
    /// A prediction up to `taken` has come true.
    fn confirm(&mut self, taken: Nanos, outstanding: &mut HashSet<RequestId>) {
        if let Some(prediction) = self.prediction.take_if(|prediction| prediction.at() <= taken) {
            self.committed = prediction.model;
            forget(&prediction.completions, outstanding);
        }
    }

    /// Something arrives at `at`: a prediction has come true by then, or never will.
    fn resolve(&mut self, at: Nanos, outstanding: &mut HashSet<RequestId>) {
        self.confirm(at, outstanding);
        if self.prediction.take().is_some() {
            self.rollbacks += 1;
        }
    }

    fn predict(&mut self) -> NextAnswer {
        if self.committed.outstanding() == 0 {
            return NextAnswer::Nothing;
        }
        let prediction = self.prediction.get_or_insert_with(|| {
            self.predictions += 1;
            let mut model = self.committed.fork();
            let mut completions = Vec::new();
            step_to_completion(&mut *model, &mut completions);
            Prediction { model, completions }
        });
        NextAnswer::Completions(prediction.completions.clone())
    }
}

fn next_behind(model: &mut dyn DeviceModel, safe_until: Nanos, outstanding: &mut HashSet<RequestId>) -> NextAnswer {
    if model.outstanding() == 0 {
        return NextAnswer::Nothing;
    }
    let mut completions = Vec::new();
    checked_step(model, safe_until, &mut completions);
    if completions.is_empty() {
        // A step to its limit leaves nothing at it, so this is later.
        return first_possible_completion(model).map_or(NextAnswer::Nothing, NextAnswer::NotBefore);
    }
    let now = model.now();
    checked_advance(model, now, &mut completions);
    forget(&completions, outstanding);
    NextAnswer::Completions(completions)
}

fn forget(completions: &[Completion], outstanding: &mut HashSet<RequestId>) {
    for completion in completions {
        outstanding.remove(&completion.id);
    }
}
