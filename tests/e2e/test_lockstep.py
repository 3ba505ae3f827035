"""Lock-step replay against real rclpy nodes: filters, nodes that take a random time, that crash, that never answer; servers."""

import json
import os
import subprocess
import sys

import pytest
from conftest import Node, World
from mcap.reader import make_reader
from test_play import write_with_pip_mcap

COUNT = 60
# `HOLDALL_LOCKSTEP_RUNS=50` shows what the documentation says of a hundred runs.
RUNS = int(os.environ.get("HOLDALL_LOCKSTEP_RUNS", "2"))


@pytest.fixture(scope="module")
def drive(tmp_path_factory):
    """A bag of a drive: /imu, whose messages have a stamp, and /note beside it, at three times its rate."""
    world = World(tmp_path_factory.mktemp("drive"))
    talker = world.talker(
        {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": COUNT, "rate_hz": 50, "first": 1},
        {"topic": "/note", "type": "std_msgs/msg/String", "count": 3 * COUNT, "rate_hz": 150},
        wait_for_subscriptions=1,
    )
    talker.wait_for("ready")
    recorder = world.holdall("record", "-o", world.folder / "drive", "--topics", "/imu", "/note")
    talker.done()
    code, said = recorder.stop()
    assert code == 0, said
    world.close()
    return world.folder / "drive"


def start(world, **plan):
    node = world._keep(Node("under_test.py", {"input": "/imu", "output": "/filtered", **plan}, world.env))
    node.wait_for("ready")
    return node


def play(world, bag, *arguments, code=0):
    ran = world.run("play", bag, "--disable-keyboard-controls", "--json", "--timeout", "30", *arguments, timeout=120)
    assert ran.returncode == code, (ran.returncode, ran.stdout, ran.stderr)
    report = json.loads(ran.stdout)
    return report["steps"], report, ran.stderr


FAST = ["--pace", "listeners"]
STEP = ["--step-by", "/imu=/filtered"]


def run_often(world, drive, **plan):
    """Plays as fast as answers come, each second time beside three busy loops; the hashes of what was published and answered, and what the
    node's clock said at each answer."""
    for run in range(2 * RUNS):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * (run % 2))]
        try:
            node = start(world, delay_s=[0, 0.01], **plan)
            steps, report, _ = play(world, drive, *STEP, *FAST, "--clock", "200")
        finally:
            for process in busy:
                process.kill()
                process.wait()
        node.interrupt()
        times = node.done()["times"]
        assert (steps["steps"], steps["answered"], steps["missing"]) == (COUNT, COUNT, 0), steps
        assert report["published"] == 4 * COUNT and report["clock_published"] > COUNT
        answers = steps["answers"]["/filtered"]
        assert (answers["messages"], answers["unasked"]) == (COUNT, 0)
        assert steps["times_real_time"] > 0
        yield steps["published_sha256"], answers["sha256"], times


def test_runs_on_an_idle_and_on_a_busy_machine_publish_and_answer_the_same(world, drive):
    hashes = [run[:2] for run in run_often(world, drive)]
    assert len(set(hashes)) == 1, hashes


def test_a_node_that_reads_its_clock_is_at_most_a_step_behind(world, drive):
    # /clock is best effort, and an executor may see a message first that came after it.
    runs = list(run_often(world, drive, sim_time=True))
    assert len({published for published, _, _ in runs}) == 1, [run[:2] for run in runs]
    with open(next(drive.glob("*.mcap")), "rb") as stream:
        stamps = [message.log_time for _, _, message in make_reader(stream).iter_messages(topics=["/imu"])]
    for _, _, times in runs:
        # In the times of messages, one each 5 ms.
        behind = [(at, time, before, stamp) for at, (time, before, stamp) in enumerate(zip(times[1:], stamps, stamps[1:])) if not before - 5e6 < time <= stamp]
        assert len(times) == COUNT and not behind, behind
    late = sum(time <= stamp - 5e6 for _, _, times in runs for time, stamp in zip(times, stamps))
    print(f"{late} of {len(runs) * COUNT} answers at the time of the step before")


def test_the_pace_of_time_waits_for_answers_and_is_not_late(world, drive):
    start(world, delay_s=[0.03, 0.03])
    steps, report, _ = play(world, drive, *STEP)
    # 50 Hz in the bag, and at most 33 are answered in a second.
    assert steps["answered"] == COUNT and report["elapsed_s"] > 0.03 * COUNT
    assert steps["times_real_time"] < 0.9 and steps["answer_time"]["p50_s"] >= 0.03
    assert report["lateness"]["max_s"] < 0.03, report["lateness"]


