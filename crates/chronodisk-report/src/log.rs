//! The request log as a Parquet file, compressed with zstd, readable by any data-frame library.
//!
//! One row per request in order of arrival. Derived quantities are not stored: service time is
//! `due_ns - arrival_ns`, lateness `completed_ns - due_ns`. A request that was outstanding at the end of the run has no
//! `completed_ns`, and no `due_ns` either if its model had not completed it.

use std::cell::Cell;
use std::fs::File;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use arrow_array::types::{ArrowPrimitiveType, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use chronodisk_sim::{Lba, Nanos, Op, Priority, RequestRecord, Status};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::ReportError;
use crate::files::AtomicFile;
use crate::pages;

/// Name and version of the log's schema, in the file's metadata under `chronodisk.schema`.
pub const LOG_SCHEMA: &str = "chronodisk.requests/1";

/// Key of the schema's name in the file's metadata.
pub(crate) const SCHEMA_KEY: &str = "chronodisk.schema";

/// Rows of a row group.
pub(crate) const ROW_GROUP_ROWS: usize = 65_536;
/// Rows of a batch, held in memory besides the row group's compressed columns.
pub(crate) const BATCH_ROWS: usize = 8_192;

/// Properties of a log that was converted from another kind of trace. Stored in the file's metadata under
/// `chronodisk.trace.*`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogInfo {
    /// The trace's format.
    pub format: Option<String>,
    /// Instant 0, in nanoseconds since 1970 (UTC), if known.
    pub origin_unix_ns: Option<u64>,
    /// Resolution of the trace's clock, in nanoseconds.
    pub resolution_ns: Option<u64>,
    /// Names of the volumes, by the column `device`.
    pub volumes: Vec<String>,
}

mod info_key {
    pub(super) const FORMAT: &str = "chronodisk.trace.format";
    pub(super) const ORIGIN: &str = "chronodisk.trace.origin_unix_ns";
    pub(super) const RESOLUTION: &str = "chronodisk.trace.resolution_ns";
    pub(super) const VOLUMES: &str = "chronodisk.trace.volumes";
}

impl LogInfo {
    fn metadata(&self) -> Vec<KeyValue> {
        let mut pairs = Vec::new();
        let mut add = |key: &str, value: Option<String>| {
            pairs.extend(value.map(|value| KeyValue::new(key.to_owned(), value)));
        };
        add(info_key::FORMAT, self.format.clone());
        add(info_key::ORIGIN, self.origin_unix_ns.map(|ns| ns.to_string()));
        add(info_key::RESOLUTION, self.resolution_ns.map(|ns| ns.to_string()));
        let volumes = (!self.volumes.is_empty()).then(|| serde_json::to_string(&self.volumes));
        add(info_key::VOLUMES, volumes.and_then(Result::ok));
        pairs
    }

    /// Reads the properties from the metadata. Malformed ones are absent.
    fn of(metadata: Option<&Vec<KeyValue>>) -> Self {
        let number = |key: &str| metadata_value(metadata, key).and_then(|text| text.parse().ok());
        let volumes = metadata_value(metadata, info_key::VOLUMES);
        LogInfo {
            format: metadata_value(metadata, info_key::FORMAT),
            origin_unix_ns: number(info_key::ORIGIN),
            resolution_ns: number(info_key::RESOLUTION),
            volumes: volumes.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default(),
        }
    }
}

/// Writes a log; on an error, no file remains. Equal records give equal bytes.
///
/// # Errors
/// If the file can't be written.
pub fn write_log(path: &Path, records: &[RequestRecord]) -> Result<(), ReportError> {
    let mut writer = LogWriter::create(path)?;
    writer.append(records)?;
    writer.finish()
}

/// Writes a log piece by piece, in memory that does not grow with it. The file exists only after
/// [`finish`](Self::finish).
pub struct LogWriter {
    path: PathBuf,
    schema: Arc<Schema>,
    /// Writes to a temporary file, which is renamed at the end, since the last writes may still fail.
    writer: Option<ArrowWriter<AtomicFile>>,
    /// Records of an incomplete batch.
    waiting: Vec<RequestRecord>,
}

