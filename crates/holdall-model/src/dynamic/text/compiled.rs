//! Text of many messages of one type: the text around the values is known in advance, and fields of fixed sizes are read in runs, as
//! for [columns](crate::dynamic::columns).

use super::{
    TextOptions, number,
    template::{Entry, Form, ListForm, Style, Template},
    write_json_string,
};
use crate::{
    dynamic::{
        Primitives, TypePlan,
        columns::{Load, Program, Sink, run, whole},
        cursor::PADDING_BYTES_MAX,
        value::scalar_of,
    },
    interface::Primitive,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use std::sync::Arc;

/// Most characters that a byte of a payload becomes, those of the template excluded: a control character is six, quotes are doubled.
const EXPANSION_MAX: usize = 64;
/// Arrays of this many bytes are compared with those of the message before.
const REPEATED_BYTES: std::ops::RangeInclusive<usize> = 16..=512;

/// Writes the messages of one type as text.
#[derive(Clone, Debug)]
pub struct CompiledText {
    plan: Arc<TypePlan>,
    programs: [Program; 2],
    template: Template,
    state: State,
    bytes_max: usize,
}

/// State kept between messages and within one.
#[derive(Clone, Debug, Default)]
struct State {
    base64: bool,
    /// The last text of each array.
    repeated: Vec<Repeated>,
    lists: Vec<OpenList>,
}

/// An array's bytes and its text. Covariances are constant or nearly so, and to print a number takes longer than to compare it.
#[derive(Clone, Debug, Default)]
struct Repeated {
    little_endian: bool,
    from: Vec<u8>,
    text: Vec<u8>,
}

/// A list that is being written.
#[derive(Clone, Copy, Debug)]
struct OpenList {
    entry: usize,
    /// Offset of its text.
    begin: usize,
    follows: bool,
}

impl CompiledText {
    /// Messages as JSON objects, as [`TypePlan::write_json`] writes them. `None` for options or types that only that has.
    pub fn json(plan: &Arc<TypePlan>, options: &TextOptions) -> Option<Self> {
        let whole = TextOptions {
            base64: options.base64,
            bytes_max: options.bytes_max,
            ..TextOptions::default()
        };
        (whole == *options).then(|| Self::new(plan, Style::Json, options))?
    }

    /// Messages as the cells of a row, a comma before each. Arrays of up to `array_cells_max` elements have a cell for each; longer ones, and
    /// all sequences, are one cell of JSON. Structs without fields have no cell. `None` for types with too many cells.
    pub fn cells(plan: &Arc<TypePlan>, array_cells_max: u64, options: &TextOptions) -> Option<Self> {
        Self::new(plan, Style::Cells(array_cells_max), options)
    }

    fn new(plan: &Arc<TypePlan>, style: Style, options: &TextOptions) -> Option<Self> {
        let template = Template::new(plan, style)?;
        let state = State {
            base64: options.base64,
            repeated: vec![Repeated::default(); template.entries.len()],
            lists: Vec::new(),
        };
        Some(Self {
            plan: Arc::clone(plan),
            programs: whole(plan),
            template,
            state,
            bytes_max: options.bytes_max,
        })
    }

    /// Appends a message. False, and `out` is unchanged, for one that a walk has to judge: it does not fit, is longer than its definition
    /// states, or its text may be too long.
    #[must_use]
    pub fn append(&mut self, payload: &[u8], out: &mut Vec<u8>) -> bool {
        let most = payload
            .len()
            .saturating_mul(2 * self.template.bytes + EXPANSION_MAX);
        if most > self.bytes_max {
            return false;
        }
        let begin = out.len();
        self.state.lists.clear();
        let mut writer = Writer {
            entries: &self.template.entries,
            state: &mut self.state,
            out,
            at: 0,
        };
        match run(&self.plan, &self.programs, &mut writer, payload) {
            Some(left) if left <= PADDING_BYTES_MAX => {
                self.template.after.append(out);
                true
            }
            _ => {
                out.truncate(begin);
                false
            }
        }
    }
}

/// Appends the values of a message.
struct Writer<'t, 'o> {
    entries: &'t [Entry],
    state: &'t mut State,
    out: &'o mut Vec<u8>,
    /// The next value's entry.
    at: usize,
}

impl<'t> Writer<'t, '_> {
    /// The next entry and its place, after its text.
    #[inline]
    fn advance(&mut self) -> (usize, &'t Entry) {
        let at = self.at;
        let entry = &self.entries[at];
        self.at += 1;
        entry.before.append(self.out);
        (at, entry)
    }

    /// Numbers between commas, in the form of their entry.
    fn numbers(&mut self, form: &Form, values: Primitives<'_>) {
        let begin = self.out.len();
        let (has_brackets, notation) = match form {
            Form::Cells => (false, &number::PLAIN),
            _ => (true, &number::JSON),
        };
        if self.state.base64 && has_brackets && values.is_octets() {
            self.out.push(b'"');
            self.out
                .extend_from_slice(STANDARD.encode(values.bytes()).as_bytes());
            self.out.push(b'"');
        } else {
            self.out.extend_from_slice(if has_brackets { b"[" } else { b"" });
            number::write_all(self.out, values, notation);
            self.out.extend_from_slice(if has_brackets { b"]" } else { b"" });
        }
        if matches!(form, Form::NumbersCell) {
            quote_from(self.out, begin);
        }
    }

    /// The same as for the message before, if that had the same bytes.
    fn repeated(&mut self, at: usize, form: &Form, values: Primitives<'_>) {
        let known = &self.state.repeated[at];
        if known.from == values.bytes() && known.little_endian == values.is_little_endian() {
            return self.out.extend_from_slice(&known.text);
        }
        let begin = self.out.len();
        self.numbers(form, values);
        let known = &mut self.state.repeated[at];
        known.little_endian = values.is_little_endian();
        known.from.clear();
        known.from.extend_from_slice(values.bytes());
        known.text.clear();
        known.text.extend_from_slice(&self.out[begin..]);
    }

    fn list(&self, open: &OpenList) -> Option<&'t ListForm> {
        match &self.entries[open.entry].form {
            Form::List(form) => Some(form),
            _ => None,
        }
    }

    /// Ends the element before, if there is one.
    fn end_item(&mut self, open: &OpenList, form: &ListForm) {
        if open.follows {
            form.after.append(self.out);
        }
    }
}

