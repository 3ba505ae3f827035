//! Migrations of small definitions, and the faults of rules.

use super::*;
use crate::{
    dynamic::text::TextOptions,
    interface::{InterfaceSource, SourceFormat},
};
use proptest::prelude::*;

/// A definition from `.msg` texts; the first one is the message.
fn defined(texts: &[(&str, &str)]) -> Definition {
    Definition::resolve(texts[0].0, |name| {
        let (_, text) = texts.iter().find(|(known, _)| *known == name)?;
        Some(InterfaceSource {
            format: SourceFormat::Msg,
            text: (*text).to_owned().into(),
        })
    })
    .unwrap()
}

fn compare(old: &[(&str, &str)], new: &[(&str, &str)], rules: &str) -> Result<Comparison, String> {
    let rules = match rules {
        "" => Rules::default(),
        text => Rules::parse("rules.yaml", text).map_err(|error| error.to_string())?,
    };
    let new = defined(new);
    let define = |name: &str| Ok((name == new.type_name()).then(|| new.clone()));
    let target = Target {
        rules: &rules,
        define: &define,
    };
    let old = defined(old);
    let type_name = old.type_name().to_owned();
    match target.compare::<RuleError>(&type_name, || Ok(Some(old))) {
        Ok(Compared::Other(comparison)) => Ok(*comparison),
        Ok(other) => Err(format!("{other:?}")),
        Err(error) => Err(error.to_string()),
    }
}

/// The message in the new definition as JSON.
fn migrated(
    old: &[(&str, &str)],
    new: &[(&str, &str)],
    rules: &str,
    message: &str,
) -> Result<serde_json::Value, String> {
    let comparison = compare(old, new, rules)?;
    let refused: Vec<String> = comparison.refused().map(ToString::to_string).collect();
    let migration = comparison.migration().ok_or_else(|| refused.join("; "))?;
    let payload = TypePlan::compile(&defined(old))
        .unwrap()
        .encode_json(message)
        .unwrap();
    let mut out = Vec::new();
    migration
        .apply(&payload, &mut out)
        .map_err(|error| error.to_string())?;
    let plan = TypePlan::compile(&defined(new)).unwrap();
    let mut text = Vec::new();
    plan.write_json(&out, &TextOptions::default(), &mut text).unwrap();
    Ok(serde_json::from_slice(&text).unwrap())
}

fn differences(old: &[(&str, &str)], new: &[(&str, &str)]) -> Vec<String> {
    let comparison = compare(old, new, "").unwrap();
    comparison.differences.iter().map(ToString::to_string).collect()
}

#[test]
fn fields_are_carried_by_name_widened_and_given_their_defaults() {
    let old = [
        ("a/msg/A", "uint8 small\nstring name\nB[] list\nfloat32[3] fixed"),
        ("a/msg/B", "int32 x"),
    ];
    let new = [
        (
            "a/msg/A",
            "string name\nfloat64[] fixed\nint64 small\nuint16 added 7\nB[] list\nstring[] words",
        ),
        ("a/msg/B", "bool on true\nint32 x"),
    ];
    let message = r#"{"small": 200, "name": "n", "list": [{"x": 1}, {"x": -2}], "fixed": [1, 2.5, 3]}"#;
    let found = migrated(&old, &new, "", message).unwrap();
    let wanted = serde_json::json!({
        "name": "n", "fixed": [1.0, 2.5, 3.0], "small": 200, "added": 7,
        "list": [{"on": true, "x": 1}, {"on": true, "x": -2}], "words": [],
    });
    assert_eq!(found, wanted);
    assert_eq!(compare(&old, &old, "").unwrap_err(), "Same({})");
}

#[test]
fn what_has_no_place_is_listed_and_refused() {
    let old = [
        (
            "a/msg/A",
            "string id\nfloat64 gone\nint64 wide\nB b\nuint8 ON=1\nuint8 state\nstring[] list",
        ),
        ("a/msg/B", "int32 x"),
    ];
    let new = [
        (
            "a/msg/A",
            "string class_id\nint32 wide\nC b\nuint8 ON=2\nuint8 state\nstring[<=2] list",
        ),
        ("a/msg/C", "int32 x"),
    ];
    let found = differences(&old, &new);
    for wanted in [
        "a/msg/A: class_id (string) is new",
        "a/msg/A: wide was int64 and is int32",
        "a/msg/A: b was a/msg/B and is a/msg/C",
        "a/msg/A: list was string[] and is string[<=2]",
        "a/msg/A: id (string) has no place, it is probably class_id now",
        "a/msg/A: gone (float64) has no place",
        "a/msg/A: the constant ON was 1 and is 2",
    ] {
        assert!(found.iter().any(|line| line == wanted), "{wanted}: {found:?}");
    }
    let comparison = compare(&old, &new, "").unwrap();
    assert!(comparison.refused().count() == 6 && comparison.migration().is_none());
    let text = draft([comparison].iter(), ["b/msg/Other"].into_iter());
    assert!(text.contains("      class_id: id # probably renamed"), "{text}");
    assert!(text.contains("    # drop: [gone]\n    # lossy: true"), "{text}");
    assert!(Rules::parse("draft", &text).is_ok(), "{text}");
}

