"""Changed fields (`filter --set`): pip rosbags and mcap-ros2-support read them, rclpy encodes them to the same bytes, and everything else is as it was."""

import json
import math
import random
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import HOLDALL
from mcap.writer import Writer as McapWriter
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

START = 1_700_000_000_000_000_000
IMU, TF, TEXT = "sensor_msgs/msg/Imu", "tf2_msgs/msg/TFMessage", "std_msgs/msg/String"


def holdall(*arguments, code=0):
    done = subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def messages(bag):
    """Topic, stamp and payload of each message, read by pip rosbags."""
    with Reader(bag) as reader:
        return [(connection.topic, stamp, bytes(payload)) for connection, stamp, payload in reader.messages()]


def make(store, name, **fields):
    """A message whose other fields are zero or empty."""
    zero = {"string": "", "bool": False}

    def value(kind):
        code, detail = kind
        if code == 1:
            return zero.get(detail[0], 0)
        if code == 2:
            return make(store, detail)
        element, count = detail
        values = [value(element) for _ in range(count if code == 3 else 0)]
        return np.array(values, dtype="float64") if element[0] == 1 and element[1][0] == "float64" else values

    kinds = dict(store.get_msgdef(name).fields)
    return store.types[name](**{field: fields.get(field, value(kind) if field not in fields else None) for field, kind in kinds.items()})


def write_bag(path, plugin):
    """Imu and TF messages in both byte orders, beside a topic that nothing changes."""
    store = get_typestore(Stores.ROS2_JAZZY)
    time = store.types["builtin_interfaces/msg/Time"]
    header = lambda frame: make(store, "std_msgs/msg/Header", stamp=time(5, 6), frame_id=frame)  # noqa: E731
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        topics = {topic: writer.add_connection(topic, kind, typestore=store) for topic, kind in [("/imu", IMU), ("/tf", TF), ("/text", TEXT)]}
        for stamp in range(30):
            frames = ["", "a", "odometry"]
            frame = header(frames[stamp % 3])
            imu = make(store, IMU, header=frame, angular_velocity_covariance=np.arange(9.0) + stamp)
            edge = make(store, "geometry_msgs/msg/TransformStamped", header=frame, child_frame_id="c" * stamp)
            made = [("/imu", imu), ("/tf", make(store, TF, transforms=[edge] * (stamp % 3))), ("/text", make(store, TEXT, data=f"text {stamp}"))]
            for topic, message in made:
                data = store.serialize_cdr(message, message.__msgtype__, little_endian=stamp % 2 == 0)
                writer.write(topics[topic], START + stamp, data)
    return store


