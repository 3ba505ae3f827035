//! Counts the rows of a database by topic, with several connections that each count a range.

use super::{failed, recover::Place};
use crate::error::StorageResult;
use rusqlite::Connection;
use std::{num::NonZero, ops::RangeInclusive, path::Path, thread};

/// Most connections that count at once: with more the disk is the limit.
const CONNECTIONS_MAX: usize = 4;
/// Smallest range that is worth a connection.
const ROWS_PER_CONNECTION_MIN: u64 = 50_000;
/// Rows that are read at once: a program that writes the database waits for the end of each query.
const ROWS_PER_QUERY: i64 = 4096;

/// Number of messages of each value of `column`, in the order of `topic_ids`, which are ascending. Rows that are added
/// during the count are not included: their ids are higher than the highest at the start.
///
/// No index has the topic, so every page of the table is read, except those of overflowing payloads. Rows are
/// counted here and not by `GROUP BY`, which sorts all of them first: 2390 instructions for each row of 100
/// bytes, this 820.
pub(super) fn count_rows(
    place: &Place,
    path: &Path,
    column: &str,
    topic_ids: &[i64],
) -> StorageResult<Vec<u64>> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    count_side_by_side(
        place,
        path,
        column,
        topic_ids,
        processors.min(CONNECTIONS_MAX),
        ROWS_PER_CONNECTION_MIN,
    )
}

fn count_side_by_side(
    place: &Place,
    path: &Path,
    column: &str,
    topic_ids: &[i64],
    connections_max: usize,
    rows_min: u64,
) -> StorageResult<Vec<u64>> {
    let connection = place.connect()?;
    let Some(ids) = ids(&connection, path)? else {
        return Ok(vec![0; topic_ids.len()]);
    };
    let mut ranges = divide(&ids, connections_max, rows_min).into_iter();
    let own = ranges.next().unwrap_or(ids);
    let count = |connection: &Connection, range| count_range(connection, path, column, topic_ids, range);
    let count_with_own_connection = |range| count(&place.connect()?, range);
    thread::scope(|scope| {
        let mut counted = Vec::new();
        let mut others = Vec::new();
        for range in ranges {
            let name = "count-rows".to_owned();
            let work = range.clone();
            match thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || count_with_own_connection(work))
            {
                Ok(thread) => others.push(thread),
                // No more threads are available: counts one range after another.
                Err(_) => counted.push(count(&connection, range)),
            }
        }
        counted.push(count(&connection, own));
        counted.extend(others.into_iter().map(|thread| match thread.join() {
            Ok(counts) => counts,
            Err(panic) => std::panic::resume_unwind(panic),
        }));
        let mut sums = vec![0; topic_ids.len()];
        for counts in counted {
            for (sum, count) in sums.iter_mut().zip(counts?) {
                *sum += count;
            }
        }
        Ok(sums)
    })
}

/// The lowest and the highest id; `None` without rows.
fn ids(connection: &Connection, path: &Path) -> StorageResult<Option<RangeInclusive<i64>>> {
    // Two queries: each is one step down the tree; both in one would be a scan.
    let id = |query: &str| {
        let id = connection.query_row(query, [], |row| row.get::<_, Option<i64>>(0));
        id.map_err(failed("read", path))
    };
    let lowest = id("SELECT min(rowid) FROM messages")?;
    let highest = id("SELECT max(rowid) FROM messages")?;
    Ok(lowest.zip(highest).map(|(lowest, highest)| lowest..=highest))
}

/// Divides ids, which are dense in recorded files, into ranges that cover all of them.
fn divide(ids: &RangeInclusive<i64>, parts_max: usize, rows_min: u64) -> Vec<RangeInclusive<i64>> {
    // Ids may span more than an i64 holds.
    let (first, last) = (i128::from(*ids.start()), i128::from(*ids.end()));
    let span = last - first + 1;
    let parts = (span / i128::from(rows_min.max(1))).clamp(1, parts_max.max(1) as i128);
    let cut = |part: i128| first + span * part / parts;
    (0..parts)
        .filter_map(|part| {
            let from = i64::try_from(cut(part)).ok()?;
            let until = i64::try_from(cut(part + 1) - 1).ok()?;
            Some(from..=until)
        })
        .collect()
}

