#!/usr/bin/env python3
"""Calls the services of a recorder and prints how many calls were answered and how soon: 100 calls of one client, and the first call of 50 fresh ones.

To be run with the tests' Python, whose rclpy and cyclonedds it calls with (docs/services.md has the figures):

    VENV/bin/python scripts/bench-services.py target/release/holdall
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
CALL = {"service": "/rosbag2_recorder/is_paused", "type": "rosbag2_interfaces/srv/IsPaused"}


def answered(env, client, **plan):
    plan = {"client": client, "definitions": str(ROOT / "crates/holdall-model/data/definitions.txt"), **plan}
    command = [sys.executable, str(ROOT / "tests/nodes/service_calls.py"), "-"]
    lines = subprocess.run(command, input=json.dumps(plan), env=env, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(event for event in map(json.loads, lines) if event["event"] == "answered")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("holdall", type=Path, help="the program")
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--fresh", type=int, default=50)
    arguments = parser.parse_args()
    env = {**os.environ, "ROS_DOMAIN_ID": str(1 + os.getpid() % 100), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(arguments.holdall), "record", "--topics", "/none", "-o", f"{folder}/bag"]
        recorder = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        for line in recorder.stderr:
            if "Listening for topics" in line:
                break
        print("| client | calls answered | median, ms | p99, ms | first calls of fresh clients answered | slowest, ms |\n|---|---|---|---|---|---|")
        for client in ("rclpy", "cyclone"):
            many = answered(env, client, calls=[{**CALL, "count": arguments.calls}])
            first = answered(env, client, calls=[CALL], fresh=arguments.fresh)
            took = sorted(many["milliseconds"])
            print(
                f"| {client} | {many['answered']} of {len(took)} | {took[len(took) // 2]:.2f} | {took[int(0.99 * (len(took) - 1))]:.2f} "
                f"| {first['answered']} of {arguments.fresh} | {max(first['milliseconds']):.1f} |",
                flush=True,
            )
        recorder.send_signal(signal.SIGINT)
        recorder.wait()


if __name__ == "__main__":
    main()
