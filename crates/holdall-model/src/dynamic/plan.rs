//! Plans: definitions compiled for decoding and encoding, with sizes known in advance where the type fixes them.

use super::{encode::DefaultText, error::PlanError, value::size_of};
use crate::interface::{
    Arity, Definition, Element, Field, FieldDefault, IndividualTypeDescription, Primitive, TypeDescription,
};
use std::collections::BTreeMap;

/// Arrays of structs up to this length get a size in advance.
const FIXED_ITEMS_MAX: u64 = 1024;
/// Larger fixed parts are walked; no real type comes close.
const FIXED_BYTES_MAX: usize = 1 << 30;

/// A message type, ready to decode and encode its payloads.
#[derive(Clone, Debug)]
pub struct TypePlan {
    structs: Vec<StructPlan>,
    root: usize,
    has_wide_text: bool,
}

/// A struct.
#[derive(Clone, Debug)]
pub struct StructPlan {
    /// Full name, for example `std_msgs/msg/Header`.
    pub type_name: String,
    /// Its fields in order. A struct that was defined without fields has one, see [`StructPlan::is_empty`].
    pub fields: Vec<FieldPlan>,
    /// Defined without fields: on the wire it is one byte without meaning.
    pub is_empty: bool,
    bytes_min: u64,
    sizes: Option<Sizes>,
}

/// A field of a struct.
#[derive(Clone, Debug)]
pub struct FieldPlan {
    /// Its name.
    pub name: String,
    /// The type of its value or of its elements.
    pub element: ElementPlan,
    /// How many.
    pub arity: Arity,
    /// The value of a message that leaves it out, when its definition has one.
    pub(super) default: Option<DefaultText>,
    /// Least number of bytes of one element.
    pub(super) element_bytes_min: u64,
    /// Its size, padding before it included, when the type fixes that.
    pub(super) sizes: Option<Sizes>,
}

/// The type of a field's value or of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementPlan {
    /// A plain value.
    Primitive(Primitive),
    /// `string`.
    Text {
        /// Longest in bytes.
        length_max: Option<u64>,
    },
    /// `wstring`.
    WideText {
        /// Longest in 16-bit characters.
        length_max: Option<u64>,
    },
    /// A struct; see [`TypePlan::structure`].
    Struct(usize),
}

/// Bytes to the end of something, from each of the eight offsets that alignment distinguishes.
pub(super) type Sizes = [usize; 8];

impl TypePlan {
    /// The type of a field that holds structs, as a separate type.
    pub fn part(&self, field: &str) -> Option<Self> {
        let (_, field) = self.root().field(field)?;
        let ElementPlan::Struct(root) = field.element else {
            return None;
        };
        Some(self.of_structure(root))
    }

    /// A struct of this plan, as a separate type.
    pub(super) fn of_structure(&self, root: usize) -> Self {
        Self { root, ..self.clone() }
    }

    /// Compiles a resolved definition.
    ///
    /// # Errors
    /// When a nested type is missing or contains itself; [`Definition::resolve`] excludes both.
    pub fn compile(definition: &Definition) -> Result<Self, PlanError> {
        Self::with_defaults(&definition.description(), definition.defaults())
    }

    /// Compiles a type whose fields have no defaults.
    pub(super) fn without_defaults(description: &TypeDescription<'_>) -> Result<Self, PlanError> {
        Self::with_defaults(description, BTreeMap::new())
    }

    fn with_defaults(
        description: &TypeDescription<'_>,
        defaults: BTreeMap<String, BTreeMap<String, FieldDefault>>,
    ) -> Result<Self, PlanError> {
        let root = description.type_description;
        let mut known: BTreeMap<&str, &IndividualTypeDescription> = description
            .referenced_type_descriptions
            .iter()
            .map(|individual| (individual.type_name.as_str(), *individual))
            .collect();
        known.insert(&root.type_name, root);
        let mut compiler = Compiler {
            known,
            defaults,
            done: BTreeMap::new(),
            structs: Vec::new(),
            has_wide_text: false,
        };
        let root = compiler.visit(&root.type_name, &root.type_name)?;
        let Compiler {
            structs,
            has_wide_text,
            ..
        } = compiler;
        Ok(Self {
            structs,
            root,
            has_wide_text,
        })
    }

    /// The message's own type name.
    pub fn type_name(&self) -> &str {
        &self.root().type_name
    }

    /// The message's own struct.
    pub fn root(&self) -> &StructPlan {
        &self.structs[self.root]
    }

    /// The struct of an [`ElementPlan::Struct`].
    ///
    /// # Panics
    /// For an index of another plan.
    pub fn structure(&self, index: usize) -> &StructPlan {
        &self.structs[index]
    }

    /// Number of different structs.
    pub fn structure_count(&self) -> usize {
        self.structs.len()
    }

    /// Index of the message's own struct.
    pub fn root_index(&self) -> usize {
        self.root
    }