@pytest.mark.parametrize("storage", ["mcap", "sqlite3", "leveldb"])
def test_others_read_what_was_changed_and_the_rest_is_as_it_was(tmp_path, storage):
    store = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3 if storage == "sqlite3" else StoragePlugin.MCAP)
    source = tmp_path / "bag"
    if storage == "leveldb":
        source = tmp_path / "levels"
        holdall("convert", tmp_path / "bag", "-o", source, "-s", storage)
    changes = [
        '/imu: header.frame_id = "base_link"',
        "/imu: angular_velocity_covariance[-1] = -0.25",
        '/imu: orientation = {"w": 1}',
        '/tf: transforms[*].header.frame_id = "map"',
        '/tf: transforms[1].child_frame_id="é: [=]"',
    ]
    flags = [word for change in changes for word in ("--set", change)]
    done = holdall("filter", source, "-o", tmp_path / "out", *flags, "--json")
    # A third of the TF messages has no transform.
    assert json.loads(done.stdout)["changed_message_count"] == 30 + 20
    warned = [line for line in done.stderr.splitlines() if "/tf" in line]
    assert len(warned) == 2 and "10 of 30 messages have no transforms[*].header.frame_id" in done.stderr, done.stderr
    assert "20 of 30 messages have no transforms[1].child_frame_id" in done.stderr
    assert "sound" in holdall("check", tmp_path / "out").stdout
    out = tmp_path / "out"
    if storage == "leveldb":
        assert not list(out.glob("*.mcap"))
        out = tmp_path / "back"
        holdall("convert", tmp_path / "out", "-o", out, "-s", "mcap")
    before, after = messages(tmp_path / "bag"), messages(out)
    assert [message[:2] for message in after] == [message[:2] for message in before]
    for (topic, _, was), (_, _, now) in zip(before, after, strict=True):
        if topic == "/text":
            assert now == was
            continue
        kind = {"/imu": IMU, "/tf": TF}[topic]
        expected, changed = store.deserialize_cdr(was, kind), store.deserialize_cdr(now, kind)
        if topic == "/imu":
            assert (changed.header.frame_id, changed.orientation.w, changed.angular_velocity_covariance[8]) == ("base_link", 1, -0.25)
            expected.header.frame_id, expected.orientation = "base_link", changed.orientation
            expected.angular_velocity_covariance = np.append(expected.angular_velocity_covariance[:8], -0.25)
        else:
            for index, edge in enumerate(expected.transforms):
                edge.header.frame_id = "map"
                if index == 1:
                    edge.child_frame_id = "é: [=]"
        # What rosbags would have written, to the last byte and in the byte order that it was.
        assert now == bytes(store.serialize_cdr(expected, kind, little_endian=was[1] == 1)), topic


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_topics_frames_and_stamps_get_others(tmp_path, storage):
    store = write_bag(tmp_path / "bag", StoragePlugin.SQLITE3 if storage == "sqlite3" else StoragePlugin.MCAP)
    flags = ["--rename", "/imu:=/front/imu", "--frame", "a:=a_longer_one", "ccc:=d", "--shift-time", "-90min"]
    done = holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", *flags, "--json")
    before, after = messages(tmp_path / "bag"), messages(tmp_path / "out")
    assert len(after) == len(before) == 90
    frames = {"a": "a_longer_one", "ccc": "d"}
    changed = 0
    for (topic, stamp, was), (renamed, moved, now) in zip(before, after, strict=True):
        assert (renamed, moved) == ({"/imu": "/front/imu"}.get(topic, topic), stamp - 90 * 60 * 10**9)
        changed += was != now
        if topic == "/text":
            assert now == was
            continue
        kind = {"/imu": IMU, "/tf": TF}[topic]
        expected = store.deserialize_cdr(was, kind)
        for part in [expected] if kind == IMU else expected.transforms:
            part.header.frame_id = frames.get(part.header.frame_id, part.header.frame_id)
            if kind == TF:
                part.child_frame_id = frames.get(part.child_frame_id, part.child_frame_id)
        assert now == bytes(store.serialize_cdr(expected, kind, little_endian=was[1] == 1)), topic
    assert json.loads(done.stdout)["changed_message_count"] == changed == 20
    assert "sound" in holdall("check", tmp_path / "out").stdout


def test_names_and_times_that_cannot_be_are_refused(tmp_path):
    write_bag(tmp_path / "bag", StoragePlugin.MCAP)
    for flags, reason in [
        (["--rename", "/absent:=/b"], "/absent cannot be renamed to /b: no topic of the choice has this name"),
        (["--rename", "/imu:=/text"], "/imu cannot be renamed to /text: /text would have this name, too"),
        (["--rename", "/imu"], "expected old:=new"),
        (["--frame", ":=b"], "expected old:=new"),
        (["--shift-time", "-60 years"], "unknown unit"),
        (["--shift-time", "-1700000001"], "would be moved to before 1970"),
        (["--shift-time", "8000000000"], "too late for 64 bits"),
    ]:
        done = holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", *flags, code=2)
        assert reason in done.stderr and not (tmp_path / "out").exists(), done.stderr
    # Two topics that exchange their names.
    holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", "--rename", "/imu:=/tf", "/tf:=/imu", "--topics", "/imu", "/tf")
    with Reader(tmp_path / "out") as reader:
        assert {connection.topic: connection.msgtype for connection in reader.connections} == {"/tf": IMU, "/imu": TF}


def test_mcap_ros2_support_reads_what_was_changed(tmp_path):
    from mcap_ros2.reader import read_ros2_messages

    write_bag(tmp_path / "bag", StoragePlugin.MCAP)
    holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", "--topics", "/imu", "--set", 'imu: header = {"frame_id": "x", "stamp": {"sec": -7}}')
    (file,) = (tmp_path / "out").glob("*.mcap")
    found = [(one.ros_msg.header.frame_id, one.ros_msg.header.stamp.sec, one.ros_msg.header.stamp.nanosec) for one in read_ros2_messages(str(file))]
    assert found == [("x", -7, 0)] * 30


