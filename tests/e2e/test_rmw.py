"""Recording and playing through the rmw implementation of a sourced ROS 2: what only that can reach."""

import hashlib
import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest
from conftest import DEADLINE_S, Node, cdr_string, messages_of

BYTES = "std_msgs/msg/UInt8MultiArray"
STRING = "std_msgs/msg/String"
PREFIX = Path(sys.prefix)


@pytest.fixture
def sourced(world):
    """As after `source setup.bash`: the wheels of ROS 2 set nothing but what rclpy needs itself."""
    libraries = [PREFIX / "lib", *sorted(PREFIX.glob("lib/python*/site-packages/*.libs"))]
    inherited = [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if path]
    world.env |= {
        "AMENT_PREFIX_PATH": str(PREFIX),
        "LD_LIBRARY_PATH": ":".join([*map(str, libraries), *inherited]),
        # With LOCALHOST, rmw_fastrtps takes UDP and shared memory whatever FASTDDS_BUILTIN_TRANSPORTS says.
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
    }
    world.env.pop("RMW_IMPLEMENTATION", None)
    return world


def a_free_port():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def with_discovery_server(world):
    port = a_free_port()
    server = world.program([PREFIX / "bin/fast-discovery-server", "-i", "0", "-l", "127.0.0.1", "-p", str(port)])
    server.wait_until_says("Server is running")
    world.env["ROS_DISCOVERY_SERVER"] = f"127.0.0.1:{port}"


@pytest.mark.parametrize("reached_by", ["SHM", "LARGE_DATA", "server"])
def test_every_message_is_recorded_whatever_reaches_the_node(sourced, reached_by):
    world = sourced
    if reached_by == "server":
        with_discovery_server(world)
    else:
        world.env["FASTDDS_BUILTIN_TRANSPORTS"] = reached_by
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--transport", "rmw", "--json", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening for topics...")
    talker = world.talker(
        {"topic": "/big", "type": BYTES, "size": 200_000, "count": 150, "rate_hz": 50, "qos": {"depth": 200}},
        {"topic": "/small", "type": STRING, "count": 300, "rate_hz": 100, "qos": {"depth": 400}},
    )
    sent = talker.done()["sent"]
    code, said = recorder.stop()
    report = json.loads(said[said.index("{\n") : said.rindex("\n}") + 2])
    assert code == 0 and report["lost"] == 0 and report["end_unknown"]["silent"] == 0, said
    recorded = messages_of(world.folder / "bag")
    for topic, count in (("/big", 150), ("/small", 300)):
        assert len(recorded[topic]) == count == report["topics"][topic]["message_count"], report
        assert not report["topics"][topic]["loss_unknown"], "sequence numbers are there"
        # rmw passes nothing on of what the publisher has announced before it ended.
        assert report["topics"][topic]["ends_unknown"] == 1, report
        assert hashlib.md5(b"".join(recorded[topic])).hexdigest() == sent[topic][0]["md5"], topic
    publishers = world.run("info", "-v", world.folder / "bag").stdout
    assert "/talker" in publishers, publishers


