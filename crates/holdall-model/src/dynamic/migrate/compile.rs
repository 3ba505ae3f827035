//! Compiles a pair of definitions and the rules into what fills each field of the new one.

use super::{
    RuleError, Rules,
    difference::{Difference, guess_renames},
    fields::{fields_of, follow, inner, untaken},
    fit::{self, Conversion},
    rules::{Rule, Source},
};
use crate::{
    dynamic::{
        ElementPlan, FieldPlan, StructPlan, TypePlan,
        encode::{Literal, Plain, Value, constants},
        expression::{FieldPath, Values},
        select::Step,
    },
    interface::Definition,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// What becomes of one struct.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    /// The old struct as a type.
    pub old: Arc<TypePlan>,
    /// By field of the new struct, with its name.
    pub fills: Vec<(String, Fill)>,
    /// Nothing of it changes.
    pub is_same: bool,
    /// It is needed as a payload.
    pub has_calculations: bool,
}

/// What fills a field.
#[derive(Clone, Debug)]
pub(super) enum Fill {
    /// The same for all messages.
    Value(Value),
    /// A new struct, filled from the same old one.
    Struct(Vec<(String, Fill)>),
    /// An old field.
    Carry(Carry),
    /// A calculation.
    Compute(Box<Compute>),
}

#[derive(Clone, Debug)]
pub(super) struct Carry {
    /// Places of fields, the outermost first.
    pub places: Vec<usize>,
    pub conversion: Conversion,
    /// Nothing else takes it.
    pub is_moved: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Compute {
    pub values: Values,
    pub field: FieldPlan,
    pub map: Option<Map>,
    pub is_lossy: bool,
}

/// New values by old.
#[derive(Clone, Debug)]
pub(super) struct Map {
    entries: Vec<(Literal, Value)>,
    otherwise: Option<Value>,
}

impl Map {
    pub fn get(&self, found: &Literal) -> Option<&Value> {
        let entry = self.entries.iter().find(|(key, _)| is_key(key, found));
        entry.map(|(_, value)| value).or(self.otherwise.as_ref())
    }
}

/// Whether a value of a message is that of a key, which may be a text as YAML has it.
fn is_key(key: &Literal, found: &Literal) -> bool {
    match (key, found) {
        (Literal::Scalar(key), Literal::Integer(found)) => key.parse() == Ok(*found),
        (Literal::Scalar(key), Literal::Float(found)) => key.parse() == Ok(*found),
        (Literal::Scalar(key), Literal::Bool(found)) => key.parse() == Ok(*found),
        (Literal::Scalar(key), Literal::Text(found)) => key == found,
        (key, found) => key == found,
    }
}

/// A definition and its plan.
type Defined<'a> = (&'a Definition, &'a Arc<TypePlan>);

/// Compiles all pairs of structs that meet.
pub(super) struct Compiler<'a> {
    old: Defined<'a>,
    new: Defined<'a>,
    rules: &'a Rules,
    known: HashMap<(usize, usize), usize>,
    pairs: Vec<Pair>,
    differences: Vec<Difference>,
    used: BTreeSet<usize>,
}

/// A pair that is being compiled.
struct Building<'a> {
    part: Arc<TypePlan>,
    from: &'a StructPlan,
    to: &'a StructPlan,
    rule: Option<&'a Rule>,
    /// Paths of the new fields that the rule has filled.
    filled: BTreeSet<String>,
    /// Paths of the old fields that were taken.
    taken: Vec<String>,
    differences: Vec<Difference>,
}

impl Building<'_> {
    fn differs(&mut self, name: &str, from: Option<String>, to: Option<String>, needs_rule: bool) {
        self.differences.push(Difference {
            type_name: self.from.type_name.clone(),
            becomes: self.to.type_name.clone(),
            name: name.to_owned(),
            from,
            to,
            needs_rule,
            is_constant: false,
            probably: None,
        });
    }
}

impl<'a> Compiler<'a> {
    pub fn new(old: Defined<'a>, new: Defined<'a>, rules: &'a Rules) -> Self {
        Self {
            old,
            new,
            rules,
            known: HashMap::new(),
            pairs: Vec::new(),
            differences: Vec::new(),
            used: BTreeSet::new(),
        }
    }

