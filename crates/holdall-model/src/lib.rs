//! The nouns of recording (topics, messages, QoS, bags, losses) and the pure rules over them: no I/O, no
//! thread, no clock.
#![forbid(unsafe_code)]

pub mod alarm;
pub mod cache;
pub mod carried;
pub mod cdr;
pub mod contract;
pub mod diagnostic;
pub mod due;
pub mod dynamic;
pub mod elementary;
pub mod episode;
pub mod expired;
pub mod file_class;
pub mod file_order;
pub mod free_space;
pub mod interface;
pub mod lake;
pub mod limits;
pub mod loss;
pub mod marker;
pub mod message;
pub mod metadata;
pub mod moment;
pub mod names;
pub mod network;
pub mod other_type;
mod packets;
pub mod qos;
pub mod quantity;
pub mod rates;
pub mod recoding;
pub mod regress;
pub mod repeated;
pub mod rescue;
pub mod ros1;
pub mod selection;
pub mod split;
pub mod strip;
pub mod text;
pub mod throttle;
pub mod time;
pub mod time_line;
pub mod topic;
pub mod topic_class;
pub mod trigger;
pub mod unheard;
pub mod units;
pub mod yaml;

pub use yaml::YamlError;
