//! Conversions by example, and random definitions and values checked by a plain decoder that does not use
//! plans.

use super::*;
use proptest::prelude::*;

const LINE: &str = "================================================================================\n";
const HEADER: &str = "uint32 seq\ntime stamp\nstring frame_id\n";

fn with_parts(text: &str, parts: &[(&str, &str)]) -> String {
    let mut all = text.to_owned();
    for (name, part) in parts {
        all.push_str(&format!("\n{LINE}MSG: {name}\n{part}"));
    }
    all
}

/// Whether the type is one that ROS 2 itself has under this name, with the same hash.
fn is_known_type(made: &Conversion) -> bool {
    let (name, hash) = (
        &made.definition().type_name,
        &made.definition().type_description_hash,
    );
    Bundle::embedded()
        .define(name)
        .is_ok_and(|known| known.type_hash() == *hash)
}

fn conversion(type_name: &str, text: &str) -> Conversion {
    Conversion::new(&Ros1Definition::parse(type_name, text).unwrap()).unwrap()
}

fn convert(conversion: &Conversion, ros1: &[u8]) -> Result<Vec<u8>, ConversionError> {
    let mut cdr = vec![9; 3];
    conversion.convert(ros1, &mut cdr).map(|()| cdr)
}

/// The bytes of values one after the other, as ROS 1 packs them.
fn packed(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn md5_sums_are_those_of_ros() {
    // As `rosmsg md5` prints them.
    let md5 = |name: &str, text: &str| Ros1Definition::parse(name, text).unwrap().md5sum();
    assert_eq!(
        md5("std_msgs/String", "string data\n"),
        "992ce8a1687cec8c8bd883ec73ca41d1"
    );
    assert_eq!(md5("std_msgs/Empty", ""), "d41d8cd98f00b204e9800998ecf8427e");
    assert_eq!(
        md5("std_msgs/Header", &format!("# a comment\n{HEADER}")),
        "2176decaecbce78abc3b96ef049fabed"
    );
    let range = "uint8 ULTRASOUND=0\nuint8 INFRARED=1 # two\n\nHeader header\nuint8 radiation_type  # one\nfloat32 field_of_view\nfloat32 min_range\nfloat32 max_range\nfloat32 range\n";
    assert_eq!(
        md5(
            "sensor_msgs/Range",
            &with_parts(range, &[("std_msgs/Header", HEADER)])
        ),
        "c005c34273dc426c67a020a87bc24148"
    );
}

#[test]
fn a_header_loses_its_sequence_number_and_texts_gain_a_zero() {
    let text = with_parts("Header header\nfloat64 x\n", &[("std_msgs/Header", HEADER)]);
    let made = conversion("a_msgs/Stamped", &text);
    assert_eq!(made.definition().type_name, "a_msgs/msg/Stamped");
    assert!(!is_known_type(&made));
    let ros1 = packed(&[
        &7u32.to_le_bytes(),
        &1u32.to_le_bytes(),
        &2u32.to_le_bytes(),
        &3u32.to_le_bytes(),
        b"map",
        &1.5f64.to_le_bytes(),
    ]);
    let expected = packed(&[
        &[0, 1, 0, 0],
        &1u32.to_le_bytes(),
        &2u32.to_le_bytes(),
        &4u32.to_le_bytes(),
        b"map\0",
        &1.5f64.to_le_bytes(),
    ]);
    // 8 + 4 + 4 bytes: the double is aligned already.
    assert_eq!(convert(&made, &ros1).unwrap(), expected);
}

#[test]
fn types_that_agree_with_ros_2_become_the_ros_2_type() {
    let camera = "Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] D\nfloat64[9] K\nfloat64[9] R\nfloat64[12] P\nuint32 binning_x\nuint32 binning_y\nRegionOfInterest roi\n";
    let roi = "uint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\nbool do_rectify\n";
    let text = with_parts(
        camera,
        &[("std_msgs/Header", HEADER), ("sensor_msgs/RegionOfInterest", roi)],
    );
    let made = conversion("sensor_msgs/CameraInfo", &text);
    let known = Bundle::embedded()
        .type_hash("sensor_msgs/msg/CameraInfo")
        .unwrap();
    assert!(is_known_type(&made));
    assert_eq!(made.definition().type_description_hash, known);
}

#[test]
fn fields_that_only_ros_2_has_are_zero() {
    let battery = "Header header\nfloat32 voltage\nfloat32 current\nfloat32 charge\nfloat32 capacity\nfloat32 design_capacity\nfloat32 percentage\nuint8 power_supply_status\nuint8 power_supply_health\nuint8 power_supply_technology\nbool present\nfloat32[] cell_voltage\nstring location\nstring serial_number\n";
    let made = conversion(
        "sensor_msgs/BatteryState",
        &with_parts(battery, &[("std_msgs/Header", HEADER)]),
    );
    assert_eq!(made.definition().type_name, "sensor_msgs/msg/BatteryState");
    // ROS 2 put the temperature between voltage and current, and temperatures of the cells after their
    // voltages.
    assert!(is_known_type(&made));
    let ros1 = packed(&[
        &[0; 12],
        &0u32.to_le_bytes(),
        &1.0f32.to_le_bytes(),
        &2.0f32.to_le_bytes(),
        &[0; 16],
        &[1, 2, 3, 1],
        &0u32.to_le_bytes(),
        &[0; 8],
    ]);
    let cdr = convert(&made, &ros1).unwrap();
    // header (8 + 4 + 1 byte, padded), then voltage, temperature, current.
    assert_eq!(cdr[4 + 16..4 + 20], 1.0f32.to_le_bytes());
    assert_eq!(cdr[4 + 20..4 + 24], 0.0f32.to_le_bytes());
    assert_eq!(cdr[4 + 24..4 + 28], 2.0f32.to_le_bytes());
}

#[test]
fn types_that_differ_keep_their_own_fields() {
    let made = conversion("std_msgs/String", "string data\nint32 more\n");
    assert!(!is_known_type(&made));
    assert_eq!(made.definition().type_name, "std_msgs/msg/String");
    assert_eq!(made.definition().text, "string data\nint32 more\n");
    assert_eq!(
        convert(&made, &[1, 0, 0, 0, b'a', 5, 0, 0, 0]).unwrap(),
        [0, 1, 0, 0, 2, 0, 0, 0, b'a', 0, 0, 0, 5, 0, 0, 0]
    );
}

#[test]
fn a_definition_is_written_in_the_terms_of_ros_2() {
    let text = with_parts(
        "# head\nuint8 A=1  # one\nstring B = it's # 1\nstring C=plain\n\ntime[] times  # when\nduration d\nHeader header\nother_msgs/thing[2] t\nbyte b\nchar c\n",
        &[("std_msgs/Header", HEADER), ("other_msgs/thing", "int8 x\n")],
    );
    let made = conversion("a_msgs/All", &text);
    let expected = "# head\nuint8 A=1\n# string B=it's # 1\nstring C=\"plain\"\n\nbuiltin_interfaces/Time[] times  # when\nbuiltin_interfaces/Duration d\nstd_msgs/Header header\nother_msgs/thing[2] t\nint8 b\nchar c\n";
    let (own, rest) = made.definition().text.split_once(LINE).unwrap();
    assert_eq!(own.trim_end(), expected.trim_end());
    for name in ["builtin_interfaces/Time", "std_msgs/Header", "other_msgs/thing"] {
        assert!(rest.contains(&format!("MSG: {name}\n")), "{name}");
    }
    assert!(!rest.contains("seq"), "{rest}");
    let read = Definition::from_stored(made.definition(), |_| None).unwrap();
    assert_eq!(read.type_hash(), made.definition().type_description_hash);
}

#[test]
fn the_old_name_of_transforms_becomes_the_new_one() {
    let text = with_parts(
        "geometry_msgs/TransformStamped[] transforms\n",
        &[
            (
                "geometry_msgs/TransformStamped",
                "Header header\nstring child_frame_id\nTransform transform\n",
            ),
            ("std_msgs/Header", HEADER),
            (
                "geometry_msgs/Transform",
                "Vector3 translation\nQuaternion rotation\n",
            ),
            ("geometry_msgs/Vector3", "float64 x\nfloat64 y\nfloat64 z\n"),
            (
                "geometry_msgs/Quaternion",
                "float64 x\nfloat64 y\nfloat64 z\nfloat64 w\n",
            ),
        ],
    );
    let made = conversion("tf/tfMessage", &text);
    assert!(is_known_type(&made));
    assert_eq!(made.definition().type_name, "tf2_msgs/msg/TFMessage");
}

#[test]
fn a_type_of_another_package_may_be_named_without_it() {
    let text = with_parts(
        "Header header\nVector3 v\nPoint p\n",
        &[
            ("geometry_msgs/Vector3", "float64 x\n"),
            ("a_msgs/Point", "int8 a\n"),
            ("b_msgs/Point", "int8 b\n"),
        ],
    );
    let made = conversion("a_msgs/V", &text);
    let shown = &made.definition().text;
    assert!(
        shown.starts_with("std_msgs/Header header\ngeometry_msgs/Vector3 v\na_msgs/Point p\n"),
        "{shown}"
    );
    // Which of two is not guessed.
    let two = with_parts(
        "Point p\n",
        &[("b_msgs/Point", "int8 b\n"), ("c_msgs/Point", "int8 c\n")],
    );
    assert!(Ros1Definition::parse("a_msgs/V", &two).is_err());
}

#[test]
fn times_are_in_the_range_of_ros_2() {
    let made = conversion("a_msgs/T", "time[] t\nduration d\n");
    let value = |stamp: (u32, u32), span: (i32, i32)| {
        let ros1 = packed(&[
            &1u32.to_le_bytes(),
            &stamp.0.to_le_bytes(),
            &stamp.1.to_le_bytes(),
            &span.0.to_le_bytes(),
            &span.1.to_le_bytes(),
        ]);
        let cdr = convert(&made, &ros1).unwrap();
        let word = |at: usize| i32::from_le_bytes(cdr[4 + at..][..4].try_into().unwrap());
        ((word(4), word(8)), (word(12), word(16)))
    };
    assert_eq!(value((5, 7), (-3, 9)), ((5, 7), (-3, 9)));
    // Minus half a second, as arithmetic leaves it, and times later than ROS 2's last second.
    assert_eq!(value((5, 7), (0, -500_000_000)).1, (-1, 500_000_000));
    assert_eq!(
        value((5, 1_500_000_000), (1, 2_000_000_001)),
        ((6, 500_000_000), (3, 1))
    );
    assert_eq!(
        value((u32::MAX, 5), (i32::MIN, -1)),
        ((i32::MAX, 999_999_999), (i32::MIN, 0))
    );
}

#[test]
fn a_byte_is_signed() {
    let made = conversion("a_msgs/B", "byte LOW=-3\nbyte b\n");
    assert_eq!(made.definition().text, "int8 LOW=-3\nint8 b\n");
    let status = conversion("std_msgs/Byte", "byte data\n");
    assert!(is_known_type(&status), "ROS 2's own type of the name is used");
}

#[test]
fn a_message_without_fields_has_the_byte_that_ros_2_gives_it() {
    let made = conversion("std_msgs/Empty", "");
    assert!(is_known_type(&made));
    assert_eq!(convert(&made, &[]).unwrap(), [0, 1, 0, 0, 0]);
}

#[test]
fn gaps_depend_on_the_offset_and_empty_sequences_have_none() {
    let made = conversion(
        "a_msgs/Gaps",
        "uint8 a\nfloat64[] b\nuint8 c\nuint16 d\nint64 e\n",
    );
    let ros1 = packed(&[
        &[1],
        &0u32.to_le_bytes(),
        &[2],
        &3u16.to_le_bytes(),
        &4i64.to_le_bytes(),
    ]);
    let expected = [
        0, 1, 0, 0, /* a */ 1, 0, 0, 0, /* b */ 0, 0, 0, 0, /* c */ 2, 0, /* d */ 3, 0,
        0, 0, 0, 0, /* e, at 16 */ 4, 0, 0, 0, 0, 0, 0, 0,
    ];
    let found = convert(&made, &ros1).unwrap();
    assert_eq!(found[..20], expected[..20]);
    assert_eq!(found[20..], expected[20..]);
}

#[test]
fn payloads_with_wrong_lengths_are_refused_with_the_offset() {
    let made = conversion("a_msgs/L", "string[] names\nfloat64[] values\n");
    let error = |ros1: &[u8]| convert(&made, ros1).unwrap_err().to_string();
    let begin = "a message of type a_msgs/L does not fit its definition at byte ";
    assert_eq!(
        error(&[1, 0]),
        format!("{begin}0: expected 4 bytes, found 2 until the end")
    );
    assert_eq!(
        error(&[255, 255, 255, 255, 0, 0, 0, 0]),
        format!("{begin}0: expected a count of elements that fit into 4 bytes, found 4294967295")
    );
    assert_eq!(
        error(&[0, 0, 0, 0, 2, 0, 0, 0, 1]),
        format!("{begin}4: expected a count of elements that fit into 1 bytes, found 2")
    );
    assert_eq!(
        error(&[0, 0, 0, 0, 0, 0, 0, 0, 1]),
        format!("{begin}8: expected the end of the message, found 1 more bytes")
    );
}

#[test]
fn elements_without_content_cannot_fill_the_memory() {
    let text = with_parts("std_msgs/Empty[] none\n", &[("std_msgs/Empty", "")]);
    let made = conversion("a_msgs/Nothing", &text);
    let mut cdr = Vec::new();
    assert!(made.convert(&u32::MAX.to_le_bytes(), &mut cdr).is_err());
    assert!(cdr.capacity() < 1 << 20);
    assert_eq!(
        convert(&made, &[2, 0, 0, 0]).unwrap(),
        [0, 1, 0, 0, 2, 0, 0, 0, 0, 0]
    );
    let wide: String = (0..10_000).map(|n| format!("std_msgs/Empty e{n}\n")).collect();
    let text = with_parts("W[] none\n", &[("a_msgs/W", &wide), ("std_msgs/Empty", "")]);
    let mut cdr = Vec::new();
    let made = conversion("a_msgs/Wide", &text);
    assert!(made.convert(&60_000u32.to_le_bytes(), &mut cdr).is_err());
    assert!(cdr.capacity() < 1 << 20);
    let nested = with_parts(
        "T1[4000000000] a\n",
        &[("a_msgs/T1", "T2[4000000000] a\n"), ("a_msgs/T2", "")],
    );
    assert!(convert(&conversion("a_msgs/T0", &nested), &[]).is_err());
}

#[test]
fn hostile_definitions_are_refused() {
    let parse = |text: &str| Ros1Definition::parse("a_msgs/T0", text);
    let message = |text: &str| parse(text).unwrap_err().to_string();
    assert_eq!(
        message(&with_parts("T1 a\n", &[("a_msgs/T1", "T0[] a\n")])),
        "the definition of a_msgs/T0 contains itself"
    );
    assert_eq!(
        message("T1 a\n"),
        "no definition of a_msgs/T1 was found, which a_msgs/T0 needs"
    );
    assert_eq!(
        message("int32\n"),
        "definition of a_msgs/T0, line 1: \"int32\" has no name"
    );
    assert!(Ros1Definition::parse("no name", "").is_err());
    let deep: String = (1..60)
        .map(|n| format!("\n{LINE}MSG: a_msgs/T{n}\nT{} a\n", n + 1))
        .collect();
    assert!(
        parse(&format!("T1 a\n{deep}"))
            .unwrap_err()
            .to_string()
            .contains("levels")
    );
    // Two fields of the next type, forty times: 2^40 fields.
    for leaf in ["string x\n", "uint8 x\n"] {
        let parts: Vec<(String, String)> = (1..40)
            .map(|n| (format!("a_msgs/T{n}"), format!("T{0} a\nT{0} b\n", n + 1)))
            .chain([("a_msgs/T40".to_owned(), leaf.to_owned())])
            .collect();
        let parts: Vec<(&str, &str)> = parts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let doubled = parse(&with_parts("T1 a\nT1 b\n", &parts)).unwrap();
        assert!(matches!(
            Conversion::new(&doubled),
            Err(InterfaceError::TooLarge { .. })
        ));
    }
}

#[test]
fn large_arrays_are_one_copy() {
    let image = "Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data\n";
    let made = conversion(
        "sensor_msgs/Image",
        &with_parts(image, &[("std_msgs/Header", HEADER)]),
    );
    assert!(is_known_type(&made));
    // seq, stamp, frame_id, height and width, encoding, is_bigendian, step, data
    assert_eq!(made.plan.operations.len(), 8, "{:?}", made.plan.operations);
    let poses = with_parts(
        "Pose[] poses\n",
        &[
            ("a_msgs/Pose", "Point p\nfloat64[4] q\n"),
            ("a_msgs/Point", "float64 x\nfloat64 y\nfloat64 z\n"),
        ],
    );
    assert_eq!(
        conversion("a_msgs/Poses", &poses).plan.operations,
        [plan::Operation::CopySequence {
            align: 8,
            element_bytes: 56
        }]
    );
}

// --- Random definitions and values ---

#[derive(Clone, Debug)]
enum Kind {
    Plain(&'static str, usize),
    Text,
    Time,
    Nested(usize),
}

#[derive(Clone, Copy, Debug)]
enum Many {
    One,
    Array(usize),
    Sequence,
}

type Types = Vec<Vec<(Kind, Many)>>;

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Bytes(Vec<u8>),
    Text(Vec<u8>),
    List(Vec<Value>),
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        4 => prop::sample::select(vec![
            ("bool", 1), ("byte", 1), ("char", 1), ("int8", 1), ("uint16", 2), ("int32", 4), ("float32", 4),
            ("uint64", 8), ("float64", 8)
        ]).prop_map(|(name, size)| Kind::Plain(name, size)),
        1 => Just(Kind::Text),
        1 => Just(Kind::Time),
        2 => any::<prop::sample::Index>().prop_map(|index| Kind::Nested(index.index(1000))),
    ]
}

