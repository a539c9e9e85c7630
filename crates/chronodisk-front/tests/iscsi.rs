//! The iSCSI session with a mock initiator.

use std::sync::Arc;

use chronodisk_front::iscsi::mock::{MockInitiator, Pdu, transfer};
use chronodisk_front::iscsi::wire::{Header, function, login_status, opcode, stage};
use chronodisk_front::iscsi::{Credentials, Event, IscsiTarget, Reason, Violation, WINDOW_COUNT, target_name};
use chronodisk_front::scsi::wire::{opcode as scsi, status};
use chronodisk_front::scsi::{LogicalUnit, UnitDescription};
use chronodisk_sim::{Op, Priority, Status};
use chronodisk_store::RamStore;

const CAPACITY_BYTES: u64 = 4 << 20;
const FINAL: u8 = 0x80;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const SIMPLE: u8 = 1;
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;

fn target() -> Arc<IscsiTarget> {
    let unit = LogicalUnit::new(UnitDescription::new("disk", CAPACITY_BYTES));
    Arc::new(IscsiTarget::new(target_name("disk"), unit, None))
}

fn store() -> Box<RamStore> {
    Box::new(RamStore::new(CAPACITY_BYTES, 2 * CAPACITY_BYTES))
}

fn initiator(parameters: &[(&str, &str)]) -> MockInitiator {
    MockInitiator::logged_in(target(), store(), parameters)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

fn text(pdu: &Pdu) -> String {
    String::from_utf8(pdu.data.clone()).unwrap().replace('\0', " ")
}

fn login_status(pdu: &Pdu) -> u16 {
    u16::from_be_bytes([pdu.header.0[36], pdu.header.0[37]])
}

#[test]
fn parameters_are_negotiated_and_unknown_ones_are_not_understood() {
    let mut initiator = MockInitiator::new(target(), store());
    let name = target_name("disk");
    let names = [("InitiatorName", "iqn.2026-11.org.example:i"), ("SessionType", "Normal"), ("TargetName", &name)];
    let security =
        initiator.log_in(stage::SECURITY, stage::OPERATIONAL, &[&names[..], &[("AuthMethod", "None")]].concat());
    assert_eq!((login_status(&security), security.header.0[1]), (0, 0x81));
    assert_eq!(text(&security), "TargetPortalGroupTag=1 AuthMethod=None ");
    let offered = [
        ("HeaderDigest", "CRC32C,None"),
        ("DataDigest", "X-sum,None"),
        ("InitialR2T", "No"),
        ("MaxBurstLength", "16776192"),
        ("FirstBurstLength", "262144"),
        ("MaxConnections", "8"),
        ("ErrorRecoveryLevel", "2"),
        ("IFMarker", "No"),
        ("X-org.example", "1"),
        ("MaxOutstandingR2T", "many"),
    ];
    let last = initiator.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &offered);
    assert_eq!((login_status(&last), last.header.0[1]), (0, 0x87));
    assert_ne!(last.header.0[14..16], [0, 0], "a session has a handle");
    assert_eq!(
        text(&last),
        "HeaderDigest=CRC32C DataDigest=None InitialR2T=No MaxBurstLength=1048576 FirstBurstLength=131072 \
         MaxConnections=1 ErrorRecoveryLevel=0 IFMarker=No X-org.example=NotUnderstood MaxOutstandingR2T=Reject \
         MaxRecvDataSegmentLength=131072 "
    );
    assert_eq!(initiator.events, [Event::LoggedIn { is_discovery: false }]);
}

