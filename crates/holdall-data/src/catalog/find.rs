//! Asks a catalog for bags: an expression over its columns, true for a bag when it is true for one of its topics, publishers, losses,
//! markers, episodes or labels.

use super::{
    Catalog, CatalogError,
    table::{self, CellType, TABLES, Table, TextId},
};
use holdall_model::dynamic::expression::{
    ExpressionError,
    rows::{ColumnType, RowCondition, RowValue},
};
use serde_json::{Map, Value};
use std::{collections::HashMap, ops::Range};

/// A column that an expression can name: its name there, its table, its name in the table.
struct FindColumn(&'static str, usize, &'static str);

const COLUMNS: [FindColumn; 45] = [
    FindColumn("bag", table::BAGS, "bag"),
    FindColumn("root", table::BAGS, "root"),
    FindColumn("name", table::BAGS, "name"),
    FindColumn("state", table::BAGS, "state"),
    FindColumn("storage", table::BAGS, "storage"),
    FindColumn("compression", table::BAGS, "compression"),
    FindColumn("ros_distro", table::BAGS, "ros_distro"),
    FindColumn("encrypted", table::BAGS, "encrypted"),
    FindColumn("files", table::BAGS, "files"),
    FindColumn("size", table::BAGS, "size_bytes"),
    FindColumn("topics", table::BAGS, "topics"),
    FindColumn("messages", table::BAGS, "messages"),
    FindColumn("lost", table::BAGS, "lost"),
    FindColumn("start", table::BAGS, "start"),
    FindColumn("end", table::BAGS, "end"),
    FindColumn("duration", table::BAGS, "duration_ns"),
    FindColumn("contract", table::BAGS, "contract"),
    FindColumn("notice", table::BAGS, "notice"),
    FindColumn("topic", table::TOPICS, "topic"),
    FindColumn("type", table::TOPICS, "type"),
    FindColumn("type_hash", table::TOPICS, "type_hash"),
    FindColumn("reliability", table::TOPICS, "reliability"),
    FindColumn("durability", table::TOPICS, "durability"),
    FindColumn("payload_bytes", table::TOPICS, "payload_bytes"),
    FindColumn("rate", table::TOPICS, "messages"),
    FindColumn("gid", table::PUBLISHERS, "gid"),
    FindColumn("node", table::PUBLISHERS, "node"),
    FindColumn("host", table::PUBLISHERS, "host"),
    FindColumn("transport", table::PUBLISHERS, "transport"),
    FindColumn("stage", table::LOSSES, "stage"),
    FindColumn("stage_lost", table::LOSSES, "messages"),
    FindColumn("lost_first", table::LOSSES, "first"),
    FindColumn("lost_last", table::LOSSES, "last"),
    FindColumn("marker", table::MARKERS, "marker"),
    FindColumn("marker_time", table::MARKERS, "time"),
    FindColumn("episode", table::EPISODES, "episode"),
    FindColumn("episode_start", table::EPISODES, "start"),
    FindColumn("episode_duration", table::EPISODES, "duration_ns"),
    FindColumn("episode_state", table::EPISODES, "state"),
    FindColumn("task", table::EPISODES, "task"),
    FindColumn("outcome", table::EPISODES, "outcome"),
    FindColumn("operator", table::EPISODES, "operator"),
    FindColumn("episode_fields", table::EPISODES, "fields"),
    FindColumn("key", table::LABELS, "key"),
    FindColumn("value", table::LABELS, "value"),
];

/// The names of all columns, in the order in which they are shown.
pub fn find_columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.iter().map(|column| column.0)
}

/// Names that an expression can use, for help texts.
pub const FIND_COLUMNS: &str = "\
  of the bag         bag name root state storage compression ros_distro encrypted files size topics
                     messages lost start end duration (seconds) contract notice
  of a topic         topic type type_hash reliability durability payload_bytes rate (per second); where
                     one of these is named, messages and lost are the topic's
  of a publisher     gid node host transport
  of a loss          stage stage_lost lost_first lost_last
  of a marker        marker marker_time
  of an episode      episode (its number) episode_start episode_duration (seconds) episode_state (stopped,
                     discarded, unknown) task outcome operator episode_fields (all, as JSON)
  of a label         key value (what was recorded as custom data)";

