//! Writes messages for other tools: tables (CSV, Parquet) with a file per topic, images and point clouds as files.
//!
//! Files are written under random temporary names and renamed when they are complete and synced, so that a
//! file with its final name is whole. Existing files are overwritten only on request.

#[cfg(feature = "parquet")]
mod beside;
mod cloud;
mod csv;
mod error;
mod file;
mod folder;
mod image;
mod mp4;
#[cfg(feature = "parquet")]
mod parquet;

pub use cloud::CloudFormat;
pub(crate) use cloud::each_point;
pub use error::ExportError;
#[cfg(feature = "parquet")]
pub(crate) use file::PartialFile;
pub use holdall_media::picture_file::ImageFormat;
pub use holdall_media::{
    cloud::{Cloud, Field as CloudField},
    compressed::{DecodedImage, decode_image},
    ffmpeg::{begins_video, decode_video},
};
pub(crate) use image::ImageFields;

use holdall_bag::{
    decode::{Decoders, Fields, JSON_WITHOUT_SCHEMA, TimeBase},
    reader::BagMessage,
};
use holdall_model::units::counted;
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportKind {
    /// Comma-separated values.
    Csv,
    /// Parquet with typed columns.
    Parquet {
        /// The fields of structs are columns with dotted names; otherwise structs are nested.
        flat: bool,
    },
    /// Image files.
    Images(ImageFormat),
    /// A file of video for each topic that has some, in MP4.
    Mp4,
    /// Files of point clouds.
    Clouds(CloudFormat),
}

/// Handling of existing files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingFiles {
    /// The export is refused.
    Refuse,
    /// They are replaced.
    Replace,
}

/// Destination and format.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The output folder; created if missing.
    pub folder: PathBuf,
    /// The output format.
    pub kind: ExportKind,
    /// Handling of existing files.
    pub existing: ExistingFiles,
    /// The clock of the messages, by which images and clouds are named. With `HeaderStamp` tables have a column `header_stamp`.
    pub time: TimeBase,
}

/// A file (or a folder of images or clouds) that was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// Its topic.
    pub topic: String,
    /// The topic's type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Its path.
    pub path: PathBuf,
    /// Number of messages in it.
    pub messages: u64,
    /// Number of messages that could not be written.
    pub failed: u64,
    /// Number of messages of a video before its first key frame, or without a picture.
    pub left_out: u64,
}

/// The result of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// The files, by topic.
    pub exported: Vec<Exported>,
    /// Notices for the user, one sentence each.
    pub notices: Vec<String>,
    /// Topics that were left out because their messages are JSON texts without a JSON schema.
    pub json_topics: Vec<String>,
}

impl ExportReport {
    /// True if a message could not be written.
    pub fn has_failed(&self) -> bool {
        self.exported.iter().any(|exported| exported.failed > 0)
    }
}

/// Writes the messages of one topic.
trait Sink {
    /// Writes a message. An error about this message only is counted and reported; any other ends the export.
    fn write(&mut self, message: &BagMessage) -> Result<(), ExportError>;

    /// Begins what [`Sink::finish`] waits for; no message comes after it.
    fn end(&mut self) -> Result<(), ExportError> {
        Ok(())
    }

    /// Whether nothing would be in the output, which is not made then.
    fn is_void(&self) -> bool {
        false
    }

    /// Completes the output and gives it its final name.
    fn finish(self: Box<Self>) -> Result<Finished, ExportError>;
}

/// Messages that a sink accepted and did not write.
#[derive(Debug, Default)]
struct Lost {
    /// Messages before the first key frame, and those without a picture.
    left_out: u64,
    /// Messages of which nothing could be made.
    failed: u64,
    /// Time in nanoseconds and reason.
    failure: Option<(i64, String)>,
}

/// A complete output.
struct Finished {
    path: PathBuf,
    lost: Lost,
}

impl From<PathBuf> for Finished {
    fn from(path: PathBuf) -> Self {
        Self {
            path,
            lost: Lost::default(),
        }
    }
}

