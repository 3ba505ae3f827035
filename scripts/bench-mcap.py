#!/usr/bin/env python3
"""The loads of the MCAP project's comparison of languages (foxglove/mcap, pull request 1611): holdall's library, the crate `mcap` and the Python package
`mcap`, in turn in one run, each task in a process of its own. Prints a table for docs/benchmarks/tools.md.

    cargo build --release -p holdall-bench --example mcap_languages
    .venv/bin/python scripts/bench-mcap.py target/release/examples/mcap_languages [--repeat 5] [--folder DIR]

Needs 700 MB in DIR (by default the current folder) and a Python with `mcap`. Without compression; writing ends when the file is on the disk, reading begins with a file in the page cache.
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# The same tasks by the Python package; the plan is that of tools/bench/examples/mcap_languages.rs.
PYTHON = """
import json, os, re, sys, time
from mcap.reader import make_reader
from mcap.writer import CompressionType, Writer
ROBOT = [("/imu", "sensor_msgs/msg/Imu", 96, 96, 200), ("/odom", "nav_msgs/msg/Odometry", 296, 296, 50), ("/tf", "tf2_msgs/msg/TFMessage", 80, 1600, 100),
         ("/lidar", "sensor_msgs/msg/PointCloud2", 230400, 230400, 10), ("/camera", "sensor_msgs/msg/CompressedImage", 524288, 524288, 15)]
SMALL = [("/small", "std_msgs/msg/String", 100, 100, 100000)]
task, path = sys.argv[1:]
count = size = 0
if task.startswith("write-"):
    topics = SMALL if task == "write-small" else ROBOT
    plan = [(number * 10**9 // rate, place, least + number * 7919 % (most - least + 1))
            for place, (_, _, least, most, rate) in enumerate(topics) for number in range(rate * 10)]
    plan.sort()
    noise = bytes((at * 2654435761 & 0xFFFFFFFF) >> 24 for at in range(max(most for _, _, _, most, _ in topics)))
    began = time.monotonic()
    with open(path, "xb") as file:
        writer = Writer(file, compression=CompressionType.NONE)
        writer.start(profile="ros2", library="bench")
        channels = [writer.register_channel(name, "cdr", writer.register_schema(type_name, "ros2msg", b"")) for name, type_name, *_ in topics]
        for time_ns, place, length in plan:
            writer.add_message(channels[place], time_ns, noise[:length], time_ns, count)
            count += 1
        writer.finish()
        file.flush()
        os.fsync(file.fileno())
else:
    topics = ["/imu"] if task in ("topic", "both") else None
    span = {"start_time": 3_000_000_000, "end_time": 5_000_000_000} if task in ("time", "both") else {}
    began = time.monotonic()
    with open(path, "rb") as file:
        for _, _, message in make_reader(file).iter_messages(topics=topics, **span):
            count, size = count + 1, size + len(message.data)
seconds = time.monotonic() - began
# As the other two: ru_maxrss would have what the starter of this process held.
memory = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
print(json.dumps({"messages": count, "bytes": size, "seconds": seconds, "memory": memory}))
"""
LIBRARIES = ["holdall", "crate", "python"]
# Messages of each task; of those of a time, the seconds 3 and 4.
EXPECTED = {("small", "write"): 1_000_000, ("small", "read"): 1_000_000, ("robot", "write"): 3750, ("robot", "read"): 3750, ("robot", "topic"): 2000, ("robot", "time"): 750, ("robot", "both"): 400}


def run(program, library, task, path):
    command = [sys.executable, "-c", PYTHON] if library == "python" else [program, library]
    done = subprocess.run([*command, task, path], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{library} {task}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def remove(path):
    """A bag is a folder, what the others write is a file."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def measure(program, repeat, folder):
    """The runs by load, task and library."""
    found = {}
    for load in ("small", "robot"):
        run(program, "crate", f"write-{load}", folder / f"{load}.mcap")
    for repetition in range(repeat):
        # Each library is first as often as the others.
        first = repetition % len(LIBRARIES)
        for load, task in EXPECTED:
            for library in LIBRARIES[first:] + LIBRARIES[:first]:
                path = folder / (f"{library}-{load}" if task == "write" else f"{load}.mcap")
                found.setdefault((load, task, library), []).append(run(program, library, f"write-{load}" if task == "write" else task, path))
                if task == "write":
                    remove(path)
        print(f"round {repetition + 1} of {repeat}", file=sys.stderr, flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="the example mcap_languages")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path(), help="a folder on the disk that is measured")
    given = parser.parse_args()
    program = given.program.resolve()
    if not program.is_file():
        parser.error(f"{given.program}: no such program")
    try:
        version = importlib.metadata.version("mcap")
    except importlib.metadata.PackageNotFoundError:
        parser.error(f"{sys.executable} has no package mcap: run this with .venv/bin/python")
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="bench-mcap-") as folder:
        found = measure(program, given.repeat, Path(folder))
    print(f"{given.repeat} rounds, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end, Python {sys.version.split()[0]}, mcap {version} (Python); median (lowest–highest), most memory.\n")
    print("| load | task | " + " | ".join(f"{library}: ms, MiB" for library in LIBRARIES) + " |\n" + "|---" * 5 + "|")
    for (load, task), messages in EXPECTED.items():
        counts = {(one["messages"], one["bytes"]) for library in LIBRARIES for one in found[load, task, library]}
        assert len(counts) == 1 and {count for count, _ in counts} == {messages}, (load, task, counts)
        cells = []
        for library in LIBRARIES:
            times = sorted(one["seconds"] * 1000 for one in found[load, task, library])
            memory = max(one["memory"] for one in found[load, task, library]) >> 20
            cells.append(f"{statistics.median(times):.1f} ({times[0]:.1f}–{times[-1]:.1f}), {memory}")
        print(f"| {load} | {task} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