impl LogWriter {
    /// Begins a log at `path`.
    ///
    /// # Errors
    /// If the file can't be created.
    pub fn create(path: &Path) -> Result<Self, ReportError> {
        let file = AtomicFile::create(path)?;
        let schema = Arc::new(schema());
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
            .set_key_value_metadata(Some(vec![KeyValue::new(SCHEMA_KEY.to_owned(), LOG_SCHEMA.to_owned())]))
            .build();
        let writer =
            ArrowWriter::try_new(file, schema.clone(), Some(properties)).map_err(|error| failed(path, error))?;
        Ok(LogWriter { path: path.to_owned(), schema, writer: Some(writer), waiting: Vec::new() })
    }

    /// Appends the next records in order of arrival.
    ///
    /// # Errors
    /// If they can't be written; no file remains.
    pub fn append(&mut self, mut records: &[RequestRecord]) -> Result<(), ReportError> {
        if !self.waiting.is_empty() {
            let (fill, rest) = records.split_at(records.len().min(BATCH_ROWS - self.waiting.len()));
            self.waiting.extend_from_slice(fill);
            records = rest;
            if self.waiting.len() < BATCH_ROWS {
                return Ok(());
            }
            let batch = std::mem::take(&mut self.waiting);
            self.write(&batch)?;
            self.waiting = batch;
            self.waiting.clear();
        }
        let whole = records.len() / BATCH_ROWS * BATCH_ROWS;
        for batch in records[..whole].chunks(BATCH_ROWS) {
            self.write(batch)?;
        }
        self.waiting.extend_from_slice(&records[whole..]);
        Ok(())
    }

    /// Writes the remaining records, and renames the file to its final name.
    ///
    /// # Errors
    /// If a write or the renaming fails; no file remains.
    pub fn finish(self) -> Result<(), ReportError> {
        self.finish_with(&LogInfo::default())
    }

    /// Like [`finish`](Self::finish), for a log that was converted from another trace.
    ///
    /// # Errors
    /// Like [`finish`](Self::finish).
    pub fn finish_with(mut self, info: &LogInfo) -> Result<(), ReportError> {
        let rest = std::mem::take(&mut self.waiting);
        if !rest.is_empty() {
            self.write(&rest)?;
        }
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        info.metadata().into_iter().for_each(|pair| writer.append_key_value_metadata(pair));
        writer.into_inner().map_err(|error| failed(&self.path, error))?.keep()
    }

    fn write(&mut self, records: &[RequestRecord]) -> Result<(), ReportError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        let batch = batch_of(&self.schema, records);
        writer.write(&batch).map_err(|error| failed(&self.path, error))
    }
}

pub(crate) fn failed(path: &Path, error: parquet::errors::ParquetError) -> ReportError {
    match error {
        parquet::errors::ParquetError::External(source) => {
            ReportError::Io { path: path.to_owned(), action: "write", source: std::io::Error::other(source) }
        }
        other => ReportError::Parquet { path: path.to_owned(), message: other.to_string() },
    }
}

/// Reads a log from an untrusted file. Returns records that could have been logged, or an error that names file and
/// column.
///
/// # Errors
/// If the file can't be read, is damaged, has another schema, lacks a column, or has an impossible value.
pub fn read_log(path: &Path) -> Result<Vec<RequestRecord>, ReportError> {
    let mut records = Vec::new();
    for piece in LogReader::open(path)? {
        records.extend(piece?);
    }
    Ok(records)
}

thread_local! {
    /// Whether this thread is inside [`guarded`].
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Opens a Parquet file after a check of its pages.
pub(crate) fn opened(path: &Path, file: File) -> Result<ParquetRecordBatchReaderBuilder<File>, ReportError> {
    let damaged = |message: String| ReportError::Parquet { path: path.to_owned(), message };
    let pages = file.try_clone().map_err(|error| damaged(error.to_string()))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| damaged(error.to_string()))?;
    pages::check(&pages, builder.metadata()).map_err(damaged)?;
    Ok(builder)
}

/// Catches panics of the Parquet library on some damaged files: a file must not be able to end the program.
pub(crate) fn guarded<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, ReportError> + panic::UnwindSafe,
) -> Result<T, ReportError> {
    // The panic hook would print a message and a backtrace, as for a defect. Other threads still print them.
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                before(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let done = panic::catch_unwind(read);
    GUARDED.set(outer);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        let message = format!("damaged ({})", text.unwrap_or("unknown"));
        Err(ReportError::Parquet { path: path.to_owned(), message })
    })
}

