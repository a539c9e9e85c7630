//! Written files read back equal; invalid files are refused with the file's name and the reason.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use chronodisk_report::{
    LOG_SCHEMA, LogInfo, LogReader, LogWriter, ReportError, RunResult, Simulation, read_log, write_log,
};
use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;

fn any_record() -> impl Strategy<Value = RequestRecord> {
    let what =
        (0usize..5, any::<bool>(), 0usize..3, any::<u64>().prop_map(|lba| lba >> 1), any::<u32>(), any::<bool>());
    let whence = (any::<u16>(), any::<u64>(), any::<u16>(), any::<u32>());
    let when = (0u64..1 << 60, 1u64..1 << 60, 0u64..1 << 60, 0usize..3);
    let cost = (any::<u64>(), any::<u64>(), 0usize..4);
    (what, whence, when, cost).prop_map(|(what, whence, when, cost)| {
        let due = Nanos::from_nanos(when.0 + when.1);
        let (due, completed) = match when.3 {
            0 => (Nanos::MAX, Nanos::MAX),
            1 => (due, Nanos::MAX),
            _ => (due, due + Nanos::from_nanos(when.2)),
        };
        RequestRecord {
            device: whence.0,
            order: whence.1,
            op: Op::ALL[what.0],
            fua: what.1,
            priority: Priority::ALL[what.2],
            lba: Lba(what.3),
            sectors: what.4,
            queue: whence.2,
            issuer: whence.3,
            arrival: Nanos::from_nanos(when.0),
            due,
            completed,
            status: [Status::Ok, Status::MediaError, Status::Aborted, Status::Unsupported][cost.2],
            store_failed: what.5,
            stolen: what.5 && what.1,
            model_time: Nanos::from_nanos(cost.0),
            store_time: Nanos::from_nanos(cost.1),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_log_comes_back_as_it_was(records in prop::collection::vec(any_record(), 0..50)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("requests.parquet");
        write_log(&path, &records).unwrap();
        prop_assert_eq!(read_log(&path).unwrap(), records.clone());
        let bytes = fs::read(&path).unwrap();
        write_log(&path, &records).unwrap();
        prop_assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}

#[test]
fn a_log_of_several_row_groups_comes_back_and_is_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.parquet");
    let records: Vec<_> =
        (0..150_000).map(|order| common::record(order, order * 10, order * 10 + 7, order * 10 + 7)).collect();
    write_log(&path, &records).unwrap();
    assert_eq!(read_log(&path).unwrap(), records);
    let bytes = fs::metadata(&path).unwrap().len();
    assert!(bytes < records.len() as u64 * 40, "{bytes} bytes for {} records", records.len());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file stays");
}

#[test]
fn a_log_says_its_units_and_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.parquet");
    write_log(&path, &[common::record(0, 1, 2, 3)]).unwrap();
    let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&path).unwrap()).unwrap();
    let names: Vec<&str> = builder.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(
        names[9..],
        ["arrival_ns", "due_ns", "completed_ns", "status", "store_failed", "stolen", "model_time_ns", "store_time_ns"]
    );
    let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap();
    assert!(pairs.iter().any(|pair| pair.value.as_deref() == Some(LOG_SCHEMA)));
}

#[test]
fn a_damaged_log_is_an_error_or_a_log_but_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("requests.parquet");
    let records: Vec<_> = (0..40).map(|order| common::record(order, order, order + 5, order + 6)).collect();
    write_log(&path, &records).unwrap();
    let good = fs::read(&path).unwrap();
    for length in (0..good.len()).step_by(13) {
        fs::write(&path, &good[..length]).unwrap();
        let error = read_log(&path).expect_err("half a file");
        assert!(error.to_string().contains("requests.parquet"), "{error}");
    }
    let mut random = chronodisk_sim::RandomStream::new(1, "test", "damage");
    for _ in 0..800 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next_u64() as u8;
        }
        fs::write(&path, &bytes).unwrap();
        match read_log(&path) {
            Ok(records) => assert!(records.iter().all(|record| record.arrival <= record.due)),
            Err(error) => assert!(error.to_string().contains("requests.parquet"), "{error}"),
        }
    }
}

type Columns<'a> = Vec<(&'a str, ArrayRef)>;

