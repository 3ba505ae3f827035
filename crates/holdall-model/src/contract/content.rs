//! What the rules need of one message, by itself: its facts do not depend on other messages.

use super::{
    cloud::CloudCheck,
    image::{ImageCheck, ImageLook},
    parse::Rule,
    sample::{Sample, Want},
    tree::{self, Edge, TF_TOPICS, TF_TYPE},
};
use crate::{
    dynamic::{
        ElementPlan, FieldPlan, Primitives, Scalar, StructPlan, TypePlan, Visitor,
        expression::Predicate,
        part::{Part, Place},
    },
    interface::{Arity, Primitive},
    time::Timestamp,
};
use std::{cmp::Ordering, sync::Arc};

/// The beginning of a payload that is not content: the encapsulation, and `header.stamp` where it comes first.
const ENCAPSULATION_BYTES: usize = 4;
const STAMP_BYTES: usize = 8;

/// The result of a rule on one message.
pub(super) type Checked = Result<Option<String>, String>;

/// What the rules need of a message.
#[derive(Debug)]
pub struct Facts {
    pub(super) topic: u32,
    pub(super) name: Arc<str>,
    pub(super) time: Timestamp,
    pub(super) publish_time: Timestamp,
    pub(super) bytes: usize,
    pub(super) stamp: Option<i64>,
    pub(super) digest: u64,
    /// What rules that judge messages one by one found wrong, or could not decide, with the number of their machine.
    pub(super) checked: Vec<(usize, Checked)>,
    pub(super) edges: Vec<Edge>,
}

impl Facts {
    fn order(&self) -> (Timestamp, &str, Timestamp, usize, u64, Option<i64>) {
        (
            self.time,
            &self.name,
            self.publish_time,
            self.bytes,
            self.digest,
            self.stamp,
        )
    }

    /// Memory that they take, about.
    pub(super) fn held_bytes(&self) -> usize {
        let texts = self.checked.iter().map(|(_, checked)| match checked {
            Ok(text) => text.as_ref().map_or(0, String::len),
            Err(text) => text.len(),
        });
        let edges = self
            .edges
            .iter()
            .map(|edge| edge.child.len() + edge.parent.len() + size_of::<Edge>());
        size_of::<Self>() + texts.sum::<usize>() + edges.sum::<usize>()
    }
}

impl PartialEq for Facts {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Facts {}

impl PartialOrd for Facts {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By their times; what is equal then by content, so that the order in which they came does not matter.
impl Ord for Facts {
    fn cmp(&self, other: &Self) -> Ordering {
        let edges = || other.edges.cmp(&self.edges);
        self.order().cmp(&other.order()).then_with(edges)
    }
}

/// A rule that judges messages one by one.
#[derive(Debug)]
enum Single {
    Must(Predicate, String),
    Never(Predicate, String),
    Finite(f64),
    Size(Option<u64>, Option<u64>),
    Image(ImageCheck),
    Cloud(CloudCheck),
    Frame(Vec<String>),
    /// It cannot be decided.
    Undecided(String),
}

/// Reads the facts of a topic's messages.
#[derive(Debug, Default)]
pub(super) struct Reader {
    plan: Option<Arc<TypePlan>>,
    /// Where the stamp is: header, stamp, seconds, nanoseconds; `None` for a type without one.
    stamp: Option<[usize; 4]>,
    /// It comes first, so that a message need not be decoded for it.
    is_stamp_first: bool,
    frame: Option<usize>,
    needs_digest: bool,
    needs_stamp: bool,
    has_edges: bool,
    singles: Vec<(usize, Single)>,
    /// For learning: what looks at images, and whether there are floating-point values.
    image: Option<ImageCheck>,
    has_floats: bool,
}

/// What can be learned of a message besides its facts.
#[derive(Debug)]
pub(super) struct Learnable {
    /// The share of floating-point values that are not finite, if it has such values.
    pub not_finite: Option<f64>,
    /// What an image is.
    pub image: Option<ImageLook>,
}

/// Whether messages of a type have floating-point values.
fn has_floats(plan: &TypePlan) -> bool {
    let fields = (0..plan.structure_count()).flat_map(|index| &plan.structure(index).fields);
    let mut kinds = fields.filter_map(|field| match field.element {
        ElementPlan::Primitive(kind) => Some(kind),
        _ => None,
    });
    kinds.any(|kind| matches!(kind, Primitive::Float | Primitive::Double | Primitive::LongDouble))
}

/// The content of a field of the struct at `place`.
pub(super) fn named<'a>(
    plan: &'a TypePlan,
    payload: &'a [u8],
    place: Place,
    name: &str,
) -> Result<Part<'a>, String> {
    let structure = plan.structure(place.structure);
    let index = at(&structure.fields, name);
    let index = index.ok_or_else(|| format!("{} has no field {name}", structure.type_name))?;
    plan.part_of(payload, place, index)
        .map_err(|error| error.to_string())
}

