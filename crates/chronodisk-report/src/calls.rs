//! Traces of system calls as Parquet files, compressed with zstd.
//!
//! One row per call in order of entry. The header is JSON in the file's metadata. Values that are not known are nulls.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BinaryArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use chronodisk_sim::{ContentsBudget, ContentsLimit, Nanos};
use chronodisk_trace::calls::{CallError, CallRecord, CallTrace, Header, StartState, TracerCost, Validator};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

use crate::ReportError;
use crate::files::AtomicFile;
use crate::log::{
    BATCH_ROWS, ROW_GROUP_ROWS, SCHEMA_KEY, column, expect_schema, failed, guarded, metadata_value, opened,
};

/// Name and version of the form of traces, in the file's metadata under `chronodisk.schema`.
pub const CALLS_SCHEMA: &str = "chronodisk.calls/1";

/// Key of the header in the file's metadata.
const HEADER_KEY: &str = "chronodisk.calls";

/// Columns of the arguments.
const ARGUMENTS: [&str; 6] = ["arg_0", "arg_1", "arg_2", "arg_3", "arg_4", "arg_5"];

/// The header as it is in files.
#[derive(Serialize, Deserialize)]
struct HeaderForm {
    mount: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_system_uuid: Option<String>,
    architecture: String,
    clock: String,
    #[serde(default)]
    free_computing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracer_ns: Option<[u64; 4]>,
    lost_events: u64,
    incomplete: BTreeMap<String, u64>,
    start: Vec<StartForm>,
}

#[derive(Serialize, Deserialize)]
struct StartForm {
    task: u32,
    directory: Option<String>,
    descriptors: BTreeMap<i32, String>,
}

/// Writes a trace; the file is there whole or not at all. Equal traces give equal bytes.
///
/// # Errors
/// If the trace could not be read back, or the file can't be written.
pub fn write_calls(path: &Path, trace: &CallTrace) -> Result<(), ReportError> {
    let refused = |error| wrong(path, error);
    trace.header.validate().map_err(refused)?;
    let mut validator = Validator::default();
    trace.records.iter().try_for_each(|record| validator.check(record)).map_err(refused)?;
    let header = serde_json::to_string(&to_form(&trace.header))
        .map_err(|error| ReportError::Json { path: path.to_owned(), message: error.to_string() })?;
    let file = AtomicFile::create(path)?;
    let schema = Arc::new(schema());
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS));
    // No two times are equal, so a dictionary of them is as long as the column. Differences of instants are short. CPU
    // times of the same size differ in their low bytes: apart from these, the others compress.
    let instants = ["entry_ns", "exit_ns"].map(|column| (column, Encoding::DELTA_BINARY_PACKED));
    let cpu_times = ["user_cpu_ns", "kernel_cpu_ns"].map(|column| (column, Encoding::BYTE_STREAM_SPLIT));
    for (column, encoding) in instants.into_iter().chain(cpu_times) {
        let column = ColumnPath::from(column);
        properties =
            properties.set_column_dictionary_enabled(column.clone(), false).set_column_encoding(column, encoding);
    }
    let properties = properties
        .set_key_value_metadata(Some(vec![
            KeyValue::new(SCHEMA_KEY.to_owned(), CALLS_SCHEMA.to_owned()),
            KeyValue::new(HEADER_KEY.to_owned(), header),
        ]))
        .build();
    let mut writer =
        ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|error| failed(path, error))?;
    for records in trace.records.chunks(BATCH_ROWS) {
        let batch = RecordBatch::try_new(schema.clone(), columns(records)).expect("the columns are of the schema");
        writer.write(&batch).map_err(|error| failed(path, error))?;
    }
    writer.into_inner().map_err(|error| failed(path, error))?.keep()
}

/// Reads a trace. The file may come from anywhere: the answer is a trace that could have been recorded, or an error
/// that names file, row and column.
///
/// # Errors
/// If the file can't be read, is damaged, has another schema, lacks a column, or has a value that can't be.
pub fn read_calls(path: &Path) -> Result<CallTrace, ReportError> {
    read_calls_within(path, CallMemory { limit: ContentsLimit::NONE, further_bytes: 0 })
}

/// The memory for the calls of a trace.
#[derive(Clone, Copy, Debug)]
pub struct CallMemory {
    /// The most that may be used.
    pub limit: ContentsLimit,
    /// The caller's own memory per call, besides the call itself, in bytes.
    pub further_bytes: u64,
}

impl CallMemory {
    /// Memory of a call without paths.
    fn per_call_bytes(self) -> u64 {
        size_of::<CallRecord>() as u64 + self.further_bytes
    }

    /// Memory of a call with paths, which are allocations of their own.
    fn bytes_of(self, record: &CallRecord) -> u64 {
        const ALLOCATION_BYTES: u64 = 16;
        let paths = record.path.iter().chain(&record.path_2);
        self.per_call_bytes() + paths.map(|path| path.len() as u64 + ALLOCATION_BYTES).sum::<u64>()
    }
}

