//! The engine's operations on a model, local or remote.

use chronodisk_device::{BackgroundRead, DeviceInfo, DeviceModel, PlacingHost, PlacingOptions, Probe};
use chronodisk_sim::{Completion, Lba, Nanos, Request};

use crate::fault::ModelFault;
use crate::protocol::BackgroundReads;
use crate::remote::RemoteModel;
use crate::step::{checked_advance, checked_step, first_possible_completion};

/// A model in this process, which is pure and can't fail, or one elsewhere, which can.
pub enum ModelPort {
    /// In this process.
    Local(Box<dyn DeviceModel>),
    /// A model at an emulator server, or in another program.
    Remote(Box<RemoteModel>),
}

impl ModelPort {
    /// The device's properties.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        match self {
            ModelPort::Local(model) => model.info(),
            ModelPort::Remote(model) => model.info(),
        }
    }

    /// Reports statistics by name; for a remote model, the last [fetched](RemoteModel::fetch_statistics) ones.
    pub fn probe(&self, sink: &mut dyn Probe) {
        match self {
            ModelPort::Local(model) => model.probe(sink),
            ModelPort::Remote(model) => model.probe(sink),
        }
    }

    /// The device below a host that directs eager writing.
    ///
    /// # Errors
    /// If an option is out of its range, or the device has no room.
    pub fn with_placing(self, options: PlacingOptions) -> Result<Self, String> {
        Ok(match self {
            ModelPort::Local(model) => ModelPort::Local(Box::new(PlacingHost::new(model, options)?)),
            ModelPort::Remote(model) => model.with_placing(options)?.into(),
        })
    }

    /// A background request arrives at the present instant. Returns whether the model serves such requests.
    ///
    /// # Errors
    /// If a remote model fails.
    pub fn want(&mut self, request: &BackgroundRead) -> Result<bool, ModelFault> {
        match self {
            ModelPort::Local(model) => Ok(model.background().map(|background| background.want(request)).is_some()),
            ModelPort::Remote(model) => model.want(request),
        }
    }

    /// Reads of background requests up to the present instant that were not taken before. The model must serve them.
    ///
    /// # Errors
    /// If a remote model fails.
    pub fn take_background(&mut self) -> Result<BackgroundReads, ModelFault> {
        match self {
            ModelPort::Local(model) => {
                let Some(background) = model.background() else { return Ok(BackgroundReads::default()) };
                let mut done = Vec::new();
                background.take(&mut done);
                let (wanted_sectors, media_bytes_per_s) = (background.wanted(), background.media_bytes_per_s());
                Ok(BackgroundReads { wanted_sectors, media_bytes_per_s, done })
            }
            ModelPort::Remote(model) => model.take_background(),
        }
    }

    pub(crate) fn lend(&mut self) -> Port<'_> {
        match self {
            ModelPort::Local(model) => Port::Local(&mut **model),
            ModelPort::Remote(model) => Port::Remote(model),
        }
    }

    /// The present instant of the model.
    #[must_use]
    pub fn now(&self) -> Nanos {
        match self {
            ModelPort::Local(model) => model.now(),
            ModelPort::Remote(model) => model.now(),
        }
    }

    pub(crate) fn outstanding(&self) -> u32 {
        match self {
            ModelPort::Local(model) => model.outstanding(),
            ModelPort::Remote(model) => model.outstanding(),
        }
    }

    /// The model's next internal instant. `None` if no event follows, or if the model is remote, since its events are
    /// unknown.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        match self {
            ModelPort::Local(model) => model.next_event(),
            ModelPort::Remote(_) => None,
        }
    }

    pub(crate) fn first_possible_completion(&self) -> Option<Nanos> {
        match self {
            ModelPort::Local(model) => first_possible_completion(&**model),
            ModelPort::Remote(model) => model.first_possible_completion(),
        }
    }
}

impl From<Box<dyn DeviceModel>> for ModelPort {
    fn from(model: Box<dyn DeviceModel>) -> Self {
        ModelPort::Local(model)
    }
}

impl From<RemoteModel> for ModelPort {
    fn from(model: RemoteModel) -> Self {
        ModelPort::Remote(Box::new(model))
    }
}

/// A [`ModelPort`] or a local model, lent.
pub(crate) enum Port<'a> {
    Local(&'a mut (dyn DeviceModel + 'a)),
    Remote(&'a mut RemoteModel),
}

impl Port<'_> {
    pub fn info(&self) -> &DeviceInfo {
        match self {
            Port::Local(model) => model.info(),
            Port::Remote(model) => model.info(),
        }
    }

    pub fn now(&self) -> Nanos {
        match self {
            Port::Local(model) => model.now(),
            Port::Remote(model) => model.now(),
        }
    }

    pub fn outstanding(&self) -> u32 {
        match self {
            Port::Local(model) => model.outstanding(),
            Port::Remote(model) => model.outstanding(),
        }
    }

    /// A request arrives now.
    pub fn submit(&mut self, request: Request) -> Result<(), ModelFault> {
        match self {
            Port::Local(model) => {
                model.submit(request);
                Ok(())
            }
            Port::Remote(model) => model.submit(request),
        }
    }

    /// A write arrives now, for one of these places. Returns the place.
    pub fn submit_anywhere(&mut self, request: Request, places: &[Lba]) -> Result<Lba, ModelFault> {
        match self {
            Port::Local(model) => Ok(model.submit_anywhere(request, places)),
            Port::Remote(model) => model.submit_anywhere(request, places),
        }
    }

    /// Steps to the first instant with a completion, or to `limit`. More requests may complete at that instant.
    ///
    /// # Panics
    /// If a local model breaks its contract.
    pub fn step(&mut self, limit: Nanos, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        match self {
            Port::Local(model) => {
                checked_step(&mut **model, limit, completed);
                Ok(())
            }
            Port::Remote(model) => model.step(limit, completed),
        }
    }

    /// Runs to `until`, including all events there. Does nothing if the model is already beyond.
    ///
    /// # Panics
    /// Like [`step`](Self::step).
    pub fn advance(&mut self, until: Nanos, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        match self {
            Port::Local(model) => {
                checked_advance(&mut **model, until, completed);
                Ok(())
            }
            Port::Remote(model) => {
                if model.now() > until {
                    return Ok(());
                }
                loop {
                    let before = completed.len();
                    model.step(until, completed)?;
                    if completed.len() == before {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Like [`step`](Self::step), but completes all events of the reached instant.
    ///
    /// # Panics
    /// Like [`step`](Self::step).
    pub fn step_whole_instant(&mut self, limit: Nanos, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        self.step(limit, completed)?;
        let now = self.now();
        self.advance(now, completed)
    }

    /// Runs a model with outstanding requests to its first completion, and completes all events of that instant.
    ///
    /// # Panics
    /// Like [`step`](Self::step), and if a local model never completes anything.
    pub fn step_to_completion(&mut self, completed: &mut Vec<Completion>) -> Result<(), ModelFault> {
        let before = completed.len();
        self.step(Nanos::MAX, completed)?;
        let (name, outstanding) = (&self.info().name, self.outstanding());
        assert!(completed.len() > before, "model {name}: {outstanding} requests never complete");
        let now = self.now();
        self.advance(now, completed)
    }
}