fn at(fields: &[FieldPlan], name: &str) -> Option<usize> {
    fields.iter().position(|field| field.name == name)
}

fn nested(field: &FieldPlan) -> Option<usize> {
    match (&field.element, field.arity) {
        (ElementPlan::Struct(index), Arity::One) => Some(*index),
        _ => None,
    }
}

fn stamp_of(plan: &TypePlan) -> Option<[usize; 4]> {
    let root = plan.root();
    let header = at(&root.fields, "header")?;
    let of_header = plan.structure(nested(&root.fields[header])?);
    let stamp = at(&of_header.fields, "stamp")?;
    let of_stamp = plan.structure(nested(&of_header.fields[stamp])?);
    Some([
        header,
        stamp,
        at(&of_stamp.fields, "sec")?,
        at(&of_stamp.fields, "nanosec")?,
    ])
}

/// Whether the first struct of the first struct has the numbers of a time.
fn begins_with_time(plan: &TypePlan) -> bool {
    let first = |structure: &StructPlan| Some(plan.structure(nested(structure.fields.first()?)?));
    let is = |field: Option<&FieldPlan>, kind: Primitive| {
        let element = field
            .filter(|field| field.arity == Arity::One)
            .map(|field| &field.element);
        matches!(element, Some(ElementPlan::Primitive(found)) if *found == kind)
    };
    let stamp = first(plan.root()).and_then(first);
    stamp.is_some_and(|stamp| {
        is(stamp.fields.first(), Primitive::Int32) && is(stamp.fields.get(1), Primitive::Uint32)
    })
}

fn frame_of(plan: &TypePlan) -> Option<usize> {
    let root = plan.root();
    let header = at(&root.fields, "header")?;
    at(&plan.structure(nested(&root.fields[header])?).fields, "frame_id")
}

impl Reader {
    /// A reader for a topic's rules, by the number of their machine. `has_edges`: some rule is about its transforms.
    pub fn new<'a>(
        plan: &Result<Arc<TypePlan>, String>,
        rules: impl Iterator<Item = (usize, &'a Rule)>,
        has_edges: bool,
        is_stamped: bool,
    ) -> Self {
        let mut reader = Self {
            needs_stamp: is_stamped,
            ..Self::default()
        };
        if let Ok(plan) = plan {
            reader.stamp = stamp_of(plan);
            reader.is_stamp_first = reader.stamp == Some([0, 0, 0, 1]) && begins_with_time(plan);
            reader.frame = frame_of(plan);
            reader.has_edges = has_edges && plan.type_name() == TF_TYPE;
            reader.plan = Some(Arc::clone(plan));
        }
        for (machine, rule) in rules {
            reader.add(machine, rule, plan);
        }
        reader
    }

    /// A reader of what a contract can be learned from.
    pub fn learning(topic: &str, plan: &Result<Arc<TypePlan>, String>) -> Self {
        let reader = Self::new(plan, std::iter::empty(), TF_TOPICS.contains(&topic), true);
        Self {
            needs_digest: true,
            image: plan.as_ref().ok().and_then(ImageCheck::open),
            has_floats: plan.as_ref().is_ok_and(|plan| has_floats(plan)),
            ..reader
        }
    }

    /// How much of the payloads a contract is learned from.
    pub const fn learns_from(&self) -> Want {
        if self.has_floats || self.has_edges {
            Want::Whole
        } else {
            Want::Sparse
        }
    }

    /// What there is to learn of a message besides its facts.
    pub fn learnable(&self, sample: &Sample) -> Learnable {
        let floats = || self.floats(sample).ok().map(|floats| floats.share());
        Learnable {
            not_finite: (self.has_floats && sample.is_whole()).then(floats).flatten(),
            image: self.image.as_ref().and_then(|image| image.look(sample).ok()),
        }
    }

