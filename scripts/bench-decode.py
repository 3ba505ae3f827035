"""How fast messages are decoded: `holdall cat` and `holdall export` beside pip rosbags on the same bag, in the same run.

    .venv/bin/python scripts/bench-decode.py target/release/holdall [FOLDER] [REPETITIONS] [SCALE]

Makes a bag (IMU, odometry, transforms, laser scans), then runs all candidates in turn, so that each meets the same state of the machine, and
prints a table with medians and ranges of CPU time (all candidates have one thread that matters). "Decode only" makes Python objects and writes nothing. JSON goes to /dev/null; for CSV both write the same columns.
The factor is against rosbags doing the same; for `--where` against decoding.
"""

import csv
import dataclasses
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rosbags.highlevel import AnyReader
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_JAZZY)
T = STORE.types


def header(n):
    return T["std_msgs/msg/Header"](T["builtin_interfaces/msg/Time"](n // 200, n % 200 * 5_000_000), "base_link")


def vector(n):
    return T["geometry_msgs/msg/Vector3"](n * 1e-3, n * -2.5e-3, 9.81)


def turn():
    return T["geometry_msgs/msg/Quaternion"](0.0, 0.0, 0.0998334166, 0.995004165)


def imu(n):
    return T["sensor_msgs/msg/Imu"](header(n), turn(), np.full(9, 0.01), vector(n), np.full(9, 0.02), vector(n), np.full(9, 0.04))


def odometry(n):
    g = "geometry_msgs/msg/"
    pose = T[g + "PoseWithCovariance"](T[g + "Pose"](T[g + "Point"](n * 0.01, n * 0.02, 0.0), turn()), np.full(36, 0.1))
    return T["nav_msgs/msg/Odometry"](header(n), "odom", pose, T[g + "TwistWithCovariance"](T[g + "Twist"](vector(n), vector(n)), np.full(36, 0.1)))


def transforms(n):
    g = "geometry_msgs/msg/"
    one = T[g + "TransformStamped"](header(n), "link", T[g + "Transform"](vector(n), turn()))
    return T["tf2_msgs/msg/TFMessage"]([one] * 5)


def scan(n):
    ranges = (np.arange(720) * 0.0137 + n * 1e-3).astype(np.float32)
    return T["sensor_msgs/msg/LaserScan"](header(n), -3.14, 3.14, 0.0087, 0.0, 0.1, 0.1, 30.0, ranges, ranges)


def make(bag, scale):
    with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        stamp = 1_700_000_000_000_000_000
        for topic, build, count in [("/imu", imu, 60), ("/odom", odometry, 20), ("/tf", transforms, 20), ("/scan", scan, 2)]:
            kind = build(0).__msgtype__
            connection = writer.add_connection(topic, kind, typestore=STORE)
            for n in range(count * scale):
                writer.write(connection, stamp + n * 5_000_000, STORE.serialize_cdr(build(n), kind))
    return 102 * scale


def rosbags_decodes(bag, _):
    with AnyReader([bag]) as reader:
        for connection, _, data in reader.messages():
            reader.deserialize(data, connection.msgtype)


def tree(value):
    if dataclasses.is_dataclass(value):
        return {f.name: tree(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "__msgtype__" and not f.name.isupper()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [tree(one) for one in value] if isinstance(value, list) else value


def rosbags_writes_json(bag, _):
    with AnyReader([bag]) as reader, open(os.devnull, "w") as out:
        for connection, stamp, data in reader.messages():
            message = tree(reader.deserialize(data, connection.msgtype))
            json.dump({"topic": connection.topic, "log_time": stamp, "message": message}, out)
            out.write("\n")


def cells(value):
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if field.name != "__msgtype__" and not field.name.isupper():
                yield from cells(getattr(value, field.name))
    elif isinstance(value, np.ndarray) and len(value) <= 64:
        yield from value.tolist()
    else:
        yield value.tolist() if isinstance(value, np.ndarray) else value


def rosbags_writes_csv(bag, out):
    out.mkdir()
    writers, streams = {}, []
    with AnyReader([bag]) as reader:
        for connection, stamp, data in reader.messages():
            if connection.topic not in writers:
                streams.append(open(out / (connection.topic.strip("/") + ".csv"), "w", newline=""))
                writers[connection.topic] = csv.writer(streams[-1])
            writers[connection.topic].writerow([stamp, *cells(reader.deserialize(data, connection.msgtype))])
    for stream in streams:
        stream.close()


def cpu():
    """CPU time of this process and of those that it started and waited for, which does not grow when others use the machine."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main():
    holdall = sys.argv[1]
    base = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir())
    repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        bag = folder / "bag"
        count = make(bag, int(sys.argv[4]) if len(sys.argv) > 4 else 400)

        def run(*arguments):
            subprocess.run([holdall, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

        candidates = {
            "rosbags, decode only": rosbags_decodes,
            "rosbags + json": rosbags_writes_json,
            "`holdall cat --json`": lambda bag, _: run("cat", bag, "--json"),
            "`holdall cat --json --no-arr` (arrays left as views, as rosbags does)": lambda bag, _: run("cat", bag, "--json", "--no-arr"),
            "`holdall cat` (YAML)": lambda bag, _: run("cat", bag),
            "`holdall cat --where`": lambda bag, _: run("cat", bag, "--json", "-t", "/imu", "-w", "imu: header.stamp.sec < 2"),
            "rosbags + csv": rosbags_writes_csv,
            "`holdall export -f csv`": lambda bag, out: run("export", bag, "-f", "csv", "-o", out),
            "`holdall export -f parquet`": lambda bag, out: run("export", bag, "-f", "parquet", "-o", out),
        }
        times = {name: [] for name in candidates}
        for _ in range(repetitions):
            for name, candidate in candidates.items():
                out = folder / "out"
                begin, begin_cpu = time.perf_counter(), cpu()
                candidate(bag, out)
                times[name].append((cpu() - begin_cpu, time.perf_counter() - begin))
                shutil.rmtree(out, ignore_errors=True)
        size = sum(path.stat().st_size for path in bag.glob("*.mcap")) / 1e6
        print(f"{count} messages, {size:.0f} MB, {repetitions} repetitions\n")
        print("| candidate | CPU s [range] | messages per CPU s | × rosbags | wall clock s |\n|---|---|---|---|---|")
        for name, taken in times.items():
            spent, wall = [sorted(column) for column in zip(*taken)]
            middle = statistics.median(spent)
            table = "csv" in name or "parquet" in name
            rival = times["rosbags + csv" if table else "rosbags + json" if ("json" in name or "YAML" in name) and "no-arr" not in name else "rosbags, decode only"]
            factor = statistics.median(one[0] for one in rival) / middle
            print(
                f"| {name} | {middle:.2f} [{spent[0]:.2f}, {spent[-1]:.2f}] | {count / middle:,.0f} | {factor:.1f} "
                f"| {statistics.median(wall):.2f} |"
            )
    finally:
        shutil.rmtree(folder)


main()
