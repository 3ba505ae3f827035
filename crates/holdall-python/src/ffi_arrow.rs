//! The Arrow C data and stream interfaces: columns are handed out with their memory, without a copy.
//!
//! The structs follow <https://arrow.apache.org/docs/format/CDataInterface.html>. No value is null. Lists and texts have offsets of 64
//! bits.

use holdall::table::Array;
use holdall_model::interface::Primitive;
use pyo3::{prelude::*, types::PyCapsule};
use std::{
    ffi::{CString, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

/// A column: its type and its memory.
#[derive(Clone)]
pub(crate) struct Field {
    name: String,
    format: String,
    length: usize,
    /// All buffers but the first one, which marks nulls.
    buffers: Vec<Vec<u64>>,
    bytes: Vec<Vec<u8>>,
    layout: Layout,
    children: Vec<Field>,
}

/// Which buffers an array has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Values.
    Values,
    /// Offsets.
    Offsets,
    /// Offsets, and the bytes of all texts.
    Texts,
    /// None.
    Nothing,
}

/// Memory that is aligned for numbers of eight bytes. Memory that the allocator aligned already is used without a copy, as it always is
/// beyond a few bytes.
fn aligned(bytes: Vec<u8>) -> (Vec<Vec<u64>>, Vec<Vec<u8>>) {
    if (bytes.as_ptr() as usize).is_multiple_of(8) && !bytes.is_empty() {
        return (Vec::new(), vec![bytes]);
    }
    let mut words = vec![0_u64; bytes.len().div_ceil(8).max(1)];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(whole);
    }
    (vec![words], Vec::new())
}

fn bits(bytes: &[u8]) -> Vec<u8> {
    let byte = |eight: &[u8]| {
        let set = eight.iter().enumerate().filter(|(_, value)| **value != 0);
        set.fold(0, |byte, (place, _)| byte | 1 << place)
    };
    bytes.chunks(8).map(byte).collect()
}

impl Field {
    fn new(name: String, format: &str, length: usize, layout: Layout) -> Self {
        Self {
            name,
            format: format.to_owned(),
            length,
            buffers: Vec::new(),
            bytes: Vec::new(),
            layout,
            children: Vec::new(),
        }
    }

    /// Points in time in nanoseconds.
    pub fn times(name: String, nanos: &[i64]) -> Self {
        let mut field = Self::new(name, "tsn:UTC", nanos.len(), Layout::Values);
        field.buffers = vec![words(nanos)];
        field
    }

    /// Numbers of four bytes.
    pub fn numbers(name: String, numbers: &[u32]) -> Self {
        let bytes = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Self::plain(name, Primitive::Uint32, numbers.len(), bytes)
    }

    /// Structs.
    pub fn structure(name: String, length: usize, fields: Vec<Self>) -> Self {
        let mut field = Self::new(name, "+s", length, Layout::Nothing);
        field.children = fields;
        field
    }

    fn plain(name: String, kind: Primitive, length: usize, bytes: Vec<u8>) -> Self {
        let format = match kind {
            Primitive::Boolean => "b",
            Primitive::Int8 => "c",
            Primitive::Uint8 | Primitive::Char | Primitive::Byte => "C",
            Primitive::Int16 => "s",
            Primitive::Uint16 | Primitive::Wchar => "S",
            Primitive::Int32 => "i",
            Primitive::Uint32 => "I",
            Primitive::Int64 => "l",
            Primitive::Uint64 => "L",
            Primitive::Float => "f",
            Primitive::Double | Primitive::LongDouble => "g",
        };
        let mut field = Self::new(name, format, length, Layout::Values);
        let bytes = if kind == Primitive::Boolean {
            bits(&bytes)
        } else {
            bytes
        };
        (field.buffers, field.bytes) = aligned(bytes);
        field
    }

