use super::*;
use crate::scsi::wire::{opcode, reserve_in};
use crate::scsi::{Command, LogicalUnit, Nexus, UnitDescription};

const KINDS: [Kind; 6] = [
    Kind::WriteExclusive,
    Kind::ExclusiveAccess,
    Kind::WriteExclusiveRegistrants,
    Kind::ExclusiveAccessRegistrants,
    Kind::WriteExclusiveAll,
    Kind::ExclusiveAccessAll,
];
const DONE: Result<Reserved, Sense> = Ok(Reserved::Done);
const CONFLICT: Result<Reserved, Sense> = Ok(Reserved::Conflict);

/// A unit with initiators whose ports are `a`, `b` and so on, and whose keys are 1, 2 and so on.
struct Disk {
    unit: LogicalUnit,
    initiators: Vec<Nexus>,
}

impl Disk {
    fn new() -> Self {
        let unit = LogicalUnit::new(UnitDescription::new("disk", 1 << 20));
        let initiators = ["a", "b", "c"].map(|name| unit.nexus(name)).into();
        Disk { unit, initiators }
    }

    /// All initiators have registered.
    fn registered() -> Self {
        let disk = Disk::new();
        for index in 0..disk.initiators.len() {
            assert_eq!(disk.out(index, reserve_out::REGISTER, 0, 0, index as u64 + 1), DONE);
        }
        disk
    }

    fn out(&self, from: usize, action: u8, kind: u8, own: u64, key: u64) -> Result<Reserved, Sense> {
        self.out_with(from, action, kind, own, key, 0)
    }

    fn out_with(&self, from: usize, action: u8, kind: u8, own: u64, key: u64, bits: u8) -> Result<Reserved, Sense> {
        let mut parameters = [0; PARAMETER_BYTES as usize];
        parameters[..8].copy_from_slice(&own.to_be_bytes());
        parameters[8..16].copy_from_slice(&key.to_be_bytes());
        parameters[20] = bits;
        let asked = ReserveOut { action, scope_and_type: kind, parameter_bytes: PARAMETER_BYTES };
        self.unit.reserve_out(&asked, &parameters, &self.initiators[from])
    }

    fn reserve(&self, from: usize, kind: Kind) -> Result<Reserved, Sense> {
        self.out(from, reserve_out::RESERVE, kind as u8, from as u64 + 1, 0)
    }

    /// The answer of `PERSISTENT RESERVE IN` without its header.
    fn report(&mut self, action: u8) -> Vec<u8> {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[7]) = (opcode::PERSISTENT_RESERVE_IN, action, 0xFF);
        let decoded = self.unit.decode(&cdb).unwrap();
        self.unit.answer(&decoded, &mut self.initiators[0]).unwrap().unwrap()[8..].to_vec()
    }

    fn keys(&mut self) -> Vec<u64> {
        self.report(reserve_in::READ_KEYS).chunks(8).map(number).collect()
    }

    /// Key and type of the reservation.
    fn reservation(&mut self) -> Option<(u64, u8)> {
        let answer = self.report(reserve_in::READ_RESERVATION);
        (!answer.is_empty()).then(|| (number(&answer[..8]), answer[13]))
    }

    fn generation(&self) -> u32 {
        self.unit.reservations().generation
    }

    fn told(&mut self, index: usize) -> Option<(u8, u8)> {
        self.unit.attention(&mut self.initiators[index]).map(|sense| sense.code)
    }

    /// Whether reading and writing are permitted.
    fn may(&self, index: usize) -> (bool, bool) {
        let admits = |opcode: u8| {
            let mut cdb = [0; 16];
            (cdb[0], cdb[8]) = (opcode, 1);
            let decoded = self.unit.decode(&cdb).unwrap();
            self.unit.admits(&decoded.command, &self.initiators[index])
        };
        (admits(opcode::READ_10), admits(opcode::WRITE_10))
    }
}