    /// All pairs, what differs, and the rules that were used.
    pub fn finish(self) -> (Vec<Pair>, Vec<Difference>, BTreeSet<usize>) {
        (self.pairs, self.differences, self.used)
    }

    /// Compiles a pair after those within it; as deep as the definitions.
    pub fn pair(&mut self, old: usize, new: usize) -> Result<usize, RuleError> {
        if let Some(place) = self.known.get(&(old, new)) {
            return Ok(*place);
        }
        let (from, to) = (self.old.1.structure(old), self.new.1.structure(new));
        let rule = self.rules.of_pair(from, to);
        self.used.extend(rule.map(|(place, _)| place));
        let mut building = Building {
            part: Arc::new(self.old.1.of_structure(old)),
            from,
            to,
            rule: rule.map(|(_, rule)| rule),
            filled: BTreeSet::new(),
            taken: Vec::new(),
            differences: Vec::new(),
        };
        let mut fills = self.fills(&mut building, to, "")?;
        self.note_gone(&mut building)?;
        self.compare_constants(&mut building);
        guess_renames(&mut building.differences);
        self.differences.append(&mut building.differences);
        let is_same = fields_of(from).len() == fills.len()
            && fills.iter().enumerate().all(|(place, (_, fill))| match fill {
                Fill::Carry(carry) if carry.places == [place] => match carry.conversion {
                    Conversion::Same => true,
                    Conversion::Pair(pair) => self.pairs[pair].is_same,
                    Conversion::Number { .. } => false,
                },
                _ => false,
            });
        let has_calculations = mark(&mut fills);
        self.pairs.push(Pair {
            old: building.part,
            fills,
            is_same,
            has_calculations,
        });
        self.known.insert((old, new), self.pairs.len() - 1);
        Ok(self.pairs.len() - 1)
    }

    fn fills(
        &mut self,
        building: &mut Building<'a>,
        to: &'a StructPlan,
        prefix: &str,
    ) -> Result<Vec<(String, Fill)>, RuleError> {
        let mut fills = Vec::with_capacity(to.fields.len());
        for field in fields_of(to) {
            let path = format!("{prefix}{}", field.name);
            let below = format!("{path}.");
            let sources = building.rule.map(|rule| &rule.fields);
            let has_below =
                sources.is_some_and(|sources| sources.keys().any(|known| known.starts_with(&below)));
            let fill = match (building.rule, sources.and_then(|sources| sources.get(&path))) {
                (Some(rule), Some(source)) => {
                    building.filled.insert(path.clone());
                    let fill = self.by_rule(building, rule, field, source);
                    fill?.map_err(|reason| rule.error(format!("{path}: {reason}")))?
                }
                _ => match inner(self.new.1, field).filter(|_| has_below) {
                    Some(structure) => Fill::Struct(self.fills(building, structure, &below)?),
                    None => self.by_name(building, &path, field)?,
                },
            };
            fills.push((field.name.clone(), fill));
        }
        Ok(fills)
    }

    /// The old field of the same path, or the default.
    fn by_name(
        &mut self,
        building: &mut Building<'a>,
        path: &str,
        field: &FieldPlan,
    ) -> Result<Fill, RuleError> {
        let (old, new) = (self.old.1, self.new.1);
        let to = field.type_text(new);
        let drops = |rule: &Rule| rule.drop.iter().any(|gone| gone == path);
        match follow(old, building.from, path).filter(|_| !building.rule.is_some_and(drops)) {
            None => building.differs(path, None, Some(to), false),
            Some((places, from)) => {
                building.taken.push(path.to_owned());
                let conversion = self.conversion(from, field, None)?;
                let from = from.type_text(old);
                if from != to {
                    building.differs(path, Some(from), Some(to), conversion.is_none());
                }
                if let Some(conversion) = conversion {
                    return Ok(Fill::Carry(Carry {
                        places,
                        conversion,
                        is_moved: false,
                    }));
                }
            }
        }
        let value = new.absent(field);
        value
            .map(Fill::Value)
            .map_err(|error| RuleError(error.to_string()))
    }

