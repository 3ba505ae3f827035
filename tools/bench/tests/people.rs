//! D8 from outside: facts about the published data that were found by hand, its statistics, and what is refused.

use holdall_bench::people::{ID, PeopleResult, run};
use serde_json::Value;
use std::{fs, path::Path};

/// The figures of the files with these texts.
fn of(files: &[(&str, &str)]) -> Result<Value, String> {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let result = run(folder.path(), &folder.path().join("out"), "", None);
    result
        .map(|result| Value::Object(result.figures))
        .map_err(|error| error.to_string())
}

const ANSWERS: &str =
    "question,cohort,strongly_disagree,disagree,neutral,agree,strongly_agree,not_applicable\n";

fn published() -> PeopleResult {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tsc-rmw");
    let out = tempfile::tempdir().unwrap();
    let result = run(&data, out.path(), "", None).unwrap();
    let stored = fs::read(out.path().join(ID).join("people.json")).unwrap();
    assert_eq!(serde_json::from_slice::<PeopleResult>(&stored).unwrap(), result);
    result
}

/// The member of a list with this value of a key.
fn found<'v>(list: &'v Value, key: &str, value: &str) -> &'v Value {
    list.as_array()
        .unwrap()
        .iter()
        .find(|one| one[key] == value)
        .unwrap()
}

