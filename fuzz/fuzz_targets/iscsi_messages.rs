//! Any initiator: obeyed, refused, or the end of the connection; and the session's output is whole PDUs.
//!
//! The input begins with a byte that chooses the unit, one that says how the login is done, and one that says in which
//! pieces bytes arrive. Then come records: a kind, a length (16 bits, little-endian), and as many bytes. The highest bit
//! of a kind chooses the second of two initiators.
#![no_main]

use std::sync::Arc;

use chronodisk_front::iscsi::mock::MockInitiator;
use chronodisk_front::iscsi::wire::stage;
use chronodisk_front::iscsi::{Credentials, IN_FLIGHT_BYTES_MAX, IscsiTarget, TASK_COUNT_MAX, target_name};
use chronodisk_front::scsi::{LogicalUnit, UnitDescription};
use chronodisk_sim::Status;
use chronodisk_store::RamStore;
use libfuzzer_sys::fuzz_target;

const CAPACITY_BYTES: u64 = 1 << 20;

/// Kinds of records; others send their bytes as they are.
const LOGIN: u8 = 1;
const COMMAND: u8 = 2;
const DATA: u8 = 3;
const MANAGE: u8 = 4;
const MESSAGE: u8 = 5;
const COMPLETE: u8 = 6;
const SEND_OUTPUT: u8 = 7;
const END: u8 = 8;
const RELEASE: u8 = 9;
const RESERVE: u8 = 10;
/// The record is the second initiator's.
const SECOND: u8 = 0x80;

fuzz_target!(|input: &[u8]| {
    let Some((&[unit, login, piece], mut rest)) = input.split_first_chunk() else { return };
    let target = target(unit);
    let mut initiators = ["first", "second"].map(|name| connect(&target, unit, login, name));
    initiators.iter_mut().for_each(|initiator| initiator.piece_bytes = usize::from(piece) + 1);
    for _ in 0..64 {
        let Some((&[kind, low, high], later)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_le_bytes([low, high])).min(later.len());
        let (bytes, later) = later.split_at(len);
        rest = later;
        let initiator = &mut initiators[usize::from(kind & SECOND != 0)];
        run(initiator, kind & !SECOND, bytes);
        check(initiator);
    }
    for mut initiator in initiators {
        initiator.complete_all();
        let _ = initiator.answers();
    }
});

fn target(unit: u8) -> Arc<IscsiTarget> {
    let has = |bit: u8| unit & 1 << bit != 0;
    let description = UnitDescription {
        read_only: has(0),
        volatile_cache: has(1),
        discard_bytes: has(2).then_some(4096),
        block_bytes: if has(3) { 4096 } else { 512 },
        zeroes_after_discard: has(4),
        ..UnitDescription::new("disk", CAPACITY_BYTES)
    };
    let credentials = has(5).then(|| Credentials { user: "me".to_owned(), secret: b"sixteen letters!".to_vec() });
    Arc::new(IscsiTarget::new(target_name("disk"), LogicalUnit::new(description), credentials))
}

fn connect(target: &Arc<IscsiTarget>, unit: u8, login: u8, own_name: &str) -> MockInitiator {
    let budget_bytes = if unit & 1 << 6 != 0 { 40_000 } else { 4 * CAPACITY_BYTES };
    let store = Box::new(RamStore::new(CAPACITY_BYTES, budget_bytes));
    let mut initiator = MockInitiator::new(target.clone(), store);
    let names = [("InitiatorName", own_name), ("TargetName", &*target.name)];
    let more = [("InitialR2T", "No"), ("FirstBurstLength", "1024"), ("MaxBurstLength", "4096")];
    match (login & 3, &target.credentials) {
        (0, _) => {}
        (_, Some(credentials)) => {
            initiator.log_in_with(credentials, "5", &target.name);
        }
        (1, None) => {
            initiator.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &names);
        }
        (_, None) => {
            initiator.log_in(stage::OPERATIONAL, stage::FULL_FEATURE, &[&names[..], &more].concat());
        }
    }
    initiator
}

fn run(initiator: &mut MockInitiator, kind: u8, bytes: &[u8]) {
    match kind {
        LOGIN => {
            let mut header = chronodisk_front::iscsi::wire::Header::new(0x43, bytes.first().copied().unwrap_or(0));
            header.set_u32(24, initiator.command_number);
            initiator.send_pdu(header, bytes.get(1..).unwrap_or_default());
        }
        // A command, its flags and the expected length in units of 256 bytes.
        COMMAND => {
            let Some((head, data)) = bytes.split_first_chunk::<18>() else { return };
            let mut cdb = [0; 16];
            cdb.copy_from_slice(&head[2..]);
            initiator.send_command(cdb, head[0], u32::from(head[1]) * 256, data);
        }
        DATA => {
            let Some((&[task, asked, number, offset, end], data)) = bytes.split_first_chunk() else { return };
            let asked = if asked == 255 { u32::MAX } else { asked.into() };
            initiator.send_data(task.into(), asked, number.into(), u32::from(offset) * 256, end & 1 != 0, data);
        }
        MANAGE => {
            let Some((&[function, task], _)) = bytes.split_first_chunk() else { return };
            initiator.manage(function & 0x7F, task.into());
        }
        MESSAGE => {
            let Some((&[opcode, flags], data)) = bytes.split_first_chunk() else { return };
            let mut header = chronodisk_front::iscsi::wire::Header::new(opcode & 0x3F | 0x40, flags);
            header.set_u32(20, u32::MAX);
            initiator.send_pdu(header, data);
        }
        COMPLETE => complete(initiator, bytes),
        SEND_OUTPUT => {
            let _ = initiator.answers();
        }
        END => {
            initiator.session.input_ended();
            initiator.take_events();
        }
        RELEASE => initiator.session.release_idle_memory(),
        // A persistent reservation: the action, the scope and type, both keys and the bits.
        RESERVE => {
            let Some((&[action, kind, own, key, bits], _)) = bytes.split_first_chunk() else { return };
            let mut parameters = [0; 24];
            (parameters[7], parameters[15], parameters[20]) = (own, key, bits);
            let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0];
            initiator.send_command(cdb, 0xA0, 24, &parameters);
        }
        _ => {
            initiator.send(bytes);
        }
    }
}

fn complete(initiator: &mut MockInitiator, choices: &[u8]) {
    for &choice in choices {
        if initiator.outstanding.is_empty() {
            break;
        }
        let index = usize::from(choice >> 2) % initiator.outstanding.len();
        let request = initiator.outstanding.swap_remove(index);
        let status = if choice & 3 == 2 { Status::MediaError } else { Status::Ok };
        assert!(initiator.session.complete(request.slot, status));
        assert!(!initiator.session.complete(request.slot, status));
    }
    initiator.take_events();
}

/// Invariants of each moment.
fn check(initiator: &MockInitiator) {
    let state = initiator.session.state();
    assert_eq!(state.outstanding, initiator.outstanding.len());
    assert!(state.tasks <= TASK_COUNT_MAX);
    let mut bytes = 0;
    for request in &initiator.outstanding {
        let work = request.work;
        assert!(work.offset_bytes + u64::from(work.len_bytes) <= CAPACITY_BYTES);
        bytes += u64::from(work.len_bytes);
    }
    assert!(bytes <= 2 * IN_FLIGHT_BYTES_MAX);
}
