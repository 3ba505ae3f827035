"""Who published what: kept in the bag with real nodes, read by third-party readers, selected by `play` and `filter`."""

import json
import time

import pytest
from conftest import DEADLINE_S, messages_of, text_of

TOPIC = "/shared"
STRING = "std_msgs/msg/String"


def talker(world, name, count, rate=100):
    # The second publisher matches the subscription that exists for the first, and may begin before the
    # recorder has matched it: the first messages of a volatile one are `head` then. Messages kept for late
    # readers are requested.
    qos = {"durability": "transient_local", "depth": count}
    publisher = {"topic": TOPIC, "type": STRING, "count": count, "rate_hz": rate, "text": name + " {n}", "qos": qos}
    return world.talker(publisher, node=name, wait_for_subscriptions=1, linger=True)


def named(world, control):
    """The nodes that the recording lists as publishers."""
    told = world.run("control", control, "status")
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)["status"]["topics"][TOPIC]["nodes"]


def record_two(world, *arguments, until_named=True):
    bag = world.folder / "bag"
    control = world.folder / "control"
    recorder = world.holdall("record", "-o", bag, "--topics", TOPIC, "--control-socket", control, *arguments)
    recorder.wait_until_says("Listening for topics")
    left, right = talker(world, "left", 20), talker(world, "right", 30)
    left.wait_for("done"), right.wait_for("done")
    # Fast DDS sends the names of nodes on a topic of their own, which may arrive later than the messages.
    end = time.monotonic() + DEADLINE_S
    while until_named and named(world, control) != ["/left", "/right"]:
        assert time.monotonic() < end, named(world, control)
    code, said = recorder.stop()
    assert code == 0, said
    return bag


def texts(messages):
    return [text_of(data) for data in messages]


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_publishers_are_told_and_chosen_and_others_read_one_topic(world, storage):
    rosbags = pytest.importorskip("rosbags.rosbag2")
    bag = record_two(world, "-s", storage)
    told = world.run("info", "-v", "--json", bag)
    publishers = [p for p in json.loads(told.stdout)["publishers"] if p["topic"] == TOPIC]
    assert {p["node"]: p["message_count"] for p in publishers} == {"/left": 20, "/right": 30}
    assert all(p["transport"] == "dds" and len(p["gid"]) == 32 for p in publishers)
    shown = world.run("info", "-v", bag).stdout
    assert "Topic: /shared | Node: /left" in shown
    # The topic once, with the sum; foreign readers give all its messages in order of time.
    listed = [t for t in world.info(bag)["topics_with_message_count"] if t["topic_metadata"]["name"] == TOPIC]
    assert [t["message_count"] for t in listed] == [50]
    with rosbags.Reader(bag) as reader:
        connections = [c for c in reader.connections if c.topic == TOPIC]
        assert sum(c.msgcount for c in connections) == 50
        read = list(reader.messages(connections=connections))
    assert [time for _, time, _ in read] == sorted(time for _, time, _ in read)
    assert sorted(texts(data for _, _, data in read)) == sorted([f"left {n}" for n in range(20)] + [f"right {n}" for n in range(30)])
    # Each way of naming one.
    gid = next(p["gid"] for p in publishers if p["node"] == "/left")
    for number, who in enumerate(["/left", "left", gid[:20]]):
        out = world.folder / f"left{number}"
        made = world.run("filter", bag, "-o", out, "--publisher", who, "--topics", TOPIC)
        assert made.returncode == 0, made.stderr
        with rosbags.Reader(out) as reader:
            assert texts(data for _, _, data in reader.messages()) == [f"left {n}" for n in range(20)]
        audited = world.run("audit", out, "--json")
        assert audited.returncode == 0, audited.stdout + audited.stderr
        (account,) = json.loads(audited.stdout)["topics"].values()
        assert (account["recorded"], account["left_out"]) == (20, 30), "messages of others were left out on request"
        assert [publisher["node"] for publisher in account["publishers"]] == ["/left"]
    refused = world.run("filter", bag, "-o", world.folder / "nobody", "--publisher", "/middle")
    assert refused.returncode == 2 and "no publisher /middle, but" in refused.stderr, refused.stderr


def test_mcap_tools_see_a_channel_for_each_publisher(world):
    reader = pytest.importorskip("mcap.reader")
    bag = record_two(world, until_named=False)
    (file,) = bag.glob("*.mcap")
    with open(file, "rb") as stream:
        opened = reader.make_reader(stream, validate_crcs=True)
        channels = {id: c for id, c in opened.get_summary().channels.items() if c.topic == TOPIC}
        counts = opened.get_summary().statistics.channel_message_counts
        assert sorted(counts[id] for id in channels) == [20, 30]
        assert len({c.metadata["holdall.publisher"] for c in channels.values()}) == 2
        # A name that Fast DDS sent after the first message is in the ledger only.
        assert {c.metadata.get("holdall.publisher.node") for c in channels.values()} <= {"/left", "/right", None}
        assert len({c.schema_id for c in channels.values()}) == 1
        times = [message.log_time for _, _, message in opened.iter_messages(topics=[TOPIC])]
    assert len(times) == 50 and times == sorted(times)


def test_only_what_one_node_had_published_is_played(world):
    bag = record_two(world)
    listener = world.listener({"topic": TOPIC, "type": STRING}, expect={TOPIC: 30})
    listener.wait_for("ready")
    player = world.holdall("play", bag, "--publisher", "/right", "--topics", TOPIC)
    heard = listener.done()
    code, said = player.wait()
    assert code == 0, said
    assert heard["received"][TOPIC]["count"] == 30


def test_one_channel_for_a_topic_when_asked(world):
    bag = record_two(world, "--merge-publishers", until_named=False)
    assert "publishers" not in json.loads(world.run("info", "-v", "--json", bag).stdout)
    assert len(messages_of(bag)[TOPIC]) == 50
    refused = world.run("play", bag, "--publisher", "/left")
    assert refused.returncode != 0 and "--merge-publishers" in refused.stderr
