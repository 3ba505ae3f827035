//! The kinds of rules as a table: parser, JSON schema and sentences follow it.

/// The kind of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Flag,
    Text,
    /// One name or a list of names.
    Names,
    /// A span of time: `500ms`.
    Span,
    /// A rate: `10`, `10Hz`.
    Hertz,
    Count,
    /// A size: `1MiB`.
    Bytes,
    /// From 0 to 1, or in percent: `1%`.
    Share,
    Number,
    /// A condition in the language of `dynamic::expression`.
    Expression,
}

/// A field of a rule.
#[derive(Debug)]
pub(super) struct Field {
    pub name: &'static str,
    pub kind: Kind,
    pub is_required: bool,
    pub about: &'static str,
}

/// A kind of rule.
#[derive(Debug)]
pub(super) struct Key {
    pub name: &'static str,
    /// For the whole bag, not for a topic.
    pub is_of_bag: bool,
    /// There may be several, in a list.
    pub is_list: bool,
    /// The field that a plain value is.
    pub short: Option<&'static str>,
    pub fields: &'static [Field],
    pub about: &'static str,
}

const fn field(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        kind,
        is_required: false,
        about,
    }
}

const fn required(name: &'static str, kind: Kind, about: &'static str) -> Field {
    Field {
        name,
        kind,
        is_required: true,
        about,
    }
}

const fn key(
    name: &'static str,
    short: Option<&'static str>,
    fields: &'static [Field],
    about: &'static str,
) -> Key {
    Key {
        name,
        is_of_bag: false,
        is_list: false,
        short,
        fields,
        about,
    }
}

const fn of_bag(key: Key) -> Key {
    Key {
        is_of_bag: true,
        ..key
    }
}

const fn list(key: Key) -> Key {
    Key { is_list: true, ..key }
}

