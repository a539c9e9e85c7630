//! Requests as Arrow tables in memory: the columns of a log, without its file.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use arrow_schema::{DataType, Schema};
use chronodisk_sim::{Priority, RequestRecord, Status};

use crate::ReportError;
use crate::log::{batch_of, records_of, schema};

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(schema()));

/// The columns of a log.
#[must_use]
pub fn log_columns() -> Arc<Schema> {
    SCHEMA.clone()
}

/// Records as rows of a table with the columns of a log.
#[must_use]
pub fn table_of_records(records: &[RequestRecord]) -> RecordBatch {
    batch_of(&SCHEMA, records)
}

/// Converts a piece of a foreign table to records. `first_row` is the number of its first row, and `label` names the
/// table in messages.
///
/// `op`, `lba_sectors`, `len_sectors` and `arrival_ns` are required. Other missing columns of a log take the values of
/// a plain request. Columns of other names are ignored. Integers may be of any width.
///
/// # Errors
/// If a column is missing, of another kind, or has an impossible value.
pub fn records_of_table(label: &str, batch: &RecordBatch, first_row: u64) -> Result<Vec<RequestRecord>, ReportError> {
    let path = Path::new(label);
    let mut columns = Vec::with_capacity(SCHEMA.fields().len());
    for (field, name) in SCHEMA.fields().iter().zip(NAMES) {
        let wrong = |(row, message): Wrong| ReportError::Column { path: path.to_owned(), column: name, row, message };
        let column = match batch.column_by_name(name) {
            Some(array) => conform(array, field.data_type(), first_row).map_err(wrong)?,
            None => absent(name, field.data_type(), batch.num_rows(), first_row)
                .ok_or_else(|| wrong((None, "missing".to_owned())))?,
        };
        if !field.is_nullable() && column.null_count() > 0 {
            return Err(wrong((None, format!("{} values are missing; expected none", column.null_count()))));
        }
        columns.push(column);
    }
    let whole = RecordBatch::try_new(SCHEMA.clone(), columns).map_err(|error| ReportError::Column {
        path: path.to_owned(),
        column: "order",
        row: None,
        message: error.to_string(),
    })?;
    records_of(path, &whole, first_row)
}

/// Names of the schema's columns, in its order.
const NAMES: [&str; 17] = [
    "device",
    "order",
    "op",
    "fua",
    "priority",
    "lba_sectors",
    "len_sectors",
    "queue",
    "issuer",
    "arrival_ns",
    "due_ns",
    "completed_ns",
    "status",
    "store_failed",
    "stolen",
    "model_time_ns",
    "store_time_ns",
];

/// A row, if it is one that is wrong, and a message.
type Wrong = (Option<u64>, String);

/// Default of a missing column; `None` if it is required.
fn absent(name: &str, kind: &DataType, rows: usize, first_row: u64) -> Option<ArrayRef> {
    Some(match (name, kind) {
        ("op" | "lba_sectors" | "len_sectors" | "arrival_ns", _) => return None,
        ("order", _) => Arc::new(PrimitiveArray::<UInt64Type>::from_iter_values(first_row..first_row + rows as u64)),
        ("due_ns" | "completed_ns", _) => Arc::new(PrimitiveArray::<UInt64Type>::new_null(rows)),
        ("priority", _) => Arc::new(StringArray::from_iter_values((0..rows).map(|_| Priority::Normal.name()))),
        (_, DataType::Utf8) => Arc::new(StringArray::from_iter_values((0..rows).map(|_| Status::Ok.name()))),
        (_, DataType::Boolean) => Arc::new(BooleanArray::from(vec![false; rows])),
        (_, DataType::UInt16) => Arc::new(PrimitiveArray::<UInt16Type>::from_value(0, rows)),
        (_, DataType::UInt32) => Arc::new(PrimitiveArray::<UInt32Type>::from_value(0, rows)),
        (_, _) => Arc::new(PrimitiveArray::<UInt64Type>::from_value(0, rows)),
    })
}

/// An array in the type that a log has for it.
fn conform(array: &ArrayRef, kind: &DataType, first_row: u64) -> Result<ArrayRef, Wrong> {
    if array.data_type() == kind {
        return Ok(array.clone());
    }
    let of_another_type = || (None, format!("type is {}; expected {kind} or a like one", array.data_type()));
    match kind {
        DataType::Utf8 => Ok(Arc::new(texts(array).ok_or_else(of_another_type)?)),
        DataType::UInt16 => narrowed::<UInt16Type>(array, first_row, of_another_type),
        DataType::UInt32 => narrowed::<UInt32Type>(array, first_row, of_another_type),
        DataType::UInt64 => narrowed::<UInt64Type>(array, first_row, of_another_type),
        _ => Err(of_another_type()),
    }
}

