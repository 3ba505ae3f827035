"""What is inside messages: cat, export and diff against what pip rosbags and mcap-ros2-support read from the same bags."""

import base64
import csv
import dataclasses
import json
import random
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from conftest import HOLDALL
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

ROOT = Path(__file__).resolve().parents[2]
BAGS = sorted(
    path.parent
    for folder in (ROOT / "crates/holdall-cli/tests/data", ROOT / "crates/holdall/tests/data/rosbag2")
    for path in folder.glob("*/metadata.yaml")
)
NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "byte", "char"]
PLAIN = ["bool", *NUMBERS]
# Fields that rosbags adds to its messages (in addition to constants), and the bytes of structs without fields
# on the wire.
IGNORED = ("__msgtype__", "structure_needs_at_least_one_member")
TYPES = {
    "kinds_msgs/msg/Basic": "uint8 A=1\nstring NAME=constant\n" + "".join(f"{kind} {kind}_value\n" for kind in PLAIN),
    "kinds_msgs/msg/Texts": 'string plain\nstring with_default "hello"\nstring<=22 bounded\n',
    "kinds_msgs/msg/Nothing": "",
    "kinds_msgs/msg/Lists": "".join(
        f"{kind}[3] {name}_fixed\n{kind}[] {name}_free\n{kind}[<=3] {name}_bounded\n"
        for kind in [*PLAIN, "string", "kinds_msgs/Basic", "kinds_msgs/Nothing"]
        for name in [kind.split("/")[-1].lower()]
    )
    + "int32 alignment_check\n",
    "kinds_msgs/msg/Nested": "kinds_msgs/Lists lists\nkinds_msgs/Texts[] texts\nkinds_msgs/Nothing nothing\n"
    "builtin_interfaces/Time stamp\nuint8 last\n",
}


def typestore():
    store = get_typestore(Stores.ROS2_JAZZY)
    types = {}
    for name, text in TYPES.items():
        types.update(get_types_from_msg(text, name))
    store.register(types)
    return store


class Random:
    """Random messages of a type, with all values that are easily decoded wrong."""

    def __init__(self, store, seed):
        self.store, self.random = store, random.Random(seed)

    def message(self, name):
        fields = self.store.get_msgdef(name).fields
        return self.store.types[name](**{field: self.value(kind) for field, kind in fields})

    def value(self, kind):
        code, detail = kind
        if code == 1:  # base
            return self.plain(detail[0])
        if code == 2:  # nested
            return self.message(detail)
        (element, count) = detail
        if code == 4:  # sequence
            count = self.random.randint(0, min(count or 4, 4))
        values = [self.value(element) for _ in range(count)]
        if element[0] == 1 and element[1][0] != "string":
            return np.array(values, dtype={"bool": "bool", "octet": "uint8", "byte": "uint8", "char": "uint8"}.get(element[1][0], element[1][0]))
        return values

    def plain(self, name):
        pick = self.random.choice
        if name == "string":
            return pick(["", "é€", 'say "hi", you\n', "yes", "x" * 20])
        if name == "bool":
            return pick([True, False])
        if name.startswith("float"):
            values = [0.0, -0.0, 1.5, 0.1, 1e30, -1e-30, float("nan"), float("inf"), float("-inf")]
            return float(np.dtype(name).type(pick(values)))
        kind = np.iinfo({"octet": "uint8", "byte": "uint8", "char": "uint8"}.get(name, name))
        if name in ("char", "byte"):
            # rosbags writes single ones as signed numbers.
            return pick([0, 1, 127])
        return pick([0, 1, int(kind.min), int(kind.max), self.random.randint(int(kind.min), int(kind.max))])


def plain(value):
    """A rosbags message as it should be in JSON."""
    if hasattr(value, "__msgtype__"):
        names = [field.name for field in dataclasses.fields(value) if field.name not in IGNORED and not field.name.isupper()]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, (list, np.ndarray)):
        return [plain(one) for one in value]
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value.item() if isinstance(value, np.generic) else value


def same(ours, theirs, path=""):
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), path
        for name in theirs:
            same(ours[name], theirs[name], f"{path}.{name}")
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs), path
        for index, (one, other) in enumerate(zip(ours, theirs)):
            same(one, other, f"{path}[{index}]")
    elif isinstance(theirs, float) and float(np.float32(theirs)) == theirs:
        # A float32 is written with the digits of its width.
        assert np.float32(ours) == np.float32(theirs), path
    else:
        assert ours == theirs and type(ours) is type(theirs), path


def cat(*arguments, code=0):
    told = subprocess.run([HOLDALL, "cat", *map(str, arguments)], capture_output=True, timeout=60)
    assert told.returncode == code, told.stderr
    return told.stdout


def lines(*arguments):
    return [json.loads(line) for line in cat(*arguments, "--json").splitlines()]


