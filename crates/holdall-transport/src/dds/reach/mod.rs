//! Networks, addresses of peers, participants that cannot be heard, and how publishers left.

pub(in crate::dds) mod far_peers;
pub(in crate::dds) mod lives;
pub(in crate::dds) mod networks;
pub(in crate::dds) mod processes;
pub(in crate::dds) mod repeats;
pub(in crate::dds) mod unheard;
