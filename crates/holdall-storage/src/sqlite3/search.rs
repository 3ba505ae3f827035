//! Goes through the pages of a damaged database for [`super::salvage`]: the trees of its tables first, then the pages that no tree leads to.

use super::{
    btree::{Cell, Content, Pages, Value, values},
    failed,
    format::{PUBLISHERS, PUBLISHERS_BEFORE},
    salvage::Gap,
    tables::{KNOWN, Table, columns, table_of},
};
use crate::error::StorageResult;
use rusqlite::{Connection, ToSql, types::Null};
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// The list of messages: where each one is, instead of its bytes.
const CREATE_MESSAGES: &str = "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER, \
                               data BLOB, page INTEGER, cell INTEGER)";
const INSERT_MESSAGE: &str =
    "INSERT OR IGNORE INTO messages (id, topic_id, timestamp, page, cell) VALUES (?1, ?2, ?3, ?4, ?5)";
/// Most gaps that are listed.
const GAPS_MAX: usize = 1_000;

/// The result of a search.
pub(super) struct Found {
    pub(super) data_column: usize,
    pub(super) gaps: Vec<Gap>,
}

/// The place of a message in the order of ids.
#[derive(Clone, Copy, Debug)]
struct Row {
    id: i64,
    timestamp: i64,
}

/// Messages that follow each other without damage between them.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    first: Row,
    last: Row,
    /// The page of the first.
    page: u32,
}

/// A page of a table.
struct Leaf<'a> {
    number: u32,
    page: &'a [u8],
    cells: &'a [Cell],
    /// Some of its rows, or all of the page, cannot be read.
    is_whole: bool,
}

/// The search through one database.
pub(super) struct Search<'a> {
    pages: &'a Pages,
    path: &'a Path,
    connection: &'a Connection,
    visited: Vec<bool>,
    tables: HashMap<&'static str, Table>,
    stretches: Vec<Stretch>,
    /// The last page of messages was whole: the next continues it.
    continues: bool,
    bad_pages: BTreeSet<u32>,
}

impl<'a> Search<'a> {
    /// Begins; `connection` is to an empty database for the rows.
    pub(super) fn new(pages: &'a Pages, path: &'a Path, connection: &'a Connection) -> Self {
        Self {
            pages,
            path,
            connection,
            visited: vec![false; usize::try_from(pages.count).unwrap_or(0) + 1],
            tables: HashMap::new(),
            stretches: Vec::new(),
            continues: true,
            bad_pages: BTreeSet::new(),
        }
    }

    /// Lists all rows that can be read; `None` if no table of messages was found.
    ///
    /// # Errors
    /// A file that cannot be read, no room for the list.
    pub(super) fn run(mut self) -> StorageResult<Option<Found>> {
        let mut schema = Vec::new();
        let mut is_known = true;
        self.walk(1, &mut |search, leaf| {
            is_known &= leaf.is_whole;
            schema.extend(
                leaf.cells
                    .iter()
                    .filter_map(|cell| search.schema_row(leaf.page, cell)),
            );
            Ok(())
        })?;
        let mut is_end_bad = false;
        for (name, root, sql) in schema {
            if let Some((name, _)) = KNOWN.into_iter().find(|(known, _)| *known == name) {
                self.make(name, &sql)?;
                self.continues = true;
                self.walk(root, &mut |search, leaf| search.add(name, leaf))?;
                is_end_bad |= name == "messages" && !self.continues;
            }
        }
        let has_all = is_known && self.tables.contains_key("messages") && self.tables.contains_key("topics");
        if !has_all || self.tables.values().any(|table| table.is_damaged) {
            self.add_others()?;
        }
        let Some(messages) = self.tables.get("messages") else {
            return Ok(None);
        };
        let data_column = messages.column("data").unwrap_or(3);
        for name in ["topics", "metadata"] {
            self.make(name, "")?;
        }
        let gaps = self.gaps(is_end_bad);
        Ok(Some(Found { data_column, gaps }))
    }

