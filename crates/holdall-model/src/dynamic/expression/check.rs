//! Checks an expression against a type and turns it into nodes that find their values in slots.

use super::{
    ExpressionError,
    evaluate::{Comparison, Node, Operator},
    parse::{Kind, Parsed, PathStep},
};
use crate::{
    dynamic::{
        ElementPlan, FieldPlan, StructPlan, TypePlan,
        select::{Selection, Step, Taken},
    },
    interface::{Arity, Primitive},
};
use regex::Regex;

/// An expression that fits a type.
pub(super) struct Checked {
    pub selection: Selection,
    /// What is in each slot, as it was written.
    pub names: Vec<String>,
    pub node: Node,
}

/// The type of a part of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Bool,
    Number,
    Text,
}

impl ValueType {
    const fn noun(self) -> &'static str {
        match self {
            Self::Bool => "a boolean",
            Self::Number => "a number",
            Self::Text => "a text",
        }
    }
}

struct Part {
    node: Node,
    value_type: ValueType,
    /// Names any element of a list.
    is_any: bool,
}

/// Checks a whole expression.
pub(super) fn check(plan: &TypePlan, parsed: &Parsed) -> Result<Checked, ExpressionError> {
    let mut checker = Checker::new(plan);
    let node = checker.boolean(parsed)?;
    Ok(Checked {
        selection: checker.selection,
        names: checker.names,
        node,
    })
}

/// Checks an expression that is to have one number for each message; a boolean is 1 or 0.
pub(super) fn check_number(plan: &TypePlan, parsed: &Parsed) -> Result<Checked, ExpressionError> {
    let mut checker = Checker::new(plan);
    let part = checker.part(parsed)?;
    if part.is_any {
        let reason = "it has many values; name one, as in [0]";
        return Err(ExpressionError::new(parsed.at, reason));
    }
    if part.value_type == ValueType::Text {
        return Err(ExpressionError::new(parsed.at, "a text is not a number"));
    }
    Ok(Checked {
        selection: checker.selection,
        names: checker.names,
        node: part.node,
    })
}

/// Checks an expression that is to have values of any kind for each message: one, or those of all elements of a list.
pub(super) fn check_values(plan: &TypePlan, parsed: &Parsed) -> Result<Checked, ExpressionError> {
    let mut checker = Checker::new(plan);
    let part = checker.part(parsed)?;
    Ok(Checked {
        selection: checker.selection,
        names: checker.names,
        node: part.node,
    })
}

/// Follows a path through a type.
pub(super) fn typed_path<'p>(
    plan: &'p TypePlan,
    path: &[(usize, PathStep)],
) -> Result<TypedPath<'p>, ExpressionError> {
    Checker::new(plan).follow(path)
}

struct Checker<'p> {
    plan: &'p TypePlan,
    selection: Selection,
    /// The path of each slot.
    known: Vec<(Vec<Step>, Taken)>,
    names: Vec<String>,
}

impl<'p> Checker<'p> {
    fn new(plan: &'p TypePlan) -> Self {
        Self {
            plan,
            selection: Selection::default(),
            known: Vec::new(),
            names: Vec::new(),
        }
    }

    /// A part that must be true or false.
    fn boolean(&mut self, parsed: &Parsed) -> Result<Node, ExpressionError> {
        let part = self.part(parsed)?;
        match part.value_type {
            ValueType::Bool if part.is_any => Ok(Node::Compare(
                Comparison::Equal,
                Box::new(part.node),
                Box::new(Node::Bool(true)),
            )),
            ValueType::Bool => Ok(part.node),
            value_type => {
                let noun = value_type.noun();
                let reason = format!("{noun} is not a condition; compare it with something");
                Err(ExpressionError::new(parsed.at, reason))
            }
        }
    }

