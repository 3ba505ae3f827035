//! A message as a tree for pages: bounded, with the type of each field, times as nanoseconds, and long lists in parts.

use holdall_model::dynamic::{
    DecodeError, ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor, text::plain,
};
use serde_json::{Value, json};

/// Elements of a list in one answer.
const ITEMS_MAX: u64 = 50;

/// Letters of a text in one answer.
const LETTERS_MAX: usize = 2000;

/// Fields and elements in one answer, of which a long text counts as several; further ones are left out.
const NODES_MAX: usize = 5000;
const LETTERS_A_NODE: usize = 40;

/// Structs within structs.
const DEPTH_MAX: usize = 32;

/// The part of a list to show instead of its begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The list: `ranges`, `transforms[3].header`.
    pub path: String,
    /// Its first element that is shown.
    pub from: u64,
}

/// The fields of a message: `[{"name", "type", "value"}]`. A struct has `items` instead of a value, a list `length`, `from`, and `items` or
/// `values`; a time has `time_ns`, a duration `span_ns`. Numbers are texts.
///
/// # Errors
/// A payload that does not fit the type.
pub fn tree(plan: &TypePlan, payload: &[u8], opened: &Opened) -> Result<Value, DecodeError> {
    let mut visitor = Tree {
        plan,
        opened,
        levels: Vec::new(),
        names: Vec::new(),
        nodes: 0,
        is_cut: false,
        is_done: false,
        result: Value::Null,
    };
    let walked = plan.walk(payload, &mut visitor)?;
    Ok(json!({
        "type": plan.type_name(),
        "fields": visitor.result,
        "is_cut": visitor.is_cut,
        "is_longer": walked.is_longer,
    }))
}

/// A struct or a list that is not complete.
struct Level {
    items: Vec<Value>,
    /// For lists: the first element that is shown.
    from: u64,
    /// For lists: the element that is visited.
    index: Option<u64>,
    name: String,
    type_name: String,
}

struct Tree<'p> {
    plan: &'p TypePlan,
    opened: &'p Opened,
    levels: Vec<Level>,
    /// The field whose value comes next: its name and type.
    names: Vec<(String, String)>,
    nodes: usize,
    is_cut: bool,
    is_done: bool,
    result: Value,
}

impl Tree<'_> {
    fn path(&self, name: &str) -> String {
        let mut path = String::new();
        for level in self.levels.iter().skip(1) {
            match level.index {
                _ if level.name.is_empty() => {}
                None => {
                    path.push_str(&level.name);
                    path.push('.');
                }
                Some(index) => {
                    path.push_str(&format!("{}[{index}].", level.name));
                }
            }
        }
        path + name
    }

    fn from(&self, name: &str) -> u64 {
        if self.opened.from > 0 && self.path(name) == self.opened.path {
            self.opened.from
        } else {
            0
        }
    }

    /// Whether values are left out: elements before those that are shown.
    fn is_mute(&self) -> bool {
        self.is_done
            || self
                .levels
                .iter()
                .any(|level| level.index.is_some_and(|index| index < level.from))
    }

    /// The name and type of the next value: of a field, or of an element.
    fn next_name(&mut self) -> (String, String) {
        match self.levels.last() {
            Some(Level {
                index: Some(index),
                type_name,
                ..
            }) => (format!("[{index}]"), type_name.clone()),
            _ => self.names.pop().unwrap_or_default(),
        }
    }

    fn add(&mut self, node: Value) {
        if self.is_mute() {
            return;
        }
        self.nodes += 1 + node["value"]
            .as_str()
            .map_or(0, |text| text.len() / LETTERS_A_NODE);
        if self.nodes > NODES_MAX {
            self.is_cut = true;
            return;
        }
        self.push(node);
    }

    /// Adds a struct or a list with what it has so far, also past the limit: what it has was within.
    fn add_complete(&mut self, node: Value) {
        if self.is_mute() {
            return;
        }
        self.nodes += 1;
        self.is_cut |= self.nodes > NODES_MAX;
        self.push(node);
    }

    fn push(&mut self, node: Value) {
        if let Some(level) = self.levels.last_mut() {
            level.items.push(node);
        }
    }

    /// Nanoseconds of a struct of seconds and nanoseconds.
    fn nanos(&self, structure: &StructPlan, items: &[Value]) -> Option<(&'static str, String)> {
        let key = match structure.type_name.as_str() {
            "builtin_interfaces/msg/Time" => "time_ns",
            "builtin_interfaces/msg/Duration" => "span_ns",
            _ => return None,
        };
        let number = |place: usize| items.get(place)?["value"].as_str()?.parse::<i128>().ok();
        Some((key, (number(0)? * 1_000_000_000 + number(1)?).to_string()))
    }
}

fn text_of(value: Scalar<'_>) -> Value {
    let text = plain(value);
    match text.char_indices().nth(LETTERS_MAX) {
        Some((at, _)) => json!(format!("{}…", &text[..at])),
        None => json!(text),
    }
}

/// Whether a field's values can be drawn over time.
fn is_number(field: &FieldPlan) -> bool {
    matches!(field.element, ElementPlan::Primitive(_))
}

