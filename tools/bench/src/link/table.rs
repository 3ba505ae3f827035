//! A link's report for people.

use super::{Carried, LinkReport, ProgramEnd, counters::Amount};
use crate::{engine::distinct, sheet::Sheet};
use holdall_model::units::format_bytes;
use std::{collections::BTreeMap, fmt::Write};

/// A row for each counter, a column for each direction; counters that stayed zero are left out.
pub fn link_table(report: &LinkReport) -> String {
    let carried = &report.carried;
    let mut text = format!("{}\n", counts_table(carried));
    let lateness = carried.lateness;
    let _ = writeln!(
        text,
        "{:.1} s; packets delivered later than planned: p50 {:.0} µs, p99 {:.0} µs, most {:.0} µs; the link used {:.2} cores",
        carried.elapsed_s, lateness.p50_us, lateness.p99_us, lateness.max_us, carried.cores
    );
    if !carried.balances {
        text.push_str("The books do not balance: packets are missing from the counts.\n");
    }
    for (end, program) in ["A", "B"]
        .iter()
        .zip(&report.programs)
        .filter(|(_, program)| !program.is_good())
    {
        let _ = writeln!(text, "{end} ({}) {}", program.program, how(program));
    }
    text
}

fn counts_table(carried: &Carried) -> String {
    let (a, b) = (&carried.a_to_b, &carried.b_to_a);
    let amount = |amount: Amount| format!("{} ({})", amount.packets, format_bytes(amount.bytes));
    let amounts = [
        ("packets entered", a.entered, b.entered),
        ("arrived", a.arrived, b.arrived),
        ("lost at random", a.dropped.loss, b.dropped.loss),
        ("dropped by the full queue", a.dropped.queue, b.dropped.queue),
        ("dropped during outages", a.dropped.outage, b.dropped.outage),
        (
            "refused by the receiver's device",
            a.dropped.refused,
            b.dropped.refused,
        ),
    ];
    let shown = amounts.into_iter().enumerate();
    let shown = shown.filter(|(place, (_, a, b))| *place < 2 || a.packets + b.packets > 0);
    let mut rows: Vec<Vec<String>> = shown
        .map(|(_, (name, a, b))| vec![name.to_owned(), amount(a), amount(b)])
        .collect();
    let mut counts = vec![
        ("on the way at the end".to_owned(), a.under_way, b.under_way),
        ("fragments of datagrams".to_owned(), a.fragments, b.fragments),
        ("to multicast addresses".to_owned(), a.multicast, b.multicast),
        (
            "TCP segments sent again".to_owned(),
            a.tcp_retransmissions,
            b.tcp_retransmissions,
        ),
        ("RTPS data sent again".to_owned(), a.rtps_repairs, b.rtps_repairs),
    ];
    for kind in distinct(a.rtps.keys().chain(b.rtps.keys())) {
        let of = |counters: &BTreeMap<&str, u64>| counters.get(kind).copied().unwrap_or(0);
        counts.push((format!("RTPS {kind}"), of(&a.rtps), of(&b.rtps)));
    }
    let counted = counts.into_iter().filter(|(_, a, b)| a + b > 0);
    rows.extend(counted.map(|(name, a, b)| vec![name, a.to_string(), b.to_string()]));
    let header = ["", "A → B", "B → A"].map(str::to_owned).to_vec();
    let title = String::new();
    Sheet {
        title,
        header,
        words: 1,
        rows,
    }
    .text()
}

fn how(program: &ProgramEnd) -> String {
    match (program.code, program.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
