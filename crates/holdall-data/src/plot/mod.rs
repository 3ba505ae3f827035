//! Pictures of bags: when each topic has messages, losses, periods, sizes and values of fields over time, as SVG, as a page, or as PNG.
//!
//! Everything is reduced to columns of time while the bag is read, each with its smallest and largest value, so that a single spike among millions of
//! messages stays. Memory and the size of a picture depend on topics and columns only.

mod clock;
mod collect;
mod columns;
mod losses;
mod page;
#[cfg(feature = "pictures")]
mod png;
mod svg;

pub use collect::{PlotError, PlotOptions, Wanted, collect};
pub use columns::{Arrivals, Extent, Lane, Line};
pub use page::{CHART_SCRIPT, CHART_STYLE, PAGE_BYTES_MAX, digits, runs};
#[cfg(feature = "pictures")]
pub use png::{PaintError, Painter};

use holdall_model::{contract::Violation, marker::Marker};

/// Contents of the picture of a bag.
///
/// ```
/// use holdall::{BagSet, plot::{PlotOptions, collect}};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("lab");
/// # let mut writer = holdall::Writer::create(&path)?;
/// # let topic = writer.add_topic("/odom", "std_msgs/msg/UInt8")?;
/// # for at in 0..100 { writer.write(topic, holdall::Timestamp::from_nanos(at * 1_000_000), &[0, 1, 0, 0, at as u8])?; }
/// # writer.close()?;
/// let options = PlotOptions { wanted: vec!["/odom.data".parse()?], ..PlotOptions::default() };
/// let picture = collect(&BagSet::open(&[path])?, &options, &|_| {})?;
/// assert_eq!((picture.lanes[0].messages, picture.lines[0].range()), (100, Some((0.0, 99.0))));
/// assert!(picture.svg().starts_with("<svg") && picture.page().contains("/odom"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Picture {
    /// Its subject.
    pub title: String,
    /// Time at its left end, in nanoseconds since 1970.
    pub start: i64,
    /// Nanoseconds that it shows, at least 1.
    pub span: i64,
    /// Columns of time.
    pub columns: usize,
    /// Messages in all lanes.
    pub messages: u64,
    /// One for each topic, by name.
    pub lanes: Vec<Lane>,
    /// Topics without a lane: there are too many.
    pub left_out: usize,
    /// Values over time.
    pub lines: Vec<Line>,
    /// Named moments.
    pub markers: Vec<Marker>,
    /// What the contract of the recording found wrong.
    pub violations: Vec<Violation>,
    /// Log times at which a further file of the bag begins.
    pub splits: Vec<i64>,
    /// Parts that could not be read or decoded, one sentence each.
    pub notices: Vec<String>,
    /// Parts that the chosen clock leaves out, one sentence each.
    pub remarks: Vec<String>,
}

impl Picture {
    /// The same with half the columns.
    #[must_use]
    fn halved(mut self) -> Self {
        self.columns = self.columns.div_ceil(2);
        self.lanes.iter_mut().for_each(Lane::halve);
        self.lines.iter_mut().for_each(Line::halve);
        self
    }

    /// A time as a part of the picture, 0 to 1.
    fn place(&self, time: i64) -> f64 {
        (time.saturating_sub(self.start) as f64 / self.span as f64).clamp(0.0, 1.0)
    }
}
