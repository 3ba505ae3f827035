//! Shows on real definition files that hashes and definition texts equal those of ROS 2.

#![allow(clippy::print_stderr, reason = "a skipped or a counted check says so")]

use holdall_model::{
    interface::{Definition, InterfaceSource, SourceFormat, defining_type},
    topic::DefinitionEncoding,
};
use std::path::{Path, PathBuf};

/// Definition files below `share` folders, as on `AMENT_PREFIX_PATH`.
struct ShareFolders(Vec<PathBuf>);

impl ShareFolders {
    /// The file of a type, with one of the extensions.
    fn find(&self, type_name: &str, formats: &[SourceFormat]) -> Option<InterfaceSource> {
        let paths = self
            .0
            .iter()
            .flat_map(|folder| formats.iter().map(move |format| (folder, *format)));
        paths
            .map(|(folder, format)| (folder.join(format!("{type_name}.{}", format.as_str())), format))
            .find_map(|(path, format)| {
                let text = std::fs::read_to_string(path).ok()?;
                Some(InterfaceSource {
                    format,
                    text: text.into(),
                })
            })
    }

    fn define(&self, type_name: &str, formats: &[SourceFormat]) -> Definition {
        Definition::resolve(type_name, |name| self.find(name, formats))
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

const TEXT_FORMATS: &[SourceFormat] = &[SourceFormat::Msg, SourceFormat::Srv, SourceFormat::Action];
const IDL: &[SourceFormat] = &[SourceFormat::Idl];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/interfaces")
}

/// Types and hashes that ROS 2's own generator wrote for the files in `tests/data/interfaces`.
fn golden_hashes() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(data().join("hashes.txt")).unwrap();
    let pairs = text.lines().map(|line| line.split_once(' ').unwrap());
    pairs
        .map(|(name, hash)| (name.to_owned(), hash.to_owned()))
        .collect()
}

#[test]
fn hashes_of_messages_services_and_actions_are_those_of_ros() {
    let folders = ShareFolders(vec![data()]);
    let golden = golden_hashes();
    assert!(golden.len() > 50);
    for (type_name, hash) in golden {
        assert_eq!(
            folders.define(&type_name, TEXT_FORMATS).type_hash(),
            hash,
            "{type_name}"
        );
    }
}

#[test]
fn idl_files_give_the_same_hashes() {
    let folders = ShareFolders(vec![data()]);
    for (type_name, hash) in golden_hashes() {
        assert_eq!(folders.define(&type_name, IDL).type_hash(), hash, "{type_name}");
    }
}

#[test]
fn the_text_of_a_message_is_what_rosbag2_stores() {
    let folders = ShareFolders(vec![data()]);
    for type_name in [
        "sensor_msgs/msg/Imu",
        "std_msgs/msg/UInt8MultiArray",
        "std_msgs/msg/String",
    ] {
        let definition = folders.define(type_name, TEXT_FORMATS).message_definition();
        // Schema texts of a bag that rosbag2 (Jazzy) wrote.
        let file = format!("{}.ros2msg", type_name.replace('/', "__"));
        let expected = std::fs::read_to_string(data().join("rosbag2").join(file)).unwrap();
        assert_eq!(definition.text, expected);
        assert_eq!(definition.encoding, DefinitionEncoding::Ros2Msg);
        assert_eq!(definition.type_name, type_name);
    }
}

#[test]
fn a_service_event_has_the_text_of_its_service() {
    let definition = ShareFolders(vec![data()])
        .define("test_msgs/srv/BasicTypes_Event", TEXT_FORMATS)
        .message_definition();
    let lines: Vec<_> = definition.text.lines().collect();
    assert_eq!(lines[0], "=".repeat(80));
    assert_eq!(lines[1], "SRV: test_msgs/srv/BasicTypes");
    assert_eq!(lines[2], "bool bool_value");
    assert!(lines.contains(&"---"));
    assert_eq!(definition.encoding, DefinitionEncoding::Ros2Msg);
}

