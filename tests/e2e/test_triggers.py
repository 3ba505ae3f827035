"""`record --trigger`: what real nodes sent around events is in the bag, with a marker for each event, and the rest is accounted for."""

import json
import signal

import pytest
from conftest import messages_of, text_of
from mcap.reader import make_reader

STRING, IMU = "std_msgs/msg/String", "sensor_msgs/msg/Imu"


def recording(world, *arguments):
    program = world.holdall("record", "--topics", "/chatter", "/imu", "-o", world.folder / "lab", "--json", *arguments)
    program.wait_until_says("Listening for topics...")
    return program


def ended(program, number=signal.SIGINT):
    code, said = program.stop(number)
    report = json.loads(said[said.index("{\n") : said.rindex("}") + 1])
    return code, report, said


def markers(world):
    return [(marker["name"], int(marker["time"])) for marker in world.info(world.folder / "lab")["markers"]]


def log_times(folder, topic):
    times = []
    for file in sorted(folder.glob("*.mcap")):
        with open(file, "rb") as stream:
            times += [message.log_time for _, _, message in make_reader(stream).iter_messages(topics=[topic])]
    return times


def test_a_field_and_a_silence_are_events(world):
    talker = world.talker(
        {"topic": "/chatter", "type": STRING, "count": 2700, "rate_hz": 300, "qos": {"depth": 2700}},
        {"topic": "/imu", "type": IMU, "count": 200, "rate_hz": 100, "qos": {"depth": 200}},
    )
    talker.wait_for("ready")
    # Longer than a busy machine keeps the node from sending.
    field, silence = '/chatter: data == "hello 2400" || data =~ "^hello 99$"', "/imu silent 3s"
    program = recording(world, "--trigger", field, "--trigger", silence, "--before", "0.2", "--after", "200ms")
    talker.done()
    code, report, said = ended(program)
    assert code == 0, said
    names = markers(world)
    assert [name for name, _ in names] == [field, silence, field], said
    numbers = [int(text_of(message).split()[1]) for message in messages_of(world.folder / "lab")["/chatter"]]
    assert {99, 2400} <= set(numbers) and numbers == sorted(set(numbers)), numbers
    # Each message is there once, without a gap, and within the spans.
    times = log_times(world.folder / "lab", "/chatter")
    spans = [(time - 200_000_000, time + 200_000_000) for _, time in names]
    for number, time in zip(numbers, times, strict=True):
        assert any(start <= time <= end for start, end in spans), (number, time, spans)
    gaps = [(before, after) for before, after in zip(numbers, numbers[1:], strict=False) if after != before + 1]
    assert len(gaps) == 2, gaps
    account = json.loads(world.run("audit", "--json", world.folder / "lab").stdout)
    assert account["balanced"], account
    assert account["topics"]["/chatter"]["lost"] == 0 and report["events"]["count"] == 3, report
    # The last file is empty, unless the recording ended within the last event.
    assert len(report["files"]) in (3, 4)


def test_requests_of_all_kinds_are_events(world):
    path = world.folder / "socket"
    program = recording(world, "--before", "10m", "--after", "10m", "--control-socket", path)
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 100, "rate_hz": 300, "qos": {"depth": 100}})
    talker.done()
    assert world.run("control", path, "trigger", "near", "miss").returncode == 0
    program.wait_until_says('event "near miss"')
    program.process.send_signal(signal.SIGUSR1)
    program.wait_until_says('event "snapshot"')
    services = {"snapshot": "rosbag2_interfaces/srv/Snapshot", "add_marker": "holdall_interfaces/srv/AddMarker"}
    requests = [
        {"service": f"/rosbag2_recorder/{name}", "type": kind, "request": {"name": "curb"} if name == "add_marker" else {}}
        for name, kind in services.items()
    ]
    assert [answer["reply"]["success"] for answer in world.calls("rclpy", *requests)] == [True, True]
    program.wait_until_says('event "curb"')
    code, report, said = ended(program, signal.SIGTERM)
    assert code == 0, said
    assert [name for name, _ in markers(world)] == ["near miss", "snapshot", "snapshot", "curb"]
    assert report["events"]["requested"] == 4
    assert [text_of(message) for message in messages_of(world.folder / "lab")["/chatter"]] == [f"hello {n}" for n in range(100)]


def test_without_an_event_nothing_is_written_and_all_is_left_out(world):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": 200, "rate_hz": 400, "qos": {"depth": 200}})
    talker.wait_for("ready")
    program = recording(world, "--trigger", "/chatter: date == 'x'", "--trigger", "/battery: voltage < 11.5")
    talker.done()
    program.wait_until_says("trigger /battery: voltage < 11.5: its topic has not appeared")
    code, report, said = ended(program)
    assert code == 0 and report["message_count"] == 0 and report["lost"] == 0, said
    assert "std_msgs/msg/String has no field date; its fields are data; it cannot fire" in said
    triggers = report["events"]["triggers"]
    assert "has no field date" in triggers[0]["fault"] and not triggers[1]["topic_recorded"], triggers
    account = json.loads(world.run("audit", "--json", world.folder / "lab").stdout)
    assert account["balanced"] and account["topics"]["/chatter"]["recorded"] == 0, account


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--trigger", "/battery: voltage <"], 'expression, character 20: expected a value, found the end'),
        (["--trigger", "/battery low"], "character 10: expected a colon and an expression, silent 2s, or rate < 5, after the topic"),
        (["--trigger", "/scan silent soon"], "character 14: expected a span"),
        (["--trigger", "/a: x > 1", "--snapshot-mode"], "--trigger and --snapshot-mode cannot be used together"),
        (["--after", "5", "--max-cache-size", "0"], "--trigger needs memory"),
        (["--before", "-1"], "must not be negative"),
    ],
)
def test_bad_expressions_are_refused_in_one_sentence(world, arguments, sentence):
    refused = world.run("record", "-a", "-o", world.folder / "lab", *arguments)
    assert refused.returncode == 2 and sentence in refused.stderr, refused.stderr
    assert not (world.folder / "lab").exists()