#[test]
fn wrong_logins_are_refused_with_their_status() {
    let name = target_name("disk");
    let initiator_name = ("InitiatorName", "iqn.2026-11.org.example:i");
    for (current, next, pairs, expected) in [
        (1, 3, vec![initiator_name, ("TargetName", "iqn.2026-11.org.chronodisk:x")], login_status::NOT_FOUND),
        (1, 3, vec![initiator_name], login_status::MISSING_PARAMETER),
        (1, 3, vec![("TargetName", &*name)], login_status::MISSING_PARAMETER),
        (1, 3, vec![initiator_name, ("SessionType", "Odd")], login_status::SESSION_TYPE),
        (1, 1, vec![initiator_name, ("TargetName", &name)], login_status::INITIATOR_ERROR),
        (3, 3, vec![initiator_name, ("TargetName", &name)], login_status::INVALID_DURING_LOGIN),
        (
            0,
            1,
            vec![initiator_name, ("TargetName", &name), ("AuthMethod", "KRB5")],
            login_status::AUTHENTICATION_FAILURE,
        ),
    ] {
        let mut initiator = MockInitiator::new(target(), store());
        let answer = initiator.log_in(current, next, &pairs);
        assert_eq!(login_status(&answer), expected, "{pairs:?}");
        assert_eq!(initiator.events, [Event::Closing(Reason::LoginRefused(expected))]);
        assert!(initiator.session.is_finished());
    }
}

#[test]
fn only_an_initiator_with_the_secret_is_served() {
    let credentials = Credentials { user: "me".to_owned(), secret: b"sixteen letters!".to_vec() };
    let target = || {
        let unit = LogicalUnit::new(UnitDescription::new("disk", CAPACITY_BYTES));
        Arc::new(IscsiTarget::new(target_name("disk"), unit, Some(credentials.clone())))
    };
    let name = target_name("disk");
    for algorithm in ["5", "7", "8,7,5"] {
        let mut initiator = MockInitiator::new(target(), store());
        let answer = initiator.log_in_with(&credentials, algorithm, &name);
        assert_eq!((login_status(&answer), answer.header.0[1]), (0, 0x83), "{algorithm}");
        assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
    }
    for wrong in [
        Credentials { user: "you".to_owned(), ..credentials.clone() },
        Credentials { secret: b"sixteen letters?".to_vec(), ..credentials.clone() },
    ] {
        let mut initiator = MockInitiator::new(target(), store());
        let answer = initiator.log_in_with(&wrong, "5", &name);
        assert_eq!(login_status(&answer), login_status::AUTHENTICATION_FAILURE);
        assert!(initiator.session.is_finished());
    }
    // Without any method, and past the stage of security.
    let names = [("InitiatorName", "iqn.2026-11.org.example:i"), ("TargetName", &*name)];
    for current in [stage::SECURITY, stage::OPERATIONAL] {
        let mut initiator = MockInitiator::new(target(), store());
        let mut answer = initiator.log_in(current, stage::FULL_FEATURE, &names);
        if current == stage::SECURITY {
            assert_eq!(answer.header.0[1], 0, "it must go on with security");
            answer = initiator.log_in(current, stage::FULL_FEATURE, &[("AuthMethod", "None")]);
        }
        assert_eq!(login_status(&answer), login_status::AUTHENTICATION_FAILURE);
    }
}

#[test]
fn targets_are_found_and_discovery_reaches_no_device() {
    let mut initiator = MockInitiator::new(target(), store());
    let names = [("InitiatorName", "iqn.2026-11.org.example:i"), ("SessionType", "Discovery")];
    initiator.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &names);
    let found = initiator.say(opcode::TEXT, FINAL, b"SendTargets=All\0");
    assert_eq!(text(&found[0]), format!("TargetName={} TargetAddress=127.0.0.1:3260,1 ", target_name("disk")));
    let found = initiator.say(opcode::TEXT, FINAL, b"SendTargets=iqn.x:y\0Odd=1\0");
    assert_eq!(text(&found[0]), "Odd=NotUnderstood ");
    initiator.send_command([0; 16], FINAL, 0, &[]);
    assert_eq!(initiator.answers()[0].header.opcode(), opcode::REJECT);
    let bye = initiator.say(opcode::LOGOUT, FINAL, &[]);
    assert_eq!((bye[0].header.opcode(), bye[0].header.0[2]), (opcode::LOGOUT_RESPONSE, 0));
    assert!(initiator.session.is_finished() && initiator.events.contains(&Event::Closing(Reason::Logout)));
}

