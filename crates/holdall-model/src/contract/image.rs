//! Checks of images: their form, and how many pixels of a `sensor_msgs/msg/Image` are black or saturated.

use super::{content::named, parse::Rule, picture::picture, sample::Sample};
use crate::{
    carried::{COMPRESSED_IMAGE, IMAGE},
    dynamic::{Scalar, TypePlan, part::Part},
};
use std::sync::Arc;

/// Brightness of 255 up to which a pixel is black, and from which it is saturated.
const BLACK: u8 = 8;
const SATURATED: u8 = 250;

/// A rule about images.
#[derive(Debug)]
pub(super) struct ImageCheck {
    plan: Arc<TypePlan>,
    encodings: Vec<String>,
    width: Option<u64>,
    height: Option<u64>,
    black: Option<f64>,
    saturated: Option<f64>,
}

/// What an image is.
#[derive(Debug)]
pub(super) struct ImageLook {
    pub encoding: String,
    pub width: u64,
    pub height: u64,
    /// The shares of black and of saturated pixels, where they can be judged.
    pub shares: Option<[f64; 2]>,
}

/// The number of bytes of a pixel, and those of brightness among them. Numbers of `16UC1` are depths: near things are not black.
fn layout(encoding: &str) -> Option<(usize, &'static [usize])> {
    Some(match encoding {
        "mono8" | "8UC1" => (1, &[0]),
        "rgb8" | "bgr8" | "8UC3" => (3, &[0, 1, 2]),
        "rgba8" | "bgra8" | "8UC4" => (4, &[0, 1, 2]),
        // The high byte; images in the other byte order are rare.
        "mono16" => (2, &[1]),
        _ if encoding.starts_with("bayer_") && encoding.ends_with('8') => (1, &[0]),
        _ => return None,
    })
}

impl ImageCheck {
    pub fn new(rule: &Rule, plan: &Arc<TypePlan>) -> Result<Self, String> {
        let open = Self::open(plan).ok_or_else(|| {
            format!(
                "its type is {}, only {IMAGE} and {COMPRESSED_IMAGE} are judged",
                plan.type_name()
            )
        })?;
        Ok(Self {
            encodings: rule.names("encoding").to_vec(),
            width: rule.count("width"),
            height: rule.count("height"),
            black: rule.number("black"),
            saturated: rule.number("saturated"),
            ..open
        })
    }

    /// Looks at all images, and finds nothing wrong.
    pub fn open(plan: &Arc<TypePlan>) -> Option<Self> {
        [IMAGE, COMPRESSED_IMAGE]
            .contains(&plan.type_name())
            .then(|| Self {
                plan: Arc::clone(plan),
                encodings: Vec::new(),
                width: None,
                height: None,
                black: None,
                saturated: None,
            })
    }

    /// The form of an image, and its pixels where they can be judged.
    pub fn look(&self, sample: &Sample) -> Result<ImageLook, String> {
        let (encoding, width, height) = self.form(sample)?;
        Ok(ImageLook {
            width,
            height,
            shares: self.shares(&encoding, sample).ok().flatten(),
            encoding,
        })
    }

    /// Encoding, width and height; those of a compressed image are in the beginning of its file.
    fn form(&self, sample: &Sample) -> Result<(String, u64, u64), String> {
        if self.plan.type_name() == COMPRESSED_IMAGE {
            let file = sample.head.get(self.after("format", 0, sample)? + 4..);
            let found = picture(file.unwrap_or_default())?;
            return Ok((found.format.to_owned(), found.width, found.height));
        }
        let (width, height) = (self.number("width", sample)?, self.number("height", sample)?);
        Ok((self.text("encoding", sample)?, width, height))
    }

    /// The shares of black and of saturated pixels; `None` for an image without pixels.
    fn shares(&self, encoding: &str, sample: &Sample) -> Result<Option<[f64; 2]>, String> {
        let (bytes_each, used) =
            layout(encoding).ok_or_else(|| format!("the pixels of encoding {encoding} are not judged"))?;
        let begin = self.data_begin(sample)?;
        let (mut black, mut saturated, mut all) = (0_u64, 0_u64, 0_u64);
        for (at, piece) in sample.pieces(begin) {
            let skipped = (bytes_each - (at - begin) % bytes_each) % bytes_each;
            for pixel in piece.get(skipped..).unwrap_or_default().chunks_exact(bytes_each) {
                all += 1;
                black += u64::from(used.iter().all(|byte| pixel[*byte] <= BLACK));
                saturated += u64::from(used.iter().all(|byte| pixel[*byte] >= SATURATED));
            }
        }
        Ok((all > 0).then(|| [black, saturated].map(|count| count as f64 / all as f64)))
    }

    /// What is wrong with an image, if anything; an error if that cannot be decided.
    pub fn check(&self, sample: &Sample) -> Result<Option<String>, String> {
        let (encoding, width, height) = self.form(sample)?;
        if !self.encodings.is_empty() && !self.encodings.contains(&encoding) {
            return Ok(Some(format!(
                "encoding {encoding}, expected {}",
                self.encodings.join(" or ")
            )));
        }
        for (name, wanted, found) in [("width", self.width, width), ("height", self.height, height)] {
            if wanted.is_some_and(|wanted| wanted != found) {
                return Ok(Some(format!(
                    "{name} {found}, expected {}",
                    wanted.unwrap_or_default()
                )));
            }
        }
        if self.black.is_none() && self.saturated.is_none() {
            return Ok(None);
        }
        let Some([black, saturated]) = self.shares(&encoding, sample)? else {
            return Ok(Some("no pixels".to_owned()));
        };
        for (name, bound, share) in [
            ("black", self.black, black),
            ("saturated", self.saturated, saturated),
        ] {
            if bound.is_some_and(|bound| share > bound) {
                return Ok(Some(format!("{:.0} % of the pixels are {name}", share * 100.0)));
            }
        }
        Ok(None)
    }

    fn part<'a>(&'a self, name: &str, sample: &'a Sample) -> Result<Part<'a>, String> {
        let place = self.plan.place(&sample.head).map_err(|error| error.to_string())?;
        named(&self.plan, &sample.head, place, name)
    }

    fn number(&self, name: &str, sample: &Sample) -> Result<u64, String> {
        match self.part(name, sample)? {
            Part::Scalar(Scalar::U32(value)) => Ok(value.into()),
            _ => Err(format!("{name} is not a uint32")),
        }
    }

    fn text(&self, name: &str, sample: &Sample) -> Result<String, String> {
        match self.part(name, sample)? {
            Part::Scalar(Scalar::Text(text)) => Ok(text.to_str().chars().take(32).collect()),
            _ => Err(format!("{name} is not a text")),
        }
    }

    /// Where the pixels begin: after `is_bigendian`, a byte after the encoding, `step`, and the length of the list.
    fn data_begin(&self, sample: &Sample) -> Result<usize, String> {
        Ok(self.after("encoding", 1, sample)? + 8)
    }

    /// Where the next number of four bytes is, `bytes` after a text; places count from the end of the encapsulation on.
    fn after(&self, name: &str, bytes: usize, sample: &Sample) -> Result<usize, String> {
        match self.part(name, sample)? {
            Part::Scalar(Scalar::Text(text)) => {
                let end = text.0.as_ptr() as usize - sample.head.as_ptr() as usize + text.0.len() + 1;
                Ok((end + bytes - 4).next_multiple_of(4) + 4)
            }
            _ => Err(format!("{name} is not a text")),
        }
    }
}