def test_a_conversion_changes_fields_and_names_too(tmp_path):
    write_bag(tmp_path / "bag", StoragePlugin.MCAP)
    changes = ["--set", '/imu: header.frame_id = "base"', "--rename", "/imu:=/body/imu", "--topics", "/imu"]
    holdall("convert", tmp_path / "bag", "-o", tmp_path / "out", "-s", "sqlite3", *changes)
    store = get_typestore(Stores.ROS2_JAZZY)
    with Reader(tmp_path / "out") as reader:
        found = {(connection.topic, store.deserialize_cdr(payload, IMU).header.frame_id) for connection, _, payload in reader.messages()}
    assert found == {("/body/imu", "base")}
    (tmp_path / "options.yaml").write_text("output_bags: [{uri: x}]\n")
    done = holdall("convert", tmp_path / "bag", "-o", tmp_path / "options.yaml", *changes[:2], code=2)
    assert "--set" in done.stderr and "YAML" in done.stderr


def test_what_cannot_be_changed_is_refused_before_the_copy_begins(tmp_path):
    write_bag(tmp_path / "bag", StoragePlugin.MCAP)
    for change, reason in [
        ("/imu: header.frame = 1", "std_msgs/msg/Header has no field frame; its fields are stamp, frame_id"),
        ("/imu: header.frame_id = 1", "header.frame_id: expected a text, found 1"),
        ('/imu: header.stamp.sec = "now"', 'header.stamp.sec: expected a whole number in -2147483648..2147483647, found "now"'),
        ("/imu: orientation_covariance = [1]", "expected a list of 9, found a list of 1"),
        ("/imu: header.frame_id = base", "the value of header.frame_id is not JSON"),
        ("/nothing: data = 1", "there is no topic /nothing in the bag; its topics are /imu, /text, /tf"),
        ("/text: data", "--set"),
        ("data = 1", "--set"),
    ]:
        done = holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", "--set", change, code=2)
        assert len(done.stderr.splitlines()) == 1 and reason in done.stderr, done.stderr
    done = holdall("filter", tmp_path / "bag", "-o", tmp_path / "out", "--topics", "/imu", "--set", '/text: data = ""', code=2)
    assert "/text: its fields cannot be changed: it is not among the topics that are chosen" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["bag"]


def write_mcap(path, name, definition, payloads, topic="/t"):
    with open(path, "wb") as stream:
        writer = McapWriter(stream)
        writer.start("ros2")
        schema = writer.register_schema(name, "ros2msg" if definition else "", definition.encode())
        channel = writer.register_channel(topic, "cdr", schema)
        for stamp, payload in enumerate(payloads):
            writer.add_message(channel, log_time=START + stamp, data=payload, publish_time=START + stamp)
        writer.finish()


def test_a_topic_without_definition_and_a_message_that_does_not_fit_are_refused(tmp_path):
    good, short = b"\0\1\0\0\x07\0\0\0", b"\0\1\0\0\x07\0"
    write_mcap(tmp_path / "unknown.mcap", "own_msgs/msg/Own", "", [good])
    done = holdall("filter", tmp_path / "unknown.mcap", "-o", tmp_path / "out", "--set", "/t: x = 1", code=2)
    assert "/t: its fields cannot be changed: no definition of own_msgs/msg/Own is in the bag" in done.stderr
    write_mcap(tmp_path / "short.mcap", "own_msgs/msg/Own", "uint32 x", [good, good, short, good])
    done = holdall("filter", tmp_path / "short.mcap", "-o", tmp_path / "out", "--set", "/t: x = 1", code=1)
    assert f"/t, message 3, of {START + 2} ns: own_msgs/msg/Own x at byte 4: expected 4 bytes, found 2 bytes before the end" in done.stderr
    write_mcap(tmp_path / "long.mcap", "own_msgs/msg/Own", "uint32 x", [good, good + b"\0" * 8])
    done = holdall("filter", tmp_path / "long.mcap", "-o", tmp_path / "out", "--set", "/t: x = 1", code=1)
    assert "/t, message 2," in done.stderr and "8 bytes follow the last field" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.mcap", "short.mcap", "unknown.mcap"]