/// Does the work of [`read_calls`] within a limit of memory.
///
/// # Errors
/// Like [`read_calls`], and if the calls need more memory.
pub fn read_calls_within(path: &Path, memory: CallMemory) -> Result<CallTrace, ReportError> {
    let file = File::open(path).map_err(|source| ReportError::Io { path: path.to_owned(), action: "read", source })?;
    guarded(path, || read_trace(path, file, memory))
}

fn read_trace(path: &Path, file: File, memory: CallMemory) -> Result<CallTrace, ReportError> {
    let over = |over| ReportError::Memory { path: path.to_owned(), over };
    let damaged = |message: String| ReportError::Parquet { path: path.to_owned(), message };
    let builder = opened(path, file)?;
    let metadata = builder.metadata().file_metadata().key_value_metadata();
    expect_schema(path, metadata, CALLS_SCHEMA)?;
    let header = metadata_value(metadata, HEADER_KEY).ok_or_else(|| damaged("the header is missing".into()))?;
    let header = serde_json::from_str(&header).map_err(|error| damaged(format!("the header is wrong: {error}")))?;
    let header = from_form(header).map_err(|error| wrong(path, error))?;
    header.validate().map_err(|error| wrong(path, error))?;
    let rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
    let reader = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| damaged(error.to_string()))?;
    memory.limit.allow(rows.saturating_mul(memory.per_call_bytes())).map_err(over)?;
    let mut budget = ContentsBudget::new(memory.limit);
    let mut records = Vec::new();
    if memory.limit != ContentsLimit::NONE {
        // A vector that grows has three times its size in between. Without the room it grows all the same.
        let _ = records.try_reserve_exact(rows as usize);
    }
    let mut validator = Validator::default();
    for batch in reader {
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let rows = Rows::new(path, &batch)?;
        for row in 0..batch.num_rows() {
            let record = rows.record(row, records.len() as u64).map_err(|error| wrong(path, error))?;
            validator.check(&record).map_err(|error| wrong(path, error))?;
            budget.take(memory.bytes_of(&record)).map_err(over)?;
            records.push(record);
        }
    }
    Ok(CallTrace { header, records })
}

fn wrong(path: &Path, error: CallError) -> ReportError {
    ReportError::Column { path: path.to_owned(), column: error.column, row: error.row, message: error.message }
}

fn to_form(header: &Header) -> HeaderForm {
    let start = |state: &StartState| StartForm {
        task: state.task,
        directory: state.directory.clone(),
        descriptors: state.descriptors.clone(),
    };
    HeaderForm {
        mount: header.mount.clone(),
        file_system_uuid: header.file_system_uuid.clone(),
        architecture: header.architecture.clone(),
        clock: header.clock.name().to_owned(),
        free_computing: header.free_computing,
        tracer_ns: header.tracer.map(|cost| [cost.inside, cost.low, cost.estimate, cost.high].map(Nanos::as_nanos)),
        lost_events: header.lost_events,
        incomplete: header.incomplete.clone(),
        start: header.start.iter().map(start).collect(),
    }
}

fn from_form(form: HeaderForm) -> Result<Header, CallError> {
    let start =
        |state: StartForm| StartState { task: state.task, directory: state.directory, descriptors: state.descriptors };
    Ok(Header {
        mount: form.mount,
        file_system_uuid: form.file_system_uuid,
        architecture: form.architecture,
        clock: form.clock.parse().map_err(|message| CallError { row: None, column: "clock", message })?,
        free_computing: form.free_computing,
        tracer: form.tracer_ns.map(|nanos| {
            let [inside, low, estimate, high] = nanos.map(Nanos::from_nanos);
            TracerCost { inside, low, estimate, high }
        }),
        lost_events: form.lost_events,
        incomplete: form.incomplete,
        start: form.start.into_iter().map(start).collect(),
    })
}

fn schema() -> Schema {
    let mut fields = vec![
        Field::new("task", DataType::UInt32, false),
        Field::new("group", DataType::UInt32, false),
        Field::new("call", DataType::Utf8, false),
    ];
    fields.extend(ARGUMENTS.map(|name| Field::new(name, DataType::UInt64, false)));
    fields.extend([
        Field::new("path", DataType::Binary, true),
        Field::new("path_2", DataType::Binary, true),
        Field::new("pipe_read", DataType::Int32, true),
        Field::new("pipe_write", DataType::Int32, true),
        Field::new("result", DataType::Int64, true),
        Field::new("entry_ns", DataType::UInt64, false),
        Field::new("exit_ns", DataType::UInt64, true),
        Field::new("user_cpu_ns", DataType::UInt64, true),
        Field::new("kernel_cpu_ns", DataType::UInt64, true),
        Field::new("folded", DataType::UInt32, false),
    ]);
    Schema::new(fields)
}

