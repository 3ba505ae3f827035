"""Latched messages at the beginning of every file: recorded from a real publisher, read by other programs, played from one file."""

import json
from pathlib import Path

import pytest
from conftest import NODE_END_S, text_of
from test_play import STRING

LATCHED = {"durability": "transient_local", "depth": 1}
MESSAGES = 300


def record_split(world, storage):
    """A bag of several files; the map is sent once, before all else."""
    bag = world.folder / "bag"
    # The shortest files that a LevelDB bag can have are longer.
    split, size = (2_200_000, 20_000) if storage == "leveldb" else (150_000, 2000)
    arguments = ["-o", bag, "-s", storage, "-b", str(split), "--topics", "/map", "/noise", "--repeat-transient-local", "/map"]
    recorder = world.holdall("record", *arguments)
    recorder.wait_until_says("Listening for topics")
    map_server = world.talker({"topic": "/map", "type": STRING, "count": 1, "text": "the map", "qos": LATCHED}, node="map_server", wait_for_subscriptions=1, linger=True)
    map_server.wait_for("done")
    noise = {"topic": "/noise", "type": STRING, "count": MESSAGES, "rate_hz": 1000, "text": "{n} ", "size": size, "qos": {"depth": MESSAGES}}
    noisy = world.talker(noise, node="noise", wait_for_subscriptions=1, linger=True)
    noisy.wait_for("done")
    code, said = recorder.stop()
    assert code == 0, said
    # A map server that is still there sends its map to listeners of a playback, too.
    for node in (map_server, noisy):
        node.interrupt()
        node.process.wait(NODE_END_S)
    return bag


def files_of(bag):
    yaml = pytest.importorskip("yaml")
    information = yaml.safe_load((bag / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
    return [bag / path for path in information["relative_file_paths"]], information


@pytest.mark.parametrize("storage", ["mcap", "sqlite3", "leveldb"])
def test_every_file_of_a_split_begins_with_the_map_and_the_bag_has_it_once(world, storage):
    bag = record_split(world, storage)
    files, stored = files_of(bag)
    assert len(files) > 2
    about = world.info(bag)
    assert about["message_count"] == MESSAGES + 1
    assert about["repeated_messages"] == {"/map": len(files) - 1}
    assert stored["message_count"] == MESSAGES + len(files), "other readers find the copies too"
    audit = world.run("audit", "--json", bag)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    assert json.loads(audit.stdout)["topics"]["/map"] | {"recorded": 1, "repeated": len(files) - 1} == json.loads(audit.stdout)["topics"]["/map"]
    check = world.run("check", bag)
    assert check.returncode == 0, check.stdout + check.stderr
    for file in files[1:]:
        first = world.run("cat", "--json", "-n", "1", file)
        line = json.loads(first.stdout.splitlines()[0])
        assert line["topic"] == "/map" and "the map" in first.stdout, first.stdout


def test_pip_mcap_reads_the_copies_as_the_first_messages(world):
    reader = pytest.importorskip("mcap.reader")
    files, _ = files_of(record_split(world, "mcap"))
    for file in files:
        with open(file, "rb") as stream:
            messages = [(channel.topic, message) for _, channel, message in reader.make_reader(stream, validate_crcs=True).iter_messages()]
        topic, first = messages[0]
        assert (topic, text_of(first.data)) == ("/map", "the map")
        assert sum(topic == "/map" for topic, _ in messages) == 1
        assert file == files[0] or first.log_time == messages[1][1].log_time


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_rosbags_reads_all_files(world, storage):
    rosbags = pytest.importorskip("rosbags.rosbag2")
    bag = record_split(world, storage)
    files, stored = files_of(bag)
    with rosbags.Reader(bag) as reader:
        found = [connection.topic for connection, _, _ in reader.messages()]
    assert (found.count("/map"), found.count("/noise")) == (len(files), MESSAGES)
    assert len(found) == stored["message_count"]


def play_to_listener(world, what):
    listener = world.listener({"topic": "/map", "type": STRING, "qos": LATCHED}, {"topic": "/noise", "type": STRING, "qos": {"depth": 1000}})
    listener.wait_for("ready")
    player = world.run("play", what, "--json", "--wait-for-subscribers", "/map=1", "/noise=1", "--wait-for-all-acked", "10000")
    assert player.returncode == 0, player.stderr
    listener.interrupt()
    return json.loads(player.stdout), listener.done()["received"]


def test_one_file_is_played_with_its_state_and_the_whole_bag_has_it_once(world):
    bag = record_split(world, "mcap")
    files, _ = files_of(bag)
    report, received = play_to_listener(world, files[1])
    assert received["/map"]["count"] == 1, report
    report, received = play_to_listener(world, bag)
    assert (received["/map"]["count"], received["/noise"]["count"]) == (1, MESSAGES), report


@pytest.mark.parametrize("depth", ["0", "x", "1001"])
def test_a_depth_that_is_none_is_refused(world, depth):
    told = world.run("record", "-a", "-o", world.folder / "bag", "--repeat-transient-local", f"/map={depth}")
    assert told.returncode == 2 and "--repeat-transient-local" in told.stderr
    assert not Path(world.folder / "bag").exists()
