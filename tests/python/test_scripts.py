"""Scripts in the shapes in which people write them for rosbag2_py, rclpy and rosbags, run without ROS; rosbags judges what they write."""

import datetime as dt
import enum
import os
import subprocess
import sys
import threading

import holdall
import pytest
from conftest import START
from holdall import _program, _verbs
from rosbags.highlevel import AnyReader

OPEN = """
import sys
import rosbag2_py
def reader(path):
    found = rosbag2_py.SequentialReader()
    found.open(rosbag2_py.StorageOptions(uri=path, storage_id="mcap"), rosbag2_py.ConverterOptions("cdr", "cdr"))
    return found
def writer(path):
    found = rosbag2_py.SequentialWriter()
    found.open(rosbag2_py.StorageOptions(uri=path, storage_id="mcap"), rosbag2_py.ConverterOptions("", ""))
    return found
"""

PRINTS = {
    # Each topic with its type, then messages decoded by it.
    "types": (
        """
from rosidl_runtime_py.utilities import get_message
from rclpy.serialization import deserialize_message
source = reader(sys.argv[1])
types = {topic.name: topic.type for topic in source.get_all_topics_and_types()}
count = 0
while source.has_next():
    topic, data, stamp = source.read_next()
    count += type(deserialize_message(data, get_message(types[topic]))).__name__ == "Imu"
print(count)
""",
        "300",
    ),
    # The length of a bag, by rclpy's Time and Duration.
    "metadata": (
        """
from rclpy.time import Time
from rclpy.duration import Duration
about = rosbag2_py.Info().read_metadata(sys.argv[1], "mcap")
end = about.starting_time + about.duration
print(about.message_count, (end - Time(nanoseconds=about.starting_time.nanoseconds)).nanoseconds == about.duration.nanoseconds, end > about.starting_time)
print(len(about.files), about.files[0].message_count, about.files[0].path == about.relative_file_paths[0])
""",
        "370 True True 1 370 True",
    ),
    "metadata_io": (
        """
io = rosbag2_py.MetadataIo()
about = io.read_metadata(sys.argv[1])
print(io.metadata_file_exists(sys.argv[1]), io.metadata_file_exists("/nowhere"), about.message_count, about.storage_identifier)
again = io.deserialize_metadata(io.serialize_metadata(about))
print(again == about, sorted(topic.topic_metadata.name for topic in again.topics_with_message_count))
""",
        "True False 370 mcap True ['/cloud', '/image', '/imu', '/odd']",
    ),
    "default_storage": ("print(rosbag2_py.get_default_storage_id(), 'mcap' in rosbag2_py.get_registered_readers())", "mcap True"),
    "seek_and_order": (
        """
source = reader(sys.argv[1])
source.set_read_order(rosbag2_py.ReadOrder(sort_by=rosbag2_py.ReadOrderSortBy.ReceivedTimestamp, reverse=True))
last = source.read_next()[2]
source = reader(sys.argv[1])
source.seek(last - 10**9)
source.set_filter(rosbag2_py.StorageFilter(topics=["/imu"]))
count = 0
while source.has_next():
    source.read_next()
    count += 1
print(count)
""",
        "101",
    ),
    "constants": (
        """
from sensor_msgs.msg import NavSatFix, NavSatStatus, PointField, BatteryState
from visualization_msgs.msg import Marker
from diagnostic_msgs.msg import DiagnosticStatus
from rcl_interfaces.msg import ParameterType
from std_srvs.srv import SetBool
fix = NavSatFix()
fix.status.status = NavSatStatus.STATUS_FIX
print(PointField.FLOAT32, fix.status.status, fix.COVARIANCE_TYPE_KNOWN, Marker.SPHERE, Marker().ADD, DiagnosticStatus.ERROR, type(DiagnosticStatus.ERROR).__name__)
print(ParameterType.PARAMETER_STRING, BatteryState.POWER_SUPPLY_STATUS_FULL, SetBool.Request(data=True).data, SetBool.Response().success)
""",
        "7 0 3 2 0 2 int 4 4 True False",
    ),
    "clouds": (
        """
from sensor_msgs_py import point_cloud2
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import PointCloud2
source = reader(sys.argv[1])
source.set_filter(rosbag2_py.StorageFilter(topics=["/cloud"]))
cloud = deserialize_message(source.read_next()[1], PointCloud2)
points = point_cloud2.read_points(cloud, field_names=("x", "y"), skip_nans=True)
print(points.shape, float(points["x"].sum()), point_cloud2.read_points_numpy(cloud, ["x", "y"]).shape, point_cloud2.read_points_list(cloud)[2].x)
""",
        "(6,) 15.0 (6, 2) 2.0",
    ),
    "dicts": (
        """
from rosidl_runtime_py import message_to_ordereddict, set_message_fields
from rclpy.serialization import deserialize_message
from geometry_msgs.msg import PoseStamped
pose = PoseStamped()
set_message_fields(pose, {"header": {"frame_id": "map"}, "pose": {"position": {"x": 1.5}}})
print(message_to_ordereddict(pose)["pose"]["position"]["x"], pose.header.frame_id, PoseStamped.get_fields_and_field_types())
""",
        "1.5 map {'header': 'std_msgs/Header', 'pose': 'geometry_msgs/Pose'}",
    ),
    "times": (
        """
import rclpy
from rclpy.clock import Clock, ClockType, ROSClock
from rclpy.duration import Duration
from rclpy.time import Time
from rclpy.qos import QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
now = Clock().now()
later = now + Duration(seconds=1, nanoseconds=5)
print((later - now).nanoseconds, Time(seconds=3, nanoseconds=7).seconds_nanoseconds(), ROSClock().now().clock_type == ClockType.ROS_TIME)
stamp = Time(seconds=3, nanoseconds=7).to_msg()
print(stamp.sec, stamp.nanosec, Time.from_msg(stamp).nanoseconds, qos_profile_sensor_data.reliability == ReliabilityPolicy.BEST_EFFORT, QoSProfile(depth=3).depth)
""",
        "1000000005 (3, 7) True 3 7 3000000007 True 3",
    ),
    "no_node": (
        """
try:
    from rclpy.node import Node
except ModuleNotFoundError as error:
    print(error)
""",
        "No module named 'rclpy.node'",
    ),
    # rosbags's own loops.
    "any_reader": (
        """
from pathlib import Path
from holdall.compat.rosbags import AnyReader
with AnyReader([Path(sys.argv[1])]) as bag:
    chosen = [found for found in bag.connections if found.topic == "/imu"]
    total = 0
    for connection, time, raw in bag.messages(connections=chosen):
        message = bag.deserialize(raw, connection.msgtype)
        total += message.header.stamp.nanosec
    print(total, message.__msgtype__, connection.ext.serialization_format, connection.msgdef.format.name, bool(connection.msgdef.data))
    print(bag.typestore.types["std_msgs/msg/Header"].__name__.endswith("Header"))
try:
    AnyReader([Path("/nowhere")])
except FileNotFoundError as error:
    print("missing")
""",
        "44850000000 sensor_msgs/msg/Imu cdr MSG True True missing",
    ),
    "dataclasses": (
        """
import copy, dataclasses
from pathlib import Path
from holdall.compat.rosbags import AnyReader
with AnyReader([Path(sys.argv[1])]) as bag:
    connection, time, raw = next(bag.messages([found for found in bag.connections if found.topic == "/odd"]))
    message = bag.deserialize(raw, connection.msgtype)
    message.last = 77
    other = dataclasses.replace(message, flag=9)
    third = copy.deepcopy(other)
    third.two[0].label = "x"
    print(other.last, other.flag, third.two[0].label, other.two[0].label != "x", [field.name for field in dataclasses.fields(message)][:2])
""",
        "77 9 x True ['flag', 'names']",
    ),
}


