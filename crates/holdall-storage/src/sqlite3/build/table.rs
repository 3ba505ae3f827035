//! A table whose rows are only appended: full pages are final, and a commit writes the right edge of the tree.

use super::{
    cell::{
        INTERIOR_HEAD_BYTES, LEAF_HEAD_BYTES, NUMBER_BYTES, POINTER_BYTES, TABLE_INTERIOR, TABLE_LEAF,
        local_bytes, number, put_number, put_short, put_varint, short, varint, varint_bytes,
    },
    output::{Chain, Numbers, Output},
};
use crate::error::StorageResult;
use holdall_model::message::PayloadRef;

/// The last leaf, to which rows are appended.
#[derive(Debug)]
struct Leaf {
    /// `None` until a commit: no page refers to it.
    number: Option<u32>,
    page: Vec<u8>,
    cells: usize,
    /// Where the content of its cells begins.
    content: usize,
    is_changed: bool,
}

impl Leaf {
    fn of(number: u32, page: Vec<u8>) -> Self {
        let content = match short(&page, 5) {
            0 => 65_536,
            content => content,
        };
        Self {
            number: Some(number),
            cells: short(&page, 3),
            content,
            page,
            is_changed: false,
        }
    }

    fn pointers_end(&self) -> usize {
        LEAF_HEAD_BYTES + self.cells * POINTER_BYTES
    }

    fn has_room(&self, cell_bytes: usize) -> bool {
        self.pointers_end() + POINTER_BYTES + cell_bytes <= self.content
    }

    /// The place for the next cell.
    fn add(&mut self, cell_bytes: usize) -> &mut [u8] {
        let pointer = self.pointers_end();
        let end = self.content;
        self.content -= cell_bytes;
        self.cells += 1;
        self.is_changed = true;
        put_short(&mut self.page, pointer, self.content);
        &mut self.page[self.content..end]
    }

    /// Its page, with a header.
    fn image(&mut self) -> &[u8] {
        self.page[0] = TABLE_LEAF;
        put_short(&mut self.page, 3, self.cells);
        put_short(&mut self.page, 5, self.content);
        &self.page
    }

    /// Becomes the next, empty leaf.
    fn clear(&mut self) {
        self.number = None;
        self.page.fill(0);
        self.cells = 0;
        self.content = self.page.len();
    }
}

/// The last page of a level above the leaves: children that are final, with their last rows. Its last child is the last page below.
#[derive(Debug)]
struct Level {
    number: u32,
    children: Vec<(u32, i64)>,
    bytes: usize,
    is_changed: bool,
}

fn child_bytes(row: i64) -> usize {
    POINTER_BYTES + NUMBER_BYTES + varint_bytes(row.cast_unsigned())
}

impl Level {
    fn new(number: u32, child: (u32, i64)) -> Self {
        Self {
            number,
            children: vec![child],
            bytes: INTERIOR_HEAD_BYTES + child_bytes(child.1),
            is_changed: true,
        }
    }

    /// Its children but the last, which is returned, too.
    fn of(number_: u32, page: &[u8]) -> Option<(Self, u32)> {
        let mut level = Self {
            number: number_,
            children: Vec::new(),
            bytes: INTERIOR_HEAD_BYTES,
            is_changed: false,
        };
        for cell in 0..short(page, 3) {
            let at = short(page, INTERIOR_HEAD_BYTES + cell * POINTER_BYTES);
            let (row, _) = varint(page.get(at + NUMBER_BYTES..)?)?;
            let child = (number(page, at), row.cast_signed());
            level.bytes += child_bytes(child.1);
            level.children.push(child);
        }
        Some((level, number(page, 8)))
    }

    fn image(&self, page_bytes: usize, last_child: u32) -> Vec<u8> {
        let mut page = vec![0; page_bytes];
        let (mut content, mut cell) = (page_bytes, Vec::new());
        for (place, (child, row)) in self.children.iter().enumerate() {
            cell.clear();
            cell.extend_from_slice(&child.to_be_bytes());
            put_varint(&mut cell, row.cast_unsigned());
            content -= cell.len();
            page[content..content + cell.len()].copy_from_slice(&cell);
            put_short(&mut page, INTERIOR_HEAD_BYTES + place * POINTER_BYTES, content);
        }
        page[0] = TABLE_INTERIOR;
        put_short(&mut page, 3, self.children.len());
        put_short(&mut page, 5, content);
        put_number(&mut page, 8, last_child);
        page
    }
}

/// One table.
#[derive(Debug)]
pub(super) struct Table {
    root: u32,
    leaf: Leaf,
    /// From the parents of leaves to the root; none while the root is a leaf.
    levels: Vec<Level>,
    /// The last row's id; 0 without rows.
    pub(super) last_row: i64,
    /// A row that is being appended, up to its payload.
    scratch: Vec<u8>,
}