/// Why nothing can be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindError {
    /// The catalog cannot be read.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The expression is wrong.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}

/// A bag, or a topic of one, for which the expression is true.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The bag's path.
    pub bag: String,
    /// The columns of the bag and those that the expression names, by name.
    pub columns: Map<String, Value>,
}

impl Catalog {
    /// The bags for which an expression is true, in the order of the catalog; if it names columns of a topic, each such topic.
    ///
    /// # Errors
    /// A wrong expression; tables that cannot be read.
    pub fn find(&mut self, expression: &str) -> Result<Vec<Found>, FindError> {
        let types: Vec<(&str, ColumnType)> =
            COLUMNS.iter().map(|column| (column.0, type_of(column))).collect();
        let condition = RowCondition::compile(expression, &types)?;
        let mut tables: Vec<usize> = condition.used().iter().map(|used| COLUMNS[*used].1).collect();
        tables.push(table::BAGS);
        tables.sort_unstable();
        tables.dedup();
        for table in &tables {
            self.load(*table)?;
        }
        let search = Search {
            catalog: self,
            rows_by_bag: tables
                .iter()
                .map(|table| {
                    (
                        *table,
                        self.table(*table).map(Table::rows_by_bag).unwrap_or_default(),
                    )
                })
                .collect(),
            of_topics: tables.contains(&table::TOPICS),
            condition: &condition,
            tables: &tables,
        };
        Ok(search.all())
    }
}

fn type_of(FindColumn(name, table, column): &FindColumn) -> ColumnType {
    let spec = &TABLES[*table];
    match spec.column(column).map(|place| spec.columns[place].cell_type) {
        _ if *name == "rate" || is_in_seconds(name) => ColumnType::Number,
        Some(CellType::Number) | None => ColumnType::Number,
        Some(CellType::Time) => ColumnType::Time,
        Some(CellType::Bool) => ColumnType::Bool,
        Some(CellType::Text | CellType::Texts) => ColumnType::Text,
    }
}

/// Whether a column has nanoseconds in its table, and seconds for people.
fn is_in_seconds(name: &str) -> bool {
    matches!(name, "duration" | "episode_duration")
}

/// The row of each table that is asked about.
type Rows = [Option<usize>; TABLES.len()];

struct Search<'a> {
    catalog: &'a Catalog,
    rows_by_bag: HashMap<usize, HashMap<TextId, Range<usize>>>,
    condition: &'a RowCondition,
    tables: &'a [usize],
    /// A column of topics is named.
    of_topics: bool,
}

impl<'a> Search<'a> {
    fn all(&self) -> Vec<Found> {
        let Some(bags) = self.catalog.table(table::BAGS) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        for row in 0..bags.rows() {
            let mut rows = Rows::default();
            rows[table::BAGS] = Some(row);
            let Some(bag) = bags.id(0, row) else {
                continue;
            };
            if self.of_topics {
                let topics = self.rows_by_bag[&table::TOPICS]
                    .get(&bag)
                    .cloned()
                    .unwrap_or_default();
                for topic in topics {
                    rows[table::TOPICS] = Some(topic);
                    found.extend(self.first_match(bag, rows, 0).map(|rows| self.found(&rows)));
                }
            } else {
                found.extend(self.first_match(bag, rows, 0).map(|rows| self.found(&rows)));
            }
        }
        found
    }

    /// The first combination of rows of the named tables for which the condition is true.
    fn first_match(&self, bag: TextId, mut rows: Rows, from: usize) -> Option<Rows> {
        let Some(place) = self.tables.get(from).copied() else {
            return self
                .condition
                .matches(&|column| self.value(&rows, column))
                .then_some(rows);
        };
        if matches!(place, table::BAGS | table::TOPICS) {
            return self.first_match(bag, rows, from + 1);
        }
        let of_bag = self.rows_by_bag[&place].get(&bag).cloned().unwrap_or_default();
        let mut is_any = false;
        let topics = rows;
        for row in of_bag.filter(|row| self.is_of_topic(place, *row, &topics)) {
            is_any = true;
            rows[place] = Some(row);
            if let Some(found) = self.first_match(bag, rows, from + 1) {
                return Some(found);
            }
        }
        // `not marker = "x"` is true for a bag without markers.
        rows[place] = None;
        if is_any {
            None
        } else {
            self.first_match(bag, rows, from + 1)
        }
    }

