"""What holdall writes, rosbags reads, and the other way round, for random types and values."""

import threading
import time

import holdall
import numpy as np
import pytest
from conftest import plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rosbags.highlevel import AnyReader

INTS = {"int8": (-(2**7), 2**7 - 1), "uint8": (0, 2**8 - 1), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}
INTS |= {"int32": (-(2**31), 2**31 - 1), "uint32": (0, 2**32 - 1), "int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


def values(kind):
    if kind in INTS:
        return st.integers(*INTS[kind])
    if kind == "bool":
        return st.booleans()
    if kind == "string":
        return st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
    return st.floats(allow_nan=False, width=32 if kind == "float32" else 64)


KINDS = [*INTS, "bool", "string", "float32", "float64"]


@st.composite
def messages(draw):
    """The text of a definition, and some messages of it."""
    inner = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    fields = [(f"f{place}", kind, form) for place, (kind, form) in enumerate(draw(st.lists(st.tuples(st.sampled_from([*KINDS, "r/I"]), st.sampled_from(["", "[]", "[3]"])), min_size=1, max_size=6)))]
    text = "".join(f"{kind}{form} {name}\n" for name, kind, form in fields)
    nested = "".join(f"{kind} i{place}\n" for place, kind in enumerate(inner))

    def one(kind):
        return st.fixed_dictionaries({f"i{place}": values(kind) for place, kind in enumerate(inner)}) if kind == "r/I" else values(kind)

    def of(kind, form):
        return one(kind) if not form else st.lists(one(kind), min_size=3 if form == "[3]" else 0, max_size=3)

    message = st.fixed_dictionaries({name: of(kind, form) for name, kind, form in fields})
    return text, nested, draw(st.lists(message, min_size=1, max_size=4))


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(messages(), st.sampled_from(["mcap", "sqlite3"]))
def test_random_messages_come_back_from_rosbags_and_from_holdall(tmp_path_factory, case, storage):
    text, nested, found = case
    path = tmp_path_factory.mktemp("round") / "bag"
    definition = text + "=" * 80 + "\nMSG: r/I\n" + nested
    with holdall.create(path, storage=storage) as out:
        out.define("r/msg/M", definition)
        for time, message in enumerate(found):
            out.write("/m", "r/msg/M", message, time=time)
    bag = holdall.open(path)
    assert [message.msg.to_dict() for message in bag.messages()] == [as_bytes(message, text) for message in found]
    columns = bag["/m"].to_numpy()
    with AnyReader([path]) as reader:
        read = [reader.deserialize(raw, connection.msgtype) for connection, _, raw in reader.messages()]
    assert [plain(message) for message in read] == [plain(message) for message in found]
    table = bag["/m"].to_arrow()
    assert [plain({name: row[name] for name in found[0]}) for row in table.to_pylist()] == [plain(message) for message in found]
    assert len(columns["log_time"]) == len(found)


def as_bytes(message, text):
    """Lists of bytes are bytes in plain dicts."""
    octets = {line.split()[1] for line in text.splitlines() if line.startswith("uint8[")}
    return {name: bytes(value) if name in octets else value for name, value in message.items()}


def test_foreign_readers_read_what_was_written_raw_and_as_dicts(tmp_path):
    with holdall.create(tmp_path / "bag", preset="zstd_fast", max_bytes=200_000) as out:
        for number in range(2000):
            out.write("/s", "std_msgs/msg/String", {"data": f"text {number}"}, time=number, publish_time=number - 5)
            out.write("/raw", "std_msgs/msg/UInt8", bytes([0, 1, 0, 0, number % 256]), time=number)
    files = sorted((tmp_path / "bag").glob("*.mcap"))
    read = []
    for file in files:
        with file.open("rb") as stream:
            for _, channel, message, decoded in make_reader(stream, decoder_factories=[DecoderFactory()]).iter_decoded_messages():
                read.append((channel.topic, message.log_time, decoded.data))
    assert sorted(read) == sorted(
        [("/s", number, f"text {number}") for number in range(2000)] + [("/raw", number, number % 256) for number in range(2000)]
    )
    assert {message.time - message.publish_time for message in holdall.open(tmp_path / "bag").messages("/s") if message.time >= 5} == {5}


def test_everything_that_holds_fields_can_be_written(tmp_path, written):
    source = holdall.open(written[0])
    first = source["/imu"][0]

    class Vector:
        x, y, z = 1.0, np.float64(2.0), 3

    with holdall.create(tmp_path / "bag") as out:
        out.write("/view", "sensor_msgs/msg/Imu", first.msg, time=1)
        out.write("/dict", "sensor_msgs/msg/Imu", first.msg.to_dict(), time=2)
        out.write("/object", "geometry_msgs/msg/Vector3", Vector(), time=3)
        out.write("/part", "std_msgs/msg/Header", first.msg.header, time=4)
        out.write("/rosbags", "sensor_msgs/msg/Imu", written[1]["/imu"][0][1], time=5)
        out.write("/array", "std_msgs/msg/Float64MultiArray", {"data": np.arange(4.0)}, time=6)
        out.write("/bytes", "std_msgs/msg/UInt8MultiArray", {"data": b"abc"}, time=7)
        out.write("/defaults", "geometry_msgs/msg/Quaternion", {}, time=8)
        out.write("/wide", "std_msgs/msg/Int64", {"data": np.int64(-5)}, time=9)
        out.copy(source["/odd"][7], source)
        assert out.count == 10
    bag = holdall.open(tmp_path / "bag")
    assert bag["/view"][0].raw == first.raw
    for topic in ("/dict", "/rosbags"):
        assert plain(bag[topic][0].msg) == plain(first.msg), topic
    assert plain(bag["/object"][0].msg) == {"x": 1.0, "y": 2.0, "z": 3.0}
    assert plain(bag["/part"][0].msg) == plain(first.msg.header)
    assert bag["/array"][0].msg.data.tolist() == [0, 1, 2, 3] and bytes(bag["/bytes"][0].msg.data) == b"abc"
    assert bag["/defaults"][0].msg.w == 1.0 and bag["/wide"][0].msg.data == -5
    assert plain(bag["/odd"][0].msg) == plain(source["/odd"][7].msg)


@pytest.mark.parametrize(
    ("type_name", "message", "error"),
    [
        ("std_msgs/msg/String", {"dat": "x"}, "one of the fields of std_msgs/msg/String: data, found dat"),
        ("std_msgs/msg/String", {"data": 5}, "data: expected a str, found 5"),
        ("std_msgs/msg/UInt8", {"data": 256}, "data: expected a whole number in 0..255, found 256"),
        ("sensor_msgs/msg/Imu", {"header": {"stamp": {"sec": "now"}}}, "header.stamp.sec: expected a number, found 'now'"),
        ("sensor_msgs/msg/Imu", {"orientation_covariance": [1.0]}, "orientation_covariance"),
        ("sensor_msgs/msg/Imu", 7, "a dict with the fields of sensor_msgs/msg/Imu"),
        ("sensor_msgs/msg/Imu", {"header": "x"}, "header: expected a dict"),
        ("sensor_msgs/msg/JointState", {"name": [1]}, r"name\[0\]: expected a str"),
        ("sensor_msgs/msg/JointState", {"name": "x"}, "name: expected a list"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_field(tmp_path, type_name, message, error):
    with holdall.create(tmp_path / "bag") as out:
        with pytest.raises(holdall.EncodeError, match=error):
            out.write("/t", type_name, message, time=0)
        out.write("/t", type_name, {}, time=1)
    assert len(holdall.open(tmp_path / "bag")) == 1


def test_threads_write_one_bag(tmp_path):
    class Slow:
        """Reading its field lets other threads run."""

        @property
        def data(self):
            time.sleep(0)
            return "slow"

    def write(number):
        for _ in range(100):
            out.write(f"/t{number}", "std_msgs/msg/String", Slow())
            out.write("/all", "std_msgs/msg/String", {"data": "x"})

    with holdall.create(tmp_path / "bag") as out:
        threads = [threading.Thread(target=write, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert len(holdall.open(tmp_path / "bag")) == 800 and len(holdall.open(tmp_path / "bag")["/all"]) == 400


def test_bags_are_not_overwritten_and_closed_ones_take_nothing(tmp_path):
    out = holdall.create(tmp_path / "bag")
    out.write("/t", "std_msgs/msg/String", {"data": "x"})
    out.close()
    out.close()
    with pytest.raises(holdall.WriteError, match="closed"):
        out.write("/t", "std_msgs/msg/String", {"data": "x"})
    with pytest.raises(holdall.WriteError, match="exists already"):
        holdall.create(tmp_path / "bag")
    with pytest.raises(holdall.DefinitionError):
        holdall.create(tmp_path / "other").add_topic("/t", "no_msgs/msg/Such")