#[test]
fn data_arrive_in_every_way_that_was_negotiated() {
    for (unasked, immediate) in [("Yes", "Yes"), ("Yes", "No"), ("No", "Yes"), ("No", "No")] {
        for digests in ["None", "CRC32C"] {
            let parameters = [
                ("InitialR2T", unasked),
                ("ImmediateData", immediate),
                ("FirstBurstLength", "4096"),
                ("MaxBurstLength", "65536"),
                ("MaxRecvDataSegmentLength", "8192"),
                ("HeaderDigest", digests),
                ("DataDigest", digests),
            ];
            let mut initiator = initiator(&parameters);
            let data = pattern(300 << 10);
            let blocks = (data.len() / 512) as u16;
            let (mut sent, mut flags) = (0, FINAL | WRITE | SIMPLE);
            if immediate == "Yes" {
                sent = 1000;
            }
            if unasked == "No" {
                flags &= !FINAL;
            }
            let cdb = transfer(scsi::WRITE_10, 16, blocks);
            let task = initiator.send_command(cdb, flags, data.len() as u32, &data[..sent]);
            if unasked == "No" {
                initiator.send_data(task, u32::MAX, 0, sent as u32, false, &data[sent..2048]);
                initiator.send_data(task, u32::MAX, 1, 2048, true, &data[2048..4096]);
                sent = 4096;
            }
            let mut asked_count = 0;
            while sent < data.len() {
                let asked = initiator.answers().pop().unwrap();
                assert_eq!(asked.header.opcode(), opcode::READY_TO_TRANSFER);
                assert_eq!((asked.header.u32(36), asked.header.u32(40)), (asked_count, sent as u32));
                let end = sent + asked.header.u32(44) as usize;
                assert!(end - sent <= 65_536);
                initiator.send_data(task, asked.header.u32(20), 0, sent as u32, true, &data[sent..end]);
                (sent, asked_count) = (end, asked_count + 1);
            }
            let [request] = initiator.outstanding[..] else { panic!("one request: {:?}", initiator.outstanding) };
            assert_eq!((request.work.operation, request.work.offset_bytes), (Op::Write, 16 * 512));
            initiator.complete_all();
            let done = initiator.answers().pop().unwrap();
            assert_eq!((done.header.opcode(), done.status()), (opcode::SCSI_RESPONSE, status::GOOD));
            let (read, bytes, last) = initiator.ask(transfer(scsi::READ_10, 16, blocks), data.len() as u32);
            assert!(read == status::GOOD && bytes == data, "{unasked} {immediate} {digests}");
            assert_eq!((last.header.data_bytes(), last.header.0[1]), (4096, 0x81), "the status comes with the data");
        }
    }
}

#[test]
fn wrong_sequences_of_data_fail_their_command_alone() {
    let cdb = transfer(scsi::WRITE_10, 0, 16);
    for (asked, number, offset, is_final, len) in [
        (0, 1, 0, true, 8192),
        (0, 0, 512, true, 8192),
        (0, 0, 0, true, 512),
        (0, 0, 0, false, 8192),
        (0, 0, 0, true, 9000),
    ] {
        let mut initiator = initiator(&[]);
        let task = initiator.send_command(cdb, FINAL | WRITE, 8192, &[]);
        assert_eq!(initiator.answers()[0].header.u32(20), asked);
        initiator.send_data(task, asked, number, offset, is_final, &vec![1; len]);
        let answer = initiator.answers().pop().unwrap();
        assert_eq!(
            (answer.status(), answer.sense().unwrap().0),
            (status::CHECK_CONDITION, 0xB),
            "{number} {offset} {len}"
        );
        // Later data of it are ignored.
        initiator.send_data(task, asked, 1, 0, true, &[1; 512]);
        assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
    }
    let mut initiator = initiator(&[("ImmediateData", "No")]);
    initiator.send_command(cdb, FINAL | WRITE, 8192, &[1; 512]);
    assert_eq!(initiator.answers()[0].sense(), Some((0xB, 0x0C, 0x0C)), "immediate data were not negotiated");
}

