//! Parses the part of IDL that ROS 2 uses: modules, structs, constants, typedefs; annotations are skipped.

mod lexer;
mod types;

use super::{
    Arity, Constant, Field, FieldDefault, FieldType, IndividualTypeDescription, InterfaceError,
    derive::{action_types, service_types},
    is_identifier, parse, split_type_name,
};
use lexer::{Lexer, Token};
use std::collections::BTreeMap;
use types::many;

/// Deepest nesting of modules; ROS 2 uses three.
const MODULES_MAX: usize = 8;

/// All types that an IDL file defines, the named one first.
pub(super) fn describe(
    type_name: &str,
    text: &str,
) -> Result<Vec<IndividualTypeDescription>, InterfaceError> {
    parse::check_size(type_name, text)?;
    let (_, kind, _) = split_type_name(type_name)?;
    let mut parser = Parser::new(text);
    parser
        .definitions(false)
        .map_err(|reason| parser.error(type_name, reason))?;
    let mut take = |suffix: &str| {
        let name = format!("{type_name}{suffix}");
        match parser.structs.remove(&name) {
            Some(fields) => Ok(IndividualTypeDescription::new(name, fields)),
            None => Err(InterfaceError::NotFound {
                type_name: name,
                needed_by: None,
            }),
        }
    };
    let mut types = match kind {
        "srv" => service_types(type_name, [take("_Request")?, take("_Response")?]),
        "action" => action_types(type_name, [take("_Goal")?, take("_Result")?, take("_Feedback")?]),
        _ => vec![take("")?],
    };
    types.extend(
        parser
            .structs
            .into_iter()
            .map(|(name, fields)| IndividualTypeDescription::new(name, fields)),
    );
    Ok(types)
}

/// The default values that an IDL file defines, by struct and field.
pub(super) fn defaults(
    type_name: &str,
    text: &str,
) -> Result<BTreeMap<String, BTreeMap<String, FieldDefault>>, InterfaceError> {
    parse::check_size(type_name, text)?;
    let mut parser = Parser::new(text);
    match parser.definitions(false) {
        Ok(()) => Ok(parser.defaults),
        Err(reason) => Err(parser.error(type_name, reason)),
    }
}

/// The constants that an IDL file defines for a struct: those in the module `X_Constants` next to it.
pub(super) fn constants(
    type_name: &str,
    text: &str,
    of_struct: &str,
) -> Result<Vec<Constant>, InterfaceError> {
    parse::check_size(type_name, text)?;
    let mut parser = Parser::new(text);
    match parser.definitions(false) {
        Ok(()) => Ok(parser
            .constants
            .remove(&format!("{of_struct}_Constants"))
            .unwrap_or_default()),
        Err(reason) => Err(parser.error(type_name, reason)),
    }
}

