//! The graph: who publishes what, which node has it, and how we announce ourselves.

#[cfg(feature = "dds")]
pub(in crate::dds) mod announcement;
#[cfg(feature = "dds")]
pub(in crate::dds) mod discovery;
pub(in crate::dds) mod node_graph;
#[cfg(feature = "dds")]
pub(in crate::dds) mod peers;