impl Sink for Writer<'_, '_> {
    #[inline]
    fn values(&mut self, load: &Load, from: &[u8], little_endian: bool) {
        let (at, entry) = self.advance();
        if let Form::Number(notation) = entry.form {
            return number::write(self.out, scalar_of(load.kind, from, little_endian), notation);
        }
        let values = Primitives {
            kind: load.kind,
            bytes: from,
            little_endian,
        };
        let is_float = matches!(load.kind, Primitive::Double | Primitive::Float);
        if is_float && entry.is_single && REPEATED_BYTES.contains(&from.len()) {
            self.repeated(at, &entry.form, values);
        } else {
            self.numbers(&entry.form, values);
        }
    }

    fn text(&mut self, _into: (usize, usize), text: &str) {
        match self.advance().1.form {
            Form::TextCell => quote(self.out, text.as_bytes()),
            _ => write_json_string(self.out, text),
        }
    }

    fn sequence(&mut self, _offsets: usize, _count: u64, load: &Load, from: &[u8], little_endian: bool) {
        let (_, entry) = self.advance();
        let values = Primitives {
            kind: load.kind,
            bytes: from,
            little_endian,
        };
        self.numbers(&entry.form, values);
    }

    fn begin_list(&mut self) {
        let (entry, _) = self.advance();
        let open = OpenList {
            entry,
            begin: self.out.len(),
            follows: false,
        };
        if self.list(&open).is_some_and(|form| form.has_brackets) {
            self.out.push(b'[');
        }
        self.state.lists.push(open);
    }

    fn begin_item(&mut self) {
        let Some(open) = self.state.lists.last().copied() else {
            return;
        };
        let Some(form) = self.list(&open) else { return };
        self.end_item(&open, form);
        if open.follows && form.has_brackets {
            self.out.push(b',');
        }
        self.at = open.entry + 1;
        if let Some(open) = self.state.lists.last_mut() {
            open.follows = true;
        }
    }

    fn end_list(&mut self, _offsets: Option<usize>, _count: u64) {
        let Some(open) = self.state.lists.pop() else {
            return;
        };
        let Some(form) = self.list(&open) else { return };
        self.end_item(&open, form);
        if form.has_brackets {
            self.out.push(b']');
        }
        if form.is_cell {
            quote_from(self.out, open.begin);
        }
        self.at = form.end;
    }
}

fn needs_quotes(cell: &[u8]) -> bool {
    cell.iter()
        .any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r'))
}

/// Appends a cell of a table, in quotes (RFC 4180) if a reader would split it otherwise.
pub fn quote(row: &mut Vec<u8>, cell: &[u8]) {
    if !needs_quotes(cell) {
        return row.extend_from_slice(cell);
    }
    row.push(b'"');
    for byte in cell {
        if *byte == b'"' {
            row.push(b'"');
        }
        row.push(*byte);
    }
    row.push(b'"');
}

/// Quotes the text appended since `begin`, if necessary.
fn quote_from(row: &mut Vec<u8>, begin: usize) {
    if needs_quotes(&row[begin..]) {
        let cell = row.split_off(begin);
        quote(row, &cell);
    }
}
