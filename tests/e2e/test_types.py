"""Two real nodes with two types on one topic: both are recorded where the storage has a place for them, and counted where it has not."""

import json

import pytest

STRING = "std_msgs/msg/String"
IMU = "sensor_msgs/msg/Imu"
COUNT = 100


def record_two_types(world, storage):
    """Returns (exit code, what the recorder said); each node sends `COUNT` messages to /tc."""
    plans = [
        {"topic": "/tc", "type": kind, "count": COUNT, "rate_hz": 200, "text": "hello {n}", "qos": {"depth": COUNT, "durability": "transient_local"}}
        for kind in (STRING, IMU)
    ]
    recorder = world.holdall("record", "-a", "-s", storage, "-o", world.folder / "bag", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening")
    talkers = [world.talker(plan, node=f"node{number}") for number, plan in enumerate(plans)]
    for talker in talkers:
        talker.done()
    return recorder.stop()


def audit(world, bag):
    told = world.run("audit", "--json", bag)
    return told.returncode, json.loads(told.stdout)


def counts(world, bag):
    """Messages of the topic by type, as `info` counts them."""
    listed = world.info(bag)["topics_with_message_count"]
    return {t["topic_metadata"]["type"]: t["message_count"] for t in listed if t["topic_metadata"]["name"] == "/tc"}


def test_two_types_of_one_topic_are_recorded_and_read_by_everyone(world):
    code, said = record_two_types(world, "mcap")
    bag = world.folder / "bag"
    assert code == 0, said
    assert "both are recorded" in said
    both = {STRING: COUNT, IMU: COUNT}
    assert counts(world, bag) == both
    told = audit(world, bag)
    assert told[0] == 0, told

    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with open(bag / "bag_0.mcap", "rb") as stream:
        reader = make_reader(stream, decoder_factories=[DecoderFactory()])
        decoded = [(schema.name, message) for schema, channel, _, message in reader.iter_decoded_messages(topics=["/tc"])]
    assert [m.data for name, m in decoded if name == STRING] == [f"hello {n}" for n in range(COUNT)]
    assert [m.header.frame_id for name, m in decoded if name == IMU] == ["imu"] * COUNT

    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    with Reader(bag) as reader:
        read = [(c.msgtype, store.deserialize_cdr(raw, c.msgtype)) for c, _, raw in reader.messages() if c.topic == "/tc"]
    assert [m.data for name, m in read if name == STRING] == [f"hello {n}" for n in range(COUNT)]
    assert sum(name == IMU for name, _ in read) == COUNT

    shown = world.run("cat", "--json", bag)
    assert shown.returncode == 0, shown.stderr
    lines = [json.loads(line) for line in shown.stdout.splitlines()]
    assert sum("hello 7" in json.dumps(line) for line in lines) >= 1
    made = world.folder / "made"
    assert world.run("convert", bag, "-o", made).returncode == 0
    assert counts(world, made) == both
    assert audit(world, made)[0] == 0
    same = world.run("diff", bag, made)
    assert same.returncode == 0, same.stdout + same.stderr


def test_both_types_are_played(world):
    code, said = record_two_types(world, "mcap")
    assert code == 0, said
    bag = world.folder / "bag"
    second = world.holdall("record", "-a", "-o", world.folder / "again", "--disable-keyboard-controls")
    second.wait_until_says("Listening")
    played = world.run("play", bag, "--disable-keyboard-controls", "--delay", "1")
    assert played.returncode == 0, played.stderr
    code, said = second.stop()
    assert code == 0, said
    assert counts(world, world.folder / "again") == {STRING: COUNT, IMU: COUNT}


@pytest.mark.parametrize("storage", ["sqlite3", "leveldb"])
def test_messages_of_a_second_type_are_counted_where_the_storage_has_no_place(world, storage):
    code, said = record_two_types(world, storage)
    bag = world.folder / "bag"
    assert code == 3, said
    assert "another_type" in said, said
    [kept] = counts(world, bag).values()
    assert kept == COUNT
    code, told = audit(world, bag)
    assert code == 3
    assert told["lost"]["by_stage"] == {"another_type": COUNT}, told
    text = world.run("info", bag).stdout
    assert "another_type" in text, text
