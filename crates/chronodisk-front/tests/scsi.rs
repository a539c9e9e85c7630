//! SCSI commands: decoded, refused with their sense data, answered.

use chronodisk_front::scsi::wire::{opcode, vital};
use chronodisk_front::scsi::{Command, LogicalUnit, MediumWork, Sense, SenseKey, StoreWork, UnitDescription};
use chronodisk_sim::Op;

const CAPACITY_BYTES: u64 = 1 << 20;
const BLOCKS: u32 = 2048;

fn unit() -> LogicalUnit {
    LogicalUnit::new(UnitDescription::new("disk", CAPACITY_BYTES))
}

fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// The unit's answer to a command.
fn answer(unit: &LogicalUnit, bytes: &[u8]) -> Vec<u8> {
    let decoded = unit.decode(&cdb(bytes)).unwrap();
    unit.answer(&decoded, &mut unit.nexus("")).unwrap().unwrap()
}

fn work(unit: &LogicalUnit, bytes: &[u8], data: &[u8]) -> Result<Option<MediumWork>, Sense> {
    unit.work(&unit.decode(&cdb(bytes))?, data)
}

#[test]
fn transfers_of_all_lengths_name_the_same_blocks() {
    let unit = unit();
    for read in [
        &[opcode::READ_6, 0, 1, 2, 3, 0][..],
        &[opcode::READ_10, 0, 0, 0, 1, 2, 0, 0, 3, 0],
        &[opcode::READ_12, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0],
        &[opcode::READ_16, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 3, 0, 0],
    ] {
        let work = work(&unit, read, &[]).unwrap().unwrap();
        assert_eq!((work.offset_bytes, work.len_bytes, work.operation), (0x102 * 512, 3 * 512, Op::Read));
    }
    let decoded = unit.decode(&cdb(&[opcode::READ_6, 0, 0, 0, 0, 0])).unwrap();
    assert!(matches!(decoded.command, Command::Read(range) if range.blocks == 256), "zero means 256 there");
    let write = [opcode::WRITE_10, 0x18, 0, 0, 0, 8, 0, 0, 1, 0];
    let decoded = unit.decode(&cdb(&write)).unwrap();
    assert_eq!(decoded.outgoing_bytes, 512);
    let work = work(&unit, &write, &[1; 512]).unwrap().unwrap();
    assert!(work.fua && work.store == StoreWork::Write && work.operation == Op::Write);
}

#[test]
fn wrong_commands_are_refused_with_the_place_of_their_fault() {
    let unit = unit();
    for (bytes, sense) in [
        (&[0xC1][..], Sense::INVALID_OPCODE),
        (&[opcode::SERVICE_ACTION_IN_16, 0x11], Sense::INVALID_OPCODE),
        (&[opcode::TEST_UNIT_READY, 0, 0, 0, 0, 4], Sense::in_command(5)),
        // Protection information.
        (&[opcode::READ_10, 0x20, 0, 0, 0, 0, 0, 0, 1], Sense::in_command(1)),
        (&[opcode::READ_10, 0, 0, 0, 8, 0, 0, 0, 1], Sense::OUT_OF_RANGE),
        (&[opcode::READ_10, 0, 0, 0, 7, 255, 0, 0, 2], Sense::OUT_OF_RANGE),
        (&[opcode::READ_16, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 1], Sense::OUT_OF_RANGE),
        (&[opcode::INQUIRY, 0, 0x80, 0, 255], Sense::in_command(2)),
        (&[opcode::MODE_SENSE_6, 0, 0xC8, 0, 255], Sense::SAVING_NOT_SUPPORTED),
        (&[opcode::MODE_SENSE_6, 0, 0x1D, 0, 255], Sense::in_command(2)),
        (&[opcode::MODE_SENSE_6, 0, 0x08, 1, 255], Sense::in_command(3)),
        (&[opcode::MODE_SELECT_6, 0x11, 0, 0, 0], Sense::in_command(1)),
        (&[opcode::REPORT_LUNS, 0, 9, 0, 0, 0, 0, 0, 0, 16], Sense::in_command(2)),
        (&[opcode::WRITE_SAME_10, 0, 0, 0, 0, 0, 0, 0, 0], Sense::in_command(7)),
        (&[opcode::VERIFY_10, 0x04, 0, 0, 0, 0, 0, 0, 1], Sense::in_command(1)),
        (&[opcode::START_STOP_UNIT, 0, 0, 0, 0x10], Sense::in_command(4)),
    ] {
        let decoded = unit.decode(&cdb(bytes));
        let refused = decoded.and_then(|decoded| unit.answer(&decoded, &mut unit.nexus("")).map(|_| ()));
        assert_eq!(refused, Err(sense), "{bytes:x?}");
    }
    let large = LogicalUnit::new(UnitDescription::new("large", 1 << 40));
    let read = [opcode::READ_12, 0, 0, 0, 0, 0, 0, 0, 0x80, 1, 0, 0];
    assert_eq!(large.decode(&cdb(&read)), Err(Sense::in_command(6)), "more than a transfer");
}

