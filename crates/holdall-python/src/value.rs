//! Decoded messages: views of a payload whose fields are read when they are used.

use crate::{error::decode_error, ffi_object::generic_attribute, pickle};
use bytes::Bytes;
use holdall_model::{
    dynamic::{
        DecodeError, Scalar, StructPlan, TypePlan,
        part::{Part, Place},
    },
    interface::Primitive,
};
use pyo3::{
    IntoPyObjectExt,
    exceptions::{PyAttributeError, PyKeyError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};
use std::sync::Arc;

/// Bytes of a field's name in a sentence.
const SHOWN_BYTES: usize = 200;

/// A payload with the plan of its type, shared by all views of it.
#[derive(Clone)]
pub(crate) struct Payload {
    pub plan: Arc<TypePlan>,
    pub bytes: Bytes,
    pub topic: Arc<str>,
}

/// A message or a part of one: its fields are attributes, and read when they are used.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Struct {
    payload: Payload,
    place: Place,
}

/// Numbers in a payload; numpy sees them without a copy.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Values {
    bytes: Bytes,
    type_text: String,
    shape: Vec<usize>,
}

#[pymethods]
impl Values {
    /// numpy's description of the memory.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array_interface(py, &self.bytes, &self.type_text, &self.shape)
    }
}

/// The description of read-only memory for numpy, which keeps the object that has it alive.
pub(crate) fn array_interface<'py>(
    py: Python<'py>,
    bytes: &[u8],
    type_text: &str,
    shape: &[usize],
) -> PyResult<Bound<'py, PyDict>> {
    let interface = PyDict::new(py);
    interface.set_item(intern!(py, "version"), 3)?;
    interface.set_item(intern!(py, "typestr"), type_text)?;
    interface.set_item(intern!(py, "shape"), PyTuple::new(py, shape)?)?;
    interface.set_item(intern!(py, "data"), (bytes.as_ptr() as usize, true))?;
    Ok(interface)
}

