//! All cells as a table in Parquet.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, UInt64Array,
};
use arrow_schema::{Field, Schema};
use chronodisk_report::AtomicFile;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use crate::cell::Value;
use crate::results::SWEEP_SCHEMA;
use crate::{Cell, Done, Sweep, SweepError};

/// Writes a row for each cell: its name, its axes, its seed, its status, and its figures. On an error, no file is left
/// behind. Equal cells give equal bytes.
pub(crate) fn write_table(path: &Path, sweep: &Sweep, cells: &[Cell], done: &[Done]) -> Result<(), SweepError> {
    let failed = |error: &dyn std::fmt::Display| SweepError::Host(format!("can't write {}: {error}", path.display()));
    let mut columns: Vec<(String, ArrayRef)> =
        vec![("cell".to_owned(), Arc::new(StringArray::from_iter_values(done.iter().map(|done| &done.name))))];
    for axis in sweep.axes.keys() {
        let values: Vec<&Value> = cells.iter().filter_map(|cell| cell.axes.get(axis)).collect();
        columns.push((axis.clone(), column(&values)));
    }
    columns.push(("seed".to_owned(), Arc::new(UInt64Array::from_iter_values(cells.iter().map(|cell| cell.seed)))));
    columns.push(("status".to_owned(), Arc::new(Int32Array::from_iter_values(done.iter().map(|done| done.status)))));
    let names: BTreeSet<&String> = done.iter().flat_map(|done| done.figures.keys()).collect();
    for name in names {
        // An axis may have a figure's name, such as `requests`.
        let shown = if sweep.axes.contains_key(name) { format!("figure.{name}") } else { name.clone() };
        let values: Float64Array = done.iter().map(|done| done.figures.get(name).copied()).collect();
        columns.push((shown, Arc::new(values)));
    }
    let fields: Vec<Field> =
        columns.iter().map(|(name, array)| Field::new(name, array.data_type().clone(), true)).collect();
    let schema = Arc::new(Schema::new(fields));
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(schema.clone(), arrays).map_err(|error| failed(&error))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_key_value_metadata(Some(vec![KeyValue::new("chronodisk.schema".to_owned(), SWEEP_SCHEMA.to_owned())]))
        .build();
    let file = AtomicFile::create(path).map_err(|error| failed(&error))?;
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(|error| failed(&error))?;
    writer.write(&batch).map_err(|error| failed(&error))?;
    writer.into_inner().map_err(|error| failed(&error))?.keep().map_err(|error| failed(&error))
}

/// The values of an axis in the narrowest type that has all.
fn column(values: &[&Value]) -> ArrayRef {
    let integers: Option<Vec<i64>> =
        values.iter().map(|value| if let Value::Integer(number) = value { Some(*number) } else { None }).collect();
    if let Some(integers) = integers {
        return Arc::new(Int64Array::from(integers));
    }
    let numbers: Option<Vec<f64>> = values.iter().map(|value| value.as_number()).collect();
    if let Some(numbers) = numbers {
        return Arc::new(Float64Array::from(numbers));
    }
    let flags: Option<Vec<bool>> =
        values.iter().map(|value| if let Value::Flag(flag) = value { Some(*flag) } else { None }).collect();
    match flags {
        Some(flags) => Arc::new(BooleanArray::from(flags)),
        None => Arc::new(StringArray::from_iter_values(values.iter().map(ToString::to_string))),
    }
}
