"""Catalogs of many bags, what finds bags in them, and how the reading of bags is divided into tasks."""

import json
import os
import pickle
import re
import shutil
import subprocess
from pathlib import Path

import duckdb
import holdall
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mcap.writer import Writer

START = 1_793_577_600_000_000_000  # 2026-11-02
MS = 1_000_000
PAGE = Path(__file__).resolve().parents[2] / "docs/fleet.md"
RANGE = holdall.MessageType("sensor_msgs/msg/Range")


def run(folder, *words, code=0):
    done = subprocess.run([os.environ["HOLDALL_BIN"], *map(str, words)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout, done.stderr


def scan(folder, *roots, code=0):
    return json.loads(run(folder, "catalog", *roots, "-o", "catalog", "--json", code=code)[0])


def find(folder, expression):
    return [Path(line).name for line in run(folder, "find", expression)[0].splitlines()]


def good(path, count, storage="mcap", start=START, **options):
    config = "chunkSize: 4096\ncompression: None\n" if storage == "mcap" else None
    with holdall.create(path, storage=storage, config=config, **options) as out:
        for number in range(count):
            time = start + number * 10 * MS
            out.write("/range", "sensor_msgs/msg/Range", {"range": float(number), "header": {"frame_id": "x" * (number % 50)}}, time=time)
            if number % 4 == 0:
                out.write("/other", "sensor_msgs/msg/Range", {"range": -float(number)}, time=time + MS)
                out.write("/name", "std_msgs/msg/String", {"data": str(number)}, time=time + 2 * MS)


def lossy(path):
    """A recording of two topics of which one lost messages, with a marker: its records as docs/proofs.md and docs/formats describe them."""
    interval = {"stage": "transport", "first_sequence": 4, "last_sequence": 10, "first_time": START + 3, "last_time": START + 900, "count": 7}
    publisher = {"gid": "01.0f", "node": "/driver", "host": "robot7", "recorded": 20, "intervals": [interval]}
    topics = [
        {"name": "/lidar", "recorded": 20, "recorded_bytes": 800, "missing": {"transport": 7, "head": 2}, "publishers": [publisher]},
        {"name": "/quiet", "recorded": 20, "recorded_bytes": 800, "missing": {}, "publishers": []},
    ]
    with open(path, "wb") as file:
        out = Writer(file)
        out.start("ros2")
        schema = out.register_schema("sensor_msgs/msg/Range", "ros2msg", RANGE.definition.encode())
        for topic in ("/lidar", "/quiet"):
            channel = out.register_channel(topic, "cdr", schema)
            for number in range(20):
                out.add_message(channel, START + number * MS, RANGE.encode({"range": 1.0}), START + number * MS)
        out.add_metadata("holdall:marker", {"name": "emergency stop", "time": str(START + 5 * MS)})
        out.add_metadata("holdall:loss", {"ledger": json.dumps({"version": 1, "topics": topics})})
        out.finish()


def with_episodes(path):
    """A recording of two episodes and the beginning of a third one, as records of their moments."""
    moments = [
        (0, "start", 0, {"task": "pick cup", "operator": "ana"}),
        (5, "stop", 0, {"task": "pick cup", "operator": "ana", "outcome": "success", "shift": "3"}),
        (6, "start", 6, {"task": "pick cup"}),
        (9, "discard", 6, {"task": "pick cup", "reason": "slipped"}),
        (12, "start", 12, {"task": "pour"}),
    ]
    with open(path, "wb") as file:
        out = Writer(file)
        out.start("ros2")
        channel = out.register_channel("/range", "cdr", out.register_schema("sensor_msgs/msg/Range", "ros2msg", RANGE.definition.encode()))
        for number in range(20):
            out.add_message(channel, START + number * MS, RANGE.encode({"range": 1.0}), START + number * MS)
        for time, change, start, fields in moments:
            named = {f"episode.{name}": value for name, value in fields.items()}
            record = {"name": f"episode {change}", "time": str(START + time * MS), "episode": change, "episode_start": str(START + start * MS)}
            out.add_metadata("holdall:marker", {**record, **named})
        out.finish()


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "runs/deep").mkdir(parents=True)
    good(tmp_path / "runs/one", 200)
    good(tmp_path / "runs/deep/lite", 100, storage="sqlite3", start=START - 86_400_000 * MS)
    good(tmp_path / "runs/split", 200, max_bytes=20_000)
    lossy(tmp_path / "runs/lossy.mcap")
    return tmp_path


def test_the_tables_state_what_the_bags_hold(fleet):
    report = scan(fleet, "runs")
    assert (report["bags"], report["read"], report["unreadable"]) == (4, 4, [])
    bags = {Path(row["bag"]).name: row for row in polars.read_parquet(fleet / "catalog/bags.parquet").to_dicts()}
    assert set(bags) == {"one", "lite", "split", "lossy.mcap"}
    for name, row in bags.items():
        bag = holdall.open(row["bag"])
        assert (row["messages"], row["size_bytes"], row["topics"], row["files"]) == (len(bag), bag.size_bytes, len(bag.topics), len(bag.files)), name
        # Without an account what is missing is not known.
        assert (row["state"], row["lost"]) == (("complete", 7) if name == "lossy.mcap" else ("ended", None)), name
    ask = duckdb.connect().execute
    times = f"select epoch_ns(start), epoch_ns(\"end\") from '{fleet}/catalog/bags.parquet' where bag like '%/one'"
    assert ask(times).fetchall() == [(holdall.open(fleet / "runs/one").start, holdall.open(fleet / "runs/one").end)]
    losses = f"select topic, stage, messages, is_loss from '{fleet}/catalog/losses.parquet' order by stage"
    assert ask(losses).fetchall() == [("/lidar", "head", 2, False), ("/lidar", "transport", 7, True)]
    assert ask(f"select marker, epoch_ns(time) from '{fleet}/catalog/markers.parquet'").fetchall() == [("emergency stop", START + 5 * MS)]
    chunks = f"select count(*), min(len(topics)), max(\"offset\" + size_bytes) < 1e6 from '{fleet}/catalog/chunks.parquet' where bag like '%/one'"
    (count, least, inside), = ask(chunks).fetchall()
    assert count > 4 and least >= 1 and inside


def test_expressions_find_bags_by_topics_losses_times_and_markers(fleet):
    scan(fleet, "runs")
    assert find(fleet, 'topic = "/lidar" and lost > 0 and start > 2026-11-01') == ["lossy.mcap"]
    assert find(fleet, 'topic = "/quiet" and lost > 0') == []
    assert find(fleet, "start < 2026-11-02") == ["lite"]
    assert sorted(find(fleet, "files > 1 or storage = 'sqlite3'")) == ["lite", "split"]
    assert find(fleet, "marker =~ 'stop' and marker_time >= start") == ["lossy.mcap"]
    assert find(fleet, "stage = 'transport' and stage_lost = 7") == ["lossy.mcap"]
    assert len(find(fleet, "not marker =~ 'stop'")) == 3
    rows = [json.loads(line) for line in run(fleet, "find", "topic = '/range'", "--json")[0].splitlines()]
    assert sorted(row["messages"] for row in rows) == [100, 200, 200] and {row["topic"] for row in rows} == {"/range"}
    assert "2026-11-02T00:00:00.000" in run(fleet, "find", "messages > 0", "--table")[0]
    assert run(fleet, "find", "messages > 1000000000", "--table")[0] == "", "no table without a bag"
    assert "there is no column" in run(fleet, "find", "lsot > 0", code=2)[1]
    assert holdall.find("lost > 0", fleet / "catalog")[0]["lost"] == 7


def test_episodes_are_rows_and_expressions_find_bags_by_them(fleet):
    with_episodes(fleet / "runs/demo.mcap")
    scan(fleet, "runs")
    rows = polars.read_parquet(fleet / "catalog/episodes.parquet").with_columns(polars.col("start", "end").cast(polars.Int64)).to_dicts()
    assert {Path(row.pop("bag")).name for row in rows} == {"demo.mcap"}
    first, second, third = rows
    assert first | {"fields": json.loads(first["fields"])} == {
        "episode": 1, "start": START, "end": START + 5 * MS, "duration_ns": 5 * MS, "state": "stopped", "task": "pick cup", "outcome": "success", "operator": "ana",
        "fields": {"task": "pick cup", "operator": "ana", "outcome": "success", "shift": "3"},
    }  # fmt: skip
    assert (second["state"], second["outcome"], second["duration_ns"]) == ("discarded", None, 3 * MS)
    assert (third["state"], third["task"], third["end"], third["duration_ns"]) == ("unknown", "pour", None, None)
    assert find(fleet, 'outcome = "success"') == ["demo.mcap"]
    assert find(fleet, 'task = "pick cup" and outcome = "success" and episode_duration < 0.1') == ["demo.mcap"]
    # All of it must be true of one episode.
    assert find(fleet, 'task = "pour" and outcome = "success"') == []
    assert find(fleet, 'outcome = "success" and episode_duration > 0.1') == []
    assert find(fleet, "episode_state = 'discarded' and episode_fields =~ 'slipped'") == ["demo.mcap"]
    assert find(fleet, "episode = 3 and episode_start > start") == ["demo.mcap"] and len(find(fleet, "not outcome = 'success'")) == 5
    (row,) = holdall.find('operator = "ana" and episode_duration > 0', fleet / "catalog")
    assert (row["operator"], row["episode_duration"]) == ("ana", 0.005)
    assert "2026-11-02T00:00:00.006" in run(fleet, "find", "episode_state = 'discarded' and episode_start > start", "--table")[0]


def test_only_what_changed_is_read_again_and_what_is_gone_leaves(fleet):
    scan(fleet, "runs")
    before = {path.name: path.read_bytes() for path in (fleet / "catalog").iterdir()}
    report = scan(fleet, "runs")
    assert (report["read"], report["unchanged"]) == (0, 4)
    assert before == {path.name: path.read_bytes() for path in (fleet / "catalog").iterdir()}
    (fleet / "more").mkdir()
    good(fleet / "more/extra", 10)
    report = scan(fleet, "more")
    assert (report["bags"], report["read"]) == (5, 1)
    shutil.rmtree(fleet / "runs/split")
    shutil.rmtree(fleet / "runs/one")
    good(fleet / "runs/one", 50)
    report = scan(fleet, "runs")
    assert (report["bags"], report["read"], report["unchanged"], report["removed"]) == (4, 1, 2, 1)
    assert sorted(find(fleet, "messages > 0")) == ["extra", "lite", "lossy.mcap", "one"]
    kept = polars.read_parquet(fleet / "catalog/topics.parquet").filter(polars.col("bag").str.ends_with("one"))
    assert sorted(kept["messages"]) == [13, 13, 50]


def test_a_bag_that_cannot_be_read_is_a_row_and_the_rest_is_kept(fleet):
    (fleet / "runs/broken.mcap").write_bytes(b"no bag at all")
    report = scan(fleet, "runs", code=1)
    assert report["bags"] == 5 and [Path(bag["bag"]).name for bag in report["unreadable"]] == ["broken.mcap"]
    assert find(fleet, 'state = "unreadable"') == ["broken.mcap"]
    assert len(find(fleet, "messages > 0")) == 4
    # It is not read again until it changes.
    assert scan(fleet, "runs")["read"] == 0


def test_a_catalog_of_another_version_is_refused_with_one_sentence(fleet):
    scan(fleet, "runs")
    path = fleet / "catalog/bags.parquet"
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"holdall.catalog.version": "99"}), path)
    content = path.read_bytes()
    for words in (("catalog", "runs"), ("find", "messages > 0")):
        _, errors = run(fleet, *words, code=2)
        assert len(errors.splitlines()) == 1 and "version 99, expected version 3" in errors
    assert path.read_bytes() == content
    _, errors = run(fleet, "find", "messages > 0", "runs", code=2)
    assert "is not a catalog" in errors
    _, errors = run(fleet, "catalog", "nowhere", code=2)
    assert "nowhere" in errors and len(errors.splitlines()) == 1


