//! Finds the rows of messages that can be read in a damaged database: those before, after and between bad pages.

use rusqlite::{Connection, params};
use std::fmt;

/// Rows that are read at once.
const ROWS_PER_QUERY: i64 = 4096;
/// After a row that cannot be read so many ids are tried one by one: more than a page has. After them in steps that double.
const TRIED_ONE_BY_ONE: i64 = 4096;

/// A row that can be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) id: i64,
    pub(super) channel_id: i64,
    pub(super) timestamp: i64,
}

/// Rows that cannot be read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gap {
    /// The row before them, and the row after them.
    before: Option<Row>,
    after: Option<Row>,
}

impl Gap {
    /// How many ids are missing: as many messages, if none was removed before; `None` when the end is missing.
    fn ids(&self) -> Option<i64> {
        let first = self.before.map_or(0, |row| row.id);
        Some(self.after?.id.saturating_sub(first).saturating_sub(1))
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ids() {
            Some(count) => write!(f, "{count} messages cannot be read")?,
            None => f.write_str("messages cannot be read, how many is not known")?,
        }
        match (self.before, self.after) {
            (Some(before), Some(after)) => write!(
                f,
                " (ids {} to {}, between the times {} and {})",
                before.id.saturating_add(1),
                after.id.saturating_sub(1),
                before.timestamp,
                after.timestamp
            ),
            (Some(before), None) => write!(f, " (after id {}, time {})", before.id, before.timestamp),
            (None, Some(after)) => write!(f, " (before id {}, time {})", after.id, after.timestamp),
            (None, None) => Ok(()),
        }
    }
}

/// Whether an error is that of damage in the file.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase, SystemIoFailure};
    matches!(
        error.sqlite_error_code(),
        Some(DatabaseCorrupt | NotADatabase | SystemIoFailure)
    )
}

/// Calls `found` with each row of messages that can be read, by id; `column` has the channel. Returns what cannot be read.
///
/// # Errors
/// Other errors than damage.
pub(super) fn each_row(
    connection: &Connection,
    column: &str,
    mut found: impl FnMut(Row) -> rusqlite::Result<()>,
) -> rusqlite::Result<Vec<Gap>> {
    let query = format!(
        "SELECT id, {column}, timestamp FROM messages NOT INDEXED WHERE id >= ?1 ORDER BY id LIMIT {ROWS_PER_QUERY}"
    );
    let mut gaps: Vec<Gap> = Vec::new();
    let (mut from, mut last) = (Some(i64::MIN), None);
    while let Some(first) = from.take() {
        let mut statement = connection.prepare_cached(&query)?;
        let mut rows = statement.query([first])?;
        loop {
            let row = match rows.next() {
                Ok(None) => break,
                Ok(Some(row)) => Row {
                    id: row.get(0)?,
                    channel_id: row.get(1)?,
                    timestamp: row.get(2)?,
                },
                Err(error) if is_damage(&error) => {
                    gaps.push(Gap {
                        before: last,
                        after: None,
                    });
                    from = next_readable(
                        connection,
                        first.max(last.map_or(0, |row: Row| row.id.saturating_add(1))),
                    )?;
                    break;
                }
                Err(error) => return Err(error),
            };
            if let Some(gap) = gaps.last_mut()
                && gap.after.is_none()
                && gap.before.map(|row| row.id) == last.map(|row| row.id)
            {
                gap.after = Some(row);
            }
            found(row)?;
            last = Some(row);
            from = row.id.checked_add(1);
        }
    }
    // Damage that took no row with it, such as an index.
    gaps.retain(|gap| gap.ids() != Some(0));
    Ok(gaps)
}

/// The first id from `first` on that can be read; `None` when none can.
fn next_readable(connection: &Connection, first: i64) -> rusqlite::Result<Option<i64>> {
    let mut probe = connection
        .prepare_cached("SELECT id FROM messages NOT INDEXED WHERE id >= ?1 ORDER BY id LIMIT 1")?;
    let mut is_readable = |id: i64| match probe.query_row(params![id], |row| row.get::<_, i64>(0)) {
        Ok(found) => Ok(Some(Some(found))),
        Err(rusqlite::Error::QueryReturnedNoRows) => Ok(Some(None)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    };
    let mut step = 1;
    let mut failed = first;
    for tried in 1.. {
        let Some(id) = failed.checked_add(step) else {
            return Ok(None);
        };
        let Some(found) = is_readable(id)? else {
            failed = id;
            if tried >= TRIED_ONE_BY_ONE {
                step = step.saturating_mul(2);
            }
            continue;
        };
        // Between the last that failed and the first that did not.
        let (mut low, mut high, mut best) = (failed, id, found);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match is_readable(middle)? {
                Some(found) => (high, best) = (middle, found),
                None => low = middle,
            }
        }
        return Ok(best);
    }
    Ok(None)
}
