//! Parses `.msg` texts by the rules of `rosidl_adapter`.

use super::{
    Arity, Element, Field, FieldDefault, FieldType, InterfaceError, Primitive, SOURCE_BYTES_MAX,
    is_identifier, split_type_name,
};

/// A constant in a message text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Constant {
    /// Its type, for example `uint8`.
    pub type_name: String,
    /// Its name.
    pub name: String,
    /// Its value as written.
    pub value: FieldDefault,
}

/// The definitions in a message text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MessageSpec {
    /// Fields in order; may be empty.
    pub fields: Vec<Field>,
    /// Default values as written, one for each field.
    pub defaults: Vec<Option<String>>,
    /// Constants in order.
    pub constants: Vec<Constant>,
}

/// Reads a `.msg` text. Nested types without a package belong to the package of `type_name`.
///
/// # Errors
/// The first line that is neither field, constant nor comment, with its number.
pub(crate) fn parse_message(type_name: &str, text: &str) -> Result<MessageSpec, InterfaceError> {
    check_size(type_name, text)?;
    parse_lines(type_name, text.lines().zip(1..))
}

/// Reads the parts of a `.srv` or `.action` text, separated by lines `---`.
pub(super) fn parse_parts<const N: usize>(
    type_name: &str,
    text: &str,
) -> Result<[MessageSpec; N], InterfaceError> {
    check_size(type_name, text)?;
    let lines: Vec<(&str, usize)> = text.lines().zip(1..).collect();
    let parts = lines
        .split(|(line, _)| line.trim_end() == "---")
        .map(|part| part.iter().copied());
    let specs = parts
        .map(|part| parse_lines(type_name, part))
        .collect::<Result<Vec<_>, _>>()?;
    <[MessageSpec; N]>::try_from(specs).map_err(|specs| {
        let reason = format!("expected {} lines '---', found {}", N - 1, specs.len() - 1);
        InterfaceError::Syntax {
            type_name: type_name.to_owned(),
            line: lines.len().max(1),
            reason,
        }
    })
}

/// Definitions also come from the network: a bound on their length bounds everything that is made of them.
pub(super) fn check_size(type_name: &str, text: &str) -> Result<(), InterfaceError> {
    if text.len() > SOURCE_BYTES_MAX {
        let (what, limit) = ("bytes", SOURCE_BYTES_MAX);
        return Err(InterfaceError::TooLarge {
            type_name: type_name.to_owned(),
            what,
            limit,
        });
    }
    Ok(())
}

fn parse_lines<'a>(
    type_name: &str,
    lines: impl Iterator<Item = (&'a str, usize)>,
) -> Result<MessageSpec, InterfaceError> {
    let (package, ..) = split_type_name(type_name)?;
    let mut spec = MessageSpec::default();
    let mut names = std::collections::HashSet::new();
    for (line, number) in lines {
        let parsed = parse_line(package, line, &mut spec).and_then(|name| match name {
            Some(name) if !names.insert(name.clone()) => Err(format!("the name {name} occurs twice")),
            _ => Ok(()),
        });
        parsed.map_err(|reason| InterfaceError::Syntax {
            type_name: type_name.to_owned(),
            line: number,
            reason,
        })?;
    }
    Ok(spec)
}

/// Adds the definition in a line; returns its name.
fn parse_line(package: &str, line: &str, spec: &mut MessageSpec) -> Result<Option<String>, String> {
    // As in rosidl, a '#' inside a quoted default value begins a comment too.
    let code = line.split('#').next().unwrap_or_default().replace('\t', " ");
    let code = code.trim();
    if code.is_empty() {
        return Ok(None);
    }
    let (type_text, rest) = code
        .split_once(' ')
        .ok_or_else(|| format!("{code:?} has no name"))?;
    let rest = rest.trim_start();
    if let Some((name, value)) = rest.split_once('=') {
        return constant(type_text, name.trim_end(), value.trim_start(), spec).map(Some);
    }
    let (name, default) = rest.split_once(' ').unwrap_or((rest, ""));
    check_name(name)?;
    let default = default.trim_start();
    spec.fields
        .push(Field::new(name, field_type(package, type_text)?));
    spec.defaults
        .push((!default.is_empty()).then(|| default.to_owned()));
    Ok(Some(name.to_owned()))
}

