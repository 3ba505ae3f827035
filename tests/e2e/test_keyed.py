"""Topics whose type has a key: recorded, played and recorded again, judged by pip cyclonedds and pip mcap."""

import json
import struct

import pytest
from conftest import Node
from mcap.reader import make_reader
from rosbags.rosbag2 import Reader


def speeds(bag):
    """The second number of each message, in the order of the bag."""
    with open(bag / f"{bag.name}_0.mcap", "rb") as stream:
        return [struct.unpack_from("<i", message.data, 8)[0] for _, _, message in make_reader(stream).iter_messages(topics=["/wheels"])]


def record(world, bag):
    recorder = world.holdall("record", "--topics", "/wheels", "-o", bag, "--disable-keyboard-controls")
    recorder.wait_until_says("Listening for topics")
    return recorder


@pytest.mark.parametrize("dispose", [False, True], ids=["alive", "disposed"])
def test_a_keyed_topic_is_recorded_played_and_recorded_again(world, tmp_path, dispose):
    recorder = record(world, tmp_path / "bag")
    node = world._keep(Node("cyclone_node.py", {"publish": "/wheels", "keyed": True, "dispose": dispose, "interface": "lo", "count": 60}, world.env))
    sent = node.done()["values"]
    code, said = recorder.stop()
    assert code == 0 and "lost: none" in said, said
    recorded = speeds(tmp_path / "bag")
    assert recorded == sent[-len(recorded) :] and len(recorded) > 40, (recorded, sent)

    with Reader(tmp_path / "bag") as reader:
        assert [connection.topic for connection in reader.connections] == ["/wheels"]
    again = record(world, tmp_path / "again")
    listener = world._keep(Node("cyclone_node.py", {"subscribe": "/wheels", "keyed": True, "expect": len(recorded), "interface": "lo"}, world.env))
    listener.wait_for("ready")
    played = world.run("play", tmp_path / "bag", "--disable-keyboard-controls")
    assert played.returncode == 0, played.stderr
    assert listener.done()["values"] == recorded
    code, said = again.stop()
    assert code == 0 and speeds(tmp_path / "again") == recorded, said
    assert json.loads(world.run("audit", "--json", tmp_path / "again").stdout)["topics"]["/wheels"]["recorded"] == len(recorded)
