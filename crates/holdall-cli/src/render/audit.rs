//! An audit on the screen, and as JSON.

use super::{TABLE_STYLE, labels::time_point, paint::Paint};
use crate::units::{format_count, plural};
use comfy_table::{CellAlignment, Table};
use holdall::reader::{AccountKind, BagAudit, Condition, TopicAudit};
use holdall_model::{
    loss::{
        LossStage, LossSums,
        ledger::{Interval, PublisherAccount, TopicAccount},
    },
    recoding::Recoding,
    text::{Outside, OutsidePath},
    time::Timestamp,
};
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::Path};

/// The text for people: losses by place, contradictions, and the verdict as the last line.
pub fn text(bag: &Path, audit: &BagAudit, recoded: &[Recoding], paint: Paint) -> String {
    let missing = audit.missing();
    let mut lines = vec![format!(
        "{}: {} of {}",
        OutsidePath(bag),
        plural(audit.recorded(), "message"),
        plural(audit.topics.len() as u64, "topic"),
    )];
    let with_loss: Vec<&TopicAudit> = audit
        .topics
        .iter()
        .filter(|topic| !topic.missing.is_empty() || topic.expired > 0)
        .collect();
    if !with_loss.is_empty() {
        lines.push(table(&with_loss, &missing, audit.start));
    }
    let before = audit.sums().before_match;
    if before > 0 {
        lines.push(format!(
            "{}: {}, no loss",
            LossSums::BEFORE_MATCH,
            plural(before, "message")
        ));
    }
    let repeated: u64 = audit.topics.iter().map(|topic| topic.repeated).sum();
    if repeated > 0 {
        lines.push(format!(
            "repeated at the beginnings of files: {}, not counted above",
            plural(repeated, "latched message")
        ));
    }
    let unknown: Vec<&str> = audit
        .topics
        .iter()
        .filter(|topic| topic.account.as_ref().is_some_and(|account| account.loss_unknown))
        .map(|topic| topic.name.as_str())
        .collect();
    if !unknown.is_empty() {
        lines.push(paint.attention(&format!(
            "losses on the way cannot be known for {}, whose publishers send no sequence numbers",
            Outside(&unknown.join(", "))
        )));
    }
    lines.extend(recoded.iter().map(Recoding::to_string));
    let time = |at| time_point(at, &TimeZone::system());
    if audit.state.condition != Condition::Complete {
        lines.push(format!("state: {}", audit.state.condition.as_str()));
    }
    let more = audit.state.more_lines(time);
    lines.extend(more.iter().map(|line| paint.attention(line)));
    lines.extend(
        audit
            .faults
            .iter()
            .map(|fault| paint.bad(&format!("fault: {}", Outside(fault)))),
    );
    lines.push(verdict(audit, paint));
    lines.join("\n")
}

fn verdict(audit: &BagAudit, paint: Paint) -> String {
    let lost = match audit.shortfall() {
        0 if audit.account == AccountKind::Final && !audit.state.knows_all() => {
            paint.attention("no loss is known")
        }
        0 => paint.good("nothing is lost"),
        count => paint.bad(&format!("{} lost", plural(count, "message"))),
    };
    match audit.account {
        AccountKind::Missing => paint.attention("no account: what is missing cannot be known"),
        _ if !audit.faults.is_empty() => paint.bad("the account does not add up"),
        AccountKind::Final => format!("the account adds up: {lost}"),
        AccountKind::Checkpoint(_) => format!(
            "the recording was cut off: until its last checkpoint {lost}; {}",
            paint.attention("what was lost after that is not known")
        ),
    }
}

