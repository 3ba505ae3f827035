"""Scripts that were written for rosbag2_py and for rosbags, on holdall."""

import importlib
import pickle
import subprocess
import sys

import holdall
import pytest
from conftest import START, plain
from holdall.compat import rosbag2_py, rosbags
from rosbags.highlevel import AnyReader

# As ROS 2's own tutorials and rosbag2's own tests read and write bags.
READER = """
import argparse
from rclpy.serialization import deserialize_message
from rosidl_runtime_py.utilities import get_message
import rosbag2_py

def read_messages(input_bag):
    reader = rosbag2_py.SequentialReader()
    reader.open(
        rosbag2_py.StorageOptions(uri=input_bag, storage_id="mcap"),
        rosbag2_py.ConverterOptions(input_serialization_format="cdr", output_serialization_format="cdr"),
    )
    topic_types = reader.get_all_topics_and_types()

    def typename(topic_name):
        for topic_type in topic_types:
            if topic_type.name == topic_name:
                return topic_type.type
        raise ValueError(f"topic {topic_name} not in bag")

    while reader.has_next():
        topic, data, timestamp = reader.read_next()
        msg_type = get_message(typename(topic))
        msg = deserialize_message(data, msg_type)
        yield topic, msg, timestamp
    del reader

parser = argparse.ArgumentParser()
parser.add_argument("input")
for topic, msg, timestamp in read_messages(parser.parse_args().input):
    if topic == "/imu":
        print(topic, timestamp, msg.linear_acceleration.x, msg.header.frame_id)
"""

WRITER = """
import sys
from rclpy.serialization import serialize_message
from std_msgs.msg import String
import rosbag2_py

writer = rosbag2_py.SequentialWriter()
writer.open(rosbag2_py.StorageOptions(uri=sys.argv[1], storage_id="sqlite3"), rosbag2_py.ConverterOptions("", ""))
writer.create_topic(rosbag2_py._storage.TopicMetadata(id=0, name="/chatter", type="std_msgs/msg/String", serialization_format="cdr"))
for number in range(10):
    message = String()
    message.data = f"hello {number}"
    writer.write("/chatter", serialize_message(message), 1000 * number)
del writer
"""

# What scripts of public repositories do to a message: they set fields of those that they read, of nested ones too, and make new ones.
CHANGE = """
import sys
import rclpy
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import Imu
from geometry_msgs.msg import Vector3
import rosbag2_py

rclpy.init()
reader, writer = rosbag2_py.SequentialReader(), rosbag2_py.SequentialWriter()
reader.open(rosbag2_py.StorageOptions(uri=sys.argv[1], storage_id="mcap"), rosbag2_py.ConverterOptions("cdr", "cdr"))
reader.set_filter(rosbag2_py.StorageFilter(topics=["/imu"]))
writer.open(rosbag2_py.StorageOptions(uri=sys.argv[2], storage_id="mcap"), rosbag2_py.ConverterOptions("", ""))
for topic in reader.get_all_topics_and_types():
    writer.create_topic(rosbag2_py.TopicMetadata(name=topic.name, type=topic.type, serialization_format="cdr", offered_qos_profiles=""))
while reader.has_next():
    topic, data, stamp = reader.read_next()
    message = deserialize_message(data, Imu)
    message.header.frame_id = "changed"
    message.linear_acceleration = Vector3(x=1.0, z=-message.linear_acceleration.z)
    message.orientation_covariance = [float(value) + 1 for value in message.orientation_covariance]
    writer.write(topic, serialize_message(message), stamp)
writer.close()
rclpy.shutdown()
"""

# Several bags from one writer, as scripts that split a bag do it.
SPLIT = """
import sys
import rosbag2_py

reader, writer = rosbag2_py.SequentialReader(), rosbag2_py.SequentialWriter()
reader.open(rosbag2_py.StorageOptions(uri=sys.argv[1]), rosbag2_py.ConverterOptions("", ""))
topics = reader.get_metadata().topics_with_message_count
part, begun = 0, None
while reader.has_next():
    topic, data, stamp = reader.read_next()
    if begun is None:
        begun = stamp
        writer.open(rosbag2_py.StorageOptions(uri=f"{sys.argv[2]}_{part}", storage_id="mcap"), rosbag2_py.ConverterOptions("", ""))
        for found in topics:
            writer.create_topic(found.topic_metadata)
    writer.write(topic, data, stamp)
    if stamp >= begun + 10**9:
        writer.close()
        part, begun = part + 1, None
writer.close()
"""


def run(tmp_path, script, *words):
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, "-m", "holdall.compat", path, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tutorials_reader_runs_unchanged(written, tmp_path):
    lines = run(tmp_path, READER, written[0]).splitlines()
    assert lines == [f"/imu {time} {imu.linear_acceleration.x} {imu.header.frame_id}" for time, imu in written[1]["/imu"]]


def test_the_tutorials_writer_runs_unchanged(tmp_path):
    run(tmp_path, WRITER, tmp_path / "bag")
    with AnyReader([tmp_path / "bag"]) as reader:
        read = [(time, reader.deserialize(raw, connection.msgtype).data) for connection, time, raw in reader.messages()]
    assert read == [(1000 * number, f"hello {number}") for number in range(10)]


def opened(path, **options):
    reader = rosbag2_py.SequentialReader()
    reader.open(rosbag2_py.StorageOptions(str(path), **options), rosbag2_py.ConverterOptions("cdr", "cdr"))
    return reader


def topics_and_times(reader):
    found = []
    while reader.has_next():
        topic, _, time = reader.read_next()
        found.append((topic, time))
    return found


