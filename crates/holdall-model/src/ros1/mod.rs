//! ROS 1 messages as ROS 2 messages: definitions mapped, payloads re-encoded from ROS 1 serialization to CDR.
//!
//! A [`Conversion`] is made once per connection and converts its payloads by a plan: a short list of
//! operations in which arrays of plain values are one copy. A type whose fields agree with those of the ROS 2
//! type of the same name becomes that type (its names and its hash, so that ROS 2 nodes and readers know it);
//! any other keeps its own fields under the mapped name.

mod complete;
mod definition;
mod matching;
mod plan;
mod run;
#[cfg(test)]
mod tests;

pub use definition::Ros1Definition;
pub use run::ConversionError;

use crate::{
    interface::{Definition, InterfaceError, InterfaceSource, SourceFormat, bundle::Bundle},
    topic::MessageDefinition,
};
use matching::Matching;
use plan::Plan;

/// Serialization format of ROS 1 payloads, as bags store it.
pub const ROS1_SERIALIZATION: &str = "ros1";

/// How payloads of one ROS 1 type become CDR payloads of a ROS 2 type.
#[derive(Clone, Debug)]
pub struct Conversion {
    definition: MessageDefinition,
    plan: Plan,
}

impl Conversion {
    /// Compiles the conversion of messages of `source`.
    ///
    /// # Errors
    /// A definition that ROS 2 cannot express, or one beyond the bounds.
    pub fn new(source: &Ros1Definition) -> Result<Self, InterfaceError> {
        let bundle = Bundle::embedded();
        let name = ros2_type_name(source.type_name());
        let mut matching = Matching::new(source);
        if let Ok(known) = bundle.define(&name)
            && matching.adopts(source.type_name(), &known)
        {
            return Self::to(source, &known, &matching);
        }
        let own = Definition::resolve(&name, |wanted| {
            if wanted != name
                && let Some(known) = bundle.get(wanted)
                && (is_time(wanted) || adopts_nested(&mut matching, source, wanted))
            {
                return Some(known);
            }
            let found = source
                .structs
                .iter()
                .find(|(ros1_name, _)| ros2_type_name(ros1_name) == wanted);
            found.map(|(_, found)| InterfaceSource {
                format: SourceFormat::Msg,
                text: found.ros2_text.clone().into(),
            })
        })?;
        matching.require(source.type_name(), &own)?;
        Self::to(source, &own, &matching)
    }

    fn to(
        source: &Ros1Definition,
        target: &Definition,
        matching: &Matching<'_>,
    ) -> Result<Self, InterfaceError> {
        Ok(Self {
            definition: target.message_definition(),
            plan: Plan::compile(source, target, matching)?,
        })
    }

    /// The ROS 2 type, its definition as bags store it, and its hash.
    pub fn definition(&self) -> &MessageDefinition {
        &self.definition
    }

    /// Converts one payload; `cdr` is overwritten. It grows to at most a small multiple of the payload.
    ///
    /// # Errors
    /// A payload that does not fit the definition: too short, too long, wrong lengths. The content of `cdr`
    /// is then undefined.
    pub fn convert(&self, ros1: &[u8], cdr: &mut Vec<u8>) -> Result<(), ConversionError> {
        run::run(&self.plan, ros1, cdr)
    }
}

fn is_time(type_name: &str) -> bool {
    matches!(
        type_name,
        "builtin_interfaces/msg/Time" | "builtin_interfaces/msg/Duration"
    )
}

/// Whether the nested type that becomes `wanted` agrees with ROS 2's type of that name.
fn adopts_nested(matching: &mut Matching<'_>, source: &Ros1Definition, wanted: &str) -> bool {
    let nested = source
        .structs
        .keys()
        .find(|ros1_name| ros2_type_name(ros1_name) == wanted);
    match (nested, Bundle::embedded().define(wanted)) {
        (Some(nested), Ok(known)) => matching.adopts(nested, &known),
        _ => false,
    }
}

/// The ROS 2 name of a ROS 1 type: `pkg/Type` becomes `pkg/msg/Type`; two types were renamed.
pub fn ros2_type_name(ros1_name: &str) -> String {
    match ros2_short_name(ros1_name).split_once('/') {
        Some((package, name)) => format!("{package}/msg/{name}"),
        None => ros1_name.to_owned(),
    }
}

/// As [`ros2_type_name`], in the form of definition texts.
fn ros2_short_name(ros1_name: &str) -> &str {
    match ros1_name {
        "tf/tfMessage" => "tf2_msgs/TFMessage",
        definition::OLD_HEADER => definition::HEADER,
        name => name,
    }
}
