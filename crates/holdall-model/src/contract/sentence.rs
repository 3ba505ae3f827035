//! Each rule as a sentence for people.

use super::{
    parse::{Rule, Severity, Tolerance},
    tree,
};
use crate::units::{counted, format_bytes};
use std::time::Duration;

fn seconds(span: Duration) -> String {
    match span {
        span if span < Duration::from_secs(1) => format!("{} ms", span.as_secs_f64() * 1e3),
        span => format!("{} s", span.as_secs_f64()),
    }
}

/// `from a to b`, `at least a`, or `at most b`.
fn between<T>(min: Option<T>, max: Option<T>, show: impl Fn(T) -> String) -> String {
    match (min.map(&show), max.map(&show)) {
        (Some(min), Some(max)) => format!("from {min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "any".to_owned(),
    }
}

fn percent(share: f64) -> String {
    format!("{} %", (share * 1e4).round() / 100.0)
}

fn span(rule: &Rule, name: &str) -> String {
    rule.span(name).map_or_else(String::new, seconds)
}

/// What a rule about the flow of a topic's messages demands.
fn of_flow(rule: &Rule) -> String {
    let spans = || between(rule.span("min"), rule.span("max"), seconds);
    let text = |name| rule.text(name).unwrap_or_default();
    match rule.kind() {
        "required" if rule.flag("is") => "has messages".to_owned(),
        "required" => "may have no messages".to_owned(),
        "type" => format!("its type is {}", text("name")),
        "hash" => format!("the hash of its type is {}", text("is")),
        "qos" => {
            let mut wanted: Vec<String> = ["reliability", "durability", "history"]
                .iter()
                .filter_map(|name| Some(format!("{name} {}", rule.text(name)?)))
                .collect();
            wanted.extend(rule.count("depth").map(|depth| format!("depth {depth} or more")));
            format!("its publishers offer {}", wanted.join(", "))
        }
        "rate" => {
            let bounds = between(rule.number("min"), rule.number("max"), |hertz| hertz.to_string());
            let window = rule.span("window").unwrap_or(Duration::from_secs(5));
            format!("{bounds} messages a second over each {}", seconds(window))
        }
        "gap" => format!("no longer than {} between two messages", span(rule, "max")),
        "first" => format!(
            "its first message comes within {} after the start",
            span(rule, "within")
        ),
        "latency" => format!("received {} after header.stamp", spans()),
        "drift" => {
            let window = rule.span("window").unwrap_or(Duration::from_secs(60));
            format!(
                "header.stamp drifts by at most {} ppm over {}",
                rule.number("ppm").unwrap_or_default(),
                seconds(window)
            )
        }
        "stamps" if text("order") == "strict" => "each header.stamp is later than the one before".to_owned(),
        "stamps" => "header.stamp never goes back".to_owned(),
        "jump" => format!(
            "header.stamp steps by at most {} more or less than the time between messages",
            span(rule, "max")
        ),
        "frozen" => format!(
            "fewer than {} messages in a row have the same content",
            rule.count("messages").unwrap_or_default()
        ),
        "non_finite" => format!(
            "at most {} of a message's values are NaN or infinite",
            percent(rule.number("share").unwrap_or_default())
        ),
        _ => of_content(rule),
    }
}

/// What a rule about the content of messages or the whole bag demands.
fn of_content(rule: &Rule) -> String {
    let counts = || between(rule.count("min"), rule.count("max"), |count| count.to_string());
    let text = |name| rule.text(name).unwrap_or_default();
    match rule.kind() {
        "must" => format!("always true: {}", text("expression")),
        "never" => format!("never true: {}", text("expression")),
        "size" => format!(
            "a message has {}",
            between(rule.count("min"), rule.count("max"), format_bytes)
        ),
        "image" => image(rule),
        "cloud" => {
            let points = rule
                .count("points")
                .map(|points| format!("at least {points} points"));
            let invalid = rule
                .number("invalid")
                .map(|share| format!("at most {} of the points not finite", percent(share)));
            points.into_iter().chain(invalid).collect::<Vec<_>>().join(", ")
        }
        "frame" => format!("header.frame_id is {}", rule.names("ids").join(" or ")),
        "publishers" => {
            let count = (rule.count("min").is_some() || rule.count("max").is_some())
                .then(|| format!("{} publishers", counts()));
            let names = (!rule.names("names").is_empty())
                .then(|| format!("{} among them", rule.names("names").join(" and ")));
            count.into_iter().chain(names).collect::<Vec<_>>().join(", ")
        }
        "losses" => format!("at most {} messages lost", rule.count("max").unwrap_or_default()),
        "duration" => format!(
            "the recording takes {}",
            between(rule.span("min"), rule.span("max"), seconds)
        ),
        "topics" => format!("{} topics have messages", counts()),
        "episodes" => {
            let is_counted = rule.count("min").is_some() || rule.count("max").is_some();
            let all = is_counted.then(|| format!("{} episodes that were not discarded", counts()));
            let good = rule.count("success_min");
            let good =
                good.map(|count| format!("at least {} with outcome success", counted(count, "episode")));
            all.into_iter().chain(good).collect::<Vec<_>>().join(", ")
        }
        "disk_left" => format!(
            "at least {} of the disk are left at the end",
            format_bytes(rule.count("min").unwrap_or_default())
        ),
        "tf" => tf(rule),
        "skew" => format!(
            "header.stamp of {} are at most {} apart",
            rule.names("topics").join(" and "),
            span(rule, "max")
        ),
        other => other.to_owned(),
    }
}

/// What a rule demands, with its topic, severity, tolerance and reason.
pub fn sentence(rule: &Rule) -> String {
    let what = of_flow(rule);
    let mut text = match &rule.topic {
        Some(topic) => format!("{}: {what}", topic.as_str()),
        None => what,
    };
    match rule.tolerance {
        Tolerance::Count(0) => {}
        Tolerance::Count(count) => text.push_str(&format!("; {count} violations are tolerated")),
        Tolerance::Share(share) => text.push_str(&format!("; {} are tolerated", percent(share))),
    }
    if rule.severity == Severity::Warn {
        text.push_str(" (warn)");
    }
    if let Some(reason) = &rule.reason {
        text.push_str(&format!(": {reason}"));
    }
    text
}

fn tf(rule: &Rule) -> String {
    let topics = tree::topics_of(rule);
    let frames = rule.names("connected").join(", ");
    let mut text = format!("{} connect {frames}", topics.join(" and "));
    let moving: Vec<&str> = topics.into_iter().filter(|name| !tree::is_static(name)).collect();
    if !moving.is_empty() {
        let timeout = seconds(rule.span("timeout").unwrap_or(Duration::from_secs(1)));
        text.push_str(&format!(
            "; a transform of {} holds {timeout}",
            moving.join(" and ")
        ));
    }
    text
}

fn image(rule: &Rule) -> String {
    let mut wanted = Vec::new();
    if !rule.names("encoding").is_empty() {
        wanted.push(format!("encoding {}", rule.names("encoding").join(" or ")));
    }
    for name in ["width", "height"] {
        wanted.extend(rule.count(name).map(|pixels| format!("{name} {pixels}")));
    }
    for name in ["black", "saturated"] {
        wanted.extend(
            rule.number(name)
                .map(|share| format!("at most {} of the pixels {name}", percent(share))),
        );
    }
    wanted.join(", ")
}
