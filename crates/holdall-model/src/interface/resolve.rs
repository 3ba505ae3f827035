//! Resolves a type with all its dependencies, within bounds.

use super::{
    Constant, DEFINITION_BYTES_MAX, Element, FieldDefault, IndividualTypeDescription, InterfaceError,
    InterfaceSource, NESTING_MAX, TYPES_MAX, TypeDescription, defining_type, derive, full_type_name,
    is_identifier, rihs01, split_type_name,
};
use std::collections::{BTreeMap, BTreeSet};

/// A type and all its dependencies, with the texts that define them.
#[derive(Clone, Debug)]
pub struct Definition {
    type_name: String,
    /// By the type that the file is named after.
    pub(super) sources: BTreeMap<String, InterfaceSource>,
    /// The type itself and all its dependencies.
    pub(super) descriptions: BTreeMap<String, IndividualTypeDescription>,
}

impl Definition {
    /// Resolves a type such as `sensor_msgs/msg/Image` or `pkg/srv/X_Event`; `sensor_msgs/Image` means the
    /// former.
    ///
    /// `lookup` returns the definition file of a type (see [`defining_type`]), or `None`. It is called with
    /// the derived type itself when it has no file for the type that defines it.
    ///
    /// # Errors
    /// When a definition is not found, breaks the rules, contains itself, or is larger or deeper than the
    /// bounds.
    pub fn resolve(
        type_name: &str,
        lookup: impl FnMut(&str) -> Option<InterfaceSource>,
    ) -> Result<Self, InterfaceError> {
        Self::resolve_described(type_name, lookup, |_| None)
    }

    /// As [`Definition::resolve`]; if `lookup` has no text, `described` provides the fields of a type. Nodes have no text for types that
    /// services and actions derive, but they send the fields.
    ///
    /// # Errors
    /// As for [`Definition::resolve`].
    pub fn resolve_described(
        type_name: &str,
        lookup: impl FnMut(&str) -> Option<InterfaceSource>,
        described: impl Fn(&str) -> Option<IndividualTypeDescription>,
    ) -> Result<Self, InterfaceError> {
        let type_name = &*full_type_name(type_name);
        let mut resolver = Resolver {
            root: type_name,
            lookup,
            described,
            path: Vec::new(),
            defined: BTreeMap::new(),
            sources: BTreeMap::new(),
            bytes: 0,
            reached: BTreeSet::new(),
        };
        resolver.visit(type_name)?;
        let Resolver {
            defined,
            sources,
            reached,
            ..
        } = resolver;
        let descriptions = defined
            .into_iter()
            .filter(|(name, _)| reached.contains(name))
            .collect();
        Ok(Self {
            type_name: type_name.to_owned(),
            sources,
            descriptions,
        })
    }

    /// The requested type.
    pub fn type_name(&self) -> &str {
        &self.type_name
    }