/// The columns of [`schema`], in its order.
fn columns(records: &[CallRecord]) -> Vec<ArrayRef> {
    fn numbers<T: ArrowPrimitiveType>(records: &[CallRecord], value: impl Fn(&CallRecord) -> T::Native) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_iter_values(records.iter().map(value)))
    }
    fn known<T: ArrowPrimitiveType>(
        records: &[CallRecord],
        value: impl Fn(&CallRecord) -> Option<T::Native>,
    ) -> ArrayRef {
        Arc::new(records.iter().map(value).collect::<PrimitiveArray<T>>())
    }
    fn paths(records: &[CallRecord], value: impl Fn(&CallRecord) -> Option<&[u8]>) -> ArrayRef {
        Arc::new(BinaryArray::from_iter(records.iter().map(value)))
    }
    let mut columns = vec![
        numbers::<UInt32Type>(records, |record| record.task),
        numbers::<UInt32Type>(records, |record| record.group),
        Arc::new(StringArray::from_iter_values(records.iter().map(|record| record.call.name()))),
    ];
    columns.extend((0..ARGUMENTS.len()).map(|at| numbers::<UInt64Type>(records, |record| record.arguments[at])));
    columns.extend([
        paths(records, |record| record.path.as_deref()),
        paths(records, |record| record.path_2.as_deref()),
        known::<Int32Type>(records, |record| record.pipe.map(|pipe| pipe[0])),
        known::<Int32Type>(records, |record| record.pipe.map(|pipe| pipe[1])),
        known::<Int64Type>(records, |record| record.result),
        numbers::<UInt64Type>(records, |record| record.entry.as_nanos()),
        known::<UInt64Type>(records, |record| record.exit.map(Nanos::as_nanos)),
        known::<UInt64Type>(records, |record| record.user_cpu.map(Nanos::as_nanos)),
        known::<UInt64Type>(records, |record| record.kernel_cpu.map(Nanos::as_nanos)),
        numbers::<UInt32Type>(records, |record| record.folded),
    ]);
    columns
}

/// A batch of a file, its columns found and of the right types.
struct Rows<'a> {
    task: &'a PrimitiveArray<UInt32Type>,
    group: &'a PrimitiveArray<UInt32Type>,
    call: &'a StringArray,
    arguments: Vec<&'a PrimitiveArray<UInt64Type>>,
    path: &'a BinaryArray,
    path_2: &'a BinaryArray,
    pipe_read: &'a PrimitiveArray<Int32Type>,
    pipe_write: &'a PrimitiveArray<Int32Type>,
    result: &'a PrimitiveArray<Int64Type>,
    entry: &'a PrimitiveArray<UInt64Type>,
    exit: &'a PrimitiveArray<UInt64Type>,
    user_cpu: &'a PrimitiveArray<UInt64Type>,
    kernel_cpu: &'a PrimitiveArray<UInt64Type>,
    folded: &'a PrimitiveArray<UInt32Type>,
}

impl<'a> Rows<'a> {
    fn new(path: &Path, batch: &'a RecordBatch) -> Result<Self, ReportError> {
        let schema = &schema();
        let arguments = ARGUMENTS.iter().map(|name| column(path, schema, batch, name));
        Ok(Rows {
            task: column(path, schema, batch, "task")?,
            group: column(path, schema, batch, "group")?,
            call: column(path, schema, batch, "call")?,
            arguments: arguments.collect::<Result<_, _>>()?,
            path: column(path, schema, batch, "path")?,
            path_2: column(path, schema, batch, "path_2")?,
            pipe_read: column(path, schema, batch, "pipe_read")?,
            pipe_write: column(path, schema, batch, "pipe_write")?,
            result: column(path, schema, batch, "result")?,
            entry: column(path, schema, batch, "entry_ns")?,
            exit: column(path, schema, batch, "exit_ns")?,
            user_cpu: column(path, schema, batch, "user_cpu_ns")?,
            kernel_cpu: column(path, schema, batch, "kernel_cpu_ns")?,
            folded: column(path, schema, batch, "folded")?,
        })
    }

    /// Row `row` of the batch, which is row `in_file` of the file.
    fn record(&self, row: usize, in_file: u64) -> Result<CallRecord, CallError> {
        fn known<T: ArrowPrimitiveType>(array: &PrimitiveArray<T>, row: usize) -> Option<T::Native> {
            (!array.is_null(row)).then(|| array.value(row))
        }
        let text = |array: &BinaryArray| (!array.is_null(row)).then(|| array.value(row).to_vec());
        let instant = |array| known(array, row).map(Nanos::from_nanos);
        let wrong = |column, message| CallError { row: Some(in_file), column, message };
        let pipe = match (known(self.pipe_read, row), known(self.pipe_write, row)) {
            (Some(read), Some(write)) => Some([read, write]),
            (None, None) => None,
            _ => return Err(wrong("pipe_write", "only one of the pipe's descriptors is there".to_owned())),
        };
        Ok(CallRecord {
            task: self.task.value(row),
            group: self.group.value(row),
            call: self.call.value(row).parse().map_err(|message| wrong("call", message))?,
            arguments: std::array::from_fn(|at| self.arguments[at].value(row)),
            path: text(self.path),
            path_2: text(self.path_2),
            pipe,
            result: known(self.result, row),
            entry: Nanos::from_nanos(self.entry.value(row)),
            exit: instant(self.exit),
            user_cpu: instant(self.user_cpu),
            kernel_cpu: instant(self.kernel_cpu),
            folded: self.folded.value(row),
        })
    }
}
