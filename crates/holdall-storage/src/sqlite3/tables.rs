//! The tables of rosbag2 and of holdall in a damaged database: their columns, and how a row shows which of them it is of.

use super::{
    btree::Value,
    format::{
        CREATE_MESSAGE_PUBLISHERS, CREATE_PUBLISHERS, CREATE_RECORDS, CREATE_TABLES, MESSAGE_PUBLISHERS,
        PUBLISHERS, PUBLISHERS_BEFORE, RECORDS,
    },
};
use rusqlite::Connection;

/// The tables that are read, each with a text that creates it where its own cannot be read.
pub(super) const KNOWN: [(&str, &str); 9] = [
    ("schema", CREATE_TABLES[0]),
    ("metadata", CREATE_TABLES[1]),
    ("topics", CREATE_TABLES[2]),
    ("message_definitions", CREATE_TABLES[3]),
    ("messages", CREATE_TABLES[4]),
    (RECORDS, CREATE_RECORDS),
    (PUBLISHERS, CREATE_PUBLISHERS),
    (PUBLISHERS_BEFORE, CREATE_PUBLISHERS),
    (MESSAGE_PUBLISHERS, CREATE_MESSAGE_PUBLISHERS),
];
/// Longest text that creates a table, in bytes, and most columns that it may have.
const CREATE_BYTES_MAX: usize = 4096;
const COLUMNS_MAX: usize = 32;

/// A table whose rows are listed.
pub(super) struct Table {
    pub(super) columns: Vec<String>,
    /// The column that is the row's id.
    pub(super) id: Option<usize>,
    /// Some of its pages are damaged.
    pub(super) is_damaged: bool,
}

impl Table {
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }
}

/// The columns of a table by the text that creates it, and which of them is the row's id; `None` for a text that does not.
pub(super) fn columns(name: &str, sql: &str) -> Option<(Vec<String>, Option<usize>)> {
    let is_possible = sql.len() <= CREATE_BYTES_MAX && sql.get(..12)?.eq_ignore_ascii_case("create table");
    // Nothing in this database is ever written: the text is only taken apart.
    let memory = is_possible.then(Connection::open_in_memory)?.ok()?;
    memory.pragma_update(None, "trusted_schema", false).ok()?;
    memory.execute(sql, []).ok()?;
    let query = "SELECT name, pk > 0 AND upper(type) = 'INTEGER' FROM pragma_table_info(?1)";
    let mut statement = memory.prepare(query).ok()?;
    let rows = statement
        .query_map([name], |row| Ok((row.get(0)?, row.get(1)?)))
        .ok()?;
    let rows: Vec<(String, bool)> = rows.collect::<rusqlite::Result<_>>().ok()?;
    let id = rows.iter().position(|(_, is_id)| *is_id);
    let columns: Vec<String> = rows.into_iter().map(|(column, _)| column).collect();
    (!columns.is_empty() && columns.len() <= COLUMNS_MAX).then_some((columns, id))
}

/// The table of rosbag2 or holdall that a row is of, by the kinds of its values.
pub(super) fn table_of(row: &[Value<'_>]) -> Option<&'static str> {
    use Value::{Blob, Elsewhere, Integer, Null as None_, Text};
    let is_type = |text: &[u8]| text.contains(&b'/');
    Some(match row {
        [
            None_,
            Integer(_),
            Integer(_),
            Blob(_) | Elsewhere { is_text: false },
        ] => "messages",
        [None_, Text(name), Text(_), ..] if row.len() >= 3 && name.first() == Some(&b'/') => "topics",
        [
            None_,
            Text(name),
            Text(_),
            Text(_) | Elsewhere { is_text: true },
            ..,
        ] if is_type(name) => "message_definitions",
        [None_, Integer(_), Text(_) | Elsewhere { is_text: true }] => "metadata",
        [None_, Text(_)] => "schema",
        [
            None_,
            Integer(_),
            Text(_),
            Text(_),
            Text(_) | Elsewhere { is_text: true },
        ] => RECORDS,
        [None_, Integer(_), Text(_), .., Integer(_) | None_] if row.len() == 7 => PUBLISHERS,
        [None_, Integer(_)] => MESSAGE_PUBLISHERS,
        _ => return None,
    })
}