/// Longest stem of a file name: a name has at most 255 bytes, and 32 are reserved for suffixes.
const NAME_BYTES_MAX: usize = 255 - 32;
/// Length of `@` and a number.
const NUMBER_BYTES_MAX: usize = 11;

/// The output of one topic.
struct Outlet {
    sink: Box<dyn Sink>,
    fields: Fields,
    type_name: String,
    messages: u64,
    failed: u64,
    /// Time in nanoseconds and reason.
    first_failure: Option<(i64, String)>,
}

/// A running export.
pub struct Exporter {
    options: ExportOptions,
    decoders: Decoders,
    /// By topic, then by type; `None` for topics without output.
    outlets: BTreeMap<String, BTreeMap<String, Option<Outlet>>>,
    /// Used file names, each with the last number that was appended to it.
    names: HashMap<String, u32>,
    json_topics: Vec<String>,
    notices: Vec<String>,
    /// Whether the output folder is ready; an export without output creates none.
    has_folder: bool,
    /// What is encoded beside this thread.
    #[cfg(feature = "parquet")]
    spare: beside::Spare,
}

impl Exporter {
    /// Starts an export of messages of the bags that `decoders` was made for.
    ///
    /// # Errors
    /// A feature that this program was built without.
    pub fn new(options: ExportOptions, decoders: Decoders) -> Result<Self, ExportError> {
        if matches!(options.kind, ExportKind::Parquet { .. }) && cfg!(not(feature = "parquet")) {
            return Err(ExportError::NotBuilt { what: "Parquet" });
        }
        Ok(Self {
            options,
            decoders,
            outlets: BTreeMap::new(),
            names: HashMap::new(),
            json_topics: Vec::new(),
            notices: Vec::new(),
            has_folder: false,
            #[cfg(feature = "parquet")]
            spare: beside::Spare::new(),
        })
    }