@pytest.mark.parametrize("environment", ["SHM", "LARGE_DATA"])
def test_auto_takes_rmw_for_what_dds_cannot_hear_and_each_message_once(sourced, environment):
    world = sourced
    # With SHM rmw does not hear the other node, with LARGE_DATA it does, too.
    world.env["FASTDDS_BUILTIN_TRANSPORTS"] = environment
    # iceoryx2 has no domains: the topics of other tests are left out by name.
    ours = ["--regex", "/(over_.*|shared)"]
    recorder = world.holdall("record", *ours, "-o", world.folder / "bag", "--transport", "auto", "--json", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening for topics...")
    talkers = []
    # One topic has a publisher of each kind.
    for name, transports in (("over_udp", "DEFAULT"), ("over_memory", environment)):
        own = {"topic": f"/{name}", "type": STRING, "text": name + " {n}", "count": 200, "rate_hz": 50, "qos": {"depth": 300}}
        plan = {"node": name, "publishers": [own, {**own, "topic": "/shared"}]}
        talkers.append(world._keep(Node("talker.py", plan, {**world.env, "FASTDDS_BUILTIN_TRANSPORTS": transports})))
    for talker in talkers:
        talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    report = json.loads(said[said.index("{\n") : said.rindex("\n}") + 2])
    assert report["not_heard"] == [], report["not_heard"]
    recorded = messages_of(world.folder / "bag")
    for name in ("over_udp", "over_memory"):
        sent = [cdr_string(f"{name} {n}") for n in range(200)]
        assert recorded[f"/{name}"] == sent, len(recorded[f"/{name}"])
        assert [one for one in recorded["/shared"] if name.encode() in one] == sent
    assert len(recorded["/shared"]) == 400
    audit = json.loads(world.run("audit", "--json", world.folder / "bag").stdout)
    by_node = {one["node"]: one["transport"] for one in audit["topics"]["/shared"]["publishers"]}
    assert by_node == {"/over_udp": "dds", "/over_memory": "rmw"}, by_node


def test_a_bag_is_played_to_a_node_in_shared_memory(sourced):
    world = sourced
    world.env["FASTDDS_BUILTIN_TRANSPORTS"] = "SHM"
    recorder = world.holdall("record", "--topics", "/a", "-o", world.folder / "bag", "--transport", "rmw")
    recorder.wait_until_says("Listening for topics...")
    world.talker({"topic": "/a", "type": STRING, "count": 100, "rate_hz": 100, "qos": {"depth": 200}}).done()
    assert recorder.stop()[0] == 0
    listener = world.listener({"topic": "/a", "type": STRING, "qos": {"depth": 200}}, expect={"/a": 100})
    listener.wait_for("ready")
    player = world.run("play", world.folder / "bag", "--transport", "rmw", "--wait-for-subscribers", "1", "--wait-for-all-acked", "10000")
    assert player.returncode == 0, player.stderr
    expected = hashlib.md5(b"".join(cdr_string(f"hello {n}") for n in range(100))).hexdigest()
    assert listener.done()["received"]["/a"]["md5"] == expected


def test_the_recorder_answers_a_node_in_shared_memory(sourced):
    world = sourced
    world.env["FASTDDS_BUILTIN_TRANSPORTS"] = "SHM"
    recorder = world.holdall("record", "-a", "-o", world.folder / "bag", "--transport", "rmw", "--disable-keyboard-controls")
    recorder.wait_until_says("Listening for topics...")
    own, more = "/rosbag2_recorder", {"request": {"names": ["use_sim_time"]}}
    listed, got = world.calls(
        "rclpy",
        {"service": f"{own}/list_parameters", "type": "rcl_interfaces/srv/ListParameters", "count": 20},
        {"service": f"{own}/get_parameters", "type": "rcl_interfaces/srv/GetParameters", **more},
    )
    assert listed["answered"] == 20 and "use_sim_time" in listed["reply"]["result"]["names"], listed
    assert got["reply"]["values"][0]["type"] == 1, got
    code, said = recorder.stop()
    assert code == 0, said
    # These wheels lack the package; the services of the others are offered all the same.
    (named,) = [line for line in said.splitlines() if "not offered over rmw: " in line]
    assert "split_bagfile" in named and "list_parameters" not in named and "which needs its package" in named, named


def test_calls_of_a_service_are_recorded_and_sent_again_in_shared_memory(sourced):
    world = sourced
    world.env["FASTDDS_BUILTIN_TRANSPORTS"] = "SHM"
    calls = [[7, "seven"], [-1, "é" * 40], [2**62, ""], [0, "x" * 1000]]
    recorder = world.holdall(
        "record", "-a", "--include-hidden-topics", "-o", world.folder / "bag", "--transport", "rmw", "--disable-keyboard-controls"
    )
    recorder.wait_until_says("Listening for topics...")
    robot = world._keep(Node("replay_node.py", {"serve": "/twice", "introspection": "CONTENTS", "calls": calls}, world.env))
    robot.wait_for("ready")
    recorder.wait_until_says("recording /twice/_service_event")
    robot.process.send_signal(signal.SIGUSR1)
    robot.wait_for("called")
    robot.interrupt()
    robot.process.wait(DEADLINE_S)
    code, said = recorder.stop()
    assert code == 0, said

    server = world._keep(Node("replay_node.py", {"serve": "/twice"}, world.env))
    server.wait_for("ready")
    player = world.run(
        "play", world.folder / "bag", "--transport", "rmw", "--publish-service-requests", "--fail-if-unanswered", "--disable-keyboard-controls", "--json"
    )
    assert player.returncode == 0, player.stderr
    done = json.loads(player.stdout)["services"]["/twice"]
    assert (done["sent"], done["answered"], done["unanswered"]) == (len(calls), len(calls), 0), done
    heard = [server.wait_for("request") for _ in calls]
    assert [[one["number"], one["text"]] for one in heard] == calls


def test_what_is_not_installed_is_named(sourced):
    world = sourced
    world.env["RMW_IMPLEMENTATION"] = "rmw_pigeon_cpp"
    absent = world.run("record", "-a", "-o", world.folder / "bag", "--transport", "rmw")
    assert absent.returncode == 1 and "no librmw_pigeon_cpp.so in " in absent.stderr, absent.stderr
    del world.env["RMW_IMPLEMENTATION"]
    world.env.update(CC="no-such-compiler", XDG_CACHE_HOME=str(world.folder / "cache"))
    uncompiled = world.run("record", "-a", "-o", world.folder / "bag", "--transport", "rmw")
    assert uncompiled.returncode == 1 and "apt install gcc libc6-dev" in uncompiled.stderr, uncompiled.stderr
    del world.env["AMENT_PREFIX_PATH"]
    unsourced = world.run("record", "-a", "-o", world.folder / "bag", "--transport", "rmw")
    assert unsourced.returncode == 1 and "AMENT_PREFIX_PATH" in unsourced.stderr, unsourced.stderr
    assert not (world.folder / "bag").exists()
