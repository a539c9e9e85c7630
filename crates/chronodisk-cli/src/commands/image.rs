//! `chronodisk image`: content of squashed images, their verification and repair.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use chronodisk_squash::{DeviceExamination, Examination, ImageInfo};
use chronodisk_store::StoreError;
use chronodisk_store::host::{Host, RealHost};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Inspects, checks, repairs and converts images made by --squash
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image info disk.image")]
pub struct Arguments {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    Info(InfoArguments),
    Check(CheckArguments),
    Repair(RepairArguments),
    Upgrade(UpgradeArguments),
}

/// Shows the contents of an image by class, and the space that it saves
///
/// Reads and checks the whole map. A damaged image is refused with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image info disk.image")]
struct InfoArguments {
    /// Image, with its map beside it: FILE.map, or FILE.0.map, FILE.1.map and so on for several devices
    #[arg(value_name = "FILE")]
    image: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Reads every block that an image keeps and compares checksums
///
/// Changes nothing. Ends with status 1 if something is damaged.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image check disk.image")]
struct CheckArguments {
    /// Image to check
    #[arg(value_name = "FILE")]
    image: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Makes a damaged image usable and lists the losses
///
/// The map goes back to the last readable record. Blocks with wrong checksums are marked as lost: reads of them fail
/// until they are overwritten. Copy the image first: repair can't be undone.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image repair disk.image")]
struct RepairArguments {
    /// Image to repair
    #[arg(value_name = "FILE")]
    image: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Converts an image of an older version to the present one
///
/// Reads every block once to make its checksum. If the conversion is interrupted, the image is as it was.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image upgrade disk.image")]
struct UpgradeArguments {
    /// Image to convert
    #[arg(value_name = "FILE")]
    image: PathBuf,
}

/// Schema of the JSON.
const SCHEMA: &str = "chronodisk/image/1";
const SCHEMA_OF_CHECKS: &str = "chronodisk/image-check/1";

/// Executes the command.
pub fn execute(arguments: Arguments) -> Outcome {
    match arguments.command {
        ImageCommand::Info(arguments) => info(&arguments),
        ImageCommand::Check(arguments) => check(&arguments),
        ImageCommand::Repair(arguments) => repair(&arguments),
        ImageCommand::Upgrade(arguments) => upgrade(&arguments),
    }
}

fn info(arguments: &InfoArguments) -> Outcome {
    let devices = ImageInfo::read(&arguments.image)?;
    if arguments.json {
        output::data(&to_json(&arguments.image, &devices))?
    } else {
        output::data(&to_text(&devices))?
    }
    Ok(status::FINE)
}

fn check(arguments: &CheckArguments) -> Outcome {
    let found =
        with_progress("blocks read", |progress| chronodisk_squash::examine(&host(), &arguments.image, progress))?;
    show(&arguments.image, &found, arguments.json)?;
    Ok(if found.is_sound() { status::FINE } else { status::CHECK_FAILED })
}

fn repair(arguments: &RepairArguments) -> Outcome {
    let found =
        with_progress("blocks read", |progress| chronodisk_squash::repair(&host(), &arguments.image, progress))?;
    show(&arguments.image, &found, arguments.json)?;
    if !found.is_sound() || found.unchecked.is_some() {
        output::note("the image was repaired; the blocks listed as damaged or missing are lost");
    }
    Ok(status::FINE)
}

fn upgrade(arguments: &UpgradeArguments) -> Outcome {
    match with_progress("blocks read", |progress| chronodisk_squash::upgrade(&host(), &arguments.image, progress))? {
        true => output::note("the image was converted"),
        false => output::note("the image has the present version already"),
    }
    Ok(status::FINE)
}

fn host() -> Arc<dyn Host> {
    Arc::new(RealHost)
}

/// Shows a bar while blocks are read.
fn with_progress<T>(
    unit: &'static str,
    work: impl FnOnce(&mut dyn FnMut(u64, u64)) -> Result<T, StoreError>,
) -> Result<T, Failure> {
    let mut bar: Option<(crate::progress::Progress, u64)> = None;
    let done = work(&mut |done, total| {
        let (bar, shown) = bar.get_or_insert_with(|| (crate::progress::Progress::new(total, unit), 0));
        bar.advance(done - *shown);
        *shown = done;
    });
    if let Some((bar, _)) = bar {
        bar.finish();
    }
    Ok(done?)
}

fn show(path: &Path, found: &Examination, as_json: bool) -> Result<(), Failure> {
    if as_json {
        let devices: Vec<Value> = found.devices.iter().map(check_fields).collect();
        let value = json!({
            "schema": SCHEMA_OF_CHECKS,
            "image": path.to_string_lossy(),
            "version": found.version,
            "sound": found.is_sound(),
            "unchecked": found.unchecked,
            "devices": devices,
        });
        return output::data(&format!("{}\n", serde_json::to_string_pretty(&value).expect("plain data")));
    }
    let mut lines = Vec::new();
    if let Some(reason) = &found.unchecked {
        lines.push(format!("contents    not checked: {reason}"));
    }
    for (index, device) in found.devices.iter().enumerate() {
        if found.devices.len() > 1 {
            lines.push(format!("device {index} of {}", found.devices.len()));
        }
        lines.extend(check_lines(device));
    }
    lines.push(String::new());
    output::data(&lines.join("\n"))
}

fn check_fields(device: &DeviceExamination) -> Value {
    let damaged: Vec<Value> = device
        .damaged
        .iter()
        .map(|(first, count, class)| json!({ "first_block": first, "blocks": count, "class": class.name() }))
        .collect();
    json!({
        "map_error": device.map_error,
        "records_read": device.records.0,
        "records_committed": device.records.1,
        "kept_blocks": device.kept_blocks,
        "damaged": damaged,
        "lost_blocks": device.lost_blocks,
    })
}

fn check_lines(device: &DeviceExamination) -> Vec<String> {
    /// More would scroll away; --json has them all.
    const RANGES_SHOWN: usize = 20;
    let (read, committed) = device.records;
    let map = match &device.map_error {
        None => format!("{read} records, all there"),
        Some(reason) => format!("{read} records of {committed} can be read: {reason}"),
    };
    let damaged_blocks: u64 = device.damaged.iter().map(|range| range.1).sum();
    let mut lines = vec![
        format!("map         {map}"),
        format!("blocks      {} kept, {damaged_blocks} of them damaged", device.kept_blocks),
    ];
    for (first, count, class) in device.damaged.iter().take(RANGES_SHOWN) {
        lines.push(format!("  damaged   {count} from block {first} ({})", class.name()));
    }
    if device.damaged.len() > RANGES_SHOWN {
        lines.push(format!("  and {} ranges more; --json lists all", device.damaged.len() - RANGES_SHOWN));
    }
    if device.lost_blocks > 0 {
        lines.push(format!("lost        {} blocks since an earlier repair", device.lost_blocks));
    }
    lines
}

fn to_json(path: &Path, devices: &[ImageInfo]) -> String {
    let mut value = json!({ "schema": SCHEMA, "image": path.to_string_lossy() });
    let object = value.as_object_mut().expect("an object");
    match devices {
        [info] => object.extend(fields(info)),
        several => {
            let several = several.iter().map(|info| {
                let mut fields = fields(info);
                fields.insert("shared_bytes".to_owned(), json!(info.shared_bytes));
                Value::Object(fields)
            });
            object.insert("devices".to_owned(), several.collect());
        }
    }
    let mut text = serde_json::to_string_pretty(&value).expect("plain data");
    text.push('\n');
    text
}

fn fields(info: &ImageInfo) -> Map<String, Value> {
    let kept: Map<String, Value> =
        info.kept_bytes.iter().map(|(class, bytes)| (class.name().to_owned(), json!(bytes))).collect();
    let fields = json!({
        "version": info.version,
        "capacity_bytes": info.capacity_bytes,
        "mode": info.mode.name(),
        "content": info.content.name(),
        "seed": info.seed,
        "generation": info.generation,
        "kept_bytes": kept,
        "generated_bytes": info.generated_bytes,
        "zeroed_bytes": info.zeroed_bytes,
        "damaged_bytes": info.damaged_bytes,
        "stored_bytes": info.stored_bytes,
        "host_bytes": info.host_bytes,
        "savings": info.savings(),
    });
    let Value::Object(fields) = fields else { unreachable!("it was made as one") };
    fields
}

fn to_text(devices: &[ImageInfo]) -> String {
    let texts = devices.iter().zip(0..).map(|(info, index)| match devices.len() {
        1 => device_text(info),
        _ => {
            let shared = format!("shared      {:>20} bytes\n", info.shared_bytes);
            format!("device {index} of {}\n{}{shared}", devices.len(), device_text(info))
        }
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn device_text(info: &ImageInfo) -> String {
    let mut lines = vec![
        format!("device      {:>20} bytes", info.capacity_bytes),
        format!("mode        {:>20}", info.mode.name()),
        format!("content     {:>20}", format!("{} (seed {})", info.content.name(), info.seed)),
        format!("map         {:>20}", format!("generation {}", info.generation)),
    ];
    let kept: u64 = info.kept_bytes.iter().map(|(_, bytes)| bytes).sum();
    lines.push(format!("kept        {kept:>20} bytes"));
    for (class, bytes) in &info.kept_bytes {
        lines.push(format!("  {:<18}{bytes:>12} bytes", class.name()));
    }
    lines.push(format!("made up     {:>20} bytes", info.generated_bytes));
    lines.push(format!("zeros       {:>20} bytes", info.zeroed_bytes));
    if info.damaged_bytes > 0 {
        lines.push(format!("lost        {:>20} bytes", info.damaged_bytes));
    }
    lines.push(format!("stored      {:>20} bytes", info.stored_bytes));
    lines.push(format!("on the host {:>20} bytes", info.host_bytes));
    if let Some(savings) = info.savings() {
        lines.push(format!("savings     {:>20}", format!("{:.2} %", 100.0 * savings)));
    }
    lines.push(String::new());
    lines.join("\n")
}