    /// Name, first page and text of a table, from a row of the schema.
    fn schema_row(&self, page: &[u8], cell: &Cell) -> Option<(String, u32, String)> {
        let record = self.pages.record(self.path, page, cell).ok()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match values(&record, record.len())?.as_slice() {
            [
                Value::Text(b"table"),
                Value::Text(name),
                _,
                Value::Integer(root),
                Value::Text(sql),
            ] => {
                let root = u32::try_from(*root).ok().filter(|root| *root > 1)?;
                Some((text(name), root, text(sql)))
            }
            _ => None,
        }
    }

    /// Calls `found` with the leaves of a tree in order, and with an empty leaf for each page that is neither a leaf
    /// nor a whole inner page.
    fn walk(
        &mut self,
        root: u32,
        found: &mut dyn FnMut(&mut Self, Leaf<'_>) -> StorageResult<()>,
    ) -> StorageResult<()> {
        let mut next = vec![root];
        while let Some(number) = next.pop() {
            let visited = usize::try_from(number)
                .ok()
                .and_then(|place| self.visited.get_mut(place));
            // Beyond the end, or in another tree, too.
            let is_new = visited.is_some_and(|visited| !std::mem::replace(visited, true));
            let page = if is_new {
                self.pages.read(number)?
            } else {
                Vec::new()
            };
            let content = if is_new {
                self.pages.content(number, &page)
            } else {
                Content::Other
            };
            let (cells, is_whole) = match content {
                Content::Interior(children, is_whole) => {
                    next.extend(children.into_iter().rev());
                    if is_whole {
                        continue;
                    }
                    (Vec::new(), false)
                }
                Content::Leaf(cells, is_whole) => (cells, is_whole),
                Content::Other => (Vec::new(), false),
            };
            if !is_whole {
                self.bad_pages.insert(number);
            }
            let cells = &cells[..];
            found(
                self,
                Leaf {
                    number,
                    page: &page,
                    cells,
                    is_whole,
                },
            )?;
        }
        Ok(())
    }

    /// Adds the pages that no tree leads to, to tables that are damaged or not known yet.
    fn add_others(&mut self) -> StorageResult<()> {
        let free: BTreeSet<u32> = self.pages.free()?.into_iter().collect();
        let is_whole: BTreeSet<&'static str> = {
            let tables = self.tables.iter().filter(|(_, table)| !table.is_damaged);
            tables.map(|(name, _)| *name).collect()
        };
        for number in 2..=self.pages.count {
            if self.visited.get(number as usize).copied().unwrap_or(true) || free.contains(&number) {
                continue;
            }
            let page = self.pages.read(number)?;
            let Content::Leaf(cells, is_page_whole) = self.pages.content(number, &page) else {
                continue;
            };
            let table = cells
                .iter()
                .find_map(|cell| table_of(&self.pages.values_in_page(&page, cell)?));
            let Some(name) = table.filter(|name| !is_whole.contains(name)) else {
                continue;
            };
            self.make(name, "")?;
            self.continues = false;
            let leaf = Leaf {
                number,
                page: &page,
                cells: &cells,
                is_whole: is_page_whole,
            };
            self.add(name, leaf)?;
        }
        Ok(())
    }

