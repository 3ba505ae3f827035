//! A table of results, for the terminal and for the page: on a terminal it is divided where it would wrap.

use comfy_table::{CellAlignment, LineStyle, Table, TableStyle};
use serde::{Deserialize, Serialize};

/// A table to be drawn as text or HTML: the first columns are words, the others figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sheet {
    /// Its title.
    pub title: String,
    /// Names of the columns.
    pub header: Vec<String>,
    /// Number of columns that are words.
    pub words: usize,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
}

/// A column: its name, and the text of its cells.
pub type Column<T> = (&'static str, fn(&T) -> String);

/// An empty cell.
pub const DASH: &str = "–";

impl Sheet {
    /// A row for each of `rows`.
    pub fn of<'t, T: 't>(
        title: &str,
        words: usize,
        columns: &[Column<T>],
        rows: impl IntoIterator<Item = &'t T>,
    ) -> Self {
        let cells = |row| columns.iter().map(|(_, cell)| cell(row)).collect();
        Self {
            title: title.to_owned(),
            header: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            words,
            rows: rows.into_iter().map(cells).collect(),
        }
    }

    /// The same without columns that are empty in all rows.
    pub fn without_empty(mut self) -> Self {
        for column in (self.words..self.header.len()).rev() {
            if self.rows.iter().all(|row| row[column] == DASH) {
                self.header.remove(column);
                self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
            }
        }
        self
    }

    /// The table as text: when it is wider than a terminal, its figures are divided over several tables, each
    /// with the words that name the rows.
    pub fn text(&self) -> String {
        let numbered: Vec<String> = (1..=self.rows.len()).map(|row| row.to_string()).collect();
        let name_cells = (0..self.words)
            .map(|column| self.width(column) + PADDING)
            .sum::<usize>();
        // Long names are written once, with numbers that stand for them in the other tables.
        let is_numbered = name_cells > NAME_CELLS_MAX;
        let mut blocks: Vec<Vec<usize>> = vec![Vec::new()];
        let mut cells = name_cells + 1;
        let numbers = numbered.last().map_or(0, String::len) + PADDING + 1;
        for column in self.words..self.header.len() {
            let width = self.width(column) + PADDING;
            let last = blocks.len() - 1;
            if cells + width > TABLE_CELLS_MAX && !(blocks[last].is_empty() && last > 0) {
                blocks.push(Vec::new());
                cells = if is_numbered { numbers } else { name_cells + 1 };
            }
            cells += width;
            let last = blocks.len() - 1;
            blocks[last].push(column);
        }
        let has_numbers = is_numbered && blocks.len() > 1;
        let drawn = blocks.iter().enumerate().map(|(number, figures)| {
            let words = if has_numbers && number > 0 { 0 } else { self.words };
            let columns: Vec<usize> = (0..words).chain(figures.iter().copied()).collect();
            let pick = |number: &str, row: &[String]| {
                let number = has_numbers.then(|| number.to_owned());
                let cells = columns.iter().map(|column| row[*column].clone());
                number.into_iter().chain(cells).collect::<Vec<_>>()
            };
            let rows = numbered
                .iter()
                .zip(&self.rows)
                .map(|(number, row)| pick(number, row));
            drawn(&pick("", &self.header), rows, words + usize::from(has_numbers))
        });
        drawn.collect::<Vec<_>>().join("\n\n")
    }

    /// The table as text in one piece, however wide it is.
    pub fn undivided(&self) -> String {
        drawn(&self.header, self.rows.iter().cloned(), self.words)
    }

    /// Cells of the widest text of a column.
    pub fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([self.header[column].chars().count()])
            .max()
            .unwrap_or(0)
    }
}

/// Cells that a terminal has at least when it shows a table.
const TABLE_CELLS_MAX: usize = 120;

/// Words that name a row are repeated in each table up to this width.
const NAME_CELLS_MAX: usize = 60;

/// Cells between two columns.
const PADDING: usize = 3;

fn drawn(header: &[String], rows: impl Iterator<Item = Vec<String>>, words: usize) -> String {
    let mut table = Table::new();
    // A line below the header and no other lines.
    table.load_style(TableStyle::new().header_separator(LineStyle::new('─', '─', '─', '─')));
    table.set_header(header);
    rows.for_each(|row| {
        table.add_row(row);
    });
    for column in table.column_iter_mut().skip(words) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n")
}