#[test]
fn registrations_change_only_with_their_key() {
    let mut disk = Disk::new();
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 7, 1), CONFLICT, "it has no key yet");
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 0, 0), DONE);
    assert_eq!((disk.keys(), disk.generation()), (vec![], 0), "nothing to do");
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 0, 1), DONE);
    assert_eq!(disk.out(1, reserve_out::REGISTER_AND_IGNORE, 0, 99, 2), DONE);
    assert_eq!((disk.keys(), disk.generation()), (vec![1, 2], 2));
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 2, 3), CONFLICT);
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 1, 3), DONE);
    assert_eq!(disk.out(1, reserve_out::REGISTER_AND_IGNORE, 0, 99, 4), DONE);
    assert_eq!((disk.keys(), disk.generation()), (vec![3, 4], 4));
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 3, 0), DONE);
    assert_eq!(disk.out(1, reserve_out::REGISTER_AND_IGNORE, 0, 0, 0), DONE);
    assert_eq!((disk.keys(), disk.generation()), (vec![], 6));
    for action in [reserve_out::RESERVE, reserve_out::RELEASE, reserve_out::CLEAR, reserve_out::PREEMPT] {
        assert_eq!(disk.out(0, action, 1, 0, 1), CONFLICT, "it is not registered");
    }
}

#[test]
fn parameters_that_are_not_supported_are_refused() {
    let disk = Disk::new();
    for bits in [8, 4, 1] {
        for action in [reserve_out::REGISTER, reserve_out::REGISTER_AND_IGNORE] {
            assert_eq!(disk.out_with(0, action, 0, 0, 1, bits), Err(Sense::in_parameters(20)));
        }
    }
    let asked = ReserveOut { action: reserve_out::REGISTER, scope_and_type: 0, parameter_bytes: 24 };
    let refused = Err(Sense::PARAMETER_LENGTH);
    assert_eq!(disk.unit.reserve_out(&asked, &[0; 23], &disk.initiators[0]), refused);
    let longer = ReserveOut { parameter_bytes: 28, ..asked };
    assert_eq!(disk.unit.reserve_out(&longer, &[0; 28], &disk.initiators[0]), refused);
    let disk = Disk::registered();
    for wrong in [0, 2, 4, 9, 0x11, 0xF1] {
        assert_eq!(disk.out(0, reserve_out::RESERVE, wrong, 1, 0), Err(Sense::in_command(2)));
    }
    assert_eq!(disk.out(0, reserve_out::PREEMPT, 1, 1, 0), Err(Sense::in_parameters(8)), "no key");
    for action in [reserve_out::REGISTER_AND_MOVE, 8, 31] {
        let cdb = [opcode::PERSISTENT_RESERVE_OUT, action, 1, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(disk.unit.decode(&cdb), Err(Sense::in_command(1)));
    }
}

#[test]
fn the_number_of_registrations_is_bounded() {
    let mut disk = Disk::new();
    disk.initiators = (0..=REGISTRATION_COUNT_MAX).map(|index| disk.unit.nexus(&index.to_string())).collect();
    for index in 0..REGISTRATION_COUNT_MAX {
        assert_eq!(disk.out(index, reserve_out::REGISTER, 0, 0, 5), DONE);
    }
    assert_eq!(disk.out(REGISTRATION_COUNT_MAX, reserve_out::REGISTER, 0, 0, 5), Err(Sense::NO_REGISTRATION));
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 5, 6), DONE, "a change of a key needs no room");
    assert_eq!(disk.keys().len(), REGISTRATION_COUNT_MAX);
}

#[test]
fn each_type_admits_its_initiators() {
    for kind in KINDS {
        let mut disk = Disk::registered();
        assert_eq!(disk.out(2, reserve_out::REGISTER, 0, 3, 0), DONE);
        assert_eq!(disk.reserve(0, kind), DONE);
        assert_eq!(disk.may(0), (true, true));
        let others = match kind {
            Kind::WriteExclusive => [(true, false), (true, false)],
            Kind::ExclusiveAccess => [(false, false), (false, false)],
            Kind::WriteExclusiveRegistrants | Kind::WriteExclusiveAll => [(true, true), (true, false)],
            Kind::ExclusiveAccessRegistrants | Kind::ExclusiveAccessAll => [(true, true), (false, false)],
        };
        assert_eq!([disk.may(1), disk.may(2)], others, "{kind:?}");
        let key = if kind.is_held_by_all() { 0 } else { 1 };
        assert_eq!((disk.reservation(), disk.generation()), (Some((key, kind as u8)), 4));
        // A new registrant holds a reservation of all registrants, too.
        assert_eq!(disk.out(2, reserve_out::REGISTER, 0, 0, 3), DONE);
        assert_eq!(disk.may(2), others[0], "{kind:?}");
    }
}