    /// Makes a table with the columns that `sql` gives it, or those of rosbag2's newest.
    fn make(&mut self, name: &'static str, sql: &str) -> StorageResult<()> {
        if self.tables.contains_key(name) {
            return Ok(());
        }
        let known = KNOWN
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, sql)| sql);
        let own = columns(name, sql);
        let Some((columns, id)) =
            own.or_else(|| columns(name, &known.replace("holdall_topic_publishers", name)))
        else {
            return Ok(());
        };
        let made = if name == "messages" {
            CREATE_MESSAGES.to_owned()
        } else {
            let quoted = columns.iter().enumerate().map(|(place, column)| {
                let key = if Some(place) == id {
                    " INTEGER PRIMARY KEY"
                } else {
                    ""
                };
                format!("\"{}\"{key}", column.replace('"', "\"\""))
            });
            format!("CREATE TABLE {name}({})", quoted.collect::<Vec<_>>().join(","))
        };
        let refused = failed("list the rows of", self.path);
        self.connection.execute(&made, []).map_err(refused)?;
        let table = Table {
            columns,
            id,
            is_damaged: false,
        };
        self.tables.insert(name, table);
        Ok(())
    }

    /// Adds the rows of a leaf.
    fn add(&mut self, name: &'static str, leaf: Leaf<'_>) -> StorageResult<()> {
        let is_other = self.is_of_another(name, &leaf);
        let Some(table) = self.tables.get_mut(name) else {
            return Ok(());
        };
        table.is_damaged |= !leaf.is_whole || is_other;
        if is_other {
            // It is searched again without its tree.
            self.continues = false;
            self.bad_pages.insert(leaf.number);
            if let Some(visited) = self.visited.get_mut(leaf.number as usize) {
                *visited = false;
            }
            return Ok(());
        }
        if name == "messages" {
            return self.add_messages(&leaf);
        }
        let table = &self.tables[name];
        let refused = failed("list the rows of", self.path);
        let places = vec!["?"; table.columns.len()].join(",");
        let insert = format!("INSERT OR IGNORE INTO {name} VALUES ({places})");
        let mut insert = self.connection.prepare_cached(&insert).map_err(&refused)?;
        let mut is_whole = leaf.is_whole;
        for cell in leaf.cells {
            let record = self.pages.record(self.path, leaf.page, cell);
            let Some(values) = record
                .as_ref()
                .ok()
                .and_then(|record| values(record, record.len()))
            else {
                is_whole = false;
                continue;
            };
            let row = (0..table.columns.len()).map(|place| match values.get(place) {
                _ if Some(place) == table.id => Box::new(cell.id) as Box<dyn ToSql>,
                Some(Value::Integer(value)) => Box::new(*value),
                Some(Value::Real(value)) => Box::new(*value),
                Some(Value::Text(text)) => Box::new(String::from_utf8_lossy(text).into_owned()),
                Some(Value::Blob(bytes)) => Box::new(bytes.to_vec()),
                _ => Box::new(Null),
            });
            insert
                .execute(rusqlite::params_from_iter(row))
                .map_err(&refused)?;
        }
        drop(insert);
        if let Some(table) = self.tables.get_mut(name) {
            table.is_damaged |= !is_whole;
        }
        Ok(())
    }

    /// Whether the rows of a leaf belong to another table: a wrong page number can lead anywhere.
    fn is_of_another(&self, name: &str, leaf: &Leaf<'_>) -> bool {
        let first = leaf
            .cells
            .iter()
            .find_map(|cell| self.pages.values_in_page(leaf.page, cell));
        let other = first
            .and_then(|row| table_of(&row))
            .filter(|other| *other != name);
        let texts = ["topics", "message_definitions"];
        let is_alike = |other: &str| {
            (texts.contains(&other) && texts.contains(&name))
                || (other == PUBLISHERS && name == PUBLISHERS_BEFORE)
        };
        other.is_some_and(|other| !is_alike(other))
    }

    fn add_messages(&mut self, leaf: &Leaf<'_>) -> StorageResult<()> {
        let table = &self.tables["messages"];
        let at = |name: &str, otherwise| table.column(name).unwrap_or(otherwise);
        let (topic, time, data) = (at("topic_id", 1), at("timestamp", 2), at("data", 3));
        let refused = failed("list the rows of", self.path);
        let mut insert = self.connection.prepare_cached(INSERT_MESSAGE).map_err(&refused)?;
        let mut rows = Vec::with_capacity(leaf.cells.len());
        for cell in leaf.cells {
            let values = self.pages.values_in_page(leaf.page, cell).unwrap_or_default();
            let is_data = matches!(
                values.get(data),
                Some(Value::Blob(_) | Value::Elsewhere { is_text: false })
            );
            let (Some(Value::Integer(topic)), Some(Value::Integer(timestamp)), true) =
                (values.get(topic), values.get(time), is_data)
            else {
                continue;
            };
            let offset = i64::try_from(cell.offset).unwrap_or(0);
            let row = [cell.id, *topic, *timestamp, i64::from(leaf.number), offset];
            if insert.execute(row).map_err(&refused)? == 1 {
                rows.push(Row {
                    id: cell.id,
                    timestamp: *timestamp,
                });
            }
        }
        drop(insert);
        let last = self.stretches.last().map_or(i64::MIN, |stretch| stretch.last.id);
        // A wrong number of a page leads to one that is elsewhere in the order.
        let is_next = !self.continues || rows.first().is_none_or(|row| row.id > last);
        let is_whole = leaf.is_whole && rows.len() == leaf.cells.len() && is_next;
        if !is_whole {
            self.bad_pages.insert(leaf.number);
        }
        match rows.as_slice() {
            [first, .., last] if is_whole => self.note(*first, *last, leaf.number, self.continues),
            rows => {
                let continues = is_whole && self.continues;
                rows.iter()
                    .for_each(|row| self.note(*row, *row, leaf.number, continues));
            }
        }
        self.continues = is_whole;
        if let Some(table) = self.tables.get_mut("messages") {
            table.is_damaged |= !is_whole;
        }
        Ok(())
    }

    fn note(&mut self, first: Row, last: Row, page: u32, continues: bool) {
        match self.stretches.last_mut() {
            Some(before) if continues || before.last.id.checked_add(1) == Some(first.id) => {
                before.last = last
            }
            _ => self.stretches.push(Stretch { first, last, page }),
        }
    }

    /// Missing messages between the stretches, before and after them.
    fn gaps(&mut self, is_end_bad: bool) -> Vec<Gap> {
        self.stretches.sort_by_key(|stretch| stretch.first.id);
        let mut gaps = Vec::new();
        let mut before: Option<Stretch> = None;
        for stretch in &self.stretches {
            let last = before.map_or(0, |before| before.last.id);
            let missing = i128::from(stretch.first.id) - i128::from(last) - 1;
            if missing > 0 && (before.is_some() || !self.bad_pages.is_empty()) && gaps.len() < GAPS_MAX {
                let after = stretch.first;
                let from = before.map_or(after.timestamp, |before| before.last.timestamp);
                gaps.push(Gap {
                    offset: self.pages.offset(self.bad_page_near(stretch.page)),
                    count: u64::try_from(missing).ok(),
                    times: (from, after.timestamp),
                    text: format!(
                        "the messages of ids {} to {} cannot be read",
                        i128::from(last) + 1,
                        i128::from(after.id) - 1
                    ),
                });
            }
            before = Some(
                before.map_or(*stretch, |before| match before.last.id > stretch.last.id {
                    true => before,
                    false => *stretch,
                }),
            );
        }
        if is_end_bad {
            let last = before.map(|stretch| stretch.last);
            let time = last.map_or(0, |row| row.timestamp);
            gaps.push(Gap {
                offset: self.bad_pages.last().map_or(0, |page| self.pages.offset(*page)),
                count: None,
                times: (time, time),
                text: match last {
                    Some(row) => format!("messages after id {} cannot be read", row.id),
                    None => "no message can be read".to_owned(),
                },
            });
        }
        gaps
    }

    /// The damaged page before another one, or the first.
    fn bad_page_near(&self, page: u32) -> u32 {
        let before = self.bad_pages.range(..=page).next_back();
        before.or_else(|| self.bad_pages.first()).copied().unwrap_or(page)
    }
}
