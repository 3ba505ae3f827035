//! Compiles a plan to the steps that copy its wanted fields.

use super::{
    ColumnOptions, Wanted,
    array::{Buffers, Shape},
};
use crate::{
    dynamic::{
        ElementPlan, FieldPlan, StructPlan, TypePlan, plan::Sizes, primitives::is_octet, value::size_of,
    },
    interface::{Arity, Primitive},
};

/// A run longer than this is refused at its payload; no real type comes close.
const RUN_BYTES_MAX: usize = 1 << 30;

/// The steps of a type.
pub(in crate::dynamic) type Program = Vec<Step>;

/// One step through a payload.
#[derive(Clone, Debug)]
pub(in crate::dynamic) enum Step {
    /// Fields of fixed sizes.
    Run(Box<Run>),
    /// A `string`.
    Text {
        length_max: Option<u64>,
        /// Offsets and bytes.
        into: Option<(usize, usize)>,
    },
    /// A `wstring`.
    Wide {
        length_max: Option<u64>,
        into: Option<(usize, usize)>,
    },
    /// A sequence of plain values.
    Primitives {
        kind: Primitive,
        count_max: Option<u64>,
        into: Option<(usize, usize)>,
    },
    /// An array or a sequence of texts or structs.
    Repeat {
        arity: Arity,
        /// Minimum size of one element; at least 1.
        bytes_min: u64,
        /// Offsets of a wanted sequence.
        offsets: Option<usize>,
        body: Program,
    },
}

/// Fields of fixed sizes, by the offset (modulo eight) at which they begin.
#[derive(Clone, Debug)]
pub(in crate::dynamic) struct Run {
    /// Length in bytes, the padding before its fields included.
    pub bytes: [usize; 8],
    pub loads: [Vec<Load>; 8],
}

/// Bytes to copy.
#[derive(Clone, Copy, Debug)]
pub(in crate::dynamic) struct Load {
    /// Offset from the run's beginning.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// The kind of value.
    pub kind: Primitive,
    /// Buffer that they are appended to.
    pub into: usize,
}

/// A part of a run.
enum Atom {
    /// Plain values, and the buffer that wants them.
    Values {
        kind: Primitive,
        count: usize,
        into: Option<usize>,
    },
    /// A field that is skipped, by its sizes.
    Skipped(Sizes),
}

struct Compiler<'p> {
    plan: &'p TypePlan,
    options: &'p ColumnOptions,
    align_max: usize,
    buffers: Buffers,
}

/// Compiles a type; returns its steps, its columns and their empty buffers.
pub(super) fn compile(
    plan: &TypePlan,
    wanted: &Wanted,
    options: &ColumnOptions,
    align_max: usize,
) -> (Program, Vec<(String, Shape)>, Buffers) {
    let mut compiler = Compiler {
        plan,
        options,
        align_max,
        buffers: Buffers::default(),
    };
    let mut steps = Steps::default();
    let shapes = compiler.structure(plan.root(), Some(wanted), "", !options.nested, &mut steps);
    let program = steps.finish(align_max);
    (program, shapes, compiler.buffers)
}

/// Steps so far, and the run still open.
#[derive(Default)]
struct Steps {
    done: Program,
    atoms: Vec<Atom>,
}

impl Steps {
    fn end_run(&mut self, align_max: usize) {
        if self.atoms.is_empty() {
            return;
        }
        let atoms = std::mem::take(&mut self.atoms);
        let mut run = Run {
            bytes: [0; 8],
            loads: std::array::from_fn(|_| Vec::new()),
        };
        for phase in 0..8_usize {
            let mut at = phase;
            for atom in &atoms {
                match atom {
                    Atom::Values { count: 0, .. } => {}
                    Atom::Values { kind, count, into } => {
                        let align = size_of(*kind).min(align_max);
                        at = at.next_multiple_of(align);
                        let bytes = size_of(*kind).saturating_mul(*count);
                        if let Some(into) = into {
                            run.loads[phase].push(Load {
                                offset: at - phase,
                                bytes,
                                kind: *kind,
                                into: *into,
                            });
                        }
                        at = at.saturating_add(bytes).min(RUN_BYTES_MAX * 2);
                    }
                    Atom::Skipped(sizes) => at = at.saturating_add(sizes[at & 7]).min(RUN_BYTES_MAX * 2),
                }
            }
            run.bytes[phase] = if at > RUN_BYTES_MAX {
                usize::MAX
            } else {
                at - phase
            };
        }
        self.done.push(Step::Run(Box::new(run)));
    }