#[test]
fn a_reservation_is_repeated_only_by_a_holder_with_its_type() {
    for kind in KINDS {
        let disk = Disk::registered();
        assert_eq!(disk.reserve(0, kind), DONE);
        assert_eq!(disk.reserve(0, kind), DONE);
        assert_eq!(disk.reserve(1, kind), if kind.is_held_by_all() { DONE } else { CONFLICT });
        for other in KINDS.into_iter().filter(|other| *other != kind) {
            assert_eq!(disk.reserve(0, other), CONFLICT);
        }
    }
}

#[test]
fn a_release_tells_the_registrants_that_had_access() {
    for kind in KINDS {
        let mut disk = Disk::registered();
        assert_eq!(disk.out(0, reserve_out::RELEASE, kind as u8, 1, 0), DONE, "there is none");
        assert_eq!(disk.reserve(0, kind), DONE);
        let wrong = if kind == Kind::WriteExclusive { 3 } else { 1 };
        assert_eq!(disk.out(0, reserve_out::RELEASE, wrong, 1, 0), Err(Sense::INVALID_RELEASE));
        assert_eq!(disk.out(0, reserve_out::RELEASE, kind as u8, 2, 0), CONFLICT, "another key");
        let releaser = if kind.is_held_by_all() {
            1
        } else {
            assert_eq!(disk.out(1, reserve_out::RELEASE, kind as u8, 2, 0), DONE);
            assert!(disk.reservation().is_some(), "it is not the holder's");
            0
        };
        assert_eq!(disk.out(releaser, reserve_out::RELEASE, kind as u8, releaser as u64 + 1, 0), DONE);
        assert_eq!((disk.reservation(), disk.keys(), disk.generation()), (None, vec![1, 2, 3], 3));
        let notice = kind.admits_registrants().then_some((0x2A, 4));
        assert_eq!((disk.told(releaser), disk.told(2)), (None, notice), "{kind:?}");
        assert_eq!(disk.told(2), None, "once");
    }
}

#[test]
fn a_holder_that_leaves_ends_the_reservation() {
    for kind in KINDS {
        let mut disk = Disk::registered();
        assert_eq!(disk.reserve(0, kind), DONE);
        assert_eq!(disk.out(1, reserve_out::REGISTER, 0, 2, 0), DONE);
        assert!(disk.reservation().is_some());
        assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 1, 0), DONE);
        assert_eq!(disk.reservation().is_some(), kind.is_held_by_all(), "{kind:?}");
        let is_told = kind.admits_registrants() && !kind.is_held_by_all();
        assert_eq!((disk.told(1), disk.told(2)), (None, is_told.then_some((0x2A, 4))));
        assert_eq!(disk.out(2, reserve_out::REGISTER, 0, 3, 0), DONE);
        assert_eq!(disk.reservation(), None);
    }
}

#[test]
fn clearing_removes_everything_and_tells_the_others() {
    let mut disk = Disk::registered();
    assert_eq!(disk.reserve(0, Kind::ExclusiveAccess), DONE);
    assert_eq!(disk.out(1, reserve_out::CLEAR, 0, 1, 0), CONFLICT);
    assert_eq!(disk.out(1, reserve_out::CLEAR, 0, 2, 0), DONE);
    assert_eq!((disk.reservation(), disk.keys(), disk.generation()), (None, vec![], 4));
    assert_eq!([disk.told(0), disk.told(1), disk.told(2)], [Some((0x2A, 3)), None, Some((0x2A, 3))]);
}

#[test]
fn preempting_a_holder_takes_its_reservation_over() {
    for (action, aborts) in [(reserve_out::PREEMPT, 0), (reserve_out::PREEMPT_AND_ABORT, 1)] {
        for (new, told) in [(Kind::WriteExclusive, None), (Kind::ExclusiveAccess, Some((0x2A, 4)))] {
            let mut disk = Disk::registered();
            assert_eq!(disk.reserve(0, Kind::WriteExclusive), DONE);
            assert_eq!(disk.out(1, action, 2, 2, 1), Err(Sense::in_command(2)), "no type");
            assert_eq!(disk.keys(), [1, 2, 3], "nothing has changed");
            assert_eq!(disk.out(1, action, new as u8, 2, 1), DONE);
            assert_eq!(disk.reservation(), Some((2, new as u8)));
            assert_eq!((disk.keys(), disk.generation()), (vec![2, 3], 4));
            assert_eq!([disk.told(0), disk.told(1), disk.told(2)], [Some((0x2A, 5)), None, told]);
            let counts = [0, 1, 2].map(|index| disk.unit.aborts(&disk.initiators[index]));
            assert_eq!(counts, [aborts, 0, 0]);
        }
    }
}

