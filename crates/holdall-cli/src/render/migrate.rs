//! What differs between the types of a bag and other definitions.

use super::paint::Paint;
use crate::units::plural;
use holdall_model::{dynamic::migrate::Compared, text::Outside, topic::TopicInfo};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fmt::Write};

/// For people: a line for each topic that is not the same, what differs of each type once, and the sum.
pub fn text(topics: &[(TopicInfo, Compared)], paint: Paint) -> String {
    let (mut text, mut seen) = (String::new(), BTreeSet::new());
    let (mut others, mut uncompared) = (0, 0);
    for (topic, compared) in topics {
        let (name, type_name) = (Outside(&topic.name), Outside(&topic.type_name));
        let what = match compared {
            Compared::Same(_) => continue,
            Compared::Unknown => paint.faint("not in these definitions"),
            Compared::Undefined => paint.bad("the bag has no definition of it"),
            Compared::Other(_) => paint.bad("another definition"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} ({type_name}): {what}");
        let Compared::Other(comparison) = compared else {
            uncompared += 1;
            continue;
        };
        others += 1;
        if seen.insert(&topic.type_name) {
            let (old, new) = (&comparison.old, &comparison.new);
            let hashes = [old, new].map(|it| Outside(&it.type_description_hash));
            let _ = writeln!(
                text,
                "  {} becomes {} of {}",
                hashes[0],
                hashes[1],
                Outside(&new.type_name)
            );
            for difference in &comparison.differences {
                let mark = if difference.needs_rule {
                    "needs a rule: "
                } else {
                    ""
                };
                let _ = writeln!(text, "  {mark}{}", Outside(&difference.to_string()));
            }
        }
    }
    let all = plural(topics.len() as u64, "topic");
    let _ = writeln!(
        text,
        "definitions: {others} of {all} with another one, which nodes of today do not match; {uncompared} not compared"
    );
    text
}

/// For programs.
pub fn json(topics: &[(TopicInfo, Compared)]) -> Value {
    let topics = topics.iter().map(|(topic, compared)| {
        let word = match compared {
            Compared::Same(_) => "same",
            Compared::Unknown => "unknown",
            Compared::Undefined => "undefined",
            Compared::Other(_) => "other",
        };
        let mut value = json!({"topic": topic.name, "type": topic.type_name, "definition": word});
        if let Compared::Other(comparison) = compared {
            value["hash"] = json!(comparison.old.type_description_hash);
            value["new_type"] = json!(comparison.new.type_name);
            value["new_hash"] = json!(comparison.new.type_description_hash);
            value["differences"] = json!(comparison.differences);
        }
        value
    });
    topics.collect()
}
