//! A point of a sweep on a model: a closed loop at the point's depth.

use std::ops::ControlFlow;

use chronodisk_device::DeviceModel;
use chronodisk_engine::sim::{Issue, closed_loop_streaming};
use chronodisk_report::{Distribution, SweepFigures};
use chronodisk_sim::{Nanos, Request, RequestId, SECTOR_BYTES, Status};
use chronodisk_trace::{Generator, GeneratorOptions, Zones};

use crate::{FitError, Point};

/// Conditions under which points are simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conditions {
    /// Requests measured. A quarter as many precede them, or several times the drive's write buffer.
    pub requests: u64,
    /// Seed of the workload and of the device.
    pub seed: u64,
    /// Bytes of the device that are used, from its beginning; `None` for all.
    pub region_bytes: Option<u64>,
    /// Size of a zone: a point with a number of zones uses that number from the beginning.
    pub zone_bytes: Option<u64>,
}

/// Minimum of bytes moved before a point with writes is measured. Measured sweeps last seconds, so they show a full
/// write buffer and dies out of step, unlike the first requests to an idle drive.
const WARM_UP_BYTES: u64 = 48 << 20;

/// Simulates a point's workload; the model's state is the state before the measurement.
///
/// A completion is followed by the next request after the host's time in the measurement ([`Point::host_us`]), so that
/// the device sees the drive's load.
///
/// # Errors
/// If the workload does not fit the device.
pub fn simulate(model: &mut dyn DeviceModel, point: &Point, conditions: &Conditions) -> Result<SweepFigures, FitError> {
    let failed = |message: String| FitError::new(message).in_file(&point.file).at_line(point.line);
    let workload = point.access.workload().ok_or_else(|| failed("this access can't be simulated".to_owned()))?;
    // At the end of the warm-up, the loop and the write buffer must be in their steady state.
    let writes = if point.access.read_share < 1.0 { WARM_UP_BYTES.div_ceil(point.block_bytes) } else { 0 };
    let warm_up = (conditions.requests / 4).max(2 * u64::from(point.depth)).max(writes);
    let info = model.info();
    let capacity_bytes = info.capacity_sectors * SECTOR_BYTES;
    let offset = point.region.offset.bytes(capacity_bytes) / SECTOR_BYTES;
    let Some(rest) = info.capacity_sectors.checked_sub(offset).filter(|rest| *rest > 0) else {
        return Err(failed(format!("the offset of {offset} sectors is behind the device's end")));
    };
    let region = conditions.region(point, capacity_bytes).map(|bytes| bytes / SECTOR_BYTES);
    let options = GeneratorOptions {
        block_bytes: point.block_bytes,
        read_share: point.access.read_share,
        align_sectors: info.logical_block_bytes / SECTOR_BYTES as u32,
        // A drive in use has written its zones.
        zones: info.zones.map(|zones| Zones {
            size_sectors: zones.size_sectors,
            capacity_sectors: zones.capacity_sectors,
            first_sector: zones.conventional_sectors(),
            written: true,
        }),
        ..GeneratorOptions::new(
            workload,
            region.unwrap_or(u64::MAX).min(rest),
            conditions.seed,
            warm_up + conditions.requests,
        )
    };
    let think = Nanos::from_nanos((point.host_us() * 1e3).round() as u64);
    let generator = Generator::new(options).map_err(failed)?;
    let issues = generator.map(|generated| {
        let request = generated.request(RequestId(0));
        Issue { request: Request { lba: request.lba.plus(offset), ..request }, think }
    });
    let mut times = Vec::with_capacity(conditions.requests as usize);
    let (mut seen, mut first, mut last) = (0u64, Nanos::ZERO, Nanos::ZERO);
    let mut refused = None;
    closed_loop_streaming(model, issues, point.depth, |record| {
        seen += 1;
        if record.status != Status::Ok {
            refused = Some((record.op, record.status));
            return ControlFlow::Break(());
        }
        if seen > warm_up && !record.op.is_for_zones() && point.only.is_none_or(|op| op == record.op) {
            if times.is_empty() {
                first = record.arrival;
            }
            last = record.arrival;
            times.push(record.service_time());
        }
        ControlFlow::Continue(())
    })
    .map_err(|error| failed(error.to_string()))?;
    if let Some((op, status)) = refused {
        return Err(failed(format!("the device refuses a {} of this workload: {}", op.name(), status.name())));
    }
    let intervals = times.len().saturating_sub(1) as f64;
    let span = last.saturating_sub(first).as_secs_f64();
    let distribution = Distribution::of(times);
    Ok(SweepFigures {
        iops: (span > 0.0).then(|| intervals / span),
        mean_us: Some(distribution.mean),
        p50_us: Some(distribution.p50),
        p99_us: Some(distribution.p99),
        p999_us: Some(distribution.p999),
    })
}

