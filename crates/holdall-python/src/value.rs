//! Decoded messages: views of a payload whose fields are read when they are used, and may be assigned.

use crate::{
    encode,
    error::{Details, decode_error, exception},
    ffi_object::generic_attribute,
    pickle,
};
use bytes::Bytes;
use holdall_io::mutex::lock;
use holdall_model::{
    dynamic::{
        DecodeError, Scalar, StructPlan, TypePlan,
        edit::Editor,
        part::{Part, Place},
    },
    interface::Primitive,
};
use pyo3::{
    IntoPyObjectExt,
    exceptions::{PyAttributeError, PyKeyError, PyRuntimeError},
    intern,
    prelude::*,
    sync::PyOnceLock,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};
use std::{
    borrow::Cow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

/// Bytes of a field's name in a sentence.
const SHOWN_BYTES: usize = 200;

/// A message with the plan of its type, shared by all views of its parts.
struct Payload {
    plan: Arc<TypePlan>,
    topic: Arc<str>,
    /// The bytes after the last assignment.
    current: Mutex<Bytes>,
    /// Number of assignments.
    changes: AtomicU64,
}

/// A struct in the bytes that a message has after some assignments.
#[derive(Clone)]
struct View {
    bytes: Bytes,
    place: Place,
    changes: u64,
}

/// A message or a part of one: its fields are attributes, and read when they are used.
#[pyclass(frozen, module = "holdall._native")]
pub(crate) struct Struct {
    payload: Arc<Payload>,
    view: View,
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

impl Struct {
    /// A message of these bytes.
    pub fn root(py: Python<'_>, plan: Arc<TypePlan>, bytes: Bytes, topic: Arc<str>) -> PyResult<Self> {
        let place = plan.place(&bytes).map_err(|error| failed(py, &topic, &error))?;
        let view = View {
            bytes,
            place,
            changes: 0,
        };
        Ok(Self::alone(plan, topic, view))
    }

    /// A view of a message of its own.
    fn alone(plan: Arc<TypePlan>, topic: Arc<str>, view: View) -> Self {
        let payload = Payload {
            plan,
            topic,
            current: Mutex::new(view.bytes.clone()),
            changes: AtomicU64::new(view.changes),
        };
        Self {
            payload: Arc::new(payload),
            view,
        }
    }

    fn plan(&self) -> &StructPlan {
        self.payload.plan.structure(self.view.place.structure)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        let structure = self.plan();
        let fields = structure.fields.iter().filter(|_| !structure.is_empty);
        fields.map(|field| field.name.as_str())
    }

    /// Where the struct is now: an assignment to what is before it in the message may have moved it.
    fn now(&self) -> PyResult<Cow<'_, View>> {
        let Payload { plan, changes, .. } = &*self.payload;
        let changes = changes.load(Ordering::Acquire);
        if changes == self.view.changes {
            return Ok(Cow::Borrowed(&self.view));
        }
        let bytes = lock(&self.payload.current).clone();
        let path = plan.path_to(&self.view.bytes, self.view.place);
        let place = path.and_then(|path| plan.place_at(&bytes, &path));
        let gone =
            || PyRuntimeError::new_err("the list with this element was assigned: take the element anew");
        Ok(Cow::Owned(View {
            place: place.ok_or_else(gone)?,
            bytes,
            changes,
        }))
    }

    /// The bytes of the whole message; `None` for a part of one.
    pub fn whole(&self) -> Option<(Bytes, &TypePlan)> {
        let plan = &self.payload.plan;
        let is_whole = self.view.place.structure == plan.root_index();
        is_whole.then(|| (lock(&self.payload.current).clone(), &**plan))
    }

    fn field(&self, py: Python<'_>, index: usize, plain: bool) -> PyResult<Py<PyAny>> {
        let view = self.now()?;
        match self.payload.plan.part_of(&view.bytes, view.place, index) {
            Ok(part) => self.part(py, &view, part, plain),
            Err(error) => Err(failed(py, &self.payload.topic, &error)),
        }
    }

    fn part(&self, py: Python<'_>, view: &View, part: Part<'_>, plain: bool) -> PyResult<Py<PyAny>> {
        match part {
            Part::Scalar(value) => scalar(py, value),
            Part::Struct(place) => {
                let inner = Self {
                    payload: Arc::clone(&self.payload),
                    view: View {
                        place,
                        ..view.clone()
                    },
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
                    let seen = Values {
                        // numpy does not expect booleans other than 0 and 1.
                        bytes: if values.kind() == Primitive::Boolean
                            && values.bytes().iter().any(|byte| *byte > 1)
                        {
                            values.bytes().iter().map(|byte| u8::from(*byte != 0)).collect()
                        } else {
                            view.bytes.slice_ref(values.bytes())
                        },
                        type_text,
                        shape: vec![values.len()],
                    };
                    return Ok(asarray.call1((seen,))?.unbind());
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
                let mut stopped = None;
                let read = self.payload.plan.items(&view.bytes, items, &mut |item| {
                    let appended = self
                        .part(py, view, item, plain)
                        .and_then(|item| list.append(item));
                    stopped = appended.err();
                    stopped.is_none()
                });
                match (stopped, read) {
                    (Some(error), _) => Err(error),
                    (None, Err(error)) => Err(failed(py, &self.payload.topic, &error)),
                    (None, Ok(())) => list.into_py_any(py),
                }
            }
        }
    }
}

fn failed(py: Python<'_>, topic: &str, error: &DecodeError) -> PyErr {
    decode_error(py, topic, error, &format!("{topic}: {error}"))
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

    /// Assigns a field: the message is encoded with it, and the bag keeps its own.
    fn __setattr__(&self, py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (structure, plan) = (self.plan(), &self.payload.plan);
        let Some((index, field)) = structure.field(name).filter(|_| !structure.is_empty) else {
            return self.__getattr__(name);
        };
        let value = encode::assigned(plan, structure, field, value)?;
        let view = self.now()?;
        let path = plan.path_to(&view.bytes, view.place).map(|mut path| {
            path.push(index);
            path
        });
        let editor = path.and_then(|path| Editor::assigning(Arc::clone(plan), &path, value));
        let mut changed = Vec::new();
        let edited = editor.map(|editor| editor.apply(&view.bytes, &mut changed));
        if let Some(Err(error)) = edited {
            let topic = Some(self.payload.topic.to_string());
            let details = Details {
                topic,
                ..Details::default()
            };
            return Err(exception(py, "EncodeError", &error.to_string(), details));
        }
        *lock(&self.payload.current) = changed.into();
        self.payload.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Assigns a field by its name, with dots between levels.
    fn __setitem__(slf: &Bound<'_, Self>, path: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
        let parent = if parent.is_empty() {
            slf.as_any().clone()
        } else {
            Self::__getitem__(slf, parent)?
        };
        parent.setattr(name, value)
    }

    /// A copy with some fields changed; names may have dots.
    #[pyo3(signature = (**fields))]
    fn replace<'py>(
        slf: &Bound<'py, Self>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, Self>> {
        let copy = Bound::new(slf.py(), slf.get().__copy__()?)?;
        for (name, value) in fields.into_iter().flatten() {
            Self::__setitem__(&copy, name.extract()?, &value)?;
        }
        Ok(copy)
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
        let (type_name, text) = pickle::parts(&this.payload.plan, this.view.place.structure)?;
        let package = slf.py().import("holdall._writer")?;
        package.call_method1("_reduced", (slf, type_name, text))
    }

    /// The same in memory of its own: what is assigned to one is not in the other.
    fn __copy__(&self) -> PyResult<Self> {
        let Payload { plan, topic, .. } = &*self.payload;
        Ok(Self::alone(
            Arc::clone(plan),
            Arc::clone(topic),
            self.now()?.into_owned(),
        ))
    }

    fn __deepcopy__(&self, _memo: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.__copy__()
    }

    fn __dir__(&self) -> Vec<String> {
        let own = ["_type", "_fields", "to_dict", "replace"].map(str::to_owned);
        self.names().map(str::to_owned).chain(own).collect()
    }

    fn _ipython_key_completions_(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    /// For notebooks.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("holdall._html")?.call_method1("struct", (slf,))
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