#[test]
fn sense_data_have_the_standards_format() {
    assert_eq!(Sense::OUT_OF_RANGE.fixed(), [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0]);
    assert_eq!(Sense::in_command(2).fixed()[12..], [0x24, 0, 0, 0xC0, 0, 2]);
    assert_eq!(Sense::in_parameters(300).fixed()[12..], [0x26, 0, 0, 0x80, 1, 44]);
    let medium = Sense::medium_error(false, 77);
    assert_eq!((medium.key, medium.fixed()[0], medium.fixed()[6]), (SenseKey::MediumError, 0xF0, 77));
    assert_eq!(Sense::RESET.descriptor(), [0x72, 6, 0x29, 3, 0, 0, 0, 0]);
}

#[test]
fn inquiry_describes_the_unit() {
    let unit = unit();
    let standard = answer(&unit, &[opcode::INQUIRY, 0, 0, 0, 255]);
    assert_eq!((standard.len(), standard[0], &standard[8..20]), (96, 0, &b"CHRONODKdisk"[..]));
    assert_eq!(answer(&unit, &[opcode::INQUIRY, 0, 0, 0, 5]).len(), 5, "no more than the allocation");
    for page in vital::ALL {
        let bytes = answer(&unit, &[opcode::INQUIRY, 1, page, 1, 0]);
        let len = usize::from(bytes[2]) << 8 | usize::from(bytes[3]);
        assert_eq!((bytes[1], bytes.len().min(256)), (page, (len + 4).min(256)));
    }
    let limits = answer(&unit, &[opcode::INQUIRY, 1, vital::BLOCK_LIMITS, 0, 255]);
    assert_eq!(limits[8..12], (32_768u32).to_be_bytes(), "16 MiB at once");
    assert_eq!((limits[27], &limits[28..32]), (1, &8u32.to_be_bytes()[..]), "one range, units of 4 KiB");
    let identification = answer(&unit, &[opcode::INQUIRY, 1, vital::IDENTIFICATION, 1, 0]);
    assert_eq!(identification[4..9], [1, 3, 0, 8, 0x30], "a name of type NAA 3");

    let without = UnitDescription { discard_bytes: None, rotational: true, ..UnitDescription::new("d", 1 << 20) };
    let unit = LogicalUnit::new(without);
    assert_eq!(unit.decode(&cdb(&[opcode::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24])), Err(Sense::INVALID_OPCODE));
    assert_eq!(answer(&unit, &[opcode::INQUIRY, 1, vital::PROVISIONING, 0, 255])[4..], [0; 4]);
    assert_eq!(answer(&unit, &[opcode::INQUIRY, 1, vital::CHARACTERISTICS, 0, 255])[4..6], [0, 0]);
}

#[test]
fn capacity_is_that_of_the_device() {
    let unit = unit();
    assert_eq!(answer(&unit, &[opcode::READ_CAPACITY_10]), [0, 0, 7, 255, 0, 0, 2, 0]);
    let long = answer(&unit, &[opcode::SERVICE_ACTION_IN_16, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32]);
    assert_eq!((&long[..12], long[13], long[14]), (&[0, 0, 0, 0, 0, 0, 7, 255, 0, 0, 2, 0][..], 3, 0xC0));
    let huge = LogicalUnit::new(UnitDescription::new("huge", 1 << 42));
    assert_eq!(answer(&huge, &[opcode::READ_CAPACITY_10])[..4], [255; 4], "it wants the longer command");
}