    /// A column of `length` values.
    pub fn of(name: String, array: Array, length: usize) -> Self {
        let item = || "item".to_owned();
        match array {
            Array::Plain {
                kind,
                per_row: None,
                bytes,
            } => Self::plain(name, kind, length, bytes),
            // As one value, like sequences of them.
            Array::Plain {
                kind: Primitive::Uint8,
                per_row: Some(per_row),
                bytes,
            } => {
                let mut field = Self::new(name, &format!("w:{per_row}"), length, Layout::Values);
                (field.buffers, field.bytes) = aligned(bytes);
                field
            }
            Array::Plain {
                kind,
                per_row: Some(per_row),
                bytes,
            } => {
                let mut field = Self::new(name, &format!("+w:{per_row}"), length, Layout::Nothing);
                field.children = vec![Self::plain(item(), kind, length * per_row, bytes)];
                field
            }
            Array::Text { offsets, bytes } => Self::texts(name, "U", length, &offsets, bytes),
            Array::Octets { offsets, bytes } => Self::texts(name, "Z", length, &offsets, bytes),
            Array::List { offsets, items } => {
                let count = usize::try_from(offsets.last().copied().unwrap_or_default()).unwrap_or_default();
                let mut field = Self::new(name, "+L", length, Layout::Offsets);
                field.buffers = vec![words(&offsets)];
                field.children = vec![Self::of(item(), *items, count)];
                field
            }
            Array::Fixed { count, items } => {
                let mut field = Self::new(name, &format!("+w:{count}"), length, Layout::Nothing);
                field.children = vec![Self::of(item(), *items, length * count)];
                field
            }
            Array::Struct { fields, .. } => {
                let fields = fields
                    .into_iter()
                    .map(|(name, array)| Self::of(name, array, length));
                Self::structure(name, length, fields.collect())
            }
        }
    }

    fn texts(name: String, format: &str, length: usize, offsets: &[i64], bytes: Vec<u8>) -> Self {
        let mut field = Self::new(name, format, length, Layout::Texts);
        let (short, long) = aligned(bytes);
        field.buffers = vec![words(offsets)];
        field.buffers.extend(short);
        field.bytes = long;
        field
    }

    /// The addresses of the buffers; the first one marks nulls.
    fn addresses(&self) -> Vec<*const c_void> {
        let words = self.buffers.iter().map(|buffer| buffer.as_ptr().cast());
        let bytes = self.bytes.iter().map(|buffer| buffer.as_ptr().cast());
        std::iter::once(ptr::null()).chain(words).chain(bytes).collect()
    }
}

fn words(numbers: &[i64]) -> Vec<u64> {
    // Never empty, so that its address is one of memory.
    let mut words: Vec<u64> = numbers.iter().map(|number| number.cast_unsigned()).collect();
    if words.is_empty() {
        words.push(0);
    }
    words
}

/// `struct ArrowSchema`.
#[repr(C)]
pub(crate) struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
pub(crate) struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
pub(crate) struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

// SAFETY: the pointers belong to the private data, which is a `Stream` and may be sent.
unsafe impl Send for ArrowArrayStream {}

/// The memory that an exported schema owns.
struct SchemaParts {
    _format: CString,
    _name: CString,
    children: Box<[*mut ArrowSchema]>,
}

/// The memory that an exported array owns.
struct ArrayParts {
    _field: Field,
    _addresses: Box<[*const c_void]>,
    children: Box<[*mut ArrowArray]>,
}

/// The state that an exported stream owns.
struct Stream {
    schema: Field,
    batches: Box<dyn Iterator<Item = Result<Field, String>> + Send>,
    error: CString,
}

fn c_text(text: &str) -> CString {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(text).unwrap_or_default()
}

