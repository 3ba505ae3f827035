//! Errors of the library as exceptions of `holdall.Error`, and panics kept out of the interpreter.

use holdall::{ReadError, WriteError, decode::ChoiceError, table::TableError};
use holdall_model::dynamic::{DecodeError, EncodeError};
use holdall_storage::StorageError;
use pyo3::{
    prelude::*,
    types::{PyDict, PyTuple},
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

/// The attributes of an exception in addition to its text.
#[derive(Default)]
pub(crate) struct Details {
    pub path: Option<PathBuf>,
    pub offset: Option<u64>,
    pub topic: Option<String>,
    pub field: Option<String>,
}

/// An exception of `holdall._errors`.
pub(crate) fn exception(py: Python<'_>, class: &str, text: &str, details: Details) -> PyErr {
    let make = || {
        let keywords = PyDict::new(py);
        keywords.set_item("path", details.path.map(|path| path.display().to_string()))?;
        keywords.set_item("offset", details.offset)?;
        keywords.set_item("topic", details.topic)?;
        keywords.set_item("field", details.field)?;
        let class = py.import("holdall._errors")?.getattr(class)?;
        class.call(PyTuple::new(py, [text])?, Some(&keywords))
    };
    make().map_or_else(|error| error, PyErr::from_value)
}

/// Runs `work` without the interpreter's lock. A panic is an exception: none crosses into Python.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work)))
        .map_err(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no reason given");
            exception(
                py,
                "InternalError",
                &format!("a bug in holdall: {text}"),
                Details::default(),
            )
        })
}

pub(crate) fn read_error(py: Python<'_>, error: &ReadError) -> PyErr {
    let (path, offset) = match error {
        ReadError::Io { path, .. }
        | ReadError::NotABag { path, .. }
        | ReadError::Metadata { path, .. }
        | ReadError::NoPublishers { path }
        | ReadError::Publishers { path, .. }
        | ReadError::Unsupported { path, .. } => (Some(path.clone()), None),
        ReadError::MissingFile { bag, .. } | ReadError::PathOutside { bag, .. } => (Some(bag.clone()), None),
        ReadError::Storage(error) => storage_place(error),
        _ => (None, None),
    };
    let details = Details {
        path,
        offset,
        ..Details::default()
    };
    exception(py, "BagError", &error.to_string(), details)
}

/// The path and the offset of an error in a storage file.
fn storage_place(error: &StorageError) -> (Option<PathBuf>, Option<u64>) {
    match error {
        StorageError::Malformed { path, offset, .. }
        | StorageError::Checksum { path, offset, .. }
        | StorageError::TooLarge { path, offset, .. } => (Some(path.clone()), Some(*offset)),
        StorageError::Io { path, .. } | StorageError::WrongFormat { path, .. } => (Some(path.clone()), None),
        _ => (None, None),
    }
}

pub(crate) fn choice_error(py: Python<'_>, error: &ChoiceError) -> PyErr {
    let text = error.to_string();
    let about = |topic: &str| Details {
        topic: Some(topic.to_owned()),
        ..Details::default()
    };
    match error {
        ChoiceError::Bag(error) => read_error(py, error),
        ChoiceError::UnknownTopic { topic, .. } => exception(py, "TopicError", &text, about(topic)),
        ChoiceError::Question { topic, .. } => exception(py, "ExpressionError", &text, about(topic)),
        ChoiceError::Opaque { topic, .. } => exception(py, "DecodeError", &text, about(topic)),
        ChoiceError::Decode { topic, source, .. } => decode_error(py, topic, source, &text),
        _ => exception(py, "Error", &text, Details::default()),
    }
}

/// A message that cannot be decoded.
pub(crate) fn decode_error(py: Python<'_>, topic: &str, error: &DecodeError, text: &str) -> PyErr {
    let details = Details {
        topic: Some(topic.to_owned()),
        offset: Some(error.offset() as u64),
        field: Some(error.field().to_owned()),
        path: None,
    };
    exception(py, "DecodeError", text, details)
}

pub(crate) fn table_error(py: Python<'_>, error: &TableError) -> PyErr {
    let text = error.to_string();
    match error {
        TableError::Choice(error) => choice_error(py, error),
        TableError::Decode { topic, source, .. } => decode_error(py, topic, source, &text),
        TableError::Field { topic, source } => {
            let details = Details {
                topic: Some(topic.clone()),
                field: Some(source.field.clone()),
                ..Details::default()
            };
            exception(py, "FieldError", &text, details)
        }
        TableError::Opaque { topic, .. } | TableError::OtherType { topic, .. } => {
            let details = Details {
                topic: Some(topic.clone()),
                ..Details::default()
            };
            exception(py, "DecodeError", &text, details)
        }
        _ => exception(py, "Error", &text, Details::default()),
    }
}

pub(crate) fn write_error(py: Python<'_>, error: &WriteError) -> PyErr {
    let path = match error {
        WriteError::Exists { path } => Some(path.clone()),
        _ => None,
    };
    let details = Details {
        path,
        ..Details::default()
    };
    exception(py, "WriteError", &error.to_string(), details)
}

pub(crate) fn encode_error(py: Python<'_>, error: &EncodeError) -> PyErr {
    let details = Details {
        field: Some(error.field().to_owned()),
        ..Details::default()
    };
    exception(py, "EncodeError", &error.to_string(), details)
}