fn constant(type_name: &str, name: &str, value: &str, spec: &mut MessageSpec) -> Result<String, String> {
    check_name(name)?;
    if primitive(type_name).is_none() && !matches!(type_name, "string" | "wstring") {
        return Err(format!("a constant cannot be of type {type_name}"));
    }
    spec.constants.push(Constant {
        type_name: type_name.to_owned(),
        name: name.to_owned(),
        value: FieldDefault::Msg(value.to_owned()),
    });
    Ok(name.to_owned())
}

fn check_name(name: &str) -> Result<(), String> {
    if is_identifier(name) {
        Ok(())
    } else {
        Err(format!("{name:?} is not a name"))
    }
}

/// A field's type as written: `uint8[<=4]`, `string<=10`, `Header`, `pkg/Type[]`.
fn field_type(package: &str, text: &str) -> Result<FieldType, String> {
    let (element_text, arity) = match text.strip_suffix(']').map(|rest| rest.rsplit_once('[')) {
        None => (text, Arity::One),
        Some(None) => return Err(format!("{text:?} ends with ']' and has no '['")),
        Some(Some((element, ""))) => (element, Arity::UnboundedSequence),
        Some(Some((element, size))) => match size.strip_prefix("<=") {
            Some(bound) => (element, Arity::BoundedSequence(positive(bound)?)),
            None => (element, Arity::Array(positive(size)?)),
        },
    };
    Ok(FieldType {
        element: element(package, element_text)?,
        arity,
    })
}

fn element(package: &str, text: &str) -> Result<Element, String> {
    if let Some(primitive) = primitive(text) {
        return Ok(Element::Primitive(primitive));
    }
    let string = text.strip_prefix('w').unwrap_or(text).strip_prefix("string");
    let wide = text.starts_with('w');
    match string {
        Some("") => {
            return Ok(Element::String {
                wide,
                length_max: None,
            });
        }
        Some(rest) if rest.starts_with("<=") => {
            return Ok(Element::String {
                wide,
                length_max: Some(positive(&rest[2..])?),
            });
        }
        _ => {}
    }
    nested(package, text).map(Element::Nested)
}

/// The full name of a nested type: `pkg/Type`, or `Type` of the same package.
fn nested(package: &str, text: &str) -> Result<String, String> {
    let (package, name, is_full) = match text.split_once('/') {
        Some((package, name)) => (package, name.strip_prefix("msg/").unwrap_or(name), true),
        None => (package, text, false),
    };
    // ROS 2 requires types to begin with a capital; types from ROS 1 may not, and always have their package
    // before them.
    let is_type =
        is_identifier(package) && is_identifier(name) && (is_full || !name.starts_with(char::is_lowercase));
    is_type
        .then(|| format!("{package}/msg/{name}"))
        .ok_or_else(|| format!("{text:?} is not a type"))
}

/// The primitive type of this name in `.msg`; the same in ROS 1.
pub(crate) fn primitive(text: &str) -> Option<Primitive> {
    Some(match text {
        "bool" => Primitive::Boolean,
        "byte" => Primitive::Byte,
        "char" | "uint8" => Primitive::Uint8,
        "int8" => Primitive::Int8,
        "int16" => Primitive::Int16,
        "uint16" => Primitive::Uint16,
        "int32" => Primitive::Int32,
        "uint32" => Primitive::Uint32,
        "int64" => Primitive::Int64,
        "uint64" => Primitive::Uint64,
        "float32" => Primitive::Float,
        "float64" => Primitive::Double,
        _ => return None,
    })
}

