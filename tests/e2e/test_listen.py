"""`top`, `hz`, `bw`, `delay` and `echo`: live topics of real nodes in a terminal, without ROS."""

import csv
import io
import json
import re
import signal
import time

import yaml

STRING = "std_msgs/msg/String"


def talker(world, *publishers):
    node = world.talker(*publishers)
    node.wait_for("ready")
    return node


def test_rate_bandwidth_and_delay_of_a_real_node(world):
    talker(world, {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": None, "rate_hz": 100})
    for verb, words in (("hz", "average rate: "), ("bw", "Message size mean: "), ("delay", "average delay: ")):
        program = world.holdall(verb, "/imu")
        program.wait_until_says(words)
        code, said = program.stop()
        assert code == 0, said
    told = world.run("hz", "/nothing", "--duration", "1")
    assert told.returncode == 1 and "no publisher of /nothing was found" in told.stderr, told.stderr


def test_echo_decodes_messages_as_they_come(world):
    talker(world, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50, "text": "hello {n}"})
    told = world.run("echo", "/chatter", "-n", "3", "--json")
    assert told.returncode == 0, told.stderr
    messages = [json.loads(line) for line in told.stdout.splitlines()]
    numbers = [int(re.fullmatch(r"hello (\d+)", message["message"]["data"]).group(1)) for message in messages]
    assert numbers == list(range(numbers[0], numbers[0] + 3)) and messages[0]["topic"] == "/chatter"
    told = world.run("echo", "/chatter", "-n", "1")
    assert re.fullmatch(r'data: "hello \d+"\n---\n', told.stdout), told.stdout


def test_echo_has_the_forms_of_ros2_topic_echo(world):
    """Judges are readers of CSV and YAML, and the sender's own text."""
    talker(world, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50, "text": 'a, "b": {n}'})
    talker(world, {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": None, "rate_hz": 50})
    told = world.run("echo", "/chatter", "-n", "3", "--csv")
    texts = [row for (row,) in csv.reader(io.StringIO(told.stdout))]
    assert told.returncode == 0 and all(re.fullmatch(r'a, "b": \d+', text) for text in texts) and len(texts) == 3, told
    told = world.run("echo", "/imu", "--once", "--csv", "-i")
    (row,) = csv.reader(io.StringIO(told.stdout))
    # Four of the message's information; stamp and frame, then numbers.
    assert len(row) == 4 + 3 + 4 + 9 + 3 + 9 + 3 + 9, row
    sent, received, number = map(int, row[:3])
    assert abs(received - sent) < 60e9 and abs(received - time.time_ns()) < 60e9 and number > 0 and row[3] == "", row
    told = world.run("echo", "/imu", "--once", "--flow-style")
    line, end = told.stdout.splitlines()
    block = yaml.safe_load(line)
    assert end == "---" and len(block["orientation_covariance"]) == 9 and set(block["header"]) == {"stamp", "frame_id"}, line
    told = world.run("echo", "/imu", "--once", "--field", "orientation", "-i")
    info, orientation, _ = yaml.safe_load_all(told.stdout)
    assert list(orientation) == ["x", "y", "z", "w"] and info["received_timestamp"] > info["source_timestamp"] - 60e9, told.stdout
    told = world.run("echo", "/imu", "--once", "--field", "orientation.nothing")
    assert told.returncode == 2 and "--field orientation.nothing: the message has no such field" in told.stderr, told
    told = world.run("echo", "/nothing", "--timeout", "1")
    assert told.returncode == 1 and "no publisher of /nothing was found" in told.stderr, told


def test_a_filter_counts_and_shows_what_it_lets_through(world):
    talker(world, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 100, "text": "{n}"})
    told = world.run("echo", "/chatter", "-n", "4", "--filter", "m.data =~ '7$'", "--field", "data", "--json")
    texts = [json.loads(line)["message"] for line in told.stdout.splitlines()]
    assert len(texts) == 4 and all(text.endswith("7") for text in texts), told
    # One of ten messages at 100 Hz.
    told = world.run("hz", "/chatter", "--duration", "4", "--filter", "m.data =~ '7$'")
    rates = [float(rate) for rate in re.findall(r"average rate: ([\d.]+)", told.stdout)]
    assert told.returncode == 0 and 7 < rates[-1] < 13, told
    told = world.run("hz", "/chatter", "--duration", "5", "--filter", "m.colour == 'red'")
    assert told.returncode == 2 and "has no field colour" in told.stderr, told


def test_top_shows_the_live_system_and_what_a_recorder_receives(world):
    talker(world, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    told = world.run("top", "--once", "-e", "chatter")
    assert told.returncode == 0, told.stderr
    (row,) = [line for line in told.stdout.splitlines() if "/chatter" in line]
    assert re.search(r"KiB/s|B/s", row), told.stdout
    socket = world.folder / "s"
    recorder = world.holdall("record", "--topics", "/chatter", "-o", world.folder / "bag", "--control-socket", socket)
    recorder.wait_until_says("recording /chatter")
    told = world.run("top", "--once", "--socket", socket)
    assert told.returncode == 0 and "/chatter" in told.stdout, told.stdout + told.stderr
    assert recorder.stop(signal.SIGINT)[0] == 0


def test_a_table_on_a_terminal_fits_and_is_sorted_by_keys(world, terminal):
    talker(world, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    shown = terminal("top", columns=40)
    shown.wait_until_shows("/chatter")
    shown.interrupt()
    assert shown.wait() == 0
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.text).splitlines()
    assert all(len(line) <= 40 for line in lines), lines
