//! Columns in the form that callers receive, and the buffers that they are made of.

use crate::{dynamic::value::size_of, interface::Primitive};

/// Rows as columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Number of rows.
    pub rows: usize,
    /// The columns in the order of the definition.
    pub columns: Vec<Column>,
}

/// A column with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The field's name, with dots between levels.
    pub name: String,
    /// Its values.
    pub array: Array,
}

/// Values of one field, one after another.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Numbers or booleans (a byte each, 0 or 1).
    Plain {
        /// Their kind; `long double` is rounded to `Double`.
        kind: Primitive,
        /// Numbers for each row; `None` for a column that is not an array.
        per_row: Option<usize>,
        /// Little endian, without padding.
        bytes: Vec<u8>,
    },
    /// UTF-8 texts; bytes that are not UTF-8 became U+FFFD.
    Text {
        /// Offset of each text, and the end of the last one.
        offsets: Vec<i64>,
        /// All texts.
        bytes: Vec<u8>,
    },
    /// Sequences of `uint8`, `byte` and `char`.
    Octets {
        /// Offset of each sequence, and the end of the last one.
        offsets: Vec<i64>,
        /// All bytes.
        bytes: Vec<u8>,
    },
    /// Sequences.
    List {
        /// Index of each sequence's first item, and the end of the last sequence.
        offsets: Vec<i64>,
        /// The elements of all sequences.
        items: Box<Array>,
    },
    /// Arrays of structs and texts.
    Fixed {
        /// Elements of each.
        count: usize,
        /// The elements of all arrays.
        items: Box<Array>,
    },
    /// Structs.
    Struct {
        /// Number of structs.
        length: usize,
        /// Their fields, each with as many values.
        fields: Vec<(String, Array)>,
    },
}

impl Batch {
    /// Appends rows of the same columns.
    pub fn append(&mut self, other: Self) {
        for (column, more) in self.columns.iter_mut().zip(other.columns) {
            column.array.append(more.array);
        }
        self.rows += other.rows;
    }
}

/// Appends lists that begin at 0 to others.
fn append_offsets(offsets: &mut Vec<i64>, more: &[i64]) {
    let end = offsets.last().copied().unwrap_or_default();
    offsets.extend(more.iter().skip(1).map(|offset| offset + end));
}

impl Array {
    /// Appends values of the same type.
    pub fn append(&mut self, other: Self) {
        match (self, other) {
            (Self::Plain { bytes, .. }, Self::Plain { bytes: mut more, .. }) => bytes.append(&mut more),
            (
                Self::Text { offsets, bytes },
                Self::Text {
                    offsets: places,
                    bytes: mut more,
                },
            )
            | (
                Self::Octets { offsets, bytes },
                Self::Octets {
                    offsets: places,
                    bytes: mut more,
                },
            ) => {
                append_offsets(offsets, &places);
                bytes.append(&mut more);
            }
            (
                Self::List { offsets, items },
                Self::List {
                    offsets: places,
                    items: more,
                },
            ) => {
                append_offsets(offsets, &places);
                items.append(*more);
            }
            (Self::Fixed { items, .. }, Self::Fixed { items: more, .. }) => items.append(*more),
            (
                Self::Struct { length, fields },
                Self::Struct {
                    length: more,
                    fields: others,
                },
            ) => {
                *length += more;
                for ((_, field), (_, other)) in fields.iter_mut().zip(others) {
                    field.append(other);
                }
            }
            // Columns of one builder have one type.
            _ => {}
        }
    }

    /// Bytes of its values and offsets.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Plain { bytes, .. } => bytes.len(),
            Self::Text { offsets, bytes } | Self::Octets { offsets, bytes } => {
                bytes.len() + 8 * offsets.len()
            }
            Self::List { offsets, items } => 8 * offsets.len() + items.bytes(),
            Self::Fixed { items, .. } => items.bytes(),
            Self::Struct { fields, .. } => fields.iter().map(|(_, array)| array.bytes()).sum(),
        }
    }
}

/// The buffers that collect the columns.
#[derive(Clone, Debug, Default)]
pub(super) struct Buffers {
    pub bytes: Vec<Vec<u8>>,
    pub offsets: Vec<Vec<i64>>,
}

impl Buffers {
    pub fn add_bytes(&mut self) -> usize {
        self.bytes.push(Vec::new());
        self.bytes.len() - 1
    }

