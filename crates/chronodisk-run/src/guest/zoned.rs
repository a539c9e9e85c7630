//! Options that fit zoned devices.

use chronodisk_front::BlkConfig;
use chronodisk_guest::FileSystem;

use super::arguments::{Clock, GuestArguments, Root};
use crate::arguments::Reps;
use crate::device::Device;
use crate::failure::Failure;

/// Whether the file system, the store, the clock and the places of the models fit the zoned devices among these.
pub(super) fn zones_fit(arguments: &GuestArguments, devices: &[Device]) -> Result<(), Failure> {
    let Some(zoned) = devices.iter().find(|device| device.is_zoned()) else {
        return match arguments.fs {
            FileSystem::Zonefs => Err(Failure::usage("--fs zonefs needs a zoned device, but there is none")
                .help("wd-zn540-zones is one; `chronodisk devices` lists them all")),
            _ => Ok(()),
        };
    };
    let name = zoned.name();
    let refused = |what: &str| Err(Failure::usage(format!("{what} can't be used with {name}, a zoned device")));
    file_system_fits(arguments, devices)?;
    if arguments.elsewhere.server.is_some() {
        return refused("--server");
    }
    if arguments.clock == Clock::Exact {
        return refused("--clock exact, whose kernel knows no zones,");
    }
    if arguments.store != "ram" && arguments.reps != Reps::Fixed(1) {
        return Err(Failure::usage(format!("--reps can't be used with {name} in a file: its zones would not be new")));
    }
    if arguments.squash.is_given() {
        return refused("--squash");
    }
    if arguments.on.state.is_some() {
        return refused("--state, whose zones are not empty,");
    }
    for device in devices.iter().filter(|device| device.is_zoned()) {
        BlkConfig::of(device.info()).check().map_err(|error| {
            Failure::usage(format!("{} can't be shown to a guest: {error}", device.name()))
                .help("Linux knows zones whose size is a power of two")
        })?;
    }
    Ok(())
}

/// Whether the file system can be made on the first device.
fn file_system_fits(arguments: &GuestArguments, devices: &[Device]) -> Result<(), Failure> {
    let (first, others) = devices.split_first().expect("a guest has a device");
    let name = first.name();
    let is_zoned = first.is_zoned();
    match arguments.fs {
        FileSystem::None | FileSystem::Existing | FileSystem::Btrfs if is_zoned => Ok(()),
        FileSystem::Zonefs if is_zoned && arguments.root == Root::Device => {
            Err(Failure::usage("--root device can't be used with --fs zonefs, whose files are the zones"))
        }
        FileSystem::Zonefs if is_zoned => Ok(()),
        FileSystem::Zonefs => {
            Err(Failure::usage(format!("--fs zonefs needs a zoned device, but the first, {name}, is not zoned"))
                .help("name the zoned device first"))
        }
        FileSystem::F2fs if first.conventional_zones() > 0 => Ok(()),
        FileSystem::F2fs if is_zoned && others.iter().all(Device::is_zoned) => {
            Err(Failure::usage(format!("--fs f2fs can't be made on {name} alone, which has no conventional zones"))
                .help(format!("add a conventional device for its metadata: -d {name} -d null")))
        }
        FileSystem::F2fs => Ok(()),
        _ if !is_zoned => Ok(()),
        other => Err(Failure::usage(format!("--fs {other} can't be used with {name}, a zoned device"))
            .help("use --fs btrfs, zonefs or none; or --fs f2fs with a conventional device beside it, -d null")),
    }
}