#[test]
fn rules_rename_split_convert_and_map() {
    let old = [(
        "a/msg/Old",
        "string id\nfloat64 x\nfloat64 y\nuint64 stamp_ns\nuint16[] millimetres\nuint8 mode\nint64 wide\nfloat64[2] pair\nstring gone",
    )];
    let new = [
        (
            "a/msg/New",
            "uint8 OFF=10\nuint8 ON=20\nT stamp\nP place\nstring name\nfloat32[] metres\nuint8 mode\nint32 wide\nfloat64 first\nfloat64 second\n\
             string unit",
        ),
        ("a/msg/T", "int32 sec\nuint32 nanosec"),
        ("a/msg/P", "float64 x\nfloat64 y\nfloat64 z 1.5"),
    ];
    let rules = "rules:\n  - type: a/msg/Old\n    becomes: a/msg/New\n    fields:\n      name: id\n      place.x: x\n      place.y: -y\n      \
                 stamp.sec: (stamp_ns - stamp_ns % 1000000000) / 1000000000\n      stamp.nanosec: stamp_ns % 1000000000\n      \
                 metres: millimetres[*] / 1000\n      mode: {from: mode, map: {0: OFF, 1: ON}}\n      wide: wide\n      first: pair[0]\n      \
                 second: pair[1]\n      unit: {value: m}\n    drop: [gone]\n    lossy: true\n";
    let message = r#"{"id": "i", "x": 1, "y": 2, "stamp_ns": 1700000000123456789, "millimetres": [1000, 1500], "mode": 1, "wide": -5, "pair": [3, 4]}"#;
    let wanted = serde_json::json!({
        "stamp": {"sec": 1_700_000_000, "nanosec": 123_456_789}, "place": {"x": 1.0, "y": -2.0, "z": 1.5}, "name": "i",
        "metres": [1.0, 1.5], "mode": 20, "wide": -5, "first": 3.0, "second": 4.0, "unit": "m",
    });
    assert_eq!(migrated(&old, &new, rules, message).unwrap(), wanted);
    let error = migrated(&old, &new, rules, r#"{"mode": 9}"#).unwrap_err();
    assert!(error.contains("mode") && error.contains("9"), "{error}");
    let error = migrated(&old, &new, rules, r#"{"wide": 3000000000}"#).unwrap_err();
    assert!(error.contains("wide") && error.contains("3000000000"), "{error}");
}

#[test]
fn rules_reach_structs_in_lists_and_rename_them() {
    let old = [
        ("a/msg/A", "Pose[] poses\nPose one"),
        ("a/msg/Pose", "float64 x\nfloat64 theta"),
    ];
    let new = [
        ("a/msg/A", "b/Pose[] poses\nb/Pose one"),
        ("b/msg/Pose", "Point position\nfloat64 degrees"),
        ("b/msg/Point", "float64 x\nfloat64 y"),
    ];
    let rules = "rules:\n- type: a/msg/Pose\n  becomes: b/msg/Pose\n  fields: {position.x: x, degrees: theta * 180 / 3}\n";
    let message = r#"{"poses": [{"x": 1, "theta": 1}, {"x": 2, "theta": 2}], "one": {"x": 3}}"#;
    let pose = |x: f64, degrees: f64| serde_json::json!({"position": {"x": x, "y": 0.0}, "degrees": degrees});
    let wanted = serde_json::json!({"poses": [pose(1.0, 60.0), pose(2.0, 120.0)], "one": pose(3.0, 0.0)});
    assert_eq!(migrated(&old, &new, rules, message).unwrap(), wanted);
    assert!(
        migrated(&old, &new, "", message)
            .unwrap_err()
            .contains("poses was a/msg/Pose[]")
    );
}

#[test]
fn maps_take_constants_of_the_same_names() {
    let old = [("a/msg/A", "uint8 OK=0\nuint8 WARN=1\nuint8 ERROR=2\nuint8 level")];
    let new = [("a/msg/A", "uint8 OK=1\nuint8 WARN=3\nuint8 ERROR=5\nuint8 level")];
    assert!(
        migrated(&old, &new, "", "{}")
            .unwrap_err()
            .contains("the constant OK was 0 and is 1")
    );
    let rules = "rules:\n- type: a/msg/A\n  fields: {level: {from: level, map: {OK: OK, WARN: WARN, ERROR: ERROR}}}\n";
    let found = migrated(&old, &new, rules, r#"{"level": 2}"#).unwrap();
    assert_eq!(found["level"], 5);
    let kept = "rules:\n- type: a/msg/A\n  keep_constants: true\n";
    assert_eq!(migrated(&old, &new, kept, "{}").unwrap_err(), "Same({0})");
    let folded =
        "rules:\n- type: a/msg/A\n  fields: {level: {from: level, map: {0: OK, 1: OK}, otherwise: 9}}\n";
    let error = migrated(&old, &new, folded, "{}").unwrap_err();
    assert!(error.contains("needs lossy: true"), "{error}");
    let unknown = "rules:\n- type: a/msg/A\n  fields: {level: {from: level, map: {OKAY: OK}}}\n";
    let error = migrated(&old, &new, unknown, "{}").unwrap_err();
    assert!(error.contains("the key OKAY of its map"), "{error}");
    let lossy = format!("{folded}  lossy: true\n");
    assert_eq!(
        migrated(&old, &new, &lossy, r#"{"level": 7}"#).unwrap()["level"],
        9
    );
}

#[test]
fn values_are_exact_or_the_rule_says_that_they_need_not_be() {
    let old = [("a/msg/A", "float64 x\nint64 y")];
    let new = [("a/msg/A", "float32 x\nint32 y")];
    let rules = "rules:\n- type: a/msg/A\n  fields: {x: x, y: y}\n";
    let exact = migrated(&old, &new, rules, r#"{"x": 0.5, "y": 3}"#).unwrap();
    assert_eq!(exact, serde_json::json!({"x": 0.5, "y": 3}));
    let error = migrated(&old, &new, rules, r#"{"x": 0.1, "y": 3}"#).unwrap_err();
    assert!(error.contains("lossy: true"), "{error}");
    let lossy = format!("{rules}  lossy: true\n");
    assert!(migrated(&old, &new, &lossy, r#"{"x": 0.1, "y": 3}"#).is_ok());
    let halves = "rules:\n- type: a/msg/A\n  fields: {x: x, y: y / 2}\n";
    assert_eq!(migrated(&old, &new, halves, r#"{"y": 6}"#).unwrap()["y"], 3);
    let error = migrated(&old, &new, halves, r#"{"y": 7}"#).unwrap_err();
    assert!(error.contains("a whole number"), "{error}");
}

#[test]
fn elements_are_exact_and_all_there_or_refused() {
    let old = [("a/msg/A", "float64[] x\nfloat64[] by")];
    let new = [("a/msg/A", "float32 first\nfloat32[] scaled")];
    let rules = "rules:\n- type: a/msg/A\n  fields: {first: 'x[0]', scaled: 'x[*] / by[0]'}\n  drop: [by]\n  lossy: true\n";
    let found = migrated(&old, &new, rules, r#"{"x": [0.25, 1], "by": [2]}"#).unwrap();
    assert_eq!(found, serde_json::json!({"first": 0.25, "scaled": [0.125, 0.5]}));
    let error = migrated(&old, &new, rules, r#"{"x": [0.5, 1]}"#).unwrap_err();
    assert!(error.contains("scaled") && error.contains("by[0]"), "{error}");
    let new = [("a/msg/A", "float32 first\nfloat64[] x\nfloat64[] by")];
    let rules = "rules:\n- type: a/msg/A\n  fields: {first: 'x[0]'}\n";
    let error = migrated(&old, &new, rules, r#"{"x": [0.1]}"#).unwrap_err();
    assert!(
        error.contains("first") && error.contains("lossy: true"),
        "{error}"
    );
}

#[test]
fn numbers_that_are_not_finite_are_carried() {
    let old = [("a/msg/A", "float32[] x\nfloat64 y")];
    let new = [("a/msg/A", "float64[] x\nfloat32 y")];
    let rules = "rules:\n- type: a/msg/A\n  fields: {y: y}\n";
    let message = r#"{"x": ["NaN", "Infinity", 0.5], "y": "-Infinity"}"#;
    let wanted = serde_json::json!({"x": ["NaN", "Infinity", 0.5], "y": "-Infinity"});
    assert_eq!(migrated(&old, &new, rules, message).unwrap(), wanted);
}

#[test]
fn bytes_become_numbers_of_the_same_bits() {
    let old = [("a/msg/A", "byte one\nbyte[] list\nuint8 back")];
    let new = [("a/msg/A", "uint8 one\nuint8[] list\nbyte back")];
    let message = r#"{"one": 200, "list": [1, 255], "back": 7}"#;
    let wanted = serde_json::json!({"one": 200, "list": [1, 255], "back": 7});
    assert_eq!(migrated(&old, &new, "", message).unwrap(), wanted);
}

#[test]
fn faults_in_rules_are_one_sentence_with_their_line() {
    let old = [("a/msg/A", "int32 x\nstring gone")];
    let new = [("a/msg/A", "int32 x\nint32 y")];
    for (rule, wanted) in [
        (
            "fields: {z: x}",
            "rules.yaml, line 2: a/msg/A: a/msg/A has no field z",
        ),
        ("fields: {y: w}", "has no field w"),
        ("fields: {y: x +}", "line 2: a/msg/A: y: expression"),
        ("fields: {y: {value: words}}", "whole number"),
        ("drop: [nothing]", "it has no field nothing to drop"),
        ("drop: [gone]", "dropping gone needs lossy: true"),
        ("feilds: {y: x}", "unknown field `feilds`"),
        (
            "fields: {y: {form: x}}",
            "expected an expression, or from with map",
        ),
        ("lossy: maybe", "expected true or false"),
    ] {
        let text = format!("rules:\n- type: a/msg/A\n  {rule}\n");
        let error = migrated(&old, &new, &text, "{}").unwrap_err();
        assert!(error.contains(wanted), "{rule}: {error}");
    }
    let error = compare(&old, &new, "rules:\n- type: a/msg/A\n  becomes: a/msg/B\n");
    assert!(error.is_ok(), "the type of the same name is taken first");
    let gone = [("a/msg/Old", "int32 x")];
    let error = compare(&gone, &new, "rules:\n- type: a/msg/Old\n  becomes: a/msg/B\n").unwrap_err();
    assert!(error.contains("the new definitions have no a/msg/B"), "{error}");
}

/// What is said of the migration of topics with these types by name; the bag and the new definitions have those of `old` and `new`.
fn notices(
    topics: &[(&str, &str)],
    old: &[(&str, &str)],
    new: &[(&str, &str)],
    rules: &Rules,
) -> Result<Vec<String>, RuleError> {
    let one = |texts: &[(&str, &str)], name: &str| {
        let (first, text) = texts.iter().find(|(known, _)| *known == name)?;
        let others = texts.iter().filter(|(known, _)| known != first);
        let texts: Vec<_> = [(*first, *text)].into_iter().chain(others.copied()).collect();
        Some(defined(&texts))
    };
    let target = Target {
        rules,
        define: &|name| match name {
            "a/msg/Broken" => Err("it is broken".to_owned()),
            name => Ok(one(new, name)),
        },
    };
    let infos = topics.iter().map(|(name, type_name)| TopicInfo {
        name: (*name).to_owned(),
        type_name: (*type_name).to_owned(),
        ..TopicInfo::default()
    });
    let of_topic = |type_name: &str| topics.iter().any(|(_, known)| *known == type_name);
    let compared = target.compare_all(infos, |type_name, _| {
        Ok::<_, RuleError>(one(old, type_name).filter(|_| of_topic(type_name)))
    })?;
    let migrations = Migrations::compile(compared, rules)?;
    Ok(migrations.notices().cloned().collect())
}

#[test]
fn rules_that_found_nothing_are_named_and_those_for_no_type_at_all_are_refused() {
    let old = [
        ("a/msg/A", "int32 x\nPart part"),
        ("a/msg/Part", "int32 x"),
        ("a/msg/Gone", "Piece piece"),
        ("a/msg/Piece", "int32 x"),
        ("a/msg/Level", "uint8 ON=1\nuint8 level"),
    ];
    let new = [
        ("a/msg/A", "int32 x\nPart part"),
        ("a/msg/Part", "int32 x\nint32 y"),
        ("a/msg/Other", "int32 x"),
        ("a/msg/Level", "uint8 ON=2\nuint8 level"),
    ];
    let topics = [
        ("/a", "a/msg/A"),
        ("/gone", "a/msg/Gone"),
        ("/level", "a/msg/Level"),
    ];
    let said = |text: &str| {
        let rules = Rules::parse("r", &format!("rules:\n{text}")).unwrap();
        let shipped = Rules::parse("ros2", Rules::shipped("ros2").unwrap()).unwrap();
        notices(&topics, &old, &new, &rules.then(shipped)).map_err(|error| error.to_string())
    };
    let unchanged = "unchanged, because the new definitions do not have their types: /gone (a/msg/Gone)";
    let shipped = "ros2: none of its rules names a type that is migrated";
    let used = "- type: a/msg/Part\n  fields: {y: x}\n- type: a/msg/Level\n  keep_constants: true\n";
    assert_eq!(said(used).unwrap(), [unchanged, shipped]);
    // Types of other bags, of the new definitions, of what completes them, and one that only a struct of the bag has.
    let idle = "- type: b/msg/Old\n  becomes: a/msg/Other\n- type: a/msg/Other\n- type: std_msgs/msg/Header\n- type: a/msg/Piece\n\
                - type: a/msg/Other\n  becomes: c/msg/C\n";
    let named = "r: no topic has what these rules are for: b/msg/Old (line 6), a/msg/Other (line 8), std_msgs/msg/Header (line 9), \
                 a/msg/Piece (line 10), a/msg/Other (line 11)";
    assert_eq!(
        said(&format!("{used}{idle}")).unwrap(),
        [unchanged, named, shipped]
    );
    for typo in ["a/msg/Prat", "a/Part", "b/msg/Old\n  becomes: a/msg/Othre"] {
        let error = said(&format!("{used}- type: {typo}\n")).unwrap_err();
        let name = typo.split('\n').next().unwrap();
        let wanted = format!("r, line 6: {name}: no definition of this type is in the bag");
        assert!(error.starts_with(&wanted), "{error}");
    }
    // Types of the bag, one within another, that become one that no definition has.
    for name in ["a/msg/Part", "a/msg/A"] {
        let error = said(&format!("{used}- type: {name}\n  becomes: a/msg/Othre\n")).unwrap_err();
        let wanted = format!("r, line 6: {name}: no definition of a/msg/Othre is in the bag");
        assert!(error.starts_with(&wanted), "{error}");
    }
}

#[test]
fn new_definitions_that_cannot_be_used_are_an_error_and_not_unknown() {
    let old = [("a/msg/Broken", "int32 x")];
    let error = notices(&[("/a", "a/msg/Broken")], &old, &old, &Rules::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the new definitions cannot be used: it is broken"
    );
}

#[test]
fn a_rule_counts_where_the_old_struct_has_and_lacks_what_it_names() {
    let rules = "rules:\n- type: a/msg/A\n  when: [id]\n  unless: [name]\n  fields: {name: id}\n\
                 - type: a/msg/A\n  when: [id]\n  drop: [id]\n  lossy: true\n";
    let new = [("a/msg/A", "string name")];
    let found = migrated(&[("a/msg/A", "int64 id")], &new, rules, r#"{"id": -7}"#);
    assert_eq!(found.unwrap()["name"], "-7", "a whole number becomes its text");
    let both = [("a/msg/A", "int64 id\nstring name")];
    let found = migrated(&both, &new, rules, r#"{"id": 7, "name": "n"}"#);
    assert_eq!(found.unwrap()["name"], "n");
}

#[test]
fn the_rules_that_come_with_holdall_are_read_and_need_none_of_their_packages() {
    for name in ["ros1", "ros2"] {
        let rules = Rules::parse(name, Rules::shipped(name).unwrap()).unwrap();
        let target = Target {
            rules: &rules,
            define: &|_| Ok(None),
        };
        let compared =
            target.compare::<RuleError>("vision_msgs/msg/Classification2D", || panic!("it is not needed"));
        assert!(matches!(compared, Ok(Compared::Unknown)), "{compared:?}");
    }
    assert_eq!(Rules::shipped("ros3"), None);
}

#[test]
fn a_message_of_another_definition_is_refused() {
    let old = [("a/msg/A", "int32 x")];
    let new = [("a/msg/A", "int32 x\nint32 y")];
    let comparison = compare(&old, &new, "").unwrap();
    let migration = comparison.migration().unwrap();
    let mut out = Vec::new();
    assert!(migration.apply(&[0, 1, 0, 0, 1, 0], &mut out).is_err());
    let longer = [[0, 1, 0, 0].as_slice(), &[1; 24]].concat();
    assert!(
        migration
            .apply(&longer, &mut out)
            .unwrap_err()
            .to_string()
            .contains("another definition")
    );
    // Big endian stays so.
    migration.apply(&[0, 0, 0, 0, 0, 0, 0, 5], &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn no_text_of_rules_panics(text in "(rules:\n)?([- ]{0,4}(type|becomes|fields|drop|map|from|lossy)?:? ?[{}a/xA:,\\[\\]]{0,9}\n?){0,8}") {
        let old = [("a/msg/A", "int32 x")];
        let _ = compare(&old, &old, &text);
    }
}