#[test]
fn the_cache_can_be_switched_and_then_every_write_is_durable() {
    let unit = unit();
    let (mut own, mut other) = (unit.nexus(""), unit.nexus(""));
    let sensed = answer(&unit, &[opcode::MODE_SENSE_6, 8, 8, 0, 255]);
    assert_eq!((sensed.len(), sensed[2], sensed[6]), (24, 0x10, 4));
    assert_eq!(answer(&unit, &[opcode::MODE_SENSE_6, 8, 0x48, 0, 255])[6], 4, "it is changeable");
    let all = answer(&unit, &[opcode::MODE_SENSE_10, 0, 0x3F, 0, 0, 0, 0, 1, 0]);
    assert_eq!((all.len(), all[7]), (8 + 8 + 20 + 12, 8));
    let mut off = [0; 24];
    (off[4], off[5]) = (8, 18);
    assert_eq!(unit.select_mode(false, &off, &mut own), Ok(true), "the cache is written back");
    assert!(!unit.has_write_cache());
    assert_eq!((unit.attention(&mut own), unit.attention(&mut other)), (None, Some(Sense::MODE_CHANGED)));
    assert_eq!(unit.attention(&mut other), None, "told once");
    assert!(work(&unit, &[opcode::WRITE_10, 0, 0, 0, 0, 0, 0, 0, 1], &[0; 512]).unwrap().unwrap().fua);
    off[6] = 4;
    assert_eq!(unit.select_mode(false, &off, &mut own), Ok(false));
    for (place, value, sense) in [
        (4, 9, Sense::in_parameters(4)),
        (5, 17, Sense::in_parameters(5)),
        (6, 1, Sense::in_parameters(6)),
        (3, 8, Sense::in_parameters(4)),
        (3, 200, Sense::PARAMETER_LENGTH),
    ] {
        let mut wrong = off;
        wrong[place] = value;
        assert_eq!(unit.select_mode(false, &wrong, &mut own), Err(sense), "{place}");
    }
    assert_eq!(unit.select_mode(false, &off[..23], &mut own), Err(Sense::PARAMETER_LENGTH));

    let fixed = LogicalUnit::new(UnitDescription { volatile_cache: false, ..UnitDescription::new("d", 1 << 20) });
    assert_eq!(fixed.select_mode(false, &off, &mut fixed.nexus("")), Err(Sense::in_parameters(6)));
}

#[test]
fn blocks_are_discarded_and_filled() {
    let unit = unit();
    let unmap = [opcode::UNMAP, 0, 0, 0, 0, 0, 0, 0, 24];
    let mut range = [0; 24];
    (range[1], range[3], range[15], range[19]) = (22, 16, 8, 16);
    let discarded = work(&unit, &unmap, &range).unwrap().unwrap();
    assert_eq!((discarded.operation, discarded.offset_bytes, discarded.len_bytes), (Op::Discard, 4096, 8192));
    assert_eq!(work(&unit, &unmap, &range[..20]), Err(Sense::PARAMETER_LENGTH));
    range[14] = 8;
    assert_eq!(work(&unit, &unmap, &range), Err(Sense::OUT_OF_RANGE));
    assert_eq!(work(&unit, &[opcode::UNMAP, 0, 0, 0, 0, 0, 0, 0, 0], &[]), Ok(None));

    let fill = |flags, block: &[u8]| {
        let work = work(&unit, &[opcode::WRITE_SAME_16, flags, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 16], block);
        work.map(|work| (work.unwrap().operation, work.unwrap().store))
    };
    assert_eq!(fill(0, &[7; 512]), Ok((Op::Write, StoreWork::WriteRepeatedly)));
    assert_eq!(fill(8, &[7; 512]), Ok((Op::Write, StoreWork::WriteRepeatedly)), "no zeros to be discarded");
    assert_eq!(fill(0, &[0; 512]), Ok((Op::WriteZeroes, StoreWork::WriteZeroes)));
    assert_eq!(fill(8, &[0; 512]), Ok((Op::Discard, StoreWork::Discard)));
    assert_eq!(fill(1, &[]), Ok((Op::WriteZeroes, StoreWork::WriteZeroes)));
    assert_eq!(fill(0, &[7; 100]), Err(Sense::TRANSFER_LENGTH));
}