def test_tables_that_are_damaged_or_of_different_scans_are_noticed_and_made_anew(fleet):
    scan(fleet, "runs")
    old = (fleet / "catalog/topics.parquet").read_bytes()
    (fleet / "catalog/topics.parquet").write_bytes(old[: len(old) // 2])
    _, errors = run(fleet, "find", "topic = '/range'", code=1)
    assert "topics.parquet is not valid" in errors and len(errors.splitlines()) == 1
    assert scan(fleet, "runs")["read"] == 4
    (fleet / "catalog/topics.parquet").write_bytes(old)
    _, errors = run(fleet, "find", "topic = '/range'", code=1)
    assert "of different scans" in errors
    assert scan(fleet, "runs")["read"] == 4 and len(find(fleet, "topic = '/range'")) == 3


def test_the_queries_of_the_page_run(fleet, monkeypatch):
    with_episodes(fleet / "runs/demo.mcap")
    scan(fleet, "runs")
    monkeypatch.chdir(fleet)
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(queries) >= 10
    connection = duckdb.connect()
    for query in queries:
        assert connection.sql(query).to_arrow_table().num_rows, f"nothing found: {query}"
    (example,) = re.findall(r"```python\n(import polars.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})


def rows_of(table):
    return sorted(zip(table["topic"].to_pylist(), table["log_time"].cast(pa.int64()).to_pylist(), table["range"].to_pylist(), strict=True))


@pytest.mark.parametrize("name", ["one", "split", "deep/lite", "lossy.mcap"])
def test_the_tasks_of_a_plan_have_each_message_once(fleet, name):
    path = str(fleet / "runs" / name)
    bag = holdall.open(path)
    topics = [topic for topic in ("/range", "/other", "/lidar") if topic in bag]
    tasks = holdall.plan(path, topics, ["range"], task_bytes=6000)
    assert len(tasks) > 1 or name == "lossy.mcap"
    assert max(task.bytes for task in tasks) < 6000 * 3
    whole = [pa.table(bag[topic].to_arrow("range")) for topic in topics]
    expected = sorted(
        (topic, time, value)
        for topic, table in zip(topics, whole, strict=True)
        for time, value in zip(table["log_time"].cast(pa.int64()).to_pylist(), table["range"].to_pylist(), strict=True)
    )
    again = pickle.loads(pickle.dumps(tasks))
    assert again == tasks
    found = pa.concat_tables([holdall.read(task) for task in again])
    assert rows_of(found) == expected and set(found["bag"].to_pylist()) == {path}


def test_a_plan_from_a_catalog_is_that_of_its_bags(fleet):
    scan(fleet, "runs")
    of_catalog = holdall.plan(fleet / "catalog", "/range", tasks=7)
    of_bags = holdall.plan(fleet / "runs", "/range", tasks=7)
    assert of_catalog == of_bags and 5 <= len(of_catalog) <= 14
    start, end = START + 100 * MS, START + 300 * MS
    tasks = holdall.plan(fleet / "catalog", "/range", ["range"], (start, end), task_bytes=6000)
    times = [time for task in tasks for time in holdall.read(task)["log_time"].cast(pa.int64()).to_pylist()]
    assert sorted(times) == sorted([START + number * 10 * MS for number in range(10, 30)] * 2)
    # Small bags are one task together.
    assert len(holdall.plan(fleet / "catalog", "/range")) == 1
    with pytest.raises(holdall.TopicError, match="other columns"):
        holdall.read(holdall.plan(fleet / "runs/one")[0])
    with pytest.raises(holdall.BagError, match="nowhere"):
        holdall.plan(fleet / "nowhere")
