#!/usr/bin/env python3
"""Plays 60 000 messages at ten times their rate to a reliable subscription, and counts what arrives.

    scripts/bench-play-delivery.py BEFORE AFTER [--pairs 3] [--count 60000] [--rate 10]

BEFORE and AFTER are two `holdall` programs; they take turns. Needs the project's .venv (rclpy, mcap). One line for each run: what the
subscription received, what the program reports, and its exit code. The subscription keeps all, so that it drops nothing itself. The bag has 1000 messages a second of 100 bytes on one reliable topic.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def write_bag(folder, count):
    """A bag of one topic, by pip mcap."""
    from mcap.writer import Writer

    folder.mkdir()
    path = folder / "steady_0.mcap"
    with open(path, "wb") as file:
        writer = Writer(file)
        writer.start("ros2", "bench-play-delivery")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data\n")
        profile = "- history: keep_last\n  depth: 10\n  reliability: reliable\n  durability: volatile\n"
        channel = writer.register_channel("/steady", "cdr", schema, {"offered_qos_profiles": profile})
        for number in range(count):
            text = f"{number:08}".encode() + b"x" * 92 + b"\0"
            payload = b"\0\1\0\0" + len(text).to_bytes(4, "little") + text
            writer.add_message(channel, number * 1_000_000, payload, number * 1_000_000)
        writer.finish()
    return path


def run(program, bag, rate, count):
    environment = {
        **os.environ,
        "ROS_DOMAIN_ID": str(1 + os.getpid() % 100),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
    }
    subscription = {"topic": "/steady", "type": "std_msgs/msg/String", "qos": {"reliability": "reliable", "history": "keep_all"}}
    listener = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/nodes/listener.py"), "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    listener.stdin.write(json.dumps({"subscriptions": [subscription], "expect": {"/steady": count}}))
    listener.stdin.close()
    assert json.loads(listener.stdout.readline())["event"] == "ready"
    played = subprocess.run(
        [program, "play", str(bag), "-r", str(rate), "--json", "--disable-keyboard-controls"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    )  # fmt: skip
    try:
        # It takes what it has received already, and ends by itself when that is all.
        listener.wait(20)
    except subprocess.TimeoutExpired:
        listener.send_signal(signal.SIGINT)
    done = next(event for event in map(json.loads, listener.stdout) if event["event"] == "done")
    listener.wait()
    report = json.loads(played.stdout)
    return done["received"]["/steady"]["count"], report, played.returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", help="holdall programs that take turns")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--count", type=int, default=60_000)
    parser.add_argument("--rate", type=float, default=10.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bag = write_bag(Path(folder) / "steady", options.count)
        for pair in range(options.pairs):
            for program in options.programs:
                received, report, code = run(program, bag, options.rate, options.count)
                lateness = report["lateness"]
                print(
                    f"pair {pair + 1}  {program}: received {received} of {report['published']}, missing {options.count - received}, "
                    f"unacknowledged {report.get('unacknowledged', '-')}, exit {code}, "
                    f"lateness p50 {lateness['p50_s'] * 1e6:.0f} µs, p99 {lateness['p99_s'] * 1e3:.2f} ms, {report['elapsed_s']:.2f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
