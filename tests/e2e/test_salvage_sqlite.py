"""Damaged databases: each verb saves all rows of whole pages, also where SQLite itself stops, and names the rest by number and time."""

import collections
import random
import re
import sqlite3
import subprocess

import pytest
from test_salvage import START, STEP, TOPICS, found_in, holdall, message, payload

COUNT = 1500
TABLES = [
    "CREATE TABLE schema(schema_version INTEGER PRIMARY KEY,ros_distro TEXT NOT NULL)",
    "CREATE TABLE metadata(id INTEGER PRIMARY KEY,metadata_version INTEGER NOT NULL,metadata TEXT NOT NULL)",
    "CREATE TABLE topics(id INTEGER PRIMARY KEY,name TEXT NOT NULL,type TEXT NOT NULL,serialization_format TEXT NOT NULL,"
    "offered_qos_profiles TEXT NOT NULL,type_description_hash TEXT NOT NULL)",
    "CREATE TABLE message_definitions(id INTEGER PRIMARY KEY,topic_type TEXT NOT NULL,encoding TEXT NOT NULL,"
    "encoded_message_definition TEXT NOT NULL,type_description_hash TEXT NOT NULL)",
    "CREATE TABLE messages(id INTEGER PRIMARY KEY,topic_id INTEGER NOT NULL,timestamp INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE INDEX timestamp_idx ON messages (timestamp ASC)",
]


def write_database(path, page_bytes, count=COUNT, long_every=0):
    """A database as rosbag2 makes it, written by SQLite itself. Returns the pages of each tree, and the ids of each leaf of messages."""
    with sqlite3.connect(path) as base:
        base.execute(f"pragma page_size={page_bytes}")
        for table in TABLES:
            base.execute(table)
        base.execute("insert into schema values (4, 'jazzy')")
        for number, topic in enumerate(TOPICS):
            base.execute("insert into topics values (?, ?, 'std_msgs/msg/String', 'cdr', '', '')", (number + 1, topic))
        base.execute("insert into message_definitions values (1, 'std_msgs/msg/String', 'ros2msg', 'string data\n', '')")
        for number in range(count):
            row = (number % 2 + 1, START + number * STEP, payload(number))
            base.execute("insert into messages (topic_id, timestamp, data) values (?, ?, ?)", row)
        base.commit()
        pages, leaves, next_id = collections.defaultdict(list), {}, 1
        query = "select name, pageno, pagetype, ncell from dbstat order by name, path"
        for name, page, kind, cells in base.execute(query):
            pages[name, kind].append(page)
        # Leaves of messages in the order of their ids.
        for page, cells in base.execute(
            "select pageno, ncell from dbstat where name = 'messages' and pagetype = 'leaf' order by length(path), path"
        ):
            leaves[page] = range(next_id, next_id + cells)
            next_id += cells
        assert next_id == count + 1
    return pages, leaves


def destroy(content, page, page_bytes, how):
    begin = (page - 1) * page_bytes
    if how == "zeros":
        content[begin : begin + page_bytes] = bytes(page_bytes)
    else:
        content[begin : begin + page_bytes] = random.Random(page).randbytes(page_bytes)


VERBS = {
    "convert": ["convert"],
    "merge": ["merge"],
    "filter": ["filter", "--start", "+0"],
    "split": ["split", "-d", "3"],
    "to-mcap": ["convert", "-s", "mcap"],
    "repair": ["repair"],
}


def judge(tmp_path, path, lost, part):
    """Each verb has what is left, and names what is not; `part` selects half of the verbs."""
    content = path.read_bytes()
    expected = collections.Counter(message(number) for number in range(COUNT) if number + 1 not in lost)
    everything = collections.Counter(message(number) for number in range(COUNT))
    for verb, command in list(VERBS.items())[part % 2 :: 2]:
        out = tmp_path / f"out-{verb}" / ("saved.db3" if verb == "repair" else "bag")
        out.parent.mkdir(parents=True)
        told = holdall(command[0], path, *command[1:], "-o", out)
        text = told.stdout + told.stderr
        assert "panicked" not in text and ".partial" not in text, (verb, told)
        assert told.returncode in ((3,) if lost else (0, 3)), (verb, told)
        found = found_in(out)
        assert not expected - found, (verb, (expected - found).total(), told)
        # Of a page that was cut off some rows may be whole.
        assert not found - everything, (verb, (found - everything).total(), told)
        if lost:
            assert "cannot be read" in text and re.search(r"\d{4}-\d\d-\d\d", text), (verb, text)
        assert holdall("check", out).returncode == 0, (verb, told)
    assert path.read_bytes() == content, "an input is never changed"
    shown = holdall("cat", "--json", path)
    assert expected.total() <= len(shown.stdout.splitlines()) <= (COUNT if lost else expected.total()), shown.stderr
    assert shown.returncode == 1 if lost else shown.returncode in (0, 1), shown.stderr
    assert holdall("check", path).returncode == 1