def run(tmp_path, script, *words, **env):
    path = tmp_path / "script.py"
    path.write_text(OPEN + script)
    command = [sys.executable, "-m", "holdall.compat", path, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTS)
def test_a_script_prints_what_it_prints_with_ros(written, tmp_path, name):
    script, expected = PRINTS[name]
    assert run(tmp_path, script, written[0]).split() == expected.split()


def messages_of(path):
    with AnyReader([path]) as bag:
        return [(connection.topic, time, bytes(raw)) for connection, time, raw in bag.messages()]


def test_the_generator_of_the_tutorial_writes_a_bag(tmp_path):
    script = """
from rclpy.clock import Clock
from rclpy.duration import Duration
from rclpy.serialization import serialize_message
from example_types import Int32
target = writer(sys.argv[1])
target.create_topic(rosbag2_py._storage.TopicMetadata(id=0, name="synthetic", type="std_msgs/msg/Int32", serialization_format="cdr"))
stamp = Clock().now()
for number in range(100):
    message = Int32()
    message.data = number
    target.write("synthetic", serialize_message(message), stamp.nanoseconds)
    stamp += Duration(seconds=1)
""".replace("example_types", "std_msgs.msg")
    run(tmp_path, script, tmp_path / "bag")
    found = messages_of(tmp_path / "bag")
    assert [int.from_bytes(raw[4:8], "little") for _, _, raw in found] == list(range(100))
    assert found[1][1] - found[0][1] == 10**9


