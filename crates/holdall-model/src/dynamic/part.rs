//! Reads single fields of a payload, without decoding the rest.

use super::{
    DecodeError, ElementPlan, FieldPlan, Primitives, Scalar, TypePlan, cursor::Cursor, walk::Walker,
};
use crate::interface::Arity;

/// The beginning of a struct in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its index in the plan, for [`TypePlan::structure`].
    pub structure: usize,
    at: usize,
    wide_slot_bytes: usize,
}

/// The content of a field.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// A value.
    Scalar(Scalar<'a>),
    /// An array or a sequence of plain values.
    Primitives(Primitives<'a>),
    /// A struct.
    Struct(Place),
    /// An array or a sequence of structs or texts; see [`TypePlan::items`].
    List(List<'a>),
}

/// An array or a sequence of structs or texts, whose elements were not read yet.
#[derive(Clone, Copy, Debug)]
pub struct List<'p> {
    /// Number of elements.
    pub count: u64,
    field: &'p FieldPlan,
    at: usize,
    wide_slot_bytes: usize,
}

impl TypePlan {
    /// The beginning of the message itself.
    ///
    /// # Errors
    /// A payload that is not plain CDR.
    pub fn place(&self, payload: &[u8]) -> Result<Place, DecodeError> {
        let cursor = self
            .cursor(payload)
            .map_err(|error| error.in_type(self.type_name()))?;
        Ok(Place {
            structure: self.root_index(),
            at: cursor.position(),
            wide_slot_bytes: cursor.wide_slot_bytes(),
        })
    }

    /// The field with this index of the struct at `place`. The fields before it are skipped.
    ///
    /// # Errors
    /// A payload that does not fit the definition up to the end of the field; a field that the struct does not have.
    pub fn part_of<'a>(
        &'a self,
        payload: &'a [u8],
        place: Place,
        index: usize,
    ) -> Result<Part<'a>, DecodeError> {
        let structure = self.structure(place.structure);
        let read = || {
            let cursor = Cursor::open(payload)?.with_wide_slots(place.wide_slot_bytes);
            let mut walker = Walker {
                plan: self,
                cursor: cursor.moved_to(place.at),
            };
            for field in structure.fields.iter().take(index) {
                walker
                    .skip_field(field)
                    .map_err(|error| error.in_field(&field.name))?;
            }
            match structure.fields.get(index) {
                Some(field) => part(&mut walker, field, place).map_err(|error| error.in_field(&field.name)),
                None => Err(DecodeError::new(walker.cursor.offset(), "a field", "none")),
            }
        };
        read().map_err(|error: DecodeError| error.in_type(&structure.type_name))
    }

    /// Hands out the elements of a list in order, until `each` returns false.
    ///
    /// # Errors
    /// An element that does not fit the definition.
    pub fn items<'a>(
        &'a self,
        payload: &'a [u8],
        list: List<'a>,
        each: &mut dyn FnMut(Part<'a>) -> bool,
    ) -> Result<(), DecodeError> {
        let mut read = || {
            let cursor = Cursor::open(payload)?.with_wide_slots(list.wide_slot_bytes);
            let mut walker = Walker {
                plan: self,
                cursor: cursor.moved_to(list.at),
            };
            for index in 0..list.count {
                let place = Place {
                    structure: 0,
                    at: walker.cursor.position(),
                    wide_slot_bytes: list.wide_slot_bytes,
                };
                let item = match list.field.element {
                    ElementPlan::Struct(structure) => walker
                        .skip_element(list.field)
                        .map(|()| Part::Struct(Place { structure, ..place })),
                    _ => walker.scalar(list.field).map(Part::Scalar),
                };
                if !each(item.map_err(|error| error.in_item(index).in_field(&list.field.name))?) {
                    break;
                }
            }
            Ok(())
        };
        read().map_err(|error: DecodeError| error.in_type(self.type_name()))
    }
}