def test_the_account_of_a_recording_stays_right(world):
    talker = world.talker(
        {"topic": "/changed", "type": TEXT, "count": 200, "rate_hz": 400, "hash": False},
        {"topic": "/kept", "type": IMU, "count": 200, "rate_hz": 400, "hash": False},
        wait_for_subscriptions=1,
    )
    recorder = world.holdall("record", "-o", world.folder / "bag", "--topics", "/changed", "/kept")
    talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    renamed = world.run("filter", world.folder / "bag", "-o", world.folder / "renamed", "--rename", "/kept:=/other", "--shift-time", "1h")
    assert renamed.returncode == 0, renamed.stderr
    account = json.loads(world.run("audit", "--json", world.folder / "renamed").stdout)
    assert account["balanced"] and {name: topic["recorded"] for name, topic in account["topics"].items()} == {"/changed": 200, "/other": 200}
    done = world.run("filter", world.folder / "bag", "-o", world.folder / "out", "--set", '/changed: data = "a text of another length"')
    assert done.returncode == 0 and "200 messages changed" in done.stdout, done.stdout + done.stderr
    for bag in ("bag", "out"):
        done = world.run("audit", "--json", world.folder / bag)
        account = json.loads(done.stdout)
        assert (done.returncode, account["balanced"]) == (0, True), done.stdout
        assert {name: topic["recorded"] for name, topic in account["topics"].items()} == {"/changed": 200, "/kept": 200}
    before, after = messages(world.folder / "bag"), messages(world.folder / "out")
    assert [one for one in before if one[0] == "/kept"] == [one for one in after if one[0] == "/kept"]
    # DDS pads to multiples of four; a message that needed no padding does not show that.
    text = b"\0\1\0\0\x19\0\0\0a text of another length\0"
    changed = [payload for topic, _, payload in after if topic == "/changed"]
    assert len(changed) == 200 and set(changed) <= {text, text + b"\0\0\0"}
    assert world.run("check", world.folder / "out").returncode == 0


# rclpy: bytes of real message classes.

MSGS = ["Arrays", "BasicTypes", "BoundedPlainSequences", "BoundedSequences", "Defaults", "MultiNested", "Nested", "Strings", "UnboundedSequences", "WStrings"]
TYPES = [f"test_msgs/msg/{name}" for name in MSGS] + [
    "sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2", "sensor_msgs/msg/JointState", "sensor_msgs/msg/BatteryState", "geometry_msgs/msg/PoseArray",
    "std_msgs/msg/Float32MultiArray", "rcl_interfaces/msg/ParameterEvent",
]  # fmt: skip


def ros_class(name):
    package, _, short = name.split("/")
    return getattr(__import__(f"{package}.msg").msg, short)


def definition(name):
    """The texts of a type and of those that it needs, as rosbag2 stores them."""
    texts, wanted = {}, [name]
    while wanted:
        one = wanted.pop(0)
        if one in texts:
            continue
        package, _, short = one.split("/")
        texts[one] = (Path(sys.prefix) / "share" / package / "msg" / f"{short}.msg").read_text()
        for kind in ros_class(one).get_fields_and_field_types().values():
            kind = kind.removeprefix("sequence<").split("[")[0].split(",")[0].rstrip(">")
            if "/" in kind:
                package, short = kind.split("/")
                wanted.append(f"{package}/msg/{short}")
    parts = [texts.pop(name)] + [f"MSG: {one.replace('/msg/', '/')}\n{text}" for one, text in texts.items()]
    return f"\n{'=' * 80}\n".join(parts)