#[test]
fn preempting_others_removes_their_registrations_alone() {
    let mut disk = Disk::registered();
    assert_eq!(disk.out(2, reserve_out::REGISTER, 0, 3, 2), DONE, "two have the key");
    assert_eq!(disk.reserve(0, Kind::WriteExclusiveRegistrants), DONE);
    assert_eq!(disk.out(0, reserve_out::PREEMPT, 1, 1, 9), CONFLICT, "nobody has the key");
    assert_eq!(disk.out(0, reserve_out::PREEMPT, 1, 1, 2), DONE);
    assert_eq!((disk.keys(), disk.reservation()), (vec![1], Some((1, 5))));
    assert_eq!([disk.told(0), disk.told(1), disk.told(2)], [None, Some((0x2A, 5)), Some((0x2A, 5))]);
    // The holder's own key changes the type.
    assert_eq!(disk.out(0, reserve_out::PREEMPT, 3, 1, 1), DONE);
    assert_eq!((disk.keys(), disk.reservation()), (vec![1], Some((1, 3))));
}

#[test]
fn a_reservation_of_all_registrants_is_preempted_without_a_key() {
    let mut disk = Disk::registered();
    assert_eq!(disk.reserve(0, Kind::WriteExclusiveAll), DONE);
    assert_eq!(disk.out(1, reserve_out::PREEMPT, 3, 2, 3), DONE, "a registration alone");
    assert_eq!((disk.keys(), disk.reservation()), (vec![1, 2], Some((0, 7))));
    assert_eq!(disk.out(1, reserve_out::PREEMPT, 3, 2, 0), DONE);
    assert_eq!((disk.keys(), disk.reservation()), (vec![2], Some((2, 3))));
    assert_eq!([disk.told(0), disk.told(1), disk.told(2)], [Some((0x2A, 5)), None, Some((0x2A, 5))]);
    // The last registrant removes itself.
    let mut disk = Disk::new();
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 0, 1), DONE);
    assert_eq!(disk.reserve(0, Kind::ExclusiveAccessAll), DONE);
    assert_eq!(disk.out(0, reserve_out::PREEMPT, 3, 1, 1), DONE);
    assert_eq!((disk.keys(), disk.reservation()), (vec![], None));
}

#[test]
fn registrations_outlive_sessions_and_resets() {
    let mut disk = Disk::registered();
    assert_eq!(disk.reserve(1, Kind::ExclusiveAccess), DONE);
    disk.unit.end_session(&disk.initiators[1]);
    disk.initiators[1] = disk.unit.nexus("b");
    disk.unit.reset();
    assert_eq!((disk.keys(), disk.reservation()), (vec![1, 2, 3], Some((2, 3))));
    assert_eq!((disk.may(0), disk.may(1)), ((false, false), (true, true)));
}

#[test]
fn reports_name_the_ports_and_the_capabilities() {
    let mut disk = Disk::new();
    let name = "iqn.2026-11.org.example:host,i,0x00023d000001";
    disk.initiators[0] = disk.unit.nexus(name);
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 0, 0x1234), DONE);
    assert_eq!(disk.out(1, reserve_out::REGISTER, 0, 0, 2), DONE);
    assert_eq!(disk.reserve(1, Kind::WriteExclusive), DONE);
    let status = disk.report(reserve_in::READ_FULL_STATUS);
    let first_bytes = 24 + number(&status[20..24]) as usize;
    let (first, second) = status.split_at(first_bytes);
    assert_eq!((number(&first[..8]), first[12], number(&first[18..20])), (0x1234, 0, 1));
    assert_eq!((&first[24..28], first.len() % 4), (&[0x45, 0, 0, 48][..], 0));
    assert_eq!(first[28..].strip_suffix(&[0; 3]), Some(name.as_bytes()));
    assert_eq!((second[12], second[13], second.len()), (1, 1, 24 + 4 + 20));
    let capabilities = disk.unit.reservations().report(reserve_in::REPORT_CAPABILITIES);
    assert_eq!(capabilities, [0, 8, 0, 0x80, 0xEA, 1, 0, 0]);
}

