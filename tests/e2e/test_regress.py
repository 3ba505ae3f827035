"""Suites run against real rclpy nodes: what passes, what differs, what cannot be run; JUnit, the page, golden bags."""

import json
import os
import re
import signal
import struct
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from conftest import DEADLINE_S, NODES, messages_of
from mcap.reader import make_reader
from test_episodes import ask, more_messages
from test_lockstep import COUNT, drive  # noqa: F401

NODE = NODES / "under_test.py"


def command(folder, name, **plan):
    """A line that starts the node under test."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"input": "/imu", "output": "/filtered", **plan}))
    return f"exec {sys.executable} {NODE} {path}"


def write_suite(world, bag, cases):
    """A suite of cases: for each the plan of the node, and what else its case has."""
    folder = world.folder / "suite"
    folder.mkdir(exist_ok=True)
    entries = {name: {"command": command(folder, name, **plan), **more} for name, (plan, more) in cases.items()}
    play = {"step-by": ["/imu=/filtered"], "pace": "listeners", "clock": 100, "topics": ["/imu"]}
    defaults = {"bag": str(bag), "outputs": ["/filtered"], "play": play, "limit": 60}
    (folder / "suite.yaml").write_text(json.dumps({"version": 1, "defaults": defaults, "cases": entries}))
    return folder / "suite.yaml"


def regress(world, suite, *arguments, code=0):
    ran = world.run("regress", suite, "-o", world.folder / "results", "--first-domain", world.env["ROS_DOMAIN_ID"], "-j", "1", *arguments, timeout=5 * DEADLINE_S)
    assert ran.returncode == code, (ran.returncode, ran.stdout, ran.stderr, logs(world))
    return ran


def logs(world):
    return {str(path.relative_to(world.folder)): path.read_text()[-2000:] for path in (world.folder / "results").rglob("*.log")}


def result(world, case):
    return json.loads((world.folder / "results" / case / "result.json").read_text())


def test_outputs_become_golden_and_changed_software_is_found(world, drive):  # noqa: F811
    golden = {"golden": "golden/filter"}
    suite = write_suite(world, drive, {"filter": ({}, golden)})
    ran = regress(world, suite, code=4)
    assert "the golden bag does not exist yet" in ran.stdout
    assert "is its golden bag" in regress(world, suite, "--update-golden").stdout
    assert len(messages_of(suite.parent / "golden" / "filter")["/filtered"]) == COUNT
    ran = regress(world, suite)
    assert re.search(r"passed  filter .* times real time", ran.stdout), ran.stdout
    topics = result(world, "filter")["topics"]["/filtered"]
    assert (topics["golden"], topics["found"], topics["different"]) == (COUNT, COUNT, 0)
    # New software: another gain, and one message that is not answered.
    tolerances = {"tolerances": {"/filtered": {"angular_velocity": 0.5}}}
    wide = {"play": {"step-by": ["ack"], "pace": "listeners", "topics": ["/imu"]}}
    suite = write_suite(
        world,
        drive,
        {
            "filter": ({"gain": 1.1}, golden),
            "near": ({"gain": 1.1}, {**golden, **tolerances}),
            "short": ({"skip": 9}, {**golden, **wide, "tolerances": {"/filtered": {"orientation": "any"}}}),
        },
    )
    ran = regress(world, suite, code=4)
    assert re.search(rf"FAILED  filter .*\n +/filtered: \d+ of {COUNT} differ, the first in angular_velocity.z: ", ran.stdout), ran.stdout
    assert "passed  near" in ran.stdout and re.search(rf"FAILED  short .*\n +/filtered: 1 of {COUNT} messages missing\n", ran.stdout), ran.stdout
    assert "1 passed, 2 failed, 0 could not be run" in ran.stdout
    distances = result(world, "near")["topics"]["/filtered"]["distances"]
    assert 0 < distances["angular_velocity.z"]["largest"] < 0.5 and len(distances["angular_velocity.z"]["values"]) == COUNT
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    assert (tree.get("tests"), tree.get("failures"), tree.get("errors")) == ("3", "2", "0")
    assert [case.get("name") for case in tree.iter("testcase") if case.find("failure") is not None] == ["filter", "short"]
    page = (world.folder / "results" / "index.html").read_text()
    assert "<polyline" in page and 'id="near"' in page


def test_conditions_and_contracts_judge_outputs(world, drive):  # noqa: F811
    suite = write_suite(
        world,
        drive,
        {
            "true": ({}, {"must": ["/filtered: header.frame_id == 'imu'"], "contract": "rules.yaml"}),
            "false": ({}, {"must": ["/filtered: orientation.x < 10"]}),
            "silent": ({}, {"must": ["/other: data == ''"], "outputs": ["/filtered", "/other"], "ready": {"topics": ["/filtered"], "nodes": ["/under_test"]}}),
        },
    )
    (suite.parent / "rules.yaml").write_text("version: 1\ntopics:\n  /filtered:\n    type: sensor_msgs/msg/Imu\n")
    ran = regress(world, suite, "--json", code=4)
    found = {case["case"]: case for case in json.loads(ran.stdout)}
    assert found["true"]["outcome"] == "passed", found["true"]["problems"]
    assert "orientation.x < 10" in found["false"]["problems"][0], found["false"]["problems"]
    assert found["silent"]["outcome"] == "failed" and "/other" in found["silent"]["problems"][0], found["silent"]
    assert found["true"]["play"]["steps"]["answered"] == COUNT


@pytest.mark.parametrize(
    "plan, more, said",
    [
        ({"crash_after": 5}, {}, "the software has ended with exit code 11 while the bag was played"),
        ({"mute_after": 5}, {"play": {"step-timeout": "0.5"}}, "too many answers in a row did not come"),
        ({"output": "/elsewhere"}, {"ready": {"topics": ["/filtered"], "nodes": ["/missing"], "within": 3}}, "not ready within 3 s: no node /missing, no publisher of /filtered"),
        ({"output": 5}, {}, "before it was ready"),
        ({"delay_s": [1, 1]}, {"limit": 10}, "the time limit of the case was reached"),
        ({"crash_after": COUNT - 1}, {"play": {"step-by": ["ack"]}}, "the software has ended with exit code 11"),
        (
            {},
            {"outputs": ["/filtered", "/note"], "ready": {"topics": ["/filtered"]}, "play": {"topics": ["/imu", "/note"]}},
            "/note is an output, but the bag plays it, too",
        ),
    ],
    ids=["crash", "mute", "absent", "broken", "slow", "last", "own"],
)
def test_what_cannot_be_run_is_an_error_with_a_sentence(world, drive, plan, more, said):  # noqa: F811
    suite = write_suite(world, drive, {"one": (plan, {"golden": "golden/one", **more})})
    ran = regress(world, suite, code=1)
    assert said in ran.stdout, (ran.stdout, logs(world))
    refused = regress(world, suite, "--update-golden", code=1)
    assert "the golden bag stays" in refused.stderr
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    assert tree.get("errors") == "1"


def test_a_golden_bag_without_messages_proves_nothing(world, drive):  # noqa: F811
    suite = write_suite(world, drive, {"one": ({"mute_after": 0}, {"golden": "golden/one", "play": {"step-by": ["ack"]}})})
    regress(world, suite, code=4)
    regress(world, suite, "--update-golden")
    ran = regress(world, suite, code=4)
    assert "neither the golden bag nor the outputs have a message to compare" in ran.stdout, ran.stdout


def test_cases_run_side_by_side_in_domains_of_their_own(world, drive):  # noqa: F811
    must = {"must": ["/filtered: orientation.x > 0"]}
    suite = write_suite(world, drive, {f"case{number}": ({"delay_s": [0, 0.01]}, must) for number in range(4)})
    regress(world, suite, "-j", "2")
    answers = [result(world, f"case{number}")["play"]["steps"]["answers"]["/filtered"] for number in range(4)]
    assert len({answer["sha256"] for answer in answers}) == 1 and answers[0]["messages"] == COUNT


def stamp(data):
    """The stamp in the header of a serialized message."""
    return struct.unpack_from("<iI", data, 4)


def with_episodes(world):
    """A bag with two episodes of /imu."""
    talker = world.talker({"topic": "/imu", "type": "sensor_msgs/msg/Imu", "count": None, "rate_hz": 100, "first": 1})
    talker.wait_for("ready")
    recorder = world.holdall("record", "--topics", "/imu", "-o", world.folder / "lab", "--control-socket", world.folder / "s")
    recorder.wait_until_says("Listening for topics...")
    for task in ("pick", "place"):
        more_messages(world, 20)
        ask(world, "start", f"task={task}")
        more_messages(world, 20)
        ask(world, "stop")
    more_messages(world, 20)
    assert recorder.stop()[0] == 0
    talker.interrupt()
    talker.process.wait(30)
    return world.folder / "lab"


def inputs(bag, begin, end):
    """Stamps of the messages on /imu between two times of receipt, as pip mcap reads them."""
    with open(next(bag.glob("*.mcap")), "rb") as stream:
        return [stamp(message.data) for _, _, message in make_reader(stream).iter_messages(topics=["/imu"]) if begin <= message.log_time <= end]


def test_ten_cases_with_parts_of_bags_other_names_and_other_qos_run_side_by_side(world, drive):  # noqa: F811
    lab, must = with_episodes(world), {"must": ["/filtered: orientation.x > 0"]}
    durability, step = "{durability: transient_local}", {"step-by": ["/imu=/filtered"]}
    overrides = world.folder / "qos.yaml"
    overrides.write_text("/imu:\n  durability: transient_local\n")
    cases = {
        "whole": ({}, must),
        "late": ({"delay_s": [0, 0.02]}, must),
        "window": ({}, {**must, "play": {"start": 0.4, "end": 0.8}}),
        "episode": ({}, {**must, "bag": str(lab), "play": {"episode": 2}}),
        "renamed": ({"input": "/imu_raw"}, {**must, "play": {"remap": ["/imu:=/imu_raw"], "step-by": ["/imu_raw=/filtered"]}}),
        "latched": ({"latched": True}, {**must, "play": {"qos-override": f"/imu: {durability}"}}),
        "file": ({"latched": True}, {**must, "play": {"qos-profile-overrides-path": str(overrides)}}),
        "deaf": ({"latched": True}, {**must, "play": {**step, "step-timeout": 0.5}}),
        "wrong": ({}, {"must": ["/filtered: orientation.x < 10"]}),
        "crash": ({"crash_after": 5}, must),
    }
    ran = regress(world, write_suite(world, drive, cases), "-j", "2", "--json", code=1)
    found = {case["case"]: case for case in json.loads(ran.stdout)}
    passed = ["whole", "late", "window", "episode", "renamed", "latched", "file"]
    wanted = {**dict.fromkeys(passed, "passed"), "deaf": "error", "wrong": "failed", "crash": "error"}
    assert {name: case["outcome"] for name, case in found.items()} == wanted, ([case["problems"] for case in found.values()], logs(world))
    tree = ElementTree.parse(world.folder / "results" / "junit.xml").getroot()
    assert (tree.get("tests"), tree.get("failures"), tree.get("errors")) == ("10", "1", "2")
    assert [case.get("name") for case in tree.iter("testcase")] == list(cases)
    # Each part of a bag, as a foreign reader finds it.
    with open(next(drive.glob("*.mcap")), "rb") as stream:
        first = min(message.log_time for _, _, message in make_reader(stream).iter_messages())
    episode = world.info(lab)["episodes"][1]
    answered = {name: [stamp(data) for data in messages_of(world.folder / "results" / name / "outputs")["/filtered"]] for name in passed}
    assert answered["window"] == inputs(drive, first + 400_000_000, first + 800_000_000) and 10 < len(answered["window"]) < 30
    assert answered["episode"] == inputs(lab, episode["start_ns"], episode["end_ns"]) and len(answered["episode"]) >= 20
    for name in ("whole", "late", "renamed", "latched", "file"):
        assert answered[name] == inputs(drive, 0, 2**63), name


def start_slow_case(world, drive):  # noqa: F811
    """The program with a case that takes long, once the software runs, and the number of the software's process."""
    suite = write_suite(world, drive, {"one": ({"delay_s": [0.5, 0.5]}, {"golden": "golden/one"}), "two": ({}, {"golden": "golden/two"})})
    running = world.holdall("regress", suite, "-o", world.folder / "results", "--first-domain", world.env["ROS_DOMAIN_ID"], "-j", "1")
    log = world.folder / "results" / "one" / "software.log"
    wait_until(lambda: log.exists() and "ready" in log.read_text(), running)
    software = int((world.folder / "results" / "one" / "software.pid").read_text())
    assert runs(software)
    return running, software