@pytest.mark.parametrize("more", [["--in-flight", "4"], ["--step-by", "/imu=ack"], []])
def test_answers_count_where_there_are_no_stamps(world, drive, more):
    start(world, text=True, copies=2)
    steps, _, _ = play(world, drive, "--step-by", "/imu=/filtered:2", *more, *FAST)
    answers = steps["answers"]["/filtered"]
    assert (steps["answered"], steps["missing"], answers["messages"]) == (COUNT, 0, 2 * COUNT), steps


def test_acknowledgements_alone_step_all_topics(world, drive):
    topics = {"topic": "/imu", "type": "sensor_msgs/msg/Imu"}, {"topic": "/note", "type": "std_msgs/msg/String"}
    listener = world.listener(*topics, expect={"/imu": COUNT, "/note": 3 * COUNT})
    # The other one leaves with the last message, and may not acknowledge it.
    stays = world.listener(*topics)
    for started in (listener, stays):
        started.wait_for("ready")
    steps, _, _ = play(world, drive, "--step-by", "ack", *FAST)
    assert (steps["steps"], steps["answered"]) == (4 * COUNT, 4 * COUNT), steps
    received = listener.done()["received"]
    assert (received["/imu"]["count"], received["/note"]["count"]) == (COUNT, 3 * COUNT)


def test_a_node_that_acknowledges_nothing_ends_the_playback_with_a_sentence(world, drive):
    start(world, best_effort=True)
    steps, report, _ = play(world, drive, "--step-by", "/imu=ack", *FAST, code=1)
    assert (steps["answered"], steps["missing"]) == (0, 3), steps
    assert "has none by ack: no reliable subscription is matched" in report["failure"], report


def test_a_node_that_leaves_acknowledges_no_more(world, drive):
    start(world, leave_after=7)
    # Slowly, so that it is gone before the end.
    steps, report, _ = play(world, drive, "--step-by", "/imu=ack", "--rate", "0.5", code=1)
    assert steps["answered"] >= 7 and steps["missing"] == 3, steps
    assert "has none by ack: no reliable subscription is matched" in report["failure"], report


def test_answers_that_were_not_asked_for_are_counted(world, drive):
    start(world, early=3, copies=2, text=True)
    steps, _, _ = play(world, drive, "--step-by", "/imu=/filtered:1", *FAST)
    answers = steps["answers"]["/filtered"]
    assert steps["steps"] == COUNT and answers["unasked"] > 3, steps
    assert answers["earlier"] == 0, "they have no stamp"


def test_an_answer_with_an_earlier_stamp_is_counted_and_named(world, drive):
    start(world, stale=9)
    steps, _, _ = play(world, drive, *STEP, *FAST, "--step-timeout", "0.5", code=3)
    answers = steps["answers"]["/filtered"]
    assert (steps["answered"], steps["missing"]) == (COUNT - 1, 1), steps
    assert (answers["messages"], answers["unasked"], answers["earlier"]) == (COUNT, 1, 1), answers
    assert steps["first_missing"].endswith("has none by /filtered: what came while it waited has an earlier stamp (1 message)"), steps


def test_a_node_that_never_answers_ends_the_playback_with_a_sentence(world, drive):
    start(world, mute_after=5)
    steps, report, said = play(world, drive, *STEP, *FAST, "--step-timeout", "0.5", code=1)
    assert (steps["answered"], steps["missing"]) == (5, 3), steps
    assert "too many answers in a row did not come" in report["failure"] and "of /imu at" in steps["first_missing"], report
    assert said.count("has none by /filtered") == 3, said


def test_one_missing_answer_is_counted_named_and_worth_code_3(world, drive):
    start(world, skip=9)
    steps, report, _ = play(world, drive, *STEP, *FAST, "--step-timeout", "0.5", code=3)
    assert (steps["answered"], steps["missing"]) == (COUNT - 1, 1), steps
    assert steps["first_missing"].startswith("message 9 that waits for an answer, of /imu at"), steps


@pytest.mark.parametrize("how", ["leave_after", "crash_after"])
def test_a_node_that_dies_ends_the_playback_with_a_sentence(world, drive, how):
    start(world, **{how: 7})
    steps, report, _ = play(world, drive, *STEP, *FAST, "--step-timeout", "1", code=1)
    assert steps["answered"] == 7, steps
    said = report["failure"]
    assert "the last publisher of /filtered is gone" in said or "did not come" in said, said
    if how == "leave_after":
        assert "the last publisher of /filtered is gone, after 7 answers" in said, said


