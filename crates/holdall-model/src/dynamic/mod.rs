//! Decodes and encodes serialized messages by the definitions that bags carry: compiled once per type, then
//! walked without a copy.
//!
//! [`TypePlan::compile`] turns a [`Definition`](crate::interface::Definition) into a plan; [`TypePlan::walk`]
//! hands the values of a payload to a [`Visitor`] as views of its bytes. [`text`] writes them as JSON and
//! YAML, [`expression`] evaluates conditions on them. [`encode`] makes payloads of values, JSON and YAML;
//! [`edit`] changes fields of a payload and copies the rest; [`migrate`] makes messages of another definition; [`columns`] makes tables of many payloads, and [`part`] reads single fields. [`JsonPlan`]
//! makes a plan of a JSON schema, and payloads of its messages.
//!
//! Plain CDR (`CDR_BE`, `CDR_LE`) as ROS 2 writes it, and plain XCDR2 (`CDR2_BE`, `CDR2_LE`) of final types
//! are read. Parameter lists and delimited encodings (`PL_CDR`, `PL_CDR2`, `D_CDR2`), which ROS 2 does not
//! use for messages, are refused. Wide characters take four bytes (ROS 2 over Fast DDS and
//! Cyclone DDS) or two (XTypes): the bytes do not show which, so both are tried for each message.
//!
//! Work and memory are bounded by the length of the payload: a count is accepted only when that many elements
//! can follow.

pub mod columns;
mod cursor;
pub mod edit;
pub mod encode;
mod error;
pub mod expression;
mod json_schema;
pub mod migrate;
pub mod part;
mod plan;
mod primitives;
mod select;
pub mod text;
mod value;
mod walk;

#[cfg(test)]
mod reference;

pub use error::{DecodeError, EncodeError, PlanError};
pub use json_schema::JsonPlan;
pub use plan::{ElementPlan, FieldPlan, StructPlan, TypePlan};
pub use primitives::Primitives;
pub use value::{Scalar, Text, WideText};
pub use walk::{Visitor, Walked};
