//! The tables of a catalog in memory: columns of numbers and of texts, each text once.

use std::{collections::HashMap, ops::Range, sync::Arc};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CellType {
    /// Counts, bytes, offsets.
    Number,
    /// Nanoseconds since 1970.
    Time,
    /// True or false.
    Bool,
    /// A text.
    Text,
    /// A list of texts.
    Texts,
}

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSpec {
    pub name: &'static str,
    pub cell_type: CellType,
}

/// A table of the catalog: its file's name and its columns. The first column of each is the bag.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableSpec {
    pub name: &'static str,
    pub columns: &'static [ColumnSpec],
}

const fn number(name: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        cell_type: CellType::Number,
    }
}

const fn time(name: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        cell_type: CellType::Time,
    }
}

const fn boolean(name: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        cell_type: CellType::Bool,
    }
}

const fn text(name: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        cell_type: CellType::Text,
    }
}

const fn texts(name: &'static str) -> ColumnSpec {
    ColumnSpec {
        name,
        cell_type: CellType::Texts,
    }
}

/// The tables.
pub(super) const TABLES: [TableSpec; 9] = [
    TableSpec {
        name: "bags",
        columns: &[
            text("bag"),
            text("root"),
            text("name"),
            text("state"),
            text("storage"),
            text("compression"),
            text("ros_distro"),
            boolean("encrypted"),
            number("files"),
            number("size_bytes"),
            number("topics"),
            number("messages"),
            time("start"),
            time("end"),
            number("duration_ns"),
            number("lost"),
            text("contract"),
            text("notice"),
            text("fingerprint"),
        ],
    },
    TableSpec {
        name: "files",
        columns: &[
            text("bag"),
            number("number"),
            text("file"),
            number("size_bytes"),
            number("messages"),
            time("start"),
            time("end"),
        ],
    },
    TableSpec {
        name: "topics",
        columns: &[
            text("bag"),
            text("topic"),
            text("type"),
            text("type_hash"),
            text("serialization_format"),
            text("reliability"),
            text("durability"),
            number("messages"),
            number("payload_bytes"),
            number("lost"),
        ],
    },
    TableSpec {
        name: "publishers",
        columns: &[
            text("bag"),
            text("topic"),
            text("gid"),
            text("node"),
            text("host"),
            text("transport"),
            number("messages"),
        ],
    },
    TableSpec {
        name: "losses",
        columns: &[
            text("bag"),
            text("topic"),
            text("stage"),
            number("messages"),
            boolean("is_loss"),
            time("first"),
            time("last"),
        ],
    },
    TableSpec {
        name: "markers",
        columns: &[text("bag"), time("time"), text("marker")],
    },
    TableSpec {
        name: "episodes",
        columns: &[
            text("bag"),
            number("episode"),
            time("start"),
            time("end"),
            number("duration_ns"),
            text("state"),
            text("task"),
            text("outcome"),
            text("operator"),
            text("fields"),
        ],
    },
    TableSpec {
        name: "labels",
        columns: &[text("bag"), text("key"), text("value")],
    },
    TableSpec {
        name: "chunks",
        columns: &[
            text("bag"),
            number("file_number"),
            number("offset"),
            number("size_bytes"),
            number("uncompressed_bytes"),
            text("compression"),
            time("start"),
            time("end"),
            texts("topics"),
        ],
    },
];

/// Places in [`TABLES`].
pub(super) const BAGS: usize = 0;
pub(super) const FILES: usize = 1;
pub(super) const TOPICS: usize = 2;
pub(super) const PUBLISHERS: usize = 3;
pub(super) const LOSSES: usize = 4;
pub(super) const MARKERS: usize = 5;
pub(super) const EPISODES: usize = 6;
pub(super) const LABELS: usize = 7;
pub(super) const CHUNKS: usize = 8;

impl TableSpec {
    /// The place of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}

/// A value before it is in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Missing,
    Number(i64),
    Text(Arc<str>),
    Texts(Vec<Arc<str>>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<Option<&str>> for Cell {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Missing, Self::from)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<Option<i64>> for Cell {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Missing, Self::Number)
    }
}

impl From<bool> for Cell {
    fn from(boolean: bool) -> Self {
        Self::Number(boolean.into())
    }
}

/// The number of a text.
pub(super) type TextId = u32;
/// The number of a text that is missing.
pub(super) const NO_TEXT: TextId = TextId::MAX;

/// All texts of a catalog, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    texts: Vec<Arc<str>>,
    ids: HashMap<Arc<str>, TextId>,
}

impl Texts {
    /// The number of a text, which is added if it is new.
    pub fn id(&mut self, text: &str) -> TextId {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let text: Arc<str> = text.into();
        let id = TextId::try_from(self.texts.len()).unwrap_or(NO_TEXT);
        self.texts.push(Arc::clone(&text));
        self.ids.insert(text, id);
        id
    }

    /// The number of a text that is known.
    pub fn known(&self, text: &str) -> Option<TextId> {
        self.ids.get(text).copied()
    }

