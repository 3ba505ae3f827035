//! The attribute of an object that its class defines.

use pyo3::{ffi, prelude::*, types::PyString};

/// Python's default lookup of an attribute; a class with `__getattribute__` calls it for names that it does not handle.
pub(crate) fn generic_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: both pointers are alive while they are borrowed, and the interpreter's lock is held; a new reference or null is returned, and
    // on null an exception is set.
    unsafe {
        Bound::from_owned_ptr_or_err(
            object.py(),
            ffi::PyObject_GenericGetAttr(object.as_ptr(), name.as_ptr()),
        )
    }
}
