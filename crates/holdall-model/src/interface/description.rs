//! Types as `type_description_interfaces` describes them: fields with their kinds, sizes and nested types.

/// Step between the type numbers of a plain field and those of an array, a bounded sequence, and an unbounded one.
const ARITY_STEP: u8 = 48;

/// A value that is neither a struct nor a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Primitive {
    /// `int8`.
    Int8,
    /// `uint8`, and `char` of `.msg` files.
    Uint8,
    /// `int16`.
    Int16,
    /// `uint16`.
    Uint16,
    /// `int32`.
    Int32,
    /// `uint32`.
    Uint32,
    /// `int64`.
    Int64,
    /// `uint64`.
    Uint64,
    /// `float32`; `float` in IDL.
    Float,
    /// `float64`; `double` in IDL.
    Double,
    /// `long double`, IDL only.
    LongDouble,
    /// `char` of IDL files.
    Char,
    /// `wchar`, IDL only.
    Wchar,
    /// `bool`; `boolean` in IDL.
    Boolean,
    /// `byte`; `octet` in IDL.
    Byte,
}

impl Primitive {
    /// Its name in `.msg` files; `None` for types that only IDL has.
    pub const fn msg_name(self) -> Option<&'static str> {
        Some(match self {
            Self::Int8 => "int8",
            Self::Uint8 => "uint8",
            Self::Int16 => "int16",
            Self::Uint16 => "uint16",
            Self::Int32 => "int32",
            Self::Uint32 => "uint32",
            Self::Int64 => "int64",
            Self::Uint64 => "uint64",
            Self::Float => "float32",
            Self::Double => "float64",
            Self::Boolean => "bool",
            Self::Byte => "byte",
            Self::LongDouble | Self::Char | Self::Wchar => return None,
        })
    }

    /// Number in `type_description_interfaces/msg/FieldType`.
    const fn type_id(self) -> u8 {
        match self {
            Self::Int8 => 2,
            Self::Uint8 => 3,
            Self::Int16 => 4,
            Self::Uint16 => 5,
            Self::Int32 => 6,
            Self::Uint32 => 7,
            Self::Int64 => 8,
            Self::Uint64 => 9,
            Self::Float => 10,
            Self::Double => 11,
            Self::LongDouble => 12,
            Self::Char => 13,
            Self::Wchar => 14,
            Self::Boolean => 15,
            Self::Byte => 16,
        }
    }

    const fn from_type_id(id: u8) -> Option<Self> {
        Some(match id {
            2 => Self::Int8,
            3 => Self::Uint8,
            4 => Self::Int16,
            5 => Self::Uint16,
            6 => Self::Int32,
            7 => Self::Uint32,
            8 => Self::Int64,
            9 => Self::Uint64,
            10 => Self::Float,
            11 => Self::Double,
            12 => Self::LongDouble,
            13 => Self::Char,
            14 => Self::Wchar,
            15 => Self::Boolean,
            16 => Self::Byte,
            _ => return None,
        })
    }
}

/// The type of a field's value or of its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A plain value.
    Primitive(Primitive),
    /// Text.
    String {
        /// `wstring`: 16-bit characters.
        wide: bool,
        /// Longest text in characters; `None` for any length.
        length_max: Option<u64>,
    },
    /// A struct, by its full type name.
    Nested(String),
}

/// How many elements a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arity {
    /// Exactly one.
    One,
    /// `[n]`: always `n`.
    Array(u64),
    /// `[<=n]`: at most `n`.
    BoundedSequence(u64),
    /// `[]`: any number.
    UnboundedSequence,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldType {
    /// The type of its value or of its elements.
    pub element: Element,
    /// How many.
    pub arity: Arity,
}

impl FieldType {
    /// One value of a type.
    pub const fn one(element: Element) -> Self {
        Self {
            element,
            arity: Arity::One,
        }
    }

    /// The type that `type_description_interfaces/msg/FieldType` describes with these values; `None` for a number that has no meaning,
    /// or one that ROS 2 does not use (texts of fixed length).
    pub fn from_parts(
        type_id: u8,
        capacity: u64,
        string_capacity: u64,
        nested_type_name: &str,
    ) -> Option<Self> {
        let arity = match type_id / ARITY_STEP {
            0 => Arity::One,
            1 => Arity::Array(capacity),
            2 => Arity::BoundedSequence(capacity),
            3 => Arity::UnboundedSequence,
            _ => return None,
        };
        let element = match type_id % ARITY_STEP {
            1 => Element::Nested(nested_type_name.to_owned()),
            id @ (17 | 18) => Element::String {
                wide: id == 18,
                length_max: None,
            },
            id @ (21 | 22) => Element::String {
                wide: id == 22,
                length_max: Some(string_capacity),
            },
            id => Element::Primitive(Primitive::from_type_id(id)?),
        };
        Some(Self { element, arity })
    }