    fn part(&mut self, parsed: &Parsed) -> Result<Part, ExpressionError> {
        let plain = |node, value_type| Part {
            node,
            value_type,
            is_any: false,
        };
        Ok(match &parsed.kind {
            Kind::Or(left, right) => {
                let (left, right) = (self.boolean(left)?, self.boolean(right)?);
                plain(Node::Or(Box::new(left), Box::new(right)), ValueType::Bool)
            }
            Kind::And(left, right) => {
                let (left, right) = (self.boolean(left)?, self.boolean(right)?);
                plain(Node::And(Box::new(left), Box::new(right)), ValueType::Bool)
            }
            Kind::Not(inner) => {
                let inner = self.boolean(inner)?;
                plain(Node::Not(Box::new(inner)), ValueType::Bool)
            }
            Kind::Bool(value) => plain(Node::Bool(*value), ValueType::Bool),
            Kind::Integer(value) => plain(Node::Integer(*value), ValueType::Number),
            Kind::Float(value) => plain(Node::Float(*value), ValueType::Number),
            Kind::Text(text) => plain(Node::Text(text.clone()), ValueType::Text),
            Kind::Time(_) => return Err(ExpressionError::new(parsed.at, "messages have no dates")),
            Kind::Negative(inner) => {
                let part = self.number(inner, parsed.at, "-")?;
                Part {
                    node: Node::Negative(Box::new(part.node)),
                    ..part
                }
            }
            Kind::Call(name, argument) => self.call(parsed.at, name, argument)?,
            Kind::Path(steps) => self.path(steps)?,
            Kind::Binary(sign @ ("=~" | "!~"), left, right) => self.matching(parsed.at, sign, left, right)?,
            Kind::Binary(sign, left, right) => match Comparison::from_sign(sign) {
                Some(comparison) => self.comparison(parsed.at, comparison, left, right)?,
                None => self.calculation(parsed.at, sign, left, right)?,
            },
        })
    }

    fn number(&mut self, parsed: &Parsed, at: usize, sign: &str) -> Result<Part, ExpressionError> {
        let part = self.part(parsed)?;
        if part.value_type == ValueType::Number {
            Ok(part)
        } else {
            Err(ExpressionError::new(at, format!("{sign} needs numbers")))
        }
    }

    fn calculation(
        &mut self,
        at: usize,
        sign: &str,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<Part, ExpressionError> {
        let (left, right) = (self.number(left, at, sign)?, self.number(right, at, sign)?);
        one_any(at, &left, &right)?;
        let operator = Operator::from_sign(sign)
            .ok_or_else(|| ExpressionError::new(at, format!("unexpected {sign}")))?;
        Ok(Part {
            node: Node::Calculate(operator, Box::new(left.node), Box::new(right.node)),
            value_type: ValueType::Number,
            is_any: left.is_any || right.is_any,
        })
    }

    fn comparison(
        &mut self,
        at: usize,
        comparison: Comparison,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<Part, ExpressionError> {
        let (left, right) = (self.part(left)?, self.part(right)?);
        one_any(at, &left, &right)?;
        if left.value_type != right.value_type {
            let reason = format!(
                "{} and {} cannot be compared",
                left.value_type.noun(),
                right.value_type.noun()
            );
            return Err(ExpressionError::new(at, reason));
        }
        if left.value_type == ValueType::Bool
            && !matches!(comparison, Comparison::Equal | Comparison::Unequal)
        {
            return Err(ExpressionError::new(
                at,
                "true and false can only be compared by == and !=",
            ));
        }
        Ok(Part {
            node: Node::Compare(comparison, Box::new(left.node), Box::new(right.node)),
            value_type: ValueType::Bool,
            is_any: false,
        })
    }

    fn matching(
        &mut self,
        at: usize,
        sign: &str,
        left: &Parsed,
        right: &Parsed,
    ) -> Result<Part, ExpressionError> {
        let part = self.part(left)?;
        let (ValueType::Text, Kind::Text(pattern)) = (part.value_type, &right.kind) else {
            let reason = format!("{sign} needs a text and a regular expression in quotes");
            return Err(ExpressionError::new(at, reason));
        };
        let regex = Regex::new(pattern).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().last().unwrap_or_default();
            let line = line.strip_prefix("error: ").unwrap_or(line);
            ExpressionError::new(right.at, format!("not a regular expression: {line}"))
        })?;
        Ok(Part {
            node: Node::Match {
                text: Box::new(part.node),
                regex,
                wanted: sign == "=~",
            },
            value_type: ValueType::Bool,
            is_any: false,
        })
    }

