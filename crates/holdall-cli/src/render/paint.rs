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
    /// For standard error, depending on the terminal and `NO_COLOR`.
    pub fn stderr() -> Self {
        if console::colors_enabled_stderr() {
            Self::Colored
        } else {
            Self::Plain
        }
    }

    /// For standard output, depending on the terminal and `NO_COLOR`.
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

    /// For all other text.
    pub fn plain(self, text: &str) -> String {
        text.to_owned()
    }

    /// For errors and losses.
    pub fn bad(self, text: &str) -> String {
        self.apply(Style::new().red().bold(), text)
    }

    /// For text that needs attention.
    pub fn attention(self, text: &str) -> String {
        self.apply(Style::new().yellow().bold(), text)
    }

    /// For success.
    pub fn good(self, text: &str) -> String {
        self.apply(Style::new().green(), text)
    }

    /// For less important text.
    pub fn faint(self, text: &str) -> String {
        self.apply(Style::new().dim(), text)
    }

    /// For emphasis.
    pub fn strong(self, text: &str) -> String {
        self.apply(Style::new().bold(), text)
    }
}
