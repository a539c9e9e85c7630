//! Images on a failing host: no acknowledged byte is lost, and no read returns wrong bytes. The other
//! stores' tests have the same harness.

#[path = "../../chronodisk-store/tests/faults/harness/mod.rs"]
mod harness;

use std::sync::Arc;

use chronodisk_squash::{SquashMode, SquashOptions, SquashStore};
use chronodisk_store::host::Host;
use chronodisk_store::{Durability, StoreError};
use harness::{CAPACITY_BYTES, Kind, Opened, PATH, check};

impl Kind for SquashMode {
    fn create(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        Ok(Box::new(SquashStore::create(PATH, CAPACITY_BYTES, &options(*self, host, durability))?))
    }

    fn open(&self, host: &Arc<dyn Host>, durability: Durability) -> Result<Opened, StoreError> {
        Ok(Box::new(SquashStore::open(PATH, CAPACITY_BYTES, &options(*self, host, durability))?))
    }

    fn reserves_space(&self) -> bool {
        false
    }
}

fn options(mode: SquashMode, host: &Arc<dyn Host>, durability: Durability) -> SquashOptions {
    SquashOptions { mode, durability, host: Arc::clone(host), ..SquashOptions::default() }
}

#[test]
fn an_exact_image_keeps_its_promise_whatever_the_host_does() {
    check(&SquashMode::Exact);
}

#[test]
fn a_classified_image_keeps_its_promise_whatever_the_host_does() {
    check(&SquashMode::Classified);
}