fn texts(array: &ArrayRef) -> Option<StringArray> {
    Some(match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().clone(),
        DataType::LargeUtf8 => array.as_string::<i64>().iter().collect(),
        DataType::Utf8View => array.as_string_view().iter().collect(),
        DataType::Dictionary(_, _) => {
            let dictionary = array.as_any_dictionary_opt()?;
            let values = texts(dictionary.values())?;
            let keys = dictionary.normalized_keys();
            let value = |(row, key): (usize, usize)| dictionary.keys().is_valid(row).then(|| values.value(key));
            if values.is_empty() {
                StringArray::new_null(array.len())
            } else {
                keys.into_iter().enumerate().map(value).collect()
            }
        }
        _ => return None,
    })
}

fn narrowed<T: ArrowPrimitiveType>(
    array: &ArrayRef,
    first_row: u64,
    of_another_type: impl Fn() -> Wrong,
) -> Result<ArrayRef, Wrong>
where
    T::Native: TryFrom<i128>,
{
    fn numbers<S: ArrowPrimitiveType>(array: &ArrayRef) -> Vec<Option<i128>>
    where
        i128: From<S::Native>,
    {
        array.as_primitive::<S>().iter().map(|value| value.map(i128::from)).collect()
    }
    let numbers = match array.data_type() {
        DataType::Int8 => numbers::<Int8Type>(array),
        DataType::Int16 => numbers::<Int16Type>(array),
        DataType::Int32 => numbers::<Int32Type>(array),
        DataType::Int64 => numbers::<Int64Type>(array),
        DataType::UInt8 => numbers::<UInt8Type>(array),
        DataType::UInt16 => numbers::<UInt16Type>(array),
        DataType::UInt32 => numbers::<UInt32Type>(array),
        DataType::UInt64 => numbers::<UInt64Type>(array),
        _ => return Err(of_another_type()),
    };
    let convert = |(row, number): (usize, Option<i128>)| match number {
        None => Ok(None),
        Some(number) => match T::Native::try_from(number) {
            Ok(value) => Ok(Some(value)),
            Err(_) => Err((Some(first_row + row as u64), format!("{number}; expected a number of {}", T::DATA_TYPE))),
        },
    };
    let values = numbers.into_iter().enumerate().map(convert).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(values.into_iter().collect::<PrimitiveArray<T>>()))
}

#[cfg(test)]
mod tests {
    use arrow_array::{DictionaryArray, Int64Array, LargeStringArray, StringViewArray};

    use super::*;

    fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn numbers(values: &[i64]) -> ArrayRef {
        Arc::new(Int64Array::from(values.to_vec()))
    }

    #[test]
    fn names_are_those_of_the_schema() {
        let names: Vec<&str> = SCHEMA.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, NAMES);
    }

    #[test]
    fn tables_of_other_libraries_are_understood() {
        let texts: [ArrayRef; 3] = [
            Arc::new(LargeStringArray::from(vec!["read", "write"])),
            Arc::new(StringViewArray::from(vec!["read", "write"])),
            Arc::new(DictionaryArray::<Int8Type>::from_iter(["read", "write"])),
        ];
        for op in texts {
            let piece = table(vec![
                ("arrival_ns", numbers(&[5, 7])),
                ("op", op),
                ("lba_sectors", numbers(&[16, 8])),
                ("len_sectors", numbers(&[8, 1])),
                ("note", numbers(&[0, 0])),
            ]);
            let records = records_of_table("table", &piece, 40).unwrap();
            let seen: Vec<_> = records.iter().map(|one| (one.order, one.op.name(), one.lba.0, one.sectors)).collect();
            assert_eq!(seen, [(40, "read", 16, 8), (41, "write", 8, 1)]);
            assert!(records.iter().all(|one| !one.is_completed() && one.status == Status::Ok));
            assert_eq!(records_of_table("table", &table_of_records(&records), 0).unwrap(), records);
        }
    }

    #[test]
    fn what_can_not_be_is_refused_with_column_and_row() {
        let op: ArrayRef = Arc::new(StringArray::from(vec!["read", "write"]));
        let with = |lba: ArrayRef| {
            let columns = vec![
                ("op", op.clone()),
                ("lba_sectors", lba),
                ("len_sectors", numbers(&[8, 1])),
                ("arrival_ns", numbers(&[5, 7])),
            ];
            records_of_table("table", &table(columns), 10).unwrap_err().to_string()
        };
        for (lba, column, message) in [
            (numbers(&[1, -1]), "lba_sectors", "-1; expected"),
            (op.clone(), "lba_sectors", "type is Utf8"),
            (Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef, "lba_sectors", "1 values are missing"),
        ] {
            let error = with(lba);
            assert!(error.contains(column) && error.contains(message), "{error}");
        }
        assert!(with(numbers(&[1, -1])).contains("11"), "the row counts from the table's beginning");
        let without = table(vec![("op", op.clone())]);
        assert!(records_of_table("table", &without, 0).unwrap_err().to_string().contains("missing"));
    }
}