    fn floats(&self, sample: &Sample) -> Result<Floats, String> {
        let mut floats = Floats::default();
        if let Some(plan) = &self.plan {
            plan.walk(&sample.head, &mut floats)
                .map_err(|error| error.to_string())?;
        }
        Ok(floats)
    }

    fn add(&mut self, machine: usize, rule: &Rule, plan: &Result<Arc<TypePlan>, String>) {
        let with_plan = |make: &dyn Fn(&Arc<TypePlan>) -> Result<Single, String>| match plan {
            Ok(plan) => make(plan).unwrap_or_else(Single::Undecided),
            Err(reason) => Single::Undecided(reason.clone()),
        };
        let expression = rule.text("expression").unwrap_or_default();
        let compiled = |plan: &Arc<TypePlan>| {
            Predicate::compile(Arc::clone(plan), expression).map_err(|error| error.to_string())
        };
        let single = match rule.kind() {
            "frozen" => {
                self.needs_digest = true;
                return;
            }
            "latency" | "drift" | "stamps" | "jump" => {
                self.needs_stamp = true;
                return;
            }
            "must" => with_plan(&|plan| Ok(Single::Must(compiled(plan)?, expression.to_owned()))),
            "never" => with_plan(&|plan| Ok(Single::Never(compiled(plan)?, expression.to_owned()))),
            "non_finite" => {
                let share = rule.number("share").unwrap_or_default();
                with_plan(&|_| Ok(Single::Finite(share)))
            }
            "size" => Single::Size(rule.count("min"), rule.count("max")),
            "image" => with_plan(&|plan| ImageCheck::new(rule, plan).map(Single::Image)),
            "cloud" => with_plan(&|plan| CloudCheck::new(rule, plan).map(Single::Cloud)),
            "frame" => {
                let has_frame = self.frame.is_some();
                with_plan(&|plan| match has_frame {
                    true => Ok(Single::Frame(rule.names("ids").to_vec())),
                    false => Err(format!("{} has no header.frame_id", plan.type_name())),
                })
            }
            _ => return,
        };
        self.singles.push((machine, single));
    }

    /// Whether the first bytes of a message have its `header.stamp`.
    pub const fn is_stamp_first(&self) -> bool {
        self.is_stamp_first
    }

    /// Whether messages have a `header.stamp`.
    pub fn has_stamp(&self) -> bool {
        self.stamp.is_some()
    }

    /// The facts of a message; `topic` and its name say whose.
    pub fn facts(
        &self,
        topic: u32,
        name: &Arc<str>,
        (time, publish_time): (Timestamp, Timestamp),
        sample: &Sample,
    ) -> Facts {
        let is_first = self.stamp.is_some_and(|path| path[0] == 0 && path[1] == 0);
        let begin = ENCAPSULATION_BYTES + if is_first { STAMP_BYTES } else { 0 };
        let checked = self
            .singles
            .iter()
            .map(|(machine, single)| (*machine, self.check(single, sample)));
        let edges = match &self.plan {
            Some(plan) if self.has_edges => tree::edges(plan, &sample.head).unwrap_or_default(),
            _ => Vec::new(),
        };
        Facts {
            topic,
            name: Arc::clone(name),
            time,
            publish_time,
            bytes: sample.len,
            stamp: self.needs_stamp.then(|| self.stamp(sample)).flatten(),
            digest: if self.needs_digest {
                sample.digest(begin)
            } else {
                0
            },
            checked: checked.filter(|(_, checked)| *checked != Ok(None)).collect(),
            edges,
        }
    }

    /// The `header.stamp` in nanoseconds; `None` for one that was not set.
    fn stamp(&self, sample: &Sample) -> Option<i64> {
        if self.is_stamp_first {
            return sample.first_stamp().filter(|nanos| *nanos != 0);
        }
        let head = &sample.head;
        let (plan, [header, stamp, seconds, nanoseconds]) = (self.plan.as_ref()?, self.stamp?);
        let part = |place, index| plan.part_of(head, place, index).ok();
        let Part::Struct(header) = part(plan.place(head).ok()?, header)? else {
            return None;
        };
        let Part::Struct(stamp) = part(header, stamp)? else {
            return None;
        };
        let number = |index| match part(stamp, index)? {
            Part::Scalar(Scalar::I32(value)) => Some(i64::from(value)),
            Part::Scalar(Scalar::U32(value)) => Some(i64::from(value)),
            _ => None,
        };
        let nanos = number(seconds)?
            .saturating_mul(1_000_000_000)
            .saturating_add(number(nanoseconds)?);
        (nanos != 0).then_some(nanos)
    }

