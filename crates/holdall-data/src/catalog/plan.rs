//! Divides the reading of bags into tasks of about the same number of bytes.
//!
//! A task is ranges of time of files, cut where chunks begin. Each message of the chosen topics is in exactly one task, also where chunks
//! overlap in time; a chunk across a cut is read by two.

use super::{
    Catalog, CatalogError,
    table::{self, TABLES, TextId},
};
use holdall_storage::compression::is_packed_name;
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

/// Selection of messages to read, and size of the pieces.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// These topics; all if there are none.
    pub topics: Vec<String>,
    /// Only messages logged at this time or later, in nanoseconds since 1970.
    pub from: Option<i64>,
    /// Only messages logged at this time or earlier.
    pub until: Option<i64>,
    /// Bytes of a task.
    pub task_bytes: u64,
    /// Number of tasks, in place of their bytes.
    pub tasks: Option<u64>,
}

/// A range of time of a storage file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedPart {
    /// The bag's path.
    pub bag: String,
    /// Place of the file among those of the bag.
    pub file: u64,
    /// The chosen topics that the file has.
    pub topics: Vec<String>,
    /// First and last log time in nanoseconds; `None` for no bound.
    pub start: Option<i64>,
    /// Last log time.
    pub end: Option<i64>,
    /// Chunks with messages in the range.
    pub chunks: u64,
    /// Their bytes in the file.
    pub bytes: u64,
}

/// A piece of work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlannedTask {
    /// Parts to read, in the order of the catalog.
    pub parts: Vec<PlannedPart>,
    /// Sum of the bytes of its parts.
    pub bytes: u64,
}

/// A chunk of a file that has messages that are wanted.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: i64,
    end: i64,
    bytes: u64,
    /// It has no chunks: this is all of the file.
    is_file: bool,
}

/// The wanted pieces of one file.
#[derive(Default)]
struct FilePieces {
    pieces: Vec<Piece>,
    topics: BTreeSet<TextId>,
}

impl Catalog {
    /// The tasks of reading some topics of all bags. Bags that cannot be read are left out.
    ///
    /// # Errors
    /// Tables that cannot be read.
    pub fn plan(&mut self, options: &PlanOptions) -> Result<Vec<PlannedTask>, CatalogError> {
        self.load(table::FILES)?;
        self.load(table::CHUNKS)?;
        let wanted: Option<BTreeSet<TextId>> = (!options.topics.is_empty()).then(|| {
            options
                .topics
                .iter()
                .filter_map(|topic| self.texts.known(topic))
                .collect()
        });
        let files = self.pieces(options, wanted.as_ref());
        let total: u64 = files
            .values()
            .flat_map(|file| &file.pieces)
            .map(|piece| piece.bytes)
            .sum();
        let target = match options.tasks {
            Some(tasks) => total.div_ceil(tasks.max(1)),
            None => options.task_bytes,
        };
        let packed = self.packed_files();
        let mut tasks = Vec::new();
        let mut task = PlannedTask::default();
        for ((bag, number), mut file) in files {
            if !packed.contains(&(bag, number)) {
                divide(&mut file.pieces, target);
            }
            let mut found = PlannedPart {
                bag: self.texts.get(bag).unwrap_or_default().to_owned(),
                file: number.cast_unsigned(),
                topics: file
                    .topics
                    .iter()
                    .filter_map(|id| self.texts.get(*id))
                    .map(str::to_owned)
                    .collect(),
                start: options.from,
                end: options.until,
                chunks: 0,
                bytes: 0,
            };
            found.topics.sort();
            cut(&file.pieces, target, &mut task, &mut tasks, &found);
        }
        if !task.parts.is_empty() {
            tasks.push(task);
        }
        Ok(tasks)
    }

    /// By bag and file, in the order of the catalog.
    fn pieces(
        &self,
        options: &PlanOptions,
        wanted: Option<&BTreeSet<TextId>>,
    ) -> BTreeMap<(TextId, i64), FilePieces> {
        let mut files: BTreeMap<(TextId, i64), FilePieces> = BTreeMap::new();
        let Some(chunks) = self.table(table::CHUNKS) else {
            return files;
        };
        let spec = &TABLES[table::CHUNKS];
        let place = |name: &str| spec.column(name).unwrap_or_default();
        let columns = [
            "file_number",
            "size_bytes",
            "start",
            "end",
            "topics",
            "uncompressed_bytes",
        ]
        .map(place);
        for row in 0..chunks.rows() {
            let (Some(bag), Some(number)) = (chunks.id(0, row), chunks.number(columns[0], row)) else {
                continue;
            };
            let piece = Piece {
                start: chunks.number(columns[2], row).unwrap_or(i64::MIN),
                end: chunks.number(columns[3], row).unwrap_or(i64::MAX),
                bytes: chunks.number(columns[1], row).unwrap_or_default().cast_unsigned(),
                is_file: chunks.number(columns[5], row).is_none(),
            };
            let is_late = options.until.is_some_and(|until| piece.start > until);
            if is_late || options.from.is_some_and(|from| piece.end < from) {
                continue;
            }
            let topics = chunks.list(columns[4], row).iter().copied();
            let topics: Vec<TextId> = topics
                .filter(|topic| wanted.is_none_or(|wanted| wanted.contains(topic)))
                .collect();
            if topics.is_empty() {
                continue;
            }
            let file = files.entry((bag, number)).or_default();
            file.pieces.push(piece);
            file.topics.extend(topics);
        }
        files
    }

