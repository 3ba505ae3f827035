//! Cyclone DDS as owned, safe entities: all that is unsafe.

#[cfg(feature = "dds")]
pub(in crate::dds) mod alloc;
#[cfg(feature = "dds")]
pub(in crate::dds) mod announcing;
#[cfg(feature = "dds")]
pub(in crate::dds) mod announcing_again;
#[cfg(feature = "dds")]
pub(in crate::dds) mod drops;
pub(in crate::dds) mod entity;
#[cfg(feature = "dds")]
pub(in crate::dds) mod globals;
#[cfg(feature = "sros2")]
pub(in crate::dds) mod handshake;
#[cfg(feature = "dds")]
pub(in crate::dds) mod hosts;
#[cfg(feature = "dds")]
pub(in crate::dds) mod log;
pub(in crate::dds) mod log_limit;
#[cfg(feature = "dds")]
pub(in crate::dds) mod qos;
#[cfg(feature = "dds")]
pub(in crate::dds) mod sertype;
#[cfg(feature = "dds")]
pub(in crate::dds) mod service;
#[cfg(feature = "dds")]
pub(in crate::dds) mod trial;
