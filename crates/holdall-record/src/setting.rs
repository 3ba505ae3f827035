//! Settings of a recording that a warning or a refusal names: typed, so that a program can name its own flag or button for each.

/// A setting that changes what a warning is about. Log lines have it as the field `setting`, refusals of the control socket as the member
/// `setting`: in both its [`Setting::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Bytes that may wait in memory: `CacheOptions::bytes_max`.
    CacheBytesMax,
    /// [`SafetyOptions::max_loss_window`](super::options::SafetyOptions::max_loss_window).
    MaxLossWindow,
    /// [`OnDiskFull::Ring`](super::options::OnDiskFull::Ring): the oldest files are removed when the disk is full.
    RingOnDiskFull,
    /// [`RecordOptions::triggers`](super::options::RecordOptions::triggers): messages stay in memory until an event.
    Triggers,
    /// `CacheOptions::snapshot`: messages stay in memory until a snapshot is requested.
    Snapshot,
}

impl Setting {
    /// Every setting.
    pub const ALL: [Self; 5] = [
        Self::CacheBytesMax,
        Self::MaxLossWindow,
        Self::RingOnDiskFull,
        Self::Triggers,
        Self::Snapshot,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CacheBytesMax => "cache.bytes_max",
            Self::MaxLossWindow => "max_loss_window",
            Self::RingOnDiskFull => "on_disk_full.ring",
            Self::Triggers => "triggers",
            Self::Snapshot => "cache.snapshot",
        }
    }

    /// The setting of this name; `None` for other texts.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|setting| setting.name() == name)
    }
}
