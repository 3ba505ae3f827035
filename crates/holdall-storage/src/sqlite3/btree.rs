//! Reads the pages of a database without SQLite, which stops at the first damage: rows of tables, page by page (https://sqlite.org/fileformat2.html).

use super::{format::MAGIC, rollback::RolledBack};
use crate::error::{StorageError, StorageResult, reserve};
use std::{path::Path, sync::Arc};

/// Bytes of the database's own header, on its first page.
const HEADER_BYTES: usize = 100;
/// First bytes of pages of tables.
const INTERIOR: u8 = 0x05;
const LEAF: u8 = 0x0d;
/// Sizes that pages have, in bytes.
const PAGE_BYTES: [usize; 8] = [4096, 1024, 8192, 512, 2048, 16_384, 32_768, 65_536];
/// Pages that are looked at to find out their size.
const TRIED_PAGES: u64 = 64;
/// A row of the tables that are read has fewer columns.
const COLUMNS_MAX: usize = 64;

/// A row in a leaf of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    /// Its offset in its page.
    pub(super) offset: usize,
    pub(super) id: i64,
    record_bytes: usize,
    /// The part of the record that is in the page.
    local: (usize, usize),
    /// The page with the rest; 0 without one.
    overflow: u32,
}

impl Cell {
    /// Its end in its page.
    fn end(&self) -> usize {
        self.local.1 + if self.overflow == 0 { 0 } else { 4 }
    }
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'a [u8]),
    Blob(&'a [u8]),
    /// Outside the given part.
    Elsewhere {
        is_text: bool,
    },
}

/// A page of a table.
#[derive(Debug)]
pub(super) enum Content {
    /// Its children in order; false when some of them cannot be read.
    Interior(Vec<u32>, bool),
    /// Its rows in order; false when some of them cannot be read.
    Leaf(Vec<Cell>, bool),
    /// A page of an index, or not a page at all.
    Other,
}

/// The pages of one database.
#[derive(Debug)]
pub(super) struct Pages {
    source: Arc<RolledBack>,
    page_bytes: usize,
    usable_bytes: usize,
    /// How many the file has; the last may be cut off.
    pub(super) count: u32,
}

impl Pages {
    /// The pages of `source`, even if its header is damaged; `None` if nothing looks like a page.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn of(source: &Arc<RolledBack>) -> StorageResult<Option<Self>> {
        let mut header = [0; HEADER_BYTES];
        source.read(0, &mut header)?;
        let stated = match u16::from_be_bytes([header[16], header[17]]) {
            1 => 65_536,
            stated => usize::from(stated),
        };
        let reserved = usize::from(header[20]);
        let is_stated = header.starts_with(MAGIC) && PAGE_BYTES.contains(&stated) && reserved < 64;
        let (stated, reserved) = if is_stated { (stated, reserved) } else { (0, 0) };
        let mut best = None;
        // The header may be wrong about it.
        let sizes = std::iter::once(stated).chain(PAGE_BYTES.into_iter().filter(|size| *size != stated));
        for page_bytes in sizes.filter(|size| *size > 0) {
            let count = source.length().div_ceil(page_bytes as u64);
            let pages = Self {
                source: Arc::clone(source),
                page_bytes,
                usable_bytes: page_bytes - if page_bytes == stated { reserved } else { 0 },
                count: u32::try_from(count).unwrap_or(u32::MAX - 1),
            };
            let bytes = pages.bytes_that_look_right()?;
            if best.as_ref().is_none_or(|(most, _)| bytes > *most) {
                best = Some((bytes, pages));
            }
            if page_bytes == stated && bytes > 0 {
                break;
            }
        }
        Ok(best.filter(|(bytes, _)| *bytes > 0).map(|(_, pages)| pages))
    }