impl<'a> Visitor<'a> for Tree<'_> {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        let is_wanted = !self.is_mute() && !self.is_cut && self.levels.len() <= DEPTH_MAX;
        self.is_cut |= self.levels.len() > DEPTH_MAX;
        if is_wanted {
            self.names.clear();
            self.names
                .push((field.name.clone(), field.element_text(self.plan)));
        }
        is_wanted
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        let (name, type_name) = self.next_name();
        let is_number = !matches!(value, Scalar::Text(_) | Scalar::Wide(_));
        let node = json!({"name": name, "type": type_name, "value": text_of(value), "is_number": is_number});
        self.add(node);
    }

    fn primitives(&mut self, field: &FieldPlan, values: Primitives<'a>) {
        let (name, type_name) = self.next_name();
        let length = values.len();
        let from = usize::try_from(self.from(&field.name)).map_or(length, |from| from.min(length));
        let until = length.min(from + ITEMS_MAX as usize);
        let shown = (from..until).filter_map(|at| values.get(at)).map(text_of);
        let node = json!({
            "name": name,
            "type": format!("{type_name}[]"),
            "length": length,
            "from": from,
            "values": shown.collect::<Vec<_>>(),
            "is_number": is_number(field),
        });
        self.nodes += until - from;
        self.add(node);
    }

    fn begin_struct(&mut self, structure: &StructPlan) {
        let (name, _) = self.next_name();
        // An element's name is its index, which is in the path already.
        let in_path = if name.starts_with('[') {
            String::new()
        } else {
            name
        };
        self.levels.push(Level {
            items: Vec::new(),
            from: 0,
            index: None,
            name: in_path,
            type_name: structure.type_name.clone(),
        });
    }

    fn end_struct(&mut self, structure: &StructPlan) {
        let Some(level) = self.levels.pop() else { return };
        if self.levels.is_empty() {
            self.result = Value::Array(level.items);
            self.is_done = true;
            return;
        }
        let time = self.nanos(structure, &level.items);
        let name = match self.levels.last().and_then(|outer| outer.index) {
            Some(index) => format!("[{index}]"),
            None => level.name,
        };
        let mut node = json!({"name": name, "type": level.type_name, "items": level.items});
        if let Some((key, nanos)) = time {
            node[key] = json!(nanos);
        }
        self.add_complete(node);
    }

    fn begin_list(&mut self, field: &FieldPlan, _: u64) {
        let (name, type_name) = self.next_name();
        let from = self.from(&field.name);
        self.levels.push(Level {
            items: Vec::new(),
            from,
            index: Some(0),
            name,
            type_name,
        });
    }

    fn wants_item(&mut self, index: u64) -> bool {
        let Some(level) = self.levels.last_mut() else {
            return false;
        };
        level.index = Some(index);
        index < level.from.saturating_add(ITEMS_MAX) && !self.is_cut
    }

    fn end_list(&mut self, _: &FieldPlan, count: u64) {
        let Some(level) = self.levels.pop() else { return };
        let node = json!({
            "name": level.name,
            "type": format!("{}[]", level.type_name),
            "length": count,
            "from": level.from.min(count),
            "items": level.items,
        });
        self.add_complete(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_model::interface::bundle::Bundle;

    fn plan(name: &str) -> TypePlan {
        TypePlan::compile(&Bundle::embedded().define(name).unwrap()).unwrap()
    }

    fn header(out: &mut Vec<u8>, seconds: u32, frame: &str) {
        out.extend(seconds.to_le_bytes());
        out.extend(7_u32.to_le_bytes());
        out.extend((frame.len() as u32 + 1).to_le_bytes());
        out.extend(frame.as_bytes());
        out.push(0);
    }

    #[test]
    fn times_are_nanoseconds_and_texts_stay_texts() {
        let mut payload = vec![0, 1, 0, 0];
        header(&mut payload, 1_700_000_000, "<b>");
        let shown = tree(&plan("std_msgs/msg/Header"), &payload, &Opened::default()).unwrap();
        let fields = &shown["fields"];
        assert_eq!(fields[0]["time_ns"], json!("1700000000000000007"));
        assert_eq!(fields[0]["items"][1]["value"], json!("7"));
        assert_eq!(
            (&fields[1]["name"], &fields[1]["value"]),
            (&json!("frame_id"), &json!("<b>"))
        );
    }

    #[test]
    fn long_lists_come_in_parts() {
        let type_name = "diagnostic_msgs/msg/DiagnosticArray";
        let mut payload = vec![0, 1, 0, 0];
        header(&mut payload, 1, "abc");
        payload.extend(120_u32.to_le_bytes());
        for number in 0..120_u32 {
            payload.push(0);
            let mut text = |text: &str| {
                while !(payload.len() - 4).is_multiple_of(4) {
                    payload.push(0);
                }
                payload.extend((text.len() as u32 + 1).to_le_bytes());
                payload.extend(text.as_bytes());
                payload.push(0);
            };
            text(&format!("n{number}"));
            text("m");
            text("h");
            while !(payload.len() - 4).is_multiple_of(4) {
                payload.push(0);
            }
            payload.extend(0_u32.to_le_bytes());
        }
        let plan = plan(type_name);
        let shown = tree(&plan, &payload, &Opened::default()).unwrap();
        let list = &shown["fields"][1];
        assert_eq!(
            (
                &list["length"],
                &list["from"],
                list["items"].as_array().unwrap().len()
            ),
            (&json!(120), &json!(0), 50)
        );
        assert_eq!(list["items"][3]["name"], json!("[3]"));
        let opened = Opened {
            path: "status".to_owned(),
            from: 100,
        };
        let shown = tree(&plan, &payload, &opened).unwrap();
        let items = shown["fields"][1]["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["name"]), (20, &json!("[100]")));
        assert_eq!(items[0]["items"][1]["value"], json!("n100"));
    }
}
