//! Which of its stamps gives a message its place among others.

/// Which stamp orders and paces messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MessageOrder {
    /// Log time.
    #[default]
    Received,
    /// Publish time.
    Sent,
}