/// A Parquet file with these columns and the schema name of a log.
fn write_forgery(path: &Path, columns: Columns<'_>, schema_name: Option<&str>) {
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(*name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let pairs = schema_name.map(|name| vec![KeyValue::new("chronodisk.schema".to_owned(), name.to_owned())]);
    let properties = WriterProperties::builder().set_key_value_metadata(pairs).build();
    let mut writer = ArrowWriter::try_new(fs::File::create(path).unwrap(), schema.clone(), Some(properties)).unwrap();
    let batch = RecordBatch::try_new(schema, columns.into_iter().map(|(_, array)| array).collect()).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn a_log_with_other_columns_is_refused_by_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("forged.parquet");
    let good = folder.path().join("good.parquet");
    write_log(&good, &[common::record(0, 10, 20, 30), common::record(1, 11, 21, 31)]).unwrap();
    let batch =
        ParquetRecordBatchReaderBuilder::try_new(fs::File::open(&good).unwrap()).unwrap().build().unwrap().next();
    let batch = batch.unwrap().unwrap();
    let columns = || -> Columns<'_> {
        batch
            .schema_ref()
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .zip(batch.columns().iter().cloned())
            .collect()
    };
    let refused = |change: &dyn Fn(&mut Columns<'_>)| {
        let mut columns = columns();
        change(&mut columns);
        write_forgery(&path, columns, Some(LOG_SCHEMA));
        read_log(&path).unwrap_err().to_string()
    };
    let replace = |columns: &mut Columns<'_>, name: &str, array: ArrayRef| {
        columns.iter_mut().find(|(column, _)| *column == name).unwrap().1 = array;
    };

    write_forgery(&path, columns(), Some(LOG_SCHEMA));
    assert_eq!(read_log(&path).unwrap(), read_log(&good).unwrap());

    let error = refused(&|columns| columns.retain(|(name, _)| *name != "due_ns"));
    assert!(error.ends_with("forged.parquet: column 'due_ns': missing"), "{error}");
    let error = refused(&|columns| replace(columns, "due_ns", Arc::new(Int64Array::from(vec![1, 2]))));
    assert!(error.ends_with("column 'due_ns': type is Int64; expected UInt64"), "{error}");
    let error = refused(&|columns| replace(columns, "arrival_ns", Arc::new(UInt64Array::from(vec![Some(1), None]))));
    assert!(error.ends_with("column 'arrival_ns': 1 values are missing; expected none"), "{error}");
    let error = refused(&|columns| replace(columns, "due_ns", Arc::new(UInt64Array::from(vec![20_000, 5]))));
    assert!(error.ends_with("column 'due_ns', row 1: 5 is before the arrival at 11000"), "{error}");
    let error = refused(&|columns| replace(columns, "completed_ns", Arc::new(UInt64Array::from(vec![9_999, 31_000]))));
    assert!(error.ends_with("column 'completed_ns', row 0: 9999 is before the arrival at 10000"), "{error}");
    // A completion slightly before its due time, as under the host's clock, and a log of a version before that clock.
    let early = |columns: &mut Columns<'_>| {
        replace(columns, "completed_ns", Arc::new(UInt64Array::from(vec![19_999, 31_000])));
        columns.retain(|(name, _)| *name != "stolen");
    };
    let mut changed = columns();
    early(&mut changed);
    write_forgery(&path, changed, Some(LOG_SCHEMA));
    assert_eq!(read_log(&path).unwrap()[0].earliness().as_nanos(), 1);
    let error = refused(&|columns| replace(columns, "lba_sectors", Arc::new(UInt64Array::from(vec![u64::MAX, 0]))));
    assert!(error.contains("column 'lba_sectors', row 0"), "{error}");
    let error = refused(&|columns| {
        replace(columns, "op", Arc::new(StringArray::from(vec!["read", "erase"])));
    });
    assert!(error.contains("column 'op', row 1: unknown operation 'erase'; expected one of read, write"), "{error}");

    write_forgery(&path, columns(), None);
    assert!(read_log(&path).unwrap_err().to_string().contains("schema is missing; expected 'chronodisk.requests/1'"));
    write_forgery(&path, columns(), Some("chronodisk.requests/2"));
    assert!(matches!(read_log(&path), Err(ReportError::Schema { found: Some(found), .. }) if found.ends_with("/2")));
    assert_eq!(batch.schema_ref().field(0).data_type(), &DataType::UInt16);
}

#[test]
fn a_run_comes_back_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let run = common::run("r1", "null", &[1_000, 1_100], &[common::record(0, 0, 100, 101)]);
    run.write(&path).unwrap();
    assert_eq!(RunResult::read(&path).unwrap(), run);
    assert_eq!(fs::read_to_string(&path).unwrap(), run.to_json());
}

#[test]
fn a_run_without_the_fields_that_came_later_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let mut run = common::run("r1", "null", &[1_000], &[]);
    let mut json = serde_json::to_value(&run).unwrap();
    let rep = json["reps"][0].as_object_mut().unwrap();
    for name in ["clock_counters", "model_statistics", "store_bytes", "host_cpu"] {
        rep.remove(name).unwrap();
    }
    fs::write(&path, json.to_string()).unwrap();
    run.reps[0].clock_counters.clear();
    run.reps[0].model_statistics.clear();
    (run.reps[0].store_bytes, run.reps[0].host_cpu) = (None, None);
    assert_eq!(RunResult::read(&path).unwrap(), run);
}