#[test]
fn amounts_that_differ_are_reported_as_residuals() {
    let mut initiator = initiator(&[]);
    let residual = |pdu: &Pdu| (pdu.header.0[1] & 6, pdu.header.u32(44));
    let (_, bytes, last) = initiator.ask(transfer(scsi::READ_10, 0, 2), 512);
    assert_eq!((bytes.len(), residual(&last)), (512, (4, 512)), "overflow");
    let (_, bytes, last) = initiator.ask(transfer(scsi::READ_10, 0, 1), 2048);
    assert_eq!((bytes.len(), residual(&last)), (512, (2, 1536)), "underflow");
    let (good, _, last) = initiator.ask(transfer(scsi::READ_10, 0, 1), 0);
    assert_eq!((good, residual(&last)), (status::GOOD, (4, 512)));
    // A write of two blocks with the data of one: one is written.
    initiator.send_command(transfer(scsi::WRITE_10, 0, 2), FINAL | WRITE, 512, &[7; 512]);
    assert_eq!(initiator.outstanding[0].work.len_bytes, 512);
    initiator.complete_all();
    assert_eq!(residual(&initiator.answers()[0]), (4, 512));
    // A write of one block with the data of two.
    initiator.send_command(transfer(scsi::WRITE_10, 4, 1), FINAL | WRITE, 1024, &[8; 1024]);
    initiator.complete_all();
    assert_eq!(residual(&initiator.answers()[0]), (2, 512));
    let (_, bytes, _) = initiator.ask(transfer(scsi::READ_10, 0, 6), 6 * 512);
    assert_eq!([bytes[0], bytes[512], bytes[4 * 512], bytes[5 * 512]], [7, 0, 8, 0]);
}

#[test]
fn attributes_order_tasks_and_the_head_of_the_queue_has_priority() {
    let mut initiator = initiator(&[]);
    let read = |lba| transfer(scsi::READ_10, lba, 1);
    let blocks = |initiator: &MockInitiator| -> Vec<u64> {
        initiator.outstanding.iter().map(|request| request.work.offset_bytes / 512).collect()
    };
    initiator.send_command(read(1), FINAL | READ | SIMPLE, 512, &[]);
    initiator.send_command(read(2), FINAL | READ | SIMPLE, 512, &[]);
    initiator.send_command(read(3), FINAL | READ | ORDERED, 512, &[]);
    assert_eq!(blocks(&initiator), [1, 2], "the ordered one waits");
    assert!(!initiator.session.wants_input(), "nothing can overtake it");
    let finish = |initiator: &mut MockInitiator, index: usize| {
        let request = initiator.outstanding.remove(index);
        assert!(initiator.session.complete(request.slot, Status::Ok));
        initiator.take_events();
    };
    finish(&mut initiator, 1);
    assert_eq!(blocks(&initiator), [1]);
    finish(&mut initiator, 0);
    assert_eq!(blocks(&initiator), [3]);
    // A write that waits for its data keeps an ordered task waiting, and the connection open for input.
    let write = initiator.send_command(transfer(scsi::WRITE_10, 4, 1), FINAL | WRITE | SIMPLE, 512, &[]);
    let _ = initiator.answers();
    finish(&mut initiator, 0);
    initiator.send_command(read(5), FINAL | READ | ORDERED, 512, &[]);
    assert!(initiator.outstanding.is_empty() && initiator.session.wants_input());
    initiator.send_command(read(6), FINAL | READ | HEAD_OF_QUEUE, 512, &[]);
    assert_eq!((blocks(&initiator), initiator.outstanding[0].priority), (vec![6], Priority::High));
    finish(&mut initiator, 0);
    initiator.send_data(write, 0, 0, 0, true, &[1; 512]);
    assert_eq!(blocks(&initiator), [4]);
    finish(&mut initiator, 0);
    assert_eq!(blocks(&initiator), [5]);
    let _ = initiator.answers();
    initiator.send_command(read(7), FINAL | READ | 4, 512, &[]);
    initiator.complete_all();
    assert_eq!(initiator.answers()[0].sense(), Some((0xB, 0x49, 0)), "an unknown attribute");
}