/// Reads a log in pieces, in memory that does not grow with it. Returns the records and errors of [`read_log`].
pub struct LogReader {
    path: PathBuf,
    info: LogInfo,
    claimed_rows: u64,
    batches: ParquetRecordBatchReader,
    rows: u64,
}

impl LogReader {
    /// Opens a log for reading.
    ///
    /// # Errors
    /// Like [`read_log`].
    pub fn open(path: &Path) -> Result<Self, ReportError> {
        let failed = |source| ReportError::Io { path: path.to_owned(), action: "read", source };
        let file = File::open(path).map_err(failed)?;
        guarded(path, || LogReader::of(path, file))
    }

    fn of(path: &Path, file: File) -> Result<Self, ReportError> {
        let damaged = |message: String| ReportError::Parquet { path: path.to_owned(), message };
        let builder = opened(path, file)?;
        let metadata = builder.metadata().file_metadata().key_value_metadata();
        expect_schema(path, metadata, LOG_SCHEMA)?;
        let info = LogInfo::of(metadata);
        let claimed_rows = builder.metadata().file_metadata().num_rows().max(0) as u64;
        let batches = builder.with_batch_size(BATCH_ROWS).build().map_err(|error| damaged(error.to_string()))?;
        Ok(LogReader { path: path.to_owned(), info, claimed_rows, batches, rows: 0 })
    }

    /// The log's properties besides its requests.
    #[must_use]
    pub fn info(&self) -> &LogInfo {
        &self.info
    }

    /// Number of requests according to the file's metadata.
    #[must_use]
    pub fn claimed_rows(&self) -> u64 {
        self.claimed_rows
    }

    fn next_batch(&mut self) -> Result<Option<Vec<RequestRecord>>, ReportError> {
        let damaged = |message: String| ReportError::Parquet { path: self.path.clone(), message };
        let Some(batch) = self.batches.next() else { return Ok(None) };
        let batch = batch.map_err(|error| damaged(error.to_string()))?;
        let records = records_of(&self.path, &batch, self.rows)?;
        self.rows += records.len() as u64;
        Ok(Some(records))
    }
}

impl Iterator for LogReader {
    type Item = Result<Vec<RequestRecord>, ReportError>;

    fn next(&mut self) -> Option<Self::Item> {
        let path = self.path.clone();
        // After a panic the reader is not used again, because its user gets the error.
        guarded(&path, panic::AssertUnwindSafe(|| self.next_batch())).transpose()
    }
}

pub(crate) fn schema() -> Schema {
    let field = |name, data_type, nullable| Field::new(name, data_type, nullable);
    Schema::new(vec![
        field("device", DataType::UInt16, false),
        field("order", DataType::UInt64, false),
        field("op", DataType::Utf8, false),
        field("fua", DataType::Boolean, false),
        field("priority", DataType::Utf8, false),
        field("lba_sectors", DataType::UInt64, false),
        field("len_sectors", DataType::UInt32, false),
        field("queue", DataType::UInt16, false),
        field("issuer", DataType::UInt32, false),
        field("arrival_ns", DataType::UInt64, false),
        field("due_ns", DataType::UInt64, true),
        field("completed_ns", DataType::UInt64, true),
        field("status", DataType::Utf8, false),
        field("store_failed", DataType::Boolean, false),
        field("stolen", DataType::Boolean, false),
        field("model_time_ns", DataType::UInt64, false),
        field("store_time_ns", DataType::UInt64, false),
    ])
}

/// The records in the form of [`schema`].
pub(crate) fn batch_of(schema: &Arc<Schema>, records: &[RequestRecord]) -> RecordBatch {
    RecordBatch::try_new(schema.clone(), columns(records)).expect("the columns are of the schema")
}

/// The records in a batch of [`schema`].
pub(crate) fn records_of(path: &Path, batch: &RecordBatch, first_row: u64) -> Result<Vec<RequestRecord>, ReportError> {
    let mut records = Vec::with_capacity(batch.num_rows());
    Rows::new(path, batch, first_row)?.append_to(&mut records)?;
    Ok(records)
}