    /// Publishers and losses belong to a topic.
    fn is_of_topic(&self, place: usize, row: usize, rows: &Rows) -> bool {
        if !matches!(place, table::PUBLISHERS | table::LOSSES) {
            return true;
        }
        let topic_of = |place: usize, row: usize| self.catalog.table(place)?.id(1, row);
        let wanted = rows[table::TOPICS]
            .and_then(|topic| topic_of(table::TOPICS, topic))
            .or_else(|| {
                let publisher = rows[table::PUBLISHERS].filter(|_| place == table::LOSSES)?;
                topic_of(table::PUBLISHERS, publisher)
            });
        wanted.is_none_or(|wanted| topic_of(place, row) == Some(wanted))
    }

    fn value(&self, rows: &Rows, column: usize) -> RowValue<'a> {
        let FindColumn(name, table, of_table) = &COLUMNS[column];
        let table = match *name {
            "messages" | "lost" if self.of_topics => table::TOPICS,
            _ => *table,
        };
        let (spec, Some(row)) = (&TABLES[table], rows[table]) else {
            return RowValue::Missing;
        };
        let (Some(cells), Some(place)) = (self.catalog.table(table), spec.column(of_table)) else {
            return RowValue::Missing;
        };
        let number = |value: i64| value as f64;
        match (*name, spec.columns[place].cell_type) {
            _ if is_in_seconds(name) => cells
                .number(place, row)
                .map_or(RowValue::Missing, |nanos| RowValue::Number(number(nanos) / 1e9)),
            ("rate", _) => {
                let seconds = COLUMNS.iter().position(|column| column.0 == "duration");
                match (
                    cells.number(place, row),
                    seconds.map(|seconds| self.value(rows, seconds)),
                ) {
                    (Some(messages), Some(RowValue::Number(seconds))) if seconds > 0.0 => {
                        RowValue::Number(number(messages) / seconds)
                    }
                    _ => RowValue::Missing,
                }
            }
            (_, CellType::Number) => cells
                .number(place, row)
                .map_or(RowValue::Missing, |value| RowValue::Number(number(value))),
            (_, CellType::Time) => cells.number(place, row).map_or(RowValue::Missing, RowValue::Time),
            (_, CellType::Bool) => cells
                .number(place, row)
                .map_or(RowValue::Missing, |value| RowValue::Bool(value != 0)),
            (_, CellType::Text | CellType::Texts) => {
                let text = cells.id(place, row).and_then(|id| self.catalog.texts.get(id));
                text.map_or(RowValue::Missing, RowValue::Text)
            }
        }
    }

    fn found(&self, rows: &Rows) -> Found {
        let named = |place: usize| {
            let FindColumn(_, table, _) = &COLUMNS[place];
            *table == table::BAGS
                || self.condition.used().contains(&place)
                || (*table == table::TOPICS && matches!(COLUMNS[place].0, "topic" | "type") && self.of_topics)
        };
        let mut columns = Map::new();
        for (place, column) in COLUMNS.iter().enumerate().filter(|(place, _)| named(*place)) {
            let value = match self.value(rows, place) {
                RowValue::Missing => continue,
                RowValue::Text(text) => text.into(),
                RowValue::Time(nanos) => nanos.into(),
                RowValue::Bool(boolean) => boolean.into(),
                RowValue::Number(number)
                    if number.fract() == 0.0 && column.0 != "rate" && !is_in_seconds(column.0) =>
                {
                    (number as i64).into()
                }
                RowValue::Number(number) => number.into(),
            };
            columns.insert(column.0.to_owned(), value);
        }
        let bag = columns
            .get("bag")
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        Found { bag, columns }
    }
}
