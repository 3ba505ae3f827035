"""Definitions of types that no share folder and no bundle has: only the node that publishes them can send them."""

import json
import signal
import sqlite3
import time

import pytest
from conftest import DEADLINE_S, Node

OWN = "test_msgs/msg/Builtins"


@pytest.fixture
def bare(world):
    """A world without a ROS installation for holdall to look into."""
    world.env.pop("AMENT_PREFIX_PATH", None)
    return world


def node(world, **plan):
    return world._keep(Node("own_types.py", plan, world.env))


def record(world, *arguments):
    return world.holdall("record", "-o", world.folder / "bag", "-a", "--include-hidden-topics", *arguments)


def decoded_by_rosbags(bag, topic):
    """All messages of a topic, decoded by pip rosbags with what the bag itself defines."""
    from rosbags.highlevel import AnyReader
    from rosbags.typesys import Stores, get_typestore

    with AnyReader([bag], default_typestore=get_typestore(Stores.ROS2_JAZZY)) as reader:
        chosen = [connection for connection in reader.connections if connection.topic == topic]
        return [reader.deserialize(data, connection.msgtype) for connection, _, data in reader.messages(chosen)]


def schemas(bag):
    """topic -> {(type, encoding)} by pip mcap."""
    from mcap.reader import make_reader

    found = {}
    for path in sorted(bag.glob("*.mcap")):
        with open(path, "rb") as file:
            summary = make_reader(file).get_summary()
        for channel in summary.channels.values():
            schema = summary.schemas[channel.schema_id]
            found.setdefault(channel.topic, set()).add((schema.name, schema.encoding))
    return found


def info(world):
    told = world.run("info", "--json", world.folder / "bag")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


def wait_for_messages(world, counts):
    """Until the bag that is being written has so many messages of each topic."""
    end = time.monotonic() + DEADLINE_S
    while True:
        told = world.run("info", "--json", world.folder / "bag")
        topics = json.loads(told.stdout)["topics_with_message_count"] if told.returncode == 0 else []
        found = {t["topic_metadata"]["name"]: t["message_count"] for t in topics}
        if all(found.get(topic, 0) >= count for topic, count in counts.items()):
            return
        assert time.monotonic() < end, (found, told.stderr)


@pytest.mark.parametrize("first", ["recorder", "node"])
def test_a_node_defines_its_own_types_in_time(bare, first):
    if first == "node":
        talker = node(bare)
        talker.wait_for("ready")
    recorder = record(bare)
    if first == "recorder":
        recorder.wait_until_says("Listening")
        talker = node(bare)
        talker.wait_for("ready")
    recorder.wait_until_says("recording /own")
    wait_for_messages(bare, {"/own": 20})
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    assert code in (0, 3) and "without" not in said, said
    assert schemas(bare.folder / "bag")["/own"] == {(OWN, "ros2msg")}
    numbers = [message.time_value.sec for message in decoded_by_rosbags(bare.folder / "bag", "/own")]
    assert numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert "undefined_topics" not in info(bare)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_what_services_and_actions_derive_is_defined_by_the_fields_that_the_node_sends(bare, storage):
    talker = node(bare, service=True, action=True)
    talker.wait_for("ready")
    recorder = record(bare, "-s", storage)
    recorder.wait_until_says("recording /basic/_service_event")
    recorder.wait_until_says("recording /count/_action/feedback")
    bag = bare.folder / "bag"
    wait_for_messages(bare, {"/basic/_service_event": 10, "/count/_action/feedback": 10})
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    assert code in (0, 3) and "without" not in said and "hash" not in said, said
    assert "undefined_topics" not in info(bare)
    for topic in ("/basic/_service_event", "/count/_action/feedback"):
        told = bare.run("cat", bag, "--topics", topic, "--json")
        lines = [json.loads(line) for line in told.stdout.splitlines()]
        assert told.returncode == 0 and lines, told.stderr
    if storage == "mcap":
        found = schemas(bag)
        assert found["/basic/_service_event"] == {("test_msgs/srv/BasicTypes_Event", "ros2msg")}
        assert found["/count/_action/feedback"] == {("test_msgs/action/Fibonacci_FeedbackMessage", "ros2msg")}
    else:
        with sqlite3.connect(next(bag.glob("*.db3"))) as database:
            types = {row[0]: row[1] for row in database.execute("SELECT topic_type, encoded_message_definition FROM message_definitions")}
        # As rosbag2 has it: under the service's own name.
        assert "SRV: test_msgs/srv/BasicTypes" in types["test_msgs/srv/BasicTypes"]
        assert not any(name.endswith("_Event") for name in types), sorted(types)


def test_a_node_that_answers_late_still_defines_its_type(bare):
    talker = node(bare, spin=False)
    talker.wait_for("ready")
    recorder = record(bare)
    recorder.wait_until_says("recorded without")
    talker.process.send_signal(signal.SIGUSR1)
    recorder.wait_until_says("/own: a node sent the message definition")
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    bag = bare.folder / "bag"
    assert code in (0, 3) and "recorded without a message definition" not in said, said
    assert (OWN, "ros2msg") in schemas(bag)["/own"] and all(kind in ("", "ros2msg") for _, kind in schemas(bag)["/own"])
    numbers = [message.time_value.sec for message in decoded_by_rosbags(bag, "/own")]
    assert numbers and numbers == list(range(numbers[0], numbers[0] + len(numbers))), "those of before as well"
    assert "undefined_topics" not in info(bare)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_a_type_that_stays_unknown_is_listed_and_leaves_the_bag_open_to_others(bare, storage):
    talker = node(bare, spin=False)
    talker.wait_for("ready")
    recorder = record(bare, "-s", storage)
    recorder.wait_until_says("recorded without")
    code, said = recorder.stop()
    talker.interrupt()
    talker.done()
    assert code in (0, 3) and f"recorded without a message definition: /own [{OWN}]" in said, said
    told = info(bare)
    assert told["undefined_topics"] == [{"name": "/own", "type": OWN}]
    assert "Without definition:" in bare.run("info", bare.folder / "bag").stdout
    from rosbags.rosbag2 import Reader

    with Reader(bare.folder / "bag") as reader:
        read = sum(1 for connection, _, _ in reader.messages() if connection.topic == "/own")
    count = {t["topic_metadata"]["name"]: t["message_count"] for t in told["topics_with_message_count"]}
    assert read == count["/own"] > 0