    /// Samples pages, and counts the bytes of those that are whole pages of tables.
    fn bytes_that_look_right(&self) -> StorageResult<u64> {
        let mut bytes = 0;
        let step = u64::from(self.count).div_ceil(TRIED_PAGES).max(1);
        let numbers = (1..=self.count).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        for number in numbers {
            let page = self.read(number)?;
            bytes += match self.content(number, &page) {
                // Rows are inserted from the end of the page, so a page of another size does not look right.
                Content::Leaf(cells, true) if cells.iter().any(|cell| cell.end() == self.usable_bytes) => {
                    self.page_bytes as u64
                }
                _ => 0,
            };
        }
        Ok(bytes)
    }

    /// Offset of a page, in bytes from the start of the file.
    pub(super) fn offset(&self, number: u32) -> u64 {
        u64::from(number.saturating_sub(1)) * self.page_bytes as u64
    }

    /// The bytes of a page; fewer where the file ends in it.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn read(&self, number: u32) -> StorageResult<Vec<u8>> {
        let mut page = vec![0; self.page_bytes];
        let available = self.source.read(self.offset(number), &mut page)?;
        page.truncate(available);
        Ok(page)
    }

    /// The content of a page.
    pub(super) fn content(&self, number: u32, page: &[u8]) -> Content {
        let header = if number == 1 { HEADER_BYTES } else { 0 };
        let kind = page.get(header).copied();
        let count = usize::from(short(page, header + 3));
        let pointers = header + if kind == Some(INTERIOR) { 12 } else { 8 };
        let fits = pointers + 2 * count <= self.usable_bytes;
        let offsets = (0..count).map(|place| usize::from(short(page, pointers + 2 * place)));
        match kind {
            Some(INTERIOR) if fits => {
                let right = self.is_page(long(page, header + 8));
                let children = offsets.map(|offset| {
                    let is_inside = offset + 4 <= self.usable_bytes;
                    is_inside.then(|| self.is_page(long(page, offset))).flatten()
                });
                let all: Vec<Option<u32>> = children.chain([right]).collect();
                let known: Vec<u32> = all.iter().flatten().copied().collect();
                let is_whole = known.len() == all.len();
                Content::Interior(known, is_whole)
            }
            Some(LEAF) if fits => {
                let cells: Vec<Cell> = offsets
                    .filter_map(|offset| self.cell(page, offset))
                    .filter(|cell| cell.offset >= pointers + 2 * count)
                    .collect();
                let is_ascending = cells.windows(2).all(|pair| pair[0].id < pair[1].id);
                let is_whole = cells.len() == count && is_ascending;
                Content::Leaf(cells, is_whole)
            }
            _ => Content::Other,
        }
    }

    fn is_page(&self, number: u32) -> Option<u32> {
        (number > 1).then_some(number)
    }

    /// The row at `offset` of a leaf; `None` if it is invalid.
    pub(super) fn cell(&self, page: &[u8], offset: usize) -> Option<Cell> {
        let page = page.get(..self.usable_bytes).unwrap_or(page);
        let mut at = offset;
        let record_bytes = usize::try_from(varint(page, &mut at)?).ok()?;
        let id = varint(page, &mut at)?;
        let usable = self.usable_bytes;
        let most = usable - 35;
        let local = if record_bytes <= most {
            record_bytes
        } else {
            let least = (usable - 12) * 32 / 255 - 23;
            let fitting = least + (record_bytes - least) % (usable - 4);
            if fitting <= most { fitting } else { least }
        };
        let end = at.checked_add(local)?;
        let overflow = match local < record_bytes {
            true => long(page.get(end..end + 4)?, 0),
            false => 0,
        };
        let is_possible =
            end <= page.len() && record_bytes as u64 <= u64::from(self.count) * self.page_bytes as u64;
        is_possible.then_some(Cell {
            offset,
            id,
            record_bytes,
            local: (at, end),
            overflow,
        })
    }

    /// The values of a row that are in its page; `None` for bytes that are not a row.
    pub(super) fn values_in_page<'a>(&self, page: &'a [u8], cell: &Cell) -> Option<Vec<Value<'a>>> {
        values(page.get(cell.local.0..cell.local.1)?, cell.record_bytes)
    }

    /// The whole record of a row.
    ///
    /// # Errors
    /// A part of it is damaged.
    pub(super) fn record(&self, path: &Path, page: &[u8], cell: &Cell) -> StorageResult<Vec<u8>> {
        let mut record = reserve(path, "a message", cell.record_bytes as u64)?;
        record.extend_from_slice(page.get(cell.local.0..cell.local.1).unwrap_or_default());
        let mut next = cell.overflow;
        while record.len() < cell.record_bytes {
            let Some(number) = self.is_page(next).filter(|number| *number <= self.count) else {
                return Err(StorageError::Malformed {
                    path: path.to_owned(),
                    offset: self.offset(next),
                    expected: format!("the rest of the row {}", cell.id),
                    found: format!("{} of its {} bytes", record.len(), cell.record_bytes),
                });
            };
            let page = self.read(number)?;
            next = long(&page, 0);
            let count = (cell.record_bytes - record.len()).min(self.usable_bytes - 4);
            let Some(part) = page.get(4..4 + count) else {
                next = 0;
                continue;
            };
            record.extend_from_slice(part);
        }
        Ok(record)
    }

    /// The pages that no table or index uses, as the header and its lists have them.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn free(&self) -> StorageResult<Vec<u32>> {
        let mut free = Vec::new();
        let mut trunk = long(&self.read(1)?, 32);
        let mut trunks_left = self.count;
        while let Some(number) = self.is_page(trunk).filter(|number| *number <= self.count) {
            let page = self.read(number)?;
            let count = usize::try_from(long(&page, 4)).unwrap_or(usize::MAX);
            free.push(number);
            free.extend((0..count.min(self.usable_bytes / 4 - 2)).map(|place| long(&page, 8 + 4 * place)));
            trunk = long(&page, 0);
            trunks_left -= 1;
            if trunks_left == 0 || count > self.usable_bytes / 4 {
                break;
            }
        }
        Ok(free)
    }
}

