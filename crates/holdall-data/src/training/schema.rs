//! The features of a dataset: kinds, shapes and names, as the first frame has them.

use super::{
    mapping::{Dtype, Feature},
    render::{Item, Source},
};
use serde_json::{Value, json};

/// Kind of a feature's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// This many numbers.
    Numbers(usize),
    /// A text.
    Text,
    /// Images.
    Images {
        width: u32,
        height: u32,
        channels: usize,
        is_deep: bool,
    },
}

/// A feature of the dataset.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub name: String,
    pub dtype: Dtype,
    pub is_video: bool,
    pub kind: Kind,
    pub names: Vec<String>,
}

impl Kind {
    /// The kind of an item.
    pub fn of(item: &Item) -> Self {
        match item {
            Item::Numbers(numbers) => Self::Numbers(numbers.len()),
            Item::Text(_) => Self::Text,
            Item::Picture(picture) => Self::Images {
                width: picture.width,
                height: picture.height,
                channels: picture.channels,
                is_deep: picture.is_deep,
            },
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Numbers(count) => write!(f, "{count} numbers"),
            Self::Text => f.write_str("a text"),
            Self::Images {
                width,
                height,
                channels,
                is_deep,
            } => {
                let bits = if *is_deep { 16 } else { 8 };
                write!(
                    f,
                    "an image of {width} x {height} pixels and {channels} channels of {bits} bits"
                )
            }
        }
    }
}

impl Column {
    /// The column for a feature with this first item.
    ///
    /// # Errors
    /// One clause if it cannot be stored as the mapping has it.
    pub fn new(name: &str, feature: &Feature, source: &Source, item: &Item) -> Result<Self, String> {
        let kind = Kind::of(item);
        let names = match (&kind, source) {
            (Kind::Numbers(0), _) => return Err("its first message has no numbers".to_owned()),
            (Kind::Numbers(count), _) if feature.names.len() == *count => feature.names.clone(),
            (Kind::Numbers(count), _) if !feature.names.is_empty() && feature.names_field.is_none() => {
                return Err(format!(
                    "it has {} names for {count} numbers",
                    feature.names.len()
                ));
            }
            (Kind::Numbers(_), _) if feature.names_field.is_some() => {
                let fields = feature.fields.iter();
                fields
                    .flat_map(|field| feature.names.iter().map(move |name| format!("{name}.{field}")))
                    .collect()
            }
            (Kind::Numbers(count), Source::Fields(extractor)) => extractor.names(*count),
            _ => Vec::new(),
        };
        if feature.video
            && let Kind::Images {
                width,
                height,
                is_deep,
                ..
            } = kind
            && (is_deep || width % 2 + height % 2 > 0)
        {
            return Err(format!(
                "{kind} cannot be part of a video: 8 bits and even sizes can; leave out video"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            dtype: feature.dtype,
            is_video: feature.video,
            kind,
            names,
        })
    }

    /// Whether it is images.
    pub fn is_image(&self) -> bool {
        matches!(self.kind, Kind::Images { .. })
    }

    /// Its shape: rows, columns and channels of images.
    pub fn shape(&self) -> Vec<usize> {
        match self.kind {
            Kind::Numbers(count) => vec![count],
            Kind::Text => vec![1],
            Kind::Images {
                width,
                height,
                channels,
                ..
            } => vec![height as usize, width as usize, channels],
        }
    }

    /// As LeRobot's `info.json` describes it.
    pub fn to_json(&self) -> Value {
        let dtype = match (self.is_image(), self.is_video) {
            (true, true) => "video".to_owned(),
            (true, false) => "image".to_owned(),
            _ => self.dtype.to_string(),
        };
        let names = match self.kind {
            Kind::Images { .. } => json!(["height", "width", "channels"]),
            Kind::Text => Value::Null,
            Kind::Numbers(_) => json!(self.names),
        };
        json!({"dtype": dtype, "shape": self.shape(), "names": names})
    }
}
