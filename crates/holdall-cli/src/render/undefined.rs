//! Topics of a bag whose types nothing defines, for people and programs.

use holdall::reader::UndefinedTopic;
use holdall_model::text::Outside;
use serde::Serialize;

/// A topic without a definition in the JSON of `holdall info`.
#[derive(Serialize)]
pub struct UndefinedJson<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    type_name: &'a str,
}

impl<'a> UndefinedJson<'a> {
    /// Its name and type.
    pub fn of(topic: &'a UndefinedTopic) -> Self {
        Self {
            name: &topic.name,
            type_name: &topic.type_name,
        }
    }
}

/// One topic whose type nothing defines.
pub fn undefined_line(topic: &UndefinedTopic) -> String {
    format!(
        "Topic: {} | Type: {}",
        Outside(&topic.name),
        Outside(&topic.type_name)
    )
}
