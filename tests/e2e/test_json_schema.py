"""JSON topics with a JSON schema as tables, judged by Python's json: the bags are written by pip mcap."""

import base64
import csv
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HOLDALL
from mcap.writer import Writer as McapWriter

SCHEMA = {
    "$ref": "#/$defs/State",
    "$defs": {
        "Vector": {"type": "object", "required": ["x", "y"], "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
        "Level": {"oneOf": [{"title": "LOW", "const": 0}, {"title": "HIGH", "const": 1}]},
        "State": {
            "title": "robot.State",
            "type": "object",
            "required": ["header", "seq", "ok", "name", "level", "position", "ranges", "data", "extra", "mode"],
            "properties": {
                "seq": {"type": "integer"},
                "ok": {"type": "boolean"},
                "name": {"type": "string"},
                "mode": {"enum": ["idle", "drive"]},
                "level": {"$ref": "#/$defs/Level"},
                "position": {"$ref": "#/$defs/Vector"},
                "ranges": {"type": "array", "items": {"type": "number"}},
                "path": {"type": "array", "items": {"$ref": "#/$defs/Vector"}},
                "volt age, V": {"anyOf": [{"type": "number"}, {"type": "null"}]},
                "count": {"type": "integer"},
                "held": {"type": "boolean"},
                "data": {"type": "string", "contentEncoding": "base64"},
                "extra": {"type": "object"},
                "header": {
                    "type": "object",
                    "required": ["stamp"],
                    "properties": {
                        "stamp": {"type": "object", "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}}}
                    },
                },
            },
        },
    },
}
# pyarrow is in a venv of its own.
CLEAN = Path(sys.prefix) / "wheel" / "bin" / "python"
COUNT = 200
START = 1_700_000_000_000_000_000


def messages():
    """Random messages of the schema, in any order of their keys, with keys that it does not have."""
    rng = random.Random(7)
    vector = lambda: {"x": rng.uniform(-1e6, 1e6), "y": rng.randrange(10)}  # noqa: E731
    found = []
    for number in range(COUNT):
        one = {
            "header": {"stamp": {"sec": 1_600_000_000 + number, "nsec": 5}},
            "seq": rng.randrange(-(2**63), 2**63),
            "ok": rng.random() < 0.5,
            "name": rng.choice(["", "ä,\"b\"\n", "plain"]),
            "mode": rng.choice(["idle", "drive"]),
            "level": rng.randrange(2),
            "position": vector(),
            "ranges": [rng.uniform(0, 1) for _ in range(rng.randrange(4))],
            "data": base64.b64encode(rng.randbytes(rng.randrange(5))).decode(),
            "extra": {"k": [None, number, {"ü": 1.5}]},
            "other": number,
        }
        optional = {
            "path": [vector() for _ in range(rng.randrange(3))],
            "volt age, V": rng.choice([None, 11.5, 12]),
            "count": number,
            "held": rng.random() < 0.5,
        }
        one |= {name: value for name, value in optional.items() if rng.random() < 0.7}
        entries = list(one.items())
        rng.shuffle(entries)
        found.append(dict(entries))
    return found


def write(path, topics):
    """An MCAP file of topics with a schema (or none) and messages, which are texts or values."""
    with open(path, "wb") as stream:
        writer = McapWriter(stream)
        writer.start()
        for topic, (schema, found) in topics.items():
            of_topic = 0 if schema is None else writer.register_schema("robot.State", "jsonschema", json.dumps(schema).encode())
            channel = writer.register_channel(topic, "json", of_topic)
            for number, message in enumerate(found):
                data = message if isinstance(message, bytes) else json.dumps(message).encode()
                writer.add_message(channel, log_time=START + number, data=data, publish_time=START + number)
        writer.finish()
    return path


@pytest.fixture
def bag(tmp_path):
    return write(tmp_path / "robot.mcap", {"/state": (SCHEMA, messages())})


def run(*arguments):
    return subprocess.run([HOLDALL, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def number(value):
    return math.nan if value is None else float(value)


def same(found, expected):
    return found == expected or (math.isnan(found) and math.isnan(expected))


def test_rows_of_csv_are_what_python_reads(bag, tmp_path):
    told = run("export", bag, "-f", "csv", "-o", tmp_path / "tables")
    assert told.returncode == 0 and "left out" not in told.stderr, told
    with open(tmp_path / "tables" / "state.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    for row, message in zip(rows, messages(), strict=True):
        assert int(row["seq"]) == message["seq"]
        assert row["ok"] == str(message["ok"]).lower()
        assert (row["name"], row["mode"], int(row["level"])) == (message["name"], message["mode"], message["level"])
        assert (float(row["position.x"]), float(row["position.y"])) == (message["position"]["x"], message["position"]["y"])
        assert json.loads(row["ranges"]) == message["ranges"]
        assert json.loads(row["path"]) == message.get("path", [])
        assert json.loads(row["extra"]) == message["extra"]
        assert same(float(row["volt age, V"]), number(message.get("volt age, V")))
        assert same(float(row["count"]), number(message.get("count")))
        assert same(float(row["held"]), number(message.get("held")))
        assert float(row["header.stamp.sec"]) == message["header"]["stamp"]["sec"]
        assert "other" not in row


def test_columns_of_parquet_are_what_python_reads(bag, tmp_path):
    told = run("export", bag, "-f", "parquet", "-o", tmp_path / "tables")
    assert told.returncode == 0, told
    script = "import pyarrow.parquet, sys; print(repr(pyarrow.parquet.read_table(sys.argv[1]).drop_columns(['log_time', 'publish_time']).to_pylist()))"
    read = [CLEAN, "-c", script, tmp_path / "tables" / "state.parquet"]
    read = subprocess.run(read, capture_output=True, text=True, check=True)
    rows = eval(read.stdout, {"nan": math.nan, "inf": math.inf})
    for row, message in zip(rows, messages(), strict=True):
        for name in ["seq", "ok", "name", "mode", "level", "position", "ranges", "header"]:
            assert row[name] == message[name], name
        assert row["path"] == message.get("path", [])
        assert row["data"] == base64.b64decode(message["data"])
        assert json.loads(row["extra"]) == message["extra"]
        for name in ["volt age, V", "count", "held"]:
            assert same(row[name], number(message.get(name))), name


def test_conditions_and_clocks_read_the_fields(bag, tmp_path):
    conditions = {
        "ok && level == 1": lambda one: one["ok"] and one["level"] == 1,
        "position.x > 0 && len(ranges) >= 2": lambda one: one["position"]["x"] > 0 and len(one["ranges"]) >= 2,
        "`volt age, V` > 11.7": lambda one: number(one.get("volt age, V")) > 11.7,
        "held == 1 || count < 20": lambda one: one.get("held") is True or number(one.get("count")) < 20,
    }
    for text, holds in conditions.items():
        told = run("cat", bag, "--json", "-w", f"/state: {text}")
        assert told.returncode == 0, told
        expected = [one for one in messages() if holds(one)]
        assert [json.loads(line)["message"] for line in told.stdout.splitlines()] == expected, text
    told = run("export", bag, "-f", "csv", "-o", tmp_path / "tables", "--time", "header.stamp")
    assert told.returncode == 0, told
    with open(tmp_path / "tables" / "state.csv", newline="") as stream:
        stamps = [int(row["header_stamp"]) for row in csv.DictReader(stream)]
    assert stamps == [(1_600_000_000 + count) * 1_000_000_000 + 5 for count in range(COUNT)]
    picture = tmp_path / "x.svg"
    told = run("plot", bag, "-t", "/state.position.x", "-t", "/state: `volt age, V`", "-o", picture)
    assert told.returncode == 0 and "position.x" in picture.read_text(), told


def test_info_knows_the_definition(bag):
    told = run("info", bag)
    assert told.returncode == 0 and "Without definition" not in told.stdout, told.stdout


def test_messages_of_another_type_are_counted_and_named(tmp_path):
    schema = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    bad = [{"n": 1}, {"n": "x"}, {}, b"{", [1], {"n": 2}]
    path = write(tmp_path / "bad.mcap", {"/bad": (schema, bad), "/plain": (None, [{"a": 1}]), "/free": ({"type": "object"}, [{}])})
    told = run("export", path, "-f", "csv", "-o", tmp_path / "tables")
    assert told.returncode == 1, told
    assert f"4 messages could not be written; the first, of time {START + 1}: robot.State n: expected a whole number" in told.stderr, told.stderr
    assert "/plain: left out: its messages are JSON texts, whose columns are not known in advance" in told.stderr
    assert "/free: left out: its messages are JSON texts, and their schema names no properties" in told.stderr
    with open(tmp_path / "tables" / "bad.csv", newline="") as stream:
        assert [row["n"] for row in csv.DictReader(stream)] == ["1", "2"]
    told = run("cat", path, "-w", "/free: a > 1")
    assert told.returncode == 2 and "names no properties" in told.stderr, told


def test_schemas_of_one_name_are_those_of_their_topics(tmp_path):
    schema = lambda name: {"type": "object", "required": [name], "properties": {name: {"type": "integer"}}}  # noqa: E731
    path = write(tmp_path / "two.mcap", {"/a": (schema("a"), [{"a": 1}]), "/b": (schema("b"), [{"b": 2}])})
    told = run("export", path, "-f", "csv", "-o", tmp_path / "tables")
    assert told.returncode == 0, told
    for name, value in [("a", "1"), ("b", "2")]:
        with open(tmp_path / "tables" / f"{name}.csv", newline="") as stream:
            assert [row[name] for row in csv.DictReader(stream)] == [value]


@pytest.mark.parametrize("required", [["n"], []])
@pytest.mark.parametrize("value", [2**53, 2**53 + 1])
def test_an_integer_that_is_rounded_is_named(tmp_path, required, value):
    schema = {"type": "object", "required": required, "properties": {"n": {"type": "integer"}}}
    path = write(tmp_path / "large.mcap", {"/large": (schema, [{"n": value}])})
    told = run("export", path, "-f", "csv", "-o", tmp_path / "tables")
    assert told.returncode == 0, told
    with open(tmp_path / "tables" / "large.csv", newline="") as stream:
        (row,) = csv.DictReader(stream)
    is_exact = int(float(row["n"])) == value if not required else int(row["n"]) == value
    assert is_exact == (bool(required) or value == 2**53)
    assert ("beyond 2^53 were rounded" in told.stderr) != is_exact, told.stderr