@pytest.fixture(params=[StoragePlugin.SQLITE3, StoragePlugin.MCAP], ids=["sqlite3", "mcap"])
def kinds(tmp_path, request):
    """A bag with random messages of all kinds of types in both byte orders, written by rosbags, and what was put in."""
    store, put = typestore(), []
    make = Random(store, 7)
    with Writer(tmp_path / "kinds", version=9, storage_plugin=request.param) as writer:
        topics = {name: writer.add_connection(f"/{name.split('/')[-1].lower()}", name, typestore=store) for name in TYPES}
        for stamp in range(200):
            name = list(TYPES)[stamp % len(TYPES)]
            message = make.message(name)
            data = store.serialize_cdr(message, name, little_endian=stamp % 3 != 0)
            writer.write(topics[name], 1_700_000_000_000_000_000 + stamp, data)
            put.append((topics[name].topic, message))
    return tmp_path / "kinds", put


@pytest.mark.parametrize("bag", BAGS, ids=lambda bag: f"{bag.parent.name}-{bag.name}")
def test_cat_shows_what_rosbags_reads(bag):
    ours = lines(bag)
    with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as reader:
        theirs = [(c.topic, c.msgtype, stamp, reader.deserialize(data, c.msgtype)) for c, stamp, data in reader.messages()]
    assert len(ours) == len(theirs) > 0
    for one, (topic, msgtype, stamp, message) in zip(ours, theirs):
        assert (one["topic"], one["type"], one["log_time"]) == (topic, msgtype, stamp)
        same(one["message"], plain(message), topic)


def test_cat_shows_all_kinds_of_types(kinds):
    bag, put = kinds
    ours = lines(bag)
    assert len(ours) == len(put)
    for one, (topic, message) in zip(ours, put):
        assert one["topic"] == topic
        same(one["message"], plain(message), topic)


def test_mcap_ros2_support_reads_the_same(kinds):
    bag, _ = kinds
    files = list(bag.glob("*.mcap"))
    if not files:
        return
    from mcap_ros2.reader import read_ros2_messages

    def as_json(value):
        if hasattr(value, "__slots__"):
            named = {name.lstrip("_"): as_json(getattr(value, name)) for name in value.__slots__}
            return {name: of for name, of in named.items() if name != "structure_needs_at_least_one_member"}
        if isinstance(value, bytes):
            return list(value)
        if isinstance(value, (list, tuple)):
            return [as_json(one) for one in value]
        return plain(value)

    ours = {(one["topic"], one["log_time"]): one["message"] for one in lines(bag)}
    count = 0
    for message in read_ros2_messages(str(files[0])):
        topic = message.channel.topic
        if topic in ("/basic", "/texts"):
            same(ours[topic, message.log_time_ns], as_json(message.ros_msg), topic)
            count += 1
    assert count == 80


def test_yaml_says_the_same_as_json(kinds):
    import yaml

    bag, _ = kinds
    documents = list(yaml.safe_load_all(cat(bag)))
    assert documents.pop() is None

    def spell(value):
        if isinstance(value, dict):
            return {name: spell(of) for name, of in value.items()}
        if isinstance(value, list):
            return [spell(one) for one in value]
        return plain(value) if isinstance(value, float) else value

    assert [spell(document) for document in documents] == lines(bag)


def test_questions_choose_messages(kinds):
    bag, put = kinds
    wanted = [message for topic, message in put if topic == "/basic" and message.int32_value > 0 and message.bool_value]
    ours = lines(bag, "-t", "/basic", "-w", "/basic: int32_value > 0 && bool_value")
    assert 0 < len(wanted) < 40
    assert [one["message"]["int32_value"] for one in ours] == [int(message.int32_value) for message in wanted]
    wanted = [m for topic, m in put if topic == "/nested" and any(text.plain == "yes" for text in m.texts)]
    assert len(lines(bag, "-t", "/nested", "-w", "nested: texts[*].plain == 'yes'")) == len(wanted) > 0