    fn call(&mut self, at: usize, name: &str, argument: &Parsed) -> Result<Part, ExpressionError> {
        match name {
            "abs" => {
                let part = self.number(argument, at, name)?;
                Ok(Part {
                    node: Node::Absolute(Box::new(part.node)),
                    ..part
                })
            }
            "len" => self.length(argument),
            _ => Err(ExpressionError::new(
                at,
                format!("unknown function {name}; the functions are len and abs"),
            )),
        }
    }

    fn length(&mut self, argument: &Parsed) -> Result<Part, ExpressionError> {
        if let Kind::Path(steps) = &argument.kind {
            let path = self.follow(steps)?;
            if path.is_list {
                return Ok(Part {
                    node: self.slot(path.steps, Taken::Length, format!("len({})", written(steps))),
                    value_type: ValueType::Number,
                    is_any: path.is_any,
                });
            }
        }
        let part = match &argument.kind {
            Kind::Path(_) | Kind::Text(_) => self.part(argument)?,
            _ => return Err(ExpressionError::new(argument.at, "len needs a list or a text")),
        };
        if part.value_type != ValueType::Text {
            return Err(ExpressionError::new(argument.at, "len needs a list or a text"));
        }
        Ok(Part {
            node: Node::Characters(Box::new(part.node)),
            value_type: ValueType::Number,
            is_any: part.is_any,
        })
    }

    /// A path to a single value.
    fn path(&mut self, steps: &[(usize, PathStep)]) -> Result<Part, ExpressionError> {
        let path = self.follow(steps)?;
        let at = steps[0].0;
        let written = written(steps);
        if path.is_list {
            let reason = format!(
                "{written} is a list; use {written}[0], {written}[*] (any element) or len({written})"
            );
            return Err(ExpressionError::new(at, reason));
        }
        let (value_type, taken) = match path.field.element {
            ElementPlan::Primitive(Primitive::Boolean) => (ValueType::Bool, Taken::Value),
            ElementPlan::Primitive(_) => (ValueType::Number, Taken::Value),
            ElementPlan::Text { .. } | ElementPlan::WideText { .. } => (ValueType::Text, Taken::Value),
            ElementPlan::Struct(index) => {
                let structure = self.plan.structure(index);
                if !is_time(structure) {
                    let reason = format!(
                        "{written} is a {}; name one of its fields: {}",
                        structure.type_name,
                        field_names(structure)
                    );
                    return Err(ExpressionError::new(at, reason));
                }
                (ValueType::Number, Taken::Seconds)
            }
        };
        let is_any = path.is_any;
        Ok(Part {
            node: self.slot(path.steps, taken, written),
            value_type,
            is_any,
        })
    }

    /// The slot for a value; each is read once, however often the expression names it.
    fn slot(&mut self, steps: Vec<Step>, taken: Taken, name: String) -> Node {
        let wanted = (steps, taken);
        let slot = match self.known.iter().position(|known| *known == wanted) {
            Some(slot) => slot,
            None => {
                self.selection.add(&wanted.0, taken, self.known.len());
                self.known.push(wanted);
                self.names.push(name);
                self.known.len() - 1
            }
        };
        Node::Slot(slot)
    }