    /// The text of a number.
    pub fn get(&self, id: TextId) -> Option<&str> {
        self.texts.get(id as usize).map(|text| &**text)
    }
}

/// The values of a column.
#[derive(Clone, Debug)]
pub(super) enum Cells {
    /// Numbers, times, truths; 0 if one is missing.
    Numbers {
        values: Vec<i64>,
        present: Vec<bool>,
    },
    Texts(Vec<TextId>),
    /// Lists by their ends.
    Lists {
        ends: Vec<usize>,
        items: Vec<TextId>,
    },
}

impl Cells {
    pub fn new(cell_type: CellType) -> Self {
        match cell_type {
            CellType::Number | CellType::Time | CellType::Bool => Self::Numbers {
                values: Vec::new(),
                present: Vec::new(),
            },
            CellType::Text => Self::Texts(Vec::new()),
            CellType::Texts => Self::Lists {
                ends: Vec::new(),
                items: Vec::new(),
            },
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Numbers { values, .. } => values.len(),
            Self::Texts(ids) => ids.len(),
            Self::Lists { ends, .. } => ends.len(),
        }
    }

    fn push(&mut self, cell: &Cell, texts: &mut Texts) {
        match self {
            Self::Numbers { values, present } => {
                let number = if let Cell::Number(number) = cell {
                    Some(*number)
                } else {
                    None
                };
                values.push(number.unwrap_or_default());
                present.push(number.is_some());
            }
            Self::Texts(ids) => ids.push(if let Cell::Text(text) = cell {
                texts.id(text)
            } else {
                NO_TEXT
            }),
            Self::Lists { ends, items } => {
                if let Cell::Texts(list) = cell {
                    items.extend(list.iter().map(|text| texts.id(text)));
                }
                ends.push(items.len());
            }
        }
    }

    fn append(&mut self, other: &Self, rows: &Range<usize>, ids: &mut dyn FnMut(TextId) -> TextId) {
        match (self, other) {
            (
                Self::Numbers { values, present },
                Self::Numbers {
                    values: more,
                    present: of_more,
                },
            ) => {
                values.extend_from_slice(&more[rows.clone()]);
                present.extend_from_slice(&of_more[rows.clone()]);
            }
            (Self::Texts(all), Self::Texts(more)) => all.extend(more[rows.clone()].iter().map(|id| ids(*id))),
            (
                Self::Lists { ends, items },
                Self::Lists {
                    ends: of_more,
                    items: more,
                },
            ) => {
                for row in rows.clone() {
                    items.extend(more[list_range(of_more, row)].iter().map(|id| ids(*id)));
                    ends.push(items.len());
                }
            }
            // Both are of the same column.
            _ => {}
        }
    }
}

fn list_range(ends: &[usize], row: usize) -> Range<usize> {
    let start = row.checked_sub(1).map_or(0, |before| ends[before]);
    start..ends[row]
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub columns: Vec<Cells>,
}

impl Table {
    pub fn new(spec: &TableSpec) -> Self {
        Self {
            columns: spec
                .columns
                .iter()
                .map(|column| Cells::new(column.cell_type))
                .collect(),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Cells::len)
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[Cell], texts: &mut Texts) {
        for (column, cell) in self.columns.iter_mut().zip(row) {
            column.push(cell, texts);
        }
    }

    /// Appends rows of another table of the same columns, whose texts have other numbers.
    pub fn append(&mut self, other: &Self, rows: &Range<usize>, ids: &mut dyn FnMut(TextId) -> TextId) {
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.append(more, rows, ids);
        }
    }

    /// A number, time or truth.
    pub fn number(&self, column: usize, row: usize) -> Option<i64> {
        match self.columns.get(column)? {
            Cells::Numbers { values, present } => present.get(row)?.then(|| values[row]),
            _ => None,
        }
    }

    /// The number of a text.
    pub fn id(&self, column: usize, row: usize) -> Option<TextId> {
        match self.columns.get(column)? {
            Cells::Texts(ids) => ids.get(row).copied().filter(|id| *id != NO_TEXT),
            _ => None,
        }
    }

    /// The numbers of a list of texts.
    pub fn list(&self, column: usize, row: usize) -> &[TextId] {
        match self.columns.get(column) {
            Some(Cells::Lists { ends, items }) if row < ends.len() => &items[list_range(ends, row)],
            _ => &[],
        }
    }

    /// The rows of each bag. All rows of a bag follow one another.
    pub fn rows_by_bag(&self) -> HashMap<TextId, Range<usize>> {
        let mut found: HashMap<TextId, Range<usize>> = HashMap::new();
        for row in 0..self.rows() {
            if let Some(bag) = self.id(0, row) {
                found.entry(bag).or_insert(row..row).end = row + 1;
            }
        }
        found
    }
}

/// The rows of one bag, by table.
pub(super) type BagRows = [Vec<Vec<Cell>>; TABLES.len()];
