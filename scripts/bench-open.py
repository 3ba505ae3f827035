"""How long `info` and `reindex` of large bags take, beside `cp` and a plain read of the same file in the same run.

    .venv/bin/python scripts/bench-open.py target/release/holdall FOLDER [SQLITE_GB] [MCAP_GB] [REPETITIONS]

Makes a SQLite bag of zero-filled 1 MiB messages and 2 million small ones without metadata.yaml (so that `info` has only the database to go by), and an
MCAP bag without any index. Caches are dropped for the files before every run. Prints a table with medians and ranges of wall clock time.
"""

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mcap.writer import CompressionType, IndexType, Writer

START = 1_700_000_000_000_000_000


def make_sqlite(holdall, folder, gigabytes):
    """As rosbag2 lays it out: the tables come from the program itself."""
    seed = folder / "seed"
    make_mcap(seed / "seed_0.mcap", 2, IndexType.ALL)
    bag = folder / "large"
    subprocess.run([holdall, "convert", seed, "-s", "sqlite3", "-o", bag], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (bag / "metadata.yaml").unlink()
    file = bag / "large_0.db3"
    with sqlite3.connect(file) as database:
        database.execute("PRAGMA synchronous = OFF")
        rows = f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {int(gigabytes * 1000)})"
        database.execute(f"{rows} INSERT INTO messages(topic_id, timestamp, data) SELECT 1, {START} + i * 1000000, zeroblob(1000000) FROM n")
        rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000)"
        database.execute(f"{rows} INSERT INTO messages(topic_id, timestamp, data) SELECT 1, {START} + i * 1000, zeroblob(100) FROM n")
        # As rosbag2 leaves it at close: the counts of the messages that are there.
        (count,) = database.execute("SELECT count(*) FROM messages").fetchone()
        for place, text in database.execute("SELECT id, metadata FROM metadata").fetchall():
            database.execute("UPDATE metadata SET metadata = ? WHERE id = ?", (text.replace("message_count: 2\n", f"message_count: {count}\n"), place))
    return bag, file


def make_mcap(path, images, index_types):
    path.parent.mkdir()
    with open(path, "wb") as file:
        writer = Writer(file, compression=CompressionType.NONE, index_types=index_types, repeat_channels=True, use_statistics=index_types == IndexType.ALL)
        writer.start("ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        channel = writer.register_channel("/t", "cdr", schema)
        payload = bytes(4) + os.urandom(1_000_000)
        for number in range(images):
            writer.add_message(channel, START + number * 10_000_000, payload, START, number)
        writer.finish()


def forget(*paths):
    for path in paths:
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    holdall, base = str(Path(sys.argv[1]).absolute()), Path(sys.argv[2])
    sqlite_gb, mcap_gb = (float(sys.argv[place]) if len(sys.argv) > place else default for place, default in ((3, 4.0), (4, 1.0)))
    repetitions = int(sys.argv[5]) if len(sys.argv) > 5 else 3
    folder = Path(tempfile.mkdtemp(dir=base))

    def run(*arguments):
        subprocess.run([holdall, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    try:
        rows = {}

        def add(name, seconds):
            rows.setdefault(name, []).append(seconds)

        large, database = make_sqlite(holdall, folder, sqlite_gb)
        unclosed = folder / "unclosed" / "unclosed_0.db3"
        unclosed.parent.mkdir()
        subprocess.run(["cp", "--reflink=auto", database, unclosed], check=True)
        with sqlite3.connect(unclosed) as crashed:
            crashed.execute("DELETE FROM metadata")
        plain = folder / "plain" / "plain_0.mcap"
        make_mcap(plain, int(mcap_gb * 1000), IndexType.NONE)
        for _ in range(repetitions):
            forget(database)
            add(f"`info`, SQLite, {database.stat().st_size / 1e9:.1f} GB, no metadata.yaml", timed(lambda: run("info", large)))
            forget(unclosed)
            add("`info` of the same as a crash leaves it, without counts", timed(lambda: run("info", unclosed.parent)))
            forget(plain)
            add("plain read of the MCAP file", timed(lambda: subprocess.run(["dd", f"if={plain}", "of=/dev/null", "bs=1M"], check=True, stderr=subprocess.DEVNULL)))
            forget(plain)
            add("`cp` of it, and a sync", timed(lambda: subprocess.run(["sh", "-c", f"cp {plain} {folder}/copy && sync {folder}/copy"], check=True)))
            (folder / "copy").unlink()
            bag = folder / "bag"
            bag.mkdir()
            os.rename(plain, bag / "bag_0.mcap")
            forget(bag / "bag_0.mcap")
            add("`info` of it, without index or metadata.yaml", timed(lambda: run("info", bag)))
            kept = folder / "kept"
            os.link(bag / "bag_0.mcap", kept)
            forget(kept)
            add(f"`reindex` of it: {kept.stat().st_size / 1e9:.1f} GB read, and written with an index", timed(lambda: run("reindex", bag)))
            forget(bag / "bag_0.mcap")
            add("`info` of the result", timed(lambda: run("info", bag)))
            (bag / "metadata.yaml").unlink()
            forget(bag / "bag_0.mcap")
            add("`reindex` of the result (metadata.yaml only)", timed(lambda: run("reindex", bag)))
            forget(bag / "bag_0.mcap")
            add("`check` of the result", timed(lambda: run("check", bag)))
            shutil.rmtree(bag)
            os.rename(kept, plain)
        print("| work | time, s [range] |\n|---|---|")
        for name, taken in rows.items():
            print(f"| {name} | {statistics.median(taken):.3f} [{min(taken):.3f}, {max(taken):.3f}] |")
    finally:
        shutil.rmtree(folder)


main()