    /// Writes a message.
    ///
    /// # Errors
    /// An error that ends the export: a full disk, an existing file. A message that cannot be decoded is
    /// counted and reported at the end.
    pub fn write(&mut self, message: &BagMessage) -> Result<(), ExportError> {
        let topic = &message.topic;
        let known = self.outlets.get(&topic.name);
        if known.is_none_or(|types| !types.contains_key(&topic.type_name)) {
            let outlet = self.open(message)?;
            let types = self.outlets.entry(topic.name.clone()).or_default();
            types.insert(topic.type_name.clone(), outlet);
        }
        let types = self.outlets.get_mut(&topic.name);
        let outlet = types.and_then(|types| types.get_mut(&topic.type_name)?.as_mut());
        let Some(outlet) = outlet else {
            return Ok(());
        };
        let decodable = outlet.fields.message(message).map_err(ExportError::message);
        match decodable.and_then(|message| outlet.sink.write(&message)) {
            Ok(()) => outlet.messages += 1,
            Err(ExportError::Message { reason }) => {
                outlet.failed += 1;
                outlet
                    .first_failure
                    .get_or_insert((message.stamp.as_nanos(), reason));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Completes all files.
    ///
    /// # Errors
    /// A file that cannot be completed; earlier files are.
    pub fn finish(mut self) -> Result<ExportReport, ExportError> {
        let mut report = ExportReport {
            notices: [self.decoders.take_notices(), self.notices].concat(),
            json_topics: self.json_topics,
            ..ExportReport::default()
        };
        let outlets = self.outlets.into_iter().flat_map(|(topic, types)| {
            let outlets = types.into_values().flatten();
            outlets.map(move |outlet| (topic.clone(), outlet))
        });
        let ended = outlets.map(|(topic, mut outlet)| (topic, outlet.sink.end(), outlet));
        let ended: Vec<(String, Result<(), ExportError>, Outlet)> = ended.collect();
        for (topic, ended, outlet) in ended {
            ended?;
            if outlet.sink.is_void() {
                let first = outlet.first_failure.map(|(_, reason)| reason);
                let reason = first.unwrap_or_else(|| "no key frame with its parameters came".to_owned());
                let all = counted(outlet.messages + outlet.failed, "message");
                let notice = format!("{topic}: nothing was written of {all}: {reason}");
                report.notices.push(notice);
                continue;
            }
            let Finished { path, lost } = outlet.sink.finish()?;
            let failed = outlet.failed + lost.failed;
            if let Some((nanos, reason)) = outlet.first_failure.or(lost.failure) {
                report.notices.push(format!(
                    "{topic}: {} could not be written; the first, of time {nanos}: {reason}",
                    counted(failed, "message")
                ));
            }
            if lost.left_out > 0 {
                report.notices.push(format!(
                    "{topic}: {} of video before the first key frame or without a picture",
                    counted(lost.left_out, "message")
                ));
            }
            if outlet.fields.has_rounded() {
                report.notices.push(format!(
                    "{topic}: whole numbers beyond 2^53 were rounded: a message may lack them, so their columns are float64; `required` in the \
                     schema keeps them exact"
                ));
            }
            report.exported.push(Exported {
                topic,
                type_name: outlet.type_name,
                path,
                messages: outlet.messages - lost.failed - lost.left_out,
                failed,
                left_out: lost.left_out,
            });
        }
        Ok(report)
    }

    fn open(&mut self, message: &BagMessage) -> Result<Option<Outlet>, ExportError> {
        let topic = &message.topic;
        let fields = match self.decoders.decoder(topic)?.fields() {
            Ok(fields) => fields,
            Err(reason) => {
                if reason == JSON_WITHOUT_SCHEMA {
                    self.json_topics.push(topic.name.clone());
                } else if topic.serialization_format == "json" {
                    // The decoders' own notices report other topics.
                    self.notices.push(format!("{}: left out: {reason}", topic.name));
                }
                return Ok(None);
            }
        };
        let plan = Arc::clone(fields.plan());
        let name = self.name(&topic.name, &topic.type_name);
        if !matches!(self.options.kind, ExportKind::Images(_) | ExportKind::Clouds(_)) {
            self.prepare_folder()?;
        }
        let folder: &Path = &self.options.folder;
        let (existing, time) = (self.options.existing, self.options.time);
        let sink: Box<dyn Sink> = match self.options.kind {
            ExportKind::Csv => Box::new(csv::CsvSink::create(
                plan,
                &folder.join(format!("{name}.csv")),
                existing,
                time,
            )?),
            #[cfg(feature = "parquet")]
            ExportKind::Parquet { flat } => Box::new(parquet::ParquetSink::create(
                plan,
                &folder.join(format!("{name}.parquet")),
                existing,
                time,
                flat,
                &self.spare,
            )?),
            #[cfg(not(feature = "parquet"))]
            ExportKind::Parquet { .. } => return Err(ExportError::NotBuilt { what: "Parquet" }),
            ExportKind::Images(format) => {
                let bags = self.decoders.bags();
                match image::ImageSink::create(plan, bags, &folder.join(name), format, existing)? {
                    Some(sink) => Box::new(sink),
                    None => return Ok(None),
                }
            }
            ExportKind::Mp4 => {
                match mp4::Mp4Sink::create(plan, &folder.join(format!("{name}.mp4")), existing)? {
                    Some(sink) => Box::new(sink),
                    None => return Ok(None),
                }
            }
            ExportKind::Clouds(format) => {
                match cloud::CloudSink::create(plan, &folder.join(name), format, existing)? {
                    Some(sink) => Box::new(sink),
                    None => return Ok(None),
                }
            }
        };
        Ok(Some(Outlet {
            sink,
            fields,
            type_name: topic.type_name.clone(),
            messages: 0,
            failed: 0,
            first_failure: None,
        }))
    }

    /// Creates the output folder before the first table; images and clouds have separate folders.
    fn prepare_folder(&mut self) -> Result<(), ExportError> {
        let folder = &self.options.folder;
        if !self.has_folder {
            holdall_io::fs::create_dirs(folder)
                .map_err(|error| ExportError::io("make", folder, error.into_io()))?;
            holdall_io::new_file::remove_left_over(folder);
            self.has_folder = true;
        }
        Ok(())
    }

    /// A file name for a topic: `/camera/image_raw` is `camera.image_raw`. ROS names have no dots, so no two
    /// topics share one; other names keep only letters and digits, and get a number when they collide.
    fn name(&mut self, topic: &str, type_name: &str) -> String {
        let plain = |text: &str| -> String {
            let dotted = text.trim_matches('/').replace('/', ".");
            dotted
                .chars()
                .map(|c| {
                    if c.is_alphanumeric() || matches!(c, '_' | '.' | '-') {
                        c
                    } else {
                        '_'
                    }
                })
                .collect()
        };
        let stem = match plain(topic) {
            name if name.is_empty() || name.starts_with('.') => format!("topic{name}"),
            name => name,
        };
        let stem = shortened(&stem, NAME_BYTES_MAX);
        let with_type = shortened(&format!("{stem}@{}", plain(type_name)), NAME_BYTES_MAX);
        let mut name = stem.clone();
        if self.names.contains_key(&name) {
            name = with_type;
        }
        while self.names.contains_key(&name) {
            // Continues from the last number, so that many topics with one name do not try all numbers again.
            let last = self.names.entry(stem.clone()).or_insert(1);
            *last += 1;
            let number = *last;
            name = format!("{}@{number}", shortened(&stem, NAME_BYTES_MAX - NUMBER_BYTES_MAX));
        }
        self.names.insert(name.clone(), 1);
        name
    }
}

/// A prefix of a text with at most `bytes_max` bytes, cut between characters.
fn shortened(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdall_bag::reader::BagSet;
    use holdall_model::{
        dynamic::TypePlan,
        interface::{Definition, InterfaceSource, SourceFormat},
        time::Timestamp,
        topic::TopicInfo,
    };
    use std::sync::Arc;

    /// A plan from `.msg` texts; the first one is the message.
    pub(super) fn plan(texts: &[(&str, &str)]) -> Arc<TypePlan> {
        let definition = Definition::resolve(texts[0].0, |name| {
            let (_, text) = texts.iter().find(|(known, _)| *known == name)?;
            Some(InterfaceSource {
                format: SourceFormat::Msg,
                text: (*text).to_owned().into(),
            })
        });
        Arc::new(TypePlan::compile(&definition.unwrap()).unwrap())
    }

    pub(super) fn message(nanos: i64, payload: &[u8]) -> BagMessage {
        let time = Timestamp::from_nanos(nanos);
        BagMessage {
            topic: Arc::new(TopicInfo::default()),
            stamp: time,
            log_time: time,
            publish_time: time,
            sequence: 0,
            payload: payload.to_vec().into(),
        }
    }

    /// Little-endian CDR, one value at a time.
    pub(super) struct Bytes(pub Vec<u8>);

    impl Bytes {
        pub fn head() -> Self {
            Self(vec![0, 1, 0, 0])
        }

        fn put(mut self, bytes: &[u8]) -> Self {
            while !(self.0.len() - 4).is_multiple_of(bytes.len()) {
                self.0.push(0);
            }
            self.0.extend(bytes);
            self
        }

        pub fn u8(self, value: u8) -> Self {
            self.put(&[value])
        }

        #[cfg(feature = "parquet")]
        pub fn u16(self, value: u16) -> Self {
            self.put(&value.to_le_bytes())
        }

        pub fn u32(self, value: u32) -> Self {
            self.put(&value.to_le_bytes())
        }

        #[cfg(feature = "parquet")]
        pub fn u64(self, value: u64) -> Self {
            self.put(&value.to_le_bytes())
        }

        pub fn text(self, text: &str) -> Self {
            let mut with_length = self.u32(text.len() as u32 + 1);
            with_length.0.extend(text.as_bytes());
            with_length.0.push(0);
            with_length
        }
    }

    #[test]
    fn rows_of_csv_have_the_cells_that_their_head_names() {
        let plan = plan(&[
            (
                "a/msg/A",
                "B b\nfloat32[2] pair\nB[2] two\nuint8[65] long\nstring[] names\nB[] many\nE e\nstring log_time",
            ),
            ("a/msg/B", "string s\nE e"),
            ("a/msg/E", ""),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let mut sink = csv::CsvSink::create(plan, &path, ExistingFiles::Refuse, TimeBase::LogTime).unwrap();
        let mut bytes = Bytes::head()
            .text("x,\"y\"")
            .u8(0)
            .u32(1.5_f32.to_bits())
            .u32(f32::NAN.to_bits())
            .text("1")
            .u8(0)
            .text("2")
            .u8(0);
        bytes.0.extend([0; 65]);
        let bytes = bytes
            .u32(1)
            .text("n")
            .u32(1)
            .text("m")
            .u8(0)
            .u8(0)
            .text("two\nlines");
        sink.write(&message(5, &bytes.0)).unwrap();
        assert!(sink.write(&message(6, &bytes.0[..20])).is_err());
        Box::new(sink).finish().unwrap();
        let zeros = vec!["0"; 65].join(",");
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            format!(
                "bag_log_time,publish_time,sequence,b.s,pair[0],pair[1],two[0].s,two[1].s,long,names,many,log_time\n\
                 5,5,0,\"x,\"\"y\"\"\",1.5,nan,1,2,\"[{zeros}]\",\"[\"\"n\"\"]\",\"[{{\"\"s\"\":\"\"m\"\",\"\"e\"\":{{}}}}]\",\
                 \"two\nlines\"\n"
            )
        );
    }

    #[test]
    fn long_and_colliding_names_become_names_of_files() {
        let options = ExportOptions {
            folder: tempfile::tempdir().unwrap().path().to_owned(),
            kind: ExportKind::Csv,
            existing: ExistingFiles::Refuse,
            time: TimeBase::LogTime,
        };
        let mut exporter = Exporter::new(options, Decoders::new(BagSet::from(Vec::new()))).unwrap();
        let long = format!("/{}", "\u{fc}".repeat(2_000));
        let mut names = std::collections::BTreeSet::new();
        for topic in ["/a/b", "/a b", "/a:b", "/", "", "/..", &long, &format!("{long}2")] {
            for _ in 0..3 {
                let name = exporter.name(topic, "std_msgs/msg/String");
                assert!(name.len() <= NAME_BYTES_MAX && !name.starts_with('.'), "{name}");
                assert!(names.insert(name.clone()), "{name} was given twice");
            }
        }
        assert!(
            names.contains("a.b") && names.contains("a_b@std_msgs.msg.String") && names.contains("a_b@2")
        );
        let begun = names.len();
        for _ in 0..20_000 {
            names.insert(exporter.name(&long, &long));
        }
        assert_eq!(names.len(), begun + 20_000);
    }

    #[test]
    fn existing_files_are_not_overwritten_and_unfinished_ones_are_removed() {
        let plan = plan(&[("a/msg/A", "int32 x")]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let sink =
            csv::CsvSink::create(Arc::clone(&plan), &path, ExistingFiles::Refuse, TimeBase::LogTime).unwrap();
        drop(sink);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        std::fs::write(&path, "mine").unwrap();
        let refused =
            csv::CsvSink::create(Arc::clone(&plan), &path, ExistingFiles::Refuse, TimeBase::LogTime);
        assert!(matches!(refused, Err(ExportError::Exists { .. })));
        Box::new(csv::CsvSink::create(plan, &path, ExistingFiles::Replace, TimeBase::LogTime).unwrap())
            .finish()
            .unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("log_time"));
    }
}
