//! Choice of the copy that a mirrored array reads.

use super::layout::{MemberSector, MemberSet};

/// Rule for choosing one of several copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPolicy {
    /// As Linux's `read_balance` (`drivers/md/raid1.c`): a member in the middle of a sequential read, or with its head
    /// there, continues; else an idle member; else, if all copies are on disks, the one with the nearest head by
    /// address; else the one with the fewest outstanding requests.
    Nearest,
    /// Each copy in turn.
    RoundRobin,
    /// The member with the fewest requests outstanding.
    FewestOutstanding,
    /// The first available copy.
    Primary,
}

/// State of the members for the policies.
#[derive(Clone, Debug)]
pub(crate) struct Balance {
    policy: ReadPolicy,
    rotational: MemberSet,
    members: Vec<Known>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Pieces of requests submitted and not yet answered.
    pending: u32,
    /// End of the last completed request.
    head: u64,
    /// End of the last read submitted to it.
    next_sequential: Option<u64>,
    /// Index of the next copy in turn, among those that begin here.
    turn: usize,
}

impl Balance {
    pub(crate) fn new(policy: ReadPolicy, members: usize, rotational: MemberSet) -> Self {
        Balance { policy, rotational, members: vec![Known::default(); members] }
    }

    /// Chooses among at least one place for a read of `sectors`; equals go to the earlier one.
    pub(crate) fn choose(
        &mut self,
        places: impl Iterator<Item = MemberSector> + Clone,
        sectors: u64,
    ) -> Option<MemberSector> {
        let chosen = match self.policy {
            ReadPolicy::Primary => places.clone().next(),
            ReadPolicy::FewestOutstanding => places.min_by_key(|place| self.members[place.member].pending),
            ReadPolicy::RoundRobin => {
                let count = places.clone().count().max(1);
                let turn = &mut self.members[places.clone().next()?.member].turn;
                *turn = (*turn + 1) % count;
                places.clone().nth(*turn)
            }
            ReadPolicy::Nearest => self.nearest(places),
        }?;
        self.members[chosen.member].next_sequential = Some(chosen.sector + sectors);
        Some(chosen)
    }

    fn nearest(&self, places: impl Iterator<Item = MemberSector> + Clone) -> Option<MemberSector> {
        let known = |place: &MemberSector| &self.members[place.member];
        let distance = |place: &MemberSector| known(place).head.abs_diff(place.sector);
        let goes_on = |place: &MemberSector| known(place).next_sequential == Some(place.sector) || distance(place) == 0;
        if let Some(place) = places.clone().find(goes_on) {
            return Some(place);
        }
        let idlest = places.clone().min_by_key(|place| known(place).pending)?;
        let solid = places.clone().any(|place| !self.rotational.contains(place.member));
        if solid || known(&idlest).pending == 0 { Some(idlest) } else { places.min_by_key(distance) }
    }

    /// `pieces` were given to a member.
    pub(crate) fn given(&mut self, member: usize, pieces: u32) {
        self.members[member].pending += pieces;
    }

    /// A member has answered for `pieces` that end at `end`, if they have a place.
    pub(crate) fn answered(&mut self, member: usize, pieces: u32, end: Option<u64>) {
        let known = &mut self.members[member];
        known.pending -= pieces;
        known.head = end.unwrap_or(known.head);
    }
}
