//! The account of a bag in one document, which every program and page shows.

use super::{
    AccountSummary, Attached, Attachment, Bag, BagContents, BagFile, BagState, LostByTopic, ReadError,
    StateSummary, TopicPublisher, UndefinedTopic,
};
use holdall_model::{
    episode::Episode,
    loss::{LossStage, LossSums},
    marker::Marker,
    metadata::BagMetadata,
    time::serialize_seconds,
    time_line::ClockJump,
    unheard::{NotHeard, not_heard_in, unheard_services_in},
};
use serde::{Serialize, Serializer};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What is in a bag, and what was lost. As JSON it has the names of `metadata.yaml`, and more.
#[derive(Clone, Debug, Serialize)]
pub struct BagSummary {
    /// The bag's metadata.
    #[serde(flatten)]
    pub metadata: BagMetadata,
    /// Size of all storage files in bytes.
    #[serde(rename = "bag_size")]
    pub bytes: u64,
    /// Whether it has all that was recorded, and its account.
    #[serde(flatten)]
    pub state: BagState,
    /// Counts from reading all messages; `None` from [`BagSummary::of`].
    #[serde(flatten)]
    pub contents: Option<BagContents>,
    /// Who published what; empty from [`BagSummary::of`], and if the bag does not record it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub publishers: Vec<TopicPublisher>,
    /// Topics without a definition.
    #[serde(rename = "undefined_topics", skip_serializing_if = "Vec::is_empty")]
    pub undefined: Vec<UndefinedTopic>,
    /// Named marks, by time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub markers: Vec<Marker>,
    /// Its episodes, by their start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub episodes: Vec<Episode>,
    /// Where the clock that stamped messages jumped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clock_jumps: Vec<ClockJump>,
    /// How long the recording took if its clock jumped.
    #[serde(
        rename = "duration_without_jumps_s",
        serialize_with = "serialize_seconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub duration_without_jumps: Option<Duration>,
    /// Files that are stored in addition to the messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// Why those cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attachments_damage: Option<String>,
    /// Recorded services whose calls are not in the bag.
    #[serde(
        rename = "services_without_introspection",
        skip_serializing_if = "BTreeSet::is_empty"
    )]
    pub unheard_services: BTreeSet<String>,
    /// Nodes and publishers that could not be received.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub not_heard: BTreeSet<NotHeard>,
    /// Messages that files repeat at their beginnings, by topic; in none of the counts.
    #[serde(rename = "repeated_messages", skip_serializing_if = "BTreeMap::is_empty")]
    pub repeated: BTreeMap<String, u64>,
    /// A file is encrypted.
    #[serde(skip)]
    pub encrypted: bool,
}

impl BagSummary {
    /// The account of a bag; no message is read.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(bag: &Bag) -> Result<Self, ReadError> {
        // A file without its end would be read whole for them; attachments are made in complete bags only.
        let is_complete = bag.notices().is_empty() && bag.writer().is_none();
        Self::with(bag, is_complete.then(|| bag.attached()))
    }

    fn with(bag: &Bag, attached: Option<Result<Attached, ReadError>>) -> Result<Self, ReadError> {
        // A bag whose attachments are damaged is shown without them, and says so.
        let (attached, attachments_damage) = match attached {
            Some(Ok(attached)) => (attached, None),
            Some(Err(error)) => (Attached::default(), Some(error.to_string())),
            None => (Attached::default(), None),
        };
        let markers = bag.markers()?;
        let custom_data = &bag.metadata().custom_data;
        Ok(Self {
            metadata: bag.metadata().clone(),
            bytes: bag.size_bytes(),
            state: bag.state()?,
            contents: None,
            publishers: Vec::new(),
            undefined: bag.undefined_topics()?,
            clock_jumps: markers.iter().filter_map(|marker| marker.jump).collect(),
            episodes: Marker::episodes(&markers),
            markers,
            duration_without_jumps: bag.duration_without_jumps(),
            attachments: attached.attachments,
            attachments_damage,
            unheard_services: unheard_services_in(custom_data),
            not_heard: not_heard_in(custom_data),
            repeated: bag.hidden_by_topic(),
            encrypted: bag.files().iter().any(BagFile::is_sealed),
        })
    }

    /// The same with what only reading the bag shows: contents, publishers, and attachments of a bag that is not complete.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(bag: &Bag) -> Result<Self, ReadError> {
        let mut publishers = bag.publishers()?;
        // A bag of another recorder, and one without channels of publishers, has only publishers that it does not identify.
        if publishers.iter().all(|counted| counted.publisher.is_none()) {
            publishers.clear();
        }
        Ok(Self {
            contents: Some(BagContents::read(bag)?),
            publishers,
            ..Self::with(bag, Some(bag.attached()))?
        })
    }
}

/// The whole state: its summary, the process that writes the bag, losses by topic, and the account.
impl Serialize for BagState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Whole<'a> {
            /// The process that is recording the bag, if known; absent when no process does.
            #[serde(skip_serializing_if = "Option::is_none")]
            recorded_by: Option<Option<u32>>,
            #[serde(flatten)]
            summary: StateSummary,
            /// Null when the bag has no ledger.
            lost_messages: Option<Lost<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            account: Option<&'a AccountSummary>,
        }
        let whole = Whole {
            recorded_by: self.writer.map(|writer| writer.process),
            summary: self.summary(),
            lost_messages: self.lost.as_ref().map(Lost::of),
            account: self.account.as_ref(),
        };
        whole.serialize(serializer)
    }
}

#[derive(Serialize)]
struct Lost<'a> {
    total: u64,
    topics: BTreeMap<&'a str, BTreeMap<LossStage, u64>>,
    /// By topic; no loss.
    sent_before_match: BTreeMap<&'a str, u64>,
}

impl<'a> Lost<'a> {
    fn of(lost: &'a LostByTopic) -> Self {
        let sums = lost
            .iter()
            .map(|(topic, stages)| (topic.as_str(), LossSums::of(stages)));
        let before = sums.clone().map(|(topic, sums)| (topic, sums.before_match));
        let stages = sums.map(|(topic, sums)| (topic, sums.by_stage));
        Self {
            total: LossSums::of_all(lost.values()).lost,
            topics: stages.filter(|(_, stages)| !stages.is_empty()).collect(),
            sent_before_match: before.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