fn any_types() -> impl Strategy<Value = Types> {
    let many = prop_oneof![
        4 => Just(Many::One), 1 => (1..4usize).prop_map(Many::Array), 2 => Just(Many::Sequence)
    ];
    prop::collection::vec(prop::collection::vec((any_kind(), many), 0..6), 1..5).prop_map(|mut types| {
        let count = types.len();
        for (place, fields) in types.iter_mut().enumerate() {
            for (kind, _) in fields {
                if let Kind::Nested(target) = kind {
                    // Only later types, so that none holds itself.
                    *kind = match count - place - 1 {
                        0 => Kind::Plain("uint8", 1),
                        later => Kind::Nested(place + 1 + *target % later),
                    };
                }
            }
        }
        types
    })
}

fn definition_text(types: &Types) -> String {
    let text = |fields: &Vec<(Kind, Many)>| -> String {
        let line = |(place, (kind, many)): (usize, &(Kind, Many))| {
            let name = match kind {
                Kind::Plain(name, _) => (*name).to_owned(),
                Kind::Text => "string".to_owned(),
                Kind::Time => ["time", "duration"][place % 2].to_owned(),
                Kind::Nested(target) => format!("T{target}"),
            };
            match many {
                Many::One => format!("{name} f{place}\n"),
                Many::Array(count) => format!("{name}[{count}] f{place}\n"),
                Many::Sequence => format!("{name}[] f{place}\n"),
            }
        };
        fields.iter().enumerate().map(line).collect()
    };
    let parts: Vec<(String, String)> = types
        .iter()
        .enumerate()
        .skip(1)
        .map(|(place, fields)| (format!("a_msgs/T{place}"), text(fields)))
        .collect();
    let parts: Vec<(&str, &str)> = parts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    with_parts(&text(&types[0]), &parts)
}

