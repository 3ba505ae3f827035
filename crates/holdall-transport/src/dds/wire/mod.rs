//! Packets on the wire: what is read from them, and what is changed in them. Bytes only.

pub(in crate::dds) mod announced;
pub(in crate::dds) mod for_fast_dds;
pub(in crate::dds) mod handshake_names;
pub(in crate::dds) mod keys;
pub(in crate::dds) mod locators;
pub(in crate::dds) mod reply_identity;
pub(in crate::dds) mod service_header;
pub(in crate::dds) mod way_back;