def test_a_closed_pipe_ends_quietly():
    bag = ROOT / "crates/holdall-cli/tests/data/mcap_split3"
    program = subprocess.Popen([HOLDALL, "cat", bag, bag, bag, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout.readline().startswith(b'{"topic"')
    program.stdout.close()
    assert program.stderr.read() == b""
    assert program.wait(60) == 0


def test_other_encodings_are_shown_as_they_are(tmp_path):
    from mcap.writer import Writer as McapWriter

    with open(tmp_path / "other.mcap", "wb") as stream:
        writer = McapWriter(stream)
        writer.start()
        schema = writer.register_schema("Thing", "jsonschema", b"{}")
        for topic, encoding, data in [("/json", "json", b'{"a": [1,\n 2]}'), ("/proto", "protobuf", b"\x08\x96\x01")]:
            channel = writer.register_channel(topic, encoding, schema)
            writer.add_message(channel, log_time=1, data=data, publish_time=1)
        writer.finish()
    told = subprocess.run([HOLDALL, "cat", tmp_path / "other.mcap", "--json"], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0
    first, second = map(json.loads, told.stdout.splitlines())
    assert first["message"] == {"a": [1, 2]}
    assert base64.b64decode(second["data"]) == b"\x08\x96\x01" and second["encoding"] == "protobuf"
    assert "/proto: its messages are encoded as protobuf; shown undecoded" in told.stderr


def test_csv_holds_what_was_put_in(kinds, world):
    bag, put = kinds
    told = world.run("export", bag, "-f", "csv", "-o", world.folder / "tables", "--json")
    assert told.returncode == 0, told.stderr
    assert {one["topic"]: one["messages"] for one in json.loads(told.stdout)["exported"]} == {
        f"/{name.split('/')[-1].lower()}": 40 for name in TYPES
    }
    with open(world.folder / "tables" / "basic.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row, message in zip(rows, [message for topic, message in put if topic == "/basic"], strict=True):
        assert int(row["uint64_value"]) == message.uint64_value
        assert row["bool_value"] == str(message.bool_value).lower()
        assert np.array_equal(np.float32(row["float32_value"]), np.float32(message.float32_value), equal_nan=True)
    with open(world.folder / "tables" / "nested.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row, message in zip(rows, [message for topic, message in put if topic == "/nested"], strict=True):
        same(json.loads(row["texts"]), plain(message.texts))
        assert row["lists.string_fixed[2]"] == message.lists.string_fixed[2]
        assert int(row["lists.alignment_check"]) == message.lists.alignment_check


def test_images_become_files_named_by_their_time(tmp_path, world):
    store = get_typestore(Stores.ROS2_JAZZY)
    header = store.types["std_msgs/msg/Header"](store.types["builtin_interfaces/msg/Time"](1, 2), "camera")
    image, compressed = store.types["sensor_msgs/msg/Image"], store.types["sensor_msgs/msg/CompressedImage"]
    jpeg = np.frombuffer(b"\xff\xd8\xff\xe0rest", dtype=np.uint8)
    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        raw = writer.add_connection("/camera/image_raw", image.__msgtype__, typestore=store)
        packed = writer.add_connection("/camera/image_raw/compressed", compressed.__msgtype__, typestore=store)
        for stamp, encoding, size in [(5, "rgb8", 3), (5, "bgr8", 3), (6, "32FC1", 4), (7, "nonsense", 1)]:
            pixels = np.zeros(4 * 2 * size, dtype=np.uint8)
            writer.write(raw, stamp, store.serialize_cdr(image(header, 2, 4, encoding, 0, 4 * size, pixels), image.__msgtype__))
        writer.write(packed, 9, store.serialize_cdr(compressed(header, "jpeg", jpeg), compressed.__msgtype__))
    told = world.run("export", tmp_path / "bag", "-f", "png", "-o", world.folder / "images")
    assert told.returncode == 1 and 'encoding "nonsense"' in told.stderr
    folder = world.folder / "images"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*") if path.is_file()) == [
        "camera.image_raw.compressed/9.jpg",
        "camera.image_raw/5.png",
        "camera.image_raw/5_1.png",
        "camera.image_raw/6.png",
    ]
    assert (folder / "camera.image_raw.compressed/9.jpg").read_bytes() == jpeg.tobytes()
    for name, depth in [("5", 8), ("6", 16)]:
        head = (folder / f"camera.image_raw/{name}.png").read_bytes()
        assert struct.unpack(">IIB", head[16:25]) == (4, 2, depth)


def test_a_bag_in_another_storage_is_the_same(tmp_path, world):
    store = typestore()
    for folder, plugin, changed in [("a", StoragePlugin.MCAP, 0), ("b", StoragePlugin.SQLITE3, 0), ("c", StoragePlugin.MCAP, 9)]:
        make = Random(store, 3)
        with Writer(tmp_path / folder, version=9, storage_plugin=plugin) as writer:
            topic = writer.add_connection("/texts", "kinds_msgs/msg/Texts", typestore=store)
            for stamp in range(50):
                message = make.message("kinds_msgs/msg/Texts")
                if stamp == changed > 0:
                    message.plain = "changed"
                # Equal stamps and equal messages count as often as they occur.
                writer.write(topic, 1 + stamp // 3, store.serialize_cdr(message, message.__msgtype__))
    told = world.run("diff", tmp_path / "a", tmp_path / "b")
    assert (told.returncode, told.stdout) == (0, ""), told.stdout + told.stderr
    told = world.run("diff", tmp_path / "a", tmp_path / "c", "--json", "--fields")
    assert told.returncode == 1, told.stderr
    report = json.loads(told.stdout)
    assert report["messages_in_both"] == 49
    assert report["topics"]["/texts"]["messages_only_in_first"] == 1
    (change,) = report["changed_fields"]
    assert change["log_time"] == 4 and [field["field"] for field in change["fields"]] == ["plain"]
    assert change["fields"][0]["second"] == "changed"