impl TypePlan {
    /// The way to the struct at `place` from the message on: the index of a field, of an element where that is a list, of a field of the element,
    /// and so on. `None` if the payload has no struct there.
    pub fn path_to(&self, payload: &[u8], place: Place) -> Option<Vec<usize>> {
        let mut path = Vec::new();
        let root = self.place(payload).ok()?;
        self.reach(payload, root, place, &mut path).then_some(path)
    }

    /// Appends the way from the struct at `from`; false if the place is not in it.
    fn reach(&self, payload: &[u8], from: Place, place: Place, path: &mut Vec<usize>) -> bool {
        if (from.at, from.structure) == (place.at, place.structure) {
            return true;
        }
        for (index, field) in self.structure(from.structure).fields.iter().enumerate() {
            if !matches!(field.element, ElementPlan::Struct(_)) {
                continue;
            }
            path.push(index);
            match self.part_of(payload, from, index) {
                Ok(Part::Struct(inner)) if self.reach(payload, inner, place, path) => return true,
                Ok(Part::List(list)) => {
                    let (mut item, mut is_found) = (0, false);
                    let read = self.items(payload, list, &mut |part| {
                        path.push(item);
                        is_found =
                            matches!(part, Part::Struct(inner) if self.reach(payload, inner, place, path));
                        item += 1;
                        if !is_found {
                            path.pop();
                        }
                        !is_found
                    });
                    if read.is_ok() && is_found {
                        return true;
                    }
                }
                _ => {}
            }
            path.pop();
        }
        false
    }

    /// The struct at a path that [`TypePlan::path_to`] gave for another payload of this type; `None` if this one has no struct there.
    pub fn place_at(&self, payload: &[u8], path: &[usize]) -> Option<Place> {
        let mut at = self.place(payload).ok()?;
        let mut path = path.iter();
        while let Some(index) = path.next() {
            at = match self.part_of(payload, at, *index).ok()? {
                Part::Struct(inner) => inner,
                Part::List(list) => {
                    let (item, mut next, mut found) = (*path.next()?, 0, None);
                    let read = self.items(payload, list, &mut |part| {
                        if let (true, Part::Struct(inner)) = (next == item, part) {
                            found = Some(inner);
                        }
                        next += 1;
                        next <= item
                    });
                    read.ok().and(found)?
                }
                _ => return None,
            };
        }
        Some(at)
    }
}

