//! The devices' sessions with the guest's driver, on each clock.

use std::io;

use chronodisk_engine::ModelFault;
use chronodisk_front::vhost_user::{Flow, RequestHandler, VhostUserSession};
use chronodisk_store::Recorder;

/// Recording of each device, if it has one.
pub(crate) type Recorders = Vec<Option<Recorder>>;

/// Reason why the backend stops.
pub(crate) enum RunEnd {
    GuestGone,
    ModelLost(ModelFault),
}

/// Obeys a device's driver; false when the guest is gone.
pub(crate) fn obey(session: &mut VhostUserSession, arrivals: &mut dyn RequestHandler) -> io::Result<bool> {
    match session.readable(arrivals) {
        Ok(Flow::Continue) => session.notify().map(|()| true),
        Ok(Flow::Ended) => Ok(false),
        // A guest that breaks the protocol loses its device, as one that hung up does.
        Err(error) => {
            eprintln!("chronodisk backend: the guest's driver broke the protocol: {error}");
            Ok(false)
        }
    }
}