#[test]
fn a_read_only_unit_and_a_stopped_one_refuse() {
    let unit = LogicalUnit::new(UnitDescription { read_only: true, ..UnitDescription::new("d", 1 << 20) });
    assert_eq!(unit.decode(&cdb(&[opcode::WRITE_10, 0, 0, 0, 0, 0, 0, 0, 1])), Err(Sense::WRITE_PROTECTED));
    assert!(unit.decode(&cdb(&[opcode::READ_10, 0, 0, 0, 0, 0, 0, 0, 1])).is_ok());
    assert_eq!(answer(&unit, &[opcode::MODE_SENSE_6, 8, 8, 0, 255])[2], 0x90);
}

#[test]
fn supported_commands_are_reported() {
    let unit = unit();
    let report = |bytes: [u8; 12]| {
        let decoded = unit.decode(&cdb(&bytes)).unwrap();
        unit.answer(&decoded, &mut unit.nexus("")).map(Option::unwrap)
    };
    let all = report([opcode::MAINTENANCE_IN, 0x0C, 0, 0, 0, 0, 0, 0, 255, 0, 0, 0]).unwrap();
    assert_eq!(all.len(), 4 + 41 * 8);
    let one =
        |options, code, action| report([opcode::MAINTENANCE_IN, 0x0C, options, code, 0, action, 0, 0, 255, 0, 0, 0]);
    let read = one(1, opcode::READ_10, 0).unwrap();
    assert_eq!(read, [0, 3, 0, 10, 0x28, 0x18, 255, 255, 255, 255, 0x1F, 255, 255, 0]);
    assert_eq!(one(1, 0xC1, 0).unwrap(), [0, 1, 0, 0]);
    assert_eq!(one(2, opcode::SERVICE_ACTION_IN_16, 0x10).unwrap()[..6], [0, 3, 0, 16, 0x9E, 0x10]);
    let clear = one(3, opcode::PERSISTENT_RESERVE_OUT, 3).unwrap();
    assert_eq!(clear, [0, 3, 0, 10, 0x5F, 3, 255, 0, 0, 255, 255, 255, 255, 0]);
    assert_eq!(one(2, opcode::PERSISTENT_RESERVE_OUT, 7).unwrap(), [0, 1, 0, 0], "REGISTER AND MOVE");
    assert_eq!(one(2, opcode::READ_10, 0), Err(Sense::in_command(2)));
    assert_eq!(one(1, opcode::SERVICE_ACTION_IN_16, 0), Err(Sense::in_command(2)));
    assert_eq!(one(0x81, opcode::READ_10, 0).unwrap().len(), 4 + 10 + 12);
}

/// No command makes it panic, and each accepted range is inside.
#[test]
fn any_command_is_obeyed_or_refused() {
    let unit = unit();
    let mut random = 1u64;
    for _ in 0..200_000 {
        let mut bytes = [0; 16];
        for place in &mut bytes {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Many zeros, so that many commands are valid.
            *place = if random >> 62 == 0 { (random >> 40) as u8 } else { 0 };
        }
        bytes[0] = (random >> 32) as u8;
        let Ok(decoded) = unit.decode(&bytes) else { continue };
        let _ = unit.answer(&decoded, &mut unit.nexus(""));
        let data = vec![random as u8; (decoded.outgoing_bytes as usize).min(4096)];
        if let Ok(Some(work)) = unit.work(&decoded, &data) {
            assert!(work.offset_bytes + u64::from(work.len_bytes) <= u64::from(BLOCKS) * 512, "{bytes:x?}");
        }
    }
}
