"""Latched state, listeners that are waited for, faithful times, bursts, and one publisher for each recorded one."""

import json

from conftest import cdr_string
from test_play import STRING, write_with_pip_mcap

START = 1_700_000_000_000_000_000
LATCHED = """- history: keep_last
  depth: 1
  reliability: reliable
  durability: transient_local
  deadline: {sec: 9223372036, nsec: 854775807}
  lifespan: {sec: 9223372036, nsec: 854775807}
  liveliness: automatic
  liveliness_lease_duration: {sec: 9223372036, nsec: 854775807}
  avoid_ros_namespace_conventions: false
"""


def latched_bag(world):
    """A map at 0 s and 3 s, a steady topic for 10 s."""
    from mcap.writer import Writer

    path = world.folder / "latched.mcap"
    with open(path, "wb") as stream:
        writer = Writer(stream, chunk_size=1024)
        writer.start(profile="ros2", library="pip mcap")
        schema = writer.register_schema(STRING, "ros2msg", b"string data\n")
        channel = writer.register_channel("/map", "cdr", schema, {"offered_qos_profiles": LATCHED})
        steady = writer.register_channel("/x", "cdr", schema)
        messages = [(i * 10_000_000, steady, f"x{i}") for i in range(1000)]
        messages += [(0, channel, "old map"), (3_000_000_000, channel, "map")]
        for stamp, where, text in sorted(messages, key=lambda message: message[0]):
            writer.add_message(where, START + stamp, cdr_string(text), START + stamp)
        writer.finish()
    return path


def play_from_the_middle(world, *arguments):
    bag = latched_bag(world)
    qos = {"durability": "transient_local"}
    listener = world.listener(
        {"topic": "/map", "type": STRING, "qos": qos}, {"topic": "/x", "type": STRING}, expect={"/x": 100}
    )
    listener.wait_for("ready")
    player = world.run("play", bag, "--start-offset", "9", "--json", "--wait-for-subscribers", "/map=1", "/x=1", *arguments)
    assert player.returncode == 0, player.stderr
    return json.loads(player.stdout), listener.done()["received"]


def test_a_late_beginning_has_the_state_of_latched_topics(world):
    report, received = play_from_the_middle(world)
    assert received["/map"]["count"] == 1
    assert (report["latched_published"], report["published"]) == (1, 100)
    assert report["topics"]["/map"] | {"published": 0, "latched_published": 1} == report["topics"]["/map"]


def test_rosbag2_s_way_has_no_state(world):
    report, received = play_from_the_middle(world, "--no-latched-state")
    assert report["latched_published"] == 0
    assert received.get("/map", {"count": 0})["count"] == 0


def test_listeners_that_do_not_come_in_time_are_named_and_nothing_is_played(world):
    player = world.run("play", latched_bag(world), "--wait-for-subscribers", "/map=3", "--timeout", "1", "--json")
    report = json.loads(player.stdout)
    assert player.returncode == 1
    assert report["published"] == 0 and "0 of 3 subscriptions to /map" in report["failure"]


def test_a_limit_of_lateness_decides_the_exit_code(world):
    bag = latched_bag(world)
    late = world.run("play", bag, "-r", "20", "--max-lateness", "0.000000001")
    assert late.returncode == 3 and "more than was allowed" in late.stderr, late.stderr
    fine = world.run("play", bag, "-r", "20", "--max-lateness", "60", "--json")
    report = json.loads(fine.stdout)
    assert fine.returncode == 0, fine.stderr
    assert report["spacing_error"]["count"] > 900 and report["topics"]["/x"]["lateness"]["count"] == 1000
    assert report["without_subscription"] == 1002


def test_a_burst_publishes_so_many_messages_at_once(world):
    listener = world.listener({"topic": "/x", "type": STRING, "qos": {"history": "keep_all"}}, expect={"/x": 500})
    listener.wait_for("ready")
    burst = world.run("burst", latched_bag(world), "--topics", "/x", "-n", "500", "--json")
    assert burst.returncode == 0, burst.stderr
    report = json.loads(burst.stdout)
    assert (report["published"], report["unacknowledged"]) == (500, 0)
    assert report["elapsed_s"] < 4, "5 s of bag time"
    assert listener.done()["received"]["/x"]["count"] == 500


def test_listeners_set_the_pace_and_nothing_is_lost(world):
    listener = world.listener({"topic": "/x", "type": STRING, "qos": {"history": "keep_all"}}, expect={"/x": 1000})
    listener.wait_for("ready")
    player = world.run("play", latched_bag(world), "--pace", "listeners", "--json")
    assert player.returncode == 0, player.stderr
    report = json.loads(player.stdout)
    assert report["unacknowledged"] == 0 and report["elapsed_s"] < 9
    assert listener.done()["received"]["/x"]["count"] == 1000


def test_each_recorded_publisher_has_one_of_its_own(world):
    talkers = [
        world.talker({"topic": "/t", "type": STRING, "count": 20, "rate_hz": 100, "text": f"{n} {{n}}"}) for n in range(2)
    ]
    recorder = world.holdall("record", "-o", world.folder / "bag", "--topics", "/t")
    recorder.wait_until_says("recording /t")
    for talker in talkers:
        talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    player = world.run("play", world.folder / "bag", "--keep-publishers", "--json")
    assert player.returncode == 0, player.stderr
    rows = json.loads(player.stdout)["topics"]
    assert len(rows) == 2 and all(name.startswith("/t @ ") for name in rows), rows


def test_the_state_has_one_message_of_each_recorded_publisher(world):
    qos = {"depth": 10, "durability": "transient_local"}
    recorder = world.holdall("record", "-o", world.folder / "bag", "--topics", "/static", "/x")
    for n in range(2):
        # The first publisher sends twice; its last message counts.
        world.talker({"topic": "/static", "type": STRING, "count": 2 - n, "text": f"{n} {{n}}", "qos": qos}).done()
    world.talker({"topic": "/x", "type": STRING, "count": 200, "rate_hz": 100}).done()
    code, said = recorder.stop()
    assert code == 0, said
    duration = json.loads(world.run("info", world.folder / "bag", "--json").stdout)["duration"]["nanoseconds"]
    listener = world.listener({"topic": "/static", "type": STRING, "qos": qos}, {"topic": "/x", "type": STRING}, expect={"/x": 1, "/static": 2})
    listener.wait_for("ready")
    offset = str(duration / 1e9 - 0.5)
    player = world.run(
        "play", world.folder / "bag", "--start-offset", offset, "--wait-for-subscribers", "/static=1", "/x=1", "--json"
    )
    assert player.returncode == 0, player.stderr
    report = json.loads(player.stdout)
    assert (report["latched_published"], report["topics"]["/static"]["published"]) == (2, 0)
    assert listener.done()["received"]["/static"]["count"] == 2
