//! Profiles that name others as their members.
//!
//! A member is named like any profile: by a built-in name, or by a path relative to the directory of the profile's own
//! file. A run's record must suffice to repeat it on a machine without these files. So the text of such a profile
//! carries the texts of its members, as an array of tables at its end:
//!
//! ```toml
//! [[member-profile]]
//! name = "first-disk"      # as the profile names its member
//! profile = """
//! name = "first-disk"
//! ..."""
//! ```
//!
//! A carried member is taken only from there. A text without a file, such as a recorded one, can't name paths. Nesting,
//! the number of profiles read and the total length are bounded.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::{MAX_TEXT_BYTES, Profile, builtin};
use crate::fields::{Fields, ProfileError, toml_string};
use crate::models::blueprint::{Design, FindMembers};
use crate::quantity::Bytes;

/// Origin of a text, which determines where its members are searched.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    /// Directory of its file, if it has one.
    directory: Option<&'a Path>,
    /// Profiles around this one.
    depth: u32,
    /// Number of members that may still be read, in total.
    budget: &'a Cell<u32>,
}

impl<'a> Origin<'a> {
    /// A profile that is no member of another.
    pub(super) fn outermost(directory: Option<&'a Path>, budget: &'a Cell<u32>) -> Self {
        Origin { directory, depth: 0, budget }
    }
}

/// Most levels of profiles within profiles below the outermost.
pub(super) const MAX_DEPTH: u32 = 4;

/// Most members' profiles that are read for one profile.
pub(super) const MAX_PROFILES: u32 = 256;

/// Extent of a profile's members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Nesting {
    /// Levels of profiles below it.
    pub(super) levels: u32,
    /// Profiles that are read for it.
    pub(super) profiles: u32,
}

impl Nesting {
    /// Nesting of a profile around a member with this nesting.
    pub(super) fn around(self) -> Self {
        Nesting { levels: self.levels + 1, profiles: self.profiles + 1 }
    }
}

/// Finds a profile's members and collects the texts to carry.
pub(super) struct MemberProfiles<'a> {
    origin: Origin<'a>,
    carried: Vec<Carried>,
    found: Vec<(String, Arc<Design>)>,
    nesting: Nesting,
    /// Text to append to the profile's.
    appended: String,
}

struct Carried {
    name: String,
    text: String,
    used: bool,
}

impl FindMembers for MemberProfiles<'_> {
    fn one(&mut self, fields: &mut Fields<'_>, key: &'static str) -> Result<Arc<Design>, ProfileError> {
        let name = fields.text(key)?;
        self.find(fields, key, &name)
    }

    fn several(&mut self, fields: &mut Fields<'_>, most: usize) -> Result<Vec<Arc<Design>>, ProfileError> {
        let names = fields.texts("members", most)?;
        match (names.as_slice(), fields.has("member")) {
            ([_, ..], true) => Err(fields.error_at("member", "there are `members` already")),
            (names @ [_, ..], false) => names.iter().map(|name| self.find(fields, "members", name)).collect(),
            ([], true) => {
                let member = self.one(fields, "member")?;
                // `members` may stand for both.
                fields.amend(|asked| asked.is_required = false);
                let count = fields.count("count", 1..=u32::try_from(most).unwrap_or(u32::MAX))?;
                fields.amend(|asked| asked.is_required = false);
                Ok(vec![member; count as usize])
            }
            ([], false) => Err(fields.error("expected `members = [..]`, or `member` and `count`")),
        }
    }

    fn listed(
        &mut self,
        fields: &mut Fields<'_>,
        key: &'static str,
        most: usize,
    ) -> Result<Vec<Arc<Design>>, ProfileError> {
        fields.texts(key, most)?.iter().map(|name| self.find(fields, key, name)).collect()
    }
}

impl<'a> MemberProfiles<'a> {
    /// Reads the members that the profile carries.
    pub(super) fn new(fields: &mut Fields<'_>, origin: Origin<'a>) -> Result<Self, ProfileError> {
        let mut carried = Vec::new();
        for mut table in fields.tables_or_none("member-profile", MAX_PROFILES as usize)? {
            carried.push(Carried { name: table.text("name")?, text: table.text("profile")?, used: false });
            table.finish()?;
        }
        let (found, nesting, appended) = (Vec::new(), Nesting::default(), String::new());
        Ok(MemberProfiles { origin, carried, found, nesting, appended })
    }