def test_each_request_waits_for_its_reply(world):
    from test_replay import CALLS, bag_of_calls, node, requests_of

    bag = bag_of_calls(world)
    server = node(world, serve="/twice")
    server.wait_for("ready")
    rule = ["--publish-service-requests", "--step-by", "service /twice"]
    steps, report, _ = play(world, bag, *rule, *FAST)
    assert (steps["steps"], steps["answered"]) == (len(CALLS), len(CALLS)), report
    assert requests_of(server, len(CALLS)) == CALLS
    refused = world.run("play", bag, "--step-by", "service /twice")
    assert refused.returncode == 2 and "no recorded requests of /twice are sent again" in refused.stderr, refused.stderr


def test_a_lost_reply_is_one_missing_answer(world):
    from test_replay import CALLS, bag_of_calls, node, requests_of

    bag = bag_of_calls(world)
    server = node(world, serve="/twice", lose=2)
    server.wait_for("ready")
    rule = ["--publish-service-requests", "--step-by", "service /twice", "--step-timeout", "1"]
    steps, report, _ = play(world, bag, *rule, *FAST, code=3)
    assert (steps["steps"], steps["answered"], steps["missing"]) == (len(CALLS), len(CALLS) - 1, 1), steps
    assert steps["first_missing"].startswith("message 2 that waits for an answer, of /twice at"), steps
    assert report["failure"] is None and requests_of(server, len(CALLS)) == CALLS


def test_a_server_that_leaves_ends_the_playback_with_a_sentence(world):
    from test_replay import bag_of_calls, node

    bag = bag_of_calls(world, [[number, ""] for number in range(20)])
    server = node(world, serve="/twice", leave_after=2)
    server.wait_for("ready")
    # Slowly, so that it is gone before the end.
    rule = ["--publish-service-requests", "--step-by", "service /twice", "--rate", "0.2"]
    steps, report, _ = play(world, bag, *rule, code=1)
    assert steps["answered"] >= 2 and steps["missing"] == 3, steps
    assert "has none by service /twice: it has no server" in report["failure"], report


def test_a_server_is_waited_for_and_named(world):
    from test_replay import CALLS, bag_of_calls, node, requests_of

    rule = ["--disable-keyboard-controls", "--publish-service-requests", "--step-by", "service /twice", *FAST]
    bag = bag_of_calls(world)
    ran = world.run("play", bag, *rule, "--timeout", "1")
    assert ran.returncode == 1 and "after 1 s service /twice has no server" in ran.stdout + ran.stderr, ran
    player = world.holdall("play", bag, *rule)
    # After more time than servers have that no step waits for.
    player.wait_until_says("playback waits, because service /twice has no server")
    server = node(world, serve="/twice")
    code, said = player.wait()
    assert code == 0 and requests_of(server, len(CALLS)) == CALLS, said


def test_messages_of_one_time_keep_the_order_of_bags_and_files(world):
    for name, topics in (("one", ["/a", "/b"]), ("two", ["/c", "/a"])):
        write_with_pip_mcap(world.folder / f"{name}.mcap", {topic: [(10**18 + i // 3, f"{name}{i}") for i in range(9)] for topic in topics})
    listener = world.listener(*({"topic": topic, "type": "std_msgs/msg/String"} for topic in ("/a", "/b", "/c")))
    listener.wait_for("ready")
    bags = [world.folder / "one.mcap", world.folder / "two.mcap"]
    rule = ["--step-by", "ack", *FAST]
    hashes = [play(world, bags[0], bags[1], *rule)[0]["published_sha256"] for _ in range(2)]
    assert len(set(hashes)) == 1
    turned = play(world, bags[1], bags[0], *rule)[0]["published_sha256"]
    assert turned != hashes[0], "the first bag comes first"


def test_what_cannot_answer_is_refused_or_named(world, drive):
    for rule, reason in [
        ("/imu=/note", "/note is played itself"),
        ("/nowhere=/out", "/nowhere is not played"),
        ("/imu=/out:0", "a number above 0"),
    ]:
        ran = world.run("play", drive, "--step-by", rule)
        assert ran.returncode == 2 and reason in ran.stderr, ran.stderr
    ran = world.run("play", drive, "--step-by", "/imu=/out", "--timeout", "1")
    assert ran.returncode == 1 and "0 of 1 subscriptions to /imu exist" in ran.stdout + ran.stderr, ran.stdout + ran.stderr