class Filler:
    """Random values for the fields of a real message, and the same as JSON."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def message(self, kind):
        message, as_json = kind(), {}
        for (field, text), slot in zip(kind.get_fields_and_field_types().items(), kind.SLOT_TYPES, strict=True):
            if field != "structure_needs_at_least_one_member":
                as_json[field] = self.field(message, field, slot)
        return message, as_json

    def field(self, message, field, slot):
        from rosidl_parser.definition import AbstractSequence, Array, BasicType, BoundedSequence

        if not isinstance(slot, (AbstractSequence, Array)):
            value, as_json = self.value(slot)
        else:
            count = slot.size if isinstance(slot, Array) else self.random.randint(0, min(3, slot.maximum_size if isinstance(slot, BoundedSequence) else 3))
            values = [self.value(slot.value_type) for _ in range(count)]
            value, as_json = [value for value, _ in values], [one for _, one in values]
            if isinstance(slot.value_type, BasicType) and slot.value_type.typename == "octet":
                as_json = [one[0] if isinstance(one, bytes) else one for one in as_json]
        setattr(message, field, value)
        return as_json

    def value(self, slot):
        from rosidl_parser.definition import AbstractGenericString, AbstractWString, NamespacedType

        pick = self.random.choice
        if isinstance(slot, NamespacedType):
            return self.message(ros_class("/".join([*slot.namespaces, slot.name])))
        if isinstance(slot, AbstractGenericString):
            text = pick(["", "a", "plain", 'say "hi"\n'] + (["€uro", "ハロー"] if isinstance(slot, AbstractWString) else ["x" * 20]))
            return text, text
        name = slot.typename
        if name == "boolean":
            value = pick([True, False])
            return value, value
        if name == "octet":
            value = self.random.randrange(256)
            return bytes([value]), value
        if name in ("float", "double"):
            value = pick([0.0, -1.5, 0.1, 1e-30, 3e38, math.inf])
            value = struct.unpack("f", struct.pack("f", value))[0] if name == "float" else value
            return value, "Infinity" if math.isinf(value) else value
        bits, signed = int(name.lstrip("uint")), name.startswith("int")
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        value = pick([0, low, high, self.random.randint(low, high)])
        return value, value


class Significant:
    """Which bytes of a payload are no padding, found along the type of a real message: rclpy leaves padding uninitialised."""

    SIZES = {"boolean": 1, "octet": 1, "float": 4, "double": 8}

    def __init__(self, payload):
        self.body, self.at, self.places = payload[4:], 0, set()

    def take(self, size, count=1, align=None):
        self.at += -self.at % (align or size)
        begin, self.at = self.at, self.at + size * count
        assert self.at <= len(self.body)
        self.places.update(range(begin, self.at))
        return begin

    def count(self):
        (count,) = struct.unpack_from("<I", self.body, self.take(4))
        return count

    def struct(self, kind):
        if not kind.SLOT_TYPES:
            # One byte without meaning.
            self.at += 1
        for slot in kind.SLOT_TYPES:
            self.field(slot)

    def field(self, slot):
        from rosidl_parser.definition import AbstractGenericString, AbstractSequence, AbstractWString, Array, NamespacedType

        if isinstance(slot, (AbstractSequence, Array)):
            for _ in range(slot.size if isinstance(slot, Array) else self.count()):
                self.field(slot.value_type)
        elif isinstance(slot, NamespacedType):
            self.struct(ros_class("/".join([*slot.namespaces, slot.name])))
        elif isinstance(slot, AbstractGenericString):
            self.take(4 if isinstance(slot, AbstractWString) else 1, self.count())
        else:
            self.take(self.SIZES.get(slot.typename) or int(slot.typename.lstrip("uint")) // 8)


@pytest.mark.parametrize("name", TYPES)
def test_rclpy_encodes_the_same_bytes(tmp_path, name):
    from rclpy.serialization import deserialize_message, serialize_message

    kind = ros_class(name)
    for seed in range(4):
        message, as_json = Filler(seed).message(kind)
        # The message that is changed has the defaults of its type, as rclpy encodes them.
        write_mcap(tmp_path / "in.mcap", name, definition(name), [serialize_message(kind())])
        flags = [word for field, value in as_json.items() for word in ("--set", f"/t: {field} = {json.dumps(value)}")]
        holdall("filter", tmp_path / "in.mcap", "-o", tmp_path / f"out{seed}", *flags)
        ((_, _, ours),) = messages(tmp_path / f"out{seed}")
        theirs = serialize_message(message)
        walk = Significant(theirs)
        walk.struct(kind)
        differing = [place for place in sorted(walk.places) if ours[4 + place] != theirs[4 + place]]
        assert (ours[:4], differing) == (theirs[:4], []), name
        assert deserialize_message(ours, kind) == message, name


def test_what_a_value_leaves_out_is_what_rclpy_puts_there(tmp_path):
    from rclpy.serialization import deserialize_message, serialize_message

    nested = ros_class("test_msgs/msg/Arrays")
    defaults = ros_class("test_msgs/msg/Defaults")
    message = nested()
    for one in message.defaults_values:
        one.int32_value, one.bool_value, one.float64_value = 1, False, 0.0
    write_mcap(tmp_path / "in.mcap", "test_msgs/msg/Arrays", definition("test_msgs/msg/Arrays"), [serialize_message(message)])
    holdall("filter", tmp_path / "in.mcap", "-o", tmp_path / "out", "--set", '/t: defaults_values = [{}, {"uint8_value": 3}, {}]')
    ((_, _, ours),) = messages(tmp_path / "out")
    found = deserialize_message(ours, nested).defaults_values
    assert found == [defaults(), defaults(uint8_value=3), defaults()]
