//! Python objects as serialized messages.

use crate::{error::encode_error, value::Struct};
use holdall_model::{
    dynamic::{
        ElementPlan, EncodeError, FieldPlan, StructPlan, TypePlan,
        encode::{Literal, Plain, Plains, Representation, Value},
    },
    interface::{Arity, Primitive},
};
use pyo3::{
    intern,
    prelude::*,
    types::{PyBool, PyByteArray, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple},
};

/// Why an object is not a message.
enum Fault {
    /// It does not fit the type.
    Encode(EncodeError),
    /// Python could not read it.
    Python(PyErr),
}

impl From<PyErr> for Fault {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<EncodeError> for Fault {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

type Found<T> = Result<T, Fault>;

/// Writes the payload of `message`: a dict, a decoded message, or an object with the fields as attributes. Fields that a dict leaves out have
/// their defaults.
pub(crate) fn encode(plan: &TypePlan, message: &Bound<'_, PyAny>, out: &mut Vec<u8>) -> PyResult<()> {
    let py = message.py();
    if let Ok(decoded) = message.cast::<Struct>()
        && let Some((payload, own)) = decoded.get().whole()
        && own.type_name() == plan.type_name()
    {
        out.clear();
        out.extend_from_slice(&payload);
        return Ok(());
    }
    let encoded = structure(plan, plan.root(), message)
        .and_then(|value| Ok(plan.encode(&value, Representation::default(), out)?));
    encoded.map_err(|fault| fault.raised(py, plan.type_name()))
}

/// The value that a field of a struct gets.
pub(crate) fn assigned(
    plan: &TypePlan,
    structure: &StructPlan,
    field: &FieldPlan,
    value: &Bound<'_, PyAny>,
) -> PyResult<Value> {
    self::field(plan, field, value)
        .map_err(in_field(&field.name))
        .map_err(|fault| fault.raised(value.py(), &structure.type_name))
}

impl Fault {
    fn raised(self, py: Python<'_>, type_name: &str) -> PyErr {
        match self {
            Self::Encode(error) => encode_error(py, &error.in_type(type_name)),
            Self::Python(error) => error,
        }
    }
}

fn in_field(name: &str) -> impl Fn(Fault) -> Fault {
    move |fault| match fault {
        Fault::Encode(error) => Fault::Encode(error.in_field(name)),
        other => other,
    }
}

fn in_item(index: usize) -> impl Fn(Fault) -> Fault {
    move |fault| match fault {
        Fault::Encode(error) => Fault::Encode(error.in_item(index as u64)),
        other => other,
    }
}

fn noun(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map(|text| text.to_string()).unwrap_or_default();
    let short: String = text.chars().take(40).collect();
    let name = value
        .get_type()
        .name()
        .map(|name| name.to_string())
        .unwrap_or_default();
    format!("{short} ({name})")
}

fn structure(plan: &TypePlan, structure: &StructPlan, message: &Bound<'_, PyAny>) -> Found<Value> {
    if structure.is_empty {
        return Ok(Value::Struct(Vec::new()));
    }
    let mut fields = Vec::with_capacity(structure.fields.len());
    if let Ok(given) = message.cast::<PyDict>() {
        let mut used = 0;
        for field in &structure.fields {
            let value = match given.get_item(&field.name)? {
                Some(value) => {
                    used += 1;
                    self::field(plan, field, &value).map_err(in_field(&field.name))?
                }
                None => plan.absent(field)?,
            };
            fields.push(value);
        }
        if used < given.len() {
            return Err(unknown(structure, given)?);
        }
        return Ok(Value::Struct(fields));
    }
    let is_plain = message.is_instance_of::<PyString>()
        || message.is_instance_of::<PyFloat>()
        || message.is_instance_of::<PyInt>();
    let mut found = 0;
    for field in &structure.fields {
        let value = match message.getattr_opt(field.name.as_str())? {
            Some(value) if !is_plain => {
                found += 1;
                self::field(plan, field, &value).map_err(in_field(&field.name))?
            }
            _ => plan.absent(field)?,
        };
        fields.push(value);
    }
    if found == 0 {
        let expected = format!("a dict with the fields of {}", structure.type_name);
        return Err(EncodeError::new(expected, noun(message)).into());
    }
    Ok(Value::Struct(fields))
}

/// The name of a field that the struct does not have.
fn unknown(structure: &StructPlan, given: &Bound<'_, PyDict>) -> PyResult<Fault> {
    for key in given.keys() {
        let name = key.str()?.to_string();
        if structure.field(&name).is_none() {
            let known: Vec<&str> = structure.fields.iter().map(|field| field.name.as_str()).collect();
            let expected = format!(
                "one of the fields of {}: {}",
                structure.type_name,
                known.join(", ")
            );
            return Ok(EncodeError::new(expected, name).into());
        }
    }
    Ok(EncodeError::new("each field once", "one repeatedly").into())
}

fn field(plan: &TypePlan, field: &FieldPlan, value: &Bound<'_, PyAny>) -> Found<Value> {
    if field.arity == Arity::One {
        return element(plan, field, value);
    }
    let list = || format!("a list for {}", field.name);
    if let ElementPlan::Primitive(kind) = field.element {
        if let Some(plains) = block(kind, value)? {
            return Ok(Value::Plains(plains));
        }
        let mut plains = Plains::new(kind);
        for_each(value, &list, |index, item| {
            let plain = plain(kind, item).map_err(in_item(index))?;
            if plains.push(plain) {
                Ok(())
            } else {
                Err(EncodeError::new("a number of the list's kind", noun(item)).into())
            }
        })?;
        return Ok(Value::Plains(plains));
    }
    let mut items = Vec::new();
    for_each(value, &list, |index, item| {
        items.push(element(plan, field, item).map_err(in_item(index))?);
        Ok(())
    })?;
    Ok(Value::List(items))
}

fn for_each(
    value: &Bound<'_, PyAny>,
    expected: &dyn Fn() -> String,
    mut each: impl FnMut(usize, &Bound<'_, PyAny>) -> Found<()>,
) -> Found<()> {
    if let Ok(list) = value.cast::<PyList>() {
        for (index, item) in list.iter().enumerate() {
            each(index, &item)?;
        }
        return Ok(());
    }
    if let Ok(tuple) = value.cast::<PyTuple>() {
        for (index, item) in tuple.iter().enumerate() {
            each(index, &item)?;
        }
        return Ok(());
    }
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyDict>() {
        return Err(EncodeError::new(expected(), noun(value)).into());
    }
    let Ok(items) = value.try_iter() else {
        return Err(EncodeError::new(expected(), noun(value)).into());
    };
    for (index, item) in items.enumerate() {
        each(index, &item?)?;
    }
    Ok(())
}

/// Bytes, and numpy arrays of the field's own kind, in one piece.
fn block(kind: Primitive, value: &Bound<'_, PyAny>) -> Found<Option<Plains>> {
    let is_octets = matches!(kind, Primitive::Uint8 | Primitive::Char | Primitive::Byte);
    if is_octets && let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Plains::of_bytes(kind, bytes.as_bytes().to_vec()));
    }
    if is_octets && let Ok(bytes) = value.cast::<PyByteArray>() {
        return Ok(Plains::of_bytes(kind, bytes.to_vec()));
    }
    let py = value.py();
    let Some(dtype) = value.getattr_opt(intern!(py, "dtype"))? else {
        return Ok(None);
    };
    let text = dtype.getattr(intern!(py, "str"))?.extract::<String>()?;
    let same = crate::value::type_text(kind, true)
        .is_some_and(|own| text.trim_start_matches('|') == own.trim_start_matches('<') || text == own);
    if !same {
        return Ok(None);
    }
    let bytes = value.call_method0(intern!(py, "tobytes"))?;
    let bytes = bytes.extract::<Vec<u8>>()?;
    Ok(Plains::of_bytes(kind, bytes))
}

fn element(plan: &TypePlan, field: &FieldPlan, value: &Bound<'_, PyAny>) -> Found<Value> {
    match field.element {
        ElementPlan::Struct(index) => structure(plan, plan.structure(index), value),
        ElementPlan::Primitive(kind) => Ok(Value::Plain(plain(kind, value)?)),
        ElementPlan::Text { .. } => match value.cast::<PyString>() {
            Ok(text) => Ok(Value::Text(text.to_str()?.as_bytes().to_vec())),
            Err(_) => Err(EncodeError::new("a str", noun(value)).into()),
        },
        ElementPlan::WideText { .. } => match value.cast::<PyString>() {
            Ok(text) => Ok(Value::Wide(text.to_str()?.encode_utf16().collect())),
            Err(_) => Err(EncodeError::new("a str", noun(value)).into()),
        },
    }
}

fn plain(kind: Primitive, value: &Bound<'_, PyAny>) -> Found<Plain> {
    if let Ok(number) = value.cast::<PyFloat>() {
        let number = number.value();
        return match kind {
            Primitive::Double => Ok(number.into()),
            // Infinite and not a number are both.
            Primitive::Float if !number.is_finite() || (number as f32).is_finite() => {
                Ok((number as f32).into())
            }
            _ => Ok(Plain::of_literal(kind, &Literal::Float(number))?),
        };
    }
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(match kind {
            Primitive::Boolean => Plain::of_literal(kind, &Literal::Bool(flag.is_true()))?,
            _ => Plain::of_literal(kind, &Literal::Integer(i128::from(flag.is_true())))?,
        });
    }
    if value.is_instance_of::<PyInt>() {
        let Ok(number) = value.extract::<i64>() else {
            let Ok(number) = value.extract::<u64>() else {
                return Err(EncodeError::new("a number of 64 bits", noun(value)).into());
            };
            return Ok(Plain::of_literal(kind, &Literal::Integer(number.into()))?);
        };
        return Ok(match kind {
            Primitive::Double => (number as f64).into(),
            Primitive::Boolean if number == 0 || number == 1 => {
                Plain::of_literal(kind, &Literal::Bool(number == 1))?
            }
            _ => Plain::of_literal(kind, &Literal::Integer(number.into()))?,
        });
    }
    if let Ok(bytes) = value.cast::<PyBytes>()
        && let [byte] = bytes.as_bytes()
    {
        // rclpy has bytes of one byte for `byte`.
        return Ok(Plain::of_literal(kind, &Literal::Integer((*byte).into()))?);
    }
    // Numbers of numpy.
    let item = value
        .getattr_opt("item")?
        .filter(|_| !value.is_instance_of::<PyDict>());
    match item {
        Some(item) if item.is_callable() => {
            let inner = item.call0()?;
            if inner.is_instance_of::<PyFloat>() || inner.is_instance_of::<PyInt>() {
                return plain(kind, &inner);
            }
            Err(EncodeError::new("a number", noun(value)).into())
        }
        _ => Err(EncodeError::new("a number", noun(value)).into()),
    }
}