/// The values of a record of `record_bytes` that begins with `given`; `None` for bytes that are not a record.
pub(super) fn values(given: &[u8], record_bytes: usize) -> Option<Vec<Value<'_>>> {
    let mut at = 0;
    let header_end = usize::try_from(varint(given, &mut at)?).ok()?;
    if header_end > given.len() {
        return None;
    }
    let mut values = Vec::new();
    let mut from = header_end;
    while at < header_end {
        let kind = varint(given, &mut at)?;
        let bytes = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            12.. => usize::try_from((kind - 12) / 2).ok()?,
            _ => return None,
        };
        let end = from.checked_add(bytes).filter(|end| *end <= record_bytes)?;
        values.push(match (kind, given.get(from..end)) {
            (0, _) => Value::Null,
            (8 | 9, _) => Value::Integer(kind - 8),
            (12.., None) => Value::Elsewhere {
                is_text: kind % 2 == 1,
            },
            (_, None) => return None,
            (1..=6, Some(bytes)) => Value::Integer(integer(bytes)),
            (7, Some(bytes)) => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            (_, Some(bytes)) if kind % 2 == 0 => Value::Blob(bytes),
            (_, Some(bytes)) => Value::Text(bytes),
        });
        from = end;
        if values.len() > COLUMNS_MAX {
            return None;
        }
    }
    (at == header_end && from == record_bytes && !values.is_empty()).then_some(values)
}

fn integer(bytes: &[u8]) -> i64 {
    let first = bytes.first().map_or(0, |byte| i64::from(byte.cast_signed()));
    bytes
        .iter()
        .skip(1)
        .fold(first, |value, byte| (value << 8) | i64::from(*byte))
}

fn short(page: &[u8], at: usize) -> u16 {
    let bytes = page.get(at..).and_then(|rest| rest.first_chunk().copied());
    bytes.map_or(0, u16::from_be_bytes)
}

fn long(page: &[u8], at: usize) -> u32 {
    let bytes = page.get(at..).and_then(|rest| rest.first_chunk().copied());
    bytes.map_or(0, u32::from_be_bytes)
}

/// A number of one to nine bytes.
fn varint(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let (value, count) = super::build::varint(bytes.get(*at..)?)?;
    *at += count;
    Some(value.cast_signed())
}