    /// Number in `type_description_interfaces/msg/FieldType`.
    pub const fn type_id(&self) -> u8 {
        let element = match &self.element {
            Element::Nested(_) => 1,
            Element::Primitive(primitive) => primitive.type_id(),
            Element::String {
                wide: false,
                length_max: None,
            } => 17,
            Element::String {
                wide: true,
                length_max: None,
            } => 18,
            Element::String {
                wide: false,
                length_max: Some(_),
            } => 21,
            Element::String {
                wide: true,
                length_max: Some(_),
            } => 22,
        };
        element
            + match self.arity {
                Arity::One => 0,
                Arity::Array(_) => ARITY_STEP,
                Arity::BoundedSequence(_) => 2 * ARITY_STEP,
                Arity::UnboundedSequence => 3 * ARITY_STEP,
            }
    }

    /// Elements of an array, most elements of a bounded sequence, else 0.
    pub const fn capacity(&self) -> u64 {
        match self.arity {
            Arity::Array(count) | Arity::BoundedSequence(count) => count,
            Arity::One | Arity::UnboundedSequence => 0,
        }
    }

    /// Longest text of a bounded string, else 0.
    pub const fn string_capacity(&self) -> u64 {
        match self.element {
            Element::String {
                length_max: Some(length),
                ..
            } => length,
            _ => 0,
        }
    }

    /// The struct that it holds, else an empty text.
    pub fn nested_type_name(&self) -> &str {
        match &self.element {
            Element::Nested(name) => name,
            _ => "",
        }
    }
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub field_type: FieldType,
}

impl Field {
    /// A field.
    pub fn new(name: impl Into<String>, field_type: FieldType) -> Self {
        Self {
            name: name.into(),
            field_type,
        }
    }

    /// True for the field that a struct without fields gets.
    pub(crate) fn is_placeholder(&self) -> bool {
        self.name == EMPTY_STRUCT_MEMBER
    }
}

/// One struct. Default values are left out: the hash does not include them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndividualTypeDescription {
    /// Full name, for example `std_msgs/msg/Header`.
    pub type_name: String,
    /// Its fields in order; never empty.
    pub fields: Vec<Field>,
}

impl IndividualTypeDescription {
    /// A struct; one without fields gets the field that rosidl gives it, because DDS has no empty structs.
    pub fn new(type_name: impl Into<String>, mut fields: Vec<Field>) -> Self {
        if fields.is_empty() {
            fields.push(Field::new(
                EMPTY_STRUCT_MEMBER,
                FieldType::one(Element::Primitive(Primitive::Uint8)),
            ));
        }
        Self {
            type_name: type_name.into(),
            fields,
        }
    }

    /// Names of the structs that its fields hold, with repetitions.
    pub(crate) fn nested_type_names(&self) -> impl Iterator<Item = &str> {
        self.fields
            .iter()
            .map(|field| field.field_type.nested_type_name())
            .filter(|name| !name.is_empty())
    }
}

/// The only field of a struct that was defined without fields.
pub(crate) const EMPTY_STRUCT_MEMBER: &str = "structure_needs_at_least_one_member";

/// A struct and all its dependencies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeDescription<'a> {
    /// The struct itself.
    pub type_description: &'a IndividualTypeDescription,
    /// All structs that it depends on, by name.
    pub referenced_type_descriptions: Vec<&'a IndividualTypeDescription>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_comes_back_from_its_number() {
        let mut known = 0;
        for id in 0..=u8::MAX {
            let Some(field_type) = FieldType::from_parts(id, 3, 5, "a/msg/B") else {
                continue;
            };
            known += 1;
            assert_eq!(field_type.type_id(), id);
            let has_capacity = matches!(field_type.arity, Arity::Array(_) | Arity::BoundedSequence(_));
            assert_eq!(field_type.capacity(), if has_capacity { 3 } else { 0 });
            let is_nested = matches!(field_type.element, Element::Nested(_));
            assert_eq!(
                field_type.nested_type_name(),
                if is_nested { "a/msg/B" } else { "" }
            );
        }
        assert_eq!(known, 4 * 20);
    }
}
