//! The tables of rosbag2's SQLite3 storage, version by version.

/// The id of this backend.
pub const STORAGE_ID: &str = "sqlite3";

/// First bytes of a database file.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Creates the tables of schema 4, as rosbag2 does since Iron: same order, same text.
pub const CREATE_TABLES: [&str; 6] = [
    "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL)",
    "CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL)",
    "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,\
     serialization_format TEXT NOT NULL,offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL)",
    "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY,topic_type TEXT NOT NULL,encoding TEXT NOT NULL,\
     encoded_message_definition TEXT NOT NULL,type_description_hash TEXT NOT NULL)",
    "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, \
     data BLOB NOT NULL)",
    "CREATE INDEX timestamp_idx ON messages (timestamp ASC)",
];

/// The schema version that is written.
pub(crate) const SCHEMA_VERSION: i64 = 4;

/// The name of our own table for named text records that rosbag2 cannot store.
pub(crate) const RECORDS: &str = "holdall_records";

/// Creates it, with the first one.
pub(crate) const CREATE_RECORDS: &str = "CREATE TABLE IF NOT EXISTS holdall_records(id INTEGER PRIMARY KEY,\
     record INTEGER NOT NULL,name TEXT NOT NULL,key TEXT NOT NULL,value TEXT NOT NULL)";

/// Our own table of publishers; created with the first one. The one whose id is that of its topic has all of the topic's messages that
/// [`CREATE_MESSAGE_PUBLISHERS`] does not name; without a GID the publisher is not known. The number of messages is stored when the file
/// is closed.
pub(crate) const CREATE_PUBLISHERS: &str = "CREATE TABLE IF NOT EXISTS holdall_topic_publishers(id INTEGER PRIMARY KEY,\
     topic_id INTEGER NOT NULL,gid TEXT NOT NULL,node TEXT,host TEXT,transport TEXT,message_count INTEGER)";

/// The name of that table.
pub(crate) const PUBLISHERS: &str = "holdall_topic_publishers";

/// Our own table of messages that are not of their topic's first publisher; created with the second one.
pub(crate) const CREATE_MESSAGE_PUBLISHERS: &str = "CREATE TABLE IF NOT EXISTS holdall_message_publishers(\
     message_id INTEGER PRIMARY KEY,publisher_id INTEGER NOT NULL)";

/// The name of that table.
pub(crate) const MESSAGE_PUBLISHERS: &str = "holdall_message_publishers";

/// Inserts a row into it.
pub(crate) const INSERT_MESSAGE_PUBLISHER: &str =
    "INSERT INTO holdall_message_publishers (message_id, publisher_id) VALUES (?1, ?2)";

/// The table of publishers of earlier versions, in which each publisher had a separate topic.
pub(crate) const PUBLISHERS_BEFORE: &str = "holdall_publishers";

/// The record that rosbag2 keeps in the table `metadata`, and its key.
pub const ROSBAG2_RECORD: &str = "rosbag2";
/// See [`ROSBAG2_RECORD`].
pub const ROSBAG2_KEY: &str = "serialized_metadata";

/// Inserts a message.
pub(crate) const INSERT_MESSAGE: &str =
    "INSERT INTO messages (timestamp, topic_id, data) VALUES (?1, ?2, ?3)";

/// The columns and tables of a database, by the distribution that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Crystal and later; before that, all messages were CDR.
    pub serialization_format: bool,
    /// Foxy and later.
    pub offered_qos_profiles: bool,
    /// Iron and later.
    pub type_description_hash: bool,
    /// Iron and later.
    pub message_definitions: bool,
    /// Humble and later.
    pub metadata: bool,
}

/// The `metadata_version` of a metadata text: the number after `version:`, 0 without one.
pub fn metadata_version(text: &str) -> i64 {
    text.lines()
        .find_map(|line| line.strip_prefix("version:")?.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn metadata_version_is_read_from_the_text() {
        assert_eq!(
            super::metadata_version("version: 9\nstorage_identifier: sqlite3\n"),
            9
        );
        assert_eq!(super::metadata_version("open"), 0);
    }
}
