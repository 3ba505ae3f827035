//! One message at a time for pages and programs that let people look into a bag: found by its time, as a tree of its fields, as a picture.

mod cloud;
mod find;
mod picture;
mod scale;
mod tree;
mod video;

pub use find::{Budget, Found, Place, Step, find};
pub use picture::{Picture, PictureOptions, is_picture, picture};
pub use tree::{Opened, tree};
pub use video::Video;