#[test]
fn failures_of_the_medium_and_differences_are_reported() {
    let mut initiator = initiator(&[]);
    initiator.send_command(transfer(scsi::READ_10, 9, 1), FINAL | READ, 512, &[]);
    let request = initiator.outstanding.remove(0);
    assert!(initiator.session.complete(request.slot, Status::MediaError));
    let answer = initiator.answers().pop().unwrap();
    assert_eq!((answer.status(), answer.sense()), (status::CHECK_CONDITION, Some((3, 0x11, 0))));
    assert_eq!(answer.data[8], 9, "the block");

    let data = pattern(2048);
    assert_eq!(initiator.tell(transfer(scsi::WRITE_10, 0, 4), &data).status(), status::GOOD);
    let mut verify = transfer(scsi::VERIFY_10, 0, 4);
    assert_eq!(initiator.ask(verify, 0).0, status::GOOD);
    verify[1] = 2;
    assert_eq!(initiator.tell(verify, &data).status(), status::GOOD);
    let mut other = data.clone();
    other[700] ^= 1;
    let answer = initiator.tell(verify, &other);
    assert_eq!((answer.sense(), &answer.data[5..9]), (Some((0xE, 0x1D, 0)), &700u32.to_be_bytes()[..]));

    let fill = transfer(scsi::WRITE_SAME_10, 8, 4);
    assert_eq!(initiator.tell(fill, &[5; 512]).status(), status::GOOD);
    assert_eq!(initiator.ask(transfer(scsi::READ_10, 8, 4), 2048).1, [5; 2048]);
    verify = transfer(scsi::VERIFY_10, 8, 4);
    verify[1] = 6;
    assert_eq!(initiator.tell(verify, &[5; 512]).status(), status::GOOD);
}

#[test]
fn aborted_tasks_are_not_answered_and_the_function_waits_for_them() {
    let mut initiator = initiator(&[]);
    let read = initiator.send_command(transfer(scsi::READ_10, 0, 1), FINAL | READ, 512, &[]);
    let write = initiator.send_command(transfer(scsi::WRITE_10, 0, 1), FINAL | WRITE, 512, &[]);
    let _ = initiator.answers();
    initiator.manage(function::ABORT_TASK, write);
    assert_eq!(initiator.answers()[0].header.0[2], 0, "it was only waiting for its data");
    initiator.manage(function::ABORT_TASK, write);
    assert_eq!(initiator.answers()[0].header.0[2], 1, "no such task");
    let tag = initiator.manage(function::ABORT_TASK_SET, 0);
    assert!(initiator.answers().is_empty(), "the device is still at work");
    assert!(initiator.session.complete(initiator.outstanding[0].slot, Status::Ok));
    initiator.outstanding.clear();
    let answers = initiator.answers();
    assert_eq!((answers.len(), answers[0].header.task_tag()), (1, tag), "{read} is not answered");
    for (function, response) in [(3, 5), (7, 5), (function::TASK_REASSIGN, 4)] {
        initiator.manage(function, 0);
        assert_eq!(initiator.answers()[0].header.0[2], response);
    }
}

#[test]
fn a_reset_aborts_the_tasks_of_all_initiators_and_they_are_told() {
    let target = target();
    let mut first = MockInitiator::logged_in(target.clone(), store(), &[]);
    let mut second = MockInitiator::logged_in(target, store(), &[]);
    second.send_command(transfer(scsi::READ_10, 0, 1), FINAL | READ, 512, &[]);
    first.manage(function::LOGICAL_UNIT_RESET, 0);
    assert_eq!(first.answers()[0].header.0[2], 0);
    second.complete_all();
    assert_eq!(second.answers()[0].status(), status::TASK_ABORTED);
    for initiator in [&mut first, &mut second] {
        let (refused, _, answer) = initiator.ask([0; 16], 0);
        assert_eq!((refused, answer.sense()), (status::CHECK_CONDITION, Some((6, 0x29, 3))));
        assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
    }
}