    /// Ends the search and returns the text to append.
    pub(super) fn finish(self, fields: &mut Fields<'_>) -> Result<Nesting, ProfileError> {
        if let Some(unused) = self.carried.iter().find(|carried| !carried.used) {
            let name: String = unused.name.chars().take(64).collect();
            return Err(fields.error_at("member-profile", format!("no member is called \"{name}\"")));
        }
        fields.append_to_text(&self.appended);
        Ok(self.nesting)
    }

    fn find(&mut self, fields: &Fields<'_>, key: &str, name: &str) -> Result<Arc<Design>, ProfileError> {
        if let Some((_, design)) = self.found.iter().find(|(known, _)| known == name) {
            return Ok(Arc::clone(design));
        }
        let origin = self.origin;
        if origin.depth >= MAX_DEPTH {
            return Err(fields.error_at(key, format!("more than {MAX_DEPTH} profiles within each other")));
        }
        if origin.budget.get() == 0 {
            return Err(fields.error_at(key, format!("more than {MAX_PROFILES} members' profiles")));
        }
        origin.budget.set(origin.budget.get() - 1);
        let profile = self.read(fields, origin, key, name)?;
        let design = Arc::clone(&profile.0.design);
        check(name, &design).map_err(|problem| fields.error_at(key, problem))?;
        let below = profile.0.nesting.around();
        self.nesting.levels = self.nesting.levels.max(below.levels);
        self.nesting.profiles += below.profiles;
        self.found.push((name.to_owned(), Arc::clone(&design)));
        Ok(design)
    }

    fn read(
        &mut self,
        fields: &Fields<'_>,
        origin: Origin<'_>,
        key: &str,
        name: &str,
    ) -> Result<Profile, ProfileError> {
        let within = Origin { directory: None, depth: origin.depth + 1, budget: origin.budget };
        if let Some(carried) = self.carried.iter_mut().find(|carried| carried.name == name) {
            carried.used = true;
            let label = format!("{}, member-profile {name}", fields.file());
            return Profile::parse_from(&carried.text, &label, within, None);
        }
        let profile = if Profile::is_path(name) {
            let Some(directory) = origin.directory else {
                let problem = format!("\"{name}\" is a path, but this profile is in no file; expected a built-in name");
                return Err(fields.error_at(key, problem));
            };
            let path = directory.join(name);
            Profile::read(&path, &path.to_string_lossy(), |directory| Origin { directory, ..within })?
        } else {
            let source = builtin::source(name)
                .ok_or_else(|| builtin::no_such(name))
                .map_err(|error| ProfileError { help: error.help, ..fields.error_at(key, error.message) })?;
            Profile::parse_from(&source.text, &source.label, within, None)?
        };
        self.append(fields, name, profile.text())?;
        Ok(profile)
    }

    fn append(&mut self, fields: &Fields<'_>, name: &str, text: &str) -> Result<(), ProfileError> {
        self.appended.push_str(&carry(name, text));
        if self.appended.len() + fields.text_bytes() > MAX_TEXT_BYTES {
            let limit = Bytes(MAX_TEXT_BYTES as u64);
            return Err(fields.error(format!("longer than {limit} with its members, the most that a profile may have")));
        }
        Ok(())
    }
}

/// Checks whether a device can be a member.
pub(super) fn check(name: &str, design: &Design) -> Result<(), String> {
    match design.info().zones {
        None => Ok(()),
        Some(_) => Err(format!("{name} has zones, and no device knows how to write a member's zones")),
    }
}

/// A member as the text of the profile around it carries it.
pub(super) fn carry(name: &str, text: &str) -> String {
    format!("\n[[member-profile]]\nname = {}\nprofile = {}\n", toml_string(name), toml_string(text))
}

#[cfg(test)]
mod tests;
