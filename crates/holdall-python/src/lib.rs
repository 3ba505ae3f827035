//! The native part of the Python package `holdall`: reading bags as messages, columns and Arrow streams, and writing them. The public
//! interface is in `python/holdall`, which is built on this.

mod bag;
mod encode;
mod error;
mod ffi_arrow;
mod ffi_object;
mod message;
mod pickle;
mod picture;
mod plan;
mod table;
mod value;
mod writer;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    holdall_remote::install(|| std::env::vars_os().collect());
    holdall_storage::compression::choose_scratch(|| std::env::var_os("TMPDIR").map(Into::into));
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<bag::Bags>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<message::Messages>()?;
    module.add_class::<value::Struct>()?;
    module.add_class::<value::Values>()?;
    module.add_class::<table::TableSource>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<table::Column>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<bag::Types>()?;
    module.add_function(wrap_pyfunction!(plan::plan, module)?)?;
    module.add_function(wrap_pyfunction!(plan::part, module)?)?;
    module.add_function(wrap_pyfunction!(bag::decode_image, module)?)?;
    module.add_function(wrap_pyfunction!(bag::unpack_cloud, module)?)?;
    module.add_function(wrap_pyfunction!(bag::begins_video, module)?)?;
    module.add_function(wrap_pyfunction!(bag::decode_video, module)?)?;
    module.add_function(wrap_pyfunction!(bag::strip, module)?)?;
    module.add_function(wrap_pyfunction!(pickle::message, module)?)?;
    module.add_function(wrap_pyfunction!(picture::picture, module)?)?;
    module.add_function(wrap_pyfunction!(bag::metadata_of_yaml, module)?)?;
    module.add_function(wrap_pyfunction!(bag::metadata_to_yaml, module)?)?;
    Ok(())
}