    pub(super) fn has_wide_text(&self) -> bool {
        self.has_wide_text
    }
}

impl StructPlan {
    pub(super) fn sizes(&self) -> Option<&Sizes> {
        self.sizes.as_ref()
    }

    /// The field of this name and its index.
    pub fn field(&self, name: &str) -> Option<(usize, &FieldPlan)> {
        self.fields
            .iter()
            .enumerate()
            .find(|(_, field)| field.name == name)
    }
}

impl FieldPlan {
    /// The type as `.msg` files write it, for example `float64[9]`.
    pub(crate) fn type_text(&self, plan: &TypePlan) -> String {
        let element = match self.element {
            ElementPlan::Primitive(primitive) => primitive_name(primitive).to_owned(),
            ElementPlan::Text { length_max: None } => "string".to_owned(),
            ElementPlan::Text {
                length_max: Some(most),
            } => format!("string<={most}"),
            ElementPlan::WideText { length_max: None } => "wstring".to_owned(),
            ElementPlan::WideText {
                length_max: Some(most),
            } => format!("wstring<={most}"),
            ElementPlan::Struct(index) => plan.structure(index).type_name.clone(),
        };
        match self.arity {
            Arity::One => element,
            Arity::Array(count) => format!("{element}[{count}]"),
            Arity::BoundedSequence(most) => format!("{element}[<={most}]"),
            Arity::UnboundedSequence => format!("{element}[]"),
        }
    }

    /// The type of one element as `ros2 topic echo` names it.
    pub fn element_text(&self, plan: &TypePlan) -> String {
        let one = Self {
            arity: Arity::One,
            ..self.clone()
        };
        one.type_text(plan)
    }
}

/// The name of a primitive in `.msg` files, or in IDL where those lack it.
pub(super) const fn primitive_name(primitive: Primitive) -> &'static str {
    match (primitive.msg_name(), primitive) {
        (Some(name), _) => name,
        (None, Primitive::LongDouble) => "long double",
        (None, Primitive::Wchar) => "wchar",
        (None, _) => "char",
    }
}

struct Compiler<'a> {
    known: BTreeMap<&'a str, &'a IndividualTypeDescription>,
    /// Defaults by struct and field.
    defaults: BTreeMap<String, BTreeMap<String, FieldDefault>>,
    /// Index of each struct; `None` while it is being compiled.
    done: BTreeMap<&'a str, Option<usize>>,
    structs: Vec<StructPlan>,
    has_wide_text: bool,
}

impl<'a> Compiler<'a> {
    /// Compiles a struct's nested structs, then the struct: depth is bounded because the definition's is.
    fn visit(&mut self, type_name: &str, needed_by: &str) -> Result<usize, PlanError> {
        let Some((&name, &description)) = self.known.get_key_value(type_name) else {
            return Err(PlanError::Nested {
                type_name: needed_by.to_owned(),
                nested: type_name.to_owned(),
            });
        };
        match self.done.get(name) {
            Some(Some(index)) => return Ok(*index),
            Some(None) => {
                return Err(PlanError::Cycle {
                    type_name: name.to_owned(),
                });
            }
            None => self.done.insert(name, None),
        };
        let fields = description
            .fields
            .iter()
            .map(|field| self.field(field, name))
            .collect::<Result<Vec<_>, _>>()?;
        let index = self.structs.len();
        self.structs.push(StructPlan {
            type_name: name.to_owned(),
            is_empty: matches!(description.fields.as_slice(), [only] if only.is_placeholder()),
            bytes_min: fields
                .iter()
                .fold(0_u64, |sum, field| sum.saturating_add(field.bytes_min())),
            sizes: struct_sizes(&fields),
            fields,
        });
        self.done.insert(name, Some(index));
        Ok(index)
    }

    fn field(&mut self, field: &Field, needed_by: &'a str) -> Result<FieldPlan, PlanError> {
        let element = match &field.field_type.element {
            Element::Primitive(primitive) => ElementPlan::Primitive(*primitive),
            Element::String {
                wide: false,
                length_max,
            } => ElementPlan::Text {
                length_max: *length_max,
            },
            Element::String {
                wide: true,
                length_max,
            } => {
                self.has_wide_text = true;
                ElementPlan::WideText {
                    length_max: *length_max,
                }
            }
            Element::Nested(name) => ElementPlan::Struct(self.visit(name, needed_by)?),
        };
        let element_bytes_min = match element {
            ElementPlan::Primitive(primitive) => size_of(primitive) as u64,
            ElementPlan::Text { .. } | ElementPlan::WideText { .. } => 4,
            ElementPlan::Struct(index) => self.structs[index].bytes_min,
        };
        let arity = field.field_type.arity;
        let of_one = match element {
            ElementPlan::Primitive(primitive) => Some(primitive_sizes(primitive)),
            ElementPlan::Struct(index) => self.structs[index].sizes,
            ElementPlan::Text { .. } | ElementPlan::WideText { .. } => None,
        };
        let sizes = match (arity, of_one) {
            (Arity::One, sizes) => sizes,
            (Arity::Array(count), Some(sizes)) => many_sizes(element, count, &sizes),
            _ => None,
        };
        Ok(FieldPlan {
            name: field.name.clone(),
            element,
            arity,
            default: self
                .defaults
                .get_mut(needed_by)
                .and_then(|of_struct| of_struct.remove(&field.name))
                .map(DefaultText::new),
            element_bytes_min,
            sizes,
        })
    }
}

