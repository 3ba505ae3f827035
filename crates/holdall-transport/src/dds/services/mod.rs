//! Services over DDS, and what is asked by them.

#[cfg(feature = "dds")]
pub(in crate::dds) mod inbox;
pub(in crate::dds) mod other_types;
#[cfg(feature = "dds")]
pub(in crate::dds) mod server;
#[cfg(feature = "dds")]
pub(in crate::dds) mod type_description;
