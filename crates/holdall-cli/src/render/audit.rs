//! An audit on the screen, and as JSON.

use super::{TABLE_STYLE, paint::Paint};
use crate::units::{format_count, plural};
use comfy_table::{CellAlignment, Table};
use holdall::{
    reader::{AccountKind, BagAudit, TopicAudit},
    record::ledger::PublisherAccount,
};
use holdall_model::{
    loss::LossStage,
    text::{Outside, OutsidePath},
};
use serde_json::{Map, Value, json};
use std::{collections::BTreeMap, path::Path};

/// The text for people: what is lost where, what does not add up, and the verdict as the last line.
pub fn text(bag: &Path, audit: &BagAudit, paint: Paint) -> String {
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
        .filter(|topic| !topic.missing.is_empty() || topic.removed > 0)
        .collect();
    if !with_loss.is_empty() {
        lines.push(table(&with_loss, &missing));
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

fn table(topics: &[&TopicAudit], missing: &BTreeMap<LossStage, u64>) -> String {
    let stages: Vec<LossStage> = missing.keys().copied().collect();
    let with_removed = topics.iter().any(|topic| topic.removed > 0);
    let mut table = Table::new();
    table.load_style(TABLE_STYLE);
    let mut header = vec!["Topic".to_owned(), "In the bag".to_owned()];
    header.extend(with_removed.then(|| "Removed".to_owned()));
    header.extend(stages.iter().map(|stage| stage.as_str().to_owned()));
    let columns = header.len();
    table.set_header(header);
    for topic in topics {
        let mut row = vec![Outside(&topic.name).to_string(), format_count(topic.recorded)];
        row.extend(with_removed.then(|| format_count(topic.removed)));
        row.extend(
            stages
                .iter()
                .map(|stage| format_count(topic.missing.get(stage).copied().unwrap_or(0))),
        );
        table.add_row(row);
    }
    for column in 1..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// The object for programs.
pub fn json(bag: &Path, audit: &BagAudit) -> Value {
    let missing = audit.missing();
    let lost: u64 = audit
        .topics
        .iter()
        .flat_map(TopicAudit::lost)
        .map(|(_, count)| count)
        .sum();
    let by_topic: Map<String, Value> = audit
        .topics
        .iter()
        .filter(|topic| topic.lost().next().is_some())
        .map(|topic| (topic.name.clone(), stages(topic.lost())))
        .collect();
    let not_policy = missing.iter().filter(|(stage, _)| **stage != LossStage::Policy);
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
    json!({
        "bag": bag,
        "account": account,
        "account_as_of_ns": as_of,
        "recorded": audit.recorded(),
        "lost": {
            "total": lost,
            "after_match": audit.shortfall(),
            "by_stage": stages(not_policy.map(|(stage, count)| (*stage, *count))),
            "by_topic": by_topic,
        },
        "left_out": missing.get(&LossStage::Policy).copied().unwrap_or(0),
        "removed": audit.topics.iter().map(|topic| topic.removed).sum::<u64>(),
        "balanced": audit.is_balanced(),
        "faults": audit.faults,
        "notices": audit.notices,
        "topics": topics,
    })
}

fn json_topic(topic: &TopicAudit) -> Value {
    let publishers: &[PublisherAccount] = topic.account.as_ref().map_or(&[], |account| &account.publishers);
    let account = topic.account.as_ref();
    json!({
        "recorded": topic.recorded,
        "lost": topic.lost().map(|(_, count)| count).sum::<u64>(),
        "lost_by_stage": stages(topic.lost()),
        "left_out": topic.missing.get(&LossStage::Policy).copied().unwrap_or(0),
        "removed": topic.removed,
        "loss_unknown": account.is_some_and(|account| account.loss_unknown),
        "publishers": publishers,
        "folded": account.and_then(|account| account.folded.as_ref()),
    })
}

fn stages(counts: impl Iterator<Item = (LossStage, u64)>) -> Value {
    counts
        .map(|(stage, count)| (stage.as_str().to_owned(), json!(count)))
        .collect::<Map<_, _>>()
        .into()
}
