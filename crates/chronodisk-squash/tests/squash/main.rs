//! Squashing stores: file systems made by their own tools, written to a store in varied orders. The same tools judge
//! the kept blocks.

mod btrfs;
mod btrfs_image;
mod btrfs_log;
mod btrfsprogs;
mod e2fsprogs;
mod export;
mod ext4;
mod ext4_image;
mod f2fs;
mod f2fs_tools;
mod image;
mod lvm;
mod partitions;
mod replay;
mod xfs;
mod xfs_image;
mod xfs_log;
mod xfsprogs;