    fn check(&self, single: &Single, sample: &Sample) -> Checked {
        const TOO_LARGE: &str = "messages are larger than what is kept for rules";
        match single {
            Single::Undecided(reason) => return Err(reason.clone()),
            Single::Size(min, max) => return Ok(size(*min, *max, sample.len as u64)),
            Single::Image(check) => return check.check(sample),
            Single::Cloud(check) => return check.check(sample),
            Single::Frame(ids) => return self.check_frame(ids, sample),
            Single::Must(..) | Single::Never(..) | Single::Finite(_) => {}
        }
        if !sample.is_whole() {
            return Err(TOO_LARGE.to_owned());
        }
        let matches =
            |predicate: &Predicate| predicate.matches(&sample.head).map_err(|error| error.to_string());
        Ok(match single {
            Single::Must(predicate, text) => (!matches(predicate)?).then(|| format!("not true: {text}")),
            Single::Never(predicate, text) => matches(predicate)?.then(|| format!("true: {text}")),
            Single::Finite(bound) => {
                let floats = self.floats(sample)?;
                (floats.share() > *bound).then(|| {
                    format!(
                        "{} of {} values are NaN or infinite, the first in {}",
                        floats.not_finite, floats.all, floats.first
                    )
                })
            }
            _ => None,
        })
    }

    /// The `header.frame_id`, if there is one that can be read.
    pub fn frame_id(&self, sample: &Sample) -> Option<String> {
        let (plan, [header, ..], frame, head) = (self.plan.as_ref()?, self.stamp?, self.frame?, &sample.head);
        let Part::Struct(header) = plan.part_of(head, plan.place(head).ok()?, header).ok()? else {
            return None;
        };
        match plan.part_of(head, header, frame).ok()? {
            Part::Scalar(Scalar::Text(text)) => Some(text.to_str().into_owned()),
            _ => None,
        }
    }

    fn check_frame(&self, ids: &[String], sample: &Sample) -> Checked {
        let found = self
            .frame_id(sample)
            .ok_or("a message has no header.frame_id that can be read")?;
        Ok((!ids.contains(&found)).then(|| format!("frame_id {found:?}, expected {}", ids.join(" or "))))
    }
}

fn size(min: Option<u64>, max: Option<u64>, bytes: u64) -> Option<String> {
    match (min, max) {
        (Some(min), _) if bytes < min => Some(format!("{bytes} bytes, at least {min}")),
        (_, Some(max)) if bytes > max => Some(format!("{bytes} bytes, at most {max}")),
        _ => None,
    }
}

/// Counts floating-point values that are not finite.
#[derive(Default)]
struct Floats {
    all: u64,
    not_finite: u64,
    field: String,
    /// The field of the first one.
    first: String,
}

impl Floats {
    fn share(&self) -> f64 {
        self.not_finite as f64 / self.all.max(1) as f64
    }

    fn count(&mut self, value: Scalar<'_>) {
        let is_finite = match value {
            Scalar::F32(value) => value.is_finite(),
            Scalar::F64(value) => value.is_finite(),
            _ => return,
        };
        self.all += 1;
        if !is_finite {
            self.not_finite += 1;
            if self.first.is_empty() {
                self.first.clone_from(&self.field);
            }
        }
    }
}

impl<'a> Visitor<'a> for Floats {
    fn wants_field(&mut self, field: &FieldPlan) -> bool {
        let may = match field.element {
            ElementPlan::Primitive(kind) => {
                matches!(kind, Primitive::Float | Primitive::Double | Primitive::LongDouble)
            }
            ElementPlan::Struct(_) => true,
            _ => false,
        };
        if may {
            self.field.clone_from(&field.name);
        }
        may
    }

    fn scalar(&mut self, value: Scalar<'a>) {
        self.count(value);
    }

    fn primitives(&mut self, _field: &FieldPlan, values: Primitives<'a>) {
        values.iter().for_each(|value| self.count(value));
    }

    fn begin_struct(&mut self, _structure: &StructPlan) {}

    fn begin_list(&mut self, _field: &FieldPlan, _count: u64) {}

    fn end_list(&mut self, _field: &FieldPlan, _count: u64) {}
}
