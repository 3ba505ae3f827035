//! Finds for each field of a ROS 2 struct the field of the ROS 1 message that fills it.

use super::definition::{HEADER, OLD_HEADER, Ros1Arity, Ros1Definition, Ros1Element, Ros1Field, Ros1Struct};
use crate::interface::{
    Arity, Definition, Element, Field, FieldType, IndividualTypeDescription, InterfaceError, Primitive,
    bundle::Bundle, parse_message,
};
use std::collections::HashMap;

/// The step for one field, in the order of both messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The ROS 1 field at `source` fills the ROS 2 field at `target`.
    Take { source: usize, target: usize },
    /// The ROS 1 field at `source` is skipped: the `seq` of headers.
    Leave { source: usize },
    /// The ROS 2 field at `target` is new and gets its default, which is zero or empty.
    Default { target: usize },
}

/// The structs of a ROS 2 definition by name.
pub(super) type Structs<'a> = HashMap<&'a str, &'a IndividualTypeDescription>;

/// All structs of a definition.
pub(super) fn structs(definition: &Definition) -> Structs<'_> {
    let description = definition.description();
    let all = description.referenced_type_descriptions.into_iter();
    all.chain([description.type_description])
        .map(|found| (found.type_name.as_str(), found))
        .collect()
}

/// Pairs of a ROS 1 struct and a ROS 2 struct, and how the fields of each pair correspond.
pub(super) struct Matching<'a> {
    source: &'a Ros1Definition,
    /// `None` for pairs that do not agree.
    pairs: HashMap<(String, String), Option<Vec<Step>>>,
}

impl<'a> Matching<'a> {
    pub fn new(source: &'a Ros1Definition) -> Self {
        Self {
            source,
            pairs: HashMap::new(),
        }
    }

    /// Whether every field of ROS 1 type `ros1_name` has its place in `target`, a type that ROS 2 itself has:
    /// same name (in any case), same type, same order. Fields that only ROS 2 has are allowed where their
    /// default is zero or empty.
    pub(crate) fn adopts(&mut self, ros1_name: &str, target: &Definition) -> bool {
        self.matches(ros1_name, target.type_name(), &structs(target))
    }

    /// As [`Self::adopts`] for a definition that was made from the ROS 1 type; earlier results are discarded.
    pub fn require(&mut self, ros1_name: &str, target: &Definition) -> Result<(), InterfaceError> {
        self.pairs.clear();
        if self.matches(ros1_name, target.type_name(), &structs(target)) {
            return Ok(());
        }
        Err(InterfaceError::Syntax {
            type_name: ros1_name.to_owned(),
            line: 1,
            reason: "its fields cannot be expressed in ROS 2".to_owned(),
        })
    }

    /// How the fields of a pair that agrees correspond.
    pub fn steps(&self, ros1_name: &str, ros2_name: &str) -> &[Step] {
        // A look-up with borrowed names would need its own key type; this runs a few times per connection.
        let key = (ros1_name.to_owned(), ros2_name.to_owned());
        self.pairs
            .get(&key)
            .and_then(Option::as_deref)
            .unwrap_or_default()
    }

    fn matches(&mut self, ros1_name: &str, ros2_name: &str, targets: &Structs<'_>) -> bool {
        let key = (ros1_name.to_owned(), ros2_name.to_owned());
        if let Some(known) = self.pairs.get(&key) {
            return known.is_some();
        }
        let source = self.source;
        let steps = match (source.structs.get(ros1_name), targets.get(ros2_name)) {
            (Some(from), Some(to)) => self.steps_of(ros1_name, from, to, targets),
            _ => None,
        };
        let is_match = steps.is_some();
        self.pairs.insert(key, steps);
        is_match
    }

