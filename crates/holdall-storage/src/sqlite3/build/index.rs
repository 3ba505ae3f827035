//! The index by time: keys arrive nearly in order, so most are appended at its right edge; one that comes late is inserted where it belongs.

use super::{
    cell::{
        INDEX_INTERIOR, INDEX_LEAF, INTERIOR_HEAD_BYTES, Key, LEAF_HEAD_BYTES, NUMBER_BYTES, POINTER_BYTES,
        number, put_number, put_short, short,
    },
    output::{Numbers, Output},
};
use crate::error::StorageResult;
use std::collections::{HashMap, hash_map::Entry};

/// A page.
#[derive(Debug)]
struct Node {
    keys: Vec<Key>,
    /// One more than keys; none in a leaf.
    children: Vec<u32>,
    bytes: usize,
    is_changed: bool,
}

impl Node {
    fn new(keys: Vec<Key>, children: Vec<u32>) -> Self {
        let is_leaf = children.is_empty();
        let head = if is_leaf {
            LEAF_HEAD_BYTES
        } else {
            INTERIOR_HEAD_BYTES
        };
        let bytes = keys.iter().map(|key| key_bytes(*key, is_leaf)).sum::<usize>() + head;
        Self {
            keys,
            children,
            bytes,
            is_changed: true,
        }
    }

    fn is_leaf(&self) -> bool {
        self.children.is_empty()
    }

    /// `None` if it is not a page of this index.
    fn of(page: &[u8]) -> Option<Self> {
        let child_bytes = match page[0] {
            INDEX_LEAF => 0,
            INDEX_INTERIOR => NUMBER_BYTES,
            _ => return None,
        };
        let head = if child_bytes == 0 {
            LEAF_HEAD_BYTES
        } else {
            INTERIOR_HEAD_BYTES
        };
        let (mut keys, mut children) = (Vec::new(), Vec::new());
        for cell in 0..short(page, 3) {
            let at = short(page, head + cell * POINTER_BYTES);
            if child_bytes > 0 {
                children.push(number(page, at));
            }
            keys.push(Key::of(page.get(at + child_bytes..)?)?);
        }
        if child_bytes > 0 {
            children.push(number(page, 8));
        }
        let mut node = Self::new(keys, children);
        node.is_changed = false;
        Some(node)
    }

    fn image(&self, page_bytes: usize) -> Vec<u8> {
        let mut page = vec![0; page_bytes];
        let (mut content, mut cell) = (page_bytes, Vec::new());
        let head = if self.is_leaf() {
            LEAF_HEAD_BYTES
        } else {
            INTERIOR_HEAD_BYTES
        };
        for (place, key) in self.keys.iter().enumerate() {
            cell.clear();
            if let Some(child) = self.children.get(place) {
                cell.extend_from_slice(&child.to_be_bytes());
            }
            key.put(&mut cell);
            content -= cell.len();
            page[content..content + cell.len()].copy_from_slice(&cell);
            put_short(&mut page, head + place * POINTER_BYTES, content);
        }
        page[0] = if self.is_leaf() {
            INDEX_LEAF
        } else {
            INDEX_INTERIOR
        };
        put_short(&mut page, 3, self.keys.len());
        put_short(&mut page, 5, content);
        if let Some(last) = self.children.last() {
            put_number(&mut page, 8, *last);
        }
        page
    }

    fn insert(&mut self, at: usize, key: Key, right: Option<u32>) {
        self.bytes += key_bytes(key, self.is_leaf());
        self.keys.insert(at, key);
        if let Some(right) = right {
            self.children.insert(at + 1, right);
        }
        self.is_changed = true;
    }

    /// Keeps the keys before `at`; returns that one, and a node of those after it.
    fn split(&mut self, at: usize) -> (Key, Self) {
        let is_leaf = self.is_leaf();
        let keys = self.keys.split_off(at + 1);
        let children = if is_leaf {
            Vec::new()
        } else {
            self.children.split_off(at + 1)
        };
        let separator = self.keys.remove(at);
        let right = Self::new(keys, children);
        let (kept, children) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.children));
        *self = Self::new(kept, children);
        (separator, right)
    }
}

/// A key's cell with its pointer, and with its child in an interior page.
fn key_bytes(key: Key, is_leaf: bool) -> usize {
    POINTER_BYTES + key.cell_bytes() + if is_leaf { 0 } else { NUMBER_BYTES }
}

/// The index.
#[derive(Debug)]
pub(super) struct Index {
    root: u32,
    /// Pages by number: those of the right edge, and those that changed since the last commit or were read.
    nodes: HashMap<u32, Node>,
    /// The pages from the root to the last leaf.
    edge: Vec<u32>,
    last: Option<Key>,
}

impl Index {
    /// Reads the right edge; `None` if it is not as expected.
    pub(super) fn open(numbers: &Numbers, out: &mut Output<'_>, root: u32) -> StorageResult<Option<Self>> {
        let mut index = Self {
            root,
            nodes: HashMap::new(),
            edge: Vec::new(),
            last: None,
        };
        Ok(index.find_edge(numbers, out)?.then_some(index))
    }