    /// Follows a path through the type.
    fn follow(&self, path: &[(usize, PathStep)]) -> Result<TypedPath<'p>, ExpressionError> {
        let mut structure = Some(self.plan.root());
        let mut end: Option<TypedPath<'p>> = None;
        for (index, (at, step)) in path.iter().enumerate() {
            let before = written(&path[..index]);
            match step {
                PathStep::Field(name) => {
                    if end.as_ref().is_some_and(|end| end.is_list) {
                        let reason =
                            format!("{before} is a list; use {before}[0] or {before}[*] (any element)");
                        return Err(ExpressionError::new(*at, reason));
                    }
                    let Some(inside) = structure else {
                        let kind = end
                            .as_ref()
                            .map(|end| end.field.element_text(self.plan))
                            .unwrap_or_default();
                        let reason = format!("{before} has no fields, it is a {kind}");
                        return Err(ExpressionError::new(*at, reason));
                    };
                    let field = inside.field(name).filter(|_| !inside.is_empty);
                    let Some((place, field)) = field else {
                        let reason = format!(
                            "{} has no field {name}; its fields are {}",
                            inside.type_name,
                            field_names(inside)
                        );
                        return Err(ExpressionError::new(*at, reason));
                    };
                    let (mut steps, is_any) = end.map_or((Vec::new(), false), |end| (end.steps, end.is_any));
                    steps.push(Step::Field(place));
                    end = Some(TypedPath {
                        steps,
                        field,
                        is_list: field.arity != Arity::One,
                        is_any,
                    });
                    structure = match field.element {
                        ElementPlan::Struct(index) => Some(self.plan.structure(index)),
                        _ => None,
                    };
                }
                PathStep::Item(_) | PathStep::All => {
                    let inside = end
                        .as_mut()
                        .filter(|end| end.is_list)
                        .ok_or_else(|| ExpressionError::new(*at, format!("{before} is not a list")))?;
                    inside.enter(*at, step, &before)?;
                }
            }
        }
        end.ok_or_else(|| ExpressionError::new(0, "expected the name of a field"))
    }
}

/// A path through a type.
pub(super) struct TypedPath<'p> {
    pub steps: Vec<Step>,
    pub field: &'p FieldPlan,
    /// It ends at a list, not at an element.
    pub is_list: bool,
    is_any: bool,
}

impl TypedPath<'_> {
    fn enter(&mut self, at: usize, step: &PathStep, written: &str) -> Result<(), ExpressionError> {
        match step {
            PathStep::Item(index) => {
                if let Arity::Array(count) = self.field.arity {
                    let is_inside = if *index < 0 {
                        index.unsigned_abs() <= count
                    } else {
                        index.unsigned_abs() < count
                    };
                    if !is_inside {
                        let reason = format!("{written} has {count} elements, there is no element {index}");
                        return Err(ExpressionError::new(at, reason));
                    }
                }
                self.steps.push(Step::Item(*index));
            }
            _ => {
                self.steps.push(Step::All);
                self.is_any = true;
            }
        }
        self.is_list = false;
        Ok(())
    }
}

/// `any` on both sides would compare pairs, which is never intended.
fn one_any(at: usize, left: &Part, right: &Part) -> Result<(), ExpressionError> {
    if left.is_any && right.is_any {
        return Err(ExpressionError::new(at, "only one side may name any element"));
    }
    Ok(())
}

fn is_time(structure: &StructPlan) -> bool {
    matches!(
        structure.type_name.as_str(),
        "builtin_interfaces/msg/Time" | "builtin_interfaces/msg/Duration"
    )
}

/// The names of a struct's fields, for a sentence.
fn field_names(structure: &StructPlan) -> String {
    if structure.is_empty {
        return "none".to_owned();
    }
    let names: Vec<&str> = structure.fields.iter().map(|field| field.name.as_str()).collect();
    names.join(", ")
}

/// A path as it was written.
fn written(path: &[(usize, PathStep)]) -> String {
    let mut text = String::new();
    for (_, step) in path {
        match step {
            PathStep::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            PathStep::Item(index) => text.push_str(&format!("[{index}]")),
            PathStep::All => text.push_str("[*]"),
        }
    }
    text
}