    /// How an old field becomes a new one; `None` if not all its values can. `rule`: one asks for it, and allows to lose something or not.
    fn conversion(
        &mut self,
        from: &FieldPlan,
        to: &FieldPlan,
        rule: Option<bool>,
    ) -> Result<Option<Conversion>, RuleError> {
        let is_asked = rule.is_some();
        if fit::lengthens(from.arity, to.arity).is_none_or(|fits| !fits && !is_asked) {
            return Ok(None);
        }
        Ok(match (from.element, to.element) {
            (ElementPlan::Struct(old), ElementPlan::Struct(new)) => {
                let (from, to) = (self.old.1.structure(old), self.new.1.structure(new));
                if !is_asked && from.type_name != to.type_name && self.rules.of_pair(from, to).is_none() {
                    return Ok(None);
                }
                Some(Conversion::Pair(self.pair(old, new)?))
            }
            (ElementPlan::Primitive(from), ElementPlan::Primitive(to)) => match (fit::widens(from, to), rule)
            {
                (Some(true), _) => Some(Conversion::Same),
                (None, None) => None,
                (_, rule) => Some(Conversion::Number {
                    to,
                    is_lossy: rule.unwrap_or(false),
                }),
            },
            (ElementPlan::Text { length_max: from }, ElementPlan::Text { length_max: to })
            | (ElementPlan::WideText { length_max: from }, ElementPlan::WideText { length_max: to }) => {
                let fits = to.is_none_or(|to| from.is_some_and(|from| from <= to));
                (fits || is_asked).then_some(Conversion::Same)
            }
            _ => None,
        })
    }

    /// What a rule has for a field; the inner error is one clause about it.
    fn by_rule(
        &mut self,
        building: &mut Building<'a>,
        rule: &Rule,
        field: &FieldPlan,
        source: &Source,
    ) -> Result<Result<Fill, String>, RuleError> {
        let expression = match source {
            Source::Value { value } => {
                let value = self.new.1.field_of(field, &Literal::Scalar(value.clone()));
                return Ok(value.map(Fill::Value).map_err(|error| error.to_string()));
            }
            Source::From(expression) => {
                if let Some(carry) = self.carry(building, expression, field, rule.lossy)? {
                    building.taken.push(expression.trim().to_owned());
                    return Ok(Ok(Fill::Carry(carry)));
                }
                expression
            }
            Source::Mapped { from, .. } => from,
        };
        let field_path = FieldPath::parse(&building.part, expression.trim()).ok();
        let compute = || {
            if matches!(field.element, ElementPlan::Struct(_)) {
                return Err(format!(
                    "{expression} cannot become a {}",
                    field.type_text(self.new.1)
                ));
            }
            let values = Values::compile(Arc::clone(&building.part), expression);
            Ok(Compute {
                values: values.map_err(|error| error.to_string())?,
                field: field.clone(),
                map: self.map(building, (rule, field, source), field_path.as_ref())?,
                // A calculation is rounded to the width of its field, elements of a list are not.
                is_lossy: rule.lossy
                    || field_path.is_none()
                        && matches!(field.element, ElementPlan::Primitive(kind) if fit::is_float(kind)),
            })
        };
        let computed = compute();
        if let Ok(compute) = &computed {
            building.taken.extend(compute.values.names.iter().cloned());
        }
        Ok(computed.map(|compute| Fill::Compute(Box::new(compute))))
    }

    /// An old field that a rule names, where it can become the new one.
    fn carry(
        &mut self,
        building: &Building<'_>,
        expression: &str,
        field: &FieldPlan,
        is_lossy: bool,
    ) -> Result<Option<Carry>, RuleError> {
        let Ok(path) = FieldPath::parse(&building.part, expression.trim()) else {
            return Ok(None);
        };
        let places = path.steps.iter().map(|step| match step {
            Step::Field(place) => Some(*place),
            Step::Item(_) | Step::All => None,
        });
        let Some(places) = places.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let conversion = self.conversion(&path.field, field, Some(is_lossy))?;
        Ok(conversion.map(|conversion| Carry {
            places,
            conversion,
            is_moved: false,
        }))
    }

