//! A picture as the text of an SVG file: rectangles, lines, dots and words, in pixels.

use std::fmt::{self, Display, Write};

/// Wide enough for a page; a phone scrolls.
pub(crate) const WIDTH: i32 = 860;
/// Height of letters in pixels, and about how wide they are.
const LETTERS: (i32, i32) = (13, 7);

/// A colour by its red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Colour(pub u8, pub u8, pub u8);

impl Display for Colour {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "#{:02X}{:02X}{:02X}", self.0, self.1, self.2)
    }
}

/// Ink of axes and text. The page maps it to a colour of its theme.
pub(crate) const INK: Colour = Colour(0x11, 0x11, 0x11);
/// Grid lines.
pub(crate) const GRID: Colour = Colour(0xDD, 0xDD, 0xDD);
/// Published figures.
pub(crate) const PUBLISHED: Colour = Colour(0xAA, 0xAA, 0xAA);
/// Words on dark ground.
pub(crate) const WHITE: Colour = Colour(0xFF, 0xFF, 0xFF);

/// How a line is drawn.
#[derive(Clone, Copy)]
pub(crate) struct Stroke {
    pub colour: Colour,
    pub width: i32,
    pub opacity: f64,
    /// Pixels that are drawn and left out; `None` for a whole line.
    pub dash: Option<(u32, u32)>,
}

impl Stroke {
    /// A whole line.
    pub(crate) fn new(colour: Colour, width: i32) -> Self {
        Self {
            colour,
            width,
            opacity: 1.0,
            dash: None,
        }
    }
}

/// What a word's place is: its left end, its middle or its right end.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn.
pub(crate) struct Picture {
    height: i32,
    body: String,
}

impl Picture {
    /// An empty one of this height.
    pub(crate) fn new(height: i32) -> Self {
        Self {
            height,
            body: String::new(),
        }
    }

    fn put(&mut self, element: fmt::Arguments<'_>) {
        // Writing into text does not fail.
        let _never_fails = self.body.write_fmt(element).is_ok();
        self.body.push('\n');
    }

    /// A filled rectangle between two corners.
    pub(crate) fn rectangle(&mut self, [(left, top), (right, bottom)]: [(i32, i32); 2], fill: Colour) {
        let (width, height) = ((right - left).max(0), (bottom - top).max(0));
        self.put(format_args!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        ));
    }

    /// A line through points.
    pub(crate) fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>, stroke: Stroke) {
        let places: Vec<String> = points
            .into_iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let dash = stroke.dash.map_or(String::new(), |(on, off)| {
            format!(" stroke-dasharray=\"{on} {off}\"")
        });
        self.put(format_args!(
            "<polyline fill=\"none\" stroke=\"{}\"{} stroke-width=\"{}\"{dash} points=\"{}\"/>",
            stroke.colour,
            opacity(stroke.opacity),
            stroke.width,
            places.join(" ")
        ));
    }

    /// A straight line between two points.
    pub(crate) fn straight(&mut self, ends: [(i32, i32); 2], stroke: Stroke) {
        self.line(ends.map(|(x, y)| (f64::from(x), f64::from(y))), stroke);
    }

    /// A filled dot.
    pub(crate) fn dot(&mut self, (x, y): (f64, f64), fill: Colour) {
        self.put(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\"/>"
        ));
    }

    /// Words whose upper edge is at a place.
    pub(crate) fn words(&mut self, words: &str, (x, top): (i32, i32), anchor: Anchor, fill: Colour) {
        self.styled(words, (x, top), anchor, &format!("fill=\"{fill}\""));
    }

    /// The name of a group, in bold.
    pub(crate) fn heading(&mut self, words: &str, at: (i32, i32)) {
        self.styled(
            words,
            at,
            Anchor::Start,
            &format!("font-weight=\"bold\" fill=\"{INK}\""),
        );
    }

    /// Words that are read upwards, around a place.
    pub(crate) fn upwards(&mut self, words: &str, (x, y): (i32, i32)) {
        let style = format!("fill=\"{INK}\" transform=\"rotate(-90 {x} {y})\"");
        self.styled(words, (x, y), Anchor::Middle, &style);
    }

    fn styled(&mut self, words: &str, (x, top): (i32, i32), anchor: Anchor, style: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let size = LETTERS.0;
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{top}\" dy=\"0.76em\" text-anchor=\"{anchor}\" font-family=\"sans-serif\" font-size=\"{size}\" {style}>{}</text>",
            escape(words)
        ));
    }

    /// The file's text.
    pub(crate) fn finish(self) -> String {
        let (height, body) = (self.height, self.body);
        format!(
            "<svg width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n{body}</svg>\n"
        )
    }
}

fn opacity(share: f64) -> String {
    if share >= 1.0 {
        return String::new();
    }
    format!(" stroke-opacity=\"{share:.2}\"")
}

/// A text within HTML or SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A number of rows or columns in pixels, each of this many.
pub(crate) fn pixels(count: usize, each: i32) -> i32 {
    /// More would be no picture.
    const COUNT_MAX: usize = 100_000;
    each * i32::try_from(count.min(COUNT_MAX)).unwrap_or(0)
}

/// About the width of a word with this number of letters, in pixels.
pub(crate) fn room(letters: usize) -> i32 {
    pixels(letters, LETTERS.1)
}
