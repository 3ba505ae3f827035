//! The environment variables that the program passed in, as settings of stores are found in them.

use std::{collections::BTreeMap, ffi::OsString, sync::OnceLock};

/// Reads the program's variables.
type Read = fn() -> Vec<(OsString, OsString)>;

static READ: OnceLock<Read> = OnceLock::new();

static VARIABLES: OnceLock<BTreeMap<String, String>> = OnceLock::new();

/// Chooses where variables come from; the first call counts.
pub(crate) fn choose(read: Read) {
    let _ = READ.set(read);
}

/// All variables whose names and values are UTF-8, read once.
pub(crate) fn variables() -> &'static BTreeMap<String, String> {
    VARIABLES.get_or_init(|| {
        let all = READ.get().map(|read| read()).unwrap_or_default();
        let is_text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        all.into_iter().filter_map(is_text).collect()
    })
}

/// A variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<&'static str> {
    let value = variables().get(name)?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

/// True when a variable is set to a value that means yes.
pub(crate) fn is_set(name: &str) -> bool {
    variable(name)
        .is_some_and(|value| matches!(value.to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on"))
}

/// The variables whose name begins with this as settings of a store: key, and value.
pub(crate) fn settings<K: std::str::FromStr>(begin: &str) -> impl Iterator<Item = (K, &'static str)> {
    let all = variables()
        .iter()
        .filter(move |(name, _)| name.starts_with(begin));
    all.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.as_str())))
}
