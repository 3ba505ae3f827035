//! Rules to begin with: what is probable is written out, what needs a decision is a comment.

use super::{Comparison, Difference};
use crate::text::Outside;
use std::{collections::BTreeMap, fmt::Write};

/// A draft of the rules that comparisons need, as YAML; `unknown` are types that the new definitions lack.
pub fn draft<'a>(
    comparisons: impl Iterator<Item = &'a Comparison>,
    unknown: impl Iterator<Item = &'a str>,
) -> String {
    let mut by_type: BTreeMap<(&str, &str), Vec<&Difference>> = BTreeMap::new();
    for it in comparisons.flat_map(|comparison| &comparison.differences) {
        let of_type = by_type
            .entry((it.type_name.as_str(), it.becomes.as_str()))
            .or_default();
        if !of_type.contains(&it) {
            of_type.push(it);
        }
    }
    by_type.retain(|_, of_type| of_type.iter().any(|it| it.needs_rule));
    let mut text =
        "# A draft of rules for `holdall migrate`: what is behind a # needs a decision.\nrules:\n".to_owned();
    for ((old, new), of_type) in by_type {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  - type: {old}\n    becomes: {new}\n    fields:");
        for it in &of_type {
            let name = &it.name;
            let _ = match (&it.probably, it.needs_rule) {
                (Some(new), _) => writeln!(text, "      {new}: {name} # probably renamed"),
                (None, true) if it.is_constant => {
                    writeln!(
                        text,
                        "    # {it}: a map of its field, or\n    # keep_constants: true"
                    )
                }
                (None, true) if it.to.is_some() => writeln!(text, "      # {name}: {name} # {it}"),
                (None, true) => writeln!(text, "    # {it}"),
                (None, false) => Ok(()),
            };
        }
        let gone = of_type
            .iter()
            .filter(|it| it.to.is_none() && it.probably.is_none());
        let gone: Vec<&str> = gone.map(|it| it.name.as_str()).collect();
        if !gone.is_empty() {
            let _ = writeln!(text, "    # drop: [{}]\n    # lossy: true", gone.join(", "));
        }
    }
    for type_name in unknown {
        let _ = writeln!(
            text,
            "  # Unchanged, because the new definitions lack it:\n  # - type: {}\n  #   becomes:",
            Outside(type_name)
        );
    }
    text
}
