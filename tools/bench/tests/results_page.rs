//! The page docs/benchmarks/results.md equals the output of the command for the results next to it.

use holdall_bench::suite::report;
use std::{fs, path::Path};

#[test]
fn the_committed_page_is_written_from_the_committed_results() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let loaded = report::load(&docs.join("results")).unwrap();
    assert!(!loaded.experiments.is_empty());
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    report::write_summary(&loaded, &page).unwrap();
    let names = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names {
        let written = fs::read_to_string(folder.path().join(&name)).unwrap();
        let committed = fs::read_to_string(docs.join(&name)).unwrap_or_default();
        assert!(
            written == committed,
            "{name} differs; write it anew: holdall bench report docs/benchmarks/results --summary docs/benchmarks/results.md"
        );
    }
    let text = fs::read_to_string(&page).unwrap();
    assert!(report::words(&text) <= report::WORDS_MAX);
    let plots = loaded.experiments.len().min(report::PLOTS_MAX);
    assert_eq!(text.matches("\n![").count(), plots, "one plot of each experiment");
    assert_eq!(text.matches("\n|---").count(), 1, "one table");
    for id in "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 B1 B2 C1 C2 C3 C4 D1 D1b D2 D3 D4 D4b D4c D5 D6 D7 D8 L1 G1"
        .split(' ')
    {
        assert_eq!(text.matches(&format!("\n| {id} | ")).count(), 1, "{id}");
    }
    // The publishers of ROS 1 did not keep their rate.
    for plot in ["results.2.svg", "results.3.svg"] {
        let plot = fs::read_to_string(docs.join(plot)).unwrap();
        assert!(plot.contains(" % of the load"));
    }
    // The page has what all commands begin and end with once.
    for one in &loaded.experiments {
        let command = one.result.command.strip_prefix("holdall bench run ");
        let command = command
            .and_then(|command| command.strip_suffix(" --out DIR"))
            .unwrap();
        assert!(text.contains(&format!("\n- `{command}`\n")), "{command}");
    }
}

#[test]
fn a_page_of_many_experiments_keeps_to_its_length() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let mut loaded = report::Results::default();
    for number in 0..30 {
        let mut more = report::load(&docs.join("results")).unwrap();
        for one in &mut more.experiments {
            one.result.experiment += &format!(".{number}");
        }
        loaded.append(more);
    }
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    report::write_summary(&loaded, &page).unwrap();
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        report::words(&text) <= report::WORDS_MAX,
        "{}",
        report::words(&text)
    );
    assert!(report::words(&text) > report::WORDS_MAX * 2 / 5 && text.contains(" more: see the report."));
}

#[test]
fn a_page_of_two_machines_names_what_each_ran() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let mut loaded = report::load(&docs.join("results")).unwrap();
    loaded.experiments.truncate(3);
    for (one, processor) in loaded.experiments.iter_mut().zip(["Fast", "Slow", "Fast"]) {
        one.result.machine.processor = processor.to_owned();
        one.result.machine.kernel = "6.18".to_owned();
    }
    let names: Vec<String> = loaded
        .experiments
        .iter()
        .map(|one| one.result.experiment.clone())
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("results.md");
    report::write_summary(&loaded, &page).unwrap();
    let text = fs::read_to_string(&page).unwrap();
    for (ran, processor) in [
        (format!("{}, {}", names[0], names[2]), "Fast"),
        (names[1].clone(), "Slow"),
    ] {
        let line = text.lines().find(|line| line.starts_with(&format!("- {ran}: ")));
        assert!(line.is_some_and(|line| line.contains(processor)), "{ran}: {text}");
    }
}