def wait_until(condition, running):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, running.lines
        time.sleep(0.05)


def runs(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_ctrl_c_ends_what_runs(world, drive):  # noqa: F811
    running, software = start_slow_case(world, drive)
    code, said = running.stop(signal.SIGINT)
    assert code == 1 and "ended by a signal" in said, said
    assert not runs(software)


def test_the_software_of_a_run_that_was_killed_is_ended(world, drive):  # noqa: F811
    running, software = start_slow_case(world, drive)
    (run,) = {child for file in Path(f"/proc/{running.process.pid}/task").glob("*/children") for child in file.read_text().split()}
    os.kill(int(run), signal.SIGKILL)
    running.wait_until_says("the run has left no result (signal: 9")
    wait_until(lambda: not runs(software), running)
    running.stop(signal.SIGINT)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"outputs": []}, "outputs has no topic"),
        ({"bag": "nowhere"}, "nowhere: no such file or directory"),
        ({"golden": None}, "nothing is compared"),
        ({"play": {"paec": "time"}}, "play has no flag --paec"),
        ({"play": {"step-by": "/a b"}}, "not a valid topic name"),
        ({"play": {"max-lateness": 1}}, "--max-lateness has no effect"),
        ({"play": {"migrate": "nowhere.yaml", "distro": "kilted"}}, "nowhere.yaml"),
        ({"limit": 1e18}, "expected seconds"),
        ({"must": ["/filtered: ("]}, "must"),
        ({"contract": "none.yaml"}, "none.yaml"),
        ({"tolerances": {"/filtered": {"x": "much"}}}, "not a tolerance"),
    ],
)
def test_a_suite_that_makes_no_sense_is_refused_before_anything_runs(world, drive, change, reason):  # noqa: F811
    suite = write_suite(world, drive, {"one": ({}, {"golden": "golden/one", **change})})
    ran = regress(world, suite, code=2)
    assert reason in ran.stderr and not (world.folder / "results" / "one").exists(), ran.stderr


def test_what_is_not_a_case_or_its_results_is_left_unchanged(world, drive):  # noqa: F811
    suite = write_suite(world, drive, {"one": ({}, {"golden": "golden/one"})})
    assert "it has no case other" in regress(world, suite, "--case", "other", code=2).stderr
    notes = world.folder / "results" / "one" / "notes"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    assert "does not hold the results of a case" in regress(world, suite, code=2).stderr
    assert notes.read_text() == "mine"
