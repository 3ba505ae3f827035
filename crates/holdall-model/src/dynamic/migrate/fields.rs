//! Paths into structs: which old fields the new ones have taken.

use crate::{
    dynamic::{ElementPlan, FieldPlan, StructPlan, TypePlan},
    interface::Arity,
};

/// The fields of a struct; none of one that was defined without fields.
pub(super) fn fields_of(structure: &StructPlan) -> &[FieldPlan] {
    if structure.is_empty {
        &[]
    } else {
        &structure.fields
    }
}

/// The struct that a field holds one of.
pub(super) fn inner<'p>(plan: &'p TypePlan, field: &FieldPlan) -> Option<&'p StructPlan> {
    match (field.element, field.arity) {
        (ElementPlan::Struct(index), Arity::One) => Some(plan.structure(index)),
        _ => None,
    }
}

/// Follows a path of names through structs; the places of the fields, and the last field.
pub(super) fn follow<'p>(
    plan: &'p TypePlan,
    structure: &'p StructPlan,
    path: &str,
) -> Option<(Vec<usize>, &'p FieldPlan)> {
    let (mut structure, mut places, mut names) = (structure, Vec::new(), path.split('.').peekable());
    loop {
        let name = names.next()?;
        let (place, field) = structure.field(name).filter(|_| !structure.is_empty)?;
        places.push(place);
        if names.peek().is_none() {
            return Some((places, field));
        }
        structure = inner(plan, field)?;
    }
}

/// The paths of old fields that nothing has taken, with their fields: whole structs where nothing of them was taken.
pub(super) fn untaken<'p>(
    plan: &'p TypePlan,
    structure: &'p StructPlan,
    prefix: &str,
    taken: &[String],
) -> Vec<(String, &'p FieldPlan)> {
    let mut found = Vec::new();
    for field in fields_of(structure) {
        let path = format!("{prefix}{}", field.name);
        if is_taken(field, &path, taken) {
            continue;
        }
        let below = format!("{path}.");
        match inner(plan, field).filter(|_| taken.iter().any(|taken| taken.starts_with(&below))) {
            Some(structure) => found.extend(untaken(plan, structure, &below, taken)),
            None => found.push((path, field)),
        }
    }
    found
}

/// Whether a field was taken: itself, all its elements, or each of them.
fn is_taken(field: &FieldPlan, path: &str, taken: &[String]) -> bool {
    let has = |wanted: &str| taken.iter().any(|taken| taken == wanted);
    let has_each =
        |count: u64| count <= taken.len() as u64 && (0..count).all(|item| has(&format!("{path}[{item}]")));
    has(path)
        || has(&format!("{path}[*]"))
        || matches!(field.arity, Arity::Array(count) if count > 0 && has_each(count))
}