@pytest.mark.parametrize("how", ["zeros", "noise"])
@pytest.mark.parametrize("page_bytes", [512, 4096])
@pytest.mark.parametrize("place", ["leaf", "first leaf", "last leaf", "several leaves", "interior", "root", "index", "index root"])
def test_rows_of_whole_pages_are_saved(tmp_path, page_bytes, place, how):
    path = tmp_path / "in.db3"
    pages, leaves = write_database(path, page_bytes)
    inner = pages["messages", "internal"]
    order = sorted(leaves, key=lambda page: leaves[page].start)
    bad = {
        "leaf": [order[len(order) // 2]],
        "first leaf": [order[0]],
        "last leaf": [order[-1]],
        "several leaves": [order[3], order[4], order[-7]],
        "interior": [inner[-1]],
        "root": [inner[0]],
        "index": [pages["timestamp_idx", "leaf"][2]],
        "index root": [pages["timestamp_idx", "internal"][0]],
    }[place]
    content = bytearray(path.read_bytes())
    for page in bad:
        destroy(content, page, page_bytes, how)
    path.write_bytes(content)
    lost = {number for page in bad for number in leaves.get(page, [])}
    judge(tmp_path, path, lost, len(place) + len(how) // 5 + page_bytes // 4096)


@pytest.mark.parametrize("how", ["zeros", "noise"])
@pytest.mark.parametrize("page_bytes", [1024, 4096])
@pytest.mark.parametrize("and_another", [False, True])
def test_without_the_first_page_all_rows_are_found(tmp_path, page_bytes, how, and_another):
    path = tmp_path / "in.db3"
    pages, leaves = write_database(path, page_bytes)
    content = bytearray(path.read_bytes())
    destroy(content, 1, page_bytes, how)
    bad = list(leaves)[5:6] if and_another else []
    for page in bad:
        destroy(content, page, page_bytes, how)
    path.write_bytes(content)
    judge(tmp_path, path, {number for page in bad for number in leaves[page]}, and_another)


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
@pytest.mark.parametrize("page_bytes", [512, 4096])
def test_a_database_that_was_cut_off_has_the_rows_before_the_cut(tmp_path, page_bytes, part):
    path = tmp_path / "in.db3"
    _, leaves = write_database(path, page_bytes)
    content = path.read_bytes()
    whole = int(len(content) * part) // page_bytes
    path.write_bytes(content[: whole * page_bytes + page_bytes // 3])
    judge(tmp_path, path, {number for page, ids in leaves.items() if page > whole for number in ids}, int(part * 10))


def test_names_of_topics_come_from_the_metadata_where_their_page_is_damaged(tmp_path):
    whole = tmp_path / "whole.db3"
    write_database(whole, 4096)
    bag = tmp_path / "bag"
    assert holdall("filter", whole, "-o", bag, "--end", "+9").returncode == 0
    (path,) = bag.glob("*.db3")
    before = found_in(path)
    with sqlite3.connect(path) as base:
        (page,) = base.execute("select rootpage from sqlite_master where name = 'topics'").fetchone()
        (page_bytes,) = base.execute("pragma page_size").fetchone()
    content = bytearray(path.read_bytes())
    destroy(content, page, page_bytes, "zeros")
    path.write_bytes(content)
    told = holdall("convert", path, "-s", "mcap", "-o", tmp_path / "out")
    # Both topics may have the same number of messages: then none is guessed, and all are named as left out.
    counts = collections.Counter(topic for topic, _, _ in before.elements())
    if len(set(counts.values())) == len(counts):
        assert told.returncode == 3 and found_in(tmp_path / "out") == before, told
    else:
        assert told.returncode == 1 and "whose name and type cannot be read" in told.stderr, told
        assert not (tmp_path / "out").exists()


def test_the_front_of_a_packed_database_that_was_cut_is_saved(tmp_path):
    plain = tmp_path / "plain.db3"
    write_database(plain, 4096)
    bag = tmp_path / "bag"
    assert holdall("convert", plain, "-o", bag, "--compression-mode", "file").returncode == 0
    (packed,) = bag.glob("*.db3.zstd")
    content = packed.read_bytes()
    everything = collections.Counter(message(number) for number in range(COUNT))
    for part in (0.4, 0.9):
        packed.write_bytes(content[: int(len(content) * part)])
        for source in (bag, packed):
            for verb in ("convert", "repair"):
                out = tmp_path / f"{verb}-{source.name}-{part}"
                told = holdall(verb, source, "-o", out)
                assert told.returncode == 3, (verb, told)
                found = found_in(out)
                assert not found - everything and found.total() > COUNT * part * 0.6, (found.total(), told)
                assert str(packed) in told.stdout + told.stderr, told
                assert holdall("check", out).returncode == 0


def test_a_cut_journal_rolls_back_what_it_has_and_the_rest_is_saved(tmp_path):
    path = tmp_path / "in.db3"
    write_database(path, 4096)
    program = (
        "import os, sqlite3, sys\n"
        "base = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "base.execute('pragma cache_size=5'); base.execute('begin')\n"
        "base.execute('update messages set timestamp = timestamp + 1')\n"
        "os._exit(9)\n"
    )
    assert subprocess.run(["/usr/bin/env", "python3", "-c", program, path]).returncode == 9
    journal = tmp_path / "in.db3-journal"
    whole = journal.read_bytes()
    times = {START + number * STEP for number in range(COUNT)}
    for part in (1, 0.9, 0.5, 0.1):
        journal.write_bytes(whole[: int(len(whole) * part)])
        out = tmp_path / f"out-{part}"
        told = holdall("convert", path, "-s", "mcap", "-o", out)
        assert told.returncode == 3, told
        found = found_in(out)
        # A page that the journal does not have any more is that of the transaction.
        assert {time - time % STEP for _, time, _ in found} <= times and found.total() <= COUNT
        assert found.total() == COUNT or "cannot be read" in told.stderr, (part, found.total(), told)
        assert holdall("check", out).returncode == 0
