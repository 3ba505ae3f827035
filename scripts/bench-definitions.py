#!/usr/bin/env python3
"""How long after the discovery of a topic the definition of its type is there, when only the node that publishes it has it.

Usage: bench-definitions.py [--holdall PROGRAM] [--tries 20] [--order recorder_first|node_first]

A try starts a recorder and an rclpy node with a type that holdall does not bundle (tests/nodes/own_types.py), in an order, in a domain of their
own (LOCALHOST), and measures from the recorder's line that it records the topic to its line that a node has sent the definition.
Run it with a Python that has rclpy and test_msgs (.venv/bin/python of `make setup`).
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from programs import lines_of, wait_for

NODE = Path(__file__).parent.parent / "tests" / "nodes" / "own_types.py"


def one_try(options, number, folder):
    env = {
        **os.environ,
        "ROS_DOMAIN_ID": str(1 + (os.getpid() + number) % 100),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_LOG_DIR": folder,
    }
    recorder_env = {key: value for key, value in env.items() if key != "AMENT_PREFIX_PATH"}

    def start_node():
        node = subprocess.Popen([sys.executable, NODE, "-"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        node.stdin.write(json.dumps({"rate_hz": 50}))
        node.stdin.close()
        return node

    def start_recorder():
        command = [options.holdall, "record", "--topics", "/own", "-o", os.path.join(folder, str(number)), "--log-level", "debug", "--disable-keyboard-controls"]
        return subprocess.Popen(command, env=recorder_env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    started = []
    try:
        order = [(start_recorder, "Listening"), (start_node, "ready")]
        if options.order == "node_first":
            order.reverse()
        for start, ready in order:
            started.append(start())
            lines = lines_of(started[-1])
            wait_for(lines, ready)
            if start is start_recorder:
                recorder = lines
            if len(started) == 1:
                time.sleep(0.3 + 0.1 * (number % 7))
        found, _ = wait_for(recorder, "recording /own")
        return wait_for(recorder, "a node has sent its definition")[0] - found
    finally:
        for process in started:
            process.send_signal(signal.SIGINT)
        for process in started:
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holdall", default="target/release/holdall")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--order", choices=["recorder_first", "node_first"], default="recorder_first")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took = []
        for number in range(options.tries):
            took.append(one_try(options, number, folder))
            print(f"{number}: {took[-1]:.3f} s", flush=True)
    print(f"{options.order}: median {statistics.median(took):.3f} s, worst {max(took):.3f} s of {len(took)}")


if __name__ == "__main__":
    main()
