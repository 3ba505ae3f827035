//! Messages as pictures, for notebooks.

use crate::{error::detached, value::Struct};
use holdall::look::{self, PictureOptions};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};

/// An image, a point cloud from above or a grid as a file of a picture, after its media type; `side_max` bounds its pixels. `None` for other messages.
#[pyfunction]
pub(crate) fn picture<'py>(
    message: &Bound<'py, Struct>,
    side_max: u32,
) -> PyResult<Option<(&'static str, Bound<'py, PyBytes>)>> {
    let py = message.py();
    let Some((payload, plan)) = message.get().whole() else {
        return Ok(None);
    };
    if !look::is_picture(plan.type_name()) {
        return Ok(None);
    }
    let options = PictureOptions {
        side_max: Some(side_max),
        ..PictureOptions::default()
    };
    let found = detached(py, || look::picture(plan, &payload, &options))?;
    let found = found.map_err(PyValueError::new_err)?;
    Ok(Some((found.content_type, PyBytes::new(py, &found.bytes))))
}