def test_messages_are_changed_and_made_as_with_generated_classes(written, tmp_path):
    run(tmp_path, CHANGE, written[0], tmp_path / "out")
    changed = holdall.open(tmp_path / "out")["/imu"]
    assert len(changed) == len(written[1]["/imu"])
    for message, (time, imu) in zip(changed, written[1]["/imu"]):
        assert message.time == time and message.msg.header.frame_id == "changed"
        assert message.msg.header.stamp.sec == imu.header.stamp.sec and message.msg.angular_velocity.z == imu.angular_velocity.z
        assert plain(message.msg.linear_acceleration) == {"x": 1.0, "y": 0.0, "z": -imu.linear_acceleration.z}
        assert plain(message.msg.orientation_covariance) == [value + 1 for value in imu.orientation_covariance.tolist()]


def test_one_writer_makes_several_bags(written, tmp_path):
    run(tmp_path, SPLIT, written[0], tmp_path / "part")
    parts = sorted(tmp_path.glob("part_*"))
    assert len(parts) == 3 and sum(len(holdall.open(part)) for part in parts) == 370


def test_a_generated_class_refuses_what_its_type_does_not_have():
    rosidl = importlib.import_module("holdall.compat.rosidl")
    imu = rosidl.get_message("sensor_msgs/msg/Imu")
    message = imu(angular_velocity_covariance=[1.0] * 9)
    assert message.linear_acceleration.x == 0.0 and message == pickle.loads(pickle.dumps(message))
    with pytest.raises(AttributeError, match="has no field speed; it has header"):
        message.speed
    with pytest.raises(AttributeError, match="has no field speed"):
        message.speed = 1
    with pytest.raises(holdall.EncodeError, match="frame_id"):
        message.header.frame_id = 5
        rosidl.serialize_message(message)
    with pytest.raises(holdall.DefinitionError):
        rosidl.get_message("nope/msg/Nope")


def test_filters_seeks_and_orders_are_those_of_rosbag2(written):
    path, messages = written
    reader = opened(path)
    reader.set_filter(rosbag2_py.StorageFilter(topics=["/odd"]))
    assert [time for _, time in topics_and_times(reader)] == [time for time, _ in messages["/odd"]]
    with pytest.raises(RuntimeError, match="at end"):
        reader.read_next()
    reader.seek(START + 10**9)
    assert len(topics_and_times(reader)) == 40
    reader = opened(path)
    reader.set_filter(rosbag2_py.StorageFilter(regex="/i.*", exclude_topics=["/image"]))
    reader.set_read_order(rosbag2_py.ReadOrder(rosbag2_py.ReadOrderSortBy.ReceivedTimestamp, reverse=True))
    times = [time for topic, time in topics_and_times(reader) if topic == "/imu"]
    assert times == [time for time, _ in reversed(messages["/imu"])]
    assert len(topics_and_times(opened(path, start_time_ns=START + 10**9, end_time_ns=START + 10**9))) == 1
    with pytest.raises(RuntimeError, match="not open"):
        rosbag2_py.SequentialReader().has_next()
    types = {topic.name: topic.type for topic in opened(path).get_all_topics_and_types()}
    assert types["/odd"] == "odd_msgs/msg/Odd"
    definitions = {found.topic_type: found for found in opened(path).get_all_message_definitions()}
    assert "Inner[2] two" in definitions["odd_msgs/msg/Odd"].encoded_message_definition


def test_info_and_metadata_are_those_of_the_bag(written):
    metadata = rosbag2_py.Info().read_metadata(str(written[0]), "")
    assert (metadata.message_count, metadata.starting_time.nanoseconds, metadata.storage_identifier) == (370, START, "mcap")
    assert {topic.topic_metadata.name: topic.message_count for topic in metadata.topics_with_message_count}["/imu"] == 300


def test_a_copy_through_the_shim_is_the_same_bag(written, tmp_path):
    reader, writer = opened(written[0]), rosbag2_py.SequentialWriter()
    writer.open(rosbag2_py.StorageOptions(str(tmp_path / "copy"), "mcap"))
    definitions = {found.topic_type: found for found in reader.get_all_message_definitions()}
    for topic in reader.get_all_topics_and_types():
        writer.create_topic(topic, definitions[topic.type])
    with pytest.raises(RuntimeError, match="not been created"):
        writer.write("/nope", b"", 0)
    while reader.has_next():
        writer.write(*reader.read_next())
    writer.close()
    both = [[(m.topic, m.time, m.raw) for m in holdall.open(path).messages()] for path in (written[0], tmp_path / "copy")]
    assert both[0] == both[1]


def test_any_reader_is_that_of_rosbags(written):
    with AnyReader([written[0]]) as theirs, rosbags.AnyReader([written[0]]) as ours:
        for name in ("start_time", "end_time", "duration", "message_count"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert {found.topic: (found.msgtype, found.msgcount) for found in ours.connections} == {
            found.topic: (found.msgtype, found.msgcount) for found in theirs.connections
        }
        chosen = [[found for found in reader.connections if found.topic in ("/imu", "/odd")] for reader in (theirs, ours)]
        bounds = {"start": START + 10**9, "stop": START + 2 * 10**9}
        both = [list(reader.messages(some, **bounds)) for reader, some in zip((theirs, ours), chosen)]
        assert len(both[0]) == len(both[1]) == 120
        for (theirs_connection, their_time, their_raw), (connection, time, raw) in zip(*both):
            assert (connection.topic, time, raw) == (theirs_connection.topic, their_time, bytes(their_raw))
            assert plain(ours.deserialize(raw, connection.msgtype)) == plain(theirs.deserialize(their_raw, connection.msgtype))
    with pytest.raises(rosbags.AnyReaderError, match="not open"):
        next(ours.messages())