def test_clouds_that_a_script_makes_are_those_of_numpy(tmp_path):
    script = """
import numpy as np
from rclpy.serialization import serialize_message
from sensor_msgs.msg import PointCloud2, PointField
from sensor_msgs_py import point_cloud2
from std_msgs.msg import Header
target = writer(sys.argv[1])
target.create_topic(rosbag2_py.TopicMetadata(name="/cloud", type="sensor_msgs/msg/PointCloud2", serialization_format="cdr"))
fields = [
    PointField(name="x", offset=0, datatype=PointField.FLOAT32, count=1),
    PointField(name="ring", offset=4, datatype=PointField.UINT16, count=1),
]
header = Header(frame_id="lidar")
target.write("/cloud", serialize_message(point_cloud2.create_cloud(header, fields, [(1.5, 7), (2.5, 8)])), 1)
target.write("/cloud", serialize_message(point_cloud2.create_cloud_xyz32(header, np.arange(6, dtype=np.float32).reshape(2, 3))), 2)
"""
    run(tmp_path, script, tmp_path / "bag")
    first, second = holdall.open(tmp_path / "bag").points("/cloud")
    assert first["x"].tolist() == [1.5, 2.5] and first["ring"].tolist() == [7, 8]
    assert second["z"].tolist() == [2.0, 5.0]


def test_a_writer_that_a_script_never_closes_closes_itself(tmp_path):
    script = """
from rclpy.serialization import serialize_message
from std_msgs.msg import String
target = writer(sys.argv[1])
target.create_topic(rosbag2_py.TopicMetadata(0, "/s", "std_msgs/msg/String", "cdr"))
for number in range(1000):
    target.write("/s", serialize_message(String(data=str(number))), number)
"""
    assert run(tmp_path, script, tmp_path / "bag", PYTHONWARNINGS="error") == ""
    assert len(messages_of(tmp_path / "bag")) == 1000


def test_profiles_of_rclpy_are_stored(tmp_path):
    script = """
from rclpy.qos import QoSProfile, ReliabilityPolicy, DurabilityPolicy
target = writer(sys.argv[1])
qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT, durability=DurabilityPolicy.TRANSIENT_LOCAL)
target.create_topic(rosbag2_py.TopicMetadata(0, "/s", "std_msgs/msg/String", "cdr", [qos], ""))
target.write("/s", b"\\0\\1\\0\\0\\1\\0\\0\\0\\0", 1)
target.close()
"""
    run(tmp_path, script, tmp_path / "bag")
    with AnyReader([tmp_path / "bag"]) as bag:
        (qos,) = bag.connections[0].ext.offered_qos_profiles
    assert (qos.depth, qos.reliability.name, qos.durability.name) == (1, "BEST_EFFORT", "TRANSIENT_LOCAL")


def test_bags_are_merged_cut_and_converted_by_bag_rewrite(written, tmp_path):
    config = tmp_path / "out.yaml"
    config.write_text(
        f"output_bags:\n- uri: {tmp_path}/all\n  storage_id: sqlite3\n  all_topics: true\n- uri: {tmp_path}/imu\n  storage_id: mcap\n  topics: [/imu]\n"
    )
    script = "rosbag2_py.bag_rewrite([rosbag2_py.StorageOptions(uri=sys.argv[1]), rosbag2_py.StorageOptions(uri=sys.argv[1])], sys.argv[2])"
    run(tmp_path, script, written[0], config)
    assert len(messages_of(tmp_path / "all")) == 740 and {topic for topic, _, _ in messages_of(tmp_path / "imu")} == {"/imu"}


def test_a_part_of_a_bag_is_copied_with_its_definitions(written, tmp_path):
    script = """
source, target = reader(sys.argv[1]), writer(sys.argv[2])
begin = source.get_metadata().starting_time.nanoseconds + 10**9
for topic in source.get_all_topics_and_types():
    target.create_topic(topic)
while source.has_next():
    topic, data, stamp = source.read_next()
    if begin <= stamp < begin + 10**9:
        target.write(topic, data, stamp)
del target
"""
    run(tmp_path, script, written[0], tmp_path / "part")
    expected = [found for found in messages_of(written[0]) if START + 10**9 <= found[1] < START + 2 * 10**9]
    assert messages_of(tmp_path / "part") == expected