/// Makes values out of random bytes; after the last one, of zeros.
struct Maker<'a>(std::slice::Iter<'a, u8>);

impl Maker<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn structure(&mut self, types: &Types, place: usize) -> Value {
        let fields = types[place].iter();
        Value::List(
            fields
                .map(|(kind, many)| self.field(types, kind, *many))
                .collect(),
        )
    }

    fn field(&mut self, types: &Types, kind: &Kind, many: Many) -> Value {
        let count = match many {
            Many::One => return self.element(types, kind),
            Many::Array(count) => count,
            Many::Sequence => usize::from(self.byte() % 4),
        };
        Value::List((0..count).map(|_| self.element(types, kind)).collect())
    }

    fn element(&mut self, types: &Types, kind: &Kind) -> Value {
        match kind {
            Kind::Plain(_, size) => Value::Bytes((0..*size).map(|_| self.byte()).collect()),
            // In the range of both; `times_are_in_the_range_of_ros_2` has the others.
            Kind::Time => Value::List(vec![
                Value::Bytes(vec![self.byte(), self.byte(), self.byte(), self.byte() & 0x7f]),
                Value::Bytes(vec![self.byte(), self.byte(), self.byte(), self.byte() & 0x1f]),
            ]),
            Kind::Text => {
                let length = self.byte() % 9;
                Value::Text((0..length).map(|_| self.byte()).collect())
            }
            Kind::Nested(target) => self.structure(types, *target),
        }
    }
}