/// The columns of [`schema`], in its order.
fn columns(records: &[RequestRecord]) -> Vec<ArrayRef> {
    fn numbers<T: ArrowPrimitiveType>(
        records: &[RequestRecord],
        value: impl Fn(&RequestRecord) -> T::Native,
    ) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_iter_values(records.iter().map(value)))
    }
    fn instants(records: &[RequestRecord], value: impl Fn(&RequestRecord) -> Nanos) -> ArrayRef {
        let instant = |record| Some(value(record)).filter(|at| *at != Nanos::MAX).map(Nanos::as_nanos);
        Arc::new(PrimitiveArray::<UInt64Type>::from_iter(records.iter().map(instant)))
    }
    fn names(records: &[RequestRecord], value: impl Fn(&RequestRecord) -> &'static str) -> ArrayRef {
        Arc::new(StringArray::from_iter_values(records.iter().map(value)))
    }
    fn flags(records: &[RequestRecord], value: impl Fn(&RequestRecord) -> bool) -> ArrayRef {
        Arc::new(BooleanArray::from_iter(records.iter().map(|record| Some(value(record)))))
    }
    vec![
        numbers::<UInt16Type>(records, |record| record.device),
        numbers::<UInt64Type>(records, |record| record.order),
        names(records, |record| record.op.name()),
        flags(records, |record| record.fua),
        names(records, |record| record.priority.name()),
        numbers::<UInt64Type>(records, |record| record.lba.0),
        numbers::<UInt32Type>(records, |record| record.sectors),
        numbers::<UInt16Type>(records, |record| record.queue),
        numbers::<UInt32Type>(records, |record| record.issuer),
        numbers::<UInt64Type>(records, |record| record.arrival.as_nanos()),
        instants(records, |record| record.due),
        instants(records, |record| record.completed),
        names(records, |record| record.status.name()),
        flags(records, |record| record.store_failed),
        flags(records, |record| record.stolen),
        numbers::<UInt64Type>(records, |record| record.model_time.as_nanos()),
        numbers::<UInt64Type>(records, |record| record.store_time.as_nanos()),
    ]
}

/// The value of a key in a file's metadata.
pub(crate) fn metadata_value(metadata: Option<&Vec<KeyValue>>, key: &str) -> Option<String> {
    metadata?.iter().find(|pair| pair.key == key)?.value.clone()
}

/// Refuses a file of another schema.
pub(crate) fn expect_schema(
    path: &Path,
    metadata: Option<&Vec<KeyValue>>,
    expected: &'static str,
) -> Result<(), ReportError> {
    let found = metadata_value(metadata, SCHEMA_KEY);
    if found.as_deref() != Some(expected) {
        return Err(ReportError::Schema { path: path.to_owned(), found, expected });
    }
    Ok(())
}

/// A batch of a file with all required columns, of the right types.
struct Rows<'a> {
    path: &'a Path,
    first_row: u64,
    len: usize,
    device: &'a PrimitiveArray<UInt16Type>,
    order: &'a PrimitiveArray<UInt64Type>,
    op: &'a StringArray,
    fua: &'a BooleanArray,
    priority: &'a StringArray,
    lba: &'a PrimitiveArray<UInt64Type>,
    sectors: &'a PrimitiveArray<UInt32Type>,
    queue: &'a PrimitiveArray<UInt16Type>,
    issuer: &'a PrimitiveArray<UInt32Type>,
    arrival: &'a PrimitiveArray<UInt64Type>,
    due: &'a PrimitiveArray<UInt64Type>,
    completed: &'a PrimitiveArray<UInt64Type>,
    status: &'a StringArray,
    store_failed: &'a BooleanArray,
    /// Absent in logs of versions before the host's clock.
    stolen: Option<&'a BooleanArray>,
    model_time: &'a PrimitiveArray<UInt64Type>,
    store_time: &'a PrimitiveArray<UInt64Type>,
}

