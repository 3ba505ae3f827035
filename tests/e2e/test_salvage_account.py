"""The account of a damaged recording after its bag was made anew: what cannot be read is lost, and the sums are those of the sender."""

import json
import sqlite3

import pytest
from mcap.reader import make_reader
from test_account import BYTES, audit, record


def damage_mcap(path):
    with open(path, "rb") as stream:
        chunks = make_reader(stream).get_summary().chunk_indexes
    assert len(chunks) > 2
    chunk = sorted(chunks, key=lambda chunk: chunk.chunk_start_offset)[len(chunks) // 2]
    content = bytearray(path.read_bytes())
    content[chunk.chunk_start_offset + chunk.chunk_length // 2] ^= 0x55
    path.write_bytes(content)


def damage_sqlite3(path):
    with sqlite3.connect(path) as base:
        query = "select pageno from dbstat where name = 'messages' and pagetype = 'leaf' order by path"
        pages = [page for (page,) in base.execute(query)]
        (page_bytes,) = base.execute("pragma page_size").fetchone()
    content = bytearray(path.read_bytes())
    begin = (pages[len(pages) // 2] - 1) * page_bytes
    content[begin : begin + page_bytes] = bytes(page_bytes)
    path.write_bytes(content)


@pytest.mark.parametrize("storage, damage", [("mcap", damage_mcap), ("sqlite3", damage_sqlite3)])
def test_a_salvaged_bag_adds_up_and_has_what_was_damaged_as_lost(world, storage, damage):
    plans = [{"topic": topic, "type": BYTES, "size": 40_000, "count": 300, "hash": False, "qos": {"depth": 50}} for topic in ("/one", "/two")]
    talker = world.talker(*plans)
    talker.wait_for("ready")
    recorder = record(world, "-s", storage, "--topics", "/one", "/two")
    sent = talker.done()["sent"]
    recorder.stop()
    _, before = audit(world)
    assert before["balanced"], before["faults"]
    (path,) = [path for path in (world.folder / "bag").iterdir() if path.suffix in (".mcap", ".db3")]
    damage(path)
    code, told = audit(world)
    assert code == 1 and not told["balanced"]
    verbs = {"convert": [], "merge": [], "filter": ["--start", "+0"], "one": ["--topics", "/one"], "split": ["-d", "1"], "repair": []}
    for name, more in verbs.items():
        made = world.run({"one": "filter"}.get(name, name), world.folder / "bag", *more, "-o", world.folder / name)
        assert made.returncode == 3 or name == "one", (name, made.stderr)
        code, told = audit(world, name)
        assert told["balanced"] and code in (0, 3), (name, told["faults"], made.stderr)
        there = json.loads(world.run("info", "--json", world.folder / name).stdout)["message_count"]
        recorded = sum(account["recorded"] for account in told["topics"].values())
        assert recorded == there, (name, told)
        lost = told["lost"]["total"] - (before["lost"]["total"] if name != "one" else before["topics"]["/one"]["lost"])
        assert lost > 0 or name == "one", (name, told)
        for topic, account in told["topics"].items():
            was = before["topics"][topic]
            assert account["recorded"] + account["lost"] == was["recorded"] + was["lost"], (name, topic, account, was, sent)

    # Of a span without the damage nothing is lost.
    seconds = json.loads(world.run("info", "--json", world.folder / "bag").stdout)["duration"]["nanoseconds"] / 1e9
    assert world.run("filter", world.folder / "bag", "--start", f"+{seconds * 0.9}", "-o", world.folder / "after").returncode == 0
    code, told = audit(world, "after")
    assert told["balanced"] and told["lost"]["total"] == before["lost"]["total"], told