def test_metadata_is_made_anew_and_written(written, tmp_path):
    subprocess.run(["cp", "-r", written[0], tmp_path / "bag"], check=True)
    (tmp_path / "bag/metadata.yaml").unlink()
    script = """
rosbag2_py.Reindexer().reindex(rosbag2_py.StorageOptions(uri=sys.argv[1], storage_id="mcap"))
io = rosbag2_py.MetadataIo()
about = io.read_metadata(sys.argv[1])
about.custom_data["operator"] = "Mia: \\"x\\""
io.write_metadata(sys.argv[1], about)
"""
    run(tmp_path, script, tmp_path / "bag")
    assert holdall.open(tmp_path / "bag").metadata["custom_data"]["operator"] == 'Mia: "x"'
    assert messages_of(tmp_path / "bag") == messages_of(written[0])


def test_a_bag_is_rewritten_by_the_writer_of_rosbags(written, tmp_path):
    script = """
from pathlib import Path
from rosbags.rosbag2 import StoragePlugin, Writer
from holdall.compat.rosbags import AnyReader
with AnyReader([Path(sys.argv[1])]) as source, Writer(Path(sys.argv[2]), version=9, storage_plugin=StoragePlugin.MCAP) as target:
    connections = {}
    for found in source.connections:
        connections[found.id] = target.add_connection(
            found.topic, found.msgtype, typestore=source.typestore, serialization_format=found.ext.serialization_format,
            offered_qos_profiles=found.ext.offered_qos_profiles,
        )
    for found, time, raw in source.messages():
        if found.topic == "/imu":
            message = source.deserialize(raw, found.msgtype)
            message.header.frame_id = "moved"
            raw = source.typestore.serialize_cdr(message, found.msgtype)
        target.write(connections[found.id], time, raw)
"""
    run(tmp_path, script, written[0], tmp_path / "new")
    new, old = holdall.open(tmp_path / "new"), holdall.open(written[0])
    assert len(new) == len(old) and {message.msg.header.frame_id for message in new["/imu"]} == {"moved"}
    assert [message.raw for message in new["/odd"]] == [message.raw for message in old["/odd"]]


def test_options_name_what_they_do_not_have():
    from holdall.compat import rosbag2_py

    options = rosbag2_py.RecordOptions()
    options.topics = ["/a"]
    options.exclude_regex = "/b.*"
    options.topic_polling_interval = dt.timedelta(milliseconds=250)
    assert options._flags() == {"topics": ["/a"], "exclude_regex": "/b.*", "polling_interval": 250}
    with pytest.raises(AttributeError, match="no setting speed; it has all_topics"):
        options.speed = 3
    play = rosbag2_py.PlayOptions(rate=2.0, loop=True, read_ahead_queue_size=5, playback_until_timestamp=-7)
    play.exclude_services_to_filter, play.exclude_service_events_to_filter = ["/a"], ["/b"]
    play.topic_remapping_options = ["--ros-args", "--remap", "/a:=/b"]
    flags = {"rate": 2.0, "loop": True, "read_ahead_queue_size": 5, "remap": ["/a:=/b"]}
    assert play._flags() == {**flags, "exclude_services": play._flags()["exclude_services"]} and sorted(play._flags()["exclude_services"]) == ["/a", "/b"]
    with pytest.raises(NotImplementedError, match="topic_qos_profile_overrides"):
        options.topic_qos_profile_overrides = {"/a": 1}
        options._flags()
    with pytest.raises(TypeError, match="snapshot_duration"):
        rosbag2_py.StorageOptions(uri="a", snapshot_duration=5)


def _another(name, value):
    """A value of a setting that is not its default."""
    if name.endswith("serialization_format"):
        return "cbor"
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return next(other for other in type(value) if other is not value)
    for kind, other in ((int, 7), (float, 7.5), (str, "x"), (list, ["/x:=/y"]), (dict, {"a": "b"}), (dt.timedelta, dt.timedelta(seconds=2))):
        if isinstance(value, kind):
            return other
    raise AssertionError(f"{name} has an unknown default {value!r}")


def _used(begin, started):
    """What the program was started with, or why it was not."""
    started.clear()
    try:
        begin()
    except NotImplementedError as error:
        return str(error)
    return started[-1]