fn table(topics: &[&TopicAudit], missing: &BTreeMap<LossStage, u64>, start: Option<Timestamp>) -> String {
    let stages: Vec<LossStage> = missing.keys().copied().collect();
    let with_expired = topics.iter().any(|topic| topic.expired > 0);
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    let mut header = vec!["Topic".to_owned(), "In the bag".to_owned()];
    header.extend(with_expired.then(|| "Expired".to_owned()));
    header.extend(stages.iter().map(|stage| match stage {
        LossStage::Head => LossSums::BEFORE_MATCH.to_owned(),
        LossStage::Policy => "left out on request".to_owned(),
        stage => stage.as_str().to_owned(),
    }));
    let columns = header.len();
    let spans: Vec<String> = topics.iter().map(|topic| span_of(topic, start)).collect();
    let with_spans = spans.iter().any(|span| !span.is_empty());
    header.extend(with_spans.then(|| "Lost between".to_owned()));
    table.set_header(header);
    for (topic, span) in topics.iter().zip(spans) {
        let mut row = vec![Outside(&topic.name).to_string(), format_count(topic.recorded)];
        row.extend(with_expired.then(|| format_count(topic.expired)));
        row.extend(
            stages
                .iter()
                .map(|stage| format_count(topic.missing.get(stage).copied().unwrap_or(0))),
        );
        row.extend(with_spans.then_some(span));
        table.add_row(row);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// From when to when a topic's lost messages were sent or, where publishers do not say that, missed, in seconds after the beginning of the bag.
fn span_of(topic: &TopicAudit, start: Option<Timestamp>) -> String {
    let publishers = topic.account.iter().flat_map(|account| &account.publishers);
    let lost = publishers
        .flat_map(|publisher| &publisher.intervals)
        .filter(|interval| !matches!(interval.stage, LossStage::Policy | LossStage::Head));
    let spans = lost.map(Interval::span);
    // An interval of which no time is known says nothing of the others.
    let from = spans.clone().filter_map(|[first, last]| first.or(last)).min();
    let until = spans.filter_map(|[first, last]| last.or(first)).max();
    let (Some(start), Some(from), Some(until)) = (start, from, until) else {
        return String::new();
    };
    let seconds = |time: Timestamp| time.as_nanos().saturating_sub(start.as_nanos()) as f64 / 1e9;
    format!("{:+.3} and {:+.3} s", seconds(from), seconds(until))
}

/// The object for programs.
pub fn json(bag: &Path, audit: &BagAudit, recoded: &[Recoding]) -> Value {
    let sums = audit.sums();
    let by_topic: Map<String, Value> = audit
        .topics
        .iter()
        .filter(|topic| topic.sums().lost > 0)
        .map(|topic| (topic.name.clone(), stages(&topic.sums())))
        .collect();
    let (account, as_of) = match audit.account {
        AccountKind::Final => ("final", None),
        AccountKind::Checkpoint(time) => ("checkpoint", Some(time.as_nanos())),
        AccountKind::Missing => ("none", None),
    };
    let topics: Map<String, Value> = audit
        .topics
        .iter()
        .map(|topic| (topic.name.clone(), json_topic(topic)))
        .collect();
    let state = audit.state.summary();
    json!({
        "bag": bag,
        "state": state.state,
        "account_from": state.account_from,
        "all_losses_known": state.all_losses_known,
        "missing_files": state.missing_files,
        "ends_unknown": state.ends_unknown,
        "account": account,
        "account_as_of_ns": as_of,
        "recorded": audit.recorded(),
        "lost": {
            "total": sums.lost,
            "by_stage": stages(&sums),
            "by_topic": by_topic,
        },
        "sent_before_match": sums.before_match,
        "left_out": sums.left_out,
        "expired": audit.topics.iter().map(|topic| topic.expired).sum::<u64>(),
        "repeated": audit.topics.iter().map(|topic| topic.repeated).sum::<u64>(),
        "recoded": recoded,
        "balanced": audit.is_balanced(),
        "faults": audit.faults,
        "notices": audit.notices,
        "topics": topics,
    })
}

fn json_topic(topic: &TopicAudit) -> Value {
    let publishers: &[PublisherAccount] = topic.account.as_ref().map_or(&[], |account| &account.publishers);
    let account = topic.account.as_ref();
    let sums = topic.sums();
    json!({
        "recorded": topic.recorded,
        "lost": sums.lost,
        "lost_by_stage": stages(&sums),
        "sent_before_match": sums.before_match,
        "left_out": sums.left_out,
        "expired": topic.expired,
        "repeated": topic.repeated,
        "loss_unknown": account.is_some_and(|account| account.loss_unknown),
        "ends_unknown": account.map_or(0, TopicAccount::ends_unknown),
        "publishers": publishers,
        "folded": account.and_then(|account| account.folded.as_ref()),
    })
}

fn stages(sums: &LossSums) -> Value {
    sums.by_stage
        .iter()
        .map(|(stage, count)| (stage.as_str().to_owned(), json!(count)))
        .collect::<Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_without_times_does_not_hide_the_others() {
        let at = |seconds: i64| Some(Timestamp::from_nanos(seconds * 1_000_000_000));
        let sent = Interval::of_sequences(LossStage::Transport, 5, 6, [at(19), at(19)]);
        let mut account = TopicAccount::default();
        account.publishers = vec![PublisherAccount {
            intervals: vec![
                sent.sent_between([at(14), at(17)]),
                Interval::of_unknown(LossStage::Cache, 3),
                Interval::of_sequences(LossStage::Tail, 9, 9, [at(20), None]),
                Interval::of_sequences(LossStage::Policy, 1, 2, [at(11), at(12)]),
            ],
            ..PublisherAccount::default()
        }];
        let topic = TopicAudit {
            account: Some(account),
            ..TopicAudit::default()
        };
        assert_eq!(span_of(&topic, at(10)), "+4.000 and +10.000 s");
        assert_eq!(span_of(&TopicAudit::default(), at(10)), "");
    }
}
