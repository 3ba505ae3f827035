"""Services of the recorder and the player, and the recorder's events, for nodes of older and newer distributions: each has its own layout of the types.

Types are made by rosidl's own generators from the texts of `rosbag2_interfaces` in Humble (of 0.15), Jazzy (0.26.10; the services of 0.26.5 are the same in
Iron), Kilted (0.32, as its documentation has them; made by Kilted's generators, called by its rclpy) and Rolling. Clients run on Fast DDS (rclpy) and on
Cyclone DDS (as rmw_cyclonedds).
"""

import json
import os
from pathlib import Path

import pytest
from conftest import PYTHON, Node
from test_services import a_bag

NODES = Path(__file__).parent.parent / "nodes"
RECORDER, PLAYER = "/rosbag2_recorder", "/rosbag2_player"
DONE = {"return_code": 0, "error_string": ""}
CLIENTS = ["rclpy", "cyclone"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder for generated types that all workers of a run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "generated-types"


def node(world, made, distribution, client, calls, **more):
    python = PYTHON["kilted" if (distribution, client) == ("kilted", "rclpy") else "jazzy"]
    plan = {
        "types": str(NODES / "rosbag2_interfaces" / f"{distribution}.txt"),
        "folder": str(made / f"{distribution}-{Path(python).parent.parent.name}"),
        "hashes": distribution != "humble",
        "client": client,
        "calls": [{"service": service, "type": kind, "request": request} for service, kind, request in calls],
        **more,
    }
    made.mkdir(exist_ok=True)
    return world._keep(Node("layout_calls.py", plan, world.env, python=python))


def answers(caller, calls):
    return [caller.wait_for("answered")["reply"] for _ in calls]


def without_placeholder(replies):
    """Empty types of ROS have a byte without meaning."""
    return [reply and {name: value for name, value in reply.items() if name != "structure_needs_at_least_one_member"} for reply in replies]


def recording(world, *arguments):
    program = world.holdall("record", "--all-topics", "-o", world.folder / "lab", *arguments)
    program.wait_until_says("Listening for topics...")
    return program


def recorder_calls(world, distribution):
    """Calls of a recorder, and what a node of the distribution is answered."""
    second = str(world.folder / f"second-{distribution}")
    calls = [
        (f"{RECORDER}/resume", "Resume", {}),
        (f"{RECORDER}/is_paused", "IsPaused", {}),
        (f"{RECORDER}/split_bagfile", "SplitBagfile", {}),
        (f"{RECORDER}/stop", "Stop", {}),
        (f"{RECORDER}/record", "Record", {"uri": second}),
        (f"{RECORDER}/stop", "Stop", {}),
    ]
    old = [{}, {"paused": False}, {}, {}, DONE, {}]
    new = [DONE, {"paused": False}, DONE, DONE, DONE, DONE]
    return {"humble": (calls[:2], old[:2]), "jazzy": (calls, old), "kilted": (calls, old), "rolling": (calls, new)}[distribution]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("distribution", ["humble", "jazzy", "kilted", "rolling"])
def test_a_node_of_each_distribution_is_answered_in_its_layout(world, made, distribution, client):
    program = recording(world, "--start-paused")
    calls, expected = recorder_calls(world, distribution)
    replies = answers(node(world, made, distribution, client, calls), calls)
    assert without_placeholder(replies) == expected
    code, said = program.stop()
    assert code == 0, said
    assert said.count("recorded ") == (2 if distribution != "humble" else 1), said


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("distribution", ["jazzy", "kilted", "rolling"])
def test_the_player_answers_nodes_of_each_distribution(world, made, distribution, client):
    bag = a_bag(world)
    program = world.holdall("play", bag, "--start-paused")
    program.wait_until_says("playing")
    calls = [(f"{PLAYER}/resume", "Resume", {}), (f"{PLAYER}/is_paused", "IsPaused", {}), (f"{PLAYER}/stop", "Stop", {})]
    replies = answers(node(world, made, distribution, client, calls), calls)
    done = DONE if distribution == "rolling" else {}
    assert without_placeholder(replies) == [done, {"paused": False}, done]
    assert program.wait()[0] == 0


def test_nodes_of_two_distributions_are_answered_at_the_same_time(world, made):
    program = recording(world)
    twice = [(f"{RECORDER}/resume", "Resume", {}), (f"{RECORDER}/split_bagfile", "SplitBagfile", {})]
    calls = {"jazzy": twice * 10, "rolling": twice * 10}
    nodes = {(distribution, client): node(world, made, distribution, client, calls[distribution]) for distribution in calls for client in CLIENTS}
    for (distribution, client), caller in nodes.items():
        expected = [{} if distribution == "jazzy" else DONE] * 20
        assert without_placeholder(answers(caller, calls[distribution])) == expected, (distribution, client)
    assert program.stop()[0] == 0


@pytest.mark.parametrize("sourced", ["jazzy", "rolling"])
def test_a_client_without_hashes_is_taken_for_one_of_the_distribution_that_is_sourced(world, made, sourced):
    """As nodes of other vendors, which announce no type hash: a stop has the same request everywhere, and two replies."""
    world.env["ROS_DISTRO"] = sourced
    program = recording(world)
    calls = [(f"{RECORDER}/resume", "Resume", {}), (f"{RECORDER}/stop", "Stop", {})]
    caller = node(world, made, sourced, "rclpy", calls, hashes=False, folder=str(made / f"{sourced}-without-hashes"))
    done = {} if sourced == "jazzy" else DONE
    assert without_placeholder(answers(caller, calls)) == [done, done]
    assert program.stop()[0] == 0


def is_split(heard, node, stem):
    """Whether an event is that of a split of a bag; Humble and Iron have no name of the node in it."""
    files = [Path(heard[name]).name for name in ("closed_file", "opened_file")]
    return all(file.startswith(stem) for file in files) and files[0] != files[1] and heard.get("node_name", node) == node


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("distribution", ["humble", "jazzy", "kilted", "rolling"])
def test_a_node_of_each_distribution_reads_the_event_of_a_split(world, made, distribution, client):
    program = recording(world)
    listener = node(world, made, distribution, client, [], events={"/events/write_split": "WriteSplitEvent"})
    listener.wait_for("done")
    calls = [(f"{RECORDER}/split_bagfile", "SplitBagfile", {})]
    heard = None
    while heard is None:
        # A split before the listener is discovered is not heard by it.
        assert answers(node(world, made, "rolling", "rclpy", calls), calls) == [DONE]
        try:
            heard = listener.wait_for("heard", deadline_s=2)["message"]
        except AssertionError:
            continue
    assert is_split(heard, RECORDER, "lab_"), heard
    code, said = program.stop()
    assert code == 0, said


@pytest.mark.parametrize("client", CLIENTS)
def test_a_node_reads_the_event_of_losses(world, made, client):
    """Only Rolling has it. The cache holds no message of the talker's, so that most are lost in the recorder."""
    topic = "/events/rosbag2_messages_lost"
    listener = node(world, made, "rolling", client, [], events={topic: "MessagesLostEvent"})
    listener.wait_for("done")
    large = {"topic": "/t", "type": "std_msgs/msg/UInt8MultiArray", "size": 200_000, "count": None, "rate_hz": 100, "hash": False}
    world.talker(large).wait_for("ready")
    program = world.holdall("record", "--topics", "/t", "-o", world.folder / "lab", "--max-cache-size", "64KiB")
    heard = listener.wait_for("heard")["message"]
    (lost,) = heard["messages_lost_statistics"]
    assert heard["node_name"] == RECORDER and lost["topic_name"] == "/t", heard
    code, said = program.stop()
    account = json.loads(world.run("audit", "--json", world.folder / "lab").stdout)
    assert 0 < lost["messages_lost_in_transport"] + lost["messages_lost_in_recorder"] <= account["lost"]["total"], (heard, said)
    assert code == 3, said


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("distribution", ["humble", "jazzy", "kilted", "rolling"])
def test_a_node_of_each_distribution_reads_the_event_of_a_file_that_was_played(world, made, distribution, client):
    listener = node(world, made, distribution, client, [], events={"/events/read_split": "ReadSplitEvent"})
    listener.wait_for("done")
    program = world.holdall("play", a_bag(world, 60, files=3), "--loop", "-r", "20", "--read-ahead-queue-size", "3")
    heard = listener.wait_for("heard")["message"]
    assert is_split(heard, PLAYER, "bag_"), heard
    program.stop()


def test_a_client_of_an_unknown_version_is_named(world, made):
    """A later distribution: what it asks is done, and the log says why it may hear nothing."""
    program = recording(world)
    calls = [(f"{RECORDER}/stop", "Stop", {})]
    caller = node(world, made, "future", "rclpy", calls, wait=3)
    caller.wait_for("answered")
    program.wait_until_says("recorded ")
    program.wait_until_says("a version of the type that holdall does not know (RIHS01_")
    code, said = program.stop()
    assert code == 0 and said.count("does not know") == 1, said
