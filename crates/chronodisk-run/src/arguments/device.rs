//! Options of devices and of results.

use std::path::PathBuf;

use chronodisk_device::Speed;
use clap::Args;

use super::LabelArguments;
use crate::device::{self, Device};
use crate::failure::Failure;
use crate::quantity;

/// Key of a fault that only one of several devices has.
const OF_DEVICE: &str = "device=";

/// Options of every command that makes devices of profiles.
#[derive(Clone, Debug, Args)]
pub struct DeviceOptions {
    /// Sets the capacity of the device, such as 8GiB (default: the profile's). If it exceeds the drive's, several
    /// drives are concatenated
    #[arg(long, value_name = "SIZE", value_parser = quantity::sector_bytes)]
    pub capacity: Option<u64>,

    /// Starts the device in the state in this file, made by `chronodisk age` (default: a new device)
    #[arg(long, value_name = "FILE")]
    pub state: Option<PathBuf>,

    /// Sets the speed of the device relative to its profile, such as 2x or 0.5x (default: 1x)
    #[arg(long, value_name = "FACTOR", value_parser = quantity::device_speed)]
    pub device_speed: Option<Speed>,

    /// Limits the device, such as iops=3000,bandwidth=125MiB/s,delay=2ms (docs/slow-disk.md lists the keys)
    #[arg(long, value_name = "LIMITS")]
    pub limit: Option<String>,

    /// Gives the device a fault, such as kind=recovered,every=9,retry-time=1s; may be given several times
    /// (docs/failing-drives.md lists the kinds)
    #[arg(long, value_name = "FAULT")]
    pub fault: Vec<String>,

    /// Seeds all random numbers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
}

impl DeviceOptions {
    /// The device of this profile, for a model that is in this process.
    pub fn load(&self, name: &str) -> Result<Device, Failure> {
        self.change(device::load(name, self.capacity, self.seed)?)
    }

    /// Applies faults, limits, saved state and speed to a device; its capacity and seed are set already.
    pub fn change(&self, device: Device) -> Result<Device, Failure> {
        let device = self.surround(device)?.begin_in(self.state.as_deref())?;
        Ok(device.with_speed(self.device_speed))
    }

    /// The options of one of `count` devices, without the faults of the others: `device=1` in a fault names the second
    /// one.
    pub fn of_device(&self, index: usize, count: usize) -> Result<DeviceOptions, Failure> {
        let mut fault = Vec::new();
        for given in &self.fault {
            let (of, keys): (Vec<&str>, Vec<&str>) =
                given.split(',').partition(|key| key.trim().starts_with(OF_DEVICE));
            let Some(number) = of.first() else {
                fault.push(given.clone());
                continue;
            };
            let number: Option<usize> = number.trim()[OF_DEVICE.len()..].parse().ok().filter(|number| *number < count);
            if of.len() > 1 || number.is_none() {
                return Err(Failure::usage(format_args!(
                    "--fault {given}: expected one '{OF_DEVICE}' with the number of a device, from 0 to {}",
                    count - 1
                )));
            }
            if number == Some(index) {
                fault.push(keys.join(","));
            }
        }
        Ok(DeviceOptions { fault, ..self.clone() })
    }

    /// Applies faults and limits to a device, the only one or the one of [`of_device`](Self::of_device).
    pub fn surround(&self, device: Device) -> Result<Device, Failure> {
        device.with_faults(&self.of_device(0, 1)?.fault)?.within_limits(self.limit.as_deref())
    }
}

/// Options of every command that keeps the result of a run.
#[derive(Clone, Debug, Args)]
pub struct ResultOptions {
    /// The labels of the run.
    #[command(flatten)]
    pub labels: LabelArguments,

    /// Writes the result to this directory (default: a new one in ~/.local/state/chronodisk/runs)
    #[arg(long, short, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// Prints the result as JSON on standard output; CMD's output goes to standard error
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(given: &[&str], index: usize, count: usize) -> Result<Vec<String>, Failure> {
        let fault = given.iter().map(|&fault| fault.to_owned()).collect();
        let options = DeviceOptions { capacity: None, state: None, device_speed: None, limit: None, fault, seed: 1 };
        Ok(options.of_device(index, count)?.fault)
    }

    #[test]
    fn a_fault_belongs_to_all_devices_or_to_one() {
        let given = ["kind=hang,at=1s,for=1s", "device=1,kind=death,at=2s", "kind=death, device=0,at=3s"];
        assert_eq!(faults(&given, 0, 2).unwrap(), ["kind=hang,at=1s,for=1s", "kind=death,at=3s"]);
        assert_eq!(faults(&given, 1, 2).unwrap(), ["kind=hang,at=1s,for=1s", "kind=death,at=2s"]);
    }

    #[test]
    fn a_fault_of_a_device_that_does_not_exist_is_refused() {
        for given in
            ["device=2,kind=death", "device=,kind=death", "device=vdb,kind=death", "device=0,device=1,kind=death"]
        {
            let refused = faults(&[given], 0, 2).unwrap_err().to_string();
            assert!(refused.contains("from 0 to 1"), "{refused}");
        }
    }
}
