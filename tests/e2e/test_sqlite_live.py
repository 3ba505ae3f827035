"""A database that is being recorded, opened by the sqlite3 program, by Python and as DB Browser does: none of them ends the recording, destroys it or
costs a message. The truth is the publisher's own log, compared with the rows that the sqlite3 program finds."""

import contextlib
import sqlite3
import struct
import subprocess
import time

import pytest
from conftest import DEADLINE_S
from test_account import wait_until_sent

STRING = "std_msgs/msg/String"
PRAGMAS = ["foreign_keys", "encoding", "auto_vacuum", "journal_mode", "data_version", "page_size", "synchronous"]


def by_program(path, query, *flags):
    """What the real sqlite3 program says, which waits as long as any user would."""
    done = subprocess.run(["sqlite3", "-cmd", ".timeout 60000", *flags, path, query], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0 and not done.stderr, done
    return done.stdout.split()


def count_at_once(path):
    """By a program that does not wait: a number, or None while pages are being changed."""
    with contextlib.closing(sqlite3.connect(path, timeout=0)) as base:
        try:
            return base.execute("select count(*) from messages").fetchone()[0]
        except sqlite3.OperationalError as error:
            assert "locked" in str(error), error
            return None


def browse(path):
    """Opens a database as DB Browser does, and changes it; whether that was possible. Its shared lock stays until it is closed."""
    base = sqlite3.connect(path, timeout=5, isolation_level=None)
    for pragma in PRAGMAS:
        base.execute(f"pragma {pragma}").fetchall()
    base.execute("select type, name, sql, tbl_name from sqlite_master").fetchall()
    base.execute('savepoint "RESTOREPOINT"')
    assert base.execute("select count(*), max(id) from messages").fetchone()[0] > 0
    try:
        base.execute("create table if not exists notes(text)")
        base.execute("insert into notes values ('seen')")
        base.execute('release "RESTOREPOINT"')
        return base, True
    except sqlite3.OperationalError as error:
        assert "locked" in str(error), error
        base.execute('rollback to "RESTOREPOINT"')
        return base, False


def read_by_all(path, at_least):
    """Each of them sees a whole database that only grows."""
    (count,) = by_program(path, "select count(*) from messages")
    with contextlib.closing(sqlite3.connect(path, timeout=60)) as base:
        (later,) = base.execute("select count(*) from messages").fetchone()
    assert at_least <= int(count) <= later, (at_least, count, later)
    at_once = count_at_once(path)
    assert at_once is None or at_once >= later
    return later


def numbers_in(path):
    """The numbers of the messages, by their rows in order."""
    texts = by_program(path, "select hex(data) from messages order by id", "-readonly")
    return [int(bytes.fromhex(text)[8:].split(b"\0")[0]) for text in texts]


@pytest.mark.parametrize("mode", ["default", "wal", "resilient"])
def test_no_reader_costs_a_recording_anything(world, mode):
    config = world.folder / "config.yaml"
    config.write_text('write: {pragmas: ["journal_mode = WAL"]}\n')
    options = {"default": [], "wal": ["--storage-config-file", config], "resilient": ["--storage-preset-profile", "resilient"]}[mode]
    bag, log = world.folder / "bag", world.folder / "log"
    recorder = world.holdall("record", "--topics", "/t", "-o", bag, "-s", "sqlite3", "--disable-keyboard-controls", *options)
    path = bag / "bag_0.db3"
    end = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < end and recorder.process.poll() is None, recorder.lines
    # From its first moment: it may not have its tables yet.
    first = sqlite3.connect(path, timeout=60)
    first.execute("select count(*) from sqlite_master").fetchall()
    first.close()
    count_of = {"topic": "/t", "type": STRING, "count": None, "rate_hz": 200, "text": "{n}", "hash": False, "qos": {"depth": 2000}, "log": str(log)}
    talker = world.talker(count_of)
    wait_until_sent(log, 400)
    seen = 0
    while not seen:
        seen = read_by_all(path, 0)

    # A transaction that is held open for longer than SQLite's own programs wait.
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin")
    held = holder.execute("select count(*) from messages").fetchone()
    if mode == "wal":
        wait_until_sent(log, 1000)
    else:
        recorder.wait_until_says("has locked the database for 8 s")
    # Others read beside it, and it sees what it saw.
    read_by_all(path, seen)
    assert holder.execute("select count(*) from messages").fetchone() == held
    holder.execute("commit")
    sent = log.stat().st_size // 16
    wait_until_sent(log, sent + 400)
    # What waited in memory is written.
    end = time.monotonic() + DEADLINE_S
    while read_by_all(path, seen) < sent:
        assert time.monotonic() < end, recorder.lines

    browser, has_changed = browse(path)
    assert mode == "wal" or not has_changed, "the recorder has reserved the database"
    wait_until_sent(log, sent + 800)
    browser.close()

    # While the recording ends.
    last = sqlite3.connect(path, isolation_level=None)
    last.execute("begin")
    last.execute("select count(*) from messages").fetchone()
    talker.interrupt()
    talker.done()
    recorder.process.send_signal(2)
    if mode != "wal":
        recorder.wait_until_says("has locked the database for 1 s")
    read_by_all(path, sent)
    last.execute("commit")
    last.close()
    holder.close()
    code, text = recorder.wait()
    assert code == 0 and "lost: none" in text, text
    if mode != "wal":
        # The reader was the cause, and no other is named.
        (line,) = (line for line in text.splitlines() if "loss window" in line and "was not kept" in line)
        assert "another program had locked the storage file for" in line and "processors" not in line, line

    numbers = [number for number, _ in struct.iter_unpack("<Qd", log.read_bytes())]
    assert numbers_in(path) == numbers and len(numbers) >= sent + 800
    assert by_program(path, "pragma integrity_check") == ["ok"]
    assert by_program(path, "select count(*) from topics") == ["1"]
    assert world.run("check", bag).returncode == 0 and world.run("audit", bag).returncode == 0
    # Nothing keeps others from it any more.
    browser, has_changed = browse(path)
    browser.close()
    assert has_changed and numbers_in(path) == numbers
