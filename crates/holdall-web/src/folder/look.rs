//! Messages of a folder's bags: found by their time, as trees and pictures. Bags stay open while pages look into them.

use super::{bags::Listed, parameter};
use crate::{
    http::{Refusal, Request, Response},
    look::{PICTURE_SIDE_MAX, picture_response, undecoded, video_picture},
};
use holdall::{
    Bag, BagSet, Timestamp, TopicInfo,
    decode::{Decoder, Decoders, Fields},
    look::{Budget, Found, Opened, PictureOptions, Place, Step, Video, find, is_picture, picture, tree},
};
use holdall_io::mutex::lock;
use holdall_model::dynamic::expression::Predicate;
use serde_json::{Value, json};
use std::{
    collections::VecDeque,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Bags that stay open, and storage files of each.
const OPEN_MAX: usize = 4;
const FILES_MAX: usize = 64;

/// Most bytes of packed files that are unpacked for a look: they take as much space as long as the bag is open, and several times theirs.
const PACKED_BYTES_MAX: u64 = 1 << 30;

/// How long one request searches for a message that fulfils a condition.
const SEARCH_WITHIN: Duration = Duration::from_millis(1500);

/// A bag that stays open, with what decodes its messages.
pub(super) struct OpenBag {
    name: String,
    /// The bag's files when it was opened.
    of: String,
    pub bags: BagSet,
    decoders: Mutex<Decoders>,
}

/// The bags that were looked into last.
#[derive(Default)]
pub(super) struct OpenBags(Mutex<VecDeque<Arc<OpenBag>>>);

impl OpenBags {
    /// The bag, opened if it is not, or has changed since.
    pub(super) fn open(&self, bag: &Listed, path: &Path) -> Result<Arc<OpenBag>, Refusal> {
        let is_it = |open: &Arc<OpenBag>| open.name == bag.name && open.of == bag.state;
        let mut all = lock(&self.0);
        if let Some(at) = all.iter().position(is_it) {
            let open = all.remove(at).inspect(|open| {
                all.push_back(Arc::clone(open));
            });
            return open.ok_or_else(|| Refusal::new(404, "the bag is closed"));
        }
        drop(all);
        let opened = Bag::open(path).map_err(refused)?;
        let packed = opened.files().iter().filter(|file| file.is_packed());
        if packed.map(|file| file.bytes).sum::<u64>() > PACKED_BYTES_MAX {
            return Err(Refusal::new(
                409,
                "its files are compressed as a whole and long: decompress the bag first (holdall decompress)",
            ));
        }
        let bags = BagSet::from(vec![opened.kept_open(FILES_MAX)]);
        let open = Arc::new(OpenBag {
            name: bag.name.clone(),
            of: bag.state.clone(),
            decoders: Mutex::new(Decoders::new(bags.clone())),
            bags,
        });
        let mut all = lock(&self.0);
        all.retain(|open| open.name != bag.name);
        all.push_back(Arc::clone(&open));
        while all.len() > OPEN_MAX {
            all.pop_front();
        }
        Ok(open)
    }

    /// Closes bags that are to be renamed or removed.
    pub(super) fn close(&self, name: &str) {
        lock(&self.0).retain(|open| open.name != name);
    }
}

fn refused(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(409, &error.to_string())
}

/// A number of the query, if it has one of this name.
fn number<T: std::str::FromStr>(request: &Request, name: &str) -> Result<Option<T>, Refusal> {
    let refused = |_| Refusal::new(400, &format!("the parameter {name} is not a number"));
    request
        .parameter(name)
        .map(|text| text.parse().map_err(refused))
        .transpose()
}

fn text(request: &Request, name: &str) -> Result<Option<String>, Refusal> {
    let is_there = request.parameter(name).is_some_and(|text| !text.is_empty());
    is_there.then(|| parameter(request, name)).transpose()
}

impl OpenBag {
    fn topic(&self, request: &Request) -> Result<TopicInfo, Refusal> {
        let name = parameter(request, "topic")?;
        let found = self.bags.topics().into_iter().find(|topic| topic.name == name);
        found.ok_or_else(|| Refusal::new(404, "the bag has no such topic"))
    }

    fn decoder(&self, topic: &TopicInfo) -> Result<Decoder, Refusal> {
        lock(&self.decoders).find(topic).map_err(refused)
    }

    /// The message that a request wants.
    fn found(&self, request: &Request, topic: &TopicInfo, fields: Option<&Fields>) -> Result<Found, Refusal> {
        let time = Timestamp::from_nanos(number(request, "at")?.unwrap_or(i64::MIN));
        let place = Place {
            time,
            number: number(request, "nth")?.unwrap_or(0),
        };
        let step = match request.parameter("step").unwrap_or("at") {
            "at" => Step::At(time),
            "this" => Step::This(place),
            "next" => Step::Next(place),
            "previous" => Step::Previous(place),
            _ => return Err(Refusal::new(400, "\"step\" is at, this, next or previous")),
        };
        let condition = match (text(request, "where")?, fields) {
            (None, _) => None,
            (Some(condition), Some(fields)) => {
                let plan = Arc::clone(fields.plan());
                Some((fields, Predicate::compile(plan, &condition).map_err(refused)?))
            }
            (Some(_), None) => return Err(Refusal::new(409, "its messages cannot be decoded")),
        };
        let condition = condition.as_ref().map(|(fields, predicate)| (*fields, predicate));
        find(&self.bags, &topic.name, step, condition, Budget(SEARCH_WITHIN)).map_err(refused)
    }

    /// A message as a tree.
    pub(super) fn message(&self, request: &Request) -> Result<Value, Refusal> {
        let topic = self.topic(request)?;
        let decoder = self.decoder(&topic)?;
        let is_json = matches!(decoder, Decoder::Json(_));
        let fields = decoder.fields();
        let opened = Opened {
            path: text(request, "open")?.unwrap_or_default(),
            from: number(request, "from")?.unwrap_or(0),
        };
        let (place, message) = match self.found(request, &topic, fields.as_ref().ok())? {
            Found::Message(place, message) => (place, message),
            Found::Nothing => return Ok(json!({"ok": true, "found": null})),
            Found::Until(place) => {
                return Ok(
                    json!({"ok": true, "found": null, "until_ns": place.time.as_nanos().to_string(), "until_nth": place.number}),
                );
            }
        };
        let shown = match &fields {
            Ok(fields) => {
                let payload = fields.payload(&message.payload);
                let shown = payload.and_then(|payload| tree(fields.plan(), &payload, &opened));
                shown.unwrap_or_else(|error| undecoded(&error.to_string(), &message.payload, is_json))
            }
            Err(reason) => undecoded(reason, &message.payload, is_json),
        };
        Ok(json!({"ok": true, "found": {
            "time_ns": place.time.as_nanos().to_string(),
            "nth": place.number,
            "publish_ns": message.publish_time.as_nanos().to_string(),
            "sequence": message.sequence,
            "bytes": message.payload.len(),
            "publisher": message.topic.publisher.as_ref().and_then(|publisher| publisher.node.clone()),
            "is_picture": is_picture(&topic.type_name),
            "message": shown,
        }}))
    }

    /// A message as a picture.
    pub(super) fn picture(&self, request: &Request) -> Result<Response<'static>, Refusal> {
        let topic = self.topic(request)?;
        if !is_picture(&topic.type_name) {
            return Err(Refusal::new(409, "messages of this topic are no pictures"));
        }
        let fields = self.decoder(&topic)?.fields().map_err(refused)?;
        let Found::Message(place, message) = self.found(request, &topic, Some(&fields))? else {
            return Err(Refusal::new(404, "the topic has no such message"));
        };
        let options = PictureOptions {
            side_max: Some(
                number(request, "side")?
                    .unwrap_or(PICTURE_SIDE_MAX)
                    .min(PICTURE_SIDE_MAX),
            ),
            range: number(request, "low")?.zip(number(request, "high")?),
            by: text(request, "by")?,
        };
        let payload = fields.payload(&message.payload).map_err(refused)?;
        let (place, mut shown) = if Video::is_in(fields.plan(), &payload) {
            let is_quick = request.parameter("quick").is_some();
            let video = Video::until(&self.bags, &message.topic, &fields, place, is_quick);
            let (place, video) = video.map_err(refused)?;
            (place, video_picture(&video, request, &options)?)
        } else {
            (
                place,
                picture(fields.plan(), &payload, &options).map_err(refused)?,
            )
        };
        shown.about["time_ns"] = json!(place.time.as_nanos().to_string());
        shown.about["nth"] = json!(place.number);
        Ok(picture_response(shown))
    }
}