impl Table {
    /// Reads the right edge of a table; `None` if it is not as expected.
    pub(super) fn open(numbers: &Numbers, out: &mut Output<'_>, root: u32) -> StorageResult<Option<Self>> {
        let (mut number, mut levels) = (root, Vec::new());
        // A tree of more levels would have more pages than can be numbered.
        for _ in 0..32 {
            let page = out.read(numbers, number)?;
            match page[0] {
                TABLE_INTERIOR => {
                    let Some((level, last_child)) = Level::of(number, &page) else {
                        return Ok(None);
                    };
                    levels.insert(0, level);
                    number = last_child;
                }
                TABLE_LEAF => {
                    let leaf = Leaf::of(number, page);
                    let last = leaf.cells.checked_sub(1).map(|last| {
                        let at = short(&leaf.page, LEAF_HEAD_BYTES + last * POINTER_BYTES);
                        let (_, skip) = varint(leaf.page.get(at..)?)?;
                        varint(leaf.page.get(at + skip..)?)
                    });
                    let last_row = match last {
                        None => 0,
                        Some(Some((row, _))) => row.cast_signed(),
                        Some(None) => return Ok(None),
                    };
                    return Ok(Some(Self {
                        root,
                        leaf,
                        levels,
                        last_row,
                        scratch: Vec::new(),
                    }));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Appends a row: `record` and, after it, the payload.
    pub(super) fn append(
        &mut self,
        numbers: &mut Numbers,
        out: &mut Output<'_>,
        row: i64,
        record: &[u8],
        payload: PayloadRef<'_>,
    ) -> StorageResult<()> {
        let whole = record.len() + payload.len();
        let local = local_bytes(whole, numbers.page_bytes);
        let mut head = std::mem::take(&mut self.scratch);
        head.clear();
        put_varint(&mut head, whole as u64);
        put_varint(&mut head, row.cast_unsigned());
        let overflow_bytes = if local < whole { NUMBER_BYTES } else { 0 };
        let cell_bytes = head.len() + local + overflow_bytes;
        if !self.leaf.has_room(cell_bytes) {
            self.end_leaf(numbers, out)?;
        }
        let cell = self.leaf.add(cell_bytes);
        cell[..head.len()].copy_from_slice(&head);
        if local < whole {
            put_number(cell, cell_bytes - NUMBER_BYTES, numbers.peek());
        }
        let mut at = head.len();
        let local_end = head.len() + local;
        let mut chain = Chain::new(whole - local);
        let mut written = Ok(());
        let mut write = |mut bytes: &[u8]| {
            if at < local_end {
                let count = bytes.len().min(local_end - at);
                let (now, later) = bytes.split_at(count);
                cell[at..at + count].copy_from_slice(now);
                at += count;
                bytes = later;
            }
            if written.is_ok() {
                written = chain.write(numbers, out, bytes);
            }
        };
        write(record);
        payload.for_each_slice(write);
        self.scratch = head;
        self.last_row = row;
        Ok(written?)
    }

    /// Puts the full leaf, and begins the next.
    fn end_leaf(&mut self, numbers: &mut Numbers, out: &mut Output<'_>) -> StorageResult<()> {
        let own = self.leaf.number.filter(|number| *number != self.root);
        let number = own.unwrap_or_else(|| numbers.allocate());
        out.put(numbers, number, self.leaf.image())?;
        self.leaf.clear();
        let child = (number, self.last_row);
        if self.levels.is_empty() {
            self.levels.push(Level::new(self.root, child));
            return Ok(());
        }
        self.add_child(numbers, out, child)
    }

    /// Adds a final page to the lowest level, and final pages of full levels to the next.
    fn add_child(
        &mut self,
        numbers: &mut Numbers,
        out: &mut Output<'_>,
        mut child: (u32, i64),
    ) -> StorageResult<()> {
        for place in 0.. {
            let is_root = place + 1 == self.levels.len();
            let level = &mut self.levels[place];
            level.is_changed = true;
            let bytes = child_bytes(child.1);
            if level.bytes + bytes <= numbers.page_bytes {
                level.bytes += bytes;
                level.children.push(child);
                break;
            }
            // The next page of the level begins with the new child: a page without any would be damage.
            let Some((last_child, last_row)) = level.children.pop() else {
                break;
            };
            let image = level.image(numbers.page_bytes, last_child);
            let number = if is_root { numbers.allocate() } else { level.number };
            let next = Level::new(numbers.allocate(), child);
            *level = next;
            out.put(numbers, number, &image)?;
            child = (number, last_row);
            if is_root {
                self.levels.push(Level::new(self.root, child));
                break;
            }
        }
        Ok(())
    }

    /// Calls `put` with the pages of the right edge that have changed since the last call.
    pub(super) fn edge(&mut self, numbers: &mut Numbers, mut put: impl FnMut(u32, Vec<u8>)) {
        let mut below = match self.leaf.number {
            Some(number) => number,
            None => numbers.allocate(),
        };
        self.leaf.number = Some(below);
        if std::mem::take(&mut self.leaf.is_changed) {
            put(below, self.leaf.image().to_vec());
        }
        for level in &mut self.levels {
            if std::mem::take(&mut level.is_changed) {
                put(level.number, level.image(numbers.page_bytes, below));
            }
            below = level.number;
        }
    }
}