/// The field at the walker.
fn part<'p, 'a: 'p>(
    walker: &mut Walker<'p, 'a>,
    field: &'p FieldPlan,
    place: Place,
) -> Result<Part<'p>, DecodeError> {
    if field.arity == Arity::One {
        return Ok(match field.element {
            ElementPlan::Struct(structure) => Part::Struct(Place {
                structure,
                at: walker.cursor.position(),
                ..place
            }),
            _ => Part::Scalar(walker.scalar(field)?),
        });
    }
    let count = walker.count_of(field)?;
    Ok(match field.element {
        ElementPlan::Primitive(kind) => Part::Primitives(walker.cursor.primitives(kind, count)?),
        _ => Part::List(List {
            count,
            field,
            at: walker.cursor.position(),
            wide_slot_bytes: place.wide_slot_bytes,
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamic::{
        Text,
        edit::Editor,
        encode::{Plain, Value},
        reference,
    };
    use std::sync::Arc;

    #[test]
    fn a_struct_is_found_again_after_a_change_before_it() {
        let plan = Arc::new(reference::plan(&[
            ("a/msg/A", "string s\nB[] many\nB b"),
            ("a/msg/B", "C c\nstring t"),
            ("a/msg/C", "int32 x"),
        ]));
        let payload = plan
            .encode_json(r#"{"s": "one", "many": [{"c": {"x": 1}}, {"c": {"x": 2}}], "b": {"t": "end"}}"#)
            .unwrap();
        let assign = |payload: &[u8], path: &[usize], value: Value| {
            let mut out = Vec::new();
            let editor = Editor::assigning(Arc::clone(&plan), path, value).unwrap();
            assert_eq!(editor.apply(payload, &mut out).unwrap(), [1]);
            out
        };
        let c = plan.place_at(&payload, &[1, 1, 0]).unwrap();
        assert_eq!(plan.path_to(&payload, c).unwrap(), [1, 1, 0]);
        let longer = assign(&payload, &[0], Value::Text(b"a longer text".to_vec()));
        let moved = plan.place_at(&longer, &[1, 1, 0]).unwrap();
        assert!(moved != c && plan.path_to(&longer, moved).unwrap() == [1, 1, 0]);
        let changed = assign(&longer, &[1, 1, 0, 0], Value::Plain(Plain::from(7_i32)));
        assert!(matches!(
            plan.part_of(&changed, moved, 0),
            Ok(Part::Scalar(Scalar::I32(7)))
        ));
        let end = plan.place_at(&changed, &[2]).unwrap();
        assert!(matches!(
            plan.part_of(&changed, end, 1),
            Ok(Part::Scalar(Scalar::Text(Text(b"end"))))
        ));
        let shorter = assign(&changed, &[1], Value::List(Vec::new()));
        assert_eq!(
            (
                plan.place_at(&shorter, &[1, 1, 0]),
                plan.place_at(&shorter, &[2, 0]).is_some()
            ),
            (None, true)
        );
        assert!(Editor::assigning(Arc::clone(&plan), &[5], Value::List(Vec::new())).is_none());
    }

    #[test]
    fn single_fields_are_what_a_walk_finds() {
        let plan = reference::plan(&[
            (
                "a/msg/A",
                "string s\nB b\nB[] many\nstring[2] names\nfloat64[] numbers",
            ),
            ("a/msg/B", "uint8 x\nwstring w\nfloat64 y"),
        ]);
        for slot in [2, 4] {
            let mut encoder = reference::Encoder::new(true, false, slot);
            encoder.text("head");
            for number in 0..3_u8 {
                if number == 1 {
                    encoder.u32(2);
                }
                encoder.u8(number);
                encoder.wide("wide");
                encoder.u64(f64::from(number).to_bits());
            }
            encoder.text("one");
            encoder.text("two");
            encoder.u32(1);
            encoder.u64(2.5_f64.to_bits());
            let payload = encoder.finish();
            let root = plan.place(&payload).unwrap();
            let scalar = |place, index| match plan.part_of(&payload, place, index) {
                Ok(Part::Scalar(scalar)) => scalar,
                other => panic!("no value: {other:?}"),
            };
            assert_eq!(scalar(root, 0), Scalar::Text(Text(b"head")));
            let Part::Struct(b) = plan.part_of(&payload, root, 1).unwrap() else {
                panic!("no struct");
            };
            assert_eq!(scalar(b, 2), Scalar::F64(0.0));
            let mut found = Vec::new();
            for list in [2, 3] {
                let Part::List(list) = plan.part_of(&payload, root, list).unwrap() else {
                    panic!("no list");
                };
                plan.items(&payload, list, &mut |item| {
                    found.push(match item {
                        Part::Struct(place) => format!("{:?}", scalar(place, 2)),
                        Part::Scalar(Scalar::Text(text)) => text.to_str().into_owned(),
                        other => panic!("{other:?}"),
                    });
                    true
                })
                .unwrap();
            }
            assert_eq!(found, ["F64(1.0)", "F64(2.0)", "one", "two"]);
            assert!(
                matches!(plan.part_of(&payload, root, 4), Ok(Part::Primitives(numbers)) if numbers.len() == 1)
            );
            assert!(
                plan.part_of(&payload, root, 5).is_err() && plan.part_of(&payload[..40], root, 4).is_err()
            );
        }
    }
}