#[test]
fn the_published_answers_give_what_is_known_of_them() {
    let figures = Value::Object(published().figures);
    let questions = &figures["questions"];
    assert_eq!(questions.as_array().unwrap().len(), 19);
    for (question, cohort, mean, as_published) in [
        ("Q1", "cyclone", 3.86, 4.0),
        ("Q1", "fast", 4.17, 3.97),
        ("Q18", "cyclone", 4.03, 4.0),
        ("Q18", "fast", 3.91, 3.0),
    ] {
        let cohorts = &found(questions, "name", question)["cohorts"];
        let means =
            ["mean", "mean_as_published"].map(|key| found(cohorts, "cohort", cohort)[key].as_f64().unwrap());
        assert!((means[0] - mean).abs() < 0.005, "{question} {cohort}: {means:?}");
        assert!(
            question != "Q1" || (means[1] - as_published).abs() < 0.005,
            "{means:?}"
        );
    }
    let names = |is_found: &dyn Fn(f64, f64) -> bool| -> Vec<&str> {
        let all = questions.as_array().unwrap().iter();
        let those = all.filter(|one| {
            let [p, holm] = ["p", "p_holm"].map(|key| one["comparison"][key].as_f64());
            p.zip(holm).is_some_and(|(p, holm)| is_found(p, holm))
        });
        let mut names: Vec<&str> = those.map(|one| one["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(&|_, holm| holm < 0.05), ["Q3", "Q4"]);
    assert_eq!(names(&|p, holm| p < 0.05 && holm >= 0.05), ["Q12", "Q14"]);
    assert!(names(&|p, _| p > 0.95).contains(&"Q18"));
}

#[test]
fn the_published_items_count_pull_requests_among_the_issues() {
    let figures = Value::Object(published().figures);
    let items = figures["items"].as_array().unwrap();
    assert_eq!(items.len(), 12);
    for (repository, pull_requests, listed) in [
        ("eclipse-cyclonedds/cyclonedds", 99, 121),
        ("eProsima/Fast-RTPS", 256, 331),
        ("ros2/rmw_cyclonedds", 74, 96),
        ("ros2/rmw_fastrtps", 79, 93),
    ] {
        let count = |kind: &str| {
            let mut those = items.iter().filter(|one| one["repository"] == repository);
            let one = those.find(|one| one["kind"] == kind).unwrap();
            one["open"].as_u64().unwrap() + one["closed"].as_u64().unwrap()
        };
        let as_issue = count("pull_request_listed_as_issue");
        assert_eq!((as_issue, as_issue + count("issue")), (pull_requests, listed));
    }
}

#[test]
fn equal_and_opposite_answers() {
    let rows = "Q1,a,5,0,0,0,5,0\nQ1,b,5,0,0,0,5,0\nQ2,a,0,0,0,0,20,0\nQ2,b,20,0,0,0,0,0\nQ3,a,0,0,4,0,0,0\nQ3,b,0,0,4,0,0,0\n";
    let figures = of(&[("survey_counts.csv", &format!("{ANSWERS}{rows}"))]).unwrap();
    let of_question = |place: usize, key: &str| figures["questions"][place]["comparison"][key].as_f64();
    assert!(of_question(0, "effect").unwrap().abs() < 1e-12 && of_question(0, "p").unwrap() > 0.99);
    let [effect, p, holm] = ["effect", "p", "p_holm"].map(|key| of_question(1, key).unwrap());
    assert!((effect - 1.0).abs() < 1e-12 && p < 1e-6 && (holm / p - 2.0).abs() < 1e-9);
    assert!(figures["questions"][2]["comparison"].is_null());
}

#[test]
fn texts_of_one_person_are_not_kept_and_numbers_are_in_order() {
    let rows = "field,cohort,answer,count\nversion,all,Foxy,70\nversion,all,Rolling,1\nversion,all,,1\nversion,fast,Rolling,1\n\
                years,all,10,2\nyears,all,2.5,1\nyears,all,,4\n";
    let figures = of(&[("survey_profile_counts.csv", rows)]).unwrap();
    let cohorts = |place: usize| figures["profiles"][place]["cohorts"].clone();
    assert_eq!(
        cohorts(0),
        serde_json::json!([["all", [["Foxy", 70], ["other", 2]]], ["fast", [["other", 1]]]])
    );
    assert_eq!(cohorts(1), serde_json::json!([["all", [["2.5", 1], ["10", 2]]]]));
}

#[test]
fn open_items_count_as_long_as_they_were_watched() {
    let rows = "repository,kind,number,opened_at,closed_at,state,open_for_s\n\
        r,issue,1,2020-01-01 00:00:00,2020-01-03 00:00:00,closed,172800\n\
        r,issue,2,2020-01-01 00:00:00,,open,\n\
        r,issue,3,2020-01-08 00:00:00,,open,\n\
        r,issue,4,2020-01-01 00:00:00,2020-01-11 00:00:00,closed,864000\n\
        r,pull_request,5,2020-01-01T00:00:00Z,2020-01-02 00:00:00,closed,86400\n";
    let figures = of(&[("repository_items.csv", rows)]).unwrap();
    let issues = &figures["items"][0];
    // 1 of 4 after two days; the item of the 8th is watched for 3 days; of the two left one is closed at the end of the tenth.
    assert_eq!(
        issues["closed_after_days"],
        serde_json::json!([[0.0, 0.0], [2.0, 0.25], [10.0, 0.625]])
    );
    assert_eq!(
        (&issues["median_days"], &issues["median_days_as_published"]),
        (&10.0.into(), &95.0.into())
    );
    let error = of(&[(
        "repository_items.csv",
        &rows.replace("2020-01-08 00:00:00", "soon"),
    )])
    .unwrap_err();
    assert!(error.contains("'soon' is not a time"), "{error}");
}

#[test]
fn pages_of_the_hosting_site_are_read() {
    let item = |number: u32, state: &str, closed: &str, more: &str| {
        format!(
            "{{\"html_url\":\"https://host/me/mine/issues/{number}\",\"number\":{number},\"state\":\"{state}\",\
             \"created_at\":\"2020-01-01T00:00:00Z\",\"closed_at\":{closed},\"title\":\"t\"{more}}}"
        )
    };
    let closed = "\"2020-01-03T00:00:00Z\"";
    let issues = [
        item(1, "closed", closed, ""),
        item(2, "open", "null", ""),
        item(3, "closed", closed, ",\"pull_request\":{\"url\":\"u\"}"),
    ];
    let pulls = format!("[{}]", item(3, "closed", closed, ",\"head\":{}"));
    let figures = of(&[
        ("1_issues.json", &format!("[{}]", issues.join(","))),
        ("1_pulls.json", &pulls),
    ])
    .unwrap();
    let items = figures["items"].as_array().unwrap().iter();
    let kinds: Vec<_> = items
        .map(|one| {
            (
                one["kind"].as_str().unwrap(),
                one["open"].as_u64(),
                one["closed"].as_u64(),
            )
        })
        .collect();
    let one = Some(1);
    assert_eq!(
        kinds,
        [
            ("issue", one, one),
            ("pull_request_listed_as_issue", Some(0), one),
            ("pull_request", Some(0), one)
        ]
    );
    assert_eq!(
        (
            &figures["items"][0]["repository"],
            &figures["items"][0]["median_days"]
        ),
        (&"me/mine".into(), &2.0.into())
    );
    let error = of(&[("1_pulls.json", "{\"a\": 1}")]).unwrap_err();
    assert!(error.contains("is not a list of issues"), "{error}");
}

#[test]
fn commits_authors_and_weeks_are_counted() {
    let commit = |time: &str, author: &str, parents: &str| {
        let hash = "a".repeat(40);
        format!("{hash}\t{time}\t{author}\t{parents}\n\n3\t1\tsrc/a b.rs\n-\t-\tpicture.png\n")
    };
    let log = [
        commit("2026-01-22T10:00:00+01:00", "Ann", "p q"),
        commit("2026-01-08T10:00:00Z", "Ann", "p"),
        commit("2026-01-07T10:00:00Z", "Bob", "p"),
        commit("2026-01-01T10:00:00Z", "Cy", ""),
    ]
    .concat();
    let figures = of(&[("git_log.txt", &log)]).unwrap();
    let history = &figures["histories"][0];
    for (key, count) in [("commits", 4), ("merges", 1), ("authors", 3), ("bus_factor", 1)] {
        assert_eq!(history[key], count, "{key}");
    }
    assert_eq!(history["lines"], serde_json::json!([12, 4]));
    // The first of January 2026 is a Thursday, and so is the epoch.
    assert_eq!(history["by_week"], serde_json::json!([2, 1, 0, 1]));
    for (text, expected) in [("", "no commit"), ("hello\n", "line 1: expected a commit")] {
        let error = of(&[("git_log.txt", text)]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let error = of(&[("git_log.txt", &log.replace("2026-01-22T10:00:00+01:00", "soon"))]).unwrap_err();
    assert!(error.contains("'soon' is not a time"), "{error}");
}

#[test]
fn a_folder_without_data_is_refused() {
    let error = of(&[]).unwrap_err();
    assert!(error.contains("survey_counts.csv"), "{error}");
}
