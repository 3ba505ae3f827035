"""Playing bags to real rclpy listeners: our own bags, and bags of other writers."""

import hashlib
import json
import re
import signal
import struct
from pathlib import Path

import pytest
from conftest import DEADLINE_S, cdr_string, messages_of, suspend

STRING = "std_msgs/msg/String"



def write_with_pip_mcap(path, topics):
    """A bag file written by pip `mcap`: topic -> list of (time_ns, text)."""
    from mcap.writer import Writer

    with open(path, "wb") as stream:
        writer = Writer(stream)
        writer.start(profile="ros2", library="pip mcap")
        schema = writer.register_schema(STRING, "ros2msg", b"string data\n")
        entries = []
        for topic, messages in topics.items():
            channel = writer.register_channel(topic, "cdr", schema)
            entries += [(t, channel, text) for t, text in messages]
        for t, channel, text in sorted(entries):
            writer.add_message(channel, t, cdr_string(text), t)
        writer.finish()


def play_to_listener(world, bag, counts, *arguments, qos=None, ros="jazzy"):
    qos = qos or {}
    listener = world.listener(
        *({"topic": t, "type": STRING, "qos": qos} for t in counts), expect=counts, stamps=True, ros=ros
    )
    listener.wait_for("ready")
    player = world.run("play", bag, "--wait-for-all-acked", "5000", *arguments)
    assert player.returncode == 0, player.stderr
    return listener.done()["received"], player


@pytest.mark.parametrize("ros", ["jazzy", "kilted"])
def test_recorded_bag_comes_back_with_counts_bytes_and_order(world, ros):
    talker = world.talker(
        {"topic": "/a", "type": STRING, "count": 200, "rate_hz": 200, "text": "a{n}", "qos": {"depth": 200}},
        {"topic": "/b", "type": STRING, "count": 100, "rate_hz": 100, "text": "b{n}", "qos": {"depth": 200}},
        ros=ros,
    )
    talker.wait_for("ready")
    recorder = world.holdall("record", "-o", world.folder / "bag", "-a")
    sent = talker.done()["sent"]
    code, said = recorder.stop()
    assert code == 0, said
    received, _ = play_to_listener(world, world.folder / "bag", {"/a": 200, "/b": 100}, ros=ros)
    for topic in ("/a", "/b"):
        assert received[topic]["md5"] == sent[topic][0]["md5"], topic


def test_bag_written_by_pip_mcap_is_played_at_twenty_times_its_rate_with_remap(world):
    start = 1_700_000_000_000_000_000
    write_with_pip_mcap(world.folder / "foreign.mcap", {"/x": [(start + i * 100_000_000, f"x{i}") for i in range(100)]})
    received, _ = play_to_listener(world, world.folder / "foreign.mcap", {"/y": 100}, "-r", "20", "-m", "/x:=/y")
    stamps = received["/y"]["stamps"]
    assert received["/y"]["md5"] == hashlib.md5(b"".join(cdr_string(f"x{i}") for i in range(100))).hexdigest()
    assert (stamps[-1] - stamps[0]) / 1e9 < 5, "9.9 s of bag time in half a second, or ten of these on a busy machine"