fn write_ros1(types: &Types, place: usize, value: &Value, out: &mut Vec<u8>) {
    let Value::List(values) = value else {
        unreachable!()
    };
    for ((kind, many), value) in types[place].iter().zip(values) {
        match (many, value) {
            (Many::One, value) => write_ros1_element(types, kind, value, out),
            (_, Value::List(elements)) => {
                if matches!(many, Many::Sequence) {
                    out.extend((elements.len() as u32).to_le_bytes());
                }
                for element in elements {
                    write_ros1_element(types, kind, element, out);
                }
            }
            _ => unreachable!(),
        }
    }
}

fn write_ros1_element(types: &Types, kind: &Kind, value: &Value, out: &mut Vec<u8>) {
    match (kind, value) {
        (Kind::Nested(target), value) => write_ros1(types, *target, value, out),
        (_, Value::Bytes(bytes)) => out.extend(bytes),
        (_, Value::Text(text)) => {
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text);
        }
        (_, Value::List(words)) => {
            for word in words {
                write_ros1_element(types, kind, word, out);
            }
        }
    }
}

/// Reads CDR field by field.
struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Decoder<'_> {
    fn plain(&mut self, size: usize) -> Vec<u8> {
        while !self.at.is_multiple_of(size) {
            assert_eq!(self.bytes[self.at], 0, "a gap is zero");
            self.at += 1;
        }
        let found = self.bytes[self.at..self.at + size].to_vec();
        self.at += size;
        found
    }

    fn length(&mut self) -> usize {
        u32::from_le_bytes(self.plain(4).try_into().unwrap()) as usize
    }

    fn structure(&mut self, types: &Types, place: usize) -> Value {
        let fields = &types[place];
        if fields.is_empty() {
            assert_eq!(self.plain(1), [0]);
        }
        let read = fields.iter().map(|(kind, many)| {
            let count = match many {
                Many::One => return self.element(types, kind),
                Many::Array(count) => *count,
                Many::Sequence => self.length(),
            };
            Value::List((0..count).map(|_| self.element(types, kind)).collect())
        });
        Value::List(read.collect())
    }

    fn element(&mut self, types: &Types, kind: &Kind) -> Value {
        match kind {
            Kind::Plain(_, size) => Value::Bytes(self.plain(*size)),
            Kind::Time => Value::List(vec![Value::Bytes(self.plain(4)), Value::Bytes(self.plain(4))]),
            Kind::Text => {
                let length = self.length();
                let text = self.bytes[self.at..self.at + length - 1].to_vec();
                assert_eq!(self.bytes[self.at + length - 1], 0);
                self.at += length;
                Value::Text(text)
            }
            Kind::Nested(target) => self.structure(types, *target),
        }
    }
}

