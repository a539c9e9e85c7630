//! Writes images to a squashing store piece by piece.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use chronodisk_sim::RandomStream;
use chronodisk_squash::{ContentKind, SquashOptions, SquashStore};
use chronodisk_store::Store;

/// Size of a piece of an image.
pub const PIECE_BYTES: usize = 4096;

/// Pieces of an image: offset and bytes.
pub type Pieces = Vec<(u64, Vec<u8>)>;

/// The parts of an image that are not zero, in order.
pub fn pieces_of(path: &Path) -> Pieces {
    let file = File::open(path).unwrap();
    let len_bytes = file.metadata().unwrap().len();
    let mut pieces = Vec::new();
    let mut bytes = vec![0; 1 << 20];
    for chunk_at in (0..len_bytes).step_by(bytes.len()) {
        let len = (len_bytes - chunk_at).min(bytes.len() as u64) as usize;
        file.read_exact_at(&mut bytes[..len], chunk_at).unwrap();
        let chunk = bytes[..len].chunks(PIECE_BYTES).zip((chunk_at..).step_by(PIECE_BYTES));
        let used = chunk.filter(|(piece, _)| piece.iter().any(|&byte| byte != 0));
        pieces.extend(used.map(|(piece, at)| (at, piece.to_vec())));
    }
    pieces
}

/// Order in which pieces are written.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    Ascending,
    Descending,
    Shuffled,
    SuperblockLast,
}

impl Order {
    pub const ALL: [Order; 4] = [Order::Ascending, Order::Descending, Order::Shuffled, Order::SuperblockLast];

    /// The orders in which layout `index` is written: one, or all for the first layout in `make test-long`.
    pub fn of_layout(index: usize) -> &'static [Order] {
        let order = index % Order::ALL.len();
        if long() && index == 0 { &Order::ALL } else { &Order::ALL[order..=order] }
    }
}

/// The orders in which a device of several parts is written.
pub fn orders_of_parts() -> &'static [Order] {
    if long() { &Order::ALL } else { &[Order::Shuffled, Order::SuperblockLast] }
}

/// Whether tests run in their long form, as in `make test-long`.
pub fn long() -> bool {
    std::env::var_os("CHRONODISK_LONG").is_some()
}

/// A squashing store after these pieces were written to it.
pub fn replay(pieces: Pieces, capacity_bytes: u64, order: Order, seed: u64) -> SquashStore {
    let options = SquashOptions { content: ContentKind::Random, ..SquashOptions::default() };
    replay_with(&options, pieces, capacity_bytes, order, seed)
}

/// Like [`replay`], with other options.
pub fn replay_with(
    options: &SquashOptions,
    mut pieces: Pieces,
    capacity_bytes: u64,
    order: Order,
    seed: u64,
) -> SquashStore {
    match order {
        Order::Ascending => {}
        Order::Descending => pieces.reverse(),
        Order::Shuffled => shuffle(&mut pieces, seed),
        Order::SuperblockLast => pieces.rotate_left(1),
    }
    let mut store = SquashStore::in_memory(capacity_bytes, capacity_bytes, options);
    write_all(&mut store, &pieces);
    store
}

/// Writes pieces and flushes.
pub fn write_all(store: &mut SquashStore, pieces: &Pieces) {
    for (index, (offset_bytes, bytes)) in pieces.iter().enumerate() {
        store.write(*offset_bytes, bytes).unwrap();
        // An occasional flush may classify waiting blocks.
        if index % 400 == 399 {
            store.flush().unwrap();
        }
    }
    store.flush().unwrap();
}

/// Changes the order of pieces.
pub fn shuffle(pieces: &mut Pieces, seed: u64) {
    let mut random = RandomStream::new(seed, "squash", "order");
    for index in (1..pieces.len()).rev() {
        pieces.swap(index, random.below(index as u64 + 1) as usize);
    }
}

/// Asserts that every block was kept, and that a notice gives the reason.
pub fn is_kept_whole(pieces: Pieces, capacity_bytes: u64, reason: &str) {
    let mut store = replay(pieces.clone(), capacity_bytes, Order::Ascending, 1);
    assert!(store.notices().iter().any(|notice| notice.contains(reason)), "{reason}: {:?}", store.notices());
    assert_eq!(store.squash_statistics().generated_bytes, 0, "{reason}");
    for (offset_bytes, bytes) in pieces {
        let mut read = vec![0; bytes.len()];
        store.read(offset_bytes, &mut read).unwrap();
        assert!(read == bytes, "{reason} at {offset_bytes}");
    }
}
