//! `chronodisk image`: what squashed images hold.

use std::path::{Path, PathBuf};

use chronodisk_store::StoreError;
use chronodisk_store::squash::ImageInfo;
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::failure::{Failure, Outcome, status};
use crate::output;

/// Inspects images made by --squash
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image info disk.image")]
pub struct Arguments {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    Info(InfoArguments),
}

/// Shows what an image stores, by class, and how much space it saves
///
/// Reads and checks the whole map. A damaged image is refused with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Example: chronodisk image info disk.image")]
struct InfoArguments {
    /// Reads this image, and its map beside it: FILE.map, or FILE.0.map, FILE.1.map and so on for several devices
    #[arg(value_name = "FILE")]
    image: PathBuf,

    /// Prints the result as JSON on standard output
    #[arg(long)]
    json: bool,
}

/// Schema of the JSON.
const SCHEMA: &str = "chronodisk/image/1";

/// Does what was asked.
pub fn execute(arguments: Arguments) -> Outcome {
    let ImageCommand::Info(arguments) = arguments.command;
    let devices = ImageInfo::read(&arguments.image).map_err(|error| match error {
        StoreError::Io { .. } => Failure::host(error),
        error => Failure::usage(error),
    })?;
    if arguments.json {
        output::data(&to_json(&arguments.image, &devices))?
    } else {
        output::data(&to_text(&devices))?
    }
    Ok(status::FINE)
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
        "capacity_bytes": info.capacity_bytes,
        "mode": info.mode.name(),
        "content": info.content.name(),
        "seed": info.seed,
        "generation": info.generation,
        "kept_bytes": kept,
        "generated_bytes": info.generated_bytes,
        "zeroed_bytes": info.zeroed_bytes,
        "stored_bytes": info.stored_bytes,
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
    lines.push(format!("takes here  {:>20} bytes", info.stored_bytes));
    if let Some(savings) = info.savings() {
        lines.push(format!("savings     {:>20}", format!("{:.2} %", 100.0 * savings)));
    }
    lines.push(String::new());
    lines.join("\n")
}
