//! A link's report for people.

use super::{Carried, LinkReport, ProgramEnd, counters::Amount};
use crate::report::TABLE_STYLE;
use comfy_table::{CellAlignment, Table};
use holdall_model::units::format_bytes;
use std::fmt::Write;

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

fn counts_table(carried: &Carried) -> Table {
    let (a, b) = (&carried.a_to_b, &carried.b_to_a);
    let mut table = Table::new();
    table.set_header(["", "A → B", "B → A"]).load_style(TABLE_STYLE);
    for column in 1..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let amount = |amount: Amount| format!("{} ({})", amount.packets, format_bytes(amount.bytes));
    let mut amounts = |name: &str, of_a: Amount, of_b: Amount, is_always: bool| {
        if is_always || of_a.packets + of_b.packets > 0 {
            table.add_row([name.to_owned(), amount(of_a), amount(of_b)]);
        }
    };
    amounts("packets entered", a.entered, b.entered, true);
    amounts("arrived", a.arrived, b.arrived, true);
    amounts("lost at random", a.dropped.loss, b.dropped.loss, false);
    amounts(
        "dropped by the full queue",
        a.dropped.queue,
        b.dropped.queue,
        false,
    );
    amounts(
        "dropped during outages",
        a.dropped.outage,
        b.dropped.outage,
        false,
    );
    amounts(
        "refused by the receiver's device",
        a.dropped.refused,
        b.dropped.refused,
        false,
    );
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
    for kind in a
        .rtps
        .keys()
        .chain(b.rtps.keys().filter(|kind| !a.rtps.contains_key(*kind)))
    {
        let of = |counters: &std::collections::BTreeMap<&str, u64>| counters.get(kind).copied().unwrap_or(0);
        counts.push((format!("RTPS {kind}"), of(&a.rtps), of(&b.rtps)));
    }
    for (name, of_a, of_b) in counts.into_iter().filter(|(_, a, b)| a + b > 0) {
        table.add_row([name, of_a.to_string(), of_b.to_string()]);
    }
    table
}

fn how(program: &ProgramEnd) -> String {
    match (program.code, program.signal) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