    /// Files that have to be unpacked whole before a part of one can be read.
    fn packed_files(&self) -> HashSet<(TextId, i64)> {
        let place = |name: &str| TABLES[table::FILES].column(name).unwrap_or_default();
        let Some(files) = self.table(table::FILES) else {
            return HashSet::new();
        };
        let is_packed = |row: &usize| {
            let path = files.id(place("file"), *row).and_then(|id| self.texts.get(id));
            path.is_some_and(|path| is_packed_name(Path::new(path)))
        };
        let packed = (0..files.rows()).filter(is_packed);
        packed
            .filter_map(|row| Some((files.id(0, row)?, files.number(place("number"), row)?)))
            .collect()
    }
}

/// Divides a file without chunks into ranges of the same length in time.
fn divide(pieces: &mut Vec<Piece>, target: u64) {
    let [piece] = pieces[..] else {
        return;
    };
    let count = piece.bytes.div_ceil(target.max(1)).min(10_000);
    let span = i128::from(piece.end) - i128::from(piece.start) + 1;
    if !piece.is_file
        || count < 2
        || span < i128::from(count)
        || piece.start == i64::MIN
        || piece.end == i64::MAX
    {
        return;
    }
    // Within the bounds of the whole piece.
    let at = |number: u64| (i128::from(piece.start) + span * i128::from(number) / i128::from(count)) as i64;
    *pieces = (0..count)
        .map(|number| Piece {
            start: at(number),
            end: at(number + 1) - 1,
            bytes: piece.bytes / count,
            is_file: true,
        })
        .collect();
}

/// Distributes the pieces of a file; a task is full at `target` bytes. `part` has what all parts of the file have in common.
fn cut(
    pieces: &[Piece],
    target: u64,
    task: &mut PlannedTask,
    tasks: &mut Vec<PlannedTask>,
    part: &PlannedPart,
) {
    let mut sorted = pieces.to_vec();
    sorted.sort_by_key(|piece| piece.start);
    let mut current = part.clone();
    let mut before = i64::MIN;
    for piece in &sorted {
        let is_full = task.bytes + current.bytes >= target.max(1);
        // All that is logged at this time or later is in the next part.
        if is_full && current.chunks > 0 && piece.start > before {
            current.end = Some(piece.start - 1);
            close(task, std::mem::replace(&mut current, part.clone()));
            tasks.push(std::mem::take(task));
            current.start = Some(piece.start);
        } else if is_full && current.chunks == 0 && !task.parts.is_empty() {
            tasks.push(std::mem::take(task));
        }
        before = piece.start;
        current.chunks += 1;
        current.bytes += piece.bytes;
    }
    if current.chunks > 0 {
        close(task, current);
    }
}

fn close(task: &mut PlannedTask, part: PlannedPart) {
    task.bytes += part.bytes;
    task.parts.push(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(pieces: &[(i64, i64, u64)], target: u64) -> Vec<PlannedTask> {
        let pieces: Vec<Piece> = pieces
            .iter()
            .map(|&(start, end, bytes)| Piece {
                start,
                end,
                bytes,
                is_file: false,
            })
            .collect();
        let part = PlannedPart {
            bag: "b".to_owned(),
            file: 0,
            topics: Vec::new(),
            start: None,
            end: None,
            chunks: 0,
            bytes: 0,
        };
        let (mut task, mut tasks) = (PlannedTask::default(), Vec::new());
        cut(&pieces, target, &mut task, &mut tasks, &part);
        tasks.push(task);
        tasks
    }

    #[test]
    fn each_moment_is_in_exactly_one_task_also_where_chunks_overlap() {
        let pieces = [
            (0, 12, 40),
            (10, 20, 40),
            (10, 25, 40),
            (18, 30, 40),
            (30, 30, 40),
            (30, 44, 40),
        ];
        let tasks = planned(&pieces, 80);
        let ranges: Vec<_> = tasks
            .iter()
            .flat_map(|task| &task.parts)
            .map(|part| (part.start, part.end))
            .collect();
        assert_eq!(ranges, [(None, Some(17)), (Some(18), None)]);
        assert_eq!(tasks.iter().map(|task| task.bytes).sum::<u64>(), 240);
        for moment in -1..50 {
            let holds = |(start, end): &(Option<i64>, Option<i64>)| {
                start.is_none_or(|start| start <= moment) && end.is_none_or(|end| moment <= end)
            };
            assert_eq!(ranges.iter().filter(|range| holds(range)).count(), 1, "{moment}");
        }
    }

    #[test]
    fn a_file_without_chunks_is_divided_by_time() {
        let mut pieces = vec![Piece {
            start: 0,
            end: 99,
            bytes: 1000,
            is_file: true,
        }];
        divide(&mut pieces, 300);
        let ranges: Vec<_> = pieces.iter().map(|piece| (piece.start, piece.end)).collect();
        assert_eq!(ranges, [(0, 24), (25, 49), (50, 74), (75, 99)]);
    }
}