pub(super) fn positive(text: &str) -> Result<u64, String> {
    match text.trim().parse() {
        Ok(0) | Err(_) => Err(format!("{text:?} is not a size; sizes are whole numbers from 1")),
        Ok(size) => Ok(size),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Result<MessageSpec, InterfaceError> {
        parse_message("my_msgs/msg/Test", text)
    }

    fn kind(text: &str) -> (u8, u64, u64, String) {
        let field = parse(&format!("{text} x")).unwrap().fields.remove(0).field_type;
        (
            field.type_id(),
            field.capacity(),
            field.string_capacity(),
            field.nested_type_name().to_owned(),
        )
    }

    #[test]
    fn every_kind_of_field_is_understood() {
        let nothing = String::new;
        assert_eq!(kind("bool"), (15, 0, 0, nothing()));
        assert_eq!(kind("char"), (3, 0, 0, nothing()));
        assert_eq!(kind("byte[]"), (160, 0, 0, nothing()));
        assert_eq!(kind("float64[9]"), (59, 9, 0, nothing()));
        assert_eq!(kind("uint8[<=3]"), (99, 3, 0, nothing()));
        assert_eq!(kind("string"), (17, 0, 0, nothing()));
        assert_eq!(kind("wstring[]"), (162, 0, 0, nothing()));
        assert_eq!(kind("string<=5"), (21, 0, 5, nothing()));
        assert_eq!(kind("wstring<=5[<=7]"), (118, 7, 5, nothing()));
        assert_eq!(kind("string<=5[2]"), (69, 2, 5, nothing()));
        assert_eq!(kind("Header"), (1, 0, 0, "my_msgs/msg/Header".to_owned()));
        assert_eq!(
            kind("std_msgs/Header[]"),
            (145, 0, 0, "std_msgs/msg/Header".to_owned())
        );
    }

    #[test]
    fn comments_constants_and_defaults_are_distinguished() {
        let text = "# head\n\nuint8 A=1 # one\nstring NAME = some text\n\nint32 x -5 # x\nstring y \"a b\"\n  # end\n\tfloat32[] z [1.0, 2.0]\r\n";
        let spec = parse(text).unwrap();
        let constants: Vec<_> = spec
            .constants
            .iter()
            .map(|c| (c.name.as_str(), c.value.clone()))
            .collect();
        let written = |text: &str| FieldDefault::Msg(text.to_owned());
        assert_eq!(constants, [("A", written("1")), ("NAME", written("some text"))]);
        let names: Vec<_> = spec.fields.iter().map(|field| field.name.as_str()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        assert_eq!(spec.defaults[0].as_deref(), Some("-5"));
        assert_eq!(spec.defaults[1].as_deref(), Some("\"a b\""));
        assert_eq!(spec.defaults[2].as_deref(), Some("[1.0, 2.0]"));
    }

    #[test]
    fn an_invalid_line_is_named() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        let at = |line: usize| format!("definition of my_msgs/msg/Test, line {line}: ");
        assert_eq!(error("int32 a\nint32\n"), at(2) + "\"int32\" has no name");
        assert_eq!(
            error("int32[0] a"),
            at(1) + "\"0\" is not a size; sizes are whole numbers from 1"
        );
        assert_eq!(
            error("int32[<=x] a"),
            at(1) + "\"x\" is not a size; sizes are whole numbers from 1"
        );
        assert_eq!(
            error("int32] a"),
            at(1) + "\"int32]\" ends with ']' and has no '['"
        );
        assert_eq!(error("time a"), at(1) + "\"time\" is not a type");
        assert_eq!(error("int32 a\nint32 a"), at(2) + "the name a occurs twice");
        assert_eq!(error("Header A=1"), at(1) + "a constant cannot be of type Header");
        assert_eq!(error("int32 a-b"), at(1) + "\"a-b\" is not a name");
    }

    #[test]
    fn a_text_beyond_the_bound_is_refused() {
        let text = "#".repeat(SOURCE_BYTES_MAX + 1);
        assert!(matches!(
            parse(&text),
            Err(InterfaceError::TooLarge { what: "bytes", .. })
        ));
    }

    #[test]
    fn services_have_two_parts_and_actions_three() {
        let [request, response] = parse_parts::<2>("a/srv/B", "int32 a\n---\r\nint32 a\nint32 b\n").unwrap();
        assert_eq!((request.fields.len(), response.fields.len()), (1, 2));
        let [goal, result, feedback] = parse_parts::<3>("a/action/B", "---\n---\n").unwrap();
        assert!(goal.fields.is_empty() && result.fields.is_empty() && feedback.fields.is_empty());
        let error = parse_parts::<2>("a/srv/B", "int32 a\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "definition of a/srv/B, line 1: expected 1 lines '---', found 0"
        );
        assert!(parse_parts::<2>("a/srv/B", "---\n---\n").is_err());
        let error = parse_parts::<2>("a/srv/B", "int32 a\n---\nint32\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("line 3"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-zA-Z0-9_/<=\\[\\]# \\t\"'-]{0,20}\\n?){0,5}|\\PC{0,40}") {
            let _ = parse(&text);
            let _ = parse_parts::<2>("a/srv/B", &text);
        }
    }
}