    /// Loads the pages of the right edge; false if one is not of an index.
    fn find_edge(&mut self, numbers: &Numbers, out: &mut Output<'_>) -> StorageResult<bool> {
        self.edge.clear();
        let mut next = Some(self.root);
        while let Some(number) = next {
            if !self.load(numbers, out, number)? || self.edge.len() > 32 {
                return Ok(false);
            }
            self.edge.push(number);
            let node = &self.nodes[&number];
            next = node.children.last().copied();
            self.last = node.keys.last().copied();
        }
        Ok(true)
    }

    fn load(&mut self, numbers: &Numbers, out: &mut Output<'_>, number: u32) -> StorageResult<bool> {
        if let Entry::Vacant(place) = self.nodes.entry(number) {
            let Some(node) = Node::of(&out.read(numbers, number)?) else {
                return Ok(false);
            };
            place.insert(node);
        }
        Ok(true)
    }

    /// Whether a time comes before others that the index has: its key changes pages that are not at the right edge.
    pub(super) fn is_late(&self, timestamp: i64) -> bool {
        self.last.is_some_and(|last| timestamp < last.timestamp)
    }

    /// How many pages are kept in memory until the next commit.
    pub(super) fn pages(&self) -> usize {
        self.nodes.len()
    }

    /// Inserts a key. False if a page on its way is not of an index: then nothing is changed.
    pub(super) fn insert(
        &mut self,
        numbers: &mut Numbers,
        out: &mut Output<'_>,
        key: Key,
    ) -> StorageResult<bool> {
        if self.last.is_none_or(|last| key > last) {
            self.append(numbers, out, key)?;
            return Ok(true);
        }
        // The pages from the root to the leaf, and which child leads on in each.
        let (mut path, mut next) = (Vec::new(), Some(self.root));
        while let Some(number) = next {
            if !self.load(numbers, out, number)? || path.len() > 32 {
                return Ok(false);
            }
            let node = &self.nodes[&number];
            let at = node.keys.partition_point(|other| *other < key);
            path.push((number, at));
            next = node.children.get(at).copied();
        }
        let (mut key, mut right) = (key, None);
        while let Some((number, at)) = path.pop() {
            let Some(node) = self.nodes.get_mut(&number) else {
                return Ok(false);
            };
            node.insert(at, key, right);
            if node.bytes <= numbers.page_bytes {
                break;
            }
            let middle = node.keys.len() / 2;
            let (separator, other) = node.split(middle);
            if number == self.root {
                self.deepen(numbers, separator, other);
                break;
            }
            let new = numbers.allocate();
            self.nodes.insert(new, other);
            (key, right) = (separator, Some(new));
        }
        self.find_edge(numbers, out)
    }

    /// Appends the largest key. A full page is final, and put.
    fn append(&mut self, numbers: &mut Numbers, out: &mut Output<'_>, key: Key) -> StorageResult<()> {
        self.last = Some(key);
        let (mut key, mut right) = (key, None);
        for depth in (0..self.edge.len()).rev() {
            let number = self.edge[depth];
            let Some(node) = self.nodes.get_mut(&number) else {
                break;
            };
            if node.bytes + key_bytes(key, node.is_leaf()) <= numbers.page_bytes {
                node.insert(node.keys.len(), key, right);
                break;
            }
            // The last key goes up, and the next page begins with the new one: no page is ever without any.
            node.insert(node.keys.len(), key, right);
            let (separator, other) = node.split(node.keys.len() - 2);
            if depth == 0 {
                self.deepen(numbers, separator, other);
                self.find_edge(numbers, out)?;
                break;
            }
            let new = numbers.allocate();
            if let Some(full) = self.nodes.remove(&number) {
                out.put(numbers, number, &full.image(numbers.page_bytes))?;
            }
            self.nodes.insert(new, other);
            self.edge[depth] = new;
            (key, right) = (separator, Some(new));
        }
        Ok(())
    }

    /// The root keeps its number: what it had goes to two new pages.
    fn deepen(&mut self, numbers: &mut Numbers, separator: Key, other: Node) {
        let (left, right) = (numbers.allocate(), numbers.allocate());
        let root = Node::new(vec![separator], vec![left, right]);
        if let Some(mut before) = self.nodes.insert(self.root, root) {
            before.is_changed = true;
            self.nodes.insert(left, before);
        }
        self.nodes.insert(right, other);
    }

    /// Calls `put` with the pages that have changed since the last call, and forgets those that are not at the right edge.
    pub(super) fn changed(&mut self, numbers: &Numbers, mut put: impl FnMut(u32, Vec<u8>)) {
        for (number, node) in &mut self.nodes {
            if std::mem::take(&mut node.is_changed) {
                put(*number, node.image(numbers.page_bytes));
            }
        }
        let edge = &self.edge;
        self.nodes.retain(|number, _| edge.contains(number));
    }
}