def test_bag_written_by_rosbags_is_played(world):
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    with Writer(world.folder / "theirs", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection("/t", STRING, typestore=store)
        for i in range(50):
            writer.write(connection, 1_700_000_000_000_000_000 + i * 5_000_000, cdr_string(f"t{i}"))
    received, _ = play_to_listener(world, world.folder / "theirs", {"/t": 50})
    assert received["/t"]["md5"] == hashlib.md5(b"".join(cdr_string(f"t{i}") for i in range(50))).hexdigest()


def test_offset_duration_and_topic_filters_choose_messages(world):
    start = 1_700_000_000_000_000_000
    path = world.folder / "foreign.mcap"
    write_with_pip_mcap(path, {t: [(start + i * 10_000_000, f"{i}") for i in range(100)] for t in ("/x", "/y")})
    player = world.run("play", path, "--start-offset", "0.5", "--playback-duration", "0.2", "--topics", "/x", "--json", "-r", "5")
    assert player.returncode == 0, player.stderr
    report = json.loads(player.stdout)
    assert report["published"] in (20, 21)
    assert set(report["topics"]) == {"/x"}


def test_large_messages_reach_a_listener_with_the_default_socket_buffer(world):
    from mcap.writer import Writer

    sizes = [100_000, 2_000_000, 6_220_800] * 3
    messages = [b"\0\1\0\0" + struct.pack("<III", 0, 0, size) + bytes([n]) * size for n, size in enumerate(sizes)]
    with open(world.folder / "large.mcap", "wb") as stream:
        writer = Writer(stream)
        writer.start(profile="ros2", library="pip mcap")
        schema = writer.register_schema("std_msgs/msg/UInt8MultiArray", "ros2msg", b"")
        channel = writer.register_channel("/large", "cdr", schema)
        for n, message in enumerate(messages):
            writer.add_message(channel, n * 100_000_000, message, n * 100_000_000)
        writer.finish()
    listener = world.listener({"topic": "/large", "type": "std_msgs/msg/UInt8MultiArray"}, expect={"/large": len(sizes)})
    listener.wait_for("ready")
    player = world.run("play", world.folder / "large.mcap", "--wait-for-all-acked", "10000")
    assert player.returncode == 0, player.stderr
    assert listener.done()["received"]["/large"]["md5"] == hashlib.md5(b"".join(messages)).hexdigest()


def test_latched_topics_reach_a_listener_that_asks_for_them(world):
    recorder = world.holdall("record", "-o", world.folder / "bag", "--topics", "/latched")
    world.talker({"topic": "/latched", "type": STRING, "count": 1, "qos": {"depth": 1, "durability": "transient_local"}}).done()
    code, said = recorder.stop()
    assert code == 0, said
    received, _ = play_to_listener(world, world.folder / "bag", {"/latched": 1}, qos={"durability": "transient_local"})
    assert received["/latched"]["count"] == 1


def steady(world, count, per_second):
    """A bag of one topic, and the payloads of its messages."""
    start, texts = 1_700_000_000_000_000_000, [f"x{i}" for i in range(count)]
    bag = world.folder / "steady.mcap"
    write_with_pip_mcap(bag, {"/x": [(start + i * 1_000_000_000 // per_second, text) for i, text in enumerate(texts)]})
    return bag, [cdr_string(text) for text in texts]


def test_a_subscription_that_keeps_all_gets_all_of_ten_thousand_messages_a_second(world):
    bag, payloads = steady(world, 20_000, 10_000)
    listener = world.listener({"topic": "/x", "type": STRING, "qos": {"history": "keep_all"}}, expect={"/x": len(payloads)})
    listener.wait_for("ready")
    player = world.run("play", bag, "--json", timeout=3 * DEADLINE_S)
    report = json.loads(player.stdout)
    assert (player.returncode, report["published"], report["unacknowledged"]) == (0, len(payloads), 0), player.stderr
    received = listener.done()["received"]["/x"]
    assert (received["count"], received["md5"]) == (len(payloads), hashlib.md5(b"".join(payloads)).hexdigest())


def test_what_a_stopped_subscription_does_not_acknowledge_is_counted(world):
    bag, payloads = steady(world, 12_000, 4_000)
    listener = world.listener({"topic": "/x", "type": STRING, "qos": {"history": "keep_all"}})
    listener.wait_for("ready")
    player = world.holdall("play", bag, "--disable-keyboard-controls")
    listener.wait_for("heard")
    suspend(listener.process)
    code, said = player.wait()
    listener.process.send_signal(signal.SIGCONT)
    told = re.search(r"([\d\s,]+) messages of /x were not acknowledged by all reliable subscriptions", said)
    assert code == 3 and told, said
    assert 4096 < int(re.sub(r"\D", "", told[1])) <= len(payloads), said
    assert "played 12" in said, "a stopped subscription holds up the others for a second only"


def test_played_bag_recorded_again_is_the_same(world):
    start = 1_700_000_000_000_000_000
    write_with_pip_mcap(world.folder / "first.mcap", {"/x": [(start + i * 5_000_000, f"x{i}") for i in range(200)]})
    recorder = world.holdall("record", "-o", world.folder / "second", "-a")
    recorder.wait_until_says("istening")
    player = world.run("play", world.folder / "first.mcap", "--wait-for-all-acked", "5000")
    assert player.returncode == 0, player.stderr
    code, said = recorder.stop()
    assert code == 0, said
    assert messages_of(world.folder / "second")["/x"] == [cdr_string(f"x{i}") for i in range(200)]
    assert Path(world.folder / "second" / "metadata.yaml").exists()