impl FieldPlan {
    fn bytes_min(&self) -> u64 {
        match self.arity {
            Arity::One => self.element_bytes_min,
            Arity::Array(count) => self.element_bytes_min.saturating_mul(count),
            Arity::BoundedSequence(_) | Arity::UnboundedSequence => 4,
        }
    }
}

fn primitive_sizes(primitive: Primitive) -> Sizes {
    let size = size_of(primitive);
    let align = size.min(8);
    std::array::from_fn(|phase| phase.next_multiple_of(align) - phase + size)
}

fn many_sizes(element: ElementPlan, count: u64, of_one: &Sizes) -> Option<Sizes> {
    let items = usize::try_from(count).ok()?;
    let mut sizes = [0; 8];
    if items == 0 {
        return Some(sizes);
    }
    for (phase, size) in sizes.iter_mut().enumerate() {
        *size = match element {
            // Elements after the first need no padding.
            ElementPlan::Primitive(primitive) => {
                of_one[phase].checked_add((items - 1).checked_mul(size_of(primitive))?)?
            }
            _ if count > FIXED_ITEMS_MAX => return None,
            _ => (0..items).try_fold(0_usize, |sum, _| sum.checked_add(of_one[(phase + sum) & 7]))?,
        };
        if *size > FIXED_BYTES_MAX {
            return None;
        }
    }
    Some(sizes)
}

fn struct_sizes(fields: &[FieldPlan]) -> Option<Sizes> {
    let mut sizes = [0; 8];
    for (phase, size) in sizes.iter_mut().enumerate() {
        *size = fields.iter().try_fold(0_usize, |sum, field| {
            let of_field = field.sizes.as_ref()?;
            sum.checked_add(of_field[(phase + sum) & 7])
                .filter(|sum| *sum <= FIXED_BYTES_MAX)
        })?;
    }
    Some(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::{InterfaceSource, SourceFormat, bundle::Bundle};

    fn plan(texts: &[(&str, &str)]) -> TypePlan {
        let definition = Definition::resolve(texts[0].0, |name| {
            let (_, text) = texts.iter().find(|(known, _)| *known == name)?;
            Some(InterfaceSource {
                format: SourceFormat::Msg,
                text: (*text).to_owned().into(),
            })
        });
        TypePlan::compile(&definition.unwrap()).unwrap()
    }

    #[test]
    fn every_bundled_type_has_a_plan() {
        let bundle = Bundle::embedded();
        for type_name in bundle.type_names().filter(|name| name.contains("/msg/")) {
            let plan = TypePlan::compile(&bundle.define(type_name).unwrap()).unwrap();
            assert_eq!(plan.type_name(), type_name);
        }
    }

    #[test]
    fn fixed_sizes_include_padding_from_every_offset() {
        let plan = plan(&[
            ("a/msg/A", "uint8 a\nfloat64 b\nB[2] c"),
            ("a/msg/B", "uint8 x\nuint32 y"),
        ]);
        // From 0: a at 0, b at 8..16, c[0].x 16, y 20..24, c[1].x 24, y 28..32.
        let sizes = plan.root().sizes.unwrap();
        assert_eq!(sizes[0], 32);
        // From 4: a at 4, b at 8..16, the rest as above.
        assert_eq!(sizes[4], 28);
        assert_eq!(plan.root().bytes_min, 19);
    }

    #[test]
    fn types_that_vary_have_no_size_and_hostile_arrays_do_not_overflow() {
        let varies = plan(&[("a/msg/A", "string a")]);
        assert!(varies.root().sizes.is_none());
        let huge = plan(&[
            ("a/msg/A", "B[18446744073709551615] b\nB[18446744073709551615] c"),
            ("a/msg/B", "float64[18446744073709551615] x"),
        ]);
        assert!(huge.root().sizes.is_none());
        assert_eq!(huge.root().bytes_min, u64::MAX);
    }

    #[test]
    fn types_are_named_as_in_their_files() {
        let plan = plan(&[("a/msg/A", "float64[9] a\nstring<=5[<=3] b\nwstring[] c\nbyte d")]);
        let names: Vec<_> = plan
            .root()
            .fields
            .iter()
            .map(|field| field.type_text(&plan))
            .collect();
        assert_eq!(names, ["float64[9]", "string<=5[<=3]", "wstring[]", "byte"]);
    }
}
