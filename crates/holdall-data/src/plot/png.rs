//! Draws an SVG as PNG, with the program's own fonts: a machine without fonts gets the same
//! picture.

use resvg::{
    render,
    tiny_skia::{Pixmap, Transform},
    usvg::{Options, Tree},
};

/// Regular and bold; `fonts/LICENSE` names their content.
const FONTS: [&[u8]; 2] = [
    include_bytes!("../../fonts/DejaVuSans.ttf"),
    include_bytes!("../../fonts/DejaVuSans-Bold.ttf"),
];
const FAMILY: &str = "DejaVu Sans";
/// Characters that the fonts have; those that no plot needs are left out.
const COVERED: [std::ops::RangeInclusive<char>; 9] = [
    '\u{20}'..='\u{17f}',
    '\u{370}'..='\u{3ff}',
    '\u{400}'..='\u{45f}',
    '\u{2000}'..='\u{206f}',
    '\u{2070}'..='\u{209f}',
    '\u{20ac}'..='\u{20ac}',
    '\u{2100}'..='\u{214f}',
    '\u{2190}'..='\u{21ff}',
    '\u{2200}'..='\u{22ff}',
];
/// Pixels for each unit of the SVG: sharp on displays of twice the usual density, and on paper.
const SCALE: f32 = 2.0;
/// A picture with more pixels, of hundreds of bars, gets fewer for each unit: this many take 256 MiB.
const PIXELS_MAX: f32 = (64 << 20) as f32;

/// Why a picture could not be drawn; a picture of this program fails only by a defect of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot draw the picture: {0}")]
pub struct PaintError(String);

/// Draws SVG as PNG.
///
/// ```
/// let svg = "<svg width=\"9\" height=\"9\" xmlns=\"http://www.w3.org/2000/svg\"><rect width=\"9\" height=\"9\"/></svg>";
/// let png = holdall::plot::Painter::new().png(svg).unwrap();
/// assert!(png.starts_with(b"\x89PNG"));
/// ```
pub struct Painter {
    options: Options<'static>,
    has_fonts_of_system: bool,
}

impl Painter {
    /// With the program's own fonts.
    pub fn new() -> Self {
        let mut options = Options {
            font_family: FAMILY.to_owned(),
            ..Options::default()
        };
        let fonts = options.fontdb_mut();
        for font in FONTS {
            fonts.load_font_data(font.to_vec());
        }
        fonts.set_sans_serif_family(FAMILY);
        Self {
            options,
            has_fonts_of_system: false,
        }
    }

    /// The picture as PNG.
    ///
    /// # Errors
    /// An SVG that cannot be read, or an empty picture.
    pub fn png(&mut self, svg: &str) -> Result<Vec<u8>, PaintError> {
        let is_covered = |c: char| c == '\n' || COVERED.iter().any(|range| range.contains(&c));
        if !self.has_fonts_of_system && !svg.chars().all(is_covered) {
            // Names in other scripts are drawn with the machine's fonts.
            self.options.fontdb_mut().load_system_fonts();
            self.has_fonts_of_system = true;
        }
        let tree = Tree::from_str(svg, &self.options).map_err(failed)?;
        let (width, height) = (tree.size().width(), tree.size().height());
        let scale = SCALE.min((PIXELS_MAX / (width * height)).sqrt());
        let pixels = |length: f32| (length * scale).round().max(1.0) as u32;
        let mut pixmap = Pixmap::new(pixels(width), pixels(height))
            .ok_or_else(|| failed(format!("a picture of {width} x {height} is too large")))?;
        render(&tree, Transform::from_scale(scale, scale), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> PaintError {
    PaintError(error.to_string())
}

impl Default for Painter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(text: &str, size: (u32, u32)) -> Pixmap {
        let svg = format!(
            "<svg width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" xmlns=\"http://www.w3.org/2000/svg\">\
             <rect width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\
             <text x=\"5\" y=\"20\" font-family=\"sans-serif\" font-size=\"14\" fill=\"#111111\">\n{text}\n</text></svg>",
            size.0, size.1
        );
        let mut painter = Painter::new();
        let png = painter.png(&svg).unwrap();
        assert!(
            !painter.has_fonts_of_system,
            "the program's own fonts have all of {text}"
        );
        Pixmap::decode_png(&png).unwrap()
    }

    /// Pixels that are not white.
    fn ink(picture: &Pixmap) -> usize {
        let pixels = picture.pixels().iter();
        pixels
            .filter(|pixel| (pixel.red(), pixel.green(), pixel.blue()) != (255, 255, 255))
            .count()
    }

    #[test]
    fn letters_are_drawn_without_any_font_of_the_machine_twice_as_large() {
        let picture = drawn("lost, % · 1000 × 1 KB ≥ µs", (300, 30));
        assert_eq!((picture.width(), picture.height()), (600, 60));
        assert!(ink(&picture) > 1000, "{}", ink(&picture));
        assert_eq!(ink(&drawn("", (300, 30))), 0);
        // Letters have distinct shapes, and are not the box for a missing one.
        let shapes =
            ["·", "×", "µ", "≥", "÷", "∞", "Ж"].map(|letter| drawn(letter, (40, 30)).data().to_vec());
        for (place, shape) in shapes.iter().enumerate() {
            assert!(!shapes[..place].contains(shape), "letter {place}");
        }
    }

    #[test]
    fn a_huge_picture_takes_bounded_memory() {
        let picture = drawn("tall", (860, 40_000));
        assert!(picture.width() * picture.height() <= (PIXELS_MAX * 1.01) as u32);
    }
}
