#!/usr/bin/env python3
"""How much two processes read of many bags by `holdall.plan` and `holdall.read`, beside one.

    scripts/bench-workers.py [--bags 8] [--messages 300000] [--rounds 5]

Needs a Python that has holdall and pyarrow. Bags of sensor_msgs/msg/Range in a folder of their own, from the page cache; all fields are decoded. The
processes are started and have imported everything before the time begins; one and two take turns. Prints seconds of each round, rows a second, and the ratio.
"""

import argparse
import multiprocessing
import shutil
import statistics
import tempfile
import time
from pathlib import Path

START = 1_793_577_600_000_000_000


def ready(_):
    import holdall
    import pyarrow

    return holdall.__name__ + pyarrow.__name__


def read(task):
    import holdall

    return holdall.read(task).num_rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bags", type=int, default=8)
    parser.add_argument("--messages", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    import holdall

    folder = Path(tempfile.mkdtemp(prefix="bench-workers-"))
    try:
        with holdall.create(folder / "bag0") as out:
            for number in range(options.messages):
                message = {"range": float(number), "max_range": 30.0, "header": {"frame_id": "lidar_front"}}
                out.write("/range", "sensor_msgs/msg/Range", message, time=START + number * 1_000_000)
        for number in range(1, options.bags):
            shutil.copytree(folder / "bag0", folder / f"bag{number}")
        tasks = holdall.plan(str(folder), "/range", task_bytes=8 << 20)
        processes = multiprocessing.get_context("spawn")
        seconds = {1: [], 2: []}
        pools = {count: processes.Pool(count) for count in seconds}
        for count, pool in pools.items():
            pool.map(ready, range(count), chunksize=1)
        for _ in range(options.rounds):
            for count, pool in pools.items():
                began = time.monotonic()
                rows = sum(pool.imap_unordered(read, tasks))
                seconds[count].append(time.monotonic() - began)
                assert rows == options.bags * options.messages, rows
        for pool in pools.values():
            pool.terminate()
        for count, taken in seconds.items():
            print(f"{count}: {[round(one, 2) for one in taken]} s, {rows / statistics.median(taken) / 1e6:.2f} M rows/s, {len(tasks)} tasks")
        print(f"two : one {statistics.median(one / two for one, two in zip(seconds[1], seconds[2], strict=True)):.2f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
