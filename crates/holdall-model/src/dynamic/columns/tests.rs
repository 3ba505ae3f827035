//! Columns against the walk: the same values, the same payloads refused.

use super::*;
use crate::dynamic::reference::{self, Value, decode};
use proptest::prelude::*;

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn plain(kind: crate::interface::Primitive, bytes: &[u8]) -> Value {
    use crate::interface::Primitive;
    match kind {
        Primitive::Uint8 => Value::U8(bytes[0]),
        Primitive::Int16 => Value::I16(number(bytes) as i16),
        Primitive::Uint32 => Value::U32(number(bytes) as u32),
        Primitive::Double => Value::F64(f64::from_bits(number(bytes))),
        other => panic!("no random type holds {other:?}"),
    }
}

/// The value at `index`.
fn value(array: &Array, index: usize) -> Value {
    let range = |offsets: &[i64]| offsets[index] as usize..offsets[index + 1] as usize;
    match array {
        Array::Plain { kind, per_row, bytes } => {
            let size = crate::dynamic::value::size_of(*kind);
            let row = size * per_row.unwrap_or(1);
            let mut values = bytes[index * row..(index + 1) * row]
                .chunks_exact(size)
                .map(|bytes| plain(*kind, bytes));
            match per_row {
                None => values.next().unwrap(),
                Some(_) => Value::List(true, values.collect()),
            }
        }
        Array::Text { offsets, bytes } => {
            Value::Text(String::from_utf8(bytes[range(offsets)].to_vec()).unwrap())
        }
        Array::Octets { offsets, bytes } => Value::List(
            true,
            bytes[range(offsets)]
                .iter()
                .map(|byte| Value::U8(*byte))
                .collect(),
        ),
        Array::List { offsets, items } => {
            Value::List(true, range(offsets).map(|item| value(items, item)).collect())
        }
        Array::Fixed { count, items } => Value::List(
            true,
            (index * count..(index + 1) * count)
                .map(|item| value(items, item))
                .collect(),
        ),
        Array::Struct { fields, length } => {
            assert!(index < *length);
            Value::Struct(fields.iter().map(|(_, field)| value(field, index)).collect())
        }
    }
}

/// The value without the parts that columns leave out: structs without fields, kinds of lists and texts.
fn reduced(value: &Value) -> Value {
    match value {
        Value::Struct(fields) => Value::Struct(
            fields
                .iter()
                .map(reduced)
                .filter(|field| *field != Value::Struct(Vec::new()))
                .collect(),
        ),
        Value::List(_, items) => Value::List(true, items.iter().map(reduced).collect()),
        Value::Wide(text) => Value::Text(text.clone()),
        other => other.clone(),
    }
}

fn row(batch: &Batch, index: usize) -> Value {
    Value::Struct(
        batch
            .columns
            .iter()
            .map(|column| value(&column.array, index))
            .collect(),
    )
}

fn nested(fields: &[&str]) -> ColumnOptions {
    ColumnOptions {
        fields: fields.iter().map(|field| (*field).to_owned()).collect(),
        nested: true,
        vectors: false,
    }
}

proptest! {
    #[test]
    fn columns_hold_what_a_walk_finds(case in reference::case(), kept in any::<u64>()) {
        let (plan, payload, expected) = case;
        let plan = Arc::new(plan);
        let mut builder = ColumnBuilder::new(Arc::clone(&plan), &nested(&[])).unwrap();
        builder.push(&payload).unwrap();
        // Every cut is refused or accepted as by a walk, and a refused one leaves no trace.
        let mut rows = 1;
        for end in 0..payload.len() {
            let accepted = decode(&plan, &payload[..end]).is_ok();
            prop_assert_eq!(builder.push(&payload[..end]).is_ok(), accepted, "cut at {}", end);
            rows += usize::from(accepted);
        }
        builder.push(&payload).unwrap();
        prop_assert_eq!(builder.rows(), rows + 1);
        let all = builder.take();
        let expected = reduced(&expected);
        prop_assert_eq!(&row(&all, 0), &expected);
        prop_assert_eq!(&row(&all, rows), &expected);
        // Some fields alone are the same as among all.
        let some: Vec<&super::Column> = all.columns.iter().enumerate().filter(|(at, _)| kept >> (at % 64) & 1 == 1).map(|(_, column)| column).collect();
        if !some.is_empty() {
            let names: Vec<&str> = some.iter().map(|column| column.name.as_str()).collect();
            let mut builder = ColumnBuilder::new(plan, &nested(&names)).unwrap();
            builder.push(&payload).unwrap();
            let found = builder.take();
            prop_assert_eq!(found.columns.len(), some.len());
            for (found, expected) in found.columns.iter().zip(some) {
                prop_assert_eq!(value(&found.array, 0), value(&expected.array, 0));
            }
        }
    }

    #[test]
    fn any_bytes_are_accepted_as_by_a_walk(case in reference::case(), bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0..9_u8) {
        let plan = Arc::new(case.0);
        let mut builder = ColumnBuilder::new(Arc::clone(&plan), &ColumnOptions::default()).unwrap();
        let mut payload = vec![0, kind, 0, 0];
        payload.extend(bytes);
        prop_assert_eq!(builder.push(&payload).is_ok(), decode(&plan, &payload).is_ok());
    }
}

#[test]
fn names_are_dotted_and_vectors_are_one_column() {
    let plan = Arc::new(reference::plan(&[
        ("a/msg/A", "H header\nV v\nV[] many\nint64 l"),
        ("a/msg/H", "uint32 stamp\nstring frame_id"),
        ("a/msg/V", "float64 x\nfloat64 y\nfloat64 z"),
    ]));
    let names = |options: &ColumnOptions| -> Vec<String> {
        let mut builder = ColumnBuilder::new(Arc::clone(&plan), options).unwrap();
        builder
            .take()
            .columns
            .into_iter()
            .map(|column| column.name)
            .collect()
    };
    let all = ColumnOptions::default();
    let flat = [
        "header.stamp",
        "header.frame_id",
        "v.x",
        "v.y",
        "v.z",
        "many",
        "l",
    ];
    assert_eq!(names(&all), flat);
    assert_eq!(names(&nested(&[])), ["header", "v", "many", "l"]);
    let vectors = ColumnOptions {
        fields: vec!["v".into(), "header.stamp".into()],
        vectors: true,
        ..ColumnOptions::default()
    };
    assert_eq!(names(&vectors), ["header.stamp", "v"]);
    for (wrong, message) in [
        ("v.w", "a/msg/V has no field v.w; it has x, y, z"),
        ("speed", "a/msg/A has no field speed; it has header, v, many, l"),
        ("l.m", "a/msg/A has no field l.m; it has l without fields"),
    ] {
        let error = ColumnBuilder::new(Arc::clone(&plan), &nested(&[wrong])).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let endless = ColumnOptions {
        fields: vec!["header.".repeat(1_000_000)],
        ..ColumnOptions::default()
    };
    assert!(ColumnBuilder::new(plan, &endless).is_err());
}

#[test]
fn hostile_sizes_are_refused() {
    let plan = Arc::new(reference::plan(&[
        ("a/msg/A", "B[18446744073709551615] b"),
        ("a/msg/B", "float64[18446744073709551615] x"),
    ]));
    let mut builder = ColumnBuilder::new(plan, &ColumnOptions::default()).unwrap();
    assert!(builder.push(&[0, 1, 0, 0, 1, 2, 3, 4]).is_err());
    assert_eq!(builder.take().rows, 0);
}