    /// The map of a rule, in which constants of both structs have names; `path`: the old field that it maps, unless it maps a calculation.
    fn map(
        &self,
        building: &Building<'_>,
        (rule, field, source): (&Rule, &FieldPlan, &Source),
        path: Option<&FieldPath>,
    ) -> Result<Option<Map>, String> {
        let Source::Mapped { map, otherwise, .. } = source else {
            return Ok(None);
        };
        let named = |definition, structure: &StructPlan| -> BTreeMap<String, Literal> {
            constants(definition, &structure.type_name).into_iter().collect()
        };
        let (old, new) = (named(self.old.0, building.from), named(self.new.0, building.to));
        let literal = |constants: &BTreeMap<String, Literal>, text: &String| {
            constants
                .get(text)
                .cloned()
                .unwrap_or_else(|| Literal::Scalar(text.clone()))
        };
        let value = |text: &String| {
            let value = self.new.1.field_of(field, &literal(&new, text));
            value.map_err(|error| error.to_string())
        };
        let key = |text: &String| match path.map(|path| path.field.element) {
            Some(ElementPlan::Primitive(kind)) => match Plain::of_literal(kind, &literal(&old, text)) {
                Ok(plain) => Ok(fit::literal_of(plain)),
                Err(error) => Err(format!("the key {text} of its map: {error}")),
            },
            _ => Ok(literal(&old, text)),
        };
        let entries = map.iter().map(|(text, to)| Ok((key(text)?, value(to)?)));
        let entries: Vec<(Literal, Value)> = entries.collect::<Result<_, String>>()?;
        let is_repeated = |(place, (_, value)): (usize, &(Literal, Value))| {
            entries[..place].iter().any(|(_, other)| other == value)
        };
        if (otherwise.is_some() || entries.iter().enumerate().any(is_repeated)) && !rule.lossy {
            return Err("a map that gives two values one meaning needs lossy: true".to_owned());
        }
        Ok(Some(Map {
            otherwise: otherwise.as_ref().map(value).transpose()?,
            entries,
        }))
    }

    /// Refuses what a rule names and the types do not have, and what it drops without saying that it may; notes old fields without a place.
    fn note_gone(&self, building: &mut Building<'_>) -> Result<(), RuleError> {
        let old = self.old.1;
        let mut taken = building.taken.clone();
        if let Some(rule) = building.rule {
            if let Some(path) = rule.fields.keys().find(|path| !building.filled.contains(*path)) {
                return Err(rule.error(format!("{} has no field {path}", building.to.type_name)));
            }
            let is_missing = |path: &&String| follow(old, building.from, path).is_none();
            if let Some(path) = rule.drop.iter().find(is_missing) {
                return Err(rule.error(format!("it has no field {path} to drop")));
            }
            if let Some(path) = rule.drop.first().filter(|_| !rule.lossy) {
                return Err(rule.error(format!("dropping {path} needs lossy: true")));
            }
            taken.extend(rule.drop.iter().cloned());
        }
        for (path, field) in untaken(old, building.from, "", &taken) {
            building.differs(&path, Some(field.type_text(old)), None, true);
        }
        Ok(())
    }

    fn compare_constants(&self, building: &mut Building<'_>) {
        let maps = |source: &Source| matches!(source, Source::Mapped { .. });
        if building
            .rule
            .is_some_and(|rule| rule.keep_constants || rule.fields.values().any(maps))
        {
            return;
        }
        let new: BTreeMap<String, Literal> = constants(self.new.0, &building.to.type_name)
            .into_iter()
            .collect();
        for (name, from) in constants(self.old.0, &building.from.type_name) {
            if let Some(to) = new.get(&name).filter(|to| **to != from) {
                building.differs(&name, Some(from.noun()), Some(to.noun()), true);
                if let Some(it) = building.differences.last_mut() {
                    it.is_constant = true;
                }
            }
        }
    }
}

/// Marks the carries that nothing else overlaps; returns whether there are calculations.
fn mark(fills: &mut [(String, Fill)]) -> bool {
    fn visit(fills: &mut [(String, Fill)], each: &mut dyn FnMut(&mut Fill)) {
        for (_, fill) in fills {
            match fill {
                Fill::Struct(inner) => visit(inner, each),
                fill => each(fill),
            }
        }
    }
    let (mut all, mut has_calculations) = (Vec::new(), false);
    visit(fills, &mut |fill| match fill {
        Fill::Carry(carry) => all.push(carry.places.clone()),
        Fill::Compute(_) => has_calculations = true,
        Fill::Value(_) | Fill::Struct(_) => {}
    });
    visit(fills, &mut |fill| {
        if let Fill::Carry(carry) = fill {
            let overlaps = |other: &&Vec<usize>| other.iter().zip(&carry.places).all(|(a, b)| a == b);
            carry.is_moved = all.iter().filter(overlaps).count() == 1;
        }
    });
    has_calculations
}
