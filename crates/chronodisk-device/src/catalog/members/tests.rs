//! Profiles that name others.

use std::fs;
use std::path::PathBuf;

use super::super::Profile;
use crate::BuildOptions;

fn mirror(keys: &str) -> String {
    format!(
        "name = \"m\"\nkind = \"array\"\ndescription = \"d\"\nsource = \"s\"\nvalidation = \"unvalidated\"\n\
         level = \"raid1\"\n{keys}"
    )
}

/// A directory that is removed in the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("chronodisk-members-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("parts")).unwrap();
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mistake(text: &str) -> String {
    Profile::parse(text, "test").unwrap_err().to_string()
}

#[test]
fn the_text_carries_its_members_and_gives_the_device_again() {
    let profile = Profile::parse(&mirror("members = [\"first-disk\", \"wu-tsai-ch2-x1\"]"), "test").unwrap();
    assert_eq!(profile.text().matches("[[member-profile]]").count(), 2);
    let again = Profile::parse(profile.text(), "again").unwrap();
    assert_eq!(again.text(), profile.text(), "there is nothing to add");
    assert_eq!(again.capacity_bytes(), profile.capacity_bytes());
    let info = |profile: &Profile| profile.build(&BuildOptions::default()).unwrap().info().clone();
    assert_eq!(info(&again), info(&profile));
}

#[test]
fn paths_are_relative_to_the_file_and_not_needed_afterwards() {
    let directory = Directory::new("paths");
    let part = Profile::find("constant-1ms").unwrap().text().replace("constant-1ms", "part");
    directory.write("parts/part.toml", &part);
    let pair = mirror("member = \"part.toml\"\ncount = 2").replace("\"m\"", "\"pair\"");
    directory.write("parts/pair.toml", &pair);
    let whole = directory.write("whole.toml", &mirror("members = [\"parts/pair.toml\", \"parts/part.toml\"]"));
    let profile = Profile::find(&whole).unwrap();
    drop(directory);
    let again = Profile::parse(profile.text(), "recorded").unwrap();
    assert_eq!(again.text(), profile.text());
    again.build(&BuildOptions::default()).unwrap();
}

#[test]
fn mistakes_in_members_are_told_where_they_are() {
    let directory = Directory::new("mistakes");
    let part = directory.write("parts/part.toml", "name = \"part\"\nkind = \"constant\"\n");
    let whole = directory.write("whole.toml", &mirror("member = \"parts/part.toml\"\ncount = 2"));
    let error = Profile::find(&whole).unwrap_err();
    assert_eq!(error.file, part);
    let error = Profile::find(&directory.write("none.toml", &mirror("members = [\"nowhere.toml\"]"))).unwrap_err();
    assert!(error.file.ends_with("nowhere.toml") && error.message.contains("can't read"), "{error}");
    let itself = directory.write("itself.toml", &mirror("members = [\"itself.toml\"]"));
    assert!(Profile::find(&itself).unwrap_err().message.contains("within each other"));
    let error = Profile::parse(&mirror("members = [\"frist-disk\"]"), "test").unwrap_err();
    assert_eq!((error.line, error.help.as_deref()), (Some(7), Some("did you mean first-disk?")));
}

#[test]
fn a_text_without_a_file_names_no_paths() {
    assert!(mistake(&mirror("members = [\"/dev/zero\"]")).contains("in no file"));
    assert!(mistake(&mirror("members = [\"parts/x.toml\"]")).contains("in no file"));
}

#[test]
fn what_is_carried_is_checked_too() {
    let carried =
        |text: &str| mirror(&format!("members = [\"x\"]\n[[member-profile]]\nname = \"x\"\nprofile = {text}\n"));
    assert!(mistake(&carried("'''nonsense'''")).contains("member-profile x:1:"));
    let null = Profile::find("null").unwrap();
    let sound = format!("'''\n{}'''", null.text());
    assert!(Profile::parse(&carried(&sound), "test").is_ok());
    let unused = format!("{}[[member-profile]]\nname = \"y\"\nprofile = {sound}\n", carried(&sound));
    assert!(mistake(&unused).contains("no member is called \"y\""));
    assert!(mistake(&mirror("member = \"null\"\nmembers = [\"null\"]")).contains("already"));
}

#[test]
fn members_together_are_bounded() {
    // Comments count: sixteen different profiles of 100 kB are longer than a profile may be.
    let part = format!("{}\n# {}\n", Profile::find("null").unwrap().text(), "x".repeat(100_000));
    let directory = Directory::new("bounded");
    let names: Vec<String> = (0..16).map(|number| format!("parts/{number}.toml")).collect();
    names.iter().for_each(|name| {
        directory.write(name, &part);
    });
    let whole = directory.write("whole.toml", &mirror(&format!("members = {names:?}")));
    assert!(Profile::find(&whole).unwrap_err().message.contains("with its members"));
}