#[test]
fn a_message_that_an_action_derives_is_generated() {
    let definition = ShareFolders(vec![data()])
        .define("test_msgs/action/Fibonacci_FeedbackMessage", TEXT_FORMATS)
        .message_definition();
    let line = "=".repeat(80);
    let uuid = std::fs::read_to_string(data().join("unique_identifier_msgs/msg/UUID.msg")).unwrap();
    let expected = format!(
        "unique_identifier_msgs/UUID goal_id\ntest_msgs/Fibonacci_Feedback feedback\n\n{line}\n\
         MSG: test_msgs/Fibonacci_Feedback\nint32[] sequence\n\n{line}\nMSG: unique_identifier_msgs/UUID\n{uuid}"
    );
    assert_eq!(definition.text, expected);
}

#[test]
fn idl_files_are_stored_as_ros2idl() {
    let definition = ShareFolders(vec![data()])
        .define("test_msgs/msg/Nested", IDL)
        .message_definition();
    let parts: Vec<_> = definition
        .text
        .lines()
        .filter(|line| line.starts_with("IDL: "))
        .collect();
    assert_eq!(
        parts,
        ["IDL: test_msgs/msg/Nested", "IDL: test_msgs/msg/BasicTypes"]
    );
    assert_eq!(definition.encoding, DefinitionEncoding::Ros2Idl);
    let nested = std::fs::read_to_string(data().join("test_msgs/msg/Nested.idl")).unwrap();
    assert!(definition.text.starts_with(&format!(
        "{}\nIDL: test_msgs/msg/Nested\n{nested}\n===",
        "=".repeat(80)
    )));
}

#[test]
fn mixed_files_are_stored_as_messages() {
    let folders = ShareFolders(vec![data()]);
    let definition = Definition::resolve("test_msgs/msg/Nested", |name| {
        folders.find(
            name,
            if name.ends_with("Nested") {
                TEXT_FORMATS
            } else {
                IDL
            },
        )
    })
    .unwrap();
    let stored = definition.message_definition();
    assert_eq!(stored.encoding, DefinitionEncoding::Ros2Msg);
    assert!(
        stored
            .text
            .contains("MSG: test_msgs/BasicTypes\nbool bool_value\nbyte byte_value\n"),
        "{}",
        stored.text
    );
}

/// Every interface of a real installation, compared with the description that ROS 2's generator installed
/// with it.
#[test]
fn every_installed_interface_has_the_hash_that_ros_gave_it() {
    let environment = std::env::var_os("HOLDALL_VENV").map(PathBuf::from);
    let venv = environment.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.venv"));
    let share = venv.join("share");
    assert!(
        share.join("std_msgs").exists(),
        "no ROS 2 packages in {}: run `scripts/setup.sh nodes`, or set HOLDALL_VENV",
        share.display()
    );
    let folders = ShareFolders(vec![share.clone()]);
    let (mut types_checked, mut files) = (0, 0);
    for path in description_files(&share) {
        let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        files += 1;
        for entry in json["type_hashes"].as_array().unwrap() {
            let (type_name, hash) = (
                entry["type_name"].as_str().unwrap(),
                entry["hash_string"].as_str().unwrap(),
            );
            for formats in [TEXT_FORMATS, IDL] {
                if folders.find(defining_type(type_name), formats).is_some() {
                    assert_eq!(
                        folders.define(type_name, formats).type_hash(),
                        hash,
                        "{}",
                        path.display()
                    );
                    types_checked += 1;
                }
            }
        }
    }
    eprintln!("{types_checked} hashes in {files} files agree");
    assert!(files > 100 && types_checked > 2 * files);
}

fn description_files(share: &Path) -> Vec<PathBuf> {
    let entries = |path: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(path)
            .map(|dir| dir.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default()
    };
    let kinds = ["msg", "srv", "action"];
    let packages = entries(share);
    let folders = packages
        .iter()
        .flat_map(|package| kinds.map(|kind| package.join(kind)));
    let files = folders.flat_map(|folder| entries(&folder));
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect()
}
