"""Recorded requests of services and goals of actions are sent again, to real rclpy servers."""

import json
import signal

from conftest import Node

CALLS = [[7, "seven"], [-1, "é" * 40], [2**62, ""], [0, "x" * 1000]]


def node(world, **plan):
    started = world._keep(Node("replay_node.py", plan, world.env))
    return started


def begin(started):
    started.process.send_signal(signal.SIGUSR1)


def recorded(world, robot, event, *topics):
    """A bag of what the robot does; it has ended then. Before that it answers the recorder's questions for the definitions of its types."""
    recorder = world.holdall("record", "-a", "--include-hidden-topics", "-o", world.folder / "bag", "--disable-keyboard-controls")
    robot.wait_for("ready")
    for topic in topics:
        recorder.wait_until_says(f"recording {topic}")
    begin(robot)
    done = robot.wait_for(event)
    code, said = recorder.stop()
    robot.interrupt()
    robot.process.wait(30)
    assert code in (0, 3) and "recorded without a message definition" not in said, said
    return world.folder / "bag", done


def play(world, bag, *arguments):
    told = world.run("play", bag, "--disable-keyboard-controls", "--json", *arguments)
    assert told.stdout, told.stderr
    return told, json.loads(told.stdout)


def requests_of(server, count):
    return [[told["number"], told["text"]] for told in (server.wait_for("request") for _ in range(count))]


def bag_of_calls(world, calls=CALLS):
    robot = node(world, serve="/twice", introspection="CONTENTS", calls=calls)
    return recorded(world, robot, "called", "/twice/_service_event")[0]


def test_requests_of_a_service_are_sent_again_and_answered(world):
    bag = bag_of_calls(world)
    server = node(world, serve="/twice")
    server.wait_for("ready")
    for arguments in ([], ["--service-requests-source", "client_introspection"]):
        told, report = play(world, bag, "--publish-service-requests", "--fail-if-unanswered", *arguments)
        assert told.returncode == 0, told.stderr
        calls = report["services"]["/twice"]
        assert (calls["sent"], calls["answered"], calls["unanswered"]) == (len(CALLS), len(CALLS), 0), calls
        assert requests_of(server, len(CALLS)) == CALLS
        assert report["topics"]["/twice/_service_event"]["published"] == len(CALLS)
    # Renamed, and asked for by name.
    other = node(world, serve="/other")
    other.wait_for("ready")
    told, report = play(world, bag, "--publish-service-requests", "--services", "/twice", "--remap", "/twice:=/other")
    assert report["services"]["/other"]["answered"] == len(CALLS) and requests_of(other, len(CALLS)) == CALLS


def test_without_a_server_or_an_answer_playback_ends_and_says_so(world):
    bag = bag_of_calls(world)
    told, report = play(world, bag, "--publish-service-requests", "--fail-if-unanswered")
    assert told.returncode == 3 and report["services"]["/twice"]["without_server"] == len(CALLS), report
    assert "/twice has no server" in told.stderr
    # Without the flag the code is that of the playback.
    assert play(world, bag, "--publish-service-requests")[0].returncode == 0
    silent = node(world, serve="/twice", silent=True)
    silent.wait_for("ready")
    told, report = play(world, bag, "--publish-service-requests", "--fail-if-unanswered")
    calls = report["services"]["/twice"]
    assert told.returncode == 3 and (calls["sent"], calls["unanswered"]) == (len(CALLS), len(CALLS)), calls


def test_events_without_content_are_not_sent_and_named(world):
    robot = node(world, serve="/twice", introspection="METADATA", calls=CALLS)
    bag, _ = recorded(world, robot, "called", "/twice/_service_event")
    server = node(world, serve="/twice")
    server.wait_for("ready")
    told, report = play(world, bag, "--publish-service-requests", "--fail-if-unanswered")
    assert told.returncode == 3 and report["services"]["/twice"]["without_content"] == len(CALLS), report
    assert told.stderr.count("the service published metadata only") == 1


