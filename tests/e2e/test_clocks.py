"""Clocks that jump: the computer's, set forward and back while the program runs, and a simulator's that is reset or moved forward."""

import json
import mmap
import re
import struct
import subprocess
import time
from pathlib import Path

import pytest
from conftest import DEADLINE_S, Node, cdr_string
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STRING = "std_msgs/msg/String"
HOUR_NS = 3600 * 10**9


class SetClock:
    """The time of day of the programs that are started with its environment."""

    def __init__(self, folder):
        library = folder / "set_clock.so"
        source = Path(__file__).with_name("set_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        path = folder / "offset"
        path.write_bytes(bytes(8))
        self.file = open(path, "r+b")
        self.memory = mmap.mmap(self.file.fileno(), 8)
        self.env = {"LD_PRELOAD": str(library), "SET_CLOCK": str(path)}

    def set_by(self, nanos):
        self.memory[:] = struct.pack("<q", nanos)


@pytest.fixture
def set_clock(world, tmp_path):
    clock = SetClock(tmp_path)
    world.plain = dict(world.env)
    return clock


def record(world, *arguments, bag="bag", env=()):
    world.env = {**world.env, **dict(env)}
    try:
        return world.holdall("record", "-o", world.folder / bag, "--control-socket", world.folder / "control", *arguments)
    finally:
        for name in dict(env):
            del world.env[name]


def status(world):
    told = world.run("control", world.folder / "control", "status")
    return json.loads(told.stdout)["status"] if told.returncode == 0 else {}


def wait_until(what, holds):
    end = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def wait_received(world, topic, more):
    """Waits until so many more messages of a topic were received."""
    received = lambda: status(world).get("topics", {}).get(topic, {}).get("received", 0)
    before = received()
    wait_until(f"{more} more of {topic}", lambda: received() >= before + more)


def simulate(world, **plan):
    return world._keep(Node("simulator.py", {"topic": "/run", "every_s": 0.02, "step_s": 0.05, "steps": 100, **plan}, world.env))


def read_order(world, bag="bag", topic="/run"):
    """The runs of the messages in the order of reading."""
    told = world.run("cat", world.folder / bag, "--json", "--topics", topic)
    assert told.returncode == 0, told.stderr
    return [int(re.search(r'"data":\s*"(\d+) ', line)[1]) for line in told.stdout.splitlines()]


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
def test_a_wall_clock_that_is_set_is_a_warning_a_marker_and_a_line(world, set_clock, jump_ns):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    recorder = record(world, "-a", "--web", "127.0.0.1:0", env=set_clock.env)
    wait_received(world, "/chatter", 50)
    set_clock.set_by(jump_ns)
    wait_until("the jump is in the status", lambda: status(world).get("clock_jump_count") == 1)
    wait_received(world, "/chatter", 50)
    code, said = recorder.stop()
    talker.interrupt()
    way = "forward" if jump_ns > 0 else "back"
    sentence = f"the clock of this computer was set {way} by 3600."
    assert code == 0 and said.count(sentence) == 2, said  # The log, and the report.
    told = world.run("info", world.folder / "bag").stdout
    assert re.search(rf"Clock jumps: +{sentence}", told) and "without the jumps of its clock" in told, told
    info = world.info(world.folder / "bag")
    assert [marker["name"].startswith(sentence) for marker in info["markers"]] == [True], info
    assert len(info["clock_jumps"]) == 1 and info["duration_without_jumps_s"] < 60, info
    assert world.run("audit", world.folder / "bag").returncode == 0


@pytest.mark.parametrize("jump_ns", [HOUR_NS, -HOUR_NS])
@pytest.mark.parametrize("mode", ["trigger", "snapshot"])
def test_what_was_before_a_jump_is_kept_for_an_event_and_a_snapshot(world, set_clock, jump_ns, mode):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    waits = ["--snapshot-mode", "--max-cache-duration", "30"] if mode == "snapshot" else ["--trigger", "/none silent 1h", "--before", "30"]
    recorder = record(world, "--topics", "/chatter", *waits, env=set_clock.env)
    wait_received(world, "/chatter", 100)
    set_clock.set_by(jump_ns)
    wait_received(world, "/chatter", 25)
    received = status(world)["topics"]["/chatter"]["received"]
    assert world.run("control", world.folder / "control", "snapshot").returncode == 0
    wait_until("it is written", lambda: status(world)["recorded"] >= received)
    code, said = recorder.stop()
    talker.interrupt()
    assert code == 0 and "waited for an event are left out" not in said, said


def test_a_simulator_that_is_reset_and_moved_forward_is_named_and_read_in_order(world):
    recorder = record(world, "--topics", "/run", "--use-sim-time")
    recorder.wait_until_says("Listening")
    simulator = simulate(world, runs=[10, 10, 5000])
    assert simulator.done()["sent"] > 200
    code, said = recorder.stop()
    assert said.count("simulated time was set back by ") == 2, said
    assert said.count("simulated time was set forward by ") == 2, said
    order = read_order(world)
    assert sum(one != other for one, other in zip(order, order[1:])) == 2, order
    info = world.info(world.folder / "bag")
    assert len(info["clock_jumps"]) == 2 and 12 < info["duration_without_jumps_s"] < 16, info


def test_a_recording_without_clock_does_not_look_like_a_success(world):
    talker = world.talker({"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    recorder = record(world, "--topics", "/chatter", "--use-sim-time")
    wait_received(world, "/chatter", 20)
    seen = status(world)
    assert seen["waits_for_clock"] and seen["left_out"] >= 20, seen
    _, said = recorder.stop()
    talker.interrupt()
    assert re.search(r"left out on request: \d+ messages \(/chatter \d+\)", said), said
    assert "no message came on /clock" in said, said


def test_what_a_pause_left_out_is_in_the_report_and_latched_state_is_in_the_bag(world):
    latched = {"topic": "/frames", "type": STRING, "count": 1, "qos": {"durability": "transient_local", "depth": 1}}
    talker = world.talker(latched, {"topic": "/chatter", "type": STRING, "count": None, "rate_hz": 50})
    recorder = record(world, "--topics", "/frames", "/chatter", "--start-paused")
    wait_received(world, "/chatter", 20)
    wait_until("the latched one has come", lambda: status(world)["topics"].get("/frames", {}).get("received") == 1)
    assert world.run("control", world.folder / "control", "resume").returncode == 0
    wait_until("the latched one is recorded", lambda: status(world)["topics"]["/frames"]["recorded"] == 1)
    code, said = recorder.stop()
    talker.interrupt()
    assert code == 0 and re.search(r"left out on request: \d+ messages \(/chatter \d+\)", said), said
    audited = json.loads(world.run("audit", "--json", world.folder / "bag").stdout)
    assert audited["balanced"] and audited["topics"]["/frames"]["recorded"] == 1, audited


def bag_of(world, times_ns, name="bag", topic="/a"):
    """A bag with a message at each of these times, made by pip's rosbags."""
    types = get_typestore(Stores.ROS2_JAZZY)
    text = types.types[STRING]
    with Writer(world.folder / name, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(topic, STRING, typestore=types)
        for time_ns in times_ns:
            writer.write(connection, time_ns, types.serialize_cdr(text("x"), STRING))
    return world.folder / name


START_NS = 1_700_000_000 * 10**9
LONG_NS = 53 * 365 * 24 * HOUR_NS


def test_a_gap_of_years_is_named_and_can_be_left_out(world):
    bag = bag_of(world, [1_000_000_000, 1_100_000_000, LONG_NS, LONG_NS + 10**8])
    player = world.holdall("play", bag)
    player.wait_until_says("the next message comes in 5")
    player.stop()
    done = world.run("play", "--skip-empty", "5", bag)
    assert done.returncode == 0 and "are left out" in done.stderr, done.stderr
    assert "played 4 messages" in done.stdout or " 4 messages" in done.stdout, done.stdout


def test_a_loop_over_no_time_has_a_pace(world):
    bag = bag_of(world, [START_NS])
    player = world.holdall("play", "-l", bag)
    player.wait_until_says("playing /a")
    end = time.monotonic() + 4
    while time.monotonic() < end:
        time.sleep(0.1)
    _, said = player.stop()
    count = int(re.sub(r"\D", "", re.search(r"stopped after ([\d\s\u202f]+) messages? of", said)[1]))
    assert 1 <= count < 20, said


@pytest.mark.parametrize("verb", ["convert", "merge", "filter"])
def test_a_copy_of_a_bag_whose_clock_was_reset_is_read_in_the_order_of_recording(world, verb):
    recorder = record(world, "--topics", "/run", "--use-sim-time")
    recorder.wait_until_says("Listening")
    simulate(world, runs=[10, 10]).done()
    recorder.stop()
    order = read_order(world)
    assert order == sorted(order) and set(order) == {0, 1}, order
    more = {"convert": ["--compression", "none"], "merge": [bag_of(world, [10**9, 2 * 10**9], "other")], "filter": ["--topics", "/run"]}[verb]
    told = world.run(verb, world.folder / "bag", *more, "-o", world.folder / "copy")
    assert told.returncode == 0, told.stderr
    assert read_order(world, "copy") == order, told.stdout
    assert world.info(world.folder / "copy")["clock_jumps"] == world.info(world.folder / "bag")["clock_jumps"]
    assert "Clock jumps: " in world.run("info", world.folder / "copy").stdout
    assert world.run("audit", world.folder / "copy").returncode == 0


def test_since_when_a_publisher_is_silent_does_not_jump_with_the_clock(world, set_clock):
    """Over zenoh the last sign of life is the last message, which was stamped before the jump."""
    from test_zenoh import Meeting

    meeting = Meeting(world)
    talker = meeting.host()
    try:
        talker.advertise("/chatter")
        recorder = record(world, "--topics", "/chatter", env=set_clock.env)
        recorder.wait_until_says("Listening")
        talker.do("await_subscription", topic="/chatter")
        talker.publish("/chatter", *(cdr_string(f"{number}") for number in range(20)))
        wait_until("all are received", lambda: status(world).get("topics", {}).get("/chatter", {}).get("received") == 20)
        set_clock.set_by(HOUR_NS)
        wait_until("the jump is in the status", lambda: status(world).get("clock_jump_count") == 1)
        talker.close()
        recorder.wait_until_says("went silent without a farewell")
        code, said = recorder.stop()
    finally:
        for node in meeting.nodes:
            node.close()
    (seconds,) = re.findall(r"what was sent in the last ([0-9.]+) s is not known", said)
    assert float(seconds) < 600, said
