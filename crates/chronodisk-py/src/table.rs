//! Arrow tables in and out, through the C data interface.
#![allow(unsafe_code)]

use std::path::Path;
use std::sync::Mutex;

use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::{RecordBatch, RecordBatchIterator};
use chronodisk_report::{LogReader, LogWriter, ReportError, log_columns, records_of_table, table_of_records};
use chronodisk_sim::RequestRecord;
use chronodisk_sweep::Pieces;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::errors;

/// Rows of a batch.
const BATCH_ROWS: usize = 8_192;
/// The name that the Arrow PyCapsule interface gives to a stream.
const STREAM: &std::ffi::CStr = c"arrow_array_stream";

/// Requests as a table. Immutable; libraries that read it share its memory.
#[pyclass(frozen, module = "chronodisk._core")]
pub(crate) struct Requests {
    batches: Vec<RecordBatch>,
}

/// Collects records.
#[derive(Default)]
pub(crate) struct Gatherer {
    waiting: Vec<RequestRecord>,
    batches: Vec<RecordBatch>,
}

impl Gatherer {
    pub(crate) fn add(&mut self, record: &RequestRecord) {
        self.waiting.push(*record);
        if self.waiting.len() == BATCH_ROWS {
            self.batches.push(table_of_records(&self.waiting));
            self.waiting.clear();
        }
    }

    pub(crate) fn finish(mut self) -> Requests {
        if !self.waiting.is_empty() {
            self.batches.push(table_of_records(&self.waiting));
        }
        Requests { batches: self.batches }
    }
}

#[pymethods]
impl Requests {
    fn __len__(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// A stream of the Arrow C data interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer answer with its own schema.
        let _ = requested_schema;
        let batches: Vec<_> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, log_columns());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), STREAM)
    }

    /// Writes a log in Parquet, `chronodisk.requests/1`.
    fn write(&self, py: Python<'_>, path: &str) -> PyResult<()> {
        let write = || {
            let mut writer = LogWriter::create(Path::new(path))?;
            let mut first_row = 0;
            for batch in &self.batches {
                let records = records_of_table(path, batch, first_row)?;
                first_row += records.len() as u64;
                writer.append(&records)?;
            }
            writer.finish()
        };
        py.detach(write).map_err(|error| errors::report(py, &error))
    }
}

/// Reads a log in Parquet.
#[pyfunction]
pub(crate) fn read_requests(py: Python<'_>, path: &str) -> PyResult<Requests> {
    let read = || {
        let mut batches = Vec::new();
        for records in LogReader::open(Path::new(path))? {
            batches.push(table_of_records(&records?));
        }
        Ok(Requests { batches })
    };
    py.detach(read).map_err(|error: ReportError| errors::report(py, &error))
}

/// The records of an object that is an Arrow table, each piece when it is asked for.
pub(crate) fn records_of_object(object: &Bound<'_, PyAny>) -> PyResult<Pieces> {
    let py = object.py();
    let capsule = object.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>().map_err(|_| {
        PyTypeError::new_err("__arrow_c_stream__ gave no capsule; expected the Arrow PyCapsule interface")
    })?;
    let pointer = capsule.pointer_checked(Some(STREAM))?.as_ptr().cast::<FFI_ArrowArrayStream>();
    // SAFETY: a capsule of this name holds a stream of the C data interface. It is left empty.
    let reader = unsafe { RecordBatchStreamReader::from_raw(pointer) };
    let reader = Mutex::new(reader.map_err(|error| errors::usage(py, format!("the table can't be read: {error}")))?);
    let mut first_row = 0;
    let next = move || {
        // A producer in Python takes Python's lock itself.
        let batch = reader.lock().ok()?.next()?;
        let records = batch
            .map_err(|error| ReportError::Parquet { path: "table".into(), message: error.to_string() })
            .and_then(|batch| records_of_table("table", &batch, first_row));
        first_row += records.as_ref().map_or(0, Vec::len) as u64;
        Some(records)
    };
    Ok(Box::new(std::iter::from_fn(next)))
}