    fn steps_of(
        &mut self,
        ros1_name: &str,
        from: &Ros1Struct,
        to: &IndividualTypeDescription,
        targets: &Structs<'_>,
    ) -> Option<Vec<Step>> {
        let is_header = matches!(ros1_name, HEADER | OLD_HEADER);
        let is_left_out = |field: &Ros1Field| {
            is_header && field.name == "seq" && to.fields.iter().all(|target| target.name != "seq")
        };
        let mut steps = Vec::new();
        let mut source = 0;
        for (target, field) in to.fields.iter().enumerate() {
            while from.fields.get(source).is_some_and(is_left_out) {
                steps.push(Step::Leave { source });
                source += 1;
            }
            match from.fields.get(source).filter(|found| is_same_name(found, field)) {
                Some(found) => {
                    if !self.fills(found, &field.field_type, targets) {
                        return None;
                    }
                    steps.push(Step::Take { source, target });
                    source += 1;
                }
                None => {
                    // A field that comes later in ROS 1 is not a new one: the order differs.
                    let comes_later = from
                        .fields
                        .iter()
                        .skip(source)
                        .any(|found| is_same_name(found, field));
                    if comes_later
                        || has_default_text(&to.type_name, target)
                        || !is_zero_by_default(&field.field_type, targets)
                    {
                        return None;
                    }
                    steps.push(Step::Default { target });
                }
            }
        }
        while from.fields.get(source).is_some_and(is_left_out) {
            steps.push(Step::Leave { source });
            source += 1;
        }
        (source == from.fields.len()).then_some(steps)
    }

    /// Whether the values of a ROS 1 field fit a ROS 2 field of this type.
    fn fills(&mut self, from: &Ros1Field, to: &FieldType, targets: &Structs<'_>) -> bool {
        let same_arity = match (from.arity, to.arity) {
            (Ros1Arity::One, Arity::One) | (Ros1Arity::Sequence, Arity::UnboundedSequence) => true,
            (Ros1Arity::Array(from), Arity::Array(to)) => from == to,
            _ => false,
        };
        same_arity
            && match (&from.element, &to.element) {
                (Ros1Element::Primitive(from), Element::Primitive(to)) => is_same_primitive(*from, *to),
                (
                    Ros1Element::String,
                    Element::String {
                        wide: false,
                        length_max: None,
                    },
                ) => true,
                (Ros1Element::Time, Element::Nested(name)) => name == "builtin_interfaces/msg/Time",
                (Ros1Element::Duration, Element::Nested(name)) => name == "builtin_interfaces/msg/Duration",
                (Ros1Element::Nested(from), Element::Nested(to)) => {
                    super::ros2_type_name(from) == *to && self.matches(from, to, targets)
                }
                _ => false,
            }
    }
}

/// ROS 2 requires lower case: the `K` of a ROS 1 camera is the `k` of a ROS 2 camera.
fn is_same_name(from: &Ros1Field, to: &Field) -> bool {
    from.name.eq_ignore_ascii_case(&to.name)
}

/// All single-byte types match each other: `byte` is signed in ROS 1 and a plain octet in ROS 2.
fn is_same_primitive(from: Primitive, to: Primitive) -> bool {
    let is_byte = |primitive| matches!(primitive, Primitive::Byte | Primitive::Int8 | Primitive::Uint8);
    from == to || (is_byte(from) && is_byte(to))
}

/// Whether the ROS 2 field has an explicit default value.
fn has_default_text(type_name: &str, field: usize) -> bool {
    let Some(source) = Bundle::embedded().get(type_name) else {
        return false;
    };
    match parse_message(type_name, &source.text) {
        Ok(spec) => spec.defaults.get(field).is_some_and(Option::is_some),
        Err(_) => true,
    }
}

/// Whether an unset value of this type is all zeros and empty texts.
fn is_zero_by_default(field_type: &FieldType, targets: &Structs<'_>) -> bool {
    match (field_type.arity, &field_type.element) {
        (Arity::UnboundedSequence | Arity::BoundedSequence(_), _) => true,
        (_, Element::Primitive(primitive)) => super::plan::primitive_bytes(*primitive).is_some(),
        (_, Element::String { wide, .. }) => !wide,
        (_, Element::Nested(name)) => targets.get(name.as_str()).is_some_and(|found| {
            found.fields.iter().enumerate().all(|(place, field)| {
                !has_default_text(name, place) && is_zero_by_default(&field.field_type, targets)
            })
        }),
    }
}