    fn push(&mut self, step: Step, align_max: usize) {
        self.end_run(align_max);
        self.done.push(step);
    }

    fn finish(mut self, align_max: usize) -> Program {
        self.end_run(align_max);
        self.done
    }
}

impl Compiler<'_> {
    /// Adds the steps of a struct, and returns the columns of its wanted fields.
    fn structure(
        &mut self,
        structure: &StructPlan,
        wanted: Option<&Wanted>,
        prefix: &str,
        flat: bool,
        steps: &mut Steps,
    ) -> Vec<(String, Shape)> {
        let mut shapes = Vec::new();
        for field in &structure.fields {
            let inner = wanted.and_then(|wanted| wanted.field(&field.name));
            // The placeholder member of a struct without fields is not a field.
            let inner = inner.filter(|_| !structure.is_empty);
            let name = format!("{prefix}{}", field.name);
            self.field(field, inner, name, flat, steps, &mut shapes);
        }
        shapes
    }

    fn field(
        &mut self,
        field: &FieldPlan,
        wanted: Option<&Wanted>,
        name: String,
        flat: bool,
        steps: &mut Steps,
        shapes: &mut Vec<(String, Shape)>,
    ) {
        // The sizes of XCDR1 do not hold for XCDR2.
        if let (None, Some(sizes), 8) = (wanted, field.sizes, self.align_max) {
            steps.atoms.push(Atom::Skipped(sizes));
            return;
        }
        let many = match field.arity {
            Arity::One => None,
            Arity::Array(count) => Some(usize::try_from(count).unwrap_or(usize::MAX)),
            Arity::BoundedSequence(_) | Arity::UnboundedSequence => {
                return self.sequence(field, wanted, name, steps, shapes);
            }
        };
        match (field.element, many) {
            (ElementPlan::Primitive(kind), many) => {
                let plain = self.plain(kind, many, wanted.is_some(), steps);
                shapes.extend(plain.map(|plain| (name, plain)));
            }
            (ElementPlan::Struct(index), None) => {
                let plan = self.plan;
                let structure = plan.structure(index);
                if let Some((kind, count)) = self.vector(structure, wanted) {
                    let vector = self.plain(kind, Some(count), true, steps);
                    shapes.extend(vector.map(|vector| (name, vector)));
                    return;
                }
                let prefix = if flat { format!("{name}.") } else { String::new() };
                let fields = self.structure(structure, wanted, &prefix, flat, steps);
                match flat {
                    true => shapes.extend(fields),
                    false if fields.is_empty() => {}
                    false => shapes.push((name, Shape::Struct { fields })),
                }
            }
            (ElementPlan::Text { .. } | ElementPlan::WideText { .. }, None) => {
                let text = self.text(field, wanted.is_some(), steps);
                shapes.extend(text.map(|text| (name, text)));
            }
            (_, Some(count)) => {
                let items = self.items(field, wanted, None, steps);
                let fixed = items.map(|items| Shape::Fixed {
                    count,
                    items: Box::new(items),
                });
                shapes.extend(fixed.map(|fixed| (name, fixed)));
            }
        }
    }

    /// A number or an array of them.
    fn plain(
        &mut self,
        kind: Primitive,
        per_row: Option<usize>,
        wanted: bool,
        steps: &mut Steps,
    ) -> Option<Shape> {
        let into = wanted.then(|| self.buffers.add_bytes());
        steps.atoms.push(Atom::Values {
            kind,
            count: per_row.unwrap_or(1),
            into,
        });
        into.map(|bytes| Shape::Plain {
            kind: stored(kind),
            per_row,
            bytes,
        })
    }

    /// A struct of numbers of one kind as a vector, if vectors are wanted.
    fn vector(&self, structure: &StructPlan, wanted: Option<&Wanted>) -> Option<(Primitive, usize)> {
        if !self.options.vectors
            || wanted != Some(&Wanted::Whole)
            || structure.is_empty
            || structure.fields.len() < 2
        {
            return None;
        }
        let kind_of = |field: &FieldPlan| match (field.element, field.arity) {
            (ElementPlan::Primitive(kind), Arity::One) if stored(kind) == kind => Some(kind),
            _ => None,
        };
        let kind = kind_of(&structure.fields[0])?;
        let is_vector = structure.fields.iter().all(|field| kind_of(field) == Some(kind));
        is_vector.then_some((kind, structure.fields.len()))
    }

    /// A single text.
    fn text(&mut self, field: &FieldPlan, wanted: bool, steps: &mut Steps) -> Option<Shape> {
        let into = wanted.then(|| (self.buffers.add_offsets(), self.buffers.add_bytes()));
        let step = match field.element {
            ElementPlan::WideText { length_max } => Step::Wide { length_max, into },
            ElementPlan::Text { length_max } => Step::Text { length_max, into },
            ElementPlan::Primitive(_) | ElementPlan::Struct(_) => return None,
        };
        steps.push(step, self.align_max);
        into.map(|(offsets, bytes)| Shape::Text { offsets, bytes })
    }

    /// The elements of an array or a sequence of texts or structs.
    fn items(
        &mut self,
        field: &FieldPlan,
        wanted: Option<&Wanted>,
        offsets: Option<usize>,
        steps: &mut Steps,
    ) -> Option<Shape> {
        let mut body = Steps::default();
        let items = match field.element {
            ElementPlan::Struct(index) => {
                let plan = self.plan;
                let fields = self.structure(plan.structure(index), wanted, "", false, &mut body);
                wanted.map(|_| Shape::Struct { fields })
            }
            _ => self.text(field, wanted.is_some(), &mut body),
        };
        let step = Step::Repeat {
            arity: field.arity,
            bytes_min: field.element_bytes_min.max(1),
            offsets,
            body: body.finish(self.align_max),
        };
        steps.push(step, self.align_max);
        items
    }

    fn sequence(
        &mut self,
        field: &FieldPlan,
        wanted: Option<&Wanted>,
        name: String,
        steps: &mut Steps,
        shapes: &mut Vec<(String, Shape)>,
    ) {
        let ElementPlan::Primitive(kind) = field.element else {
            let offsets = wanted.map(|_| self.buffers.add_offsets());
            let items = self.items(field, wanted, offsets, steps);
            let list = offsets.zip(items).map(|(offsets, items)| Shape::List {
                offsets,
                items: Box::new(items),
            });
            shapes.extend(list.map(|list| (name, list)));
            return;
        };
        let into = wanted.map(|_| (self.buffers.add_offsets(), self.buffers.add_bytes()));
        let count_max = match field.arity {
            Arity::BoundedSequence(most) => Some(most),
            _ => None,
        };
        steps.push(
            Step::Primitives {
                kind,
                count_max,
                into,
            },
            self.align_max,
        );
        shapes.extend(into.map(|(offsets, bytes)| {
            let shape = if is_octet(kind) {
                Shape::Octets { offsets, bytes }
            } else {
                let items = Shape::Plain {
                    kind: stored(kind),
                    per_row: None,
                    bytes,
                };
                Shape::List {
                    offsets,
                    items: Box::new(items),
                }
            };
            (name, shape)
        }));
    }
}

/// The kind that a column has.
pub(super) const fn stored(kind: Primitive) -> Primitive {
    match kind {
        Primitive::LongDouble => Primitive::Double,
        Primitive::Char | Primitive::Byte => Primitive::Uint8,
        Primitive::Wchar => Primitive::Uint16,
        kind => kind,
    }
}
