//! `chronodisk image`: an old image is converted, damage is found and told, and a repaired image goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// An image of version 1 in a folder of its own; `tests/images/README.md` of the store's crate describes its content.
fn old_image(folder: &Path) -> PathBuf {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../chronodisk-squash/tests/images");
    let path = folder.join("image");
    fs::copy(images.join("version-1"), &path).unwrap();
    fs::copy(images.join("version-1.map"), folder.join("image.map")).unwrap();
    path
}

fn image(command: &str, path: &Path, more: &[&str]) -> Output {
    let call = Command::new(env!("CARGO_BIN_EXE_chronodisk")).arg("image").arg(command).arg(path).args(more).output();
    call.unwrap()
}

/// Serves the image without a client.
fn serve(path: &Path, squash: &str) -> Output {
    let folder = path.parent().unwrap().join("run");
    let mut call = Command::new(env!("CARGO_BIN_EXE_chronodisk"));
    call.args(["serve", "--device", "null", "--capacity", "4MiB", squash, "--nbd", "0", "--run", "true"]);
    call.arg("--store").arg(path).arg("--output").arg(&folder);
    let output = call.output().unwrap();
    let _ = fs::remove_dir_all(folder);
    output
}

fn status(output: &Output) -> i32 {
    output.status.code().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn json(command: &str, path: &Path) -> Value {
    serde_json::from_slice(&image(command, path, &["--json"]).stdout).unwrap()
}

#[test]
fn an_old_image_is_converted_and_damage_is_found_told_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = old_image(folder.path());
    assert_eq!(json("info", &path)["version"], 1);
    let served = serve(&path, "--squash=exact");
    assert_eq!(status(&served), 2);
    assert!(said(&served).contains("chronodisk image upgrade"), "{}", said(&served));

    let upgraded = image("upgrade", &path, &[]);
    assert_eq!(status(&upgraded), 0, "{}", said(&upgraded));
    assert_eq!(json("info", &path)["version"], 3);
    assert_eq!(status(&serve(&path, "--squash=exact")), 0);
    let contradicted = serve(&path, "--squash");
    assert_eq!(status(&contradicted), 2);
    assert!(said(&contradicted).contains("type --squash=exact"), "{}", said(&contradicted));
    let checked = image("check", &path, &[]);
    assert_eq!(status(&checked), 0, "{}", said(&checked));
    assert!(said(&checked).contains("0 of them damaged"), "{}", said(&checked));

    let mut bytes = fs::read(&path).unwrap();
    bytes[4096] ^= 1;
    fs::write(&path, bytes).unwrap();
    let checked = image("check", &path, &[]);
    assert_eq!(status(&checked), 1, "{}", said(&checked));
    assert!(
        said(&checked).contains("1 of them damaged") && said(&checked).contains("from block"),
        "{}",
        said(&checked)
    );
    let repaired = image("repair", &path, &[]);
    assert_eq!(status(&repaired), 0, "{}", said(&repaired));
    assert_eq!(json("info", &path)["damaged_bytes"], 4096);
    let checked = json("check", &path);
    assert_eq!((&checked["sound"], &checked["devices"][0]["lost_blocks"]), (&true.into(), &1.into()));
}

#[test]
fn a_map_that_lost_records_is_refused_with_what_to_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = old_image(folder.path());
    assert_eq!(status(&image("upgrade", &path, &[])), 0);
    let map = folder.path().join("image.map");
    let bytes = fs::read(&map).unwrap();
    fs::write(&map, &bytes[..bytes.len() / 2]).unwrap();
    let refused = image("info", &path, &[]);
    assert_eq!(status(&refused), 2);
    assert!(said(&refused).contains("was committed"), "{}", said(&refused));
    assert!(said(&refused).contains("image repair"), "{}", said(&refused));
    assert_eq!(status(&image("check", &path, &[])), 1);
    assert_eq!(status(&image("repair", &path, &[])), 0);
    assert_eq!(status(&image("info", &path, &[])), 0);
}