#[test]
fn a_stopped_unit_wants_to_be_started() {
    let mut initiator = initiator(&[]);
    let mut stop = [0; 16];
    stop[0] = scsi::START_STOP_UNIT;
    initiator.send_command(stop, FINAL, 0, &[]);
    assert_eq!(initiator.outstanding[0].work.operation, Op::Flush, "its cache is written back");
    initiator.complete_all();
    let _ = initiator.answers();
    assert_eq!(initiator.ask([0; 16], 0).2.sense(), Some((2, 4, 2)));
    stop[4] = 1;
    assert_eq!(initiator.ask(stop, 0).0, status::GOOD);
    assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
}

#[test]
fn other_units_do_not_exist() {
    let mut initiator = initiator(&[]);
    let mut header = Header::new(opcode::SCSI_COMMAND, FINAL | READ);
    header.0[9] = 1;
    header.set_u32(20, 255);
    for (cdb, expected) in
        [([0x12, 0, 0, 0, 255], Ok(0x7F)), ([0, 0, 0, 0, 0], Err(0x25)), ([3, 0, 0, 0, 255], Ok(0x70))]
    {
        header.set_u32(16, initiator.tag);
        header.set_u32(24, initiator.command_number);
        (initiator.tag, initiator.command_number) = (initiator.tag + 1, initiator.command_number + 1);
        header.0[32..37].copy_from_slice(&cdb);
        initiator.send_pdu(header, &[]);
        let answer = initiator.answers().pop().unwrap();
        match expected {
            Ok(first) => assert_eq!(answer.data[0], first),
            Err(code) => assert_eq!(answer.sense().unwrap().1, code),
        }
    }
}

#[test]
fn commands_out_of_order_are_ignored_and_the_window_bounds_them() {
    let mut initiator = initiator(&[]);
    for wrong in [5, 0x8000_0000, 0] {
        let right = std::mem::replace(&mut initiator.command_number, wrong);
        initiator.send_command([0; 16], FINAL, 0, &[]);
        assert!(initiator.answers().is_empty());
        initiator.command_number = right;
    }
    for _ in 0..WINDOW_COUNT + 20 {
        initiator.send_command(transfer(scsi::READ_10, 0, 1), FINAL | READ, 512, &[]);
    }
    assert_eq!(initiator.outstanding.len(), WINDOW_COUNT as usize);
    initiator.complete_all();
    let answers = initiator.answers();
    assert_eq!(answers.len(), WINDOW_COUNT as usize);
    let last = &answers.last().unwrap().header;
    assert_eq!(last.u32(28), 1 + WINDOW_COUNT, "the rest was ignored");
    initiator.command_number = last.u32(28);
    assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
}

#[test]
fn a_command_without_room_finds_the_task_set_full() {
    let unit = LogicalUnit::new(UnitDescription::new("disk", 1 << 30));
    let target = Arc::new(IscsiTarget::new(target_name("disk"), unit, None));
    let store = Box::new(RamStore::new(1 << 30, 1 << 20));
    let mut initiator = MockInitiator::logged_in(target, store, &[]);
    for _ in 0..5 {
        initiator.send_command(transfer(scsi::READ_10, 0, 32_768), FINAL | READ, 16 << 20, &[]);
    }
    let refused = initiator.answers();
    assert_eq!((refused.len(), refused[0].status(), initiator.outstanding.len()), (1, status::TASK_SET_FULL, 4));
}

