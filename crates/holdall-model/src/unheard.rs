//! Services whose calls a bag does not have, because they had no introspection.

use std::collections::BTreeSet;

/// Key in `custom_data` of `metadata.yaml` with their names as a JSON list.
pub const UNHEARD_SERVICES_CUSTOM_KEY: &str = "holdall.services_without_introspection";

/// Key and value for `custom_data`; `None` for no names.
pub fn names_to_custom_data(names: &BTreeSet<String>) -> Option<(String, String)> {
    let list = serde_json::json!(names).to_string();
    (!names.is_empty()).then(|| (UNHEARD_SERVICES_CUSTOM_KEY.to_owned(), list))
}

/// The names of such a value; none for a text that is no list.
pub fn names_from_custom_data(text: &str) -> BTreeSet<String> {
    serde_json::from_str(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_their_text() {
        let names = BTreeSet::from(["/a".to_owned(), "/b \"c\"\n".to_owned()]);
        let (_, text) = names_to_custom_data(&names).unwrap();
        assert_eq!(names_from_custom_data(&text), names);
        assert_eq!(names_to_custom_data(&BTreeSet::new()), None);
        assert_eq!(names_from_custom_data("no list"), BTreeSet::new());
    }
}
