#!/usr/bin/env python3
"""What a recording's end costs: how long it takes to close, how much memory it took, and what a kill takes away.

    scripts/bench-ends.py BEFORE AFTER [--pairs 3]

BEFORE and AFTER are two `holdall` programs; they take turns. Needs the project's .venv (rclpy, mcap). For each run one line:

close    a node sends 100 messages a second; the time from SIGINT to the recorder's exit, after 3 s
memory   a node sends 1 MiB as often as it can for 8 s; the recorder's largest resident set (VmHWM), and what it recorded
kill     a node sends 50 messages of 200 kB a second; after 3 s the recorder is killed (SIGKILL) and the bag repaired. The age of the newest
         message in the bag at the moment of the kill, and how many of those that the node had sent 20 ms before are missing
"""

import argparse
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Pair:
    """A real node and a recorder of its topic."""

    def __init__(self, program, folder, domain, publisher):
        environment = {**os.environ, "ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
        self.bag = folder / "bag"
        self.recorder = subprocess.Popen(
            [program, "record", publisher["topic"], "-o", str(self.bag), "--disable-keyboard-controls"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        self.log = folder / "sent"
        plan = {"publishers": [{**publisher, "log": str(self.log)}], "wait_for_subscriptions": 1}
        self.node = subprocess.Popen(
            [sys.executable, str(ROOT / "tests/nodes/talker.py"), "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        self.node.stdin.write(json.dumps(plan))
        self.node.stdin.close()
        while json.loads(self.node.stdout.readline())["event"] != "matched":
            pass

    def end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()

    def sent(self):
        """Time of each message before it was handed over, on the monotonic clock."""
        return [at for _, at in struct.iter_unpack("<Qd", self.log.read_bytes()[: self.log.stat().st_size // 16 * 16])]


def log_times(bag):
    from mcap.reader import make_reader

    times = []
    for path in sorted(bag.glob("*.mcap")):
        with open(path, "rb") as file:
            times += [message.log_time for _, _, message in make_reader(file).iter_messages()]
    return times


def close(program, folder, domain):
    publisher = {"topic": "/small", "type": "std_msgs/msg/String", "count": None, "rate_hz": 100, "size": 100}
    pair = Pair(program, folder, domain, publisher)
    time.sleep(3)
    begin = time.monotonic()
    pair.end(pair.recorder)
    took = time.monotonic() - begin
    pair.end(pair.node)
    return took, f"closed in {took:.3f} s, {len(log_times(pair.bag))} messages"


def memory(program, folder, domain):
    publisher = {"topic": "/large", "type": "std_msgs/msg/UInt8MultiArray", "count": None, "rate_hz": 2000, "size": 1 << 20}
    pair = Pair(program, folder, domain, publisher)
    time.sleep(8)
    status = Path(f"/proc/{pair.recorder.pid}/status").read_text()
    peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024
    pair.end(pair.node)
    pair.end(pair.recorder)
    return peak, f"{peak:.0f} MiB at most, {len(log_times(pair.bag))} of {len(pair.sent())} messages recorded"


def kill(program, folder, domain):
    publisher = {"topic": "/medium", "type": "std_msgs/msg/UInt8MultiArray", "count": None, "rate_hz": 50, "size": 200_000}
    pair = Pair(program, folder, domain, publisher)
    time.sleep(3)
    monotonic, wall = time.monotonic(), time.time_ns()
    pair.recorder.kill()
    pair.recorder.wait()
    pair.end(pair.node)
    subprocess.run([program, "repair", str(pair.bag)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    times = log_times(pair.bag)
    age = (wall - max(times)) / 1e9 if times else float("inf")
    due = sum(at < monotonic - 0.02 for at in pair.sent())
    return age, f"newest message {age * 1000:.0f} ms old, {max(0, due - len(times))} of {due} missing"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help="holdall programs that take turns")
    parser.add_argument("--pairs", type=int, default=3)
    options = parser.parse_args()
    domain = 1 + os.getpid() % 90
    for measure in (close, memory, kill):
        found = {program: [] for program in options.programs}
        for pair in range(options.pairs):
            for program in options.programs:
                with tempfile.TemporaryDirectory() as folder:
                    value, text = measure(program, Path(folder), domain)
                found[program].append(value)
                print(f"{measure.__name__} {pair} {program}: {text}", flush=True)
        for program, values in found.items():
            print(f"{measure.__name__}: {program}: median {statistics.median(values):.3f}", flush=True)


if __name__ == "__main__":
    main()
