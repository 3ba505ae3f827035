//! A topic as a table of comma-separated values.
//!
//! Columns are `log_time`, `publish_time` (nanoseconds since 1970), `sequence`, after `header_stamp` where that is the clock, then one for each plain
//! field, named by its path (`header.stamp.sec`). Arrays of up to [`ARRAY_COLUMNS_MAX`] elements have a
//! column for each element (`covariance[0]`); longer arrays, and all sequences, are one column of JSON. Texts
//! are quoted where necessary (RFC 4180); NaN and infinities are `nan`, `inf`, `-inf`; structs without fields
//! have no column.

use super::ExistingFiles;
use super::{ExportError, Finished, Sink, file::PartialFile};
use holdall_bag::{decode::TimeBase, reader::BagMessage, table::stamp_names};
use holdall_model::{
    dynamic::{
        ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor,
        text::{CompiledText, JsonVisitor, TextOptions, quote, write_plain_number},
    },
    interface::Arity,
};
use std::{path::Path, sync::Arc};

/// Longer arrays are one column.
pub(super) const ARRAY_COLUMNS_MAX: u64 = 64;
/// Most columns of a table.
const COLUMNS_MAX: usize = 16_384;

/// Writes one topic.
pub(super) struct CsvSink {
    plan: Arc<TypePlan>,
    /// Writes most messages; a walk writes or judges the others.
    compiled: Option<CompiledText>,
    file: PartialFile,
    row: Vec<u8>,
    cell: Vec<u8>,
    time: TimeBase,
}

impl CsvSink {
    pub fn create(
        plan: Arc<TypePlan>,
        path: &Path,
        existing: ExistingFiles,
        time: TimeBase,
    ) -> Result<Self, ExportError> {
        let mut head = stamp_names(&plan, time);
        columns(&plan, plan.root(), "", &mut head)?;
        let mut file = PartialFile::create(path, existing)?;
        // The properties of JSON schemas may have any name.
        let mut line = Vec::new();
        for name in &head {
            if !line.is_empty() {
                line.push(b',');
            }
            quote(&mut line, name.as_bytes());
        }
        line.push(b'\n');
        file.append(&line)?;
        Ok(Self {
            compiled: CompiledText::cells(&plan, ARRAY_COLUMNS_MAX, &TextOptions::default()),
            plan,
            file,
            row: Vec::new(),
            cell: Vec::new(),
            time,
        })
    }
}

impl CsvSink {
    /// Appends the cells of a message's fields.
    fn cells(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        if let Some(compiled) = &mut self.compiled
            && compiled.append(&message.payload, &mut self.row)
        {
            return Ok(());
        }
        let options = TextOptions::default();
        let mut visitor = RowVisitor {
            plan: &self.plan,
            options: &options,
            row: &mut self.row,
            cell: &mut self.cell,
            json: None,
            is_cut: false,
        };
        let walked = self.plan.walk(&message.payload, &mut visitor);
        if visitor.is_cut {
            return Err(ExportError::message("a list is too long for a cell"));
        }
        walked.map_err(ExportError::message)?;
        Ok(())
    }
}

impl Sink for CsvSink {
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        self.row.clear();
        if self.time == TimeBase::HeaderStamp {
            write_plain_number(&mut self.row, Scalar::I64(message.stamp.as_nanos()));
            self.row.push(b',');
        }
        write_plain_number(&mut self.row, Scalar::I64(message.log_time.as_nanos()));
        self.row.push(b',');
        write_plain_number(&mut self.row, Scalar::I64(message.publish_time.as_nanos()));
        self.row.push(b',');
        write_plain_number(&mut self.row, Scalar::U32(message.sequence));
        self.cells(message)?;
        self.row.push(b'\n');
        self.file.append(&self.row)
    }

    fn finish(self: Box<Self>) -> Result<Finished, ExportError> {
        Ok(self.file.finish()?.into())
    }
}

/// Whether a field has columns for its elements.
fn has_columns(field: &FieldPlan) -> bool {
    match field.arity {
        Arity::One => true,
        Arity::Array(count) => count <= ARRAY_COLUMNS_MAX,
        Arity::BoundedSequence(_) | Arity::UnboundedSequence => false,
    }
}

fn columns(
    plan: &TypePlan,
    structure: &StructPlan,
    prefix: &str,
    head: &mut Vec<String>,
) -> Result<(), ExportError> {
    if structure.is_empty {
        return Ok(());
    }
    for field in &structure.fields {
        let name = format!("{prefix}{}", field.name);
        let names: Vec<String> = match field.arity {
            Arity::Array(count) if has_columns(field) => {
                (0..count).map(|index| format!("{name}[{index}]")).collect()
            }
            _ => vec![name],
        };
        for name in names {
            match field.element {
                ElementPlan::Struct(index) if has_columns(field) => {
                    columns(plan, plan.structure(index), &format!("{name}."), head)?;
                }
                _ => head.push(name),
            }
            if head.len() > COLUMNS_MAX {
                return Err(ExportError::TooManyColumns {
                    type_name: plan.type_name().to_owned(),
                    columns_max: COLUMNS_MAX,
                });
            }
        }
    }
    Ok(())
}

