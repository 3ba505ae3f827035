"""`holdall events`: the triggers of recordings over bags, judged by a recorder that waited for the same events, and by what was sent."""

import json

import pytest
from mcap.reader import make_reader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STRING, IMU, FLOAT = "std_msgs/msg/String", "sensor_msgs/msg/Imu", "std_msgs/msg/Float64"
START = 1_700_000_000_000_000_000


def events(world, *arguments):
    found = world.run("events", *arguments, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_a_recorder_catches_live_what_is_found_in_a_full_recording(world):
    triggers = ["--trigger", '/chatter: data == "hello 700" || data =~ "^hello 99$"', "--trigger", "/imu silent 2s", "--trigger", "/imu rate < 50"]
    window = ["--before", "0.2", "--after", "300ms"]
    talker = world.talker(
        {"topic": "/chatter", "type": STRING, "count": 1200, "rate_hz": 200, "qos": {"depth": 1200}},
        {"topic": "/imu", "type": IMU, "count": 200, "rate_hz": 100, "qos": {"depth": 200}},
    )
    talker.wait_for("ready")
    live = world.holdall("record", "--topics", "/chatter", "/imu", "-o", world.folder / "live", *triggers, *window)
    full = world.holdall("record", "--topics", "/chatter", "/imu", "-o", world.folder / "full")
    for program in (live, full):
        program.wait_until_says("Listening for topics...")
    talker.done()
    for program in (live, full):
        code, said = program.stop()
        assert code == 0, said
    found = events(world, world.folder / "full", *triggers, *window)
    caught = sorted((marker["name"], int(marker["time"])) for marker in world.info(world.folder / "live")["markers"])
    listed = sorted((event["trigger"], event["time_ns"]) for event in found["events"] if event["marker"])
    assert [name for name, _ in caught] == [name for name, _ in listed] and len(caught) >= 4, (caught, found)
    # Each recorder stamps by itself.
    assert all(abs(one - other) < 100_000_000 for (_, one), (_, other) in zip(caught, listed, strict=True)), (caught, listed)
    assert [event["values"]["data"] for event in found["events"] if event["values"]] == ["hello 99", "hello 700"]
    # What was kept live is what the spans have.
    spans = [(event["from_ns"], event["until_ns"]) for event in found["events"]]
    kept, wanted = 0, 0
    for folder in ("live", "full"):
        for file in sorted((world.folder / folder).glob("*.mcap")):
            with open(file, "rb") as stream:
                times = [message.log_time for _, channel, message in make_reader(stream).iter_messages() if channel.topic == "/chatter"]
            kept += len(times) if folder == "live" else 0
            wanted += sum(any(start <= time <= end for start, end in spans) for time in times) if folder == "full" else 0
    assert abs(kept - wanted) <= 0.1 * wanted, (kept, wanted)


@pytest.fixture
def bag(world):
    """A bag of pip rosbags: 20 s at 10 Hz, with a value below 11.5 at 5 s, 12 s and 12.3 s."""
    store = get_typestore(Stores.ROS2_JAZZY)
    with Writer(world.folder / "lab", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        value = writer.add_connection("/value", FLOAT, typestore=store)
        for number in range(200):
            message = store.types[FLOAT](11.0 if number in (50, 120, 123) else 12.0)
            writer.write(value, START + number * 100_000_000, store.serialize_cdr(message, FLOAT))
    return world.folder / "lab"


def test_labels_give_precision_and_recall_and_markers_are_written(world, bag):
    trigger = ["--trigger", "/value: data < 11.5", "--before", "1", "--after", "0.5"]
    labels = world.folder / "known.txt"
    labels.write_text("# seen by people\n4.5 door\n12.1..12.2 bump\n18 late\n")
    found = events(world, bag, *trigger, "--labels", labels)
    assert [(event["time_ns"] - START) // 100_000_000 for event in found["events"]] == [50, 120, 123]
    assert [event["marker"] for event in found["events"]] == [True, True, False]
    assert found["kept_s"] == pytest.approx(1.5 + 1.8)
    score = found["score"]
    assert (score["precision"], score["recall"]) == (1.0, pytest.approx(2 / 3))
    assert [label["name"] for label in score["missed"]] == ["late"]
    text = world.run("events", bag, *trigger, "--labels", labels).stdout
    assert "precision 1.000 (3 of 3 events have a label), recall 0.667 (2 of 3 labels found)" in text and "data = 11.0" in text
    before = {file.name: file.read_bytes() for file in bag.glob("*.mcap")}
    assert events(world, bag, *trigger, "--write-markers")["written_markers"] == 2
    assert events(world, bag, *trigger, "--write-markers")["written_markers"] == 0
    assert before == {file.name: file.read_bytes() for file in bag.glob("*.mcap")}
    assert [marker["name"] for marker in world.info(bag)["markers"]] == ["/value: data < 11.5"] * 2
    assert world.run("check", bag).returncode == 0
    # A name that two markers have is refused with their times; cut at one of them it is a time.
    refused = world.run("cat", bag, "--start", "marker:/value")
    assert refused.returncode == 2 and f"names 2 markers; give the time of one: @{(START + 5 * 10**9) / 10**9:.0f}" in refused.stderr
    assert world.run("filter", bag, "-o", world.folder / "late", "--start", "10").returncode == 0
    first = world.run("cat", world.folder / "late", "--start", "marker:/value", "-n", "1", "--format", "json")
    assert json.loads(first.stdout)["log_time"] == START + 12 * 10**9, first
    # Its own markers are labels that it finds.
    assert events(world, bag, *trigger, "--label-markers", "/value.*")["score"]["recall"] == 1.0
    world.run("convert", bag, "-s", "sqlite3", "-o", world.folder / "copy")
    copy = events(world, world.folder / "copy", *trigger)
    assert copy["events"] == found["events"] and len(world.info(world.folder / "copy")["markers"]) == 2


def test_a_single_file_is_given_no_markers(world, bag):
    file = next(bag.glob("*.mcap"))
    refused = world.run("events", file, "--trigger", "/value silent 100s", "--write-markers")
    assert refused.returncode == 1 and "only a bag with metadata.yaml" in refused.stderr, refused