/// Reads tokens and keeps the definitions. Errors are sentences; [`Parser::error`] adds type and line.
struct Parser<'a> {
    lexer: Lexer<'a>,
    /// The next token, already read; `None` at the end.
    next: Option<Token<'a>>,
    modules: Vec<&'a str>,
    /// Structs by full name with `/`.
    structs: BTreeMap<String, Vec<Field>>,
    typedefs: BTreeMap<String, FieldType>,
    /// Defaults by the full names of structs, and by field.
    defaults: BTreeMap<String, BTreeMap<String, FieldDefault>>,
    /// Constants by the full name of their module.
    constants: BTreeMap<String, Vec<Constant>>,
    /// Constants that are whole numbers: sizes may refer to them.
    sizes: BTreeMap<String, u64>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            lexer: Lexer::new(text),
            next: None,
            modules: Vec::new(),
            structs: BTreeMap::new(),
            typedefs: BTreeMap::new(),
            defaults: BTreeMap::new(),
            constants: BTreeMap::new(),
            sizes: BTreeMap::new(),
        }
    }

    fn error(&self, type_name: &str, reason: String) -> InterfaceError {
        InterfaceError::Syntax {
            type_name: type_name.to_owned(),
            line: self.lexer.line(),
            reason,
        }
    }

    /// Definitions up to the end of the text, or up to the `}` of a module.
    fn definitions(&mut self, in_module: bool) -> Result<(), String> {
        loop {
            match self.advance()? {
                None if in_module => return Err("the text ends inside a module".to_owned()),
                None => return Ok(()),
                Some(Token::Punctuation('}')) if in_module => return Ok(()),
                Some(Token::Punctuation(';')) => {}
                Some(Token::Punctuation('@')) => drop(self.annotation()?),
                Some(Token::Word("module")) => self.module()?,
                Some(Token::Word("struct")) => self.structure()?,
                Some(Token::Word("typedef")) => self.typedef()?,
                Some(Token::Word("const")) => self.constant()?,
                Some(other) => return Err(format!("{other} does not begin a definition that ROS 2 uses")),
            }
        }
    }

    fn module(&mut self) -> Result<(), String> {
        let name = self.name()?;
        if self.modules.len() == MODULES_MAX {
            return Err(format!("modules are nested deeper than {MODULES_MAX} levels"));
        }
        self.expect('{')?;
        self.modules.push(name);
        self.definitions(true)?;
        self.modules.pop();
        Ok(())
    }

    fn structure(&mut self) -> Result<(), String> {
        let name = self.name()?;
        self.expect('{')?;
        let mut fields: Vec<Field> = Vec::new();
        let mut defaults = BTreeMap::new();
        let mut default = None;
        loop {
            match self.advance()? {
                Some(Token::Punctuation('}')) => break,
                Some(Token::Punctuation('@')) => default = self.annotation()?.or(default),
                Some(token) => {
                    let base = self.field_type(token)?;
                    let default = default.take();
                    self.declarators(&base, |name, field_type| {
                        let known = fields.iter().any(|field| field.name == name);
                        if let Some(default) = &default {
                            defaults.insert(name.to_owned(), FieldDefault::Idl(String::clone(default)));
                        }
                        fields.push(Field::new(name, field_type));
                        if known {
                            Err(format!("the name {name} occurs twice"))
                        } else {
                            Ok(())
                        }
                    })?;
                }
                None => return Err(format!("the text ends inside struct {name}")),
            }
        }
        if !defaults.is_empty() {
            self.defaults.insert(self.scoped(name), defaults);
        }
        self.structs.insert(self.scoped(name), fields);
        Ok(())
    }

    fn typedef(&mut self) -> Result<(), String> {
        let token = self.some()?;
        let base = self.field_type(token)?;
        let prefix = self.scoped("");
        let mut defined = Vec::new();
        self.declarators(&base, |name, field_type| {
            defined.push((format!("{prefix}{name}"), field_type));
            Ok(())
        })?;
        self.typedefs.extend(defined);
        Ok(())
    }

    fn constant(&mut self) -> Result<(), String> {
        let token = self.some()?;
        let type_name = token.to_string();
        self.field_type(token)?;
        let name = self.name()?;
        self.expect('=')?;
        let value = self.some()?;
        let mut text = match value {
            Token::Punctuation(sign) => sign.to_string(),
            other => other.to_string(),
        };
        if let Token::Word(number) = value
            && let Ok(size) = number.parse()
        {
            self.sizes.insert(self.scoped(name), size);
            // The constants of a message are in a module next to it, and its fields use them without the
            // module's name.
            if let Some((last, around)) = self.modules.split_last()
                && last.ends_with("_Constants")
            {
                let scope: String = around.iter().map(|module| format!("{module}/")).collect();
                self.sizes.entry(format!("{scope}{name}")).or_insert(size);
            }
        }
        loop {
            match self.some()? {
                Token::Punctuation(';') => break,
                // The number after a sign; a text may continue in further quotes.
                other => text.push_str(&other.to_string()),
            }
        }
        let module = self.modules.join("/");
        self.constants.entry(module).or_default().push(Constant {
            type_name,
            name: name.to_owned(),
            value: FieldDefault::Idl(text),
        });
        Ok(())
    }

    /// Names up to `;`, each with an optional array size.
    fn declarators(
        &mut self,
        base: &FieldType,
        mut declare: impl FnMut(&str, FieldType) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let name = self.name()?;
            let mut field_type = base.clone();
            let mut token = self.some()?;
            if token == Token::Punctuation('[') {
                let size = self.size()?;
                self.expect(']')?;
                field_type = many(field_type, Arity::Array(size))?;
                token = self.some()?;
            }
            declare(name, field_type)?;
            match token {
                Token::Punctuation(',') => {}
                Token::Punctuation(';') => return Ok(()),
                other => return Err(format!("expected ',' or ';' after {name}, found {other}")),
            }
        }
    }

    /// `@name` or `@name(anything)`, after the `@`; returns the value of `@default(value=...)`.
    fn annotation(&mut self) -> Result<Option<String>, String> {
        let is_default = self.name()? == "default";
        while self.accept(':')? {
            self.expect(':')?;
            self.name()?;
        }
        if !self.accept('(')? {
            return Ok(None);
        }
        let mut inside = String::new();
        let mut depth = 1;
        while depth > 0 {
            let token = self.some()?;
            match token {
                Token::Punctuation('(') => depth += 1,
                Token::Punctuation(')') => depth -= 1,
                _ => {}
            }
            if is_default && depth > 0 {
                match token {
                    Token::Word(text) | Token::Text(text) => inside.push_str(text),
                    Token::Punctuation(c) => inside.push(c),
                }
            }
        }
        let value = inside.strip_prefix("value=").map(str::to_owned);
        Ok(value.filter(|_| is_default))
    }

    /// The full name of a definition in the current module.
    fn scoped(&self, name: &str) -> String {
        let mut full: String = self.modules.iter().map(|module| format!("{module}/")).collect();
        full.push_str(name);
        full
    }

    fn advance(&mut self) -> Result<Option<Token<'a>>, String> {
        match self.next.take() {
            Some(token) => Ok(Some(token)),
            None => self.lexer.next(),
        }
    }

    fn peek(&mut self) -> Result<Option<Token<'a>>, String> {
        if self.next.is_none() {
            self.next = self.lexer.next()?;
        }
        Ok(self.next)
    }

    fn some(&mut self) -> Result<Token<'a>, String> {
        self.advance()?
            .ok_or_else(|| "the text ends in the middle of a definition".to_owned())
    }

    fn name(&mut self) -> Result<&'a str, String> {
        match self.some()? {
            Token::Word(word) if is_identifier(word) => Ok(word),
            other => Err(format!("expected a name, found {other}")),
        }
    }

    fn accept(&mut self, punctuation: char) -> Result<bool, String> {
        let found = self.peek()? == Some(Token::Punctuation(punctuation));
        if found {
            self.next = None;
        }
        Ok(found)
    }

    fn expect(&mut self, punctuation: char) -> Result<(), String> {
        match self.some()? {
            Token::Punctuation(found) if found == punctuation => Ok(()),
            other => Err(format!("expected {punctuation:?}, found {other}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(text: &str) -> Result<Vec<Field>, InterfaceError> {
        describe("a/msg/T", &format!("module a {{ module msg {{ {text} }}; }};"))
            .map(|mut types| types.remove(0).fields)
    }

    fn kinds(members: &str) -> Vec<(u8, u64, u64)> {
        let fields = fields(&format!("struct T {{ {members} }};")).unwrap();
        fields
            .iter()
            .map(|f| {
                (
                    f.field_type.type_id(),
                    f.field_type.capacity(),
                    f.field_type.string_capacity(),
                )
            })
            .collect()
    }

    #[test]
    fn every_type_of_the_subset_is_understood() {
        assert_eq!(
            kinds("boolean a; octet b; char c; wchar d;"),
            [(15, 0, 0), (16, 0, 0), (13, 0, 0), (14, 0, 0)]
        );
        assert_eq!(kinds("short a; unsigned short b;"), [(4, 0, 0), (5, 0, 0)]);
        assert_eq!(
            kinds("long a; unsigned long b; long long c;"),
            [(6, 0, 0), (7, 0, 0), (8, 0, 0)]
        );
        assert_eq!(
            kinds("unsigned long long a; long double b;"),
            [(9, 0, 0), (12, 0, 0)]
        );
        assert_eq!(
            kinds("string a; string<4> b; wstring<5> c;"),
            [(17, 0, 0), (21, 0, 4), (22, 0, 5)]
        );
        assert_eq!(
            kinds("sequence<double> a; sequence<uint8, 3> b;"),
            [(155, 0, 0), (99, 3, 0)]
        );
        assert_eq!(
            kinds("sequence<string<7>, 2> a; float b[4], c;"),
            [(117, 2, 7), (58, 4, 0), (10, 0, 0)]
        );
        assert_eq!(kinds(""), [(3, 0, 0)]);
    }

    #[test]
    fn typedefs_constants_annotations_and_comments_are_handled() {
        let text = "
            typedef double double__9[9];
            typedef geometry_msgs::msg::Point Points[4]; // four
            module T_Constants { const string NAME = \"a;b\"; @verbatim (language=\"comment\", text=\"x)\" \"\\n\") const uint8 N = 3; };
            const long MAX = 5;
            /* a
               comment */
            @verbatim (language=\"comment\", text=
              \"text with } and ( and ;\")
            struct T {
              @default (value=1.5) @unit (value=\"m\")
              double__9 covariance;
              Points points;
              sequence<Inner, MAX> inner;
              wstring<N> short_text;
            };";
        let fields = fields(text).unwrap();
        assert_eq!(fields[0].field_type.type_id(), 59);
        assert_eq!(fields[1].field_type.nested_type_name(), "geometry_msgs/msg/Point");
        assert_eq!(fields[1].field_type.capacity(), 4);
        assert_eq!(fields[2].field_type.nested_type_name(), "a/msg/Inner");
        assert_eq!(
            (fields[2].field_type.type_id(), fields[2].field_type.capacity()),
            (97, 5)
        );
        assert_eq!(fields[3].field_type.string_capacity(), 3);
    }

    #[test]
    fn a_broken_rule_is_named_with_its_line() {
        let error = |text: &str| describe("a/msg/T", text).unwrap_err().to_string();
        let at = |line: usize| format!("definition of a/msg/T, line {line}: ");
        assert_eq!(
            error("module a {\n  module msg {\n"),
            at(3) + "the text ends inside a module"
        );
        assert_eq!(
            error("enum X { A };"),
            at(1) + "enum does not begin a definition that ROS 2 uses"
        );
        assert_eq!(
            error("struct T { double a[0]; };"),
            at(1) + "\"0\" is not a size; sizes are whole numbers from 1"
        );
        assert_eq!(
            error("struct T {\n double a;\n double a; };"),
            at(3) + "the name a occurs twice"
        );
        assert_eq!(
            error("typedef double D[2]; struct T { D a[2]; };"),
            at(1) + "arrays and sequences of arrays or sequences are not supported by ROS 2"
        );
        assert_eq!(
            error("module b { struct T { double a; }; };"),
            "no definition of a/msg/T was found"
        );
        assert_eq!(
            error("struct T { string a"),
            at(1) + "the text ends in the middle of a definition"
        );
        let deep = "module a { ".repeat(10_000);
        assert_eq!(error(&deep), at(1) + "modules are nested deeper than 8 levels");
        assert!(
            error(&format!("struct T {{ {}", "sequence<".repeat(10_000))).contains("sequence of sequences")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(module |struct |typedef |const |sequence<|string|[a-z0-9{};:,<>\\[\\]@()\"'/*\\\\ \\n]){0,30}") {
            let _ = describe("a/msg/T", &text);
            let _ = describe("a/srv/T", &text);
        }
    }
}