#[test]
fn reserve_6_keeps_others_out_until_its_end() {
    let take = |disk: &Disk, index: usize| disk.unit.reserve_6(&Command::Reserve, &disk.initiators[index]);
    let give = |disk: &Disk, index: usize| disk.unit.reserve_6(&Command::Release, &disk.initiators[index]);
    let mut disk = Disk::new();
    assert_eq!(take(&disk, 0), Some(Reserved::Done));
    assert_eq!((take(&disk, 0), take(&disk, 1)), (Some(Reserved::Done), Some(Reserved::Conflict)));
    assert_eq!((disk.may(0), disk.may(1)), ((true, true), (false, false)));
    assert_eq!(give(&disk, 1), Some(Reserved::Done), "without an effect");
    assert_eq!(disk.out(0, reserve_out::REGISTER, 0, 0, 1), CONFLICT);
    assert_eq!(disk.may(1), (false, false));
    assert_eq!(give(&disk, 0), Some(Reserved::Done));
    assert_eq!(disk.may(1), (true, true));
    // A reset, the end of the session, and its loss.
    assert_eq!(take(&disk, 0), Some(Reserved::Done));
    disk.unit.reset();
    assert_eq!(take(&disk, 1), Some(Reserved::Done));
    disk.unit.end_session(&disk.initiators[0]);
    assert_eq!(disk.may(0), (false, false), "another session's end");
    disk.unit.end_session(&disk.initiators[1]);
    assert_eq!(take(&disk, 0), Some(Reserved::Done));
    disk.initiators[0] = disk.unit.nexus("a");
    assert_eq!(disk.may(1), (true, true));
    assert_eq!(disk.out(1, reserve_out::REGISTER, 0, 0, 1), DONE);
    assert_eq!((take(&disk, 0), give(&disk, 1)), (Some(Reserved::Conflict), Some(Reserved::Conflict)));
}

/// SPC-4, table 68, and SBC-3, table 13; SPC-2, table 9.
#[test]
fn commands_have_the_access_of_the_standards_tables() {
    let unit = LogicalUnit::new(UnitDescription::new("disk", 1 << 20));
    let access = |cdb: &[u8]| {
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        unit.decode(&padded).unwrap().command.access()
    };
    for (cdb, expected) in [
        (&[0x00][..], Access::AnyPersistent),
        (&[0x03], Access::Any),
        (&[0x12], Access::Any),
        (&[0xA0], Access::Any),
        (&[0x25], Access::Any),
        (&[0x9E, 0x10], Access::Any),
        (&[0x1B, 0, 0, 0, 1], Access::Any),
        (&[0x1B], Access::Write),
        (&[0x15, 0x10], Access::Write),
        (&[0x55, 0x10], Access::Write),
        (&[0x1A, 0, 8], Access::Read),
        (&[0x5A, 0, 8], Access::Read),
        (&[0xA3, 0x0C], Access::Read),
        (&[0x08], Access::Read),
        (&[0x88], Access::Read),
        (&[0x2F], Access::Read),
        (&[0x0A], Access::Write),
        (&[0x8A], Access::Write),
        (&[0x41, 0, 0, 0, 0, 0, 0, 0, 1], Access::Write),
        (&[0x42], Access::Write),
        (&[0x35], Access::Write),
        (&[0x5E, 3], Access::Reservations),
        (&[0x5F, 5], Access::Reservations),
    ] {
        assert_eq!(access(cdb), expected, "{cdb:02x?}");
    }
    // A unit that is reserved permits these to others.
    let (holder, other) = (unit.nexus("a"), unit.nexus("b"));
    assert_eq!(unit.reserve_6(&Command::Reserve, &holder), Some(Reserved::Done));
    let admits = |cdb: [u8; 2], nexus: &Nexus| {
        let mut padded = [0; 16];
        padded[..2].copy_from_slice(&cdb);
        unit.admits(&unit.decode(&padded).unwrap().command, nexus)
    };
    assert_eq!([[0x12, 0], [0x25, 0], [0x00, 0], [0x5E, 0]].map(|cdb| admits(cdb, &other)), [true, true, false, false]);
    assert_eq!([[0x12, 0], [0x00, 0], [0x5E, 0]].map(|cdb| admits(cdb, &holder)), [true, true, false]);
}