    pub fn add_offsets(&mut self) -> usize {
        self.offsets.push(vec![0]);
        self.offsets.len() - 1
    }

    /// The same number of buffers, without values.
    pub fn emptied(&self) -> Self {
        Self {
            bytes: vec![Vec::new(); self.bytes.len()],
            offsets: vec![vec![0]; self.offsets.len()],
        }
    }

    pub fn bytes(&self) -> usize {
        let bytes: usize = self.bytes.iter().map(Vec::len).sum();
        bytes + 8 * self.offsets.iter().map(Vec::len).sum::<usize>()
    }
}

/// A column's place among the buffers.
#[derive(Clone, Debug)]
pub(super) enum Shape {
    Plain {
        kind: Primitive,
        per_row: Option<usize>,
        bytes: usize,
    },
    Text {
        offsets: usize,
        bytes: usize,
    },
    Octets {
        offsets: usize,
        bytes: usize,
    },
    List {
        offsets: usize,
        items: Box<Shape>,
    },
    Fixed {
        count: usize,
        items: Box<Shape>,
    },
    Struct {
        fields: Vec<(String, Shape)>,
    },
}

/// The end of the last of `rows` lists.
fn end_of(offsets: &[i64], rows: usize) -> usize {
    offsets
        .get(rows)
        .map_or(0, |end| usize::try_from(*end).unwrap_or_default())
}

/// All lists' offsets; those of no list are begun again, with room for as many.
fn taken_offsets(offsets: &mut Vec<i64>) -> Vec<i64> {
    let mut empty = Vec::with_capacity(offsets.len());
    empty.push(0);
    std::mem::replace(offsets, empty)
}

/// All bytes. The next rows get room for as many: growing from nothing copied each column several times.
fn taken(bytes: &mut Vec<u8>) -> Vec<u8> {
    let empty = Vec::with_capacity(bytes.len());
    std::mem::replace(bytes, empty)
}

impl Shape {
    /// Removes all but the first `rows` values.
    pub fn truncate(&self, buffers: &mut Buffers, rows: usize) {
        match self {
            Self::Plain { kind, per_row, bytes } => {
                buffers.bytes[*bytes].truncate(rows * per_row.unwrap_or(1) * size_of(*kind));
            }
            Self::Text { offsets, bytes } | Self::Octets { offsets, bytes } => {
                let end = end_of(&buffers.offsets[*offsets], rows);
                buffers.offsets[*offsets].truncate(rows + 1);
                buffers.bytes[*bytes].truncate(end);
            }
            Self::List { offsets, items } => {
                let end = end_of(&buffers.offsets[*offsets], rows);
                buffers.offsets[*offsets].truncate(rows + 1);
                items.truncate(buffers, end);
            }
            Self::Fixed { count, items } => items.truncate(buffers, rows * count),
            Self::Struct { fields } => {
                for (_, field) in fields {
                    field.truncate(buffers, rows);
                }
            }
        }
    }

    /// The first `rows` values, which are all.
    pub fn take(&self, buffers: &mut Buffers, rows: usize) -> Array {
        match self {
            Self::Plain { kind, per_row, bytes } => Array::Plain {
                kind: *kind,
                per_row: *per_row,
                bytes: taken(&mut buffers.bytes[*bytes]),
            },
            Self::Text { offsets, bytes } => Array::Text {
                offsets: taken_offsets(&mut buffers.offsets[*offsets]),
                bytes: taken(&mut buffers.bytes[*bytes]),
            },
            Self::Octets { offsets, bytes } => Array::Octets {
                offsets: taken_offsets(&mut buffers.offsets[*offsets]),
                bytes: taken(&mut buffers.bytes[*bytes]),
            },
            Self::List { offsets, items } => {
                let offsets = taken_offsets(&mut buffers.offsets[*offsets]);
                let count = end_of(&offsets, rows);
                Array::List {
                    offsets,
                    items: Box::new(items.take(buffers, count)),
                }
            }
            Self::Fixed { count, items } => Array::Fixed {
                count: *count,
                items: Box::new(items.take(buffers, rows * count)),
            },
            Self::Struct { fields } => Array::Struct {
                length: rows,
                fields: fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.take(buffers, rows)))
                    .collect(),
            },
        }
    }
}