#[test]
fn damaged_and_misplaced_messages_end_the_connection() {
    let digests = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    for (place, violation) in [(20, Violation::HeaderDigest), (60, Violation::DataDigest)] {
        let mut initiator = initiator(&digests);
        let mut ping = Header::new(opcode::NOP_OUT | 0x40, FINAL);
        ping.set_data_bytes(16);
        let mut bytes = ping.0.to_vec();
        bytes.extend(chronodisk_front::iscsi::wire::digest(&[&ping.0]));
        bytes.extend([1; 16]);
        bytes.extend(chronodisk_front::iscsi::wire::digest(&[&[1; 16]]));
        bytes[place] ^= 1;
        initiator.send(&bytes);
        let rejected = initiator.answers();
        assert_eq!(rejected.len(), usize::from(violation == Violation::DataDigest));
        assert_eq!(initiator.events.last(), Some(&Event::Closing(Reason::Violation(violation))));
        assert!(initiator.session.is_finished());
    }
    let mut initiator = initiator(&[]);
    let mut long = Header::new(opcode::NOP_OUT | 0x40, FINAL);
    long.set_data_bytes(1 << 20);
    initiator.send(&long.0);
    assert_eq!(initiator.events.last(), Some(&Event::Closing(Reason::Violation(Violation::TooLong))));
}

#[test]
fn pings_come_back_and_unknown_messages_are_rejected() {
    let mut initiator = initiator(&[]);
    let pong = initiator.say(opcode::NOP_OUT, FINAL, b"hello");
    assert_eq!((pong[0].header.opcode(), &pong[0].data[..]), (opcode::NOP_IN, &b"hello"[..]));
    let rejected = initiator.say(0x10, FINAL, &[]);
    assert_eq!((rejected[0].header.opcode(), rejected[0].header.0[2], rejected[0].data.len()), (opcode::REJECT, 5, 48));
    // Recovery of connections is not supported.
    let refused = initiator.say(opcode::LOGOUT, FINAL | 2, &[]);
    assert_eq!(refused[0].header.0[2], 2);
    assert_eq!(initiator.ask([0; 16], 0).0, status::GOOD);
}

/// A client that closes its side still gets its answers.
#[test]
fn outstanding_commands_are_answered_after_the_input_ended() {
    let mut initiator = initiator(&[]);
    initiator.send_command(transfer(scsi::READ_10, 0, 1), FINAL | READ, 512, &[]);
    initiator.send_command(transfer(scsi::WRITE_10, 0, 1), FINAL | WRITE, 512, &[]);
    let _ = initiator.answers();
    initiator.session.input_ended();
    assert!(!initiator.session.is_finished());
    initiator.complete_all();
    assert_eq!(initiator.answers().len(), 1, "the write's data can't come");
    assert!(initiator.session.is_finished());
}

/// An initiator of this name, with a registration whose key is `key`.
fn registered(target: &Arc<IscsiTarget>, name: &str, key: u8) -> MockInitiator {
    let mut initiator = MockInitiator::logged_in_as(name, target.clone(), store(), &[("InitialR2T", "No")]);
    assert_eq!(reserve_out(&mut initiator, 0, 0, 0, key).status(), status::GOOD);
    initiator
}

/// Sends `PERSISTENT RESERVE OUT`.
fn reserve_out(initiator: &mut MockInitiator, action: u8, kind: u8, own: u8, key: u8) -> Pdu {
    let mut parameters = [0; 24];
    (parameters[7], parameters[15]) = (own, key);
    initiator.tell([scsi::PERSISTENT_RESERVE_OUT, action, kind, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0], &parameters)
}

#[test]
fn reservations_keep_other_initiators_out() {
    let target = target();
    let mut first = registered(&target, "iqn.2026-11.org.example:first", 1);
    let mut second = MockInitiator::logged_in_as("iqn.2026-11.org.example:second", target.clone(), store(), &[]);
    assert_eq!(reserve_out(&mut first, 1, 1, 1, 0).status(), status::GOOD);
    assert_eq!(second.ask(transfer(scsi::READ_10, 0, 1), 512).0, status::GOOD);
    let refused = second.tell(transfer(scsi::WRITE_10, 0, 1), &[1; 512]);
    assert_eq!((refused.status(), refused.data.len()), (status::RESERVATION_CONFLICT, 0));
    assert_eq!(reserve_out(&mut second, 4, 1, 0, 1).status(), status::RESERVATION_CONFLICT, "not registered");
    assert_eq!(first.tell(transfer(scsi::WRITE_10, 0, 1), &[1; 512]).status(), status::GOOD);
    // The name of a port survives its session.
    drop(first);
    let mut first = MockInitiator::logged_in_as("iqn.2026-11.org.example:FIRST", target, store(), &[]);
    assert_eq!(first.tell(transfer(scsi::WRITE_10, 0, 1), &[1; 512]).status(), status::GOOD);
    assert_eq!(reserve_out(&mut first, 2, 1, 1, 0).status(), status::GOOD);
    assert_eq!(second.tell(transfer(scsi::WRITE_10, 0, 1), &[1; 512]).status(), status::GOOD);
}

