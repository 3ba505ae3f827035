"""Contracts over bags that pip rosbags wrote: the writer's own list says which rule is broken, when, and on which topic."""

import json
import random
import subprocess

import imageio_ffmpeg
import pytest
import yaml
from conftest import HOLDALL
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore
from test_examples import TOOLS, alone

START = 1_700_000_000_000_000_000
SECOND = 1_000_000_000
LENGTH_S = 40
STORE = get_typestore(Stores.ROS2_JAZZY)
TYPE = STORE.types

CONTRACT = """
version: 1
topics:
  /points:
    required: true
    type: geometry_msgs/msg/PointStamped
    rate: {min: 14, max: 26, window: 4s}
    gap: 500ms
    jump: 100ms
    drift: {ppm: 25, window: 12s}
    frozen: 8
    non_finite: 0
    never: "point.z > 100"
    frame: base
  /camera: {image: {encoding: mono8, width: 24, height: 16, black: 95%}}
bag:
  tf: {connected: [map, base], timeout: 1s}
"""


def holdall(*arguments, code=0):
    done = subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def header(time, frame):
    return TYPE["std_msgs/msg/Header"](TYPE["builtin_interfaces/msg/Time"](time // SECOND, time % SECOND), frame)


def transform(time, parent, child):
    zero, one = TYPE["geometry_msgs/msg/Vector3"](0.0, 0.0, 0.0), TYPE["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0, 1.0)
    of = TYPE["geometry_msgs/msg/TransformStamped"]
    return of(header(time, parent), child, TYPE["geometry_msgs/msg/Transform"](zero, one))


def write(path, fault=None, seed=0):
    """Writes a bag with a fault from 12 s on; returns when the first wrong message or the first missing one is."""
    import numpy as np

    rng, begin, frozen = random.Random(seed), None, None
    point_type = "geometry_msgs/msg/Vector3Stamped" if fault == "type" else "geometry_msgs/msg/PointStamped"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        points = writer.add_connection("/points", point_type, typestore=STORE)
        camera = writer.add_connection("/camera", "sensor_msgs/msg/Image", typestore=STORE)
        tf = writer.add_connection("/tf", "tf2_msgs/msg/TFMessage", typestore=STORE)
        for number in range(LENGTH_S * 20):
            time = START + number * SECOND // 20 + rng.randrange(5_000_000)
            since = time - START - 12 * SECOND
            is_faulty = 0 <= since < (1 if fault == "gap" else 12) * SECOND or (fault in ("drift", "jump") and since >= 0)
            if is_faulty and begin is None and fault not in ("black", "tf"):
                begin = time
            is_left_out = is_faulty and (fault == "gap" or (fault == "rate" and number % 2))
            stamp, x = time - 2_000_000 - rng.randrange(200_000), rng.random()
            if is_faulty and fault == "drift":
                stamp += since * 50 // 1_000_000
            if is_faulty and fault == "jump":
                stamp += SECOND // 2
            if is_faulty and fault == "frozen":
                frozen = frozen or x
                x = frozen
            if is_faulty and fault == "nan":
                x = float("nan")
            kind = "geometry_msgs/msg/Vector3" if fault == "type" else "geometry_msgs/msg/Point"
            z = 101.0 if is_faulty and fault == "never" else 1.0
            frame = "lidar" if is_faulty and fault == "frame" else "base"
            message = TYPE[point_type](header(stamp, frame), TYPE[kind](x, rng.random() if fault == "nan" else -x, z))
            if not is_left_out:
                writer.write(points, time, STORE.serialize_cdr(message, point_type))
            if number % 4 == 0:
                high = 4 if is_faulty and fault == "black" else 200
                pixels = np.array([rng.randrange(high) if high == 4 else 20 + rng.randrange(high) for _ in range(24 * 16)], dtype=np.uint8)
                if high == 4 and begin is None:
                    begin = time + 1
                image = TYPE["sensor_msgs/msg/Image"](header(time, "cam"), 16, 24, "mono8", 0, 24, pixels)
                writer.write(camera, time + 1, STORE.serialize_cdr(image, "sensor_msgs/msg/Image"))
            if number % 2 == 0:
                edges = [transform(time, "map", "odom")]
                if is_faulty and fault == "tf":
                    begin = begin or last + SECOND
                else:
                    edges.append(transform(time, "odom", "base"))
                    last = time + 2
                message = TYPE["tf2_msgs/msg/TFMessage"](edges)
                writer.write(tf, time + 2, STORE.serialize_cdr(message, "tf2_msgs/msg/TFMessage"))
    return START if fault == "type" else begin


# The fault, the rule that it breaks, and the span after which that is seen at the latest.
FAULTS = [
    ("rate", "rate", 5.0), ("gap", "gap", 1.0), ("jump", "jump", 0.1), ("drift", "drift", 13.0), ("frozen", "frozen", 1.0),
    ("nan", "non_finite", 0.1), ("never", "never", 0.1), ("frame", "frame", 0.1), ("black", "image", 0.3), ("tf", "tf", 0.3), ("type", "type", 0.1),
]  # fmt: skip


@pytest.fixture
def contract(tmp_path):
    path = tmp_path / "robot.yaml"
    path.write_text(CONTRACT)
    return path


def test_a_good_bag_passes_and_a_contract_that_was_learned_from_it_does_too(tmp_path, contract):
    write(tmp_path / "good")
    verdict = json.loads(holdall("check", tmp_path / "good", "--contract", contract, "--json"))["contract"]
    assert verdict["outcome"] == "passed" and not verdict["violations"], verdict
    learned = tmp_path / "learned.yaml"
    learned.write_text(holdall("contract", "init", tmp_path / "good"))
    verdict = json.loads(holdall("check", tmp_path / "good", "--contract", learned, "--json"))["contract"]
    # The bag has no account of losses.
    assert {(rule["kind"], rule["outcome"]) for rule in verdict["rules"] if rule["outcome"] != "passed"} == {("losses", "unknown")}, verdict
    write(tmp_path / "slow", "rate", 1)
    holdall("check", tmp_path / "slow", "--contract", learned, code=4)


@pytest.mark.parametrize(("fault", "kind", "within_s"), FAULTS, ids=[fault for fault, _, _ in FAULTS])
def test_a_fault_breaks_its_rule_at_its_time_and_no_other(tmp_path, contract, fault, kind, within_s):
    begin = write(tmp_path / "bag", fault, len(fault))
    found = json.loads(holdall("check", tmp_path / "bag", "--contract", contract, "--json", code=4))
    assert found["sound"]
    verdict = found["contract"]
    assert {rule["kind"] for rule in verdict["rules"] if rule["outcome"] == "failed"} == {kind}, verdict
    first = verdict["violations"][0]
    assert begin - 1 <= first["since_ns"] <= begin + within_s * SECOND, (begin, first)
    text = holdall("check", tmp_path / "bag", "--contract", contract, code=4)
    assert "contract failed" in text


@pytest.mark.parametrize("verb", [("convert", "-s", "sqlite3"), ("filter", "--topics", "/points", "/camera", "/tf"), ("merge",)], ids=lambda verb: verb[0])
def test_a_copy_has_the_same_violations(tmp_path, contract, verb):
    write(tmp_path / "bag", "gap")
    holdall(verb[0], tmp_path / "bag", "-o", tmp_path / "copy", *verb[1:])
    violations = [json.loads(holdall("check", tmp_path / bag, "--contract", contract, "--json", code=4))["contract"]["violations"] for bag in ("bag", "copy")]
    assert violations[0] == violations[1] != []


def test_explain_test_lint_and_schema(tmp_path, contract):
    for bag, fault in (("good", None), ("bad", "gap")):
        write(tmp_path / bag, fault)
    assert "/points: no longer than 500 ms between two messages" in holdall("contract", "explain", contract).splitlines()
    tried = [json.loads(line) for line in holdall("contract", "test", contract, tmp_path / "good", tmp_path / "bad", "--json").splitlines()]
    assert [row["verdict"]["outcome"] for row in tried] == ["passed", "failed"]
    assert "never has no reason" in holdall("contract", "lint", contract, code=1)
    assert json.loads(holdall("contract", "schema"))["properties"]["topics"]


def test_a_contract_without_rules_is_refused_by_each_verb(tmp_path, contract):
    contract.write_text("version: 1\ntopics: {}\n")
    write(tmp_path / "bag")
    for words in (["record", "-a", "-o", tmp_path / "new"], ["check", tmp_path / "bag"]):
        done = subprocess.run([HOLDALL, *map(str, words), "--contract", contract], capture_output=True, text=True, timeout=120)
        assert done.returncode == 2 and "robot.yaml: line 1: the contract has no rules" in done.stderr, done
    assert not (tmp_path / "new").exists()
    holdall("contract", "lint", contract, code=2)


@pytest.fixture(scope="module")
def jpeg(tmp_path_factory):
    """A JPEG of real ffmpeg."""
    path = tmp_path_factory.mktemp("jpeg") / "image.jpg"
    source = ["-f", "lavfi", "-i", "testsrc=size=320x200", "-frames:v", "1"]
    subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", *source, path], check=True)
    return path.read_bytes()


def test_images_in_files_and_trees_of_several_robots_are_judged(tmp_path, contract, jpeg):
    import numpy as np

    with Writer(tmp_path / "bag", version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        camera = writer.add_connection("/camera", "sensor_msgs/msg/CompressedImage", typestore=STORE)
        trees = {robot: writer.add_connection(f"/{robot}/tf", "tf2_msgs/msg/TFMessage", typestore=STORE) for robot in ("one", "two")}
        for number in range(100):
            time = START + number * SECOND // 10
            image = TYPE["sensor_msgs/msg/CompressedImage"](header(time, "cam"), "jpeg", np.frombuffer(jpeg, dtype=np.uint8))
            writer.write(camera, time, STORE.serialize_cdr(image, "sensor_msgs/msg/CompressedImage"))
            for robot, tree in trees.items():
                edges = [transform(time, "map", "base" if robot == "one" or number < 70 else "arm")]
                writer.write(tree, time, STORE.serialize_cdr(TYPE["tf2_msgs/msg/TFMessage"](edges), "tf2_msgs/msg/TFMessage"))
    tree = "{connected: [map, base], topics: [/%s/tf, /%s/tf_static]}"
    rules = "version: 1\ntopics: {/camera: {image: {encoding: jpeg, width: %d, height: 200}}}\nbag: {tf: [%s, %s]}\n"
    contract.write_text(rules % (320, tree % ("one", "one"), tree % ("two", "two")))
    verdict = json.loads(holdall("check", tmp_path / "bag", "--contract", contract, "--json", code=4))["contract"]
    assert [rule["outcome"] for rule in verdict["rules"]] == ["passed", "passed", "failed"], verdict
    # The last transform of the second robot's base holds for a second.
    assert [violation["since_ns"] for violation in verdict["violations"]] == [START + 69 * SECOND // 10 + SECOND]
    contract.write_text(rules % (321, tree % ("one", "one"), tree % ("one", "one")))
    verdict = json.loads(holdall("check", tmp_path / "bag", "--contract", contract, "--json", code=4))["contract"]
    assert verdict["violations"][0]["text"] == "width 320, expected 321"


VALIDATE = """
import json, sys
from jsonschema import Draft202012Validator
schema, *contracts = json.load(sys.stdin)
Draft202012Validator.check_schema(schema)
print(json.dumps([Draft202012Validator(schema).is_valid(contract) for contract in contracts]))
"""

BAD = (
    "topics: {/a: {gap: 1s}}",
    "version: 2\ntopics: {/a: {gap: 1s}}",
    "version: 1",
    "version: 1\ntopics: {a: {gap: 1s}}",
    "version: 1\ntopics: {/a: {gap: [1s]}}",
    "version: 1\ntopics: {/a: {gap: {least: 1s}}}",
    "version: 1\ntopics: {/a: {gap: {max: 1s, severity: bad}}}",
    "version: 1\ntopics: {/a: {rat: 5}}",
    "version: 1\ntopics: {/a: {frozen: -3}}",
    "version: 1\nbag: {tf: {timeout: 1s}}",
    "version: 1\nbag: {episodes: {least: 1}}",
    "version: 1\ncommand: reboot",
)


def test_the_schema_accepts_and_refuses_what_the_parser_does(tmp_path, contract):
    """By the validator of Python, in the venv that has it."""
    write(tmp_path / "good")
    good = [CONTRACT, holdall("contract", "init", tmp_path / "good"), "version: 1\nbag: {episodes: {min: 1, success_min: 1}, tf: [[a, b], {connected: [a, b], topics: /r/tf}]}"]
    schema = json.loads(holdall("contract", "schema"))
    texts = [*good, *BAD]
    for text in texts:
        contract.write_text(text)
        holdall("contract", "explain", contract, code=0 if text in good else 2)
    document = json.dumps([schema, *map(yaml.safe_load, texts)])
    done = subprocess.run([TOOLS, "-c", VALIDATE], input=document, env=alone(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [text in good for text in texts]
