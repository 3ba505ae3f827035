//! One line of text that fits the terminal: parts that matter less are left out, and bars shrink, before a number is cut.

use console::measure_text_width;

/// Cells between two parts.
const GAP: &str = "  ";

/// A bar shorter than this shows nothing useful.
const BAR_CELLS_MIN: usize = 6;

/// A part that may be omitted.
struct Part {
    /// 1 is omitted last.
    rank: u8,
    text: String,
}

/// Text that fills the remaining cells, between two parts.
struct Stretch<'a> {
    /// Its place among the parts.
    at: usize,
    cells_max: usize,
    draw: Box<dyn Fn(usize) -> String + 'a>,
}

/// A line under construction.
pub struct Line<'a> {
    cells: usize,
    parts: Vec<Part>,
    stretch: Option<Stretch<'a>>,
}

impl<'a> Line<'a> {
    /// An empty line for a terminal of this width; its last cell stays empty.
    pub fn new(columns: usize) -> Self {
        Self {
            cells: columns.saturating_sub(1),
            parts: Vec::new(),
            stretch: None,
        }
    }

    /// A part; of those that do not fit, the one of the highest rank is omitted first, and the last one of
    /// equals. Rank 1 always stays.
    pub fn part(mut self, rank: u8, text: &str) -> Self {
        if !text.is_empty() {
            self.parts.push(Part {
                rank,
                text: text.to_owned(),
            });
        }
        self
    }

    /// A bar that is drawn with the remaining cells, up to `cells_max`; it is omitted before any part.
    pub fn stretch(mut self, cells_max: usize, draw: impl Fn(usize) -> String + 'a) -> Self {
        self.stretch = Some(Stretch {
            at: self.parts.len(),
            cells_max,
            draw: Box::new(draw),
        });
        self
    }

    /// Cells of the parts so far.
    pub fn width(&self) -> usize {
        let gaps = GAP.len() * self.parts.len().saturating_sub(1);
        self.parts
            .iter()
            .map(|part| measure_text_width(&part.text))
            .sum::<usize>()
            + gaps
    }

    /// The line.
    pub fn text(mut self) -> String {
        while self.width() > self.cells {
            let worst = (0..self.parts.len())
                .rev()
                .max_by_key(|at| (self.parts[*at].rank, *at));
            let Some(worst) = worst.filter(|at| self.parts[*at].rank > 1) else {
                break;
            };
            self.parts.remove(worst);
            if let Some(stretch) = &mut self.stretch
                && stretch.at > worst
            {
                stretch.at -= 1;
            }
        }
        let left = self.cells.saturating_sub(self.width() + GAP.len());
        let mut texts: Vec<String> = self.parts.iter().map(|part| part.text.clone()).collect();
        if let Some(stretch) = &self.stretch
            && left >= BAR_CELLS_MIN
        {
            texts.insert(stretch.at, (stretch.draw)(left.min(stretch.cells_max)));
        }
        texts.join(GAP)
    }
}

/// `▕███░░░▏`: a share of 1 as a bar with this many cells.
pub fn bar(share: f64, cells: usize) -> String {
    let inside = cells.saturating_sub(2);
    let full = ((share.clamp(0.0, 1.0) * inside as f64).round() as usize).min(inside);
    format!("▕{}{}▏", "█".repeat(full), "░".repeat(inside - full))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(columns: usize) -> String {
        Line::new(columns)
            .part(1, "12 messages")
            .stretch(20, |cells| bar(0.5, cells))
            .part(3, "lab_0.mcap")
            .part(2, "3 MiB/s")
            .text()
    }

    #[test]
    fn bars_shrink_first_then_parts_of_high_rank_are_left_out() {
        assert_eq!(line(80), "12 messages  ▕█████████░░░░░░░░░▏  lab_0.mcap  3 MiB/s");
        assert_eq!(line(43), "12 messages  ▕███░░░▏  lab_0.mcap  3 MiB/s");
        assert_eq!(line(40), "12 messages  lab_0.mcap  3 MiB/s");
        assert_eq!(line(32), "12 messages  ▕████░░░▏  3 MiB/s");
        assert_eq!(line(22), "12 messages  3 MiB/s");
        assert_eq!(line(15), "12 messages");
        assert_eq!(line(5), "12 messages");
    }

    #[test]
    fn a_bar_has_its_cells_whatever_the_share() {
        for share in [-1.0, 0.0, 0.01, 0.5, 1.0, 2.0, f64::NAN] {
            assert_eq!(measure_text_width(&bar(share, 12)), 12, "{share}");
        }
        assert_eq!(bar(1.0, 4), "▕██▏");
    }
}
