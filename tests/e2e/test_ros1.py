"""ROS 1 bags recorded by ROS 1's own recorder from real rospy and roscpp publishers, judged by pip `rosbags`' conversion of them."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S, HOLDALL, NODES

PYTHON = "/usr/bin/python3"
COUNT = 30
TOPICS = ["/chatter", "/own", "/image", "/cloud", "/tf", "/camera_info", "/imu", "/joints", "/map", "/battery", "/markers", "/flag", "/nothing"]


def ros1_is_here():
    if not (shutil.which("rosmaster") and shutil.which("rosbag") and Path(PYTHON).exists()):
        return False
    wanted = "import rospy, rosbag, sensor_msgs.msg, tf2_msgs.msg, visualization_msgs.msg, nav_msgs.msg"
    return subprocess.run([PYTHON, "-c", wanted], capture_output=True, env=plain_env()).returncode == 0


def plain_env():
    """The environment without the variables that lead Python into the venv, where the messages of ROS 2 have the same names."""
    return {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


class Ros1:
    """A ROS 1 master of the test's own, and everything that is started under it."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.env = {**plain_env(), "ROS_MASTER_URI": f"http://127.0.0.1:{self.port}", "ROS_IP": "127.0.0.1",
                    "ROS_LOG_DIR": str(folder / "ros1-log"), "HOME": str(folder)}
        self.folder = folder
        self.started = []
        self.start("rosmaster", "--core", "-p", str(self.port))
        deadline = time.monotonic() + DEADLINE_S
        while socket.socket().connect_ex(("127.0.0.1", self.port)) != 0:
            assert time.monotonic() < deadline, "the master does not answer"
            time.sleep(0.05)

    def start(self, *command, **how):
        log = open(self.folder / f"{len(self.started)}.log", "w")
        process = subprocess.Popen(command, env=self.env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.PIPE, **how)
        self.started.append(process)
        return process

    def record(self, bag, *flags):
        """Ends by itself when it has COUNT messages of every topic."""
        return self.start("rosbag", "record", "-O", str(bag), "-l", str(COUNT), *flags, *TOPICS)

    def ended(self, process):
        code = process.wait(DEADLINE_S)
        logs = "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))
        assert code == 0, logs

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.terminate()
                process.wait()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two bags of the same messages: from rospy publishers as bz2, and from a roscpp publisher (`rosbag play`) as lz4."""
    if not ros1_is_here():
        pytest.skip("ROS 1 is not here: scripts/setup.sh installs it on Debian 12 (python3-rosbag, python3-rosmaster and message packages)")
    folder = tmp_path_factory.mktemp("ros1")
    ros1 = Ros1(folder)
    try:
        from_python, from_cpp = folder / "python.bag", folder / "cpp.bag"
        recorder = ros1.record(from_python, "--bz2")
        talker = ros1.start(PYTHON, str(NODES / "ros1_talker.py"), str(COUNT))
        ros1.ended(recorder)
        talker.stdin.close()
        ros1.ended(talker)
        recorder = ros1.record(from_cpp, "--lz4")
        player = ros1.start("rosbag", "play", "--wait-for-subscribers", "-q", "-r", "5", str(from_python))
        ros1.ended(recorder)
        ros1.ended(player)
    finally:
        ros1.close()
    return [from_python, from_cpp]


def converted_by_rosbags(bag, folder):
    """Topic -> (type, payloads) as pip `rosbags` converts the bag to the types of ROS 2 Jazzy."""
    from rosbags.convert.converter import convert
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    convert([bag], folder, "mcap", 9, None, "file", None, get_typestore(Stores.ROS2_JAZZY), [], [], [], [])
    found = {}
    with Reader(folder) as reader:
        for connection, _, data in reader.messages():
            found.setdefault(connection.topic, (connection.msgtype, []))[1].append(bytes(data))
    return found


def raw_payloads(world, bag, topic):
    told = subprocess.run([HOLDALL, "cat", bag, "--raw", "-t", topic], env=world.env, capture_output=True, timeout=DEADLINE_S)
    assert told.returncode == 0, told.stderr
    return told.stdout


def test_info_tells_what_a_real_bag_holds(recorded, world):
    for bag in recorded:
        told = world.info(bag)
        assert told["storage_identifier"] == "rosbag1"
        topics = {t["topic_metadata"]["name"]: t for t in told["topics_with_message_count"]}
        assert {name: t["message_count"] for name, t in topics.items()} == dict.fromkeys(TOPICS, COUNT)
        assert topics["/cloud"]["topic_metadata"]["type"] == "sensor_msgs/PointCloud2"
        assert topics["/map"]["topic_metadata"]["offered_qos_profiles"][0]["durability"] == "transient_local"


def test_every_payload_is_what_rosbags_makes_of_it(recorded, world, tmp_path):
    for number, bag in enumerate(recorded):
        expected = converted_by_rosbags(bag, tmp_path / str(number))
        for topic in TOPICS:
            type_name, payloads = expected[topic]
            assert len(payloads) == COUNT
            first = json.loads(world.run("cat", bag, "--json", "-n", "1", "-t", topic).stdout)
            assert first["type"] == type_name, topic
            assert raw_payloads(world, bag, topic) == b"".join(payloads), topic


def test_ros_2_nodes_receive_what_a_ros_1_bag_holds(recorded, world, tmp_path):
    expected = converted_by_rosbags(recorded[0], tmp_path / "converted")
    topics = ["/chatter", "/cloud", "/camera_info", "/imu", "/battery"]
    listener = world.listener(*({"topic": t, "type": expected[t][0], "qos": {}} for t in topics), expect=dict.fromkeys(topics, COUNT))
    listener.wait_for("ready")
    played = world.run("play", recorded[0], "--topics", *topics, "--wait-for-all-acked", "5000")
    assert played.returncode == 0, played.stderr
    received = listener.done()["received"]
    for topic in topics:
        # RTPS aligns payloads to four bytes.
        wire = b"".join(payload + bytes(-len(payload) % 4) for payload in expected[topic][1])
        assert received[topic]["md5"] == hashlib.md5(wire).hexdigest(), topic


def test_converted_bags_are_what_rosbags_converts(recorded, world, tmp_path):
    from rosbags.rosbag2 import Reader

    expected = converted_by_rosbags(recorded[0], tmp_path / "expected")
    for storage in ("mcap", "sqlite3"):
        output = tmp_path / storage
        told = world.run("convert", recorded[0], "-o", output, "-s", storage)
        assert told.returncode == 0, told.stderr
        found = {}
        with Reader(output) as reader:
            for connection, _, data in reader.messages():
                found.setdefault(connection.topic, (connection.msgtype, []))[1].append(bytes(data))
        assert found == expected, storage