impl Conditions {
    /// The bytes that a point uses: of zones, of the requested region, or of its own region.
    fn region(&self, point: &Point, capacity_bytes: u64) -> Option<u64> {
        let zones = point.zones.zip(self.zone_bytes).map(|(zones, bytes)| bytes.saturating_mul(u64::from(zones)));
        zones.or(self.region_bytes).or(point.region.size.map(|size| size.bytes(capacity_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use chronodisk_device::{BuildOptions, Profile};

    use super::*;
    use crate::read_sweep;

    const CONDITIONS: Conditions = Conditions { requests: 2_000, seed: 1, region_bytes: None, zone_bytes: None };

    fn simulated(row: &str) -> SweepFigures {
        let text = format!("workload,bs,qd,iops,mean_us\n{row}\n");
        let point = &read_sweep(&text, "a.csv", &[]).unwrap()[0];
        let profile = Profile::find("constant-100us").unwrap();
        let mut model = profile.build(&BuildOptions::default()).unwrap();
        simulate(model.as_mut(), point, &CONDITIONS).unwrap()
    }

    #[test]
    fn a_closed_loop_at_the_depth() {
        let figures = simulated("randread,4096,8,,50");
        assert_eq!((figures.mean_us, figures.p999_us), (Some(100.0), Some(100.0)));
        // Eight at a time every 100 µs; the measured span begins and ends with a burst.
        assert!((figures.iops.unwrap() / 80_000.0 - 1.0).abs() < 0.01, "{figures:?}");
    }

    #[test]
    fn the_hosts_time_passes_between_requests() {
        // 8,000 a second at depth 1: 125 µs a cycle, 25 of them the host's.
        let figures = simulated("read,4096,1,8000,100");
        assert!((figures.iops.unwrap() - 8_000.0).abs() < 1e-6, "{figures:?}");
        assert_eq!(figures.mean_us, Some(100.0));
    }

    #[test]
    fn zones_are_written_in_order_or_not_at_all() {
        let zones = |row: &str| {
            let point = &read_sweep(&format!("workload,bs,qd,mean_us\n{row}\n"), "a.csv", &[]).unwrap()[0];
            let profile = Profile::find("wd-zn540-zones").unwrap();
            // Two zones: the writes reach the first one again.
            let options = BuildOptions { capacity_bytes: Some(4 << 30), ..BuildOptions::default() };
            simulate(profile.build(&options).unwrap().as_mut(), point, &CONDITIONS)
        };
        let written = zones("write,1048576,4,50").unwrap();
        assert!(written.mean_us.unwrap() > 100.0, "{written:?}");
        let refused = zones("randwrite,4096,4,50").unwrap_err().to_string();
        assert!(refused.contains("the device refuses a write of this workload: zone-invalid-write"), "{refused}");
    }

    #[test]
    fn zones_and_regions_limit_what_is_used() {
        let point = |zones: &str| {
            let text = format!("workload,bs,qd,zones,mean_us\nread,4096,1,{zones},1\n");
            read_sweep(&text, "a.csv", &[]).unwrap().remove(0)
        };
        let conditions = Conditions { region_bytes: Some(1 << 30), zone_bytes: Some(1 << 28), ..CONDITIONS };
        assert_eq!(conditions.region(&point(""), 1 << 40), Some(1 << 30));
        assert_eq!(conditions.region(&point("3zones"), 1 << 40), Some(3 << 28));
        assert_eq!(CONDITIONS.region(&point("3"), 1 << 40), None);
    }
}
