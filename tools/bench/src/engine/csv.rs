//! Rows below a header, as CSV.

use std::fmt::Display;

/// A table that grows.
pub(crate) struct Csv(csv::Writer<Vec<u8>>);

impl Csv {
    /// A table with these columns.
    pub(crate) fn of<T: AsRef<[u8]>>(columns: impl IntoIterator<Item = T>) -> Self {
        let mut table = Self(csv::Writer::from_writer(Vec::new()));
        table.cells(columns);
        table
    }

    /// Adds a row of as many cells as there are columns.
    pub(crate) fn row(&mut self, cells: &[&dyn Display]) {
        self.cells(cells.iter().map(ToString::to_string));
    }

    /// The same from texts.
    pub(crate) fn cells<T: AsRef<[u8]>>(&mut self, cells: impl IntoIterator<Item = T>) {
        // Writing into memory does not fail, and all rows have the header's length.
        let _never_fails = self.0.write_record(cells).is_ok();
    }

    /// The whole table.
    pub(crate) fn text(self) -> String {
        String::from_utf8(self.0.into_inner().unwrap_or_default()).unwrap_or_default()
    }
}