    /// The type as `type_description_interfaces` describes it.
    pub fn description(&self) -> TypeDescription<'_> {
        let others = self
            .descriptions
            .iter()
            .filter(|(name, _)| **name != self.type_name);
        TypeDescription {
            type_description: &self.descriptions[&self.type_name],
            referenced_type_descriptions: others.map(|(_, description)| description).collect(),
        }
    }

    /// The texts of the definition, by the types that their files are named after.
    pub fn sources(&self) -> impl Iterator<Item = (&str, &InterfaceSource)> {
        self.sources.iter().map(|(name, source)| (name.as_str(), source))
    }

    /// The same struct with the names that its service or action gives to derived types: `.msg` texts, in which bags store these types,
    /// can only name messages.
    pub fn with_derived_names(mut self) -> Self {
        let file = defining_type(&self.type_name);
        let Some((package, rest)) = file.split_once('/') else {
            return self;
        };
        let Some((kind, name)) = rest.split_once('/') else {
            return self;
        };
        let (stored, derived) = (
            format!("{package}/msg/{name}_"),
            format!("{package}/{kind}/{name}_"),
        );
        let renamed = |name: &str| name.strip_prefix(&stored).map(|part| format!("{derived}{part}"));
        let mut descriptions = BTreeMap::new();
        for (name, mut description) in std::mem::take(&mut self.descriptions) {
            for field in &mut description.fields {
                if let Element::Nested(nested) = &mut field.field_type.element
                    && let Some(new) = renamed(nested)
                {
                    *nested = new;
                }
            }
            let name = renamed(&name).unwrap_or(name);
            description.type_name.clone_from(&name);
            descriptions.insert(name, description);
        }
        self.descriptions = descriptions;
        self
    }

    /// The default values in the texts of the definition, by struct and field.
    pub fn defaults(&self) -> BTreeMap<String, BTreeMap<String, FieldDefault>> {
        self.sources
            .iter()
            // All texts were read once: none is refused now.
            .filter_map(|(file, source)| derive::defaults(file, source).ok())
            .flatten()
            .collect()
    }

    /// The constants of a type that the definition's texts define, in order.
    pub(crate) fn constants(&self, type_name: &str) -> Vec<Constant> {
        let file = defining_type(type_name);
        let source = self.sources.get_key_value(file);
        let source = source.or_else(|| self.sources.get_key_value(type_name));
        // All texts were read once: none is refused now.
        source
            .and_then(|(file, source)| derive::constants(file, source, type_name).ok())
            .unwrap_or_default()
    }

    /// The RIHS01 hash of the type.
    pub fn type_hash(&self) -> String {
        rihs01::hash(&self.description())
    }
}

struct Resolver<'a, L, D> {
    root: &'a str,
    lookup: L,
    described: D,
    /// The types that are being visited, outermost first.
    path: Vec<String>,
    /// All types of all files that were read.
    defined: BTreeMap<String, IndividualTypeDescription>,
    sources: BTreeMap<String, InterfaceSource>,
    /// Length of all sources.
    bytes: usize,
    /// The types that the root depends on, and the root.
    reached: BTreeSet<String>,
}

