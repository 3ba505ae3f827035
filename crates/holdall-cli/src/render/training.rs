//! The contents of a dataset, and how well messages fit its frames, for people.

use crate::units::plural;
use holdall::training::{FeatureReport, TrainingReport, VideoReport};
use holdall_model::text::{Outside, OutsidePath};

/// A line for the dataset, and one for each feature.
pub fn text(report: &TrainingReport) -> String {
    let episodes = report.episodes.len() as u64;
    let mut lines = vec![format!(
        "{}: {} in {} at {} Hz",
        OutsidePath(&report.dataset),
        plural(report.frames, "frame"),
        plural(episodes, "episode"),
        report.fps
    )];
    if report.short > 0 {
        lines.push(format!(
            "left out: {} shorter than min_s",
            plural(report.short, "episode")
        ));
    }
    if report.left_out > 0 {
        lines.push(format!(
            "left out: {} discarded, without a known end, or with another outcome",
            plural(report.left_out, "episode")
        ));
    }
    lines.extend(
        report
            .features
            .iter()
            .map(|feature| line(feature, report.tolerance_ns)),
    );
    lines.join("\n")
}

fn line(feature: &FeatureReport, tolerance_ns: i64) -> String {
    let milliseconds = |nanos: i64| nanos as f64 / 1e6;
    let fit = &feature.fit;
    let mean = milliseconds(fit.distance_ns_sum) / fit.frames.max(1) as f64;
    let held = if fit.held > 0 {
        format!(
            "; {} held beyond {:.1} ms",
            plural(fit.held, "frame"),
            milliseconds(tolerance_ns)
        )
    } else {
        String::new()
    };
    let video = feature.video.as_ref().map(video).unwrap_or_default();
    format!(
        "  {} of {}: {mean:.1} ms from its message, {:.1} ms at most{held}{video}",
        Outside(&feature.feature),
        Outside(&feature.topic),
        milliseconds(fit.distance_ns_max)
    )
}

/// What became of recorded video.
fn video(report: &VideoReport) -> String {
    let copied = format!("; its video is copied in {}", plural(report.copied, "episode"));
    let Some(reason) = report.first_reason.as_ref().filter(|_| report.encoded > 0) else {
        return copied;
    };
    let encoded = plural(report.encoded, "episode");
    format!("{copied}, encoded anew in {encoded}: {}", Outside(reason))
}
