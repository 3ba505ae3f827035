//! Images, video and point clouds in messages: their pixels, and smaller forms of them. Its users see it through `holdall`.
#![forbid(unsafe_code)]

pub mod cloud;
pub mod compressed;
pub mod ffmpeg;
pub(crate) mod likeness;
pub mod mp4;
pub mod picture_file;
pub mod pixels;
pub mod planes;
pub mod recode;
pub mod similarity;

pub use holdall_model::{carried, elementary};
