//! Configuration, security and QoS: from ROS's variables and terms to those of DDS.

pub(in crate::dds) mod config;
pub(in crate::dds) mod qos;
pub(in crate::dds) mod security;