def test_goals_of_an_action_are_sent_again_with_their_identifiers(world):
    parts = ["send_goal/_service_event", "get_result/_service_event", "feedback"]
    topics = [f"/count/_action/{part}" for part in parts]
    robot = node(world, goal_events="/count", orders=[3, 5])
    bag, done = recorded(world, robot, "published", *topics)
    server = node(world, action="/count")
    server.wait_for("ready")
    told, report = play(world, bag, "--send-actions-as-client", "--fail-if-unanswered")
    assert told.returncode == 0, (told.stderr, report)
    assert [report["services"][f"/count/_action/{service}"]["sent"] for service in ("send_goal", "get_result")] == [2, 2], report
    goals = [server.wait_for("goal") for _ in range(2)]
    assert sorted((goal["order"], goal["id"]) for goal in goals) == [(3, done["ids"][0]), (5, done["ids"][1])]
    for service in ("send_goal", "get_result"):
        calls = report["services"][f"/count/_action/{service}"]
        assert (calls["sent"], calls["answered"]) == (2, 2), report["services"]
    # The server publishes feedback and status itself.
    assert topics[2] not in report["topics"]
    # Without the flag they are messages as any others.
    assert topics[2] in play(world, bag)[1]["topics"]


def test_in_lock_step_a_goal_waits_for_the_result_of_the_last_one(world):
    orders = [3, 5, 4]
    topics = [f"/count/_action/{part}" for part in ("send_goal/_service_event", "get_result/_service_event")]
    robot = node(world, goal_events="/count", orders=orders)
    bag, done = recorded(world, robot, "published", *topics)
    step = ["--send-actions-as-client", "--step-by", "action /count", "--pace", "listeners", "--timeout", "30"]

    def replay(*arguments):
        """What a server does: a new one, because a goal is known by its identifier."""
        server = node(world, action="/count", work_s=0.3)
        server.wait_for("ready")
        ran, report = play(world, bag, *arguments)
        found = [server.told.get(timeout=30) for _ in range(2 * len(orders))]
        server.interrupt()
        server.process.wait(30)
        return ran, report, [(event["event"], event["id"]) for event in found]

    ran, report, happened = replay(*step)
    assert ran.returncode == 0, (ran.stderr, report)
    in_turn = [(event, identity) for identity in done["ids"] for event in ("goal", "finished")]
    assert happened == in_turn
    steps = report["steps"]
    assert (steps["steps"], steps["answered"], steps["missing"]) == (2 * len(orders), 2 * len(orders), 0), steps
    assert report["elapsed_s"] > 0.9
    # Two goals at the same time, and all of them without lock-step.
    ran, report, happened = replay(*step, "--in-flight", "2")
    assert ran.returncode == 0 and {identity for _, identity in happened[:2]} == set(done["ids"][:2]), happened
    _, _, happened = replay("--send-actions-as-client")
    assert [event for event, _ in happened[:3]] == ["goal"] * 3
    # A result that does not come in time is named, and the goals after it are sent.
    ran, report, _ = replay(*step, "--step-timeout", "0.1")
    assert ran.returncode == 3 and report["steps"]["missing"] > 0, report["steps"]
    assert "get_result/_service_event" in ran.stderr and "has none by action /count" in ran.stderr, ran.stderr
    # One that never comes does not stand for those after it.
    server = node(world, action="/count", lose=2)
    server.wait_for("ready")
    ran, report = play(world, bag, *step, "--step-timeout", "1")
    steps = report["steps"]
    assert ran.returncode == 3 and (steps["answered"], steps["missing"]) == (2 * len(orders) - 1, 1), steps
    server.interrupt()
    server.process.wait(30)
    for flags, reason in [
        (["--step-by", "action /count"], "no recorded goals of /count and requests of their results are sent again"),
        (["--send-actions-as-client", "--step-by", "action /other"], "no recorded goals of /other"),
        (["--step-by", "/a=action /count"], "so that it has no input"),
    ]:
        refused = world.run("play", bag, *flags)
        assert refused.returncode == 2 and reason in refused.stderr, refused.stderr


def test_flags_that_need_another_one_are_refused(world):
    told = world.run("play", "bag", "--fail-if-unanswered")
    assert told.returncode == 2 and "--publish-service-requests" in told.stderr
