//! The client's load, and the check of the remaining contents.

use crate::clients::Client;
use crate::folder::TestFolder;
use crate::ledger::{BLOCKS, Ledger, Random};

/// Compares a served device with the acknowledged writes.
pub fn compare(place: &TestFolder, device: &str, store: &[&str], ledger: &mut Ledger) -> Result<(), String> {
    let server = place.serve(device, store);
    let mut client = Client::nbd(&place.path("nbd.sock"));
    let contents: Vec<u8> = (0..BLOCKS).step_by(64).flat_map(|block| client.read(block, 64)).collect();
    server.end();
    ledger.check(&contents)
}

/// Writes until the server is killed.
pub fn write_until_gone(client: &mut Client, ledger: &mut Ledger, random: &mut Random) {
    let depth = 1 + random.below(8) as usize;
    let longest = [1, 4, 64][random.below(3) as usize];
    loop {
        // A flush covers completed writes only, so no other request is outstanding.
        let count = 1 + random.below(32);
        for _ in 0..count {
            while client.under_way() >= depth {
                let Some(id) = client.completed() else { return };
                ledger.completed(id);
            }
            let fua = client.has_fua() && random.below(8) == 0;
            let Some((id, first, bytes)) = ledger.compose(random, longest, fua) else { continue };
            if client.write(id, first, &bytes, fua).is_none() {
                return;
            }
        }
        while client.under_way() > 0 {
            let Some(id) = client.completed() else { return };
            ledger.completed(id);
        }
        if ledger.has_cache {
            if client.flush().is_none() {
                return;
            }
            ledger.flushed();
        }
    }
}