/// Every kind of rule, in the order of documents.
pub(super) static KEYS: &[Key] = &[
    key(
        "required",
        Some("is"),
        &[required("is", Kind::Flag, "the topic must have messages")],
        "the topic must have messages",
    ),
    key(
        "type",
        Some("name"),
        &[required("name", Kind::Text, "its ROS type")],
        "the type of its messages",
    ),
    key(
        "hash",
        Some("is"),
        &[required("is", Kind::Text, "RIHS01_ and 64 digits")],
        "the hash of its type's definition",
    ),
    key(
        "qos",
        None,
        &[
            field("reliability", Kind::Text, "reliable or best_effort"),
            field("durability", Kind::Text, "volatile or transient_local"),
            field("history", Kind::Text, "keep_last or keep_all"),
            field("depth", Kind::Count, "the least depth"),
        ],
        "what all its publishers offer, later ones too",
    ),
    key(
        "rate",
        Some("min"),
        &[
            field("min", Kind::Hertz, "the lowest"),
            field("max", Kind::Hertz, "the highest"),
            field("window", Kind::Span, "counted over this span, 5s by default"),
        ],
        "messages a second",
    ),
    key(
        "gap",
        Some("max"),
        &[required("max", Kind::Span, "the longest")],
        "the longest time between two messages",
    ),
    key(
        "first",
        Some("within"),
        &[required("within", Kind::Span, "after the start")],
        "the first message comes within this span after the start",
    ),
    key(
        "latency",
        Some("max"),
        &[
            field("min", Kind::Span, "the shortest"),
            field("max", Kind::Span, "the longest"),
        ],
        "from header.stamp to reception",
    ),
    key(
        "drift",
        Some("ppm"),
        &[
            required("ppm", Kind::Number, "the largest, in millionths"),
            field("window", Kind::Span, "measured over this span, 60s by default"),
            field(
                "step",
                Kind::Span,
                "a larger step of the latency begins anew, 50ms by default",
            ),
        ],
        "how fast header.stamp and the recorder's clock part",
    ),
    key(
        "stamps",
        Some("order"),
        &[required(
            "order",
            Kind::Text,
            "monotonic, or strict: each later than the one before",
        )],
        "the order of header.stamp",
    ),
    key(
        "jump",
        Some("max"),
        &[required("max", Kind::Span, "the largest")],
        "the step of header.stamp from one message to the next, less the time between them",
    ),
    key(
        "frozen",
        Some("messages"),
        &[required(
            "messages",
            Kind::Count,
            "so many are too many, 2 or more",
        )],
        "messages in a row with the same content, header.stamp aside",
    ),
    key(
        "non_finite",
        Some("share"),
        &[required("share", Kind::Share, "the largest")],
        "the share of NaN and infinity among a message's floating-point values",
    ),
    list(key(
        "must",
        Some("expression"),
        &[required(
            "expression",
            Kind::Expression,
            "a condition on the fields",
        )],
        "what is true for every message",
    )),
    list(key(
        "never",
        Some("expression"),
        &[required(
            "expression",
            Kind::Expression,
            "a condition on the fields",
        )],
        "what is true for no message",
    )),
    key(
        "size",
        Some("max"),
        &[
            field("min", Kind::Bytes, "the smallest"),
            field("max", Kind::Bytes, "the largest"),
        ],
        "the size of a message",
    ),
    key(
        "image",
        None,
        &[
            field(
                "encoding",
                Kind::Names,
                "one of these; jpeg or png of compressed images",
            ),
            field("width", Kind::Count, "in pixels"),
            field("height", Kind::Count, "in pixels"),
            field("black", Kind::Share, "the largest share of black pixels"),
            field("saturated", Kind::Share, "the largest share of saturated pixels"),
        ],
        "form and content of sensor_msgs/msg/Image, from a sample of the pixels; form of JPEG and PNG in CompressedImage",
    ),
    key(
        "cloud",
        None,
        &[
            field("points", Kind::Count, "the least number of points"),
            field(
                "invalid",
                Kind::Share,
                "the largest share of points that are not finite",
            ),
        ],
        "content of sensor_msgs/msg/PointCloud2, from a sample of the points",
    ),
    key(
        "frame",
        Some("ids"),
        &[required("ids", Kind::Names, "one of these")],
        "header.frame_id",
    ),
    key(
        "publishers",
        Some("min"),
        &[
            field("min", Kind::Count, "the fewest"),
            field("max", Kind::Count, "the most"),
            field("names", Kind::Names, "full names of nodes that publish"),
        ],
        "who publishes it",
    ),
    key(
        "losses",
        Some("max"),
        &[required("max", Kind::Count, "the most")],
        "lost messages",
    ),
    of_bag(key(
        "duration",
        Some("min"),
        &[
            field("min", Kind::Span, "the shortest"),
            field("max", Kind::Span, "the longest"),
        ],
        "the length of the recording",
    )),
    of_bag(key(
        "topics",
        Some("min"),
        &[
            field("min", Kind::Count, "the fewest"),
            field("max", Kind::Count, "the most"),
        ],
        "topics with messages",
    )),
    of_bag(key(
        "episodes",
        Some("min"),
        &[
            field("min", Kind::Count, "the fewest"),
            field("max", Kind::Count, "the most"),
            field("success_min", Kind::Count, "the fewest with the outcome success"),
        ],
        "episodes that were not discarded",
    )),
    of_bag(key(
        "losses",
        Some("max"),
        &[required("max", Kind::Count, "the most")],
        "lost messages of all topics",
    )),
    of_bag(key(
        "disk_left",
        Some("min"),
        &[required("min", Kind::Bytes, "the least")],
        "free space of the disk at the end",
    )),
    of_bag(list(key(
        "tf",
        Some("connected"),
        &[
            required("connected", Kind::Names, "frames, two or more"),
            field(
                "topics",
                Kind::Names,
                "topics of transforms, /tf and /tf_static by default; static are those that end with /tf_static",
            ),
            field(
                "timeout",
                Kind::Span,
                "a transform that is not static holds this long, 1s by default",
            ),
            field(
                "within",
                Kind::Span,
                "from so long after the start on, 5s by default",
            ),
        ],
        "frames that one tree of transforms connects",
    ))),
    of_bag(list(key(
        "skew",
        None,
        &[
            required("topics", Kind::Names, "two topics"),
            required("max", Kind::Span, "the largest"),
        ],
        "the time from a message's header.stamp to the nearest one of the other topic",
    ))),
];

/// The fields that every rule may have.
pub(super) static COMMON: &[Field] = &[
    field("severity", Kind::Text, "fail or warn; fail by default"),
    field("reason", Kind::Text, "why the rule is, for people"),
    field(
        "tolerance",
        Kind::Text,
        "violations that are allowed: a number, or a share of what was checked (1%)",
    ),
];

/// A kind of rule by its name.
pub(super) fn find(name: &str, is_of_bag: bool) -> Option<&'static Key> {
    KEYS.iter()
        .find(|key| key.name == name && key.is_of_bag == is_of_bag)
}