/// numpy, if it is installed.
pub(crate) fn numpy(py: Python<'_>) -> Option<Bound<'_, PyAny>> {
    static ASARRAY: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    ASARRAY
        .get_or_init(py, || {
            let asarray = py.import("numpy").and_then(|numpy| numpy.getattr("asarray"));
            asarray.ok().map(Bound::unbind)
        })
        .as_ref()
        .map(|asarray| asarray.bind(py).clone())
}

/// numpy's name of a kind of number.
pub(crate) fn type_text(kind: Primitive, little_endian: bool) -> Option<String> {
    let text = match kind {
        Primitive::Boolean => "b1",
        Primitive::Int8 => "i1",
        Primitive::Uint8 | Primitive::Char | Primitive::Byte => "u1",
        Primitive::Int16 => "i2",
        Primitive::Uint16 | Primitive::Wchar => "u2",
        Primitive::Int32 => "i4",
        Primitive::Uint32 => "u4",
        Primitive::Int64 => "i8",
        Primitive::Uint64 => "u8",
        Primitive::Float => "f4",
        Primitive::Double => "f8",
        Primitive::LongDouble => return None,
    };
    Some(format!("{}{text}", if little_endian { '<' } else { '>' }))
}

pub(crate) fn scalar(py: Python<'_>, value: Scalar<'_>) -> PyResult<Py<PyAny>> {
    match value {
        Scalar::Bool(value) => value.into_py_any(py),
        Scalar::I8(value) => value.into_py_any(py),
        Scalar::U8(value) => value.into_py_any(py),
        Scalar::I16(value) => value.into_py_any(py),
        Scalar::U16(value) => value.into_py_any(py),
        Scalar::I32(value) => value.into_py_any(py),
        Scalar::U32(value) => value.into_py_any(py),
        Scalar::I64(value) => value.into_py_any(py),
        Scalar::U64(value) => value.into_py_any(py),
        Scalar::F32(value) => value.into_py_any(py),
        Scalar::F64(value) => value.into_py_any(py),
        Scalar::Text(text) => text.to_str().into_py_any(py),
        Scalar::Wide(text) => text.to_text().into_py_any(py),
    }
}

impl Payload {
    /// The message.
    pub fn root(self, py: Python<'_>) -> PyResult<Struct> {
        match self.plan.place(&self.bytes) {
            Ok(place) => Ok(Struct { payload: self, place }),
            Err(error) => Err(self.error(py, &error)),
        }
    }

    fn error(&self, py: Python<'_>, error: &DecodeError) -> PyErr {
        decode_error(py, &self.topic, error, &format!("{}: {error}", self.topic))
    }

    fn part(&self, py: Python<'_>, part: Part<'_>, plain: bool) -> PyResult<Py<PyAny>> {
        match part {
            Part::Scalar(value) => scalar(py, value),
            Part::Struct(place) => {
                let inner = Struct {
                    payload: self.clone(),
                    place,
                };
                if plain {
                    inner.to_dict(py)?.into_py_any(py)
                } else {
                    inner.into_py_any(py)
                }
            }
            Part::Primitives(values) => {
                if plain && values.is_octets() {
                    return PyBytes::new(py, values.bytes()).into_py_any(py);
                }
                if !plain
                    && let (Some(asarray), Some(type_text)) =
                        (numpy(py), type_text(values.kind(), values.is_little_endian()))
                {
                    let view = Values {
                        // numpy does not expect booleans other than 0 and 1.
                        bytes: if values.kind() == Primitive::Boolean
                            && values.bytes().iter().any(|byte| *byte > 1)
                        {
                            values.bytes().iter().map(|byte| u8::from(*byte != 0)).collect()
                        } else {
                            self.bytes.slice_ref(values.bytes())
                        },
                        type_text,
                        shape: vec![values.len()],
                    };
                    return Ok(asarray.call1((view,))?.unbind());
                }
                if values.is_octets() {
                    return PyBytes::new(py, values.bytes()).into_py_any(py);
                }
                let list = PyList::empty(py);
                for value in values.iter() {
                    list.append(scalar(py, value)?)?;
                }
                list.into_py_any(py)
            }
            Part::List(items) => {
                let list = PyList::empty(py);
                let mut failed = None;
                let read = self.plan.items(&self.bytes, items, &mut |item| {
                    let appended = self.part(py, item, plain).and_then(|item| list.append(item));
                    failed = appended.err();
                    failed.is_none()
                });
                match (failed, read) {
                    (Some(error), _) => Err(error),
                    (None, Err(error)) => Err(self.error(py, &error)),
                    (None, Ok(())) => list.into_py_any(py),
                }
            }
        }
    }
}

impl Struct {
    fn plan(&self) -> &StructPlan {
        self.payload.plan.structure(self.place.structure)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let structure = self.plan();
        let fields = structure.fields.iter().filter(|_| !structure.is_empty);
        fields.map(|field| field.name.as_str())
    }

    /// The payload of a whole message.
    pub fn whole(&self) -> Option<(&Payload, &str)> {
        let is_whole = self.place.structure == self.payload.plan.root_index();
        is_whole.then(|| (&self.payload, self.payload.plan.type_name()))
    }

    fn field(&self, py: Python<'_>, index: usize, plain: bool) -> PyResult<Py<PyAny>> {
        let payload = &self.payload;
        match payload.plan.part_of(&payload.bytes, self.place, index) {
            Ok(part) => payload.part(py, part, plain),
            Err(error) => Err(payload.error(py, &error)),
        }
    }
}

#[pymethods]
impl Struct {
    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let structure = this.plan();
        if let Ok(text) = name.to_str()
            && let Some((index, _)) = structure.field(text).filter(|_| !structure.is_empty)
        {
            return Ok(this.field(slf.py(), index, false)?.into_bound(slf.py()));
        }
        generic_attribute(slf.as_any(), name)
    }

    /// Called for names that are neither a field nor a method.
    fn __getattr__(&self, name: &str) -> PyResult<()> {
        let known: Vec<&str> = self.names().collect();
        let type_name = &self.plan().type_name;
        let end = name.floor_char_boundary(SHOWN_BYTES);
        let text = format!(
            "{type_name} has no field {}; it has {}",
            &name[..end],
            known.join(", ")
        );
        Err(PyAttributeError::new_err(text))
    }

    /// A field by its name, with dots between levels.
    fn __getitem__<'py>(slf: &Bound<'py, Self>, path: &str) -> PyResult<Bound<'py, PyAny>> {
        let mut found = slf.as_any().clone();
        for name in path.split('.') {
            found = found
                .getattr(name)
                .map_err(|error| PyKeyError::new_err(error.value(slf.py()).to_string()))?;
        }
        Ok(found)
    }

    /// The full name of the type, for example `geometry_msgs/msg/Vector3`.
    #[getter]
    fn _type(&self) -> &str {
        &self.plan().type_name
    }

    /// Names of the fields.
    #[getter]
    fn _fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.names().collect::<Vec<_>>())
    }

    /// All fields as a dict of plain Python objects; sequences of bytes are `bytes`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let fields = PyDict::new(py);
        for (index, name) in self.names().enumerate() {
            fields.set_item(name, self.field(py, index, true)?)?;
        }
        Ok(fields)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let (type_name, text) = pickle::parts(&this.payload.plan, this.place.structure)?;
        let package = slf.py().import("holdall._writer")?;
        package.call_method1("_reduced", (slf, type_name, text))
    }

    fn __copy__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Nothing of it can be changed: a copy is the same.
    fn __deepcopy__<'py>(slf: PyRef<'py, Self>, _memo: &Bound<'py, PyAny>) -> PyRef<'py, Self> {
        slf
    }

    fn __dir__(&self) -> Vec<String> {
        let own = ["_type", "_fields", "to_dict"].map(str::to_owned);
        self.names().map(str::to_owned).chain(own).collect()
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self._fields(py)?.into_any().call_method0("__iter__")
    }

    fn __eq__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok(other) = other.cast::<Self>() else {
            return Ok(false);
        };
        let other = other.get();
        if self.plan().type_name != other.plan().type_name {
            return Ok(false);
        }
        self.to_dict(py)?.eq(other.to_dict(py)?)
    }

    fn __hash__(&self) -> PyResult<isize> {
        Err(pyo3::exceptions::PyTypeError::new_err(
            "messages are not hashable",
        ))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let mut fields = Vec::new();
        for (index, name) in self.names().enumerate() {
            let value = self.field(py, index, false)?.into_bound(py);
            let mut text = value.repr()?.to_string();
            if text.chars().count() > 200 {
                text = text.chars().take(200).chain("...".chars()).collect();
            }
            fields.push(format!("{name}={text}"));
        }
        Ok(format!("{}({})", self.plan().type_name, fields.join(", ")))
    }
}
