//! Colours that a terminal may or may not show.

use console::Style;

/// Whether to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Plain text.
    Plain,
    /// With ANSI colours.
    Colored,
}

impl Paint {
    /// For standard error, as the terminal and `NO_COLOR` say.
    pub fn stderr() -> Self {
        if console::colors_enabled_stderr() {
            Self::Colored
        } else {
            Self::Plain
        }
    }

    /// For standard output, as the terminal and `NO_COLOR` say.
    pub fn stdout() -> Self {
        if console::colors_enabled() {
            Self::Colored
        } else {
            Self::Plain
        }
    }

    fn apply(self, style: Style, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Colored => style.force_styling(true).apply_to(text).to_string(),
        }
    }

    /// What is bad.
    pub fn bad(self, text: &str) -> String {
        self.apply(Style::new().red().bold(), text)
    }

    /// What needs attention.
    pub fn attention(self, text: &str) -> String {
        self.apply(Style::new().yellow().bold(), text)
    }

    /// What is well.
    pub fn good(self, text: &str) -> String {
        self.apply(Style::new().green(), text)
    }

    /// What is in the background.
    pub fn faint(self, text: &str) -> String {
        self.apply(Style::new().dim(), text)
    }

    /// What stands out.
    pub fn strong(self, text: &str) -> String {
        self.apply(Style::new().bold(), text)
    }
}
