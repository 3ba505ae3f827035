"""How fast messages are decoded: `holdall cat` and `holdall export` beside pip rosbags on the same bag, in the same run.

    .venv/bin/python scripts/bench-decode.py target/release/holdall [FOLDER] [REPETITIONS]

Makes a bag (IMU, odometry, transforms, laser scans), then runs all candidates in turn, so that each meets the same state of the machine, and
prints a table with medians and ranges. rosbags decodes into Python objects and writes nothing; holdall decodes and writes JSON (to /dev/null):
the comparison is to holdall's disadvantage. For CSV both write the same columns.
"""

import csv
import dataclasses
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


def main():
    holdall = sys.argv[1]
    base = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir())
    repetitions = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    folder = Path(tempfile.mkdtemp(dir=base))
    try:
        bag = folder / "bag"
        count = make(bag, 400)

        def run(*arguments):
            subprocess.run([holdall, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

        candidates = {
            "rosbags, decode only": rosbags_decodes,
            "`holdall cat --json`": lambda bag, _: run("cat", bag, "--json"),
            "`holdall cat` (YAML)": lambda bag, _: run("cat", bag),
            "`holdall cat --where` (1 of 60)": lambda bag, _: run("cat", bag, "--json", "-t", "/imu", "-w", "imu: header.stamp.sec < 2"),
            "rosbags + csv": rosbags_writes_csv,
            "`holdall export -f csv`": lambda bag, out: run("export", bag, "-f", "csv", "-o", out),
            "`holdall export -f parquet`": lambda bag, out: run("export", bag, "-f", "parquet", "-o", out),
        }
        times = {name: [] for name in candidates}
        for _ in range(repetitions):
            for name, candidate in candidates.items():
                out = folder / "out"
                begin = time.perf_counter()
                candidate(bag, out)
                times[name].append(time.perf_counter() - begin)
                shutil.rmtree(out, ignore_errors=True)
        size = sum(path.stat().st_size for path in bag.glob("*.mcap")) / 1e6
        print(f"{count} messages, {size:.0f} MB, {repetitions} repetitions\n")
        print("| candidate | median s [range] | messages/s | × rosbags |\n|---|---|---|---|")
        for name, taken in times.items():
            middle = statistics.median(taken)
            rival = statistics.median(times["rosbags + csv" if "csv" in name or "parquet" in name else "rosbags, decode only"])
            print(f"| {name} | {middle:.2f} [{min(taken):.2f}, {max(taken):.2f}] | {count / middle:,.0f} | {rival / middle:.1f} |")
    finally:
        shutil.rmtree(folder)


main()
