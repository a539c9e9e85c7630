//! What several tests need.

pub mod e2fsprogs;
pub mod ext4;