impl<'a> Rows<'a> {
    fn new(path: &'a Path, batch: &'a RecordBatch, first_row: u64) -> Result<Self, ReportError> {
        let schema = &schema();
        Ok(Rows {
            path,
            first_row,
            len: batch.num_rows(),
            device: column(path, schema, batch, "device")?,
            order: column(path, schema, batch, "order")?,
            op: column(path, schema, batch, "op")?,
            fua: column(path, schema, batch, "fua")?,
            priority: column(path, schema, batch, "priority")?,
            lba: column(path, schema, batch, "lba_sectors")?,
            sectors: column(path, schema, batch, "len_sectors")?,
            queue: column(path, schema, batch, "queue")?,
            issuer: column(path, schema, batch, "issuer")?,
            arrival: column(path, schema, batch, "arrival_ns")?,
            due: column(path, schema, batch, "due_ns")?,
            completed: column(path, schema, batch, "completed_ns")?,
            status: column(path, schema, batch, "status")?,
            store_failed: column(path, schema, batch, "store_failed")?,
            stolen: batch.column_by_name("stolen").map(|_| column(path, schema, batch, "stolen")).transpose()?,
            model_time: column(path, schema, batch, "model_time_ns")?,
            store_time: column(path, schema, batch, "store_time_ns")?,
        })
    }

    fn append_to(&self, records: &mut Vec<RequestRecord>) -> Result<(), ReportError> {
        for row in 0..self.len {
            records.push(self.record(row)?);
        }
        Ok(())
    }

    fn record(&self, row: usize) -> Result<RequestRecord, ReportError> {
        let optional = |array: &PrimitiveArray<UInt64Type>| {
            if array.is_null(row) { Nanos::MAX } else { Nanos::from_nanos(array.value(row)) }
        };
        let record = RequestRecord {
            device: self.device.value(row),
            order: self.order.value(row),
            op: self.named::<Op>("op", self.op, row)?,
            fua: self.fua.value(row),
            priority: self.named::<Priority>("priority", self.priority, row)?,
            lba: Lba(self.lba.value(row)),
            sectors: self.sectors.value(row),
            queue: self.queue.value(row),
            issuer: self.issuer.value(row),
            arrival: Nanos::from_nanos(self.arrival.value(row)),
            due: optional(self.due),
            completed: optional(self.completed),
            status: self.named::<Status>("status", self.status, row)?,
            store_failed: self.store_failed.value(row),
            stolen: self.stolen.is_some_and(|stolen| stolen.value(row)),
            model_time: Nanos::from_nanos(self.model_time.value(row)),
            store_time: Nanos::from_nanos(self.store_time.value(row)),
        };
        // Readers of the records subtract these instants; every written log has them in order.
        if record.due < record.arrival {
            let (due, arrival) = (record.due.as_nanos(), record.arrival.as_nanos());
            return Err(self.wrong("due_ns", row, format!("{due} is before the arrival at {arrival}")));
        }
        if record.completed < record.arrival {
            let (completed, arrival) = (record.completed.as_nanos(), record.arrival.as_nanos());
            return Err(self.wrong("completed_ns", row, format!("{completed} is before the arrival at {arrival}")));
        }
        if record.lba.0.checked_add(u64::from(record.sectors)).is_none() {
            return Err(self.wrong("lba_sectors", row, format!("{} is beyond any device", record.lba)));
        }
        Ok(record)
    }

    fn named<T: std::str::FromStr<Err = String>>(
        &self,
        column: &'static str,
        names: &StringArray,
        row: usize,
    ) -> Result<T, ReportError> {
        names.value(row).parse().map_err(|message| self.wrong(column, row, message))
    }

    fn wrong(&self, column: &'static str, row: usize, message: String) -> ReportError {
        ReportError::Column { path: self.path.to_owned(), column, row: Some(self.first_row + row as u64), message }
    }
}

/// A column by name, of the type in `schema`, without nulls unless `schema` permits them.
pub(crate) fn column<'a, T: Array + 'static>(
    path: &Path,
    schema: &Schema,
    batch: &'a RecordBatch,
    name: &'static str,
) -> Result<&'a T, ReportError> {
    let wrong = |message: String| ReportError::Column { path: path.to_owned(), column: name, row: None, message };
    let expected = schema.field_with_name(name).expect("the schema has every column that is read");
    let array = batch.column_by_name(name).ok_or_else(|| wrong("missing".into()))?;
    if array.data_type() != expected.data_type() {
        return Err(wrong(format!("type is {}; expected {}", array.data_type(), expected.data_type())));
    }
    if !expected.is_nullable() && array.null_count() > 0 {
        return Err(wrong(format!("{} values are missing; expected none", array.null_count())));
    }
    Ok(array.as_any().downcast_ref().expect("the type was compared"))
}
