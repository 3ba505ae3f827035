"""`preflight` and `record --preflight` with real nodes: what a trial finds, what it leaves, what it answers. How exact a forecast is, is measured by
scripts/bench-preflight.py."""

import json
import os
import re
import sys
import time

STRING = "std_msgs/msg/String"
# No disk lasts for this long, so the answer is no whatever else runs on the machine.
TOO_LONG = "1000000h"


def nodes(world):
    node = world.talker(
        {"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": None, "rate_hz": 100},
        {"topic": "/blob", "type": "std_msgs/msg/UInt8MultiArray", "size": 500_000, "count": None, "rate_hz": 20, "qos": {"reliability": "best_effort"}},
        wait_for_subscriptions=0,
    )
    node.wait_for("ready")
    return node


def trial(world, ready, *flags):
    """A trial that has found what the test needs: on a busy machine a node may say nothing for as long as a short one takes."""
    end = time.monotonic() + 60
    while True:
        reply = world.run("preflight", *flags)
        if ready(reply) or time.monotonic() > end:
            return reply


def has_messages(reply):
    return reply.returncode in (0, 3) and "no message came" not in reply.stdout


def rows(shown):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).splitlines()


def test_a_trial_measures_the_live_system_and_leaves_nothing(world):
    nodes(world)
    folder = world.folder / "disk"
    folder.mkdir()
    reply = trial(world, has_messages, "-a", "--duration", "3", "--for", "1s", "-o", folder / "bag", "--json")
    found = json.loads(reply.stdout)
    # Other programs may keep the processors busy: then the answer is no, and has its reason.
    assert reply.returncode == (0 if found["fits"] else 3), reply.stderr
    assert found["fits"] or any(problem["loses"] for problem in found["problems"])
    assert not list(folder.iterdir()), "the scratch bag and the probe are removed"
    topics = {topic["name"]: topic for topic in found["measured"]["topics"]}
    imu, blob = topics["/imu"], topics["/blob"]
    assert imu["type"] == "sensor_msgs/msg/Imu" and imu["publishers"] == 1 and imu["is_reliable"]
    assert not blob["is_reliable"] and blob["bytes_max"] > 500_000 and blob["burst_bytes"] >= blob["bytes_max"]
    for topic in (imu, blob):
        assert topic["messages"] > 0 and topic["hz"] > 0 and topic["period_max_s"] > 0
        assert abs(topic["bytes_per_s"] * found["measured"]["span_s"] / topic["bytes"] - 1) < 1e-6
    assert found["costs"][0]["name"] == "/blob"
    assert {limit["kind"] for limit in found["limits"]} >= {"disk", "processors", "writing_thread"}
    assert found["margin"] == min(limit["margin"] for limit in found["limits"])
    assert found["measured"]["disk"]["folder"] == str(folder) and len(found["measured"]["disk"]["write_bytes_per_s"]) == 3


def test_processors_that_other_programs_keep_busy_are_no_reason_for_a_no(world):
    nodes(world)
    loops = [world.program([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    reply = trial(world, lambda reply: has_messages(reply) and not lost_in(reply), "--topics", "/imu", "--duration", "3", "-o", world.folder / "bag", "--json")
    assert all(loop.process.poll() is None for loop in loops)
    found = json.loads(reply.stdout)
    limits = {limit["kind"]: limit for limit in found["limits"]}
    assert found["measured"]["machine"]["busy_processors"] > 0.6 * len(loops), "the test itself"
    assert limits["processors"]["margin"] >= 1 and not lost_in(reply), found
    assert not [problem for problem in found["problems"] if problem["loses"] and "processors" in problem["sentence"]], found["problems"]


def lost_in(reply):
    total = json.loads(reply.stdout)["measured"]["total"] if reply.stdout.startswith("{") else {}
    return total.get("lost_in_transit", 0) + total.get("lost_after_arrival", 0)


def test_a_disk_that_does_not_last_makes_the_answer_no(world):
    nodes(world)
    reply = trial(world, has_messages, "--topics", "/imu", "--duration", "2", "--for", TOO_LONG, "-o", world.folder / "bag")
    assert reply.returncode == 3, reply.stdout + reply.stderr
    assert re.search(r"✗ the bag will need .* and .* are free", reply.stdout.replace("\n  ", " ")), reply.stdout
    assert "Messages will be missing" in reply.stdout
    assert "/imu" in reply.stdout and "/blob" not in reply.stdout
    assert all(len(line) < 80 for line in reply.stdout.splitlines() if "sudo" not in line), reply.stdout
    assert not (world.folder / "bag").exists()


def test_silence_is_no_yes_and_wrong_flags_are_refused(world):
    reply = world.run("preflight", "--topics", "/nothing", "--duration", "1", "-o", world.folder / "bag")
    assert reply.returncode == 3 and "no message came" in reply.stdout, reply.stdout + reply.stderr
    for flags, reason in ((("--duration", "0.2"), "too short"), ((), "-a")):
        reply = world.run("preflight", *flags, *(("-a",) if flags else ()))
        assert reply.returncode == 2 and reason in reply.stderr, reply.stderr


def test_the_report_fits_terminals(world, terminal):
    nodes(world)
    for columns in (40, 200):
        shown = terminal("preflight", "-a", "--duration", "1", "-o", world.folder / "bag", columns=columns)
        assert shown.wait() in (0, 3)
        lines = rows(shown.text)
        assert all(len(line) <= columns for line in lines if "sudo" not in line), lines
        assert any("Messages will be missing" in line or "It fits" in line for line in lines), lines


def test_a_recording_asks_when_the_answer_is_no(world, terminal):
    nodes(world)
    for answer, is_recorded in (("n", False), ("y", True)):
        bag = world.folder / answer
        shown = terminal("record", "--topics", "/imu", "-o", bag, "--preflight", "1", "--max-recording-duration", TOO_LONG)
        shown.wait_until_shows("Record anyway? [y/N]")
        assert "Messages will be missing" in shown.text and not bag.exists()
        assert "recording /imu" not in shown.text
        shown.type(f"{answer}\n")
        if is_recorded:
            shown.wait_until_shows("recording /imu")
            shown.interrupt()
        assert shown.wait() == 0
        assert bag.exists() == is_recorded


def test_a_recording_without_a_terminal_begins_in_any_case(world):
    nodes(world)
    bag = world.folder / "bag"
    recorder = world.holdall("record", "--topics", "/imu", "-o", bag, "--preflight", "1", "--max-recording-duration", TOO_LONG)
    recorder.wait_until_says("without a terminal, nothing can be asked")
    recorder.wait_until_says("recording /imu")
    code, said = recorder.stop()
    assert code == 0, said
    assert bag.exists() and "Messages will be missing" in said


def test_a_trial_that_is_interrupted_leaves_nothing(world):
    nodes(world)
    folder = world.folder / "disk"
    folder.mkdir()
    program = world.holdall("preflight", "-a", "--duration", "600", "-o", folder / "bag")
    end = time.monotonic() + 60
    while not list(folder.iterdir()):
        assert time.monotonic() < end, "the trial did not begin"
    code, said = program.stop()
    assert code == 1 and "ended before it had measured anything" in said, said
    assert not list(folder.iterdir())