#[test]
fn a_preemption_aborts_the_commands_of_the_preempted_alone() {
    let target = target();
    let mut first = registered(&target, "iqn.2026-11.org.example:first", 1);
    let mut second = registered(&target, "iqn.2026-11.org.example:second", 2);
    let mut third = registered(&target, "iqn.2026-11.org.example:third", 3);
    for initiator in [&mut second, &mut third] {
        initiator.send_command(transfer(scsi::READ_10, 0, 1), FINAL | READ, 512, &[]);
    }
    assert_eq!(reserve_out(&mut first, 5, 1, 1, 2).status(), status::GOOD);
    for (initiator, expected) in [(&mut second, status::TASK_ABORTED), (&mut third, status::GOOD)] {
        initiator.complete_all();
        assert_eq!(initiator.answers()[0].status(), expected);
    }
    let (refused, _, answer) = second.ask([0; 16], 0);
    assert_eq!((refused, answer.sense()), (status::CHECK_CONDITION, Some((6, 0x2A, 5))));
    assert_eq!(second.ask([0; 16], 0).0, status::GOOD);
    assert_eq!(third.ask([0; 16], 0).0, status::GOOD);
}

#[test]
fn a_logout_ends_reserve_6() {
    let target = target();
    let mut reserve = [0; 16];
    reserve[0] = scsi::RESERVE_6;
    let mut first = MockInitiator::logged_in_as("iqn.2026-11.org.example:first", target.clone(), store(), &[]);
    let mut second = MockInitiator::logged_in_as("iqn.2026-11.org.example:second", target, store(), &[]);
    assert_eq!(first.ask(reserve, 0).0, status::GOOD);
    assert_eq!(second.ask(reserve, 0).0, status::RESERVATION_CONFLICT);
    assert_eq!(second.ask([0; 16], 0).0, status::RESERVATION_CONFLICT);
    first.say(opcode::LOGOUT, FINAL, &[]);
    assert_eq!(second.ask(reserve, 0).0, status::GOOD);
}

#[test]
fn reservations_are_reported_in_full_and_truncated() {
    let target = target();
    let name = "x".repeat(220);
    let mut initiators: Vec<_> = (100..200).map(|number| registered(&target, &format!("{name}{number}"), 1)).collect();
    let ask = |initiator: &mut MockInitiator, bytes: u16| {
        let [high, low] = bytes.to_be_bytes();
        let cdb = [scsi::PERSISTENT_RESERVE_IN, 3, 0, 0, 0, 0, 0, high, low, 0, 0, 0, 0, 0, 0, 0];
        initiator.ask(cdb, bytes.into()).1
    };
    let full = ask(&mut initiators[0], u16::MAX);
    let len = u32::from_be_bytes(full[4..8].try_into().unwrap()) as usize;
    assert_eq!((full.len(), &full[..4]), (8 + len, &[0, 0, 0, 100][..]));
    assert!(len > 100 * 223);
    assert_eq!(ask(&mut initiators[1], 300), full[..300]);
    let mut long = MockInitiator::new(target, store());
    let names = [("InitiatorName", &*"x".repeat(224)), ("TargetName", &target_name("disk"))];
    assert_eq!(
        login_status(&long.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &names)),
        login_status::INITIATOR_ERROR
    );
}