fn count_range(
    connection: &Connection,
    path: &Path,
    column: &str,
    topic_ids: &[i64],
    range: RangeInclusive<i64>,
) -> StorageResult<Vec<u64>> {
    let mut counts = vec![0u64; topic_ids.len()];
    let (mut from, last) = (Some(*range.start()), *range.end());
    let mut count = || -> rusqlite::Result<()> {
        let query = format!(
            "SELECT rowid, {column} FROM messages WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid LIMIT ?3"
        );
        let mut statement = connection.prepare(&query)?;
        while let Some(first) = from.take() {
            let mut rows = statement.query([first, last, ROWS_PER_QUERY])?;
            let mut found = 0;
            while let Some(row) = rows.next()? {
                found += 1;
                let (row_id, topic_id): (i64, i64) = (row.get(0)?, row.get(1)?);
                from = row_id.checked_add(1).filter(|_| found == ROWS_PER_QUERY);
                // A row without a topic is not a readable message; the check reports it.
                if let Ok(place) = topic_ids.binary_search(&topic_id) {
                    counts[place] += 1;
                }
            }
        }
        Ok(())
    };
    count().map_err(failed("read", path))?;
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite3::recover;

    const SCHEMA: &str = "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL, \
                          timestamp INTEGER NOT NULL, data BLOB NOT NULL)";

    #[test]
    fn ranges_cover_all_ids_once() {
        for (first, last) in [
            (1, 1),
            (1, 10),
            (-5, 1000),
            (i64::MIN, i64::MAX),
            (i64::MAX - 6, i64::MAX),
        ] {
            for parts in 1..=5 {
                let ranges = divide(&(first..=last), parts, 3);
                assert!(ranges.len() <= parts && !ranges.is_empty());
                assert_eq!(
                    (*ranges[0].start(), *ranges[ranges.len() - 1].end()),
                    (first, last)
                );
                let follows =
                    |pair: &[RangeInclusive<i64>]| pair[0].end().checked_add(1) == Some(*pair[1].start());
                assert!(ranges.windows(2).all(follows), "{ranges:?}");
            }
        }
        assert_eq!(
            divide(&(1..=299_999), 4, 100_000).len(),
            2,
            "a connection has enough to do"
        );
    }

    #[test]
    fn many_connections_count_what_one_query_counts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bag_0.db3");
        let mut connection = Connection::open(&path).unwrap();
        connection.execute(SCHEMA, []).unwrap();
        let transaction = connection.transaction().unwrap();
        // Gaps, ids below zero and at the very end, an unknown topic.
        let ids = (-300..2000).filter(|id| id % 7 != 0).chain([1 << 40, i64::MAX]);
        for id in ids {
            let values = [id, 1 + (id & 3)];
            transaction
                .execute("INSERT INTO messages VALUES (?1, ?2, 0, zeroblob(50))", values)
                .unwrap();
        }
        transaction.commit().unwrap();
        let query = "SELECT count(*) FROM messages WHERE topic_id = ?1";
        let expected: Vec<u64> = [1, 2, 4, 9]
            .map(|id| {
                connection
                    .query_row(query, [id], |row| row.get::<_, i64>(0))
                    .unwrap()
                    .unsigned_abs()
            })
            .into();
        let (place, ..) = recover::open(&path).unwrap();
        for connections in 1..=4 {
            for rows_min in [1, 1 << 38] {
                let counts =
                    count_side_by_side(&place, &path, "topic_id", &[1, 2, 4, 9], connections, rows_min)
                        .unwrap();
                assert_eq!(counts, expected, "{connections} connections");
            }
        }
        connection.execute("DELETE FROM messages", []).unwrap();
        assert_eq!(count_rows(&place, &path, "topic_id", &[1, 2]).unwrap(), [0, 0]);
    }

    #[test]
    fn a_row_that_cannot_be_read_in_any_range_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bag_0.db3");
        let connection = Connection::open(&path).unwrap();
        connection.execute(SCHEMA, []).unwrap();
        let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) \
                    INSERT INTO messages SELECT i, CASE i WHEN 390 THEN 'x' ELSE 1 END, 0, x'00' FROM n";
        connection.execute(rows, []).unwrap();
        let (place, ..) = recover::open(&path).unwrap();
        let error = count_side_by_side(&place, &path, "topic_id", &[1], 4, 1).unwrap_err();
        assert!(error.to_string().contains("bag_0.db3"), "{error}");
    }
}