fn export_schema(field: &Field) -> ArrowSchema {
    let children = field
        .children
        .iter()
        .map(|child| Box::into_raw(Box::new(export_schema(child))));
    let mut parts = Box::new(SchemaParts {
        _format: c_text(&field.format),
        _name: c_text(&field.name),
        children: children.collect(),
    });
    ArrowSchema {
        format: parts._format.as_ptr(),
        name: parts._name.as_ptr(),
        metadata: ptr::null(),
        flags: NULLABLE,
        n_children: parts.children.len() as i64,
        children: parts.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_schema),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the consumer calls it once, with a schema that `export_schema` made: the private data is a box of `SchemaParts`, the children
    // are boxes of schemas, and those that the consumer moved away have no release.
    unsafe {
        let parts = Box::from_raw((*schema).private_data.cast::<SchemaParts>());
        for child in &parts.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*schema).release = None;
    }
}

fn export_array(mut field: Field) -> ArrowArray {
    let children = std::mem::take(&mut field.children).into_iter();
    let children: Box<[_]> = children
        .map(|child| Box::into_raw(Box::new(export_array(child))))
        .collect();
    let mut addresses = field.addresses().into_boxed_slice();
    let length = field.length as i64;
    let buffers = addresses.as_mut_ptr();
    let n_buffers = match field.layout {
        Layout::Nothing => 1,
        Layout::Values | Layout::Offsets => 2,
        Layout::Texts => 3,
    };
    debug_assert_eq!(n_buffers, addresses.len());
    let mut parts = Box::new(ArrayParts {
        _field: field,
        _addresses: addresses,
        children,
    });
    ArrowArray {
        length,
        null_count: 0,
        offset: 0,
        n_buffers: n_buffers as i64,
        n_children: parts.children.len() as i64,
        buffers,
        children: parts.children.as_mut_ptr(),
        dictionary: ptr::null_mut(),
        release: Some(release_array),
        private_data: Box::into_raw(parts).cast(),
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as in `release_schema`.
    unsafe {
        let parts = Box::from_raw((*array).private_data.cast::<ArrayParts>());
        for child in &parts.children {
            if let Some(release) = (**child).release {
                release(*child);
            }
            drop(Box::from_raw(*child));
        }
        (*array).release = None;
    }
}

/// `ARROW_FLAG_NULLABLE`: no value is null, but tables of others are joined to these.
const NULLABLE: i64 = 2;

/// `EIO` of `errno.h`.
const EIO: c_int = 5;

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the consumer passes a stream that `stream` made and was not released, and memory for a schema.
    unsafe {
        let owned = &*(*stream).private_data.cast::<Stream>();
        ptr::write(out, export_schema(&owned.schema));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as in `get_schema`; a stream is used by one thread at a time.
    let owned = unsafe { &mut *(*stream).private_data.cast::<Stream>() };
    let next = catch_unwind(AssertUnwindSafe(|| owned.batches.next()));
    let array = match next {
        Ok(Some(Ok(field))) => export_array(field),
        // The end of the stream is an array without release.
        Ok(None) => ArrowArray {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: ptr::null_mut(),
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        },
        Ok(Some(Err(text))) => {
            owned.error = c_text(&text);
            return EIO;
        }
        Err(_) => {
            owned.error = c_text("a bug in holdall");
            return EIO;
        }
    };
    // SAFETY: the consumer passes memory for an array.
    unsafe { ptr::write(out, array) };
    0
}

unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: as in `get_schema`; the text lives until the next call.
    let owned = unsafe { &*(*stream).private_data.cast::<Stream>() };
    owned.error.as_ptr()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the consumer calls it once, with a stream that `stream` made.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        // A consumer that took the stream has moved it and cleared `release`.
        if let Some(release) = self.release {
            // SAFETY: it was not released yet.
            unsafe { release(self) };
        }
    }
}

/// A stream of batches in a capsule, for `__arrow_c_stream__`.
pub(crate) fn stream(
    py: Python<'_>,
    schema: Field,
    batches: impl Iterator<Item = Result<Field, String>> + Send + 'static,
) -> PyResult<Bound<'_, PyCapsule>> {
    let owned = Box::new(Stream {
        schema,
        batches: Box::new(batches),
        error: CString::default(),
    });
    let stream = ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(owned).cast(),
    };
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
