#!/usr/bin/env python3
"""The loads of the MCAP project's comparison of languages (foxglove/mcap, pull request 1611): holdall's library, the crate `mcap` and the Python package
`mcap`, interleaved in one run. Prints a table for docs/benchmarks/tools.md.

    cargo build --release -p holdall-bench --example mcap_languages
    python scripts/bench-mcap.py target/release/examples/mcap_languages [--repeat 5]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# The same tasks by the Python package; it writes what the crate reads.
PYTHON = """
import json, resource, sys, time
from mcap.reader import make_reader
task, path = sys.argv[1:]
topics = ["/imu"] if task in ("topic", "both") else None
span = {"start_time": 3_000_000_000, "end_time": 5_000_000_000} if task in ("time", "both") else {}
began, count, size = time.monotonic(), 0, 0
with open(path, "rb") as file:
    for _, _, message in make_reader(file).iter_messages(topics=topics, **span):
        count, size = count + 1, size + len(message.data)
seconds = time.monotonic() - began
print(json.dumps({"messages": count, "bytes": size, "seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}))
"""
LIBRARIES = ["holdall", "crate", "python"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    found = {}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        folder = Path(folder)

        def run(library, task, path):
            command = [sys.executable, "-c", PYTHON] if library == "python" else [given.program, library]
            done = json.loads(subprocess.run([*command, task, path], check=True, capture_output=True, text=True).stdout)
            return done

        for load in ("small", "robot"):
            run("crate", f"write-{load}", folder / f"{load}.mcap")
        for repetition in range(given.repeat):
            for library in LIBRARIES:
                for load in ("small", "robot"):
                    if library != "python":
                        path = folder / f"{library}-{load}-{repetition}"
                        found.setdefault((load, "write", library), []).append(run(library, f"write-{load}", path))
                        subprocess.run(["rm", "-rf", path], check=True)
                    for task in ("read", "topic", "time", "both") if load == "robot" else ("read",):
                        found.setdefault((load, task, library), []).append(run(library, task, folder / f"{load}.mcap"))
    print("| load | task | " + " | ".join(f"{library}: ms, MiB of memory" for library in LIBRARIES) + " |\n" + "|---" * 5 + "|")
    for load, task in dict.fromkeys((load, task) for load, task, _ in found):
        cells = []
        counts = {tuple(one[name] for name in ("messages", "bytes")) for library in LIBRARIES for one in found.get((load, task, library), [])}
        assert len({count for count, _ in counts}) == 1, (load, task, counts)
        for library in LIBRARIES:
            runs = found.get((load, task, library))
            if not runs:
                cells.append("–")
                continue
            times = sorted(one["seconds"] * 1000 for one in runs)
            memory = max(one["memory"] for one in runs) >> 20
            cells.append(f"{statistics.median(times):.1f} ({times[0]:.1f}–{times[-1]:.1f}), {memory}")
        print(f"| {load} | {task} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
