//! The message types of the simulated system: one that the program knows, one that its node sends, one that no node sends.

use crate::plan::DefinitionPlan;
use holdall_model::interface::{Definition, InterfaceSource, SourceFormat};
use holdall_transport::TypeSource;
use std::{borrow::Cow, sync::LazyLock};

const ASKED: &str = "sim_msgs/msg/Blob";
const ASKED_TEXT: &str = "uint32 publisher\nuint64 sequence\nuint8[] filler\n";

static ASKED_HASH: LazyLock<String> = LazyLock::new(|| {
    let source = |name: &str| {
        (name == ASKED).then_some(InterfaceSource {
            format: SourceFormat::Msg,
            text: Cow::Borrowed(ASKED_TEXT),
        })
    };
    Definition::resolve(ASKED, source).map_or_else(|_| String::new(), |definition| definition.type_hash())
});

/// The type of topics of this kind.
pub fn type_of(plan: DefinitionPlan) -> String {
    match plan {
        DefinitionPlan::Bundled => "std_msgs/msg/String",
        DefinitionPlan::Asked => ASKED,
        DefinitionPlan::Untold => "sim_msgs/msg/Secret",
    }
    .to_owned()
}

/// The hash that publishers of the asked type announce.
pub fn asked_hash() -> String {
    ASKED_HASH.clone()
}

/// The sources that a node sends for the requested type.
pub fn asked_sources() -> Vec<TypeSource> {
    vec![TypeSource {
        type_name: ASKED.to_owned(),
        encoding: "msg".to_owned(),
        text: ASKED_TEXT.to_owned(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_asked_type_has_a_hash() {
        assert!(asked_hash().starts_with("RIHS01_"), "{}", asked_hash());
    }
}
