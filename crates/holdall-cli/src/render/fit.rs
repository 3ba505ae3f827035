//! A table that fits the terminal: columns that matter less are left out, and long names shortened, before a row wraps.

use super::TABLE_STYLE;
use crate::units::plural;
use comfy_table::{CellAlignment, Table};
use console::measure_text_width;

/// Cells that a table adds to each column, and to the whole.
const AROUND_COLUMN: usize = 3;
/// As above.
const AROUND_TABLE: usize = 1;

/// A name is not made shorter than this while another column can be left out.
const NAME_CELLS_MIN: usize = 16;

/// A column: its name, when it is left out, and its cells.
pub struct Column {
    /// Shown in the header.
    pub name: String,
    /// 1 always stays; of the others, the one with the highest rank is left out first.
    pub rank: u8,
    /// Whether the cells are numbers.
    pub is_number: bool,
    /// One for each row.
    pub cells: Vec<String>,
}

impl Column {
    /// A column of names.
    pub fn of_text(rank: u8, name: &str, cells: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            rank,
            is_number: false,
            cells,
        }
    }

    /// A column of numbers.
    pub fn of_numbers(rank: u8, name: &str, cells: Vec<String>) -> Self {
        Self {
            is_number: true,
            ..Self::of_text(rank, name, cells)
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| measure_text_width(cell));
        cells.chain([measure_text_width(&self.name)]).max().unwrap_or(0)
    }
}

/// The table for a terminal of this width; `None` (no terminal) has all columns. A last line names the columns that were left out.
pub fn table(mut columns: Vec<Column>, width: Option<usize>) -> String {
    let mut left_out = Vec::new();
    if let Some(width) = width {
        // The last cell of a row stays empty: terminals differ in what they do after it.
        let room = width.saturating_sub(1);
        while let Some(worst) = widest_row(&columns, room) {
            left_out.push(columns.remove(worst).name);
        }
        shorten_names(&mut columns, room);
    }
    let mut text = drawn(&columns, width);
    if !left_out.is_empty() {
        text.push('\n');
        text.push_str(&left_out_line(&left_out, width.unwrap_or(usize::MAX)));
    }
    text
}

/// The column to be left out next, when the table is too wide with names at their shortest.
fn widest_row(columns: &[Column], room: usize) -> Option<usize> {
    let needed: usize = columns
        .iter()
        .map(|column| match column.is_number {
            true => column.width(),
            false => column.width().min(NAME_CELLS_MIN),
        })
        .sum();
    let is_too_wide = needed + AROUND_COLUMN * columns.len() + AROUND_TABLE > room;
    let worst = (0..columns.len()).max_by_key(|at| (columns[*at].rank, *at))?;
    (is_too_wide && columns[worst].rank > 1).then_some(worst)
}

/// Shortens the longest names, at their beginning: the end distinguishes `/robot/left/camera` from `/robot/right/camera`
/// more often.
fn shorten_names(columns: &mut [Column], room: usize) {
    let total = |columns: &[Column]| {
        let widths: usize = columns.iter().map(Column::width).sum();
        widths + AROUND_COLUMN * columns.len() + AROUND_TABLE
    };
    loop {
        let excess = total(columns).saturating_sub(room);
        let longest = columns
            .iter_mut()
            .filter(|column| !column.is_number && column.width() > measure_text_width(&column.name).max(2))
            .max_by_key(|column| column.width());
        let (1.., Some(column)) = (excess, longest) else {
            return;
        };
        // In steps, so that several long columns become equally long.
        let to = column.width() - excess.min(4).min(column.width() - 2);
        for cell in &mut column.cells {
            *cell = end_of(cell, to);
        }
    }
}

/// `…ra/image_raw`: the last cells of a text.
pub fn end_of(text: &str, cells_max: usize) -> String {
    if measure_text_width(text) <= cells_max {
        return text.to_owned();
    }
    let mut end = String::new();
    for c in text.trim_start_matches('…').chars().rev() {
        if measure_text_width(&end) + measure_text_width(c.encode_utf8(&mut [0; 4])) >= cells_max {
            break;
        }
        end.insert(0, c);
    }
    format!("…{end}")
}

fn drawn(columns: &[Column], width: Option<usize>) -> String {
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    table.set_header(columns.iter().map(|column| column.name.as_str()));
    let rows = columns.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        table.add_row(columns.iter().map(|column| column.cells[row].as_str()));
    }
    for (at, _) in columns.iter().enumerate().filter(|(_, column)| column.is_number) {
        if let Some(column) = table.column_mut(at) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    match width {
        None => lines.collect::<Vec<_>>().join("\n"),
        // Lines that are still too wide have numbers only; cutting a row is better than wrapping it.
        Some(width) => lines
            .map(|line| console::truncate_str(&line, width.saturating_sub(1), "…").into_owned())
            .collect::<Vec<_>>()
            .join("\n"),
    }
}

fn left_out_line(names: &[String], width: usize) -> String {
    let all = format!("  no room for: {}; --json has all", names.join(", "));
    if measure_text_width(&all) < width {
        return all;
    }
    format!("  no room for {}", plural(names.len() as u64, "column"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(name: &str) -> Vec<Column> {
        let two = |text: &str| vec![text.to_owned(), "1".to_owned()];
        vec![
            Column::of_text(1, "Topic", vec![name.to_owned(), "/tf".to_owned()]),
            Column::of_text(6, "Type", two("sensor_msgs/msg/PointCloud2")),
            Column::of_numbers(5, "Publishers", two("12")),
            Column::of_numbers(3, "Received", two("123456789")),
            Column::of_numbers(1, "Recorded", two("123456789")),
            Column::of_numbers(2, "Size", two("117.7 MiB")),
            Column::of_numbers(1, "Lost", two("8888888")),
            Column::of_numbers(4, "transport loss", two("8888888")),
        ]
    }

    #[test]
    fn no_row_wraps_at_any_width() {
        for name in [
            "/scan",
            "/robots/warehouse_7/sensors/front_left/camera/image_raw/compressed",
        ] {
            for width in 30..250 {
                let text = table(columns(name), Some(width));
                for line in text.lines() {
                    assert!(measure_text_width(line) < width, "{width}: {line}");
                }
                assert!(
                    text.contains("Recorded") && text.contains("Lost"),
                    "{width}:\n{text}"
                );
                assert!(
                    text.contains("123456789") && text.contains("8888888"),
                    "{width}:\n{text}"
                );
            }
        }
    }

    #[test]
    fn columns_are_left_out_by_rank_and_named() {
        let name = "/robots/warehouse_7/sensors/front_left/camera/image_raw/compressed";
        let at = |width| table(columns(name), Some(width));
        insta::assert_snapshot!([40, 80, 120, 200].map(at).join("\n\n"));
    }

    #[test]
    fn without_a_terminal_everything_is_shown() {
        let name = "/x".repeat(200);
        let text = table(columns(&name), None);
        assert!(text.contains(&name) && text.contains("transport loss") && !text.contains("no room"));
        // A terminal that has the room shows the same.
        assert_eq!(table(columns("/scan"), Some(200)), table(columns("/scan"), None));
    }

    #[test]
    fn names_keep_their_ends() {
        assert_eq!(end_of("/a/b/camera", 8), "…/camera");
        assert_eq!(end_of("…/camera", 5), "…mera");
        assert_eq!(end_of("/tf", 8), "/tf");
        assert_eq!(measure_text_width(&end_of("/日本日本日本", 6)), 5);
    }
}