impl<L, D> Resolver<'_, L, D>
where
    L: FnMut(&str) -> Option<InterfaceSource>,
    D: Fn(&str) -> Option<IndividualTypeDescription>,
{
    fn visit(&mut self, type_name: &str) -> Result<(), InterfaceError> {
        if self.path.iter().any(|outer| outer == type_name) {
            return Err(InterfaceError::Cycle {
                type_name: type_name.to_owned(),
            });
        }
        if !self.reached.insert(type_name.to_owned()) {
            return Ok(());
        }
        self.check_bound(self.path.len(), NESTING_MAX, "levels of nested types")?;
        self.check_bound(self.reached.len(), TYPES_MAX, "types")?;
        let nested = self.nested_type_names(type_name)?;
        self.path.push(type_name.to_owned());
        for name in nested {
            self.visit(&name)?;
        }
        self.path.pop();
        Ok(())
    }

    fn check_bound(&self, count: usize, limit: usize, what: &'static str) -> Result<(), InterfaceError> {
        if count > limit {
            return Err(InterfaceError::TooLarge {
                type_name: self.root.to_owned(),
                what,
                limit,
            });
        }
        Ok(())
    }

    /// The types that a type's fields hold, each once.
    fn nested_type_names(&mut self, type_name: &str) -> Result<BTreeSet<String>, InterfaceError> {
        if !self.defined.contains_key(type_name) {
            self.read_defining_file(type_name)?;
        }
        match self.defined.get(type_name) {
            Some(description) => Ok(description.nested_type_names().map(str::to_owned).collect()),
            None => Err(self.not_found(type_name)),
        }
    }

    fn read_defining_file(&mut self, type_name: &str) -> Result<(), InterfaceError> {
        split_type_name(type_name)?;
        let file = defining_type(type_name);
        if self.sources.contains_key(file) {
            return Err(self.not_found(type_name));
        }
        // A type that a service or an action derives may be stored as a separate message.
        let found = match (self.lookup)(file) {
            Some(source) => Some((file, source)),
            None if file == type_name => None,
            None => (self.lookup)(type_name).map(|source| (type_name, source)),
        };
        let Some((file, source)) = found else {
            return self.read_description(type_name);
        };
        self.bytes += source.text.len();
        self.check_bound(self.bytes, DEFINITION_BYTES_MAX, "bytes")?;
        for description in derive::describe(file, &source)? {
            self.defined.insert(description.type_name.clone(), description);
        }
        self.sources.insert(file.to_owned(), source);
        Ok(())
    }

    /// Takes the fields of a type that has no text.
    fn read_description(&mut self, type_name: &str) -> Result<(), InterfaceError> {
        let description = (self.described)(type_name)
            .filter(|description| description.type_name == type_name)
            .ok_or_else(|| self.not_found(type_name))?;
        // Texts are made of these names.
        if !description.fields.iter().all(|field| is_identifier(&field.name)) {
            return Err(self.not_found(type_name));
        }
        for nested in description.nested_type_names() {
            split_type_name(nested)?;
        }
        self.defined.insert(type_name.to_owned(), description);
        Ok(())
    }

    fn not_found(&self, type_name: &str) -> InterfaceError {
        InterfaceError::NotFound {
            type_name: type_name.to_owned(),
            needed_by: self.path.last().cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{Field, FieldType, SourceFormat};

    fn resolve(type_name: &str, texts: &[(&str, &str)]) -> Result<Definition, InterfaceError> {
        Definition::resolve(type_name, |name| {
            let (_, text) = texts.iter().find(|(known, _)| *known == name)?;
            let format = if name.contains("/srv/") {
                SourceFormat::Srv
            } else {
                SourceFormat::Msg
            };
            Some(InterfaceSource {
                format,
                text: (*text).to_owned().into(),
            })
        })
    }

    #[test]
    fn dependencies_are_found_once_and_sorted() {
        let texts = [
            ("a/msg/A", "C c\nB b\nB[] more\n"),
            ("a/msg/B", "C c"),
            ("a/msg/C", "int32 x"),
        ];
        let definition = resolve("a/msg/A", &texts).unwrap();
        let description = definition.description();
        let names: Vec<_> = description
            .referenced_type_descriptions
            .iter()
            .map(|d| d.type_name.as_str())
            .collect();
        assert_eq!(
            (description.type_description.type_name.as_str(), names),
            ("a/msg/A", vec!["a/msg/B", "a/msg/C"])
        );
    }

    #[test]
    fn a_part_of_a_service_needs_only_its_own_dependencies() {
        let texts = [("a/srv/S", "B b\n---\nMissing m\n"), ("a/msg/B", "int32 x")];
        let definition = resolve("a/srv/S_Request", &texts).unwrap();
        assert_eq!(definition.description().referenced_type_descriptions.len(), 1);
        assert!(resolve("a/srv/S_Response", &texts).is_err());
        assert!(resolve("a/srv/S_Unknown", &texts).is_err());
    }

    /// The texts of messages and the fields of derived types that a node sends for `a/srv/S_Event`.
    fn sent_by_a_node(type_name: &str) -> (Definition, BTreeMap<String, IndividualTypeDescription>) {
        let bundle = super::super::bundle::Bundle::embedded();
        let texts = |name: &str| {
            let (format, text) = match name {
                "a/srv/S" => (SourceFormat::Srv, "B b\nstring<=5[<=3] names\n---\nbool done\n"),
                "a/action/A" => (SourceFormat::Action, "B goal\n---\n---\nfloat64[2] at\n"),
                "a/msg/B" => (SourceFormat::Msg, "int32 x\n"),
                other => return bundle.get(other),
            };
            Some(InterfaceSource {
                format,
                text: text.into(),
            })
        };
        let whole = Definition::resolve(type_name, texts).unwrap();
        let described = whole.descriptions.clone();
        let only_messages = |name: &str| texts(name).filter(|source| source.format == SourceFormat::Msg);
        let sent =
            Definition::resolve_described(type_name, only_messages, |name| described.get(name).cloned());
        assert_eq!(sent.as_ref().unwrap().type_hash(), whole.type_hash());
        (sent.unwrap(), described)
    }

    #[test]
    fn what_a_service_derives_is_resolved_by_its_fields() {
        let (event, _) = sent_by_a_node("a/srv/S_Event");
        let stored = event.message_definition();
        let text = format!(
            "{line}\nSRV: a/srv/S\na/B b\nstring<=5[<=3] names\n---\nbool done\n\n{line}\nMSG: a/B\nint32 x\n",
            line = "=".repeat(80)
        );
        assert_eq!(stored.text, text);
        let bundle = super::super::bundle::Bundle::embedded();
        let read = Definition::from_stored(&stored, |name| bundle.get(name)).unwrap();
        assert_eq!(read.type_hash(), event.type_hash());
    }

    #[test]
    fn what_an_action_derives_is_resolved_by_its_fields() {
        for derived in ["_FeedbackMessage", "_SendGoal_Event", "_GetResult_Event"] {
            let (sent, _) = sent_by_a_node(&format!("a/action/A{derived}"));
            let stored = sent.message_definition();
            assert_eq!(stored.encoding, crate::topic::DefinitionEncoding::Ros2Msg);
            assert!(!stored.text.is_empty(), "{derived}");
            // Back from a bag, it is the same type.
            let bundle = super::super::bundle::Bundle::embedded();
            let read = Definition::from_stored(&stored, |name| bundle.get(name)).unwrap();
            assert_eq!(
                read.with_derived_names().type_hash(),
                sent.type_hash(),
                "{derived}"
            );
        }
    }

    #[test]
    fn fields_from_the_network_cannot_break_a_text() {
        let (_, mut described) = sent_by_a_node("a/srv/S_Event");
        let resolved = |described: &BTreeMap<String, IndividualTypeDescription>| {
            Definition::resolve_described("a/srv/S_Event", |_| None, |name| described.get(name).cloned())
        };
        assert!(resolved(&described).is_ok(), "fields alone do");
        described.get_mut("a/msg/B").unwrap().fields[0].name = "x\nint8 y".to_owned();
        assert!(resolved(&described).is_err());
        described.get_mut("a/msg/B").unwrap().fields[0] = Field {
            name: "x".to_owned(),
            field_type: FieldType::one(Element::Nested("a/msg/C\nint8 y".to_owned())),
        };
        assert!(resolved(&described).is_err());
    }

    #[test]
    fn a_missing_type_is_named_with_the_type_that_needs_it() {
        let error = resolve("a/msg/A", &[("a/msg/A", "b/Missing x")]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "no definition of b/msg/Missing was found, which a/msg/A needs"
        );
        assert_eq!(
            resolve("a/msg/X", &[]).unwrap_err().to_string(),
            "no definition of a/msg/X was found"
        );
        assert!(matches!(resolve("X", &[]), Err(InterfaceError::TypeName { .. })));
        assert!(matches!(
            resolve("a/msg/\"", &[]),
            Err(InterfaceError::TypeName { .. })
        ));
    }

    #[test]
    fn a_type_that_contains_itself_is_refused() {
        let texts = [("a/msg/A", "B[] b"), ("a/msg/B", "C c"), ("a/msg/C", "A a")];
        let error = resolve("a/msg/A", &texts).unwrap_err();
        assert_eq!(
            error,
            InterfaceError::Cycle {
                type_name: "a/msg/A".to_owned()
            }
        );
    }

    #[test]
    fn hostile_depth_and_width_are_refused() {
        let number = |name: &str| -> usize { name.trim_start_matches("a/msg/T").parse().unwrap() };
        let source = |text: String| {
            Some(InterfaceSource {
                format: SourceFormat::Msg,
                text: text.into(),
            })
        };
        let deep = Definition::resolve("a/msg/T0", |name| source(format!("T{} x", number(name) + 1)));
        assert!(matches!(
            deep,
            Err(InterfaceError::TooLarge {
                what: "levels of nested types",
                ..
            })
        ));
        let wide = Definition::resolve("a/msg/T0", |name| {
            let fields = |_: &str| {
                (1..=TYPES_MAX + 1)
                    .map(|n| format!("T{n} x{n}\n"))
                    .collect::<String>()
            };
            source(if name == "a/msg/T0" {
                fields(name)
            } else {
                "int32 x".to_owned()
            })
        });
        assert!(matches!(
            wide,
            Err(InterfaceError::TooLarge { what: "types", .. })
        ));
    }
}