proptest! {
    #[test]
    fn every_value_of_every_definition_survives_the_conversion(types in any_types(), entropy in prop::collection::vec(any::<u8>(), 0..600)) {
        let value = Maker(entropy.iter()).structure(&types, 0);
        let mut ros1 = Vec::new();
        write_ros1(&types, 0, &value, &mut ros1);
        let cdr = convert(&conversion("a_msgs/T0", &definition_text(&types)), &ros1).unwrap();
        prop_assert_eq!(&cdr[..4], &[0, 1, 0, 0]);
        let mut decoder = Decoder { bytes: &cdr[4..], at: 0 };
        prop_assert_eq!(decoder.structure(&types, 0), value);
        prop_assert_eq!(decoder.at, cdr.len() - 4);
    }

    #[test]
    fn no_payload_panics_or_grows_out_of_bounds(types in any_types(), ros1 in prop::collection::vec(prop_oneof![3 => 0..4u8, 1 => any::<u8>()], 0..200)) {
        let conversion = conversion("a_msgs/T0", &definition_text(&types));
        let mut cdr = Vec::new();
        let _ = conversion.convert(&ros1, &mut cdr);
        prop_assert!(cdr.len() < 2 << 20, "{}", cdr.len());
    }

    #[test]
    fn no_definition_panics(text in "((={80}\nMSG: )?[a-zA-Z0-9_/\\[\\]#= ]{0,20}\n){0,8}") {
        if let Ok(definition) = Ros1Definition::parse("a_msgs/T", &text) {
            let _ = definition.md5sum();
            let _ = Conversion::new(&definition);
        }
    }
}