/// Appends the cells of a row in the order in which the values come.
struct RowVisitor<'p> {
    plan: &'p TypePlan,
    options: &'p TextOptions,
    row: &'p mut Vec<u8>,
    /// The JSON of the current list.
    cell: &'p mut Vec<u8>,
    json: Option<Json>,
    is_cut: bool,
}

/// A list that becomes one cell: the current depth in it, and whether an element or field precedes the next
/// one.
struct Json {
    depth: usize,
    follows: bool,
}

impl RowVisitor<'_> {
    fn text(&mut self, text: &str) {
        self.row.push(b',');
        quote(self.row, text.as_bytes());
    }

    /// Passes an event to the JSON writer, with the state of the whole cell.
    fn json(&mut self, event: impl FnOnce(&mut JsonVisitor<'_, '_>)) {
        let Some(json) = &mut self.json else {
            return;
        };
        let mut visitor = JsonVisitor::new(self.plan, self.cell, self.options).resumed(json.follows);
        event(&mut visitor);
        json.follows = visitor.follows();
        self.is_cut |= visitor.is_cut();
    }

    fn close_cell(&mut self) {
        self.json = None;
        self.row.push(b',');
        quote(self.row, self.cell);
        self.is_cut |= self.cell.len() > self.options.bytes_max;
    }
}

impl<'a> Visitor<'a> for RowVisitor<'_> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        if self.json.is_some() {
            self.json(|json| {
                json.wants_field(field);
            });
        }
        !self.is_cut
    }

    #[inline]
    fn scalar(&mut self, value: Scalar<'a>) {
        if self.json.is_some() {
            return self.json(|json| json.scalar(value));
        }
        match value {
            Scalar::Text(text) => self.text(&text.to_str()),
            Scalar::Wide(text) => self.text(&text.to_text()),
            value => {
                self.row.push(b',');
                write_plain_number(self.row, value);
            }
        }
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        if self.json.is_some() {
            return self.json(|json| json.primitives(field, values));
        }
        if has_columns(field) {
            for value in values.iter() {
                self.row.push(b',');
                write_plain_number(self.row, value);
            }
            return;
        }
        self.cell.clear();
        self.json = Some(Json {
            depth: 0,
            follows: false,
        });
        self.json(|json| json.primitives(field, values));
        self.close_cell();
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        self.json(|json| json.begin_struct(structure));
    }

    fn end_struct(&mut self, structure: &StructPlan) {
        self.json(|json| json.end_struct(structure));
    }

    fn begin_list(&mut self, field: &FieldPlan, count: u64) {
        match &mut self.json {
            Some(json) => json.depth += 1,
            None if has_columns(field) => return,
            None => {
                self.cell.clear();
                self.json = Some(Json {
                    depth: 1,
                    follows: false,
                });
            }
        }
        self.json(|json| json.begin_list(field, count));
    }

    fn wants_item(&mut self, index: u64) -> bool {
        self.json(|json| {
            json.wants_item(index);
        });
        !self.is_cut
    }

    fn end_list(&mut self, field: &FieldPlan, count: u64) {
        self.json(|json| json.end_list(field, count));
        if let Some(json) = &mut self.json {
            json.depth -= 1;
            if json.depth == 0 {
                self.close_cell();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::tests::{Bytes, message, plan};

    #[test]
    fn compiled_rows_are_those_of_a_walk() {
        let plan = plan(&[
            (
                "a/msg/A",
                "B b\nfloat32[2] pair\nB[2] two\nuint8[65] long\nstring[] names\nB[] many\nE e\nstring s\nfloat32[] none\nstring[65] words",
            ),
            ("a/msg/B", "string s\nE[2] e\nbool yes\nfloat32[] list"),
            ("a/msg/E", ""),
        ]);
        let b = |bytes: Bytes, text: &str| {
            let bytes = bytes.text(text).u8(0).u8(0).u8(1).u32(2);
            bytes.u32(f32::NAN.to_bits()).u32(1e30_f32.to_bits())
        };
        let bytes = b(Bytes::head(), "x,\"y\"").u32(1.5_f32.to_bits()).u32(0);
        let mut bytes = b(b(bytes, "1"), "two\nlines");
        bytes.0.extend([7; 65]);
        let mut bytes = b(b(bytes.u32(1).text("n").u32(2), "\r"), "\u{1b}")
            .u8(0)
            .text("")
            .u32(0);
        for _ in 0..65 {
            bytes = bytes.text("w");
        }
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let path = folder.path().join(name);
            CsvSink::create(Arc::clone(&plan), &path, ExistingFiles::Refuse, TimeBase::LogTime).unwrap()
        };
        let (mut compiled, mut walked) = (create("a.csv"), create("b.csv"));
        assert!(compiled.compiled.is_some());
        walked.compiled = None;
        for end in (0..=bytes.0.len()).rev() {
            let cut = message(5, &bytes.0[..end]);
            let both =
                [&mut compiled, &mut walked].map(|sink| sink.write(&cut).map_err(|error| error.to_string()));
            assert_eq!(both[0], both[1], "cut at {end}");
            assert_eq!(both[0].is_ok(), end == bytes.0.len());
            if both[0].is_ok() {
                assert_eq!(compiled.row, walked.row);
                assert!(
                    compiled
                        .row
                        .starts_with(b"5,5,0,\"x,\"\"y\"\"\",true,\"[\"\"NaN\"\",1e")
                );
            }
        }
    }
}