def test_no_setting_of_a_recorder_or_player_is_passed_over(tmp_path, monkeypatch):
    from holdall.compat import rosbag2_py

    started = []

    def keep(verb):
        class Kept:
            def __init__(self, *words):
                _program._flags(words[-2])
                started.append((verb, words[-2], words))

            __enter__ = lambda self: self
            __exit__ = lambda self, *_: None
            wait = lambda self: {}

        return Kept

    monkeypatch.setattr(_verbs, "Recording", keep("record"))
    monkeypatch.setattr(_program, "Playback", keep("play"))
    helps = {verb: subprocess.run([_program.program(), verb, "--help"], capture_output=True, text=True, check=True).stdout for verb in ("record", "play")}
    storage = rosbag2_py.StorageOptions(uri=str(tmp_path))
    record, play = (lambda options: rosbag2_py.Recorder().record(storage, options)), (lambda options: rosbag2_py.Player().play(storage, options))
    seen = 0
    for make, begin in ((rosbag2_py.RecordOptions, record), (rosbag2_py.PlayOptions, play)):
        usual = _used(lambda: begin(make()), started)
        for name, value in make._defaults.items():
            options = make()
            setattr(options, name, _another(name, value))
            used = _used(lambda: begin(options), started)
            seen += 1
            if isinstance(used, str):
                assert name in used
            elif name in make._without_effect:
                assert used[1:] == usual[1:], name
            else:
                assert used[1] != usual[1] or used[2] != usual[2], f"{make.__name__}.{name} is passed over"
                new = set(used[1]) - set(usual[1])
                assert all("--" + flag.replace("_", "-") in helps[used[0]] for flag in new), (name, new)
    for name, value in vars(rosbag2_py.StorageOptions(uri="")).items():
        changed = rosbag2_py.StorageOptions(uri=str(tmp_path))
        setattr(changed, name, _another(name, value))
        used = _used(lambda: rosbag2_py.Recorder().record(changed, rosbag2_py.RecordOptions()), started)
        assert isinstance(used, str) or used[2] != _used(lambda: record(rosbag2_py.RecordOptions()), started)[2], f"StorageOptions.{name} is passed over"
    assert seen > 60


def test_settings_of_a_writer_are_applied_or_refused(tmp_path):
    from holdall.compat import rosbag2_py

    for change, reason in (
        ({"snapshot_mode": True}, "snapshot_mode"),
        ({"custom_data": {"a": "b"}}, "custom_data"),
    ):
        with pytest.raises(NotImplementedError, match=reason):
            rosbag2_py.SequentialWriter().open(rosbag2_py.StorageOptions(uri=str(tmp_path / "new"), **change))
    for opened in (rosbag2_py.SequentialWriter(), rosbag2_py.SequentialReader()):
        with pytest.raises(NotImplementedError, match="cbor"):
            opened.open(rosbag2_py.StorageOptions(uri=str(tmp_path / "new")), rosbag2_py.ConverterOptions("cbor", ""))
    packed = rosbag2_py.CompressionOptions("lz9", rosbag2_py.CompressionMode.FILE)
    with pytest.raises(NotImplementedError, match="lz9"):
        rosbag2_py.SequentialCompressionWriter(packed).open(rosbag2_py.StorageOptions(uri=str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_a_recorder_records_what_a_player_plays(written, tmp_path, monkeypatch):
    from holdall.compat import rosbag2_py

    monkeypatch.setenv("ROS_DOMAIN_ID", "77")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    recorder, failed = rosbag2_py.Recorder(), []

    def record():
        try:
            recorder.record(rosbag2_py.StorageOptions(uri=str(tmp_path / "bag"), storage_id="mcap"), rosbag2_py.RecordOptions(topics=["/imu"]))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=record)
    thread.start()
    try:
        options = rosbag2_py.PlayOptions(topics_to_filter=["/imu"], rate=3.0)
        play = rosbag2_py.Player()
        monkeypatch.setattr(rosbag2_py._program.Playback, "__init__", _waiting(rosbag2_py._program.Playback.__init__))
        play.play(rosbag2_py.StorageOptions(uri=str(written[0])), options)
    finally:
        rosbag2_py.Recorder.cancel()
        thread.join(60)
    assert not failed and len(holdall.open(tmp_path / "bag")["/imu"]) == 300


def _waiting(init):
    """A playback begins when the recorder listens."""

    def begin(self, words, options, env):
        init(self, words, {**options, "wait_for_subscribers": 1}, env)

    return begin