#[test]
fn a_run_that_is_none_is_refused_with_file_and_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let refused = |text: &str| {
        fs::write(&path, text).unwrap();
        RunResult::read(&path).unwrap_err().to_string()
    };
    assert!(refused("{\n  \"schema\": }").contains("run.json: expected value at line 2 column 13"));
    assert!(refused("{}").ends_with("run.json: schema is missing; expected 'chronodisk.run/1'"));
    assert!(refused("{\"schema\": \"chronodisk.run/2\"}").contains("'chronodisk.run/2'; expected 'chronodisk.run/1'"));
    assert!(refused("{\"schema\": \"chronodisk.run/1\"}").contains("missing field `run_id`"));
    let absent = RunResult::read(&folder.path().join("absent.json")).unwrap_err().to_string();
    assert!(absent.contains("absent.json: cannot read: No such file"), "{absent}");
}

#[test]
fn a_write_that_fails_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let taken = folder.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("inside"), "kept").unwrap();
    let error = write_log(&taken, &[]).unwrap_err();
    assert!(error.to_string().contains("taken: cannot write"), "{error}");
    assert_eq!(fs::read_to_string(taken.join("inside")).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no partial file stays");
    let nowhere = write_log(&folder.path().join("absent/log.parquet"), &[]).unwrap_err();
    assert!(nowhere.to_string().contains("absent/log.parquet: cannot create"), "{nowhere}");
}

#[test]
fn a_simulation_has_the_fields_that_people_expect() {
    let records: Vec<_> =
        (0..10).map(|order| common::record(order, order * 100, order * 100 + 100, order * 100 + 100)).collect();
    let simulation = Simulation::new("constant-100us", "random-read", Default::default(), &records);
    let json: serde_json::Value = serde_json::from_str(&simulation.to_json()).unwrap();
    assert_eq!(json["schema"], "chronodisk.simulate/1");
    assert_eq!(json["iops"], 10_000.0);
    for name in ["mean", "p50", "p90", "p99", "p999", "p9999", "max"] {
        assert_eq!(json["latency_us"][name], 100.0, "{name}");
    }
    assert_eq!(serde_json::from_str::<Simulation>(&simulation.to_json()).unwrap(), simulation);
    let nothing = Simulation::new("null", "random-read", Default::default(), &[]);
    assert_eq!((nothing.requests, nothing.iops), (0, 0.0));
}

/// `tests/logs/make-log.py` wrote it with pyarrow.
#[test]
fn a_log_of_another_library_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/pyarrow.parquet");
    let records = read_log(&path).unwrap();
    let plain: Vec<_> = records
        .iter()
        .map(|one| (one.device, one.op, one.lba.0, one.sectors, one.queue, one.issuer, one.arrival.as_nanos()))
        .collect();
    let expected = [
        (0, Op::Read, 0, 8, 0, 1, 0),
        (0, Op::Write, 1 << 54, 1 << 21, 1, u32::MAX, 5),
        (1, Op::Flush, 0, 0, u16::MAX, 0, 5),
        (0, Op::Discard, 4_096, 1_024, 0, 0, 1 << 62),
    ];
    assert_eq!(plain, expected);
    let instants: Vec<_> = records.iter().map(|one| (one.due.as_nanos(), one.completed.as_nanos())).collect();
    assert_eq!(instants, [(100, 101), (5, 5), (u64::MAX, 7), (u64::MAX, u64::MAX)]);
    let flags: Vec<_> = records.iter().map(|one| (one.fua, one.store_failed, one.stolen)).collect();
    assert_eq!(flags, [(false, false, false), (true, false, false), (false, true, false), (false, false, true)]);
    assert_eq!((records[0].model_time.as_nanos(), records[1].store_time.as_nanos()), (11, 12));
    let info = LogReader::open(&path).unwrap().info().clone();
    let expected = LogInfo {
        format: Some("msr".to_owned()),
        origin_unix_ns: Some(1_172_102_400_000_000_000),
        resolution_ns: Some(100),
        volumes: vec!["hm_0".to_owned(), "mds_1".to_owned()],
    };
    assert_eq!(info, expected);
    // Our own file of these records has the same columns, types, rows and metadata, as the library reads them.
    let folder = tempfile::tempdir().unwrap();
    let ours = folder.path().join("ours.parquet");
    let mut writer = LogWriter::create(&ours).unwrap();
    writer.append(&records).unwrap();
    writer.finish_with(&info).unwrap();
    let contents = |path: &Path| {
        let builder = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(path).unwrap()).unwrap();
        let pairs = builder.metadata().file_metadata().key_value_metadata().unwrap();
        let mut pairs: Vec<(String, Option<String>)> =
            pairs.iter().map(|pair| (pair.key.clone(), pair.value.clone())).collect();
        pairs.retain(|(key, _)| key.starts_with("chronodisk."));
        pairs.sort();
        let batches: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
        let fields = batches[0].schema().fields().iter().map(|field| field.as_ref().clone()).collect::<Vec<_>>();
        (pairs, fields, batches[0].columns().to_vec())
    };
    let (golden, written) = (contents(&path), contents(&ours));
    assert_eq!(golden.0, written.0);
    assert_eq!(golden.1, written.1);
    assert_eq!(golden.2, written.2);
}
