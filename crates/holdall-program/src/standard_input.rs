//! The name of standard input in texts for the user, where a copy of it in a file is read.

use std::{borrow::Cow, sync::OnceLock};

/// Where the copy of standard input is, while there is one.
static KEPT: OnceLock<String> = OnceLock::new();

/// A text for the user, in which the copy of standard input is named as standard input.
pub fn as_named(text: &str) -> Cow<'_, str> {
    match KEPT.get() {
        Some(kept) if text.contains(kept.as_str()) => {
            Cow::Owned(text.replace(kept.as_str(), "standard input"))
        }
        _ => Cow::Borrowed(text),
    }
}

/// From now on the file with this path is named as standard input. Only the first one counts: there is one standard input.
pub fn keep_as(path: String) {
    let _ = KEPT.set(path);
}
